"""The host's time for a call on a GPU: `gemmgen.gemm` and compiled kernels beside `torch.matmul`, in one process.

    python benchmarks/host_time.py --json benchmarks/results/host_time.json

Each figure is the median of 1,000 calls, in blocks of 50 that alternate with torch's. Before each block the GPU is
idle, so that no call waits for room in its queue. Every call gets other tensors than the call before. Results are
compared with float64's first.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path

import torch

import gemmgen
from gemmgen.choose import choose
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.cuda_devices import pick
from gemmgen.spec import GemmSpec

#: Calls of one figure, and of a block between two synchronisations.
CALLS, BLOCK = 1000, 50
#: Operands that calls take in turn.
SETS = 4
#: Type, M, N, K: one launch of plain loads; TMA; split-K with a second kernel and in clusters; stream-K; packing.
SHAPES = (
    ("float32", 64, 64, 64),
    ("float32", 512, 512, 512),
    ("float32", 128, 14336, 4096),
    ("float32", 64, 64, 65536),
    ("float32", 1023, 1025, 511),
    ("bfloat16", 1, 4096, 4096),
    ("bfloat16", 16, 4096, 4096),
    ("bfloat16", 128, 14336, 4096),
    ("bfloat16", 512, 512, 512),
    ("bfloat16", 2048, 2048, 2048),
    ("bfloat16", 4096, 4096, 4096),
    ("float16", 256, 4096, 14336),
)
Call = Callable[[int], object]


def clocked(calls: Sequence[Call]) -> list[float]:
    """The median host time of each call in microseconds, in blocks that alternate."""
    taken: list[list[float]] = [[] for _ in calls]
    clock = time.perf_counter
    for call in calls:
        for index in range(SETS * 3):
            call(index % SETS)
    torch.cuda.synchronize()
    for _ in range(CALLS // BLOCK):
        for call, times in zip(calls, taken, strict=True):
            for _, index in zip(range(BLOCK), cycle(range(SETS)), strict=False):
                begin = clock()
                call(index)
                times.append(clock() - begin)
            torch.cuda.synchronize()
    return [statistics.median(times) * 1e6 for times in taken]


def check(name: str, got: object, a: torch.Tensor, b: torch.Tensor) -> None:
    """Raises: AssertionError unless a result is near the float64 product."""
    found = torch.as_tensor(got, device="cuda").double()
    exact = a.double() @ b.double()
    error = float((found - exact).norm() / exact.norm())
    assert error < 0.02, (name, error)


def schedule_of(dtype: str, m: int, n: int, k: int, a: object, b: object) -> tuple[gemmgen.CudaKernel, str]:
    """The kernel that is chosen for a shape, and what it launches."""
    spec = GemmSpec(dtype=MATRIX_DTYPES[dtype], ld_multiple=8 if dtype != "float32" and not (n % 8 or k % 8) else 1)
    schedule = choose(spec, (m, n, k), pick().target)
    kernel = gemmgen.compile(spec, schedule, backend="cuda")
    source = kernel.source_for(a, b)
    maps = sum(len(entry.maps) for entry in source.entry_points)
    return kernel, f"{schedule.name or kernel_name(schedule, spec)}: {len(source.entry_points)} kernels, {maps} maps"


def measure(dtype: str, m: int, n: int, k: int) -> dict[str, object]:
    """The figures of one shape."""
    known = getattr(torch, dtype)
    a, b, c = ([torch.randn(shape, device="cuda").to(known) for _ in range(SETS)] for shape in ((m, k), (k, n), (m, n)))
    kernel, what = schedule_of(dtype, m, n, k, a[0], b[0])
    calls: dict[str, Call] = {
        "torch": lambda i: torch.matmul(a[i], b[i]),
        "torch out": lambda i: torch.matmul(a[i], b[i], out=c[i]),
        "gemm": lambda i: gemmgen.gemm(a[i], b[i]),
        "gemm out": lambda i: gemmgen.gemm(a[i], b[i], out=c[i]),
        "kernel": lambda i: kernel(a[i], b[i]),
        "kernel out": lambda i: kernel(a[i], b[i], c[i]),
    }
    calls |= of_cupy(dtype, m, n, k)
    for _ in range(2):
        kernel(a[0], b[0], c[0])
    calls["driver"] = of_driver(kernel)
    for name, call in calls.items():
        if not name.startswith(("torch", "cupy", "driver")):
            check(name, call(1), a[1], b[1])
    figures = dict(zip(calls, clocked([*calls.values()]), strict=True))
    return {"dtype": dtype, "m": m, "n": n, "k": k, "schedule": what, **figures}


def of_driver(kernel: gemmgen.CudaKernel) -> Call:
    """The launches of a kernel's last call again, without anything of ours around them."""
    launches = kernel._calls.last.steps[0].launches
    frame, launch = launches._frames[0], launches._launch

    def again(_: int) -> None:
        for each in frame.launches:
            launch(*each)

    return again


