"""Statements on tiles in vectors: each becomes loops whose innermost one is a vector's elements."""

from __future__ import annotations

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.elementwise import ELEMENT_COL, ELEMENT_ROW, element, old
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, all_of, convert, minimum
from gemmgen.ir.instructions import VECTOR_FMA_ALONG_K, Instruction
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, Fill, For, If, Mma, Store, VectorCopy
from gemmgen.ir.vectors import value_problem
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.passes.expand_functions import blended, epilogue_applied, once_whole, scaled, unless_beta_is_zero, with_old

ROW, COL, DEPTH, ELEMENT = Var("i"), Var("j"), Var("p"), Var("e")


def at_once(width: int, *body: Store) -> For:
    """One instruction for the elements of a vector."""
    return For(ELEMENT, Const(0), Const(width), 1, body, exact=True, vector=True)


def unrolled(var: Var, count: int, body: Body) -> For:
    """`count` rounds, so that registers have constant indices."""
    return For(var, Const(0), Const(count), 1, body, unroll=True, exact=True)


def fill_vectors(fill: Fill) -> Body:
    """Every vector of a register tile set."""
    dst = fill.dst
    rows, cols, width = dst.fragment.rows.values, dst.fragment.cols.values, dst.buffer.vector
    store = at_once(width, Store(dst.buffer, dst.at(ROW, COL * width + ELEMENT), fill.value))
    return (unrolled(ROW, rows, (unrolled(COL, cols // width, (store,)),)),)


def multiply_vectors(mma: Mma, atom: Instruction) -> Body:
    """An element of A times a vector of B, or vectors of both along K, for all rows and vectors of the tile."""
    acc, a, b, width = mma.acc, mma.a, mma.b, mma.acc.buffer.vector
    column = COL * width + ELEMENT
    at, dtype = acc.at(ROW, column), acc.buffer.dtype
    factors = Load(a.buffer, a.at(ROW, mma.a_k + DEPTH)), Load(b.buffer, b.at(mma.b_k + DEPTH, column))
    if atom is VECTOR_FMA_ALONG_K:
        factors = Load(a.buffer, a.at(ROW, mma.a_k + ELEMENT)), Load(b.buffer, b.at(mma.b_k + ELEMENT, COL))
    body: Body = (at_once(width, Store(acc.buffer, at, Call("fma", (*factors, Load(acc.buffer, at)), dtype))),)
    fragment = acc.fragment
    counts = {"i": (ROW, fragment.rows.values), "j": (COL, fragment.cols.values // width), "k": (DEPTH, mma.depth)}
    for axis in reversed(atom.order):
        body = (unrolled(*counts[axis], body),)
    return body


def epilogue_vectors(update: EpilogueStore) -> Body:
    """C by vectors where all of the tile is inside and this work-item's own, else element by element; so is a C that
    lies by columns.
    """
    if update.dst.transposed:
        return _singles(update, "C lies by columns: element by element.")
    if any(value_problem(store.value, ELEMENT, update.acc.buffer.vector) for store in _steps(update)):
        return _singles(update, "What is no function of vectors goes element by element.")
    c, fragment = update.dst.buffer, update.acc.fragment
    row0, col0 = update.dst.origin[-2:]
    rows, cols = c.shape[-2:]
    high, wide = fragment.rows.values, fragment.cols.values
    own = () if update.first is None else (update.first <= col0,)
    inside = all_of((row0 + high <= rows, col0 + wide <= cols, *own))
    return (If(inside, _whole(update), _singles(update, "At the edge of C, element by element.")),)


def _whole(update: EpilogueStore) -> Body:
    """Vector by vector."""
    c, acc, width = update.dst.buffer, update.acc, update.acc.buffer.vector
    row0, col0 = update.dst.origin[-2:]
    place = (*update.dst.origin[:-2], row0 + ROW, col0 + COL * width)
    values, there = _values(update, "values"), _values(update, "old")
    value, before = Load(values, (ELEMENT,)), Load(there, (ELEMENT,))
    product = scaled(update, Load(acc.buffer, acc.at(ROW, COL * width + ELEMENT)))
    add_old: Body = (
        Alloc(there),
        VectorCopy(there, (Const(0),), c, place, update.atom, width),
        at_once(width, Store(values, (ELEMENT,), with_old(update, value, before))),
    )
    body: Body = (
        Alloc(values),
        at_once(width, Store(values, (ELEMENT,), product)),
        *unless_beta_is_zero(update, add_old),
        *once_whole(update, tuple(at_once(width, step) for step in _steps(update))),
        VectorCopy(c, place, values, (Const(0),), update.atom, width),
    )
    vectors = acc.fragment.cols.values // width
    return (unrolled(ROW, acc.fragment.rows.values, (unrolled(COL, vectors, body),)),)


def _values(update: EpilogueStore, what: str) -> Buffer:
    """A vector of C's elements."""
    width = update.acc.buffer.vector
    name = f"{update.dst.buffer.name}_{what}"
    return Buffer(name, update.acc.buffer.dtype, Space.PRIVATE, Layout.packed(width), vector=width)


def _steps(update: EpilogueStore) -> tuple[Store, ...]:
    """What an epilogue makes of a vector, function by function."""
    values, width = _values(update, "values"), update.acc.buffer.vector
    row, col = update.dst.origin[-2] + ROW, update.dst.origin[-1] + COL * width + ELEMENT
    value = Load(values, (ELEMENT,))
    before = convert(Load(update.dst.buffer, (*update.dst.origin[:-2], row, col)), value.dtype)
    means = {element(value.dtype): value, old(value.dtype): before, ELEMENT_ROW: row, ELEMENT_COL: col}
    return tuple(Store(values, (ELEMENT,), map_expr(step.value, substitute(means))) for step in update.steps)


def _singles(update: EpilogueStore, say: str) -> Body:
    """From memory, since registers have no numbers that are worked out."""
    dst, acc, width = update.dst, update.acc, update.acc.buffer.vector
    c, planes = dst.buffer, dst.origin[:-2]
    (row0, col0), (rows, cols) = (x[::-1] if dst.transposed else x for x in (dst.origin[-2:], c.shape[-2:]))
    high, wide = acc.fragment.rows.values, acc.fragment.cols.values
    part = Buffer(f"{c.name}_part", acc.buffer.dtype, Space.PRIVATE, Layout.packed(high, wide))
    at = (ROW, COL * width + ELEMENT)
    put = at_once(width, Store(part, at, Load(acc.buffer, acc.at(*at))))
    first = Const(0) if update.first is None else update.first - col0
    row, col = row0 + ROW, col0 + COL
    place = (*planes, *((col, row) if dst.transposed else (row, col)))
    body = _stored(update, Load(part, (ROW, COL)), Load(c, place), row, col)
    down = ROW, Const(0), minimum(Const(high), rows - row0)
    across = COL, first, minimum(Const(wide), cols - col0)
    for var, start, stop in (down, across) if dst.transposed else (across, down):
        body = (For(var, start, stop, 1, body),)
    return (
        Comment(say),
        Alloc(part),
        unrolled(ROW, high, (unrolled(COL, wide // width, (put,)),)),
        *body,
    )


def _stored(update: EpilogueStore, sum_: Expr, before: Load, row: Expr, col: Expr) -> Body:
    """An element of C, which goes through the epilogue once its sum is whole."""
    value = blended(update, sum_, convert(before, sum_.dtype))
    store = Store(before.buffer, before.index, convert(value, before.dtype))
    if not update.steps:
        return (store,)
    names, value = epilogue_applied(update, value, before, row, col)
    finish = *names, Store(before.buffer, before.index, convert(value, before.dtype))
    return once_whole(update, finish, (store,))
