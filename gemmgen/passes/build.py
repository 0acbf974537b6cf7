"""Build the kernel: a whole GEMM in about a dozen statements on tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from gemmgen.ir.atoms import (
    ALIGNED_VECTOR,
    BROADCAST_FMA,
    FMA,
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
from gemmgen.ir.expr import Call, Const, Expr, Var, both, ceil_div, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import (
    Alloc,
    Barrier,
    Body,
    Comment,
    Copy,
    Fill,
    For,
    If,
    Let,
    Mma,
    Pipe,
    PipeOp,
    Registers,
    Stage,
    Stmt,
    Tile,
    Update,
)
from gemmgen.ir.target import Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

LOCAL_ROW, LOCAL_COL, LANE = Var("local_row"), Var("local_col"), Var("lane")
ROW0, COL0, ROW, COL = Var("row0"), Var("col0"), Var("row"), Var("col")
K0, KK, K_MAIN = Var("k0"), Var("kk"), Var("k_main")
#: Unroll the steps through a block of K up to this many; beyond it the code outgrows instruction caches.
MOST_UNROLLED = 16
#: Widths of vectors, for what is promised of leading dimensions.
WIDTHS = (2, 4, 8, 16)


def build(spec: GemmSpec, schedule: Schedule, target: Target) -> Kernel:
    """The kernel of a validated request, in statements on tiles."""
    return _Gemm(spec, schedule, target).kernel()


def _call(function: str, *args: int) -> Call:
    return Call(function, tuple(map(Const, args)), I32)


@dataclass(frozen=True)
class _Path:
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


class _Gemm:
    """The parts of one kernel, named."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target) -> None:
        self.spec, self.schedule, self.target = spec, schedule, target
        self.m, self.n, self.k = (
            Var(name) if size is None else Const(size) for name, size in (("m", spec.m), ("n", spec.n), ("k", spec.k))
        )
        self.alpha: Expr = Var("alpha", spec.dtype) if spec.alpha is None else Const(spec.alpha, spec.dtype)
        self.beta: Expr = Var("beta", spec.dtype) if spec.beta is None else Const(spec.beta, spec.dtype)
        self.uses_sub_group = schedule.sub_group is not None
        self.pipe = Pipe("tiles", schedule.stages, "barrier", schedule.prefetch)
        self.register_pipe = Pipe("fragments", schedule.register_stages, "none")

    # --- sizes and positions --------------------------------------------------------------------

    @cached_property
    def depth(self) -> int:
        """Depth of one inner step: what the widest load along K brings."""
        s = self.schedule
        if s.barrier:
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
            Let(LOCAL_ROW, _call("local_id", 1)),
            Let(LOCAL_COL, _call("local_id", 0)),
            Let(ROW0, _call("group_id", 1) * block_rows),
            Let(COL0, _call("group_id", 0) * block_cols),
        ]
        if self.uses_sub_group:
            lets.insert(2, Let(LANE, _call("lane_id")))
        for var, origin, spread in ((ROW, ROW0, self.rows), (COL, COL0, self.cols)):
            if spread.lanes > 1:
                lets.append(Let(var, origin + spread.start))
        if self.k_stop == K_MAIN:
            lets.append(Let(K_MAIN, self.k - self.k % self.schedule.k_step))
        return tuple(lets)

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
    def a(self) -> _Path:
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
    def b(self) -> _Path:
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
    ) -> _Path:
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
        return _Path(matrix, transposed, staged, registers, atom, width, operand.share)

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
        return self._vector(width), width

    def _vector(self, width: int) -> CopyAtom:
        """The instruction of a single work-item that moves `width` neighbours."""
        if width == 1:
            return SCALAR
        return VECTOR if "unaligned_vectors" in self.target.features else ALIGNED_VECTOR

    # --- the product ------------------------------------------------------------------------------

    @cached_property
    def acc(self) -> Registers:
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.spec.dtype, Space.PRIVATE, Layout.packed(rows, cols))
        return Registers(buffer, Fragment(self.rows, self.cols))

    def _source(self, path: _Path, k: Expr) -> Tile:
        """The tile of the matrix that a fill at depth `k` reads."""
        shape = path.registers.fragment.shape
        sub_group_row = ROW if self.rows.lanes > 1 and path.per_block else ROW0
        logical = (sub_group_row, k) if path.matrix.name == "a" else (k, COL0)
        origin = logical[::-1] if path.transposed else logical
        return Tile(path.matrix, origin, *shape, path.transposed)

    def _fill(self, path: _Path, k0: Expr, kk: Expr) -> Body:
        if path.staged is None:
            return (Copy(path.registers, self._source(path, k0 + kk), path.atom, path.width),)
        along_fast = path.staged.transposed == (path.matrix.name == "b")
        offset = (Const(0), kk) if along_fast else (kk, Const(0))
        tile = replace(
            path.staged,
            origin=(*path.staged.origin[:-2], *offset),
            rows=path.registers.fragment.shape[0],
            cols=path.registers.fragment.shape[1],
        )
        return (Copy(path.registers, tile, path.atom, path.width),)

    def _stage(self, path: _Path, k0: Expr) -> Body:
        if path.staged is None:
            return ()
        operand = self.schedule.a if path.matrix.name == "a" else self.schedule.b
        logical = (ROW0, k0) if path.matrix.name == "a" else (k0, COL0)
        origin = logical[::-1] if path.transposed else logical
        source = Tile(path.matrix, origin, path.staged.rows, path.staged.cols, path.transposed)
        atom = self._vector(operand.width)
        return (Stage(path.staged, source, atom, operand.width, via=self._via(path, operand)),)

    def _via(self, path: _Path, operand: Operand) -> Buffer | None:
        if not self.schedule.prefetch or path.staged is None:
            return None
        work_items = self.schedule.group[0] * self.schedule.group[1]
        vectors = -(-path.staged.rows * path.staged.cols // (operand.width * work_items))
        layout = Layout.packed(vectors, operand.width)
        return Buffer(f"{path.matrix.name}_next", self.spec.dtype, Space.PRIVATE, layout)

    def _inner_steps(self, k0: Expr) -> Body:
        """The products of one step of K."""
        per_step = [p for p in (self.a, self.b) if not p.per_block]
        pipe = self.register_pipe if any(p.registers.pipe for p in per_step) else None
        fills = tuple(s for p in per_step for s in self._fill(p, k0, KK))
        allocs = tuple(Alloc(p.registers.buffer) for p in per_step)
        a_k = KK if self.a.per_block else Const(0)
        atom = BROADCAST_FMA if self.a.per_block else FMA
        mma = Mma(self.acc, self.a.registers, self.b.registers, a_k, Const(0), self.depth, atom)
        body: Body
        if pipe is not None:
            produce = (PipeOp("acquire", pipe), *fills, PipeOp("commit", pipe))
            body = (*produce, PipeOp("wait", pipe), mma, PipeOp("release", pipe))
        else:
            step_barrier = (Barrier("none"),) if self.schedule.barrier else ()
            body = (*allocs, *fills, *step_barrier, mma)
        unroll = pipe is not None or self.a.per_block or self.schedule.k_step <= MOST_UNROLLED
        steps = For(KK, Const(0), Const(self.schedule.k_step), self.depth, body, unroll, exact=True)
        return (*allocs, steps) if pipe is not None else (steps,)

    def _step(self, k0: Expr) -> Body:
        """One step of K: stage, fill, multiply."""
        stages = (*self._stage(self.a, k0), *self._stage(self.b, k0))
        blocks = tuple(
            s
            for p in (self.a, self.b)
            if p.per_block
            for s in (Alloc(p.registers.buffer), *self._fill(p, k0, Const(0)))
        )
        inner = (*blocks, *self._inner_steps(k0))
        if not stages:
            return inner
        produce = (PipeOp("acquire", self.pipe), *stages, PipeOp("commit", self.pipe))
        return (*produce, PipeOp("wait", self.pipe), *inner, PipeOp("release", self.pipe))

    def _product(self) -> Body:
        step = self.schedule.k_step
        main = For(K0, Const(0), self.k_stop, step, self._step(K0), exact=True)
        out: list[Stmt] = [Alloc(self.acc.buffer), Fill(self.acc, Const(0.0, self.spec.dtype))]
        if not self.exact_k:
            out.append(Comment(f"Whole steps of {step} along K."))
        out.append(main)
        if not self.exact_k:
            rest = (Comment("The rest of K; what lies past it counts as zero."), *self._step(self.k_stop))
            out.append(If(self.k_stop < self.k, rest))
        tile = Tile(self.c, (ROW0, COL0) if self.spec.c_order == "row" else (COL0, ROW0), *self.acc.fragment.shape)
        out += [
            Comment(_update_comment(self.spec)),
            Update(replace(tile, transposed=self.spec.c_order == "col"), self.acc, self.alpha, self.beta),
        ]
        return tuple(out)

    @cached_property
    def c(self) -> Buffer:
        return self.matrix("c", self.m, self.n, self.spec.c_order)

    def _allocs(self) -> Body:
        """Local memory, and registers that outlive a step of K."""
        out: list[Stmt] = []
        for path, operand in ((self.a, self.schedule.a), (self.b, self.schedule.b)):
            if path.staged is not None:
                out.append(Alloc(path.staged.buffer))
                via = self._via(path, operand)
                out += [] if via is None else [Alloc(via)]
        return tuple(out)

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        """All of it."""
        s = self.schedule
        body = self._product()
        if s.tile == (1, 1) and s.method == "naive":
            inside = both(_position(ROW, ROW0, self.rows) < self.m, _position(COL, COL0, self.cols) < self.n)
            body = (If(inside, body),)
        block_rows, block_cols = s.block_tile
        return Kernel(
            name=s.name or s.slug(),
            params=self._params(),
            body=(*self.positions(), *self._allocs(), *body),
            group=s.group,
            grid=(ceil_div(self.m, block_rows), ceil_div(self.n, block_cols)),
            sub_group=s.sub_group,
            facts=self._facts(),
            promises=self._promises(),
        )

    def _params(self) -> tuple[Buffer | Var, ...]:
        a, b = self.a.matrix, self.b.matrix
        order: list[Expr | Buffer] = [self.m, self.n, self.k, self.alpha, a, Var("lda"), b, Var("ldb"), self.beta]
        order += [self.c, Var("ldc")]
        images = {f"ld{x.name}" for x in (a, b) if x.space is Space.IMAGE}
        return tuple(p for p in order if isinstance(p, Buffer) or (isinstance(p, Var) and p.name not in images))

    def _promises(self) -> tuple[Expr, ...]:
        """What is known of leading dimensions."""
        return tuple(
            compare("==", Var(f"ld{name}") % width, 0)
            for name in "abc"
            for width in WIDTHS
            if self.spec.ld_multiple % width == 0
        )

    def _facts(self) -> tuple[Expr, ...]:
        """What divisibility promises: the last group's tile ends inside the matrix."""
        facts: list[Expr] = []
        for axis, dimension in ((0, 1), (1, 0)):
            size = (self.m, self.n)[axis]
            known = (self.spec.m, self.spec.n)[axis]
            block = self.schedule.block_tile[axis]
            group = _call("group_id", dimension)
            if (known if known is not None else self.spec.multiple_of[axis]) % block == 0:
                facts.append(size - group * block - block)
        return tuple(facts)


def _position(own: Var, origin: Var, spread: Spread) -> Expr:
    return own if spread.lanes > 1 else origin


def _update_comment(spec: GemmSpec) -> str:
    alpha = "" if spec.alpha == 1 else "alpha * " if spec.alpha is None else f"{spec.alpha:g} * "
    match spec.beta:
        case 0:
            return f"C = {alpha}A * B."
        case None:
            return f"C = {alpha}A * B + beta * C; C is not read where beta is zero."
        case 1:
            return f"C = {alpha}A * B + C."
    return f"C = {alpha}A * B + {spec.beta:g} * C."
