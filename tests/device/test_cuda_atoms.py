"""Every matrix instruction of the tables on a GPU, once: whole numbers as the interpreter has them, others within what
their sums may lose. Then elements of a byte, and lines that no tensor map takes, in products of any size.

A kernel that waits for what never comes hangs: run this file by itself, under a time limit
(`timeout 300 pytest -x tests/device/test_cuda_atoms.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import cast

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, FLOAT8, I8, DType, accumulator
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.warp_matrix import WARP_ATOMS, cut_sums, product_error
from gemmgen.ir.warpgroup_matrix import WARPGROUP_ATOMS
from gemmgen.methods import defaults
from gemmgen.oracle import answer
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support import cuda
from tests.support.problems import Matrix, Problem, interpret

SKIP = cuda.why_no_gpu() or (None if find_spec("torch") else "torch is not installed")
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
ATOMS = (
    *((atom.name, atom.dtype) for atom in WARP_ATOMS),
    *((atom.name, atom.dtype) for atom in WARPGROUP_ATOMS),
)
#: Those that multiply whole numbers exactly, and not heads and rests.
WHOLE = tuple((name, dtype) for name, dtype in ATOMS if "3xtf32" not in name)
#: Under, around and over a block; whole blocks; a single element; K of fewer steps than the ring has slots, and more.
SIZES = ((1, 1, 1), (129, 131, 37), (256, 512, 64), (200, 520, 296), (130, 260, 1001))


def has(feature: str) -> bool:
    return feature in target_of(pick()).features


@cache
def compiled(spec: GemmSpec, schedule: Schedule) -> CudaKernel:
    needed = "wgmma" if schedule.by_warpgroups else "fp8" if spec.dtype in FLOAT8 else "mma"
    if not has(needed):
        pytest.skip(f"{pick().name} has no {needed}")
    return gemmgen.compile(spec, schedule, backend="cuda")


def on_gpu(spec: GemmSpec, schedule: Schedule, problem: Problem, pad: int = 0) -> Matrix:
    """The product; lines `pad` elements longer than they need be, or more where their length is promised."""
    import torch

    kernel = compiled(spec, schedule)

    def tensor(matrix: Matrix, order: Order, dtype: DType) -> torch.Tensor:
        lines = np.asarray(matrix if order == "row" else matrix.T)
        length = lines.shape[1] + pad
        bits = {1: np.uint8, 2: np.int16}.get(dtype.size) if dtype.is_float else None
        whole = np.zeros((lines.shape[0], length + -length % spec.ld_multiple), lines.dtype)
        whole[:, : lines.shape[1]] = lines
        made = torch.from_numpy(whole if bits is None else whole.view(bits)).cuda()
        made = made if bits is None else made.view(getattr(torch, str(dtype)))
        return made[:, : lines.shape[1]] if order == "row" else made[:, : lines.shape[1]].T

    a, b = tensor(problem.a, spec.a_order, spec.dtype), tensor(problem.b, spec.b_order, spec.dtype)
    c = tensor(problem.c, spec.c_order, spec.result)
    kernel(a, b, c, alpha=problem.alpha, beta=problem.beta)
    found = c.double().cpu().numpy() if spec.result.is_float else c.cpu().numpy()
    return cast(Matrix, found.astype(numpy_dtype(spec.result)))


def check(spec: GemmSpec, schedule: Schedule, problem: Problem, pad: int = 0) -> None:
    """Tensor cores drop bits that rounding would keep: twice what sums allow."""
    result = on_gpu(spec, schedule, problem, pad)
    atom = schedule.atom, spec.dtype
    matrices, factors = (problem.a, problem.b, problem.c), (problem.alpha, problem.beta)
    right = answer(spec, matrices, factors, product_error=product_error(*atom), cut=cut_sums(*atom))
    right = replace(right, error=2 * right.error) if spec.accumulator.is_float else right
    inside = right.holds(result)
    worst = float(right.parts(result).max())
    assert inside.all(), f"{problem.a.shape}, {problem.b.shape}, pad {pad}: off by {worst} of the bound"


# --- one instruction of each kind -----------------------------------------------------------------


def one_step(name: str, dtype: DType) -> tuple[GemmSpec, Schedule]:
    """64x64 of C by a warpgroup, 32x32 by a warp; both operands along K."""
    spec = GemmSpec(dtype=dtype, c_dtype=accumulator(dtype), b_order="col", ld_multiple=16)
    if name.startswith("wgmma"):
        return spec, replace(defaults(name, (2, 16), (32, 4)), producers=32, registers=(0, 0), stages=2)
    return spec, replace(defaults(name, (4, 8), (8, 4)), stages=3)


@pytest.mark.parametrize(("name", "dtype"), WHOLE, ids=str)
def test_whole_numbers_as_the_interpreter_has_them(name: str, dtype: DType) -> None:
    """Each element's own number, by an identity on either side: one out of place shows as such."""
    spec, schedule = one_step(name, dtype)
    program = driver.lower_program(spec, schedule, target_of(pick()))
    rng = np.random.default_rng(3)
    rows, cols, eye = rng.integers(-8, 9, (64, 128)), rng.integers(-8, 9, (128, 128)), np.eye(128)
    for left, right in ((rows, eye), (eye, cols), (rows, cols)):
        nothing = np.full((len(left), 128), np.nan, np.float32)
        problem = Problem(left.astype(np.float32), right.astype(np.float32), nothing, 1.0, 0.0).typed(spec)
        assert np.array_equal(on_gpu(spec, schedule, problem), interpret(program, spec, problem, 0))


