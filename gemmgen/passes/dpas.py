"""A product by matrix instructions: a kernel that packs A and B as those want them, and one that multiplies.

Both packed matrices are made of tiles that a sub-group reads as they lie: of A, `tile[0]` rows by a step of K; of B, a
step of K by `tile[1]` columns a lane, where neighbours along K share a word. What lies past K is zero, past M and N
whatever the edge holds, so that the kernel that multiplies has no guards but C's.
"""

from __future__ import annotations

from functools import cached_property

from gemmgen.ir.atoms import SCALAR, Fragment
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I32, DType
from gemmgen.ir.expr import Const, Expr, Load, Var, ceil_div, number
from gemmgen.ir.kernel import Kernel, Program, Workspace
from gemmgen.ir.matrix import ROWS, MatrixAtom, packed_read
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    Fill,
    For,
    If,
    Let,
    Move,
    Multiply,
    Registers,
    Stmt,
    Store,
    Tile,
    Update,
)
from gemmgen.ir.target import Target
from gemmgen.passes import epilogue, prologue
from gemmgen.passes.expand import COL as J
from gemmgen.passes.expand import ROW as I
from gemmgen.passes.loops import loop
from gemmgen.passes.plan import Plan, update_comment
from gemmgen.passes.positions import COL, COL0, K0, ROW, ROW0, call
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Work-items of a group that packs.
GROUP = 256
CHUNKS, ELEMENT, TILE, INSIDE = Var("chunks"), Var("element"), Var("tile"), Var("inside")


