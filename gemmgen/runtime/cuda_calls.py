"""Replays of prepared calls with arrays of torch and CuPy on a GPU.

Everything here is on the critical path: 12 us for a call of `torch.matmul`, of which 3 are the driver's.
"""

from __future__ import annotations

import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, cast

from gemmgen.errors import DeviceError
from gemmgen.runtime import cuda_driver
from gemmgen.runtime.calls import READERS, Table, kind_of
from gemmgen.runtime.cuda_arrays import ALIGNMENT
from gemmgen.runtime.cuda_launch import CudaLaunches, Factors

#: The low bits of an address that decide about alignment.
_LOW = ALIGNMENT - 1
#: What a replay raises for alpha or beta that the kernels' type does not hold. The full checks then say it.
MISFIT = (struct.error, OverflowError, TypeError, AttributeError)


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
        mirrored: whether kernels compute the transpose, so that A and B are exchanged.
        shape: a new result's, as it is stored.
        turned: whether a new result is the transpose of what is stored.
        dtype: the name of its type; None for A's.
        rooms: where each workspace begins in the call's memory, and behind the last the bytes of all.
        reach: the bytes from the first to the last element of A, B and C.
        copies: whether A and B are copied without gaps first.
        provisional: whether it is to be replaced soon, so that no graph may hold it.
        grads: whether an array requires a gradient, so that autograd must be off.
        is_complex: whether A or B may be conjugated views.
        may_be_negated: whether a tensor may be a negated view: the imaginary part of a conjugated tensor, whose strides
            are all even.
        about: what computes it, for `gemmgen.last_choice`.
    """

    steps: Sequence[Step]
    device: int
    mirrored: bool
    shape: tuple[int, ...]
    turned: bool
    dtype: str | None
    rooms: tuple[int, ...]
    reach: tuple[int, int, int]
    copies: tuple[bool, bool] = (False, False)
    provisional: bool = False
    grads: bool = False
    is_complex: bool = False
    may_be_negated: bool = False
    about: object = None


class _Call(ABC):
    """A prepared call of one library's arrays."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._device, self._mirrored, self._turned = plan.device, plan.mirrored, plan.turned
        self._shape, self._begins, self._size = plan.shape, plan.rooms[:-1], plan.rooms[-1]
        self._reach_a, self._reach_b, self._reach_c = plan.reach
        self._only = (
            plan.steps[0].launches.launch if plan.steps[0].begins == (0, 0, 0) == plan.steps[-1].begins else None
        )
        self._copies, self._is_alone = any(plan.copies), cuda_driver.device_count() == 1
        self.grads, self.is_complex, self.provisional = plan.grads, plan.is_complex, plan.provisional
        self.about = plan.about

    @abstractmethod
    def _new(self, a: object) -> tuple[object, int]:
        """A new result, and its address."""

    @abstractmethod
    def _copied(self, array: object) -> tuple[object, int]:
        """A copy of A or B without gaps, and its address."""

    @abstractmethod
    def _room(self, stream: int) -> int:
        """Memory for the workspaces, which is released once the call is queued."""

    @abstractmethod
    def _release(self, room: int) -> None:
        """Give that memory back."""

    @abstractmethod
    def _stream(self) -> int:
        """The current stream."""

    def run(
        self, a: object, b: object, c: object, places: tuple[int, int, int], more: tuple[int, ...], factors: Factors
    ) -> object:
        """Queue it on the current stream. Returns the result; None if the full checks are needed.

        Args:
            places: the addresses of A, B and C; 0 for a new C.
            more: those of a prologue's and an epilogue's arrays.
        """
        at_a, at_b, at_c = places
        if c is None:
            c, at_c = self._new(a)
        elif (at_a < at_c + self._reach_c and at_c < at_a + self._reach_a) or (
            at_b < at_c + self._reach_c and at_c < at_b + self._reach_b
        ):
            return None
        stream = self._stream()
        if self._copies:
            _held, at_a, at_b = self._without_gaps(a, b, at_a, at_b)
        if self._mirrored:
            at_a, at_b = at_b, at_a
        if not self._size:
            self._launch(stream, (at_a, at_b, at_c, *more), factors)
            return c
        room = self._room(stream)
        try:
            self._launch(stream, (at_a, at_b, at_c, *more, *[room + x for x in self._begins]), factors)
        finally:
            self._release(room)
        return c

    def _launch(self, stream: int, addresses: tuple[int, ...], factors: Factors) -> None:
        if self._only is not None:
            self._only(stream, addresses, factors)
            return
        at_a, at_b, at_c, *more = addresses
        for step in self._plan.steps:
            first, second, third = step.begins
            step.launches.launch(stream, (at_a + first, at_b + second, at_c + third, *more), factors)

    def _without_gaps(self, a: object, b: object, at_a: int, at_b: int) -> tuple[object, int, int]:
        """Copies of what must be copied, with the addresses of A and B."""
        copy_a, copy_b = self._plan.copies
        held_a, at_a = self._copied(a) if copy_a else (a, at_a)
        held_b, at_b = self._copied(b) if copy_b else (b, at_b)
        return (held_a, held_b), at_a, at_b


