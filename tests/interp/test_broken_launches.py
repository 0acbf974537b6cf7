"""Faults of programmatic dependent launch, planted one at a time in programs that are right, are all found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gemmgen import candidates
from gemmgen.errors import KernelFault
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, compare
from gemmgen.ir.kernel import Program, awaits_others
from gemmgen.ir.stmt import Body, If, Stmt
from gemmgen.ir.synchronization import DependentLaunch
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body, walk
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret, lowered

SM_90A = TARGETS["sm_90a"]
#: Kernels that pack, add up parts of K, or both; by elements and by TMA.
NAMES = (
    "mbarrier_8x16_16x16_packed",
    "mbarrier_8x16_16x16_packed_a",
    "mbarrier_8x16_16x16_stream",
    "mbarrier_8x8_2x16_split8",
    "mbarrier_8x8_8x8_split128",
    "reduction_4x4_4x4",
    "smem_8x8_double_packed",
    "wgmma_128x256_s4_packed",
    "wgmma_64x16_s8",
    "wgmma_64x64_s6_split128",
    "wgmma_64x16_s8_joined2",
)
#: Those whose first kernel begins when all before it is complete: it has no wait.
WITH_A_FIRST_KERNEL_THAT_FOLLOWS = [name for name in NAMES if not name.startswith("wgmma_64x")]


def is_await(stmt: Stmt) -> bool:
    return isinstance(stmt, DependentLaunch) and stmt.verb == "await"


def without(body: Body) -> Body:
    """Nobody waits."""
    return map_body(body, lambda stmt: () if is_await(stmt) else (stmt,))


def at_the_end(body: Body) -> Body:
    """The wait comes too late."""
    return (*without(body), *(stmt for stmt in walk(body) if is_await(stmt)))


def not_by_the_first(body: Body) -> Body:
    """The first column of work-items, by which TMA copies are begun, does not wait."""
    others = compare("!=", Call("local_id", (Const(0),), I32), Const(0))
    return map_body(body, lambda stmt: (If(others, (stmt,)),) if is_await(stmt) else (stmt,))


PLANTS: tuple[Callable[[Body], Body], ...] = (without, at_the_end, not_by_the_first)


@cache
def right(name: str) -> tuple[Program, GemmSpec, Problem]:
    """A program that is right, and a product for it."""
    preset = candidates.load(name)
    split = min(3, preset.schedule.split_k)
    program = lowered(preset.spec, preset.schedule.but(split_k=split), SM_90A)
    problem = Problem.random(np.random.default_rng(11), 40, 72, 160, 1.5, -0.5, preset.spec)
    return program, preset.spec, problem


def early(program: Program) -> tuple[str, ...]:
    """The kernels that launchers of the right program start before those in front of them are complete."""
    return tuple(kernel.name for kernel in program.kernels if awaits_others(kernel))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_emitted_is_right(name: str) -> None:
    program, spec, problem = right(name)
    assert early(program)
    problem.check(interpret(program, spec, problem, 8))


def expect_race(name: str, number: int, body: Body, begins_early: tuple[str, ...]) -> None:
    program, spec, problem = right(name)
    kernels = list(program.kernels)
    kernels[number] = replace(kernels[number], body=body)
    with pytest.raises(KernelFault, match="it has not waited for the kernels before"):
        interpret(replace(program, kernels=tuple(kernels)), spec, problem, 8, early=begins_early)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: str(plant.__name__))
@pytest.mark.parametrize("name", NAMES)
def test_a_wait_that_is_missing_or_misplaced(name: str, plant: Callable[[Body], Body]) -> None:
    program = right(name)[0]
    for number, kernel in enumerate(program.kernels):
        if awaits_others(kernel):
            expect_race(name, number, plant(kernel.body), early(program))


@pytest.mark.parametrize("name", WITH_A_FIRST_KERNEL_THAT_FOLLOWS)
def test_a_kernel_without_a_wait_that_is_launched_early(name: str) -> None:
    program = right(name)[0]
    others = [number for number, kernel in enumerate(program.kernels) if not awaits_others(kernel)]
    assert others
    for number in others:
        kernel = program.kernels[number]
        expect_race(name, number, kernel.body, (*early(program), kernel.name))
