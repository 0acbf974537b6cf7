"""Grouped products: check the arguments of a call, with the array of where groups end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np

from gemmgen.epilogue import OPERANDS
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import I32
from gemmgen.ir.sizes import MOST_GROUPS
from gemmgen.runtime import arrays
from gemmgen.runtime.calls import Held
from gemmgen.runtime.views import (
    LIMIT,
    ArrayLike,
    View,
    check_spans,
    check_view,
    is_array,
    is_device_array,
    shape,
)
from gemmgen.spec import OFFSETS, GemmSpec

#: The dimensions of A, B and C.
_RANKS = {"rows": {"a": 2, "b": 3, "c": 2}, "k": {"a": 2, "b": 2, "c": 3}}
_AXES = {"a": "mk", "b": "kn", "c": "mn"}


def check_grouped(
    spec: GemmSpec,
    given: Mapping[str, object],
    factors: tuple[object, object],
    problems: list[str],
    span: int = LIMIT,
) -> arrays.Request:
    """Check the arguments of a grouped product. It differs from `arrays.check_gemm` in these arrays:

    Args:
        given: a, b, c: for groups of rows [total rows, k], [groups, k, n], [total rows, n]; for groups of K
            [m, total k], [total k, n], [groups, m, n]. And `offsets`, where each group ends: ascending, none past the
            total. That is checked of NumPy's arrays; of a device's nobody on the host sees it.

    Raises: SpecError with every problem.
    """
    (a, b, c), offsets = (given[name] for name in "abc"), given.get(OFFSETS)
    beside = {name: x for name, x in arrays.operands_of(given).items() if name != OFFSETS}
    values = arrays.check_factors(spec, factors, c, problems)
    arrays.check_extents(spec, a, b, c, problems)
    views = _views(spec, {"a": a, "b": b, "c": c}, problems)
    count = _groups("b" if spec.grouped == "rows" else "c", b if spec.grouped == "rows" else c, offsets, problems)
    ends = _ends(spec, offsets, views, problems)
    others = arrays.check_operands(spec, beside, problems, partial(_operand, spec, views, count, problems))
    arrays.check_output("c", c, given, problems)
    views = arrays.with_ld_units(spec, views, problems, is_device_array(a))
    if problems:
        raise SpecError(problems)
    matrices = cast(ArrayLike, a), cast(ArrayLike, b), cast("ArrayLike | None", c)
    named = {**others, OFFSETS: (cast(ArrayLike, offsets), cast(View, ends))}
    return _request(spec, matrices, cast("dict[str, View]", views), named, values, (count, span))


def _request(
    spec: GemmSpec,
    matrices: tuple[ArrayLike, ArrayLike, ArrayLike | None],
    views: Mapping[str, View],
    others: Mapping[str, tuple[ArrayLike, View]],
    factors: tuple[complex, complex],
    limits: tuple[int, int],
) -> arrays.Request:
    """The request of checked arguments. Raises: SpanError."""
    (a, b, c), (count, span), view_a, view_b = matrices, limits, views["a"], views["b"]
    many = count if spec.grouped == "k" else None
    view_c = views.get("c") or arrays.new_c(spec, a, view_a.rows, spec.columns(view_b.cols), many)
    known = {"a": view_a, "b": view_b, "c": view_c, **{name: view for name, (_, view) in others.items()}}
    check_spans(known, {"a": span, "b": span, "c": max(span, LIMIT)})
    sizes = {"m": view_a.rows, "n": view_c.cols, "k": view_a.cols, "group_count": count}
    if factors[0] == 0 and spec.grouped == "rows" and spec.k is None:
        # As in BLAS, neither matrix is read; groups of K test alpha themselves.
        sizes["k"] = 0
    return arrays.Request(
        inputs={"a": (a, view_a), "b": (b, view_b), **others},
        output=("c", c, view_c),
        sizes=sizes,
        scalars={"alpha": factors[0], "beta": factors[1]},
        # Rows behind the last group stay as they are.
        loads_output=factors[1] != 0 or spec.names_c or (spec.grouped == "rows" and c is not None),
        on_device=is_device_array(a),
    )


def _views(spec: GemmSpec, given: Mapping[str, object], problems: list[str]) -> dict[str, View | None]:
    """The views of those matrices that are arrays of the dimensions that the kind of groups has."""
    types = {"a": spec.element("a"), "b": spec.element("b"), "c": spec.result}
    found: dict[str, View | None] = {}
    for name, value in given.items():
        rank = _RANKS[spec.grouped or "rows"][name]
        if not is_array(value):
            continue
        if len(value.shape) != rank:
            problems.append(f"{name} has shape {shape(value)}, not {rank} dimensions: pass [{_wanted(spec, name)}]")
            continue
        option = f"a GemmSpec with {name}_order"
        found[name] = check_view(name, value, spec.order(name), types[name], problems, option, (rank,))
    return found


def _wanted(spec: GemmSpec, name: str) -> str:
    """The dimensions of a matrix in words."""
    extents = [f"total {'rows' if axis == 'm' else 'k'}" if axis == spec.ragged else axis for axis in _AXES[name]]
    return ", ".join(["groups"] * (_RANKS[spec.grouped or "rows"][name] - len(extents)) + extents)


def _groups(holder: str, matrices: object, offsets: object, problems: list[str]) -> int:
    """How many groups there are.

    Args:
        holder: the name of the array that has a matrix for each (`matrices`).
    """
    if not is_array(offsets) or len(offsets.shape) != 1:
        return 0
    count = offsets.shape[0]
    if not count:
        problems.append("offsets end no group: pass the end of one at least, or launch nothing")
    if is_array(matrices) and len(matrices.shape) == _RANKS["k"]["c"] and matrices.shape[0] != count:
        problems.append(f"offsets end {count} groups, but {holder} has {matrices.shape[0]} matrices: pass as many")
    if count > MOST_GROUPS:
        problems.append(f"offsets end {count} groups > {MOST_GROUPS}, which kernels tell apart: make calls of fewer")
    return count


def _ends(spec: GemmSpec, offsets: object, views: Mapping[str, View | None], problems: list[str]) -> View | None:
    """The view of offsets, in one line."""
    if offsets is None:
        problems.append("offsets is missing, which says where groups end: pass offsets=, int32, one end a group")
    if not is_array(offsets):
        return None
    if len(offsets.shape) != 1:
        problems.append(f"offsets has shape {shape(offsets)}, not one dimension: pass the end of each group")
        return None
    if offsets.strides[0] != offsets.dtype.itemsize and offsets.shape[0] > 1:
        problems.append(f"offsets has elements {offsets.strides[0]} bytes apart: pass a copy of it, without gaps")
        return None
    view = check_view(OFFSETS, arrays.Line(offsets), "row", I32, problems)
    if isinstance(offsets, np.ndarray) and offsets.dtype.kind in "iu" and (a := views.get("a")) is not None:
        problems += offset_problems(offsets, a.rows if spec.grouped == "rows" else a.cols)
    return view


def offset_problems(offsets: np.ndarray[tuple[int, ...], np.dtype[np.generic]], total: int) -> list[str]:
    """What is wrong with offsets that the host sees."""
    ends = offsets.astype(np.int64)
    begins = np.concatenate([[0], ends[:-1]])
    problems = []
    if (ends < begins).any():
        first = int(np.argmax(ends < begins))
        problems.append(
            f"offsets[{first}] = {ends[first]} < {begins[first]}, where group {first} begins: pass ascending ends"
        )
    if len(ends) and ends.max() > total:
        first = int(np.argmax(ends > total))
        problems.append(f"offsets[{first}] = {ends[first]} > {total}, what all groups share: pass ends inside of it")
    return problems


def checks_ends(spec: GemmSpec, request: arrays.Request) -> Callable[[Held, bool], bool]:
    """Whether a prepared call on the host needs the full checks (`PreparedCall.guard`): offsets that are not right."""
    total = request.inputs["a"][1].rows if spec.grouped == "rows" else request.inputs["a"][1].cols

    def are_wrong(held: Held, _: bool) -> bool:
        ends = held[3][OFFSETS]
        return not (ends[0] >= 0 and ends[-1] <= total and (ends[1:] >= ends[:-1]).all())

    return are_wrong


def _operand(
    spec: GemmSpec, views: Mapping[str, View | None], count: int, problems: list[str], name: str, value: ArrayLike
) -> View | None:
    """The view of an epilogue's array. One with an element a column has a line for each group, [groups, n]; one with an
    element a row is as long as C has rows, of groups of K [groups, m]; `residual` is as large as C. Of scales of sums,
    those of A are for all rows, those of B a line for each group.
    """
    a, b = views.get("a"), views.get("b")
    if a is None or b is None:
        return None
    axes, by_k = OPERANDS[name].axes, spec.grouped == "k"
    wanted = OPERANDS[name].extents(a.rows, spec.columns(b.cols), a.cols)
    wanted = (count, *wanted) if by_k or axes == "n" or OPERANDS[name].of == "b" else wanted
    if tuple(value.shape) != wanted:
        problems.append(f"{name} has shape {shape(value)}, not {'x'.join(map(str, wanted))}: pass one of that shape")
        return None
    if axes == "mn":
        ranks = (3,) if by_k else (2,)
        return check_view(name, value, spec.c_order, spec.result, problems, "a GemmSpec with c_order", ranks)
    step = value.dtype.itemsize
    for extent, stride in zip(value.shape[::-1], value.strides[::-1], strict=True):
        if extent > 1 and stride != step:
            problems.append(f"{name} has gaps between its elements: pass a copy of it, without gaps")
            return None
        step *= extent
    return check_view(name, arrays.Line(value), "row", spec.operand(name), problems)
