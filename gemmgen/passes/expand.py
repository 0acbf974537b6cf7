"""Expand tiles: every statement on a tile becomes loops of single instructions.

Coordinates stay logical (row and column of a matrix), so that `predicate` can guard them.
"""

from __future__ import annotations

from dataclasses import field, replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import by_width, is_free
from gemmgen.ir.copy_instructions import ASYNC_COPY, IMAGE_BLOCK_READ, AxisLayout
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, convert
from gemmgen.ir.kernel import COL, ELEMENT, ROW, Kernel, each_register, end_of_names, loop
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    CooperativeCopy,
    EpilogueStore,
    Fill,
    For,
    FragmentLoad,
    If,
    Let,
    Mma,
    PointerInit,
    Reduction,
    Stmt,
    Store,
    TileMma,
    VectorCopy,
)
from gemmgen.ir.walk import map_bodies, map_body, of_kind, walk_expr
from gemmgen.passes.expand_epilogue import expand_epilogue, fill_fragments, store_fragments
from gemmgen.passes.expand_functions import filled, staged
from gemmgen.passes.expand_multiply import load_lines, multiply_adds, multiply_by_warp
from gemmgen.passes.expand_vectors import epilogue_vectors, fill_vectors, multiply_vectors
from gemmgen.passes.expand_warpgroup import load_operand, multiply_by_warpgroups, tma_loads
from gemmgen.positions import LOCAL_INDEX
from gemmgen.records import dataclass

PLANE = Var("s")
#: Sums of up to this many planes are unrolled, to have many loads under way.
MOST_PLANES = 128


def expand(kernel: Kernel) -> Kernel:
    """The kernel in statements on instructions."""
    expander = _Expander(kernel)
    body = _named_once(map_body(kernel.body, expander.statement))
    lead = end_of_names(kernel.body)
    multiples = (*kernel.multiples, *expander.multiples)  # equal numbers may have other names
    return replace(kernel, body=(*body[:lead], *expander.hoisted, *body[lead:]), multiples=multiples)


