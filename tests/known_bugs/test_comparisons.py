"""Comparisons that pass what is wrong, and answers that are worked out from the wrong numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.bench.libraries import accuracy
from gemmgen.bench.records import Accuracy
from gemmgen.cli.matrices import Check, Matrices
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.data import Matrix, Numbers
from gemmgen.ir.expr import Bin, Call, Expr, number
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body_exprs
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

SIZE = (6, 5, 4)


def by_fuzz(a: Matrix, b: Matrix, c: Matrix) -> bool:
    case = Case(GemmSpec(), presets.load("naive").schedule, SIZE)
    return Numbers(case, a[None], b[None], c[None]).problem(c[None]) is None


def by_run(a: Matrix, b: Matrix, c: Matrix) -> bool:
    return Check.of(Matrices(a, b, None), GemmSpec(alpha=1.0, beta=0.0), c).passed  # type: ignore[arg-type]


def by_bench(a: Matrix, b: Matrix, c: Matrix) -> bool:
    found: Accuracy = accuracy(a, b, c)  # type: ignore[arg-type]
    return found.passed


def by_tests(a: Matrix, b: Matrix, c: Matrix) -> bool:
    try:
        Problem(a, b, c, 1.0, 0.0).check(c)  # type: ignore[arg-type]
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("passes", [by_fuzz, by_run, by_bench, by_tests])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
def test_nan_counts_as_a_pass(passes: object, bad: float, rng: np.random.Generator) -> None:
    """`error > bound` is false of NaN, and so is the largest of errors among which one is."""
    assert callable(passes)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 4), (4, 5)))
    c = a @ b
    assert passes(a, b, c.copy())
    for place in ((0, 0), (3, 2), (5, 4)):
        wrong = c.copy()
        wrong[place] = bad
        assert not passes(a, b, wrong)
    assert not passes(a, b, np.full_like(c, bad))


def test_nan_counts_as_a_pass_in_programs_that_check_themselves(root: Path) -> None:
    """The comparison of SYCL's `--form main`: a NaN fails `<=`, where it would not be `>`."""
    text = (root / "templates/sycl/main.cpp.j2").read_text()
    compared = [line.strip() for line in text.splitlines() if "std::abs" in line and "wrong +=" in line]
    assert compared and all(line.startswith("wrong += !(") and " <= " in line for line in compared)


def test_the_answer_is_worked_out_after_c_was_overwritten(rng: np.random.Generator) -> None:
    """With beta, C goes in and comes out in one place: the answer must be that of C before."""
    problem = Problem.random(rng, *SIZE, 1.5, 1.0)
    before = problem.c.copy()
    preset = presets.load("naive")
    result = interpret(driver.lower(preset.spec, preset.schedule), preset.spec, problem)
    assert np.array_equal(problem.c, before)
    problem.check(result)
    late = replace(problem, c=result)
    with pytest.raises(AssertionError, match="elements off"):
        late.check(result)


def test_the_answer_is_worked_out_by_what_is_tested(rng: np.random.Generator) -> None:
    """A pass that turns every product's sign does so for the interpreter as for a device: float64 alone can tell."""

    def transposed(node: Expr) -> Expr:
        match node:
            case Call("fma", (a, b, c), dtype):
                return Call("fma", (a, Bin("-", number(0, dtype), b), c), dtype)
        return node

    preset = presets.load("naive")
    kernel = driver.lower(preset.spec, preset.schedule, TARGETS["portable"])
    wrong = replace(kernel, body=map_body_exprs(kernel.body, transposed))
    assert wrong != kernel
    problem = Problem.random(rng, *SIZE)
    with pytest.raises(AssertionError, match="30 of 30 elements off"):
        problem.check(interpret(wrong, preset.spec, problem))
