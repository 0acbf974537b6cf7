"""Products of dask's arrays: `gemmgen.gemm` multiplies blocks, and a tree adds up the partial products along K.

    import gemmgen.dask
    z = gemmgen.dask.matmul(x, y)  # lazy; blocks of NumPy's or CuPy's arrays, or read from zarr

A worker that is lost loses no result: its blocks are computed again by the others (docs/dask.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import partial, reduce
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.gemm import gemm
from gemmgen.api.kernels import target_for
from gemmgen.api.libraries import NumPy
from gemmgen.api.promotion import types_of
from gemmgen.errors import DeviceError, DtypeError, SpecError
from gemmgen.spec import GemmSpec

if find_spec("dask") is None:
    raise DeviceError('dask is not installed, and gemmgen.dask is for its arrays: pip install "gemmgen[dask]"')

import dask.array as da

__all__ = ["matmul"]

#: Partial products that a node of the tree adds.
FAN_IN = 2
#: What has chunks, but is none of dask's arrays: zarr's, h5py's.
Source = Any
Block = npt.NDArray[Any]


def matmul(
    x: da.Array | Source,
    y: da.Array | Source,
    *,
    dtype: npt.DTypeLike | None = None,
    invariant: bool = False,
    backend: str | None = None,
    device: int | str | None = None,
) -> da.Array:
    """x @ y as a lazy array of dask's, whose blocks gemmgen's kernels multiply.

    Chunks along K are split where x and y have different ones. Elements of less than 32 bits keep float32 sums until
    the tree's end. The tree's shape follows from the number of chunks alone, so the same chunks give the same bits on
    any number of workers.

    Args:
        x, y: matrices, or a vector and a matrix: dask's arrays, or what has a shape and a type: NumPy's, zarr's.
        dtype: the result's type, as for `gemmgen.gemm`.
        invariant: whether a row has the same bits whatever the chunks along M.
        backend, device: where each worker multiplies NumPy's blocks, as for `gemmgen.gemm`.

    Raises: SpecError with every problem; DtypeError; DeviceError for a device that is not there, which is not known
    beside a client of `distributed`.
    """
    problems, of_types = [*_kind_problems("x", x), *_kind_problems("y", y)], list[str]()
    of_types += [*_type_problems("x", x), *_type_problems("y", y)]
    if problems or of_types:
        raise (DtypeError if of_types else SpecError)([*problems, *of_types])
    left, right = _array(x), _array(y)
    rows, columns = left.ndim == 1, right.ndim == 1
    left, right = left[None, :] if rows else left, right[:, None] if columns else right
    result = _result(left, right, dtype, {"invariant": invariant, "backend": backend}, _problems(left, right))
    _check_device(device, backend)
    sums = np.dtype(np.float32) if result.itemsize < 4 and result.kind not in "biu" else result
    how = {"dtype": sums, "invariant": invariant, "backend": backend, "device": device}
    total = _summed(left, right, partial(_product, how=how), sums)
    total = total if sums == result else total.astype(result)
    return total[(0 if rows else slice(None), 0 if columns else slice(None))] if rows or columns else total


def _summed(left: da.Array, right: da.Array, product: object, sums: np.dtype[Any]) -> da.Array:
    """The partial products of all blocks as an array [m, chunks of K, n], added up along its middle axis by a tree."""
    like = np.empty_like(left._meta, shape=(0, 0, 0), dtype=sums)
    parts = da.blockwise(
        product, "ikj", left, "ik", right, "kj", adjust_chunks={"k": 1}, dtype=sums, meta=like, name=None
    )
    if parts.numblocks[1] < 2:
        return parts[:, 0, :] if parts.shape[1] else da.zeros((left.shape[0], right.shape[1]), dtype=sums)
    return da.reduction(
        parts,
        chunk=_as_it_is,
        combine=_added,
        aggregate=partial(_added, is_last=True),
        axis=1,
        split_every={1: FAN_IN},
        concatenate=False,
        dtype=sums,
        meta=np.empty_like(left._meta, shape=(0, 0), dtype=sums),
    )


def _product(x: Block, y: Block, how: dict[str, Any]) -> Block:
    """A partial product, with an axis for K."""
    return cast("Block", gemm(x, y, **how))[:, None, :]


def _as_it_is(block: Block, axis: object = None, keepdims: bool = True) -> Block:  # noqa: ARG001  (dask passes them)
    return block


def _added(blocks: Block | Sequence[Block], axis: object = None, keepdims: bool = True, is_last: bool = False) -> Block:  # noqa: ARG001
    """Partial products added in order; without the axis for K at the tree's end."""
    listed: list[Block] = blocks if isinstance(blocks, list) else [cast("Block", blocks)]
    total: Block = reduce(np.add, listed)
    return total[:, 0, :] if is_last and not keepdims else total


