"""A product by matrix instructions: a kernel that packs A and B as those want them, and one that multiplies.

Both packed matrices are made of tiles that a sub-group reads as they lie: of A, `tile[0]` rows by a step of K; of B, a
step of K by `tile[1]` columns a lane, where neighbours along K share a word. A tile holds instructions' operands in the
order in which they are read. What lies past K is zero, past M and N whatever the edge holds, so that the kernel that
multiplies has no guards but C's.
"""

from __future__ import annotations

from gemmgen import epilogues
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import said
from gemmgen.ir.copy_instructions import SCALAR
from gemmgen.ir.dtypes import I32, DType
from gemmgen.ir.expr import Const, Expr, Load, Var, ceil_div, number
from gemmgen.ir.instructions import DPAS_ROWS, Instruction, dpas
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import DEPTH as P
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import Kernel, arguments, loop
from gemmgen.ir.operands import packed_read
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    EpilogueStore,
    Fill,
    For,
    If,
    Let,
    Multiply,
    Registers,
    Stmt,
    Store,
    VectorCopy,
)
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.passes.expand_functions import copied
from gemmgen.positions import COL, K0, LOCAL_COL, LOCAL_ROW, ROW, call
from gemmgen.records import cached_property, dataclass

CHUNKS, CHUNK, BEGIN = Var("chunks"), Var("chunk"), Var("begin")


def _block_of(name: str) -> Var:
    """Which tile of a step of K a group packs, of A or of B."""
    return Var(f"{name}_block")


