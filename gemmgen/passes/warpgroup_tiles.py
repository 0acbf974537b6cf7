"""Expand tiles that box copies bring and warpgroups multiply: copies of boxes, views, and matrix instructions."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Const, Expr, Var, as_int
from gemmgen.ir.meetings import RANK
from gemmgen.ir.stmt import Body, BoxCopy, For, Multiply, Point, Registers, Stage, Tile, TileMma
from gemmgen.ir.warpgroup_matrix import LANES, ROWS
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import KK, WARPGROUP, WARPGROUP_COL, WARPGROUP_ROW

BOX, TURN = Var("i"), Var("i")
ZERO = Const(0)


def copy_boxes(stage: Stage) -> Body:
    """A tile box after box, along its fast axis; the last one is no wider than what is left."""
    dst, src = stage.dst.buffer, stage.src.buffer
    if stage.tells is None or src.box is None:
        raise LoweringError(f"{src.name} is copied by boxes that nobody counts")
    if not dst.layout.swizzle:
        return (BoxCopy(dst, (stage.dst.origin[0], ZERO, ZERO), src, stage.src.origin, stage.tells),)
    high, line = src.box
    *whose, slow, fast = stage.src.origin
    boxes, left = divmod(stage.src.rows if stage.src.transposed else stage.src.cols, line)
    first: Expr = ZERO
    place: Expr = ZERO
    if src.shared > 1 and high == as_int(dst.shape[2]):
        boxes //= src.shared
        first = RANK * boxes
    elif src.shared > 1:
        place = RANK * high

    def copy(box: Expr, matrix: Buffer) -> BoxCopy:
        to = stage.dst.origin[0], first + box, place, ZERO
        origin = *whose, slow + place, fast + (first + box) * line
        return BoxCopy(dst, to, matrix, origin, stage.tells)

    last = (copy(Const(boxes), replace(src, box=(high, left))),) if left else ()
    return (*loop(BOX, boxes, (copy(BOX, src),)), *last)


def multiply_by_warpgroups(mma: TileMma) -> Body:
    """Instructions along K; of a tile with more rows than its warpgroups have, each takes every so many."""
    acc, atom = mma.acc, mma.atom
    rows = acc.fragment.rows
    warpgroups, across = rows.lanes * 4 // LANES, acc.fragment.cols.lanes // 4
    warpgroup: Expr = ZERO if warpgroups == 1 else WARPGROUP if across == 1 else WARPGROUP_ROW
    b, slot_b = _view(mma.b, "b"), mma.b.origin[0]
    col: Expr = WARPGROUP_COL * atom.cols if across > 1 else ZERO
    line = as_int(mma.b.buffer.shape[-1]) or atom.line
    first_b = (slot_b, col // line, ZERO, col % line) if atom.b_turned else (slot_b, ZERO, col, ZERO)
    point_b = Point(b, mma.b.buffer, first_b)
    along_k = For(KK, ZERO, Const(mma.b.rows // atom.terms), atom.depth, (), unroll=True, exact=True)
    if isinstance(mma.a, Registers):
        held = replace(mma.a, slot=KK // atom.depth)
        a_at, b_at = held.at(TURN * 2, ZERO), (ZERO, KK, ZERO) if atom.b_turned else (ZERO, ZERO, KK)
        each = Multiply(acc.buffer, acc.at(TURN * 2, ZERO), mma.a.buffer, a_at, b, b_at, atom)
        return (point_b, replace(along_k, body=loop(TURN, rows.values // 2, (each,))))
    a, slot_a = _view(mma.a, "a"), mma.a.origin[0]
    first = (slot_a, warpgroup, ZERO, ZERO) if atom.a_turned else (slot_a, ZERO, warpgroup * ROWS, ZERO)
    turn = TURN * warpgroups

    def product(head_or_rest: tuple[int, int]) -> Multiply:
        in_a, in_b = map(Const, head_or_rest)
        a_index = (turn, KK, ZERO) if atom.a_turned else (in_a, turn * ROWS, KK)
        b_index = (ZERO, KK, ZERO) if atom.b_turned else (in_b, ZERO, KK)
        return Multiply(acc.buffer, acc.at(TURN * 2, ZERO), a, a_index, b, b_index, atom)

    # What is small comes first.
    pairs = ((0, 0),) if atom.terms == 1 else ((1, 0), (0, 1), (0, 0))
    body = loop(TURN, rows.values // 2, tuple(map(product, pairs)))
    return (
        Point(a, mma.a.buffer, first),
        point_b,
        replace(along_k, body=body),
    )


def _view(tile: Tile, name: str) -> Buffer:
    """What a warpgroup multiplies of a slot."""
    layout = tile.buffer.layout
    own = Layout(layout.shape[1:], layout.strides[1:], layout.swizzle)
    return Buffer(f"{name}_tile", tile.buffer.dtype, Space.VIEW, own)
