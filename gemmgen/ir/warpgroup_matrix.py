"""Matrix instructions of a warpgroup as data: `wgmma`, which takes A and B from local memory, as box copies put them.

Four warps that follow each other multiply as one, and go on while the instructions are under way (PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions", which `link` points into).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmgen.errors import LoweringError
from gemmgen.ir.atoms import CopyAtom, Fragment, Matrices, Spread
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, I8, DType, accumulator
from gemmgen.ir.expr import Var
from gemmgen.ir.swizzle import line_bytes

LANE = Var("lane")
#: Lanes of a warpgroup, and rows of the sums that they have.
LANES, ROWS = 128, 64
#: Bytes of a line of a tile: its parts of 16 bytes change places so that neither copies nor reads meet in a bank.
LINE_BYTES = 128
#: Bytes of a register.
WORD_BYTES = 4
#: Bytes of a line that one instruction multiplies by.
DEPTH_BYTES = 32
#: Lines that swizzle together.
LINES = 8
#: Columns of the sums come by eights, up to these.
WIDE, MOST_COLS = 8, 256
#: Bytes of elements whose tiles may have K as their slow axis.
TURNED_BYTES = 2
#: Of products of 8-bit floats and the sum that they are added to, Hopper keeps about so many bits, counted from the
#: largest of them (DeepSeek-V3 Technical Report, section 3.5.2); float32 holds 24.
FLOAT8_KEPT = 14
#: Rows of the sums that a warp has, and puts down as the lines of a box.
BOX_ROWS = 16
#: What the store of a box writes of a line at least, past the end of the matrix if that ends in between.
PART_BYTES = 16
NEEDS = frozenset({"wgmma"})
_PTX = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#"


@dataclass(frozen=True, slots=True)
class WarpgroupAtom:
    """acc [64, cols] += a [64, depth] @ b [depth, cols], by a warpgroup as one: `wgmma.mma_async.sync.aligned.m64n*k*`.

    Attributes:
        name: how schedules ask for it.
        dtype: of A's and B's elements.
        short: what PTX calls the type that it multiplies.
        digits: of the significand, what it multiplies by; fewer than `dtype` has where it drops the last bits.
        cols: columns of B and of the sums.
        a_turned, b_turned: whether K is the slow axis of the operand's tile.
        held: whether A is in registers, in fragments of its own, and not in local memory.
        paired: whether rows of A and of the sums are numbered in another order, by which the two of a lane, for the
            instruction eight apart, are neighbours: so `ldmatrix` brings those of a byte.
        kept: bits of what it adds up, counted from the largest; 0 where they are those of the sums.
        products: how many of it make one product. With 3 an element is the sum of two, head and rest, whose tiles lie
            side by side; the product of both rests is left out.
    """

    name: str
    dtype: DType
    short: str
    digits: int
    cols: int = WIDE
    a_turned: bool = False
    b_turned: bool = False
    held: bool = False
    paired: bool = False
    kept: int = 0
    products: int = 1

    @property
    def terms(self) -> int:
        """Numbers that an element is the sum of."""
        return 1 if self.products == 1 else 2

    @property
    def link(self) -> str:
        """Where it is defined."""
        return _PTX + "asynchronous-warpgroup-level-matrix-instructions-wgmma-mma"

    @property
    def fragments(self) -> str:
        """Where it is said which lane has what of the sums, and of A in registers."""
        return f"{_PTX}asynchronous-warpgroup-level-matrix-register-fragment-wgmma-64n{self.depth}"

    @property
    def line(self) -> int:
        """Elements of a line of a tile."""
        return LINE_BYTES // self.dtype.size

    @property
    def depth(self) -> int:
        """How deep in K it goes."""
        return DEPTH_BYTES // self.dtype.size

    @property
    def sums(self) -> DType:
        """The type of the accumulators."""
        return accumulator(self.dtype)

    @property
    def lanes(self) -> int:
        """Of each of the four sub-groups that run it."""
        return LANES // 4

    @property
    def needs(self) -> frozenset[str]:
        """Features of the target."""
        return NEEDS

    @property
    def error(self) -> float:
        """How far a product of two elements may be off before it is summed, as a part of it: the bits dropped."""
        if self.products > 1:
            # The rests' product, each less than 2^(1 - digits) of its element; less than that by what is cut of them.
            return 2 * (2 * 0.5**self.digits) ** 2
        return (1 + 2 * 0.5**self.digits) ** 2 - 1 if self.digits < self.dtype.digits else 0.0

    @property
    def rows(self) -> Spread:
        """Each warp has sixteen of them, a lane two, eight apart or side by side."""
        if self.paired:
            return Spread(2, LANES // 4, 2, LANE // 4)
        return Spread(2, LANES // 4, 1, LANE // 4, turns=2, near=8)

    @property
    def a(self) -> Fragment:
        """Rows by K, where A is in registers: the rows as those of the sums, along K four bytes of neighbours."""
        return Fragment(self.rows, Spread(self.depth // 4, 4, WORD_BYTES // self.dtype.size, LANE % 4))

    @property
    def c(self) -> Fragment:
        """Rows by columns."""
        return Fragment(self.rows, Spread(self.cols // 4, 4, 2, LANE % 4))


#: By name and the type of A and B.
WARPGROUP_ATOMS: tuple[WarpgroupAtom, ...] = (
    WarpgroupAtom("wgmma", BF16, "bf16", BF16.digits),
    WarpgroupAtom("wgmma", F16, "f16", F16.digits),
    WarpgroupAtom("wgmma_s8", I8, "s8", I8.digits),
    WarpgroupAtom("wgmma_f8", F8_E4M3, "e4m3", F8_E4M3.digits, kept=FLOAT8_KEPT),
    WarpgroupAtom("wgmma_f8", F8_E5M2, "e5m2", F8_E5M2.digits, kept=FLOAT8_KEPT),
    WarpgroupAtom("wgmma_tf32", F32, "tf32", 11),
    WarpgroupAtom("wgmma_3xtf32", F32, "tf32", 11, products=3),
)


def warpgroup_atom(name: str, dtype: DType) -> WarpgroupAtom | None:
    """The instruction that a schedule's atom means for a type, in its narrowest form; None if there is none."""
    return next((atom for atom in WARPGROUP_ATOMS if (atom.name, atom.dtype) == (name, dtype)), None)


