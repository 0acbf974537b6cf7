"""Micro-kernels of CPUs: the sum of a tile of C in vectors, along all of K or a block of it; and its store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from gemmgen import epilogues
from gemmgen.checks.cpu_panel import PREFETCH_STEPS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import SCALAR, VECTOR, AxisLayout, CopyAtom, ThreadValueLayout
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, both, compare, minimum, number, select
from gemmgen.ir.instructions import FMA, VECTOR_FMA, VECTOR_FMA_ALONG_K, Instruction
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import ELEMENT, ROW, loop
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    EpilogueStore,
    Fill,
    For,
    FragmentLoad,
    If,
    Let,
    Mma,
    PointerInit,
    Prefetch,
    Registers,
    Stmt,
    Store,
    Tile,
    VectorCopy,
)
from gemmgen.passes.expand_vectors import at_once, unrolled
from gemmgen.positions import COL, COL0, FIRST_COL, K0, K_MAIN, KK, PART, ROW0
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule import Schedule

#: A work-item's first row.
ROW_BEGIN = Var("row_begin")
#: A work-item's first column, and the first that is a tile's own: the last tile of a line begins earlier.
COL_BEGIN, OWN_COL = Var("col_begin"), Var("own_col")
#: Of a block of B in private memory: which tile's columns.
PANEL = Var("panel")
K_BLOCK = Var("k_block")
#: A row of C that is prefetched.
C_ROW = Var("c_row")
#: Bytes that come at once.
LINE_BYTES = 64
#: How far a pointer into a row reaches, as far as it knows.
ANY = 2**31 - 1


@dataclass(frozen=True)
class Panel:
    """What micro-kernels have in common: where B is read, where C's edges are, and how a tile is stored.

    Attributes:
        k_end: where the sum ends.
    """

    problem: Problem
    k_end: Expr

    @property
    def _schedule(self) -> Schedule:
        return self.problem.schedule

    @property
    def copy(self) -> Buffer | None:
        """The private copy of a block of B: panel after panel as wide as a tile, so that it is read in order, each with
        room behind it for what is asked for ahead. For dot products it is transposed: each column as a line. A fused
        copy has one panel.
        """
        s = self._schedule
        if s.b.memory != "private":
            return None
        if s.fused_copy:
            return Buffer("b_block", self.problem.sums, Space.PRIVATE, Layout.packed(s.kc, s.tile[1]), vector=s.vector)
        panel = (s.tile[1], s.kc) if s.dot_product else (s.kc + s.b_prefetch, s.tile[1])
        layout = Layout.packed(s.macro_kernel[1], *panel)
        return Buffer("b_block", self.problem.sums, Space.PRIVATE, layout, vector=s.vector)

    def _known(self, axis: int) -> int:
        return self.problem.spec.divisor("mn"[axis])

    @property
    def begins_earlier(self) -> bool:
        """Whether the last tile of a line does, so that its vectors of B end inside."""
        in_place = self.copy is None or self._schedule.fused_copy
        return in_place and not self.whole_columns and not self._schedule.dot_product

    @property
    def ends_inside(self) -> bool:
        """Whether, beside a copy, vectors that would end past the last column begin earlier instead."""
        outer = self.copy is not None and not self._schedule.dot_product and not self._schedule.fused_copy
        return outer and not self.whole_columns and self._may_store_again

    @property
    def shift(self) -> int:
        """Of how many columns what begins earlier is: a tile in place, a vector beside a copy; 0 where nothing does."""
        tile, vector = self._schedule.tile[1], self._schedule.vector
        return tile if self.begins_earlier else vector if self.ends_inside else 0

    def earlier(self, begin: Expr) -> Expr:
        """A first column, or one before it from which on all are inside."""
        if not self.shift:
            return begin
        return select(
            compare("<=", Const(self.shift), self.problem.n), minimum(begin, self.problem.n - self.shift), begin
        )

    @property
    def whole_rows(self) -> bool:
        """Whether no tile ends past the last row."""
        return self._known(0) % self._schedule.tile[0] == 0

    @property
    def whole_columns(self) -> bool:
        """Whether no tile ends past the last column."""
        return self._known(1) % self._schedule.tile[1] == 0

    def k_main(self, start: Expr, stop: Expr) -> Body:
        """Where vectors of B don't fit, C being narrower than a tile, all of K is left to single loads."""
        return (Let(K_MAIN, select(COL0 + self._schedule.tile[1] <= self.problem.n, stop, start)),)

    @property
    def result(self) -> Buffer:
        """What a tile is stored to."""
        return self.problem.workspace(writable=True) if self._schedule.split_k > 1 else self.problem.c

    def store(self, acc: Registers, beta: Expr, atom: CopyAtom, width: int) -> Body:
        """C from a tile of sums."""
        rows, cols = self._schedule.tile
        tile = epilogues.tile_of_c(self.problem, rows, cols)
        comment = self.problem.epilogue_comment()
        steps, depth = epilogues.steps(self.problem), self._schedule.kc
        if self._schedule.split_k > 1:
            tile = Tile(self.problem.workspace(writable=True), (PART, ROW0, COL0), rows, cols)
            comment, steps = "This part's share of C.", ()
        names: Body = ()
        if self.ends_inside:
            say = Comment("Vectors that would end past the last column begin earlier.")
            names = say, Let(COL, self.earlier(COL0)), *self.first_column(beta)
            tile = replace(tile, origin=(*tile.origin[:-1], COL))
        own = FIRST_COL if self._stores_again else OWN_COL
        first = own if self.shift else None
        last = compare("<=", self.k_end, K_BLOCK + depth) if steps and depth else None
        return (
            *names,
            Comment(comment),
            EpilogueStore(
                *(tile, acc, self.problem.alpha, self._stored(beta), atom, width, steps, first),
                last=last,
                ends_inside=self.ends_inside,
            ),
        )

    def _stored(self, beta: Expr) -> Expr:
        """The factor of what the tile is stored to."""
        is_written_once = self._schedule.split_k > 1 and not self._schedule.kc
        return number(0, self.problem.sums) if is_written_once else beta

    @property
    def _may_store_again(self) -> bool:
        """Whether a tile may store elements of another one, which lets it store whole vectors at C's edges."""
        lines = self.problem.spec.c_order == "row" and not self.problem.spec.names_c
        return lines or self._schedule.split_k > 1

    @property
    def _stores_again(self) -> bool:
        """Whether the last tile of a line may store columns of the one before."""
        return bool(self.shift) and self._may_store_again

    def _is_unread(self, beta: Expr) -> Expr:
        """Whether nothing is added to what the tile is stored to."""
        return compare("==", self._stored(beta), number(0, self.problem.sums))

    def rows_again(self, beta: Expr) -> Expr | None:
        """Whether the last tile of a column stores rows of the one before; None where no tile can."""
        if self.whole_rows or self._schedule.dot_product or not self._may_store_again:
            return None
        return self._is_unread(beta)

    def first_column(self, beta: Expr) -> Body:
        """The first column that a tile stores."""
        if not self._stores_again:
            return ()
        begin, own = (COL0, OWN_COL) if self.begins_earlier else (COL, COL0)
        again = both(self._is_unread(beta), compare("<=", COL_BEGIN, begin))
        say = Comment("Where C is not read, columns of the tile before are stored again.")
        return say, Let(FIRST_COL, select(again, begin, own))


