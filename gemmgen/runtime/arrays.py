"""Check a call's arrays against the spec, and find their memory layout. Needs no device."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from typing import cast

import numpy as np

from gemmgen.epilogue import OPERANDS, Applied, odd_columns
from gemmgen.errors import LoweringError, SpecError
from gemmgen.ir.dtypes import DType
from gemmgen.records import dataclass
from gemmgen.runtime.views import (
    LIMIT,
    ArrayLike,
    DeviceMatrix,
    View,
    check_spans,
    check_view,
    is_array,
    is_device_array,
    mask_problems,
    meets_itself,
    new_view,
    overlap_problems,
    shape,
)
from gemmgen.source import EntryPoint
from gemmgen.spec import LARGEST_SIZE, GemmSpec


@dataclass(frozen=True, slots=True)
class Request:
    """A call that has been checked.

    Attributes:
        inputs: name -> array and its view; a view without elements if the array must not be read.
        output: name, array (None: to be allocated) and view.
        sizes: the integers other than leading dimensions.
        scalars: alpha and beta, if they are arguments.
        loads_output: whether the kernel reads the output's old elements.
        on_device: whether the arrays are pyopencl's.
        lists: for a batch by addresses, name -> the matrix of each product; `inputs` and `output` then have the first.
        given: the object that the caller passed for the result, if it is not the output's own array.
        workspaces: the bytes of each workspace.
    """

    inputs: Mapping[str, tuple[ArrayLike, View]]
    output: tuple[str, ArrayLike | None, View]
    sizes: Mapping[str, int]
    scalars: Mapping[str, complex]
    loads_output: bool
    on_device: bool
    lists: Mapping[str, tuple[ArrayLike, ...]] = field(default_factory=dict)
    given: object = None
    workspaces: Mapping[str, int] = field(default_factory=dict)

    @property
    def views(self) -> dict[str, View]:
        """The layout of each array, the inputs first."""
        name, _, view = self.output
        return {**{x: known for x, (_, known) in self.inputs.items()}, name: view}

    def without_arrays(self) -> Request:
        """The same for calls with others."""
        nothing, (name, _, view) = cast(ArrayLike, None), self.output
        inputs = {x: (nothing, known) for x, (_, known) in self.inputs.items()}
        return replace(self, inputs=inputs, output=(name, None, view))

    @property
    def meets_assumptions(self) -> bool:
        """Whether kernels can take all arrays where they lie, as far as leading dimensions go."""
        return all(view.meets_assumptions for view in self.views.values())

    @property
    def is_empty(self) -> bool:
        """Whether an array has no elements, or is not read."""
        return not all(view.span for view in self.views.values())

    def numbers(self, views: Mapping[str, View]) -> dict[str, complex]:
        """All arguments of kernels but arrays: sizes, factors, and the layouts that the kernels see."""
        values: dict[str, complex] = {**self.sizes, **self.scalars}
        for name, view in views.items():
            values |= pitches(name, view)
        return values


def operands_of(arrays: Mapping[str, object]) -> dict[str, object]:
    """Of a call's arrays those beside A, B and C."""
    return {name: array for name, array in arrays.items() if name not in ("a", "b", "c")}


def check_gemm(
    spec: GemmSpec,
    arrays: Mapping[str, object],
    factors: tuple[object, object],
    problems: list[str],
    span: int = LIMIT,
) -> Request:
    """Check the arguments of C = alpha * A @ B + beta * C, and of its epilogue.

    If alpha or K is zero, C = beta * C. The request then has k = 0 and alpha = 0, whatever the matrices hold.

    Args:
        arrays: a, b and c: [m, k] and [k, n] of `spec.dtype`, [m, n] of `spec.result`; c may be None. For a batch c
            has one more dimension before these. So have a and b, unless one matrix serves all products. And the
            epilogue's arrays, by name.
        factors: alpha and beta: numbers, real if the elements are real; None for the spec's constants, or else for 1
            and 0.
        problems: with the arrays' kinds, which have been looked at.
        span: A and B must span fewer elements than this; C as well, if it is more than 2^31.

    Raises: SpecError with every problem.
    """
    a, b, c = (arrays[name] for name in "abc")
    values = check_factors(spec, factors, c, problems)
    check_shapes(spec, a, b, c, problems)
    views = views_of(spec, a, b, c, problems)
    others = check_operands(spec, operands_of(arrays), problems, partial(operand_view, spec, a, b, problems))
    check_output("c", c, arrays, problems)
    views = with_ld_units(spec, views, problems, is_device_array(a))
    if problems:
        raise SpecError(problems)
    matrices = cast(ArrayLike, a), cast(ArrayLike, b), cast("ArrayLike | None", c)
    return request_of(spec, matrices, views, others, values, span)


