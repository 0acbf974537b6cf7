"""The array libraries of `gemmgen.gemm`: the interface `Library` (views, converting copies, new arrays), the libraries
of arrays in the host's memory, of pyopencl and of a GPU, and how a call's library is found.
"""

from __future__ import annotations

import numbers
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.matmul import Call, Operand, Shape
from gemmgen.errors import LoweringError, SpecError
from gemmgen.ir.dtypes import BF16, FLOAT8, I8, I32
from gemmgen.ir.numeric import element_type, numpy_dtype
from gemmgen.runtime.cuda_arrays import (
    ALIGNMENT,
    DLPACK_CUDA,
    WITHOUT_GRADIENT,
    TorchTensor,
    as_matrix,
    widened,
    without_strides,
)
from gemmgen.runtime.cuda_memory import Memory, memory_of
from gemmgen.runtime.views import ArrayLike, DeviceMatrix, Numbers, is_device_array, loaded, mask_problems
from gemmgen.spec import Order

if TYPE_CHECKING:
    from pyopencl.array import Array

Dtype = np.dtype[np.generic]


class Library(ABC):
    """The arrays of one library, on one device.

    Attributes:
        name: for messages.
        backends: the backends that can use its arrays, the preferred one first.
        converts: whether it makes copies in another type, or with regular strides.
        has_float8: whether a backend has kernels of 8-bit floats.
        casts_by: the method of its arrays that makes copies in another type, for messages.
    """

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]]
    converts: ClassVar[bool] = True
    has_float8: ClassVar[bool] = False
    casts_by: str = "astype"

    @abstractmethod
    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        """An argument, which may be the array for the result, with its layout; None with problems added."""

    @abstractmethod
    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        """The array for a kernel. Its elements are seen as another type of the same size."""

    @abstractmethod
    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        """A copy in a new array of a type, row-major and without gaps."""

    @abstractmethod
    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:
        """A new array on the same device as another."""

    @abstractmethod
    def assign(self, target: Operand, source: Operand) -> None:
        """Copy elements to an array, with broadcasting and conversion."""

    @abstractmethod
    def assign_rows(self, target: Operand, source: Operand, ends: Operand) -> None:
        """Copy the rows before the last end to a matrix, with conversion. There is an end at least."""

    def finish(self, result: Operand) -> object:
        """A new result in the form that the caller gets."""
        return result.array

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        """The type to which two types promote. Raises: TypeError."""
        return np.result_type(a, b)

    def default_result(self, promoted: Dtype) -> Dtype:
        """The type of a result where none is asked for, by the type to which a and b promote (docs/types.md)."""
        return promoted

    def is_aligned(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether the elements are aligned to their type."""
        return True

    def fits_vectors(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether the array's address is aligned for kernels' vectors."""
        return True

    def order(self, operand: Operand) -> Order | None:
        """The order in which kernels see each matrix of a stack; None if they can't use it."""
        return operand.order

    def prefers_mirror(self, call: Call) -> bool:  # noqa: ARG002
        """Whether computing the transpose of C is faster, for any types and device."""
        return False

    def begins_lines(self, operand: Operand, elements: int) -> bool:  # noqa: ARG002
        """Whether its lines are a multiple of `elements` apart, and the first is aligned for vectors."""
        return False

    def is_writable(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether the array is writable."""
        return True

    def must_wait(self) -> bool:
        """Whether a call must run the kernel that is chosen for it, as for a graph that keeps it."""
        return False

    def device(self, operand: Operand) -> object:  # noqa: ARG002
        """The device that holds the array, for which the kernel is made; None for any."""
        return None


class NumPy(Library):
    """NumPy's arrays, and everything that NumPy converts to one."""

    name = "NumPy"
    backends = ("opencl", "sycl")

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        if masked := mask_problems(name, value):
            problems += masked
            return None
        if not isinstance(value, np.ndarray):
            if is_written:
                problems.append(f"{name} is of type {type(value).__name__}, not an array: pass one of NumPy's")
                return None
            given = value
            try:
                value = np.asarray(value)
            except Exception as error:  # noqa: BLE001  (whatever the object's own conversion says)
                why = str(error).rstrip(".")
                problems.append(f"{name} ({type(value).__name__}) makes no array: {why}. {_alike(value)}")
                return None
            if not value.ndim and not isinstance(given, numbers.Number | np.generic):
                made = (f"{name}.{method}()" for method in ("toarray", "dequantized") if hasattr(given, method))
                remedy = next(made, "one of NumPy's")
                problems.append(f"{name} is of type {type(given).__name__}, not an array: pass {remedy}")
                return None
        return Operand(value, value.shape, value.strides, value.dtype)

    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        array = cast(Numbers, operand.array)
        if operand.shape == array.shape and operand.strides == array.strides:
            return array if array.dtype is dtype else array.view(dtype)
        known = array.__array_interface__
        address, readonly = known["data"]
        place = {**known, "data": (address + operand.offset, readonly), "shape": operand.shape}
        view = np.asarray(_Memory({**place, "strides": operand.strides}, array))
        return view if view.dtype is dtype else view.view(dtype)

    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        array = np.array(self._array(operand), dtype, order="C")
        return Operand(array, operand.shape, array.strides, array.dtype)

    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:  # noqa: ARG002
        array: Numbers = np.empty(shape, dtype)
        return Operand(array, array.shape, array.strides, array.dtype)

    def assign(self, target: Operand, source: Operand) -> None:
        np.copyto(self._array(target), self._array(source), casting="unsafe")

    def assign_rows(self, target: Operand, source: Operand, ends: Operand) -> None:
        end = int(self._array(ends)[-1])
        np.copyto(self._array(target)[:end], self._array(source)[:end], casting="unsafe")

    def finish(self, result: Operand) -> object:
        # As in matmul, the product of two vectors is a scalar.
        return cast(Numbers, result.array)[()]

    def default_result(self, promoted: Dtype) -> Dtype:
        # As numpy.matmul has it of ml_dtypes' types, which have no products of their own.
        return np.dtype(np.float32) if promoted.name in _FLOAT8 else promoted

    def is_aligned(self, operand: Operand) -> bool:
        return cast(Numbers, operand.array).flags.aligned

    def is_writable(self, operand: Operand) -> bool:
        return cast(Numbers, operand.array).flags.writeable

    def _array(self, operand: Operand) -> Numbers:
        return cast(Numbers, self.view(operand, operand.dtype))


def _alike(value: object) -> str:
    """The remedy for a list of unlike parts."""
    if isinstance(value, list | tuple) and all(isinstance(x, np.ndarray) and x.ndim == 2 for x in value):
        return "Pass matrices of one shape; gemm takes others beside a list of results as out"
    return "Pass rows of one length"


class _Memory:
    """The memory of an array with other strides and another first element. It keeps the array alive."""

    def __init__(self, interface: dict[str, object], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


class Matrices(NumPy):
    """NumPy's arrays with a `numpy.matrix` among them: so is a new result."""

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        plain = value.view(np.ndarray) if isinstance(value, np.matrix) else value
        return super().operand(name, plain, problems, is_written)

    def finish(self, result: Operand) -> object:
        return cast(Numbers, result.array).view(np.matrix)


class Standard(NumPy):
    """Arrays in the host's memory of another library of the array API standard, by DLPack."""

    name = "DLPack's"

    def __init__(self, like: object) -> None:
        self._like = like

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        try:
            array = np.from_dlpack(cast("npt.NDArray[np.generic]", value))
        except Exception as error:  # noqa: BLE001  (whatever the array's own library says)
            problems.append(f"{name} ({type(value).__name__}) does not give its memory away: {error}")
            return None
        return super().operand(name, array, problems, is_written)

    def finish(self, result: Operand) -> object:
        namespace = cast("_Standard", self._like).__array_namespace__()
        return namespace.from_dlpack(result.array)


class _Standard(Protocol):
    """The members of an array of the standard, and of its library, that are used."""

    def __array_namespace__(self) -> _Standard: ...
    def from_dlpack(self, value: object) -> object: ...


class TorchHost(NumPy):
    """torch tensors in the host's memory, seen by NumPy without a copy."""

    name = "torch (CPU)"
    casts_by = ".to()"

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        if not loaded("torch", "Tensor", value):
            return super().operand(name, value, problems, is_written)
        import torch

        tensor = cast(TorchTensor, value)
        dtype = str(tensor.dtype).removeprefix("torch.")
        asks = tensor.requires_grad and torch.is_grad_enabled()
        wrong = {
            f"requires a gradient: {WITHOUT_GRADIENT.format(name)}": asks,
            f"is a tensor on {tensor.device}, without elements: call gemmgen.torch.gemm": tensor.device.type != "cpu",
            f"is {(kind := without_strides(tensor))}: pass {name}.to_dense()": bool(kind),
            f"is a negated view, which memory does not show: pass {name}.resolve_neg()": tensor.is_neg(),
            f"is a conjugated view, which memory does not show: pass {name}.resolve_conj()": tensor.is_conj(),
            f"has dtype {dtype}, which no kernel takes: pass {widened(name, dtype)}": dtype in _UNKNOWN,
        }
        problems += (f"{name} {what}" for what, there in wrong.items() if there)
        if any(wrong.values()):
            return None
        array = tensor.detach().view(getattr(torch, _SEEN_AS[dtype])) if dtype in _SEEN_AS else tensor.detach()
        numbers = array.numpy()
        return super().operand(
            name, numbers.view(numpy_dtype(dtype)) if dtype in _SEEN_AS else numbers, problems, is_written
        )

    def finish(self, result: Operand) -> object:
        return host_tensor(result.array)

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        return torch_promoted(a, b)

    def default_result(self, promoted: Dtype) -> Dtype:
        return torch_result(promoted)


#: torch's types that NumPy lacks, and what they are seen as on the way.
_FLOAT8 = tuple(map(str, FLOAT8))
_SEEN_AS = {BF16.name: "int16", **dict.fromkeys(_FLOAT8, "uint8")}
#: Those that no kernel takes.
_UNKNOWN = ("complex32", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2")


#: torch's types that NumPy has, too (bfloat16 by ml_dtypes), so that promotion and results are the same in both.
_NUMPYS = frozenset("float64 float32 float16 complex64 complex128 int8 int16 int32 int64 uint8 bool bfloat16".split())


@cache
def _name_of(dtype: object) -> str | None:
    """The name of a type of torch's that NumPy has, too."""
    name = str(dtype).removeprefix("torch.")
    return name if name in _NUMPYS else None


def host_arrays(given: Sequence[object], records: bool) -> list[Numbers | None] | None:
    """CPU tensors of one type as NumPy's arrays over the same memory; None if any is none that NumPy sees as it is.

    Args:
        given: A first; None for what was left out.
        records: whether autograd is on, so that tensors that require a gradient are refused.
    """
    torch = sys.modules["torch"]
    dtype, arrays = cast(TorchTensor, given[0]).dtype, list[Numbers | None]()
    name = _name_of(dtype)
    if name is None:
        return None
    plain, as_bits = (torch.Tensor, torch.nn.Parameter), name in _SEEN_AS
    for tensor in cast("Sequence[TorchTensor | None]", given):
        if tensor is None:
            arrays.append(None)
            continue
        if type(tensor) not in plain or tensor.dtype is not dtype:
            return None
        if tensor.requires_grad:
            if records:
                return None
            tensor = tensor.detach()
        try:  # it refuses other devices and layouts, and views that are conjugated or negated
            seen = tensor.view(torch.int16).numpy() if as_bits else tensor.numpy()
        except (RuntimeError, TypeError):
            return None
        arrays.append(seen.view(numpy_dtype(name)) if as_bits else seen)
    return arrays


def host_tensor(result: object) -> object:
    """An array, or a number, as a tensor over the same memory."""
    import torch

    array = np.asarray(result)
    if array.dtype.name in _SEEN_AS:
        return torch.from_numpy(array.view(_SEEN_AS[array.dtype.name])).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def torch_result(promoted: Dtype) -> Dtype:
    """The type of a product of tensors where none is asked for: bfloat16 of 8-bit floats, which add up to more."""
    return numpy_dtype(BF16) if promoted.name in _FLOAT8 else promoted


def torch_promoted(a: Dtype, b: Dtype) -> Dtype:
    """The type to which torch promotes two types. Raises: TypeError."""
    import torch

    try:
        return element_type(torch.promote_types(getattr(torch, a.name), getattr(torch, b.name)))
    except RuntimeError as error:
        raise TypeError(str(error)) from None


# --- pyopencl -------------------------------------------------------------------------------------


class OpenCL(Library):
    """pyopencl's arrays. A result carries the event of its completion."""

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
        # View and array share one list of events, so that users of the array wait for the view's work.
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

    def assign_rows(self, target: Operand, source: Operand, ends: Operand) -> None:
        # pyopencl has no copy by a mask that the device makes: this waits for the offsets.
        to, given = cast("Array", target.array), cast("Array", source.array)
        if not (to.flags.c_contiguous and given.flags.c_contiguous):
            raise SpecError("pyopencl copies no rows of a column-major matrix: pass a row-major result, or c itself")
        if end := int(cast("Array", ends.array).get()[-1]):
            to[:end] = given[:end]

    def device(self, operand: Operand) -> object:
        array = cast("Array", operand.array)
        return array.context.devices[0] if array.queue is None else array.queue.device


# --- CuPy and torch on a GPU ----------------------------------------------------------------------


class Gpu(Library):
    """Arrays on one GPU; work on them goes to the current stream of their library."""

    name = "a GPU's"
    backends = ("cuda",)
    has_float8 = True

    def __init__(self, is_torch: bool) -> None:
        self.is_torch = is_torch
        self.casts_by = TorchHost.casts_by if is_torch else Library.casts_by

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:  # noqa: ARG002
        matrix = as_matrix(name, value, problems)
        if not isinstance(matrix, DeviceMatrix):
            return None
        return Operand(matrix, matrix.shape, matrix.strides, matrix.dtype)

    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        matrix = cast(DeviceMatrix, operand.array)
        pointer = matrix.pointer + operand.offset
        return replace(matrix, shape=operand.shape, strides=operand.strides, pointer=pointer, dtype=dtype)

    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        copied = self.empty(operand.shape, dtype, operand)
        self.assign(copied, operand)
        return copied

    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:
        matrix = self._memory(like).empty(shape, dtype, cast(DeviceMatrix, like.array).device)
        return Operand(matrix, matrix.shape, matrix.strides, matrix.dtype)

    def assign(self, target: Operand, source: Operand) -> None:
        to, memory = cast(DeviceMatrix, target.array), self._memory(target)
        memory.assign(self._array(memory, target), self._array(self._memory(source), source), to.device)

    def assign_rows(self, target: Operand, source: Operand, ends: Operand) -> None:
        to, memory = cast(DeviceMatrix, target.array), self._memory(target)
        into, given, last = (self._array(self._memory(x), x) for x in (target, source, ends))
        memory.assign_rows(into, given, last, to.device)

    def finish(self, result: Operand) -> object:
        return cast(DeviceMatrix, result.array).array

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        return torch_promoted(a, b) if self.is_torch else np.result_type(a, b)

    def default_result(self, promoted: Dtype) -> Dtype:
        if not self.is_torch:
            return promoted
        # torch itself has no product of int8 on GPUs but `torch._int_mm`, whose result is int32.
        return numpy_dtype(I32) if promoted.name == I8.name else torch_result(promoted)

    def fits_vectors(self, operand: Operand) -> bool:
        return (cast(DeviceMatrix, operand.array).pointer + operand.offset) % ALIGNMENT == 0

    def order(self, operand: Operand) -> Order | None:
        return operand.order_by_lines

    def prefers_mirror(self, call: Call) -> bool:
        # Stores take neighbours of a row at a time, and for a vector there are tiles of few rows.
        return self.order(call.c) == "col"

    def begins_lines(self, operand: Operand, elements: int) -> bool:
        order = self.order(operand)
        if order is None or not self.fits_vectors(operand):
            return False
        fast = len(operand.shape) - (1 if order == "row" else 2)
        steps = zip(operand.shape, operand.strides, strict=True)
        slow = [step for axis, (extent, step) in enumerate(steps) if axis != fast and extent > 1]
        return all(step % (elements * operand.dtype.itemsize) == 0 for step in slow)

    def must_wait(self) -> bool:
        torch = sys.modules.get("torch")
        try:
            return torch is not None and bool(torch.cuda.is_current_stream_capturing())
        except RuntimeError:
            # Of a fork, where CUDA does not work: the launch says so, with a remedy.
            return True

    def is_writable(self, operand: Operand) -> bool:
        return not cast(DeviceMatrix, operand.array).readonly

    def device(self, operand: Operand) -> object:
        return cast(DeviceMatrix, operand.array).device

    @staticmethod
    def _memory(operand: Operand) -> Memory:
        return memory_of(cast(DeviceMatrix, operand.array).maker)

    @staticmethod
    def _array(memory: Memory, operand: Operand) -> object:
        """An array of the library over the same memory."""
        return memory.strided(cast(DeviceMatrix, operand.array), operand.shape, operand.strides)


# --- the library of a call's arguments ------------------------------------------------------------

Kind = Literal["NumPy", "pyopencl", "a GPU", "torch (CPU)", "DLPack (CPU)"]
_REMEDIES: dict[Kind, str] = {
    "pyopencl": "pyopencl.array.to_device(queue, x)",
    "a GPU": "cupy.asarray(x) or x.cuda()",
    "torch (CPU)": "torch.from_numpy(x)",
    "DLPack (CPU)": "its library's from_dlpack(x)",
    "NumPy": "np.asarray(x)",
}
_NUMPY = NumPy()


def library_of(values: Mapping[str, object], backend: str | None) -> Library:
    """The library of a call's arrays. Raises: SpecError if there are several, or if no backend can use the arrays."""
    kinds = {name: kind_of(value) for name, value in values.items() if value is not None}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name} is {kind}'s" for name, kind in kinds.items())
        there = next(remedy for kind, remedy in _REMEDIES.items() if kind in kinds.values())
        raise SpecError(f"arrays of two kinds are mixed ({listed}): make all of one kind, as by {there}")
    library = _library(next(iter(kinds.values()), "NumPy"), values)
    if backend is not None and backend not in library.backends:
        known = " or ".join(library.backends)
        remedy = ", or move the arrays to a GPU: cupy.asarray(x)" if backend == "cuda" else ""
        raise SpecError(f"backend {backend!r} does not take {library.name} arrays: use {known}{remedy}")
    return library


def kind_of(value: object) -> Kind:
    """The library of a value. Values of no known library are left to NumPy."""
    if isinstance(value, np.ndarray):
        return "NumPy"
    if is_device_array(value):
        return "a GPU" if isinstance(value, DeviceMatrix) else "pyopencl"
    if loaded("torch", "Tensor", value):
        return "torch (CPU)" if cast(TorchTensor, value).device.type in ("cpu", "meta") else "a GPU"
    if loaded("cupy", "ndarray", value) or hasattr(value, "__cuda_array_interface__"):
        return "a GPU"
    where = getattr(value, "__dlpack_device__", None)
    if callable(where) and hasattr(value, "__array_namespace__"):
        return "a GPU" if cast("tuple[int, int]", where())[0] in DLPACK_CUDA else "DLPack (CPU)"
    return "NumPy"


def _library(kind: Kind, values: Mapping[str, object]) -> Library:
    match kind:
        case "pyopencl":
            return OpenCL()
        case "a GPU":
            return Gpu(all(loaded("torch", "Tensor", value) for value in values.values() if value is not None))
        case "torch (CPU)":
            return TorchHost()
        case "DLPack (CPU)":
            return Standard(next(value for value in values.values() if value is not None))
    return Matrices() if any(isinstance(value, np.matrix) for value in values.values()) else _NUMPY
