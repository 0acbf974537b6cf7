"""What rings, slices, parts of K, bands and vectors of C are refused for: the value, the limit and the remedy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.passes.validate import is_transposed, problems_as_asked
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.refusals import Made, made, refusals

SM_90 = TARGETS["sm_90"]
LOCAL = Operand("local", 4, async_copy=True)
RING = Schedule.of(
    tile=(4, 8),
    group=(8, 8),
    thread_vector=(4, 4),
    block_k=8,
    a=replace(LOCAL, transposed=True),
    b=LOCAL,
    stages=8,
    mbarrier=2,
    register_stages=2,
    across_tiles=True,
    lane_arrangement=(4, 8),
    lane_swizzle=True,
    threadblock_swizzle=4,
    c_width=4,
)
PLAIN = Schedule.of(tile=(4, 8), group=(8, 8), thread_vector=(4, 4))
IN_LOCAL = PLAIN.but(block_k=8, a=Operand("local"), b=Operand("local"))
SLICED = RING.but(sliced_k=2)
EVEN = "use a group or tile of powers of two"


def refused(schedule: Made, target: Target = SM_90, c_order: Order = "row") -> tuple[str, ...]:
    backend = "cuda" if target.name.startswith("sm_") else "opencl"
    return refusals(GemmSpec(c_order=c_order), schedule, backend, target)


@pytest.mark.parametrize("schedule", [RING, PLAIN, IN_LOCAL, SLICED, RING.but(split_k=8), SLICED.but(split_k=8)])
def test_what_the_others_depart_from_is_taken(schedule: Schedule) -> None:
    assert refused(schedule) == ()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (partial(RING.but, sliced_k=0), "sliced_k = 0 < 1: give 1 to 32"),
        (partial(RING.but, mbarrier=-1), "mbarrier = -1 < 0: give 0 to 32"),
        (partial(RING.but, split_k=-1), "split_k = -1 < 2: give 2 to 1024"),
        (partial(RING.but, c_width=0), "c_width = 0 < 1: give 1 to 16"),
        (partial(RING.but, threadblock_swizzle=-2), "threadblock_swizzle = -2 < 0: give 0 to 1024"),
        # mbarriers
        (
            RING.but(stages=4),
            "mbarrier = 2 tiles at a time need a ring of three batches or more, but stages = 4: use stages 8",
        ),
        (
            RING.but(stages=9),
            "mbarrier = 2 tiles at a time need a ring of three batches or more, but stages = 9: use stages 8",
        ),
        (
            RING.but(a=replace(RING.a, async_copy=False), b=replace(RING.b, async_copy=False)),
            (
                "mbarrier waits for asynchronous copies, but there are none: set a.async_copy and b.async_copy, or use "
                "mbarrier 0"
            ),
        ),
        (
            RING.but(b=replace(RING.b, async_copy=False)),
            "a and b share one pipeline: set async_copy for both or for none",
        ),
        (
            partial(PLAIN.but, mbarrier=1, stages=3),
            "mbarrier = 1 means nothing to mainloop Direct: leave it out, or use mbarrier 0",
        ),
        # slices
        (RING.but(sliced_k=3), "sliced_k = 3 does not divide block_k = 8: use one of 1, 2, 4, 8"),
        (
            PLAIN.but(sliced_k=2, block_k=8, barrier=True),
            "sliced_k deals out steps of K that barrier takes as one: use sliced_k 1, or barrier false",
        ),
        (
            PLAIN.but(sliced_k=4, block_k=8, a=Operand(width=4)),
            "the depth of one load = 4 does not divide a slice's part of block_k = 2: use one of 1, 2, or block_k 16",
        ),
        (
            SLICED.but(lane_arrangement=None, lane_swizzle=False, group=(8, 8), sub_group=8),
            "sliced_k and sub_group both deal out work-items of a group: use sliced_k 1, or sub_group none",
        ),
        (
            IN_LOCAL.but(
                sub_group=32,
                lane_arrangement=(4, 8),
                group=(8, 32),
                thread_vector=(4, 1),
                b=Operand(block_read=True),
            ),
            (
                "lane_arrangement places lanes that share nothing, but sub_group has lanes share A: use "
                "lane_arrangement none"
            ),
        ),
        (
            SLICED.but(sliced_k=8, block_k=16, group=(16, 16)),
            "group 16x16 in 8 slices has 2048 work-items > 1024 on this target: use group 8x16, say",
        ),
        (
            SLICED.but(sliced_k=8),
            (
                "across_tiles alternates two slots of registers, but block_k = 8 in 8 slices has an odd number of "
                "inner steps of 1: use a multiple of 16"
            ),
        ),
        (
            SLICED.but(tile=(3, 8), thread_vector=(3, 4), sliced_k=4),
            f"the sum of 24x64 in runs of 4 can't be dealt out evenly to 256 work-items: {EVEN}",
        ),
        # lanes of a warp
        (
            RING.but(lane_arrangement=None),
            (
                "lane_swizzle moves lanes of a warp between its rows, but lane_arrangement is none: "
                "give lane_arrangement 4x8, say, or leave lane_swizzle out"
            ),
        ),
        (
            RING.but(lane_arrangement=(1, 32), group=(8, 32)),
            (
                "lane_swizzle swaps lanes of neighbouring rows, but lane_arrangement 1x32 has an odd number: "
                "use an even one"
            ),
        ),
        (
            RING.but(lane_arrangement=(16, 2)),
            (
                "lane_swizzle moves lanes by their number in pairs, of which a row of lane_arrangement 16x2 has one: "
                "use 8x4 or 4x8, or leave lane_swizzle out"
            ),
        ),
        # vectors of C
        (RING.but(c_width=3), "c_width = 3: use one of 1, 2, 4, 8, 16"),
        (RING.but(c_width=8), "c_width = 8 does not divide thread_vector's columns = 4: use one of 1, 2, 4"),
        # parts of K
        (
            partial(RING.but, atomic=True),
            "split_k = 1 < 2: give 2 to 1024, or leave atomic out",
        ),
        (
            presets.load("block_read_4x1_1x8").schedule.but(split_k=4),
            "split_k = 4 begins in the middle of K, which image block reads can't: use split_k 1",
        ),
    ],
)
def test_every_refusal_has_a_remedy(schedule: Made, message: str) -> None:
    assert message in refused(schedule)
    with pytest.raises(ScheduleError) as caught:
        driver.emit(GemmSpec(), made(schedule), "cuda", SM_90)
    assert message in caught.value.problems


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (RING, "c_width = 4 stores neighbouring columns, but C is column-major: use c_width 1"),
        (RING.but(c_width=1, split_k=8, atomic=True), "atomic adds to rows of C, which is column-major: drop it"),
        (SLICED.but(c_width=1), "sliced_k = 2 add up rows of C, which is column-major: use sliced_k 1"),
    ],
)
def test_column_major_c(schedule: Schedule, message: str) -> None:
    """What a schedule does not take as it is asked for is computed as C^T = B^T A^T."""
    spec, plain = GemmSpec(c_order="col"), schedule.but(c_width=1, sliced_k=1, atomic=False)
    assert problems_as_asked(spec, schedule, SM_90) == (message,)
    assert is_transposed(spec, schedule, SM_90) and refused(schedule, c_order="col") == ()
    assert problems_as_asked(spec, plain, SM_90) == ()


@pytest.mark.parametrize(
    ("target", "schedule", "message"),
    [
        ("sm_80", RING, "mbarrier = 2, but target 'sm_80' has none: use sm_90 or later, or 0"),
        (
            "portable",
            PLAIN.but(split_k=8, atomic=True),
            "atomic, but target 'portable' adds nothing in one step: drop it, and a second kernel adds up",
        ),
        ("sm_75", RING, "a.async_copy, but target 'sm_75' has none: drop it, or use sm_80 or later"),
    ],
)
def test_what_a_target_lacks(target: str, schedule: Schedule, message: str) -> None:
    assert message in refused(schedule, TARGETS[target])
    assert refused(schedule) == ()


def test_local_memory_counts_barriers_and_sums() -> None:
    """Tiles of 8 KiB, sums of 2 KiB a slice, and 16 bytes a batch: one byte less is refused."""
    tiles, sums = 8 * 8 * (32 + 64) * 4, 2 * 32 * 64 * 4
    for schedule, needed in ((RING, tiles + 4 * 16), (SLICED.but(stages=6), max(tiles * 6 // 8, sums) + 3 * 16)):
        assert refused(schedule, replace(SM_90, local_bytes=needed)) == ()
        (problem,) = refused(schedule, replace(SM_90, local_bytes=needed - 1))
        assert problem.startswith(f"local memory {needed:,} B > {needed - 1:,} B on this target: use ")
    few = SLICED.but(mbarrier=1, stages=3, sliced_k=4, group=(4, 8))
    needed = max(3 * 8 * (16 + 64) * 4, 4 * 16 * 64 * 4) + 3 * 16
    assert needed > 3 * 8 * (16 + 64) * 4 + 3 * 16, "the sums must be the larger"
    assert refused(few, replace(SM_90, local_bytes=needed)) == ()
    assert refused(few, replace(SM_90, local_bytes=needed - 1))[0].startswith(f"local memory {needed:,} B")
