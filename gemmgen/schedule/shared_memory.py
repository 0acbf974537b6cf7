"""Mainloop by way of tiles in local memory, which the group fills."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import ThreadAtom, number
from gemmgen.schedule.mainloop import (
    IN_LOCAL_MEMORY,
    OF_SUB_GROUPS,
    Mainloop,
    Method,
    across_field,
    mbarrier_field,
    prefetch_field,
    register_stages_field,
    slices_field,
    snake_field,
    stages_field,
    thread_atom_field,
)
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import AtomicSplitK, ClusterSplitK, OneTile, Scheduler, SplitK, StreamK


@dataclass(frozen=True, slots=True)
class SharedMemory(Mainloop):
    """The group fills tiles of A, of B or of both in local memory, from which its work-items multiply.

    Attributes:
        stages: slots of the ring in local memory.
        mbarrier: tiles of that ring for each pair of mbarriers; 0 for barriers of the group.
        sliced_k: parts of each step of K, each with work-items of its own, whose sums are added in local memory.
        prefetch: whether the next tile is loaded into registers before the current tile's arithmetic and
            stored to local memory after it.
        register_stages: 2 where the next step's operands are read from local memory ahead of use.
        across_tiles: whether that goes on from one tile to the next, whose first operands are read before the last
            step's arithmetic.
        min_blocks: blocks of a multiprocessor that registers are left for, or as many as there is room for: the second
            bound of `__launch_bounds__`; 0 leaves their number to the compiler, as languages other than CUDA always do.
        serpentine, atom: as in `Direct`.
    """

    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK, AtomicSplitK, ClusterSplitK, StreamK)
    family: ClassVar[Method] = "slm"

    stages: int = stages_field(1, least=1)
    mbarrier: int = mbarrier_field(0, least=0)
    sliced_k: int = slices_field()
    prefetch: bool = prefetch_field()
    register_stages: int = register_stages_field()
    across_tiles: bool = across_field()
    min_blocks: int = number(
        0,
        "blocks of a multiprocessor that registers are left for; 0 for any number (CUDA)",
        2,
        8,
        (0, 1, 2),
        0,
    )
    serpentine: bool = snake_field()
    atom: ThreadAtom = thread_atom_field()

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """The shape of the tile in local memory and what fills it; as without one, where it has none."""
        return (IN_LOCAL_MEMORY if operand.memory == "local" else OF_SUB_GROUPS)[name]

    @property
    def free(self) -> frozenset[str]:
        """Beside the threadblock swizzle: stages that cp.async fills, the depth of tiles, and their rows and columns
        where vectors or cp.async fill both.
        """
        both, found = (self.a, self.b), {"GROUP_M"}
        if all(operand.async_copy for operand in both):
            found.add("STAGES")
        # Vectors that are loaded along K from global memory stay within a step of K.
        if any(x.memory == "local" for x in both) and all(x.memory == "local" or x.width == 1 for x in both):
            found.add("BK")
        if all(x.memory == "local" and (x.width > 1 or x.async_copy) for x in both):
            found |= {"BM", "BN"}
        return frozenset(found)
