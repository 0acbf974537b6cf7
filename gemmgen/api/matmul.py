"""Products of stacks by the rules of `numpy.matmul`, as calls of kernels. Works on shapes and strides only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product as every

import numpy as np

from gemmgen.records import dataclass
from gemmgen.runtime.views import leading_dimension
from gemmgen.spec import Order

Shape = tuple[int, ...]

#: If C has fewer columns than this and A is column-major, its transpose is computed: the widest vectors of CPUs.
VECTOR_BYTES = 64


@dataclass(frozen=True, slots=True)
class Operand:
    """A view of an array, with its own shape and strides.

    Attributes:
        array: the array that holds the elements. Its library makes the view when a kernel needs it.
        strides, offset: in bytes; the offset is from the array's first element.
    """

    array: object
    shape: Shape
    strides: Shape
    dtype: np.dtype[np.generic]
    offset: int = 0

    def as_stack(self, transposed: bool, column: bool) -> Operand:
        """The stack with rows and columns last. A vector becomes one row or one column, whatever `transposed` is."""
        if len(self.shape) == 1:
            shape = (self.shape[0], 1) if column else (1, self.shape[0])
            # The stride is one element if the extent is 1, so that the lines count as contiguous.
            size = self.dtype.itemsize
            strides = (self.strides[0], size) if column else (self.shape[0] * size, self.strides[0])
            return replace(self, shape=shape, strides=strides)
        if not transposed:
            return self
        *batch, rows, cols = self.shape
        *steps, down, across = self.strides
        return replace(self, shape=(*batch, cols, rows), strides=(*steps, across, down))

    def broadcast(self, batch: Shape) -> Operand:
        """The stack, broadcast to a batch."""
        own = self.shape[:-2]
        lead = len(batch) - len(own)
        steps = (0,) * lead + tuple(
            0 if extent == 1 else step for extent, step in zip(own, self.strides[:-2], strict=True)
        )
        return replace(self, shape=(*batch, *self.shape[-2:]), strides=(*steps, *self.strides[-2:]))

    @property
    def order(self) -> Order | None:
        """The order of each matrix, row-major preferred; None if lines are not contiguous, or strides are negative."""
        return self.first_order("row", "col")

    @property
    def order_by_lines(self) -> Order | None:
        """The order with fewer lines preferred: a contiguous column is one line, not lines of one element."""
        rows, cols = self.shape[-2:]
        return self.first_order("col", "row") if rows > cols else self.order

    def first_order(self, *orders: Order) -> Order | None:
        """The first of these orders that describes each matrix; None if none does."""
        if any(
            extent > 1 and (step < 0 or step % self.dtype.itemsize)
            for extent, step in zip(self.shape[:-2], self.strides[:-2], strict=True)
        ):
            return None
        return next((order for order in orders if leading_dimension(self, order) is not None), None)


@dataclass(frozen=True, slots=True)
class Product:
    """The sizes of a product.

    Attributes:
        batch: extents of the stacks, after broadcasting.
        is_row, is_column: whether A is a vector; whether B is one.
    """

    batch: Shape
    m: int
    n: int
    k: int
    is_row: bool
    is_column: bool

    @property
    def shape(self) -> Shape:
        """The result's shape."""
        return (*self.batch, *(() if self.is_row else (self.m,)), *(() if self.is_column else (self.n,)))


def text(shape: Sequence[int]) -> str:
    """A shape as text, for messages."""
    return "x".join(map(str, shape)) or "()"


def scalar_problems(a: Operand, b: Operand) -> list[str]:
    """Problems: A or B has no dimension."""
    return [
        f"{name} is a scalar, which matmul does not take: multiply by *, or pass a 1x1 array"
        for name, operand in (("a", a), ("b", b))
        if not operand.shape
    ]