# --- torch ----------------------------------------------------------------------------------------


class Tensor(Protocol):
    """The members of a `torch.Tensor` that a replay uses."""

    shape: tuple[int, ...]
    dtype: object
    requires_grad: bool

    @property
    def mT(self) -> Tensor: ...  # noqa: N802  (torch's name)
    def stride(self) -> tuple[int, ...]: ...
    def data_ptr(self) -> int: ...
    def get_device(self) -> int: ...
    def element_size(self) -> int: ...
    def is_neg(self) -> bool: ...
    def is_conj(self) -> bool: ...
    def new_empty(self, shape: Sequence[int], *, dtype: object = None) -> Tensor: ...
    def contiguous(self) -> Tensor: ...


class TorchCall(_Call):
    """A prepared call with torch's tensors. Memory is torch's caching allocator's, which knows of graph capture."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        import torch

        self._dtype = None if plan.dtype is None else getattr(torch, plan.dtype)
        self.may_be_negated = plan.may_be_negated
        # What `torch.cuda.caching_allocator_alloc` calls; half of a new tensor's time.
        self._alloc: Callable[[int, int], int] = torch._C._cuda_cudaCachingAllocator_raw_alloc
        self._free: Callable[[int], None] = torch._C._cuda_cudaCachingAllocator_raw_delete
        self._raw_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", None) or _slow_stream

    def _new(self, a: object) -> tuple[object, int]:
        like = cast(Tensor, a)
        c = like.new_empty(self._shape) if self._dtype is None else like.new_empty(self._shape, dtype=self._dtype)
        at_c = c.data_ptr()
        return (c.mT if self._turned else c), at_c

    def _copied(self, array: object) -> tuple[object, int]:
        made = cast(Tensor, array).contiguous()
        return made, made.data_ptr()

    def _room(self, stream: int) -> int:
        # The allocator knows no current device here, where several are.
        if self._is_alone:
            return self._alloc(self._size, stream)
        with cuda_driver.on_device(self._device):
            return self._alloc(self._size, stream)

    def _release(self, room: int) -> None:
        self._free(room)

    def _stream(self) -> int:
        return self._raw_stream(self._device)


def _slow_stream(device: int) -> int:
    import torch

    return int(torch.cuda.current_stream(device).cuda_stream)


def torch_key(
    how: Hashable, a: Tensor, b: Tensor, c: Tensor | None, factors: Factors, operands: Mapping[str, object]
) -> tuple[Hashable, tuple[int, int, int], tuple[int, ...]]:
    """The key of a call with tensors, the addresses of A, B and C, and those of the operands.

    Raises: RuntimeError or AttributeError for tensors without memory: sparse ones, those of vmap, and others.
    """
    at_a, at_b, at_c = a.data_ptr(), b.data_ptr(), 0
    kind = kind_of(*factors)
    left = type(a), a.shape, a.stride(), a.dtype, a.get_device(), a.requires_grad
    right = type(b), b.shape, b.stride(), b.dtype, b.get_device(), b.requires_grad
    if c is None:
        low: object = (at_a | at_b) & _LOW and (at_a & _LOW, at_b & _LOW)
        key: tuple[Hashable, ...] = (how, kind, left, right, low)
    else:
        at_c = c.data_ptr()
        low = (at_a | at_b | at_c) & _LOW and (at_a & _LOW, at_b & _LOW, at_c & _LOW)
        into = type(c), c.shape, c.stride(), c.dtype, c.get_device(), c.requires_grad
        key = (how, kind, left, right, low, into)
    if not operands:
        return key, (at_a, at_b, at_c), ()
    more = []
    for name, value in operands.items():
        x = cast(Tensor, value)
        more.append(x.data_ptr())
        key = (*key, name, type(x), x.shape, x.stride(), x.dtype, x.get_device(), x.requires_grad)
    return key, (at_a, at_b, at_c), tuple(more)


def replay_torch(
    table: Table,
    how: Hashable,
    a: object,
    b: object,
    c: object,
    alpha: object,
    beta: object,
    operands: Mapping[str, object],
    below_autograd: bool,
) -> object:
    """A call with tensors, if one like it is prepared (`calls.Reader`)."""
    factors = cast(Factors, (alpha, beta))
    tensors = cast("tuple[Tensor, Tensor, Tensor | None]", (a, b, c))
    try:
        key, places, more = torch_key(how, *tensors, factors, operands)
        found = table.get(key)
        if found is None:
            return None
        call = cast(TorchCall, found)
        if call.grads and not below_autograd and sys.modules["torch"].is_grad_enabled():
            return None
        if call.is_complex and (cast(Tensor, a).is_conj() or cast(Tensor, b).is_conj()):
            return None
        if call.may_be_negated and _is_negated(*tensors, *cast("Mapping[str, Tensor]", operands).values()):
            return None
        if call.provisional and sys.modules["torch"].cuda.is_current_stream_capturing():
            return None
        table.last = call
        return call.run(a, b, c, places, more, factors)
    except (RuntimeError, *MISFIT) as error:
        if isinstance(error, sys.modules["torch"].OutOfMemoryError):
            raise DeviceError(f"CUDA is out of memory ({error}): use smaller matrices, or free others") from error
        return None


# --- CuPy -----------------------------------------------------------------------------------------


class CupyCall(_Call):
    """A prepared call with CuPy's arrays. Memory is CuPy's pool's."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        import cupy

        assert plan.dtype is not None
        self._ndarray, self._dtype = cupy.ndarray, plan.dtype
        self._alloc, self._contiguous = cupy.cuda.alloc, cupy.ascontiguousarray
        self._current = cupy.cuda.get_current_stream
        #: Workspaces of captured calls, by the graph: CuPy's pool does not know that the graph still uses them.
        self._captured: dict[int | None, _Pointer] = {}
        self._rooms: dict[int, _Pointer] = {}

    def _new(self, a: object) -> tuple[object, int]:  # noqa: ARG002
        c = self._ndarray(self._shape, self._dtype)
        return (c.swapaxes(-1, -2) if self._turned else c), c.data.ptr

    def _copied(self, array: object) -> tuple[object, int]:
        made = self._contiguous(array)
        return made, made.data.ptr

    def _room(self, stream: int) -> int:
        graph = cuda_driver.capture_of(stream)
        memory = self._captured.get(graph) or self._alloc(self._size)
        self._rooms[memory.ptr] = memory
        if graph is not None:
            self._captured[graph] = memory
        return int(memory.ptr)

    def _release(self, room: int) -> None:
        self._rooms.pop(room, None)

    def _stream(self) -> int:
        return int(self._current().ptr)


