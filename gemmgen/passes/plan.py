"""Where everything of a kernel is: sizes, positions, matrices, and the way of A and B into registers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen.ir.atoms import (
    ALIGNED_VECTOR,
    ASYNC_COPY,
    ATOMIC_ADD,
    ATOMIC_ADD_VECTOR,
    IMAGE_BLOCK_READ,
    SCALAR,
    VECTOR,
    CopyAtom,
    Fragment,
    Spread,
    block_read,
)
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I32, I64, DType
from gemmgen.ir.expr import Const, Expr, Load, Var, as_int, compare, number, select
from gemmgen.ir.meetings import Handover, Roles
from gemmgen.ir.pipe import Pipe, Sync
from gemmgen.ir.stmt import Advance, Body, Comment, If, Registers, Tile
from gemmgen.ir.target import Target
from gemmgen.ir.warp_matrix import ACROSS, WIDE, line_atom
from gemmgen.methods import slug
from gemmgen.passes.between import Between
from gemmgen.passes.boxes import boxed
from gemmgen.passes.positions import BATCH, BATCH_COUNT, LANE, SUM_COL, SUM_ROW, WARP_COL
from gemmgen.passes.stream import BEFORE
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import MATRICES, GemmSpec

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
        name: `a` or `b`.
        matrix: the operand in global memory or an image.
        transposed: whether the matrix is stored column-major.
        staged: the tile of local memory that it passes through, or None.
        registers: its fragment.
        atom, width: the instruction that fills the fragment.
        per_block: whether the fragment holds a whole step of K, not only an inner one.
    """

    name: str
    matrix: Buffer
    transposed: bool
    staged: Tile | None
    registers: Registers
    atom: CopyAtom
    width: int
    per_block: bool


