"""What other libraries got wrong where tiles are on their way while others are used: the interpreter says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import FaultKind, KernelFault
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import interpreted
from gemmgen.fuzz.data import Numbers
from gemmgen.ir.expr import Const, Var, compare
from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import poison
from gemmgen.ir.stmt import Body, For, If, Let, Stmt
from gemmgen.ir.synchronization import AsyncGroup, Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body_exprs, substitute, walk
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run
from gemmgen.spec import GemmSpec
from tests.support.broken import broken_main, dropped

SM_90 = TARGETS["sm_90"]
RING = candidates.load("async_8x8_8x16").schedule


def lowered(schedule: Schedule) -> Program:
    return driver.lower_program(GemmSpec(), schedule, SM_90)


def multiply(program: Program, schedule: Schedule, k: int, size: tuple[int, int] = (20, 20)) -> None:
    numbers = Numbers.of(Case(GemmSpec(), schedule, (*size, k), "cuda", "sm_90", data="whole"))
    problem = numbers.problem(interpreted(program, numbers))
    assert problem is None, problem


def expect(program: Program, schedule: Schedule, k: int, *kinds: FaultKind) -> None:
    with pytest.raises(KernelFault) as caught:
        multiply(program, schedule, k)
    assert caught.value.kind in kinds, caught.value


def test_sums_of_slices_reuse_local_memory_before_copies_have_landed() -> None:
    """An epilogue in the memory of the tiles, while the last copies to them may still be on their way."""
    schedule = candidates.load("mbarrier_8x8_4x8_slices8").schedule.but(mbarrier=0, stages=3)
    whole = lowered(schedule)
    for k in (1, 8, 16, 40, 41):
        multiply(whole, schedule, k)
    body = whole.main.body
    last = max(i for i, stmt in enumerate(body) if isinstance(stmt, For))
    wait = next(s for s in walk(body) if isinstance(s, AsyncGroup) and s.verb == "wait")
    # Two tiles more than are used are begun, and nobody waits for them after the loop.
    late = [s for s in body[last + 1 :] if isinstance(s, AsyncGroup)]
    assert all(s.verb == "wait" for s in late)

    never = dropped(AsyncGroup, lambda s: s == wait or s in late)
    expect(broken_main(whole, never), schedule, 40, "race", "unwritten")


def test_a_wait_at_a_fixed_iteration() -> None:
    """A ring in which only one round's wait is kept: right for loops that are as short as that."""
    whole = lowered(RING)
    for round_of_wait in (0, 1, 2):

        def once(stmt: Stmt, kept: int = round_of_wait) -> Body:
            if not isinstance(stmt, For) or stmt.var != Var("k0"):
                return (stmt,)
            at = compare("==", stmt.var, Const(kept * RING.block_k))
            inner = tuple(If(at, (s,)) if isinstance(s, AsyncGroup) and s.verb == "wait" else s for s in stmt.body)
            return (replace(stmt, body=inner),)

        expect(broken_main(whole, once), RING, 10 * RING.block_k, "race", "unwritten")


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_a_negative_modulo_in_a_slot(stages: int) -> None:
    """(step - 1) % stages is below zero in the first round in C, and a slot too far or outside."""
    schedule = RING.but(stages=stages, register_stages=1, across_tiles=False)
    whole = lowered(schedule)
    for steps in (1, stages - 1, stages, stages + 1, 2 * stages + 1):
        multiply(whole, schedule, steps * schedule.block_k)
    lets = [s for s in walk(whole.main.body) if isinstance(s, Let) and s.var.name.endswith("stage")]
    assert lets, "stages are named"
    for let in lets:
        earlier = substitute({Var("k0"): Var("k0") - schedule.block_k})

        def behind(stmt: Stmt, named: Let = let) -> Body:
            return map_body_exprs((stmt,), earlier) if stmt == named else (stmt,)  # noqa: B023

        with pytest.raises((KernelFault, AssertionError)):
            multiply(broken_main(whole, behind), schedule, 7 * schedule.block_k)


# --- parts of K -----------------------------------------------------------------------------------


