"""CPU panels: few threads, each with a large block of C, which it computes tile by tile in vectors of its own.

The macro-kernel is the loops over the tiles of a block, in an order that lets the caches of one core serve them; the
micro-kernels (`micro_kernels.py`) sum a tile. Rows past the last one are the last one read again. B is read in place,
where the last tile of a line begins earlier so that its vectors end inside; or from a private copy of a block, which
has no edges.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import epilogues, groups
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.constants import named, said
from gemmgen.ir.copy_instructions import SCALAR, VECTOR, CopyAtom
from gemmgen.ir.expr import Const, Expr, Var, both, ceil_div, compare, minimum, number, select
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import Kernel, arguments, loop
from gemmgen.ir.sizes import GROUP_ROWS
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Stmt, VectorCopy
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.mainloops.micro_kernels import (
    COL_BEGIN,
    K_BLOCK,
    OWN_COL,
    PANEL,
    ROW_BEGIN,
    DotProduct,
    MicroKernel,
    OuterProduct,
    Panel,
)
from gemmgen.positions import (
    ACROSS,
    BLOCK,
    COL,
    COL0,
    DOWN,
    K0,
    K_BEGIN,
    K_END,
    K_PART,
    PART,
    ROW0,
    call,
)
from gemmgen.records import cached_property, dataclass

#: Where a thread's block of C ends, and how many rows and columns each has.
ROW_END, ROWS_EACH = Var("row_end"), Var("rows_each")
COL_END, COLS_EACH = Var("col_end"), Var("cols_each")
K_STOP, K_DEPTH = Var("k_stop"), Var("k_depth")
#: Some rows of a block of B that are copied to all panels, before the next ones; how many.
K_ROWS, K_ROWS_END, ROWS_COPIED = Var("k_rows"), Var("k_rows_end"), named("ROWS", 16, free=True)
#: A thread's share of an axis: names for its length, begin and end; its place, the size, a tile's part and the shares.
_Share = tuple[Var, Var, Var, Expr, Expr, int, Var]
#: The first row that is a tile's own: the last tile of a column may begin earlier.
OWN_ROW = Var("own_row")
M_BLOCK, M_STOP = Var("m_block"), Var("m_stop")


@dataclass(frozen=True)
class CpuPanel(Mainloop):
    """The macro-kernel: block of C, block of K, and tile, from the outside in. A micro-kernel sums a tile."""

    @cached_property
    def _panel(self) -> Panel:
        return Panel(self.problem, self._k_end)

    @cached_property
    def _micro_kernel(self) -> MicroKernel:
        return (DotProduct if self.schedule.dot_product else OuterProduct)(self._panel)

    # --- where a thread is -----------------------------------------------------------------------

    def _grid(self) -> tuple[Expr, Expr]:
        """Groups, of one thread each, along rows and columns."""
        down, across = self._groups
        return (Const(1), down * across * self.schedule.split_k) if self.schedule.split_k > 1 else (down, across)

    @property
    def _groups(self) -> tuple[Expr, Expr]:
        """So many that none has too many tiles, then up to the next multiple."""
        s = self.schedule
        units = (tile * sweep * even for tile, sweep, even in zip(s.tile, s.macro_kernel, s.grid_multiple, strict=True))
        down, across = (
            ceil_div(size, unit) * even
            for size, unit, even in zip((self.problem.m, self.problem.n), units, s.grid_multiple, strict=True)
        )
        return groups.most_blocks(self._most_rows) if self.problem.spec.grouped == "rows" else down, across

    @property
    def _most_rows(self) -> int:
        """Rows of C that a thread has at most."""
        return self.schedule.tile[0] * self.schedule.macro_kernel[0]

    @property
    def _k_end(self) -> Expr:
        """Where the sum ends."""
        return K_END if self.problem.asks_alpha else self.scheduler.k_end

    def _where(self) -> Body:
        """This thread's block of C: an even share of all tiles."""
        down, across = self._groups
        number = call("group_id", 0)
        row: Expr = call("group_id", 1)
        col: Expr = number
        lets: list[Stmt] = [*self.scheduler.product(), Let(DOWN, down), Let(ACROSS, across)]
        if self.schedule.split_k > 1:
            lets += [Let(PART, number // (DOWN * ACROSS)), Let(BLOCK, number % (DOWN * ACROSS))]
            row, col = BLOCK // ACROSS, BLOCK % ACROSS
        rows, cols = self.schedule.tile
        by_rows: tuple[_Share, ...] = ((ROWS_EACH, ROW_BEGIN, ROW_END, row, self.problem.m, rows, DOWN),)
        if self.problem.spec.grouped == "rows":
            most = self._most_rows
            lets += [*groups.group_of(row, most, ROW_BEGIN), Let(ROW_END, minimum(GROUP_ROWS, ROW_BEGIN + most))]
            by_rows = ()
        for each, begin, end, place, size, unit, count in (
            *by_rows,
            (COLS_EACH, COL_BEGIN, COL_END, col, self.problem.n, cols, ACROSS),
        ):
            lets += [
                Let(each, (ceil_div(size, unit) + count - 1) // count * unit),
                Let(begin, minimum(size, place * each)),
                Let(end, minimum(size, begin + each)),
            ]
        if self.schedule.split_k > 1:
            whole = self.schedule.vector if self.schedule.dot_product else 1
            lets += [
                Let(K_PART, ceil_div(self.problem.k, self.schedule.split_k * whole) * whole),
                Let(K_BEGIN, minimum(self.problem.k, PART * K_PART)),
                Let(K_END, self.problem.end_unless_zero(K_BEGIN, minimum(self.problem.k, K_BEGIN + K_PART))),
            ]
        elif self.problem.asks_alpha:
            lets.append(Let(K_END, self.problem.end_unless_zero(Const(0), self.problem.k)))
        return tuple(lets)

    # --- the product --------------------------------------------------------------------------------

    def _in_blocks(self) -> Body:
        """K in blocks, where it has them; one at least, so that C is written even where K is zero."""
        depth = self.schedule.kc
        if not depth:
            return self._tiles(self.scheduler.k_start, self._k_end, self.problem.beta)
        stop = select(compare("<", self.scheduler.k_start, self._k_end), self._k_end, self.scheduler.k_start + 1)
        beta = Var("beta_now", self.problem.sums)
        first = select(compare("==", K_BLOCK, self.scheduler.k_start), self.problem.beta, number(1, self.problem.sums))
        body = (
            *self._bounds(depth),
            *self._fill_copy(),
            Comment("C holds the sums between blocks of K."),
            Let(beta, self._beta_of(first)),
            *(self._tiles(K_BLOCK, K_STOP, beta) if self._panel.copy is None else self._tiles(Const(0), K_DEPTH, beta)),
        )
        return (For(K_BLOCK, self.scheduler.k_start, stop, depth, body),)

    def _bounds(self, depth: int) -> Body:
        """Of a block of K: where it ends, or of a copy, whose steps are counted from its first, how deep it is."""
        if self._panel.copy is None:
            return (Let(K_STOP, minimum(self._k_end, K_BLOCK + depth)),)
        return (Let(K_DEPTH, minimum(Const(depth), self._k_end - K_BLOCK)),)

    def _beta_of(self, first: Expr) -> Expr:
        if self.schedule.split_k > 1:
            one, zero = number(1, self.problem.sums), number(0, self.problem.sums)
            return select(compare("==", K_BLOCK, self.scheduler.k_start), zero, one)
        return first

    def _fill_copy(self) -> Body:
        """B's block to private memory; past the last column whatever the edge holds."""
        block, s = self._panel.copy, self.schedule
        if block is None or s.fused_copy:
            return ()
        say = Comment(
            f"A block of {self.problem.title('b')}, up to {said(s.kc)} deep, in the order that it is read in."
        )
        by_rows = self.problem.spec.b_order == "row"
        if by_rows and not s.dot_product:
            return say, *self._copy_rows(block)
        # A column after the other, whose lines would else drive each other from the cache. Intel's compiler (2026.2)
        # crashes where panels stand inside and there is but one.
        col = (
            self._panel.earlier(COL0 + J // s.vector * s.vector) + J % s.vector if self._panel.ends_inside else COL0 + J
        )
        place = (K_BLOCK + K0, col) if by_rows else (col, K_BLOCK + K0)
        at = (PANEL, J, K0) if s.dot_product else (PANEL, K0, J)
        move = VectorCopy(block, at, self.problem.given("b"), place, SCALAR, 1)
        column = For(K0, Const(0), K_DEPTH, 1, (move,))
        return say, *self._panels((For(J, Const(0), Const(s.tile[1]), 1, (column,), exact=True),))

    def _copy_rows(self, block: Buffer) -> Body:
        """Some rows of B for all panels, then the next: hardware follows so many, and panels are written in order."""
        s, n = self.schedule, self.problem.n
        col = COL0 + J * s.vector

        def copied(col: Expr, atom: CopyAtom, width: int, *names: Stmt) -> Body:
            move = VectorCopy(block, (PANEL, K0, J * width), self.problem.given("b"), (K_BLOCK + K0, col), atom, width)
            line = loop(J, s.tile[1] // width, (*names, move))
            if width == 1:  # short for the compiler
                line = (For(J, Const(0), Const(s.tile[1]), 1, (move,), exact=True),)
            rows = For(K0, K_ROWS, K_ROWS_END, 1, line)
            end = Let(K_ROWS_END, minimum(K_DEPTH, K_ROWS + ROWS_COPIED))
            return (For(K_ROWS, Const(0), K_DEPTH, ROWS_COPIED, (end, *self._panels((rows,)))),)

        if not self._panel.ends_inside:
            return copied(col, VECTOR, s.vector)
        say = Comment("Vectors that would end past the last column begin earlier.")
        whole = copied(COL, VECTOR, s.vector, Let(COL, minimum(col, n - s.vector)))
        return (If(compare("<=", Const(s.vector), n), (say, *whole), copied(COL0 + J, SCALAR, 1)),)

    def _tiles(self, start: Expr, stop: Expr, beta: Expr) -> Body:
        """All tiles of the block, a column of them at a time: its part of B stays in the cache."""
        rows, cols = self.schedule.tile
        tile = self._micro_kernel.tile(start, stop, beta)
        if self.schedule.mc == 1:
            a, b = map(self.problem.title, "ab")
            down = self._down(self._panels(tile), beta)
            return Comment(f"Some rows of {a} are multiplied by all panels of {b}."), down
        down = self._down(tile, beta)
        if many := self.schedule.mc * rows:
            some = self._panels((replace(down, start=M_BLOCK, stop=M_STOP),))
            end = Let(M_STOP, minimum(ROW_END, M_BLOCK + many))
            a, b = map(self.problem.title, "ab")
            comment = Comment(f"Some rows of {a} after the others, which stay in the cache while {b}'s panels pass.")
            return comment, For(M_BLOCK, ROW_BEGIN, ROW_END, many, (end, *some))
        if not self._panel.begins_earlier:
            return self._panels((down,))
        fits = compare("<=", Const(cols), self.problem.n)
        shifted = select(fits, minimum(OWN_COL, self.problem.n - cols), OWN_COL)
        main = self._panel.k_main(start, stop)
        vectors = f"its vectors of {self.problem.title('b')}"
        say = Comment(f"The last tile of a line begins earlier, so that {vectors} end inside.")
        line = (say, Let(COL0, shifted), *main, *self._panel.first_column(beta), down)
        return (For(OWN_COL, COL_BEGIN, COL_END, cols, line),)

    def _down(self, body: Body, beta: Expr) -> For:
        """A column of tiles. The last one begins earlier where it may store rows again, so that all of it is inside."""
        rows = self.schedule.tile[0]
        again = self._panel.rows_again(beta)
        if again is None:
            return For(ROW0, ROW_BEGIN, ROW_END, rows, body, exact=self._panel.whole_rows)
        fits = both(again, ROW_BEGIN + rows <= ROW_END)
        shifted = select(fits, minimum(OWN_ROW, ROW_END - rows), OWN_ROW)
        say = Comment("Where C is not read, the last tile begins earlier, and stores rows again.")
        return For(OWN_ROW, ROW_BEGIN, ROW_END, rows, (say, Let(ROW0, shifted), *body))

    def _panels(self, body: Body) -> Body:
        """The copy's panels, each the columns of a tile."""
        cols = self.schedule.tile[1]
        inner = (Let(PANEL, (COL0 - COL_BEGIN) // cols), *body)
        return (For(COL0, COL_BEGIN, COL_END, cols, inner, exact=self._panel.whole_columns),)

    # --- the kernel ---------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """All of it."""
        problem, split, block = self.problem, self.schedule.split_k > 1, self._panel.copy
        a, b = problem.given("a"), problem.given("b")
        finishing = () if split else epilogues.matrices(problem)
        order: list[Expr | Buffer] = [*groups.sizes(problem), problem.alpha, *problem.parameters_of(a, b)]
        order += [self._panel.result] if split else [problem.beta, *problem.parameters_of(problem.c)]
        order += () if split else epilogues.parameters(problem)
        return Kernel(
            name=self.problem.name,
            params=arguments(*order),
            body=(
                *self._where(),
                *(self.problem.named_pitches("workspace") if split else ()),
                *self.problem.to_product(a, b, self._panel.result, *finishing),
                *(() if block is None else (Alloc(block),)),
                *self._in_blocks(),
            ),
            group=(1, 1),
            grid=self._grid(),
            nonnegative=self._assumptions(),
            assumptions=self.problem.assumptions(),
            grid_z=problem.layers,
        )

    def _assumptions(self) -> tuple[Expr, ...]:
        """That a part is one of those that there are, and none ends past K."""
        in_parts = (Const(self.schedule.split_k - 1) - PART,) if self.schedule.split_k > 1 else ()
        return (*in_parts, *((self.problem.k - K_END,) if self.problem.asks_alpha else ()))
