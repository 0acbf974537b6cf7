"""Products by a warp's matrix instructions, as the interpreter runs them: types, layouts, rings, lines that begin anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.stmt import Barrier, Body, Stmt
from gemmgen.ir.target import TARGETS
from gemmgen.ir.visit import map_body
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret, layouts

SM_80 = TARGETS["sm_80"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32)
#: Steps of K that are fewer than the stages, as many, more, and parts of one.
SIZES = ((33, 18, 19), (1, 1, 1), (16, 40, 33), (70, 36, 100), (64, 32, 160))


def small(stages: int = 3, **changes: object) -> Schedule:
    """Two by two warps of 16 x 16."""
    base = replace(defaults("mma", (2, 4), (16, 8)), stages=stages)
    return replace(base, **changes)  # type: ignore[arg-type]


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, pad: int) -> None:
    program = driver.lower_program(spec, schedule, SM_80)
    for size in SIZES:
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        problem.check(interpret(program, spec, problem, pad))


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, small(c_width=2 if spec.c_order == "row" else 1), rng, 5)


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("across", [True, False])
def test_rings(stages: int, across: bool, rng: np.random.Generator) -> None:
    check(SPEC, small(stages, across=across, register_stages=1 + across), rng, 3)
