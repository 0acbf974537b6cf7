"""Prepared calls with arrays of torch and CuPy on a GPU.

Everything here is on the critical path: 12 us for a call of `torch.matmul`, of which 3 are the driver's.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import Any

from gemmgen.errors import DeviceError
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.calls import MISFIT, Factors, Held, Key, Outcome, PreparedCall, kind_of
from gemmgen.runtime.cuda_arrays import ALIGNMENT, CupyArray, CupyPointer, TorchTensor
from gemmgen.runtime.cuda_launch import CudaLaunches

#: The low bits of an address that decide about alignment.
_LOW = ALIGNMENT - 1


@dataclass(frozen=True, slots=True)
class Step:
    """The kernels of one product, and where its matrices begin from the arrays' first elements, in bytes."""

    launches: CudaLaunches
    begins: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is prepared of a call, of any library.

    Attributes:
        steps: the products, in order; all have the same workspaces.
        device: the GPU's number.
        outcome: the result; its type by name.
        rooms: where each workspace begins in the call's memory, and behind the last the bytes of all.
        copies: whether A and B are copied first: they have gaps, or begin at an address that no kernel takes.
        provisional: whether it is to be replaced soon, so that no graph may hold it.
        grads: whether an array requires a gradient, so that autograd must be off.
        is_complex: whether A or B may be conjugated views.
        about: what computes it, for `gemmgen.last_choice`.
    """

    steps: Sequence[Step]
    device: int
    outcome: Outcome
    rooms: tuple[int, ...]
    copies: tuple[bool, bool] = (False, False)
    provisional: bool = False
    grads: bool = False
    is_complex: bool = False
    about: object = None


class CudaCall(PreparedCall):
    """A prepared call of one library's arrays.

    Attributes:
        _stream: gives the current stream.
        _room, _release: the library's allocator, for memory that is released once the call is queued.
        _no_memory: the errors of that allocator.
    """

    _stream: Callable[[], int]
    _release: Callable[[int], object]
    _no_memory: type[Exception]

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.outcome)
        self._plan, self.about, self.provisional = plan, plan.about, plan.provisional
        self._begins, self._size = plan.rooms[:-1], plan.rooms[-1]
        self._copies, self._is_alone = any(plan.copies), cuda_driver.device_count() == 1
        begins = {step.begins for step in plan.steps}
        self._launch = (
            plan.steps[0].launches.launch if len(plan.steps) == 1 and begins == {(0, 0, 0)} else self._launch_steps
        )

    @abstractmethod
    def _copied(self, array: Any) -> tuple[Any, int]:
        """A copy of A or B without gaps, and its address."""

    @abstractmethod
    def _room(self, size: int, stream: int) -> int:
        """Memory for the workspaces."""

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, _: Any) -> None:
        stream = self._stream()
        if self._copies:
            with self._memory():
                held, addresses = self._without_gaps(addresses, held)
        if not self._size:
            self._launch(stream, addresses, factors)
            return
        try:
            room = self._room(self._size, stream)
        except self._no_memory as error:
            raise _lack_of(error) from error
        try:
            self._launch(stream, (*addresses, *[room + begin for begin in self._begins]), factors)
        finally:
            self._release(room)

    def _launch_steps(self, stream: int, addresses: Sequence[int], factors: Factors | None = None) -> None:
        at_a, at_b, at_c, *more = addresses
        for step in self._plan.steps:
            first, second, third = step.begins
            step.launches.launch(stream, (at_a + first, at_b + second, at_c + third, *more), factors)

    def _without_gaps(self, addresses: tuple[int, ...], held: Held) -> tuple[Held, tuple[int, ...]]:
        """Copies of what must be copied, and the addresses with theirs."""
        a, b, *_ = held
        first, second, *others = addresses
        at_a, at_b = (second, first) if self._mirrored else (first, second)
        copy_a, copy_b = self._plan.copies
        a, at_a = self._copied(a) if copy_a else (a, at_a)
        b, at_b = self._copied(b) if copy_b else (b, at_b)
        return (a, b, *held[2:]), ((at_b, at_a, *others) if self._mirrored else (at_a, at_b, *others))

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Context in which the library's lack of memory is a DeviceError."""
        try:
            yield
        except self._no_memory as error:
            raise _lack_of(error) from error


def _lack_of(error: Exception) -> DeviceError:
    return DeviceError(f"CUDA is out of memory ({error}): use smaller matrices, or free others")


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