def _array(value: Any) -> da.Array:
    """An argument as an array of dask's."""
    if not isinstance(value, da.Array):
        value = da.from_array(value, chunks=getattr(value, "chunks", None) or "auto", asarray=False)
    # A numpy.matrix has two dimensions whatever is asked of it, and partial products have three.
    return value.map_blocks(np.asarray, dtype=value.dtype) if isinstance(value._meta, np.matrix) else value


def _kind_problems(name: str, value: Any) -> list[str]:
    """What is wrong with an argument, by its type and its dimensions."""
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return [f"{name} is of type {type(value).__name__}: pass an array of dask, NumPy, CuPy or zarr"]
    count = len(value.shape)
    stacks = f"{name} has {count} dimensions: pass a matrix or a vector, or multiply stacks one by one"
    return [] if count in (1, 2) else [stacks]


def _type_problems(name: str, value: Any) -> list[str]:
    """What is wrong with an argument's elements: NumPy alone multiplies them."""
    dtype = getattr(value, "dtype", None)
    types = types_of(dtype, None, None, []) if isinstance(dtype, np.dtype) else None
    return [f"no kernel has {name}'s elements of {dtype}: cast {name} by astype"] if types and types.on_host else []


def _result(
    left: da.Array, right: da.Array, dtype: npt.DTypeLike | None, how: dict[str, Any], problems: list[str]
) -> np.dtype[Any]:
    """The result's type. Raises: SpecError with the problems, and those of the options."""
    if not (isinstance(left._meta, np.ndarray) and isinstance(right._meta, np.ndarray)):
        how = {**how, "backend": None}  # which is that of arrays on the host
    empty = np.empty((0, 0), left.dtype), np.empty((0, 0), right.dtype)
    try:
        result = cast("Block", gemm(*empty, dtype=dtype, **how)).dtype
    except SpecError as error:
        raise type(error)([*problems, *error.problems]) from None
    types = types_of(result, None, None, [])
    if types is not None and types.on_host:
        raise DtypeError([*problems, f"no kernel makes a result of {result}: pass another dtype, or leave it out"])
    if problems:
        raise SpecError(problems)
    return result


def _check_device(device: int | str | None, backend: str | None) -> None:
    """Raises: DeviceError for a device that this machine lacks, unless workers elsewhere may have it."""
    if device is not None and not _has_workers():
        target_for(backend or NumPy.backends[0], device, GemmSpec())


def _has_workers() -> bool:
    """Whether a client of `distributed` computes what is lazy."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed is not None and bool(distributed.default_client())
    except ValueError:
        return False


def _problems(left: da.Array, right: da.Array) -> list[str]:
    """What is wrong with two matrices, by their shapes and chunks."""
    unknown = [
        f"{name} has chunks of unknown sizes along K: call {name}.compute_chunk_sizes(), or rechunk"
        for name, size in (("x", left.shape[1]), ("y", right.shape[0]))
        if math.isnan(size)
    ]
    if unknown or left.shape[1] == right.shape[0]:
        return unknown
    fitting = {left.shape[0] == right.shape[0]: "pass x.T", left.shape[1] == right.shape[1]: "pass y.T"}
    return [f"x has k = {left.shape[1]}, y k = {right.shape[0]}: {fitting.get(True, 'make them equal')}"]
