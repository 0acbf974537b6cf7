"""What a thread reads of arrays along K, for a prologue or for its sums: once what stays the same, a step ahead what
groups along K share, so that nothing waits for memory.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, ELEMENT_OWN, ELEMENT_STEP_K
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, convert, minimum
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import Alloc, Body, Comment, If, Store
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.positions import K0, ROW, ROW0, position_in_c
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass

GROUP_OF_STEP = Var("g")


@dataclass(frozen=True)
class ThreadReads:
    """The arrays' elements in registers.

    Attributes:
        problem: what the kernel computes.
        rows: a thread's.
        values: expressions that read arrays, at row `ELEMENT_LINE` and `ELEMENT_K`.
        before: rows in front of the product's own, of which arrays have elements, too.
    """

    problem: Problem
    rows: AxisLayout
    values: tuple[Expr, ...]
    before: Expr = Const(0)

    @cached_property
    def _held(self) -> dict[Load, Load]:
        """What a thread reads, and the registers that hold it: a single element, one for each of its rows, or one for
        each of these and each group of a step. What is an element's own is read where it is needed.
        """
        found = dict[Load, Load]()
        for load in (x for value in self.values for x in walk_expr(value) if isinstance(x, Load)):
            operand, groups, by_row = OPERANDS[load.buffer.name], self._groups(load), _is_of_row(load)
            if operand.axes not in ("", "m") and not groups:
                continue
            shape = (*((groups,) if groups > 1 else ()), *((self.rows.values,) if by_row else ()))
            # Converted once, not for each element that takes it.
            own = Buffer(f"own_{load.buffer.name}", self.problem.sums, Space.PRIVATE, Layout.packed(*shape))
            of_group = (ELEMENT_STEP_K // operand.group,) if groups > 1 else ()
            found[load] = Load(own, (*of_group, *((ELEMENT_OWN,) if by_row else ())))
        return found

    def _groups(self, load: Load) -> int:
        """How many groups along K a step is of, at least one; 0 for what is no group's, or for parts of some."""
        operand, depth = OPERANDS[load.buffer.name], self.problem.schedule.block_k
        shared = operand.axes in ("g", "t") and (operand.group % depth == 0 or depth % operand.group == 0)
        return max(1, depth // operand.group) if shared else 0

    @property
    def _in_steps(self) -> dict[Load, Buffer]:
        """Of what groups share, the registers for the next step's."""
        found = {load: own.buffer for load, own in self._held.items() if self._groups(load)}
        return {load: replace(own, name=f"next_{load.buffer.name}") for load, own in found.items()}

    def of_registers(self, value: Expr) -> Expr:
        """An expression by the registers: of row `ELEMENT_OWN` and, in a step, element `ELEMENT_STEP_K`."""

        def of_registers(node: Expr) -> Expr:
            match node:
                case Load():
                    return self._held.get(node, node)
                case Call("convert", (held,), dtype) if held.dtype == dtype:
                    return held
            return node

        return map_expr(value, of_registers)

    def read_before(self, begin: Expr, end: Expr) -> Body:
        """Fills what is the same along K, and what the first step takes, in front of the loop from `begin` to `end`."""
        kept = {load: own.buffer for load, own in self._held.items() if load not in self._in_steps}
        buffers = (*(own.buffer for own in self._held.values()), *self._in_steps.values())
        same = tuple(stmt for each in kept.items() for stmt in self._filled(*each, begin))
        first = tuple(stmt for each in self._in_steps.items() for stmt in self._filled(*each, begin))
        line = "column of B" if self.problem.swapped else "row of A"
        say = (Comment(f"What the prologue takes of a {line} stays the same along K."),) if same else ()
        say_ahead = Comment("What the prologue takes of a group along K is read a step ahead.")
        ahead = (say_ahead, If(begin < end, first)) if first else ()
        return (*map(Alloc, buffers), *say, *same, *ahead)

    def read_in_step(self) -> Body:
        """Takes up what groups along K share, and reads that of the next step."""
        out: Body = ()
        for load, ahead in self._in_steps.items():
            taken = Store(self._held[load].buffer, self._place(load), Load(ahead, self._place(load)))
            out = (*out, *self._each(load, (taken,)))
            out = (*out, *self._filled(load, ahead, K0 + self.problem.schedule.block_k))
        return out

    def _filled(self, load: Load, own: Buffer, k: Expr) -> Body:
        """Registers filled with what a thread reads, of a step that begins at `k`; past the end of K of the last
        group, which multiplies zeros.
        """
        problem, rows, group = self.problem, self.rows, OPERANDS[load.buffer.name].group
        row = self.before + minimum(position_in_c(ROW, ROW0, rows) + rows.step(OWN), problem.m - 1)
        first = minimum(k + GROUP_OF_STEP * group if self._groups(load) > 1 else k, problem.k - 1)
        value = convert(map_expr(load, substitute({ELEMENT_LINE: row, ELEMENT_K: first})), own.dtype)
        return self._each(load, (Store(own, self._place(load), value),))

    def _place(self, load: Load) -> tuple[Expr, ...]:
        """Where in registers what is read for group `GROUP_OF_STEP` and row `OWN` is."""
        return (*((GROUP_OF_STEP,) if self._groups(load) > 1 else ()), *((OWN,) if _is_of_row(load) else ()))

    def _each(self, load: Load, body: Body) -> Body:
        """`body` for each of the registers that hold what is read."""
        body = loop(OWN, self.rows.values, body) if _is_of_row(load) else body
        groups = self._groups(load)
        return loop(GROUP_OF_STEP, groups, body) if groups > 1 else body


def _is_of_row(load: Load) -> bool:
    """Whether each row has an element of its own."""
    return ELEMENT_LINE in walk_expr(load)
