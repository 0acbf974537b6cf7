"""What a prologue multiplies elements by, where all elements of a sum share it: a weight's scale, of a column or of a
group along K. It multiplies the sum instead, and the rest of the prologue makes the elements.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, Step
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, minimum, number
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.kernel import COL, ROW, each_register, loop
from gemmgen.ir.stmt import Alloc, Body, Comment, Fill, Mma, Registers, Stmt, Store
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.mainloops.direct import OperandPath
from gemmgen.mainloops.warp_mma import step_sums_of
from gemmgen.passes.expand_functions import without_factor
from gemmgen.positions import COL as OWN_COL
from gemmgen.positions import COL0, ROW0, position_in_c
from gemmgen.positions import ROW as OWN_ROW
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True)
class SumFactors:
    """Those of a thread's sums.

    Attributes:
        acc: the sums.
        depth: neighbours along K that a part of a sum is of; the first of them is a multiple of that.
    """

    problem: Problem
    acc: Registers
    depth: int

    def rest(self, name: str) -> Step | None:
        """What is left of an operand's prologue for its elements in registers; None for elements as they are."""
        step = None if name in self.problem.packed else self.problem.prologue(name)
        if step is None or name not in self._factors:
            return None if step is None else self.problem.prologue(name, in_registers=True)
        return without_factor(step, self.depth)[0]

    @cached_property
    def _factors(self) -> Mapping[str, Expr]:
        """Of A's elements, and of B's."""
        steps = {name: self.problem.prologue(name) for name in "ab" if name not in self.problem.packed}
        found = {name: without_factor(step, self.depth)[1] for name, step in steps.items() if step is not None}
        return {name: factor for name, factor in found.items() if factor is not None}

    def products(self, k: Expr, operands: tuple[OperandPath, OperandPath], instruction: Instruction) -> Body:
        """What a lane loads from `k` on, and its products. Where parts have factors of their own, they are summed up
        apart, and the factor of row `i` and column `j` multiplies their sums.
        """
        fragments = tuple(Alloc(path.registers.buffer) for path in operands)
        loads = tuple(x for path in operands for x in path.fill(False, k, Const(0)))
        factor = self._product(k, of_part=True)
        sums = self.acc if factor is None else step_sums_of(self.acc)
        a, b = (path.registers for path in operands)
        product = Mma(sums, a, b, Const(0), Const(0), self.depth, instruction, self.problem.spec.conj)
        if factor is None:
            return (*fragments, *loads, product)
        zeros = Alloc(sums.buffer), Fill(sums, number(0, self.problem.sums))
        return (*fragments, *loads, *zeros, product, *_add_scaled(self.acc, factor))

    def _product(self, k: Expr, of_part: bool) -> Expr | None:
        problem, (rows, cols) = self.problem, (self.acc.fragment.rows, self.acc.fragment.cols)
        row = position_in_c(OWN_ROW, ROW0, rows) + rows.step(ROW)
        col = position_in_c(OWN_COL, COL0, cols) + cols.step(COL)
        lines = {"a": minimum(row, problem.m - 1), "b": minimum(col, problem.n - 1)}
        found: Expr | None = None
        for name, factor in self._factors.items():
            if (ELEMENT_K in walk_expr(factor)) == of_part:
                own = map_expr(factor, substitute({ELEMENT_K: k, ELEMENT_LINE: lines[name]}))
                found = own if found is None else Bin("*", found, own)
        return found

    @property
    def _values(self) -> Mapping[Var, int]:
        """How many rows and columns a thread has."""
        return {ROW: self.acc.fragment.rows.values, COL: self.acc.fragment.cols.values}

    # --- factors of all along K -------------------------------------------------------------------

    @cached_property
    def _read(self) -> Mapping[Load, Load]:
        """What such factors take of arrays, and the registers that hold it: one for each row, or for each column."""
        factor, found = self._product(Const(0), of_part=False), dict[Load, Load]()
        for load in () if factor is None else (x for x in walk_expr(factor) if isinstance(x, Load)):
            var = next((x for x in self._values if x in walk_expr(load)), None)
            if var is not None:
                layout = Layout.packed(self._values[var])
                found[load] = Load(Buffer(f"own_{load.buffer.name}", load.dtype, Space.PRIVATE, layout), (var,))
        return found

    def read_before(self) -> Body:
        """Fills these registers before the loop along K: behind it each block would wait for them."""
        out = list[Stmt]()
        for load, own in self._read.items():
            var = next(x for x in self._values if own.index == (x,))
            out += [Alloc(own.buffer), *loop(var, self._values[var], (Store(own.buffer, own.index, load),))]
        return tuple(out)

    def scale_sums(self) -> Body:
        """Multiplies sums by the factor that all of K shares."""
        factor = self._product(Const(0), of_part=False)
        if factor is None:
            return ()
        return scaled(self.acc, map_expr(factor, lambda x: self._read.get(x, x) if isinstance(x, Load) else x))


def scaled(acc: Registers, factor: Expr) -> Body:
    """Multiplies sums by a factor that holds for all of K."""
    place = acc.at(ROW, COL)
    say = Comment("Scales that hold for all of K multiply the sums, not each element.")
    return say, *each_register(acc, Store(acc.buffer, place, Bin("*", Load(acc.buffer, place), factor)))


def _add_scaled(acc: Registers, factor: Expr) -> Body:
    """Adds sums of a part, times their factor."""
    part, place = step_sums_of(acc), acc.at(ROW, COL)
    total = Call("fma", (Load(part.buffer, place), factor, Load(acc.buffer, place)), acc.buffer.dtype)
    say = Comment("Elements of a load share their scale, which multiplies their sums.")
    return say, *each_register(acc, Store(acc.buffer, place, total))
