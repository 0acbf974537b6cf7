"""Faults of synchronisation, planted one at a time in six right kernels: at most one of them goes unseen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import GemmgenError
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.planted import planted, sizes
from tests.support.problems import Problem, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=8)
TILED = Operand("local", 4, async_copy=True)
#: One warpgroup, one warp that loads, three slots.
WGMMA = defaults("wgmma", (2, 16), (32, 4)).but(
    producer_threads=32, setmaxnreg=(0, 0), stages=3, threadblock_swizzle=0, c_width=2
)
KERNELS: dict[str, tuple[GemmSpec, Schedule]] = {
    "double buffer by barriers": (GemmSpec(), candidates.load("smem_8x8_double").schedule),
    "cp.async ring": (GemmSpec(), candidates.load("async_8x4_8x16").schedule),
    "mbarrier ring": (
        GemmSpec(),
        Schedule.of(
            tile=(4, 4),
            group=(4, 8),
            thread_vector=(4, 4),
            block_k=4,
            a=replace(TILED, transposed=True, pad=4),
            b=TILED,
            stages=8,
            mbarrier=2,
            register_stages=2,
            across_tiles=True,
            c_width=4,
        ),
    ),
    "wgmma and TMA, persistent": (SPEC, WGMMA.but(c_width=1, epilogue_stages=2, persistent=True)),
    "cluster with multicast": (SPEC, WGMMA.but(tile=(2, 32), cluster=(2, 1), threadblock_swizzle=2)),
    "cluster reduction of split-K": (
        candidates.load("wgmma_16x64_s8_joined2").spec,
        candidates.load("wgmma_16x64_s8_joined2").schedule.but(stages=3),
    ),
}
#: So many faults there are at least, and so many may go unseen.
PLANTED, UNSEEN = 105, 1


@cache
def right(name: str) -> tuple[Kernel, tuple[Problem, ...]]:
    """A kernel, which multiplies right, and the products that it is tried with."""
    spec, schedule = KERNELS[name]
    kernel = driver.lower(spec, schedule, SM_90A)
    rng = np.random.default_rng(3)
    problems = tuple(Problem.of(rng, spec, *size, 1.5, -0.5) for size in sizes(schedule))
    for problem in problems:
        problem.check(interpret(kernel, spec, problem, 8))
    return kernel, problems


def unseen(name: str, each: int, first: int = 0) -> tuple[int, list[str]]:
    """How many faults were planted, each so-manieth of all there are, and those that nothing showed."""
    kernel, problems = right(name)
    tried = list(planted(kernel))[first::each]

    def shows(broken: Kernel) -> bool:
        for problem in problems:
            try:
                problem.check(interpret(broken, problem.spec, problem, 8))
            except (GemmgenError, AssertionError):  # reported, or a wrong product
                return True
        return False

    return len(tried), [fault.name for fault in tried if not shows(fault.kernel)]


@pytest.mark.parametrize("name", KERNELS)
def test_some_of_the_faults(name: str) -> None:
    """A sample of each kernel's, all of which are seen."""
    count, missed = unseen(name, 7, 2)
    assert count
    assert not missed


def test_all_of_the_faults() -> None:
    found = [unseen(name, 1) for name in KERNELS]
    assert sum(count for count, _ in found) >= PLANTED
    missed = [name for _, names in found for name in names]
    assert len(missed) <= UNSEEN, missed
