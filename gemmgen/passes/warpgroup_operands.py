"""Expand A's way into registers where warpgroups multiply it from there: out of lines that swizzle, by `ldmatrix` where
that has the instruction's fragments, else by single elements or pairs, which a prologue may make into others.

Box copies have put the parts of 16 bytes of a line elsewhere; what reads by plain instructions has to say so itself:
of lines of 128 bytes, part p of line i lies where part p ^ (i % 8) would; of narrower ones (`ir/swizzle.py`) two, or
four, change alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import Fragment
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import accumulator
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, as_int, convert
from gemmgen.ir.stmt import Alloc, Body, Copy, Let, Move, Store, Tile
from gemmgen.ir.warpgroup_matrix import BOX_ROWS, DEPTH_BYTES, LINES, PART_BYTES, TURN_BYTES
from gemmgen.passes import prologue
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import LOCAL_INDEX, LOCAL_ROW

ROW, COL, KK, ELEMENT = Var("i"), Var("j"), Var("p"), Var("e")
#: One of the four matrices of a load, and which of two neighbouring rows.
MATRIX, SIDE = Var("q"), Var("side")
ZERO = Const(0)
#: An element's place in A's tile.
TILE_ROW, TILE_K = Var("tile_row"), Var("tile_k")
#: Gives a value a name at the kernel's top.
Namer = Callable[[str, Expr, int], Expr]


def load_operand(copy: Copy, named: Namer) -> Body:
    """All of a step's A."""
    if copy.atom is TURN_BYTES:
        return _by_bytes(copy, named)
    return _by_lines(copy, named) if copy.atom.matrices is not None else _singly(copy, named)


