"""Sub-groups: lanes load different elements of A and pass them around by shuffles; B comes by loads of neighbouring
lanes, or both by block reads from buffers or images.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.copy_instructions import AxisLayout, ThreadValueLayout, aligned
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.instructions import BROADCAST_FMA, Instruction
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Mma
from gemmgen.ir.synchronization import Barrier
from gemmgen.mainloops.direct import Direct
from gemmgen.positions import COL0, K0, LANE, ROW0
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True)
class SubGroup(Direct):
    """The mainloop of one kernel."""

    def fragment(self, name: str) -> ThreadValueLayout:
        """Of A that lanes share: a step's elements, each in one lane; its rows over the lanes where A is column-major,
        else its depth.
        """
        s, lanes = self.schedule, self.schedule.sub_group or 1
        if name == "b" or not s.a.shuffle:
            return super().fragment(name)
        if self.problem.is_transposed("a"):
            return ThreadValueLayout(
                AxisLayout(s.tile[0] // lanes, lanes, 1, LANE), AxisLayout(s.block_k), transposed=True
            )
        return ThreadValueLayout(AxisLayout(s.tile[0]), AxisLayout(s.block_k // lanes, lanes, 1, LANE))

    @property
    def instruction(self) -> Instruction:
        """Multiply-adds by elements of A that come from other lanes."""
        return BROADCAST_FMA if self.schedule.a.shuffle else super().instruction

    def multiply(self, k0: Expr, blocks: Body) -> Body:
        """With block reads of both operands, the products of a step as one: B first, since a row of A is needed no
        sooner than its arithmetic.
        """
        if not self.schedule.by_blocks or self.schedule.b_sub_step:
            return super().multiply(k0, blocks)
        a, b = self.a.registers, self.b.registers
        meet = (Barrier("none"),) if self.schedule.barrier else ()
        mma = Mma(self.acc, a, b, Const(0), Const(0), self.depth, BROADCAST_FMA)
        return (Alloc(b.buffer), *self.load(self.b, k0, Const(0)), *meet, *blocks, mma)

    @cached_property
    def inside(self) -> tuple[Expr, ...]:
        """What block reads from buffers need of a group's block of C, where it is not known. At the edge there are no
        whole steps then, all is rest: a branch around the main loop makes its messages dearer on some chips.
        """
        problem, s = self.problem, self.schedule
        by_blocks = problem.target.reads_blocks(problem.spec.dtype) and s.by_blocks and s.b.memory == "global"
        if not by_blocks or s.block_k == s.sub_group:
            return ()
        axes: list[Expr] = []
        for axis, origin in ((0, ROW0), (1, COL0)):
            size, block = (problem.m, problem.n)[axis], s.block_tile[axis]
            exactly = (problem.spec.m, problem.spec.n)[axis]
            # What is packed has whole blocks.
            reads_block = axis == 1 or problem.spec.a_order == "col"
            if reads_block and "ab"[axis] not in problem.packed and (exactly or problem.spec.multiple_of[axis]) % block:
                never = exactly is not None and exactly < block
                axes.append(Const(0, BOOL) if never else origin + block <= size)
        for path in self.operands:
            begins = aligned(path.atom, path.width, path.matrix)
            if begins is not None and begins not in problem.assumptions():
                axes.append(begins)
        return tuple(axes)

    @property
    def said_step(self) -> str:
        """By its number where the rest goes in other steps: the file has no name for either then."""
        short = self.schedule.by_blocks and self.schedule.block_k != self.schedule.sub_group
        return str(int(self.schedule.block_k)) if short else super().said_step

    def rest(self, say: Comment) -> Body:
        """With block reads, in steps as short as can be, in which each lane loads for itself, behind a guard: a long
        step of such loads takes more registers than there are.
        """
        s, lanes = self.schedule, self.schedule.sub_group or 1
        if not s.by_blocks:
            return super().rest(say)
        short = self._in_short_steps(lanes)
        if s.block_k == lanes:
            return (If(self.has_rest(), (say, *short.step(self.k_stop))),)
        rest = For(K0, self.k_stop, self.scheduler.k_end, lanes, short.step(K0), exact=self.problem.exact_k)
        asks = s.split_k > 1 and not self.has_no_main
        return (If(self.has_rest(), (say, rest)),) if asks else (say, rest)

    def _in_short_steps(self, lanes: int) -> SubGroup:
        """The same with steps of one element of K for each lane; what is packed keeps the main loop's lines."""
        s, target = self.schedule, self.problem.target
        if s.b.memory == "image":
            schedule = s.but(block_k=lanes, b=replace(s.b, width=min(s.b.width, lanes)))
        else:
            schedule = s.but(block_k=lanes, a=replace(s.a, width=1), b_sub_step=0)
            target = replace(target, features=target.features - {"block_read"})
        return SubGroup(replace(self.problem, schedule=schedule, target=target, blocks_of=s))
