"""Checks of every preset on this machine's GPU; small ones for compute-sanitizer.

    python benchmarks/check_cuda.py                                     # as tests/device/test_cuda_presets.py
    compute-sanitizer --tool memcheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool racecheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool synccheck python benchmarks/check_cuda.py --small
    compute-sanitizer --tool initcheck python benchmarks/check_cuda.py --small
    python benchmarks/check_cuda.py --repeats 300                       # the same bits each time

With --small each array has memory of its own (no pool), so that a step past its end is seen. Kernels of matrix
instructions, which have tests of their own, are run with --small and --repeats alone (by torch, since CuPy has
no bfloat16), with --small on whole numbers that come out exactly. With --part 2/8 every eighth preset, from the third
one on: for processes side by side.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import gemmgen
from gemmgen import candidates
from gemmgen.api.compile import cuda_kernel
from gemmgen.ir.instructions import product_error
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick
from gemmgen.simulator.semantics import Numbers
from tests.support import cuda
from tests.support.problems import Problem

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


if TYPE_CHECKING:
    import torch

    from gemmgen.spec import GemmSpec

#: What is multiplied again and again.
REPEATED = (513, 517, 301)


def check(name: str, gpu: CudaDeviceInfo, small: bool) -> str:
    """Everything about one preset; its registers and spills."""
    rng = np.random.default_rng(0)
    preset = candidates.load(name)
    kernel = cuda.compiled(name, gpu)
    # What aligned arrays get from `gemmgen.compile`.
    twin = cuda.compiled(name, gpu, replace(preset.spec, ld_multiple=4)) if name in cuda.with_vectors() else None
    if small:
        for m, n, k in cuda.SMALL_SIZES:
            _without_guards(kernel, rng, m, n, k)
            _without_guards(kernel, rng, m, n, k + 3)
            if twin is not None:
                _without_guards(twin, rng, m, n + -n % 4, k + -k % 4)
    else:
        cuda.check_ragged(kernel, rng, cuda.SIZES)
        cuda.check_exact(kernel, rng)
        cuda.check_repeats(kernel, rng, (1025, 1031, 517), 20, cuda.same_bits(name))
        cuda.check_two_streams(kernel, rng, cuda.same_bits(name))
        if twin is not None:
            cuda.check_aligned(twin, rng, cuda.SIZES)
            cuda.check_repeats(twin, rng, (1025, 1032, 516), 20, cuda.same_bits(name))
    used = kernel.resources
    spilled, shared = sum(u.spilled_bytes for u in used), max(u.shared_bytes for u in used)
    return f"{' + '.join(str(u.registers) for u in used)} registers, {spilled} B spilled, {shared:,} B shared"


def check_matrices(name: str) -> str:
    """Of a preset whose warps multiply as one: small whole numbers, under, around and over a block."""
    rng, preset = np.random.default_rng(0), candidates.load(name)
    spec, kernel = preset.spec, gemmgen.compile(preset.spec, preset.schedule, backend="cuda")
    for m, n, k in cuda.SMALL_SIZES:
        a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
        left, right, c = _tensors(spec, a, b)
        kernel(left, right, c)
        # Exact, but where each float32 is multiplied by way of several of TF32.
        off = np.abs(c.cpu().double().numpy() - _as_stored(a @ b, c))
        error = product_error(preset.schedule.atom, spec.dtype)
        most = (error + 2 * (k + 3) * 2.0**-24 * (error > 0)) * (np.abs(a) @ np.abs(b))
        assert (off <= most).all(), f"{m}x{n}x{k}: off by {float(off.max())}"
    return "registers " + " + ".join(str(used.registers) for used in kernel.resources)


def repeat_matrices(name: str, times: int) -> str:
    """Such a preset as often, on normal numbers, from memory that held NaN, or -1."""
    rng, preset, (m, n, k) = np.random.default_rng(0), candidates.load(name), REPEATED
    spec, kernel = preset.spec, gemmgen.compile(preset.spec, preset.schedule, backend="cuda")
    size = 1.0 if spec.dtype.is_float else 8.0
    a, b, c = _tensors(spec, size * rng.standard_normal((m, k)), size * rng.standard_normal((k, n)))
    poison = float("nan") if spec.result.is_float else -1
    kernel(a, b, c.fill_(poison))
    first = c.clone()
    right = (a.cpu().double() @ b.cpu().double()).numpy()
    found = first.cpu().double().numpy()
    assert np.linalg.norm(found - right) <= 0.01 * np.linalg.norm(right), "the first product is wrong"
    for _ in range(times - 1):
        kernel(a, b, c.fill_(poison))
        assert bool((c == first).all()), "a repeat differs"
    return f"{times} repeats of {m}x{n}x{k} bit-identical"


def _tensors(spec: GemmSpec, a: Numbers, b: Numbers) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A, B and a C of -1 on the GPU, as a spec has them."""
    import torch

    dtype, result = (getattr(torch, str(x)) for x in (spec.dtype, spec.result))
    left, right = (torch.from_numpy(x.astype(np.float64)).to(dtype) for x in (a, b))
    c = torch.full((len(a), b.shape[1]), -1.0).to(result)
    return _lines(left, spec.a_order), _lines(right, spec.b_order), _lines(c, spec.c_order)


