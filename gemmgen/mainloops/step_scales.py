"""Scales of a group along K that multiply a step's sums: of 8-bit floats, whose products with a scale would be rounded
to 8 bits. A thread reads them a step ahead, so that no sum waits for memory.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.expr import Expr, Load, minimum
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import Alloc, Body, Comment, If, Registers, Store
from gemmgen.mainloops.warp_mma import add_step
from gemmgen.positions import COL0, GROUP_BEGIN, K0, ROW, ROW0, position_in_c
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True)
class StepScales:
    """Those of A, one for each of a thread's rows, and of B.

    Attributes:
        rows: a thread's.
    """

    problem: Problem
    rows: AxisLayout

    @cached_property
    def _held(self) -> dict[str, Buffer]:
        """Registers for the scales of a step, by operand."""
        found, spec = dict[str, Buffer](), self.problem.spec
        if spec.sum_scale("a") is not None:
            found["a"] = Buffer("a_scales", self.problem.sums, Space.PRIVATE, Layout.packed(self.rows.values))
        if spec.sum_scale("b") is not None:
            found["b"] = Buffer("b_scale", self.problem.sums, Space.PRIVATE, Layout.packed())
        return found

    @property
    def operands(self) -> frozenset[str]:
        """Those that have some."""
        return frozenset(self._held)

    def read_before(self, begin: Expr, end: Expr) -> Body:
        """What the first step takes, in front of the loop from `begin` to `end`."""
        if not self._held:
            return ()
        buffers = (x for held in self._held.values() for x in (held, _next(held)))
        say = Comment("The scales of a group along K are read a step ahead.")
        return (*map(Alloc, buffers), say, If(begin < end, self._read(begin)))

    def read_in_step(self) -> Body:
        """Takes up what the step needs, and reads that of the next."""
        if not self._held:
            return ()
        taken = (x for held in self._held.values() for x in self._each(held, Load(_next(held), _place(held)), held))
        return (*taken, *self._read(K0 + self.problem.schedule.block_k))

    def _read(self, k: Expr) -> Body:
        """What the step from `k` on takes; past the end of K the last group's, which multiplies zeros."""
        problem, k, out = self.problem, minimum(k, self.problem.k - 1), list[Body]()
        row = minimum(position_in_c(ROW, ROW0, self.rows) + self.rows.step(OWN), problem.m - 1)
        lines = {"a": GROUP_BEGIN + row if problem.spec.grouped else row, "b": COL0}
        for name, held in self._held.items():
            load = problem.element_of(problem.spec.sum_scale(name) or "", k, lines[name])
            out.append(self._each(_next(held), load, held))
        return tuple(stmt for body in out for stmt in body)

    def _each(self, to: Buffer, value: Expr, held: Buffer) -> Body:
        """A value for each of the registers."""
        store = (Store(to, _place(held), value),)
        return loop(OWN, self.rows.values, store) if held.shape else store

    def add_step(self, acc: Registers) -> Body:
        """Adds a step's sums, times its scales."""
        scale: Expr | None = None
        for held in self._held.values():
            own = Load(held, _place(held))
            scale = own if scale is None else scale * own
        return add_step(acc, scale)


def _next(held: Buffer) -> Buffer:
    """The registers for the next step's."""
    return replace(held, name=f"next_{held.name}")


def _place(held: Buffer) -> tuple[Expr, ...]:
    """Where the scale of row `OWN` is, or of all."""
    return (OWN,) if held.shape else ()
