"""Warp matrix instructions on what lanes load of A and B from global memory: for few rows, and weights of fewer bits.

A product does not depend on the order of K. So a lane has neighbours along K of a row of A and of columns of B, which
it loads as vectors, and gives an instruction four of each at a time. Columns of B are the instruction's sixteen rows
and rows of A its eight columns: B is long, and A has few rows.

Where B is stored in fewer bits, a lane makes elements of what it loads, in registers. Scales multiply sums.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.checks.warp_mma import spans
from gemmgen.errors import LoweringError
from gemmgen.ir.constants import named, said
from gemmgen.ir.copy_instructions import SPANNING_VECTOR, AxisLayout, CopyAtom, ThreadValueLayout
from gemmgen.ir.elementwise import ELEMENT_K
from gemmgen.ir.expr import Bin, Const, Expr, Var, compare, minimum, select
from gemmgen.ir.instructions import ACROSS, Instruction, matrix_instruction, mirrored
from gemmgen.ir.stmt import Body, Comment, For, If, Let, Registers, Tile
from gemmgen.ir.walk import map_expr
from gemmgen.mainloops.direct import Direct, OperandPath
from gemmgen.mainloops.sum_factors import SumFactors
from gemmgen.positions import K0, K_MAIN, LANE, SLICE, ThreadLayout
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule.warp_mma import blocks_together, neighbours

#: Where whole loads begin in a part of K, and where they have ended; which of the elements besides a warp is at.
K_FIRST, K_LAST, K_REST = Var("k_first"), Var("k_last"), Var("k_rest")


@dataclass(frozen=True)
class DirectMma(Direct):
    """The mainloop of one kernel."""

    @cached_property
    def instruction(self) -> Instruction:
        """The warp's."""
        atom = matrix_instruction(self.schedule.atom, self.problem.spec.dtype, "warp")
        if atom is None:
            raise LoweringError(f"no {self.schedule.atom} of {self.problem.spec.dtype}")
        return mirrored(atom)

    @property
    def lanes(self) -> int | None:
        """A warp's."""
        return self.instruction.lanes

    @cached_property
    def threads(self) -> ThreadLayout:
        """A line of the instruction's sums is a column of C, down which its lanes lie."""
        return replace(ThreadLayout.of(self.schedule), lanes_down=True)

    @cached_property
    def _along_k(self) -> AxisLayout:
        """The neighbours along K of the lanes of a line."""
        own = neighbours(self.schedule.a.width, self.schedule.b.width)
        own = own if self.problem.blocks_of is not None else named("LOAD_K", own)
        return AxisLayout(own, ACROSS, own, LANE % ACROSS)

    @cached_property
    def depth(self) -> int:
        """What the lanes of a line load at a time."""
        return self._along_k.extent

    @property
    def min_blocks(self) -> int:
        """As many as have enough warps together."""
        return blocks_together(self.schedule.sliced_k)

    # --- operands ---------------------------------------------------------------------------------

    def fragment(self, name: str) -> ThreadValueLayout:
        """A lane has another row of A than of C, and the columns of B that it has of C; neighbours along K."""
        if name == "b":
            return ThreadValueLayout(self._along_k, self.threads.cols, transposed=True)
        row = self.instruction.a.rows
        high = self.schedule.block_tile[0]
        return ThreadValueLayout(replace(row, values=high // row.lanes), self._along_k)

    def path(self, name: str) -> OperandPath:
        """The way of an operand, whose elements are made without the factor of sums."""
        return replace(super().path(name), prologue=self._factors.rest(name))

    def load_instruction(self, name: str, tile: Tile | None, fragment: ThreadValueLayout) -> tuple[CopyAtom, int]:
        """What fills it, and how many neighbours it gives a thread."""
        width = self.problem.operand(name).width
        if spans(self.problem.spec, name, width):
            return SPANNING_VECTOR, width
        return super().load_instruction(name, tile, fragment)

    # --- sums -------------------------------------------------------------------------------------

    @cached_property
    def acc(self) -> Registers:
        """A thread's sums."""
        return self.accumulators(self.instruction.c.transposed)

    @cached_property
    def _factors(self) -> SumFactors:
        return SumFactors(self.problem, self.acc, self.depth)

    # --- along K ----------------------------------------------------------------------------------

    @property
    def k_stop(self) -> Expr:
        """Where the sum ends."""
        return self.scheduler.k_end

    @cached_property
    def _around(self) -> int:
        """How many elements behind a vector must be there: it may be cut out of two that none may lie outside of."""
        return max(path.width - 1 if path.atom.around else 0 for path in self.operands)

    def along_k(self) -> Body:
        """The sum over K, and what all products of a sum are multiplied by."""
        s, depth = self.schedule, self.depth
        say = Comment(f"Each warp goes along K by {said(depth)} elements at a time.")
        names, first, end = self._whole_loads()
        main = self._loop(first, end - (depth - 1), s.block_k // (s.sliced_k * depth))
        rest = self._ends(first) if self._around else self._tail()
        return (*self._factors.read_before(), *names, say, main, *rest, *self._factors.scale_sums())

    def _whole_loads(self) -> tuple[Body, Expr, Expr]:
        """Where whole loads begin and end, behind names: all of a part of K, but for what lies in front of the vectors
        that may be cut out of two, and behind these.
        """
        begin, end, depth = self.scheduler.k_start, self.scheduler.k_end, self.depth
        if not self._around:
            return (), begin, end
        until, first = self.problem.k_extent - self._around, Const(depth)
        names: Body = (Comment("Vectors lie in two that begin where they may, neither before nor behind the matrix."),)
        if not self.scheduler.in_parts:
            return (*names, Let(K_MAIN, until)), first, K_MAIN
        names = (*names, Let(K_FIRST, select(compare("<", begin, first), first, begin)))
        return (*names, Let(K_MAIN, minimum(end, until))), K_FIRST, K_MAIN

    def _loop(self, begin: Expr, end: Expr, rounds: int) -> For:
        """The products of what the warps load in turns, so many rounds of it at a time."""
        slices, depth = self.schedule.sliced_k, self.depth
        begin = begin + SLICE * depth if slices > 1 else begin
        return For(K0, begin, end, slices * depth, self._products(K0), unroll_factor=rounds if rounds > 1 else 0)

    def _products(self, k: Expr) -> Body:
        """What a lane loads from `k` on, and its products."""
        return self._factors.products(k, (self._of_group(self.a, k), self._of_group(self.b, k)), self.instruction)

    def _of_group(self, path: OperandPath, k: Expr) -> OperandPath:
        """A path on which elements take of their group what the first of a load from `k` on takes, if all are of one.
        So all lanes ask for the same place along K.
        """

        def of_first(node: Expr) -> Expr:
            match node:
                case Bin("/", place, Const(int(group))) if place == ELEMENT_K and group % self.depth == 0:
                    return k // group
            return node

        step = path.prologue
        return path if step is None else replace(path, prologue=replace(step, value=map_expr(step.value, of_first)))

    def _tail(self) -> Body:
        """What is left of K behind whole loads, by the least that an instruction takes. Elements come one by one, and
        past K are zeros without a branch around each load: there each load would wait for the one before it.
        """
        spec, end = self.problem.spec, self.scheduler.k_end
        if spec.divisor("k") % self.depth == 0:
            return ()
        begin = end - end % self.depth
        loop = self._by_elements._loop(begin, end, 1)
        body = If(self.scheduler.k_start <= begin, (loop,)) if self.schedule.split_k > 1 else loop
        return Comment("What is left of K; what lies past it counts as zero."), body

    def _ends(self, first: Expr) -> Body:
        """What whole loads leave of K in front of them and behind, in the same way."""
        one, begin, end = self._by_elements, self.scheduler.k_start, self.scheduler.k_end
        slices, ahead = self.schedule.sliced_k, first - begin
        place = select(compare("<", K_REST, ahead), begin + K_REST, K_LAST + (K_REST - ahead))
        body = (Let(K0, place), *one._products(K0))
        start = SLICE * one.depth if slices > 1 else Const(0)
        return (
            Comment("What is left of K, in front of that and behind; what lies past it counts as zero."),
            Let(K_LAST, select(compare("<", first, K_MAIN), K_MAIN - K_MAIN % self.depth, first)),
            For(K_REST, start, ahead + (end - K_LAST), slices * one.depth, body),
        )

    @cached_property
    def _by_elements(self) -> DirectMma:
        """The same by single elements, as deep as an instruction goes."""
        s = self.schedule
        a, b = (replace(x, width=1) for x in (s.a, s.b))
        narrow = s.but(a=a, b=b, block_k=s.sliced_k * self.instruction.a.cols.values * ACROSS)
        return DirectMma(replace(self.problem, schedule=narrow, blocks_of=s))
