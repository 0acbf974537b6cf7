"""Checks of every preset on this machine's GPU; small ones for compute-sanitizer.

    python benchmarks/check_cuda.py                                     # as tests/device/test_cuda_presets.py
    compute-sanitizer --tool memcheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool racecheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool synccheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool initcheck python benchmarks/check_cuda.py --small

With --small each array has memory of its own (no pool), so that a step past its end is seen.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import presets
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick
from tests.support import cuda
from tests.support.problems import Problem


def check(name: str, gpu: CudaDeviceInfo, small: bool) -> str:
    """Everything about one preset; its registers and spills."""
    rng = np.random.default_rng(0)
    preset = presets.load(name)
    kernel = cuda.compiled(name, gpu)
    # What aligned arrays get from `gemmgen.compile`.
    twin = cuda.compiled(name, gpu, replace(preset.spec, ld_multiple=4)) if cuda.vectors(preset.schedule) else None
    if small:
        for m, n, k in cuda.SMALL_SIZES:
            _without_guards(kernel, rng, m, n, k)
            _without_guards(kernel, rng, m, n, k + 3)
            if twin is not None:
                _without_guards(twin, rng, m, n + -n % 4, k + -k % 4)
    else:
        cuda.check_ragged(kernel, rng, cuda.SIZES)
        cuda.check_exact(kernel, rng)
        cuda.check_repeats(kernel, rng, (1025, 1031, 517), 20)
        cuda.check_two_streams(kernel, rng)
        if twin is not None:
            cuda.check_aligned(twin, rng, cuda.SIZES)
            cuda.check_repeats(twin, rng, (1025, 1032, 516), 20)
    (used,) = kernel.resources
    return f"{used.registers} registers, {used.spilled_bytes} B spilled, {used.shared_bytes:,} B shared"


def _without_guards(kernel: CudaKernel, rng: np.random.Generator, m: int, n: int, k: int) -> None:
    """A product of arrays each with memory of its own: guards around them would hide a step past the end."""
    import cupy

    problem = Problem.random(rng, m, n, k)
    a, b, c = (cupy.asarray(x) for x in (problem.a, problem.b, problem.c))
    problem.check(kernel(a, b, c).get())


def main() -> int:
    """Check and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, one allocation an array")
    parser.add_argument("names", nargs="*", help="presets; all that CUDA can express if none is named")
    arguments = parser.parse_args()
    gpu = pick()
    print(gpu)
    if arguments.small:
        import cupy

        cupy.cuda.set_allocator(None)
    failed = 0
    for name in arguments.names or cuda.names():
        begin = time.perf_counter()
        try:
            verdict = "ok     " + check(name, gpu, arguments.small)
        except Exception:  # noqa: BLE001  (told, and the next one is checked)
            failed += 1
            verdict = "FAILED " + traceback.format_exc().strip()
        print(f"{name:28} {time.perf_counter() - begin:6.1f} s  {verdict}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