def request_of(
    spec: GemmSpec,
    matrices: tuple[ArrayLike, ArrayLike, ArrayLike | None],
    views: Mapping[str, View | None],
    others: Mapping[str, tuple[ArrayLike, View]],
    factors: tuple[complex, complex],
    span: int,
) -> Request:
    """The request of checked arguments. Raises: SpanError."""
    (a, b, c), (alpha_value, beta_value) = matrices, factors
    view_a, view_b = cast(View, views["a"]), cast(View, views["b"])
    many = _batch_count(a, b) if spec.batched else None
    view_c = views.get("c") or new_c(spec, a, view_a.rows, spec.columns(view_b.cols), many)
    depth = view_b.rows if spec.element("a").pairs else view_a.cols
    known = {"a": view_a, "b": view_b, "c": view_c, **{name: view for name, (_, view) in others.items()}}
    check_spans(known, {"a": span, "b": span, "c": max(span, LIMIT)})
    if alpha_value == 0 or not depth:
        # As in BLAS, neither matrix is read. So NaN in them, or in alpha, does not propagate.
        alpha_value = 0.0
        if spec.k is None:  # with a constant K kernels test alpha themselves
            view_a, view_b, depth = replace(view_a, cols=0), replace(view_b, rows=0), 0
    inputs = {"a": (a, view_a), "b": (b, view_b), **others}
    sizes = {"m": view_a.rows, "n": view_c.cols, "k": depth}
    return Request(
        inputs=inputs,
        output=("c", c, view_c),
        sizes=sizes if many is None else {**sizes, "batch_count": many},
        scalars={"alpha": alpha_value, "beta": beta_value},
        loads_output=beta_value != 0 or spec.names_c,
        on_device=is_device_array(a),
    )


def new_c(spec: GemmSpec, a: ArrayLike, rows: int, cols: int, many: int | None) -> View:
    """The view of a C that the caller does not give, of so many rows and columns, or of a batch. Beside an A in a GPU's
    memory or in USM it keeps what the spec assumes, and so may be an argument of the next call. NumPy's and pyopencl's
    have no gaps: pyopencl reads no array that has some.
    """
    view = replace(new_view(rows, cols, spec.c_order, spec.result, many), unit=spec.ld_unit("c"))
    return view.laid_out() if isinstance(a, DeviceMatrix) else view


def _batch_count(*arrays: ArrayLike) -> int:
    """The number of products of a batch. One matrix may serve all products."""
    counts = {array.shape[0] if len(array.shape) == 3 else 1 for array in arrays}
    return next(iter(counts - {1}), 1)


def views_of(spec: GemmSpec, a: object, b: object, c: object, problems: list[str]) -> dict[str, View | None]:
    """The views of those matrices that are arrays."""
    inputs = (2, 3) if spec.batched else (2,)
    return {
        name: check_view(name, value, spec.order(name), dtype, problems, f"a GemmSpec with {name}_order", ranks)
        for name, value, dtype, ranks in (
            ("a", a, spec.element("a"), inputs),
            ("b", b, spec.element("b"), inputs),
            ("c", c, spec.result, inputs[-1:]),
        )
        if is_array(value)
    }


def with_ld_units(
    spec: GemmSpec, views: Mapping[str, View | None], problems: list[str], on_device: bool
) -> dict[str, View | None]:
    """The views with what `GemmSpec.ld_multiple` assumes of them. A device's arrays that don't meet it are problems; of
    NumPy's, kernels get copies that keep it (`View.laid_out`).
    """
    found = {name: view and replace(view, unit=spec.ld_unit(name)) for name, view in views.items()}
    problems += [
        (
            f"{name} has leading dimension {view.ld}"
            if view.has_lines and view.ld % view.unit
            else f"{name}'s matrices are {view.stride} elements apart"
        )
        + f", not a multiple of {view.unit} as the GemmSpec assumes: copy it to the first {view.fast} elements of "
        f"lines of {view.laid_out().ld}, or use ld_multiple=1"
        for name, view in found.items()
        if on_device and view is not None and not view.meets_assumptions
    ]
    return found


def check_transpose(dtype: DType | str, a: object, out: object, problems: list[str]) -> Request:
    """Check the arguments of `out = transpose(a)`: a is [rows, cols], out [cols, rows], both row-major.

    Args:
        out: None allocates it.
        problems: as for `check_gemm`.

    Raises: SpecError with every problem.
    """
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


