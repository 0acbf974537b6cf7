"""What an epilogue costs on a CPU: `gemmgen.gemm` without one and with, beside NumPy's product and what follows it.

    python benchmarks/epilogues_cpu.py [SIZE ...] [--rounds N]      # the first CPU of Intel's OpenCL runtime

All take turns in one process, each round in another order; medians of rounds in TFLOP/s of the product alone. NumPy's
threads and the runtime's share the cores, so that a quarter of a second lies between turns. NumPy has no erf: gelu is
by its tanh form there.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gemmgen
from gemmgen.runtime.opencl_devices import pick

TURN, REST = 0.05, 0.25


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """In as few passes as NumPy has."""
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def seconds(run: Callable[[], object]) -> float:
    """Of a call, in the second half of a turn."""
    for count in (0, 1):
        begin, calls = time.perf_counter(), 0
        while not calls or time.perf_counter() - begin < TURN:
            run()
            calls += 1
        if count:
            return (time.perf_counter() - begin) / calls
    raise AssertionError


def main() -> None:
    """A line for each size and contender."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, default=[512, 1024, 2048])
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    device = pick(type="cpu", platform="Intel")
    for size in arguments.sizes:
        rng = np.random.default_rng(size)
        a, b = (rng.standard_normal((size, size), dtype=np.float32) / size**0.25 for _ in "ab")
        bias = rng.standard_normal(size, dtype=np.float32)

        def ours(*epilogue: str, a: np.ndarray = a, b: np.ndarray = b, bias: np.ndarray = bias) -> np.ndarray:
            arrays = {"bias": bias} if "bias" in epilogue else {}
            return gemmgen.gemm(a, b, epilogue=list(epilogue) or None, device=device, **arrays)

        contenders: dict[str, Callable[[], np.ndarray]] = {
            "gemmgen": ours,
            "gemmgen, relu": lambda ours=ours: ours("relu"),
            "gemmgen, bias, relu": lambda ours=ours: ours("bias", "relu"),
            "gemmgen, bias, gelu_tanh": lambda ours=ours: ours("bias", "gelu_tanh"),
            "gemmgen, bias, gelu": lambda ours=ours: ours("bias", "gelu"),
            "numpy": lambda a=a, b=b: a @ b,
            "numpy, bias, relu": lambda a=a, b=b, bias=bias: np.maximum(a @ b + bias, 0),
            "numpy, bias, gelu_tanh": lambda a=a, b=b, bias=bias: gelu_tanh(a @ b + bias),
        }
        for name in ("bias, relu", "bias, gelu_tanh"):
            assert np.allclose(contenders[f"gemmgen, {name}"](), contenders[f"numpy, {name}"](), atol=1e-4), name
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(arguments.rounds):
            for name in random.sample(list(contenders), len(contenders)):
                found[name].append(seconds(contenders[name]))
                time.sleep(REST)
        for name, times in found.items():
            rate = 2e-12 * size**3 / median(times)
            print(f"{size:5d}  {name:25s} {rate:.3f} TFLOP/s, {1e6 * median(times):8.0f} us", flush=True)


if __name__ == "__main__":
    main()
