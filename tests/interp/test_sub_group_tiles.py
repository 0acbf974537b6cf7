"""Products by dpas and by joint_matrix on A and B as they are: what both assume, as the interpreter runs them."""

from __future__ import annotations

from dataclasses import replace
from math import erf

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F16, F32, I8, DType
from gemmgen.ir.expr import Const
from gemmgen.ir.stmt import Let
from gemmgen.positions import K_MAIN
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.spec import Order
from tests.interp import test_block_2d as dpas
from tests.interp import test_joint_matrix as joint_matrix
from tests.interp.test_block_2d import SPEC, TARGET
from tests.support.batches import check_interpreted
from tests.support.broken import broken, changed, faults
from tests.support.problems import Problem, check_products, interpret

ALL = [*dpas.SCHEDULES, *joint_matrix.SCHEDULES]
ALONE = {"dpas": dpas.SCHEDULES[0], "joint_matrix": joint_matrix.SCHEDULES[0]}
SEVERAL = {"dpas": dpas.SCHEDULES[2], "joint_matrix": joint_matrix.SCHEDULES[1]}
alone = pytest.mark.parametrize("schedule", ALONE.values(), ids=ALONE)
several = pytest.mark.parametrize("schedule", SEVERAL.values(), ids=SEVERAL)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: f"{s.atom}-{s.tile}-{s.group}")
@pytest.mark.parametrize(("dtype", "result"), [(F16, F32), (F16, F16), (BF16, F32), (I8, None)], ids=str)
def test_any_size(dtype: DType, result: DType | None, schedule: Schedule, rng: np.random.Generator) -> None:
    """Lines a multiple of 16 bytes apart: the hardware's bounds, and what is left of K by each lane itself."""
    spec = replace(SPEC, dtype=dtype, c_dtype=result, ld_multiple=16)
    program = driver.lower_program(spec, schedule, TARGET)
    check_products(program, spec, rng, *joint_matrix.SIZES, pad=0)


@alone
def test_what_lies_past_a_line_never_counts(schedule: Schedule, rng: np.random.Generator) -> None:
    """With odd sizes the last words of lines hold elements that are not A's or B's: here they are NaN."""
    problem = Problem.of(rng, SPEC, 40, 67, 99, 1.0, 0.0)
    a, b = (np.pad(x, ((0, 0), (0, 5)), constant_values=np.nan) for x in (problem.a, problem.b))
    c = np.zeros(40 * 67, np.float32)
    sizes = {"m": 40, "n": 67, "k": 99, "alpha": 1.0, "beta": 0.0, "lda": 104, "ldb": 72, "ldc": 67}
    matrices = {"a": a.reshape(-1), "b": b.reshape(-1), "c": c}
    run_program(driver.lower_program(SPEC, schedule, TARGET), {**sizes, **matrices})
    problem.check(c.reshape(40, 67))


@several
@pytest.mark.parametrize("order", ["row", "col"])
def test_parts_of_k(order: Order, schedule: Schedule, rng: np.random.Generator) -> None:
    """Split-K: some parts are empty, one has the odd rest; lines that do not lie well go through parts as well."""
    spec = replace(SPEC, b_order=order)
    program = driver.lower_program(spec, schedule.but(split_k=3), TARGET)
    for size, pad in (((9, 33, 99), 5), ((8, 40, 64), 0), ((9, 33, 33), 7), ((8, 40, 100), 3), ((3, 3, 1), 0)):
        check_products(program, spec, rng, size, pad=pad)


@several
@pytest.mark.parametrize("gap", [0, 4])
def test_products_of_a_batch(gap: int, schedule: Schedule, rng: np.random.Generator) -> None:
    """A batch whose matrices begin on multiples of 64 bytes, and one whose do not."""
    spec = replace(SPEC, batched=True)
    problems = [Problem.of(rng, spec, 34, 64, 64, 1.0, 0.0) for _ in range(2)]
    check_interpreted(driver.lower_program(spec, schedule, TARGET), spec, problems, gap, pad=0)


@several
def test_column_major_matrices_are_computed_as_their_transposes(schedule: Schedule, rng: np.random.Generator) -> None:
    spec = replace(SPEC, a_order="col", b_order="col", c_order="col", ld_multiple=8)
    check_products(driver.lower_program(spec, schedule, TARGET), spec, rng, (40, 70, 64), pad=0)


@several
@pytest.mark.parametrize("epilogue", [("bias",), ("bias", "relu"), ("bias", "gelu")], ids="+".join)
def test_a_fused_epilogue(epilogue: tuple[str, ...], schedule: Schedule, rng: np.random.Generator) -> None:
    spec = replace(SPEC, epilogue=epilogue, ld_multiple=8)
    problem = Problem.of(rng, spec, 40, 70, 66, 1.0, 0.0)
    bias = rng.standard_normal(70).astype(np.float32)
    result = interpret(driver.lower_program(spec, schedule, TARGET), spec, problem, pad=0, more={"bias": bias})
    want = problem.a.astype(np.float64) @ problem.b.astype(np.float64) + bias
    if "relu" in epilogue:
        want = np.maximum(want, 0)
    if "gelu" in epilogue:
        want = want * 0.5 * (1 + np.vectorize(erf)(want / np.sqrt(2)))
    assert np.allclose(result, want, rtol=1e-5, atol=1e-4)


@alone
@pytest.mark.parametrize(
    ("sizes", "pad", "what"),
    [
        ((33, 64, 64), 1, "lines lie 130 bytes apart, no multiple of 16"),
        ((33, 64, 16), 0, "a line of 32 bytes is shorter than 64"),
    ],
)
def test_loads_that_the_hardware_does_not_define(
    sizes: tuple[int, int, int], pad: int, what: str, schedule: Schedule, rng: np.random.Generator
) -> None:
    """The simulator finds them where a kernel does not ask how matrices lie."""
    unasked = changed(Let, lambda s: replace(s, value=Const(sizes[2])), var=K_MAIN)
    kernel = broken(driver.lower(SPEC, schedule, TARGET), unasked)
    with faults("alignment", what):
        interpret(kernel, SPEC, Problem.of(rng, SPEC, *sizes, 1.0, 0.0), pad)
