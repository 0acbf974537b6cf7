"""The allocators of torch and CuPy on a GPU, with their current streams, and the keys of calls with their arrays.

Keys, new arrays and workspaces are on the critical path: 12 us for a call of `torch.matmul`, of which 3 are the
driver's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from importlib.util import find_spec
from math import prod
from typing import Any, cast

import numpy as np

from gemmgen.errors import DeviceError, SpecError
from gemmgen.runtime import cuda_driver, require_cupy
from gemmgen.runtime.calls import Factors, Held, Key, KeyOf, kind_of
from gemmgen.runtime.cuda_arrays import (
    ALIGNMENT,
    CupyArray,
    CupyPointer,
    TorchTensor,
    from_cupy,
    from_torch,
    has_cupy,
)
from gemmgen.runtime.views import DeviceMatrix, Maker, View, loaded, stored_shape

#: The low bits of an address that decide about alignment.
_LOW = ALIGNMENT - 1
#: A new array, and its address.
Made = tuple[Any, int]
#: Whether a call whose key is known needs the full checks (`PreparedCall.guard`).
Guard = Callable[[Held, bool], bool]


class Memory(ABC):
    """The allocator of an array library. It reuses memory in the order of the stream that was current when the memory
    was requested. So a call may release its workspaces once its kernels are queued on that stream. `maker` and `room`
    are for the GPU whose context is current.

    Attributes:
        types: the types of arrays that have keys.
        key_of: makes the key of a call with such arrays.
        lack: the errors of the allocator.
        knows_graphs: whether the allocator keeps what is requested while its own current stream captures a graph.
    """

    types: frozenset[type]
    key_of: KeyOf
    lack: type[Exception]
    knows_graphs: bool

    # --- arrays -----------------------------------------------------------------------------------

    @abstractmethod
    def maker(self, shape: Sequence[int], dtype: np.dtype[np.generic], device: int) -> Callable[[], Made]:
        """What makes new arrays without gaps. It raises what `lack` is."""

    @abstractmethod
    def seen(self, array: Any) -> DeviceMatrix:
        """An array of the library, which kernels can take."""

    @abstractmethod
    def transposed(self, array: Any) -> Any:
        """Another view of an array of the library, with the last two axes exchanged."""

    @abstractmethod
    def copied(self, array: Any) -> Made:
        """A copy of an array of the library, without gaps."""

    @abstractmethod
    def strided(self, matrix: DeviceMatrix, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """An array of the library over the memory of any array."""

    @abstractmethod
    def assign(self, target: Any, source: Any, device: int) -> None:
        """Copy elements to an array, with broadcasting and conversion."""

    @abstractmethod
    def assign_rows(self, target: Any, source: Any, ends: Any, device: int) -> None:
        """Copy the rows before the last end to a matrix, with conversion. The host reads no end."""

    @abstractmethod
    def guard(self, arrays: Sequence[Any], is_complex: bool, provisional: bool) -> Guard | None:
        """What of such arrays, or of the library's state, may differ in calls of one key.

        Args:
            is_complex: whether A or B may be conjugated views.
            provisional: whether the call is to be replaced soon, so that no graph may hold it.
        """

    def empty(self, shape: Sequence[int], dtype: np.dtype[np.generic], device: int) -> DeviceMatrix:
        """A new array without gaps. Raises: DeviceError if there is no memory."""
        with self.checked(device):
            return self.seen(self.maker(shape, dtype, device)()[0])

    def result(self, view: View, device: int) -> DeviceMatrix:
        """A new matrix, or a batch. Raises: as `empty`."""
        stored = cast(Any, self.empty(stored_shape(view), view.dtype, device).array)[..., : view.fast]
        return self.seen(stored if view.order == "row" else self.transposed(stored))

    @contextmanager
    def checked(self, device: int) -> Iterator[None]:
        """Context in which the library's lack of memory is a DeviceError."""
        try:
            yield
        except self.lack as error:
            raise self.lack_of(error, device) from error

    def lack_of(self, error: Exception, device: int) -> DeviceError:
        """The error of an allocation as ours."""
        said = (str(error).splitlines() or [""])[0]
        return DeviceError(f"GPU {device} is out of memory ({said}): use smaller matrices, or free others")

    # --- workspaces and streams -------------------------------------------------------------------

    @abstractmethod
    def room(self, size: int, stream: int) -> int:
        """The address of so many bytes, aligned for any use. Raises: what `lack` is."""

    @abstractmethod
    def release(self, room: int) -> object:
        """Give it back."""

    @abstractmethod
    def integers(self, values: Sequence[int], device: int) -> Made:
        """64-bit integers in the GPU's memory."""

    @abstractmethod
    def stream_of(self, device: int) -> Callable[[], int]:
        """What gives the current `cudaStream_t` of a GPU."""

    @abstractmethod
    def on_stream(self, pointer: int, device: int) -> AbstractContextManager[None]:
        """Context in which memory is requested on a stream."""


