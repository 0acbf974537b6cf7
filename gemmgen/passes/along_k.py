"""Sweeps whose vectors lie along K: each element of a vector sums a part of one element of C.

They serve C of few columns, where vectors of columns would be mostly empty, and B that has its columns in lines. The
elements of a vector are added up at the end of a tile, before what is left of K by single elements.
"""

from __future__ import annotations

from functools import cached_property

from gemmgen.ir.atoms import FMA, SCALAR, VECTOR, VECTOR_FMA_ALONG_K, Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Bin, Const, Expr, Load, number
from gemmgen.ir.stmt import Alloc, Body, Comment, Copy, Fill, For, Let, Mma, Registers, Stmt, Store, Tile
from gemmgen.passes.lanes import COL, ELEMENT, ROW, at_once, unrolled
from gemmgen.passes.positions import COL0, K0, K_MAIN, ROW0
from gemmgen.passes.sweep import K_BLOCK, PANEL, Sweep


class AlongK(Sweep):
    """The kernel."""

    @cached_property
    def acc(self) -> Registers:
        """A vector for each element of C's tile."""
        rows, cols = self.schedule.tile
        return self._in_vectors("acc", Spread(rows), Spread(cols * self.schedule.vector))

    def _in_vectors(self, name: str, rows: Spread, cols: Spread, transposed: bool = False) -> Registers:
        fragment = Fragment(rows, cols, transposed)
        slow, fast = (cols, rows) if transposed else (rows, cols)
        layout = Layout.packed(slow.values, fast.values)
        return Registers(Buffer(name, self.sums, Space.PRIVATE, layout, vector=self.schedule.vector), fragment)

    def _singles(self, name: str, rows: int, cols: int) -> Registers:
        buffer = Buffer(name, self.sums, Space.PRIVATE, Layout.packed(rows, cols))
        return Registers(buffer, Fragment(Spread(rows), Spread(cols)))

    @property
    def copy(self) -> Buffer | None:
        """The private copy of a block of B, turned: each column as a line."""
        s = self.schedule
        if s.b.memory != "private":
            return None
        layout = Layout.packed(s.sweep[1], s.tile[1], s.k_block)
        return Buffer("b_block", self.sums, Space.PRIVATE, layout, vector=s.vector)

    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: sums in vectors, their elements added up, the rest of K, and C."""
        width = self.schedule.vector
        total = self._singles("total", *self.schedule.tile)
        return (
            Let(K_MAIN, stop - (stop - start) % width),
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, self.sums)),
            For(K0, start, K_MAIN, width, self._vectors_step(), exact=True),
            Comment("The elements of each vector added up; then the rest of K."),
            Alloc(total.buffer),
            *self._add_up(total),
            For(K0, K_MAIN, stop, 1, self._single_step(total)),
            *self.store(total, beta, SCALAR, 1),
        )

    def _operands(self, depth: int) -> tuple[Tile, Tile]:
        """The parts of A and B that a step reads."""
        (rows, cols), block, matrix = self.schedule.tile, self.copy, self.given("a")
        step = K0 if block is None else K_BLOCK + K0
        turned = self.is_transposed("a")
        a = Tile(matrix, (step, ROW0) if turned else (ROW0, step), rows, depth, turned)
        if block is not None:
            return a, Tile(block, (PANEL, Const(0), K0), depth, cols, transposed=True)
        by_columns = self.is_transposed("b")
        return a, Tile(self.given("b"), (COL0, K0) if by_columns else (K0, COL0), depth, cols, by_columns)

    def _vectors_step(self) -> Body:
        (rows, cols), width = self.schedule.tile, self.schedule.vector
        b = self._in_vectors("b_frag", Spread(width), Spread(cols), transposed=True)
        a = self._in_vectors("a_frag", Spread(rows), Spread(width))
        from_a, from_b = self._operands(width)
        return (
            Alloc(b.buffer),
            Copy(b, from_b, VECTOR, width),
            Alloc(a.buffer),
            Copy(a, from_a, VECTOR, width),
            Mma(self.acc, a, b, Const(0), Const(0), 1, VECTOR_FMA_ALONG_K),
        )

    def _add_up(self, total: Registers) -> Body:
        """Half of a vector and the other half, until two elements are left."""
        (rows, cols), width = self.schedule.tile, self.schedule.vector
        whole, at, body = self.acc.buffer, self.acc.at(ROW, COL * width), list[Stmt]()

        def halves(element: Expr) -> Expr:
            first, second = ((*at[:-1], at[-1] + offset + element) for offset in (0, width // 2))
            return Bin("+", Load(whole, first), Load(whole, second))

        while width > 2:
            half = Buffer(f"by_{width // 2}", self.sums, Space.PRIVATE, Layout.packed(width // 2), vector=width // 2)
            body += [Alloc(half), at_once(width // 2, Store(half, (ELEMENT,), halves(ELEMENT)))]
            whole, at, width = half, (Const(0),), width // 2
        body.append(Store(total.buffer, total.at(ROW, COL), halves(Const(0))))
        return (unrolled(ROW, rows, (unrolled(COL, cols, tuple(body)),)),)

    def _single_step(self, total: Registers) -> Body:
        rows, cols = self.schedule.tile
        b, a = self._singles("b_rest", 1, cols), self._singles("a_rest", rows, 1)
        from_a, from_b = self._operands(1)
        return (
            Alloc(b.buffer),
            Copy(b, from_b, SCALAR),
            Alloc(a.buffer),
            Copy(a, from_a, SCALAR),
            Mma(total, a, b, Const(0), Const(0), 1, FMA),
        )
