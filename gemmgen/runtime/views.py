"""How matrices lie in memory: NumPy's arrays, pyopencl's and those of a GPU alike; no device needed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeGuard

import numpy as np
import numpy.typing as npt

from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import FLOAT8, DType
from gemmgen.ir.numeric import numpy_dtype, numpy_name
from gemmgen.runtime.cuda_arrays import GpuMatrix
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.spec import Order

#: Kernels index with 32-bit integers.
LIMIT = 2**31
_SHAPES = {2: "rows, cols", 3: "batch, rows, cols"}


class SpanError(SpecError):
    """Matrices that a kernel can't span, and nothing else that is wrong with a call."""


@dataclass(frozen=True, slots=True)
class View:
    """A matrix as it lies in memory: `slow` lines of `fast` neighbouring elements, `ld` elements apart.

    Attributes:
        dtype: of the elements, as NumPy has it.
        count: matrices of a batch, `stride` elements apart; None for one that is of no batch. One that serves all of a
            batch has count 1 and stride 0.
    """

    rows: int
    cols: int
    order: Order
    ld: int
    dtype: np.dtype[np.generic] = field(default_factory=lambda: np.dtype(np.float32))
    count: int | None = None
    stride: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """As its array has it."""
        return (self.rows, self.cols) if self.count is None else (self.count, self.rows, self.cols)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def fast(self) -> int:
        return self.cols if self.order == "row" else self.rows

    @property
    def slow(self) -> int:
        return self.rows if self.order == "row" else self.cols

    @property
    def span(self) -> int:
        """Elements from the first to the last, both included, of all matrices together; 0 where there are none."""
        if self.count == 0 or not self.span_of_one:
            return 0
        return ((self.count or 1) - 1) * self.stride + self.span_of_one

    @property
    def span_of_one(self) -> int:
        """The same of one matrix."""
        return (self.slow - 1) * self.ld + self.fast if self.slow and self.fast else 0

    @property
    def packed(self) -> bool:
        """Whether no gap lies between the lines, nor between matrices."""
        return (self.ld == self.fast or self.slow == 1) and self.without_gaps().stride == self.stride

    def without_gaps(self) -> View:
        """The same matrices, packed."""
        step = self.slow * self.fast if (self.count or 1) > 1 else 0
        return replace(self, ld=max(1, self.fast), stride=step)

    def each(self) -> Iterator[tuple[int, View]]:
        """Where each matrix begins, in elements, and the matrix by itself."""
        one = replace(self, count=None, stride=0)
        return ((index * self.stride, one) for index in range(1 if self.count is None else self.count))


def is_device_array(value: object) -> bool:
    """Whether it is a `GpuMatrix` or a `pyopencl.array.Array`, without importing that module."""
    if isinstance(value, GpuMatrix):
        return True
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def is_array(value: object) -> TypeGuard[ArrayLike]:
    """Whether it is an array that a kernel could take."""
    return isinstance(value, np.ndarray) or is_device_array(value)


def new_view(rows: int, cols: int, order: Order, dtype: DType | str, count: int | None = None) -> View:
    """A matrix, or a batch of them, without gaps."""
    return View(rows, cols, order, 1, numpy_dtype(dtype), count).without_gaps()


def new_array(view: View) -> npt.NDArray[np.generic]:
    """A NumPy array without gaps, of no particular content."""
    if view.order == "row":
        return np.empty(view.shape, view.dtype)
    return np.empty((*view.shape[:-2], view.cols, view.rows), view.dtype).swapaxes(-1, -2)


def shape(array: ArrayLike) -> str:
    """`3x4`; `()` for a scalar."""
    return "x".join(map(str, array.shape)) or "()"


