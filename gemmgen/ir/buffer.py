"""Memory: where a buffer lives and how its coordinates become an address."""

from __future__ import annotations

from enum import Enum
from itertools import pairwise

from gemmgen.ir.dtypes import I64, DType
from gemmgen.ir.expr import Const, Expr, as_int
from gemmgen.records import dataclass


class Space(Enum):
    """Where a buffer lives."""

    GLOBAL = "global"
    IMAGE = "image"
    LOCAL = "local"
    PRIVATE = "private"
    #: Not memory of its own: a place in local memory that each work-item has for itself, and moves.
    VIEW = "view"
    #: Pointers into a matrix: the first coordinate says which, the other counts from where it points.
    POINTERS = "pointers"


@dataclass(frozen=True, slots=True)
class Layout:
    """A pure integer function from storage coordinates to an element offset.

    Attributes:
        shape: the extents that may be accessed, slowest dimension first.
        strides: elements between neighbours along each dimension; the last one is 1.
        swizzle: bytes of a line whose parts of 16 bytes change places, as `ir/swizzle.py` says; 0 where addresses are
            as they are counted. Only copies and matrix instructions that know of it go there.
        ends: whether there is a matrix for each line that a part of the lines may end at, which the first of three
            coordinates says. Matrix e has as many lines as there are in all, the last of them line e - 1.
    """

    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    swizzle: int = 0
    ends: bool = False

    @property
    def base(self) -> Expr:
        """The element offset of the coordinates 0, which no element has where matrices end with a part."""
        return Const(0) - self.shape[1] * self.strides[1] if self.ends else Const(0)

    def offset(self, index: tuple[Expr, ...]) -> Expr:
        """The element offset of `index`."""
        if self.ends:
            end, line, element = index
            return (end + line - self.shape[1]) * self.strides[1] + element * self.strides[2]
        total: Expr = Const(0)
        for coordinate, stride in zip(index, self.strides, strict=True):
            total = total + coordinate * stride
        return total

    @staticmethod
    def packed(*extents: int, pad: int = 0) -> Layout:
        """Row-major extents, the fastest dimension padded by `pad` elements."""
        strides: list[int] = []
        step = 1
        for i, extent in enumerate(reversed(extents)):
            strides.append(step)
            step *= extent + (pad if i == 0 else 0)
        return Layout(tuple(map(Const, extents)), tuple(map(Const, reversed(strides))))

    @staticmethod
    def pitched(rows: Expr, columns: Expr, pitch: Expr) -> Layout:
        """A row-major matrix whose rows lie `pitch` elements apart."""
        return Layout((rows, columns), (pitch, Const(1)))


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of memory.

    Attributes:
        name: an identifier of the emitted source.
        layout: its shape in storage order and its strides.
        writable: whether the kernel may store to it.
        contracted: the storage axis that is summed over, if any. What is read past it must be zero; past
            the other axes any value of the matrix will do, since nothing made of it is stored.
        batch_stride: elements from one matrix of a batch to the next, if it is one of a batch; with three coordinates
            the first says which.
        addresses: the matrix of which this holds the addresses, one for each product of a batch; in the IR they are
            places, in elements from where the matrix named so begins.
        vector: neighbours along the last axis that are kept as one vector (private memory only); coordinates count
            elements all the same.
        tma_tile: lines, and elements of a line, of the tile that one TMA instruction copies; None without a tensor map.
            The host encodes the map from the matrix' address, extents and leading dimension and passes that instead; a
            second map where the last tile of a line is narrower.
        rounded: whether that map rounds what is loaded to TF32 (its type is TFLOAT32).
        distributed: of distributed shared memory, the groups of the cluster: the first coordinate is a group's rank,
            and each group holds its own plane; 1 for memory of the group alone.
        evict_first: whether TMA loads of it carry the L2 hint evict-first.
        multicast: groups of a cluster that each TMA load writes to, at the same place of each one's local memory.
        prepacked: whether it is a copy of A or B that one kernel lays out for another.
        apart: elements from one tile to another of the same step, where these are parts of the same lines.
        stored_again: whether two groups may store an element, if it is to the same bits.
        places: whether it holds places (sizes, indices), the same in all work-items of a group.
    """

    name: str
    dtype: DType
    space: Space
    layout: Layout
    writable: bool = True
    contracted: int | None = None
    batch_stride: Expr | None = None
    addresses: Buffer | None = None
    vector: int = 1
    tma_tile: tuple[int, int] | None = None
    rounded: bool = False
    distributed: int = 1
    evict_first: bool = False
    multicast: int = 1
    prepacked: bool = False
    apart: Expr | None = None
    stored_again: bool = False
    places: bool = False

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.layout.shape

    @property
    def reach(self) -> int:
        """How many elements places in it are counted by, of a batch those in a matrix: 2^31, or as many as can be."""
        return 2**63 if any(stride.dtype == I64 for stride in self.layout.strides[-2:]) else 2**31

    @property
    def extents(self) -> tuple[int, ...]:
        """The declared array extents, padding included (local and private memory only), of a group's own plane."""
        strides = [as_int(s) or 0 for s in self.layout.strides]
        outer = [as_int(s) or 0 for s in self.shape[:1]]
        return (*outer, *(a // b for a, b in pairwise(strides)))[int(self.distributed > 1) :]

    @property
    def elements(self) -> int:
        """How many elements are allocated (local and private memory only)."""
        total = 1
        for extent in self.extents:
            total *= extent
        return total

    @property
    def bytes(self) -> int:
        """How many bytes are allocated (local and private memory only)."""
        return self.elements * self.dtype.size
