"""Runs the steps of the ladder on an OpenCL device, and one made for CPUs: the time of each, beside the first."""

from __future__ import annotations

import sys
import time

import numpy as np

import gemmgen
from gemmgen import presets

STEPS = (
    "naive_16x16",
    "vec4_4x4",
    "tile_8x8",
    "smem_8x8",
    "smem_8x8_transposed",
    "smem_8x8_reg_double",
    "smem_8x8_double",
    "cpu_6x64",
)


def seconds_of(step: str, a: np.ndarray, b: np.ndarray) -> float:
    """The shortest of five calls, after one that compiles and is compared with NumPy."""
    kernel = gemmgen.compile(presets.load(step).spec, step)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        kernel(a, b)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Takes M = N = K as its argument; 512 without one."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    random = np.random.default_rng(0)
    a, b = random.random((size, size), np.float32), random.random((size, size), np.float32)
    first = None
    for step in STEPS:
        seconds = seconds_of(step, a, b)
        first = first or seconds
        print(
            f"{step:<22} {seconds * 1e3:8.2f} ms  {2 * size**3 / seconds / 1e9:7.1f} GFLOP/s  {first / seconds:5.2f}x"
        )


if __name__ == "__main__":
    main()
