"""Rings handed over by mbarriers, with one thing wrong each: the interpreter says what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.errors import FaultKind, KernelFault
from gemmgen.ir.buffer import Space
from gemmgen.ir.expr import Const, Select, as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, If, Let, PointerIncrement, PointerInit, Stmt, VectorCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body, walk
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

SM_90 = TARGETS["sm_90"]
TILED = Operand("local", 4, async_copy=True)
RING = Schedule.of(
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
)
#: The same without pointers around the ring; and with two slices of each step.
PLAIN = RING.but(across_tiles=False, register_stages=1)
SLICED = RING.but(block_k=8, sliced_k=2)
#: Eleven batches in a ring of four: every barrier has three phases or more, and the last round is not a whole one.
SIZE = (16, 32, 88)


def lowered(schedule: Schedule) -> Kernel:
    return driver.lower(GemmSpec(), schedule, SM_90)


def product(kernel: Kernel, size: tuple[int, int, int] = SIZE) -> tuple[Problem, np.ndarray]:
    problem = Problem.random(np.random.default_rng(5), *size)
    return problem, interpret(kernel, GemmSpec(), problem, 4)


def changed(kernel: Kernel, rewrite: Callable[[Stmt], Body]) -> Kernel:
    """The kernel with statements rewritten; some must be, and it must still look like a kernel."""
    body = map_body(kernel.body, rewrite)
    assert body != kernel.body, "nothing was broken"
    broken = replace(kernel, body=body)
    verify(broken, SM_90)
    return broken


def without(kernel: Kernel, gone: Callable[[Stmt], bool]) -> Kernel:
    return changed(kernel, lambda stmt: () if gone(stmt) else (stmt,))


def expect(kernel: Kernel, kind: FaultKind, detail: str) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        product(kernel)
    assert (caught.value.kind, detail in str(caught.value)) == (kind, True), caught.value
    return caught.value


def mbarrier(stmt: Stmt, verb: str, which: str) -> bool:
    return isinstance(stmt, Mbarrier) and (stmt.verb, stmt.name) == (verb, f"tiles_{which}")


@pytest.mark.parametrize("schedule", [RING, PLAIN, SLICED], ids=["across", "plain", "sliced_k"])
def test_whole_ones_are_right(schedule: Schedule) -> None:
    for k in (1, 8, 16, 17, 88, 90):
        problem, ours = product(lowered(schedule), (*SIZE[:2], k))
        problem.check(ours)


# --- arrivals and waits ---------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [RING, PLAIN, SLICED], ids=["across", "plain", "sliced_k"])
@pytest.mark.parametrize(
    ("verb", "which", "kind", "detail"),
    [
        ("arrive", "empty", "pipe", "waits for a phase of tiles_empty[0] that never ends"),
        ("arrive_copies", "full", "pipe", "waits for a phase of tiles_full[0] that never ends"),
        ("wait", "full", "race", "with no barrier between"),
        ("wait", "empty", "race", "with no barrier between"),
    ],
)
def test_a_step_is_missing(schedule: Schedule, verb: str, which: str, kind: FaultKind, detail: str) -> None:
    expect(without(lowered(schedule), lambda s: mbarrier(s, verb, which)), kind, detail)


@pytest.mark.parametrize("which", ["full", "empty"])
def test_the_other_parity(which: str) -> None:
    """It is that of a phase which only ends after what waits for it."""

    def flip(stmt: Stmt) -> Body:
        if isinstance(stmt, Mbarrier) and mbarrier(stmt, "wait", which):
            return (replace(stmt, parity=(stmt.parity + 1) % 2),)
        return (stmt,)

    expect(changed(lowered(PLAIN), flip), "pipe", f"waits for a phase of tiles_{which}[")


@pytest.mark.parametrize("which", ["full", "empty"])
def test_always_the_first_parity(which: str) -> None:
    """Right in the first round of the ring only."""

    def fix(stmt: Stmt) -> Body:
        if isinstance(stmt, Mbarrier) and mbarrier(stmt, "wait", which):
            return (replace(stmt, parity=Const(0 if which == "full" else 1)),)
        return (stmt,)

    kernel = changed(lowered(PLAIN), fix)
    product(kernel, (*SIZE[:2], 4 * PLAIN.round_depth))
    with pytest.raises(KernelFault):
        product(kernel)


def test_arriving_before_the_copies_have_landed() -> None:
    """A plain arrival at `full` says nothing of copies."""

    def early(stmt: Stmt) -> Body:
        if isinstance(stmt, Mbarrier) and mbarrier(stmt, "arrive_copies", "full"):
            return (replace(stmt, verb="arrive"),)
        return (stmt,)

    expect(changed(lowered(PLAIN), early), "unwritten", "nothing was written there")


def test_arriving_before_the_work_is_done() -> None:
    """`empty` is arrived at before the batch is read, and so orders none of its reads."""

    def early(stmt: Stmt) -> Body:
        if mbarrier(stmt, "arrive", "empty"):
            return ()
        if mbarrier(stmt, "wait", "full"):
            release = next(s for s in walk(kernel.body) if mbarrier(s, "arrive", "empty"))
            return (stmt, release)
        return (stmt,)

    kernel = lowered(PLAIN)
    expect(changed(kernel, early), "race", "with no barrier between")


def test_not_every_work_item_comes() -> None:
    """The verifier refuses it before a run; the interpreter stops at it all the same."""
    kernel = lowered(PLAIN)
    half = next(s for s in kernel.body if isinstance(s, Let) and s.var.name == "local_index").var < 16

    def some(stmt: Stmt) -> Body:
        return (If(half, (stmt,)),) if mbarrier(stmt, "arrive", "empty") else (stmt,)

    expect(replace(kernel, body=map_body(kernel.body, some)), "pipe", "not every work-item comes")


# --- places ---------------------------------------------------------------------------------------


def built(schedule: Schedule) -> Kernel:
    """Lowered without asking whether the schedule may be had."""
    return driver.run_passes(build(GemmSpec(), schedule, SM_90).kernels[0], SM_90)


@pytest.mark.parametrize("schedule", [RING, PLAIN], ids=["across", "plain"])
def test_a_ring_of_two_batches(schedule: Schedule) -> None:
    """Refused, since nothing would be under way while a batch is in use; lowered all the same, it never goes on."""
    short = schedule.but(stages=4)
    assert any("three batches or more" in problem for problem in driver.refusals(GemmSpec(), short, "cuda", SM_90))
    if schedule.across_tiles:
        expect(built(short), "pipe", "that never ends")
    product(built(schedule.but(stages=6)))


def test_a_ring_smaller_than_the_barriers_think() -> None:
    """Copies go around a ring that lacks the last batch's place, and meet what is still to be read."""

    def smaller(stmt: Stmt) -> Body:
        if not isinstance(stmt, VectorCopy) or not stmt.atom.is_async:
            return (stmt,)
        slot, *rest = stmt.dst_index
        return (replace(stmt, dst_index=(slot % 6, *rest)),)

    with pytest.raises(KernelFault) as caught:
        product(changed(lowered(PLAIN), smaller))
    assert caught.value.kind in ("race", "unwritten")


