"""Scales of a group along K that multiply a step's sums: of 8-bit floats, whose products with a scale would be rounded
to 8 bits.
"""

from __future__ import annotations

from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, ELEMENT_OWN
from gemmgen.ir.expr import Const, Expr
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.stmt import Body, Registers
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.mainloops.thread_reads import ThreadReads
from gemmgen.mainloops.warp_mma import add_step
from gemmgen.positions import COL0, GROUP_BEGIN
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

    def add_step(self, acc: Registers) -> Body:
        """Adds a step's sums, times its scales."""
        factor = self._factor
        own = None if factor is None else map_expr(self.reads.of_registers(factor), substitute({ELEMENT_OWN: OWN}))
        return add_step(acc, own)
