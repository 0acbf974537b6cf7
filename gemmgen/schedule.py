"""How to compute it: a closed, hashable, TOML-serialisable record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Memory = Literal["global", "local", "image"]
Method = Literal["naive", "slm", "simd", "block_read"]


@dataclass(frozen=True, slots=True)
class Operand:
    """The way of A or B from global memory into registers.

    Attributes:
        memory: where registers are filled from: `global`, an `image`, or `local` memory that the group
            fills together.
        width: elements that one load from global memory moves (rows, for an image).
        block: whether a sub-group loads by block reads instead of per-lane loads.
        share: whether lanes hold different elements and pass them around the sub-group.
        transposed: whether local memory holds the tile with K as its slow axis for A (fast for B).
        pad: elements added to each row of the local tile.
    """

    memory: Memory = "global"
    width: int = 1
    block: bool = False
    share: bool = False
    transposed: bool = False
    pad: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to compute a product.

    Attributes:
        tile: rows and columns of C that a work-item computes.
        group: work-items of a group (rows, columns).
        run: neighbouring rows and columns that a work-item owns before the next work-item's begin.
        k_step: depth that one iteration of the main loop covers.
        sub_group: lanes of a sub-group; None where none is needed.
        a, b: the operands' way into registers.
        stages: slots of the ring in local memory.
        prefetch: whether the next tile is loaded into registers before the current tile's arithmetic and
            stored to local memory after it.
        register_stages: 2 where the next step's operands are read from local memory ahead of use.
        barrier: whether the group meets after B's load, only to stay in step for the cache.
        name: of the kernel; None derives one (`slug`).
    """

    tile: tuple[int, int] = (1, 1)
    group: tuple[int, int] = (16, 16)
    run: tuple[int, int] = (1, 1)
    k_step: int = 1
    sub_group: int | None = None
    a: Operand = field(default_factory=Operand)
    b: Operand = field(default_factory=Operand)
    stages: int = 1
    prefetch: bool = False
    register_stages: int = 1
    barrier: bool = False
    name: str | None = None

    @property
    def block_tile(self) -> tuple[int, int]:
        """Rows and columns of C that a group computes."""
        return self.tile[0] * self.group[0], self.tile[1] * self.group[1]

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        operands = (self.a, self.b)
        if any(o.memory == "local" for o in operands):
            return "slm"
        if any(o.memory == "image" for o in operands):
            return "block_read"
        return "simd" if any(o.share or o.block for o in operands) else "naive"

    def slug(self) -> str:
        """The kernel's name: the one given, or METHOD_RxC_hxw and what departs from the method's defaults."""
        from gemmgen.methods import slug  # methods are written in terms of schedules

        return self.name or slug(self)
