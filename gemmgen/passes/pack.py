"""The kernel before a product: A or B laid out anew, in the order that it is staged in and in whole tiles.

Lines of narrow elements begin anywhere, so that no vector may be read there; but within the matrix a vector lies in two
that may, whose words are shifted. Hence a group's block in the middle of the matrix is read so, and any other by
elements.

What lies past K becomes zero, and what lies past M and N may be read, so that the product needs no question about
either. A matrix that changes its order goes through local memory, so that both sides are read and written by lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmgen.ir.atoms import ALIGNED_VECTOR, SPANNING_VECTOR
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, all_of, both, ceil_div, convert, number, select
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.meetings import Barrier
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Move, Stmt, Store
from gemmgen.passes import prologue
from gemmgen.passes.loops import loop
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import BATCH, BATCH_COUNT, BLOCK, LOCAL_COL, LOCAL_ROW, call

#: A group moves blocks of this many rows and columns, so many rows at a time.
SIDE, ROWS = 32, 8
#: Rows of a block that is read by vectors: with more of them under way a work-item was no faster on an H200.
FEW = 16
#: Bytes that a work-item writes of each row at least, where it can, so that enough is under way; and at once, where it
#: can read as many.
WORD, VECTOR = 4, 16
_PART, _PIECE = Var("i"), Var("j")


def build_pack(plan: Plan) -> Kernel:
    """All matrices that are packed, by one launch: the blocks of the first, then those of the second."""
    jobs = tuple(_Job(plan, name) for name in plan.packed)
    first, last = jobs[0], jobs[-1]
    number = call("group_id", 0)
    blocks: list[Stmt] = [Let(BLOCK, number)]
    work = first.body()
    if len(jobs) > 1:
        count = Var(f"{first.name}_blocks")
        blocks = [Let(count, first.count(*first.named)), Let(BLOCK, select(number < count, number, number - count))]
        work = (If(number < count, work, last.body()),)
    kept = (job.target for job in jobs)
    sizes = dict.fromkeys(v for v in (plan.m, plan.n, plan.k) if any(v in job.sizes for job in jobs))
    return Kernel(
        name=f"{plan.name}_pack",
        params=(
            *(v for v in sizes if isinstance(v, Var)),
            *(p for job in jobs for p in plan.per_matrix(job.source)),
            *kept,
            *prologue.parameters(plan, plan.packed),
        ),
        body=(
            *plan.released(),
            *((Let(BATCH, call("group_id", 2)),) if plan.spec.batched else ()),
            *plan.wholes(),
            *blocks,
            Let(LOCAL_ROW, call("local_id", 1)),
            Let(LOCAL_COL, call("local_id", 0)),
            *plan.to_product(*(x for job in jobs for x in (job.source, job.target))),
            # OpenCL C has local memory at the top of a kernel only.
            *(Alloc(job.tile) for job in jobs if job.turned),
            *work,
        ),
        group=(ROWS, SIDE),
        grid=(Const(1), first.blocks + last.blocks if len(jobs) > 1 else first.blocks),
        facts=tuple(fact for job in jobs for fact in job.facts),
        promises=plan.promises(),
        layers=BATCH_COUNT if plan.spec.batched else None,
    )


@dataclass(frozen=True)
class _Job:
    """One matrix."""

    plan: Plan
    name: str

    @property
    def source(self) -> Buffer:
        return self.plan.given(self.name)

    @property
    def target(self) -> Buffer:
        return self.plan.packed_matrix(self.name, writable=True)

    @property
    def sizes(self) -> tuple[Expr, ...]:
        return self.source.shape

    @property
    def turned(self) -> bool:
        """Whether lines become columns."""
        return self.plan.is_turned(self.name)

    @property
    def named(self) -> tuple[Expr, Expr]:
        """The target's shape by the names that the kernel binds."""
        slow, fast = self.plan.packed_axes(self.name)
        return self.plan.named_whole(slow), self.plan.named_whole(fast)

    @property
    def facts(self) -> tuple[Expr, ...]:
        """That whole tiles have all that there is."""
        sizes = {"m": self.plan.m, "n": self.plan.n, "k": self.plan.k}
        return tuple(self.plan.whole(axis) - sizes[axis] for axis in self.plan.packed_axes(self.name))

    @property
    def blocks(self) -> Expr:
        """How many blocks it has, by the sizes alone."""
        slow, fast = self.plan.packed_axes(self.name)
        return self.count(self.plan.whole(slow), self.plan.whole(fast))

    @property
    def spans(self) -> bool:
        """Whether vectors are read wherever lines begin: of elements less than a word, moved as they are."""
        features, size, plain = self.plan.target.features, self.source.dtype.size, prologue.step(self.plan, self.name)
        alike = self.source.dtype == self.target.dtype and plain is None and not self.turned
        return alike and size < WORD and SPANNING_VECTOR.needs <= features

    @property
    def pieces(self) -> int:
        """Elements of a line that a work-item moves together."""
        if self.spans:
            return VECTOR // self.target.dtype.size
        vectors = "unaligned_vectors" not in self.plan.target.features
        return max(1, WORD // self.target.dtype.size) if vectors and not self.turned else 1

    def count(self, slow: Expr, fast: Expr) -> Expr:
        """Blocks of a matrix of such a shape."""
        return ceil_div(slow, self.rows) * ceil_div(fast, SIDE * self.pieces)

    @property
    def rows(self) -> int:
        """Of a block."""
        return FEW if self.spans else SIDE

    @property
    def tile(self) -> Buffer:
        """Where a block is turned."""
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
        to = at if self.plan.in_terms is None else (at[0], fast0 * 2 + LOCAL_COL)
        if self.pieces > 1:
            return (*starts, _parts(self._inside(to, self._word(to))))
        if not self.turned:
            names, value = self._element(at)
            return (*starts, _parts(self._inside(to, (*names, *self._kept(to, value)))))
        tile = self.tile
        names, value = self._element((fast0 + down, slow0 + LOCAL_COL))
        return (
            *starts,
            Comment("Read by lines, written by lines: turned in between."),
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
            Move(word, first, self.source, at, SPANNING_VECTOR, self.pieces),
            Move(self.target, at, word, first, ALIGNED_VECTOR, self.pieces),
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
        return (Alloc(word), *elements, Move(self.target, to, word, (Const(0),), ALIGNED_VECTOR, self.pieces))

    def _inside(self, at: tuple[Expr, Expr], body: Body) -> Body:
        """What the last blocks have beyond whole tiles is not there."""
        slow, fast = self.named
        inside = at[1] < fast if self.pieces == 1 else at[1] + self.pieces <= fast
        if self.plan.in_terms is not None:
            inside = at[1] + SIDE < fast * 2
        return (If(both(at[0] < slow, inside), body),)

    def _element(self, at: tuple[Expr, Expr]) -> tuple[Body, Expr]:
        """An element of the matrix, or what its prologue makes of it, behind names; zero past its edges."""
        rows, cols = self.source.shape
        inside, element = both(at[0] < rows, at[1] < cols), Load(self.source, at)
        step = prologue.step(self.plan, self.name)
        names: Body = ()
        value: Expr = element
        if step is not None:
            names, value = prologue.applied(step, self.source, element, at, inside)
        dtype = self.target.dtype
        return names, select(inside, convert(value, dtype), number(0, dtype))

    def _kept(self, to: tuple[Expr, Expr], value: Expr) -> Body:
        """Stores an element; of one in two terms the head, and the rest a line further on, which is a block's side."""
        if self.plan.in_terms is None:
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