def check_kinds(values: Mapping[str, object]) -> list[str]:
    """Problems: values that are no arrays, and NumPy arrays mixed with pyopencl's. None is an optional array."""
    required = {"a", "b"}
    problems = [
        f"{name} is of type {type(value).__name__}, not an array: pass np.asarray({name}, dtype=np.float32)"
        for name, value in values.items()
        if not is_array(value) and (value is not None or name in required)
    ]
    problems += [problem for name, value in values.items() for problem in mask_problems(name, value)]
    on_device = {name: is_device_array(value) for name, value in values.items() if is_array(value)}
    if len(set(on_device.values())) > 1:
        listed = ", ".join(f"{name} is {'pyopencl' if there else 'NumPy'}'s" for name, there in on_device.items())
        problems.append(
            f"arrays of two kinds are mixed ({listed}): "
            "move all of them to the device by pyopencl.array.to_device(queue, x), or all to NumPy by x.get()"
        )
    return problems


def check_factors(
    spec: GemmSpec, factors: tuple[object, object], c: object, problems: list[str]
) -> tuple[complex, complex]:
    """alpha and beta in this call. A c that is read must be given."""
    found = (
        _check_scalar("alpha", factors[0], spec.alpha, 1.0, spec.accumulator, problems),
        _check_scalar("beta", factors[1], spec.beta, 0.0, spec.accumulator, problems),
    )
    if c is None and found[1]:
        problems.append(f"beta = {found[1]:g} adds to a c that was not given: pass c, or beta = 0")
    if c is None and spec.names_c:
        problems.append("the epilogue reads a c that was not given: pass c")
    return found


def _check_scalar(
    name: str, value: object, folded: complex | None, default: float, sums: DType, problems: list[str]
) -> complex:
    """The value of alpha or beta in this call; `sums` is the type of the sums that it scales."""
    if value is None:
        return default if folded is None else folded
    if sums.real is None and not isinstance(value, numbers.Real | np.bool_):
        problems.append(f"{name} = {value!r} is of type {type(value).__name__}: pass a real number")
        return default
    if not isinstance(value, numbers.Complex | np.bool_):
        problems.append(f"{name} = {value!r} is of type {type(value).__name__}: pass a number")
        return default
    try:
        number = complex(value)
    except OverflowError:  # of an int or a Fraction beyond float64
        problems.append(f"{name} exceeds {sums}'s {sums.largest:g}: scale a or b instead")
        return default
    value = number if sums.real is not None else number.real
    if any(math.isfinite(part) and abs(part) > sums.largest for part in (number.real, number.imag)):
        problems.append(f"{name} = {value:g} exceeds {sums}'s {sums.largest:g}: scale a or b instead")
    elif not sums.is_float and not number.real.is_integer():
        problems.append(f"{name} = {value:g} is no whole number, but sums are {sums}: pass one, or use float32")
    elif folded is not None and number != folded:
        problems.append(
            f"{name} = {value:g}, but the kernel has {name} = {folded:g} folded into it: "
            f"leave {name} out of the call, or out of the GemmSpec"
        )
    return value


def check_shapes(spec: GemmSpec, a: object, b: object, c: object, problems: list[str]) -> None:
    """Check shapes against each other, those of a batch too, and against the spec's sizes."""
    check_extents(spec, a, b, c, problems)
    problems += _count_problems(a, b, c)


