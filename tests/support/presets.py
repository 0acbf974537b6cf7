"""What is asked of presets' kernels on a device, through whichever runtime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gemmgen import candidates
from gemmgen.errors import ScheduleError
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Matrix, Problem, layouts

Gemm = Callable[..., Matrix]
#: A single element, ragged sizes under, around and over one tile of every preset, and whole tiles.
SIZES = [(1, 1, 1), (7, 11, 15), (33, 17, 9), (129, 131, 37), (200, 130, 65), (256, 256, 64)]
#: What compilers take seconds for: with a quarter of the code, and in three of the eight layouts.
SMALLER = {"L3_SLM_8x8_8x16": (4, 4), "smem_8x8_double": (4, 4)}


def check_any_size(gemm: Gemm, spec: GemmSpec, rng: np.random.Generator) -> None:
    for size in SIZES:
        for alpha, beta in ((1.0, 0.0), (-1.5, 0.25) if spec.accumulator.is_float else (-2.0, 3.0)):
            problem = Problem.random(rng, *size, alpha, beta, spec)
            problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=alpha, beta=beta))
    exact = Problem.integers(rng, 70, 45, 29).typed(spec)
    assert np.array_equal(gemm(exact.a, exact.b, exact.c.copy()), exact.expected.astype(exact.c.dtype))


def check_layouts(name: str, built: Callable[[Schedule, GemmSpec], Gemm], rng: np.random.Generator) -> int:
    """Of a preset in every layout that is not refused; how many those are."""
    problem = Problem.random(rng, 45, 70, 29, 1.5, 0.5)
    schedule = candidates.load(name).schedule
    if tile := SMALLER.get(name):
        schedule = schedule.but(tile=tile, thread_vector=tile, name=None)
    ran = 0
    for spec in list(layouts(GemmSpec()))[1 :: 3 if tile else 1]:
        try:
            gemm = built(schedule, spec)
        except ScheduleError:
            continue
        matrices = ((problem.a, spec.a_order), (problem.b, spec.b_order), (problem.c, spec.c_order))
        a, b, c = (np.array(x, order="C" if order == "row" else "F") for x, order in matrices)
        problem.check(gemm(a, b, c, alpha=1.5, beta=0.5))
        ran += 1
    return ran


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """A number for each call of a function or method from now on."""
    calls, function = list[int](), getattr(owner, name)

    def count(*args: object) -> object:
        calls.append(len(calls))
        return function(*args)

    monkeypatch.setattr(owner, name, count)
    return calls