# --- views ----------------------------------------------------------------------------------------


def advance(by: Callable[[PointerIncrement], Body]) -> Kernel:
    return changed(lowered(RING), lambda s: by(s) if isinstance(s, PointerIncrement) else (s,))


def test_a_view_that_never_turns_back() -> None:
    """Past the ring's end lies no local memory."""

    def onward(stmt: PointerIncrement) -> Body:
        assert isinstance(stmt.by, Select)
        return (replace(stmt, by=stmt.by.other),)

    expect(advance(onward), "out-of-bounds", "of 640 elements")


def test_a_view_that_stays() -> None:
    """It reads the tile before once more, which nobody overwrites yet: only the product shows it, or a race."""
    kernel = advance(lambda _: ())
    with pytest.raises(KernelFault, match="race"):
        product(kernel)
    problem, ours = product(kernel, (*SIZE[:2], 2 * RING.block_k))
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(ours)


def test_a_view_two_slots_ahead() -> None:
    """Of a batch that is under way."""

    def twice(stmt: PointerIncrement) -> Body:
        assert isinstance(stmt.by, Select)
        size = as_int(stmt.by.other)
        assert size is not None
        return (replace(stmt, by=Select(stmt.by.condition, stmt.by.then + size, Const(2 * size))),)

    expect(advance(twice), "race", "async_copy")


