"""Products by joint_matrix of SYCL, as the interpreter runs them: sizes, pitches, types, orders, batches, epilogues,
and faults.
"""

from __future__ import annotations

from dataclasses import replace
from math import erf

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import BF16, F16, F32, I8, I32, DType
from gemmgen.ir.expr import Call, Const, compare, number
from gemmgen.ir.stmt import FragmentApply, If, Let, Store
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import walk
from gemmgen.positions import K_MAIN
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec, Order
from tests.support.batches import check_interpreted
from tests.support.broken import broken, changed, faults
from tests.support.problems import Problem, check_products, interpret

TARGET = TARGETS["xe_hpc"]
SPEC = GemmSpec(dtype=F16, c_dtype=F32)
#: One sub-group of one fragment, and several beside and above one another.
SCHEDULES = [
    Schedule.of(tile=(16, 1), group=(1, 16), block_k=32, atom="joint_matrix"),
    Schedule.of(tile=(32, 4), group=(2, 32), block_k=32, atom="joint_matrix", large_grf=True),
    Schedule.of(tile=(16, 2), group=(4, 32), block_k=64, atom="joint_matrix", barrier=True, threadblock_swizzle=2),
]
IDS = ["one", "two_by_two", "four_by_two"]
SIZES = ((33, 66, 131), (70, 65, 64), (5, 97, 99), (3, 3, 7), (32, 64, 192))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=IDS)
@pytest.mark.parametrize(("dtype", "result"), [(F16, F32), (F16, F16), (BF16, F32), (I8, None)], ids=str)
def test_any_size(dtype: DType, result: DType | None, schedule: Schedule, rng: np.random.Generator) -> None:
    """Lines a multiple of 16 bytes apart: checked loads, and what is left of K element by element."""
    spec = GemmSpec(dtype=dtype, c_dtype=result, ld_multiple=16)
    program = driver.lower_program(spec, schedule, TARGET)
    check_products(program, spec, rng, *SIZES, pad=0)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=IDS)
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_any_pitch(dtype: DType, order: Order, schedule: Schedule, rng: np.random.Generator) -> None:
    """Lines that lie as loads ask, and not: then all of K element by element."""
    spec = GemmSpec(dtype=dtype, b_order=order)
    program = driver.lower_program(spec, schedule, TARGET)
    for size in SIZES:
        for pad in (0, 5):
            check_products(program, spec, rng, size, factors=(1.0, 0.0), pad=pad)


def test_what_lies_past_a_line_never_counts(rng: np.random.Generator) -> None:
    """With odd sizes the last words of lines hold elements that are not A's or B's: here they are NaN."""
    problem = Problem.of(rng, SPEC, 40, 67, 99, 1.0, 0.0)
    a, b = (np.pad(x, ((0, 0), (0, 5)), constant_values=np.nan) for x in (problem.a, problem.b))
    program = driver.lower_program(SPEC, SCHEDULES[0], TARGET)
    c = np.zeros(40 * 67, np.float32)
    sizes = {"m": 40, "n": 67, "k": 99, "alpha": 1.0, "beta": 0.0, "lda": 104, "ldb": 72, "ldc": 67}
    run_program(program, {**sizes, "a": a.reshape(-1), "b": b.reshape(-1), "c": c})
    problem.check(c.reshape(40, 67))


@pytest.mark.parametrize("order", ["row", "col"])
def test_parts_of_k(order: Order, rng: np.random.Generator) -> None:
    """Split-K: some parts are empty, one has the odd rest; lines that do not lie well go through parts as well."""
    spec = replace(SPEC, b_order=order)
    program = driver.lower_program(spec, SCHEDULES[1].but(split_k=3), TARGET)
    for size, pad in (((9, 33, 99), 5), ((8, 40, 64), 0), ((9, 33, 33), 7), ((3, 3, 1), 0)):
        check_products(program, spec, rng, size, pad=pad)


@pytest.mark.parametrize("gap", [0, 4])
def test_products_of_a_batch(gap: int, rng: np.random.Generator) -> None:
    """A batch whose matrices begin on multiples of 64 bytes, and one whose do not."""
    spec = replace(SPEC, batched=True)
    problems = [Problem.of(rng, spec, 34, 64, 64, 1.0, 0.0) for _ in range(2)]
    check_interpreted(driver.lower_program(spec, SCHEDULES[1], TARGET), spec, problems, gap, pad=0)


def test_column_major_matrices_are_computed_as_their_transposes(rng: np.random.Generator) -> None:
    spec = replace(SPEC, a_order="col", b_order="col", c_order="col", ld_multiple=8)
    check_products(driver.lower_program(spec, SCHEDULES[1], TARGET), spec, rng, (40, 70, 64), pad=0)


@pytest.mark.parametrize("epilogue", [("bias",), ("bias", "relu"), ("bias", "gelu")], ids="+".join)
def test_a_fused_epilogue(epilogue: tuple[str, ...], rng: np.random.Generator) -> None:
    spec = replace(SPEC, epilogue=epilogue, ld_multiple=8)
    problem = Problem.of(rng, spec, 40, 70, 66, 1.0, 0.0)
    bias = rng.standard_normal(70).astype(np.float32)
    result = interpret(driver.lower_program(spec, SCHEDULES[1], TARGET), spec, problem, pad=0, more={"bias": bias})
    want = problem.a.astype(np.float64) @ problem.b.astype(np.float64) + bias
    if "relu" in epilogue:
        want = np.maximum(want, 0)
    if "gelu" in epilogue:
        want = want * 0.5 * (1 + np.vectorize(erf)(want / np.sqrt(2)))
    assert np.allclose(result, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("sizes", "pad", "what"),
    [
        ((33, 64, 64), 1, "lines lie 130 bytes apart, no multiple of 16"),
        ((33, 64, 16), 0, "a line of 32 bytes is shorter than 64"),
    ],
)
def test_loads_that_the_hardware_does_not_define(
    sizes: tuple[int, int, int], pad: int, what: str, rng: np.random.Generator
) -> None:
    """The simulator finds them where a kernel does not ask how matrices lie."""
    unasked = changed(Let, lambda s: replace(s, value=Const(sizes[2])), var=K_MAIN)
    kernel = broken(driver.lower(SPEC, SCHEDULES[0], TARGET), unasked)
    with faults("alignment", what):
        interpret(kernel, SPEC, Problem.of(rng, SPEC, *sizes, 1.0, 0.0), pad)


def test_a_fragment_that_a_part_of_the_sub_group_applies_to_is_found(rng: np.random.Generator) -> None:
    some = compare("<", Call("lane_id", (), I32), Const(8))
    parted = changed(FragmentApply, lambda s: If(some, (s,)), fill=None)
    kernel = broken(driver.lower(SPEC, SCHEDULES[0], TARGET), parted)
    with faults("divergent sub-group operation", "does not take part"):
        interpret(kernel, SPEC, Problem.of(rng, SPEC, 16, 16, 32, 1.0, 0.0), pad=0)


def test_elements_of_fragments_are_out_of_reach() -> None:
    """Which lane has which element is not known: the verifier refuses a kernel that asks."""
    kernel = driver.lower_program(SPEC, SCHEDULES[0], TARGET).main
    acc = next(s.fragment for s in walk(kernel.body) if isinstance(s, FragmentApply))
    first = Store(acc, (Const(0),), number(1, F32))
    broken = replace(kernel, body=(*kernel.body, first))
    with pytest.raises(LoweringError, match=r"acc\[0\] is an element of a fragment, which only its"):
        verify(broken, TARGET)
    verify(kernel, TARGET)
