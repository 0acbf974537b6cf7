"""Pointers of the interpreter: places in matrices that work-items keep, and what is done to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.evaluate import IndexCode
from gemmgen.ir.lanes import Active, Index, Lanes, Site, Value, agreed
from gemmgen.ir.memory import Base, Memory, Strided


class Pointers(Base):
    """Places in a matrix that each work-item has for itself. What they point to is looked at where it is read."""

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        super().__init__(lanes, buffer, sizes, sites)
        self._places: dict[int, tuple[Memory, list[Index]]] = {}

    def point(self, which: Index, memory: Memory, index: Sequence[Index], active: Active, site: Site) -> None:
        """Let one of them point at an element."""
        places: list[Index] = list(index)
        number = self._number((which, 0), active, site)
        if not active.full and number in self._places:
            places = [np.where(active.mask, i, old) for i, old in zip(index, self._places[number][1], strict=True)]
        self._places[number] = memory, places

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes."""
        number = self._number(index, active, site)
        if number not in self._places:
            raise LoweringError(f"`{site.text}` reads by {self._name}[{number}], which points nowhere")
        memory, (*outer, last) = self._places[number]
        return memory.read([*outer, last + index[-1]], active, site)

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:  # noqa: ARG002
        """Raises: LoweringError."""
        raise LoweringError(f"`{site.text}` writes by {self._name}")

    def _number(self, index: Sequence[Index], active: Active, site: Site) -> int:
        """Which one, the same of all lanes."""
        for axis, coordinate in enumerate(index):
            if self._inside(axis, coordinate, active) is None:
                self._outside(axis, index, active, site)
        which = agreed(index[0], active)
        if not isinstance(which, int | np.integer):
            raise LoweringError(f"`{site.text}`: each lane means another of {self._name}")
        return int(which)


def point_step(
    pointers: Memory, which: IndexCode, memory: Memory, index: Sequence[IndexCode], site: Site
) -> Callable[[Active], None]:
    """Let one of an array of pointers point at an element."""
    if not isinstance(pointers, Pointers):
        raise LoweringError(f"`{site.text}` sets none of an array of pointers")
    return lambda active: pointers.point(which(active), memory, [code(active) for code in index], active, site)


def prefetch_step(memory: Memory, index: Sequence[IndexCode], site: Site) -> Callable[[Active], None]:
    """Nothing; but there must be such an element."""
    if not isinstance(memory, Strided):
        raise LoweringError(f"`{site.text}` asks for what has no address")

    def prefetch(active: Active) -> None:
        memory.locate([code(active) for code in index], active, site)

    return prefetch
