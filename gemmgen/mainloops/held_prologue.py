"""A prologue of the operand that warpgroups multiply from registers: what becomes of each element there, what of it
multiplies sums instead, and what it takes of arrays, which a thread reads once for all of K or for each step.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, ELEMENT_OWN, ELEMENT_STEP_K, Step
from gemmgen.ir.expr import Call, Expr, Load, Var, convert, minimum
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import Alloc, Body, Comment, Registers, Store
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.mainloops.sum_factors import scaled
from gemmgen.mainloops.warp_mma import add_step
from gemmgen.passes.expand_functions import without_factor
from gemmgen.positions import K0, ROW, ROW0, position_in_c
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass

#: Sums of a thread up to which those of a step are kept apart, to be scaled and added; of more, elements are scaled.
MOST_STEP_SUMS = 64
GROUP_OF_STEP = Var("g")


@dataclass(frozen=True)
class HeldPrologue:
    """What makes A's elements in registers.

    Attributes:
        problem: what the kernel computes.
        rows: a thread's.
        sums: how many it has.
    """

    problem: Problem
    rows: AxisLayout
    sums: int

    @cached_property
    def _made(self) -> tuple[Step | None, Expr | None]:
        """What elements are made into, and the factor of sums."""
        step = self.problem.prologue("a") if "a" not in self.problem.packed else None
        if step is None:
            return None, None
        rest, factor = without_factor(step, self.problem.schedule.block_k)
        kept = factor is None or self.sums <= MOST_STEP_SUMS or ELEMENT_K not in walk_expr(factor)
        return (rest, factor) if kept else (step, None)

    @property
    def scales_steps(self) -> bool:
        """Whether each step's sums have a factor of their own."""
        factor = self._made[1]
        return factor is not None and ELEMENT_K in walk_expr(factor)

    @property
    def step(self) -> Step | None:
        """What elements are made into, of what is in registers."""
        rest, _ = self._made
        return None if rest is None else Step(rest.name, self._of_registers(rest.value))

    # --- arrays -----------------------------------------------------------------------------------

    @property
    def _values(self) -> tuple[Expr, ...]:
        rest, factor = self._made
        return (*(() if rest is None else (rest.value,)), *(() if factor is None else (factor,)))

    @cached_property
    def _read(self) -> dict[Load, Load]:
        """What a thread reads once, and the registers that hold it: a single element, one for each of its rows, or one
        for each of these and each group of a step.
        """
        found, depth = dict[Load, Load](), self.problem.schedule.block_k
        for load in (x for value in self._values for x in walk_expr(value) if isinstance(x, Load)):
            operand = OPERANDS[load.buffer.name]
            in_step = operand.axes == "g" and (operand.group % depth == 0 or depth % operand.group == 0)
            if operand.axes not in ("", "m") and not in_step:
                continue
            groups = max(1, depth // operand.group) if in_step else 1
            shape = (*((groups,) if groups > 1 else ()), *((self.rows.values,) if operand.axes else ()))
            # Converted once, not for each element that takes it.
            own = Buffer(f"own_{load.buffer.name}", self.problem.sums, Space.PRIVATE, Layout.packed(*shape))
            of_group = (ELEMENT_STEP_K // operand.group,) if groups > 1 else ()
            found[load] = Load(own, (*of_group, *((ELEMENT_OWN,) if operand.axes else ())))
        return found

    def _of_registers(self, value: Expr) -> Expr:
        def of_registers(node: Expr) -> Expr:
            match node:
                case Load():
                    return self._read.get(node, node)
                case Call("convert", (held,), dtype) if held.dtype == dtype:
                    return held
            return node

        return map_expr(value, of_registers)

    def _filled(self, load: Load, own: Buffer, k: Expr) -> Body:
        """Registers filled with what a thread reads, of a step that begins at `k`."""
        problem, rows, operand = self.problem, self.rows, OPERANDS[load.buffer.name]
        row = minimum(position_in_c(ROW, ROW0, rows) + rows.step(OWN), problem.m - 1)
        groups, by_row = self._groups(own), bool(operand.axes)
        first = minimum(k + GROUP_OF_STEP * operand.group if groups > 1 else k, problem.k - 1)
        place = (*((GROUP_OF_STEP,) if groups > 1 else ()), *((OWN,) if by_row else ()))
        value = convert(map_expr(load, substitute({ELEMENT_LINE: row, ELEMENT_K: first})), own.dtype)
        return self._each(own, (Store(own, place, value),))

    def _each(self, own: Buffer, body: Body) -> Body:
        """`body` for each of the registers that hold what is read."""
        groups = self._groups(own)
        body = loop(OWN, self.rows.values, body) if own.shape else body
        return loop(GROUP_OF_STEP, groups, body) if groups > 1 else body

    @staticmethod
    def _groups(own: Buffer) -> int:
        return int(own.extents[0]) if len(own.shape) > 1 else 1

    @property
    def _in_steps(self) -> dict[Load, Buffer]:
        """Of what is read of groups, the registers for the next step's."""
        found = {load: own.buffer for load, own in self._read.items() if OPERANDS[load.buffer.name].axes == "g"}
        return {load: replace(own, name=f"next_{load.buffer.name}") for load, own in found.items()}

    def read_before(self, begin: Expr) -> Body:
        """Fills what is the same along K, and what the first step takes, in front of the loop, which begins there."""
        kept = {load: own.buffer for load, own in self._read.items() if load not in self._in_steps}
        buffers = (*(own.buffer for own in self._read.values()), *self._in_steps.values())
        same = tuple(stmt for each in kept.items() for stmt in self._filled(*each, begin))
        first = tuple(stmt for each in self._in_steps.items() for stmt in self._filled(*each, begin))
        line = "column of B" if self.problem.swapped else "row of A"
        say = (Comment(f"What the prologue takes of a {line} stays the same along K."),) if same else ()
        ahead = (Comment("What it takes of a group along K is read a step ahead."),) if first else ()
        return (*map(Alloc, buffers), *say, *same, *ahead, *first)

    def read_in_step(self) -> Body:
        """Takes up what groups along K share, and reads that of the next step."""
        out: Body = ()
        for load, ahead in self._in_steps.items():
            own = self._read[load].buffer
            place = (*((GROUP_OF_STEP,) if self._groups(own) > 1 else ()), OWN)
            out = (*out, *self._each(own, (Store(own, place, Load(ahead, place)),)))
            out = (*out, *self._filled(load, ahead, K0 + self.problem.schedule.block_k))
        return out

    # --- sums -------------------------------------------------------------------------------------

    @property
    def _factor(self) -> Expr | None:
        """Of the sums of row `i`."""
        factor = self._made[1]
        return None if factor is None else map_expr(self._of_registers(factor), substitute({ELEMENT_OWN: OWN}))

    def add_step(self, acc: Registers) -> Body:
        """Adds a step's sums, times their factor."""
        return add_step(acc, self._factor) if self.scales_steps else ()

    def scale_sums(self, acc: Registers) -> Body:
        """Multiplies sums by the factor that all of K shares."""
        factor = self._factor
        if factor is None or self.scales_steps:
            return ()
        return scaled(acc, factor)
