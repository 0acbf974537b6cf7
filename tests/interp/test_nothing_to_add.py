"""Products without terms: K = 0, and a folded alpha = 0. C = beta * C then, and neither A nor B is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.build import build
from gemmgen.ir.dtypes import C64, F16, I8, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.interp.test_presets import light, target_of
from tests.support.problems import Problem, interpret


@pytest.mark.parametrize("name", candidates.names())
def test_every_preset_without_depth(name: str, rng: np.random.Generator) -> None:
    """An access to A or B would be outside of them; where beta is zero, C holds NaN that nobody may read."""
    preset = candidates.load(name)
    program = driver.lower_program(preset.spec, light(preset), target_of(preset))
    for beta in (0.0, -2.0):
        alpha = -1.5 if preset.spec.accumulator.is_float else -3
        problem = Problem.random(rng, 5, 7, 0, alpha, beta, preset.spec)
        assert np.array_equal(interpret(program, preset.spec, problem), problem.expected)


def test_the_sum_of_no_parts_is_zero() -> None:
    """Not what lay in the workspace between two kernels."""
    spec = GemmSpec(k=None, beta=None)
    program = driver.lower_program(spec, candidates.load("naive_16x16").schedule.but(split_k=3), TARGETS["intel"])
    problem = Problem(np.zeros((3, 0), np.float32), np.zeros((0, 4), np.float32), np.ones((3, 4), np.float32), 1, 3)
    assert (interpret(program, spec, problem) == 3).all()


@pytest.mark.parametrize("dtype", [F16, I8, C64, None], ids=str)
@pytest.mark.parametrize("beta", [None, 0.0, 2.0])
def test_alpha_of_zero_leaves_a_kernel_of_c_alone(
    dtype: DType | None, beta: float | None, rng: np.random.Generator
) -> None:
    spec = GemmSpec(alpha=0.0, beta=beta) if dtype is None else GemmSpec(dtype=dtype, alpha=0.0, beta=beta)
    schedule = candidates.load("smem_8x8_double_packed").schedule
    if dtype is None:
        spec, schedule = replace(spec, c_order="col"), schedule.but(c_width=1)
    program = driver.lower_program(spec, schedule, TARGETS["intel"])
    assert [p.name for p in program.main.matrices] == ["c"]
    assert len(program.kernels) == 1
    problem = Problem.of(rng, spec, 3, 300, 5, 0.0, 3.0 if beta is None else beta)
    poisoned = np.full(problem.a.shape, 99).astype(numpy_dtype(spec.dtype))
    if beta == 0 and spec.result.is_float:
        problem = replace(problem, c=np.full(problem.c.shape, np.nan).astype(numpy_dtype(spec.result)))
    problem.check(interpret(program, spec, replace(problem, a=poisoned)))


def test_its_name_is_the_schedules() -> None:
    for name in ("block_read_32x2_1x8", "dpas_32x2_1x8"):
        preset = candidates.load(name)
        program = build(replace(preset.spec, alpha=0.0), preset.schedule, TARGETS["intel"])
        assert [kernel.name for kernel in program.kernels] == [name]
