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
from gemmgen.ir.dtypes import BOOL, DType
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
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, If, Let, Stmt, Store, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import Barrier, StoreGroup
from gemmgen.ir.walk import map_body_exprs, map_expr, nodes, substitute, walk_expr
from gemmgen.passes.expand_functions import epilogue_applied, scaled, unless_beta_is_zero, with_old
from gemmgen.positions import LOCAL_COL, LOCAL_INDEX, LOCAL_ROW, WARPGROUP_COL
from gemmgen.records import dataclass

#: Which part of a TMA tile a warp puts down.
PART = Var("p")
#: Which of the TMA tiles of C's columns is stored, and of a warpgroup's rows if it has more than 64.
BOX, TURN = Var("tma_tile"), Var("turn")
C_ROW, C_COL = Var("c_row"), Var("c_col")
#: Which lots of eight columns a lane reads four neighbours of, and from where on; where it reads the last pair.
LOW, FIRST_COL, END_COL = Var("is_low", BOOL), Var("first_col"), Var("end_col")
#: Which part of a row is read at once.
LOT = Var("lot")
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
#: Registers beside a thread's sums that hold what is read ahead.
HELD = 32


def store_by_tma(update: EpilogueStore, row: Expr, col: Expr, assumptions: Collection[Expr]) -> Body:
    """All of it; `row` and `col` are where a thread's part of C begins, `assumptions` what is known of C's columns."""
    finished = (*_scaled(update), *_with_old(update, row, col, assumptions), *_stepped(update, row, col, assumptions))
    return (*finished, *_stored(update, row, col, assumptions))


# --- in the accumulators --------------------------------------------------------------------------


def _scaled(update: EpilogueStore) -> Body:
    """acc = alpha * acc."""
    if is_const(update.alpha, 1.0):
        return ()
    place = update.acc.at(ROW, COL)
    scale = Store(update.acc.buffer, place, scaled(update, Load(update.acc.buffer, place)))
    return each_register(update.acc, scale)


def _with_old(update: EpilogueStore, row: Expr, col: Expr, assumptions: Collection[Expr]) -> Body:
    """acc += beta * c where beta is not zero, where it is inside."""
    acc, c = update.acc, update.dst.buffer
    dtype, (rows, cols) = acc.buffer.dtype, _extents(update)
    before = Load(c, _at(update, C_ROW, C_COL))
    if is_const(update.beta, 0.0):
        return ()

    def added(column: Expr, value: Expr) -> Body:
        place = acc.at(ROW, column)
        return (Store(acc.buffer, place, with_old(update, Load(acc.buffer, place), value)),)

    if _has_pairs(update):
        ahead, vectors = _read_ahead(update, row, col, before, assumptions, added), _vectors(update, col, c)
        # What one lane has read for another is read before the other stores there.
        meet = (Barrier("none", of_sub_group=True),) if any(x.is_exchanged for x in vectors) else ()
        return unless_beta_is_zero(update, (*ahead, *meet))
    fragment = acc.fragment
    single = If(compare("<", C_COL, cols), added(COL, convert(before, dtype)))
    columns = loop(COL, fragment.cols.values, (Let(C_COL, col + fragment.cols.step(COL)), single))
    body = loop(
        ROW, fragment.rows.values, (Let(C_ROW, row + fragment.rows.step(ROW)), If(compare("<", C_ROW, rows), columns))
    )
    return unless_beta_is_zero(update, body)


def _adds_always(update: EpilogueStore) -> bool:
    """Whether C's old elements have been added without a branch, by the names that another matrix would need."""
    return isinstance(update.beta, Const) and not is_const(update.beta, 0.0)


def _has_pairs(update: EpilogueStore) -> bool:
    """Whether a thread's neighbours are neighbours in C, and not of single bytes."""
    return update.dst.buffer.dtype.size > 1 and update.width == PAIR and update.acc.fragment.cols.vector == PAIR


