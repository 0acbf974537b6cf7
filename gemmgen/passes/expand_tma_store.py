"""Expand the update of C by TMA: worked out in the accumulators, staged in shared memory, stored by each warp apart.

Of each 64 rows of C that a warpgroup has, a warp has sixteen, which are the lines of a TMA tile. The warp writes them
to a slot of its own, and one of its lanes begins the store. So no warp waits for another, and what lies past C is not
stored. But whole parts of 16 bytes are: a TMA tile in which C ends within such a part goes element by element.

Of a column-major C the lines of a TMA tile are columns of the sums, sixteen elements each: they are transposed as they
are written to shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import aligned
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.elementwise import ELEMENT_COL, ELEMENT_OWN, ELEMENT_OWN_COL, ELEMENT_ROW, old
from gemmgen.ir.expr import (
    Call,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_int,
    both,
    compare,
    convert,
    is_const,
    number,
    select,
)
from gemmgen.ir.instructions import WGMMA_COLS
from gemmgen.ir.kernel import COL, ELEMENT, ROW, each_register, loop
from gemmgen.ir.operands import PART_BYTES, TMA_TILE_ROWS, staged_store
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, If, Let, Store, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import Barrier, StoreGroup
from gemmgen.ir.walk import exprs, map_body_exprs, map_expr, substitute, walk, walk_expr
from gemmgen.passes.expand_functions import epilogue_applied, scaled, unless_beta_is_zero, with_old
from gemmgen.positions import LOCAL_COL, LOCAL_INDEX, LOCAL_ROW, WARPGROUP_COL

#: Which part of a TMA tile a warp puts down.
PART = Var("p")
#: Which of the TMA tiles of C's columns is stored, and of a warpgroup's rows if it has more than 64.
BOX, TURN = Var("tma_tile"), Var("turn")
C_ROW, C_COL = Var("c_row"), Var("c_col")
#: Where a warp's lines begin, and where a lane puts down its own.
FIRST_LINE, OWN_LINE, OWN_PART = Var("first_line"), Var("own_line"), Var("own_part")
ZERO = Const(0)
WARP = 32
#: Whether a thread is its warp's first. Said in another way than in the loop along K: compilers would keep what is
#: known from there, and where there is no such loop set it apart, together with the sums' zeros; then ptxas has matrix
#: instructions wait for each other (C7515).
FIRST_OF_WARP = both(compare("==", LOCAL_COL, 0), compare("==", LOCAL_ROW % (WARP // 4), 0))
FIRST_BESIDE = both(compare("==", LOCAL_COL % 4, 0), compare("==", LOCAL_ROW % (WARP // 4), 0))
#: A pair of neighbours, as threads have them.
PAIR = 2
#: Neighbours that make a sector of the four lanes of a line, of elements of two bytes.
FOUR = 4


def store_by_tma(update: EpilogueStore, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """All of it; `row` and `col` are where a thread's part of C begins, `promises` what is known of C's columns."""
    finished = (*_scaled(update), *_with_old(update, row, col, promises), *_stepped(update, row, col, promises))
    return (*finished, *_stored(update, row, col, promises))


# --- in the accumulators --------------------------------------------------------------------------


def _scaled(update: EpilogueStore) -> Body:
    """acc = alpha * acc."""
    if is_const(update.alpha, 1.0):
        return ()
    place = update.acc.at(ROW, COL)
    scale = Store(update.acc.buffer, place, scaled(update, Load(update.acc.buffer, place)))
    return each_register(update.acc, scale)


def _with_old(update: EpilogueStore, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """acc += beta * c where beta is not zero, where it is inside: by pairs where these are neighbours in C."""
    acc, c = update.acc, update.dst.buffer
    dtype, (rows, cols) = acc.buffer.dtype, _extents(update)
    at = _at(update, C_ROW, C_COL)
    if is_const(update.beta, 0.0):
        return ()
    before = Buffer(f"{c.name}_old", dtype, Space.PRIVATE, Layout.packed(PAIR))

    def added(column: Expr, value: Expr) -> Store:
        place = acc.at(ROW, column)
        return Store(acc.buffer, place, with_old(update, Load(acc.buffer, place), value))

    if _halves_sectors(update):
        fours = _by_fours(update, row, col, Load(c, at), promises, lambda x: (added(COL * FOUR + ELEMENT, x),))
        # What one lane has read for another is read before the other stores there.
        return unless_beta_is_zero(update, (*fours, Barrier("none", of_sub_group=True)))
    pair = (
        Alloc(before),
        VectorCopy(before, (ZERO,), c, at, update.atom, PAIR),
        *loop(ELEMENT, PAIR, (added(COL * PAIR + ELEMENT, Load(before, (ELEMENT,))),)),
    )
    fragment, width = acc.fragment, update.width
    single: Body = (If(compare("<", C_COL, cols), (added(COL * width, convert(Load(c, at), dtype)),)),)
    own = single if width == 1 else (If(compare("<=", C_COL + PAIR, cols), pair, single),)
    columns = loop(COL, fragment.cols.values // width, (Let(C_COL, col + fragment.cols.chunk_step(COL, width)), *own))
    body = loop(
        ROW, fragment.rows.values, (Let(C_ROW, row + fragment.rows.step(ROW)), If(compare("<", C_ROW, rows), columns))
    )
    return unless_beta_is_zero(update, body)


def _adds_always(update: EpilogueStore) -> bool:
    """Whether C's old elements have been added without a branch, by the names that another matrix would need."""
    return isinstance(update.beta, Const) and not is_const(update.beta, 0.0)


