"""What `gemmgen.gemm` asks of the library of arrays in a GPU's memory: CuPy, torch; others' are seen as CuPy's."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from gemmgen.api.libraries import Dtype, Library, torch_promoted
from gemmgen.api.matmul import Call, Operand, Shape
from gemmgen.runtime import require_cupy
from gemmgen.runtime.cuda import CupyLibrary
from gemmgen.runtime.cuda_arrays import ALIGNMENT, GpuMatrix, as_matrix
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.spec import Order


class Gpu(Library):
    """Arrays on one GPU; work on them goes to the current stream of their library."""

    name = "a GPU's"
    backends = ("cuda",)

    def __init__(self, is_torch: bool) -> None:
        self.is_torch = is_torch

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:  # noqa: ARG002
        require_cupy()
        matrix = as_matrix(name, value, CupyLibrary(), problems)
        if not isinstance(matrix, GpuMatrix):
            return None
        return Operand(matrix, matrix.shape, matrix.strides, matrix.dtype)

    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        matrix = cast(GpuMatrix, operand.array)
        pointer = matrix.pointer + operand.offset
        return replace(matrix, shape=operand.shape, strides=operand.strides, pointer=pointer, dtype=dtype)

    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        copied = self.empty(operand.shape, dtype, operand)
        self.assign(copied, operand)
        return copied

    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:
        where = cast(GpuMatrix, like.array)
        made: object
        if where.maker == "torch":
            import torch

            made = torch.empty(shape, dtype=getattr(torch, dtype.name), device=torch.device("cuda", where.device))
        else:
            import cupy

            with cupy.cuda.Device(where.device):
                made = cupy.empty(shape, dtype)
        matrix = cast(GpuMatrix, as_matrix("out", made, CupyLibrary(), []))
        return Operand(matrix, matrix.shape, matrix.strides, matrix.dtype)

    def assign(self, target: Operand, source: Operand) -> None:
        to, numbers = self._array(target), self._array(source)
        if cast(GpuMatrix, target.array).maker == "torch":
            cast("_Tensor", to).copy_(numbers)
            return
        import cupy

        with cupy.cuda.Device(cast(GpuMatrix, target.array).device):
            cupy.copyto(to, numbers, casting="unsafe")

    def finish(self, result: Operand) -> object:
        return cast(GpuMatrix, result.array).array

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        return torch_promoted(a, b) if self.is_torch else np.result_type(a, b)

    def fits_vectors(self, operand: Operand) -> bool:
        return (cast(GpuMatrix, operand.array).pointer + operand.offset) % ALIGNMENT == 0

    def order(self, operand: Operand) -> Order | None:
        return operand.order_by_lines

    def prefers_mirror(self, call: Call) -> bool:
        # Neighbours of a row are stored at a time, and for a vector there are tiles of few rows.
        return self.order(call.c) == "col"

    def begins_lines(self, operand: Operand, elements: int) -> bool:
        order = self.order(operand)
        if order is None or not self.fits_vectors(operand):
            return False
        fast = len(operand.shape) - (1 if order == "row" else 2)
        steps = zip(operand.shape, operand.strides, strict=True)
        slow = [step for axis, (extent, step) in enumerate(steps) if axis != fast and extent > 1]
        return all(step % (elements * operand.dtype.itemsize) == 0 for step in slow)

    def is_writable(self, operand: Operand) -> bool:
        return not cast(GpuMatrix, operand.array).readonly

    def device(self, operand: Operand) -> object:
        return cast(GpuMatrix, operand.array).device

    def _array(self, operand: Operand) -> object:
        """An array of the library over the same memory."""
        matrix = cast(GpuMatrix, operand.array)
        if matrix.maker == "torch":
            import torch

            item = operand.dtype.itemsize
            return torch.as_strided(matrix.array, operand.shape, [step // item for step in operand.strides])
        import cupy

        if matrix.maker == "cupy":
            return cupy.lib.stride_tricks.as_strided(matrix.array, operand.shape, operand.strides)
        size = sum((extent - 1) * step for extent, step in zip(operand.shape, operand.strides, strict=True))
        memory = cupy.cuda.UnownedMemory(matrix.pointer, size + operand.dtype.itemsize, matrix.array, matrix.device)
        begin = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(operand.shape, operand.dtype, begin, operand.strides)


class _Tensor:
    """What is called of a `torch.Tensor`."""

    def copy_(self, source: object) -> None: ...