def of_cupy(dtype: str, m: int, n: int, k: int) -> dict[str, Call]:
    """The calls with CuPy's arrays, if CuPy is there and has the type."""
    try:
        import cupy
    except ImportError:
        return {}
    if dtype == "bfloat16":
        return {}
    a, b, c = (
        [cupy.random.standard_normal(shape).astype(dtype) for _ in range(SETS)] for shape in ((m, k), (k, n), (m, n))
    )
    return {
        "cupy": lambda i: gemmgen.gemm(a[i], b[i]),
        "cupy out": lambda i: gemmgen.gemm(a[i], b[i], out=c[i]),
    }


def views() -> list[dict[str, object]]:
    """Strided views, batches and permuted heads."""
    x = [torch.randn(512, 1024, device="cuda") for _ in range(SETS)]
    stack = [torch.randn(16, 64, 64, device="cuda") for _ in range(SETS)]
    heads = [torch.randn(2, 128, 16, 64, device="cuda", dtype=torch.bfloat16) for _ in range(SETS)]
    named: dict[str, tuple[Callable[[int], torch.Tensor], Callable[[int], torch.Tensor]]] = {
        "a slice": (lambda i: x[i][:, :512], lambda i: x[i][:, 512:]),
        "transposed": (lambda i: x[i].mT, lambda i: x[i]),
        "every other column": (lambda i: x[i][:, ::2], lambda i: x[i][:, :256]),
        "a batch": (lambda i: stack[i], lambda i: stack[i]),
        "a batch beside one matrix": (lambda i: stack[i], lambda i: stack[i][0]),
        "permuted heads": (lambda i: heads[i].permute(0, 2, 1, 3), lambda i: heads[i].permute(0, 2, 3, 1)),
    }
    rows: list[dict[str, object]] = []
    for name, (left, right) in named.items():
        check(name, gemmgen.gemm(left(0), right(0)), left(0), right(0))
        theirs, ours = compared([(left(i), right(i)) for i in range(SETS)])
        rows.append({"view": name, "torch": theirs, "gemm": ours, "ratio": ours / theirs})
    return rows


def compared(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """The figures of torch and of `gemm` for pairs of tensors."""
    theirs, ours = clocked([lambda i: torch.matmul(*pairs[i]), lambda i: gemmgen.gemm(*pairs[i])])
    return theirs, ours


def main() -> None:
    """Measure, and print a line for each shape and each kind of view."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ["GEMMGEN_COMPILE_ASIDE"] = "0"  # what is timed is the kernel that is chosen
    rows = []
    for shape in SHAPES:
        row = measure(*shape)
        rows.append(row)
        theirs = float(str(row["torch"]))
        figures = " ".join(
            f"{name} {value:.1f} ({value / theirs:.2f})" for name, value in row.items() if isinstance(value, float)
        )
        print("x".join(map(str, shape)), row["schedule"], "|", figures, flush=True)
    found = views()
    for each in found:
        print(*(f"{value:.2f}" if isinstance(value, float) else value for value in each.values()), flush=True)
    if args.json is not None:
        about = {"device": str(pick()), "torch": torch.__version__}
        args.json.write_text(json.dumps({"about": about, "shapes": rows, "views": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
