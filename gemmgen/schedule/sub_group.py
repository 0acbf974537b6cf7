"""Mainloop by which sub-groups load together: block reads, images, shuffles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmgen.schedule.fields import number
from gemmgen.schedule.mainloop import OF_SUB_GROUPS, Mainloop, Method, barrier_field, large_grf_field, snake_field
from gemmgen.schedule.operand import Operand


@dataclass(frozen=True, slots=True)
class SubGroup(Mainloop):
    """A sub-group loads together: by block reads, from images, or each lane its part of A, passed around.

    Attributes:
        b_sub_step: where sub-groups read both operands by blocks from buffers, how deep B is read at a time, while all
            of the step's A is in registers: longer steps, whose reads of A are wider. 0 reads B's part of a step at
            once, and A's as it is needed.
        barrier: whether the group meets before each step's arithmetic, only to stay in step for the cache; a group of
            one sub-group, which is in step anyway, so keeps compilers from moving loads among the arithmetic.
        serpentine: as in `Direct`.
        large_grf: as in `Dpas`.
    """

    without: ClassVar[frozenset[str]] = frozenset({"lane_arrangement", "lane_swizzle"})

    b_sub_step: int = number(
        0, "how deep B is read at a time by blocks; 0 reads a whole step", 8, 1024, (0, 4, 8), least=0
    )
    barrier: bool = barrier_field()
    serpentine: bool = snake_field()
    large_grf: bool = large_grf_field()

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """How wide loads are, whose they are, and packing."""
        return OF_SUB_GROUPS[name]

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "block_read" if "image" in (self.a.memory, self.b.memory) else "simd"