@pytest.mark.parametrize(("name", "dtype"), ATOMS, ids=str)
def test_any_numbers(name: str, dtype: DType) -> None:
    spec, schedule = one_step(name, dtype)
    rng = np.random.default_rng(4)
    for k in (128, 640):
        check(spec, schedule, Problem.of(rng, spec, 64, 64, k, 1.0, 0.0))
        check(spec, schedule, Problem.of(rng, spec, 64, 64, k, -2.0, 3.0))


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("c_dtype", [BF16, F16, F32])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("name", ["wgmma_f8_128x256_s4_turns", "wgmma_f8_64x128_s4", "mma_f8_8x16_16x8"])
def test_8_bit_floats(name: str, dtype: DType, c_dtype: DType) -> None:
    preset = presets.load(name)
    spec, rng = replace(preset.spec, dtype=dtype, c_dtype=c_dtype), np.random.default_rng(5)
    for size in SIZES:
        check(spec, preset.schedule, Problem.of(rng, spec, *size, -1.5, 0.25))


def test_whole_numbers_of_a_byte() -> None:
    preset = presets.load("wgmma_s8_128x256_s4")
    rng = np.random.default_rng(6)
    for size in SIZES:
        check(preset.spec, preset.schedule, Problem.of(rng, preset.spec, *size, -2, 3))


ORDERS: tuple[tuple[Order, Order], ...] = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
PACKED = tuple(name for name in presets.names() if name.startswith("wgmma") and presets.load(name).schedule.a.packed)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("a", "b"), ORDERS)
def test_packed_of_any_order_and_lines(name: str, a: Order, b: Order) -> None:
    preset = presets.load(name)
    spec, rng = replace(preset.spec, a_order=a, b_order=b), np.random.default_rng(7)
    for size in SIZES:
        for pad in (0, 3):
            check(spec, preset.schedule, Problem.of(rng, spec, *size, -2, 3), pad)


@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_columns_of_c_and_every_order(a: Order, b: Order, dtype: DType) -> None:
    preset = presets.load("wgmma_128x256_s4")
    spec = replace(preset.spec, dtype=dtype, a_order=a, b_order=b, c_order="col")
    schedule, rng = replace(preset.schedule, name=None, c_width=1, c_stages=0), np.random.default_rng(8)
    for size in SIZES:
        check(spec, schedule, Problem.of(rng, spec, *size, -1.5, 0.25))


@pytest.mark.parametrize("dtype", [F8_E4M3, F8_E5M2, I8], ids=str)
def test_the_same_bits_each_time(dtype: DType) -> None:
    method = "wgmma_s8" if dtype == I8 else "wgmma_f8"
    spec, rng = GemmSpec(dtype=dtype, b_order="col", ld_multiple=16), np.random.default_rng(9)
    problem = Problem.of(rng, spec, 512, 512, 1024, 1, 0)
    schedule = defaults(method)
    first = on_gpu(spec, schedule, problem)
    for _ in range(20):
        assert np.array_equal(on_gpu(spec, schedule, problem).view(np.uint8), first.view(np.uint8))


def test_bytes_are_taken_for_8_bit_floats() -> None:
    """As CuPy has them, which lacks the type."""
    import cupy

    preset = presets.load("wgmma_f8_128x256_s4")
    spec, rng = replace(preset.spec, c_dtype=F32), np.random.default_rng(10)
    problem = Problem.of(rng, spec, 64, 32, 128, 1.0, 0.0)
    a = cupy.asarray(np.asarray(problem.a).view(np.uint8))
    b = cupy.asarray(np.ascontiguousarray(np.asarray(problem.b).T).view(np.uint8)).T
    found = cupy.asnumpy(compiled(spec, preset.schedule)(a, b))
    assert np.array_equal(found, on_gpu(spec, preset.schedule, problem))
