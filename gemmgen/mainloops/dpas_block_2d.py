"""A product by matrix instructions of Intel's sub-groups on 2D block reads of A and B as they are.

Into the cache, which sub-groups share, they prefetch together. Where the matrices do not lie as 2D block reads ask, and
for what is left of K, each lane loads its elements itself.
"""

from __future__ import annotations

from collections.abc import Callable

from gemmgen import epilogues
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import said
from gemmgen.ir.copy_instructions import (
    BLOCK_2D_BYTES,
    BLOCK_2D_ROWS,
    BLOCK_2D_WRITTEN_ROWS,
    PAIR,
    CopyAtom,
    block_2d_by_elements,
    block_2d_conditions,
    block_2d_read,
    block_2d_transposed_read,
    block_2d_write,
    by_payload,
)
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, all_of, ceil_div, compare, is_const, number
from gemmgen.ir.instructions import DPAS_ROWS, WORD_BYTES, Instruction, dpas, of_elements
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import DEPTH as P
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import (
    Alloc,
    BlockPayload,
    Body,
    Comment,
    For,
    If,
    Let,
    Multiply,
    PayloadAdvance,
    Prefetch,
    Registers,
    Stmt,
    Store,
    VectorCopy,
    payload_place,
)
from gemmgen.ir.synchronization import Barrier
from gemmgen.mainloops.sub_group_tiles import SUB_GROUP_COL, SubGroupTiles, of_sub_group
from gemmgen.passes.nibbles import in_bytes
from gemmgen.positions import (
    K0,
    K_MAIN,
    LOCAL_ROW,
)
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule.dpas import BLOCK_2D_LANES

#: Which of the sub-groups above one another it is.
SUB_GROUP_ROW = Var("sub_group_row")
#: Which of a fragment's instructions along K, and of the steps that are prefetched before the first.
PART, AHEAD = Var("q"), Var("ahead")
#: Which half of a sub-step's products.
HALF = Var("h")
#: Which of the rows that one message writes.
R = Var("r")
#: Blocks side by side that one read brings.
COUNTS = (4, 2, 1)
#: Where a read begins: from the beginning of a sub-step, and from its number along K and beside others.
Place = Callable[[Expr, Expr, Expr], tuple[Expr, Expr]]


@dataclass(frozen=True, slots=True)
class Reads:
    """The 2D block reads that bring a sub-step of a matrix.

    Attributes:
        matrix: that they read.
        atom: one of them.
        shape: how many along K, and side by side.
        at: row and column where one begins.
        to: where its elements go in the fragment, by both numbers.
        along_k: 0 where K goes along the matrix' rows, as it is stored; 1 where along its columns.
        unit: elements along K that the number of a row or a column counts.
    """

    matrix: Buffer
    atom: CopyAtom
    shape: tuple[int, int]
    at: Place
    to: Callable[[Expr, Expr], tuple[Expr, ...]]
    along_k: int
    unit: int = 1


