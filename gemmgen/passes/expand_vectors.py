"""Statements on tiles in vectors: each becomes loops whose innermost one is a vector's elements."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.elementwise import ELEMENT_COL, ELEMENT_ROW, element, old
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, all_of, compare, convert, minimum, select
from gemmgen.ir.instructions import VECTOR_FMA_ALONG_K, Instruction
from gemmgen.ir.kernel import COL, DEPTH, ELEMENT, ROW
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, Fill, For, If, Mma, Store, VectorCopy
from gemmgen.ir.vectors import value_problem
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.passes.expand_functions import blended, epilogue_applied, once_whole, scaled, unless_beta_is_zero, with_old


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
    steps = _steps(update, _values(update, "values"), (ELEMENT,))
    if any(value_problem(store.value, ELEMENT, update.acc.buffer.vector) for store in steps):
        return _singles(update, "What is no function of vectors goes element by element.")
    c, fragment = update.dst.buffer, update.acc.fragment
    row0, col0 = update.dst.origin[-2:]
    rows, cols = c.shape[-2:]
    high = fragment.rows.values
    wide = update.acc.buffer.vector if update.ends_inside else fragment.cols.values
    own = () if update.first is None else (update.first <= col0,)
    inside = all_of((row0 + high <= rows, col0 + wide <= cols, *own))
    return (If(inside, _whole(update), _singles(update, "At the edge of C, element by element.")),)


def _vector_of(update: EpilogueStore) -> Expr:
    """The first column of a vector of the tile."""
    begin, width = update.dst.origin[-1] + COL * update.acc.buffer.vector, update.acc.buffer.vector
    return minimum(begin, update.dst.buffer.shape[-1] - width) if update.ends_inside else begin


def _whole(update: EpilogueStore) -> Body:
    """Vector by vector; where some hold columns of others, all of a row are read before one is written."""
    c, acc, width = update.dst.buffer, update.acc, update.acc.buffer.vector
    place = (*update.dst.origin[:-2], update.dst.origin[-2] + ROW, _vector_of(update))
    values, there = _values(update, "values"), _values(update, "old")
    vectors = acc.fragment.cols.values // width
    at: tuple[Expr, ...] = (ELEMENT,)
    if update.ends_inside:
        values, at = replace(values, layout=Layout.packed(vectors, width)), (COL, ELEMENT)
    value, before = Load(values, at), Load(there, (ELEMENT,))
    product = scaled(update, Load(acc.buffer, acc.at(ROW, COL * width + ELEMENT)))
    add_old: Body = (
        Alloc(there),
        VectorCopy(there, (Const(0),), c, place, update.atom, width),
        at_once(width, Store(values, at, with_old(update, value, before))),
    )
    made: Body = (
        at_once(width, Store(values, at, product)),
        *unless_beta_is_zero(update, add_old),
        *once_whole(update, tuple(at_once(width, step) for step in _steps(update, values, at))),
    )
    put = VectorCopy(c, place, values, (*at[:-1], Const(0)), update.atom, width)
    row: Body = (unrolled(COL, vectors, (Alloc(values), *made, put)),)
    if update.ends_inside:
        row = Alloc(values), unrolled(COL, vectors, made), unrolled(COL, vectors, (put,))
    return (unrolled(ROW, acc.fragment.rows.values, row),)


def _values(update: EpilogueStore, what: str) -> Buffer:
    """A vector of C's elements."""
    width = update.acc.buffer.vector
    name = f"{update.dst.buffer.name}_{what}"
    return Buffer(name, update.acc.buffer.dtype, Space.PRIVATE, Layout.packed(width), vector=width)


def _steps(update: EpilogueStore, values: Buffer, at: tuple[Expr, ...]) -> tuple[Store, ...]:
    """What an epilogue makes of a vector, function by function."""
    row, col = update.dst.origin[-2] + ROW, _vector_of(update) + ELEMENT
    value = Load(values, at)
    before = convert(Load(update.dst.buffer, (*update.dst.origin[:-2], row, col)), value.dtype)
    means = {element(value.dtype): value, old(value.dtype): before, ELEMENT_ROW: row, ELEMENT_COL: col}
    return tuple(Store(values, at, map_expr(step.value, substitute(means))) for step in update.steps)


def _singles(update: EpilogueStore, say: str) -> Body:
    """From memory, since registers have no numbers that are worked out."""
    dst, acc, width = update.dst, update.acc, update.acc.buffer.vector
    c, planes = dst.buffer, dst.origin[:-2]
    (row0, col0), (rows, cols) = (x[::-1] if dst.transposed else x for x in (dst.origin[-2:], c.shape[-2:]))
    high, wide = acc.fragment.rows.values, acc.fragment.cols.values
    part = Buffer(f"{c.name}_part", acc.buffer.dtype, Space.PRIVATE, Layout.packed(high, wide))
    begin: Expr = COL * width
    if update.ends_inside:
        begin = select(compare("<=", Const(width), cols), minimum(begin, cols - width - col0), begin)
    put = at_once(width, Store(part, (ROW, begin + ELEMENT), Load(acc.buffer, acc.at(ROW, COL * width + ELEMENT))))
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
