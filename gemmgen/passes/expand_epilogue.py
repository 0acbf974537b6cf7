"""Expand the update of C: alpha * sums + beta * C through an epilogue's functions, element by element or by vectors of
neighbours, where they are inside of C. Of sums that sub-groups hold as fragments, fragment after fragment, as
`FragmentApply` tells where elements stand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout, ThreadValueLayout, aligned
from gemmgen.ir.expr import Const, Expr, Load, Var, both, convert, is_const
from gemmgen.ir.kernel import COL, ELEMENT, ROW, loop
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    EpilogueStore,
    Fill,
    FragmentApply,
    If,
    Let,
    Registers,
    Stmt,
    Store,
    VectorCopy,
)
from gemmgen.ir.walk import walk_expr
from gemmgen.passes.expand_functions import (
    blended,
    epilogue_applied,
    finished,
    once_whole,
    scaled,
    unless_beta_is_zero,
    with_old,
)
from gemmgen.passes.expand_tma_store import store_by_tma
from gemmgen.positions import COL0, SUM_ROW

#: The first element of an axis that a lane owns, from the origin of its tile on; by its name where it has one.
Namer = Callable[[Expr, AxisLayout], Expr]


def expand_epilogue(update: EpilogueStore, named: Namer, assumptions: Collection[Expr]) -> Body:
    """C, element by element."""
    fragment, dst = update.acc.fragment, update.dst
    slow, fast = dst.origin[:-3:-1] if dst.transposed else dst.origin[-2:]
    row = named(slow, fragment.rows) + fragment.rows.step(ROW)
    col = named(fast, fragment.cols) + fragment.cols.step(COL)
    # A row of many parts stands in each access of its columns: it gets a name. It may be a column, put down so.
    several = fragment.rows.lanes > 1 and 1 < fragment.rows.vector < fragment.rows.values
    # Rows of warpgroups lie so that they are long to say; lines that a cluster shares have a name already.
    local = dst.buffer.space is Space.LOCAL
    long = local and fragment.rows.repeats > 1 and (dst.transposed or dst.buffer.distributed == 1)
    many = several or long or SUM_ROW in walk_expr(row)
    line_name = Var(f"{dst.buffer.name}_{'col' if COL0 in walk_expr(slow) or (local and dst.transposed) else 'row'}")
    names: Body = (Let(line_name, row),) if many else ()
    row = line_name if many else row
    place = (*dst.origin[:-2], *((col, row) if dst.transposed else (row, col)))
    if update.via is not None:
        own = named(slow, fragment.rows), named(fast, fragment.cols)
        return store_by_tma(update, *own, assumptions)
    if update.atom.adds:
        return _add(update, named, names, row)
    if update.atom.edge == "part":
        return _finished_first(update, named, names, row)
    if update.width > 1:
        return _epilogue_columns(update, named) if dst.transposed else _epilogue_vectors(update, named, names, row)
    dealt, place = _dealt(dst.buffer, place)
    element = (*dealt, *new_element(update, Load(dst.buffer, place), update.acc.at(ROW, COL), row, col))
    return loop(ROW, fragment.rows.values, (*names, *loop(COL, fragment.cols.values, element)))


def _add(update: EpilogueStore, named: Namer, names: Body, line: Expr) -> Body:
    """alpha * acc added to C: by vectors where they are inside and may stand there, else one by one."""
    dst, width = update.dst, update.width
    spread = update.acc.fragment.cols
    start = named(dst.origin[-1], spread) + spread.chunk_step(COL, width)
    values, first, each, filled = _scaled(update)
    move = VectorCopy(dst.buffer, (line, start), values, first, update.atom, width)
    single = replace(move, dst_index=(line, start + ELEMENT), src_index=each, width=1)
    add: Body = (If(_fits(update, start), (move,), loop(ELEMENT, width, (single,))),) if width > 1 else (move,)
    return _lines(update, names, line, (*filled, *add))


def _lines(update: EpilogueStore, names: Body, line: Expr, body: Body) -> Body:
    """A body for each vector of C that a lane owns, in the lines that are inside."""
    fragment = update.acc.fragment
    columns = loop(COL, fragment.cols.values // update.width, body)
    return loop(ROW, fragment.rows.values, (*names, If(line < update.dst.buffer.shape[-2], columns)))


def _scaled(update: EpilogueStore) -> tuple[Buffer, tuple[Expr, ...], tuple[Expr, ...], Body]:
    """alpha * acc for one vector, its first and each of its elements: in registers of its own, so that accumulators
    may lie in any, but where the sums are if they are such vectors already.
    """
    c, acc, width = update.dst.buffer, update.acc, update.width
    first, each = (_sum_of_vector(update, e) for e in (Const(0), ELEMENT))
    if is_const(update.alpha, 1.0) and acc.fragment.cols.values == width and not update.dst.transposed:
        return acc.buffer, first, each, ()
    values = Buffer(f"{c.name}_values", acc.buffer.dtype, Space.PRIVATE, Layout.packed(width))
    filled = loop(ELEMENT, width, (Store(values, (ELEMENT,), scaled(update, Load(acc.buffer, each))),))
    return values, (Const(0),), (ELEMENT,), (Alloc(values), *filled)


def _epilogue_vectors(update: EpilogueStore, named: Namer, names: Body, line: Expr) -> Body:
    """The same by vectors of neighbours, where they are inside and may stand there."""
    dst, fragment, width = update.dst, update.acc.fragment, update.width
    start = named(dst.origin[-1], fragment.cols) + fragment.cols.chunk_step(COL, width)
    place = (*dst.origin[:-2], line, start)
    if dst.buffer.space is not Space.LOCAL:
        return _lines(update, names, line, _vector_or_elements(update, place))
    dealt, place = _dealt(dst.buffer, place)
    columns = loop(COL, fragment.cols.values // width, _epilogue_vector(update, place))
    return loop(ROW, fragment.rows.values, (*names, *dealt, *columns))


def _finished_first(update: EpilogueStore, named: Namer, names: Body, line: Expr) -> Body:
    """The same in the accumulators, as a whole, and then stored: by vectors, of which a part may be inside."""
    dst, acc, width, dtype = update.dst, update.acc, update.width, update.acc.buffer.dtype
    c, cols = dst.buffer, acc.fragment.cols
    start = named(dst.origin[-1], cols) + cols.chunk_step(COL, width)
    place, inside = (*dst.origin[:-2], line, start), c.shape[-1] - start
    first, each = (_sum_of_vector(update, e) for e in (Const(0), ELEMENT))

    own, out = Load(acc.buffer, each), list[Stmt]()
    if not is_const(update.alpha, 1.0):
        product = loop(ELEMENT, width, (Store(acc.buffer, each, update.alpha * own),))
        out += loop(ROW, acc.fragment.rows.values, loop(COL, cols.values // width, product))
    old = Buffer(f"{c.name}_old", dtype, Space.PRIVATE, Layout.packed(width))
    read = VectorCopy(old, (Const(0),), c, place, update.atom, width, inside)
    sum_ = with_old(update, own, Load(old, (ELEMENT,)))
    added = _lines(update, names, line, (Alloc(old), read, *loop(ELEMENT, width, (Store(acc.buffer, each, sum_),))))
    out += unless_beta_is_zero(update, added)
    if update.steps:
        stepped = _stepped(update, each, (*place[:-1], start + ELEMENT))
        out += _lines(update, names, line, loop(ELEMENT, width, stepped))
    stored = VectorCopy(c, place, acc.buffer, first, update.atom, width, inside)
    return (*out, *_lines(update, names, line, (stored,)))


def _stepped(update: EpilogueStore, at: tuple[Expr, ...], place: tuple[Expr, ...]) -> Body:
    """The functions on a sum, where its element of C is inside."""
    c, acc = update.dst.buffer, update.acc.buffer
    names, value = epilogue_applied(update, Load(acc, at), Load(c, place), *place[-2:])
    return (If(place[-1] < c.shape[-1], (*names, Store(acc, at, value))),)


def _epilogue_vector(update: EpilogueStore, place: tuple[Expr, ...]) -> Body:
    """One vector of c."""
    c, width, dtype = update.dst.buffer, update.width, update.acc.buffer.dtype
    old = Buffer(f"{c.name}_old", dtype, Space.PRIVATE, Layout.packed(width))
    values, first, each, body = _scaled(update)
    sum_ = with_old(update, Load(values, each), Load(old, (ELEMENT,)))
    add_old: Body = (
        Alloc(old),
        VectorCopy(old, (Const(0),), c, place, update.atom, width),
        *loop(ELEMENT, width, (Store(values, each, sum_),)),
    )
    body = (*body, *unless_beta_is_zero(update, add_old))
    if update.steps:
        line, at = place[-2], place[-1] + ELEMENT
        own, before = Load(values, each), Load(c, (*place[:-1], at))
        names, value = epilogue_applied(update, own, before, *((at, line) if update.dst.transposed else (line, at)))
        body = (*body, *loop(ELEMENT, width, (*names, Store(values, each, value))))
    return (*body, VectorCopy(c, place, values, first, update.atom, width))


def _sum_of_vector(update: EpilogueStore, element: Expr) -> tuple[Expr, ...]:
    """Where the sum of an element of a vector of C is."""
    acc, width = update.acc, update.width
    return acc.at(ROW * width + element, COL) if update.dst.transposed else acc.at(ROW, COL * width + element)


def _epilogue_columns(update: EpilogueStore, named: Namer) -> Body:
    """C column by column, by vectors of neighbours in a column, where they are inside and may stand there."""
    fragment, dst, width = update.acc.fragment, update.dst, update.width
    start = named(dst.origin[-1], fragment.rows) + fragment.rows.chunk_step(ROW, width)
    line = named(dst.origin[-2], fragment.cols) + fragment.cols.step(COL)
    one = _vector_or_elements(update, (*dst.origin[:-2], line, start))
    column = If(line < dst.buffer.shape[-2], loop(ROW, fragment.rows.values // width, one))
    return loop(COL, fragment.cols.values, (column,))


def _vector_or_elements(update: EpilogueStore, place: tuple[Expr, ...]) -> Body:
    """One vector of C where it is inside and may stand there, else its elements one by one."""
    *planes, line, start = place
    at = start + ELEMENT
    old = Load(update.dst.buffer, (*planes, line, at))
    row_and_col = (at, line) if update.dst.transposed else (line, at)
    single = new_element(update, old, _sum_of_vector(update, ELEMENT), *row_and_col)
    return (If(_fits(update, start), _epilogue_vector(update, place), loop(ELEMENT, update.width, single)),)


def _fits(update: EpilogueStore, start: Expr) -> Expr:
    """Whether a vector of C from column `start` on is inside, and may stand there."""
    inside = start + update.width <= update.dst.buffer.shape[-1]
    alignment = aligned(update.atom, update.width, update.dst.buffer)
    return inside if alignment is None else both(inside, alignment)


def _dealt(buffer: Buffer, place: tuple[Expr, ...]) -> tuple[Body, tuple[Expr, ...]]:
    """A place in a block whose lines are dealt out to the groups of a cluster, behind a name for the line; any other as
    it is.
    """
    if buffer.distributed == 1:
        return (), place
    share, line = buffer.shape[-2], Var("line")
    return (Let(line, place[-2]),), (line // share, *place[1:-2], line % share, place[-1])


def new_element(update: EpilogueStore, old: Load, place: tuple[Expr, ...], row: Expr, col: Expr) -> Body:
    """Stores an element of C, the one at (row, col), where the old one is; its sum is in a place of the registers."""
    acc = update.acc.buffer
    value = blended(update, Load(acc, place), convert(old, acc.dtype))
    store = Store(old.buffer, old.index, convert(value, old.dtype))
    if not update.steps:
        return (store,)
    return once_whole(update, finished(update, store, value, row, col), (store,))


# --- sums that sub-groups hold as fragments (`joint_matrix`) ----------------------------------------

#: Where an element stands in its fragment, and which of its lane's it is.
FRAGMENT_ROW, FRAGMENT_COL, SUM = Var("r"), Var("q"), Var("sum")
#: Where it stands in C.
C_ROW, C_COL = Var("c_row"), Var("c_col")


def fill_fragments(fill: Fill) -> Body:
    """The same value for all elements."""
    return _each_element(fill.dst, lambda place: (Store(fill.dst.buffer, place, fill.value),))


def store_fragments(update: EpilogueStore) -> Body:
    """C, element by element; the tile of C begins where the sub-group's own does."""
    *planes, row, col = update.dst.origin
    rows, cols = _layout(update.acc).shape
    place = (Let(C_ROW, row + ROW * rows + FRAGMENT_ROW), Let(C_COL, col + COL * cols + FRAGMENT_COL))
    old = Load(update.dst.buffer, (*planes, C_ROW, C_COL))
    return _each_element(update.acc, lambda own: (*place, *new_element(update, old, own, C_ROW, C_COL)))


def _each_element(registers: Registers, body: Callable[[tuple[Expr, ...]], Body]) -> Body:
    """A body for each element, which is told the place of that among the registers."""
    down, across = registers.buffer.extents[:2]
    names = FRAGMENT_ROW, FRAGMENT_COL, SUM
    apply = FragmentApply(registers.buffer, (ROW, COL), _layout(registers), *names, body((ROW, COL, SUM)))
    return loop(ROW, down, loop(COL, across, (apply,)))


def _layout(registers: Registers) -> ThreadValueLayout:
    """That of a fragment."""
    if registers.opaque is None:
        raise LoweringError(f"{registers.buffer.name} is not made of fragments")
    return registers.opaque
