"""Mainloops by matrix instructions of Intel's sub-groups."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import WORDS, AddressPayloads, Chosen, Flat, flag, number, word
from gemmgen.schedule.mainloop import Mainloop, Method, barrier_field, large_grf_field
from gemmgen.schedule.schedulers import OneTile, Scheduler, SplitK
from gemmgen.schedule.tiling import Tiling

#: Lanes of a sub-group that multiplies, at most; as many as one that reads 2D blocks or holds fragments has.
MOST_LANES = BLOCK_2D_LANES = 16


@dataclass(frozen=True, slots=True)
class Dpas(Mainloop):
    """Sub-groups of Intel's GPUs multiply by matrix instructions what kernels before pack.

    Attributes:
        large_grf: whether a thread gets twice as many registers, of which there are then half as many threads: a
            build option.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile,)
    without: ClassVar[frozenset[str]] = frozenset({"threadblock_swizzle", "c_width"})
    family: ClassVar[Method] = "dpas"

    large_grf: bool = large_grf_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """A group is one sub-group."""
        return {"atom": "dpas", "sub_group": min(tiling.group[1], MOST_LANES)}


@dataclass(frozen=True, slots=True)
class DpasBlock2D(Mainloop):
    """Sub-groups of Xe-HPC and later multiply by matrix instructions what 2D block reads bring from A and B as they
    are. The sub-groups of a work-group share tiles by the cache.

    Attributes:
        barrier: whether the work-group meets around each step, to stay in step for the cache: its sub-groups arrive
            before the arithmetic and wait for the others after it.
        prefetch_distance: how many steps ahead the work-group prefetches its tiles of A and B; 0 for no prefetch.
        address_payloads: which messages have an address payload of their own, a register that tells them where to read.
            The kernel fills it before the loop, and an addition advances it. `prefetches`: for the extension's own
            function the compiler fills it anew each time. `all`: reads, too. Messages of Xe2 take constants beside a
            payload, so that reads share one; those of Xe-HPC do not.
        tf32: whether float32 is multiplied as TF32, of whose significand 11 bits count.
        block_writes: whether C is stored by 2D block writes where beta is 0.
        large_grf: as in `Dpas`.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK)
    without: ClassVar[frozenset[str]] = frozenset({"c_width"})
    chosen_by: ClassVar[Chosen | None] = Chosen(
        "block_2d", "dpas on 2D block reads of A and B as they are (Xe-HPC, Xe2)"
    )
    family: ClassVar[Method] = "dpas"

    barrier: bool = barrier_field()
    prefetch_distance: int = number(
        0, "steps ahead that A and B are prefetched; 0 for none", 2, 16, (0, 1, 2, 3), least=0
    )
    tf32: bool = flag("float32 is multiplied as TF32 by dpas (Xe-HPC, Xe2)")
    block_writes: bool = flag("C is stored by 2D block writes where beta is 0")
    address_payloads: AddressPayloads = word(
        "none",
        "2D block messages whose address payload is kept: none, prefetches (Xe2), all (Xe-HPC)",
        "prefetches",
        WORDS["AddressPayloads"],
    )
    large_grf: bool = large_grf_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Sub-groups lie side by side along a group's rows."""
        return {"atom": "dpas", "sub_group": min(tiling.group[1], BLOCK_2D_LANES)}


@dataclass(frozen=True, slots=True)
class JointMatrix(Mainloop):
    """Sub-groups of Xe-HPC and Xe2 multiply fragments of A and B, which they load as one from the matrices as they are.

    Attributes:
        barrier: whether the work-group meets before each step, to stay in step for the cache.
        large_grf: whether a thread gets twice as many registers, of which there are then half as many threads: a
            build option.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK)
    without: ClassVar[frozenset[str]] = frozenset({"c_width"})
    family: ClassVar[Method] = "joint_matrix"

    barrier: bool = barrier_field()
    large_grf: bool = large_grf_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Sub-groups lie side by side along a group's rows."""
        return {"atom": "joint_matrix", "sub_group": min(tiling.group[1], BLOCK_2D_LANES)}
