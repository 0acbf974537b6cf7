"""The memory that kernels of one product pass on to others: packed matrices, and the sums of K's parts."""

from __future__ import annotations

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I64
from gemmgen.ir.expr import Const, Expr, Var, ceil_div
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Body, Let
from gemmgen.ir.target import Target
from gemmgen.passes.positions import Positions
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


class Between(Positions):
    """Sizes and positions of one kernel, and the memory between it and others."""

    #: Whether it is of C^T = B^T A^T, while other kernels of the product are of C.
    swapped = False

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> None:
        super().__init__(spec, schedule, target)
        #: Whether the product as it was asked for is the transpose of the spec's.
        self.transposed = transposed
        #: The type of everything in registers; elements are converted as they are loaded and stored.
        self.sums = spec.accumulator

    @property
    def rows_are_columns(self) -> bool:
        """Whether its rows are columns of the C that was asked for, by which an epilogue's operands go."""
        return self.swapped != self.transposed

    def is_turned(self, name: str) -> bool:
        """Whether packing changes the order of a matrix."""
        order = {"a": self.spec.a_order, "b": self.spec.b_order}[name]
        return (order == "col") != self.is_transposed(name)

    def is_transposed(self, name: str) -> bool:
        """Whether the product reads an operand by columns."""
        order = {"a": self.spec.a_order, "b": self.spec.b_order}[name]
        return self.schedule.read_order(name, order) == "col"

    def packed_axes(self, name: str) -> tuple[str, str]:
        """Of a packed operand, the slow axis and the fast one."""
        slow, fast = ("m", "k") if name == "a" else ("k", "n")
        return (fast, slow) if self.is_transposed(name) else (slow, fast)

    def packed_matrix(self, name: str, writable: bool) -> Buffer:
        """An operand in whole tiles, its lines as long as the name says that kernels bind."""
        slow, fast = self.packed_axes(name)
        contracted = int((name == "a") != self.is_transposed(name))
        layout = Layout.pitched(self.whole(slow), self.whole(fast), self._pitch(f"{name}_packed"))
        dtype = self.spec.made(name)
        return Buffer(f"{name}_packed", dtype, Space.GLOBAL, layout, writable, contracted, packed=True)

    def workspaces(self) -> tuple[tuple[Buffer, Expr], ...]:
        """Memory that kernels pass on to others, and the elements that each product has there."""
        out: list[tuple[Buffer, Expr]] = []
        for name in self.packed:
            matrix = self.packed_matrix(name, writable=True)
            out.append((matrix, matrix.shape[0] * matrix.shape[1]))
        if self.schedule.stream:
            shares = self.workspace(writable=True)
            out.append((shares, shares.shape[0] * shares.layout.strides[0]))
        elif self.schedule.planes > 1 and not self.schedule.atomic:
            sums = self.workspace(writable=True)
            out.append((sums, sums.shape[0] * (self._of_c[0] * self._lines["workspace"])))
        return tuple(out)

    def workspace(self, writable: bool) -> Buffer:
        """The sums of K's parts between two kernels: planes of rows that begin where vectors may stand. Of groups that
        have parts of two blocks, two planes each, as large as a block.
        """
        if self.schedule.stream:
            high, wide = self.schedule.block_tile
            shape = GROUPS * 2, Const(high), Const(wide)
            layout = Layout(shape, (Const(high * wide), Const(wide), Const(1)))
            return Buffer("workspace", self.sums, Space.GLOBAL, layout, writable=writable)
        pitch, (rows, cols) = self._pitch("workspace"), self._of_c
        layout = Layout((Const(self.schedule.planes), rows, cols), (rows * pitch, pitch, Const(1)))
        return Buffer("workspace", self.sums, Space.GLOBAL, layout, writable=writable)

    @property
    def _of_c(self) -> tuple[Expr, Expr]:
        """C's rows and columns."""
        return (self.n, self.m) if self.swapped else (self.m, self.n)

    # --- how far lines lie apart ------------------------------------------------------------------

    @property
    def _lines(self) -> dict[str, Expr]:
        """How long the lines of each are."""
        lines = {f"{name}_packed": self.named_whole(self.packed_axes(name)[1]) for name in self.packed}
        cols = self._of_c[1]
        return {**lines, "workspace": ceil_div(cols, 4) * 4 if self.schedule.c_width > 1 else cols}

    def _pitch(self, name: str) -> Expr:
        """The length of a line, by its name if it needs one; by one of 64 bits where matrices may be of any span: so is
        every place then.
        """
        line = self._lines[name]
        if not self.spec.is_wide:
            return line if isinstance(line, Var | Const) else Var(f"ld_{name}")
        return Const(line.value, I64) if isinstance(line, Const) else Var(f"ld_{name}", I64)

    def wholes(self) -> Body:
        """Names for sizes in whole blocks, and for those of packed matrices."""
        return (*super().wholes(), *self.named_pitches(*(f"{name}_packed" for name in self.packed)))

    def positions(self) -> Body:
        """Where this work-item stands; names that nothing uses are dropped by `simplify`."""
        return (*super().positions(), *self.named_pitches("workspace"))

    def named_pitches(self, *names: str) -> Body:
        """Names for how far the lines of these lie apart, where they have any."""
        named = ((self._pitch(name), self._lines[name]) for name in names)
        return tuple(Let(pitch, line) for pitch, line in named if isinstance(pitch, Var) and pitch != line)

    def units_between(self) -> list[tuple[Expr, int]]:
        """What they are multiples of."""
        lines = [(self._pitch(f"{name}_packed"), self.units[self.packed_axes(name)[1]]) for name in self.packed]
        return [*lines, (self._pitch("workspace"), 4 if self.schedule.c_width > 1 else 1)]
