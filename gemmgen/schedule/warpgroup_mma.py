"""Mainloop by which warpgroups multiply tiles that a producer loads by TMA."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.epilogues import Epilogue, Registers, Staged
from gemmgen.schedule.fields import Flat, Memory, Pair, WarpgroupAtom, pair, word
from gemmgen.schedule.mainloop import Mainloop, Method, late_field, producers_field, registers_field, stages_field
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import ClusterSplitK, OneTile, Persistent, Scheduler, SplitK
from gemmgen.schedule.tiling import Tiling

#: Work-items of a warpgroup (rows, columns).
WARPGROUP = (32, 4)


def is_swapped(group: Pair) -> bool:
    """Whether the lanes of a group of warpgroups lie along C's columns."""
    (high, wide), (rows, cols) = group, WARPGROUP
    return high % rows != 0 and high % cols == 0 and wide % rows == 0


@dataclass(frozen=True, slots=True)
class WarpgroupMma(Mainloop):
    """Warpgroups multiply by `wgmma` the tiles that a producer loads into shared memory by TMA.

    Attributes:
        atom: `wgmma` of 16-bit floats; `wgmma_s8`, `wgmma_f8` and `wgmma_tf32` of int8, 8-bit floats and float32
            rounded to TF32, `wgmma_3xtf32` by three of those for each, of elements that a kernel before takes apart.
        stages: slots of the ring in local memory.
        producer_threads: work-items of a group beside those that compute: a warp or a warpgroup, one of which begins
            all copies to local memory. They are no part of `group`.
        setmaxnreg: registers of each consumer thread and of each producer thread; 0x0 keeps the compiler's.
        cluster: rows and columns of groups that run together and share tiles by multicast: each loads a part of the
            tiles of B that those above one another share, or of the tiles of A that those side by side share.
        serial_launch: whether its kernels begin when those before them are over, on devices where they would begin
            early: groups that wait on idle multiprocessors cost what waits for memory more than a launch does.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    epilogues: ClassVar[tuple[type[Epilogue], ...]] = (Registers, Staged)
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK, ClusterSplitK, Persistent)
    memories: ClassVar[tuple[Memory, ...]] = ("local", "private")

    atom: WarpgroupAtom = word("wgmma", "what multiplies: a warpgroup by matrix instructions", "dpas")
    stages: int = stages_field(4, least=2)
    producer_threads: int = producers_field()
    setmaxnreg: Pair = registers_field()
    cluster: Pair = pair(
        (1, 1),
        "rows x columns of groups that load for one another",
        "2x1 (rows x columns of groups)",
        4,
        ((1, 1), (2, 1), (1, 2), (4, 1), (1, 4)),
    )
    serial_launch: bool = late_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Pairs of sums next to one another, and what they are stored by unless they are staged."""
        swapped = is_swapped(tiling.group)
        own: Flat = {"thread_vector": (2, 1) if swapped else (1, 2), "c_width": cls.usual_width(tiling)}
        copied = (("memory", "local"), ("async_copy", True))
        return {**own, **{f"{x}.{key}": value for x in "ab" for key, value in copied}}

    @staticmethod
    def usual_width(tiling: Tiling) -> int:
        """Elements of C that one store writes, where nothing else is asked for: sums are taken up by fours where they
        come out even, so that lanes next to each other read next to each other.
        """
        evenly = tiling.group[0] * 4 % max(1, tiling.tile[1]) == 0
        return 1 if is_swapped(tiling.group) else 4 if evenly else 2

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """Where instructions read it, packing and caching."""
        return frozenset({"memory", "prepacked", "evict_first"} | ({"transposed"} if operand.prepacked else set()))

    @property
    def free(self) -> frozenset[str]:
        """Stages, the threadblock swizzle, and the depth of a step whose tiles a block loads for itself alone."""
        plain = (
            self.cluster == (1, 1) and self.atom != "wgmma_3xtf32" and "private" not in (self.a.memory, self.b.memory)
        )
        return frozenset({"STAGES", "GROUP_M", *(["BK"] if plain else [])})

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return self.atom
