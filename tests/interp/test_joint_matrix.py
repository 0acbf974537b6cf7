"""Products by joint_matrix of SYCL, as the interpreter runs them: sizes, pitches, types, orders, batches, epilogues, and
faults.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import KernelFault
from gemmgen.ir.dtypes import BF16, F16, F32, I8, DType
from gemmgen.ir.expr import Const
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.stmt import Let, Stmt
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body
from gemmgen.positions import K_MAIN
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

TARGET = TARGETS["xe_hpc"]
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
    for size in SIZES:
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        problem.check(interpret(program, spec, problem, pad=0))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=IDS)
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_any_pitch(dtype: DType, order: str, schedule: Schedule, rng: np.random.Generator) -> None:
    """Lines that lie as loads ask, and not: then all of K element by element."""
    spec = GemmSpec(dtype=dtype, b_order=order)  # type: ignore[arg-type]
    program = driver.lower_program(spec, schedule, TARGET)
    for size in SIZES:
        for pad in (0, 5):
            problem = Problem.of(rng, spec, *size, 1.0, 0.0)
            problem.check(interpret(program, spec, problem, pad))
