"""The order in which the products of an element of C are added: what fixes its bits (docs/numerics.md).

Two schedules of one order give an element the same bits. `gemmgen.invariant` chooses one order for all numbers of rows.
"""

from __future__ import annotations

from typing import NamedTuple

from gemmgen.errors import ScheduleError
from gemmgen.schedule import Schedule
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, SubGroup
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma

#: Mainloops that add product after product along K, and those that do so instruction after instruction.
_CHAINS = (Direct, SubGroup, SharedMemory, TmaRing, CpuPanel)
_INSTRUCTIONS = (WarpMma, WarpgroupMma)


class SumOrder(NamedTuple):
    """The order of the sums of a schedule at a K.

    Attributes:
        by: what multiplies and adds: `fma`, a matrix instruction, or a whole mainloop whose order is its own.
        lanes: chains of a vector along K, which are added at its end (dot product); else 1.
        depth: products after which a sum goes to C and the next begins (KC); 0 where that is all of a part.
        slices: chains of sliced-K, and the depth of the step that they share; (1, 0) where there is one.
        parts: pieces of K (split-K).
        part: products of a piece; 0 for all of K.
        joined: neighbouring pieces that are added before others are.
    """

    by: str
    lanes: int
    depth: int
    slices: tuple[int, int]
    parts: int
    part: int
    joined: int

    def __str__(self) -> str:
        said = [self.by]
        said += [f"{self.lanes} lanes along K"] if self.lanes > 1 else []
        said += [f"blocks of {self.depth}"] if self.depth else []
        said += [f"{self.slices[0]} slices"] if self.slices[0] > 1 else []
        said += [f"{self.parts} parts of {self.part}"] if self.parts > 1 else []
        return ", ".join(said)


def sum_order(schedule: Schedule, k: int) -> SumOrder | None:
    """The order of a schedule's sums; None where there is no fixed one for all sizes of C: parts added as they come,
    and blocks dealt out to the groups that run at once.
    """
    if schedule.atomic or schedule.stream_k:
        return None
    parts, part = schedule.split_k, k
    if parts > 1:
        step = schedule.round_depth
        part = -(-k // (parts * step)) * step
    joined = schedule.cluster_reduction if 1 < schedule.cluster_reduction < parts else 1
    return SumOrder(
        by=_by(schedule),
        lanes=schedule.vector if schedule.dot_product else 1,
        depth=schedule.kc if 0 < schedule.kc < part else 0,
        slices=(schedule.sliced_k, schedule.block_k) if schedule.sliced_k > 1 else (1, 0),
        parts=parts,
        part=part if parts > 1 else 0,
        joined=joined,
    )


def with_fixed_order(schedule: Schedule) -> Schedule:
    """The schedule, if its order is the same for all sizes of C. Raises: ScheduleError."""
    if sum_order(schedule, 1) is None:
        field = "atomic" if schedule.atomic else "stream_k"
        raise ScheduleError(
            f"invariant: {field} = true leaves the order of sums to the number of blocks of C, or to chance: "
            f"set {field} = false, or leave the schedule out"
        )
    return schedule


def _by(schedule: Schedule) -> str:
    """What multiplies. The hardware's order within a matrix instruction is taken to depend on places along K alone."""
    loop: Mainloop = schedule.mainloop
    if isinstance(loop, WarpgroupMma) and "private" in (loop.a.memory, loop.b.memory):
        # Scales that multiply sums there, or elements where there are many, multiply elements elsewhere.
        return repr((schedule.tiling, loop))
    if isinstance(loop, _INSTRUCTIONS) or (isinstance(loop, _CHAINS) and schedule.atom == "fma"):
        return schedule.atom
    return repr((schedule.tiling, loop))
