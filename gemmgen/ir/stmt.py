"""Statements: what a kernel does.

`FragmentLoad`, `Fill`, `Mma` and `EpilogueStore` speak of whole tiles, so that a GEMM is about a dozen statements when
first built; `passes.expand` turns them into the others, which speak of single instructions.
"""

from __future__ import annotations

from typing import Literal

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import CopyAtom, ThreadValueLayout
from gemmgen.ir.dtypes import DType, accumulator
from gemmgen.ir.elementwise import Step
from gemmgen.ir.expr import Bin, Const, Expr, Load, Node, Var, convert
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.synchronization import Mbarrier, Pipe, PipeOp, SyncStmt
from gemmgen.records import dataclass


@dataclass(frozen=True, slots=True)
class Tile(Node):
    """A rectangle of a buffer.

    Attributes:
        buffer: what it is part of.
        origin: storage coordinates of its first element; leading coordinates (a stage) stay fixed.
        rows, cols: its logical extent.
        transposed: whether the buffer stores columns as its slow axis.
        pipe: the pipe whose slots are the buffer's first coordinate, if any.
    """

    CHILDREN = ("origin",)

    buffer: Buffer
    origin: tuple[Expr, ...]
    rows: int
    cols: int
    transposed: bool = False
    pipe: Pipe | None = None

    def at(self, row: Expr, col: Expr) -> tuple[Expr, ...]:
        """Storage coordinates of the logical element (row, col)."""
        slow, fast = (col, row) if self.transposed else (row, col)
        return (*self.origin[:-2], self.origin[-2] + slow, self.origin[-1] + fast)


@dataclass(frozen=True, slots=True)
class Registers(Node):
    """A tile in registers: the private array and how the tile lies over lanes.

    Attributes:
        buffer: the private array; its last two coordinates are the fragment's, one before them is a slot.
        fragment: which lane and value holds which element.
        slot: index of the slot, where the array is the ring of a pipe.
        pipe: that pipe.
        opaque: the layout of each of the fragments that the tile is made of, where only `FragmentApply` reaches their
            elements; the array's coordinates are a fragment's row and column, and an element. None elsewhere.
        first_col: the first column of the array that the fragment has, where others are another fragment's.
    """

    CHILDREN = ("slot",)

    buffer: Buffer
    fragment: ThreadValueLayout
    slot: Expr | None = None
    pipe: Pipe | None = None
    opaque: ThreadValueLayout | None = None
    first_col: int = 0

    def at(self, row_value: Expr, col_value: Expr) -> tuple[Expr, ...]:
        """Index into the private array."""
        place = self.fragment.place(row_value, col_value + self.first_col if self.first_col else col_value)
        return place if self.slot is None else (self.slot, *place)


# --- on tiles -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fill(Node):
    """Set every element of a register tile."""

    CHILDREN = ("dst", "value")

    dst: Registers
    value: Const


@dataclass(frozen=True, slots=True)
class FragmentLoad(Node):
    """Load a tile of memory into registers; elements past the matrix become zero along K.

    Attributes:
        width: elements that one instruction of `atom` moves.
        ahead: whether it may read what nothing was written to, because nobody uses it then.
        prologue: what each element is made into.
        of: where `src`, a tile of local memory, comes from, which its prologue may ask for.
    """

    CHILDREN = ("dst", "src", "of")

    dst: Registers
    src: Tile
    atom: CopyAtom
    width: int = 1
    ahead: bool = False
    prologue: Step | None = None
    of: Tile | None = None


@dataclass(frozen=True, slots=True)
class CooperativeCopy(Node):
    """Copy a tile of global memory to local memory, by all work-items of the group together.

    Attributes:
        atom, width: the instruction that a work-item uses along the source's fast axis, and what it moves.
        part: `all` of the way, or, where a pipe goes through registers, only `load` into or `store`
            from the array `via`.
        via: the private array, [vectors per work-item][width].
        unroll_factor: vectors of a work-item that the compiler is asked to unroll; 0 for all.
        prologue: what each element is made into, on the half of the way that ends in local memory.
        mbarrier: counts the bytes of TMA loads.
    """

    CHILDREN = ("dst", "src", "mbarrier")
    WRITES = ("dst",)

    dst: Tile
    src: Tile
    atom: CopyAtom
    width: int = 1
    part: Literal["all", "load", "store"] = "all"
    via: Buffer | None = None
    unroll_factor: int = 0
    prologue: Step | None = None
    mbarrier: Mbarrier | None = None


