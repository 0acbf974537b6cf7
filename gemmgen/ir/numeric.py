"""Scalar types as NumPy has them."""

from __future__ import annotations

from typing import cast

import numpy as np

from gemmgen.ir.dtypes import BF16, DType


def numpy_dtype(dtype: DType | str) -> np.dtype[np.generic]:
    """NumPy's type of that name; bfloat16 is the one of ml_dtypes, which is what NumPy arrays of it are made of."""
    if str(dtype) == BF16.name:
        import ml_dtypes

        return cast("np.dtype[np.generic]", np.dtype(ml_dtypes.bfloat16))
    return np.dtype(str(dtype))


def numpy_name(dtype: DType | str) -> str:
    """What a program calls NumPy's type."""
    return f"{'ml_dtypes' if str(dtype) == BF16.name else 'np'}.{dtype}"


def convert(value: object, dtype: DType) -> object:
    """A number or an array in another type, rounded to nearest, ties to even."""
    target = numpy_dtype(dtype)
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
