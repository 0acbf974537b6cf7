"""Mainloop of products of few rows or columns: lanes lie along K."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmgen.schedule.fields import ThreadAtom, number
from gemmgen.schedule.mainloop import LOADED, Mainloop, Method, slices_field, thread_atom_field
from gemmgen.schedule.operand import Operand


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

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """How wide loads are, and packing."""
        return LOADED

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "gemv"