@dataclass(frozen=True)
class MicroKernel(ABC):
    """The sum of a tile of C, and its store."""

    panel: Panel

    @property
    def _problem(self) -> Problem:
        return self.panel.problem

    @property
    def _schedule(self) -> Schedule:
        return self.panel.problem.schedule

    def registers(self, name: str, rows: int, cols: int, vector: int = 1, transposed: bool = False) -> Registers:
        """Elements of a tile, in vectors of so many neighbours or one by one."""
        layout = Layout.packed(*((cols, rows) if transposed else (rows, cols)))
        buffer = Buffer(name, self._problem.sums, Space.PRIVATE, layout, vector=vector)
        return Registers(buffer, ThreadValueLayout(AxisLayout(rows), AxisLayout(cols), transposed))

    @abstractmethod
    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: its sum from `start` to `stop`, and C."""


@dataclass(frozen=True)
class OuterProduct(MicroKernel):
    """A step of K is a line of B, times an element of each row of A: vectors are of neighbouring columns."""

    @cached_property
    def acc(self) -> Registers:
        """C's tile."""
        return self.registers("acc", *self._schedule.tile, self._schedule.vector)

    @property
    def _a_rows(self) -> Buffer | None:
        """Pointers to A's rows, where its rows are lines and B is copied. Without them compilers work all rows' places
        out anew in each step there: a quarter of the loop's instructions, with tiles of 12 rows more than all others.
        """
        if self.panel.copy is None or self._problem.is_transposed("a"):
            return None
        return Buffer(
            "a_rows", self._problem.given("a").dtype, Space.POINTERS, Layout.packed(self._schedule.tile[0], ANY)
        )

    # --- a tile -------------------------------------------------------------------------------------

    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: its sum, and C."""
        return (
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, self._problem.sums)),
            *self._point(),
            *self._sum(start, stop),
            *self.panel.store(self.acc, beta, VECTOR, self._schedule.vector),
        )

    def _point(self) -> Body:
        """Where A's rows begin that belong to a block of B's copy."""
        if self._a_rows is None:
            return ()
        point = PointerInit(self._a_rows, self._problem.given("a"), (ROW0 + ROW, K_BLOCK), ROW)
        return Alloc(self._a_rows), *loop(ROW, self._schedule.tile[0], (point,))

    def _sum(self, start: Expr, stop: Expr) -> Body:
        """The tile's sum. Where the last tile of a line begins earlier, B comes by vectors if they fit; else, C being
        narrower than a tile, by single loads.
        """
        fused = self._schedule.fused_copy
        if not self.panel.begins_earlier:
            return self._fused(start, stop) if fused else self._steps(start, stop)
        step = self._step(K0, self._line(K0))
        by_vectors: Body = (For(K0, start, K_MAIN, 1, (*self._prefetch_b(K0, K_MAIN), *step)),)
        if fused:
            by_vectors = self._fused(start, K_MAIN)
        place = self._of_b(K0, COL0 + J)
        single = VectorCopy(self._b.buffer, (Const(0), J), self._problem.given("b"), place, SCALAR, 1)
        # A loop over elements is short for the compiler.
        load = For(J, Const(0), Const(self._schedule.tile[1]), 1, (single,), exact=True)
        return *by_vectors, For(K0, K_MAIN, stop, 1, self._step(K0, load))

    def _of_b(self, step: Expr, col: Expr) -> tuple[Expr, Expr]:
        """A place in B. Beside a copy, steps are counted from the first of a block."""
        return (step if self.panel.copy is None else K_BLOCK + step), col

    def _fused(self, start: Expr, stop: Expr) -> Body:
        """The first tile of a column copies each line of B before it multiplies by it, the others read the copy."""
        block, width, b = self.panel.copy, self._schedule.vector, self._problem.given("b")
        assert block is not None
        copy = VectorCopy(block, (K0, J * width), b, self._of_b(K0, COL0 + J * width), VECTOR, width)
        copies = loop(J, self._schedule.tile[1] // width, (copy,))
        step = self._step(K0, self._line(K0))
        say = Comment(f"The first tile copies its columns of {self._problem.title('b')}, which those below it read.")
        first = For(K0, start, stop, 1, (*self._prefetch_b(K0, stop), *copies, *step))
        return say, If(compare("==", ROW0, ROW_BEGIN), (first,), (For(K0, start, stop, 1, step),))

    def _steps(self, start: Expr, stop: Expr) -> Body:
        """All of K, or of a block: some steps written out at a time, then what is left."""
        together = self._schedule.block_k
        one = self._step(K0, self._line(K0))
        if together == 1:
            return (For(K0, start, stop, 1, (*self._prefetch_c(), *self._prefetch_b(K0, stop), *one)),)
        step = (*self._prefetch_b(K0 + KK, stop), *self._step(K0 + KK, self._line(K0 + KK)))
        some = (*self._prefetch_c(), *loop(KK, together, step))
        # Parts of K are not cut so.
        if self._schedule.split_k == 1 and self._problem.spec.divisor("k") % together == 0:
            return (For(K0, start, stop, together, some, exact=True),)
        return (
            Let(K_MAIN, stop - stop % together),
            For(K0, start, K_MAIN, together, some, exact=True),
            Comment("The rest of K."),
            For(K0, K_MAIN, stop, 1, one),
        )

    def _prefetch_b(self, step: Expr, stop: Expr) -> Body:
        """A line of B that a later step reads. In place hardware fetches no line ahead that is a row further; of the
        copy, lines come too late from the second level where another thread of the core leaves room for few steps.
        """
        ahead, copy, b = self._schedule.b_prefetch, self.panel.copy, self._problem.given("b")
        if not ahead:
            return ()
        cols = self._schedule.tile[1]
        width = min(cols, LINE_BYTES // (b if copy is None or self._schedule.fused_copy else copy).dtype.size)
        ask = Prefetch(b, self._of_b(minimum(step + ahead, stop - 1), COL0 + J * width))
        if copy is not None and not self._schedule.fused_copy:
            ask = Prefetch(copy, (PANEL, step + ahead, J * width))
        return Comment(f"{self._problem.title('b')}'s line of {ahead} steps later."), *loop(
            J, -(-cols // width), (ask,)
        )

    def _prefetch_c(self) -> Body:
        """A row after the other: all at once would take the places of loads that the sum waits for."""
        if not self._schedule.c_prefetch:
            return ()
        rows, cols = self._schedule.tile
        width = min(cols, LINE_BYTES // self.panel.result.dtype.size)
        part = (PART,) if self._schedule.split_k > 1 else ()
        # Past an end of C, for its last row or column once more.
        col = COL0 + J * width
        col = col if self.panel.whole_columns else minimum(col, self._problem.n - 1)
        ask = Prefetch(self.panel.result, (*part, C_ROW, col), writes=True)
        row = ROW0 + K0 // PREFETCH_STEPS
        row = row if self.panel.whole_rows else minimum(row, self._problem.m - 1)
        when = both(compare("==", K0 % PREFETCH_STEPS, 0), compare("<", K0, rows * PREFETCH_STEPS))
        say = Comment(f"{self._problem.title('c')}'s rows, one in {PREFETCH_STEPS} steps, before they are written.")
        return say, If(when, (Let(C_ROW, row), *loop(J, -(-cols // width), (ask,))))

    # --- a step of K --------------------------------------------------------------------------------

    @property
    def _b(self) -> Registers:
        """A line of B."""
        return self.registers("b_frag", 1, self._schedule.tile[1], self._schedule.vector)

    def _line(self, step: Expr) -> Stmt:
        """It is loaded by vectors."""
        cols, block = self._schedule.tile[1], self.panel.copy
        line = Tile(self._problem.given("b"), (step, COL0), 1, cols)
        if block is not None:
            line = Tile(block, (step, Const(0)) if self._schedule.fused_copy else (PANEL, step, Const(0)), 1, cols)
        return FragmentLoad(self._b, line, VECTOR, self._schedule.vector)

    def _step(self, step: Expr, load: Stmt) -> Body:
        """One step of K: a line of B, times every row's element of A."""
        rows, a = self._schedule.tile[0], self.registers("a_frag", self._schedule.tile[0], 1)
        transposed, deep = self._problem.is_transposed("a"), step if self.panel.copy is None else K_BLOCK + step
        column = Tile(self._problem.given("a"), (deep, ROW0) if transposed else (ROW0, deep), rows, 1, transposed)
        if self._a_rows is not None:
            column = Tile(self._a_rows, (Const(0), step), rows, 1)
        return (
            Alloc(self._b.buffer),
            load,
            Alloc(a.buffer),
            FragmentLoad(a, column, SCALAR),
            Mma(self.acc, a, self._b, Const(0), Const(0), 1, VECTOR_FMA),
        )


