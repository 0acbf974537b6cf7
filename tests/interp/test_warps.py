"""Products by a warp's matrix instructions, as the interpreter runs them: types, layouts, rings, lines anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import FaultKind
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8, DType
from gemmgen.ir.expr import Call, Var
from gemmgen.ir.numeric import tf32
from gemmgen.ir.stmt import If, Multiply
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Method, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Matrix, Problem, check_products, interpret, layouts

COARSE = ("mma_tf32", "mma_3xtf32")
SM_80 = TARGETS["sm_80"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32)
#: Steps of K that are fewer than the stages, as many, more, and parts of one.
SIZES = ((33, 18, 19), (1, 1, 1), (16, 40, 33), (70, 36, 100), (64, 32, 160))


def small(stages: int = 3, **changes: object) -> Schedule:
    """Two by two warps of 16 x 16."""
    base = defaults("mma", (2, 4), (16, 8)).but(stages=stages)
    return base.but(**changes)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, pad: int) -> None:
    program = driver.lower_program(spec, schedule, SM_80)
    check_products(program, spec, rng, *SIZES, pad=pad)


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, small(c_width=2 if spec.c_order == "row" else 1), rng, 5)


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("across", [True, False])
def test_rings(stages: int, across: bool, rng: np.random.Generator) -> None:
    check(SPEC, small(stages, across_tiles=across, register_stages=1 + across), rng, 3)


@pytest.mark.parametrize("result", [F16, F32])
def test_float16(result: object, rng: np.random.Generator) -> None:
    check(replace(SPEC, dtype=F16, c_dtype=result), small(tile=(4, 6), c_width=2), rng, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("changes", [{}, {"split_k": 2}, {"sliced_k": 2, "block_k": 64}], ids=str)
def test_sums_exchanged_between_lanes(
    width: int, order: Order, changes: dict[str, object], rng: np.random.Generator
) -> None:
    """C of 2-byte elements, its lines where such vectors may stand and where not."""
    schedule = small(tile=(2, 8), c_width=width, **changes)  # type: ignore[arg-type]
    for pad in (5, 6):
        check(GemmSpec(dtype=BF16, b_order=order), schedule, rng, pad)


@pytest.mark.parametrize(("method", "dtype"), [("mma", BF16), ("mma_s8", I8), ("mma_3xtf32", F32), ("mma_f64", F64)])
@pytest.mark.parametrize(("k", "n"), [(40, 37), (39, 40), (38, 36), (36, 38), (37, 44)])
def test_operands_are_copied_as_wide_as_their_own_lines_allow(
    method: Method, dtype: DType, k: int, n: int, rng: np.random.Generator
) -> None:
    """Lines of A are as long as K, those of B as N, which need not be multiples of the same vectors."""
    spec = GemmSpec(dtype=dtype)
    program = driver.lower_program(spec, defaults(method, (2, 2), (16, 8)).but(stages=3), SM_80)
    check_products(program, spec, rng, (18, n, k), factors=(1.0, 0.0), pad=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"split_k": 2},
        {"sliced_k": 2, "block_k": 64},
        {"threadblock_swizzle": 2},
        {"a": replace(small().a, prepacked=True), "b": replace(small().b, prepacked=True)},
    ],
    ids=["split_k", "sliced_k", "threadblock_swizzle", "packed"],
)
def test_what_goes_with_them(changes: dict[str, object], rng: np.random.Generator) -> None:
    check(SPEC, small(**changes), rng, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "spec"),
    [
        ("mma_f64", GemmSpec(dtype=F64, a_order="col")),
        ("mma_f64", GemmSpec(dtype=F64, c_order="col")),
        ("mma_s8", GemmSpec(dtype=I8, b_order="col")),
        ("mma_s8", GemmSpec(dtype=I8, a_order="col")),
    ],
    ids=["f64-ta", "f64-tc", "s8-tb", "s8-ta"],
)
def test_float64_and_int8(method: str, spec: GemmSpec, rng: np.random.Generator) -> None:
    """Filled by lines where the instruction can, else element by element."""
    schedule = defaults(method, (2, 4), (16, 8)).but(stages=3, c_width=2 if spec.c_order == "row" else 1)
    check(spec, schedule, rng, 5)


#: Elements that are loaded ahead one by one, and C line by line.
AHEAD: dict[str, object] = {"prefetch": True, "stages": 2, "across_tiles": False, "register_stages": 1, "c_width": 1}


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_elements_loaded_ahead_one_by_one(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, small().but(**AHEAD), rng, 5)


@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 3},
        {"across_tiles": True, "register_stages": 2},
        {"split_k": 2},
        {"sliced_k": 2, "block_k": 64},
        {"a": replace(small().a, prepacked=True)},
        {"c_width": 2},
    ],
    ids="-".join,
)
def test_what_goes_with_elements_loaded_ahead(changes: dict[str, object], rng: np.random.Generator) -> None:
    check(SPEC, small().but(**AHEAD | changes), rng, 3)


@pytest.mark.parametrize(
    "spec",
    [
        GemmSpec(dtype=I8),
        GemmSpec(dtype=F16, prologue_a="a * 2", prologue_b="b + 1"),
        GemmSpec(dtype=BF16, epilogue=("relu",)),
        GemmSpec(dtype=BF16, wide=True),
    ],
    ids=["int8", "prologues", "epilogue", "wide"],
)
def test_elements_loaded_ahead_of_what_they_multiply(spec: GemmSpec, rng: np.random.Generator) -> None:
    method: Method = "mma_s8" if spec.dtype == I8 else "mma"
    check(spec, defaults(method, (2, 4), (16, 8)).but(**AHEAD), rng, 3)


def test_assumptions_leave_no_guards(rng: np.random.Generator) -> None:
    spec = replace(SPEC, multiple_of=(32, 32, 32), ld_multiple=8)
    check_products(driver.lower_program(spec, small(), SM_80), spec, rng, (64, 32, 96), factors=(1.0, 0.0), pad=8)


def in_tf32(matrix: Matrix) -> Matrix:
    """Its numbers as TF32 has them."""
    return np.asarray(tf32(matrix), np.float32)


@pytest.mark.parametrize("spec", list(layouts(GemmSpec()))[::2], ids=lambda s: f"{s.a_order}-{s.b_order}")
def test_tf32_rounds_and_nothing_else(spec: GemmSpec, rng: np.random.Generator) -> None:
    """Every layout, lines on multiples of 16 bytes and not."""
    schedule = defaults("mma_tf32", (2, 4), (16, 8)).but(stages=3)
    program = driver.lower_program(spec, schedule, SM_80)
    for size, pad in (((33, 18, 19), 3), ((64, 36, 40), 4)):
        problem = Problem.of(rng, spec, *size, 1.0, 0.0)
        a, b = in_tf32(problem.a), in_tf32(problem.b)
        assert not np.array_equal(a, problem.a)
        replace(problem, a=a, b=b).check(interpret(program, spec, problem, pad))


def test_what_lies_past_k_never_counts(rng: np.random.Generator) -> None:
    """Not even where NaN lies there; what is not finite in the matrix spreads along its row or column."""
    problem = Problem.of(rng, SPEC, 9, 9, 5, 1.0, 0.0)
    a, b = problem.a.copy(), problem.b.copy()
    a[1], b[0, 2], b[1, 2] = np.nan, np.inf, 1.0
    result = interpret(driver.lower_program(SPEC, small(), SM_80), SPEC, replace(problem, a=a, b=b), pad=0)
    rest = np.delete(np.delete(result, 1, axis=0), 2, axis=1)
    assert np.isnan(result[1]).all()
    assert np.isfinite(rest).all()
    assert np.isinf(np.delete(result[:, 2], 1)).all()


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (dropped(Barrier), "race", ""),
        (
            changed(Multiply, lambda s: If(Var("lane") < 16, (s,))),
            "divergent sub-group operation",
            "does not take part",
        ),
    ],
    ids=["no barrier", "half a warp multiplies"],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str, rng: np.random.Generator) -> None:
    kernel = broken(driver.lower(SPEC, small(), SM_80), rewrite)
    with faults(kind, detail):
        interpret(kernel, SPEC, Problem.of(rng, SPEC, 32, 32, 128, 1.0, 0.0), 8)


THREE = defaults("mma_3xtf32", (2, 4), (16, 8)).but(stages=3)


@pytest.mark.parametrize("spec", list(layouts(GemmSpec()))[::2], ids=lambda s: f"{s.a_order}-{s.b_order}")
def test_three_products_are_as_good_as_float32(spec: GemmSpec, rng: np.random.Generator) -> None:
    """Within the bound of float32, and nearer than its sums in order."""
    across = spec.a_order == spec.b_order
    schedule = THREE.but(across_tiles=across, register_stages=1 + across)
    program = driver.lower_program(spec, schedule, SM_80)
    for size, pad in (((33, 18, 19), 3), ((32, 36, 512), 4)):
        problem = Problem.of(rng, spec, *size, 1.0, 0.0)
        result = interpret(program, spec, problem, pad)
        problem.check(result)
        in_order = np.zeros(result.shape, np.float32)
        for k in range(size[2]):
            in_order += problem.a[:, k, None] * problem.b[k]
        off, others = (np.linalg.norm(x - problem.expected) for x in (result, in_order))
        assert off < others or size[2] < 64, "only where K is small may the rests that are left out show"


def test_what_is_not_finite_goes_through_three_products(rng: np.random.Generator) -> None:
    """As it goes through float32: also where it meets numbers that have no rest, and beside large finite ones."""
    spec = GemmSpec()
    problem = Problem.of(rng, spec, 20, 18, 21, 1.0, 0.0)
    a, b = problem.a.copy(), problem.b.copy()
    a[3, 12], a[5, 1], a[7, 20], a[9, 2] = np.inf, np.nan, -np.inf, 2.0**100
    b[12, :4], b[20, 5] = (1.0, -2.0, 0.0, np.inf), 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    result = interpret(driver.lower_program(spec, THREE, SM_80), spec, replace(problem, a=a, b=b))
    finite = np.isfinite(expected)
    assert np.array_equal(result[~finite], expected[~finite], equal_nan=True)
    assert np.allclose(result[finite], expected[finite], rtol=1e-5, atol=1e-4)


def test_all_of_a_group_ask_whether_any_has_nan(rng: np.random.Generator) -> None:
    """Who does not come would leave the others waiting."""

    def asks(stmt: If) -> bool:
        return isinstance(stmt.condition, Call) and stmt.condition.function == "any_in_group"

    kernel = driver.lower(GemmSpec(), THREE, SM_80)
    some = broken(kernel, changed(If, lambda s: If(Var("lane") < 16, (s,)), asks))
    with faults("divergent barrier", "does not come"):
        interpret(some, GemmSpec(), Problem.random(rng, 32, 32, 32), 8)


@pytest.mark.parametrize("name", [name for name in candidates.names() if candidates.load(name).schedule.atom in COARSE])
def test_presets_of_tf32(name: str, rng: np.random.Generator) -> None:
    """Whole and ragged, lines on multiples of 16 bytes and not; their elements are TF32's."""
    preset = candidates.load(name)
    program = driver.lower_program(preset.spec, preset.schedule, SM_80)
    for size, pad in (((130, 140, 45), 3), ((128, 128, 64), 4), ((1, 1, 1), 0)):
        problem = Problem.of(rng, preset.spec, *size, -1.5, 0.25)
        problem = replace(problem, a=in_tf32(problem.a), b=in_tf32(problem.b))
        problem.check(interpret(program, preset.spec, problem, pad))