# --- torch ----------------------------------------------------------------------------------------


def torch_key(
    how: object,
    a: TorchTensor,
    b: TorchTensor,
    c: TorchTensor | None,
    factors: Factors,
    operands: Mapping[str, TorchTensor],
) -> Key:
    """The key of a call (`KeyOf`).

    Raises: RuntimeError or AttributeError for tensors without memory: sparse ones, those of vmap, and others.
    """
    at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), 0
    kind = kind_of(factors)
    left = type(a), a.shape, a.stride(), a.dtype, a.get_device(), a.requires_grad
    right = type(b), b.shape, b.stride(), b.dtype, b.get_device(), b.requires_grad
    if c is None:
        low: object = (at_a | at_b) & _LOW and (at_a & _LOW, at_b & _LOW)
        key: tuple[object, ...] = (how, kind, left, right, low)
    else:
        at_c = c.data_ptr()
        low = (at_a | at_b | at_c) & _LOW and (at_a & _LOW, at_b & _LOW, at_c & _LOW)
        into = type(c), c.shape, c.stride(), c.dtype, c.get_device(), c.requires_grad
        key = (how, kind, left, right, low, into)
    if not operands:
        return key, (at_a, at_b, at_c), ()
    more = []
    for name, x in operands.items():
        more.append(x.data_ptr())
        key = (*key, name, type(x), x.shape, x.stride(), x.dtype, x.get_device(), x.requires_grad)
    return key, (at_a, at_b, at_c), tuple(more)


