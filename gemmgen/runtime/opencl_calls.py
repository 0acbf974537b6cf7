"""Prepared calls on an OpenCL device, and their replays with arrays of NumPy (by address) and of pyopencl.

As on CUDA, a replay takes a *frame* from a list: kernel objects of its own, which hold the arguments. So threads share
a call without a lock, unless memory passes between kernels. OpenCL's functions are called by ctypes, which takes a
third of pyopencl's time.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Never, TypeAlias, cast

import numpy as np
import pyopencl as cl

from gemmgen.runtime import opencl_arrays, opencl_driver
from gemmgen.runtime.arrays import Request, value_of
from gemmgen.runtime.call import Place
from gemmgen.runtime.calls import Factors, Held, HostCall, Key, Outcome, PreparedCall, kind_of, written
from gemmgen.runtime.opencl_arrays import DeviceArray
from gemmgen.runtime.opencl_build import kernels_of, ranges
from gemmgen.runtime.opencl_driver import failure
from gemmgen.runtime.views import Numbers
from gemmgen.runtime.waiting import Pace, is_main_thread, leave, under_way
from gemmgen.source import Source

_POINTER = ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))


@dataclass(slots=True)
class Scratch:
    """A program's workspaces on one queue, as large as its largest product so far needed.

    Attributes:
        lock: held from enqueueing a program's first kernel to enqueueing its last. The queue then keeps their order.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    buffers: dict[str, cl.Buffer] = field(default_factory=dict)

    def buffer(self, context: cl.Context, name: str, size: int) -> cl.Buffer:
        """The buffer of a workspace; a new one if the present one is too small."""
        there = self.buffers.get(name)
        if there is None or there.size < size:
            self.buffers.pop(name, None)
            there = self.buffers[name] = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
        return there


@dataclass(frozen=True, slots=True)
class _Launch:
    """A kernel of a frame: its handle, its global and its local size."""

    kernel: ctypes.c_void_p
    everywhere: ctypes.Array[ctypes.c_size_t]
    group: ctypes.Array[ctypes.c_size_t]


class _Frame:
    """Kernel objects for one launch of all kernels, and what their arguments are now."""

    __slots__ = ("arguments", "factors", "kernels", "launches", "places", "scalars")

    def __init__(self, kernels: Sequence[cl.Kernel], factors: Factors, count: int) -> None:
        self.kernels, self.factors = kernels, factors
        self.launches: list[_Launch] = []
        self.arguments: tuple[int | None, ...] = (None,) * count
        #: For each array or workspace, the kernels that take it and the argument's number; so for scalars.
        self.places: list[list[tuple[ctypes.c_void_p, ctypes.c_uint]]] = [[] for _ in range(count)]
        self.scalars: list[tuple[str, str, ctypes.c_void_p, ctypes.c_uint]] = []