@dataclass(frozen=True, slots=True)
class Mma(Node):
    """acc += a[:, a_k : a_k + depth] @ b[b_k : b_k + depth, :].

    Attributes:
        conj: whether the elements of a, and those of b, are conjugated before they are multiplied.
    """

    CHILDREN = ("acc", "a", "b", "a_k", "b_k")

    acc: Registers
    a: Registers
    b: Registers
    a_k: Expr
    b_k: Expr
    depth: int
    atom: Instruction
    conj: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class TileMma(Node):
    """acc += a @ b, both TMA tiles in local memory, or a in registers, by warpgroups that share out the rows of a.

    Attributes:
        line: which of the lines along K, one after the other, that a step is deep; None for all of them. Those of a
            step are multiplied in their order: the first makes the views of the tiles that the others use.
        anew: whether acc = a @ b, whatever acc was.
    """

    CHILDREN = ("acc", "a", "b")

    acc: Registers
    a: Tile | Registers
    b: Tile
    atom: Instruction
    line: int | None = None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Reduction(Node):
    """dst = the sum of `planes` partial sums, in the order of the source's first coordinate.

    Attributes:
        width: elements that one instruction of `atom` moves.
    """

    CHILDREN = ("dst", "src")

    dst: Registers
    src: Tile
    planes: int
    atom: CopyAtom
    width: int = 1


@dataclass(frozen=True, slots=True)
class EpilogueStore(Node):
    """c = alpha * acc + beta * c, for the elements inside the matrix; beta = 0 never reads c.

    Attributes:
        steps: what each element goes through before it is stored; they may read c, whatever beta is.
        last: where the sum is whole, so that it goes through the steps; None for always.
        atom, width: the instruction that reads and writes neighbours of c, where they are inside; one that adds leaves
            beta to whoever ran before. Of one that is told how many are inside all values are computed in the
            accumulators before the first is stored: reads of c wait for no store, which compilers leave in order.
        first: the first column that is the work-item's to write, where the tile begins before it; None for all.
        ends_inside: whether vectors that would end past the last column hold the columns before it instead.
        via: the slots of local memory, [slot][line][element], from which TMA stores c; None where work-items
            store. The instruction then only reads c, and the values to store are computed in the accumulators.
    """

    CHILDREN = ("dst", "acc", "alpha", "beta", "first", "last")
    WRITES = ("dst",)

    dst: Tile
    acc: Registers
    alpha: Expr
    beta: Expr
    atom: CopyAtom
    width: int = 1
    steps: tuple[Step, ...] = ()
    first: Expr | None = None
    via: Buffer | None = None
    last: Expr | None = None
    ends_inside: bool = False


# --- on instructions ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Alloc(Node):
    """Declare a local or private buffer, visible to the end of the block.

    Attributes:
        reuses: whether it lies where the local memory declared before it lies, which nobody may use any more.
    """

    BINDS = ("buffer",)

    buffer: Buffer
    reuses: bool = False


@dataclass(frozen=True, slots=True)
class Let(Node):
    """Bind a name to a value, to the end of the block."""

    CHILDREN = ("value",)
    BINDS = ("var",)

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store(Node):
    """Set one element."""

    CHILDREN = ("index", "value")
    PLACES = (("buffer", "index"),)
    WRITES = ("buffer",)

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class VectorCopy(Node):
    """Copy `width` elements by one instruction, between memory and registers or between memories.

    Both indexes name the first element; in registers and local memory the elements are neighbours.

    Attributes:
        valid: how many of the elements are inside the matrix, for an atom that is told; None for all.
        byte_place: where the first element lies in `src`, where that has been worked out before: how many bytes into a
            buffer; the line of an image and how many bytes into it.
        from_element: the element of the buffer that `byte_place` counts from; None for the first.
        ahead: whether it may read what nothing was written to, because nobody uses it then.
        extent: rows and columns beyond which an instruction reads zeros that is told how large the matrix is.
        zero_point: a whole number that is subtracted from all elements, whose type changes on the way; None for none.
    """

    CHILDREN = ("dst_index", "src_index", "valid", "byte_place", "from_element", "extent", "zero_point")
    PLACES = (("dst", "dst_index"), ("src", "src_index"))
    WRITES = ("dst",)

    dst: Buffer
    dst_index: tuple[Expr, ...]
    src: Buffer
    src_index: tuple[Expr, ...]
    atom: CopyAtom
    width: int
    valid: Expr | None = None
    byte_place: tuple[Expr, ...] | None = None
    from_element: Expr | None = None
    ahead: bool = False
    extent: tuple[Expr, ...] = ()
    zero_point: Expr | None = None


