"""Where vectors may stand: the interpreter's check of addresses that must be multiples of what is moved, or have as
much around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmgen.errors import LoweringError
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.lanes import Active, Index, Ints, Lanes, Site
from gemmgen.ir.memory import Memory, Strided
from gemmgen.ir.stmt import Move

Place = Callable[[Sequence[Index], Sequence[Index], Active], None]


def alignment_check(move: Move, src: Memory, dst: Memory, lanes: Lanes, site: Site) -> Place:
    """What is asked of the coordinates of a move's source and destination before it is made.

    Memory is taken to begin where any vector may; launchers ask that of matrices. An asynchronous copy of nothing may
    name a place outside, but no odd one.
    """
    if move.atom.around:
        return _around(move, src, lanes, site)
    sides = [isinstance(x, Strided) and x.addressed and move.atom.aligned and move.width > 1 for x in (src, dst)]

    def check(source: Sequence[Index], target: Sequence[Index], active: Active) -> None:
        for asked, memory, index in zip(sides, (src, dst), (source, target), strict=True):
            if not asked or not isinstance(memory, Strided):
                continue
            off = _address(memory, index, active) % move.width
            if off.any():
                first = int(np.argmax(off != 0))
                who = lanes.who(lanes.first + int(active.lanes[first]))
                detail = f"{who} moves {move.width} elements from {int(off[first])} past a multiple of {move.width}"
                raise KernelFault("alignment", site.text, detail)

    return check


def _address(memory: Strided, index: Sequence[Index], active: Active) -> Ints:
    """The active lanes' addresses, inside or not."""
    address = memory.start
    for coordinate, stride in zip(index, memory.strides, strict=True):
        address = address + coordinate * stride
    return np.broadcast_to(active.pick(address), active.lanes.shape)


def _around(move: Move, src: Memory, lanes: Lanes, site: Site) -> Place:
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