def check_view(
    name: str,
    array: ArrayLike,
    order: Order,
    dtype: DType | str,
    problems: list[str],
    order_option: str = "",
    ranks: tuple[int, ...] = (2,),
) -> View | None:
    """How a matrix of `order` lies in memory, or None with the reasons why a kernel can't take it.

    Args:
        ranks: how many dimensions it may have: 2, or 3 for a batch.
    """
    before = len(problems)
    if array.dtype != numpy_dtype(dtype) and not _is_bits(array.dtype, dtype):
        drops = array.dtype.kind == "c" != numpy_dtype(dtype).kind
        real, note = (f"{name}.real", " (drops the imaginary part)") if drops else (name, "")
        problems.append(f"{name} has dtype {array.dtype}, not {dtype}: pass {real}.astype({numpy_name(dtype)}){note}")
    if len(array.shape) not in ranks:
        wanted, remedy = " or ".join(map(str, ranks)), f"pass {name}.reshape({_SHAPES[ranks[-1]]})"
        if len(array.shape) == 3:
            remedy += ", or compile a GemmSpec with batched=True"
        problems.append(f"{name} has shape {shape(array)}, so {len(array.shape)} dimensions, not {wanted}: {remedy}")
        return None
    if isinstance(array, np.ndarray) and not array.flags.aligned:
        problems.append(f"{name} does not lie on a multiple of {array.dtype.alignment} bytes: pass {name}.copy()")
    ld = leading_dimension(array, order)
    if ld is None:
        problems.append(stride_problem(name, array, order, order_option))
    step = _step_of_batch(name, array, problems) if 3 in ranks else 0
    if len(problems) > before or ld is None:
        return None
    rows, cols = map(int, array.shape[-2:])
    count = _count(array, step) if 3 in ranks else None
    return View(rows, cols, order, ld, numpy_dtype(dtype), count, step)


def _is_bits(found: np.dtype[np.generic], wanted: DType | str) -> bool:
    """Whether elements of a byte are taken for 8-bit floats, which CuPy and most protocols lack."""
    return found == np.uint8 and str(wanted) in map(str, FLOAT8)


def _count(array: ArrayLike, step: int) -> int:
    """How many matrices there are in memory: one where it serves all."""
    return int(array.shape[0]) if step or (len(array.shape) == 3 and not array.shape[0]) else 1


def _step_of_batch(name: str, array: ArrayLike, problems: list[str]) -> int:
    """Elements from one matrix to the next; 0 where it is the same one for all, or there is none."""
    if len(array.shape) == 2 or array.shape[0] == 1 or 0 in array.shape:
        return 0
    step, left = divmod(array.strides[0], array.dtype.itemsize)
    if step < 0 or left:
        problems.append(f"{name}'s matrices lie {array.strides[0]} bytes apart: pass a copy of it")
        return 1
    return int(step)


def leading_dimension(array: ArrayLike, order: Order) -> int | None:
    """Elements between neighbours along the slow axis; None if the strides are not those of `order`.

    The stride of an axis of extent 1 is never used, so it may be anything; that of an empty matrix neither.
    """
    size = array.dtype.itemsize
    if 0 in array.shape:
        return max(1, int(array.shape[-1 if order == "row" else -2]))
    (slow, fast), (slow_stride, fast_stride) = array.shape[-2:], array.strides[-2:]
    if order == "col":
        slow, fast, slow_stride, fast_stride = fast, slow, fast_stride, slow_stride
    if fast > 1 and fast_stride != size:
        return None
    if slow == 1:
        return int(fast)
    if slow_stride % size or slow_stride // size < fast:
        return None
    return int(slow_stride // size)


def stride_problem(name: str, array: ArrayLike, order: Order, order_option: str) -> str:
    """The sentence for strides that no leading dimension describes."""
    maker = "np.ascontiguousarray" if order == "row" else "np.asfortranarray"
    remedy = f"pass {maker}({name})"
    if is_device_array(array):
        remedy = f"copy it into a new array of order {'C' if order == 'row' else 'F'!r}"
    other: Order = "col" if order == "row" else "row"
    if order_option and leading_dimension(array, other) is not None:
        remedy += f", or compile {order_option}={other!r}"
    return f"{name} has strides {tuple(array.strides)} bytes, not those of a {order}-major matrix: {remedy}"


def check_spans(views: Mapping[str, View], limits: Mapping[str, int] = MappingProxyType({})) -> None:
    """Raises: SpanError for each matrix that the kernel's 32-bit indices, or a lower limit of its own, can't span."""
    limited = [(name, view, limits.get(name, LIMIT)) for name, view in views.items()]
    too_long: Iterable[str] = (
        f"{name} spans {view.span_of_one} elements (leading dimension {view.ld}), more than the {limit - 1} that "
        "32-bit indices reach: use GemmSpec(wide=True), --wide on the command line, or multiply it in parts"
        for name, view, limit in limited
        if view.span_of_one >= limit
    )
    if problems := list(too_long):
        raise SpanError(problems)