class _Pointer(Protocol):
    ptr: int
    device_id: int


class CupyLike(Protocol):
    """The members of a `cupy.ndarray` that a replay uses."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: object
    data: _Pointer


def cupy_key(
    how: Hashable, a: CupyLike, b: CupyLike, c: CupyLike | None, factors: Factors, operands: Mapping[str, object]
) -> tuple[Hashable, tuple[int, int, int], tuple[int, ...]]:
    """As `torch_key`, with CuPy's arrays."""
    place_a, place_b = a.data, b.data
    at_a, at_b, at_c = place_a.ptr, place_b.ptr, 0
    left = type(a), a.shape, a.strides, a.dtype, place_a.device_id
    right = type(b), b.shape, b.strides, b.dtype, place_b.device_id
    key: tuple[Hashable, ...] = (how, kind_of(*factors), left, right, at_a & _LOW, at_b & _LOW)
    if c is not None:
        place_c = c.data
        at_c = place_c.ptr
        key = (*key, type(c), c.shape, c.strides, c.dtype, place_c.device_id, at_c & _LOW)
    more = []
    for name, value in operands.items():
        x = cast(CupyLike, value)
        more.append(x.data.ptr)
        key = (*key, name, type(x), x.shape, x.strides, x.dtype, x.data.device_id, x.data.ptr & _LOW)
    return key, (at_a, at_b, at_c), tuple(more)


