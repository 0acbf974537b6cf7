"""Where vectors may stand: the interpreter's check of addresses that must be multiples of what is moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gemmgen.ir.fault import KernelFault
from gemmgen.ir.lanes import Active, Index, Lanes, Site
from gemmgen.ir.memory import Memory, Strided
from gemmgen.ir.stmt import Move

Place = Callable[[Sequence[Index], Sequence[Index], Active], None]


def alignment_check(move: Move, src: Memory, dst: Memory, lanes: Lanes, site: Site) -> Place:
    """What is asked of the coordinates of a move's source and destination before it is made.

    Memory is taken to begin where any vector may; launchers ask that of matrices. An asynchronous copy of nothing may
    name a place outside, but no odd one.
    """
    sides = [isinstance(x, Strided) and x.addressed and move.atom.aligned and move.width > 1 for x in (src, dst)]

    def check(source: Sequence[Index], target: Sequence[Index], active: Active) -> None:
        for asked, memory, index in zip(sides, (src, dst), (source, target), strict=True):
            if not asked or not isinstance(memory, Strided):
                continue
            address = memory.start
            for coordinate, stride in zip(index, memory.strides, strict=True):
                address = address + coordinate * stride
            off = np.broadcast_to(active.pick(address) % move.width, active.lanes.shape)
            if off.any():
                first = int(np.argmax(off != 0))
                who = lanes.who(lanes.first + int(active.lanes[first]))
                detail = f"{who} moves {move.width} elements from {int(off[first])} past a multiple of {move.width}"
                raise KernelFault("alignment", site.text, detail)

    return check
