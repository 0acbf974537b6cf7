"""A product by work-items that compute on vectors of their own: few of them, each with a large block of C to sweep.

What a group of work-items is elsewhere, a loop is here: over the tiles of a block, in an order that lets the caches of
one core serve it. Rows past the last one are the last one read again. B is read in place, where the last tile of a line
begins earlier so that its vectors end inside; or from a private copy of a block, which has no edges.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from gemmgen.ir.atoms import SCALAR, VECTOR, CopyAtom
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Const, Expr, Var, ceil_div, compare, minimum, number, select
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    For,
    Let,
    Move,
    Registers,
    Stmt,
    Tile,
    Update,
)
from gemmgen.ir.workspace import Workspace
from gemmgen.passes import epilogue
from gemmgen.passes.expand import COL as J
from gemmgen.passes.loops import loop
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import (
    ACROSS,
    BATCH,
    BATCH_COUNT,
    BLOCK,
    COL0,
    DOWN,
    K0,
    K_BEGIN,
    K_END,
    K_MAIN,
    K_PART,
    PART,
    ROW0,
    call,
)
from gemmgen.passes.total import build_total

#: A work-item's block of C, and how many rows and columns each has.
ROW_BEGIN, ROW_END, ROWS_EACH = Var("row_begin"), Var("row_end"), Var("rows_each")
COL_BEGIN, COL_END, COLS_EACH = Var("col_begin"), Var("col_end"), Var("cols_each")
#: The first column that is a tile's own: the last tile of a line begins earlier.
OWN_COL = Var("own_col")
#: Of a block of B in private memory: which tile's columns.
PANEL = Var("panel")
K_BLOCK, K_STOP, K_DEPTH = Var("k_block"), Var("k_stop"), Var("k_depth")
M_BLOCK, M_STOP = Var("m_block"), Var("m_stop")


def build_sweep(plan: Sweep) -> Program:
    """The kernels of a validated request."""
    count = BATCH_COUNT if plan.spec.batched else Const(1)
    between = tuple(Workspace(x.name, x.dtype, size * count, x.reach) for x, size in plan.workspaces())
    after = (build_total(plan),) if plan.schedule.split > 1 else ()
    return Program((plan.kernel(), *after), between)


class Sweep(Plan):
    """The kernel: block of C, block of K, and tile, from the outside in. What a tile's sum is made of differs."""

    @abstractmethod
    def tile(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """One tile: its sum, and C."""

    @property
    def copy(self) -> Buffer | None:
        """The private copy of a block of B: panel after panel as wide as a tile, so that it is read in order, each with
        room behind it for what is asked for ahead.
        """
        s = self.schedule
        if s.b.memory != "private":
            return None
        layout = Layout.packed(s.sweep[1], s.k_block + s.b_prefetch, s.tile[1])
        return Buffer("b_block", self.sums, Space.PRIVATE, layout, vector=s.vector)

    # --- where a work-item is -----------------------------------------------------------------------

    def grid(self) -> tuple[Expr, Expr]:
        """Groups, of one work-item each, along rows and columns."""
        down, across = self._groups
        return (Const(1), down * across * self.schedule.split) if self.schedule.split > 1 else (down, across)

    @property
    def _groups(self) -> tuple[Expr, Expr]:
        """So many that no sweep is too long, then up to the next multiple."""
        s = self.schedule
        units = (tile * sweep * even for tile, sweep, even in zip(s.tile, s.sweep, s.even, strict=True))
        down, across = (
            ceil_div(size, unit) * even for size, unit, even in zip((self.m, self.n), units, s.even, strict=True)
        )
        return down, across

    @property
    def k_end(self) -> Expr:
        """Where the sum ends."""
        return K_END if self.asks_alpha else super().k_end

    def _where(self) -> Body:
        """This work-item's block of C: an even share of all tiles."""
        down, across = self._groups
        number = call("group_id", 0)
        row: Expr = call("group_id", 1)
        col: Expr = number
        lets: list[Stmt] = [Let(BATCH, call("group_id", 2))] if self.spec.batched else []
        lets += [Let(DOWN, down), Let(ACROSS, across)]
        if self.schedule.split > 1:
            lets += [Let(PART, number // (DOWN * ACROSS)), Let(BLOCK, number % (DOWN * ACROSS))]
            row, col = BLOCK // ACROSS, BLOCK % ACROSS
        rows, cols = self.schedule.tile
        for each, begin, end, place, size, unit, count in (
            (ROWS_EACH, ROW_BEGIN, ROW_END, row, self.m, rows, DOWN),
            (COLS_EACH, COL_BEGIN, COL_END, col, self.n, cols, ACROSS),
        ):
            lets += [
                Let(each, (ceil_div(size, unit) + count - 1) // count * unit),
                Let(begin, minimum(size, place * each)),
                Let(end, minimum(size, begin + each)),
            ]
        if self.schedule.split > 1:
            whole = self.schedule.vector if self.schedule.along_k else 1
            lets += [
                Let(K_PART, ceil_div(self.k, self.schedule.split * whole) * whole),
                Let(K_BEGIN, minimum(self.k, PART * K_PART)),
                Let(K_END, self.end_unless_zero(K_BEGIN, minimum(self.k, K_BEGIN + K_PART))),
            ]
        elif self.asks_alpha:
            lets.append(Let(K_END, self.end_unless_zero(Const(0), self.k)))
        return tuple(lets)

    # --- the product --------------------------------------------------------------------------------

    def _in_blocks(self) -> Body:
        """K in blocks, where it has them; one at least, so that C is written even where K is zero."""
        depth = self.schedule.k_block
        if not depth:
            return self._tiles(self.k_start, self.k_end, self.beta)
        stop = select(compare("<", self.k_start, self.k_end), self.k_end, self.k_start + 1)
        beta = Var("beta_now", self.sums)
        first = select(compare("==", K_BLOCK, self.k_start), self.beta, number(1, self.sums))
        body = (
            *self._bounds(depth),
            *self._fill_copy(),
            Comment("Sums wait in C from one block of K to the next."),
            Let(beta, self._beta_of(first)),
            *(self._tiles(K_BLOCK, K_STOP, beta) if self.copy is None else self._tiles(Const(0), K_DEPTH, beta)),
        )
        return (For(K_BLOCK, self.k_start, stop, depth, body),)

    def _bounds(self, depth: int) -> Body:
        """Of a block of K: where it ends, or of a copy, whose steps are counted from its first, how deep it is."""
        if self.copy is None:
            return (Let(K_STOP, minimum(self.k_end, K_BLOCK + depth)),)
        return (Let(K_DEPTH, minimum(Const(depth), self.k_end - K_BLOCK)),)

    def _beta_of(self, first: Expr) -> Expr:
        if self.schedule.split > 1:
            one, zero = number(1, self.sums), number(0, self.sums)
            return select(compare("==", K_BLOCK, self.k_start), zero, one)
        return first

    def _fill_copy(self) -> Body:
        """B's block to private memory; past the last column whatever the edge holds."""
        block, s = self.copy, self.schedule
        if block is None:
            return ()
        say = Comment(f"A block of {self.title('b')}, up to {s.k_block} deep, in the order that it is read in.")
        by_rows = self.spec.b_order == "row"
        if by_rows and not s.along_k:
            place, at = (K_BLOCK + K0, COL0 + J * s.vector), (PANEL, K0, J * s.vector)
            move = Move(block, at, self.given("b"), place, VECTOR, s.vector)
            line = loop(J, s.tile[1] // s.vector, (move,))
            return say, For(K0, Const(0), K_DEPTH, 1, self._panels(line))
        # A column after the other, whose lines would else drive each other from the cache. Intel's compiler (2026.2)
        # crashes where panels stand inside and there is but one.
        place = (K_BLOCK + K0, COL0 + J) if by_rows else (COL0 + J, K_BLOCK + K0)
        at = (PANEL, J, K0) if s.along_k else (PANEL, K0, J)
        move = Move(block, at, self.given("b"), place, SCALAR, 1)
        column = For(K0, Const(0), K_DEPTH, 1, (move,))
        return say, *self._panels((For(J, Const(0), Const(s.tile[1]), 1, (column,), exact=True),))

    def _tiles(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """All tiles of the block, a column of them at a time: its part of B stays in the cache."""
        rows, cols = self.schedule.tile
        tile = self.tile(start, stop, beta)
        down = For(ROW0, ROW_BEGIN, ROW_END, rows, tile, exact=self.whole_rows)
        if self.schedule.m_block == 1:
            return Comment(f"Some rows of {self.title('a')} pass all panels of {self.title('b')}."), replace(
                down, body=self._panels(tile)
            )
        if many := self.schedule.m_block * rows:
            some = self._panels((replace(down, start=M_BLOCK, stop=M_STOP),))
            end = Let(M_STOP, minimum(ROW_END, M_BLOCK + many))
            a, b = map(self.title, "ab")
            comment = Comment(f"Some rows of {a} after the others, which stay in the cache while {b}'s panels pass.")
            return comment, For(M_BLOCK, ROW_BEGIN, ROW_END, many, (end, *some))
        if not self.begins_earlier:
            return self._panels((down,))
        fits = compare("<=", Const(cols), self.n)
        shifted = select(fits, minimum(OWN_COL, self.n - cols), OWN_COL)
        main = self.k_main(start, stop)
        vectors = f"its vectors of {self.title('b')}"
        say = Comment(f"The last tile of a line begins earlier, so that {vectors} end inside.")
        return (For(OWN_COL, COL_BEGIN, COL_END, cols, (say, Let(COL0, shifted), *main, down)),)

    def _panels(self, body: Body) -> Body:
        """The copy's panels, each the columns of a tile."""
        cols = self.schedule.tile[1]
        inner = (Let(PANEL, (COL0 - COL_BEGIN) // cols), *body)
        return (For(COL0, COL_BEGIN, COL_END, cols, inner, exact=self.whole_columns),)

    def _known(self, axis: int) -> int:
        return (self.spec.m, self.spec.n)[axis] or self.spec.multiple_of[axis]

    @property
    def begins_earlier(self) -> bool:
        """Whether the last tile of a line does, so that its vectors of B end inside."""
        return self.copy is None and not self.whole_columns and not self.schedule.along_k

    @property
    def whole_rows(self) -> bool:
        """Whether no tile ends past the last row."""
        return self._known(0) % self.schedule.tile[0] == 0

    @property
    def whole_columns(self) -> bool:
        """Whether no tile ends past the last column."""
        return self._known(1) % self.schedule.tile[1] == 0

    def k_main(self, start: Expr, stop: Expr) -> Body:
        """Where vectors of B don't fit, C being narrower than a tile, all of K is left to single loads."""
        return (Let(K_MAIN, select(COL0 + self.schedule.tile[1] <= self.n, stop, start)),)

    @property
    def result(self) -> Buffer:
        """What a tile is stored to."""
        return self.workspace(writable=True) if self.schedule.split > 1 else self.c

    def store(self, acc: Registers, beta: Expr, atom: CopyAtom, width: int) -> Body:
        """C from a tile of sums."""
        rows, cols = self.schedule.tile
        by_columns = self.spec.c_order == "col"
        tile = Tile(self.c, (COL0, ROW0) if by_columns else (ROW0, COL0), rows, cols, by_columns)
        comment = self.update_comment()
        steps, depth = epilogue.steps(self), self.schedule.k_block
        if self.schedule.split > 1:
            tile = Tile(self.workspace(writable=True), (PART, ROW0, COL0), rows, cols)
            comment, beta, steps = "This part's share of C.", beta if depth else number(0, self.sums), ()
        first = OWN_COL if self.begins_earlier else None
        last = compare("<=", self.k_end, K_BLOCK + depth) if steps and depth else None
        return Comment(comment), Update(tile, acc, self.alpha, beta, atom, width, steps, first, last=last)

    # --- the kernel ---------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """All of it."""
        split, block = self.schedule.split > 1, self.copy
        a, b = self.given("a"), self.given("b")
        finishing = () if split else epilogue.matrices(self)
        order: list[Expr | Buffer] = [self.m, self.n, self.k, self.alpha, *self.per_matrix(a, b)]
        order += [self.result] if split else [self.beta, *self.per_matrix(self.c), *epilogue.parameters(self)]
        return Kernel(
            name=self.name,
            params=tuple(p for p in order if isinstance(p, Buffer | Var)),
            body=(
                *self._where(),
                *(self.named_pitches("workspace") if split else ()),
                *self.to_product(a, b, self.result, *finishing),
                *(() if block is None else (Alloc(block),)),
                *self._in_blocks(),
            ),
            group=(1, 1),
            grid=self.grid(),
            facts=self.facts(),
            promises=self.promises(),
            layers=BATCH_COUNT if self.spec.batched else None,
        )

    def facts(self) -> tuple[Expr, ...]:
        """That a part is one of those that there are, and none ends past K."""
        in_parts = (Const(self.schedule.split - 1) - PART,) if self.schedule.split > 1 else ()
        return (*in_parts, *((self.k - K_END,) if self.asks_alpha else ()))
