"""Expand the update of C by boxes: worked out in the accumulators, put down in local memory, stored by warps apart.

Of each 64 rows of C that a warpgroup has, a warp has sixteen, which are the lines of a box. It puts them down in a
slot that is its own, and one of its lanes begins the store. So no warp waits for another, and what lies past C is not
stored; but whole parts of 16 bytes are, so that a box that C ends in goes element by element where it ends in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, all_of, as_int, both, compare, convert, is_const, number
from gemmgen.ir.meetings import Barrier, StoreGroup
from gemmgen.ir.stmt import Alloc, Body, BoxCopy, Comment, If, Let, Move, Store, Update
from gemmgen.ir.visit import map_body_exprs, substitute, walk_expr
from gemmgen.ir.warpgroup_matrix import BOX_ROWS, PART_BYTES, WIDE, put_atom
from gemmgen.passes.epilogue import applied
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import LOCAL_COL, LOCAL_INDEX, LOCAL_ROW, WARPGROUP_COL

ROW, COL, ELEMENT, PART = Var("i"), Var("j"), Var("e"), Var("p")
#: Which of the boxes of C's columns is stored, and of a warpgroup's rows if it has more than 64.
BOX, TURN = Var("box"), Var("turn")
C_ROW, C_COL = Var("c_row"), Var("c_col")
#: Where a warp's lines begin, and where a lane puts down its own.
FIRST_LINE, OWN_LINE, OWN_PART = Var("first_line"), Var("own_line"), Var("own_part")
ZERO = Const(0)
WARP = 32
#: Whether a work-item is its warp's first. Said in another way than in the loop along K: compilers would keep what is
#: known from there, and where there is no such loop set it apart, together with the sums' zeros; then ptxas has matrix
#: instructions wait for each other (C7515).
FIRST_OF_WARP = both(compare("==", LOCAL_COL, 0), compare("==", LOCAL_ROW % (WARP // 4), 0))
FIRST_BESIDE = both(compare("==", LOCAL_COL % 4, 0), compare("==", LOCAL_ROW % (WARP // 4), 0))
#: A pair of neighbours, as work-items have them.
PAIR = 2


def update_by_boxes(update: Update, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """All of it; `row` and `col` are where a work-item's part of C begins, `promises` what is known of C's columns."""
    finished = (*_scaled(update), *_with_old(update, row, col), *_stepped(update, row, col))
    return (*finished, *_stored(update, row, col, promises))


# --- in the accumulators --------------------------------------------------------------------------


def _scaled(update: Update) -> Body:
    """acc = alpha * acc."""
    if is_const(update.alpha, 1.0):
        return ()
    place = update.acc.at(ROW, COL)
    scale = Store(update.acc.buffer, place, Bin("*", update.alpha, Load(update.acc.buffer, place)))
    return _each(update, (scale,))


def _each(update: Update, body: Body) -> Body:
    fragment = update.acc.fragment
    return loop(ROW, fragment.rows.values, loop(COL, fragment.cols.values, body))


def _with_old(update: Update, row: Expr, col: Expr) -> Body:
    """acc += beta * c where beta is not zero, by pairs where they are inside."""
    beta, acc, c = update.beta, update.acc, update.dst.buffer
    dtype, (rows, cols) = acc.buffer.dtype, c.shape[-2:]
    whose = update.dst.origin[:-2]
    if is_const(beta, 0.0):
        return ()
    old = Buffer(f"{c.name}_old", dtype, Space.PRIVATE, Layout.packed(PAIR))

    def added(column: Expr, before: Expr) -> Store:
        place = acc.at(ROW, column)
        sum_ = Load(acc.buffer, place)
        value = Bin("+", sum_, before) if is_const(beta, 1.0) else Call("fma", (beta, before, sum_), dtype)
        return Store(acc.buffer, place, value)

    pair = (
        Alloc(old),
        Move(old, (ZERO,), c, (*whose, C_ROW, C_COL), update.atom, PAIR),
        *loop(ELEMENT, PAIR, (added(COL * PAIR + ELEMENT, Load(old, (ELEMENT,))),)),
    )
    single = added(COL * PAIR, convert(Load(c, (*whose, C_ROW, C_COL)), dtype))
    fragment = acc.fragment
    own: Body = (
        Let(C_COL, col + fragment.cols.chunk_step(COL, PAIR)),
        If(compare("<=", C_COL + PAIR, cols), pair, (If(compare("<", C_COL, cols), (single,)),)),
    )
    columns = loop(COL, fragment.cols.values // PAIR, own)
    body = loop(
        ROW, fragment.rows.values, (Let(C_ROW, row + fragment.rows.step(ROW)), If(compare("<", C_ROW, rows), columns))
    )
    return body if isinstance(beta, Const) else (If(compare("!=", beta, number(0, dtype)), body),)


def _stepped(update: Update, row: Expr, col: Expr) -> Body:
    """The functions on each element; what they read is read where the element is inside."""
    if not update.steps:
        return ()
    acc, c, fragment = update.acc, update.dst.buffer, update.acc.fragment
    place = acc.at(ROW, COL)
    before = Load(c, (*update.dst.origin[:-2], C_ROW, C_COL))
    names, value = applied(update, Load(acc.buffer, place), before, C_ROW, C_COL)
    body: Body = (*names, Store(acc.buffer, place, value))
    reads = {node.buffer.name for step in update.steps for node in walk_expr(step.value) if isinstance(node, Load)}
    named = {node for stmt in body for root in _values(stmt) for node in walk_expr(root)}
    if reads or any(isinstance(node, Load) and node.buffer == c for node in named):
        rows, cols = c.shape[-2:]
        body = (If(all_of((compare("<", C_ROW, rows), compare("<", C_COL, cols))), body),)
    columns = loop(COL, fragment.cols.values, (Let(C_COL, col + fragment.cols.step(COL)), *body))
    return loop(ROW, fragment.rows.values, (Let(C_ROW, row + fragment.rows.step(ROW)), *columns))


def _values(stmt: object) -> tuple[Expr, ...]:
    return (stmt.value,) if isinstance(stmt, Let | Store) else ()


# --- by way of local memory -----------------------------------------------------------------------


def _stored(update: Update, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """Box after box, each in the next slot, which has to be read before it is written to again."""
    via, c = update.via, update.dst.buffer
    if via is None or c.box is None:
        raise LoweringError(f"{c.name} is not stored by boxes")
    (boxes, left), turns = divmod(_own_cols(update), c.box[1]), update.acc.fragment.rows.values // 2
    slots, of_turn = as_int(via.shape[0]) or 1, boxes + (left > 0)
    free: Body = ()
    if of_turn * turns > slots:
        say = Comment("A slot is free once the store that used it has read it.")
        free = (say, StoreGroup("wait", slots - 1), Barrier(of_sub_group=True))

    def box(length: int) -> Body:
        stored: Body = (*free, *_one_box(update, via, (TURN * of_turn + BOX) % slots, length))
        if (ragged := _ragged(update, promises, length)) is not None:
            say = Comment(f"C ends between the {PART_BYTES} bytes that stores of boxes write at least.")
            stored = (If(ragged, (say, *_singly(update, row, col, length)), stored),)
        # Each box counts as a group, stored so or not: the waits go by that.
        return (*stored, StoreGroup("commit"))

    own, part = _own(put_atom(via.dtype)[0].matrices is not None, _paired(update))
    names: Body = (Let(FIRST_LINE, LOCAL_INDEX // WARP * BOX_ROWS), Let(OWN_LINE, own), Let(OWN_PART, part))
    say = Comment("Each warp's rows box by box; what lies past the edges of C is not stored.")
    last = map_body_exprs(box(left), substitute({BOX: Const(boxes)})) if left else ()
    return (say, *names, *loop(TURN, turns, (*loop(BOX, boxes, box(c.box[1])), *last)))


def _beside(update: Update) -> bool:
    """Whether warpgroups lie beside one another, too."""
    return _own_cols(update) < update.dst.cols


def _own_cols(update: Update) -> int:
    """Columns of a block that a warpgroup has."""
    return update.acc.fragment.cols.values * 4


def _first_row(update: Update) -> Expr:
    """Of the rows that a turn of all warpgroups has, where a warp's begin: with its lines, or where others of the same
    rows have lines of their own, by its work-items.
    """
    return LOCAL_ROW // (WARP // 4) * BOX_ROWS if _beside(update) else FIRST_LINE


def _first_col(update: Update) -> Expr:
    """Where a warpgroup's columns begin."""
    col = update.dst.origin[-1]
    return col + WARPGROUP_COL * _own_cols(update) if _beside(update) else col


