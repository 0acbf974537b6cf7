"""A prologue of the operand that warpgroups multiply from registers: what becomes of each element there, what of it
multiplies sums instead, and what it takes of arrays, which a thread reads once for all of K or for each step.
"""

from __future__ import annotations

from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_OWN, Step
from gemmgen.ir.expr import Expr
from gemmgen.ir.kernel import ROW as OWN
from gemmgen.ir.stmt import Body, Registers
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.mainloops.sum_factors import scaled
from gemmgen.mainloops.thread_reads import ThreadReads
from gemmgen.mainloops.warp_mma import add_step
from gemmgen.passes.expand_functions import without_factor
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass

#: Sums of a thread up to which those of a step are kept apart, to be scaled and added; of more, elements are scaled.
MOST_STEP_SUMS = 64


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
        return None if rest is None else Step(rest.name, self.reads.of_registers(rest.value))

    @cached_property
    def reads(self) -> ThreadReads:
        """What it takes of arrays."""
        rest, factor = self._made
        values = (*(() if rest is None else (rest.value,)), *(() if factor is None else (factor,)))
        return ThreadReads(self.problem, self.rows, values)

    # --- sums -------------------------------------------------------------------------------------

    @property
    def _factor(self) -> Expr | None:
        """Of the sums of row `i`."""
        factor = self._made[1]
        return None if factor is None else map_expr(self.reads.of_registers(factor), substitute({ELEMENT_OWN: OWN}))

    def add_step(self, acc: Registers) -> Body:
        """Adds a step's sums, times their factor."""
        return add_step(acc, self._factor) if self.scales_steps else ()

    def scale_sums(self, acc: Registers) -> Body:
        """Multiplies sums by the factor that all of K shares."""
        factor = self._factor
        if factor is None or self.scales_steps:
            return ()
        return scaled(acc, factor)
