"""Arrays in a GPU's memory, of CuPy, torch, `__cuda_array_interface__` or DLPack, as one type, never copied."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.runtime import INSTALL_CUDA, cuda_driver
from gemmgen.runtime.views import DeviceMatrix, Maker, loaded
from gemmgen.spec import OFFSETS

#: The alignment in bytes that vectors, and lines that TMA copies, require.
ALIGNMENT = 16
#: A preset whose kernel takes matrices at any address; error messages suggest it.
UNALIGNED_PRESET = "lds_8x8_16x16_k1"
#: What to do with a tensor that requires a gradient, by its name.
WITHOUT_GRADIENT = "call gemmgen.torch.gemm, which records it, or pass {0}.detach(), or call it under torch.no_grad()"
#: `__dlpack_device__` of memory that kernels reach: kDLCUDA and kDLCUDAManaged.
DLPACK_CUDA = (2, 13)


class CupyArray(Protocol):
    """The members of a `cupy.ndarray` that are used."""

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
    """The members of a `torch.Tensor` that are used."""

    shape: Sequence[int]
    dtype: object
    device: TorchDevice
    requires_grad: bool
    layout: object
    is_cuda: bool

    def stride(self) -> tuple[int, ...]: ...
    def data_ptr(self) -> int: ...
    def get_device(self) -> int: ...
    def copy_(self, source: object) -> None: ...
    def element_size(self) -> int: ...
    def is_neg(self) -> bool: ...
    def is_conj(self) -> bool: ...
    def detach(self) -> TorchTensor: ...
    def view(self, dtype: object) -> TorchTensor: ...
    def numpy(self) -> npt.NDArray[np.generic]: ...


@cache
def has_cupy() -> bool:
    """Whether CuPy is installed."""
    return find_spec("cupy") is not None


def as_matrix(name: str, value: object, problems: list[str]) -> object:
    """`value` as a `DeviceMatrix`. If that is impossible, `value` itself, with a problem added. None, and a
    `DeviceMatrix`, are returned as they are.
    """
    if value is None or isinstance(value, DeviceMatrix):
        return value
    before = len(problems)
    matrix: DeviceMatrix | None = None
    if isinstance(value, np.ndarray):
        install = "" if find_spec("cupy") else f" (CuPy is not installed: {INSTALL_CUDA})"
        problems.append(f"{name} is a NumPy array, in the host's memory: pass cupy.asarray({name}){install}")
    elif loaded("cupy", "ndarray", value):
        matrix = from_cupy(cast(CupyArray, value), "cupy", value)
    elif loaded("torch", "Tensor", value):
        matrix = from_torch(name, cast(TorchTensor, value), problems)
    else:
        matrix = _from_protocol(name, value, problems)
    if matrix is None and len(problems) == before:
        problems.append(
            f"{name} is of type {type(value).__name__}, not an array in a GPU's memory: pass cupy.asarray({name})"
        )
    return value if matrix is None else matrix


def from_cupy(value: CupyArray, maker: Maker, array: object) -> DeviceMatrix:
    """An array of CuPy, over which `array` lies."""
    where = value.data
    return DeviceMatrix(value.shape, value.strides, value.dtype, where.ptr, where.device_id, maker, False, array)


def from_torch(name: str, value: TorchTensor, problems: list[str]) -> DeviceMatrix | None:
    """A tensor; None, with a problem added, if no kernel takes it."""
    dtype = str(value.dtype).removeprefix("torch.")
    if value.device.type != "cuda":
        problems.append(f"{name} is a tensor on {value.device.type!r}, not on a GPU: pass {name}.cuda()")
        return None
    if value.requires_grad and sys.modules["torch"].is_grad_enabled():
        problems.append(f"{name} requires a gradient: {WITHOUT_GRADIENT.format(name)}")
    if kind := without_strides(value):
        problems.append(f"{name} is {kind}: pass {name}.to_dense()")
        return None
    if value.is_neg():
        problems.append(f"{name} is a negated view, which memory does not show: pass {name}.resolve_neg()")
    if value.is_conj():
        remedy = f"pass {name}.resolve_conj(), or compile a GemmSpec with conj_{name}"
        problems.append(f"{name} is a conjugated view, which memory does not show: {remedy}")
    try:
        element = numpy_dtype(dtype)
    except TypeError:
        problems.append(f"{name} has dtype {dtype}, which no kernel takes: pass {widened(name, dtype)}")
        return None
    size = value.element_size()
    strides = tuple(step * size for step in value.stride())
    pointer, device = value.data_ptr(), value.device.index
    return DeviceMatrix(tuple(value.shape), strides, element, pointer, device, "torch", False, value)


def widened(name: str, dtype: str) -> str:
    """What makes elements that kernels take of a tensor whose type none takes."""
    return f"{name}.to(torch.complex64)" if dtype == "complex32" else f"{name}.float()"


def without_strides(tensor: TorchTensor) -> str:
    """What a tensor without strides is; nothing of one with them."""
    layout = str(tensor.layout).removeprefix("torch.")
    return "" if layout == "strided" else "sparse" if layout.startswith("sparse") else f"of layout {layout}"


def _from_protocol(name: str, value: object, problems: list[str]) -> DeviceMatrix | None:
    """By `__cuda_array_interface__`, else by DLPack."""
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return _from_interface(cast("Mapping[str, object]", interface), value)
        where = getattr(value, "__dlpack_device__", None)
        if where is None or not hasattr(value, "__dlpack__"):
            return None
        if where()[0] not in DLPACK_CUDA:
            problems.append(f"{name} is in the host's or another device's memory: move it to a GPU of CUDA first")
            return None
        array = _from_dlpack(value)
        if not loaded("torch", "Tensor", array):
            return from_cupy(cast(CupyArray, array), "other", value)
        known = from_torch(name, cast(TorchTensor, array), problems)
        return None if known is None else replace(known, maker="other", array=value)
    except Exception as error:  # noqa: BLE001  (whatever the array's own library says)
        problems.append(f"{name} ({type(value).__name__}) does not give its memory away: {error}")
        return None


def _from_dlpack(value: object) -> object:
    """An array of CuPy, or else of torch, over the same memory."""
    if has_cupy():
        import cupy

        return cast(object, cupy.from_dlpack(value))
    import torch

    return cast(object, torch.from_dlpack(value))


def _from_interface(interface: Mapping[str, object], array: object) -> DeviceMatrix:
    shape = cast("tuple[int, ...]", tuple(cast("Sequence[int]", interface["shape"])))
    dtype: np.dtype[np.generic] = np.dtype(cast("str", interface["typestr"]))
    pointer, readonly = cast("tuple[int, bool]", interface["data"])
    strides = cast("tuple[int, ...] | None", interface.get("strides"))
    if strides is None:
        steps = np.cumprod((dtype.itemsize, *shape[:0:-1]), dtype=np.int64)[::-1]
        strides = tuple(int(step) for step in steps[-len(shape) :]) if shape else ()
    device = cuda_driver.pointer_device(pointer) if pointer else 0
    return DeviceMatrix(shape, tuple(strides), dtype, pointer, device, "other", bool(readonly), array)


def placement_problems(matrices: Mapping[str, object], alignment: int, device: int | None, output: str) -> list[str]:
    """Problems with devices, with addresses, and with a result that is read-only.

    Args:
        alignment: the alignment that addresses must have, in bytes.
        device: the GPU that the kernel is bound to, or None.
    """
    known = {name: matrix for name, matrix in matrices.items() if isinstance(matrix, DeviceMatrix)}
    problems = []
    places = {matrix.device for matrix in known.values()}
    if len(places) > 1:
        listed = ", ".join(f"{name} on {matrix.device}" for name, matrix in known.items())
        problems.append(f"arrays are on several GPUs ({listed}): move all of them to one")
    elif device is not None and places and places != {device}:
        problems.append(
            f"arrays are on GPU {places.pop()}, but the kernel was compiled for GPU {device}: "
            "move them there, or compile without device="
        )
    for name, matrix in known.items():
        # Arrays of an epilogue, and offsets of groups, are read element by element, at any address.
        unit = max(1 if name in {*OPERANDS, OFFSETS} else alignment, matrix.dtype.itemsize)
        if 0 not in matrix.shape and matrix.pointer % unit:
            copy = f"{name}.clone()" if matrix.maker == "torch" else f"{name}.copy()"
            problems.append(
                f"{name} begins {matrix.pointer % unit} bytes past a multiple of {unit}, which the kernel's vectors "
                f"need: pass {copy}, or compile {UNALIGNED_PRESET!r}, which takes any view"
            )
    result = known.get(output)
    if result is not None and result.readonly:
        problems.append(f"{output} is read-only: pass a writable array, or leave it out to have it allocated")
    return problems