@dataclass(frozen=True)
class _Vectors:
    """What a thread reads of a row of a matrix as C is stored, before it uses any of it.

    Attributes:
        held: its registers.
        name: of a vector's column.
        column: that of vector `COL`.
        first: the sum's column that the first element belongs to.
        lots: how often it reads as many, one lot after the other.
    """

    held: Buffer
    name: Var
    column: Expr
    first: Expr
    lots: int = 1

    @property
    def count(self) -> int:
        """Vectors."""
        return as_int(self.held.shape[0]) or 1

    @property
    def width(self) -> int:
        """Elements of one."""
        return as_int(self.held.shape[1]) or 1

    @property
    def is_exchanged(self) -> bool:
        """Whether a lane reads what another has the sums of."""
        return self.width == FOUR

    def clear(self) -> Body:
        """Zeros, for what lies outside."""
        zero = Store(self.held, (COL, ELEMENT), number(0, self.held.dtype))
        return (Alloc(self.held), *loop(COL, self.count, loop(ELEMENT, self.width, (zero,))))

    def read(self, update: EpilogueStore, matrix: Load, whole: bool) -> Body:
        """Fills them, by whole vectors or by single elements, where these are inside."""
        (rows, cols), source, held = _extents(update), matrix.buffer, self.held
        *line, _ = matrix.index
        end = self.name + (self.width if whole else ELEMENT)
        inside = both(compare("<", C_ROW, rows), compare("<=" if whole else "<", end, cols))
        wide = VectorCopy(held, (COL, ZERO), source, (*line, self.name), update.atom, self.width)
        single = Store(held, (COL, ELEMENT), Load(source, (*line, end)))
        own: Body = (If(inside, (wide if whole else single,)),)
        own = own if whole else loop(ELEMENT, self.width, own)
        return loop(COL, self.count, (Let(self.name, self.column), *own))

    def use(self, how: Callable[[Expr, Expr], Body], dtype: DType) -> Body:
        """What is done with each element, of which sum."""
        own = how(self.first + COL * self.width + ELEMENT, convert(Load(self.held, (COL, ELEMENT)), dtype))
        return loop(ELEMENT, self.width, own)


def _vectors(update: EpilogueStore, col: Expr, source: Buffer) -> list[_Vectors]:
    """By pairs; where these are half of a sector of 32 bytes that the lanes of a line read, by four neighbours: of two
    lots of eight columns, even lanes of a line read the first, odd ones the second.
    """
    cols = update.acc.fragment.cols
    fours = cols.values // FOUR if source.dtype.size == PAIR else 0
    pairs = (cols.values - fours * FOUR) // PAIR if fours else cols.values // PAIR
    lots = next(x for x in range(1, max(2, pairs + 1)) if pairs % x == 0 and pairs * PAIR <= x * HELD)
    of_fours, of_pairs = ("old", "old_end") if source == update.dst.buffer else ("values", "end")
    found = list[_Vectors]()
    if fours:
        held = Buffer(f"{source.name}_{of_fours}", source.dtype, Space.PRIVATE, Layout.packed(fours, FOUR))
        found.append(_Vectors(held, C_COL, FIRST_COL + cols.chunk_step(COL * 2, PAIR), ZERO))
    if pairs:
        name = f"{source.name}_{of_pairs if fours else of_fours}"
        own = pairs // lots
        held = Buffer(name, source.dtype, Space.PRIVATE, Layout.packed(own, PAIR))
        before: Expr = LOT * own if lots > 1 else Const(fours * 2)
        column = col + cols.chunk_step(COL + before, PAIR)
        found.append(_Vectors(held, END_COL if fours else C_COL, column, before * PAIR, lots))
    return found


