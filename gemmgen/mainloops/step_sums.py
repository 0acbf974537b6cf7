"""A step's own sums, which are added to C's: of what instructions cut short over all of K, and of 8-bit floats with
scales of groups along K, which multiply the sums, as elements times a scale would be rounded to 8 bits.
"""

from __future__ import annotations

from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, ELEMENT_OWN, ELEMENT_STEP_K
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.stmt import Body, Registers, Stmt
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.mainloops.thread_reads import ThreadReads
from gemmgen.mainloops.warp_mma import STEP_SUMS, add_step, step_sums_of
from gemmgen.positions import COL0, GROUP_BEGIN
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True)
class StepSums:
    """The sums, with the scales of A, one for each of a thread's rows, and of B.

    Attributes:
        rows: a thread's.
    """

    problem: Problem
    rows: AxisLayout

    @property
    def operands(self) -> frozenset[str]:
        """Those that have some."""
        return frozenset(name for name in "ab" if self.problem.spec.sum_scale(name) is not None)

    @cached_property
    def _factor(self) -> Expr | None:
        """Of the sums of row `ELEMENT_LINE`."""
        found: Expr | None = None
        for name, line in (("b", COL0), ("a", ELEMENT_LINE)):
            if (scale := self.problem.spec.sum_scale(name)) is not None:
                own = self.problem.element_of(scale, ELEMENT_K, line)
                found = own if found is None else own * found
        return found

    @cached_property
    def reads(self) -> ThreadReads:
        """The scales, as a thread reads them."""
        before = GROUP_BEGIN if self.problem.spec.grouped else Const(0)
        return ThreadReads(self.problem, self.rows, () if self._factor is None else (self._factor,), before)

    @property
    def parts(self) -> int:
        """Groups along K of a step, each with sums of its own."""
        group = self.problem.spec.sum_group
        return max(1, self.problem.schedule.block_k // group) if group else 1

    def sums(self, acc: Registers) -> tuple[Registers, ...]:
        """The sums of each."""
        return tuple(step_sums_of(acc, name) for name in self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return (STEP_SUMS,) if self.parts == 1 else tuple(f"group_sums_{part}" for part in range(self.parts))

    def add_step(self, acc: Registers) -> Body:
        """Adds a step's sums, times its scales if it has any: a group's while the next one is multiplied."""
        factor, out = self._factor, list[Stmt]()
        own = None if factor is None else self.reads.of_registers(factor)
        depth = self.problem.schedule.block_k // self.parts
        for part, name in enumerate(self._names):
            at = substitute({ELEMENT_OWN: OWN, ELEMENT_STEP_K: Const(part * depth)})
            out += add_step(acc, None if own is None else map_expr(own, at), name, bool(self.operands))
        return tuple(out)
