"""Sweeps whose vectors are of neighbouring columns: a step of K is a line of B, times an element of each row of A."""

from __future__ import annotations

from functools import cached_property

from gemmgen.ir.atoms import SCALAR, VECTOR, VECTOR_FMA, Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Const, Expr, Var, both, compare, minimum, number
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    Copy,
    Fill,
    For,
    If,
    Let,
    Mma,
    Move,
    Point,
    Prefetch,
    Registers,
    Stmt,
    Tile,
)
from gemmgen.passes.expand import COL as J
from gemmgen.passes.expand import ROW
from gemmgen.passes.loops import loop
from gemmgen.passes.positions import COL0, K0, K_MAIN, KK, PART, ROW0
from gemmgen.passes.sweep import K_BLOCK, PANEL, Sweep
from gemmgen.passes.vectors import PREFETCH_STEPS

#: A row of C that is prefetched.
C_ROW = Var("c_row")
#: Bytes that come at once.
LINE_BYTES = 64
#: How far a pointer into a row reaches, as far as it knows.
ANY = 2**31 - 1


class Columns(Sweep):
    """The kernel."""

    @cached_property
    def acc(self) -> Registers:
        """C's tile."""
        return self.vectors("acc", self.schedule.tile[0])

    def vectors(self, name: str, rows: int) -> Registers:
        """Lines of a tile."""
        cols = self.schedule.tile[1]
        buffer = Buffer(name, self.sums, Space.PRIVATE, Layout.packed(rows, cols), vector=self.schedule.vector)
        return Registers(buffer, Fragment(Spread(rows), Spread(cols)))

    @property
    def _column(self) -> Registers:
        """A's column of a step."""
        rows = self.schedule.tile[0]
        buffer = Buffer("a_frag", self.sums, Space.PRIVATE, Layout.packed(rows, 1))
        return Registers(buffer, Fragment(Spread(rows), Spread(1)))

    @property
    def _a_rows(self) -> Buffer | None:
        """Pointers to A's rows, where its rows are lines and B is copied. Without them compilers work all rows' places
        out anew in each step there: a quarter of the loop's instructions, with tiles of 12 rows more than all others.
        """
        if self.copy is None or self.is_transposed("a"):
            return None
        return Buffer("a_rows", self.given("a").dtype, Space.POINTERS, Layout.packed(self.schedule.tile[0], ANY))

    # --- a tile -------------------------------------------------------------------------------------

    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: its sum, and C."""
        return (
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, self.sums)),
            *self._point(),
            *(self._in_place(start, stop) if self.begins_earlier else self._steps(start, stop)),
            *self.store(self.acc, beta, VECTOR, self.schedule.vector),
        )

    def _point(self) -> Body:
        """Where A's rows begin that belong to a block of B's copy."""
        if self._a_rows is None:
            return ()
        point = Point(self._a_rows, self.given("a"), (ROW0 + ROW, K_BLOCK), ROW)
        return Alloc(self._a_rows), *loop(ROW, self.schedule.tile[0], (point,))

    def _in_place(self, start: Expr, stop: Expr) -> Body:
        """B by vectors where they fit; else, C being narrower than a tile, by single loads."""
        by_vectors = For(K0, start, K_MAIN, 1, self._step(K0, self._line(K0)))
        single = Move(self._b.buffer, (Const(0), J), self.given("b"), (K0, COL0 + J), SCALAR, 1)
        # A loop over elements is short for the compiler.
        load = For(J, Const(0), Const(self.schedule.tile[1]), 1, (single,), exact=True)
        return by_vectors, For(K0, K_MAIN, stop, 1, self._step(K0, load))

    def _steps(self, start: Expr, stop: Expr) -> Body:
        """All of K, or of a block: some steps written out at a time, then what is left."""
        together = self.schedule.k_step
        one = self._step(K0, self._line(K0))
        if together == 1:
            return (For(K0, start, stop, 1, (*self._ask_for_c(), *self._ask_for_b(K0), *one)),)
        step = (*self._ask_for_b(K0 + KK), *self._step(K0 + KK, self._line(K0 + KK)))
        some = (*self._ask_for_c(), *loop(KK, together, step))
        # Parts of K are not cut so.
        if self.schedule.split == 1 and (self.spec.k or self.spec.multiple_of[2]) % together == 0:
            return (For(K0, start, stop, together, some, exact=True),)
        return (
            Let(K_MAIN, stop - stop % together),
            For(K0, start, K_MAIN, together, some, exact=True),
            Comment("The rest of K."),
            For(K0, K_MAIN, stop, 1, one),
        )

    def _ask_for_b(self, step: Expr) -> Body:
        """A line of the copy that a later step reads: from the second level it comes too late where another thread of
        the core leaves room for few steps ahead.
        """
        ahead = self.schedule.b_prefetch
        if self.copy is None or not ahead:
            return ()
        cols = self.schedule.tile[1]
        width = min(cols, LINE_BYTES // self.copy.dtype.size)
        say = Comment(f"{self.title('b')}'s line of {ahead} steps later.")
        return say, *loop(J, -(-cols // width), (Prefetch(self.copy, (PANEL, step + ahead, J * width)),))

    def _ask_for_c(self) -> Body:
        """A row after the other: all at once would take the places of loads that the sum waits for."""
        if not self.schedule.c_prefetch:
            return ()
        rows, cols = self.schedule.tile
        width = min(cols, LINE_BYTES // self.result.dtype.size)
        part = (PART,) if self.schedule.split > 1 else ()
        # Past an end of C, for its last row or column once more.
        col = COL0 + J * width
        col = col if self.whole_columns else minimum(col, self.n - 1)
        ask = Prefetch(self.result, (*part, C_ROW, col), writes=True)
        row = ROW0 + K0 // PREFETCH_STEPS
        row = row if self.whole_rows else minimum(row, self.m - 1)
        when = both(compare("==", K0 % PREFETCH_STEPS, 0), compare("<", K0, rows * PREFETCH_STEPS))
        say = Comment(f"{self.title('c')}'s rows, one in {PREFETCH_STEPS} steps, before they are written.")
        return say, If(when, (Let(C_ROW, row), *loop(J, -(-cols // width), (ask,))))

    # --- a step of K --------------------------------------------------------------------------------

    @property
    def _b(self) -> Registers:
        """A line of B."""
        return self.vectors("b_frag", 1)

    def _line(self, step: Expr) -> Stmt:
        """It is loaded by vectors."""
        cols, block = self.schedule.tile[1], self.copy
        line = Tile(self.given("b"), (step, COL0), 1, cols)
        if block is not None:
            line = Tile(block, (PANEL, step, Const(0)), 1, cols)
        return Copy(self._b, line, VECTOR, self.schedule.vector)

    def _step(self, step: Expr, load: Stmt) -> Body:
        """One step of K: a line of B, times every row's element of A."""
        rows, a = self.schedule.tile[0], self._column
        transposed, deep = self.is_transposed("a"), step if self.copy is None else K_BLOCK + step
        column = Tile(self.given("a"), (deep, ROW0) if transposed else (ROW0, deep), rows, 1, transposed)
        if self._a_rows is not None:
            column = Tile(self._a_rows, (Const(0), step), rows, 1)
        return (
            Alloc(self._b.buffer),
            load,
            Alloc(a.buffer),
            Copy(a, column, SCALAR),
            Mma(self.acc, a, self._b, Const(0), Const(0), 1, VECTOR_FMA),
        )
