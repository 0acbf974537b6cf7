"""Rings handed over by mbarriers, with one thing wrong each: the interpreter says what."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.errors import FaultKind, KernelFault
from gemmgen.ir.buffer import Space
from gemmgen.ir.expr import Const, Select, as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, If, Let, PointerIncrement, PointerInit, Stmt, VectorCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.broken import Rewrite, broken, changed, dropped, faults
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


def expect(kernel: Kernel, kind: FaultKind, detail: str) -> KernelFault:
    with faults(kind, re.escape(detail)) as caught:
        product(kernel)
    return caught.value


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
    expect(broken(lowered(schedule), dropped(Mbarrier, verb=verb, name=f"tiles_{which}"), SM_90), kind, detail)


@pytest.mark.parametrize("which", ["full", "empty"])
def test_the_other_parity(which: str) -> None:
    """It is that of a phase which only ends after what waits for it."""
    flip = changed(Mbarrier, lambda s: replace(s, parity=(s.parity + 1) % 2), verb="wait", name=f"tiles_{which}")
    expect(broken(lowered(PLAIN), flip, SM_90), "pipe", f"waits for a phase of tiles_{which}[")


@pytest.mark.parametrize("which", ["full", "empty"])
def test_always_the_first_parity(which: str) -> None:
    """Right in the first round of the ring only."""
    first = Const(0 if which == "full" else 1)
    fix = changed(Mbarrier, lambda s: replace(s, parity=first), verb="wait", name=f"tiles_{which}")
    kernel = broken(lowered(PLAIN), fix, SM_90)
    product(kernel, (*SIZE[:2], 4 * PLAIN.round_depth))
    with pytest.raises(KernelFault):
        product(kernel)


def test_arriving_before_the_copies_have_landed() -> None:
    """A plain arrival at `full` says nothing of copies."""
    early = changed(Mbarrier, lambda s: replace(s, verb="arrive"), verb="arrive_copies")
    expect(broken(lowered(PLAIN), early, SM_90), "unwritten", "nothing was written there")


def test_arriving_before_the_work_is_done() -> None:
    """`empty` is arrived at before the batch is read, and so orders none of its reads."""
    kernel = lowered(PLAIN)
    release = next(s for s in walk(kernel.body) if isinstance(s, Mbarrier) and s.verb == "arrive")
    late = broken(kernel, dropped(Mbarrier, verb="arrive"))
    early = changed(Mbarrier, lambda s: (s, release), verb="wait", name="tiles_full")
    expect(broken(late, early, SM_90), "race", "with no barrier between")


def test_not_every_work_item_comes() -> None:
    """The verifier refuses it before a run; the interpreter stops at it all the same."""
    kernel = lowered(PLAIN)
    half = next(s for s in kernel.body if isinstance(s, Let) and s.var.name == "local_index").var < 16
    expect(
        broken(kernel, changed(Mbarrier, lambda s: If(half, (s,)), verb="arrive")), "pipe", "not every work-item comes"
    )


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

    def smaller(copy: VectorCopy) -> Stmt:
        slot, *rest = copy.dst_index
        return replace(copy, dst_index=(slot % 6, *rest))

    with pytest.raises(KernelFault) as caught:
        product(broken(lowered(PLAIN), changed(VectorCopy, smaller, lambda s: s.atom.is_async), SM_90))
    assert caught.value.kind in ("race", "unwritten")


# --- views ----------------------------------------------------------------------------------------


def view(rewrite: Rewrite) -> Kernel:
    return broken(lowered(RING), rewrite, SM_90)


def test_a_view_that_never_turns_back() -> None:
    """Past the ring's end lies no local memory."""

    def onward(stmt: PointerIncrement) -> Stmt:
        assert isinstance(stmt.by, Select)
        return replace(stmt, by=stmt.by.other)

    expect(view(changed(PointerIncrement, onward)), "out-of-bounds", "of 640 elements")


def test_a_view_that_stays() -> None:
    """It reads the tile before once more, which nobody overwrites yet: only the product shows it, or a race."""
    kernel = view(dropped(PointerIncrement))
    with pytest.raises(KernelFault, match="race"):
        product(kernel)
    problem, ours = product(kernel, (*SIZE[:2], 2 * RING.block_k))
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(ours)


def test_a_view_two_slots_ahead() -> None:
    """Of a batch that is under way."""

    def twice(stmt: PointerIncrement) -> Stmt:
        assert isinstance(stmt.by, Select)
        size = as_int(stmt.by.other)
        assert size is not None
        return replace(stmt, by=Select(stmt.by.condition, stmt.by.then + size, Const(2 * size)))

    expect(view(changed(PointerIncrement, twice)), "race", "async_copy")


def test_a_view_that_begins_a_row_too_far() -> None:
    def shifted(stmt: PointerInit) -> Stmt:
        slot, row, col = stmt.index
        return replace(stmt, index=(slot, row + 1, col))

    with pytest.raises(KernelFault) as caught:
        product(view(changed(PointerInit, shifted)))
    assert caught.value.kind in ("unwritten", "out-of-bounds")


def test_a_view_that_begins_outside() -> None:
    outside = changed(PointerInit, lambda s: replace(s, index=(Const(RING.stages), *s.index[1:])))
    expect(view(outside), "out-of-bounds", "coordinate 0 must be in 0..8")


# --- reading ahead --------------------------------------------------------------------------------


def ahead(space: Space, unasked: str) -> Rewrite:
    """All reads of local memory read ahead, and nobody waits for what they read."""
    reads = changed(VectorCopy, lambda s: replace(s, ahead=True), lambda s: s.src.space is space)
    waits = dropped(Mbarrier, verb="wait", name=unasked)
    return lambda stmt: waits(stmt) if isinstance(stmt, Mbarrier) else reads(stmt)


def test_what_is_read_ahead_must_not_be_used() -> None:
    """A read ahead of what nothing wrote is no fault, but a NaN: whoever uses it has a wrong product."""
    # No place of the ring is filled twice, so that nothing else is wrong.
    problem, ours = product(view(ahead(Space.VIEW, "tiles_full")), (*SIZE[:2], 3 * RING.round_depth))
    assert np.isnan(ours).all()
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(ours)


def test_the_last_read_ahead_is_of_nothing() -> None:
    """It goes to a slot that no copy filled, and is allowed by its mark alone."""
    kernel, batch = lowered(RING), (*SIZE[:2], RING.round_depth)
    problem, ours = product(kernel, batch)
    problem.check(ours)
    with faults("unwritten"):
        product(view(changed(VectorCopy, lambda s: replace(s, ahead=False))), batch)


def test_a_read_ahead_of_what_is_written_may_still_race() -> None:
    """Where there is something to read, a mark excuses nothing."""
    expect(broken(lowered(PLAIN), ahead(Space.LOCAL, "tiles_empty"), SM_90), "race", "with no barrier between")


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
