"""Mainloops of warps, and of wavefronts, that multiply by matrix instructions."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Chosen, Flat, WarpAtom, word
from gemmgen.schedule.mainloop import (
    ELEMENT_BYTES,
    Mainloop,
    Method,
    OperandKeys,
    across_field,
    both,
    prefetch_field,
    register_stages_field,
    slices_field,
    stages_field,
)
from gemmgen.schedule.tiling import Tiling

#: Neighbours along K of a row, or column, that an instruction takes of a lane.
LANE_DEPTH = 4


def neighbours(width_a: int, width_b: int) -> int:
    """Those that a lane of `DirectMma` has at a time: what it loads at once, and no fewer than an instruction takes."""
    return max(width_a, width_b, LANE_DEPTH)


@dataclass(frozen=True, slots=True)
class WarpMma(Mainloop):
    """Warps multiply by `mma.sync` the tiles that asynchronous copies load into shared memory.

    Attributes:
        atom: `mma` of 16-bit floats, `mma_s8` of int8, `mma_f8` of 8-bit floats, `mma_f64` of float64, `mma_tf32` of
            float32 rounded to TF32, with 10 bits after the point, `mma_3xtf32` by three of those for each, of elements
            taken apart in two, with sums as good as float32's.
        prefetch: whether elements are loaded one by one into registers instead, the next tile before the current tile's
            arithmetic, and stored to shared memory after it: for lines that begin anywhere, of which asynchronous
            copies, which are of 4 bytes and more, bring nothing smaller.
        stages, sliced_k, register_stages, across_tiles: as in `SharedMemory`.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    operands: ClassVar[OperandKeys] = both("pad", "prepacked")

    atom: WarpAtom = word("mma", "what multiplies: a warp by matrix instructions", "dpas")
    stages: int = stages_field(1, least=1)
    sliced_k: int = slices_field()
    prefetch: bool = prefetch_field()
    register_stages: int = register_stages_field()
    across_tiles: bool = across_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Lanes as the instruction has them, and copies of 16 bytes."""
        width = next((16 // size for name, size in ELEMENT_BYTES.items() if name == atom))
        copied = (("memory", "local"), ("async_copy", True), ("width", width))
        return {
            "lane_arrangement": (8, 4),
            "thread_vector": (1, 2),
            **{f"{x}.{key}": value for x in "ab" for key, value in copied},
        }

    @property
    def free(self) -> frozenset[str]:
        """The block tile, stages, and the threadblock swizzle."""
        # Of TF32 a thread has no register left: ptxas spills where the prologue is a loop.
        return frozenset({"GROUP_M", "BM", "BN", "BK"} | (set() if self.atom == "mma_tf32" else {"STAGES"}))

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return self.atom


#: Lanes of a warp over rows and columns of C, where they load what it multiplies; warps of a multiprocessor at least,
#: with 168 registers a thread.
DIRECT_LANES, DIRECT_WARPS = (4, 8), 12


def blocks_together(warps: int) -> int:
    """Blocks of so many warps that a multiprocessor is to have: where ptxas is told nothing, it saves registers, and
    moves loads between instructions that multiply, where each waits by itself.
    """
    return max(1, DIRECT_WARPS // warps)


@dataclass(frozen=True, slots=True)
class DirectMma(Mainloop):
    """Warps multiply by `mma.sync` what each lane loads of A and B from global memory: neighbours along K, since a
    product does not depend on their order. Columns of B are the instruction's sixteen rows, rows of A its eight
    columns. It is for few rows, which wait for B alone, and makes elements of B from fewer bits in registers.

    Attributes:
        sliced_k: as in `SharedMemory`: warps, each with a part of a step of its own.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    operands: ClassVar[OperandKeys] = both("width")
    chosen_by: ClassVar[Chosen | None] = Chosen("direct", "lanes load what a warp multiplies by mma, along K")
    family: ClassVar[Method] = "mma_direct"

    sliced_k: int = slices_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Lanes as the instruction has them: each holds two neighbouring rows of C."""
        return {"atom": "mma", "lane_arrangement": DIRECT_LANES, "thread_vector": (2, 1)}


@dataclass(frozen=True, slots=True)
class Mfma(Mainloop):
    """Wavefronts of AMD's CDNA multiply by `v_mfma` what each lane loads of A and B from global memory."""

    tiling: ClassVar[type[Tiling]] = Tiling
    family: ClassVar[Method] = "mfma"

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Lanes as the instruction has them: each holds four neighbouring rows of a column of C."""
        return {"atom": "mfma", "lane_arrangement": (4, 16), "thread_vector": (4, 1)}
