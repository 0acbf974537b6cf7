"""Matrices in a GPU's memory, whoever made them: CuPy, torch, `__cuda_array_interface__` or DLPack. Never copied."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.numeric import numpy_dtype

Maker = Literal["cupy", "torch", "other"]
#: Bytes that vectors, and lines that are copied by boxes, want addresses to be multiples of.
ALIGNMENT = 16
#: A preset whose kernel takes matrices at any address, for remedies.
UNALIGNED_PRESET = "lds_8x8_16x16_k1"
#: `__dlpack_device__` of memory that kernels reach: kDLCUDA and kDLCUDAManaged.
DLPACK_CUDA = (2, 13)


@dataclass(frozen=True, slots=True)
class GpuMatrix:
    """An array as it lies in a GPU's memory.

    Attributes:
        strides: in bytes.
        pointer: the address of its first element.
        device: the GPU's number.
        maker: what library the array belongs to, and so the result.
        array: as it was given.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[np.generic]
    pointer: int
    device: int
    maker: Maker = "other"
    readonly: bool = False
    array: object = field(default=None, repr=False, compare=False)


class CupyArray(Protocol):
    """What is read of a `cupy.ndarray`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def data(self) -> CupyPointer: ...


class CupyPointer(Protocol):
    """Where a `cupy.ndarray` begins."""

    ptr: int
    device_id: int


class TorchDevice(Protocol):
    """What is read of a `torch.device`."""

    type: str
    index: int


class TorchTensor(Protocol):
    """What is read of a `torch.Tensor`."""

    shape: Sequence[int]
    dtype: object
    device: TorchDevice
    requires_grad: bool
    is_sparse: bool

    def stride(self) -> tuple[int, ...]: ...
    def data_ptr(self) -> int: ...
    def element_size(self) -> int: ...
    def is_neg(self) -> bool: ...
    def is_conj(self) -> bool: ...
    def view(self, dtype: object) -> TorchTensor: ...
    def numpy(self) -> npt.NDArray[np.generic]: ...


class Library(Protocol):
    """What is asked of CuPy: the device that an address belongs to, and an array over a DLPack capsule."""

    def device_of(self, pointer: int) -> int: ...
    def from_dlpack(self, value: object) -> CupyArray: ...


def loaded(module: str, name: str, value: object) -> bool:
    """Whether `value` is an instance of a class of a module, without importing that."""
    there = sys.modules.get(module)
    return there is not None and isinstance(value, cast("type", getattr(there, name, ())))


def as_matrix(name: str, value: object, library: Library, problems: list[str]) -> object:
    """A `GpuMatrix`, or `value` itself with a problem noted; None stays None, and a `GpuMatrix` what it is."""
    if value is None or isinstance(value, GpuMatrix):
        return value
    before = len(problems)
    matrix: GpuMatrix | None = None
    if isinstance(value, np.ndarray):
        problems.append(f"{name} is a NumPy array, in the host's memory: pass cupy.asarray({name})")
    elif loaded("cupy", "ndarray", value):
        matrix = _from_cupy(cast(CupyArray, value), "cupy", value)
    elif loaded("torch", "Tensor", value):
        matrix = _from_torch(name, cast(TorchTensor, value), problems)
    else:
        matrix = _from_protocol(name, value, library, problems)
    if matrix is None and len(problems) == before:
        problems.append(
            f"{name} is of type {type(value).__name__}, not an array in a GPU's memory: pass cupy.asarray({name})"
        )
    return value if matrix is None else matrix


def _from_cupy(value: CupyArray, maker: Maker, array: object) -> GpuMatrix:
    where = value.data
    return GpuMatrix(value.shape, value.strides, value.dtype, where.ptr, where.device_id, maker, False, array)


def _from_torch(name: str, value: TorchTensor, problems: list[str]) -> GpuMatrix | None:
    dtype = str(value.dtype).removeprefix("torch.")
    if value.device.type != "cuda":
        problems.append(f"{name} is a tensor on {value.device.type!r}, not on a GPU: pass {name}.cuda()")
        return None
    if value.requires_grad:
        problems.append(f"{name} requires a gradient, which no kernel here computes: pass {name}.detach()")
    if value.is_sparse:
        problems.append(f"{name} is sparse: pass {name}.to_dense()")
        return None
    if value.is_neg():
        problems.append(f"{name} is a negated view, which memory does not show: pass {name}.resolve_neg()")
    if value.is_conj():
        remedy = f"pass {name}.resolve_conj(), or compile a GemmSpec with conj_{name}"
        problems.append(f"{name} is a conjugated view, which memory does not show: {remedy}")
    try:
        element = numpy_dtype(dtype)
    except TypeError:
        problems.append(f"{name} has dtype {dtype}, which no kernel takes: pass {name}.float(), say")
        return None
    size = value.element_size()
    strides = tuple(step * size for step in value.stride())
    pointer, device = value.data_ptr(), value.device.index
    return GpuMatrix(tuple(value.shape), strides, element, pointer, device, "torch", False, value)


def _from_protocol(name: str, value: object, library: Library, problems: list[str]) -> GpuMatrix | None:
    """By `__cuda_array_interface__`, else by DLPack."""
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return _from_interface(cast("Mapping[str, object]", interface), library, value)
        where = getattr(value, "__dlpack_device__", None)
        if where is None or not hasattr(value, "__dlpack__"):
            return None
        if where()[0] not in DLPACK_CUDA:
            problems.append(f"{name} lies in the host's or another device's memory: move it to a GPU of CUDA first")
            return None
        return _from_cupy(library.from_dlpack(value), "other", value)
    except Exception as error:  # noqa: BLE001  (whatever the array's own library says)
        problems.append(f"{name} ({type(value).__name__}) does not give its memory away: {error}")
        return None


def _from_interface(interface: Mapping[str, object], library: Library, array: object) -> GpuMatrix:
    shape = cast("tuple[int, ...]", tuple(cast("Sequence[int]", interface["shape"])))
    dtype: np.dtype[np.generic] = np.dtype(cast("str", interface["typestr"]))
    pointer, readonly = cast("tuple[int, bool]", interface["data"])
    strides = cast("tuple[int, ...] | None", interface.get("strides"))
    if strides is None:
        steps = np.cumprod((dtype.itemsize, *shape[:0:-1]), dtype=np.int64)[::-1]
        strides = tuple(int(step) for step in steps[-len(shape) :]) if shape else ()
    device = library.device_of(pointer) if pointer else 0
    return GpuMatrix(shape, tuple(strides), dtype, pointer, device, "other", bool(readonly), array)


def placement_problems(matrices: Mapping[str, object], alignment: int, device: int | None, output: str) -> list[str]:
    """What is wrong with where matrices lie: devices, addresses, a result that may not be written.

    Args:
        alignment: bytes that addresses must be multiples of.
        device: the GPU that the kernel is bound to, or None.
    """
    known = {name: matrix for name, matrix in matrices.items() if isinstance(matrix, GpuMatrix)}
    problems = []
    places = {matrix.device for matrix in known.values()}
    if len(places) > 1:
        listed = ", ".join(f"{name} on {matrix.device}" for name, matrix in known.items())
        problems.append(f"arrays lie on several GPUs ({listed}): move all of them to one")
    elif device is not None and places and places != {device}:
        problems.append(
            f"arrays lie on GPU {places.pop()}, but the kernel was compiled for GPU {device}: "
            "move them there, or compile without device="
        )
    for name, matrix in known.items():
        # What an epilogue takes is read element by element.
        unit = max(1 if name in OPERANDS else alignment, matrix.dtype.itemsize)
        if 0 not in matrix.shape and matrix.pointer % unit:
            copy = f"{name}.clone()" if matrix.maker == "torch" else f"{name}.copy()"
            problems.append(
                f"{name} begins {matrix.pointer % unit} bytes past a multiple of {unit}, which the kernel's vectors "
                f"need: pass {copy}, or compile {UNALIGNED_PRESET!r}, which takes any view"
            )
    result = known.get(output)
    if result is not None and result.readonly:
        problems.append(f"{output} is read-only: pass a writable array, or leave {output} out to have it allocated")
    return problems
