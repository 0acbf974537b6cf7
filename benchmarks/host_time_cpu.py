"""The host's time for a call on a CPU: arrays of NumPy, pyopencl and torch, by OpenCL and by SYCL, in one process.

    python benchmarks/host_time_cpu.py --json benchmarks/results/host_time_cpu.json

Each figure is the median of 1,000 calls, after 50. pyopencl's calls end with `queue.finish()`. SYCL's and torch's rows
are left out where these are not installed. What is timed is a kernel, not NumPy itself (`GEMMGEN_NUMPY=0`), except in
the row `calibrated`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyopencl.array as cl_array

import gemmgen
from gemmgen.errors import DeviceError
from gemmgen.runtime.opencl_devices import devices, own_queue, pick

SIZES = (16, 64, 256)
CALLS, UNTIMED = 1000, 50


def clocked(call: Callable[[], object]) -> float:
    """The median host time of a call in microseconds."""
    times = []
    for index in range(UNTIMED + CALLS):
        begin = time.perf_counter()
        call()
        if index >= UNTIMED:
            times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def calls_of(size: int) -> dict[str, Callable[[], object]]:
    """The calls of products of one size, by name."""
    rng = np.random.default_rng(size)
    a, b = (rng.random((size, size), np.float32) for _ in "ab")
    c, kernel, queue = np.empty_like(a), gemmgen.compile(), own_queue(pick().handle)
    x, y, z = (cl_array.to_device(queue, array) for array in (a, b, c))

    def on_device() -> None:
        gemmgen.gemm(x, y, out=z)
        queue.finish()

    found: dict[str, Callable[[], object]] = {
        "numpy.matmul": lambda: np.matmul(a, b),
        "gemm": lambda: gemmgen.gemm(a, b),
        "gemm, out=": lambda: gemmgen.gemm(a, b, out=c),
        "gemm, c= and out=": lambda: gemmgen.gemm(a, b, a, beta=2, out=c),
        "kernel(a, b, c)": lambda: kernel(a, b, c),
        "gemm of pyopencl's, out=": on_device,
        **copied(rng, size),
    }
    for info in devices():
        if info.name != pick().name:
            other = gemmgen.compile(device=info)
            found[f"kernel(a, b, c), {info.platform.split()[0]}'s"] = partial(other, a, b, c)
    try:
        gemmgen.gemm(a, b, backend="sycl")
        found["gemm by SYCL"] = lambda: gemmgen.gemm(a, b, backend="sycl")
        of_sycl = gemmgen.compile(backend="sycl")
        shared = [of_sycl.empty((size, size)) for _ in range(3)]
        found["SYCL's kernel, USM"] = lambda: of_sycl(*shared)
    except DeviceError as error:
        print(str(error).splitlines()[0])
    if find_spec("torch") is not None:
        import torch

        from gemmgen.torch import gemm as of_torch

        left, right = torch.from_numpy(a), torch.from_numpy(b)
        found["torch.matmul"] = lambda: torch.matmul(left, right)
        found["gemm of torch's"] = lambda: gemmgen.gemm(left, right)
        found["gemmgen.torch.gemm"] = lambda: of_torch(left, right)
        parts, ends = torch.from_numpy(np.stack([b, b])), torch.tensor([size // 2, size], dtype=torch.int32)
        found["grouped of torch's"] = lambda: gemmgen.grouped(left, parts, ends)
    return found


def copied(rng: np.random.Generator, size: int) -> dict[str, Callable[[], object]]:
    """Calls whose arrays are copied or converted, or which are several products."""
    gaps, b = rng.random((size, 2 * size), np.float32)[:, ::2], rng.random((size, size), np.float32)
    heads, keys = rng.random((2, size, 4, size), np.float32).transpose(0, 2, 1, 3), rng.random((2, 4, size, size))
    keys, left, right = keys.astype(np.float32), gaps.astype(np.int8), b.astype(np.int8)
    return {
        "gemm, every other column": lambda: gemmgen.gemm(gaps, b),
        "gemm, 2 x 4 permuted heads": lambda: gemmgen.gemm(heads, keys),
        "gemm, int8": lambda: gemmgen.gemm(left, right),
    }


def main() -> None:
    """Measure, and print a line for each call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ |= {"GEMMGEN_COMPILE_ASIDE": "0", "GEMMGEN_NUMPY": "0"}
    rows = {size: {name: clocked(call) for name, call in calls_of(size).items()} for size in SIZES}
    os.environ["GEMMGEN_NUMPY"] = "1"
    for size, figures in rows.items():
        a = np.ones((size, size), np.float32)[:, :]
        other = np.asfortranarray(a)  # a kind of call of its own, so that it is timed beside NumPy
        figures["calibrated"] = clocked(lambda a=a, other=other: gemmgen.gemm(a, other))  # type: ignore[misc]
    for name in rows[SIZES[0]]:
        print(f"{name:28s}", " ".join(f"{figures[name]:9.1f}" for figures in rows.values()))
    if args.json is not None:
        args.json.write_text(json.dumps({"device": str(pick()), "us": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
