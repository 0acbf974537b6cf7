"""What the verifier asks of the places where work-items meet, or wait, and of box copies."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import as_int
from gemmgen.ir.meetings import AsyncGroup, Barrier, Handover, Mbarrier, Meeting, StoreGroup
from gemmgen.ir.scopes import Scope
from gemmgen.ir.show import show_expr
from gemmgen.ir.stmt import BoxCopy
from gemmgen.ir.swizzle import LINES_BYTES
from gemmgen.ir.target import Target
from gemmgen.ir.warpgroup_matrix import PART_BYTES


def meeting_problems(stmt: Meeting, scope: Scope, target: Target) -> Iterator[str]:
    """What is wrong with a place where work-items meet. In a role only mbarriers may stand where they have parted."""
    match stmt:
        case AsyncGroup(_, pending):
            yield from lacking("async_copy", target, "an asynchronous group")
            if pending < 0:
                yield f"{pending} groups cannot be pending"
        case Handover(verb):
            yield from lacking("dependent_launch", target, f"{verb} of kernels")
        case Barrier():
            if scope.divergent and not (scope.role and (stmt.role_items or stmt.of_sub_group)):
                yield "a barrier where work-items of a group may have parted ways"
        case StoreGroup(_, pending):
            yield from lacking("tensor_maps", target, "a store of boxes")
            if pending < 0:
                yield f"{pending} groups cannot be pending"
        case Mbarrier(_, _, _, index, parity):
            yield from lacking("mbarrier", target, "an mbarrier")
            if scope.divergent and not scope.role:
                yield "a barrier where work-items of a group may have parted ways"
            yield from (f"{show_expr(x)} is {x.dtype}, not an integer" for x in (index, parity) if x.dtype != I32)
        case _:
            yield from lacking("wgmma", target, "a role")
            if not scope.role:
                yield "what only a role may do"


def lacking(feature: str, target: Target, who: str) -> Iterator[str]:
    """That a target lacks a feature."""
    if feature not in target.features:
        yield f"{who} needs {feature}, which {target.name} lacks"


def box_copy_problems(stmt: BoxCopy, target: Target) -> Iterator[str]:
    """What is wrong with a box copy."""
    yield from lacking("tensor_maps", target, "a box copy")
    spaces = (Space.GLOBAL, Space.LOCAL) if stmt.tells is not None else (Space.LOCAL, Space.GLOBAL)
    if (stmt.src.space, stmt.dst.space) != spaces:
        yield "a box copy that tells an mbarrier goes from global to local memory, another the other way"
        return
    matrix, tile = (stmt.src, stmt.dst) if stmt.tells is not None else (stmt.dst, stmt.src)
    if tile.dtype != matrix.dtype:
        yield f"{tile.name} and {matrix.name} differ in type: {tile.dtype} and {matrix.dtype}"
    if matrix.box is None:
        yield f"{matrix.name} has no boxes"
        return
    lines, length = map(as_int, tile.shape[-2:])
    if not tile.layout.swizzle and stmt.tells is not None:
        if matrix.box[0] % (lines or 1) or matrix.box[1] != length or as_int(tile.layout.strides[-2]) != length:
            yield f"a box of {matrix.box[0]}x{matrix.box[1]} is not made of tiles of {tile.name}, or has gaps there"
        return
    # A box that comes fills lines that are there for it, or others bring the rest; one that goes may be a part of them.
    # The last of a row of them may be narrower: its lines are as far apart.
    high, wide = matrix.box
    alone = stmt.tells is not None and matrix.shared == 1
    narrow = not 0 < wide <= (length or 0) or wide * matrix.dtype.size % PART_BYTES
    if narrow or (lines or 0) % high or (alone and lines != high):
        yield f"a box of {high}x{wide} is not what {tile.name} is made of"
    elif (length or 0) * matrix.dtype.size != tile.layout.swizzle or tile.layout.swizzle not in LINES_BYTES:
        yield f"the lines of {tile.name} are not {', '.join(map(str, LINES_BYTES))} bytes that swizzle"


def box_bytes(matrix: Buffer) -> int:
    """What a box copy brings, zeros among it."""
    rows, cols = matrix.box or (0, 0)
    return rows * cols * matrix.dtype.size
