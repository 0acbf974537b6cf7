"""Which arrays a kernel can take, and how they lie in memory. NumPy arrays and pyopencl's alike; no device needed."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeGuard, cast

import numpy as np

from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.numeric import numpy_dtype, numpy_name
from gemmgen.runtime.cuda_arrays import GpuMatrix
from gemmgen.runtime.overlaps import ArrayLike, overlap
from gemmgen.spec import GemmSpec, Order

#: Kernels index with 32-bit integers.
LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class View:
    """A matrix as it lies in memory: `slow` lines of `fast` neighbouring elements, `ld` elements apart."""

    rows: int
    cols: int
    order: Order
    ld: int
    dtype: np.dtype[np.generic] = field(default_factory=lambda: np.dtype(np.float32))

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
        """Elements from the first to the last, both included."""
        return (self.slow - 1) * self.ld + self.fast

    @property
    def packed(self) -> bool:
        """Whether no gap lies between the lines."""
        return self.ld == self.fast or self.slow == 1


@dataclass(frozen=True, slots=True)
class Request:
    """A call that has been checked.

    Attributes:
        inputs: name -> array and its view.
        output: name, array (None: to be allocated) and view.
        sizes: the integers other than leading dimensions.
        scalars: alpha and beta where they are arguments.
        loads_output: whether the kernel reads what the output holds before.
        on_device: whether the arrays are pyopencl's.
    """

    inputs: Mapping[str, tuple[ArrayLike, View]]
    output: tuple[str, ArrayLike | None, View]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    loads_output: bool
    on_device: bool


def is_device_array(value: object) -> bool:
    """Whether it is a `GpuMatrix` or a `pyopencl.array.Array`, without importing that module."""
    if isinstance(value, GpuMatrix):
        return True
    module = sys.modules.get("pyopencl.array")
    return module is not None and isinstance(value, module.Array)


def is_array(value: object) -> TypeGuard[ArrayLike]:
    """Whether it is an array that a kernel could take."""
    return isinstance(value, np.ndarray) or is_device_array(value)


def check_gemm(
    spec: GemmSpec,
    a: object,
    b: object,
    c: object = None,
    alpha: object = None,
    beta: object = None,
    kinds: Callable[[Mapping[str, object]], list[str]] | None = None,
    span: int = LIMIT,
) -> Request:
    """Check the arguments of C = alpha * A @ B + beta * C.

    Args:
        a, b, c: [m, k] and [k, n] of `spec.dtype`, [m, n] of `spec.result`; c may be None.
        alpha, beta: real numbers; None for what is folded in the spec, else 1 and 0.
        kinds: what is wrong with the kinds of arrays; None for `check_kinds`.
        span: elements that A and B must span less than.

    Raises: SpecError with every problem.
    """
    problems = (kinds or check_kinds)({"a": a, "b": b, "c": c})
    alpha_value = check_scalar("alpha", alpha, spec.alpha, 1.0, spec.accumulator, problems)
    beta_value = check_scalar("beta", beta, spec.beta, 0.0, spec.accumulator, problems)
    if c is None and beta_value != 0:
        problems.append(f"beta = {beta_value:g} adds to a c that was not given: pass c, or beta = 0")
    check_shapes(spec, a, b, c, problems)
    orders: dict[str, Order] = {"a": spec.a_order, "b": spec.b_order, "c": spec.c_order}
    views = {
        name: check_view(name, value, orders[name], dtype, problems, f"a GemmSpec with {name}_order")
        for name, value, dtype in (("a", a, spec.dtype), ("b", b, spec.dtype), ("c", c, spec.result))
        if is_array(value)
    }
    check_output("c", c, {"a": a, "b": b}, problems)
    problems += pitch_problems(views, spec.ld_multiple)
    if problems:
        raise SpecError(problems)
    view_a, view_b = views["a"], views["b"]
    assert view_a is not None
    assert view_b is not None
    view_c = views.get("c") or new_view(view_a.rows, view_b.cols, spec.c_order, spec.result)
    check_spans({"a": view_a, "b": view_b, "c": view_c}, {"a": span, "b": span})
    return Request(
        inputs={"a": (cast(ArrayLike, a), view_a), "b": (cast(ArrayLike, b), view_b)},
        output=("c", cast("ArrayLike | None", c), view_c),
        sizes={"m": view_a.rows, "n": view_b.cols, "k": view_a.cols},
        scalars={"alpha": alpha_value, "beta": beta_value},
        loads_output=beta_value != 0,
        on_device=is_device_array(a),
    )


def pitch_problems(views: Mapping[str, View | None], unit: int) -> list[str]:
    """Leading dimensions that break the promise of `GemmSpec.ld_multiple`; that of a single line is never used."""
    return [
        f"{name} has leading dimension {view.ld}, not the multiple of {unit} that the GemmSpec promises: "
        "pad its lines, or use ld_multiple=1"
        for name, view in views.items()
        if view is not None and view.slow > 1 and view.ld % unit
    ]


def check_transpose(dtype: DType | str, a: object, out: object = None) -> Request:
    """Check the arguments of `out = transpose(a)`: a is [rows, cols], out [cols, rows], both row-major.

    Raises: SpecError with every problem.
    """
    problems = check_kinds({"a": a, "out": out})
    view = check_view("a", a, "row", dtype, problems) if is_array(a) else None
    into = check_view("out", out, "row", dtype, problems) if is_array(out) else None
    if is_array(a) and is_array(out) and len(a.shape) == 2 and tuple(out.shape) != tuple(a.shape[::-1]):
        problems.append(f"out has shape {shape(out)}, not {a.shape[1]}x{a.shape[0]}: leave it out to have it allocated")
    check_output("out", out, {"a": a}, problems)
    if problems:
        raise SpecError(problems)
    assert view is not None
    into = into or new_view(view.cols, view.rows, "row", dtype)
    check_spans({"a": view, "out": into})
    return Request(
        inputs={"a": (cast(ArrayLike, a), view)},
        output=("b", cast("ArrayLike | None", out), into),
        sizes={"rows": view.rows, "cols": view.cols},
        scalars={},
        loads_output=False,
        on_device=is_device_array(a),
    )


def new_view(rows: int, cols: int, order: Order, dtype: DType | str) -> View:
    """A matrix without gaps."""
    return View(rows, cols, order, cols if order == "row" else rows, numpy_dtype(dtype))


def shape(array: ArrayLike) -> str:
    """`3x4`; `()` for a scalar."""
    return "x".join(map(str, array.shape)) or "()"


def check_kinds(values: Mapping[str, object]) -> list[str]:
    """Problems of things that are no arrays, and of NumPy's mixed with pyopencl's. None is an optional array."""
    required = {"a", "b"}
    problems = [
        f"{name} is of type {type(value).__name__}, not an array: pass np.asarray({name}, dtype=np.float32)"
        for name, value in values.items()
        if not is_array(value) and (value is not None or name in required)
    ]
    problems += [
        f"{name} is a masked array, and a kernel cannot see the mask: pass {name}.filled(0)"
        for name, value in values.items()
        if isinstance(value, np.ma.MaskedArray)
    ]
    on_device = {name: is_device_array(value) for name, value in values.items() if is_array(value)}
    if len(set(on_device.values())) > 1:
        listed = ", ".join(f"{name} is {'pyopencl' if there else 'NumPy'}'s" for name, there in on_device.items())
        problems.append(
            f"arrays of two kinds are mixed ({listed}): "
            "move all of them to the device by pyopencl.array.to_device(queue, x), or all to NumPy by x.get()"
        )
    return problems


def check_scalar(
    name: str, value: object, folded: float | None, default: float, sums: DType, problems: list[str]
) -> float:
    """The value that alpha or beta has in this call, where `sums` are multiplied by it."""
    if value is None:
        return default if folded is None else folded
    if not isinstance(value, numbers.Real | np.bool_):
        problems.append(f"{name} = {value!r} is of type {type(value).__name__}: pass a real number")
        return default
    try:
        number = float(value)
    except OverflowError:  # of an int or a Fraction beyond float64
        problems.append(f"{name} exceeds {sums}'s {sums.largest:g}: scale a or b instead")
        return default
    if math.isfinite(number) and abs(number) > sums.largest:
        problems.append(f"{name} = {number:g} exceeds {sums}'s {sums.largest:g}: scale a or b instead")
    elif not sums.is_float and not number.is_integer():
        problems.append(f"{name} = {number:g} is no whole number, but sums are {sums}: pass one, or use float32")
    elif folded is not None and number != folded:
        problems.append(
            f"{name} = {number:g}, but the kernel has {name} = {folded:g} folded into it: "
            f"leave {name} out of the call, or out of the GemmSpec"
        )
    return number


def check_shapes(spec: GemmSpec, a: object, b: object, c: object, problems: list[str]) -> None:
    """Shapes against each other, against sizes that the spec fixes and against divisibility that it promises."""
    extents: dict[str, int] = {}
    for name, value, axes in (("a", a, "mk"), ("b", b, "kn"), ("c", c, "mn")):
        if not is_array(value) or len(value.shape) != 2:
            continue
        for axis, extent in zip(axes, value.shape, strict=True):
            if extents.setdefault(axis, extent) != extent:
                first = "a" if axis in "mk" else "b"
                problems.append(
                    f"{name} is {shape(value)}, so {axis} = {extent}, but {first} says {axis} = {extents[axis]}: "
                    "a must be m x k, b k x n and c m x n"
                )
    promises = zip("mnk", (spec.m, spec.n, spec.k), spec.multiple_of, strict=True)
    for axis, fixed, unit in promises:
        if axis not in extents:
            continue
        extent = extents[axis]
        if fixed is not None and extent != fixed:
            problems.append(
                f"{axis} = {extent}, but the kernel was made for {axis} = {fixed}: leave {axis} out of the GemmSpec"
            )
        if extent % unit:
            problems.append(
                f"{axis} = {extent} is not the multiple of {unit} that the GemmSpec promises: "
                f"pad the matrices to {-(-extent // unit) * unit}, or use multiple_of=(1, 1, 1)"
            )


def check_view(
    name: str, array: ArrayLike, order: Order, dtype: DType | str, problems: list[str], order_option: str = ""
) -> View | None:
    """How a matrix of `order` lies in memory, or None with the reasons why a kernel can't take it."""
    before = len(problems)
    if array.dtype != numpy_dtype(dtype):
        real = f"{name}.real" if array.dtype.kind == "c" else name
        note = " (drops the imaginary part)" if array.dtype.kind == "c" else ""
        problems.append(f"{name} has dtype {array.dtype}, not {dtype}: pass {real}.astype({numpy_name(dtype)}){note}")
    if len(array.shape) != 2:
        problems.append(
            f"{name} has shape {shape(array)}, so {len(array.shape)} dimensions, not 2: pass {name}.reshape(rows, cols)"
        )
        return None
    if 0 in array.shape:
        problems.append(f"{name} is empty ({shape(array)}): every extent must be at least 1")
        return None
    if isinstance(array, np.ndarray) and not array.flags.aligned:
        problems.append(f"{name} does not lie on a multiple of {array.dtype.alignment} bytes: pass {name}.copy()")
    ld = leading_dimension(array, order)
    if ld is None:
        problems.append(stride_problem(name, array, order, order_option))
    if len(problems) > before or ld is None:
        return None
    return View(int(array.shape[0]), int(array.shape[1]), order, ld, numpy_dtype(dtype))


