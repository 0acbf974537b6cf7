"""Host matrices larger than a limit on device memory, beside what PCIe and the kernel allow, on this machine's GPU.

    python benchmarks/streaming.py
    python benchmarks/streaming.py --sizes 32768 --limits 4GiB,16GiB

Products of float16 matrices by `gemmgen.gemm(..., device_memory=...)`, as NumPy's arrays, as memory maps, and as arrays
in `gemmgen.pinned`. What is allowed is the longer of two times: that of the same product of arrays on the GPU, and that
of copying A and B there once from pinned memory. Sums of small whole numbers are compared with the GPU's own in some
rows.

Printed are the times of the first call and of the best later one, and the part of what is allowed that this reaches: 1
would be everything hidden. A second part counts all copies that the limit makes necessary.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import cupy
import numpy as np
import numpy.typing as npt

import gemmgen
from gemmgen.api.streaming import plan, size_of

# Else a kernel for any size runs first, while the special one is compiled.
os.environ.setdefault("GEMMGEN_COMPILE_ASIDE", "0")

Matrix = npt.NDArray[np.float16]
#: Timed products; bytes of the copy that PCIe's rate is measured by; rows of a matrix until they repeat.
ROUNDS, COPIED, REPEATED = 3, 1 << 30, 4096


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """That of the first call, and the least of some later ones."""
    times = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        call()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - begin)
    return times[0], min(times[1:])


def rate_of_copies() -> float:
    """Bytes a second from pinned memory to the GPU."""
    pinned = cupy.cuda.alloc_pinned_memory(COPIED)
    target = cupy.empty(COPIED, cupy.uint8)
    _, took = seconds(lambda: target.data.copy_from_host(pinned.ptr, COPIED))
    return COPIED / took


def drawn(size: int, kind: str, folder: str, name: str) -> Matrix:
    """Small whole numbers, in memory or in a file."""
    rows = np.random.default_rng(ord(name)).integers(-2, 3, (min(size, REPEATED), size)).astype(np.float16)
    if kind == "maps":
        found: Matrix = np.memmap(Path(folder) / name, np.float16, "w+", shape=(size, size))
    else:
        found = np.empty((size, size), np.float16)
    for begin in range(0, size, REPEATED):
        found[begin : begin + REPEATED] = rows[: size - begin]
    return found


def on_gpu(a: Matrix, b: Matrix) -> tuple[float, Matrix]:
    """Seconds of the product of arrays that are on the GPU, and some of its rows."""
    x, y = cupy.asarray(a), cupy.asarray(b)
    _, took = seconds(partial(gemmgen.gemm, x, y))
    found: Matrix = cupy.asnumpy(gemmgen.gemm(x, y)[:: len(a) // 4])
    del x, y
    cupy.get_default_memory_pool().free_all_blocks()
    return took, found


def measure(size: int, limits: list[str], kind: str, rate: float) -> None:
    """A line for each limit."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        a, b, c = (drawn(size, kind, folder, name) for name in "abc")
        if kind == "pinned":
            begin = time.perf_counter()
            stack.enter_context(gemmgen.pinned(a, b, c))
            print(f"pinned in {time.perf_counter() - begin:.3f} s", flush=True)
        kernel, some = on_gpu(a, b)
        copies = (a.nbytes + b.nbytes) / rate
        for limit in limits:
            c[:: size // 4] = 0
            first, took = seconds(partial(gemmgen.gemm, a, b, out=c, device_memory=limit, backend="cuda"))
            needed = plan((size, size, size), (a.itemsize, c.itemsize), size_of(limit)).traffic / rate
            wrong = "" if np.array_equal(c[:: size // 4], some) else "  WRONG"
            print(
                f"{kind:6} {size:6} cubed, {3 * a.nbytes / 2**30:5.1f} GiB, {limit:>6}: first {first:7.3f} s, then "
                f"{took:7.3f} s, of what is allowed {max(kernel, copies) / took:.2f}, with all copies "
                f"{max(kernel, needed) / took:.2f} (kernel {kernel:.3f} s, copies {copies:.3f} s, all {needed:.3f} s)"
                f"{wrong}",
                flush=True,
            )


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="16384,32768")
    parser.add_argument("--limits", default="1GiB,4GiB")
    parser.add_argument("--kinds", default="arrays,maps,pinned")
    said = parser.parse_args()
    rate = rate_of_copies()
    print(f"copies to the GPU: {rate * 1e-9:.1f} GB/s", flush=True)
    for size in map(int, said.sizes.split(",")):
        for kind in said.kinds.split(","):
            measure(size, said.limits.split(","), kind, rate)


if __name__ == "__main__":
    main()