def made_of(move: VectorCopy, raw: Expr, dtype: DType | None = None) -> Expr:
    """What a move makes of an element, in the type that it moves it to, or in `dtype`."""
    dtype = dtype or move.dst.dtype
    if move.zero_point is None:
        return convert(raw, dtype)
    sums = accumulator(dtype)
    return convert(Bin("-", convert(raw, sums), convert(move.zero_point, sums)), dtype)


@dataclass(frozen=True, slots=True)
class TmaCopy(Node):
    """Begin a TMA load of a tile (`Buffer.tma_tile`) to local memory, or a TMA store, by one work-item. Elements
    outside the matrix become zero, or are not stored. Both indexes name the first element; `mbarrier` counts the bytes
    of a load, None for a store, which `StoreGroup` waits for.
    """

    CHILDREN = ("dst_index", "src_index", "mbarrier")
    PLACES = (("dst", "dst_index"), ("src", "src_index"))
    WRITES = ("dst",)

    dst: Buffer
    dst_index: tuple[Expr, ...]
    src: Buffer
    src_index: tuple[Expr, ...]
    mbarrier: Mbarrier | None = None


def in_bytes(move: VectorCopy) -> tuple[Expr, ...]:
    """Where a load begins: its byte in a buffer; the line and the byte in it of an image."""
    size = move.src.dtype.size
    if move.src.space is Space.IMAGE:
        y, x = move.src_index
        return y, x * size
    return (move.src.layout.offset(move.src_index) * size,)


@dataclass(frozen=True, slots=True)
class Multiply(Node):
    """acc += a * b, by one instruction of the sub-group; each index names the first register, of eight neighbours or of
    the instruction's fragment. Of a warpgroup's, a and b are views of tiles.

    Attributes:
        accumulate: where this is 0, acc = a * b, whatever acc was; None for nowhere.
    """

    CHILDREN = ("acc_index", "a_index", "b_index", "accumulate")
    PLACES = (("acc", "acc_index"), ("a", "a_index"), ("b", "b_index"))
    WRITES = ("acc",)

    acc: Buffer
    acc_index: tuple[Expr, ...]
    a: Buffer
    a_index: tuple[Expr, ...]
    b: Buffer
    b_index: tuple[Expr, ...]
    atom: Instruction
    accumulate: Expr | None = None


@dataclass(frozen=True, slots=True)
class PointerInit(Node):
    """Set a pointer to an element of local memory (a view) or of a matrix; coordinates count from there.

    Attributes:
        which: of an array of pointers, the one that is set; None for a view, which is declared here.
    """

    CHILDREN = ("index", "which")
    PLACES = (("buffer", "index"),)
    BINDS = ("view",)

    view: Buffer
    buffer: Buffer
    index: tuple[Expr, ...]
    which: Expr | None = None

    @property
    def binds(self) -> tuple[str, ...]:
        return self.BINDS if self.which is None else ()  # an array of pointers is declared already


@dataclass(frozen=True, slots=True)
class PointerIncrement(Node):
    """Increment a view's pointer by a number of elements; or a matrix', for the rest of the kernel."""

    CHILDREN = ("by",)

    view: Buffer
    by: Expr


@dataclass(frozen=True, slots=True)
class Prefetch(Node):
    """Prefetch the cache line of an element, or all that a 2D block read would load.

    Attributes:
        writes: whether it will be written, too.
        atom: that read, which may lie outside of the matrix; None for a line.
        extent: of the matrix, rows and columns that such a read is told.
    """

    CHILDREN = ("index", "extent")
    PLACES = (("buffer", "index"),)

    buffer: Buffer
    index: tuple[Expr, ...]
    writes: bool = False
    atom: CopyAtom | None = None
    extent: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class BlockPayload(Node):
    """Fill an address payload of 2D block reads: of which matrix, how large that is, and where a block of it begins.

    Attributes:
        payload: a private array, whose last two coordinates are the row and the column of the block.
        which: leading coordinates of the array.
        matrix: what is read.
        index: row and column, in storage order.
        atom: the read or prefetch that takes the payload.
        extent: of the matrix, rows and columns.
    """

    CHILDREN = ("which", "index", "extent")
    PLACES = (("matrix", "index"),)

    payload: Buffer
    which: tuple[Expr, ...]
    matrix: Buffer
    index: tuple[Expr, ...]
    atom: CopyAtom
    extent: tuple[Expr, ...]

    def place(self) -> tuple[Expr, ...]:
        """Row and column that the payload holds, as the index of what takes it."""
        return payload_place(self.payload, self.which)


