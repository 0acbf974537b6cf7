"""Vectors along K: every form of them at every kind of edge, in the interpreter; and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F64
from gemmgen.ir.stmt import Mma
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.broken import broken, dropped
from tests.support.problems import Problem, interpret
from tests.support.refusals import Made, made

CPU = TARGETS["cpu"]
#: B's columns in lines, so that it is read in place.
IN_PLACE = Schedule.of(tile=(3, 2), group=(1, 1), vector=4, dot_product=True, macro_kernel=(2, 2))
TURNED = IN_PLACE.but(b=Operand(memory="private"), kc=8)
BY_COLUMNS = GemmSpec(b_order="col")
FORMS: dict[str, tuple[Schedule, GemmSpec]] = {
    "in place": (IN_PLACE, BY_COLUMNS),
    "in place, K in blocks, rows first": (IN_PLACE.but(kc=5, mc=1), BY_COLUMNS),
    "in place, K in parts": (IN_PLACE.but(split_k=3, grid_multiple=(2, 1)), BY_COLUMNS),
    "transposed": (TURNED, GemmSpec()),
    "transposed, one column": (TURNED.but(tile=(4, 1), mc=1, grid_multiple=(2, 1)), GemmSpec()),
    "transposed, K in parts": (TURNED.but(split_k=2), GemmSpec(c_order="col")),
    "copied, rows in blocks": (TURNED.but(mc=2), replace(BY_COLUMNS, dtype=F64, c_order="col")),
}
#: Whole tiles and vectors, ragged ones, less than a vector, a single element, nothing to add up.
SIZES = ((6, 4, 8), (7, 5, 21), (13, 1, 3), (1, 9, 16), (1, 1, 1), (2, 3, 0))


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, rng: np.random.Generator) -> None:
    schedule, spec = FORMS[form]
    program = driver.lower_program(spec, schedule, CPU)
    for number, size in enumerate(SIZES):
        problem = Problem.of(rng, spec, *size, 1.5, (0.0, 1.0, -0.5)[number % 3])
        problem.check(interpret(program, spec, problem))


def test_every_element_of_a_vector_counts(rng: np.random.Generator) -> None:
    """Without the multiply-adds of vectors only the rest of K is summed, which the check of a product sees."""
    kernel = build(BY_COLUMNS, IN_PLACE, CPU).main
    wrong = broken(kernel, dropped(Mma, lambda s: s.acc.buffer.vector > 1))
    problem = Problem.of(rng, BY_COLUMNS, 3, 2, 9, 1.0, 0.0)
    problem.check(interpret(driver.run_passes(kernel, CPU), BY_COLUMNS, problem))
    with pytest.raises(AssertionError):
        problem.check(interpret(driver.run_passes(wrong, CPU), BY_COLUMNS, problem))


REFUSED: dict[str, tuple[Made, GemmSpec, str]] = {
    "A by columns": (
        IN_PLACE,
        replace(BY_COLUMNS, a_order="col"),
        "A is column-major, but dot_product .* --preset cpu_6x64_copied",
    ),
    "B by rows": (
        IN_PLACE,
        GemmSpec(),
        "B is row-major, but dot_product .* set b.memory = 'private', which transposes",
    ),
    "no whole vectors": (TURNED.but(kc=6), GemmSpec(), "kc = 6 is no multiple of vector = 4"),
    "registers": (IN_PLACE.but(tile=(8, 8), vector=16), BY_COLUMNS, "registers 4,672 B per work-item > 2,048 B"),
    "no vectors": (
        partial(Schedule.of, dot_product=True),
        BY_COLUMNS,
        "dot_product = true means nothing to mainloop Direct: leave it out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_remedy(name: str) -> None:
    schedule, spec, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=message):
        driver.emit(spec, made(schedule), target=CPU)
