"""Asynchronous copies, rings that go on across tiles, and the arrangement of warps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import FaultKind, LoweringError, ScheduleError
from gemmgen.ir.synchronization import AsyncGroup, Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Problem, interpret, layouts

SM_80 = TARGETS["sm_80"]
SIZES = ((5, 5, 8), (5, 5, 16), (5, 5, 24), (7, 11, 15), (33, 65, 17), (64, 64, 64), (140, 132, 44))


def ring(stages: int, asynchronous: bool = True, **changes: object) -> Schedule:
    """smem_8x8_reg_double with a ring of tiles."""
    base = presets.load("smem_8x8_reg_double").schedule
    a, b = replace(base.a, async_copy=asynchronous), replace(base.b, async_copy=asynchronous)
    return base.but(name=None, stages=stages, a=a, b=b, **changes)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, pad: int = 4) -> None:
    kernel = driver.lower(spec, schedule, SM_80)
    for size in SIZES:
        problem = Problem.random(rng, *size, 1.5, 0.5)
        problem.check(interpret(kernel, spec, problem, pad))


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("pad", [3, 4])
def test_rings_of_asynchronous_copies(stages: int, pad: int, rng: np.random.Generator) -> None:
    check(GemmSpec(), ring(stages), rng, pad)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize(("asynchronous", "prefetch"), [(True, False), (False, False), (False, True)])
def test_operands_read_across_tiles(stages: int, asynchronous: bool, prefetch: bool, rng: np.random.Generator) -> None:
    check(GemmSpec(), ring(stages, asynchronous, prefetch=prefetch, across_tiles=True, serpentine=True), rng)


@pytest.mark.parametrize("spec", list(layouts(GemmSpec())))
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    check(spec, ring(3, across_tiles=True), rng, 5)


@pytest.mark.parametrize("warp", [(4, 8), (8, 4), (2, 16), (16, 2)])
def test_lanes_of_a_warp(warp: tuple[int, int], rng: np.random.Generator) -> None:
    check(GemmSpec(), ring(2, lane_arrangement=warp), rng)


def test_folded_sizes(rng: np.random.Generator) -> None:
    for m, n, k in ((140, 132, 44), (64, 64, 8), (64, 64, 16)):
        spec = GemmSpec(m=m, n=n, k=k)
        problem = Problem.random(rng, m, n, k)
        problem.check(interpret(driver.lower_program(spec, ring(3, across_tiles=True), SM_80), spec, problem))


@pytest.mark.parametrize(
    ("rewrite", "kind"),
    [
        (dropped(AsyncGroup, verb="wait"), "unwritten"),
        (dropped(AsyncGroup, verb="commit"), "unwritten"),
        (dropped(Barrier), "race"),
        # Waiting for one group less than the ring needs reads a tile that is still on its way.
        (changed(AsyncGroup, lambda s: replace(s, pending=s.pending + 1), verb="wait"), "unwritten"),
    ],
    ids=["no wait", "no commit", "no barrier", "a slot too few"],
)
def test_broken_rings_are_caught(rewrite: Rewrite, kind: FaultKind, rng: np.random.Generator) -> None:
    with faults(kind):
        interpret(
            broken(driver.lower(GemmSpec(), ring(3), SM_80), rewrite), GemmSpec(), Problem.random(rng, 64, 64, 64), 4
        )


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (ring(3, prefetch=True), "prefetch keeps the next tile in registers"),
        (ring(1, across_tiles=True), "stages = 1: use 2 or more"),
        (ring(2, across_tiles=True, register_stages=1), "register_stages = 1: use 2"),
        (ring(2, lane_arrangement=(4, 4)), "lane_arrangement 4x4 has 16 lanes, not 32"),
        (ring(2, lane_arrangement=(32, 1)), "does not divide the group's 16x16"),
        (ring(2).but(b=presets.load("smem_8x8").schedule.b), "set async_copy for both or for none"),
    ],
)
def test_refusals(schedule: Schedule, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        driver.lower(GemmSpec(), schedule, SM_80)


def test_older_devices_are_refused() -> None:
    with pytest.raises(ScheduleError, match="use sm_80 or later"):
        driver.emit(GemmSpec(), ring(2), "cuda", TARGETS["sm_75"])
    with pytest.raises(ScheduleError, match="does not run cuda"):
        driver.emit(GemmSpec(), ring(2), "cuda", TARGETS["intel"])


def test_opencl_has_no_words_for_them() -> None:
    target = replace(TARGETS["intel"], name="odd", features=TARGETS["intel"].features | {"async_copy"})
    with pytest.raises(LoweringError, match=r"opencl|OpenCL"):
        driver.emit(GemmSpec(), ring(2), "opencl", target)
