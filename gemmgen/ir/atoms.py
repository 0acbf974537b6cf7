"""Instructions as data: which lane and register holds which element.

A `Spread` lays one axis of a tile over lanes and registers; a `Fragment` is a spread of its rows and one
of its columns. That product form covers a work-item's register tile, a sub-group block read, and the
operands of matrix instructions (there the lane number is split in two, `lane / 4` and `lane % 4` say).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Const, Expr, all_of, compare, is_const

Edge = Literal["clamp", "guard", "undefined", "zero_fill", "inside"]


@dataclass(frozen=True, slots=True)
class Spread:
    """One axis of a tile over `lanes` lanes with `values` registers each.

    Lane l's register v holds element `(v // run) * lanes * run + l * run + v % run`: a lane owns `run`
    neighbours, then skips what the other lanes own. With `turns` > 1 there is a level between: `near` lanes next to
    each other own that many such rounds before the next lanes begin.

    Attributes:
        values: registers that a lane spends on this axis.
        lanes: how many lanes share the axis; 1 where each lane holds all of it.
        run: neighbours that a lane owns at a time; `run * turns` divides `values`.
        lane: the number of the lane on this axis, as an expression.
        turns, near: rounds that `near` lanes, which divide `lanes`, share among themselves; 1 where all lanes do.
    """

    values: int
    lanes: int = 1
    run: int = 1
    lane: Expr = field(default_factory=lambda: Const(0))
    turns: int = 1
    near: int = 1

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return self.values * self.lanes

    @property
    def start(self) -> Expr:
        """The first element that a lane owns."""
        if self.turns > 1:
            return self.lane // self.near * (self.near * self.turns * self.run) + self.lane % self.near * self.run
        return self.lane * self.run if self.lanes > 1 else Const(0)

    def step(self, value: Expr) -> Expr:
        """How far register `value` lies from the first element that the lane owns."""
        if self.turns > 1:
            unit = self.turns * self.run
            among = value if self.values == unit else value % unit
            near = among // self.run * (self.near * self.run) + value % self.run
            return near if self.values == unit else value // unit * (self.lanes * unit) + near
        if self.lanes == 1 or self.run == self.values:
            return value
        if self.run == 1:
            return value * self.lanes
        return value // self.run * (self.lanes * self.run) + value % self.run

    def chunk_step(self, chunk: Expr, width: int) -> Expr:
        """`step` of register `chunk * width`, where `width` divides `run`."""
        if self.lanes == 1 or self.run == self.values:
            return chunk * width
        if self.run == width and self.turns == 1:
            return chunk * (self.lanes * self.run)
        return self.step(chunk * width)

    def element(self, lane: int, value: int) -> int:
        """The element that register `value` of lane `lane` holds."""
        unit = self.turns * self.run
        first = lane // self.near * (self.near * unit) + lane % self.near * self.run
        turn = value // self.run % self.turns * self.near * self.run
        return value // unit * self.lanes * unit + first + turn + value % self.run

    def owner(self, element: int) -> tuple[int, int]:
        """The (lane, value) that holds `element`: the inverse of `element`."""
        unit = self.turns * self.run
        block, rest = divmod(element, self.lanes * unit)
        group, rest = divmod(rest, self.near * unit)
        turn, rest = divmod(rest, self.near * self.run)
        lane, offset = divmod(rest, self.run)
        return group * self.near + lane, block * unit + turn * self.run + offset


@dataclass(frozen=True, slots=True)
class Fragment:
    """A tile held in registers: rows and columns, each spread over lanes.

    Attributes:
        rows, cols: the two axes.
        transposed: whether the register array is indexed [column][row] (rows contiguous).
    """

    rows: Spread
    cols: Spread
    transposed: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole tile, over all lanes."""
        return self.rows.extent, self.cols.extent

    def place(self, row_value: Expr, col_value: Expr) -> tuple[Expr, Expr]:
        """The index into the register array."""
        return (col_value, row_value) if self.transposed else (row_value, col_value)

    def table(self) -> dict[tuple[int, int, int, int], tuple[int, int]]:
        """(row lane, column lane, row value, column value) -> (row, column), in full."""
        return {
            (lr, lc, vr, vc): (self.rows.element(lr, vr), self.cols.element(lc, vc))
            for lr in range(self.rows.lanes)
            for lc in range(self.cols.lanes)
            for vr in range(self.rows.values)
            for vc in range(self.cols.values)
        }


