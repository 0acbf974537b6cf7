"""What the verifier asks of the places where work-items meet, or wait, and of box copies."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import as_int
from gemmgen.ir.meetings import AsyncGroup, Barrier, Handover, Mbarrier, Meeting
from gemmgen.ir.scopes import Scope
from gemmgen.ir.show import show_expr
from gemmgen.ir.stmt import BoxCopy
from gemmgen.ir.target import Target
from gemmgen.ir.warpgroup_matrix import LINE_BYTES


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
            if scope.divergent and not (scope.role and stmt.role_items):
                yield "a barrier where work-items of a group may have parted ways"
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


def box_problems(stmt: BoxCopy, target: Target) -> Iterator[str]:
    """What is wrong with a box copy."""
    dst, src = stmt.dst, stmt.src
    yield from lacking("tensor_maps", target, "a box copy")
    if (src.space, dst.space) != (Space.GLOBAL, Space.LOCAL):
        yield "a box copy goes from global to local memory"
    if dst.dtype != src.dtype:
        yield f"{dst.name} and {src.name} differ in type: {dst.dtype} and {src.dtype}"
    if src.box is None:
        yield f"{src.name} has no boxes"
    elif tuple(map(as_int, dst.shape[-2:])) != src.box:
        yield f"a box of {src.box[0]}x{src.box[1]} is not what {dst.name} is made of"
    elif src.box[1] * src.dtype.size != LINE_BYTES or dst.layout.swizzle != LINE_BYTES:
        yield f"the lines of {dst.name} are not {LINE_BYTES} bytes that swizzle"


def box_bytes(matrix: Buffer) -> int:
    """What a box copy brings, zeros among it."""
    rows, cols = matrix.box or (0, 0)
    return rows * cols * matrix.dtype.size
