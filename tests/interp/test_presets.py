"""Every preset, run by the interpreter: right, without a race, inside its buffers, on any size."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret, layouts

NAMES = presets.names()


def target_of(preset: presets.Preset) -> Target:
    """A target that can take the preset: OpenCL's default, or else CUDA's."""
    on_opencl = not driver.refusals(preset.spec, preset.schedule)
    return driver.default_target(preset.spec, preset.schedule, "opencl" if on_opencl else "cuda")


#: One of everything; a single row, column or step; under and over a tile; multiples of every tile.
SIZES = ((1, 1, 1), (1, 131, 9), (129, 1, 8), (7, 11, 15), (33, 65, 17), (130, 140, 23), (256, 128, 32))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
def test_any_size(name: str, size: tuple[int, int, int], rng: np.random.Generator) -> None:
    preset = presets.load(name)
    kernel = driver.lower(preset.spec, preset.schedule, target_of(preset))
    for alpha, beta in ((1.0, 0.0), (-1.5, 0.25)):
        problem = Problem.random(rng, *size, alpha, beta)
        problem.check(interpret(kernel, preset.spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_integers_bit_for_bit(name: str, rng: np.random.Generator) -> None:
    preset = presets.load(name)
    problem = Problem.integers(rng, 70, 45, 29)
    result = interpret(driver.lower(preset.spec, preset.schedule, target_of(preset)), preset.spec, problem)
    assert np.array_equal(result, problem.expected)


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str, rng: np.random.Generator) -> None:
    preset = presets.load(name)
    problem = Problem.random(rng, 45, 70, 29, 1.5, 0.5)
    refused = 0
    for spec in layouts(preset.spec):
        try:
            kernel = driver.lower(spec, preset.schedule, target_of(preset))
        except ScheduleError:
            refused += 1
            continue
        problem.check(interpret(kernel, spec, problem))
    assert refused < 7, "row-major A and B must always be possible, C either way"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(128, 256, 64), (100, 90, 70), (5, 3, 12), (5, 3, 1)])
def test_folded_sizes_and_factors(name: str, size: tuple[int, int, int], rng: np.random.Generator) -> None:
    preset = presets.load(name)
    m, n, k = size
    for alpha, beta in ((1.0, 0.0), (2.5, 1.0), (1.0, 0.5)):
        spec = replace(preset.spec, m=m, n=n, k=k, alpha=alpha, beta=beta)
        problem = Problem.random(rng, m, n, k, alpha, beta)
        problem.check(interpret(driver.lower(spec, preset.schedule, target_of(preset)), spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_promised_multiples(name: str, rng: np.random.Generator) -> None:
    preset = presets.load(name)
    rows, cols = preset.schedule.block_tile
    depth = 2 * preset.schedule.k_step
    spec = replace(preset.spec, multiple_of=(rows, cols, preset.schedule.k_step))
    problem = Problem.random(rng, rows, 2 * cols, depth, 1.5, 0.5)
    problem.check(interpret(driver.lower(spec, preset.schedule, target_of(preset)), spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_promised_multiples_leave_no_guard(name: str) -> None:
    """Where the sizes are promised to fit the tiles, nothing in the text compares or clamps a coordinate."""
    preset = presets.load(name)
    rows, cols = preset.schedule.block_tile
    spec = GemmSpec(multiple_of=(rows, cols, preset.schedule.k_step), beta=0.0)
    backend = "cuda" if driver.refusals(preset.spec, preset.schedule) else "opencl"
    body = driver.emit(replace(spec, ld_multiple=4), preset.schedule, backend).text.split("__launch_bounds__")[-1]
    body = body.split("#ifndef", 1)[0].split("{", 1)[1]
    step = preset.schedule.k_step
    ahead = [f"if ({i * step} <= k)" for i in (1, 2, 3)] + [f"if (k0 + {i * step} <= k)" for i in (2, 3)]
    allowed = (*ahead, "if (kk + 1 < ", "if (local_index + i * ", "if (local_index < ")
    guards = [line.strip() for line in body.splitlines() if "if (" in line]
    assert [g for g in guards if not g.startswith(allowed)] == [], "only a pipe's look-ahead and uneven shares may stay"
    assert "min(" not in body


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [8, 16, 24, 33, 40])
def test_few_and_many_steps(name: str, k: int, rng: np.random.Generator) -> None:
    """Loops shorter than a ring has slots, and lengths that no number of slots divides."""
    preset = presets.load(name)
    if "local" in (preset.schedule.a.memory, preset.schedule.b.memory):
        for stages in (2, 3, 4) if preset.schedule.across else (1, 2, 3, 4):
            schedule = replace(preset.schedule, stages=stages)
            problem = Problem.random(rng, 40, 40, k)
            problem.check(interpret(driver.lower(preset.spec, schedule, target_of(preset)), preset.spec, problem))
    else:
        problem = Problem.random(rng, 40, 40, k)
        problem.check(interpret(driver.lower(preset.spec, preset.schedule, target_of(preset)), preset.spec, problem))


@pytest.mark.parametrize("name", NAMES)
def test_interpreter_is_quick(name: str, rng: np.random.Generator) -> None:
    """Not a benchmark: a minute's work would be a bug of the interpreter (it takes about 0.05 s)."""
    preset = presets.load(name)
    problem = Problem.random(rng, 64, 64, 64)
    start = time.perf_counter()
    problem.check(interpret(driver.lower(preset.spec, preset.schedule, target_of(preset)), preset.spec, problem))
    assert time.perf_counter() - start < 5


def test_infinities_and_nans_propagate(rng: np.random.Generator) -> None:
    """What IEEE arithmetic makes of them, in their row and column only, also in the last steps of K."""
    for name in NAMES:
        preset = presets.load(name)
        problem = Problem.random(rng, 40, 24, 13)
        problem.a[3, 12], problem.b[5, 7] = np.inf, np.nan
        with np.errstate(invalid="ignore"):
            expected = problem.a.astype(np.float64) @ problem.b.astype(np.float64)
            result = interpret(driver.lower(preset.spec, preset.schedule, target_of(preset)), preset.spec, problem)
        assert np.array_equal(np.isnan(result), np.isnan(expected)), name
        assert np.array_equal(np.isinf(result), np.isinf(expected)), name