def _one_box(update: Update, via: Buffer, slot: Expr, length: int) -> Body:
    """Put down in a slot, and its store begun; `length` of it is a part of a line."""
    acc, c = update.acc, update.dst.buffer
    line, (atom, width) = as_int(via.shape[2]) or length, put_atom(via.dtype)
    at_once = atom.matrices is not None
    # Of both rows a lane has as many, or has them one after the other.
    values, wide = (width // 2, 2 * WIDE) if at_once else (width, WIDE)
    at = acc.at(TURN * 2 + (ZERO if at_once else ROW), BOX * (line // 4) + PART * values)
    own = OWN_LINE if at_once else OWN_LINE + _apart(update, ROW)
    put: Body = (Move(via, (slot, own, OWN_PART + PART * wide), acc.buffer, at, atom, width),)
    rows = acc.fragment.rows.lanes * 2
    *whose, slow, _ = update.dst.origin
    to = *whose, slow + TURN * rows + _first_row(update), _first_col(update) + BOX * line
    c = replace(c, box=(BOX_ROWS, length))
    return (
        *loop(PART, length // wide, put if at_once else loop(ROW, 2, put)),
        StoreGroup("fence"),
        Barrier(of_sub_group=True),
        If(FIRST_BESIDE if _beside(update) else FIRST_OF_WARP, (BoxCopy(c, to, via, (slot, FIRST_LINE, ZERO)),)),
    )


def _ragged(update: Update, promises: Collection[Expr], length: int) -> Expr | None:
    """Whether C ends in a box so long, or before it, in a part of what its store writes at least; None for never."""
    c = update.dst.buffer
    unit, cols = PART_BYTES // c.dtype.size, c.shape[-1]
    whole = compare("==", cols % unit, 0)
    if whole in promises or is_const(whole, 1) or c.box is None:
        return None
    return both(compare("!=", cols % unit, 0), cols < _first_col(update) + BOX * c.box[1] + length)


def _singly(update: Update, row: Expr, col: Expr, length: int) -> Body:
    """A box from registers, element by element."""
    acc, c = update.acc, update.dst.buffer
    rows, line = acc.fragment.rows.lanes * 2, length if c.box is None else c.box[1]
    own_row = row + TURN * rows + _apart(update, ROW)
    own_col = col + BOX * line + acc.fragment.cols.step(COL)
    value = Load(acc.buffer, acc.at(TURN * 2 + ROW, BOX * (line // 4) + COL))
    at = *update.dst.origin[:-2], C_ROW, C_COL
    columns = loop(COL, length // 4, (Let(C_COL, own_col), Store(c, at, convert(value, c.dtype))))
    return loop(ROW, 2, (Let(C_ROW, own_row), *columns))


def _paired(update: Update) -> bool:
    """Whether a lane's two rows of a box lie side by side, not eight apart."""
    return update.acc.fragment.rows.run == PAIR


def _apart(update: Update, row: Expr) -> Expr:
    """How far the first of them, or the second, is from the first."""
    return row if _paired(update) else row * (BOX_ROWS // 2)


def _own(by_matrices: bool, paired: bool) -> tuple[Expr, Expr]:
    """The line and the element where a lane's first part goes: for all of its warp where that puts down matrices, whose
    lines lanes name for each other; else where its own first pair goes.
    """
    if by_matrices:
        line = LOCAL_INDEX % 8 * 2 + LOCAL_INDEX // 8 % 2 if paired else LOCAL_INDEX % BOX_ROWS
        return FIRST_LINE + line, LOCAL_INDEX % WARP // BOX_ROWS * WIDE
    line = LOCAL_INDEX % WARP // 4
    return FIRST_LINE + (line * 2 if paired else line), LOCAL_INDEX % 4 * PAIR