@dataclass(frozen=True, slots=True)
class Matrices:
    """A load of small matrices, two or four at once, whose lines the lanes of a warp name for each other.

    Attributes:
        turned: whether lanes get parts of columns instead of lines.
        bands_first: of four, whether the second is the next band's (eight rows further on) or the next one along K.
    """

    turned: bool
    bands_first: bool


@dataclass(frozen=True, slots=True)
class CopyAtom:
    """An instruction that moves `width` elements between memory and registers.

    Element e of lane l lies at `lane_step * l + element_step * e` from the given coordinates, in
    storage order (slow, fast).

    Attributes:
        name: the key by which backends and the interpreter know it.
        element_step: from one element of a lane to its next.
        lane_step: from one lane of the sub-group to the next; (0, 0) if lanes address on their own.
        widths: how many elements one instruction can move.
        edge: what happens outside the matrix. `clamp`: single elements, the coordinates can be clamped.
            `guard`: must not be issued there. `undefined`: allowed, with values to be discarded. `zero_fill`: the
            instruction is told how many elements are inside and makes the others zero. `inside`: it never gets there.
        needs: features of the target.
        aligned: whether addresses must be multiples of what one instruction moves.
        is_async: whether it only begins the copy, which `AsyncGroup` statements wait for.
        adds: whether it adds to what is there, in one step that no other work-item's addition can come between.
        bytes: how many bytes of memory one instruction can move; empty where only elements count.
        matrices: how a warp loads by it as one; None where each work-item loads for itself, or all lanes side by side.
        around: whether it reads the aligned vectors that the elements lie in, so that as many before them and behind
            them, but for one, must be there as well.
    """

    name: str
    element_step: tuple[int, int]
    lane_step: tuple[int, int]
    widths: tuple[int, ...]
    edge: Edge
    needs: frozenset[str] = frozenset()
    aligned: bool = False
    is_async: bool = False
    adds: bool = False
    bytes: tuple[int, ...] = ()
    matrices: Matrices | None = None
    around: bool = False

    def moves(self, width: int, size: int) -> bool:
        """Whether one instruction can move `width` elements of `size` bytes."""
        return width in self.widths and (not self.bytes or width * size in self.bytes)

    def widest(self, width: int, size: int) -> int:
        """The most elements, up to `width`, that one instruction moves; 1 where that must be another's."""
        return max((w for w in self.widths if w <= width and self.moves(w, size)), default=1)

    def footprint(self, width: int, sub_group: int) -> tuple[int, int]:
        """Extent (slow, fast) of what one instruction touches, over all lanes that share it."""
        (er, ec), (lr, lc) = self.element_step, self.lane_step
        return ((width - 1) * er + (sub_group - 1) * lr + 1, (width - 1) * ec + (sub_group - 1) * lc + 1)


def aligned(atom: CopyAtom, width: int, matrix: Buffer) -> Expr | None:
    """The condition that all lines of a matrix, and of all of its batch, begin where the atom's vectors may stand; None
    where any may.
    """
    if not atom.aligned or width == 1:
        return None
    steps = (matrix.layout.strides[-2], *(() if matrix.step is None else (matrix.step,)))
    condition = all_of(compare("==", step % width, 0) for step in steps)
    return None if is_const(condition, 1) else condition