def workspace_runs(program: Program, schedule: Schedule, ks: tuple[int, ...]) -> None:
    """Products one after the other in the same workspace, which nobody clears between: exact each time."""
    memory: dict[str, np.ndarray] = {}
    for k in ks:
        numbers = Numbers.of(Case(GemmSpec(), schedule, (20, 24, k), "cuda", "sm_90", data="whole", seed=k))
        stored = {name: numbers.stored(name) for name in "abc"}
        known: dict[str, object] = {"m": 20, "n": 24, "k": k, "alpha": 1.0, "beta": 0.0}
        for name, matrix in stored.items():
            known |= {name: matrix.inner, f"ld{name}": matrix.ld}
        for workspace in program.workspaces:
            memory.setdefault(workspace.name, np.full(200_000, poison(np.dtype("float32")), np.float32))
            known[workspace.name] = memory[workspace.name]
        for kernel in program.kernels:
            run(kernel, {p.name: known[p.name] for p in kernel.launch_params})  # type: ignore[misc]
        problem = numbers.problem(stored["c"].view)
        assert problem is None, problem


SPLIT = candidates.load("lds_8x8_16x16_k8").schedule.but(split_k=4)


def test_parts_of_k_reuse_stale_sums() -> None:
    """Fewer steps than parts: the parts without any must write zeros, not leave what the product before left."""
    workspace_runs(driver.lower_program(GemmSpec(), SPLIT, SM_90), SPLIT, (200, 3, 1, 70, 8, 0))


@pytest.mark.parametrize("part", [0, 3])
def test_a_part_that_writes_nothing_is_seen(part: int) -> None:
    program = driver.lower_program(GemmSpec(), SPLIT, SM_90)

    def skip(stmt: Stmt) -> Body:
        writes = [s for s in walk((stmt,)) if getattr(s, "buffer", getattr(s, "dst", None)) in program.main.matrices]
        return (If(compare("!=", Var("part"), Const(part)), (stmt,)),) if writes and isinstance(stmt, For) else (stmt,)

    # Guards stay outside of loops only once: the outermost loop over the tile's rows is the store.
    body = program.main.body
    store = max(i for i, stmt in enumerate(body) if skip(stmt) != (stmt,))
    less = (*body[:store], *skip(body[store]), *body[store + 1 :])
    kernels = tuple(replace(k, body=less) if k is program.main else k for k in program.kernels)
    with pytest.raises((AssertionError, KernelFault)):
        workspace_runs(replace(program, kernels=kernels), SPLIT, (200, 70))


def test_parts_of_k_ignore_their_workspace() -> None:
    """Every plane is written in every element by one kernel, and read by the next: full of NaN before, and exact."""
    program = driver.lower_program(GemmSpec(), SPLIT, SM_90)
    (workspace,) = program.workspaces
    writers = [k.name for k in program.kernels if any(p.name == workspace.name and p.writable for p in k.matrices)]
    readers = [k.name for k in program.kernels if any(p.name == workspace.name and not p.writable for p in k.matrices)]
    assert (writers, readers) == ([program.name], [f"{program.name}_total"])
    multiply(program, SPLIT, 70)


# --- races: rings of several lengths, loops of many --------------------------------------------------


@pytest.mark.parametrize("name", ["mbarrier_8x8_4x8_slices8", "mbarrier_8x16_8x8_slices4_packed"])
def test_barriers_are_waited_for_in_each_round(name: str) -> None:
    """The wait of a single batch is left out: a race in that round alone, which loops of that length must show."""
    schedule = candidates.load(name).schedule.but(split_k=1, atomic=False)
    whole, batch = lowered(schedule), "k0" if schedule.mbarrier == 1 else "k_batch"

    def but_one(stmt: Stmt) -> Body:
        if isinstance(stmt, Mbarrier) and stmt.verb == "wait" and stmt.name == "tiles_empty":
            return (If(compare("!=", Var(batch), Const(2 * schedule.round_depth)), (stmt,)),)
        return (stmt,)

    k = 8 * schedule.round_depth + 1
    multiply(whole, schedule, k)
    expect(broken_main(whole, but_one), schedule, k, "race", "pipe")
    assert any(isinstance(s, Barrier) for s in walk(whole.main.body))
