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
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var, as_int, compare
from gemmgen.ir.stmt import Body, Let, Pipe, Registers, Stmt, Tile
from gemmgen.ir.target import Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

LOCAL_INDEX = Var("local_index")
LOCAL_ROW, LOCAL_COL, LANE = Var("local_row"), Var("local_col"), Var("lane")
ROW0, COL0, ROW, COL = Var("row0"), Var("col0"), Var("row"), Var("col")
K0, KK, K_MAIN = Var("k0"), Var("kk"), Var("k_main")
#: Unroll the steps through a block of K up to this many; beyond it the code outgrows instruction caches.
MOST_UNROLLED = 16
#: Steps that read both operands from local memory, at a time: of more, a compiler begins with all reads, which takes
#: twice the registers and leaves room for half the waves.
UNROLLED_FROM_LOCAL = 8
#: Widths of vectors, for what is promised of leading dimensions.
WIDTHS = (2, 4, 8, 16)


def call(function: str, *args: int) -> Call:
    """A built-in id."""
    return Call(function, tuple(map(Const, args)), I32)


def linear(group: tuple[int, int], row: Expr, col: Expr) -> Expr:
    """The number of a work-item in its group, whose rows follow each other."""
    rows, cols = group
    return (row * cols if rows > 1 else Const(0)) + (col if cols > 1 else Const(0))


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