def check_extents(spec: GemmSpec, a: object, b: object, c: object, problems: list[str]) -> None:
    """Check the extents of matrices, or of each one of several, against each other, and against the spec's constant
    sizes and divisibility (`multiple_of`).
    """
    extents: dict[str, int] = {}
    known_k = depth_of(spec, a, b)
    for name, value, axes in (("a", a, "mk"), ("b", b, "kn"), ("c", c, "mn")):
        if not is_array(value) or len(value.shape) not in (2, 3):
            continue
        for axis, extent in zip(axes, value.shape[-2:], strict=True):
            if axis == "k" and name != "c" and spec.element(name).pairs:
                if known_k is not None and extent != spec.stored_k(name, known_k):
                    problems.append(
                        f"{name} is {shape(value)}, so {extent} pairs along K, but k = {known_k}: pass bytes of two "
                        f"elements each, {spec.stored_k(name, known_k)} along K, as gemmgen.prepack makes them"
                    )
                continue
            if name == "b" and axis == "n" and spec.gate is not None:
                problems += gate_problems(spec.gate, shape(value), extent)
                extent = spec.columns(extent)
            if extents.setdefault(axis, extent) != extent:
                first = "a" if axis in "mk" else "b"
                problems.append(
                    f"{name} is {shape(value)}, so {axis} = {extent}, but {first} says {axis} = {extents[axis]}: "
                    "a must be m x k, b k x n and c m x n"
                )
    assumptions = zip("mnk", (spec.m, spec.n, spec.k), spec.multiple_of, strict=True)
    for axis, fixed, unit in assumptions:
        if axis not in extents:
            continue
        extent = extents[axis]
        if fixed is not None and extent != fixed:
            problems.append(
                f"{axis} = {extent}, but the kernel was made for {axis} = {fixed}: leave {axis} out of the GemmSpec"
            )
        if extent % unit:
            problems.append(
                f"{axis} = {extent} is not the multiple of {unit} that the GemmSpec assumes: "
                f"pad the matrices to {-(-extent // unit) * unit}, or use multiple_of=(1, 1, 1)"
            )


def gate_problems(gate: Applied, b: str, columns: int) -> list[str]:
    """Problems: a B, of a shape, that has no two halves of columns, or more columns than indices reach."""
    if columns > LARGEST_SIZE:
        return [f"b is {b}, but {gate.short} takes at most {LARGEST_SIZE} columns of b: multiply it in parts"]
    if columns % 2 == 0:
        return []
    return [odd_columns(gate.short, f"is {b}")]


def depth_of(spec: GemmSpec, a: object, b: object) -> int | None:
    """K, as the matrix says it whose bytes hold no pairs; None where that is none."""
    matrix, axis = (b, -2) if spec.element("a").pairs else (a, -1)
    return int(matrix.shape[axis]) if is_array(matrix) and len(matrix.shape) > 1 else None


def _count_problems(a: object, b: object, c: object) -> list[str]:
    """Batches of different lengths; one matrix serves all."""
    counts = {x: v.shape[0] for x, v in (("a", a), ("b", b), ("c", c)) if is_array(v) and len(v.shape) == 3}
    inputs = {count for name, count in counts.items() if name != "c" and count != 1}
    if len(inputs) > 1 or ("c" in counts and counts["c"] != next(iter(inputs), 1)):
        listed = ", ".join(f"{count} of {name}" for name, count in counts.items())
        return [f"the batch has {listed}: pass as many of each; of a and b, one may serve all"]
    return []


def check_output(name: str, output: object, inputs: Mapping[str, object], problems: list[str]) -> None:
    """A result must be writable, and share no element with an input."""
    if not is_array(output):
        return
    if isinstance(output, np.ndarray) and not output.flags.writeable:
        problems.append(f"{name} is read-only: pass a writable array, or leave it out to have it allocated")
    if meets_itself(output):
        problems.append(f"elements of {name} share memory: pass an array that has each of its own")
    others = {other: value for other, value in inputs.items() if other != name and is_array(value)}
    problems += overlap_problems(name, output, others)


# --- the arrays of prologues and epilogues --------------------------------------------------------


def letter(name: str) -> str:
    """The suffix for an array in the names of its leading dimension (`ld`) and its batch stride (`stride_`)."""
    return OPERANDS[name].letter or name if name in OPERANDS else name


def pitches(name: str, view: View) -> dict[str, int]:
    """An array's layout arguments by name: its leading dimension, and its batch stride."""
    return {f"ld{letter(name)}": view.ld, f"stride_{letter(name)}": view.stride}


def value_of(entry: EntryPoint, name: str, values: Mapping[str, object]) -> object:
    """The value of one of a kernel's arguments. Raises: LoweringError if the runtime has none."""
    if name not in values:
        raise LoweringError(f"{entry.name} has an argument {name!r} that the runtime knows nothing of")
    return values[name]


def expect_operands(caller: str, operands: Mapping[str, object]) -> None:
    """Raises: TypeError, as Python does, for unknown keywords."""
    for name in operands:
        if name not in OPERANDS:
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")


def asking(name: str) -> str:
    """The part of a spec that names an operand, for messages."""
    return "epilogue" if OPERANDS[name].of == "c" else f"prologue_{OPERANDS[name].of}"