def _halves_sectors(update: EpilogueStore) -> bool:
    """Whether what the lanes of a line read by pairs is half of a sector of 32 bytes, and there are two such halves."""
    cols, c = update.acc.fragment.cols, update.dst.buffer
    return c.dtype.size == 2 and update.width == PAIR and cols.vector == PAIR and cols.values % FOUR == 0


def _by_fours(
    update: EpilogueStore, row: Expr, col: Expr, matrix: Load, promises: Collection[Expr], use: Callable[[Expr], Body]
) -> Body:
    """A row of a matrix as C is stored, by four neighbours at a time, all of them before the first is used: of two lots
    of eight columns, even lanes of a line read the first, odd ones the second. Then they exchange halves, all lanes
    together, and each has the pairs that its sums belong to.

    Args:
        matrix: its element in row `C_ROW` and column `C_COL`.
        use: what is done with an element, of the sum in row `ROW` and column `COL * FOUR + ELEMENT`.
    """
    fragment, (rows, cols) = update.acc.fragment, _extents(update)
    source, at, count = matrix.buffer, matrix.index, update.acc.fragment.cols.values // FOUR
    name = f"{source.name}_{'old' if source == update.dst.buffer else 'values'}"
    held = Buffer(name, source.dtype, Space.PRIVATE, Layout.packed(count, FOUR))
    low, received, first_col = Var("is_low", BOOL), Var("received", source.dtype), Var("first_col")
    # An odd lane's four begin where those of the even lane before it do, eight columns on.
    own = Let(low, compare("==", LOCAL_COL % 2, 0)), Let(first_col, col + LOCAL_COL % 2 * (WGMMA_COLS - PAIR))
    column = Let(C_COL, first_col + fragment.cols.chunk_step(COL * 2, PAIR))
    wide = VectorCopy(held, (COL, ZERO), source, at, update.atom, FOUR)
    single = Store(held, (COL, ELEMENT), Load(source, (*at[:-1], C_COL + ELEMENT)))
    singly = loop(ELEMENT, FOUR, (If(both(compare("<", C_ROW, rows), compare("<", C_COL + ELEMENT, cols)), (single,)),))
    inside = both(compare("<", C_ROW, rows), compare("<=", C_COL + FOUR, cols))
    read: Body = loop(COL, count, (column, If(inside, (wide,))))
    may, whole = aligned(update.atom, FOUR, source), [compare("==", cols % x, 0) for x in (FOUR, FOUR * 2)]
    even = any(x in promises or is_const(x, 1) for x in whole)
    asked = [*(() if even else whole[:1]), *(() if may is None else (may,))]
    if source != update.dst.buffer:  # which the launcher asks for
        first_of_all = Load(source, (*at[:-2], ZERO, ZERO))
        asked.append(Call("begins_on", (first_of_all, Const(FOUR * source.dtype.size)), BOOL))
    if asked:
        read = (If(all_of(tuple(asked)), read, loop(COL, count, (column, *singly))),)
    first, second = Load(held, (COL, ELEMENT)), Load(held, (COL, ELEMENT + PAIR))
    exchange = (
        Let(received, Call("shuffle_xor", (select(low, second, first), Const(1)), source.dtype)),
        Store(held, (COL, ELEMENT), select(low, first, received)),
        Store(held, (COL, ELEMENT + PAIR), select(low, received, second)),
    )
    used = loop(ELEMENT, FOUR, use(convert(Load(held, (COL, ELEMENT)), update.acc.buffer.dtype)))
    each = (
        Let(C_ROW, row + fragment.rows.step(ROW)),
        Alloc(held),
        *loop(COL, count, loop(ELEMENT, FOUR, (Store(held, (COL, ELEMENT), number(0, source.dtype)),))),
        *read,
        *loop(COL, count, (*loop(ELEMENT, PAIR, exchange), *used)),
    )
    return (*own, *loop(ROW, fragment.rows.values, each))