@dataclass(frozen=True, slots=True)
class PayloadAdvance(Node):
    """Move the block that an address payload speaks of.

    Attributes:
        payload, which: as in `BlockPayload`.
        axis: 0 for rows, 1 for columns, in storage order.
        by: how many.
        atom: as in `BlockPayload`.
    """

    CHILDREN = ("which",)

    payload: Buffer
    which: tuple[Expr, ...]
    axis: int
    by: int
    atom: CopyAtom


def payload_place(payload: Buffer, which: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Row and column that an address payload holds."""
    return tuple(Load(payload, (*which, Const(axis))) for axis in range(2))


@dataclass(frozen=True, slots=True)
class For(Node):
    """for (var = start; var < stop; var += step) body.

    Attributes:
        unroll: whether the emitted source asks the compiler to unroll it, so that register arrays keep
            constant indices.
        exact: whether `stop - start` is known to be a multiple of `step`.
        unroll_factor: rounds to unroll of a loop that is not unrolled as a whole; 0 leaves it to the compiler.
        vector: whether its rounds, which must not depend on one another, are the elements of vectors: each statement
            is one instruction for all of them.
        copied_until: of a loop with a pipe, where what producers copy ends, if that may be before `stop`: past it they
            fill in zeros.
    """

    CHILDREN = ("start", "stop", "copied_until")
    BODIES = ("body",)
    BINDS = ("var",)

    var: Var
    start: Expr
    stop: Expr
    step: int
    body: tuple[Stmt, ...]
    unroll: bool = False
    exact: bool = False
    unroll_factor: int = 0
    vector: bool = False
    copied_until: Expr | None = None

    @property
    def copies_end(self) -> Expr:
        """Up to where producers copy."""
        return self.stop if self.copied_until is None else self.copied_until


@dataclass(frozen=True, slots=True)
class If(Node):
    """Run `then` where the condition holds, else `orelse`.

    Attributes:
        roles: whether it specialises warps: some warps of the group run `then`, the others `orelse`, at the same time,
            and they wait for each other by mbarriers alone.
    """

    CHILDREN = ("condition",)
    BODIES = ("then", "orelse")

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()
    roles: bool = False


@dataclass(frozen=True, slots=True)
class Block(Node):
    """A scope of its own: what is declared in it ends with it.

    Attributes:
        apart: parts of a group that go through it each by itself, numbered by this from 0 on: in it they may wait
            for each other. None where all go together.
        parts: how many those are.
    """

    CHILDREN = ("apart",)
    BODIES = ("body",)

    body: tuple[Stmt, ...]
    apart: Expr | None = None
    parts: int = 1


@dataclass(frozen=True, slots=True)
class FragmentApply(Node):
    """Run `body` for each element of a fragment that a sub-group holds as one, in no order (`joint_matrix_apply`).

    In it `row` and `col` name where the element stands in the fragment, and `element` which one it is of those that its
    lane has: the last coordinate of the fragment, which nothing else may be used for.

    Attributes:
        fragment: registers, whose last coordinate counts a lane's elements of one fragment.
        index: which fragment: all coordinates but the last.
        layout: which lane has which element in the simulator; on a device that is its own affair.
    """

    CHILDREN = ("index",)
    BODIES = ("body",)
    BINDS = ("row", "col", "element")

    fragment: Buffer
    index: tuple[Expr, ...]
    layout: ThreadValueLayout
    row: Var
    col: Var
    element: Var
    body: tuple[Stmt, ...]

    @property
    def place(self) -> tuple[Expr, ...]:
        """The element's place among the registers."""
        return (*self.index, self.element)

    @property
    def fill(self) -> Expr | None:
        """The value, if all that is done is that each element gets the same one (`joint_matrix_fill`)."""
        match self.body:
            case (Store(buffer, index, Const() as value),) if (buffer, index) == (self.fragment, self.place):
                return value
        return None


@dataclass(frozen=True, slots=True)
class Return(Node):
    """End the kernel, for all work-items of the group."""


@dataclass(frozen=True, slots=True)
class Comment(Node):
    """A line for the reader of the emitted source."""

    text: str


TileStmt = Fill | FragmentLoad | CooperativeCopy | Mma | TileMma | Reduction | EpilogueStore | PipeOp
InstructionStmt = VectorCopy | TmaCopy | Multiply
#: Where a pointer or an address payload is from here on, or what will be needed.
PlaceStmt = PointerInit | PointerIncrement | Prefetch | BlockPayload | PayloadAdvance
Control = For | If | Block | FragmentApply | Return
Stmt = TileStmt | InstructionStmt | Alloc | Let | Store | Control | SyncStmt | PlaceStmt | Comment
Body = tuple[Stmt, ...]