class Plan:
    """Where everything of one kernel is: sizes, positions, memory, and the operands' way into registers."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target) -> None:
        self.spec, self.schedule, self.target = spec, schedule, target
        self.m, self.n, self.k = (
            Var(name) if size is None else Const(size) for name, size in (("m", spec.m), ("n", spec.n), ("k", spec.k))
        )
        self.alpha: Expr = Var("alpha", spec.dtype) if spec.alpha is None else Const(spec.alpha, spec.dtype)
        self.beta: Expr = Var("beta", spec.dtype) if spec.beta is None else Const(spec.beta, spec.dtype)
        self.uses_sub_group = schedule.sub_group is not None
        asynchronous = schedule.a.async_copy or schedule.b.async_copy
        self.pipe = Pipe("tiles", schedule.stages, "async_group" if asynchronous else "barrier", schedule.prefetch)
        self.register_pipe = Pipe("fragments", schedule.register_stages, "none", across=schedule.across)

    # --- sizes and positions --------------------------------------------------------------------

    @cached_property
    def depth(self) -> int:
        """Depth of one inner step: what the widest load along K brings."""
        s = self.schedule
        if s.whole_steps:
            return s.k_step
        a_along_k = s.a.memory == "global" and not s.a.share and self.spec.a_order == "row"
        b_along_k = s.b.memory == "image" or (s.b.memory == "global" and self.spec.b_order == "col")
        return max(s.a.width if a_along_k else 1, s.b.width if b_along_k else 1)

    @cached_property
    def exact_k(self) -> bool:
        """Whether K is known to be a multiple of the step."""
        known = self.spec.k if self.spec.k is not None else self.spec.multiple_of[2]
        return known % self.schedule.k_step == 0

    @cached_property
    def k_stop(self) -> Expr:
        """Where the main loop ends."""
        if self.exact_k:
            return self.k
        return K_MAIN if self.spec.k is None else Const(self.spec.k - self.spec.k % self.schedule.k_step)

    @cached_property
    def rows(self) -> Spread:
        """The accumulators' rows: over the work-items of a group's column."""
        return Spread(self.schedule.tile[0], self.schedule.group[0], self.schedule.run[0], LOCAL_ROW)

    @cached_property
    def cols(self) -> Spread:
        """The accumulators' columns: over the lanes of a sub-group or the work-items of a group's row."""
        lane = LANE if self.uses_sub_group else LOCAL_COL
        return Spread(self.schedule.tile[1], self.schedule.group[1], self.schedule.run[1], lane)

    def positions(self) -> Body:
        """Where this work-item stands; names that nothing uses are dropped by `simplify`."""
        block_rows, block_cols = self.schedule.block_tile
        lets: list[Stmt] = [
            *self._work_item(),
            Let(ROW0, call("group_id", 1) * block_rows),
            Let(COL0, call("group_id", 0) * block_cols),
        ]
        if self.uses_sub_group:
            lets.insert(len(self._work_item()), Let(LANE, call("lane_id")))
        for var, origin, spread in ((ROW, ROW0, self.rows), (COL, COL0, self.cols)):
            if spread.lanes > 1:
                lets.append(Let(var, origin + spread.start))
        if self.k_stop == K_MAIN:
            lets.append(Let(K_MAIN, self.k - self.k % self.schedule.k_step))
        if self.schedule.warp is None:
            lets.append(Let(LOCAL_INDEX, linear(self.schedule.group, LOCAL_ROW, LOCAL_COL)))
        return tuple(lets)

    def _work_item(self) -> Body:
        """Row and column of the work-item in its group: as it is numbered, or by where its warp's lanes lie."""
        if self.schedule.warp is None:
            return Let(LOCAL_ROW, call("local_id", 1)), Let(LOCAL_COL, call("local_id", 0))
        rows, cols = self.schedule.warp
        across = self.schedule.group[1] // cols
        warp, lane = LOCAL_INDEX // (rows * cols), LOCAL_INDEX % (rows * cols)
        return (
            Let(LOCAL_INDEX, linear(self.schedule.group, call("local_id", 1), call("local_id", 0))),
            Let(LOCAL_ROW, warp // across * rows + lane // cols),
            Let(LOCAL_COL, warp % across * cols + lane % cols),
        )

    # --- memory -----------------------------------------------------------------------------------

    def matrix(self, name: str, rows: Expr, cols: Expr, order: str, contracted: str = "") -> Buffer:
        """A parameter, in storage order; `contracted` names the logical axis that is summed over."""
        operand = {"a": self.schedule.a, "b": self.schedule.b}.get(name)
        space = Space.IMAGE if operand is not None and operand.memory == "image" else Space.GLOBAL
        slow, fast = (rows, cols) if order == "row" else (cols, rows)
        axis = {"": None, "rows": int(order == "col"), "cols": int(order == "row")}[contracted]
        layout = Layout.pitched(slow, fast, Var(f"ld{name}"))
        return Buffer(name, self.spec.dtype, space, layout, writable=name == "c", contracted=axis)

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
        buffer = Buffer(f"{name}_frag", self.spec.dtype, Space.PRIVATE, Layout.packed(*slots, *shape))
        registers = Registers(buffer, fragment, Const(0), self.register_pipe) if ring else Registers(buffer, fragment)
        return Path(matrix, transposed, staged, registers, atom, width, operand.share)

    def _fill_atom(self, operand: Operand, staged: Tile | None, fragment: Fragment) -> tuple[CopyAtom, int]:
        """The instruction that fills registers, from wherever they are filled."""
        if operand.memory == "image":
            return IMAGE_BLOCK_READ, operand.width
        if operand.block:
            # Where a target has no block reads, lanes next to each other load what a block read would bring them.
            has = "block_read" in self.target.features
            return (block_read(self.schedule.sub_group or 1), operand.width) if has else (SCALAR, 1)
        width = operand.width
        if staged is not None:
            axis = fragment.rows if fragment.transposed else fragment.cols
            run = axis.run if axis.lanes > 1 else axis.values
            width = next(w for w in (4, 2, 1) if run % w == 0)
            between_rows = as_int(staged.buffer.layout.strides[-2])
            if width > 1 and between_rows is not None and between_rows % width == 0:
                return ALIGNED_VECTOR, width
        return self.vector(width)

    def stage_atom(self, path: Path, operand: Operand) -> tuple[CopyAtom, int]:
        """The instruction that fills local memory, and how many neighbours it moves."""
        if not operand.async_copy:
            return self.vector(operand.width)
        along = path.staged is not None and path.staged.transposed == path.transposed
        return ASYNC_COPY, min(operand.width, max(ASYNC_COPY.widths)) if along else 1

    def vector(self, width: int) -> tuple[CopyAtom, int]:
        """The instruction of a single work-item that moves `width` neighbours, or as many as the target can."""
        if width == 1:
            return SCALAR, 1
        atom = VECTOR if "unaligned_vectors" in self.target.features else ALIGNED_VECTOR
        return atom, min(width, max(atom.widths))

    def via(self, path: Path, width: int) -> Buffer | None:
        if not self.schedule.prefetch or path.staged is None:
            return None
        work_items = self.schedule.group[0] * self.schedule.group[1]
        layout = Layout.packed(-(-path.staged.rows * path.staged.cols // (width * work_items)), width)
        return Buffer(f"{path.matrix.name}_next", self.spec.dtype, Space.PRIVATE, layout)

    @cached_property
    def acc(self) -> Registers:
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.spec.dtype, Space.PRIVATE, Layout.packed(rows, cols))
        return Registers(buffer, Fragment(self.rows, self.cols))

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

    def facts(self) -> tuple[Expr, ...]:
        """What divisibility promises: the last group's tile ends inside the matrix."""
        facts: list[Expr] = []
        for axis, dimension in ((0, 1), (1, 0)):
            size = (self.m, self.n)[axis]
            known = (self.spec.m, self.spec.n)[axis]
            block = self.schedule.block_tile[axis]
            group = call("group_id", dimension)
            if (known if known is not None else self.spec.multiple_of[axis]) % block == 0:
                facts.append(size - group * block - block)
        return tuple(facts)