@dataclass
class _Expander:
    """Expands statement by statement; `hoisted` collects names that belong at the kernel's top, `multiples` what the
    statements rely on.
    """

    kernel: Kernel
    hoisted: list[Let] = field(default_factory=list)
    multiples: list[tuple[int, int]] = field(default_factory=list)

    def statement(self, stmt: Stmt) -> Body:
        """One statement as instructions."""
        match stmt:
            case Fill() if stmt.dst.opaque is not None:
                return fill_fragments(stmt)
            case EpilogueStore() if stmt.acc.opaque is not None:
                return store_fragments(stmt)
            case Fill() if stmt.dst.buffer.vector > 1:
                return fill_vectors(stmt)
            case Mma() if stmt.acc.buffer.vector > 1:
                return multiply_vectors(stmt, stmt.atom)
            case EpilogueStore() if stmt.acc.buffer.vector > 1:
                return epilogue_vectors(stmt)
            case Fill():
                return each_register(stmt.dst, Store(stmt.dst.buffer, stmt.dst.at(ROW, COL), stmt.value))
            case FragmentLoad() if stmt.src.buffer.layout.swizzle:
                return load_operand(stmt, self._hoist)
            case FragmentLoad():
                return self._copy(stmt)
            case CooperativeCopy() if stmt.mbarrier is not None:
                return tma_loads(stmt)
            case CooperativeCopy():
                return self._stage(stmt)
            case TileMma():
                return multiply_by_warpgroups(stmt)
            case Mma() if stmt.atom.is_expanded:
                return multiply_adds(stmt, stmt.atom)
            case Mma():
                return multiply_by_warp(stmt, stmt.atom)
            case Reduction():
                return self._sum(stmt)
            case EpilogueStore():
                return expand_epilogue(stmt, self._named, self.kernel.assumptions)
            case For() if stmt.unroll and any(isinstance(s, PointerInit) for s in stmt.body):
                return _views_before(stmt)
        return (stmt,)

    def _named(self, origin: Expr, spread: AxisLayout) -> Expr:
        """The first element that a lane owns, by its name where the kernel has one for it."""
        start = origin + spread.start
        names = (stmt.var for stmt in of_kind(Let, self.kernel.body) if stmt.value == start)
        return start if isinstance(start, Const) else next(names, start)

    def _copy(self, copy: FragmentLoad) -> Body:
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
        move = VectorCopy(
            copy.dst.buffer, at, src.buffer, (*src.origin[:-2], *place), copy.atom, width, ahead=copy.ahead
        )
        rounds = {slow_var: slow.values // slow_width, fast_var: fast.values // fast_width}
        outer, inner = (fast_var, slow_var) if along_slow else (slow_var, fast_var)
        load = (move,) if copy.prologue is None else filled(copy.prologue, move)
        return loop(outer, rounds[outer], loop(inner, rounds[inner], load))

    def _sum(self, total: Reduction) -> Body:
        """Element by element of a vector, plane after plane."""
        dst, src, width = total.dst, total.src, total.width
        fragment, dtype = dst.fragment, dst.buffer.dtype
        row = self._named(src.origin[-2], fragment.rows) + fragment.rows.step(ROW)
        col = self._named(src.origin[-1], fragment.cols) + fragment.cols.chunk_step(COL, width)
        term = Buffer("term", dtype, Space.PRIVATE, Layout.packed(width))
        at = dst.at(ROW, COL * width + ELEMENT)
        there = src.origin[:-3]
        zero = (*there, Const(0), row, col)
        first = VectorCopy(dst.buffer, dst.at(ROW, COL * width), src.buffer, zero, total.atom, width)
        plane = (*there, PLANE, row, col)

        def added(value: Expr) -> Stmt:
            return Store(dst.buffer, at, Bin("+", Load(dst.buffer, at), value))

        another: Body = (
            Alloc(term),
            VectorCopy(term, (Const(0),), src.buffer, plane, total.atom, width),
            *loop(ELEMENT, width, (added(Load(term, (ELEMENT,))),)),
        )
        if width == 1:
            another = loop(ELEMENT, 1, (added(convert(Load(src.buffer, plane), dtype)),))
        others = For(PLANE, Const(1), Const(total.planes), 1, another, unroll=total.planes <= MOST_PLANES, exact=True)
        return loop(ROW, fragment.rows.values, loop(COL, fragment.cols.values // width, (first, others)))

    def _stage(self, stage: CooperativeCopy) -> Body:
        """Local memory, filled by all work-items: vector v of the tile by work-item v % group size."""
        src, dst, width = stage.src, stage.dst, stage.width
        slow_extent, fast_extent = (src.cols, src.rows) if src.transposed else (src.rows, src.cols)
        work_items = self.kernel.group[0] * self.kernel.group[1]
        per_row = fast_extent // width
        vectors = slow_extent * per_row
        whole = vectors % work_items == 0
        self._relied_on(slow_extent * (fast_extent // int(width)), work_items, whole)
        rounds = (vectors + work_items - 1) // work_items
        if whole:
            rounds = slow_extent * fast_extent // (work_items * width)
        names, (slow, fast) = self._share(stage, fast_extent, work_items)
        each: Body = ()
        if stage.atom == ASYNC_COPY and width > 1 and work_items % per_row and not by_width(width):
            # No name at the kernel's top says where: it is another place in each round, for addresses and bounds alike.
            name = src.buffer.name
            line, at = Let(Var(f"{name}_line"), slow), Let(Var(f"{name}_at"), fast)
            each, slow, fast = (line, at), line.var, at.var
        src_at = (src.origin[0] + slow, src.origin[1] + fast)
        row, col = (fast, slow) if src.transposed else (slow, fast)
        dst_at = dst.at(row, col)
        along = src.transposed == dst.transposed
        body = (*each, *_cooperative_vector(stage, src_at, dst_at, along))
        if not whole:
            index = LOCAL_INDEX + ROW * work_items
            body = (If(index < vectors, body),)
        at_once = stage.unroll_factor
        if by_width(width):
            # Vectors of several widths share one loop; it is unrolled for as many as a work-item has of the widest.
            widest = stage.atom.widest(fast_extent, src.buffer.dtype.size)
            at_once = max(1, slow_extent * fast_extent // (work_items * widest))
        if at_once and (rounds > at_once or by_width(width)):
            loop_ = For(ROW, Const(0), Const(rounds), 1, body, exact=True, unroll_factor=at_once)
            return (*names, loop_)
        return (*names, *loop(ROW, rounds, body))

    def _share(self, stage: CooperativeCopy, length: int, work_items: int) -> tuple[Body, tuple[Expr, Expr]]:
        """Which (slow, fast) coordinate of the tile a work-item moves in round `i`, behind what it has names for; lines
        are so long.
        """
        per_row, width = length // stage.width, int(stage.width)
        if not by_width(stage.width) or work_items % per_row:
            return (), self._dealt(stage, per_row, work_items)
        self._relied_on(length, width, True)
        self._relied_on(work_items, length // width, True)
        name = stage.src.buffer.name
        line = Let(Var(f"{name}_line"), LOCAL_INDEX // per_row)
        at = Let(Var(f"{name}_at"), LOCAL_INDEX % per_row * stage.width)
        return (line, at), (line.var + ROW * (work_items * stage.width // length), at.var)

    def _dealt(self, stage: CooperativeCopy, per_row: int, work_items: int) -> tuple[Expr, Expr]:
        """The same where a name stands at the kernel's top."""
        own, name = LOCAL_INDEX, stage.src.buffer.name
        self._relied_on(work_items, per_row, work_items % per_row == 0)
        if work_items % per_row == 0:
            # The axis that is summed over is k; the other is a row of A or a column of B.
            axes = ["col" if name == "b" else "row"] * 2
            if stage.src.buffer.contracted is not None:
                axes[stage.src.buffer.contracted] = "k"
            if work_items == per_row and not is_free(per_row):
                return ROW, self._hoist(f"{name}_{axes[1]}", own * stage.width, stage.width)
            slow = self._hoist(f"{name}_{axes[0]}", own // per_row, stage.width)
            fast = self._hoist(f"{name}_{axes[1]}", own % per_row * stage.width, stage.width)
            return slow + ROW * (work_items // per_row), fast
        index = own + ROW * work_items
        return index // per_row, index % per_row * stage.width

    def _relied_on(self, number: int, unit: int, holds: bool) -> None:
        """What loops are made by, although somebody may change it in the text."""
        if holds and (is_free(number) or is_free(unit)):
            self.multiples.append((number, unit))

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


def _named_once(body: Body) -> Body:
    """A body without names and registers that it has already: those of several copies of one matrix."""
    out: list[Stmt] = []
    for stmt in body:
        if not (isinstance(stmt, Let | Alloc) and stmt in out):
            out.append(map_bodies(stmt, _named_once))
    return tuple(out)


def _views_before(stmt: For) -> Body:
    """A loop behind the views that are the same in each of its rounds."""
    same = [s for s in stmt.body if isinstance(s, PointerInit) and not any(stmt.var in walk_expr(x) for x in s.index)]
    return (*dict.fromkeys(same), replace(stmt, body=tuple(s for s in stmt.body if s not in same)))


def _cooperative_vector(
    stage: CooperativeCopy, src_at: tuple[Expr, ...], dst_at: tuple[Expr, ...], along: bool
) -> Body:
    """One work-item's vector from global to local memory, or one half of its way."""
    src, dst, atom, width = stage.src.buffer, stage.dst.buffer, stage.atom, stage.width
    if stage.prologue is not None and stage.part != "load":
        return staged(stage.prologue, stage, VectorCopy(dst, dst_at, src, src_at, atom, width), along, ROW)
    if stage.part == "all":
        if along or width == 1:
            return (VectorCopy(dst, dst_at, src, src_at, atom, width),)
        dtype = dst.dtype
        via = Buffer(f"{src.name}_vector", dtype, Space.PRIVATE, Layout.packed(1, width))
        load: Body = (Alloc(via), VectorCopy(via, (Const(0), Const(0)), src, src_at, atom, width))
        return (*load, *_scatter(stage, via, Const(0), dst_at))
    if stage.via is None:
        raise LoweringError("a pipe through registers without a register array")
    if stage.part == "load":
        return (VectorCopy(stage.via, (ROW, Const(0)), src, src_at, atom, width),)
    if along or width == 1:
        return (VectorCopy(dst, dst_at, stage.via, (ROW, Const(0)), atom, width),)
    return _scatter(stage, stage.via, ROW, dst_at)


def _scatter(stage: CooperativeCopy, via: Buffer, vector: Expr, dst_at: tuple[Expr, ...]) -> Body:
    """Store a vector's elements along the slow axis of a transposed tile."""
    index = (*dst_at[:-2], dst_at[-2] + ELEMENT, dst_at[-1])
    value = Load(via, (vector, ELEMENT))
    return loop(ELEMENT, stage.width, (Store(stage.dst.buffer, index, value),))
