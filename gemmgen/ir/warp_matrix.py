"""Matrix instructions of a warp as data: `mma.sync`, and `ldmatrix`, which fills its operands from local memory.

Which lane and register holds which element is a product of spreads for all of them, lane / 4 on one axis and lane % 4
on the other (PTX ISA, "Warp Level Matrix Instructions", which `link` points into).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmgen.ir.atoms import CopyAtom, Fragment, Matrices, Spread
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, F64, FLOAT8, I8, DType, accumulator
from gemmgen.ir.expr import Var
from gemmgen.ir.warpgroup_matrix import FLOAT8_KEPT, warpgroup_atom

LANE = Var("lane")
#: Lanes of a warp: eight lines of four.
LANES, LINES, ACROSS = 32, 8, 4
#: Bytes of a line of the 8 x 16 bytes that `ldmatrix` calls a matrix; an operand is two of them deep.
LINE_BYTES = 16
#: Bytes that `ldmatrix` gives a lane of each matrix.
WORD_BYTES = 4
#: Bytes of elements that `ldmatrix` can turn.
TURNED_BYTES = 2
#: Registers that an accumulator of 16 x 8 takes along each axis.
HIGH = WIDE = 2
NEEDS = frozenset({"mma"})
_PTX = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#"


@dataclass(frozen=True, slots=True)
class WarpAtom:
    """acc [16, 8] += a [16, depth] @ b [depth, 8], by a warp as one: `mma.sync.aligned.m16n8k*.row.col`.

    Attributes:
        name: how schedules ask for it.
        dtype: of A's and B's elements as they lie in memory.
        short: what PTX calls the type that it multiplies.
        section: of the PTX ISA, with pictures of the fragments.
        digits: of the significand, what it multiplies by; fewer than `dtype` has where elements are rounded before.
        lines: of 16 bytes, how deep in K it goes.
        products: how many of it make one product. With 3 an element is the sum of two, head and rest; the product of
            both rests is left out.
        kept: bits of what it adds up, counted from the largest; 0 where they are those of the sums.
        cuts: whether elements are left to it that have more digits: it drops the last of them.
    """

    name: str
    dtype: DType
    short: str
    section: str
    digits: int
    lines: int = 2
    products: int = 1
    kept: int = 0
    cuts: bool = False

    @property
    def link(self) -> str:
        """Where it is defined."""
        return _PTX + self.section

    @property
    def line(self) -> int:
        """Elements of a line."""
        return LINE_BYTES // self.dtype.size

    @property
    def depth(self) -> int:
        """How deep in K it goes."""
        return self.lines * self.line

    @property
    def sums(self) -> DType:
        """The type of the accumulators."""
        return accumulator(self.dtype)

    @property
    def lanes(self) -> int:
        """Of the sub-group that runs it."""
        return LANES

    @property
    def needs(self) -> frozenset[str]:
        """Features of the target."""
        return NEEDS | {"fp8"} if self.dtype in FLOAT8 else NEEDS

    @property
    def rounds(self) -> bool:
        """Whether elements must be rounded before, or taken apart."""
        return self.digits < self.dtype.digits and not self.cuts

    @property
    def of_heads(self) -> WarpAtom:
        """The instruction alone, which takes elements by their heads."""
        return replace(self, products=1, cuts=True)

    @property
    def error(self) -> float:
        """How far a product of two elements may be off before it is summed, as a part of it."""
        if self.products > 1:
            # The rests' product, each less than 2^(1 - digits) of its element; less than that by what is cut of them.
            return 2 * (2 * 0.5**self.digits) ** 2
        return (1 + 0.5**self.digits) ** 2 - 1 if self.rounds else 0.0

    @property
    def k(self) -> Spread:
        """K, along which a lane of four holds words of neighbours."""
        return Spread(self.depth // ACROSS, ACROSS, max(1, self.line // ACROSS), LANE % ACROSS)

    @property
    def a(self) -> Fragment:
        """Rows by K."""
        return Fragment(Spread(HIGH, LINES, 1, LANE // ACROSS), self.k)

    @property
    def b(self) -> Fragment:
        """K by columns, each column's registers together."""
        return Fragment(self.k, Spread(1, LINES, 1, LANE // ACROSS), transposed=True)

    @property
    def c(self) -> Fragment:
        """Rows by columns."""
        return Fragment(Spread(HIGH, LINES, 1, LANE // ACROSS), Spread(WIDE, ACROSS, WIDE, LANE % ACROSS))


_DEEP, _FLAT = "warp-level-matrix-fragment-mma-16816-float", "warp-level-matrix-fragment-mma-1688"
#: By name and the type of A and B.
WARP_ATOMS: tuple[WarpAtom, ...] = (
    WarpAtom("mma", BF16, "bf16", _DEEP, BF16.digits),
    WarpAtom("mma", F16, "f16", _DEEP, F16.digits),
    WarpAtom("mma_s8", I8, "s8", "warp-level-matrix-fragment-mma-16832", I8.digits),
    WarpAtom("mma_f8", F8_E4M3, "e4m3", "warp-level-matrix-fragment-mma-16832", F8_E4M3.digits, kept=FLOAT8_KEPT),
    WarpAtom("mma_f8", F8_E5M2, "e5m2", "warp-level-matrix-fragment-mma-16832", F8_E5M2.digits, kept=FLOAT8_KEPT),
    WarpAtom("mma_f64", F64, "f64", "warp-level-matrix-fragment-mma-1688", F64.digits, lines=4),
    WarpAtom("mma_tf32", F32, "tf32", _FLAT, 11),
    WarpAtom("mma_3xtf32", F32, "tf32", _FLAT, 11, products=3),
)


def warp_atom(name: str, dtype: DType) -> WarpAtom | None:
    """The instruction that a schedule's atom means for a type; None if there is none."""
    return next((atom for atom in WARP_ATOMS if (atom.name, atom.dtype) == (name, dtype)), None)


def line_atom(operand: str, turned: bool, size: int) -> CopyAtom | None:
    """What fills a warp's operand from local memory, of elements of `size` bytes: two or four matrices of 8 x 16 bytes
    (PTX ISA, "Warp-level matrix load instruction: ldmatrix"), in the order in which `mma.sync` has their registers.
    Lane 8 q + i says where line i of matrix q begins; each lane gets four bytes of a line of each or, turned, two
    elements of a column. None where the instruction can't: it turns elements of two bytes alone, and splits those of
    eight.
    """
    if size > WORD_BYTES or (turned and size != TURNED_BYTES):
        return None
    name = f"ldmatrix_{operand}{'_turned' if turned else ''}"
    matrices = Matrices(turned, operand == "a")
    return CopyAtom(
        name, (0, 1), (0, 0), (2, 4, 8, 16), "inside", NEEDS, aligned=True, bytes=(8, 16), matrices=matrices
    )


def product_error(name: str, dtype: DType) -> float:
    """How far a schedule's atom may be off in a product of two elements, beside what sums lose: nothing, in most."""
    atom = warp_atom(name, dtype) or warpgroup_atom(name, dtype)
    return 0.0 if atom is None else atom.error


def cut_sums(name: str, dtype: DType) -> tuple[int, int] | None:
    """How many bits of what it adds up a schedule's atom keeps, and how many products it adds at a time; None where it
    keeps what its sums hold.
    """
    atom = warp_atom(name, dtype) or warpgroup_atom(name, dtype)
    return None if atom is None or not atom.kept else (atom.kept, atom.depth)
