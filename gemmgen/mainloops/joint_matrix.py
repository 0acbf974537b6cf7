"""A product by `joint_matrix` of SYCL: sub-groups load fragments of A and B from the matrices as they are.

The sub-groups of a work-group have a tile of C each, and share what several of them read by the cache. Loads are told
how large a matrix is: they bring zeros for what lies past it, and ask of it what 2D block reads ask
(`block_2d_conditions`). Where a matrix does not lie so, and for what is left of K, fragments are filled element by
element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen import epilogues
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import said
from gemmgen.ir.copy_instructions import (
    BLOCK_2D_WORD,
    AxisLayout,
    ThreadValueLayout,
    block_2d_conditions,
    fragment_load,
)
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var, all_of, number, select
from gemmgen.ir.instructions import JOINT_MATRIX_LANES, LANE, Instruction, joint_matrix
from gemmgen.ir.kernel import Kernel, loop
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    Fill,
    For,
    Let,
    Multiply,
    Registers,
    VectorCopy,
)
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.workspace import Workspace
from gemmgen.passes.expand import COL as J
from gemmgen.passes.expand import DEPTH as P
from gemmgen.passes.expand import ROW as I
from gemmgen.positions import (
    BATCH_COUNT,
    COL0,
    K0,
    K_MAIN,
    LOCAL_COL,
    LOCAL_ROW,
    ROW,
    ROW0,
    ThreadLayout,
    position_in_c,
)
from gemmgen.problem import Problem
from gemmgen.schedule import Schedule
from gemmgen.schedulers import Scheduler

#: Where a sub-group's columns begin; how far whole words go of A's lines, and those that hold B's, if these are rows.
TILE_COL, K_WORDS, N_WORDS = Var("tile_col"), Var("k_words"), Var("n_words")


@dataclass(frozen=True)
class JointMatrix:
    """The mainloop of one kernel."""

    problem: Problem

    @property
    def _schedule(self) -> Schedule:
        return self.problem.schedule

    @cached_property
    def _scheduler(self) -> Scheduler:
        return Scheduler(self.problem)

    @cached_property
    def _atom(self) -> Instruction:
        return joint_matrix(self.problem.spec.dtype)

    @cached_property
    def _threads(self) -> ThreadLayout:
        """A sub-group's rows and columns are next to one another, its lanes over neighbouring columns."""
        s = self._schedule
        (rows, cols), (high, wide) = s.tile, s.group
        alone = AxisLayout(cols, JOINT_MATRIX_LANES, 1, LANE)
        beside = AxisLayout(cols, wide, 1, LOCAL_COL, repeats=cols, inner_lanes=JOINT_MATRIX_LANES)
        across = alone if wide == JOINT_MATRIX_LANES else beside
        return ThreadLayout(s, AxisLayout(rows, high, rows, LOCAL_ROW), across)

    def kernels_before(self) -> tuple[Kernel, ...]:
        """None."""
        return ()

    def workspaces(self) -> tuple[Workspace, ...]:
        """Partial sums of split-K."""
        return self.problem.workspaces()

    # --- what there is ----------------------------------------------------------------------------

    @cached_property
    def _a(self) -> Buffer:
        return self.problem.given("a")

    @cached_property
    def _b(self) -> Buffer:
        return self.problem.given("b")

    @property
    def _down(self) -> int:
        """Fragments of a sub-group's rows."""
        return self._schedule.tile[0] // self._atom.rows

    @property
    def _across(self) -> int:
        """Fragments of its columns."""
        return self._schedule.tile[1]

    @cached_property
    def _acc(self) -> Registers:
        """The sums, a fragment after the other."""
        buffer = Buffer(
            "acc", self.problem.sums, Space.PRIVATE, Layout.packed(self._down, self._across, self._atom.rows)
        )
        whole = ThreadValueLayout(self._threads.rows, self._threads.cols, transposed=True)
        return Registers(buffer, whole, opaque=self._atom.c)

    def _fragments(self, name: str) -> Buffer:
        """Those of A or B for one instruction along K."""
        layout, count = (self._atom.a, self._down) if name == "a" else (self._atom.b, self._across)
        values = layout.rows.values * layout.cols.values
        return Buffer(f"{name}_frag", self._atom.dtype, Space.PRIVATE, Layout.packed(count, values))

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """What multiplies."""
        problem, s, result = self.problem, self._schedule, epilogues.destination(self.problem)
        stores_c = result == problem.c
        body: Body = (
            *self._names(),
            *problem.to_product(self._a, self._b, result, *(epilogues.matrices(problem) if stores_c else ())),
            Alloc(self._acc.buffer),
            Fill(self._acc, number(0, problem.sums)),
            *problem.unless_zero(self._along_k()),
            *self._store(),
        )
        params: list[Buffer | Expr] = [problem.m, problem.n, problem.k, problem.alpha]
        params += problem.parameters_of(self._a, self._b)
        params += [problem.beta, *problem.parameters_of(problem.c)] if stores_c else [result]
        params += epilogues.parameters(problem) if stores_c else ()
        return Kernel(
            name=problem.name,
            params=tuple(p for p in params if isinstance(p, Buffer | Var)),
            body=body,
            group=s.group,
            grid=self._scheduler.grid(),
            sub_group=JOINT_MATRIX_LANES,
            nonnegative=self._scheduler.assumptions(),
            assumptions=problem.assumptions(),
            grid_z=BATCH_COUNT if problem.spec.batched else None,
            large_registers=s.large_grf,
        )

    def _store(self) -> Body:
        """C, or a part's share of it, element by element."""
        comment, update = epilogues.store_from_registers(self.problem, self._acc)
        place = (*update.dst.origin[:-2], *self._place)
        return comment, replace(update, dst=replace(update.dst, origin=place))

    def _names(self) -> Body:
        """Where work-items and sub-groups stand, and how far checked loads go along K: to a whole word of a line."""
        s, names = self._schedule, self._scheduler.positions(self._threads)
        if self._several:
            # The same for all lanes, which compilers can't see by themselves.
            number = Call("broadcast", (LOCAL_COL // JOINT_MATRIX_LANES, Const(0)), I32)
            names = (*names, Let(TILE_COL, COL0 + number * (JOINT_MATRIX_LANES * s.tile[1])))
        words = Let(K_WORDS, self._k_words), Let(N_WORDS, self._n_words)
        return *names, *words, Let(K_MAIN, self._k_main)

    @property
    def _several(self) -> bool:
        """Whether sub-groups stand side by side."""
        return self._schedule.group[1] > JOINT_MATRIX_LANES

    @property
    def _place(self) -> tuple[Expr, Expr]:
        """Row and column of C where a sub-group's tile begins."""
        return position_in_c(ROW, ROW0, self._threads.rows), TILE_COL if self._several else COL0

    @cached_property
    def _k_main(self) -> Expr:
        """How far checked loads go: not at all where a matrix does not lie as they ask."""
        problem, begin = self.problem, self._scheduler.k_start
        asked = [*block_2d_conditions(self._a), *block_2d_conditions(self._b)]
        # A part of K may be empty.
        asked += [begin < K_WORDS] if self._scheduler.in_parts else []
        return select(all_of(x for x in asked if x not in problem.assumptions()), K_WORDS, begin)

    @cached_property
    def _k_words(self) -> Expr:
        """As far as lines of A are whole words. This is how large loads are told that the matrices are: told the end of
        their loop, which is a choice, compilers put it into the message anew for each.
        """
        end = self._scheduler.k_end
        return end if self.problem.spec.multiple_of[2] % self._word == 0 else end - end % self._word

    @cached_property
    def _n_words(self) -> Expr:
        """The same of B, but with the last word whole: what it holds past the matrix only gets into columns past C."""
        n, word = self.problem.n, self._word
        return n if self.problem.spec.multiple_of[1] % word == 0 else n + (Const(word) - n % word) % word

    @property
    def _word(self) -> int:
        """Elements of a word."""
        return BLOCK_2D_WORD // self._atom.dtype.size

    def _along_k(self) -> Body:
        """The main loop by checked loads, then what they leave."""
        s, begin, end, depth = self._schedule, self._scheduler.k_start, self._scheduler.k_end, self._atom.depth
        steps = loop(P, s.block_k // depth, self._sub_step(K0 + P * depth, K_WORDS, False))
        rest: Body = (
            Comment("The rest of K, or all of it where the matrices do not lie as such loads ask."),
            For(K0, K_MAIN, end, depth, self._sub_step(K0, end, True)),
        )
        return (
            Comment(f"Steps of {said(s.block_k)} along K, with zeros past the matrices' ends."),
            For(K0, begin, K_MAIN, s.block_k, (Barrier("none"), *steps) if s.barrier else steps),
            *(() if self._k_main == K_WORDS and self._k_words == end else rest),
        )

    def _sub_step(self, k0: Expr, end: Expr, by_elements: bool) -> Body:
        """As deep in K as a fragment: all loads before the products."""
        (row, col), atom, problem, zero = self._place, self._atom, self.problem, Const(0)
        a, b, by_columns = self._fragments("a"), self._fragments("b"), problem.spec.b_order == "col"
        of_a, of_b = fragment_load(atom.a, by_elements), fragment_load(atom.b, by_elements)
        at, extent = (k0, col + J * atom.cols), (end, problem.n if by_elements or by_columns else N_WORDS)
        if by_columns:
            of_b = fragment_load(ThreadValueLayout(atom.b.cols, atom.b.rows), by_elements)
            at, extent = at[::-1], extent[::-1]
        place = row + I * atom.rows, k0
        load_a = VectorCopy(a, (I, zero), self._a, place, of_a, of_a.widths[0], extent=(problem.m, end))
        load_b = VectorCopy(b, (J, zero), self._b, at, of_b, of_b.widths[0], extent=extent)
        multiply = Multiply(self._acc.buffer, (I, J, zero), a, (I, zero), b, (J, zero), atom)
        return (
            *(Alloc(a), *loop(I, self._down, (load_a,))),
            *(Alloc(b), *loop(J, self._across, (load_b,))),
            *loop(J, self._across, loop(I, self._down, (multiply,))),
        )