def product_of(
    a: Operand,
    b: Operand,
    transpose_a: bool,
    transpose_b: bool,
    problems: list[str],
    in_pairs: tuple[bool, bool] = (False, False),
) -> Product | None:
    """The sizes of `a @ b` for arrays that are no scalars, or None with problems added.

    Args:
        in_pairs: whether the elements of a, and of b, are pairs of such along K, as many as fit.
    """
    before = len(problems)
    left, right = a.as_stack(transpose_a, column=False), b.as_stack(transpose_b, column=True)
    (m, k), (depth, n) = left.shape[-2:], right.shape[-2:]
    k, depth = depth if in_pairs[0] else k, k if in_pairs[1] else depth
    if k != depth:
        said = [
            f"{name} {text(x.shape)}{' transposed' if transposed and len(x.shape) > 1 else ''}"
            for name, x, transposed in (("a", a, transpose_a), ("b", b, transpose_b))
        ]
        problems.append(f"{' and '.join(said)} do not fit: a has k = {k}, b k = {depth}; transpose one, or cut it")
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        problems.append(
            f"stacks of {text(left.shape[:-2])} and {text(right.shape[:-2])} matrices can't be broadcast: "
            "make extents equal, or 1"
        )
        return None
    return Product(batch, m, n, k, len(a.shape) == 1, len(b.shape) == 1) if len(problems) == before else None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel: matrices, or with three dimensions batches of them (A and B may serve a whole batch)."""

    a: Operand
    b: Operand
    c: Operand

    def mirrored(self) -> Call:
        """The transpose of C, as a product of transposes."""
        b, a, c = (x.as_stack(transposed=True, column=False) for x in (self.b, self.a, self.c))
        return Call(b, a, c)

    @property
    def prefers_mirror(self) -> bool:
        """Whether kernels with vectors of columns (CPUs) are faster for the transpose: if C is column-major, or if C is
        narrower than a vector and A column-major; and if the arrays then have the orders that the kernels need.
        """
        is_narrow = self.a.order == "col" and self.c.shape[-1] * self.c.dtype.itemsize < VECTOR_BYTES
        mirrored = self.mirrored()
        lies = mirrored.c.order == "row" or (is_narrow and mirrored.c.order == "col")
        return lies and (is_narrow or self.c.order == "col") and None not in (mirrored.a.order, mirrored.b.order)


def calls_of(a: Operand, b: Operand, c: Operand) -> Iterator[Call]:
    """The calls that compute a stack of products, as few as strides allow. All have the same shape; all are batches, or
    none is.

    Args:
        a, b, c: broadcast to one batch.
    """
    three = (a, b, c)
    extents, steps = _merged(a.shape[:-2], [x.strides[:-2] for x in three])
    if len(extents) == 1 and (rows := _folded(three, extents[0], [s[0] for s in steps])):
        yield rows
        return
    inner = max(range(len(extents)), key=lambda axis: extents[axis], default=None)
    outer = [axis for axis in range(len(extents)) if axis != inner]
    for index in every(*(range(extents[axis]) for axis in outer)):
        moved = [
            _matrices(x, sum(i * s[axis] for i, axis in zip(index, outer, strict=True)), inner, extents, s)
            for x, s in zip(three, steps, strict=True)
        ]
        if inner is not None and not (steps[0][inner] or steps[1][inner]):
            moved[0] = replace(moved[0], shape=(extents[inner], *moved[0].shape), strides=(0, *moved[0].strides))
        yield Call(*moved)


def _matrices(x: Operand, ahead: int, inner: int | None, extents: Sequence[int], steps: Sequence[int]) -> Operand:
    """The matrices of a stack along one axis; a single matrix if it serves all products."""
    one = replace(x, shape=x.shape[-2:], strides=x.strides[-2:], offset=x.offset + ahead)
    if inner is None or not steps[inner]:
        return one
    return replace(one, shape=(extents[inner], *one.shape), strides=(steps[inner], *one.strides))


def _merged(batch: Shape, strides: Sequence[Shape]) -> tuple[list[int], list[list[int]]]:
    """A batch with the fewest axes: without axes of extent 1, and with axes merged if their strides allow it."""
    extents: list[int] = []
    merged: list[list[int]] = [[] for _ in strides]
    for axis in reversed(range(len(batch))):
        extent = batch[axis]
        if extent == 1:
            continue
        if extents and all(own[axis] == known[0] * extents[0] for own, known in zip(strides, merged, strict=True)):
            extents[0] *= extent
            continue
        extents.insert(0, extent)
        for own, known in zip(strides, merged, strict=True):
            known.insert(0, own[axis])
    return extents, merged


def _folded(three: tuple[Operand, Operand, Operand], count: int, steps: Sequence[int]) -> Call | None:
    """A batch that shares B as one tall product, if the rows of A and of C continue from one matrix to the next."""
    a, b, c = three
    m = a.shape[-2]
    if steps[1]:
        return None
    tall = []
    for x, step in ((a, steps[0]), (c, steps[2])):
        down, across = x.strides[-2:]
        if m == 1:
            down = step
        if step != down * m or across != x.dtype.itemsize:
            return None
        tall.append(replace(x, shape=(count * m, x.shape[-1]), strides=(down, across)))
    if any(x.order != "row" for x in tall):
        return None
    return Call(tall[0], replace(b, shape=b.shape[-2:], strides=b.strides[-2:]), tall[1])
