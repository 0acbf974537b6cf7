"""Kernels of one core beside each other and beside libraries, a call at a time: percentiles of rates.

    taskset -c 1 env OPENBLAS_NUM_THREADS=1 python benchmarks/cpu_turns.py 1024 chosen numpy mkl --seconds 20
    taskset -c 1 python benchmarks/cpu_turns.py 512 cpu_6x64_copied cpu_6x64_copied:block_k=4,mc=1

A contender is a preset or `chosen`, with what differs, or a library. Other machines' jobs on the processor come and
go within a second, and take a third of the speed of all: so each call is timed by itself, all take turns in another
order each time, low percentiles say how they fare beside such jobs, and high ones alone. For one core: threads of a
library that wait in circles would take another's.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import gemmgen
from gemmgen import candidates
from gemmgen.bench.libraries import product_of
from gemmgen.choose import choose
from gemmgen.options.schedules import build_schedule
from gemmgen.runtime.opencl_devices import pick, target_of
from gemmgen.spec import parse_dtype

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


PERCENTILES = (10, 25, 50, 75, 90, 95)


def contender(text: str, a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    """What computes the product once."""
    name, _, fields = text.partition(":")
    if name in ("numpy", "mkl"):
        library = product_of(name, a, b, None)
        return lambda: library.run(1)
    device, shape = pick(type="cpu", platform="Intel"), (a.shape[0], b.shape[1], a.shape[1])
    spec = gemmgen.GemmSpec(dtype=parse_dtype(a.dtype.name))
    chosen = choose(spec, shape, target_of(device.handle)) if name == "chosen" else candidates.load(name).schedule
    schedule = build_schedule(sets=filter(None, fields.split(",")), base=chosen)
    kernel, c = gemmgen.compile(spec, schedule, device=device), np.full(shape[:2], np.nan, a.dtype)
    kernel(a, b, c)
    error = np.abs(c - a.astype(np.float64) @ b).max()
    assert error < 1e-5 * shape[2], f"{text} is off by {error}"
    return lambda: kernel(a, b, c)


def measure(size: str, names: list[str], dtype: str, seconds: float) -> None:
    """A line for each contender."""
    m, n, k = (int(x) for x in size.split("x")) if "x" in size else (int(size),) * 3
    rng = np.random.default_rng(m)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    runs = [(name, contender(name, a, b), list[float]()) for name in names]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _, run, times in random.sample(runs, len(runs)):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    print(f"{size:>16}  GFLOP/s at percentile" + "".join(f"{p:7}" for p in PERCENTILES))
    for name, _, times in runs:
        rates = np.percentile(2e-9 * m * n * k / np.array(times), PERCENTILES)
        print(f"{name:>39}" + "".join(f"{rate:7.1f}" for rate in rates) + f"  of {len(times)} calls", flush=True)


def main() -> None:
    """Size by size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes")
    parser.add_argument("contenders", nargs="+")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--dtype", default="float32")
    arguments = parser.parse_args()
    for size in arguments.sizes.split(","):
        measure(size, arguments.contenders, arguments.dtype, arguments.seconds)


if __name__ == "__main__":
    main()