def build_dpas(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    """The kernels of a validated request."""
    plan = _Dpas(spec, schedule, target)
    packs = plan.pack("a"), plan.pack("b")
    between = (plan.tiles_of("a"), plan.tiles_of("b"))
    return Program((*packs, plan.kernel()), tuple(Workspace(x.name, x.dtype, x.shape[0]) for x in between))


class _Dpas(Plan):
    """The kernels and the memory between them."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target) -> None:
        super().__init__(spec, schedule, target)
        self.lanes = schedule.sub_group or 1
        self.atom = MatrixAtom(spec.dtype, self.lanes)

    @property
    def chunks(self) -> Expr:
        """Steps of K, the last one filled up with zeros."""
        return ceil_div(self.k, self.atom.depth)

    def _tile_elements(self, name: str) -> int:
        extent = self.schedule.tile[0] if name == "a" else self.schedule.tile[1] * self.lanes
        return extent * self.atom.depth

    def _tiles(self, name: str) -> Expr:
        size, block = (self.m, self.schedule.tile[0]) if name == "a" else (self.n, self.schedule.block_tile[1])
        return ceil_div(size, block) * self.chunks

    def tiles_of(self, name: str, dtype: DType | None = None, writable: bool = False) -> Buffer:
        """Tile after tile, in elements or in words of another type."""
        dtype = dtype or self.spec.dtype
        total = self._tiles(name) * (self._tile_elements(name) * self.spec.dtype.size // dtype.size)
        layout = Layout((total,), (Const(1),))
        return Buffer(f"{name}_packed", dtype, Space.GLOBAL, layout, writable=writable)

    # --- packing ----------------------------------------------------------------------------------

    def pack(self, name: str) -> Kernel:
        """A work-item for each element that is packed."""
        to, size = self.tiles_of(name, writable=True), self._tile_elements(name)
        contracted = "cols" if name == "a" else "rows"
        order = self.spec.a_order if name == "a" else self.spec.b_order
        extents = (self.m, self.k) if name == "a" else (self.k, self.n)
        matrix = self.matrix(name, *extents, order, contracted)
        place = (ROW, COL) if order == "row" else (COL, ROW)
        where = (Let(at, expr) for at, expr in zip((ROW, COL), self._packed_place(name), strict=True))
        value = Buffer("value", self.spec.dtype, Space.PRIVATE, Layout.packed())
        load = Move(value, (), matrix, place, SCALAR, 1)
        step = prologue.step(self, name)
        total = to.shape[0]
        body: Body = (
            Let(CHUNKS, self.chunks),
            Let(ELEMENT, call("group_id", 0) * GROUP + call("local_id", 0)),
            If(
                total > ELEMENT,
                (
                    Let(TILE, ELEMENT // size),
                    Let(INSIDE, ELEMENT % size),
                    *where,
                    Alloc(value),
                    *((load,) if step is None else prologue.copied(step, load)),
                    Store(to, (ELEMENT,), Load(value, ())),
                ),
            ),
        )
        pitch = self.pitch(name)
        listed = (self.m if name == "a" else self.n, self.k, matrix, pitch, to, *prologue.parameters(self, name))
        return Kernel(
            name=f"{self.name}_pack_{name}",
            params=tuple(p for p in listed if isinstance(p, Buffer | Var)),
            body=body,
            group=(1, GROUP),
            grid=(Const(1), ceil_div(total, GROUP)),
            promises=self.promises(),
        )

    def _packed_place(self, name: str) -> tuple[Expr, Expr]:
        """The (row, column) of the matrix that a tile's element is."""
        depth, packed = self.atom.depth, self.atom.packed
        block, step = TILE // CHUNKS, TILE % CHUNKS * depth
        if name == "a":
            return block * self.schedule.tile[0] + INSIDE // depth, step + INSIDE % depth
        operand = self.lanes * depth  # of one instruction: eight words a lane
        word = INSIDE // (self.lanes * packed) % ROWS
        row = step + word * packed + INSIDE % packed
        col = block * self.schedule.block_tile[1] + INSIDE // operand * self.lanes + INSIDE // packed % self.lanes
        return row, col

    # --- the product ------------------------------------------------------------------------------

    @cached_property
    def acc(self) -> Registers:
        """Columns of rows: eight rows of a column are one register of the instruction."""
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.sums, Space.PRIVATE, Layout.packed(cols, rows))
        return Registers(buffer, Fragment(self.rows, self.cols, transposed=True))

    def kernel(self) -> Kernel:
        """What multiplies."""
        s, zero = self.schedule, Const(0)
        begin: list[Stmt] = []
        reads: list[Stmt] = []
        on: list[Stmt] = []
        for name, count, group, var in (("b", s.tile[1], 0, J), ("a", s.tile[0] // ROWS, 1, I)):
            words = self.tiles_of(name, self.atom.a_word if name == "a" else I32)
            size = self._tile_elements(name) * self.spec.dtype.size // words.dtype.size
            at = Buffer(f"{name}_at", I32, Space.PRIVATE, Layout.packed())
            fragment = self._fragment(name)
            place = (Load(at, ()) + var * (ROWS * self.lanes),)
            read = Move(fragment, (var, zero), words, place, packed_read(self.lanes), ROWS)
            begin += [Alloc(at), Store(at, (), call("group_id", group) * CHUNKS * size)]
            reads += [Alloc(fragment), *loop(var, count, (read,))]
            on.append(Store(at, (), Load(at, ()) + size))
        acc, a, b = self.acc.buffer, self._fragment("a"), self._fragment("b")
        multiply = Multiply(acc, (J, I * ROWS), a, (I, zero), b, (J, zero), self.atom)
        step = (*reads, *loop(I, s.tile[0] // ROWS, loop(J, s.tile[1], (multiply,))), *on)
        order = self.spec.c_order
        tile = Tile(self.c, (ROW0, COL0) if order == "row" else (COL0, ROW0), *s.block_tile, order == "col")
        body: Body = (
            *self.positions(),
            Let(CHUNKS, self.chunks),
            Alloc(acc),
            Fill(self.acc, number(0, self.sums)),
            Comment(f"Steps of {self.atom.depth} along K; both operands are packed in that order, with zeros past K."),
            *begin,
            *self.unless_zero((For(K0, zero, self.k, self.atom.depth, step),)),
            Comment(update_comment(self.spec)),
            Update(tile, self.acc, self.alpha, self.beta, SCALAR, steps=epilogue.steps(self)),
        )
        words_of = (self.tiles_of("a", self.atom.a_word), self.tiles_of("b", I32))
        params: list[Buffer | Expr] = [self.m, self.n, self.k, self.alpha, *words_of]
        params += [self.beta, self.c, self.pitch("c"), *epilogue.parameters(self)]
        return Kernel(
            name=self.name,
            params=tuple(p for p in params if isinstance(p, Buffer | Var)),
            body=body,
            group=s.group,
            grid=self.grid(),
            sub_group=self.lanes,
            facts=self.facts(),
            promises=self.promises(),
        )

    def _fragment(self, name: str) -> Buffer:
        """Registers for a step's operands, eight words each."""
        count = self.schedule.tile[0] // ROWS if name == "a" else self.schedule.tile[1]
        word = self.atom.a_word if name == "a" else I32
        return Buffer(f"{name}_frag", word, Space.PRIVATE, Layout.packed(count, ROWS))