def replay_cupy(
    table: Table,
    how: Hashable,
    a: object,
    b: object,
    c: object,
    alpha: object,
    beta: object,
    operands: Mapping[str, object],
    below_autograd: bool,  # noqa: ARG001
) -> object:
    """A call with CuPy's arrays, if one like it is prepared (`calls.Reader`)."""
    factors = cast(Factors, (alpha, beta))
    try:
        key, places, more = cupy_key(
            how, cast(CupyLike, a), cast(CupyLike, b), cast("CupyLike | None", c), factors, operands
        )
        found = table.get(key)
        if found is None:
            return None
        table.last = found
        return cast(CupyCall, found).run(a, b, c, places, more, factors)
    except MISFIT:
        return None
    except MemoryError as error:
        raise DeviceError(f"CUDA is out of memory ({error}): use smaller matrices, or free others") from error


def _is_negated(*tensors: Tensor | None) -> bool:
    return any(x is not None and x.is_neg() for x in tensors)


def _has_even_strides(tensor: Tensor) -> bool:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return all(step % 2 == 0 for extent, step in steps if extent > 1)


# --- keeping --------------------------------------------------------------------------------------


def keep(
    table: Table,
    how: Hashable,
    arrays: tuple[object, object, object],
    factors: Factors,
    operands: Mapping[str, object],
    plan: Plan,
) -> None:
    """Keep a call for others like it. Arrays of no known library are left alone, and what has no key."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    kinds = {type(x) for x in (*arrays, *operands.values()) if x is not None}
    try:
        if torch is not None and kinds <= {torch.Tensor, torch.nn.Parameter}:
            a, b, c = cast("tuple[Tensor, Tensor, Tensor | None]", arrays)
            key = torch_key(how, a, b, c, factors, operands)[0]
            tensors = [x for x in (a, b, c, *cast("Mapping[str, Tensor]", operands).values()) if x is not None]
            plan = replace(plan, may_be_negated=any(map(_has_even_strides, tensors)))
            table.keep(key, TorchCall(plan), plan.provisional)
            READERS.update(dict.fromkeys((torch.Tensor, torch.nn.Parameter), replay_torch))
        elif cupy is not None and kinds == {cupy.ndarray}:
            left, right, into = cast("tuple[CupyLike, CupyLike, CupyLike | None]", arrays)
            table.keep(cupy_key(how, left, right, into, factors, operands)[0], CupyCall(plan), plan.provisional)
            READERS[cupy.ndarray] = replay_cupy
    except (RuntimeError, *MISFIT):  # a schedule that is no key, say
        return