@dataclass(frozen=True)
class Dpas(Mainloop):
    """The mainloop, its kernels and the memory between them."""

    @property
    def _lanes(self) -> int:
        return self.schedule.sub_group or 1

    @cached_property
    def instruction(self) -> Instruction:
        return dpas(self.problem.spec.dtype, self._lanes)

    def kernels_before(self) -> tuple[Kernel, ...]:
        """What packs A and B."""
        return (self.pack(),)

    def workspaces(self) -> tuple[Workspace, ...]:
        """The memory between kernels."""
        return tuple(Workspace(x.name, x.dtype, x.shape[0]) for x in map(self.tiles_of, "ab"))

    @property
    def chunks(self) -> Expr:
        """Steps of K, the last one filled up with zeros."""
        return ceil_div(self.problem.k, self.schedule.block_k)

    @property
    def parts(self) -> int:
        """Instructions along K in a step."""
        return self.schedule.block_k // self.instruction.depth

    def _operands(self, name: str) -> int:
        """Of one instruction along K, in a tile."""
        return self.schedule.tile[0] // DPAS_ROWS if name == "a" else self.schedule.tile[1]

    def _operand_elements(self, name: str) -> int:
        return (DPAS_ROWS if name == "a" else self._lanes) * self.instruction.depth

    def _tile_elements(self, name: str) -> int:
        return self.parts * self._operands(name) * self._operand_elements(name)

    def _blocks(self, name: str) -> Expr:
        """Tiles of a step of K."""
        size, block = (
            (self.problem.m, self.schedule.tile[0]) if name == "a" else (self.problem.n, self.schedule.block_tile[1])
        )
        return ceil_div(size, block)

    def tiles_of(self, name: str, dtype: DType | None = None, writable: bool = False) -> Buffer:
        """Tile after tile, in elements or in words of another type."""
        dtype = dtype or self.problem.spec.dtype
        total = (
            self._blocks(name) * self.chunks * (self._tile_elements(name) * self.problem.spec.dtype.size // dtype.size)
        )
        layout = Layout((total,), (Const(1),))
        return Buffer(f"{name}_packed", dtype, Space.GLOBAL, layout, writable=writable, prepacked=True)

    # --- packing ----------------------------------------------------------------------------------

    def pack(self) -> Kernel:
        """A group for each tile, those of A before those of B; a thread for each word and lane of an operand: places
        are sums, without a division.
        """
        problem, names, of_a = self.problem, "ab", Var("a_blocks")
        body: Body = (
            Let(of_a, self._blocks("a")),
            Let(_block_of("a"), call("group_id", 1)),
            Let(_block_of("b"), _block_of("a") - of_a),
            Let(CHUNK, call("group_id", 0)),
            Let(LOCAL_ROW, call("local_id", 1)),
            Let(LOCAL_COL, call("local_id", 0)),
            If(_block_of("a") < of_a, self._packed("a"), self._packed("b")),
        )
        targets = {name: self.tiles_of(name, writable=True) for name in names}
        given = (x for name in names for x in (problem.given(name), problem.pitch(name)))
        kept = (*targets.values(), *problem.prologue_parameters(names))
        return Kernel(
            name=f"{problem.name}_pack",
            params=arguments(problem.m, problem.n, problem.k, *given, *kept),
            body=body,
            group=(DPAS_ROWS, self._lanes),
            grid=(self._blocks("a") + self._blocks("b"), self.chunks),
            nonnegative=tuple(
                to.shape[0] - self._tile_begin(name) - self._tile_elements(name) for name, to in targets.items()
            ),
            assumptions=problem.assumptions(),
        )

    def _tile_begin(self, name: str) -> Expr:
        """Where a tile begins."""
        return (_block_of(name) * self.chunks + CHUNK) * self._tile_elements(name)

    def _packed(self, name: str) -> Body:
        """What a group does of one matrix."""
        problem, to = self.problem, self.tiles_of(name, writable=True)
        place = (ROW, COL) if problem.spec.order(name) == "row" else (COL, ROW)
        where, inside = self._packed_place(name)
        value = Buffer("value", problem.spec.dtype, Space.PRIVATE, Layout.packed())
        load = VectorCopy(value, (), problem.given(name), place, SCALAR, 1)
        step = problem.prologue(name)
        element: Body = (
            *(Let(at, expr) for at, expr in zip((ROW, COL), where, strict=True)),
            Alloc(value),
            *((load,) if step is None else copied(step, load)),
            Store(to, (BEGIN + inside,), Load(value, ())),
        )
        loops = loop(P, self.parts, loop(I, self._operands(name), loop(J, self._own(name), element)))
        return (Let(BEGIN, self._tile_begin(name)), *loops)

    def _own(self, name: str) -> int:
        """Neighbours along K of an operand that a lane holds, of one of its words."""
        atom = self.instruction
        return atom.b_register.size // atom.dtype.size if name == "b" else atom.depth // self._lanes

    def _packed_place(self, name: str) -> tuple[tuple[Expr, Expr], Expr]:
        """The (row, column) of the matrix that an element is, and where in its tile it goes: element `j` of what word
        `local_row` of lane `local_col` holds, of operand `i`, `p` instructions into the step.
        """
        count, own, word, lane = self._operands(name), self._own(name), LOCAL_ROW, LOCAL_COL
        along = CHUNK * self.schedule.block_k + P * self.instruction.depth
        across = _block_of(name) * count + I
        # A lane's eight words, then the next lane's; or a word of each lane, then the next words.
        inside = lane * DPAS_ROWS + word if self._words(name) == I32 else word * self._lanes + lane
        inside = (P * count + I) * self._operand_elements(name) + inside * own + J
        if name == "a":
            return (across * DPAS_ROWS + word, along + lane * own + J), inside
        return (along + word * own + J, across * self._lanes + lane), inside

    # --- the product ------------------------------------------------------------------------------

    @cached_property
    def acc(self) -> Registers:
        """Columns of rows: eight rows of a column are one register of the instruction."""
        return self.accumulators(by_columns=True)

    def kernel(self) -> Kernel:
        """What multiplies."""
        problem, s = self.problem, self.schedule
        tile = epilogues.tile_of_c(problem, *s.block_tile)
        body: Body = (
            *self.scheduler.positions(self.threads),
            Let(CHUNKS, self.chunks),
            Alloc(self.acc.buffer),
            Fill(self.acc, number(0, problem.sums)),
            Comment(f"Steps of {said(s.block_k)} along K; both operands are packed in that order, with zeros past K."),
            *self._begin(),
            *problem.unless_zero((For(K0, Const(0), problem.k, s.block_k, self._step()),)),
            Comment(problem.epilogue_comment()),
            EpilogueStore(tile, self.acc, problem.alpha, problem.beta, SCALAR, steps=epilogues.steps(problem)),
        )
        words_of = (self.tiles_of("a", self._words("a")), self.tiles_of("b", self._words("b")))
        stored = (problem.beta, problem.c, problem.pitch("c"), *epilogues.parameters(problem))
        return Kernel(
            name=problem.name,
            params=arguments(problem.m, problem.n, problem.k, problem.alpha, *words_of, *stored),
            body=body,
            group=s.group,
            grid=self.scheduler.grid(),
            sub_group=self._lanes,
            nonnegative=self.scheduler.assumptions(),
            assumptions=problem.assumptions(),
            large_registers=s.large_grf,
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
            place = (Load(self._at(name), ()) + (P * count + var) * (DPAS_ROWS * self._lanes),)
            tiles = self.tiles_of(name, words)
            read = VectorCopy(fragment, (var, zero), tiles, place, packed_read(self._lanes, words), DPAS_ROWS)
            reads += [Alloc(fragment), *loop(var, count, (read,))]
        a, b = self._fragment("a"), self._fragment("b")
        multiply = Multiply(self.acc.buffer, (J, I * DPAS_ROWS), a, (I, zero), b, (J, zero), self.instruction)
        products = loop(J, self._operands("b"), loop(I, self._operands("a"), (multiply,)))
        on = (Store(self._at(name), (), Load(self._at(name), ()) + self._tile_words(name)) for name in "ba")
        return *loop(P, self.parts, (*reads, *products)), *on

    def _at(self, name: str) -> Buffer:
        """The place of the step's tile."""
        return Buffer(f"{name}_at", I32, Space.PRIVATE, Layout.packed())

    def _tile_words(self, name: str) -> int:
        return self._tile_elements(name) * self.problem.spec.dtype.size // self._words(name).size

    def _fragment(self, name: str) -> Buffer:
        """Registers for a step's operands, eight words each."""
        return Buffer(f"{name}_frag", self._words(name), Space.PRIVATE, Layout.packed(self._operands(name), DPAS_ROWS))

    def _words(self, name: str) -> DType:
        """What a lane holds of an operand, eight of them."""
        return self.instruction.a_register if name == "a" else I32
