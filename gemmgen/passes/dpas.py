"""A product by matrix instructions: a kernel that packs A and B as those want them, and one that multiplies.

Both packed matrices are made of tiles that a sub-group reads as they lie: of A, `tile[0]` rows by a step of K; of B, a
step of K by `tile[1]` columns a lane, where neighbours along K share a word. A tile holds instructions' operands in the
order in which they are read. What lies past K is zero, past M and N whatever the edge holds, so that the kernel that
multiplies has no guards but C's.
"""

from __future__ import annotations

from functools import cached_property

from gemmgen.ir.atoms import SCALAR, Fragment
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I32, DType
from gemmgen.ir.expr import Const, Expr, Load, Var, ceil_div, number
from gemmgen.ir.kernel import Kernel, Program
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
from gemmgen.ir.workspace import Workspace
from gemmgen.passes import epilogue, prologue
from gemmgen.passes.expand import COL as J
from gemmgen.passes.expand import DEPTH as P
from gemmgen.passes.expand import ROW as I
from gemmgen.passes.loops import loop
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import COL, COL0, K0, ROW, ROW0, call
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Work-items of a group that packs.
GROUP = 256
CHUNKS, ELEMENT, TILE, INSIDE = Var("chunks"), Var("element"), Var("tile"), Var("inside")


def build_dpas(spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> Program:
    """The kernels of a validated request."""
    plan = _Dpas(spec, schedule, target, transposed)
    packs = plan.pack("a"), plan.pack("b")
    between = (plan.tiles_of("a"), plan.tiles_of("b"))
    workspaces = tuple(Workspace(x.name, x.dtype, x.shape[0]) for x in between)
    return Program((*packs, plan.kernel()), workspaces, len(packs))


class _Dpas(Plan):
    """The kernels and the memory between them."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target, transposed: bool = False) -> None:
        super().__init__(spec, schedule, target, transposed)
        self.lanes = schedule.sub_group or 1
        self.atom = MatrixAtom(spec.dtype, self.lanes)

    @property
    def chunks(self) -> Expr:
        """Steps of K, the last one filled up with zeros."""
        return ceil_div(self.k, self.schedule.k_step)

    @property
    def parts(self) -> int:
        """Instructions along K in a step."""
        return self.schedule.k_step // self.atom.depth

    def _operands(self, name: str) -> int:
        """Of one instruction along K, in a tile."""
        return self.schedule.tile[0] // ROWS if name == "a" else self.schedule.tile[1]

    def _operand_elements(self, name: str) -> int:
        return (ROWS if name == "a" else self.lanes) * self.atom.depth

    def _tile_elements(self, name: str) -> int:
        return self.parts * self._operands(name) * self._operand_elements(name)

    def _tiles(self, name: str) -> Expr:
        size, block = (self.m, self.schedule.tile[0]) if name == "a" else (self.n, self.schedule.block_tile[1])
        return ceil_div(size, block) * self.chunks

    def tiles_of(self, name: str, dtype: DType | None = None, writable: bool = False) -> Buffer:
        """Tile after tile, in elements or in words of another type."""
        dtype = dtype or self.spec.dtype
        total = self._tiles(name) * (self._tile_elements(name) * self.spec.dtype.size // dtype.size)
        layout = Layout((total,), (Const(1),))
        return Buffer(f"{name}_packed", dtype, Space.GLOBAL, layout, writable=writable, packed=True)

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
        count, operand = self._operands(name), self._operand_elements(name)
        block, step = TILE // CHUNKS, TILE % CHUNKS * self.schedule.k_step
        along = step + INSIDE // (operand * count) * self.atom.depth
        across = block * count + INSIDE // operand % count
        own = self.atom.packed if name == "b" else self.atom.depth // self.lanes
        if self._words(name) == I32:  # a lane's eight words, then the next lane's
            lane, word = INSIDE // (own * ROWS) % self.lanes, INSIDE // own % ROWS
        else:  # a word of each lane, then the next words
            lane, word = INSIDE // own % self.lanes, INSIDE // (own * self.lanes) % ROWS
        if name == "a":
            return across * ROWS + word, along + lane * own + INSIDE % own
        return along + word * own + INSIDE % own, across * self.lanes + lane

    # --- the product ------------------------------------------------------------------------------

    @cached_property
    def acc(self) -> Registers:
        """Columns of rows: eight rows of a column are one register of the instruction."""
        rows, cols = self.schedule.tile
        buffer = Buffer("acc", self.sums, Space.PRIVATE, Layout.packed(cols, rows))
        return Registers(buffer, Fragment(self.rows, self.cols, transposed=True))

    def kernel(self) -> Kernel:
        """What multiplies."""
        s, order = self.schedule, self.spec.c_order
        tile = Tile(self.c, (ROW0, COL0) if order == "row" else (COL0, ROW0), *s.block_tile, order == "col")
        body: Body = (
            *self.positions(),
            Let(CHUNKS, self.chunks),
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, self.sums)),
            Comment(f"Steps of {s.k_step} along K; both operands are packed in that order, with zeros past K."),
            *self._begin(),
            *self.unless_zero((For(K0, Const(0), self.k, s.k_step, self._step()),)),
            Comment(self.update_comment()),
            Update(tile, self.acc, self.alpha, self.beta, SCALAR, steps=epilogue.steps(self)),
        )
        words_of = (self.tiles_of("a", self._words("a")), self.tiles_of("b", self._words("b")))
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
            large_registers=s.large_registers,
        )

    def _begin(self) -> Body:
        """Where the group's tiles begin."""
        begin: list[Stmt] = []
        for name, group in (("b", 0), ("a", 1)):
            first = call("group_id", group) * CHUNKS * self._tile_words(name)
            begin += [Alloc(self._at(name)), Store(self._at(name), (), first)]
        return tuple(begin)

    def _step(self) -> Body:
        """A step of K. All operands of an instruction's depth are read before they are multiplied, and a column's
        products follow each other: few instructions then wait for several others (docs/matrices.md).
        """
        zero = Const(0)
        reads: list[Stmt] = []
        for name, var in (("a", I), ("b", J)):
            fragment, words, count = self._fragment(name), self._words(name), self._operands(name)
            place = (Load(self._at(name), ()) + (P * count + var) * (ROWS * self.lanes),)
            tiles = self.tiles_of(name, words)
            read = Move(fragment, (var, zero), tiles, place, packed_read(self.lanes, words), ROWS)
            reads += [Alloc(fragment), *loop(var, count, (read,))]
        a, b = self._fragment("a"), self._fragment("b")
        multiply = Multiply(self.acc.buffer, (J, I * ROWS), a, (I, zero), b, (J, zero), self.atom)
        products = loop(J, self._operands("b"), loop(I, self._operands("a"), (multiply,)))
        on = (Store(self._at(name), (), Load(self._at(name), ()) + self._tile_words(name)) for name in "ba")
        return *loop(P, self.parts, (*reads, *products)), *on

    def _at(self, name: str) -> Buffer:
        """The place of the step's tile."""
        return Buffer(f"{name}_at", I32, Space.PRIVATE, Layout.packed())

    def _tile_words(self, name: str) -> int:
        return self._tile_elements(name) * self.spec.dtype.size // self._words(name).size

    def _fragment(self, name: str) -> Buffer:
        """Registers for a step's operands, eight words each."""
        return Buffer(f"{name}_frag", self._words(name), Space.PRIVATE, Layout.packed(self._operands(name), ROWS))

    def _words(self, name: str) -> DType:
        """What a lane holds of an operand, eight of them."""
        return self.atom.a_word if name == "a" else I32