def check_operands(
    spec: GemmSpec,
    operands: Mapping[str, object],
    problems: list[str],
    view_of: Callable[[str, ArrayLike], View | None],
) -> dict[str, tuple[ArrayLike, View]]:
    """Those operands that a kernel can take, with their views.

    Args:
        view_of: the view of an array by its name; None, with a problem added, for one that the kernel can't take.
    """
    for name, value in operands.items():
        if name not in spec.operands and value is not None:
            problems.append(f"{name} means nothing to a kernel whose {asking(name)} does not name it: leave it out")
    found: dict[str, tuple[ArrayLike, View]] = {}
    for name in spec.operands:
        value = operands.get(name)
        if value is None:
            text = {"a": spec.prologue_a, "b": spec.prologue_b}.get(OPERANDS[name].of, ", ".join(spec.epilogue))
            problems.append(f"{name} is missing, which the {asking(name)} {text} takes: pass {name}=")
        elif is_array(value) and (view := view_of(name, value)) is not None:  # others are reported with the kinds
            found[name] = value, view
    return found


def operand_view(spec: GemmSpec, a: object, b: object, problems: list[str], name: str, value: ArrayLike) -> View | None:
    """The view of an operand of a product, or of a batch."""
    return (_matrix if OPERANDS[name].axes == "mn" else _vector)(spec, a, b, problems, name, value)


def _vector(spec: GemmSpec, a: object, b: object, problems: list[str], name: str, value: ArrayLike) -> View | None:
    """A contiguous vector with an element for each row or column, or a number; the same for all products of a batch."""
    before = len(problems)
    axes = OPERANDS[name].axes
    is_number = not value.shape and not axes
    holder, axis = {"n": (b, -1), "m": (a, -2)}.get(axes, (None, 0))
    depth = depth_of(spec, a, b)
    wanted = depth if axes == "k" else None if axes else 1
    if (
        axes in ("g", "t")
        and is_array(a)
        and is_array(b)
        and len(a.shape) > 1
        and len(b.shape) > 1
        and depth is not None
    ):
        (wanted,) = OPERANDS[name].extents(a.shape[-2], b.shape[-1], depth)
    if is_array(holder) and len(holder.shape) > 1:
        wanted = spec.columns(holder.shape[axis]) if axes == "n" else holder.shape[axis]
    if is_number:
        pass  # which is one element as well
    elif len(value.shape) != 1:
        elements = math.prod(value.shape)
        fits = value.shape and wanted in (None, elements)
        remedy = f"pass {name}.ravel()" if fits else f"pass an array with an element for {OPERANDS[name].each.lower()}"
        remedy += "" if fits or wanted is None else f", {wanted} in one dimension"
        problems.append(f"{name} has shape {shape(value)}, not one dimension: {remedy}")
    elif wanted is not None and value.shape[0] != wanted:
        each = OPERANDS[name].each
        problems.append(f"{name} has {value.shape[0]} elements, not {wanted}: pass one for {each.lower()}")
    elif value.strides[0] != value.dtype.itemsize and value.shape[0] > 1:
        problems.append(f"{name} has elements {value.strides[0]} bytes apart: pass a copy of it, without gaps")
    # As a matrix of one line, which is how it lies.
    return check_view(name, Line(value), "row", spec.operand(name), problems) if len(problems) == before else None


class Line:
    """A vector, a number or an array without gaps, seen as a matrix of one row, for checks only."""

    def __init__(self, vector: ArrayLike) -> None:
        elements, step = math.prod(vector.shape), (*vector.strides, vector.dtype.itemsize)[-1 if vector.shape else 0]
        self.shape: tuple[int, ...] = (1, elements)
        self.strides: tuple[int, ...] = (step * elements, step)
        self.dtype: np.dtype[np.generic] = vector.dtype


def _matrix(spec: GemmSpec, a: object, b: object, problems: list[str], name: str, value: ArrayLike) -> View | None:
    """A matrix as large as C, and stored in its order; in a batch, one for each product or one for all."""
    ranks = (2, 3) if spec.batched else (2,)
    view = check_view(name, value, spec.c_order, spec.result, problems, "a GemmSpec with c_order", ranks)
    if view is None:
        return None
    if is_array(a) and is_array(b) and min(len(a.shape), len(b.shape)) > 1:
        rows, cols = a.shape[-2], spec.columns(b.shape[-1])
        if (view.rows, view.cols) != (rows, cols):
            problems.append(f"{name} is {view.rows}x{view.cols}, not {rows}x{cols}: pass one as large as c")
        products = max(x.shape[0] if len(x.shape) == 3 else 1 for x in (a, b))
        if view.count not in (None, 1, products):
            problems.append(f"{name} has {view.count} matrices for {products} products: pass as many, or one for all")
    return view