def _read_ahead(
    update: EpilogueStore,
    row: Expr,
    col: Expr,
    matrix: Load,
    assumptions: Collection[Expr],
    use: Callable[[Expr, Expr], Body],
) -> Body:
    """A row of a matrix as C is stored, all of it before the first element is used.

    Args:
        matrix: its element in row `C_ROW` and column `C_COL`.
        use: what is done with an element of the sum in row `ROW` and a column.
    """
    rows, source, dtype = update.acc.fragment.rows, matrix.buffer, update.acc.buffer.dtype
    vectors = _vectors(update, col, source)
    width = vectors[0].width
    read = tuple(stmt for each in vectors for stmt in each.read(update, matrix, True))
    cols, may = _extents(update)[1], aligned(update.atom, width, source)
    whole = [compare("==", cols % x, 0) for x in (PAIR, FOUR, FOUR * 2) if x >= width]
    asked = [
        *(() if any(x in assumptions or is_const(x, 1) for x in whole) else whole[:1]),
        *(() if may is None else (may,)),
    ]
    if source != update.dst.buffer:  # which the launcher asks for
        first_of_all = Load(source, (*matrix.index[:-2], ZERO, ZERO))
        asked.append(Call("begins_on", (first_of_all, Const(width * source.dtype.size)), BOOL))
    if asked:
        singly = tuple(stmt for each in vectors for stmt in each.read(update, matrix, False))
        read = (If(all_of(tuple(asked)), read, singly),)
    cleared = tuple(stmt for each in vectors for stmt in each.clear())
    own, used = list[Stmt](), list[Stmt]()
    for each in vectors:
        exchanged: Body = ()
        if each.is_exchanged:
            # An odd lane's four begin where those of the even lane before it do, eight columns on.
            own += Let(LOW, compare("==", LOCAL_COL % 2, 0)), Let(FIRST_COL, col + LOCAL_COL % 2 * (WGMMA_COLS - PAIR))
            exchanged = loop(ELEMENT, PAIR, _exchange(each.held))
        used += loop(COL, each.count, (*exchanged, *each.use(use, dtype)))
    each_row = (Let(C_ROW, row + rows.step(ROW)), *loop(LOT, vectors[0].lots, (*cleared, *read, *used)))
    return (*own, *loop(ROW, rows.values, each_row))


def _exchange(held: Buffer) -> Body:
    """Lanes exchange halves, all lanes together, and each has the pairs that its sums belong to."""
    received = Var("received", held.dtype)
    first, second = Load(held, (COL, ELEMENT)), Load(held, (COL, ELEMENT + PAIR))
    return (
        Let(received, Call("shuffle_xor", (select(LOW, second, first), Const(1)), held.dtype)),
        Store(held, (COL, ELEMENT), select(LOW, first, received)),
        Store(held, (COL, ELEMENT + PAIR), select(LOW, received, second)),
    )


def _stepped(update: EpilogueStore, row: Expr, col: Expr, assumptions: Collection[Expr]) -> Body:
    """The functions on each element; what they read is read where the element is inside."""
    if not update.steps:
        return ()
    matrix, c = _matrix_of(update), update.dst.buffer
    if matrix is not None and _has_pairs(update) and not _adds_always(update):
        at = (*matrix.index[:-2], C_ROW, C_COL)

        def use(column: Expr, value: Expr) -> Body:
            known = convert(matrix, value.dtype)
            steps = tuple(
                replace(x, value=map_expr(x.value, lambda node: value if node == known else node)) for x in update.steps
            )
            given, finished = _by_column(replace(update, steps=steps), column)
            return (*given, *_finished(finished, update.acc.at(ROW, column), Load(c, ())))

        return _read_ahead(update, row, col, Load(matrix.buffer, at), assumptions, use)
    given, update = _by_column(update, COL)
    fragment = update.acc.fragment
    body = _finished(update, update.acc.at(ROW, COL), Load(c, _at(update, C_ROW, C_COL)))
    if any(isinstance(node, Load) and node.buffer.space is not Space.PRIVATE for node in nodes(body)):
        rows, cols = _extents(update)
        body = (If(all_of((compare("<", C_ROW, rows), compare("<", C_COL, cols))), body),)
    places = {C_ROW: row + fragment.rows.step(ROW), C_COL: col + fragment.cols.step(COL)}
    own_row, own_col = ((Let(name, value),) if name in nodes(body) else () for name, value in places.items())
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


# --- by way of local memory -----------------------------------------------------------------------


def _stored(update: EpilogueStore, row: Expr, col: Expr, assumptions: Collection[Expr]) -> Body:
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
        if (ragged := _ragged(update, assumptions, length)) is not None:
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


def _ragged(update: EpilogueStore, assumptions: Collection[Expr], length: int) -> Expr | None:
    """Whether C ends inside a TMA tile of so many columns within the least that a store writes; None for never."""
    c = update.dst.buffer
    unit, end = PART_BYTES // c.dtype.size, c.shape[-1]
    whole = compare("==", end % unit, 0)
    if whole in assumptions or is_const(whole, 1):
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
