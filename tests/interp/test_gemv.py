"""Lanes along K: every form of their sums at every kind of edge, in the interpreter; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F64, FLOAT8, I8
from gemmgen.ir.expr import Call
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.walk import exprs, walk
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

SM_90 = TARGETS["sm_90"]
WIDE = Operand(width=4)
#: A row of C by four columns, of lanes and slices.
ROW = Schedule.of(tile=(1, 4), group=(1, 1), block_k=256, sliced_k=2, lanes_along_k=32, a=WIDE, b=WIDE)
BY_COLUMNS = GemmSpec(b_order="col")
FORMS: dict[str, tuple[Schedule, GemmSpec]] = {
    "a row": (ROW, BY_COLUMNS),
    "fewer sums than lanes": (ROW.but(tile=(2, 2), block_k=1024), BY_COLUMNS),
    "as many sums as lanes": (ROW.but(tile=(8, 4)), BY_COLUMNS),
    "more rows than lanes": (ROW.but(tile=(16, 1), lanes_along_k=8, block_k=64), BY_COLUMNS),
    "more sums than lanes": (ROW.but(tile=(4, 8), lanes_along_k=8, block_k=64), BY_COLUMNS),
    "one slice": (ROW.but(sliced_k=1, block_k=128), BY_COLUMNS),
    "one slice, alike": (ROW.but(tile=(2, 2), sliced_k=1, block_k=128), BY_COLUMNS),
    "one slice, vectors of C": (
        ROW.but(tile=(16, 8), thread_vector=(1, 8), sliced_k=1, block_k=128, c_width=4),
        BY_COLUMNS,
    ),
    "one slice of a part of K": (ROW.but(sliced_k=1, block_k=128, split_k=2), BY_COLUMNS),
    "one sum, one slice": (ROW.but(tile=(1, 1), sliced_k=1, block_k=128), BY_COLUMNS),
    "work-items beside one another": (
        ROW.but(tile=(2, 4), group=(2, 2), thread_vector=(2, 4), lanes_along_k=8, block_k=64),
        BY_COLUMNS,
    ),
    "K in parts": (ROW.but(split_k=3), BY_COLUMNS),
    "single elements": (ROW.but(a=Operand(), b=Operand(), block_k=128), GemmSpec()),
    "bfloat16": (ROW.but(a=Operand(width=8), b=Operand(width=8), block_k=512), replace(BY_COLUMNS, dtype=BF16)),
    "float8": (
        ROW.but(a=Operand(width=16), b=Operand(width=16), block_k=1024),
        replace(BY_COLUMNS, dtype=FLOAT8[0]),
    ),
    "int8 by fours": (
        ROW.but(a=Operand(width=16), b=Operand(width=16), block_k=1024, atom="dp4a"),
        replace(BY_COLUMNS, dtype=I8),
    ),
    "float64": (ROW, replace(BY_COLUMNS, dtype=F64)),
}
#: Whole steps, one more, less than one, a single element, nothing to add up.
SIZES = ((8, 8, 2048), (3, 5, 1025), (1, 9, 260), (7, 4, 31), (1, 1, 1), (2, 3, 0))


def shuffles(spec: GemmSpec, schedule: Schedule, target: Target) -> int:
    body = build(spec, schedule, target).main.body
    return sum(isinstance(x, Call) and x.function == "shuffle_xor" for s in walk(body) for x in exprs(s))


@pytest.mark.parametrize("target", ["sm_90", "portable"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, target: str, rng: np.random.Generator) -> None:
    """By shuffles, and through local memory where a target has none."""
    schedule, spec = FORMS[form]
    if not is_possible(spec, schedule, TARGETS[target]):
        assert target == "portable"  # of fewer types, or less local memory
        return
    program = driver.lower_program(spec, schedule, TARGETS[target])
    for number, size in enumerate(SIZES):
        problem = Problem.of(rng, spec, *size, 2.0, (0.0, 1.0, -3.0)[number % 3])
        problem.check(interpret(program, spec, problem))


def test_the_head_tells_slices_from_lanes() -> None:
    assert (
        "64 per block, 2 slices of each step along K (sliced-K), each of 32 lanes\n"
        in driver.emit(BY_COLUMNS, ROW, "cuda").text
    )


@pytest.mark.parametrize("backend", ["cuda", "hip", "opencl", "sycl"])
def test_one_slice_takes_no_shared_memory(backend: str) -> None:
    """Its lanes hold whole sums after their shuffles: nothing is left to add up, nobody waits."""
    one = driver.emit(BY_COLUMNS, ROW.but(sliced_k=1, block_k=128), backend)
    several = driver.emit(BY_COLUMNS, ROW, backend)
    assert (one.entry_points[0].local_bytes, several.entry_points[0].local_bytes) == (0, 2 * 4 * 4)
    for barrier in ("barrier(", "__syncthreads"):
        assert barrier not in one.text
    assert "32 lanes along K" in one.text


@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_lines_that_begin_anywhere_have_no_text_of_their_own(backend: str) -> None:
    """One function of whether lines are aligned, a constant at both calls: the loop stands there once."""
    text = driver.emit(BY_COLUMNS, ROW, backend).text
    assert text.count("for (int k0 = ") == 1
    assert text.count("multiply_along_k(true);") == text.count("multiply_along_k(false);") == 1
    assumed = driver.emit(replace(BY_COLUMNS, ld_multiple=4), ROW, backend).text
    assert "multiply_along_k" not in assumed


def test_lanes_shuffle_about_as_often_as_they_have_sums() -> None:
    """Halves are given away: 31 shuffles for 32 sums of 32 lanes, and not 160."""
    whole = build(BY_COLUMNS, ROW.but(tile=(8, 4)), SM_90).main
    assert shuffles(BY_COLUMNS, ROW.but(tile=(8, 4)), SM_90) == 5
    assert whole.sub_group == 32
    assert shuffles(BY_COLUMNS, ROW, TARGETS["portable"]) == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tile": (3, 4)}, "tile's rows = 3"),
        ({"lanes_along_k": 24, "block_k": 192}, "lanes_along_k = 24"),
        ({"block_k": 128}, "use block_k 256, or a multiple of it"),
        ({"group": (1, 2), "thread_vector": (1, 2)}, "use thread_vector 1x4"),
        ({"lane_arrangement": (4, 8)}, "lane_arrangement = 4x8 means nothing to mainloop Gemv"),
    ],
)
def test_what_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        driver.lower_program(BY_COLUMNS, ROW.but(**fields), SM_90)


@pytest.mark.parametrize("target", ["sm_90", "portable"])
def test_prologues_and_epilogues(target: str, rng: np.random.Generator) -> None:
    """What B is stored in is converted as a lane loads it, and functions follow where C is stored."""
    spec = replace(BY_COLUMNS, epilogue=("relu",), prologue_b="b * 2", alpha=2.0, beta=0.0)
    program = driver.lower_program(spec, ROW.but(tile=(4, 4)), TARGETS[target])
    problem = Problem.of(rng, spec, 5, 7, 261, 2.0, 0.0)
    expected = np.maximum(2.0 * problem.a.astype(np.float64) @ (2 * problem.b.astype(np.float64)), 0)
    assert np.allclose(interpret(program, spec, problem), expected, rtol=1e-4, atol=1e-4)
