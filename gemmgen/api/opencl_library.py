"""What `gemmgen.gemm` asks of pyopencl's arrays, which are multiplied as they are or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gemmgen.api.libraries import Dtype, Library
from gemmgen.api.matmul import Operand, Shape
from gemmgen.errors import LoweringError
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.runtime.views import is_device_array

if TYPE_CHECKING:
    from pyopencl.array import Array


class OpenCL(Library):
    """pyopencl's arrays; a result carries the event that it is there after."""

    name = "pyopencl"
    backends = ("opencl",)
    converts = False

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:  # noqa: ARG002
        if not is_device_array(value):
            remedy = f"pass pyopencl.array.to_device(queue, np.asarray({name}))"
            problems.append(f"{name} is of type {type(value).__name__}, but a is pyopencl's: {remedy}")
            return None
        array = cast("Array", value)
        return Operand(array, array.shape, array.strides, array.dtype)

    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        import pyopencl.array as cl_array

        array = cast("Array", operand.array)
        if operand.shape == array.shape and operand.strides == array.strides and dtype == array.dtype:
            return cast(ArrayLike, array)
        # Events are shared, so that what is queued for the view is waited for by the array's users.
        return cast(
            ArrayLike,
            cl_array.Array(
                array.queue or array.context,
                operand.shape,
                dtype,
                strides=operand.strides,
                data=array.base_data,
                offset=array.offset + operand.offset,
                events=array.events,
            ),
        )

    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        raise LoweringError(f"pyopencl's arrays are not copied: {operand.dtype} by {operand.strides} to {dtype}")

    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:
        import pyopencl.array as cl_array

        array = cl_array.empty(cast("Array", like.array).queue, shape, dtype)
        return Operand(array, array.shape, array.strides, array.dtype)

    def assign(self, target: Operand, source: Operand) -> None:
        cast("Array", target.array)[...] = cast("Array", source.array)

    def device(self, operand: Operand) -> object:
        array = cast("Array", operand.array)
        return array.context.devices[0] if array.queue is None else array.queue.device