class TorchMemory(Memory):
    """torch's caching allocator, which knows of graph capture."""

    key_of = staticmethod(torch_key)
    knows_graphs = True

    def __init__(self) -> None:
        import torch

        self.types = frozenset({torch.Tensor, torch.nn.Parameter})
        self.lack, self._by_rows = torch.OutOfMemoryError, torch.contiguous_format
        # What `torch.cuda.caching_allocator_alloc` calls; half of a new tensor's time.
        self._alloc: Callable[[int, int], int] = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self._release = torch._C._cuda_cudaCachingAllocator_raw_delete

    def maker(self, shape: Sequence[int], dtype: np.dtype[np.generic], device: int) -> Callable[[], Made]:
        # torch's compiled programs use a function that takes half of `torch.empty`'s time; it knows no device but the
        # current one.
        import torch

        known = getattr(torch, dtype.name)
        if cuda_driver.device_count() == 1 and (fast := _fast_empty()) is not None:
            strides = tuple(prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape)))

            def made() -> Made:
                array = fast(shape, strides, known)
                return array, array.data_ptr()

            return made
        where = torch.device("cuda", device)

        def made_there() -> Made:
            array = torch.empty(shape, dtype=known, device=where)
            return array, array.data_ptr()

        return made_there

    def seen(self, array: Any) -> DeviceMatrix:
        return cast(DeviceMatrix, from_torch("a result", array, []))

    def transposed(self, array: Any) -> Any:
        return array.mT

    def copied(self, array: Any) -> Made:
        # `contiguous` would give back a tensor without gaps, which is copied because of its address.
        made = array.clone(memory_format=self._by_rows)
        return made, made.data_ptr()

    def strided(self, matrix: DeviceMatrix, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        import torch

        item, array = matrix.dtype.itemsize, cast(Any, matrix.array)
        tensor = array if isinstance(array, torch.Tensor) else torch.as_tensor(array)
        return torch.as_strided(tensor, shape, [step // item for step in strides])

    def assign(self, target: Any, source: Any, device: int) -> None:  # noqa: ARG002
        target.copy_(source)

    def assign_rows(self, target: Any, source: Any, ends: Any, device: int) -> None:  # noqa: ARG002
        import torch

        rows = torch.arange(target.shape[0], device=target.device)[:, None]
        target.copy_(torch.where(rows < ends[-1], source.to(target.dtype), target))

    def guard(self, arrays: Sequence[Any], is_complex: bool, provisional: bool) -> Guard | None:
        import torch

        grads = any(x.requires_grad for x in arrays)
        # The imaginary part of a conjugated tensor is a negated view, whose strides are all even.
        may_be_negated = any(map(_has_even_strides, arrays))

        def differs(held: Held, below_autograd: bool) -> bool:
            a, b, c, operands = held
            if grads and not below_autograd and torch.is_grad_enabled():
                return True
            if is_complex and (a.is_conj() or b.is_conj()):
                return True
            if may_be_negated and any(x is not None and x.is_neg() for x in (a, b, c, *operands.values())):
                return True
            return provisional and bool(torch.cuda.is_current_stream_capturing())

        return differs if grads or is_complex or provisional or may_be_negated else None

    def room(self, size: int, stream: int) -> int:
        return self._alloc(size, stream)

    def release(self, room: int) -> object:
        return self._release(room)

    def integers(self, values: Sequence[int], device: int) -> Made:
        import torch

        host = torch.tensor([value - (1 << 64 if value >> 63 else 0) for value in values], dtype=torch.int64)
        tensor = host.to(torch.device("cuda", device))
        return tensor, int(tensor.data_ptr())

    def stream_of(self, device: int) -> Callable[[], int]:
        import torch

        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        return partial(raw or (lambda number: int(torch.cuda.current_stream(number).cuda_stream)), device)

    @contextmanager
    def on_stream(self, pointer: int, device: int) -> Iterator[None]:
        import torch

        if pointer == self.stream_of(device)():
            yield
            return
        with torch.cuda.stream(torch.cuda.ExternalStream(pointer, device=torch.device("cuda", device))):
            yield


@cache
def _fast_empty() -> Callable[..., Any] | None:
    """torch's function for new tensors from shape, strides and type; None if this version has another one."""
    import torch

    try:
        fast: Callable[..., Any] = torch._C._dynamo.guards._empty_strided_cuda
        fast((0,), (1,), torch.float32)
    except (AttributeError, TypeError, RuntimeError):
        return None
    return fast


def _has_even_strides(tensor: TorchTensor) -> bool:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return all(step % 2 == 0 for extent, step in steps if extent > 1)


# --- CuPy -----------------------------------------------------------------------------------------


def cupy_key(
    how: object, a: CupyArray, b: CupyArray, c: CupyArray | None, factors: Factors, operands: Mapping[str, CupyArray]
) -> Key:
    """The key of a call (`KeyOf`)."""
    place_a, place_b = a.data, b.data
    at_a, at_b, at_c = place_a.ptr, place_b.ptr, 0
    left = type(a), a.shape, a.strides, a.dtype, place_a.device_id
    right = type(b), b.shape, b.strides, b.dtype, place_b.device_id
    key: tuple[object, ...] = (how, kind_of(factors), left, right, at_a & _LOW, at_b & _LOW)
    if c is not None:
        place_c = c.data
        at_c = place_c.ptr
        key = (*key, type(c), c.shape, c.strides, c.dtype, place_c.device_id, at_c & _LOW)
    more = []
    for name, x in operands.items():
        more.append(x.data.ptr)
        key = (*key, name, type(x), x.shape, x.strides, x.dtype, x.data.device_id, x.data.ptr & _LOW)
    return key, (at_a, at_b, at_c), tuple(more)


class CupyMemory(Memory):
    """CuPy's memory pool, which knows of no graphs."""

    key_of = staticmethod(cupy_key)
    knows_graphs = False

    def __init__(self) -> None:
        import cupy

        self.types, self.lack = frozenset({cupy.ndarray}), MemoryError
        self._cupy, self._alloc = cupy, cupy.cuda.alloc
        self._rooms: dict[int, CupyPointer] = {}

    def maker(
        self,
        shape: Sequence[int],
        dtype: np.dtype[np.generic],
        device: int,  # noqa: ARG002  (the current one)
    ) -> Callable[[], Made]:
        make, extents = self._cupy.ndarray, tuple(shape)

        def made() -> Made:
            array = make(extents, dtype)
            return array, array.data.ptr

        return made

    def seen(self, array: Any) -> DeviceMatrix:
        return from_cupy(array, "cupy", array)

    def transposed(self, array: Any) -> Any:
        return array.swapaxes(-1, -2)

    def copied(self, array: Any) -> Made:
        made = array.copy(order="C")
        return made, made.data.ptr

    def strided(self, matrix: DeviceMatrix, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        if matrix.maker == "cupy":
            return self._cupy.lib.stride_tricks.as_strided(matrix.array, shape, strides)
        cuda = self._cupy.cuda
        size = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True)) + matrix.dtype.itemsize
        memory = cuda.UnownedMemory(matrix.pointer, size, matrix.array, matrix.device)
        return self._cupy.ndarray(shape, matrix.dtype, cuda.MemoryPointer(memory, 0), strides)

    def assign(self, target: Any, source: Any, device: int) -> None:
        with self._cupy.cuda.Device(device):
            self._cupy.copyto(target, source, casting="unsafe")

    def assign_rows(self, target: Any, source: Any, ends: Any, device: int) -> None:
        with self._cupy.cuda.Device(device):
            rows = self._cupy.arange(target.shape[0])[:, None]
            self._cupy.copyto(target, source, casting="unsafe", where=rows < ends[-1])

    def guard(self, arrays: Sequence[Any], is_complex: bool, provisional: bool) -> Guard | None:  # noqa: ARG002
        return None

    @contextmanager
    def checked(self, device: int) -> Iterator[None]:
        with translated(f"GPU {device}"), self._cupy.cuda.Device(device):
            yield

    def room(self, size: int, stream: int) -> int:  # noqa: ARG002  (the current one)
        memory = self._alloc(size)
        self._rooms[memory.ptr] = memory
        return int(memory.ptr)

    def release(self, room: int) -> object:
        return self._rooms.pop(room, None)

    def integers(self, values: Sequence[int], device: int) -> Made:
        with self.checked(device):
            array = self._cupy.asarray(np.array(values, np.uint64))
        return array, int(array.data.ptr)

    def stream_of(self, device: int) -> Callable[[], int]:
        current = self._cupy.cuda.get_current_stream
        return lambda: int(current(device).ptr)

    @contextmanager
    def on_stream(self, pointer: int, device: int) -> Iterator[None]:
        cuda = self._cupy.cuda
        with cuda.Device(device):
            if int(cuda.get_current_stream().ptr) == pointer:
                yield
                return
            with cuda.Stream.from_external(_ForeignStream(pointer)) if pointer else cuda.Stream.null:
                yield


@contextmanager
def translated(device: str = "CUDA") -> Iterator[None]:
    """Turn CuPy's errors into a DeviceError."""
    import cupy

    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise DeviceError(f"{device} is out of memory ({error}): use smaller matrices, or free others") from error
    except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
        raise DeviceError(f"{device} failed: {error}. If the arrays are fine, please report it") from error


class _ForeignStream:
    """A `cudaStream_t` that another library owns."""

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol's version, and the stream."""
        return 0, self.pointer


# --- any of them ----------------------------------------------------------------------------------

_torch, _cupy = cache(TorchMemory), cache(CupyMemory)


def memory_of(maker: Maker) -> Memory:
    """The allocator for calls with arrays of a library; CuPy's for arrays of no known library, or else torch's.

    Raises: DeviceError if neither is installed.
    """
    if maker == "torch" or (maker == "other" and not has_cupy() and find_spec("torch") is not None):
        return _torch()
    require_cupy()
    return _cupy()


def stream_pointer(stream: object, makers: set[Maker], device: int) -> int:
    """The `cudaStream_t` to launch on.

    Args:
        makers: the libraries of the arrays.

    Raises: SpecError if `stream` is not a stream, or is a stream of another GPU, or if arrays of CuPy and torch are
    mixed and the two have different current streams.
    """
    if stream is None:
        return _current_stream(makers, device)
    where = getattr(stream, "device_id", None)  # CuPy's; -1 for one that belongs to none
    if loaded("torch.cuda", "Stream", stream):
        where = getattr(stream, "device_index", None)
    if isinstance(where, int) and where not in (-1, device):
        raise SpecError(f"the stream belongs to GPU {where}, but the arrays are on GPU {device}: pass one of that GPU")
    for attribute in ("ptr", "cuda_stream"):  # CuPy's, torch's
        if isinstance(pointer := getattr(stream, attribute, None), int):
            return pointer
    protocol = getattr(stream, "__cuda_stream__", None)
    if callable(protocol):
        return int(cast("tuple[int, int]", protocol())[1])
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise SpecError(
        f"stream is of type {type(stream).__name__}: pass a stream of CuPy or torch, or a cudaStream_t as an integer"
    )


def _current_stream(makers: set[Maker], device: int) -> int:
    if "torch" not in makers:
        return memory_of("cupy" if "cupy" in makers else "other").stream_of(device)()
    theirs = memory_of("torch").stream_of(device)()
    if "cupy" in makers and memory_of("cupy").stream_of(device)() != theirs:
        raise SpecError(
            "CuPy's and torch's arrays are mixed while their current streams differ, so that it is open which to wait "
            "for: pass stream="
        )
    return theirs
