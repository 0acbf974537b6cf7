"""Processes that compile and measure for `gemmgen tune`, without a device."""

from __future__ import annotations

import json

import pytest

from gemmgen.spec import GemmSpec
from gemmgen.tuning.job import Outcome
from gemmgen.tuning.measure import problem_of
from gemmgen.tuning.runners import BUILD_LIMIT, Process


@pytest.mark.parametrize("changes", [{}, {"epilogue": ("gelu",)}, {"prologue_b": "b * b_scale"}], ids=str)
def test_a_problem_is_its_own_key(changes: dict[str, object]) -> None:
    """Its matrices on a GPU are kept by it, also where it has operands."""
    spec = GemmSpec(**changes)  # type: ignore[arg-type]
    problem = problem_of(spec, (5, 7, 9), 1)
    assert {problem: 1}[problem_of(spec, (5, 7, 9), 1)] == 1


def test_a_process_says_why_it_ends() -> None:
    """And is started anew for what is asked next."""
    process = Process()
    try:
        for word, text in (("build", "nothing"), ("measure", json.dumps(["{}", ""]))):
            answer = process.ask(word, text, BUILD_LIMIT)
            assert answer is not None
            problem = Outcome.read(answer).problem
            assert problem is not None and "(a bug of gemmgen, or of the driver)" in problem
        both = process.ask("compare", json.dumps([1.0, ["{}", "{}"]]), BUILD_LIMIT)
        assert both is not None
        assert all("Error: " in str(Outcome.read(each).problem) for each in json.loads(both))
    finally:
        process.close()
