"""Where everything of a kernel is: sizes, positions, matrices, and the way of A and B into registers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen.ir.atoms import (
    ALIGNED_VECTOR,
    ASYNC_COPY,
    IMAGE_BLOCK_READ,
    SCALAR,
    VECTOR,
    CopyAtom,
    Fragment,
    Spread,
    block_read,
)
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Const, Expr, Var, as_int, ceil_div, compare, number
from gemmgen.ir.stmt import Pipe, Registers, Sync, Tile
from gemmgen.ir.target import Target
from gemmgen.passes.positions import LANE, SUM_COL, SUM_ROW, Positions
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

#: Unroll the steps through a block of K up to this many; beyond it the code outgrows instruction caches.
MOST_UNROLLED = 16
#: Steps that read both operands from local memory, at a time: of more, a compiler begins with all reads, which takes
#: twice the registers and leaves room for half the waves.
UNROLLED_FROM_LOCAL = 8
#: Local memory is read by vectors of up to so many bytes.
VECTOR_BYTES = 16
#: Widths of vectors, for what is promised of leading dimensions.
WIDTHS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Path:
    """The way of one operand into registers, with all that its loads and products need.

    Attributes:
        matrix: the operand in global memory or an image.
        transposed: whether the matrix is stored column-major.
        staged: the tile of local memory that it passes through, or None.
        registers: its fragment.
        atom, width: the instruction that fills the fragment.
        per_block: whether the fragment holds a whole step of K, not only an inner one.
    """

    matrix: Buffer
    transposed: bool
    staged: Tile | None
    registers: Registers
    atom: CopyAtom
    width: int
    per_block: bool


class Plan(Positions):
    """Where everything of one kernel is: sizes, positions, memory, and the operands' way into registers."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target) -> None:
        super().__init__(spec, schedule)
        self.target = target
        #: The type of everything in registers; elements are converted as they are loaded and stored.
        self.sums = spec.accumulator
        self.alpha: Expr = Var("alpha", self.sums) if spec.alpha is None else number(spec.alpha, self.sums)
        self.beta: Expr = Var("beta", self.sums) if spec.beta is None else number(spec.beta, self.sums)
        sync: Sync = "mbarrier" if schedule.mbarrier else "async_group" if schedule.asynchronous else "barrier"
        self.pipe = Pipe("tiles", schedule.stages, sync, schedule.prefetch, batch=max(1, schedule.mbarrier))
        self.register_pipe = Pipe("fragments", schedule.register_stages, "none", across=schedule.across)

    @cached_property
    def depth(self) -> int:
        """Depth of one inner step: what the widest load along K brings."""
        s = self.schedule
        if s.whole_steps:
            return s.k_step
        a_along_k = s.a.memory == "global" and not s.a.share and self.spec.a_order == "row"
        b_along_k = s.b.memory == "image" or (s.b.memory == "global" and self.spec.b_order == "col")
        return max(s.a.width if a_along_k else 1, s.b.width if b_along_k else 1)

    # --- memory -----------------------------------------------------------------------------------

    def matrix(self, name: str, rows: Expr, cols: Expr, order: str, contracted: str = "") -> Buffer:
        """A parameter, in storage order; `contracted` names the logical axis that is summed over."""
        operand = {"a": self.schedule.a, "b": self.schedule.b}.get(name)
        space = Space.IMAGE if operand is not None and operand.memory == "image" else Space.GLOBAL
        slow, fast = (rows, cols) if order == "row" else (cols, rows)
        axis = {"": None, "rows": int(order == "col"), "cols": int(order == "row")}[contracted]
        layout = Layout.pitched(slow, fast, Var(f"ld{name}"))
        dtype = self.spec.result if name == "c" else self.spec.dtype
        return Buffer(name, dtype, space, layout, writable=name == "c", contracted=axis)

    @cached_property
    def a(self) -> Path:
        s, matrix = self.schedule, self.matrix("a", self.m, self.k, self.spec.a_order, "cols")
        transposed = self.spec.a_order == "col"
        block = s.block_tile[0], s.k_step
        staged = self._staged("a", s.a, block) if s.a.memory == "local" else None
        if not s.a.share:
            fast = (staged or Tile(matrix, (), 0, 0, transposed)).transposed
            fragment = Fragment(self.rows, Spread(self.depth), transposed=fast)
        elif transposed:
            lanes = s.sub_group or 1
            fragment = Fragment(Spread(s.tile[0] // lanes, lanes, 1, LANE), Spread(s.k_step), transposed=True)
        else:
            lanes = s.sub_group or 1
            fragment = Fragment(Spread(s.tile[0]), Spread(s.k_step // lanes, lanes, 1, LANE))
        return self._path("a", s.a, matrix, transposed, staged, fragment)

    @cached_property
    def b(self) -> Path:
        s, matrix = self.schedule, self.matrix("b", self.k, self.n, self.spec.b_order, "rows")
        transposed = self.spec.b_order == "col"
        block = s.k_step, s.block_tile[1]
        staged = self._staged("b", s.b, block) if s.b.memory == "local" else None
        fast = (staged or Tile(matrix, (), 0, 0, transposed)).transposed
        fragment = Fragment(Spread(self.depth), self.cols, transposed=fast)
        return self._path("b", s.b, matrix, transposed, staged, fragment)

    def _staged(self, name: str, operand: Operand, block: tuple[int, int]) -> Tile:
        """The ring of tiles in local memory; `transposed` is meant against the natural A [row][k], B [k][col]."""
        rows, cols = block
        slow, fast = (cols, rows) if operand.transposed else (rows, cols)
        ring = (self.schedule.stages,) if self.schedule.stages > 1 else ()
        layout = Layout.packed(*ring, slow, fast, pad=operand.pad)
        buffer = Buffer(f"{name}_shared", self.spec.dtype, Space.LOCAL, layout)
        origin = (Const(0),) * (len(ring) + 2)
        return Tile(buffer, origin, rows, cols, operand.transposed, self.pipe if ring else None)

    def _path(
        self, name: str, operand: Operand, matrix: Buffer, transposed: bool, staged: Tile | None, fragment: Fragment
    ) -> Path:
        atom, width = self._fill_atom(operand, staged, fragment)
        if atom is IMAGE_BLOCK_READ:
            # An image hands a lane neighbours of the slow axis: keep those together in registers.
            fragment = replace(fragment, transposed=not transposed)
        values = fragment.place(Const(fragment.rows.values), Const(fragment.cols.values))
        shape = tuple(v.value for v in values if isinstance(v, Const) and isinstance(v.value, int))
        ring = self.schedule.register_stages > 1 and not operand.share
        slots = (self.schedule.register_stages,) if ring else ()
        buffer = Buffer(f"{name}_frag", self.sums, Space.PRIVATE, Layout.packed(*slots, *shape))
        registers = Registers(buffer, fragment, Const(0), self.register_pipe) if ring else Registers(buffer, fragment)
        return Path(matrix, transposed, staged, registers, atom, width, operand.share)

    def _fill_atom(self, operand: Operand, staged: Tile | None, fragment: Fragment) -> tuple[CopyAtom, int]:
        """The instruction that fills registers, from wherever they are filled."""
        if operand.memory == "image":
            return IMAGE_BLOCK_READ, operand.width
        if operand.block:
            # Where a target has no block reads, lanes next to each other load what a block read would bring them.
            has = self.target.reads_blocks(self.spec.dtype)
            return (block_read(self.schedule.sub_group or 1), operand.width) if has else (SCALAR, 1)
        width = operand.width
        if staged is not None:
            axis = fragment.rows if fragment.transposed else fragment.cols
            run = axis.run if axis.lanes > 1 else axis.values
            width = next(w for w in (4, 2, 1) if run % w == 0 and w * self.spec.dtype.size <= VECTOR_BYTES)
            between_rows = as_int(staged.buffer.layout.strides[-2])
            if width > 1 and between_rows is not None and between_rows % width == 0:
                return ALIGNED_VECTOR, width
        return self.vector(width, self.spec.dtype)

    def stage_atom(self, path: Path, operand: Operand) -> tuple[CopyAtom, int]:
        """The instruction that fills local memory, and how many neighbours it moves."""
        if not operand.async_copy:
            return self.vector(operand.width, self.spec.dtype)
        along = path.staged is not None and path.staged.transposed == path.transposed
        return ASYNC_COPY, ASYNC_COPY.widest(operand.width, self.spec.dtype.size) if along else 1

    def vector(self, width: int, dtype: DType) -> tuple[CopyAtom, int]:
        """The instruction of a single work-item that moves `width` neighbours, or as many as the target can."""
        atom = VECTOR if "unaligned_vectors" in self.target.features else ALIGNED_VECTOR
        width = atom.widest(width, dtype.size)
        return (atom, width) if width > 1 else (SCALAR, 1)

    def via(self, path: Path, width: int) -> Buffer | None:
        if not self.schedule.prefetch or path.staged is None:
            return None
        work_items = self.schedule.all_work_items[0] * self.schedule.all_work_items[1]
        layout = Layout.packed(-(-path.staged.rows * path.staged.cols // (width * work_items)), width)
        return Buffer(f"{path.matrix.name}_next", self.spec.dtype, Space.PRIVATE, layout)

    @cached_property
    def acc(self) -> Registers:
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.sums, Space.PRIVATE, Layout.packed(rows, cols))
        return Registers(buffer, Fragment(self.rows, self.cols))

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.schedule.name or self.schedule.slug()

    def workspace(self, writable: bool) -> Buffer:
        """The sums of K's parts between two kernels: planes of rows that begin on multiples of four elements."""
        pitch = ceil_div(self.n, 4) * 4
        layout = Layout((Const(self.schedule.split), self.m, self.n), (self.m * pitch, pitch, Const(1)))
        return Buffer("workspace", self.sums, Space.GLOBAL, layout, writable=writable)

    @property
    def slice_depth(self) -> int:
        """How much of a step of K the work-items of a slice go through."""
        return self.schedule.k_step // self.schedule.slices

    @cached_property
    def partial(self) -> Buffer:
        """The slices' sums, in local memory."""
        layout = Layout.packed(self.schedule.slices, *self.schedule.block_tile)
        return Buffer("partial", self.sums, Space.LOCAL, layout)

    @property
    def sum_across(self) -> int:
        """Work-items along a row of the block when slices are added up."""
        return self.schedule.block_tile[1] // self.schedule.c_width

    @cached_property
    def total(self) -> Registers:
        """The sum over slices: a block's rows one after the other, dealt out to all work-items in short runs."""
        s = self.schedule
        rows, run = s.block_tile[0], s.c_width
        across = self.sum_across
        down = s.all_work_items[0] * s.all_work_items[1] // across
        fragment = Fragment(Spread(rows // down, down, 1, SUM_ROW), Spread(run, across, run, SUM_COL))
        buffer = Buffer("total", self.sums, Space.PRIVATE, Layout.packed(rows // down, run))
        return Registers(buffer, fragment)

    @cached_property
    def c(self) -> Buffer:
        return self.matrix("c", self.m, self.n, self.spec.c_order)

    def promises(self) -> tuple[Expr, ...]:
        """What is known of leading dimensions."""
        return tuple(
            compare("==", Var(f"ld{name}") % width, 0)
            for name in "abc"
            for width in WIDTHS
            if self.spec.ld_multiple % width == 0
        )


def update_comment(spec: GemmSpec) -> str:
    """What the kernel says of C."""
    alpha = "" if spec.alpha == 1 else "alpha * " if spec.alpha is None else f"{spec.alpha:g} * "
    match spec.beta:
        case 0:
            return f"C = {alpha}A * B."
        case None:
            return f"C = {alpha}A * B + beta * C; C is not read where beta is zero."
        case 1:
            return f"C = {alpha}A * B + C."
    return f"C = {alpha}A * B + {spec.beta:g} * C."