def _as_stored(right: Numbers, like: torch.Tensor) -> Numbers:
    """Numbers as the type of a tensor holds them."""
    import torch

    stored: Numbers = torch.from_numpy(right.astype(np.float64)).to(like.dtype).double().numpy()
    return stored


def _lines(matrix: torch.Tensor, order: str) -> torch.Tensor:
    """On the GPU, its lines as far apart as boxes must be; what lies between is written, too, since boxes read it."""
    import torch

    given = matrix if order == "row" else matrix.T
    lines, length = given.shape
    whole = torch.zeros((lines, -(-length // 16) * 16), dtype=matrix.dtype)
    whole[:, :length] = given
    there = whole.cuda()[:, :length]
    return there if order == "row" else there.T


def repeat(name: str, gpu: CudaDeviceInfo, times: int) -> str:
    """One preset as often, whose sums come in a fixed order."""
    if not cuda.same_bits(name):
        return "adds in no fixed order"
    if _by_warps(name):
        return repeat_matrices(name, times)
    preset = candidates.load(name)
    kernel = cuda_kernel(preset.spec, preset.schedule, gpu)
    cuda.check_repeats(kernel, np.random.default_rng(0), REPEATED, times)
    return f"{times} repeats of {'x'.join(map(str, REPEATED))} bit-identical"


def _without_guards(kernel: CudaKernel, rng: np.random.Generator, m: int, n: int, k: int) -> None:
    """A product of arrays each with memory of its own: guards around them would hide a step past the end."""
    import cupy

    problem = Problem.random(rng, m, n, k)
    a, b, c = (cupy.asarray(x) for x in (problem.a, problem.b, problem.c))
    problem.check(kernel(a, b, c).get())


def _by_warps(name: str) -> bool:
    schedule = candidates.load(name).schedule
    return schedule.by_warps or schedule.by_warpgroups


def main() -> int:
    """Check and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, one allocation an array")
    parser.add_argument("--repeats", type=int, default=0, metavar="N", help="so many products, nothing else")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th preset, from the I-th on")
    parser.add_argument("names", nargs="*", help="presets; all that CUDA can express if none is named")
    arguments = parser.parse_args()
    gpu = pick()
    print(gpu)
    if arguments.small:
        import cupy

        cupy.cuda.set_allocator(None)
        os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    by_warps = [name for name in candidates.names() if _by_warps(name)] if arguments.small or arguments.repeats else []
    first, step = map(int, arguments.part.split("/"))
    failed = 0
    for name in (arguments.names or [*cuda.names(), *by_warps])[first::step]:
        begin = time.perf_counter()
        try:
            if arguments.repeats:
                verdict = "ok     " + repeat(name, gpu, arguments.repeats)
            elif _by_warps(name):
                verdict = "ok     " + check_matrices(name)
            else:
                verdict = "ok     " + check(name, gpu, arguments.small)
        except Exception:  # noqa: BLE001  (told, and the next one is checked)
            failed += 1
            verdict = "FAILED " + traceback.format_exc().strip()
        print(f"{name:28} {time.perf_counter() - begin:6.1f} s  {verdict}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
