"""Complex elements, run by the interpreter: each way to memory, conjugates, against complex128."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.ir.dtypes import C64, C128, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import Matrix, Problem, check_products, interpret

ALPHA, BETA = -2 + 0.5j, 3 - 1j
SMALL = defaults("slm", (4, 4), (4, 4), 4).but(
    a=Operand("local", 2, transposed=True, pad=2), b=Operand("local", 4), stages=2
)
#: Single elements; vectors from global memory; local memory through registers; parts of K in groups and beside them.
SCHEDULES: dict[str, Schedule] = {
    "naive": presets.load("naive").schedule,
    "vec4_4x4": presets.load("vec4_4x4").schedule,
    "prefetch": SMALL.but(prefetch=True, register_stages=2, c_width=2, thread_vector=(4, 2)),
    "sliced_k": SMALL.but(sliced_k=2, c_width=4),
    "split_k": SMALL.but(split_k=3, c_width=2),
    "packed": SMALL.but(a=replace(SMALL.a, prepacked=True), b=replace(SMALL.b, prepacked=True)),
}


@pytest.mark.parametrize("dtype", [C64, C128], ids=str)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("target", ["intel", "sm_80"])
def test_ways_to_memory(name: str, dtype: DType, target: str, rng: np.random.Generator) -> None:
    spec = GemmSpec(dtype=dtype, conj_a=True)
    program = driver.lower_program(spec, SCHEDULES[name], TARGETS[target])
    check_products(program, spec, rng, (21, 18, 19), factors=(ALPHA, BETA))


@pytest.mark.parametrize("conj", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("orders", [("row", "col"), ("col", "row")], ids="-".join)
def test_operations_of_small_gaussian_integers_are_exact(
    conj: tuple[bool, bool], orders: tuple[Order, Order], rng: np.random.Generator
) -> None:
    """op(A) and op(B) of {N, T, C}: the order is T, the conjugate makes it C."""
    spec = GemmSpec(dtype=C64, a_order=orders[0], b_order=orders[1], conj_a=conj[0], conj_b=conj[1])

    def draw(rows: int, cols: int) -> Matrix:
        real, imaginary = rng.integers(-8, 9, (2, rows, cols))
        return cast("Matrix", (real + 1j * imaginary).astype(np.complex64))

    problem = Problem(draw(9, 11), draw(11, 10), draw(9, 10), 1 + 2j, -1j, spec)
    program = driver.lower_program(spec, SMALL, TARGETS["intel"])
    assert np.array_equal(interpret(program, spec, problem), problem.expected.astype(np.complex64))


def test_asynchronous_copies_and_batched_rings(rng: np.random.Generator) -> None:
    """Of 8 bytes, and of 16, which are one number of complex128 or two of complex64."""
    for dtype, width, target in ((C64, 2, "sm_90"), (C128, 1, "sm_80"), (C128, 4, "sm_90")):
        spec = GemmSpec(dtype=dtype, a_order="col", conj_b=True)
        a, b = (replace(Operand("local", width), transposed=x, async_copy=True) for x in (True, False))
        ring = {"stages": 6, "mbarrier": 2} if target == "sm_90" else {"stages": 3}
        schedule = defaults("slm", (4, 4), (4, 8), 4).but(a=a, b=b, **ring)
        check_products(
            driver.lower_program(spec, schedule, TARGETS[target]), spec, rng, (17, 35, 23), factors=(ALPHA, BETA)
        )


@pytest.mark.parametrize("schedule", ["naive", "prefetch"])
@pytest.mark.parametrize("folded", [True, False], ids=["folded", "run-time"])
def test_beta_of_zero_never_reads_c(schedule: str, folded: bool, rng: np.random.Generator) -> None:
    spec = GemmSpec(dtype=C64, alpha=1j if folded else None, beta=0.0 if folded else None)
    problem = Problem.of(rng, spec, 9, 10, 8, 1j, 0.0)
    problem = replace(problem, c=np.full((9, 10), complex(np.nan, np.nan), np.complex64))
    program = driver.lower_program(spec, SCHEDULES[schedule], TARGETS["intel"])
    assert {"alpha", "beta"} & {p.name for p in program.main.params} == (set() if folded else {"alpha", "beta"})
    problem.check(interpret(program, spec, problem))


def test_a_beta_with_one_part_is_not_zero(rng: np.random.Generator) -> None:
    for beta in (1j, 1.0):
        spec = GemmSpec(dtype=C64)
        program = driver.lower_program(spec, SCHEDULES["prefetch"], TARGETS["sm_80"])
        check_products(program, spec, rng, (5, 6, 7), factors=(1.0, beta))
