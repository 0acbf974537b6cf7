"""Mainloop by which each work-item loads what it multiplies."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.schedule.fields import ThreadAtom
from gemmgen.schedule.mainloop import (
    LOADED,
    Mainloop,
    Method,
    barrier_field,
    slices_field,
    snake_field,
    thread_atom_field,
)
from gemmgen.schedule.operand import Operand


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

    sliced_k: int = slices_field()
    barrier: bool = barrier_field()
    serpentine: bool = snake_field()
    atom: ThreadAtom = thread_atom_field()

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """How wide loads are, and packing."""
        return LOADED

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "naive"
