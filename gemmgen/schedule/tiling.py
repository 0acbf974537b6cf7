"""Tiling: what a work-item, a work-group and a step of the main loop have of C and of K."""

from __future__ import annotations

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Pair, Record, flag, lanes, number, pair


@dataclass(frozen=True, slots=True)
class Tiling(Record):
    """A thread tile, a work-group and a block K. Where an instruction multiplies, it says how lanes lie over these.

    Attributes:
        tile: rows and columns of C that a work-item computes.
        group: work-items of a group (rows, columns). A warpgroup is 32x4 of them: 64x4 are two above one another, 32x8
            two beside one another, and 4x32 one along C's columns (`Schedule.swapped`).
        block_k: depth that one iteration of the main loop covers.
    """

    tile: Pair = pair(
        (1, 1),
        "rows x columns of C per work-item",
        "32x2 (rows x columns of C per work-item)",
        256,
        ((1, 1), (2, 4), (4, 4), (3, 8), (8, 8), (8, 16), (2, 64)),
    )
    group: Pair = pair(
        (16, 16),
        "rows x columns of work-items of a group",
        "1x8 (rows x columns of work-items)",
        1024,
        ((1, 1), (1, 8), (4, 8), (8, 8), (16, 16), (32, 4), (64, 4), (4, 32)),
    )
    block_k: int = number(1, "depth in K of one iteration of the main loop", 8, 8192, (1, 2, 3, 4, 8, 16, 24, 32, 64))


@dataclass(frozen=True, slots=True)
class ThreadTiling(Tiling):
    """The same where work-items multiply by themselves: how they lie over C is free.

    Attributes:
        thread_vector: neighbouring rows and columns that a work-item owns before the next work-item's begin; where the
            group has one work-item along an axis, all are its own.
        sub_group: lanes of a sub-group; None where none is needed.
        lane_arrangement: how the lanes of a warp lie over the rows and columns of the group's work-items, so that they
            read few different elements; None where they follow the group's rows.
        lane_swizzle: whether neighbouring lanes of a warp are in different rows, so that no two of them read the same
            elements of A: the hardware then answers reads faster than where it has to merge them.
    """

    thread_vector: Pair = pair(
        (1, 1),
        "rows x columns that a work-item owns next to one another",
        "8x4 (neighbouring rows x columns)",
        256,
        ((1, 1), (1, 2), (1, 4), (2, 2), (4, 4)),
    )
    sub_group: int | None = lanes("lanes of a sub-group, or none", 128, (None, 8, 16, 32))
    lane_arrangement: Pair | None = pair(
        None,
        "rows x columns of a warp's lanes over the group, or none",
        "4x8 (rows x columns of a warp's lanes)",
        32,
        (None, (4, 8), (8, 4), (2, 16)),
    )
    lane_swizzle: bool = flag("neighbouring lanes of a warp are in different rows")
