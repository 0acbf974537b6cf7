"""How operands reach matrix instructions, and sums leave them: loads and stores of 8 x 16 bytes, and packed reads."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.copy_instructions import CopyAtom, LdMatrix
from gemmgen.ir.dtypes import I32, DType
from gemmgen.ir.instructions import DPAS_ROWS, WGMMA_COLS, WORD_BYTES
from gemmgen.ir.swizzle import line_bytes

#: Bytes of elements that `ldmatrix` can turn, and whose tiles `wgmma` takes with K as their slow axis.
TRANSPOSED_BYTES = 2
#: Rows of the sums that a warp has, and puts down as the lines of a TMA store.
TMA_TILE_ROWS = 16
#: What a TMA store writes of a line at least, past the end of the matrix if that ends in between.
PART_BYTES = 16
_MMA = frozenset({"mma"})


def packed_read(lanes: int, word: DType) -> CopyAtom:
    """A read of eight words a lane, from memory that was laid out for it: whoever reads there has made room.

    Whole words lie lane after lane, eight by one vector load: a message then brings a whole operand, where block reads
    are split in two. Half words take a block read, whose lanes lie side by side: vectors would have to be taken apart.
    """
    if word == I32:
        needs = frozenset({"sub_groups"})
        return CopyAtom("packed_vectors", (DPAS_ROWS,), "inside", needs, lane_step=(0, DPAS_ROWS))
    return CopyAtom("packed_block", (DPAS_ROWS,), "inside", frozenset({"block_read"}), (0, lanes), (0, 1))


def ldmatrix_atom(operand: str, transposed: bool, size: int) -> CopyAtom | None:
    """What fills a warp's operand from local memory, of elements of `size` bytes: two or four matrices of 8 x 16 bytes
    (PTX ISA, "Warp-level matrix load instruction: ldmatrix"), in the order in which `mma.sync` has their registers.
    Lane 8 q + i says where line i of matrix q begins; each lane gets four bytes of a line of each or, transposed, two
    elements of a column. None where the instruction can't: it turns elements of two bytes alone, and splits those of
    eight.
    """
    if size > WORD_BYTES or (transposed and size != TRANSPOSED_BYTES):
        return None
    name = f"ldmatrix_{operand}{'_transposed' if transposed else ''}"
    matrices = LdMatrix(transposed, operand == "a")
    return CopyAtom(name, (2, 4, 8, 16), "inside", _MMA, aligned=True, bytes=(8, 16), matrices=matrices)


#: Four matrices of 8 x 16 bytes, transposed as if two bytes were one element. Lane 8 q + i says where line i of matrix
#: q begins; a lane gets two neighbours of each of two lines of a matrix.
LDMATRIX_BYTES = CopyAtom(
    "ldmatrix_bytes", (16,), "inside", _MMA, aligned=True, bytes=(16,), matrices=LdMatrix(True, False)
)
_STORES = frozenset({"tensor_maps"})
#: Bytes of elements that can be put down in lines that swizzle: by matrices, and by pairs.
STAGED_BYTES = (2, 4)
#: Two or four matrices of 8 x 16 bytes from a warp's registers to local memory (PTX ISA, "Warp-level matrix store
#: instruction: stmatrix"), in the order in which sums lie: two bands of eight rows, then those of the next eight
#: columns. Lane 8 q + i says where line i of matrix q begins.
STMATRIX = CopyAtom("stmatrix", (4, 8), "inside", _STORES, aligned=True, bytes=(8, 16), matrices=LdMatrix(False, True))
#: The same, transposed (`.trans`): a line of a matrix is a column of the sums. A lane's two neighbours go to two lines.
STMATRIX_TRANS = replace(STMATRIX, name="stmatrix_transposed", matrices=LdMatrix(True, True))
#: A work-item's own pair, of elements that no such matrix has; and transposed, one below the other.
SWIZZLED_PAIR = CopyAtom("swizzled", (2,), "inside", _STORES, aligned=True, bytes=(8,))
SWIZZLED_PAIR_TRANS = replace(SWIZZLED_PAIR, name="swizzled_transposed", element_step=(1, 0), aligned=False)


def staged_store(dtype: DType, transposed: bool) -> tuple[CopyAtom, int]:
    """What puts sums down as elements of a type in lines that swizzle, and how many of a lane's at a time.

    Args:
        transposed: whether those lines are columns of the sums.

    Raises: LoweringError where nothing does.
    """
    for atoms, width in (((STMATRIX, STMATRIX_TRANS), 8), ((SWIZZLED_PAIR, SWIZZLED_PAIR_TRANS), 2)):
        if dtype.size == atoms[transposed].bytes[-1] // width:
            return atoms[transposed], width
    raise LoweringError(f"nothing puts down {dtype}")


def stored_tma_tile(cols: int, dtype: DType, transposed: bool) -> tuple[int, int]:
    """Lines, and elements of a line, of the boxes by which a warp stores its sixteen rows of so many columns: lines of
    up to 128 bytes; transposed, as many columns as such a line has, or at least half as many that are the same in each
    box. Else the last box has fewer.
    """
    most = line_bytes(cols * dtype.size) // dtype.size
    if not transposed:
        return TMA_TILE_ROWS, min(most, cols)
    alike = (x for x in range(most, most // 2 - 1, -WGMMA_COLS) if cols % x == 0)
    return min(cols, next(alike, most)), TMA_TILE_ROWS
