"""The path of A or B from global memory to registers."""

from __future__ import annotations

from gemmgen.records import dataclass
from gemmgen.schedule.fields import WORDS, Memory, Record, flag, number, word


@dataclass(frozen=True, slots=True)
class Operand(Record):
    """The path of A or B from global memory to registers.

    Which of its fields mean something follows from the mainloop and from `memory` (`Mainloop.operand_keys`).

    Attributes:
        memory: where registers are filled from: `global`, an `image`, `local` memory that the group
            fills together, or (B of vectors) a `private` array that the work-item copies a block to. Where warpgroups
            multiply, where from: `local` memory, or, of A (of B where operands are swapped), `private` arrays,
            registers, which are filled from there.
        width: elements that one load from global memory moves (rows, for an image), or as many of them as the target's
            instructions and the matrix' alignment allow. Where a target has no block reads, or neighbours in the matrix
            are none in the local tile, single elements are moved.
        block_read: whether a sub-group loads by block reads instead of per-lane loads.
        shuffle: whether lanes hold different elements and pass them around the sub-group.
        transposed: whether local memory holds the tile with K as its slow axis for A (fast for B).
        pad: elements added to each row of the local tile.
        async_copy: whether local memory is filled by asynchronous copies, past the registers.
        prepacked: whether a kernel before the product packs the matrix: in the order of its local tile, in
            whole tiles, zeros past K. It costs a pass over the matrix, and spares the product all narrow copies.
        evict_first: whether TMA loads tell caches that the operand is read about once: they let go of
            that before all else.
    """

    memory: Memory = word("global", "where registers are filled from", "local", WORDS["Memory"])
    width: int = number(1, "elements that one load from global memory moves", 4, 32, (1, 2, 4, 8, 16))
    block_read: bool = flag("read by block reads of a sub-group")
    shuffle: bool = flag("lanes hold different elements and pass them around")
    transposed: bool = flag("the local tile has K as its slow axis for A (fast for B)")
    pad: int = number(0, "elements added to each row of the local tile", 1, 64, (0, 1, 4, 8), least=0)
    async_copy: bool = flag("local memory is filled by asynchronous copies")
    prepacked: bool = flag("a kernel before the product lays the matrix out")
    evict_first: bool = flag("caches let go of what TMA loads of it before all else")
