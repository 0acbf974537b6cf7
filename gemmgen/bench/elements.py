"""Matrices on a GPU by their elements' type: CuPy's arrays, and torch's tensors where CuPy lacks the type."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from gemmgen.errors import DeviceError
from gemmgen.ir.dtypes import ALL_DTYPES, BF16, F32, F64, FLOAT8, I8

if TYPE_CHECKING:
    import cupy


#: What CuPy lacks, and torch's tensors hold.
OF_TORCH = frozenset(map(str, (BF16, *FLOAT8)))


def require(dtype: str) -> None:
    """Raises: DeviceError where nothing that is installed holds such matrices on a GPU."""
    if dtype in OF_TORCH and not find_spec("torch"):
        raise DeviceError(f"matrices of {dtype} are torch's tensors here, but torch is missing: pip install torch")


def of_type(array: object, dtype: str) -> object:
    """A CuPy array of float32 in another type, rounded to nearest."""
    import cupy

    numbers = cupy.asarray(array)
    if dtype not in OF_TORCH:
        return numbers.astype(dtype, copy=False)
    import torch

    return torch.from_dlpack(numbers).to(getattr(torch, dtype))


def random(rng: cupy.random.Generator, shape: tuple[int, ...], dtype: str) -> object:
    """Normal numbers; of int8, any."""
    if dtype == I8.name:
        return rng.integers(-128, 128, shape).astype(dtype)
    return of_type(rng.standard_normal(shape, dtype=dtype if dtype == F64.name else F32.name), dtype)


def poison(shape: tuple[int, ...], dtype: str) -> object:
    """What no product is: NaN, or the least integer."""
    import cupy

    if not ALL_DTYPES[dtype].is_float:
        return cupy.full(shape, cupy.iinfo(dtype).min, dtype)
    return of_type(cupy.full(shape, cupy.nan, dtype if dtype == F64.name else F32.name), dtype)


def plain(matrix: object) -> object:
    """Its numbers as a CuPy array of a type that CuPy computes with."""
    import cupy

    if isinstance(matrix, cupy.ndarray):
        return matrix
    import torch

    assert isinstance(matrix, torch.Tensor)
    return cupy.from_dlpack(matrix.float().contiguous())


def stored(matrix: object, order: str) -> object:
    """The matrix stored by rows or by columns."""
    import cupy

    if order == "row":
        return matrix
    if isinstance(matrix, cupy.ndarray):
        return cupy.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)
    import torch

    assert isinstance(matrix, torch.Tensor)
    return matrix.transpose(-1, -2).contiguous().transpose(-1, -2)
