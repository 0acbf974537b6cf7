"""The arrays that prologues and an epilogue take: which of them a call must bring, and how they lie."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from gemmgen.epilogue import OPERANDS
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.runtime.views import View, check_view, is_array, shape
from gemmgen.spec import GemmSpec


def letter(name: str) -> str:
    """What the leading dimension and the step of an array of a call go by, after `ld` and `stride_`."""
    return OPERANDS[name].letter or name if name in OPERANDS else name


def expect_operands(caller: str, operands: Mapping[str, object]) -> None:
    """Raises: TypeError, as Python does, for keywords that no kernel takes."""
    for name in operands:
        if name not in OPERANDS:
            raise TypeError(f"{caller}() got an unexpected keyword argument {name!r}")


def asking(name: str) -> str:
    """What names an operand."""
    return "epilogue" if OPERANDS[name].of == "c" else f"prologue_{OPERANDS[name].of}"


def check_operands(
    spec: GemmSpec, operands: Mapping[str, object], a: object, b: object, problems: list[str]
) -> dict[str, tuple[ArrayLike, View]]:
    """These operands and how they lie in memory, of those that a kernel can take."""
    for name, value in operands.items():
        if name not in spec.operands and value is not None:
            problems.append(f"{name} means nothing to a kernel whose {asking(name)} does not name it: leave it out")
    found: dict[str, tuple[ArrayLike, View]] = {}
    for name in spec.operands:
        value = operands.get(name)
        if value is None:
            text = {"a": spec.prologue_a, "b": spec.prologue_b}.get(OPERANDS[name].of, ", ".join(spec.epilogue))
            problems.append(f"{name} is missing, which the {asking(name)} {text} takes: pass {name}=")
        elif not is_array(value):
            pass  # said with the kinds of arrays
        elif OPERANDS[name].axes == "mn":
            _matrix(spec, name, value, a, b, problems, found)
        else:
            _vector(spec, name, value, a, b, problems, found)
    return found


def _vector(
    spec: GemmSpec,
    name: str,
    value: ArrayLike,
    a: object,
    b: object,
    problems: list[str],
    found: dict[str, tuple[ArrayLike, View]],
) -> None:
    """One element for each row or column, side by side, or a number; the same for all products of a batch."""
    before = len(problems)
    axes = OPERANDS[name].axes
    is_number = not value.shape and not axes
    holder, axis = {"n": (b, -1), "m": (a, -2), "k": (a, -1), "": (None, 0)}[axes]
    wanted = None if axes else 1
    if is_array(holder) and len(holder.shape) > 1:
        wanted = holder.shape[axis]
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
    if len(problems) > before:
        return
    # As a matrix of one line, which is how it lies.
    line = _Line(value)
    if (view := check_view(name, line, "row", spec.operand(name), problems)) is not None:
        found[name] = value, view


class _Line:
    """A vector, or a number, as a matrix of one row, to be looked at only."""

    def __init__(self, vector: ArrayLike) -> None:
        elements, step = (*vector.shape, 1)[0], (*vector.strides, vector.dtype.itemsize)[0]
        self.shape: tuple[int, ...] = (1, elements)
        self.strides: tuple[int, ...] = (step * elements, step)
        self.dtype: np.dtype[np.generic] = vector.dtype


def _matrix(
    spec: GemmSpec,
    name: str,
    value: ArrayLike,
    a: object,
    b: object,
    problems: list[str],
    found: dict[str, tuple[ArrayLike, View]],
) -> None:
    """A matrix as large as C, and stored as it is; of a batch, one for each product or one for all."""
    ranks = (2, 3) if spec.batched else (2,)
    view = check_view(name, value, spec.c_order, spec.result, problems, "a GemmSpec with c_order", ranks)
    if view is None:
        return
    if is_array(a) and is_array(b) and min(len(a.shape), len(b.shape)) > 1:
        rows, cols = a.shape[-2], b.shape[-1]
        if (view.rows, view.cols) != (rows, cols):
            problems.append(f"{name} is {view.rows}x{view.cols}, not {rows}x{cols}: pass one as large as c")
        products = max(x.shape[0] if len(x.shape) == 3 else 1 for x in (a, b))
        if view.count not in (None, 1, products):
            problems.append(f"{name} has {view.count} matrices for {products} products: pass as many, or one for all")
    found[name] = value, view
