"""What rings, slices, parts of K, bands and vectors of C are refused for: the value, the limit and the remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.passes.validate import is_transposed, problems_as_asked
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order

SM_90 = TARGETS["sm_90"]
LOCAL = Operand("local", 4, async_copy=True)
RING = Schedule(
    tile=(4, 8),
    group=(8, 8),
    run=(4, 4),
    k_step=8,
    a=replace(LOCAL, transposed=True),
    b=LOCAL,
    stages=8,
    mbarrier=2,
    register_stages=2,
    across=True,
    warp=(4, 8),
    stagger=True,
    raster=4,
    c_width=4,
)
PLAIN = Schedule(tile=(4, 8), group=(8, 8), run=(4, 4))
IN_LOCAL = replace(PLAIN, k_step=8, a=Operand("local"), b=Operand("local"))
SLICED = replace(RING, slices=2)
EVEN = "use a group or tile of powers of two"


def refused(schedule: Schedule, target: Target = SM_90, c_order: Order = "row") -> tuple[str, ...]:
    backend = "cuda" if target.name.startswith("sm_") else "opencl"
    return driver.refusals(GemmSpec(c_order=c_order), schedule, backend, target)


@pytest.mark.parametrize("schedule", [RING, PLAIN, IN_LOCAL, SLICED, replace(RING, split=8), replace(SLICED, split=8)])
def test_what_the_others_depart_from_is_taken(schedule: Schedule) -> None:
    assert refused(schedule) == ()


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (replace(RING, slices=0), "slices = 0 < 1: give a positive number"),
        (replace(RING, mbarrier=-1), "mbarrier = -1 < 0: give 0 or more"),
        (replace(RING, split=-1), "split = -1 < 1: give a positive number"),
        (replace(RING, c_width=0), "c_width = 0 < 1: give a positive number"),
        (replace(RING, raster=-2), "raster = -2 < 0: give a number of rows of groups, or 0 for none"),
        # mbarriers
        (
            replace(RING, stages=4),
            "mbarrier = 2 tiles at a time need a ring of three batches or more, but stages = 4: use stages 8",
        ),
        (
            replace(RING, stages=9),
            "mbarrier = 2 tiles at a time need a ring of three batches or more, but stages = 9: use stages 8",
        ),
        (
            replace(RING, a=replace(RING.a, async_copy=False), b=replace(RING.b, async_copy=False)),
            "mbarrier waits for asynchronous copies, but there are none: set a.async_copy and b.async_copy",
        ),
        (
            replace(RING, b=replace(RING.b, async_copy=False)),
            "a and b hand over together: set async_copy for both or for none",
        ),
        (
            replace(PLAIN, mbarrier=1, stages=3),
            "mbarrier works on tiles in local memory, but neither operand passes there: set a.memory = 'local'",
        ),
        # slices
        (replace(RING, slices=3), "slices = 3 does not divide k_step = 8: use one of 1, 2, 4, 8"),
        (
            replace(PLAIN, slices=2, k_step=8, barrier=True),
            "slices deal out steps of K that barrier takes as one: use slices 1, or barrier false",
        ),
        (
            replace(PLAIN, slices=4, k_step=8, a=Operand(width=4)),
            "the depth of one load = 4 does not divide a slice's part of k_step = 2: use one of 1, 2",
        ),
        (
            replace(SLICED, warp=None, stagger=False, group=(8, 8), sub_group=8),
            "slices and sub_group both deal out work-items of a group: use slices 1, or sub_group none",
        ),
        (
            replace(SLICED, slices=8, k_step=16, group=(16, 16)),
            "group 16x16 in 8 slices has 2048 work-items > 1024 on this target: use group 8x16, say",
        ),
        (replace(SLICED, slices=8), "across alternates two slots of registers, but k_step = 8 is odd: use an even one"),
        (
            replace(SLICED, tile=(3, 8), run=(3, 4), slices=4),
            f"the sum of 24x64 in runs of 4 can't be dealt out evenly to 256 work-items: {EVEN}",
        ),
        # lanes of a warp
        (
            replace(RING, warp=None),
            "stagger moves lanes of a warp between its rows, but warp is none: give warp 4x8, say",
        ),
        (
            replace(RING, warp=(1, 32), group=(8, 32)),
            "stagger swaps lanes of neighbouring rows, but warp 1x32 has an odd number: use an even one",
        ),
        # vectors of C
        (replace(RING, c_width=3), "c_width = 3 is not one of 1, 2, 4, 8, 16"),
        (replace(RING, c_width=8), "c_width = 8 does not divide the run's columns = 4: use one of 1, 2, 4"),
        # parts of K
        (
            replace(RING, atomic=True),
            "atomic adds up the parts of a split K, but split = 1: give split 8, say, or drop it",
        ),
        (
            replace(presets.load("block_read_4x1_1x8").schedule, split=4),
            "split = 4 begins in the middle of K, which image block reads can't: use split 1",
        ),
    ],
)
def test_every_refusal_has_a_remedy(schedule: Schedule, message: str) -> None:
    assert message in refused(schedule)
    with pytest.raises(ScheduleError) as caught:
        driver.emit(GemmSpec(), schedule, "cuda", SM_90)
    assert message in caught.value.problems


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (RING, "c_width = 4 stores neighbouring columns, but C is column-major: use c_width 1"),
        (replace(RING, c_width=1, split=8, atomic=True), "atomic adds to rows of C, which is column-major: drop it"),
        (replace(SLICED, c_width=1), "slices = 2 add up rows of C, which is column-major: use slices 1"),
    ],
)
def test_column_major_c(schedule: Schedule, message: str) -> None:
    """What a schedule does not take as it is asked for is computed as C^T = B^T A^T."""
    spec, plain = GemmSpec(c_order="col"), replace(schedule, c_width=1, slices=1, atomic=False)
    assert problems_as_asked(spec, schedule, SM_90) == (message,)
    assert is_transposed(spec, schedule, SM_90) and refused(schedule, c_order="col") == ()
    assert problems_as_asked(spec, plain, SM_90) == ()


@pytest.mark.parametrize(
    ("target", "schedule", "message"),
    [
        ("sm_80", RING, "mbarrier = 2, but target 'sm_80' has none: use 0, or sm_90 or later"),
        (
            "portable",
            replace(PLAIN, split=8, atomic=True),
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
    for schedule, needed in ((RING, tiles + 4 * 16), (replace(SLICED, stages=6), max(tiles * 6 // 8, sums) + 3 * 16)):
        assert refused(schedule, replace(SM_90, local_bytes=needed)) == ()
        (problem,) = refused(schedule, replace(SM_90, local_bytes=needed - 1))
        assert problem.startswith(f"local memory {needed:,} B > {needed - 1:,} B on this target: use ")
    few = replace(SLICED, mbarrier=1, stages=3, slices=4, group=(4, 8))
    needed = max(3 * 8 * (16 + 64) * 4, 4 * 16 * 64 * 4) + 3 * 16
    assert needed > 3 * 8 * (16 + 64) * 4 + 3 * 16, "the sums must be the larger"
    assert refused(few, replace(SM_90, local_bytes=needed)) == ()
    assert refused(few, replace(SM_90, local_bytes=needed - 1))[0].startswith(f"local memory {needed:,} B")
