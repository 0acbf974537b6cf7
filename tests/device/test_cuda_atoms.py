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
from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, F64, FLOAT8, I8, DType, accumulator
from gemmgen.ir.instructions import MMA_INSTRUCTIONS, WGMMA_INSTRUCTIONS, cut_sums, product_error
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.operands import staged_store
from gemmgen.ir.stmt import VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.methods import defaults
from gemmgen.oracle import answer
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support import cuda
from tests.support.problems import Matrix, Problem, interpret

SKIP = cuda.why_no_gpu() or (None if find_spec("torch") else "torch is not installed")
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
ATOMS = (
    *((atom.name, atom.dtype) for atom in MMA_INSTRUCTIONS),
    *((atom.name, atom.dtype) for atom in WGMMA_INSTRUCTIONS),
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
    """The product; lines `pad` elements longer than they need be, or more where their length is assumed."""
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
        return spec, defaults(name, (2, 16), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), stages=2)
    return spec, defaults(name, (4, 8), (8, 4)).but(stages=3)


@pytest.mark.parametrize(("name", "dtype"), WHOLE, ids=str)
def test_whole_numbers_as_the_interpreter_has_them(name: str, dtype: DType) -> None:
    as_interpreted(*one_step(name, dtype))


def as_interpreted(spec: GemmSpec, schedule: Schedule) -> None:
    """Each element's own number, by an identity on either side: one out of place shows as such."""
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


WARPGROUP_WHOLE = tuple((name, dtype) for name, dtype in WHOLE if name.startswith("wgmma"))
#: Columns of each instruction: all of them of one type, the ends and a middle of the others.
WIDTHS = [
    (name, dtype, cols)
    for name, dtype in WARPGROUP_WHOLE
    for cols in (range(8, 257, 8) if dtype == BF16 else (16, 32, 144, 256))
]


