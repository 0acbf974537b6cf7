"""Slices of K whose work-items load what they multiply: at every kind of edge, in the interpreter. Their main loop asks
nothing where lines are made of vectors.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, C64, F64, I8
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

SM_90 = TARGETS["sm_90"]
#: Four rows of C; lanes lie along a line of B, slices along K.
FEW = Schedule.of(
    tile=(4, 4), group=(1, 8), thread_vector=(1, 2), block_k=32, sliced_k=8, a=Operand(width=1), b=Operand(width=2)
)
A_BY_COLUMNS = GemmSpec(a_order="col")
FORMS: dict[str, tuple[Schedule, GemmSpec]] = {
    "A by columns": (FEW, A_BY_COLUMNS),
    "vectors of A by columns": (FEW.but(a=Operand(width=4)), A_BY_COLUMNS),
    "vectors of A along K": (FEW.but(a=Operand(width=4)), GemmSpec()),
    "single elements": (FEW.but(b=Operand(), thread_vector=(1, 1)), GemmSpec()),
    "K in parts": (FEW.but(split_k=3), A_BY_COLUMNS),
    "more of K than slices": (FEW.but(sliced_k=4), GemmSpec()),
    "bfloat16": (FEW.but(b=Operand(width=4), thread_vector=(1, 4)), replace(A_BY_COLUMNS, dtype=BF16)),
    "float64": (FEW, replace(A_BY_COLUMNS, dtype=F64)),
    "complex64": (FEW.but(b=Operand(), thread_vector=(1, 1)), GemmSpec(dtype=C64, conj_a=True)),
    "int8 by fours": (FEW.but(a=Operand(width=4), b=Operand(), thread_vector=(1, 1), atom="dp4a"), GemmSpec(dtype=I8)),
    "a column": (
        FEW.but(tile=(4, 1), group=(8, 1), thread_vector=(2, 1), a=Operand(width=2), b=Operand()),
        A_BY_COLUMNS,
    ),
}
#: Whole blocks; lines that end within a block, and within a vector; parts of K with nothing in them; no K.
SIZES = ((4, 32, 96), (3, 18, 33), (1, 34, 35), (5, 7, 2), (2, 12, 30), (9, 1, 1), (1, 2, 0))


@pytest.mark.parametrize("target", ["sm_90", "portable"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, target: str, rng: np.random.Generator) -> None:
    schedule, spec = FORMS[form]
    if driver.refusals(spec, schedule, "cuda" if target == "sm_90" else "opencl", TARGETS[target]):
        assert target == "portable"  # of fewer types
        return
    program = driver.lower_program(spec, schedule, TARGETS[target])
    for number, size in enumerate(SIZES):
        problem = Problem.of(rng, spec, *size, 2.0, (0.0, 1.0, -3.0)[number % 3])
        problem.check(interpret(program, spec, problem))


@pytest.mark.parametrize(
    ("spec", "schedule", "asked"),
    [
        (A_BY_COLUMNS, FEW, "ldb % 2 == 0 && n % 2 == 0"),
        (replace(A_BY_COLUMNS, ld_multiple=4), FEW, "n % 2 == 0"),
        (GemmSpec(), FEW.but(a=Operand(width=4)), "lda % 4 == 0 && ldb % 2 == 0 && n % 2 == 0"),
        # Lanes along K, eight of whose rows of A lie side by side.
        (
            replace(A_BY_COLUMNS, b_order="col", ld_multiple=4),
            Schedule.of(
                tile=(4, 1), group=(1, 1), block_k=128, lanes_along_k=32, a=Operand(width=4), b=Operand(width=4)
            ),
            "m % 4 == 0",
        ),
    ],
    ids=["both", "whole lines", "both operands", "lanes along K"],
)
def test_lines_are_asked_of_once(spec: GemmSpec, schedule: Schedule, asked: str) -> None:
    """A check in front of each load had a product of 3x1278x382 take 10 us on an H100, twice cuBLAS' time."""
    text = driver.emit(spec, schedule, "cuda", SM_90).text
    _, found, after = text.partition(f"    if ({asked}) {{\n")
    assert found, text
    loop, _, _ = after.partition("    } else {\n")
    assert "for (int k0" in loop
    assert "if (" not in loop


def test_nothing_is_asked_where_sizes_are_assumed() -> None:
    spec = replace(A_BY_COLUMNS, ld_multiple=4, multiple_of=(1, 2, 4))
    text = driver.emit(spec, FEW, "cuda", SM_90).text
    assert "% 2 == 0" not in text


def test_constant_sizes_decide_at_once() -> None:
    spec = replace(A_BY_COLUMNS, m=3, k=64)
    whole, torn = (driver.emit(replace(spec, n=n), FEW, "cuda", SM_90).text for n in (34, 35))
    assert "if (ldb % 2 == 0) {" in whole
    assert torn.count("for (int k0") == 1
