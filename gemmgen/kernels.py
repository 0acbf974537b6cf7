"""Kernels around a product: one that packs A and B, and one that transposes a matrix by shuffles.

Packing stores a copy of A or B, in the order that it is staged in and in whole tiles. Lines of narrow elements begin
anywhere, so that no vector may be read there; but within the matrix a vector lies in two that may, whose words are
shifted. Hence a group's block in the middle of the matrix is read so, and any other by elements. What lies past K
becomes zero, and what lies past M and N may be read, so that the product needs no guard on either. A matrix that
changes its order goes through shared memory, so that both sides are read and written by lines.

The transpose has a square block per sub-group. Lane l of a sub-group of S lanes reads column l of an S x S block, a row
at a time, so that every read is contiguous across the sub-group. log2(S) rounds then exchange halves between lanes that
differ in one bit of their number, as in the transpose by shuffles of Intel's oneAPI GPU Optimization Guide, after which
lane l holds row l; every write is contiguous too.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.checks.types import lacking
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import ALIGNED_VECTOR, SCALAR, SPANNING_VECTOR
from gemmgen.ir.dtypes import BOOL, F32, I32, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, all_of, both, ceil_div, compare, convert, number, select
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import Kernel, loop
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import Target
from gemmgen.names import name_problem
from gemmgen.passes.expand_functions import prologue_applied
from gemmgen.passes.sub_group_size import unless_in_sub_groups_of
from gemmgen.positions import BATCH, BATCH_COUNT, BLOCK, LOCAL_COL, LOCAL_ROW, call
from gemmgen.problem import Problem
from gemmgen.records import dataclass
from gemmgen.spec import GemmSpec

# --- packing --------------------------------------------------------------------------------------

#: A group moves blocks of this many rows and columns, so many rows at a time.
SIDE, ROWS = 32, 8
#: Rows of a block that is read by vectors: with more of them under way a thread was no faster on an H200.
FEW = 16
#: Bytes that a thread writes of each row at least, where it can, so that enough is under way; and at once, where it
#: can read as many.
WORD, VECTOR = 4, 16
_PART, _PIECE = Var("i"), Var("j")


def packing(problem: Problem) -> tuple[Kernel, ...]:
    """The kernel that packs operands, if any is packed."""
    return (pack_kernel(problem),) if problem.packed else ()


def pack_kernel(problem: Problem) -> Kernel:
    """All matrices that are packed, by one launch: the blocks of the first, then those of the second."""
    jobs = tuple(_Job(problem, name) for name in problem.packed)
    first, last = jobs[0], jobs[-1]
    number = call("group_id", 0)
    blocks: list[Stmt] = [Let(BLOCK, number)]
    work = first.body()
    if len(jobs) > 1:
        count = Var(f"{first.name}_blocks")
        blocks = [Let(count, first.count(*first.named)), Let(BLOCK, select(number < count, number, number - count))]
        work = (If(number < count, work, last.body()),)
    kept = (job.target for job in jobs)
    sizes = dict.fromkeys(v for v in (problem.m, problem.n, problem.k) if any(v in job.sizes for job in jobs))
    return Kernel(
        name=f"{problem.name}_pack",
        params=(
            *(v for v in sizes if isinstance(v, Var)),
            *(p for job in jobs for p in problem.parameters_of(job.source)),
            *kept,
            *problem.prologue_parameters(problem.packed),
        ),
        body=(
            *problem.released(),
            *((Let(BATCH, call("group_id", 2)),) if problem.spec.batched else ()),
            *problem.wholes(),
            *blocks,
            Let(LOCAL_ROW, call("local_id", 1)),
            Let(LOCAL_COL, call("local_id", 0)),
            *problem.to_product(*(x for job in jobs for x in (job.source, job.target))),
            # OpenCL C has local memory at the top of a kernel only.
            *(Alloc(job.tile) for job in jobs if job.transposed),
            *work,
        ),
        group=(ROWS, SIDE),
        grid=(Const(1), first.blocks + last.blocks if len(jobs) > 1 else first.blocks),
        nonnegative=tuple(fact for job in jobs for fact in job.facts),
        assumptions=problem.assumptions(),
        grid_z=BATCH_COUNT if problem.spec.batched else None,
    )


@dataclass(frozen=True)
class _Job:
    """One matrix."""

    problem: Problem
    name: str

    @property
    def source(self) -> Buffer:
        return self.problem.given(self.name)

    @property
    def target(self) -> Buffer:
        return self.problem.packed_matrix(self.name, writable=True)

    @property
    def sizes(self) -> tuple[Expr, ...]:
        return self.source.shape

    @property
    def transposed(self) -> bool:
        """Whether lines become columns."""
        return self.problem.changes_order(self.name)

    @property
    def named(self) -> tuple[Expr, Expr]:
        """The target's shape by the names that the kernel binds."""
        slow, fast = self.problem.packed_axes(self.name)
        return self.problem.named_whole(slow), self.problem.named_whole(fast)

    @property
    def facts(self) -> tuple[Expr, ...]:
        """That whole tiles have all that there is."""
        sizes = {"m": self.problem.m, "n": self.problem.n, "k": self.problem.k}
        return tuple(self.problem.whole(axis) - sizes[axis] for axis in self.problem.packed_axes(self.name))

    @property
    def blocks(self) -> Expr:
        """How many blocks it has, by the sizes alone."""
        slow, fast = self.problem.packed_axes(self.name)
        return self.count(self.problem.whole(slow), self.problem.whole(fast))

    @property
    def spans(self) -> bool:
        """Whether vectors are read wherever lines begin: of elements less than a word, moved as they are."""
        features, size = self.problem.target.features, self.source.dtype.size
        prologue = self.problem.prologue(self.name)
        alike = self.source.dtype == self.target.dtype and prologue is None and not self.transposed
        return alike and size < WORD and self.is_whole(VECTOR // size) and SPANNING_VECTOR.needs <= features

    def is_whole(self, pieces: int) -> bool:
        """Whether the target's lines, of whole tiles, are of so many elements or a multiple of them."""
        return self.problem.units[self.problem.packed_axes(self.name)[1]] % pieces == 0

    @property
    def pieces(self) -> int:
        """Elements of a line that a thread moves together."""
        if self.spans:
            return VECTOR // self.target.dtype.size
        vectors = "unaligned_vectors" not in self.problem.target.features
        pieces = max(1, WORD // self.target.dtype.size)
        return pieces if vectors and not self.transposed and self.is_whole(pieces) else 1

    def count(self, slow: Expr, fast: Expr) -> Expr:
        """Blocks of a matrix of such a shape."""
        return ceil_div(slow, self.rows) * ceil_div(fast, SIDE * self.pieces)

    @property
    def rows(self) -> int:
        """Of a block."""
        return FEW if self.spans else SIDE

    @property
    def tile(self) -> Buffer:
        """The shared memory in which a block is transposed."""
        return Buffer(f"{self.name}_tile", self.target.dtype, Space.LOCAL, Layout.packed(SIDE, SIDE, pad=1))

    def body(self) -> Body:
        """What a group does with one block."""
        slow0, fast0 = Var(f"{self.name}_slow"), Var(f"{self.name}_fast")
        wide = SIDE * self.pieces
        across = ceil_div(self.named[1], wide)
        down = _PART * ROWS + LOCAL_ROW
        own = LOCAL_COL * self.pieces if self.pieces > 1 else LOCAL_COL
        starts: Body = (Let(slow0, BLOCK // across * self.rows), Let(fast0, BLOCK % across * wide))
        if self.spans:
            return (*starts[:1], Let(fast0, BLOCK % across * wide + own), *self._spanned(slow0, (slow0 + down, fast0)))
        at = (slow0 + down, fast0 + own)
        to = at if self.problem.in_terms is None else (at[0], fast0 * 2 + LOCAL_COL)
        if self.pieces > 1:
            return (*starts, _parts(self._inside(to, self._word(to))))
        if not self.transposed:
            names, value = self._element(at)
            return (*starts, _parts(self._inside(to, (*names, *self._kept(to, value)))))
        tile = self.tile
        names, value = self._element((fast0 + down, slow0 + LOCAL_COL))
        return (
            *starts,
            Comment("Transposed through a tile, so that reads and writes are both contiguous."),
            _parts((*names, Store(tile, (down, LOCAL_COL), value))),
            Barrier(),
            _parts(self._inside(to, self._kept(to, Load(tile, (LOCAL_COL, down))))),
        )

    def _spanned(self, slow0: Expr, at: tuple[Expr, Expr]) -> Body:
        """All rows of a block between the first and the last of the matrix by vectors, what lies around which is there
        as well; else by elements.
        """
        (rows, cols), word, first = self.source.shape, self._register(), (Const(0),)
        vector: Body = (
            Alloc(word),
            VectorCopy(word, first, self.source, at, SPANNING_VECTOR, self.pieces),
            VectorCopy(self.target, at, word, first, ALIGNED_VECTOR, self.pieces),
        )
        middle = all_of((Const(0) < slow0, slow0 + self.rows < rows, at[1] + self.pieces <= cols))
        edge = replace(_parts(self._inside(at, self._word(at)), self.rows), unroll=False)
        return (If(middle, (_parts(vector, self.rows),), (edge,)),)

    def _register(self) -> Buffer:
        return Buffer("word", self.target.dtype, Space.PRIVATE, Layout.packed(self.pieces))

    def _word(self, to: tuple[Expr, Expr]) -> Body:
        """Neighbours, read one by one, since lines may begin anywhere, and written together."""
        word = self._register()
        names, value = self._element((to[0], to[1] + _PIECE))
        elements = loop(_PIECE, self.pieces, (*names, Store(word, (_PIECE,), value)))
        return (Alloc(word), *elements, VectorCopy(self.target, to, word, (Const(0),), ALIGNED_VECTOR, self.pieces))

    def _inside(self, at: tuple[Expr, Expr], body: Body) -> Body:
        """What the last blocks have beyond whole tiles is not there."""
        slow, fast = self.named
        inside = at[1] < fast if self.pieces == 1 else at[1] + self.pieces <= fast
        if self.problem.in_terms is not None:
            inside = at[1] + SIDE < fast * 2
        return (If(both(at[0] < slow, inside), body),)

    def _element(self, at: tuple[Expr, Expr]) -> tuple[Body, Expr]:
        """An element of the matrix, or what its prologue makes of it, behind names; zero past its edges."""
        rows, cols = self.source.shape
        inside, element = both(at[0] < rows, at[1] < cols), Load(self.source, at)
        step = self.problem.prologue(self.name)
        names: Body = ()
        value: Expr = element
        if step is not None:
            names, value = prologue_applied(step, self.source, element, at, inside)
        dtype = self.target.dtype
        return names, select(inside, convert(value, dtype), number(0, dtype))

    def _kept(self, to: tuple[Expr, Expr], value: Expr) -> Body:
        """Stores an element; of one in two terms the head, and the rest a line further on, which is a block's side."""
        if self.problem.in_terms is None:
            return (Store(self.target, to, value),)
        element, head = Var("element", self.target.dtype), Var("head", self.target.dtype)
        rest = Call("tf32_rest", (element, head), element.dtype)
        return (
            Let(element, value),
            Let(head, Call("tf32_head", (element,), element.dtype)),
            Store(self.target, to, head),
            Store(self.target, (to[0], to[1] + SIDE), rest),
        )


def _parts(body: Body, rows: int = SIDE) -> For:
    return For(_PART, Const(0), Const(rows // ROWS), 1, body, unroll=True, exact=True)


# --- transposing ----------------------------------------------------------------------------------

A_ROWS, A_COLS, ROW0, COL0, LANE, INDEX = (Var(n) for n in ("rows", "cols", "row0", "col0", "lane", "i"))


def transpose_kernel(spec: GemmSpec, block: int, target: Target, name: str | None = None) -> Kernel:
    """The kernel that transposes a matrix of `rows` x `cols`. Raises: ScheduleError."""
    dtype = spec.dtype
    _validate_transpose(block, dtype, target, name)
    a = Buffer("a", dtype, Space.GLOBAL, Layout.pitched(A_ROWS, A_COLS, Var("lda")), writable=False)
    b = Buffer("b", dtype, Space.GLOBAL, Layout.pitched(A_COLS, A_ROWS, Var("ldb")))
    tile = Buffer("tile", dtype, Space.PRIVATE, Layout.packed(block))
    read = VectorCopy(tile, (INDEX,), a, (ROW0 + INDEX, COL0 + LANE), SCALAR, 1)
    write = Store(b, (COL0 + INDEX, ROW0 + LANE), Load(tile, (INDEX,)))
    body: Body = (
        Let(LANE, Call("lane_id", (), I32)),
        Let(ROW0, Call("group_id", (Const(1),), I32) * block),
        Let(COL0, Call("group_id", (Const(0),), I32) * block),
        *unless_in_sub_groups_of(block, target, b, (COL0 + I, ROW0 + call("local_id", 0)), (block, 1), dtype),
        Alloc(tile),
        Comment("Each lane reads a column of the block."),
        *loop(INDEX, block, (read,)),
        *_rounds(tile, block),
        Comment("Each lane now holds a row."),
        *loop(INDEX, block, (write,)),
    )
    grid = (ceil_div(A_ROWS, block), ceil_div(A_COLS, block))
    params = (A_ROWS, A_COLS, a, Var("lda"), b, Var("ldb"))
    return Kernel(name or f"transpose_sg{block}", params, body, (1, block), grid, block)


def _rounds(tile: Buffer, block: int) -> Body:
    """Exchange across one bit of the lane number after the other."""
    out: list[Stmt] = []
    bit = 1
    while bit < block:
        out.append(Comment(f"Exchange between lanes whose numbers differ by {bit}."))
        out += loop(INDEX, block // 2, _exchange(tile, bit))
        bit *= 2
    return tuple(out)


def _exchange(tile: Buffer, bit: int) -> Body:
    """Registers r and r + bit of a lane against those of lane ^ bit."""
    low: Expr = INDEX // bit * (2 * bit) + INDEX % bit
    lower, upper = Load(tile, (Var("low"),)), Load(tile, (Var("low") + bit,))
    is_low = Var("is_low", BOOL)
    given = Var("received", tile.dtype)
    received = Call("shuffle_xor", (select(is_low, upper, lower), Const(bit)), tile.dtype)
    return (
        Let(Var("low"), low),
        Let(is_low, compare("==", Bin("&", LANE, Const(bit)), 0)),
        Let(given, received),
        Store(tile, (Var("low"),), select(is_low, lower, given)),
        Store(tile, (Var("low") + bit,), select(is_low, given, upper)),
    )


def _validate_transpose(block: int, dtype: DType, target: Target, name: str | None) -> None:
    problems = []
    if name is not None and (problem := name_problem(name)) is not None:
        problems.append(problem)
    problems += lacking(dtype, target)
    if dtype.size < F32.size:
        problems.append(f"dtype {dtype}, but lanes exchange registers of 4 or 8 bytes: use float32 or float64")
    if dtype.real is not None:
        problems.append(f"dtype {dtype}, but lanes exchange real numbers: transpose it on the host, or use --layout")
    if "sub_groups" not in target.features:
        problems.append(f"target {target.name!r} has no sub-groups to shuffle in: use target intel or khr")
    elif target.sub_group_sizes and block not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        problems.append(f"sub-group size {block} is not one of target {target.name!r}: use one of {sizes}")
    elif block < 2 or block & (block - 1):
        problems.append(f"sub-group size {block} is not a power of two from 2 up: use 8, 16 or 32")
    if problems:
        raise ScheduleError(problems)
