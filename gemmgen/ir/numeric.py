"""Scalar types as NumPy has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gemmgen.ir.dtypes import ALL_DTYPES, BF16, FLOAT8, I4, DType, type_name

_OF_ML_DTYPES = frozenset(map(str, (BF16, *FLOAT8)))


def numpy_dtype(dtype: DType | str) -> np.dtype[np.generic]:
    """NumPy's type of that name; bfloat16 and 8-bit floats are those of ml_dtypes, which NumPy's arrays are made of; of
    int4 bytes, each of two elements.
    """
    if str(dtype) in _OF_ML_DTYPES:
        import ml_dtypes

        return cast("np.dtype[np.generic]", np.dtype(getattr(ml_dtypes, str(dtype))))
    return np.dtype(np.uint8 if str(dtype) == I4.name else str(dtype))


def in_pairs(elements: NDArray[np.generic], axis: int) -> NDArray[np.uint8]:
    """Whole numbers from -8 to 7 as bytes of two neighbours along an axis, the first in the low half. Behind an odd
    number of them stands a zero.
    """
    lines = np.moveaxis(elements, axis, -1)
    whole = np.pad(lines, [(0, 0)] * (lines.ndim - 1) + [(0, lines.shape[-1] % 2)])
    halves = whole.astype(np.int8).view(np.uint8) & np.uint8(15)
    return np.moveaxis(halves[..., ::2] | halves[..., 1::2] << np.uint8(4), -1, axis)


def of_pairs(pairs: NDArray[np.generic], axis: int, count: int) -> NDArray[np.int8]:
    """So many numbers of such bytes."""
    lines = np.moveaxis(pairs, axis, -1).astype(np.uint8)
    halves = np.stack((lines & 15, lines >> 4), axis=-1).reshape(*lines.shape[:-1], -1)[..., :count]
    return np.moveaxis((halves ^ 8).view(np.int8) - np.int8(8), -1, axis)


def element_type(value: object) -> np.dtype[np.generic]:
    """NumPy's type of what `dtypes.type_name` understands, and of whatever else NumPy makes a type of.

    Raises: TypeError.
    """
    name = type_name(value)
    if name in ALL_DTYPES:
        return numpy_dtype(name)
    return value if isinstance(value, np.dtype) else np.dtype(name)


def numpy_name(dtype: DType | str) -> str:
    """What a program calls NumPy's type."""
    return f"{'ml_dtypes' if str(dtype) in _OF_ML_DTYPES else 'np'}.{dtype}"


def convert(value: object, dtype: DType) -> object:
    """A number or an array in another type, rounded to nearest, ties to even; what is too large becomes infinite."""
    target = numpy_dtype(dtype)
    with np.errstate(over="ignore"):
        return value.astype(target) if isinstance(value, np.ndarray) else cast("type", target.type)(value)


def poison(dtype: np.dtype[np.generic]) -> object:
    """What nobody may use, so that a use shows: NaN, also in both parts, or the least of the integers."""
    if dtype.kind == "c":
        return complex(np.nan, np.nan)
    return np.iinfo(str(dtype)).min if dtype.kind == "i" else np.nan


#: The bits of a float32 that TF32 lacks, and the first of them.
_LOST, _HALF = 0x1FFF, 0x1000


def tf32(value: object) -> object:
    """float32 rounded to TF32's 10 bits after the point, to nearest, ties away from zero, as `cvt.rna.tf32` does; what
    is not finite stays.
    """
    numbers = np.asarray(value, np.float32)
    bits = (numbers.view(np.int32) + np.int32(_HALF)) & np.int32(~_LOST)
    out = np.where(np.isfinite(numbers), bits.view(np.float32), numbers)
    return out if isinstance(value, np.ndarray) else out[()]


def tf32_by_tma(value: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same as TMA rounds by a tensor map of type TFLOAT32: ties to even (seen on an H200)."""
    bits = value.view(np.int32)
    odd = bits >> 13 & 1
    rounded: NDArray[np.float32] = ((bits + (_HALF - 1) + odd) & np.int32(~_LOST)).view(np.float32)
    return np.where(np.isfinite(value), rounded, value)


def _head(value: object) -> object:
    """A float32 without the bits that TF32 lacks."""
    out = (np.asarray(value, np.float32).view(np.int32) & np.int32(~_LOST)).view(np.float32)
    return out if isinstance(value, np.ndarray) else out[()]


def _rest(value: object, head: object) -> object:
    """What a float32 has more than its head, and 2^-23 of it besides, so that only zero has a rest of zero; of what is
    not finite, itself. So no product of heads and rests is NaN where that of the elements is infinite.
    """
    number = np.asarray(value, np.float32)
    with np.errstate(invalid="ignore"):
        rest = number.astype(np.float64) * (1 + 2.0**-23) - np.asarray(head, np.float64)
    out = np.where(np.isfinite(number), rest.astype(np.float32), number)
    return out if isinstance(value, np.ndarray) else out[()]


def _finite_rest(value: object) -> object:
    """The same of a float32 that is finite, and NaN of any other."""
    number = np.asarray(value, np.float32)
    out = np.where(np.isfinite(number), np.asarray(_rest(number, _head(number)), np.float32), np.float32(np.nan))
    return out if isinstance(value, np.ndarray) else out[()]


#: What functions of TF32 mean, by name.
OF_TF32: dict[str, Callable[..., object]] = {
    "tf32": tf32,
    "tf32_head": _head,
    "tf32_rest": _rest,
    "tf32_finite_rest": _finite_rest,
}