class OpenCLLaunches:
    """All kernels of a product on one queue. Safe to use from several threads.

    Args:
        names: the names of the arrays and the workspaces, in the order in which `launch` gets them.
        values: the other arguments by name: integers, alpha and beta.
        factors: alpha and beta as the caller passed them.
        addressed: the names of those that are passed by their addresses (system SVM); others are buffers or images.
    """

    def __init__(
        self,
        source: Source,
        program: opencl_driver.Program,
        queue: cl.CommandQueue,
        names: Sequence[str],
        values: Mapping[str, complex],
        factors: Factors = (None, None),
        addressed: Collection[str] = (),
    ) -> None:
        self._source, self._program, self._queue = source, program, queue
        self._names, self._values, self._factors = list(names), dict(values), factors
        self._addressed = [name in addressed for name in names]
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        self._grids = source.launches(sizes)
        self._handle = ctypes.c_void_p(queue.int_ptr)
        library = opencl_driver.library()
        self._set, self._set_address = library.clSetKernelArg, library.clSetKernelArgSVMPointer
        self._enqueue = library.clEnqueueNDRangeKernel
        self._frames: list[_Frame] = []

    def launch(self, arguments: tuple[int, ...], factors: Factors = (None, None)) -> None:
        """Enqueue all kernels on a queue that keeps their order.

        Args:
            arguments: addresses, or handles of buffers and images; 0 for what no kernel reads.
            factors: alpha and beta. They may be zero only if those were that the call was prepared with.

        Raises: DeviceError; struct.error, OverflowError or TypeError for factors that the kernels' type does not hold.
        """
        frame = self._taken(arguments, factors)
        for each in frame.launches:
            code = self._enqueue(self._handle, each.kernel, 3, None, each.everywhere, each.group, 0, None, None)
            if code:
                raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
        self._frames.append(frame)

    def events(
        self, arguments: tuple[int, ...], factors: Factors = (None, None), wait_for: Sequence[cl.Event] = ()
    ) -> list[cl.Event]:
        """As `launch`, on any queue, after some events. Returns the event of each kernel. Raises: as `launch`."""
        frame, before = self._taken(arguments, factors), list(wait_for)
        events: list[cl.Event] = []
        for each in frame.launches:
            event, handles = ctypes.c_void_p(), (ctypes.c_void_p * len(before))(*(x.int_ptr for x in before))
            waits = (len(before), handles) if before else (0, None)
            sizes = each.everywhere, each.group
            if code := self._enqueue(self._handle, each.kernel, 3, None, *sizes, *waits, ctypes.byref(event)):
                raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
            before = [cl.Event.from_int_ptr(event.value or 0, retain=False)]
            events += before
        self._frames.append(frame)
        return events

    def last_event(
        self, arguments: tuple[int, ...], factors: Factors = (None, None), wait_for: Sequence[cl.Event] = ()
    ) -> cl.Event:
        """As `launch`, after some events. Returns the event of the last kernel: the queue keeps the order of all.

        Raises: as `launch`.
        """
        frame, event = self._taken(arguments, factors), ctypes.c_void_p()
        waits: tuple[int, Any] = (0, None)
        if wait_for:
            waits = len(wait_for), (ctypes.c_void_p * len(wait_for))(*(x.int_ptr for x in wait_for))
        last = frame.launches[-1]
        for each in frame.launches:
            told = ctypes.byref(event) if each is last else None
            if code := self._enqueue(self._handle, each.kernel, 3, None, each.everywhere, each.group, *waits, told):
                raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
            waits = (0, None)
        self._frames.append(frame)
        return cl.Event.from_int_ptr(event.value or 0, retain=False)

    def _taken(self, arguments: tuple[int, ...], factors: Factors) -> _Frame:
        """A frame with these arguments."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        if arguments != frame.arguments or not all(self._addressed):
            self._place(frame, arguments)
        if factors != frame.factors:
            self._write_factors(frame, factors)
        return frame

    def _place(self, frame: _Frame, arguments: tuple[int, ...]) -> None:
        """Set the addresses that are others than before, and all handles: a new buffer may have an old one's."""
        for old, new, by_address, places in zip(frame.arguments, arguments, self._addressed, frame.places, strict=True):
            if by_address and old == new:
                continue
            pointer = ctypes.c_void_p(new)
            for kernel, index in places:
                if by_address:
                    code = self._set_address(kernel, index, pointer)
                else:
                    code = self._set(kernel, index, _POINTER, ctypes.byref(pointer))
                if code:
                    raise failure(code, "clSetKernelArg", self._queue.device)
        frame.arguments = arguments

    def _write_factors(self, frame: _Frame, factors: Factors) -> None:
        known = {"alpha": factors[0], "beta": factors[1]}
        for name, dtype, kernel, index in frame.scalars:
            if (value := known.get(name)) is not None:
                data = written(value, dtype)
                self._set(kernel, index, ctypes.c_size_t(len(data)), data)
        frame.factors = factors

    def _new_frame(self) -> _Frame:
        kernels = kernels_of(self._source, self._program)
        frame = _Frame(kernels, self._factors, len(self._names))
        for number, groups in self._grids:
            entry, kernel = self._source.entry_points[number], kernels[number]
            handle = ctypes.c_void_p(kernel.int_ptr)
            for number_of_argument, argument in enumerate(entry.arguments):
                index = ctypes.c_uint(number_of_argument)
                if argument.name in self._names:
                    frame.places[self._names.index(argument.name)].append((handle, index))
                else:
                    data = np.dtype(argument.dtype).type(value_of(entry, argument.name, self._values)).tobytes()
                    self._set(handle, index, ctypes.c_size_t(len(data)), data)
                    if argument.name in ("alpha", "beta"):
                        frame.scalars.append((argument.name, argument.dtype, handle, index))
            everywhere, group = ranges(entry, groups)
            sizes = ctypes.c_size_t * 3
            frame.launches.append(_Launch(handle, sizes(*everywhere), sizes(*group)))
        return frame


