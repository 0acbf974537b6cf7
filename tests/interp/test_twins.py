"""What aligned arrays run on CUDA: each preset whose vectors need alignment, assumed leading dimensions of 4."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.target import Target
from gemmgen.presets import Preset
from gemmgen.runtime.cuda_arrays import ALIGNMENT
from gemmgen.schedule import Schedule
from tests.support.cuda import with_vectors
from tests.support.problems import Problem, interpret, lowered

NAMES = with_vectors()
#: N and K are multiples of 4, so that lines are with and without gaps; tiles fit some of them and not others.
SIZES = ((1, 4, 4), (7, 132, 12), (130, 140, 24), (256, 128, 32))


def light(preset: Preset) -> Schedule:
    """The preset with K in a few parts, or dealt out to a few groups: they run one after the other here."""
    own = preset.schedule
    return own.but(split_k=min(own.split_k, 3))


@cache
def target_of(name: str) -> Target:
    """CUDA's first target that can take the preset."""
    preset = candidates.load(name)
    return driver.default_target(preset.spec, preset.schedule, "cuda")


@pytest.mark.parametrize("pad", [0, 4])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("name", NAMES)
def test_aligned_sizes(name: str, pad: int, size: tuple[int, int, int], rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    spec = replace(preset.spec, ld_multiple=ALIGNMENT // preset.spec.dtype.size)
    kernel = lowered(spec, light(preset), target_of(name))
    # C is read and not, at every size.
    problem = Problem.random(rng, *size, *((-1.5, 0.25) if pad else (1.0, 0.0)))
    problem.check(interpret(kernel, spec, problem, pad))


@pytest.mark.parametrize("name", NAMES)
def test_a_single_line_may_have_any_length(name: str, rng: np.random.Generator) -> None:
    """Its leading dimension is never used, so that nothing is assumed of it."""
    preset = candidates.load(name)
    spec = replace(preset.spec, ld_multiple=ALIGNMENT // preset.spec.dtype.size)
    problem = Problem.random(rng, 1, 64, 9)
    kernel = lowered(spec, light(preset), target_of(name))
    problem.check(interpret(kernel, spec, problem, 0))