@dataclass(frozen=True, slots=True)
class Prefetches:
    """The prefetches of a matrix by a sub-group in a step.

    Attributes:
        matrix, atom, along_k: as in `Reads`.
        count: how many.
        at: row and column where one begins, by its number.
        extent: of the matrix.
        kept: whether each has an address payload that is kept.
        unit: as in `Reads`.
    """

    matrix: Buffer
    count: int
    at: Callable[[Expr], tuple[Expr, Expr]]
    atom: CopyAtom
    extent: tuple[Expr, Expr]
    along_k: int
    kept: bool
    unit: int

    def one(self, number: Expr) -> Stmt:
        """A prefetch."""
        if not self.kept:
            return Prefetch(self.matrix, self.at(number), atom=self.atom, extent=self.extent)
        place = payload_place(*self.payload(number))
        return Prefetch(self.matrix, place, atom=by_payload(self.atom), extent=self.extent)

    def payload(self, number: Expr) -> tuple[Buffer, tuple[Expr, ...]]:
        """Its payload: the array, and where in it."""
        name = f"{self.matrix.name}_ahead"
        if self.count == 1:
            return Buffer(name, I32, Space.PRIVATE, Layout.packed(2)), ()
        return Buffer(name, I32, Space.PRIVATE, Layout.packed(self.count, 2)), (number,)

    def fill(self, number: Expr) -> Stmt:
        """What fills that."""
        place, atom = self.at(number), by_payload(self.atom)
        return BlockPayload(*self.payload(number), self.matrix, place, atom, self.extent)

    def advance(self, number: Expr, by: int) -> Stmt:
        """So many elements along K."""
        return PayloadAdvance(*self.payload(number), self.along_k, by // self.unit, by_payload(self.atom))


@dataclass(frozen=True)
class DpasBlock2D(SubGroupTiles):
    """The mainloop of one kernel."""

    @cached_property
    def instruction(self) -> Instruction:
        spec = self.problem.spec
        return of_elements(dpas(spec.dtype, BLOCK_2D_LANES, spec.element("b").pairs))

    @property
    def _size(self) -> int:
        return self.instruction.dtype.size

    @cached_property
    def _b(self) -> Buffer:
        """Of int4 the bytes that hold pairs of elements along K, which the instruction takes as they are."""
        given = self.problem.given("b")
        return in_bytes(given) if given.dtype.pairs else given

    @property
    def _per_byte(self) -> int:
        """Elements of B in one of its matrix' elements."""
        return PAIR if self.instruction.b_pairs else 1

    @cached_property
    def acc(self) -> Registers:
        """Columns of rows: eight rows of a column are one register of the instruction."""
        return self.accumulators(by_columns=True)

    @property
    def _parts(self) -> int:
        """Instructions along K that a read of A serves."""
        return min(2, self.schedule.block_k // self.instruction.depth)

    @property
    def _sub_step(self) -> int:
        """How deep in K a read of A goes."""
        return self._parts * self.instruction.depth

    @property
    def _sub_steps_of_step(self) -> int:
        return self.schedule.block_k // self._sub_step

    @property
    def _b_rows(self) -> int:
        """How deep a lane's elements of B lie together in registers."""
        return self._sub_step if self._by_columns else min(BLOCK_2D_ROWS, self._sub_step)

    def _fragment(self, name: str) -> Buffer:
        """A lane's elements of A, for each part along K; of B, for each read along K and each column."""
        rows, cols = self.schedule.tile
        own = self.instruction.a.cols.values
        rows //= self.instruction.a.rows.lanes
        shape: tuple[int, ...] = (self._parts, rows) if own == 1 else (self._parts, rows, own)
        if name == "b":
            shape = (self._sub_step // self._b_rows, cols, self._b_rows // self._per_byte)
        return Buffer(f"{name}_frag", self.instruction.dtype, Space.PRIVATE, Layout.packed(*shape))

    def _store(self) -> Body:
        """C by 2D block writes, where beta is 0 and C lies as they ask; else element by element."""
        problem, s, c = self.problem, self.schedule, self.problem.c
        plain = epilogues.store_from_registers(problem, self.acc)
        if not s.block_writes or (is_const(problem.beta) and not is_const(problem.beta, 0)):
            return plain
        (rows, cols), (row, col), acc = s.tile, self._place, self.acc.buffer
        atom = block_2d_write(c.dtype.size, BLOCK_2D_WRITTEN_ROWS)
        own = J, I * BLOCK_2D_WRITTEN_ROWS + R
        scale = Store(acc, own, problem.alpha * Load(acc, own))
        scaled = () if is_const(problem.alpha, 1) else loop(R, BLOCK_2D_WRITTEN_ROWS, (scale,))
        to, of = (row + I * BLOCK_2D_WRITTEN_ROWS, col + J * BLOCK_2D_LANES), (J, I * BLOCK_2D_WRITTEN_ROWS)
        write = VectorCopy(c, to, acc, of, atom, BLOCK_2D_WRITTEN_ROWS, extent=(problem.m, problem.n))
        blocks: Body = (
            Comment("C = alpha * A * B by 2D block writes, which leave out what is past the matrix."),
            *loop(J, cols, loop(I, rows // BLOCK_2D_WRITTEN_ROWS, (*scaled, write))),
        )
        asked = [compare("==", problem.beta, number(0, problem.sums)), *block_2d_conditions(c)]
        return (If(all_of(x for x in asked if x not in problem.assumptions()), blocks, tuple(plain)),)

    def _positions(self) -> Body:
        """Which of the sub-groups above one another it is, too, where they share prefetches."""
        names = super()._positions()
        if self.schedule.group[0] > 1 and self.schedule.prefetch_distance:
            return (*names, Let(SUB_GROUP_ROW, of_sub_group(LOCAL_ROW)))
        return names

    def _along_k(self) -> Body:
        """The main loop by 2D block reads, then what they leave."""
        s, sub_step, end = self.schedule, self._sub_step, self.scheduler.k_end
        come, meet = (Barrier("none", part=part) for part in ("arrive", "wait"))
        in_order = Barrier("none", of_sub_group=True)
        first, last = self._spread()
        step = (*first, *self._sub_steps(K0 + P * sub_step, self._k_words, False), in_order, *last)
        steps = loop(P, self._sub_steps_of_step, step)
        on = self._prefetches_on()
        body = (*on, come, *steps, meet) if s.barrier else (*on, *steps)
        return (
            *self._payloads_first(),
            *self._prefetched_first(),
            Comment(f"Steps of {said(s.block_k)} along K by 2D block reads, with zeros past the matrices' ends."),
            For(K0, self.scheduler.k_start, K_MAIN, s.block_k, body),
            *self._rest(sub_step, self._sub_steps(K0, end, True)),
        )

    # --- reads ------------------------------------------------------------------------------------

    def _reads(self, name: str) -> Reads:
        """What brings a sub-step of A or of B."""
        (row, col), size, parts, zero = self._place, self._size, self._parts, Const(0)
        if name == "a":
            atom = block_2d_read(size, self.schedule.tile[0], parts, lines=self.instruction.a.rows.lanes)
            to = (zero,) * len(self._fragment("a").shape)
            return Reads(self._a, atom, (1, 1), lambda k0, _q, _j: (row, k0), lambda _q, _j: to, 1)
        if self._by_columns:
            # Of 4 bits a message brings twice as many.
            depth = self.instruction.depth * self._per_byte
            bytes_, shape = depth // self._per_byte, (self._sub_step // depth, self._reads_across)
            atom = block_2d_transposed_read(size, bytes_)
            unit = self._per_byte * (1 if atom.block is None else atom.block.col_unit)
            at: Place = lambda k0, q, j: (col + j * BLOCK_2D_LANES, _in_units(k0 + q * depth, unit))  # noqa: E731
            return Reads(self._b, atom, shape, at, lambda q, j: (zero, j, q * bytes_), 1, unit)
        count, deep = self._b_count, self._b_rows
        atom = block_2d_read(size, deep, count, transformed=size < WORD_BYTES)
        wide, shape = count * BLOCK_2D_LANES, (self._sub_step // deep, self._reads_across)
        return Reads(
            *(self._b, atom, shape),
            lambda k0, q, j: (k0 + q * deep, col + j * wide),
            lambda q, j: (q, j * count, zero),
            0,
        )

    def _extent(self, matrix: Buffer, end: Expr) -> tuple[Expr, Expr]:
        """Rows and columns of a matrix whose K ends there, as it is stored."""
        if matrix == self._a:
            return self.problem.m, end
        return (self.problem.n, ceil_div(end, self._per_byte)) if self._by_columns else (end, self.problem.n)

    def _sub_steps(self, k0: Expr, end: Expr, by_elements: bool) -> Body:
        """As deep in K as one read of A: all reads before the products, of which a column's follow each other."""
        kept = self.schedule.address_payloads == "all" and not by_elements
        moved = tuple(s for name in "ab" for s in self._each(name, self._advanced(name))) if kept else ()
        reads: list[Stmt] = []
        for name in "ab":
            of, fragment = self._reads(name), self._fragment(name)
            atom = block_2d_by_elements(of.atom) if by_elements else by_payload(of.atom) if kept else of.atom

            def read(
                q: Expr, j: Expr, of: Reads = of, fragment: Buffer = fragment, atom: CopyAtom = atom, name: str = name
            ) -> Stmt:
                index = payload_place(*self._payload(name, q, j)) if kept else of.at(k0, q, j)
                extent = self._extent(of.matrix, end)
                return VectorCopy(fragment, of.to(q, j), of.matrix, index, atom, atom.widths[0], extent=extent)

            reads += [Alloc(fragment), *self._each(name, read)]
        return *moved, *reads, *self._products(self._fragment("a"), self._fragment("b"))

    def _each(self, name: str, one: Callable[[Expr, Expr], Stmt]) -> Body:
        """A statement for each read of a sub-step: by its number along K, and by that among those beside it."""
        down, across = self._reads(name).shape
        return loop(PART, down, loop(J, across, (one(PART, J),)))

    # --- address payloads -------------------------------------------------------------------------

    def _payload(self, name: str, q: Expr, j: Expr) -> tuple[Buffer, tuple[Expr, ...]]:
        """The payload of a read: the array, and where in it."""
        down, across = self._reads(name).shape
        if down * across == 1:
            return Buffer(f"{name}_at", I32, Space.PRIVATE, Layout.packed(2)), ()
        return Buffer(f"{name}_at", I32, Space.PRIVATE, Layout.packed(down * across, 2)), (q * across + j,)

    def _advanced(self, name: str) -> Callable[[Expr, Expr], Stmt]:
        """A sub-step further along K."""
        of = self._reads(name)
        by, atom = self._sub_step // of.unit, by_payload(of.atom)
        return lambda q, j: PayloadAdvance(*self._payload(name, q, j), of.along_k, by, atom)

    def _payloads_first(self) -> Body:
        """Payloads of all messages of the main loop, each a step before what it brings first."""
        s, begin = self.schedule, self.scheduler.k_start
        body: list[Stmt] = []
        for name in "ab" if s.address_payloads == "all" else "":
            of = self._reads(name)

            def fill(q: Expr, j: Expr, of: Reads = of, name: str = name) -> Stmt:
                index, extent = of.at(begin - self._sub_step, q, j), self._extent(of.matrix, self._k_words)
                return BlockPayload(*self._payload(name, q, j), of.matrix, index, by_payload(of.atom), extent)

            body += [Alloc(self._payload(name, J, J)[0]), *self._each(name, fill)]
        if self._keeps_prefetches:
            for ask in self._prefetches(begin - s.block_k):
                body += [Alloc(ask.payload(J)[0]), *loop(J, ask.count, (ask.fill(J),))]
        say = "Address payloads: each is filled once and advanced along K."
        return (Comment(say), *body) if body else ()

    @property
    def _keeps_prefetches(self) -> bool:
        return self.schedule.prefetch_distance > 0 and self.schedule.address_payloads != "none"

    def _prefetches_on(self) -> Body:
        """The payloads of prefetches a step further: all at once, since the compiler waits before."""
        if not self._keeps_prefetches:
            return ()
        by = self.schedule.block_k
        return tuple(s for ask in self._prefetches(K0) for s in loop(J, ask.count, (ask.advance(J, by),)))

    def _products(self, a: Buffer, b: Buffer) -> Body:
        """Those of a sub-step. Its parts along K lie in one line of B's fragment, or each in one of its own. Where each
        part has reads of B of its own, one half of the products, on half of the rows of each part, needs all reads, and
        the other half nothing new, so that the compiler waits for all reads at once.
        """
        rows, cols = self.schedule.tile
        depth, zero = self.instruction.depth, Const(0)
        of_a = (PART, I, zero)[: len(a.shape)]
        of_b = (zero, J, PART * (depth // self._per_byte)) if self._b_rows == self._sub_step else (PART, J, zero)
        blocks = rows // DPAS_ROWS

        def products(block: Expr, count: int) -> Body:
            at_a = tuple(block * self.instruction.a.rows.values if x is I else x for x in of_a)
            multiply = Multiply(self.acc.buffer, (J, block * DPAS_ROWS), a, at_a, b, of_b, self.instruction)
            return loop(J, cols, loop(I, count, (multiply,)))

        if self._reads("b").shape[0] == 1 or blocks % 2:
            return loop(PART, self._parts, products(I, blocks))
        half = blocks // 2
        return loop(HALF, 2, loop(PART, self._parts, products((HALF + PART) % 2 * half + I, half)))

    @cached_property
    def _b_count(self) -> int:
        """Blocks of B side by side that one read brings."""
        most = BLOCK_2D_BYTES // (BLOCK_2D_LANES * self._size)
        return next(x for x in COUNTS if x <= most and self.schedule.tile[1] % x == 0)

    @property
    def _reads_across(self) -> int:
        """Reads of B side by side."""
        cols = self.schedule.tile[1]
        return cols if self._by_columns else cols // self._b_count

    # --- prefetches -------------------------------------------------------------------------------

    def _prefetched_first(self) -> Body:
        """The tiles of the first steps, where there are any."""
        s, begin = self.schedule, self.scheduler.k_start
        if not s.prefetch_distance:
            return ()
        asked = self._prefetches(begin + AHEAD * s.block_k)
        each = (stmt for ask in asked for stmt in loop(J, ask.count, (ask.one(J),)))
        return (If(begin < K_MAIN, loop(AHEAD, s.prefetch_distance, (*self._prefetches_on(), *each))),)

    def _spread(self) -> tuple[Body, Body]:
        """The prefetches of a step spread over its sub-steps, those of A and of B by turns: one right behind another
        would wait for the first one's address payload. B's stand at the end of a sub-step, since SYCL's compiler does
        not unroll a loop that begins with two conditions.

        Returns: what comes at the beginning of a sub-step, and at its end.
        """
        s, begin, end = self.schedule, list[Stmt](), list[Stmt]()
        asked = self._prefetches(K0 + s.prefetch_distance * s.block_k) if s.prefetch_distance else ()
        for turn, ask in enumerate(asked):
            every, uneven = divmod(self._sub_steps_of_step, ask.count)
            if uneven or not every:
                begin.append(If(compare("==", P, 0), loop(J, ask.count, (ask.one(J),))))
            elif every == 1:
                begin.append(ask.one(P))
            else:
                where, last = (begin, 0) if turn == 0 else (end, every // 2 - 1)
                where.append(If(compare("==", P % every, last), (ask.one(P // every),)))
        return tuple(begin), tuple(end)

    def _prefetches(self, k0: Expr) -> tuple[Prefetches, Prefetches]:
        """The tiles of A and B of a step: a part of a sub-group's rows of A, and of its columns of B, by each of the
        sub-groups that read those.
        """
        s, (row, col) = self.schedule, self._place
        line = BLOCK_2D_BYTES // self._size
        beside: Expr = SUB_GROUP_COL if self._sub_groups_across > 1 else Const(0)
        above: Expr = SUB_GROUP_ROW if s.group[0] > 1 else Const(0)
        along_k = -(-s.block_k // line)
        wide = BLOCK_2D_LANES * s.tile[1]
        of_a = self._ask(self._a, s.tile[0], along_k, beside, self._sub_groups_across, lambda i: (row, k0 + i * line))
        if self._by_columns:
            rows, across = min(BLOCK_2D_ROWS, wide), -(-s.block_k // (line * self._per_byte))
            blocks = -(-wide // rows) * across
        else:
            rows, across = min(BLOCK_2D_ROWS, s.block_k), -(-wide // line)
            blocks = across * (s.block_k // rows)
        down, on = (col, _in_units(k0, self._per_byte)) if self._by_columns else (k0, col)
        of_b = self._ask(
            self._b, rows, blocks, above, s.group[0], lambda i: (down + i // across * rows, on + i % across * line)
        )
        return of_a, of_b

    def _ask(
        self,
        matrix: Buffer,
        rows: int,
        blocks: int,
        number: Expr,
        sharers: int,
        place: Callable[[Expr], tuple[Expr, Expr]],
    ) -> Prefetches:
        """Prefetches of so many blocks of a tile by so many sub-groups, of which this has a number."""
        own = number % blocks if blocks < sharers else number

        def at(turn: Expr) -> tuple[Expr, Expr]:
            return place(own + turn * sharers if blocks > sharers else own)

        along_k = 0 if matrix == self._b and not self._by_columns else 1
        atom, kept, extent = self._prefetch_atom(rows), self._keeps_prefetches, self._extent(matrix, self._k_words)
        unit = self._per_byte if matrix == self._b else 1
        return Prefetches(matrix, -(-blocks // sharers), at, atom, extent, along_k, kept, unit)

    def _prefetch_atom(self, rows: int) -> CopyAtom:
        """As much as a message brings of so many rows."""
        neighbours = block_2d_read(self._size, rows, 1).lane_step[1]
        return block_2d_read(self._size, rows, BLOCK_2D_BYTES // (BLOCK_2D_LANES * neighbours * self._size))


def _in_units(elements: Expr, unit: int) -> Expr:
    """So many elements, each term of which is whole units, in these. Compilers do not divide a sum term by term, so
    that they would compute each place anew.
    """
    match elements:
        case Bin("+" | "-" as sign, a, b):
            parts = _in_units(a, unit), _in_units(b, unit)
            return parts[0] + parts[1] if sign == "+" else parts[0] - parts[1]
        case Bin("*", a, Const(int(by))):
            return a * (by // unit)
    return elements // unit