@pytest.mark.parametrize(("name", "dtype", "cols"), WIDTHS, ids=str)
def test_instructions_of_every_width(name: str, dtype: DType, cols: int) -> None:
    spec, schedule = one_step(name, dtype)
    rng = np.random.default_rng(12)
    left, right = rng.integers(-8, 9, (64, 128)), rng.integers(-8, 9, (128, cols))
    nothing = np.full((64, cols), np.nan, np.float32)
    problem = Problem(left.astype(np.float32), right.astype(np.float32), nothing, 1.0, 0.0).typed(spec)
    found = on_gpu(spec, schedule.but(tile=(2, cols // 4), c_width=2), problem)
    assert np.array_equal(found.astype(np.float64), left @ right)


def in_registers(schedule: Schedule) -> Schedule:
    """A, or B where operands are swapped."""
    if schedule.operands_swapped:
        return schedule.but(b=replace(schedule.b, memory="private"))
    return schedule.but(a=replace(schedule.a, memory="private"))


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(("name", "dtype"), WARPGROUP_WHOLE, ids=str)
def test_a_from_registers_as_the_interpreter_has_it(name: str, dtype: DType, order: Order) -> None:
    spec, schedule = one_step(name, dtype)
    as_interpreted(replace(spec, a_order=order), in_registers(schedule))


#: What puts sums down in lines that swizzle, by the bytes of their elements: one warpgroup, or operands swapped.
PUTS = [
    (dtype, order, shape, order != ("row" if shape[1][0] == 32 else "col"))
    for dtype in (BF16, F32)
    for order in ("row", "col")
    for shape in (((2, 16), (32, 4)), ((16, 2), (4, 32)))
]


@pytest.mark.parametrize(("dtype", "order", "shape", "transposed"), PUTS, ids=str)
def test_sums_put_down_as_the_interpreter_has_them(
    dtype: DType, order: Order, shape: tuple[tuple[int, int], tuple[int, int]], transposed: bool
) -> None:
    """By `stmatrix`, as it is and transposed, and by pairs: each element its own number, none of which rounds."""
    spec = GemmSpec(dtype=BF16, c_dtype=dtype, c_order=order, ld_multiple=8, multiple_of=(8, 8, 1))
    schedule = defaults("wgmma", *shape).but(
        producer_threads=32, setmaxnreg=(0, 0), stages=2, c_width=1, epilogue_stages=1
    )
    program = driver.lower_program(spec, schedule, target_of(pick()))
    put = {s.atom for kernel in program.kernels for s in walk(kernel.body) if isinstance(s, VectorCopy)}
    assert staged_store(dtype, transposed)[0] in put
    numbers = np.arange(64)[:, None] * 2 + np.arange(64) % 2 * 128 - 100  # of up to eight bits
    for left, right in ((numbers, np.eye(64)), (np.eye(64), numbers.T)):
        nothing = np.full((64, 64), np.nan, np.float32)
        problem = Problem(left.astype(np.float32), right.astype(np.float32), nothing, 1.0, 0.0).typed(spec)
        found = on_gpu(spec, schedule, problem)
        assert np.array_equal(found, interpret(program, spec, problem, 0))
        assert np.array_equal(found.astype(np.float64), left @ right)


def test_float64_by_instructions_of_eight_rows() -> None:
    """As targets before sm_90 have it."""
    spec, schedule = one_step("mma_f64", F64)
    kernel = CudaKernel.from_source(driver.emit(spec, schedule, "cuda", TARGETS["sm_80"]))
    assert "m8n8k4" in kernel.source.text
    rng = np.random.default_rng(14)
    problem = Problem.of(rng, spec, 48, 80, 144, -2.0, 3.0)
    import cupy

    c = cupy.asarray(problem.c)
    kernel(cupy.asarray(problem.a), cupy.asfortranarray(cupy.asarray(problem.b)), c, alpha=-2.0, beta=3.0)
    problem.check(cupy.asnumpy(c))


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [("row", "row"), ("col", "col")])
@pytest.mark.parametrize(
    ("tile", "group", "changes"),
    [
        ((2, 16), (32, 8), {"epilogue_stages": 1}),
        ((4, 8), (32, 8), {"c_width": 2}),
        ((2, 16), (64, 8), {"producer_threads": 128, "setmaxnreg": (96, 24), "epilogue_stages": 2, "persistent": True}),
        ((4, 2), (8, 32), {}),
    ],
    ids=["beside one another", "within a TMA tile", "two by two", "swapped"],
)
def test_warpgroups_beside_one_another(
    tile: tuple[int, int], group: tuple[int, int], changes: dict[str, object], a: Order, b: Order
) -> None:
    spec, rng = GemmSpec(dtype=BF16, ld_multiple=8, a_order=a, b_order=b), np.random.default_rng(15)
    base = defaults("wgmma", tile, group).but(stages=3, producer_threads=32, setmaxnreg=(0, 0))
    for size in SIZES:
        check(spec, base.but(**changes), Problem.of(rng, spec, *size, -1.5, 0.25))


@pytest.mark.parametrize(("a", "b"), [("col", "col"), ("col", "row"), ("row", "row")])
@pytest.mark.parametrize(("name", "dtype"), WARPGROUP_WHOLE, ids=str)
def test_a_from_registers_of_any_size(name: str, dtype: DType, a: Order, b: Order) -> None:
    """Of elements that nothing turns, both by rows are the turn of swapped operands."""
    if dtype.size != 2 and (a, b) == ("col", "row"):
        pytest.skip("both would have to be transposed")
    shape = ((8, 2), (4, 64)) if (a, b) == ("row", "row") else ((4, 16), (64, 4))
    spec, rng = GemmSpec(dtype=dtype, ld_multiple=16, a_order=a, b_order=b), np.random.default_rng(16)
    schedule = in_registers(defaults(name, *shape).but(stages=3))
    for size in SIZES:
        check(spec, schedule, Problem.of(rng, spec, *size, -2, 3))


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("stored", [I8, F8_E4M3, F8_E5M2], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_stored_in_a_byte(dtype: DType, stored: DType, order: Order) -> None:
    """Each element made by its own scale, of both operands in turn."""
    import torch

    rng = np.random.default_rng(17)
    for mine, shape in (("a", ((2, 16), (32, 4))), ("b", ((4, 2), (4, 32)))):
        spec = GemmSpec(dtype=dtype, c_dtype=F32, ld_multiple=16)
        made = {f"{mine}_dtype": stored, f"{mine}_order": order, f"prologue_{mine}": f"({mine} + 1) * {mine}_scale"}
        spec = replace(spec, **made)  # type: ignore[arg-type]
        base = defaults("wgmma", *shape).but(stages=3, producer_threads=32, setmaxnreg=(0, 0))
        kernel = compiled(spec, in_registers(base))
        for m, n, k in SIZES:
            scale = torch.from_numpy(2.0 ** rng.integers(-2, 3, m if mine == "a" else n)).float().cuda()
            values = {"a": rng.integers(-4, 4, (m, k)), "b": rng.integers(-4, 4, (k, n))}
            given = {}
            for name in "ab":
                kind = getattr(torch, str(spec.element(name)))
                lines = values[name] if getattr(spec, f"{name}_order") == "row" else values[name].T
                whole = torch.zeros((lines.shape[0], -(-lines.shape[1] // 16) * 16), device="cuda")
                whole[:, : lines.shape[1]] = torch.from_numpy(np.ascontiguousarray(lines)).float().cuda()
                stored_as = whole.to(kind)[:, : lines.shape[1]]
                given[name] = stored_as if lines is values[name] else stored_as.T
            c = torch.full((m, -(-n // 16) * 16), float("nan"), device="cuda")[:, :n]
            kernel(given["a"], given["b"], c, **{f"{mine}_scale": scale})
            a, b = (torch.from_numpy(values[name]).double().cuda() for name in "ab")
            a, b = ((a + 1) * scale.double()[:, None], b) if mine == "a" else (a, (b + 1) * scale.double())
            assert torch.equal(c.double(), a @ b)


@pytest.mark.parametrize("c_dtype", [BF16, F16, F32])
@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("name", ["wgmma_f8_128x256_s4_turns", "wgmma_f8_64x128_s4", "mma_f8_8x16_16x8"])
def test_8_bit_floats(name: str, dtype: DType, c_dtype: DType) -> None:
    preset = candidates.load(name)
    spec, rng = replace(preset.spec, dtype=dtype, c_dtype=c_dtype), np.random.default_rng(5)
    for size in SIZES:
        check(spec, preset.schedule, Problem.of(rng, spec, *size, -1.5, 0.25))


def test_whole_numbers_of_a_byte() -> None:
    preset = candidates.load("wgmma_s8_128x256_s4")
    rng = np.random.default_rng(6)
    for size in SIZES:
        check(preset.spec, preset.schedule, Problem.of(rng, preset.spec, *size, -2, 3))


ORDERS: tuple[tuple[Order, Order], ...] = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))
PACKED = tuple(
    name for name in candidates.names() if name.startswith("wgmma") and candidates.load(name).schedule.a.prepacked
)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("a", "b"), ORDERS)
def test_packed_of_any_order_and_lines(name: str, a: Order, b: Order) -> None:
    preset = candidates.load(name)
    spec, rng = replace(preset.spec, a_order=a, b_order=b), np.random.default_rng(7)
    for size in SIZES:
        for pad in (0, 3):
            check(spec, preset.schedule, Problem.of(rng, spec, *size, -2, 3), pad)


@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize("parts", [1, 3])
def test_lanes_load_lines_that_begin_anywhere(parts: int, width: int, a: Order, b: Order) -> None:
    """Where they lie along K by 16 bytes, cut out of two vectors."""
    spec, rng = GemmSpec(dtype=F16, a_order=a, b_order=b), np.random.default_rng(9)
    of_a, of_b = Operand(width=width if a == "row" else 1), Operand(width=width if b == "col" else 1)
    schedule = defaults("mma_direct", (8, 4)).but(a=of_a, b=of_b, block_k=256, sliced_k=8, split_k=parts)
    for size in (*SIZES, (28, 331, 39), (9, 98, 640)):
        for pad in (0, 3):
            check(spec, schedule, Problem.of(rng, spec, *size, -2, 3), pad)


@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_columns_of_c_and_every_order(a: Order, b: Order, dtype: DType) -> None:
    preset = candidates.load("wgmma_128x256_s4")
    spec = replace(preset.spec, dtype=dtype, a_order=a, b_order=b, c_order="col")
    schedule, rng = preset.schedule.but(name=None, c_width=1, epilogue_stages=0), np.random.default_rng(8)
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

    preset = candidates.load("wgmma_f8_128x256_s4")
    spec, rng = replace(preset.spec, c_dtype=F32), np.random.default_rng(10)
    problem = Problem.of(rng, spec, 64, 32, 128, 1.0, 0.0)
    a = cupy.asarray(np.asarray(problem.a).view(np.uint8))
    b = cupy.asarray(np.ascontiguousarray(np.asarray(problem.b).T).view(np.uint8)).T
    found = cupy.asnumpy(compiled(spec, preset.schedule)(a, b))
    assert np.array_equal(found, on_gpu(spec, preset.schedule, problem))
