"""Thread-value (TV) layouts, which say which lane and register holds which element, and copy instructions as data.

An `AxisLayout` lays one axis of a tile over lanes and registers; a `ThreadValueLayout` has one for its rows and one
for its columns. That product form covers a work-item's register tile, a sub-group block read, and the
operands of matrix instructions (there the lane number is split in two, `lane / 4` and `lane % 4` say).
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Const, Expr, all_of, compare, is_const
from gemmgen.records import dataclass

#: Elements of a byte, of types that have several.
PAIR = 2
Edge = Literal["clamp", "guard", "undefined", "zero_fill", "inside", "bounded", "part"]


@dataclass(frozen=True, slots=True)
class AxisLayout:
    """One axis of a tile over `lanes` lanes with `values` registers each.

    Lane l's register v holds element `(v // vector) * lanes * vector + l * vector + v % vector`: a lane owns a vector
    of neighbours, then skips what the other lanes own. With `repeats` > 1 there is a level between: `inner_lanes`
    lanes next to each other own that many such rounds before the next lanes begin.

    Attributes:
        values: registers that a lane spends on this axis.
        lanes: how many lanes share the axis; 1 where each lane holds all of it.
        vector: neighbours that a lane owns at a time; `vector * repeats` divides `values`.
        lane: the number of the lane on this axis, as an expression.
        repeats, inner_lanes: rounds that `inner_lanes` lanes, which divide `lanes`, share among themselves; 1 where
            all lanes do.
    """

    values: int
    lanes: int = 1
    vector: int = 1
    lane: Expr = field(default_factory=lambda: Const(0))
    repeats: int = 1
    inner_lanes: int = 1

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return self.values * self.lanes

    @property
    def start(self) -> Expr:
        """The first element that a lane owns."""
        if self.repeats > 1:
            return (
                self.lane // self.inner_lanes * (self.inner_lanes * self.repeats * self.vector)
                + self.lane % self.inner_lanes * self.vector
            )
        return self.lane * self.vector if self.lanes > 1 else Const(0)

    def step(self, value: Expr) -> Expr:
        """How far register `value` lies from the first element that the lane owns."""
        if self.repeats > 1:
            unit = self.repeats * self.vector
            among = value if self.values == unit else value % unit
            near = among // self.vector * (self.inner_lanes * self.vector) + value % self.vector
            return near if self.values == unit else value // unit * (self.lanes * unit) + near
        if self.lanes == 1 or self.vector == self.values:
            return value
        if self.vector == 1:
            return value * self.lanes
        return value // self.vector * (self.lanes * self.vector) + value % self.vector

    def chunk_step(self, chunk: Expr, width: int) -> Expr:
        """`step` of register `chunk * width`, where `width` divides `vector`."""
        if self.lanes == 1 or self.vector == self.values:
            return chunk * width
        if self.vector == width and self.repeats == 1:
            return chunk * (self.lanes * self.vector)
        return self.step(chunk * width)

    def element(self, lane: int, value: int) -> int:
        """The element that register `value` of lane `lane` holds."""
        unit = self.repeats * self.vector
        first = lane // self.inner_lanes * (self.inner_lanes * unit) + lane % self.inner_lanes * self.vector
        turn = value // self.vector % self.repeats * self.inner_lanes * self.vector
        return value // unit * self.lanes * unit + first + turn + value % self.vector

    def owner(self, element: int) -> tuple[int, int]:
        """The (lane, value) that holds `element`: the inverse of `element`."""
        unit = self.repeats * self.vector
        block, rest = divmod(element, self.lanes * unit)
        group, rest = divmod(rest, self.inner_lanes * unit)
        turn, rest = divmod(rest, self.inner_lanes * self.vector)
        lane, offset = divmod(rest, self.vector)
        return group * self.inner_lanes + lane, block * unit + turn * self.vector + offset


@dataclass(frozen=True, slots=True)
class ThreadValueLayout:
    """A tile held in registers: the layouts of its rows and of its columns over lanes.

    Attributes:
        rows, cols: the two axes.
        transposed: whether the register array is indexed [column][row] (rows contiguous).
    """

    rows: AxisLayout
    cols: AxisLayout
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
class LdMatrix:
    """`ldmatrix`: a warp loads two or four 8x8 matrices at once, of which each lane gives the address of one line.

    Attributes:
        transposed: whether lanes get parts of columns instead of lines (`.trans`).
        rows_first: of four, whether the second is eight rows further on, or the next one along K.
    """

    transposed: bool
    rows_first: bool


@dataclass(frozen=True, slots=True)
class Block2D:
    """A 2D block read (cl_intel_subgroup_2d_block_io): blocks of `rows` x `lanes * neighbours` elements, `count` of
    them side by side. A lane gets the rows of the first block one after the other, then those of the next.

    Attributes:
        rows, count: rows of a block, and blocks.
        lanes: of the sub-group.
        neighbours: elements of a row that a lane has.
        transformed: whether neighbours of a column share a 32-bit word of the lane (VNNI), as `dpas` takes B. Where
            elements lie in the lane's registers does not depend on it.
        transposed: whether each lane gets `rows` neighbours of a line of its own instead, in 32-bit words.
        lines: rows that the lanes stand on side by side, where a row of a block has fewer elements than there are
            lanes.
        col_unit: elements that the number of the column counts in which it begins: of a transposed block those of a
            word.
        by_payload: whether where it begins stands in an address payload, which statements fill and advance.
    """

    rows: int
    count: int
    lanes: int
    neighbours: int = 1
    transformed: bool = False
    transposed: bool = False
    lines: int = 1
    col_unit: int = 1
    by_payload: bool = False

    @property
    def elements(self) -> int:
        """Elements that a lane gets."""
        return self.rows * self.count * self.neighbours // self.lines

    @property
    def across(self) -> int:
        """Columns of one block."""
        return self.lanes // self.lines * self.neighbours

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of all blocks together."""
        if self.transposed:
            return self.lanes, self.rows
        return self.rows, self.across * self.count

    def lane_offset(self, lane: int) -> tuple[int, int]:
        """How far, in rows and columns, a lane's first element lies from that of the first lane."""
        if self.transposed:
            return lane, 0
        line, place = divmod(lane, self.lanes // self.lines)
        return line, place * self.neighbours

    def offset(self, element: int) -> tuple[int, int]:
        """How far, in rows and columns, a lane's element lies from its first one."""
        if self.transposed:
            return 0, element
        of_block = self.rows * self.neighbours // self.lines
        row, neighbour = divmod(element % of_block, self.neighbours)
        return row * self.lines, element // of_block * self.across + neighbour


@dataclass(frozen=True, slots=True)
class CopyAtom:
    """An instruction that moves `width` elements between memory and registers.

    Element e of lane l lies at `lane_step * l + element_step * e` from the given coordinates, in
    storage order (slow, fast).

    Attributes:
        name: the key by which backends and the interpreter know it.
        widths: how many elements one instruction can move.
        edge: what happens outside the matrix. `clamp`: single elements, the coordinates can be clamped.
            `guard`: must not be issued there. `undefined`: allowed, with values to be discarded. `zero_fill`: the
            instruction is told how many elements are inside and makes the others zero. `inside`: it never gets there.
            `bounded`: it is told how large the matrix is and makes zeros of what lies past that. `part`: it is told
            how many elements are inside, and reads or writes these alone; what it doesn't read is zero.
        needs: features of the target.
        element_step: from one element of a lane to its next.
        lane_step: from one lane of the sub-group to the next; (0, 0) if lanes address on their own.
        aligned: whether addresses must be multiples of what one instruction moves.
        is_async: whether it only begins the copy, which `AsyncGroup` statements wait for.
        adds: whether it adds atomically to what memory holds.
        bytes: how many bytes of memory one instruction can move; empty where only elements count.
        matrices: how a warp loads by it as one; None where each work-item loads for itself, or all lanes side by side.
        begins: bytes that the first lane's element must stand on a multiple of, however many are moved; 0 for its own.
        block: of a 2D block read, what it reads; None for any other.
        fragment: of a load of a fragment that a sub-group holds as one, which lane has which element in the simulator;
            None for any other.
        around: whether it reads the aligned vectors that the elements lie in, so that as many before them and behind
            them, but for one, must be there as well.
    """

    name: str
    widths: tuple[int, ...]
    edge: Edge
    needs: frozenset[str] = frozenset()
    element_step: tuple[int, int] = (0, 1)
    lane_step: tuple[int, int] = (0, 0)
    aligned: bool = False
    is_async: bool = False
    adds: bool = False
    bytes: tuple[int, ...] = ()
    matrices: LdMatrix | None = None
    around: bool = False
    begins: int = 0
    block: Block2D | None = None
    fragment: ThreadValueLayout | None = None

    def moves(self, width: int, size: int) -> bool:
        """Whether one instruction can move `width` elements of `size` bytes."""
        return width in self.widths and (not self.bytes or width * size in self.bytes)

    def moves_elements(self, width: int, dtype: DType) -> bool:
        """Whether one instruction can move `width` elements of a type; a pair of them is a byte, and moves as one."""
        if dtype.pairs:
            return width <= PAIR or self.moves(width // PAIR, dtype.size)
        return self.moves(width, dtype.size)

    def widest(self, width: int, size: int) -> int:
        """The most elements, up to `width`, that one instruction moves; 1 where that must be another's."""
        return max((w for w in self.widths if w <= width and self.moves(w, size)), default=1)

    def unit(self, width: int, size: int) -> int:
        """What the place of the first of `width` elements of `size` bytes must be a multiple of, in elements."""
        return width if self.aligned else max(1, self.begins // size)

    def offset(self, element: int) -> tuple[int, int]:
        """How far, in storage order, an element of a lane lies from the lane's first one."""
        if self.block is not None:
            return self.block.offset(element)
        return self.element_step[0] * element, self.element_step[1] * element

    def footprint(self, width: int, sub_group: int) -> tuple[int, int]:
        """Extent (slow, fast) of what one instruction touches, over all lanes that share it."""
        (er, ec), (lr, lc) = self.element_step, self.lane_step
        return ((width - 1) * er + (sub_group - 1) * lr + 1, (width - 1) * ec + (sub_group - 1) * lc + 1)


def aligned(atom: CopyAtom, width: int, matrix: Buffer) -> Expr | None:
    """The condition that all lines of a matrix, of all of its batch, and of tiles within lines, begin where the atom's
    vectors may stand; None where any may.
    """
    unit = atom.unit(width, matrix.dtype.size)
    if unit == 1:
        return None
    steps = [x for x in (matrix.layout.strides[-2], matrix.batch_stride) if x is not None]
    # Of pairs, strides are counted in bytes.
    parts = [(in_pairs(step), unit // PAIR) if matrix.dtype.pairs else (step, unit) for step in steps]
    parts += [] if matrix.apart is None else [(matrix.apart, unit)]
    condition = all_of(compare("==", step % of, 0) for step, of in parts)
    return None if is_const(condition, 1) else condition


def in_pairs(elements: Expr) -> Expr:
    """Bytes of so many elements that lie in pairs."""
    return elements // PAIR


#: One element by an ordinary load or store.
SCALAR = CopyAtom("scalar", (1,), "clamp")
#: Both elements that share a byte, by an ordinary load of it; or those of several bytes, which registers hold.
BYTE_OF_PAIR = CopyAtom("byte_of_pair", (PAIR, 8, 16, 32), "clamp")
#: `width` neighbours of the fast axis by one vector load or store of a work-item.
VECTOR = CopyAtom("vector", (2, 4, 8, 16), "guard", frozenset({"unaligned_vectors"}))
#: The same where the hardware's vectors stand on multiples of their size, of up to 16 bytes: `float2` and `float4`.
ALIGNED_VECTOR = CopyAtom("aligned_vector", (2, 4, 8, 16), "guard", aligned=True, bytes=(2, 4, 8, 16))
#: Those of `width` neighbours that are inside, by as wide vectors as their place allows.
PART_OF_VECTOR = CopyAtom("part_of_vector", (2, 4, 8, 16), "part", bytes=(2, 4, 8, 16))
#: 16 bytes that begin anywhere, by the two aligned vectors that they lie in and a shift of their words.
SPANNING_VECTOR = CopyAtom("spanning_vector", (8, 16), "guard", frozenset({"funnel_shifts"}), bytes=(16,), around=True)
#: From global to local memory without a register on the way: `cp.async` (PTX ISA, "Data Movement and Conversion
#: Instructions: cp.async"), of 4, 8 or 16 bytes.
ASYNC_COPY = CopyAtom(
    "async_copy",
    (1, 2, 4, 8, 16),
    "zero_fill",
    frozenset({"async_copy"}),
    aligned=True,
    is_async=True,
    bytes=(4, 8, 16),
)


#: Adds an element to global memory: `atomicAdd`, `sycl::atomic_ref`. Sums come out in no fixed order.
ATOMIC_ADD = CopyAtom("atomic_add", (1,), "guard", frozenset({"atomic_add"}), adds=True)
#: The same with `width` neighbours at a time: `red.global.add` (PTX ISA, "Parallel Synchronization and Communication
#: Instructions: red").
ATOMIC_ADD_VECTOR = CopyAtom("atomic_add", (1, 2, 4), "guard", frozenset({"atomic_vectors"}), aligned=True, adds=True)


def block_read(sub_group: int) -> CopyAtom:
    """`intel_sub_group_block_read` from a buffer: the sub-group reads `width` neighbouring segments of a
    row, one element a lane (cl_intel_subgroups, "Sub-group block reads"), which begin on a multiple of four bytes.
    """
    needs = frozenset({"block_read"})
    return CopyAtom("block_read", (1, 2, 4, 8), "guard", needs, (0, sub_group), (0, 1), begins=4)


#: `intel_sub_group_block_read` from an image: `width` rows of one segment, one element a lane.
IMAGE_BLOCK_READ = CopyAtom(
    "image_block_read", (1, 2, 4, 8), "undefined", frozenset({"block_read", "image_block_read"}), (1, 0), (0, 1)
)


# --- 2D block reads -------------------------------------------------------------------------------

#: Bytes that 2D block reads, writes and prefetches ask of a matrix: what its address and its pitch are multiples of,
#: how long a line is at least and what that and the first column are multiples of, and how long lines and how many of
#: them there are at most (cl_intel_subgroup_2d_block_io 1.1.0, "Restrictions"). Lines are no longer than the pitch.
BLOCK_2D_START, BLOCK_2D_PITCH, BLOCK_2D_LINE, BLOCK_2D_WORD, BLOCK_2D_MOST = 64, 16, 64, 4, 1 << 24
#: Bytes that a tensor map's matrix begins on multiples of.
MAP_BYTES = 16
#: Bytes of a line of a block at most, its rows, and those of one that is written.
BLOCK_2D_BYTES, BLOCK_2D_ROWS, BLOCK_2D_WRITTEN_ROWS = 64, 32, 8


def block_2d_read(size: int, rows: int, count: int, transformed: bool = False, lines: int = 1) -> CopyAtom:
    """A 2D block read of a sub-group of 16, of elements of `size` bytes: of A in 16-bit words, of B transformed.

    Args:
        rows, count: rows of a block, and blocks side by side.
        lines: rows that lanes stand on side by side.
    """
    neighbours = 1 if transformed else max(1, 2 // size)
    return _block_2d(Block2D(rows, count, 16, neighbours, transformed, lines=lines), (0, neighbours))


def block_2d_transposed_read(size: int, depth: int) -> CopyAtom:
    """One that brings `depth` elements, of `size` bytes, of a line to each lane of a sub-group of 16: of a column-major
    B, a column's. Its columns are words.
    """
    return _block_2d(Block2D(depth, 1, 16, transposed=True, col_unit=BLOCK_2D_WORD // size), (1, 0))


def block_2d_by_elements(atom: CopyAtom) -> CopyAtom:
    """The same by loads of each lane's own elements, which asks nothing of the matrix."""
    return replace(atom, name="block_2d_elements", aligned=False)


def block_2d_write(size: int, rows: int) -> CopyAtom:
    """A 2D block write of a sub-group of 16, each of whose lanes has `rows` elements of a column."""
    return replace(_block_2d(Block2D(rows, 1, 16), (0, 1)), name="block_2d_write", bytes=(rows * size,))


def by_payload(atom: CopyAtom) -> CopyAtom:
    """The same 2D block read or prefetch by an address payload (Intel's compiler, `__builtin_IB_subgroup_*_ap_*`)."""
    if atom.block is None:
        raise LoweringError(f"{atom.name} reads no 2D block")
    return replace(atom, block=replace(atom.block, by_payload=True))


def _block_2d(block: Block2D, lane_step: tuple[int, int]) -> CopyAtom:
    needs, step = frozenset({"sub_groups", "block_read"}), block.offset(1)
    return CopyAtom("block_2d", (block.elements,), "bounded", needs, step, lane_step, aligned=True, block=block)


def block_2d_conditions(matrix: Buffer) -> tuple[Expr, ...]:
    """What 2D block reads ask of a matrix, but for where it begins; of a batch each of its matrices must. Messages have
    24 bits for the pitch as well, by which lines are short enough.
    """
    size, (rows, cols) = matrix.dtype.size, matrix.shape[-2:]
    most, pitch = BLOCK_2D_MOST // size, matrix.layout.strides[-2]
    starts = [] if matrix.batch_stride is None else [compare("==", matrix.batch_stride % (BLOCK_2D_START // size), 0)]
    lines = [compare("==", pitch % (BLOCK_2D_PITCH // size), 0), compare("<=", pitch, most)]
    return (*lines, compare("<=", Const(BLOCK_2D_LINE // size), cols), compare("<=", rows, most * size), *starts)


# --- fragments of joint_matrix --------------------------------------------------------------------


def fragment_load(layout: ThreadValueLayout, by_elements: bool = False) -> CopyAtom:
    """`joint_matrix_load_checked` (sycl_ext_intel_matrix): a fragment of a matrix, told how large that is. It is a 2D
    block read, and asks as much of the matrix.

    Args:
        layout: which lane has which element, as lines lie in memory.
        by_elements: whether it is filled element by element instead, which asks nothing of the matrix.
    """
    name, elements = f"joint_matrix{'_elements' * by_elements}", layout.rows.values * layout.cols.values
    needs = frozenset({"joint_matrix"})
    return CopyAtom(name, (elements,), "bounded", needs, (0, 0), aligned=not by_elements, fragment=layout)
