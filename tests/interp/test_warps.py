"""Products by a warp's matrix instructions, as the interpreter runs them: types, layouts, rings, lines anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.expr import Var
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.numeric import tf32
from gemmgen.ir.stmt import Barrier, Body, If, Multiply, Stmt
from gemmgen.ir.target import TARGETS
from gemmgen.ir.visit import map_body
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Matrix, Problem, interpret, layouts

SM_80 = TARGETS["sm_80"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32)
#: Steps of K that are fewer than the stages, as many, more, and parts of one.
SIZES = ((33, 18, 19), (1, 1, 1), (16, 40, 33), (70, 36, 100), (64, 32, 160))


def small(stages: int = 3, **changes: object) -> Schedule:
    """Two by two warps of 16 x 16."""
    base = replace(defaults("mma", (2, 4), (16, 8)), stages=stages)
    return replace(base, **changes)  # type: ignore[arg-type]


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, pad: int) -> None:
    program = driver.lower_program(spec, schedule, SM_80)
    for size in SIZES:
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        problem.check(interpret(program, spec, problem, pad))


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, small(c_width=2 if spec.c_order == "row" else 1), rng, 5)


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("across", [True, False])
def test_rings(stages: int, across: bool, rng: np.random.Generator) -> None:
    check(SPEC, small(stages, across=across, register_stages=1 + across), rng, 3)


@pytest.mark.parametrize("result", [F16, F32])
def test_float16(result: object, rng: np.random.Generator) -> None:
    check(replace(SPEC, dtype=F16, c_dtype=result), small(tile=(4, 6)), rng, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"split": 2},
        {"slices": 2, "k_step": 64},
        {"raster": 2},
        {"a": replace(small().a, packed=True), "b": replace(small().b, packed=True)},
    ],
    ids=["split", "slices", "raster", "packed"],
)
def test_what_goes_with_them(changes: dict[str, object], rng: np.random.Generator) -> None:
    check(SPEC, small(**changes), rng, 3)  # type: ignore[arg-type]


def test_promises_leave_no_guards(rng: np.random.Generator) -> None:
    spec = replace(SPEC, multiple_of=(32, 32, 32), ld_multiple=8)
    problem = Problem.of(rng, spec, 64, 32, 96, 1.0, 0.0)
    problem.check(interpret(driver.lower_program(spec, small(), SM_80), spec, problem, 8))


def in_tf32(matrix: Matrix) -> Matrix:
    """Its numbers as TF32 has them."""
    return np.asarray(tf32(matrix), np.float32)


@pytest.mark.parametrize("spec", list(layouts(GemmSpec()))[::2], ids=lambda s: f"{s.a_order}-{s.b_order}")
def test_tf32_rounds_and_nothing_else(spec: GemmSpec, rng: np.random.Generator) -> None:
    """Every layout, lines on multiples of 16 bytes and not."""
    schedule = replace(defaults("mma_tf32", (2, 4), (16, 8)), stages=3)
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


def without(program: Kernel, gone: type[Stmt]) -> Kernel:
    def rewrite(stmt: Stmt) -> Body:
        return () if isinstance(stmt, gone) else (stmt,)

    return replace(program, body=map_body(program.body, rewrite))


def test_a_missing_barrier_is_a_race(rng: np.random.Generator) -> None:
    kernel = without(driver.lower(SPEC, small(), SM_80), Barrier)
    with pytest.raises(KernelFault) as fault:
        interpret(kernel, SPEC, Problem.of(rng, SPEC, 32, 32, 128, 1.0, 0.0), 8)
    assert fault.value.kind == "race"


def test_half_a_warp_multiplies_nothing(rng: np.random.Generator) -> None:
    """An instruction that not all lanes of a warp reach is a fault."""

    def guard(stmt: Stmt) -> Body:
        return (If(Var("lane") < 16, (stmt,)),) if isinstance(stmt, Multiply) else (stmt,)

    kernel = driver.lower(SPEC, small(), SM_80)
    broken = replace(kernel, body=map_body(kernel.body, guard))
    with pytest.raises(KernelFault, match="does not take part"):
        interpret(broken, SPEC, Problem.of(rng, SPEC, 32, 32, 32, 1.0, 0.0), 8)