@dataclass(frozen=True)
class DotProduct(MicroKernel):
    """Vectors lie along K: each element of a vector sums a part of one element of C.

    They serve C of few columns, where vectors of columns would be mostly empty, and B that has its columns in lines.
    The elements of a vector are added up at the end of a tile, before what is left of K by single elements.
    """

    @cached_property
    def acc(self) -> Registers:
        """A vector for each element of C's tile."""
        (rows, cols), width = self._schedule.tile, self._schedule.vector
        return self.registers("acc", rows, cols * width, width)

    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: sums in vectors, their elements added up, the rest of K, and C."""
        width = self._schedule.vector
        total = self.registers("total", *self._schedule.tile)
        return (
            Let(K_MAIN, stop - (stop - start) % width),
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, self._problem.sums)),
            For(K0, start, K_MAIN, width, self._vectors_step(), exact=True),
            Comment("The elements of each vector added up; then the rest of K."),
            Alloc(total.buffer),
            *self._add_up(total),
            For(K0, K_MAIN, stop, 1, self._single_step(total)),
            *self.panel.store(total, beta, SCALAR, 1),
        )

    def _operands(self, depth: int) -> tuple[Tile, Tile]:
        """The parts of A and B that a step reads."""
        (rows, cols), block, matrix = self._schedule.tile, self.panel.copy, self._problem.given("a")
        step = K0 if block is None else K_BLOCK + K0
        by_columns = self._problem.is_transposed("a")
        a = Tile(matrix, (step, ROW0) if by_columns else (ROW0, step), rows, depth, by_columns)
        if block is not None:
            return a, Tile(block, (PANEL, Const(0), K0), depth, cols, transposed=True)
        by_columns = self._problem.is_transposed("b")
        return a, Tile(self._problem.given("b"), (COL0, K0) if by_columns else (K0, COL0), depth, cols, by_columns)

    def _vectors_step(self) -> Body:
        (rows, cols), width = self._schedule.tile, self._schedule.vector
        b = self.registers("b_frag", width, cols, width, transposed=True)
        a = self.registers("a_frag", rows, width, width)
        return self._multiply(self.acc, a, b, VECTOR, VECTOR_FMA_ALONG_K)

    def _multiply(self, sums: Registers, a: Registers, b: Registers, atom: CopyAtom, instruction: Instruction) -> Body:
        """A step of as many elements of K as A's registers hold of a row."""
        depth = a.fragment.cols.values
        from_a, from_b = self._operands(depth)
        return (
            Alloc(b.buffer),
            FragmentLoad(b, from_b, atom, depth),
            Alloc(a.buffer),
            FragmentLoad(a, from_a, atom, depth),
            Mma(sums, a, b, Const(0), Const(0), 1, instruction),
        )

    def _add_up(self, total: Registers) -> Body:
        """Half of a vector and the other half, until two elements are left."""
        (rows, cols), width = self._schedule.tile, self._schedule.vector
        whole, at, body = self.acc.buffer, self.acc.at(ROW, J * width), list[Stmt]()

        def halves(element: Expr) -> Expr:
            first, second = ((*at[:-1], at[-1] + offset + element) for offset in (0, width // 2))
            return Bin("+", Load(whole, first), Load(whole, second))

        while width > 2:
            half = Buffer(
                f"by_{width // 2}", self._problem.sums, Space.PRIVATE, Layout.packed(width // 2), vector=width // 2
            )
            body += [Alloc(half), at_once(width // 2, Store(half, (ELEMENT,), halves(ELEMENT)))]
            whole, at, width = half, (Const(0),), width // 2
        body.append(Store(total.buffer, total.at(ROW, J), halves(Const(0))))
        return (unrolled(ROW, rows, (unrolled(J, cols, tuple(body)),)),)

    def _single_step(self, total: Registers) -> Body:
        rows, cols = self._schedule.tile
        a, b = self.registers("a_rest", rows, 1), self.registers("b_rest", 1, cols)
        return self._multiply(total, a, b, SCALAR, FMA)