class Plan(Between):
    """Where everything of one kernel is: sizes, positions, memory, and the operands' way into registers."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> None:
        super().__init__(spec, schedule, target, transposed)
        self.alpha: Expr = Var("alpha", self.sums) if spec.alpha is None else number(spec.alpha, self.sums)
        self.beta: Expr = Var("beta", self.sums) if spec.beta is None else number(spec.beta, self.sums)
        sync: Sync = "mbarrier" if schedule.mbarrier else "async_group" if schedule.asynchronous else "barrier"
        self.pipe = Pipe("tiles", schedule.stages, sync, schedule.prefetch, batch=max(1, schedule.mbarrier))
        self.pipe = replace(self.pipe, before=BEFORE) if schedule.stream else self.pipe
        high, wide = schedule.group
        roles = Roles(high * wide, high, schedule.registers)
        self.pipe = replace(self.pipe, roles=roles) if schedule.boxes else self.pipe
        self.register_pipe = Pipe("fragments", schedule.register_stages, "none", across=schedule.across)

    @cached_property
    def depth(self) -> int:
        """Depth of one inner step: what the widest load along K brings."""
        s = self.schedule
        if self.warp_atom is not None:
            return self.warp_atom.depth
        if s.whole_steps:
            return s.k_step
        if s.b_step:
            return s.b_step
        a_along_k = s.a.memory == "global" and not s.a.share and not self.is_transposed("a")
        b_along_k = s.b.memory == "image" or (s.b.memory == "global" and self.is_transposed("b"))
        return max(s.a.width if a_along_k else 1, s.b.width if b_along_k else 1)

    @property
    def asks_alpha(self) -> bool:
        """Whether the kernel itself must see to it that A and B are not read where alpha is 0: K is no argument."""
        return self.spec.k is not None and self.spec.alpha is None

    def unless_zero(self, body: Body) -> Body:
        """What is summed along K, where alpha is not zero; elsewhere A and B are not read."""
        if not self.asks_alpha:
            return body
        say = Comment("Where alpha is zero, A and B are not read.")
        return (say, If(compare("!=", self.alpha, number(0, self.sums)), body))

    def end_unless_zero(self, begin: Expr, end: Expr) -> Expr:
        """Where the sum ends: where alpha is zero, with its beginning, so that A and B are not read."""
        if not self.asks_alpha:
            return end
        return select(compare("==", self.alpha, number(0, self.sums)), begin, end)

    def title(self, name: str) -> str:
        """What comments call A (`a`), B or C: as the product was asked for."""
        return dict(zip("abc", MATRICES[self.transposed], strict=True))[name]

    def update_comment(self) -> str:
        """What the kernel says of C."""
        spec = self.spec
        reads = ", which reads C." if spec.names_c else "; C is not read where beta is zero."
        return spec.formula(matrices=MATRICES[self.transposed]) + spec.then() + (reads if spec.beta is None else ".")

    # --- memory -----------------------------------------------------------------------------------

    def reach(self, matrix: Buffer) -> int:
        """How many elements of a matrix places count; block reads from buffers count bytes."""
        bytewise = matrix.packed and self.schedule.by_blocks and self.target.reads_blocks(matrix.dtype)
        return matrix.reach // matrix.dtype.size if bytewise and not self.spec.is_wide else matrix.reach

    def matrix(self, name: str, rows: Expr, cols: Expr, order: str, contracted: str = "") -> Buffer:
        """A parameter, in storage order; `contracted` names the logical axis that is summed over."""
        operand = {"a": self.schedule.a, "b": self.schedule.b}.get(name)
        space = Space.IMAGE if operand is not None and operand.memory == "image" else Space.GLOBAL
        slow, fast = (rows, cols) if order == "row" else (cols, rows)
        axis = {"": None, "rows": int(order == "col"), "cols": int(order == "row")}[contracted]
        layout = Layout.pitched(slow, fast, self.pitch(name))
        step = Var(f"stride_{name}", I64) if self.spec.batched and not self.spec.listed else None
        dtype = self.spec.result if name == "c" else self.spec.element(name)
        return Buffer(name, dtype, space, layout, writable=name == "c", contracted=axis, step=step)

    def pitch(self, name: str) -> Var:
        """The leading dimension of a matrix; of 64 bits, so is every place that it is a factor of."""
        return Var(f"ld{name}", I64 if self.spec.is_wide else I32)

    def given(self, name: str) -> Buffer:
        """An operand as the caller has it."""
        if name == "a":
            return self.matrix("a", self.m, self.k, self.spec.a_order, "cols")
        return self.matrix("b", self.k, self.n, self.spec.b_order, "rows")

    def source(self, name: str) -> Buffer:
        """An operand as the product reads it."""
        matrix = self.packed_matrix(name, writable=False) if name in self.packed else self.given(name)
        return boxed(matrix, name, self.schedule)

    @cached_property
    def a(self) -> Path:
        s, matrix, transposed = self.schedule, self.source("a"), self.is_transposed("a")
        block = s.block_tile[0], s.k_step
        staged = self._staged("a", s.a, block) if s.a.memory == "local" else None
        if self.warp_atom is not None:
            fragment = Fragment(self.rows, self.warp_atom.k)
        elif not s.a.share:
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
        s, matrix, transposed = self.schedule, self.source("b"), self.is_transposed("b")
        block = s.k_step, s.block_tile[1]
        staged = self._staged("b", s.b, block) if s.b.memory == "local" else None
        fast = (staged or Tile(matrix, (), 0, 0, transposed)).transposed
        fragment = Fragment(Spread(self.depth), self.cols, transposed=fast)
        if self.warp_atom is not None:
            # A lane holds columns of B by eights, of C by twos.
            bands = Spread(s.tile[1] // WIDE, WIDE * s.group[1], 1, WARP_COL + LANE // ACROSS)
            fragment = Fragment(self.warp_atom.k, bands, transposed=True)
        return self._path("b", s.b, matrix, transposed, staged, fragment)

    def _staged(self, name: str, operand: Operand, block: tuple[int, int]) -> Tile:
        """The ring of tiles in local memory; `transposed` is meant against the natural A [row][k], B [k][col]."""
        rows, cols = block
        turned = self.schedule.staged(name, self.spec.a_order if name == "a" else self.spec.b_order).transposed
        slow, fast = (cols, rows) if turned else (rows, cols)
        ring = (self.schedule.stages,) if self.schedule.stages > 1 else ()
        layout = Layout.packed(*ring, slow, fast, pad=operand.pad)
        buffer = Buffer(f"{name}_shared", self.spec.made(name), Space.LOCAL, layout)
        origin = (Const(0),) * (len(ring) + 2)
        return Tile(buffer, origin, rows, cols, turned, self.pipe if ring else None)

    def _path(
        self, name: str, operand: Operand, matrix: Buffer, transposed: bool, staged: Tile | None, fragment: Fragment
    ) -> Path:
        atom, width = self._fill_atom(
            operand, staged, fragment, matrix.dtype if staged is None else staged.buffer.dtype
        )
        if self.warp_atom is not None and staged is not None:
            atom, width = self._line_atom(name, staged, fragment)
        if atom is IMAGE_BLOCK_READ:
            # An image hands a lane neighbours of the slow axis: keep those together in registers.
            fragment = replace(fragment, transposed=not transposed)
        values = fragment.place(Const(fragment.rows.values), Const(fragment.cols.values))
        shape = tuple(v.value for v in values if isinstance(v, Const) and isinstance(v.value, int))
        ring = self.schedule.register_stages > 1 and not operand.share
        slots = (self.schedule.register_stages,) if ring else ()
        held = self.sums if self.warp_atom is None else self.spec.dtype
        buffer = Buffer(f"{name}_frag", held, Space.PRIVATE, Layout.packed(*slots, *shape))
        registers = Registers(buffer, fragment, Const(0), self.register_pipe) if ring else Registers(buffer, fragment)
        return Path(name, matrix, transposed, staged, registers, atom, width, operand.share)

    def _fill_atom(
        self, operand: Operand, staged: Tile | None, fragment: Fragment, dtype: DType
    ) -> tuple[CopyAtom, int]:
        """The instruction that fills registers, from wherever they are filled."""
        if operand.memory == "image":
            return IMAGE_BLOCK_READ, operand.width
        if operand.block:
            # Where a target has no block reads, lanes next to each other load what a block read would bring them.
            has = self.target.reads_blocks(dtype)
            return (block_read(self.schedule.sub_group or 1), operand.width) if has else (SCALAR, 1)
        width = operand.width
        if staged is not None:
            axis = fragment.rows if fragment.transposed else fragment.cols
            run = axis.run if axis.lanes > 1 else axis.values
            width = next(w for w in (4, 2, 1) if run % w == 0 and w * dtype.size <= VECTOR_BYTES)
            between_rows = as_int(staged.buffer.layout.strides[-2])
            if width > 1 and between_rows is not None and between_rows % width == 0:
                return ALIGNED_VECTOR, width
        return self.vector(width, dtype)

    def _line_atom(self, name: str, staged: Tile, fragment: Fragment) -> tuple[CopyAtom, int]:
        """The instruction that fills an operand of a warp, and the elements that it brings a lane: two bands at once
        where there are two.
        """
        bands, depth = (fragment.rows, fragment.cols) if name == "a" else (fragment.cols, fragment.rows)
        width = depth.values * (1 if bands.values % 2 else 2)
        atom = line_atom(name, staged.transposed != (name == "b"), self.spec.dtype.size)
        return (SCALAR, 1) if atom is None else (atom, width)

    def stage_atom(self, path: Path, operand: Operand) -> tuple[CopyAtom, int]:
        """The instruction that fills local memory, and how many neighbours it moves."""
        if not operand.async_copy:
            kept = path.matrix if path.staged is None else path.staged.buffer
            return self.vector(operand.width, max(path.matrix.dtype, kept.dtype, key=lambda dtype: dtype.size))
        along = path.staged is not None and path.staged.transposed == path.transposed
        return ASYNC_COPY, ASYNC_COPY.widest(operand.width, path.matrix.dtype.size) if along else 1

    def vector(self, width: int, dtype: DType) -> tuple[CopyAtom, int]:
        """The instruction of a single work-item that moves `width` neighbours, or as many as the target can."""
        atom = VECTOR if "unaligned_vectors" in self.target.features else ALIGNED_VECTOR
        width = atom.widest(width, dtype.size)
        return (atom, width) if width > 1 else (SCALAR, 1)

    def adding(self, width: int) -> tuple[CopyAtom, int]:
        """The instruction that adds `width` neighbours to global memory, or as many as the target can."""
        if width == 1 or "atomic_vectors" not in self.target.features:
            return ATOMIC_ADD, 1
        return ATOMIC_ADD_VECTOR, ATOMIC_ADD_VECTOR.widest(width, self.spec.result.size)

    def via(self, path: Path, width: int) -> Buffer | None:
        if not self.schedule.prefetch or path.staged is None:
            return None
        work_items = self.schedule.all_work_items[0] * self.schedule.all_work_items[1]
        layout = Layout.packed(-(-path.staged.rows * path.staged.cols // (width * work_items)), width)
        return Buffer(f"{path.name}_next", path.matrix.dtype, Space.PRIVATE, layout)

    @cached_property
    def acc(self) -> Registers:
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.sums, Space.PRIVATE, Layout.packed(rows, cols))
        return Registers(buffer, Fragment(self.rows, self.cols))

    def to_product(self, *matrices: Buffer | None) -> Body:
        """Of a batch, moves the matrices on to this group's product."""
        if not self.spec.batched:
            return ()
        wide = self.spec.is_wide
        sizes = {x.name: x.shape[0] * x.layout.strides[0] if wide else size for x, size in self.workspaces()}
        out: list[Advance] = []
        for x in matrices:
            if x is None:
                continue
            if x.step is None and x.name not in sizes:
                out.append(Advance(x, Load(self.addresses(x), (BATCH,))))
            else:
                out.append(Advance(x, BATCH * (x.step or sizes[x.name])))
        return tuple(out)

    @staticmethod
    def addresses(matrix: Buffer) -> Buffer:
        """Where the matrices of a batch are."""
        layout = Layout((BATCH_COUNT,), (Const(1),))
        return Buffer(f"{matrix.name}_list", I64, Space.GLOBAL, layout, writable=False, addresses=matrix)

    def per_matrix(self, *matrices: Buffer) -> tuple[Buffer | Var, ...]:
        """The parameters that say where matrices are."""
        out: list[Buffer | Expr | None] = []
        for matrix in matrices:
            alone = matrix.space is Space.IMAGE or matrix.packed
            lists = [self.addresses(matrix)] if self.spec.listed and not alone and matrix.name in "abc" else []
            out += [matrix] if alone else [matrix, *lists, matrix.layout.strides[-2], matrix.step]
        return tuple(p for p in out if isinstance(p, Buffer | Var))

    def awaited(self, *buffers: Buffer) -> Body:
        """Waits for the kernels before, which have written these, on devices where a kernel begins before they end."""
        return (Handover("await", buffers),) if buffers and self._hands_over else ()

    def released(self) -> Body:
        """Lets the next kernel begin."""
        return (Handover("release"),) if self._hands_over else ()

    @property
    def _hands_over(self) -> bool:
        """Whether a kernel of the device may begin before the one before it ends, and those of this product do."""
        return "dependent_launch" in self.target.features and not self.schedule.late

    @property
    def name(self) -> str:
        """The kernel's."""
        return slug(self.schedule)

    @property
    def slice_depth(self) -> int:
        """How much of a step of K the work-items of a slice go through."""
        return self.schedule.k_step // self.schedule.slices

    @property
    def flipped(self) -> bool:
        """Whether a block goes by local memory column by column."""
        return False

    @property
    def put_down(self) -> tuple[int, int]:
        """Lines of a block as it goes by local memory, and their length."""
        rows, cols = self.schedule.block_tile
        return (cols, rows) if self.flipped else (rows, cols)

    @cached_property
    def partial(self) -> Buffer:
        """The slices' sums, in local memory."""
        layout = Layout.packed(self.schedule.slices, *self.schedule.block_tile)
        return Buffer("partial", self.sums, Space.LOCAL, layout)

    @property
    def reuses(self) -> bool:
        """Whether those sums lie where the tiles were."""
        staged = self.a.staged is not None or self.b.staged is not None
        return staged and "reused_local_memory" in self.target.features

    @property
    def sum_across(self) -> int:
        """Work-items along a row of the block when slices are added up."""
        return self.put_down[1] // self.schedule.c_width

    @cached_property
    def total(self) -> Registers:
        """The sum over slices: a block's rows one after the other, dealt out to all work-items in short runs; of the
        groups of a cluster each has a share of them.
        """
        s = self.schedule
        rows, run = self.put_down[0] // s.joined, s.c_width
        across = self.sum_across
        down = s.group[0] * s.slices * s.group[1] // across
        fragment = Fragment(Spread(rows // down, down, 1, SUM_ROW), Spread(run, across, run, SUM_COL))
        buffer = Buffer("total", self.sums, Space.PRIVATE, Layout.packed(rows // down, run))
        return Registers(buffer, fragment)

    @cached_property
    def c(self) -> Buffer:
        return self.matrix("c", self.m, self.n, self.spec.c_order)

    def promises(self) -> tuple[Expr, ...]:
        """What is known of leading dimensions, and of the steps of a batch."""
        known = [self.pitch(name) for name in "abc"]
        known += [Var(f"stride_{name}", I64) for name in "abc"] if self.spec.batched and not self.spec.listed else []
        promised = [(var, self.spec.ld_multiple) for var in known]
        sizes = [(self.named_whole(axis), self.units[axis]) for axis in ("mnk" if self.packed else "")]
        promised += [(x, unit) for x, unit in (*sizes, *self.units_between()) if isinstance(x, Var)]
        return tuple(compare("==", var % width, 0) for var, unit in promised for width in WIDTHS if unit % width == 0)
