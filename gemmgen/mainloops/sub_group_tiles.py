"""Products by matrix instructions of Intel's sub-groups on A and B as they are: what all such mainloops have in common.

The sub-groups of a work-group have a tile of C each, and share what several of them read by the cache. Messages to
memory bring zeros for what lies past the matrices, and ask of them how they lie (`block_2d_conditions`). Where they do
not, and for what is left of K, elements are loaded one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from gemmgen import epilogues
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.copy_instructions import (
    BLOCK_2D_LINE,
    BLOCK_2D_PITCH,
    BLOCK_2D_WORD,
    PAIR,
    AxisLayout,
    block_2d_conditions,
)
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var, all_of, number, select
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.kernel import Kernel, arguments
from gemmgen.ir.stmt import Alloc, Body, Comment, Fill, For, Let, Registers
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.positions import (
    BATCH_COUNT,
    COL0,
    K0,
    K_MAIN,
    LANE,
    LOCAL_COL,
    LOCAL_ROW,
    ROW,
    ROW0,
    ThreadLayout,
    position_in_c,
)
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule.dpas import BLOCK_2D_LANES

#: Where a sub-group's columns begin, and which of those beside one another it is.
TILE_COL, SUB_GROUP_COL = Var("tile_col"), Var("sub_group_col")
#: How far whole words of A's lines go along K.
K_WORDS = Var("k_words")


@dataclass(frozen=True)
class SubGroupTiles(Mainloop):
    """The mainloop of one kernel."""

    #: Lanes of a sub-group.
    LANES: ClassVar[int] = BLOCK_2D_LANES

    @cached_property
    @abstractmethod
    def instruction(self) -> Instruction:
        """What multiplies."""

    @cached_property
    @abstractmethod
    def acc(self) -> Registers:
        """The sums."""

    @abstractmethod
    def _along_k(self) -> Body:
        """The main loop, then what it leaves."""

    @abstractmethod
    def _store(self) -> Body:
        """C, or a part's share of it."""

    @cached_property
    def _a(self) -> Buffer:
        return self.problem.given("a")

    @cached_property
    def _b(self) -> Buffer:
        return self.problem.given("b")

    @property
    def _by_columns(self) -> bool:
        """Whether B is column-major, and transposed by its loads."""
        return self.problem.spec.b_order == "col"

    # --- where sub-groups stand -------------------------------------------------------------------

    @cached_property
    def threads(self) -> ThreadLayout:
        """A sub-group's rows and columns are next to one another, its lanes over neighbouring columns."""
        s = self.schedule
        (rows, cols), (high, wide) = s.tile, s.group
        alone = AxisLayout(cols, self.LANES, 1, LANE)
        beside = AxisLayout(cols, wide, 1, LOCAL_COL, repeats=cols, inner_lanes=self.LANES)
        across = alone if wide == self.LANES else beside
        return ThreadLayout(s, AxisLayout(rows, high, rows, LOCAL_ROW), across)

    @property
    def _sub_groups_across(self) -> int:
        return self.schedule.group[1] // self.LANES

    @property
    def _place(self) -> tuple[Expr, Expr]:
        """Row and column of C where a sub-group's tile begins."""
        return position_in_c(ROW, ROW0, self.threads.rows), TILE_COL if self._sub_groups_across > 1 else COL0

    def _positions(self) -> Body:
        """Where work-items and sub-groups stand."""
        names = self.scheduler.positions(self.threads)
        if self._sub_groups_across == 1:
            return names
        beside = Let(SUB_GROUP_COL, of_sub_group(LOCAL_COL // self.LANES))
        return (*names, beside, Let(TILE_COL, COL0 + SUB_GROUP_COL * (self.LANES * self.schedule.tile[1])))

    def _names(self) -> Body:
        """The same, and how far the main loop goes along K."""
        end = self.scheduler.k_end
        words = () if self._are_whole else (Let(K_WORDS, end - end % self._word),)
        return (*self._positions(), *words, *self._limits(), Let(K_MAIN, self._k_main))

    def _limits(self) -> Body:
        """What the conditions of the main loop stand for, where any is left to test."""
        if self._k_main == self._k_words:
            return ()
        say = (
            f"2D block messages take a pitch that is a multiple of {BLOCK_2D_PITCH} bytes and at most 2^24 bytes, "
            f"lines of at least {BLOCK_2D_LINE} bytes, and at most 2^24 rows."
        )
        return (Comment(say),)

    # --- K ----------------------------------------------------------------------------------------

    @cached_property
    def _k_main(self) -> Expr:
        """How far the main loop goes: not at all where a matrix does not lie as its messages ask."""
        problem, begin = self.problem, self.scheduler.k_start
        asked = [*block_2d_conditions(self._a), *block_2d_conditions(self._b)]
        # A part of K may be empty.
        asked += [begin < self._k_words] if self.scheduler.in_parts else []
        return select(all_of(x for x in asked if x not in problem.assumptions()), self._k_words, begin)

    @property
    def _are_whole(self) -> bool:
        """Whether lines of A are whole words."""
        return self.problem.spec.multiple_of[2] % self._word == 0

    @property
    def _k_words(self) -> Expr:
        """As far as lines of A are whole words. This is how large messages are told that the matrices are: told the end
        of their loop, which is a choice, SYCL's compiler has it put into the message anew for each.
        """
        return self.scheduler.k_end if self._are_whole else K_WORDS

    @property
    def _word(self) -> int:
        """Elements of a word, of A and of B."""
        return max(1, BLOCK_2D_WORD // self.instruction.dtype.size) * (PAIR if self.instruction.b_pairs else 1)

    def _rest(self, depth: int, step: Body) -> Body:
        """What the main loop leaves of K, if anything, in steps so deep."""
        if self._k_main == self.scheduler.k_end:
            return ()
        say = "The rest of K; all of K where 2D block messages cannot address A or B."
        return Comment(say), For(K0, K_MAIN, self.scheduler.k_end, depth, step)

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """What multiplies."""
        problem, s, result = self.problem, self.schedule, epilogues.destination(self.problem)
        stores_c = result == problem.c
        body: Body = (
            *self._names(),
            *problem.to_product(self._a, self._b, result, *(epilogues.matrices(problem) if stores_c else ())),
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, problem.sums)),
            *problem.unless_zero(self._along_k()),
            *self._store(),
        )
        given = (problem.alpha, *problem.parameters_of(self._a, self._b))
        c = (problem.beta, *problem.parameters_of(problem.c), *epilogues.parameters(problem))
        return Kernel(
            name=problem.name,
            params=arguments(problem.m, problem.n, problem.k, *given, *(c if stores_c else (result,))),
            body=body,
            group=s.group,
            grid=self.scheduler.grid(),
            sub_group=self.LANES,
            nonnegative=self.scheduler.assumptions(),
            assumptions=problem.assumptions(),
            grid_z=BATCH_COUNT if problem.spec.batched else None,
            large_registers=s.large_grf,
        )


def of_sub_group(value: Expr) -> Expr:
    """A number that is the same for all lanes, which the compiler can't see by itself."""
    return Call("broadcast", (value, Const(0)), I32)
