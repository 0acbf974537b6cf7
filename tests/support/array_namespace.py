"""The linear algebra of the array API standard's main namespace that is products, by `gemmgen.gemm` alone; all else is
NumPy's. A module of its own, so that data-apis' array-api-tests can be pointed at it (docs/gemm.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemmgen import gemm

Array = Any  # of any library of the standard, which gives arrays no type of their own


def _expect_numbers(*arrays: Array) -> None:
    """The standard has these functions for numbers; truth values are none."""
    for x in arrays:
        if "bool" in str(x.dtype):
            raise TypeError("an array of bool is none of numbers")


def _array(result: Array) -> Array:
    """Without dimensions still an array, where NumPy has scalars."""
    return np.asarray(result) if isinstance(result, np.generic) else result


def matmul(x1: Array, x2: Array, /) -> Array:
    _expect_numbers(x1, x2)
    return _array(gemm(x1, x2))


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    _expect_numbers(x1, x2)
    if not -min(x1.ndim, x2.ndim) <= axis <= -1:
        raise ValueError(f"axis = {axis} is none of both arrays: give one from -{min(x1.ndim, x2.ndim)} to -1")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"{x1.shape[axis]} and {x2.shape[axis]} elements along axis {axis}: give as many")
    left, right = (_last(x, axis) for x in (x1, x2))
    product = gemm(left[..., None, :], right[..., :, None], conjugate_a=True)
    return _array(product[..., 0, 0])


def tensordot(x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    _expect_numbers(x1, x2)
    if isinstance(axes, int):
        first, second = tuple(range(x1.ndim - axes, x1.ndim)), tuple(range(axes))
    else:
        first, second = (tuple(i % x.ndim for i in each) for x, each in zip((x1, x2), axes, strict=True))
    if [x1.shape[i] for i in first] != [x2.shape[i] for i in second]:
        raise ValueError(f"shapes {x1.shape} and {x2.shape} differ along axes {first} and {second}: pass others")
    space = _space(x1)
    kept1, kept2 = ([i for i in range(x.ndim) if i not in own] for x, own in ((x1, first), (x2, second)))
    shape = tuple(x1.shape[i] for i in kept1) + tuple(x2.shape[i] for i in kept2)
    depth = math.prod(x1.shape[i] for i in first)
    left = space.reshape(space.permute_dims(x1, (*kept1, *first)), (math.prod(x1.shape[i] for i in kept1), depth))
    right = space.reshape(space.permute_dims(x2, (*second, *kept2)), (depth, math.prod(x2.shape[i] for i in kept2)))
    return space.reshape(gemm(left, right), shape)


def _space(x: Array) -> Any:
    return x.__array_namespace__() if hasattr(x, "__array_namespace__") else np


def _last(x: Array, axis: int) -> Array:
    """The array with an axis moved to the end."""
    at = x.ndim + axis
    return _space(x).permute_dims(x, (*(i for i in range(x.ndim) if i != at), at))


linalg = SimpleNamespace(
    **{name: getattr(np.linalg, name) for name in dir(np.linalg) if not name.startswith("_")}
    | {"matmul": matmul, "vecdot": vecdot, "tensordot": tensordot}
)


def __getattr__(name: str) -> Any:
    return getattr(np, name)