#: Four matrices of 8 x 16 bytes, turned as if two bytes were one element: lane 8 q + i says where line i of matrix q
#: begins; a lane gets two neighbours of each of two lines of a matrix.
TURN_BYTES = CopyAtom(
    "ldmatrix_bytes",
    (0, 1),
    (0, 0),
    (16,),
    "inside",
    frozenset({"mma"}),
    aligned=True,
    bytes=(16,),
    matrices=Matrices(True, False),
)
_STORES = frozenset({"tensor_maps"})
#: Bytes of elements that can be put down in lines that swizzle: by matrices, and by pairs.
PUT_BYTES = (2, 4)
#: Four matrices of 8 x 16 bytes from a warp's registers to local memory (PTX ISA, "Warp-level matrix store instruction:
#: stmatrix"), in the order in which sums lie: two bands of eight rows, then those of the next eight columns. Lane
#: 8 q + i says where line i of matrix q begins.
PUT_MATRICES = CopyAtom(
    "stmatrix", (0, 1), (0, 0), (8,), "inside", _STORES, aligned=True, bytes=(16,), matrices=Matrices(False, True)
)
#: The same, turned (`.trans`): a line of a matrix is a column of the sums, and a lane's two neighbours go to two lines.
PUT_TURNED = replace(PUT_MATRICES, name="stmatrix_turned", matrices=Matrices(True, True))
#: A work-item's own pair, of elements that no such matrix has; and turned, one below the other.
PUT_PAIR = CopyAtom("swizzled", (0, 1), (0, 0), (2,), "inside", _STORES, aligned=True, bytes=(8,))
PUT_PAIR_TURNED = replace(PUT_PAIR, name="swizzled_turned", element_step=(1, 0), aligned=False)


def put_atom(dtype: DType, turned: bool) -> tuple[CopyAtom, int]:
    """What puts sums down as elements of a type in lines that swizzle, and how many of a lane's at a time.

    Args:
        turned: whether those lines are columns of the sums.

    Raises: LoweringError where nothing does.
    """
    for atoms, width in (((PUT_MATRICES, PUT_TURNED), 8), ((PUT_PAIR, PUT_PAIR_TURNED), 2)):
        if dtype.size == atoms[turned].bytes[0] // width:
            return atoms[turned], width
    raise LoweringError(f"nothing puts down {dtype}")


def put_columns(dtype: DType) -> int:
    """How many columns of the sums a warp puts down at a time: two lots of eight by matrices, else one."""
    return 2 * WIDE if dtype.size == PUT_BYTES[0] else WIDE


def stored_box(cols: int, dtype: DType, turned: bool) -> tuple[int, int]:
    """Lines, and elements of a line, of the boxes by which a warp stores its sixteen rows of so many columns: lines of
    up to 128 bytes; turned, as many columns as such a line has, or fewer that are the same in each box.
    """
    most = line_bytes(cols * dtype.size) // dtype.size
    if not turned:
        return BOX_ROWS, min(most, cols)
    unit = put_columns(dtype)
    return max((x for x in range(unit, most + 1, unit) if cols % x == 0), default=unit), BOX_ROWS
