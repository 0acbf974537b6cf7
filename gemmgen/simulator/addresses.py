"""Addresses in the simulator: where vectors may stand, arrays of pointers, prefetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmgen.errors import KernelFault, LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.stmt import VectorCopy
from gemmgen.simulator.evaluate import Reference
from gemmgen.simulator.lanes import Active, Index, Ints, Lanes, Site, Value, agreed
from gemmgen.simulator.memory import Base, Memory, Run, Strided

Place = Callable[[Sequence[Index], Sequence[Index], Active], None]


def alignment_check(move: VectorCopy, src: Memory, dst: Memory, lanes: Lanes, site: Site) -> Place:
    """What is asked of the coordinates of a move's source and destination before it is made.

    Memory is taken to begin where any vector may; launchers ask that of matrices. An asynchronous copy of nothing may
    name a place outside, but no odd one.
    """
    if move.atom.around:
        return _around(move, src, lanes, site)
    unit = move.atom.unit(move.width, move.src.dtype.size)
    # Of a block read the matrix' side alone.
    asking = (unit > 1, unit > 1 and move.atom.aligned)
    sides = [isinstance(x, Strided) and x.addressed and asked for x, asked in zip((src, dst), asking, strict=True)]

    def check(source: Sequence[Index], target: Sequence[Index], active: Active) -> None:
        for asked, memory, index in zip(sides, (src, dst), (source, target), strict=True):
            if not asked or not isinstance(memory, Strided):
                continue
            off = _address(memory, index, active) % unit
            if off.any():
                first = int(np.argmax(off != 0))
                who = lanes.who(lanes.first + int(active.lanes[first]))
                detail = f"{who} moves {move.width} elements from {int(off[first])} past a multiple of {unit}"
                raise KernelFault("alignment", site.text, detail)

    return check


def _address(memory: Strided, index: Sequence[Index], active: Active) -> Ints:
    """The active lanes' addresses, inside or not."""
    address = memory.start
    for coordinate, stride in zip(index, memory.strides, strict=True):
        address = address + coordinate * stride
    return np.broadcast_to(active.pick(address), active.lanes.shape)


def _around(move: VectorCopy, src: Memory, lanes: Lanes, site: Site) -> Place:
    """Wherever the memory begins, the aligned vectors that the elements lie in are a part of it."""

    def check(source: Sequence[Index], _target: Sequence[Index], active: Active) -> None:
        if not isinstance(src, Strided):
            raise LoweringError(f"`{site.text}` reads around elements that have no addresses")
        first = _address(src, source, active)
        away = (first < move.width - 1) | (first + 2 * move.width - 1 > src.size)
        if away.any():
            worst = int(np.argmax(away))
            who = lanes.who(lanes.first + int(active.lanes[worst]))
            detail = f"{who} reads around {move.width} elements from {int(first[worst])} of {src.size} on"
            raise KernelFault("out-of-bounds", site.text, detail)

    return check


class Pointers(Base):
    """Places in a matrix that each work-item has for itself. What they point to is looked at where it is read."""

    def __init__(self, run: Run, buffer: Buffer) -> None:
        super().__init__(run, buffer)
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


def pointer_step(pointers: Reference, to: Reference, site: Site) -> Callable[[Active], None]:
    """Let one of an array of pointers point at an element."""
    array, (which,) = pointers.within(Pointers, site, "sets none of an array of pointers"), pointers.index
    return lambda active: array.point(which(active), to.memory, to.at(active), active, site)


def prefetch_step(line: Reference, site: Site) -> Callable[[Active], None]:
    """Nothing; but there must be such an element."""
    memory = line.within(Strided, site, "needs the address of something that has none")

    def prefetch(active: Active) -> None:
        memory.locate(line.at(active), active, site)

    return prefetch
