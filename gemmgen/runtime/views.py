"""The memory layout of matrices (`View`), and whether two arrays share an element. For arrays of NumPy, of pyopencl and
of a GPU; needs no device.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import FLOAT8, DType
from gemmgen.ir.numeric import numpy_dtype, numpy_name
from gemmgen.records import dataclass
from gemmgen.spec import Order

#: NumPy's arrays of any type.
Numbers: TypeAlias = npt.NDArray[np.generic]
#: An array's library.
Maker = Literal["cupy", "torch", "other"]
#: Kernels index with 32-bit integers.
LIMIT = 2**31
_SHAPES = {2: "rows, cols", 3: "batch, rows, cols"}


class ArrayLike(Protocol):
    """The common members of NumPy and pyopencl arrays."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[np.generic]: ...


class _DeviceArray(ArrayLike, Protocol):
    """The members of a pyopencl array that give its memory."""

    @property
    def offset(self) -> int: ...
    @property
    def base_data(self) -> object: ...


@dataclass(frozen=True, slots=True)
class DeviceMatrix:
    """An array in memory that a device accesses: a CUDA GPU's memory, or USM.

    Attributes:
        strides: in bytes.
        pointer: the address of its first element.
        device: the GPU's number; 0 for USM.
        maker: the array's library, and so the result's.
        array: the object that the caller passed.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[np.generic]
    pointer: int
    device: int
    maker: Maker = "other"
    readonly: bool = False
    array: object = field(default=None, repr=False, compare=False)


def loaded(module: str, name: str, value: object) -> bool:
    """Whether `value` is an instance of a module's class, without importing the module."""
    there = sys.modules.get(module)
    return there is not None and isinstance(value, cast("type", getattr(there, name, ())))


def mask_problems(name: str, value: object) -> list[str]:
    """What is wrong with a masked array."""
    is_masked = loaded("numpy.ma", "MaskedArray", value)
    return [f"{name} is a masked array, and a kernel cannot see the mask: pass {name}.filled(0)"] if is_masked else []


class SpanError(SpecError):
    """A matrix exceeds the kernel's index range. Nothing else is wrong with the call."""