class Rooms:
    """A prepared call's workspaces: what takes turns in memory that calls on one queue share.

    Args:
        sizes: the bytes of each workspace.
    """

    def __init__(self, context: cl.Context, scratch: Scratch, sizes: Mapping[str, int]) -> None:
        self._context, self._scratch, self._sizes = context, scratch, dict(sizes)

    @contextmanager
    def taken(self) -> Iterator[tuple[int, ...]]:
        """Context with the handles of the buffers, to enqueue a call's kernels in. The queue keeps their order."""
        with self._scratch.lock:
            yield tuple(self._scratch.buffer(self._context, *each).int_ptr for each in self._sizes.items())


# --- NumPy's arrays -------------------------------------------------------------------------------

#: Multiply-adds that take no longer than waking another thread; and those of a single work-item, whose vectors do many
#: at a time, and for which no other thread could help. Python is blocked for as long: 0.05 ms.
FEW, FEW_FOR_ONE = 2**16, 2**20
_STATUS, _COMPLETE = cl.event_info.COMMAND_EXECUTION_STATUS, cl.command_execution_status.COMPLETE


def may_prepare(source: Source, request: Request, queue: cl.CommandQueue) -> bool:
    """Whether only the arrays' addresses differ from call to call, and the queue executes in order."""
    if any(arg.kind == "image" for entry in source.entry_points for arg in entry.arguments):
        return False
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return False
    if request.on_device:
        arrays = [array for array, _ in request.inputs.values()] + [request.output[1]]
        return all(_is_whole(cast(DeviceArray, x)) for x in arrays if x is not None)
    inputs = [(cast("Numbers", array), view) for array, view in request.inputs.values()]
    output = cast("Numbers | None", request.output[1])
    given = inputs if output is None else [*inputs, (output, request.output[2])]
    # Keys have the low bits of addresses, on which that depends.
    is_reached = all(opencl_arrays.is_reachable(*each) for each in given)
    return is_reached and opencl_arrays.way_of(queue.device) == "address"


def _is_whole(array: DeviceArray) -> bool:
    """Whether an array begins where its buffer does."""
    return not array.offset and type(array.base_data) is cl.Buffer


def is_small(source: Source, request: Request) -> bool:
    """Whether the calling thread computes a product faster than it could wake other threads."""
    products = request.sizes.get("batch_count", 1)
    multiply_adds = products * math.prod(request.sizes[name] for name in "mnk")
    launches = source.launches(request.sizes)
    work_items = sum(math.prod(groups) * math.prod(source.entry_points[number].group) for number, groups in launches)
    return multiply_adds <= (FEW if work_items > 1 else FEW_FOR_ONE)


#: Events to wait for, and a queue.
_Place: TypeAlias = Place[cl.CommandQueue, cl.Event, Never]