def leading_dimension(array: ArrayLike, order: Order) -> int | None:
    """Elements between neighbours along the slow axis; None if the strides are not those of `order`.

    The stride of an axis of extent 1 is never used, so it may be anything.
    """
    size = array.dtype.itemsize
    (slow, fast), (slow_stride, fast_stride) = array.shape, array.strides
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


def check_output(name: str, output: object, inputs: Mapping[str, object], problems: list[str]) -> None:
    """A result must be writable, and share no element with an input."""
    if not is_array(output):
        return
    if isinstance(output, np.ndarray) and not output.flags.writeable:
        problems.append(f"{name} is read-only: pass a writable array, or leave {name} out to have it allocated")
    for other, value in inputs.items():
        if is_array(value) and overlap(output, value):
            problems.append(f"{name} overlaps {other} in memory: pass another {name}, or {other}.copy()")


def check_spans(views: Mapping[str, View], limits: Mapping[str, int] = MappingProxyType({})) -> None:
    """Raises: SpecError for each matrix that the kernel's 32-bit indices, or a lower limit of its own, can't span."""
    limited = [(name, view, limits.get(name, LIMIT)) for name, view in views.items()]
    too_long: Iterable[str] = (
        f"{name} spans {view.span} elements (leading dimension {view.ld}), more than the {limit - 1} that 32-bit "
        "indices reach: multiply it in parts"
        for name, view, limit in limited
        if view.span >= limit
    )
    if problems := list(too_long):
        raise SpecError(problems)