def place(tile: Tile, row: Expr, k: Expr) -> tuple[Expr, ...]:
    """Where an element of A lies in its tile, [slot][box][line][element], as it is found by plain instructions."""
    length, parts = as_int(tile.buffer.shape[-1]) or 1, tile.buffer.layout.swizzle // PART_BYTES
    part = PART_BYTES // tile.buffer.dtype.size
    line, along = (k, row) if tile.transposed else (row, k)
    box: Expr = along // length if tile.transposed else ZERO
    element = along % length if tile.transposed else along
    swizzled = Bin("^", element, line // (LINES // parts) % parts * part)
    return (tile.origin[0], box, line, swizzled)


def _by_lines(copy: Copy, named: Namer) -> Body:
    """By matrices of eight lines of 16 bytes: lane 8 q + i names line i of matrix q, of which the first two are of the
    warp's rows, the others 16 bytes on along K.
    """
    fragment, src, matrices = copy.dst.fragment, copy.src, copy.atom.matrices
    if matrices is None:
        raise LoweringError(f"{copy.atom.name} loads no matrices")
    depth = DEPTH_BYTES // src.buffer.dtype.size
    first = LOCAL_ROW // LINES * BOX_ROWS
    lower, deeper, own = LOCAL_INDEX // LINES % 2, LOCAL_INDEX // BOX_ROWS % 2, LOCAL_INDEX % LINES
    row = first + lower * LINES if matrices.turned else first + LOCAL_INDEX % BOX_ROWS
    k = deeper * (depth // 2) + own if matrices.turned else deeper * (depth // 2)
    own_row, own_k = named("a_line_row", row, 1), named("a_line_k", k, 1)
    tile_k = Let(TILE_K, own_k + KK * depth)
    rows, tile_row = _rows(own_row, fragment)
    to = replace(copy.dst, slot=KK).at(ROW * 2, ZERO)
    move = Move(copy.dst.buffer, to, src.buffer, place(src, tile_row, TILE_K), copy.atom, copy.width)
    return loop(ROW, fragment.rows.values // 2, (*rows, *loop(KK, src.cols // depth, (tile_k, move))))


def _rows(first: Expr, fragment: Fragment) -> tuple[Body, Expr]:
    """The line of the tile that a lane names, and its name where it has several."""
    if fragment.rows.values == 2:
        return (), first
    return (Let(TILE_ROW, first + ROW * (fragment.rows.lanes * 2)),), TILE_ROW


def _by_bytes(copy: Copy, named: Namer) -> Body:
    """Elements of a byte whose lines lie across K, by matrices that lie along it: of two lines of each a lane gets two
    rows, its own (`paired`). Where elements become larger ones, a load brings what two instructions take.
    """
    src, width, dst = copy.src, copy.width, copy.dst
    own_line, at_once = LOCAL_INDEX % LINES, DEPTH_BYTES // dst.fragment.cols.extent
    matrix = LOCAL_INDEX // LINES % 4
    # Neighbours along K of a register: four bytes, which two matrices bring, or two elements of two.
    in_order = matrix * LINES + own_line
    by_fours = matrix // 2 * 16 + matrix % 2 * 2 + own_line // 2 * 4 + own_line % 2
    rows, tile_row = _rows(named("a_line_row", LOCAL_ROW // LINES * BOX_ROWS, 1), dst.fragment)
    tile_k = Let(TILE_K, named("a_line_k", in_order if at_once > 1 else by_fours, 1) + KK * DEPTH_BYTES)
    at = place(src, tile_row, TILE_K)
    layout = Layout.packed(2, width // 2)
    raw = Buffer(f"{src.buffer.name.partition('_')[0]}_bytes", src.buffer.dtype, Space.PRIVATE, layout)
    load = Move(raw, (ZERO, ZERO), src.buffer, at, copy.atom, width)
    value = Load(raw, (MATRIX // 2, MATRIX % 2 * 4 + ELEMENT * 2 + SIDE))
    among = (MATRIX % 2 if at_once > 1 else MATRIX) * 2 + ELEMENT
    to = replace(dst, slot=KK * at_once + (MATRIX // 2 if at_once > 1 else 0)).at(ROW * 2 + SIDE, among)
    row = named("a_row", dst.fragment.rows.start, 1) + dst.fragment.rows.step(ROW * 2 + SIDE)
    k = dst.fragment.cols.start + dst.fragment.cols.step(among)
    k = k + (MATRIX // 2 * (DEPTH_BYTES // 2) if at_once > 1 else 0) + KK * DEPTH_BYTES
    names, made = _made(copy, row, k, value)
    each = loop(MATRIX, 4, loop(SIDE, 2, loop(ELEMENT, 2, (*names, Store(dst.buffer, to, made)))))
    steps = loop(KK, src.cols // DEPTH_BYTES, (tile_k, Alloc(raw), load, *each))
    return loop(ROW, dst.fragment.rows.values // 2, (*rows, *steps))


def _singly(copy: Copy, named: Namer) -> Body:
    """By what a work-item holds: along K neighbours, of each of its rows."""
    fragment, src, width, dst = copy.dst.fragment, copy.src, copy.width, replace(copy.dst, slot=KK)
    depth = fragment.cols.extent
    row = named("a_row", fragment.rows.start, 1) + fragment.rows.step(ROW)
    k = fragment.cols.start + fragment.cols.chunk_step(COL, width) + KK * depth
    tile_row, tile_k, at = Let(TILE_ROW, row), Let(TILE_K, k), place(src, TILE_ROW, TILE_K)
    if width == 1:
        names, value = _made(copy, TILE_ROW, TILE_K, Load(src.buffer, at))
        body: Body = (*names, Store(dst.buffer, dst.at(ROW, COL), value))
    else:
        raw = Buffer(
            f"{src.buffer.name.partition('_')[0]}_vector", src.buffer.dtype, Space.PRIVATE, Layout.packed(width)
        )
        names, value = _made(copy, TILE_ROW, TILE_K + ELEMENT, Load(raw, (ELEMENT,)))
        once = tuple(name for name in names if isinstance(name, Let) and ELEMENT not in prologue.parts(name.value))
        own = tuple(name for name in names if name not in once)
        to = dst.at(ROW, COL * width + ELEMENT)
        load = Move(raw, (ZERO,), src.buffer, at, copy.atom, width)
        body = (Alloc(raw), load, *once, *loop(ELEMENT, width, (*own, Store(dst.buffer, to, value))))
    columns = loop(COL, fragment.cols.values // width, (tile_k, *body))
    return loop(KK, src.cols // depth, loop(ROW, fragment.rows.values, (tile_row, *columns)))


def _made(copy: Copy, row: Expr, k: Expr, raw: Load) -> tuple[Body, Expr]:
    """What an element becomes: what its prologue makes of it, or what it is, in the instruction's type."""
    dtype = copy.dst.buffer.dtype
    if copy.prologue is None or copy.of is None:
        # By way of sums' type: languages convert all others from that and to it.
        return (), raw if raw.dtype == dtype else convert(convert(raw, accumulator(dtype)), dtype)
    of = copy.of
    matrix, (slow0, fast0) = _alone(of.buffer), of.origin[-2:]
    slow, fast = (k, row) if of.transposed else (row, k)
    return prologue.made(copy.prologue, matrix, (slow0 + slow, fast0 + fast), dtype, raw)


def _alone(matrix: Buffer) -> Buffer:
    """A matrix of a batch by its own two coordinates."""
    if len(matrix.shape) == 2:
        return matrix
    layout = Layout(matrix.layout.shape[1:], matrix.layout.strides[1:])
    return replace(matrix, layout=layout, contracted=None if matrix.contracted is None else matrix.contracted - 1)