#: One element by an ordinary load or store.
SCALAR = CopyAtom("scalar", (0, 1), (0, 0), (1,), "clamp")
#: `width` neighbours of the fast axis by one vector load or store of a work-item.
VECTOR = CopyAtom("vector", (0, 1), (0, 0), (2, 4, 8, 16), "guard", frozenset({"unaligned_vectors"}))
#: The same where the hardware's vectors stand on multiples of their size, of up to 16 bytes: `float2` and `float4`.
ALIGNED_VECTOR = CopyAtom("aligned_vector", (0, 1), (0, 0), (2, 4, 8, 16), "guard", aligned=True, bytes=(2, 4, 8, 16))
#: 16 bytes that begin anywhere, by the two aligned vectors that they lie in and a shift of their words.
SPANNING_VECTOR = CopyAtom(
    "spanning_vector", (0, 1), (0, 0), (8, 16), "guard", frozenset({"funnel_shifts"}), bytes=(16,), around=True
)
#: From global to local memory without a register on the way: `cp.async` (PTX ISA, "Data Movement and Conversion
#: Instructions: cp.async"), of 4, 8 or 16 bytes.
ASYNC_COPY = CopyAtom(
    "async_copy",
    (0, 1),
    (0, 0),
    (1, 2, 4, 8, 16),
    "zero_fill",
    frozenset({"async_copy"}),
    aligned=True,
    is_async=True,
    bytes=(4, 8, 16),
)


#: Adds an element to global memory: `atomicAdd`, `sycl::atomic_ref`. Sums come out in no fixed order.
ATOMIC_ADD = CopyAtom("atomic_add", (0, 1), (0, 0), (1,), "guard", frozenset({"atomic_add"}), adds=True)
#: The same with `width` neighbours at a time: `red.global.add` (PTX ISA, "Parallel Synchronization and Communication
#: Instructions: red").
ATOMIC_ADD_VECTOR = CopyAtom(
    "atomic_add", (0, 1), (0, 0), (1, 2, 4), "guard", frozenset({"atomic_vectors"}), aligned=True, adds=True
)


def block_read(sub_group: int) -> CopyAtom:
    """`intel_sub_group_block_read` from a buffer: the sub-group reads `width` neighbouring segments of a
    row, one element a lane (cl_intel_subgroups, "Sub-group block reads").
    """
    needs = frozenset({"block_read"})
    return CopyAtom("block_read", (0, sub_group), (0, 1), (1, 2, 4, 8), "guard", needs)


#: `intel_sub_group_block_read` from an image: `width` rows of one segment, one element a lane.
IMAGE_BLOCK_READ = CopyAtom(
    "image_block_read", (1, 0), (0, 1), (1, 2, 4, 8), "undefined", frozenset({"block_read", "image_block_read"})
)


@dataclass(frozen=True, slots=True)
class MmaAtom:
    """An instruction (or a pattern of them) that adds a product to accumulators.

    Attributes:
        name: the key by which passes know how to expand it.
        order: nesting of the loops over rows `i`, depth `k` and columns `j`, outermost first.
        snake: whether odd rows go through their columns backwards.
        needs: features of the target.
    """

    name: str
    order: tuple[Literal["i", "j", "k"], ...]
    needs: frozenset[str] = frozenset()
    snake: bool = False


#: One multiply-add a lane, all operands in its own registers.
FMA = MmaAtom("fma", ("k", "i", "j"))
#: The same, odd rows backwards: at each turn an operand stays where the last instruction had it.
FMA_SNAKE = MmaAtom("fma", ("k", "i", "j"), snake=True)
#: A multiply-add whose A comes from another lane's register; `k` inside `i`, so that a value of A is
#: fetched just before its use and registers stay free.
BROADCAST_FMA = MmaAtom("broadcast_fma", ("i", "k", "j"), frozenset({"sub_groups"}))
#: One multiply-add a vector of a work-item's own: an element of A by a vector of B, all columns of which it has.
VECTOR_FMA = MmaAtom("vector_fma", ("k", "i", "j"), frozenset({"vectors"}))
#: The same of neighbours along K: part of a row of A by part of a column of B, each element to a sum of its own.
VECTOR_FMA_ALONG_K = MmaAtom("vector_fma_along_k", ("i", "j"), frozenset({"vectors"}))
