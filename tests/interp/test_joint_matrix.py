"""Products by joint_matrix of SYCL, as the interpreter runs them: pitches, and faults; the rest with dpas' own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import BF16, F16, F32, I8, I32, DType
from gemmgen.ir.expr import Call, Const, compare, number
from gemmgen.ir.stmt import FragmentApply, If, Store
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import walk
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
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
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_any_pitch(dtype: DType, order: Order, schedule: Schedule, rng: np.random.Generator) -> None:
    """Lines that lie as loads ask, and not: then all of K element by element."""
    spec = GemmSpec(dtype=dtype, b_order=order)
    program = driver.lower_program(spec, schedule, TARGET)
    for size in SIZES:
        for pad in (0, 5):
            check_products(program, spec, rng, size, factors=(1.0, 0.0), pad=pad)


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
