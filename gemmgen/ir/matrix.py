"""Matrix instructions of a sub-group as data: which lane and register holds which element, and what they need."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.atoms import CopyAtom, Fragment, Spread
from gemmgen.ir.dtypes import BF16, F16, I8, I16, I32, DType, accumulator

#: Rows of A and of the sums, and words of B: those of the widest instruction.
ROWS = 8
#: As many lanes as an instruction has columns, on Xe-HPG and on Xe-HPC.
LANES = (8, 16)
#: Bytes of a word that elements are packed in.
WORD = 4


@dataclass(frozen=True, slots=True)
class MatrixAtom:
    """acc [8, lanes] += a [8, depth] @ b [depth, lanes], by a sub-group as one.

    `intel_sub_group_*_matrix_mad_k*` (cl_intel_subgroup_matrix_multiply_accumulate). Operands are vectors of eight
    integers that elements are packed in: neighbours along K share one.

    Attributes:
        dtype: of A's and B's elements.
        lanes: 8 or 16, as many as the device's smallest sub-group has.
    """

    dtype: DType
    lanes: int

    @property
    def depth(self) -> int:
        """How deep in K it goes: eight words of B."""
        return ROWS * self.packed

    @property
    def packed(self) -> int:
        """Elements of a word of B."""
        return WORD // self.dtype.size

    @property
    def sums(self) -> DType:
        """The type of the accumulators."""
        return accumulator(self.dtype)

    @property
    def a_word(self) -> DType:
        """What a lane holds of a row of A: all lanes together hold the whole depth."""
        return I32 if self.depth * self.dtype.size == WORD * self.lanes else I16

    @property
    def name(self) -> str:
        """The function of OpenCL C."""
        short = {F16: "f16", BF16: "bf16", I8: "i8"}[self.dtype]
        return f"intel_sub_group_{short}_{short}_matrix_mad_k{self.depth}"

    @property
    def needs(self) -> frozenset[str]:
        """Features of the target: what software stands in with where there is no such instruction."""
        return frozenset({"sub_groups", "intel_sub_groups", "block_read"})

    @property
    def a(self) -> Fragment:
        """A lane holds neighbours along K of each row."""
        own = self.depth // self.lanes
        return Fragment(Spread(ROWS), Spread(own, self.lanes, own))

    @property
    def b(self) -> Fragment:
        """A lane holds a column."""
        return Fragment(Spread(self.depth), Spread(1, self.lanes))

    @property
    def c(self) -> Fragment:
        """A lane holds a column."""
        return Fragment(Spread(ROWS), Spread(1, self.lanes))


#: Types that the instruction takes.
MATRIX_TYPES = (F16, BF16, I8)


def packed_read(lanes: int, word: DType) -> CopyAtom:
    """A read of eight words a lane, from memory that was laid out for it: whoever reads there has made room.

    Whole words lie lane after lane, eight by one vector load: a message then brings a whole operand, where block reads
    are split in two. Half words take a block read, whose lanes lie side by side: vectors would have to be taken apart.
    """
    if word == I32:
        return CopyAtom("packed_vectors", (0, 1), (0, ROWS), (ROWS,), "inside", frozenset({"sub_groups"}))
    return CopyAtom("packed_block", (0, lanes), (0, 1), (ROWS,), "inside", frozenset({"block_read"}))