class AddressCall(HostCall):
    """A prepared call with NumPy's arrays, whose kernels take addresses.

    Args:
        is_within: whether the queue's kernels run in the calling thread, so that they have ended when the enqueue
            returns (cl_intel_exec_by_local_thread).
    """

    def __init__(
        self, launches: OpenCLLaunches, queue: cl.CommandQueue, outcome: Outcome, rooms: Rooms | None, is_within: bool
    ) -> None:
        super().__init__(outcome)
        self._launches, self._queue, self._is_within, self._rooms = launches, queue, is_within, rooms
        self._queue_launch, self._pace = launches.launch, Pace()

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: _Place | None) -> Any:
        if place is None and self._is_within:
            if self._rooms is None:
                self._queue_launch(addresses, factors)
            else:
                with self._rooms.taken() as handles:
                    self._queue_launch((*addresses, *handles), factors)
            return None
        wait_for = () if place is None else place.wait_for
        if is_main_thread():
            event = self._waited(addresses, factors, held, wait_for)
        else:
            with under_way():
                event = self._waited(addresses, factors, held, wait_for)
        if self._is_within and event.get_info(_STATUS) != _COMPLETE:
            event.wait()
            self._is_within = False  # the runtime does not do what its extension says
        return event

    def _waited(
        self, addresses: tuple[int, ...], factors: Factors, held: object, wait_for: Sequence[cl.Event]
    ) -> cl.Event:
        try:
            event = _queued(self._launches, self._rooms, addresses, factors, wait_for)
            if not self._is_within:
                self._pace.wait(partial(_wait, event.int_ptr, self._queue.device))
        except KeyboardInterrupt:
            leave(partial(opencl_driver.finish, self._queue), held)
            raise
        return event


def _queued(
    launches: OpenCLLaunches,
    rooms: Rooms | None,
    addresses: tuple[int, ...],
    factors: Factors,
    wait_for: Sequence[cl.Event],
) -> cl.Event:
    """Enqueue all kernels on a queue that keeps their order. Returns the event of the last."""
    if rooms is None:
        return launches.last_event(addresses, factors, wait_for)
    with rooms.taken() as handles:
        return launches.last_event((*addresses, *handles), factors, wait_for)


def _wait(handle: int, device: cl.Device) -> None:
    """Wait in C. Raises: DeviceError."""
    event = ctypes.c_void_p(handle)
    if code := opencl_driver.library().clWaitForEvents(ctypes.c_uint32(1), ctypes.byref(event)):
        raise failure(code, "clWaitForEvents", device)


# --- pyopencl's arrays ----------------------------------------------------------------------------


def buffer_key(
    how: object,
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray | None,
    factors: Factors,
    operands: Mapping[str, DeviceArray],
) -> Key | None:
    """The key of a call (`KeyOf`); None for parts of buffers. The places are handles of buffers."""
    found: list[object] = [how, kind_of(factors), c is None, *operands]
    places: list[int] = []
    for x in (a, b, *(() if c is None else (c,)), *operands.values()):
        if type(x) is not type(a) or not _is_whole(x):
            return None
        found += (x.shape, x.strides, x.dtype, x.queue, x.context)
        places.append(cast(cl.Buffer, x.base_data).int_ptr)
    at_a, at_b, at_c, *more = places if c is not None else (*places[:2], 0, *places[2:])
    return tuple(found), (at_a, at_b, at_c), tuple(more)


class BufferCall(PreparedCall):
    """A prepared call with pyopencl's arrays, each a whole buffer."""

    key_of = staticmethod(buffer_key)

    def __init__(self, launches: OpenCLLaunches, queue: cl.CommandQueue, outcome: Outcome, rooms: Rooms | None) -> None:
        from pyopencl.array import Array

        self.types = frozenset({Array})
        super().__init__(outcome)
        self._launches, self._queue, self._rooms = launches, queue, rooms

    def _take(self, outcome: Outcome) -> None:
        # Places are handles: arrays overlap if they are the same buffer.
        super()._take(replace(outcome, reach=(1,) * len(outcome.reach)))

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: _Place | None) -> cl.Event:
        a, b, c, operands = held
        before = [] if place is None else list(place.wait_for)
        before += [event for x in (a, b, c, *operands.values()) for event in x.events]
        event = _queued(self._launches, self._rooms, addresses, factors, before)
        c.add_event(event)
        return event

    def _new(self, a: object) -> tuple[Any, int]:  # noqa: ARG002
        from pyopencl.array import empty

        made = empty(self._queue, self._shape, self._dtype)
        handle = cast(cl.Buffer, made.base_data).int_ptr
        if self._transposed:
            last = len(self._shape) - 1
            made = made.transpose((*range(last - 1), last, last - 1))
        return made, handle
