"""Mainloop over a ring of tiles in local memory that a producer fills by TMA."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Chosen, Flat, Pair
from gemmgen.schedule.mainloop import (
    Mainloop,
    Method,
    OperandKeys,
    across_field,
    both,
    late_field,
    mbarrier_field,
    producers_field,
    register_stages_field,
    registers_field,
    snake_field,
    stages_field,
)
from gemmgen.schedule.schedulers import AtomicSplitK, OneTile, Scheduler, SplitK, StreamK
from gemmgen.schedule.tiling import Tiling


@dataclass(frozen=True, slots=True)
class TmaRing(Mainloop):
    """A ring of tiles in local memory that a producer fills by TMA, a batch of tiles at once, for work-items that
    multiply.

    Attributes:
        stages, register_stages, across_tiles, serpentine: as in `SharedMemory`.
        mbarrier: tiles of that ring that a pair of mbarriers hands over at a time.
        producer_threads, setmaxnreg, serial_launch: as in `WarpgroupMma`.
    """

    chosen_by: ClassVar[Chosen | None] = Chosen("tma", "a producer fills the ring by TMA")
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK, AtomicSplitK, StreamK)
    operands: ClassVar[OperandKeys] = both("prepacked", "evict_first")
    family: ClassVar[Method] = "slm"

    stages: int = stages_field(1, least=1)
    mbarrier: int = mbarrier_field(4, least=1)
    producer_threads: int = producers_field()
    setmaxnreg: Pair = registers_field()
    serial_launch: bool = late_field()
    register_stages: int = register_stages_field()
    across_tiles: bool = across_field()
    serpentine: bool = snake_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Tiles whose lines are steps of K."""
        of_each: Flat = {
            f"{x}.{key}": value for x in "ab" for key, value in (("memory", "local"), ("async_copy", True))
        }
        return {**of_each, "a.transposed": True}

    @property
    def free(self) -> frozenset[str]:
        """The block tile, stages, and the threadblock swizzle."""
        return frozenset({"BM", "BN", "BK", "STAGES", "GROUP_M"})
