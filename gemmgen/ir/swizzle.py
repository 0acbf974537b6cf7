"""How lines of local memory swizzle: which of a line's parts of 16 bytes lies where, by the number of the line.

Swizzle<B,4,3>, as CUTLASS writes it: bits 7 to 6 + B of an address are added to bits 4 to 3 + B, without carry. A line
of 128 bytes has B = 3, of 64 bytes 2, of 32 bytes 1, and eight lines that follow each other hold all that changes
places (PTX ISA, "Shared memory matrix layout", "Tensor swizzling modes"). TMA copies, matrix instructions and what
puts sums down go by this one function of an address; the interpreter computes it, descriptors and tensor maps name it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bytes of a line: all that there are, the widest last.
LINES_BYTES = (32, 64, 128)
#: Lines that swizzle together; the first of them begins on a multiple of their bytes.
LINES = 8
#: Bits that an address is shifted by.
SHIFT = 3

_Place = TypeVar("_Place", int, "NDArray[np.int64]")


def line_bytes(length: int) -> int:
    """The narrowest line that holds so many bytes; of more than the widest holds, that one, several side by side."""
    return next((line for line in LINES_BYTES if length <= line), LINES_BYTES[-1])


def mask(line: int) -> int:
    """The bits of an address that change: those of a part of 16 bytes in its line. 0 where nothing swizzles."""
    return max(0, line - 16)


def swizzled(place: _Place, line: int) -> _Place:
    """Where the byte of a place lies."""
    return place ^ (place >> SHIFT & mask(line))