class TorchCall(CudaCall):
    """A prepared call with torch's tensors. Memory is torch's caching allocator's, which knows of graph capture."""

    key_of = staticmethod(torch_key)

    def __init__(self, plan: Plan, tensors: Sequence[TorchTensor]) -> None:
        import torch

        super().__init__(plan)
        self.types = frozenset({torch.Tensor, torch.nn.Parameter})
        self._dtype, self._no_memory = getattr(torch, plan.outcome.dtype), torch.OutOfMemoryError
        self._by_rows = torch.contiguous_format
        self._make = self._maker()
        # What `torch.cuda.caching_allocator_alloc` calls; half of a new tensor's time.
        self._alloc: Callable[[int, int], int] = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self._release = torch._C._cuda_cudaCachingAllocator_raw_delete
        self._stream = partial(getattr(torch._C, "_cuda_getCurrentRawStream", None) or _slow_stream, plan.device)
        # The imaginary part of a conjugated tensor is a negated view, whose strides are all even.
        self._may_be_negated = any(map(_has_even_strides, tensors))
        if plan.grads or plan.is_complex or plan.provisional or self._may_be_negated:
            self.guard = self._differs

    def _maker(self) -> Callable[[Any], Any]:
        """What makes a new tensor. torch's compiled programs use a function that takes half of `new_empty`'s time; it
        knows no device but the current one.
        """
        shape, dtype = self._shape, self._dtype
        if self._is_alone and (fast := _fast_empty()) is not None:
            strides = tuple(prod(max(extent, 1) for extent in shape[axis + 1 :]) for axis in range(len(shape)))
            return lambda _: fast(shape, strides, dtype)
        return lambda like: like.new_empty(shape, dtype=dtype)

    def _new(self, a: TorchTensor) -> tuple[Any, int]:
        try:
            c = self._make(a)
        except self._no_memory as error:
            raise _lack_of(error) from error
        return (c.mT if self._transposed else c), c.data_ptr()

    def _copied(self, array: Any) -> tuple[Any, int]:
        # `contiguous` would give back a tensor without gaps, which is copied because of its address.
        made = array.clone(memory_format=self._by_rows)
        return made, made.data_ptr()

    def _room(self, size: int, stream: int) -> int:
        # The allocator knows no current device here, where several are.
        if self._is_alone:
            return self._alloc(size, stream)
        with cuda_driver.on_device(self._plan.device):
            return self._alloc(size, stream)

    def _differs(self, held: Held, below_autograd: bool) -> bool:
        torch, plan, (a, b, c, operands) = sys.modules["torch"], self._plan, held
        if plan.grads and not below_autograd and torch.is_grad_enabled():
            return True
        if plan.is_complex and (a.is_conj() or b.is_conj()):
            return True
        if self._may_be_negated and any(x is not None and x.is_neg() for x in (a, b, c, *operands.values())):
            return True
        return plan.provisional and bool(torch.cuda.is_current_stream_capturing())


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


def _slow_stream(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


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


class CupyCall(CudaCall):
    """A prepared call with CuPy's arrays. Memory is CuPy's pool's."""

    key_of = staticmethod(cupy_key)

    def __init__(self, plan: Plan) -> None:
        import cupy

        super().__init__(plan)
        self.types = frozenset({cupy.ndarray})
        self._ndarray, self._no_memory = cupy.ndarray, MemoryError
        self._alloc = cupy.cuda.alloc
        current = cupy.cuda.get_current_stream
        self._stream = lambda: int(current().ptr)
        #: Workspaces of captured calls, by the graph: CuPy's pool does not know that the graph still uses them.
        self._captured: dict[int | None, CupyPointer] = {}
        self._rooms: dict[int, CupyPointer] = {}
        self._release = lambda room: self._rooms.pop(room, None)

    def _new(self, a: object) -> tuple[Any, int]:  # noqa: ARG002
        try:
            c = self._ndarray(self._shape, self._dtype)
        except self._no_memory as error:
            raise _lack_of(error) from error
        return (c.swapaxes(-1, -2) if self._transposed else c), c.data.ptr

    def _copied(self, array: Any) -> tuple[Any, int]:
        made = array.copy(order="C")
        return made, made.data.ptr

    def _room(self, size: int, stream: int) -> int:
        graph = cuda_driver.capture_of(stream)
        memory = self._captured.get(graph) or self._alloc(size)
        self._rooms[memory.ptr] = memory
        if graph is not None:
            self._captured[graph] = memory
        return int(memory.ptr)


# --- any of them ----------------------------------------------------------------------------------


def prepared(plan: Plan, arrays: Sequence[object]) -> CudaCall | None:
    """The prepared call for such arrays; None for those of no known library, and for several libraries' together.

    Args:
        arrays: A, B, the operands, and C if it is given.
    """
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    kinds = {*map(type, arrays)}
    try:
        if torch is not None and kinds <= {torch.Tensor, torch.nn.Parameter}:
            tensors: Any = arrays
            return TorchCall(plan, tensors)
    except (RuntimeError, *MISFIT):  # tensors without strides
        return None
    return CupyCall(plan) if cupy is not None and kinds == {cupy.ndarray} else None