def _stepped(update: EpilogueStore, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """The functions on each element; what they read is read where the element is inside."""
    if not update.steps:
        return ()
    matrix, c = _matrix_of(update), update.dst.buffer
    if matrix is not None and _halves_sectors(update) and not _adds_always(update):
        at = (*matrix.index[:-2], C_ROW, C_COL)

        def use(value: Expr) -> Body:
            known = convert(matrix, value.dtype)
            column = COL * FOUR + ELEMENT
            steps = tuple(
                replace(x, value=map_expr(x.value, lambda node: value if node == known else node)) for x in update.steps
            )
            given, finished = _by_column(replace(update, steps=steps), column)
            return (*given, *_finished(finished, update.acc.at(ROW, column), Load(c, ())))

        return _by_fours(update, row, col, Load(matrix.buffer, at), promises, use)
    given, update = _by_column(update, COL)
    fragment = update.acc.fragment
    body = _finished(update, update.acc.at(ROW, COL), Load(c, _at(update, C_ROW, C_COL)))
    if any(isinstance(node, Load) and node.buffer.space is not Space.PRIVATE for node in _nodes(body)):
        rows, cols = _extents(update)
        body = (If(all_of((compare("<", C_ROW, rows), compare("<", C_COL, cols))), body),)
    places = {C_ROW: row + fragment.rows.step(ROW), C_COL: col + fragment.cols.step(COL)}
    own_row, own_col = ((Let(name, value),) if name in _nodes(body) else () for name, value in places.items())
    if given:
        of_rows = loop(ROW, fragment.rows.values, (*own_row, *body))
        return loop(COL, fragment.cols.values, (*own_col, *given, *of_rows))
    return loop(ROW, fragment.rows.values, (*own_row, *loop(COL, fragment.cols.values, (*own_col, *body))))


def _finished(update: EpilogueStore, place: tuple[Expr, ...], before: Load) -> Body:
    """A sum after all functions, in its place; `before` is the element as it is in C."""
    names, value = epilogue_applied(update, Load(update.acc.buffer, place), before, C_ROW, C_COL)
    return (*names, Store(update.acc.buffer, place, value))


def _matrix_of(update: EpilogueStore) -> Load | None:
    """The matrix that the functions read, where they read one as C is stored, and ask for nothing else at a place."""
    read = {node for step in update.steps for node in walk_expr(step.value) if isinstance(node, Load)}
    matrices = [node for node in read if node.buffer.space is not Space.PRIVATE]
    if len(matrices) != 1 or matrices[0].index[-2:] != (ELEMENT_ROW, ELEMENT_COL):
        return None
    (matrix,) = matrices
    others = (map_expr(x.value, lambda n: number(0, n.dtype) if n == matrix else n) for x in update.steps)
    asked = {node for value in others for node in walk_expr(value)}
    return matrix if asked.isdisjoint((old(update.acc.buffer.dtype), ELEMENT_ROW, ELEMENT_COL)) else None


def _by_column(update: EpilogueStore, column: Expr) -> tuple[Body, EpilogueStore]:
    """Names for what other lanes give of a column, all lanes together, and the functions by these names."""
    values = [map_expr(step.value, substitute({ELEMENT_OWN: ROW, ELEMENT_OWN_COL: column})) for step in update.steps]
    names = dict[Expr, Var]()
    for node in (node for value in values for node in walk_expr(value)):
        given = node.args[0] if isinstance(node, Call) and node.function == "convert" else node
        match given:
            case Call("shuffle", (Load(held), _)):
                name = f"col_{held.name.removeprefix('lane_')}"
                if not any(name == known.name for known in names.values()):  # else what is converted there
                    names[node] = Var(name, node.dtype)
    values = [map_expr(value, lambda node: names.get(node, node)) for value in values]
    steps = tuple(replace(step, value=value) for step, value in zip(update.steps, values, strict=True))
    return tuple(Let(name, node) for node, name in names.items()), replace(update, steps=steps)


def _nodes(body: Body) -> set[Expr]:
    """All that expressions of a body are made of."""
    return {node for stmt in walk(body) for root in exprs(stmt) for node in walk_expr(root)}


# --- by way of local memory -----------------------------------------------------------------------


def _stored(update: EpilogueStore, row: Expr, col: Expr, promises: Collection[Expr]) -> Body:
    """One TMA tile after the other, each in the next slot, which must have been read before it is written again."""
    via, c = update.via, update.dst.buffer
    if via is None or c.tma_tile is None:
        raise LoweringError(f"{c.name} is not stored by TMA")
    (boxes, left), turns = divmod(_own_cols(update), _tma_tile_cols(update)), update.acc.fragment.rows.values // 2
    slots, of_turn = as_int(via.shape[0]) or 1, boxes + (left > 0)
    free: Body = ()
    if of_turn * turns > slots:
        say = Comment("Wait until an earlier TMA store has read this stage.")
        free = (say, StoreGroup("wait", slots - 1), Barrier(of_sub_group=True))

    def box(length: int) -> Body:
        stored: Body = (*free, *_one_tma_tile(update, via, (TURN * of_turn + BOX) % slots, length))
        if (ragged := _ragged(update, promises, length)) is not None:
            say = Comment(f"TMA stores at least {PART_BYTES} bytes: the ragged end of C goes element by element.")
            stored = (If(ragged, (say, *_singly(update, row, col, length)), stored),)
        # Each box counts as a group, stored so or not: the waits go by that.
        return (*stored, StoreGroup("commit"))

    own, part = _own(update, staged_store(via.dtype, update.dst.transposed)[0].matrices is not None)
    names: Body = (Let(FIRST_LINE, LOCAL_INDEX // WARP * c.tma_tile[0]), Let(OWN_LINE, own), Let(OWN_PART, part))
    say = Comment("Each warp stores its rows of C by TMA, one box after the other.")
    last = map_body_exprs(box(left), substitute({BOX: Const(boxes)})) if left else ()
    return (say, *names, *loop(TURN, turns, (*loop(BOX, boxes, box(_tma_tile_cols(update))), *last)))


def _at(update: EpilogueStore, row: Expr, col: Expr) -> tuple[Expr, ...]:
    """Where an element of C is stored."""
    return (*update.dst.origin[:-2], *((col, row) if update.dst.transposed else (row, col)))


def _extents(update: EpilogueStore) -> tuple[Expr, Expr]:
    """C's rows and columns."""
    slow, fast = update.dst.buffer.shape[-2:]
    return (fast, slow) if update.dst.transposed else (slow, fast)


def _tma_tile_cols(update: EpilogueStore) -> int:
    """Columns of a TMA tile."""
    lines, length = update.dst.buffer.tma_tile or (0, 0)
    return lines if update.dst.transposed else length


def _beside(update: EpilogueStore) -> bool:
    """Whether warpgroups lie beside one another, too."""
    return _own_cols(update) < update.dst.cols


def _own_cols(update: EpilogueStore) -> int:
    """Columns of a block that a warpgroup has."""
    return update.acc.fragment.cols.values * 4


def _first_row(update: EpilogueStore) -> Expr:
    """Of C's rows, where those of a warp begin: with its lines, or where these are columns, or others of the same rows
    have lines of their own, by its threads.
    """
    begin, all_rows = update.dst.origin[-1 if update.dst.transposed else -2], update.acc.fragment.rows.lanes * 2
    by_lines = not (update.dst.transposed or _beside(update))
    return begin + TURN * all_rows + (FIRST_LINE if by_lines else LOCAL_ROW // (WARP // 4) * TMA_TILE_ROWS)


def _first_col(update: EpilogueStore) -> Expr:
    """Where a warpgroup's columns begin."""
    col = update.dst.origin[-2 if update.dst.transposed else -1]
    return col + WARPGROUP_COL * _own_cols(update) if _beside(update) else col


def _one_tma_tile(update: EpilogueStore, via: Buffer, slot: Expr, length: int) -> Body:
    """Put down in a slot, and its store begun; of `length` columns, the last one's fewer than others have."""
    acc, c, transposed, cols = update.acc, update.dst.buffer, update.dst.transposed, _tma_tile_cols(update)
    atom, width = staged_store(via.dtype, transposed)
    at_once = atom.matrices is not None
    # Of both rows a lane has as many, or has them one after the other.
    values = width // 2 if at_once else width
    wide = values * 4

    def put(part: Expr, width: int) -> Body:
        at = acc.at(TURN * 2 + (ZERO if at_once else ROW), BOX * (cols // 4) + part * values)
        row, col = ZERO if at_once else _apart(update, ROW), part * wide
        down, on = (col, row) if transposed else (row, col)
        moved = (VectorCopy(via, (slot, OWN_LINE + down, OWN_PART + on), acc.buffer, at, atom, width),)
        return moved if at_once else loop(ROW, 2, moved)

    # The last eight columns are half of what four matrices have.
    parts, left = divmod(length, wide)
    rest = put(Const(parts), width // 2) if left else ()
    to = _at(update, _first_row(update), _first_col(update) + BOX * cols)
    c = replace(c, tma_tile=(length, TMA_TILE_ROWS) if transposed else (TMA_TILE_ROWS, length))
    return (
        *loop(PART, parts, put(PART, width)),
        *rest,
        StoreGroup("fence"),
        Barrier(of_sub_group=True),
        If(FIRST_BESIDE if _beside(update) else FIRST_OF_WARP, (TmaCopy(c, to, via, (slot, FIRST_LINE, ZERO)),)),
    )


def _ragged(update: EpilogueStore, promises: Collection[Expr], length: int) -> Expr | None:
    """Whether C ends inside a TMA tile of so many columns within the least that a store writes; None for never."""
    c = update.dst.buffer
    unit, end = PART_BYTES // c.dtype.size, c.shape[-1]
    whole = compare("==", end % unit, 0)
    if whole in promises or is_const(whole, 1):
        return None
    if update.dst.transposed:
        return both(compare("!=", end % unit, 0), end < _first_row(update) + TMA_TILE_ROWS)
    return both(compare("!=", end % unit, 0), end < _first_col(update) + BOX * _tma_tile_cols(update) + length)


def _singly(update: EpilogueStore, row: Expr, col: Expr, length: int) -> Body:
    """A TMA tile from registers, element by element."""
    acc, c = update.acc, update.dst.buffer
    rows, cols = acc.fragment.rows.lanes * 2, _tma_tile_cols(update)
    own_row = row + TURN * rows + _apart(update, ROW)
    own_col = col + BOX * cols + acc.fragment.cols.step(COL)
    value = Load(acc.buffer, acc.at(TURN * 2 + ROW, BOX * (cols // 4) + COL))
    stored = Store(c, _at(update, C_ROW, C_COL), convert(value, c.dtype))
    columns = loop(COL, length // 4, (Let(C_COL, own_col), stored))
    return loop(ROW, 2, (Let(C_ROW, own_row), *columns))


def _paired(update: EpilogueStore) -> bool:
    """Whether a lane's two rows of a TMA tile lie side by side, not eight apart."""
    return update.acc.fragment.rows.vector == PAIR


def _apart(update: EpilogueStore, row: Expr) -> Expr:
    """How far the first of them, or the second, is from the first."""
    return row if _paired(update) else row * (TMA_TILE_ROWS // 2)


def _own(update: EpilogueStore, by_matrices: bool) -> tuple[Expr, Expr]:
    """The line and the element where a lane's first part goes: for all of its warp where that puts down matrices, whose
    lines lanes name for each other; else where its own first pair goes.
    """
    paired, transposed = _paired(update), update.dst.transposed
    if by_matrices and transposed:
        line = LOCAL_INDEX % WARP // TMA_TILE_ROWS * WGMMA_COLS + LOCAL_INDEX % WGMMA_COLS
        return FIRST_LINE + line, LOCAL_INDEX // WGMMA_COLS % 2 * WGMMA_COLS
    if by_matrices:
        line = LOCAL_INDEX % 8 * 2 + LOCAL_INDEX // 8 % 2 if paired else LOCAL_INDEX % TMA_TILE_ROWS
        return FIRST_LINE + line, LOCAL_INDEX % WARP // TMA_TILE_ROWS * WGMMA_COLS
    row, col = LOCAL_INDEX % WARP // 4 * (2 if paired else 1), LOCAL_INDEX % 4 * PAIR
    return (FIRST_LINE + col, row) if transposed else (FIRST_LINE + row, col)
