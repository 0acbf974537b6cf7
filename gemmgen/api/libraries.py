"""What `gemmgen.gemm` asks of an array's library: views, copies in another type, new arrays; and those in the host's
memory.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.api.matmul import Call, Operand, Shape
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.numeric import element_type, numpy_dtype
from gemmgen.runtime.cuda_arrays import TorchTensor, loaded
from gemmgen.runtime.overlaps import ArrayLike
from gemmgen.spec import Order

Dtype = np.dtype[np.generic]
Numbers = npt.NDArray[np.generic]


class Library(ABC):
    """The arrays of one library, on one device.

    Attributes:
        name: for messages.
        backends: what can run on its arrays, the natural one first.
        converts: whether it makes copies in another type, or without odd strides.
    """

    name: ClassVar[str]
    backends: ClassVar[tuple[str, ...]]
    converts: ClassVar[bool] = True

    @abstractmethod
    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        """An argument as it lies in memory, which the result may go to, or None with what is wrong."""

    @abstractmethod
    def view(self, operand: Operand, dtype: Dtype) -> ArrayLike:
        """What a kernel takes, its elements seen as another type of as many bytes."""

    @abstractmethod
    def copy(self, operand: Operand, dtype: Dtype) -> Operand:
        """The same numbers in a new array of a type, by rows and without gaps."""

    @abstractmethod
    def empty(self, shape: Shape, dtype: Dtype, like: Operand) -> Operand:
        """A new array beside another."""

    @abstractmethod
    def assign(self, target: Operand, source: Operand) -> None:
        """Put numbers into an array, broadcast and in its type."""

    def finish(self, result: Operand) -> object:
        """A new result as the caller gets it."""
        return result.array

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        """The type that two have in common. Raises: TypeError."""
        return np.result_type(a, b)

    def dtype(self, value: object) -> Dtype:
        """A type as its users name it. Raises: TypeError."""
        return element_type(value)

    def is_aligned(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether its elements lie where elements of their type may."""
        return True

    def fits_vectors(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether it begins where kernels' vectors may."""
        return True

    def order(self, operand: Operand) -> Order | None:
        """How kernels see each matrix of a stack; None where they can't."""
        return operand.order

    def prefers_mirror(self, call: Call) -> bool:  # noqa: ARG002
        """Whether the transpose of C had better be computed, whatever the types and the device."""
        return False

    def begins_lines(self, operand: Operand, elements: int) -> bool:  # noqa: ARG002
        """Whether its lines are known to lie multiples of so many elements apart, the first where vectors may."""
        return False

    def is_writable(self, operand: Operand) -> bool:  # noqa: ARG002
        """Whether it can be written to."""
        return True

    def device(self, operand: Operand) -> object:  # noqa: ARG002
        """Where the array lies, for a kernel to be made for; None for anywhere."""
        return None


class NumPy(Library):
    """NumPy's arrays, and whatever makes one of itself."""

    name = "NumPy"
    backends = ("opencl", "sycl")

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        if loaded("numpy.ma", "MaskedArray", value):
            problems.append(f"{name} is a masked array, and a kernel cannot see the mask: pass {name}.filled(0)")
            return None
        if not isinstance(value, np.ndarray):
            if is_written:
                problems.append(f"{name} is of type {type(value).__name__}, not an array: pass one of NumPy's")
                return None
            given = value
            try:
                value = np.asarray(value)
            except Exception as error:  # noqa: BLE001  (whatever the object's own conversion says)
                problems.append(f"{name} ({type(value).__name__}) makes no array of itself: {error}")
                return None
            if not value.ndim and not isinstance(given, numbers.Number | np.generic):
                problems.append(f"{name} is of type {type(given).__name__}, not an array: pass one of NumPy's")
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

    def finish(self, result: Operand) -> object:
        # A scalar where matmul makes one: of two vectors.
        return cast(Numbers, result.array)[()]

    def is_aligned(self, operand: Operand) -> bool:
        return cast(Numbers, operand.array).flags.aligned

    def is_writable(self, operand: Operand) -> bool:
        return cast(Numbers, operand.array).flags.writeable

    def _array(self, operand: Operand) -> Numbers:
        return cast(Numbers, self.view(operand, operand.dtype))


class _Memory:
    """Memory of an array, by other strides and from another element on; keeps the array."""

    def __init__(self, interface: dict[str, object], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


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
    """What is called of an array of the standard, and of its library."""

    def __array_namespace__(self) -> _Standard: ...
    def from_dlpack(self, value: object) -> object: ...


class TorchHost(NumPy):
    """Tensors in the host's memory, which NumPy sees without a copy."""

    name = "torch (CPU)"

    def operand(self, name: str, value: object, problems: list[str], is_written: bool) -> Operand | None:
        if not loaded("torch", "Tensor", value):
            return super().operand(name, value, problems, is_written)
        import torch

        tensor = cast(TorchTensor, value)
        wrong = {
            f"requires a gradient, which no kernel here computes: pass {name}.detach()": tensor.requires_grad,
            f"is sparse: pass {name}.to_dense()": tensor.is_sparse,
            f"is a negated view, which memory does not show: pass {name}.resolve_neg()": tensor.is_neg(),
            f"is a conjugated view, which memory does not show: pass {name}.resolve_conj()": tensor.is_conj(),
        }
        problems += (f"{name} {what}" for what, there in wrong.items() if there)
        if any(wrong.values()):
            return None
        is_bfloat16 = tensor.dtype == torch.bfloat16
        array = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
        return super().operand(name, array.view(numpy_dtype(BF16)) if is_bfloat16 else array, problems, is_written)

    def finish(self, result: Operand) -> object:
        import torch

        array = cast(Numbers, result.array)
        if array.dtype == numpy_dtype(BF16):
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def promote(self, a: Dtype, b: Dtype) -> Dtype:
        return torch_promoted(a, b)


def torch_promoted(a: Dtype, b: Dtype) -> Dtype:
    """The type that torch says two have in common. Raises: TypeError."""
    import torch

    return element_type(torch.promote_types(getattr(torch, a.name), getattr(torch, b.name)))
