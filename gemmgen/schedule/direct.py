"""Mainloops of work-items that load what they multiply: each its own, sub-groups together, or lanes along K."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import ThreadAtom, number
from gemmgen.schedule.mainloop import (
    LOADED,
    OF_SUB_GROUPS,
    Mainloop,
    Method,
    OperandKeys,
    barrier_field,
    large_grf_field,
    slices_field,
    snake_field,
    thread_atom_field,
)


@dataclass(frozen=True, slots=True)
class Direct(Mainloop):
    """Each work-item loads what it multiplies.

    Attributes:
        sliced_k: parts of each step of K, each with work-items of its own, whose sums are added up in local memory.
        barrier: whether a barrier precedes each step's arithmetic, so that work-items share the cache.
        serpentine: whether every other row of the arithmetic goes backwards, so that the element of B at the turn is
            used twice in a row.
        atom: `dp4a` for int8: a work-item multiplies four neighbours along K by one instruction.
    """

    operands: ClassVar[OperandKeys] = LOADED
    family: ClassVar[Method] = "naive"

    sliced_k: int = slices_field()
    barrier: bool = barrier_field()
    serpentine: bool = snake_field()
    atom: ThreadAtom = thread_atom_field()


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
    operands: ClassVar[OperandKeys] = OF_SUB_GROUPS

    b_sub_step: int = number(
        0, "how deep B is read at a time by blocks; 0 reads a whole step", 8, 1024, (0, 4, 8), least=0
    )
    barrier: bool = barrier_field()
    serpentine: bool = snake_field()
    large_grf: bool = large_grf_field()

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "block_read" if "image" in (self.a.memory, self.b.memory) else "simd"


@dataclass(frozen=True, slots=True)
class Gemv(Mainloop):
    """Neighbouring work-items share elements of C: each loads neighbours of its own along K, as wide as a load may be,
    and sums them up; then their sums meet by shuffles, or in local memory where a target has none. For matrix by vector
    and for products of few rows or columns, whose long operand has its lines along K.

    Attributes:
        lanes_along_k: how many neighbours.
        sliced_k: times as many, whose sums meet in local memory: warps, where lanes are a whole one.
        atom: as in `Direct`.
    """

    without: ClassVar[frozenset[str]] = frozenset({"lane_arrangement", "lane_swizzle", "sub_group"})
    operands: ClassVar[OperandKeys] = LOADED
    family: ClassVar[Method] = "gemv"

    lanes_along_k: int = number(
        32,
        "neighbouring work-items that share elements of C, each with neighbours of its own along K",
        32,
        64,
        (8, 32),
        2,
    )
    sliced_k: int = slices_field()
    atom: ThreadAtom = thread_atom_field()
