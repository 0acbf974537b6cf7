"""Expand tiles: every statement on a tile becomes loops of single instructions.

Coordinates stay logical (row and column of a matrix), so that `predicate` can guard them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import IMAGE_BLOCK_READ, MmaAtom, Spread, aligned
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, both, compare, convert, is_const, number, select
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Copy,
    Fill,
    For,
    If,
    Let,
    Mma,
    Move,
    Registers,
    Stage,
    Stmt,
    Store,
    Sum,
    TileMma,
    Update,
)
from gemmgen.ir.walk import map_body, walk, walk_expr
from gemmgen.ir.warp_matrix import WarpAtom
from gemmgen.passes.box_stores import update_by_boxes
from gemmgen.passes.epilogue import applied, finished, once_whole
from gemmgen.passes.lanes import fill_vectors, multiply_vectors, update_vectors
from gemmgen.passes.loops import loop
from gemmgen.passes.multiply_adds import multiply_adds
from gemmgen.passes.positions import COL0, LOCAL_INDEX, SUM_ROW
from gemmgen.passes.prologue import copied, staged
from gemmgen.passes.warp_tiles import load_lines, multiply_by_warp
from gemmgen.passes.warpgroup_operands import load_operand
from gemmgen.passes.warpgroup_tiles import copy_boxes, multiply_by_warpgroups

PLANE = Var("s")
#: Sums of up to this many planes are unrolled, to have many loads under way.
MOST_PLANES = 128
ROW, COL, DEPTH, ELEMENT = Var("i"), Var("j"), Var("p"), Var("e")


def expand(kernel: Kernel) -> Kernel:
    """The kernel in statements on instructions."""
    expander = _Expander(kernel)
    body = map_body(kernel.body, expander.statement)
    lead = next((i for i, s in enumerate(kernel.body) if not isinstance(s, Let)), len(kernel.body))
    return replace(kernel, body=(*body[:lead], *expander.hoisted, *body[lead:]))


@dataclass
class _Expander:
    """Expands statement by statement; `hoisted` collects names that belong at the kernel's top."""

    kernel: Kernel
    hoisted: list[Let] = field(default_factory=list)

    def statement(self, stmt: Stmt) -> Body:
        """One statement as instructions."""
        match stmt:
            case Fill() if stmt.dst.buffer.vector > 1:
                return fill_vectors(stmt)
            case Mma(atom=MmaAtom() as atom) if stmt.acc.buffer.vector > 1:
                return multiply_vectors(stmt, atom)
            case Update() if stmt.acc.buffer.vector > 1:
                return update_vectors(stmt)
            case Fill():
                return self._each(stmt.dst, Store(stmt.dst.buffer, stmt.dst.at(ROW, COL), stmt.value))
            case Copy() if stmt.src.buffer.layout.swizzle:
                return load_operand(stmt, self._hoist)
            case Copy():
                return self._copy(stmt)
            case Stage() if stmt.tells is not None:
                return copy_boxes(stmt)
            case Stage():
                return self._stage(stmt)
            case TileMma():
                return multiply_by_warpgroups(stmt)
            case Mma(atom=WarpAtom() as atom):
                return multiply_by_warp(stmt, atom)
            case Mma(atom=MmaAtom() as atom):
                return multiply_adds(stmt, atom)
            case Sum():
                return self._sum(stmt)
            case Update():
                return self._update(stmt)
        return (stmt,)

    def _each(self, tile: Registers, *body: Stmt) -> Body:
        """`body` for each register of a tile, rows outermost."""
        fragment = tile.fragment
        return loop(ROW, fragment.rows.values, loop(COL, fragment.cols.values, body))

    def _named(self, origin: Expr, spread: Spread) -> Expr:
        """The first element that a lane owns, by its name where the kernel has one for it."""
        start = origin + spread.start
        for stmt in walk(self.kernel.body):
            if isinstance(stmt, Let) and stmt.value == start:
                return stmt.var
        return start

    def _copy(self, copy: Copy) -> Body:
        """Fill a fragment: loops over the slow and the fast axis of the source."""
        if copy.atom.matrices is not None:
            return load_lines(copy, self._hoist)
        fragment, src, width = copy.dst.fragment, copy.src, copy.width
        slow, fast = (fragment.cols, fragment.rows) if src.transposed else (fragment.rows, fragment.cols)
        slow_var, fast_var = (COL, ROW) if src.transposed else (ROW, COL)
        along_slow = copy.atom is IMAGE_BLOCK_READ
        slow_width, fast_width = (width, 1) if along_slow else (1, width)
        # A block read starts at the first lane's element; other loads at the lane's own.
        fast_start = src.origin[-1] if copy.atom.lane_step[1] else self._named(src.origin[-1], fast)
        slow_start = self._named(src.origin[-2], slow)
        place = (
            slow_start + slow.chunk_step(slow_var, slow_width),
            fast_start + fast.chunk_step(fast_var, fast_width),
        )
        values = {slow_var: slow_var * slow_width, fast_var: fast_var * fast_width}
        at = copy.dst.at(values[ROW], values[COL])
        move = Move(copy.dst.buffer, at, src.buffer, (*src.origin[:-2], *place), copy.atom, width, ahead=copy.ahead)
        rounds = {slow_var: slow.values // slow_width, fast_var: fast.values // fast_width}
        outer, inner = (fast_var, slow_var) if along_slow else (slow_var, fast_var)
        load = (move,) if copy.prologue is None else copied(copy.prologue, move)
        return loop(outer, rounds[outer], loop(inner, rounds[inner], load))

    def _update(self, update: Update) -> Body:
        """C, element by element."""
        fragment, dst = update.acc.fragment, update.dst
        slow, fast = dst.origin[:-3:-1] if dst.transposed else dst.origin[-2:]
        row = self._named(slow, fragment.rows) + fragment.rows.step(ROW)
        col = self._named(fast, fragment.cols) + fragment.cols.step(COL)
        # A row of many parts stands in each access of its columns: it gets a name. It may be a column, put down so.
        several = fragment.rows.lanes > 1 and 1 < fragment.rows.run < fragment.rows.values
        # Rows of warpgroups lie so that they are long to say; lines that a cluster shares have a name already.
        local = dst.buffer.space is Space.LOCAL
        long = local and fragment.rows.turns > 1 and (dst.transposed or dst.buffer.spread == 1)
        many = several or long or SUM_ROW in walk_expr(row)
        named = Var(f"{dst.buffer.name}_{'col' if COL0 in walk_expr(slow) or (local and dst.transposed) else 'row'}")
        names: Body = (Let(named, row),) if many else ()
        row = named if many else row
        place = (*dst.origin[:-2], *((col, row) if dst.transposed else (row, col)))
        if update.via is not None:
            own = self._named(slow, fragment.rows), self._named(fast, fragment.cols)
            return update_by_boxes(update, *own, self.kernel.promises)
        if update.atom.adds:
            return self._add(update, names, row)
        if update.width > 1:
            return self._update_columns(update) if dst.transposed else self._update_vectors(update, names, row)
        dealt, place = _dealt(dst.buffer, place)
        element = (*dealt, *_new_element(update, Load(dst.buffer, place), update.acc.at(ROW, COL), row, col))
        return loop(ROW, fragment.rows.values, (*names, *loop(COL, fragment.cols.values, element)))

    def _add(self, update: Update, names: Body, line: Expr) -> Body:
        """alpha * acc added to C: by vectors where they are inside and may stand there, else one by one."""
        dst, width = update.dst, update.width
        spread = update.acc.fragment.cols
        start = self._named(dst.origin[-1], spread) + spread.chunk_step(COL, width)
        values, first, each, scaled = self._scaled(update)
        move = Move(dst.buffer, (line, start), values, first, update.atom, width)
        single = replace(move, dst_index=(line, start + ELEMENT), src_index=each, width=1)
        add: Body = (If(_fits(update, start), (move,), loop(ELEMENT, width, (single,))),) if width > 1 else (move,)
        columns = loop(COL, spread.values // width, (*scaled, *add))
        return loop(ROW, update.acc.fragment.rows.values, (*names, If(line < dst.buffer.shape[-2], columns)))

    def _scaled(self, update: Update) -> tuple[Buffer, tuple[Expr, ...], tuple[Expr, ...], Body]:
        """alpha * acc for one vector, its first and each of its elements: in registers of its own, so that accumulators
        may lie in any, but where the sums are if they are such vectors already.
        """
        c, acc, width = update.dst.buffer, update.acc, update.width
        first, each = (self._sum_of_vector(update, e) for e in (Const(0), ELEMENT))
        if is_const(update.alpha, 1.0) and acc.fragment.cols.values == width and not update.dst.transposed:
            return acc.buffer, first, each, ()
        values = Buffer(f"{c.name}_values", acc.buffer.dtype, Space.PRIVATE, Layout.packed(width))
        sum_ = Load(acc.buffer, each)
        scaled = sum_ if is_const(update.alpha, 1.0) else Bin("*", update.alpha, sum_)
        return (
            values,
            (Const(0),),
            (ELEMENT,),
            (Alloc(values), *loop(ELEMENT, width, (Store(values, (ELEMENT,), scaled),))),
        )

    def _update_vectors(self, update: Update, names: Body, line: Expr) -> Body:
        """The same by vectors of neighbours, where they are inside and may stand there."""
        dst, width = update.dst, update.width
        spread = update.acc.fragment.cols
        start = self._named(dst.origin[-1], spread) + spread.chunk_step(COL, width)
        planes = dst.origin[:-2]
        if dst.buffer.space is Space.LOCAL:
            dealt, at = _dealt(dst.buffer, (*planes, line, start))
            columns = loop(COL, spread.values // width, self._update_vector(update, at))
            return loop(ROW, update.acc.fragment.rows.values, (*names, *dealt, *columns))
        place = (*planes, line, start + ELEMENT)
        sum_ = self._sum_of_vector(update, ELEMENT)
        single = _new_element(update, Load(dst.buffer, place), sum_, line, start + ELEMENT)
        column = If(
            _fits(update, start),
            self._update_vector(update, (*planes, line, start)),
            loop(ELEMENT, width, single),
        )
        row = (*names, If(line < dst.buffer.shape[-2], loop(COL, spread.values // width, (column,))))
        return loop(ROW, update.acc.fragment.rows.values, row)

    def _update_vector(self, update: Update, place: tuple[Expr, ...]) -> Body:
        """One vector of c."""
        c, width, dtype = update.dst.buffer, update.width, update.acc.buffer.dtype
        old = Buffer(f"{c.name}_old", dtype, Space.PRIVATE, Layout.packed(width))
        values, first, each, body = self._scaled(update)
        if not is_const(update.beta, 0.0):
            sum_ = Call("fma", (update.beta, Load(old, (ELEMENT,)), Load(values, each)), dtype)
            add_old: Body = (
                Alloc(old),
                Move(old, (Const(0),), c, place, update.atom, width),
                *loop(ELEMENT, width, (Store(values, each, sum_),)),
            )
            always = isinstance(update.beta, Const)
            body = (*body, *add_old) if always else (*body, If(compare("!=", update.beta, number(0, dtype)), add_old))
        if update.steps:
            line, at = place[-2], place[-1] + ELEMENT
            own, before = Load(values, each), Load(c, (*place[:-1], at))
            names, value = applied(update, own, before, *((at, line) if update.dst.transposed else (line, at)))
            body = (*body, *loop(ELEMENT, width, (*names, Store(values, each, value))))
        return (*body, Move(c, place, values, first, update.atom, width))

    @staticmethod
    def _sum_of_vector(update: Update, element: Expr) -> tuple[Expr, ...]:
        """Where the sum of an element of a vector of C is."""
        acc, width = update.acc, update.width
        return acc.at(ROW * width + element, COL) if update.dst.transposed else acc.at(ROW, COL * width + element)

    def _update_columns(self, update: Update) -> Body:
        """C column by column, by vectors of neighbours in a column, where they are inside and may stand there."""
        fragment, dst, width = update.acc.fragment, update.dst, update.width
        start = self._named(dst.origin[-1], fragment.rows) + fragment.rows.chunk_step(ROW, width)
        line = self._named(dst.origin[-2], fragment.cols) + fragment.cols.step(COL)
        planes = dst.origin[:-2]
        place = (*planes, line, start + ELEMENT)
        sum_ = self._sum_of_vector(update, ELEMENT)
        single = _new_element(update, Load(dst.buffer, place), sum_, start + ELEMENT, line)
        vector = self._update_vector(update, (*planes, line, start))
        one = If(_fits(update, start), vector, loop(ELEMENT, width, single))
        column = If(line < dst.buffer.shape[-2], loop(ROW, fragment.rows.values // width, (one,)))
        return loop(COL, fragment.cols.values, (column,))

    def _sum(self, total: Sum) -> Body:
        """Element by element of a vector, plane after plane."""
        dst, src, width = total.dst, total.src, total.width
        fragment, dtype = dst.fragment, dst.buffer.dtype
        row = self._named(src.origin[-2], fragment.rows) + fragment.rows.step(ROW)
        col = self._named(src.origin[-1], fragment.cols) + fragment.cols.chunk_step(COL, width)
        term = Buffer("term", dtype, Space.PRIVATE, Layout.packed(width))
        at = dst.at(ROW, COL * width + ELEMENT)
        there = src.origin[:-3]
        zero = (*there, Const(0), row, col)
        first = Move(dst.buffer, dst.at(ROW, COL * width), src.buffer, zero, total.atom, width)
        add = Store(dst.buffer, at, Bin("+", Load(dst.buffer, at), Load(term, (ELEMENT,))))
        another = (
            Alloc(term),
            Move(term, (Const(0),), src.buffer, (*there, PLANE, row, col), total.atom, width),
            *loop(ELEMENT, width, (add,)),
        )
        others = For(PLANE, Const(1), Const(total.planes), 1, another, unroll=total.planes <= MOST_PLANES, exact=True)
        return loop(ROW, fragment.rows.values, loop(COL, fragment.cols.values // width, (first, others)))

    def _stage(self, stage: Stage) -> Body:
        """Local memory, filled by all work-items: vector v of the tile by work-item v % group size."""
        src, dst, width = stage.src, stage.dst, stage.width
        slow_extent, fast_extent = (src.cols, src.rows) if src.transposed else (src.rows, src.cols)
        work_items = self.kernel.group[0] * self.kernel.group[1]
        per_row = fast_extent // width
        vectors = slow_extent * per_row
        rounds = -(-vectors // work_items)
        slow, fast = self._share(stage, per_row, work_items)
        src_at = (src.origin[0] + slow, src.origin[1] + fast)
        row, col = (fast, slow) if src.transposed else (slow, fast)
        dst_at = dst.at(row, col)
        along = src.transposed == dst.transposed
        body = _stage_vector(stage, src_at, dst_at, along)
        if vectors % work_items:
            index = LOCAL_INDEX + ROW * work_items
            body = (If(index < vectors, body),)
        if stage.at_once and rounds > stage.at_once:
            return (For(ROW, Const(0), Const(rounds), 1, body, exact=True, at_once=stage.at_once),)
        return loop(ROW, rounds, body)

    def _share(self, stage: Stage, per_row: int, work_items: int) -> tuple[Expr, Expr]:
        """Which (slow, fast) coordinate of the tile a work-item moves in round `i`."""
        own, name = LOCAL_INDEX, stage.src.buffer.name
        if work_items % per_row == 0:
            # The axis that is summed over is k; the other is a row of A or a column of B.
            axes = ["col" if name == "b" else "row"] * 2
            if stage.src.buffer.contracted is not None:
                axes[stage.src.buffer.contracted] = "k"
            if work_items == per_row:
                return ROW, self._hoist(f"{name}_{axes[1]}", own * stage.width, stage.width)
            slow = self._hoist(f"{name}_{axes[0]}", own // per_row, stage.width)
            fast = self._hoist(f"{name}_{axes[1]}", own % per_row * stage.width, stage.width)
            return slow + ROW * (work_items // per_row), fast
        index = own + ROW * work_items
        return index // per_row, index % per_row * stage.width

    def _hoist(self, name: str, value: Expr, width: int) -> Expr:
        """`value`, under a name at the kernel's top where that says more than the value itself."""
        if isinstance(value, Const | Var):
            return value
        # The same operand may also be moved by another width.
        for candidate in (name, f"{name}_by{width}"):
            let = Let(Var(candidate), value)
            if let in self.hoisted:
                return let.var
            if all(h.var != let.var for h in self.hoisted):
                self.hoisted.append(let)
                return let.var
        raise LoweringError(f"{name} stands for two things: {value}")


def _fits(update: Update, start: Expr) -> Expr:
    """Whether a vector of C from column `start` on is inside, and may stand there."""
    inside = start + update.width <= update.dst.buffer.shape[-1]
    alignment = aligned(update.atom, update.width, update.dst.buffer)
    return inside if alignment is None else both(inside, alignment)


def _dealt(buffer: Buffer, place: tuple[Expr, ...]) -> tuple[Body, tuple[Expr, ...]]:
    """A place in a block whose lines are dealt out to the groups of a cluster, behind a name for the line; any other as
    it is.
    """
    if buffer.spread == 1:
        return (), place
    share, line = buffer.shape[-2], Var("line")
    return (Let(line, place[-2]),), (line // share, *place[1:-2], line % share, place[-1])


def _new_element(update: Update, old: Load, place: tuple[Expr, ...], row: Expr, col: Expr) -> Body:
    """Stores an element of C, the one at (row, col), where the old one is; its sum is in a place of the registers."""
    value = _blend(update, convert(old, update.acc.buffer.dtype), place)
    store = Store(old.buffer, old.index, convert(value, old.dtype))
    if not update.steps:
        return (store,)
    return once_whole(update, finished(update, store, value, row, col), (store,))


def _blend(update: Update, old: Expr, place: tuple[Expr, ...]) -> Expr:
    """alpha * acc + beta * old for one element; factors of zero and one leave nothing behind."""
    value: Expr = Load(update.acc.buffer, place)
    dtype = update.acc.buffer.dtype
    if not is_const(update.alpha, 1.0):
        value = Bin("*", update.alpha, value)
    if is_const(update.beta, 0.0):
        return value
    if is_const(update.beta, 1.0):
        return Bin("+", value, old)
    blended = Call("fma", (update.beta, old, value), dtype)
    return select(compare("==", update.beta, number(0, dtype)), value, blended)


def _stage_vector(stage: Stage, src_at: tuple[Expr, ...], dst_at: tuple[Expr, ...], along: bool) -> Body:
    """One work-item's vector from global to local memory, or one half of its way."""
    src, dst, atom, width = stage.src.buffer, stage.dst.buffer, stage.atom, stage.width
    if stage.prologue is not None and stage.part != "load":
        return staged(stage.prologue, stage, Move(dst, dst_at, src, src_at, atom, width), along, ROW)
    if stage.part == "all":
        if along or width == 1:
            return (Move(dst, dst_at, src, src_at, atom, width),)
        dtype = dst.dtype
        via = Buffer(f"{src.name}_vector", dtype, Space.PRIVATE, Layout.packed(1, width))
        load: Body = (Alloc(via), Move(via, (Const(0), Const(0)), src, src_at, atom, width))
        return (*load, *_scatter(stage, via, Const(0), dst_at))
    if stage.via is None:
        raise LoweringError("a pipe through registers without a register array")
    if stage.part == "load":
        return (Move(stage.via, (ROW, Const(0)), src, src_at, atom, width),)
    if along or width == 1:
        return (Move(dst, dst_at, stage.via, (ROW, Const(0)), atom, width),)
    return _scatter(stage, stage.via, ROW, dst_at)


def _scatter(stage: Stage, via: Buffer, vector: Expr, dst_at: tuple[Expr, ...]) -> Body:
    """Store a vector's elements along the slow axis of a transposed tile."""
    index = (*dst_at[:-2], dst_at[-2] + ELEMENT, dst_at[-1])
    value = Load(via, (vector, ELEMENT))
    return loop(ELEMENT, stage.width, (Store(stage.dst.buffer, index, value),))