def test_a_view_that_begins_a_row_too_far() -> None:
    def shifted(stmt: Stmt) -> Body:
        match stmt:
            case PointerInit(_, _, (slot, row, col)):
                return (replace(stmt, index=(slot, row + 1, col)),)
        return (stmt,)

    with pytest.raises(KernelFault) as caught:
        product(changed(lowered(RING), shifted))
    assert caught.value.kind in ("unwritten", "out-of-bounds")


def test_a_view_that_begins_outside() -> None:
    def outside(stmt: Stmt) -> Body:
        match stmt:
            case PointerInit(_, _, (_, row, col)):
                return (replace(stmt, index=(Const(RING.stages), row, col)),)
        return (stmt,)

    expect(changed(lowered(RING), outside), "out-of-bounds", "coordinate 0 must be in 0..8")


# --- reading ahead --------------------------------------------------------------------------------


def test_what_is_read_ahead_must_not_be_used() -> None:
    """A read ahead of what nothing wrote is no fault, but a NaN: whoever uses it has a wrong product."""

    def ahead(stmt: Stmt) -> Body:
        if isinstance(stmt, VectorCopy) and stmt.src.space is Space.VIEW:
            return (replace(stmt, ahead=True),)
        return () if mbarrier(stmt, "wait", "full") else (stmt,)

    # No place of the ring is filled twice, so that nothing else is wrong.
    problem, ours = product(changed(lowered(RING), ahead), (*SIZE[:2], 3 * RING.round_depth))
    assert np.isnan(ours).all()
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(ours)


def test_the_last_read_ahead_is_of_nothing() -> None:
    """It goes to a slot that no copy filled, and is allowed by its mark alone."""

    def unmarked(stmt: Stmt) -> Body:
        return (replace(stmt, ahead=False),) if isinstance(stmt, VectorCopy) else (stmt,)

    kernel, batch = lowered(RING), (*SIZE[:2], RING.round_depth)
    problem, ours = product(kernel, batch)
    problem.check(ours)
    with pytest.raises(KernelFault, match="unwritten"):
        product(changed(kernel, unmarked), batch)


def test_a_read_ahead_of_what_is_written_may_still_race() -> None:
    """Where there is something to read, a mark excuses nothing."""

    def ahead(stmt: Stmt) -> Body:
        if isinstance(stmt, VectorCopy) and stmt.src.space is Space.LOCAL:
            return (replace(stmt, ahead=True),)
        return () if mbarrier(stmt, "wait", "empty") else (stmt,)

    expect(changed(lowered(PLAIN), ahead), "race", "with no barrier between")


# --- slices ---------------------------------------------------------------------------------------


def barriers_after_the_loop(keep: tuple[bool, bool]) -> Kernel:
    """The kernel of slices with some of the two barriers around the partial sums."""
    kernel = lowered(SLICED)
    places = [i for i, stmt in enumerate(kernel.body) if isinstance(stmt, Barrier)]
    first, second = places[-2:]
    assert any(isinstance(stmt, Alloc) and stmt.reuses for stmt in kernel.body[first:second])
    gone = {place for place, kept in zip((first, second), keep, strict=True) if not kept}
    return replace(kernel, body=tuple(stmt for i, stmt in enumerate(kernel.body) if i not in gone))


def test_partial_sums_with_both_barriers() -> None:
    product(barriers_after_the_loop((True, True)))


def test_partial_sums_over_tiles_that_are_still_read() -> None:
    fault = expect(barriers_after_the_loop((False, True)), "race", "the local memory below it may still be in use")
    assert fault.statement.endswith("reusing local memory")


def test_partial_sums_that_are_not_there_yet() -> None:
    fault = expect(barriers_after_the_loop((True, False)), "race", "with no barrier between")
    assert "partial[" in fault.statement


def test_local_memory_below_keeps_nothing() -> None:
    """What lay there is gone once it is reused."""
    kernel = lowered(SLICED)
    reused = next(i for i, stmt in enumerate(kernel.body) if isinstance(stmt, Alloc) and stmt.reuses)
    read = next(s for s in walk(kernel.body) if isinstance(s, VectorCopy) and s.src.name == "a_tile")
    late = replace(read, ahead=False)
    body = (
        *kernel.body[: reused + 1],
        replace(late, src_index=(Const(0), Const(0)), dst_index=(Const(0), Const(0), Const(0))[-len(late.dst_index) :]),
        *kernel.body[reused + 1 :],
    )
    expect(replace(kernel, body=body), "unwritten", "nothing was written there")