@dataclass(frozen=True, slots=True)
class View:
    """The memory layout of a matrix: `slow` lines of `fast` contiguous elements, `ld` elements apart.

    Attributes:
        dtype: NumPy's type of the elements.
        count: matrices of a batch, `stride` elements apart; None without a batch. A matrix that serves all products of
            a batch has count 1 and stride 0.
        unit: what leading dimensions and strides are assumed to be multiples of (`GemmSpec.ld_unit`).
    """

    rows: int
    cols: int
    order: Order
    ld: int
    dtype: np.dtype[np.generic] = field(default_factory=lambda: np.dtype(np.float32))
    count: int | None = None
    stride: int = 0
    unit: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
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
        """Elements from the first to the last, both included, of all matrices together; 0 if it is empty."""
        if self.count == 0 or not self.span_of_one:
            return 0
        return ((self.count or 1) - 1) * self.stride + self.span_of_one

    @property
    def span_of_one(self) -> int:
        """The span of one matrix."""
        return (self.slow - 1) * self.ld + self.fast if self.slow and self.fast else 0

    @property
    def packed(self) -> bool:
        """Whether there is no gap between lines, nor between matrices."""
        step = self.slow * self.fast if (self.count or 1) > 1 else 0
        return (self.ld == self.fast or self.slow == 1) and self.stride == step

    @property
    def meets_assumptions(self) -> bool:
        """Whether lines and matrices are as far apart as assumed. A single line's leading dimension is never used."""
        return not (self.has_lines and self.ld % self.unit) and not self.stride % self.unit

    @property
    def has_lines(self) -> bool:
        """Whether there is a line behind another one."""
        return self.slow > 1 and self.span > 0

    def laid_out(self) -> View:
        """The same matrices as a runtime lays them out on a device: lines are padded as far as the spec assumes, and
        there are no other gaps.
        """
        line = -(-max(1, self.fast) // self.unit) * self.unit
        return replace(self, ld=line, stride=self.slow * line if (self.count or 1) > 1 else 0)

    def each(self) -> Iterator[tuple[int, View]]:
        """The offset of each matrix in elements, and the view of the single matrix."""
        one = replace(self, count=None, stride=0)
        return ((index * self.stride, one) for index in range(1 if self.count is None else self.count))


def is_device_array(value: object) -> bool:
    """Whether `value` is a `DeviceMatrix` or a `pyopencl.array.Array`, without importing pyopencl."""
    if isinstance(value, DeviceMatrix):
        return True
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def is_array(value: object) -> TypeGuard[ArrayLike]:
    """Whether `value` is an array of a kind that kernels take."""
    return isinstance(value, np.ndarray) or is_device_array(value)


def new_view(rows: int, cols: int, order: Order, dtype: DType | str, count: int | None = None) -> View:
    """The view of a matrix, or of a batch, without gaps."""
    return View(rows, cols, order, 1, numpy_dtype(dtype), count).laid_out()


def stored_shape(view: View) -> tuple[int, ...]:
    """The shape of an array in whose order of elements new matrices lie, with the padding of their lines."""
    return (*view.shape[:-2], view.slow, view.fast and view.ld)


def new_array(view: View) -> npt.NDArray[np.generic]:
    """An uninitialised NumPy array for new matrices."""
    made = np.empty(stored_shape(view), view.dtype)[..., : view.fast]
    return made if view.order == "row" else made.swapaxes(-1, -2)


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
    """The view of a matrix of `order`, or None, with the problems added why a kernel can't take it.

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
        many = f"{len(array.shape)} dimension{'s' * (len(array.shape) != 1)}"
        problems.append(f"{name} has shape {shape(array)}, so {many}, not {wanted}: {remedy}")
        return None
    if isinstance(array, np.ndarray) and not array.flags.aligned:
        problems.append(f"{name} does not begin on a multiple of {array.dtype.alignment} bytes: pass {name}.copy()")
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
    """Whether an array of bytes is taken for 8-bit floats, which CuPy and most protocols lack."""
    return found == np.uint8 and str(wanted) in map(str, FLOAT8)


def _count(array: ArrayLike, step: int) -> int:
    """The number of matrices in memory: 1 if one matrix serves all products."""
    return int(array.shape[0]) if step or (len(array.shape) == 3 and not array.shape[0]) else 1


def _step_of_batch(name: str, array: ArrayLike, problems: list[str]) -> int:
    """Elements from one matrix to the next; 0 if one matrix serves all products, or if there is none."""
    if len(array.shape) == 2 or array.shape[0] == 1 or 0 in array.shape:
        return 0
    step, left = divmod(array.strides[0], array.dtype.itemsize)
    if step < 0 or left:
        problems.append(f"{name}'s matrices are {array.strides[0]} bytes apart: pass a copy of it")
        return 1
    return int(step)


def leading_dimension(array: ArrayLike, order: Order) -> int | None:
    """Elements between neighbours along the slow axis; None if the strides are not those of `order`.

    The stride of an axis of extent 1 is never used, so it may have any value. So may the strides of an empty matrix.
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
    """The message for strides that no leading dimension describes."""
    maker = "np.ascontiguousarray" if order == "row" else "np.asfortranarray"
    written = ", and take what the call returns" if name in ("c", "out") else ""  # it is a copy that is written
    remedy = f"pass {maker}({name}){written}"
    if is_device_array(array):
        remedy = f"copy it into a new array of order {'C' if order == 'row' else 'F'!r}"
    other: Order = "col" if order == "row" else "row"
    if order_option and leading_dimension(array, other) is not None:
        remedy += f", or compile {order_option}={other!r}"
    return f"{name} has strides {tuple(array.strides)} bytes, not those of a {order}-major matrix: {remedy}"


def check_spans(views: Mapping[str, View], limits: Mapping[str, int] = MappingProxyType({})) -> None:
    """Check that the kernel's 32-bit indices, or a lower limit, span each matrix. Raises: SpanError."""
    seen = {name: view if view.meets_assumptions else view.laid_out() for name, view in views.items()}
    limited = [(name, view, limits.get(name, LIMIT)) for name, view in seen.items()]
    too_long: Iterable[str] = (
        f"{name} spans {view.span_of_one} elements (leading dimension {view.ld}), more than the {limit - 1} that "
        "32-bit indices reach: use GemmSpec(wide=True), --wide on the command line, or multiply it in parts"
        for name, view, limit in limited
        if view.span_of_one >= limit
    )
    if problems := list(too_long):
        raise SpanError(problems)


# --- whether two arrays share an element ----------------------------------------------------------


def meets_itself(array: ArrayLike) -> bool:
    """Whether two elements of an array may share memory: unless each stride exceeds the extent of all shorter ones."""
    if 0 in array.shape:
        return False
    reach = array.dtype.itemsize
    for step, extent in sorted((abs(s), e) for s, e in zip(array.strides, array.shape, strict=True) if e > 1):
        if step < reach:
            return True
        reach += (extent - 1) * step
    return False


def overlap(x: ArrayLike, y: ArrayLike) -> bool:
    """Whether two arrays share an element. The answer is yes if the exact test would take long."""
    (memory_x, outline_x), (memory_y, outline_y) = outline(x), outline(y)
    if memory_x != memory_y or not np.may_share_memory(outline_x, outline_y):
        return False
    try:
        # The stub allows only two of the limits that NumPy takes.
        return bool(np.shares_memory(outline_x, outline_y, max_work=cast("Literal[0]", 10_000)))
    except (RuntimeError, ValueError, OverflowError):
        return True


def overlap_problems(name: str, written: ArrayLike, inputs: Mapping[str, ArrayLike]) -> list[str]:
    """Problems: a result, called `name`, that shares an element with an input."""
    return [
        f"{name} overlaps {other} in memory: pass another {name}, or a copy of {other}"
        for other, value in inputs.items()
        if overlap(written, value)
    ]


@dataclass(frozen=True, slots=True)
class _Outline:
    """A device array as if it were at a host address, for NumPy's overlap tests. Nothing is ever read there."""

    __array_interface__: dict[str, object]


def outline(array: ArrayLike) -> tuple[int, npt.NDArray[np.generic]]:
    """A number for the memory that holds an array (0 for the host's), and its position there as a NumPy array."""
    if isinstance(array, np.ndarray):
        return 0, array
    if isinstance(array, DeviceMatrix):
        memory, address = -1 - array.device, array.pointer
    else:
        device_array = cast(_DeviceArray, array)
        memory, address = getattr(device_array.base_data, "int_ptr", id(array)), (1 << 30) + device_array.offset
    place = {
        "version": 3,
        "data": (address, True),
        "shape": array.shape,
        "strides": array.strides,
        "typestr": f"|V{array.dtype.itemsize}",  # NumPy may not accept its own name for others' types
    }
    return memory, np.asarray(_Outline(place))
