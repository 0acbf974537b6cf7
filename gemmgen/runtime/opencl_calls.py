"""Prepared calls on an OpenCL device, and their replays with arrays of NumPy (by address) and of pyopencl.

As on CUDA, a replay takes a *frame* from a list: kernel objects of its own, which hold the arguments. So threads share
a call without a lock, unless memory passes between kernels. OpenCL's functions are called by ctypes, which takes a
third of pyopencl's time.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Never, cast

import numpy as np
import pyopencl as cl

from gemmgen.runtime import opencl_arrays, opencl_driver
from gemmgen.runtime.arrays import Request, value_of
from gemmgen.runtime.call import Place
from gemmgen.runtime.calls import (
    MISFIT,
    READERS,
    Factors,
    HostCall,
    Numbers,
    Table,
    address_of,
    kind_of,
    numpy_key,
    written,
)
from gemmgen.runtime.opencl_arrays import DeviceArray
from gemmgen.runtime.opencl_build import Built, kernels_of, ranges
from gemmgen.runtime.opencl_driver import failure
from gemmgen.runtime.views import View
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

    __slots__ = ("arguments", "factors", "kernels", "launches", "places", "rooms", "scalars")

    def __init__(self, kernels: Sequence[cl.Kernel], factors: Factors, count: int) -> None:
        self.kernels, self.factors = kernels, factors
        self.launches: list[_Launch] = []
        self.arguments: tuple[int, ...] = (0,) * count
        #: For each array, the kernels that take it and the argument's number; so for each workspace and for scalars.
        self.places: list[list[tuple[ctypes.c_void_p, ctypes.c_uint]]] = [[] for _ in range(count)]
        self.rooms: list[tuple[str, ctypes.c_void_p, ctypes.c_uint]] = []
        self.scalars: list[tuple[str, str, ctypes.c_void_p, ctypes.c_uint]] = []


class OpenCLLaunches:
    """All kernels of a product on one queue that keeps its order. Safe to use from several threads.

    Args:
        names: the names of the arrays, in the order in which `launch` gets them.
        values: the other arguments by name: integers, alpha and beta.
        factors: alpha and beta as the caller passed them.
        rooms: the bytes of each workspace.
        by_address: whether arrays are passed by their addresses (system SVM), else as buffers.
    """

    def __init__(
        self,
        source: Source,
        built: Built,
        queue: cl.CommandQueue,
        names: Sequence[str],
        values: Mapping[str, complex],
        factors: Factors,
        rooms: Mapping[str, int],
        scratch: Scratch,
        by_address: bool,
    ) -> None:
        self._source, self._built, self._queue, self._scratch = source, built, queue, scratch
        self._names, self._values, self._factors, self._rooms = list(names), dict(values), factors, dict(rooms)
        self._by_address = by_address
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        self._grids = source.launches(sizes)
        self._handle = ctypes.c_void_p(queue.int_ptr)
        library = opencl_driver.library()
        self._set, self._set_address = library.clSetKernelArg, library.clSetKernelArgSVMPointer
        self._enqueue = library.clEnqueueNDRangeKernel
        self._frames: list[_Frame] = []

    def launch(
        self,
        arguments: tuple[int, ...],
        factors: Factors,
        wait_for: Sequence[int] = (),
        wants_event: bool = False,
    ) -> int:
        """Enqueue all kernels, in order.

        Args:
            arguments: the arrays' addresses, or handles of their buffers.
            factors: alpha and beta. They may be zero only if those were that the call was prepared with.
            wait_for: handles of events.

        Returns: the handle of the last kernel's event, if it is wanted; 0 otherwise.

        Raises: DeviceError; struct.error, OverflowError or TypeError for factors that the kernels' type does not hold.
        """
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        if arguments != frame.arguments:
            self._place(frame, arguments)
        if factors != frame.factors:
            self._write_factors(frame, factors)
        if self._rooms:
            with self._scratch.lock:
                self._place_rooms(frame)
                event = self._enqueued(frame, wait_for, wants_event)
        else:
            event = self._enqueued(frame, wait_for, wants_event)
        self._frames.append(frame)
        return event

    def _enqueued(self, frame: _Frame, wait_for: Sequence[int], wants_event: bool) -> int:
        if not wants_event and not wait_for:
            for each in frame.launches:
                code = self._enqueue(self._handle, each.kernel, 3, None, each.everywhere, each.group, 0, None, None)
                if code:
                    raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
            return 0
        # Kernels of one queue run in order, so that only the first one waits, and the last one is waited for.
        event = ctypes.c_void_p()
        before: tuple[object, object] = (0, None)
        if wait_for:
            before = len(wait_for), (ctypes.c_void_p * len(wait_for))(*wait_for)
        for number, each in enumerate(frame.launches):
            after = ctypes.byref(event) if number == len(frame.launches) - 1 else None
            code = self._enqueue(self._handle, each.kernel, 3, None, each.everywhere, each.group, *before, after)
            if code:
                raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
            before = (0, None)
        return event.value or 0

    def _place(self, frame: _Frame, arguments: tuple[int, ...]) -> None:
        """Set those arrays that are others than before."""
        for old, new, places in zip(frame.arguments, arguments, frame.places, strict=True):
            if old != new:
                pointer = ctypes.c_void_p(new)
                for kernel, index in places:
                    if self._by_address:
                        code = self._set_address(kernel, index, pointer)
                    else:
                        code = self._set(kernel, index, _POINTER, ctypes.byref(pointer))
                    if code:
                        raise failure(code, "clSetKernelArg", self._queue.device)
        frame.arguments = arguments

    def _place_rooms(self, frame: _Frame) -> None:
        for name, kernel, index in frame.rooms:
            pointer = ctypes.c_void_p(self._scratch.buffer(self._queue.context, name, self._rooms[name]).int_ptr)
            self._set(kernel, index, _POINTER, ctypes.byref(pointer))

    def _write_factors(self, frame: _Frame, factors: Factors) -> None:
        known = {"alpha": factors[0], "beta": factors[1]}
        for name, dtype, kernel, index in frame.scalars:
            if (value := known.get(name)) is not None:
                data = written(value, dtype)
                self._set(kernel, index, ctypes.c_size_t(len(data)), data)
        frame.factors = factors

    def _new_frame(self) -> _Frame:
        kernels = kernels_of(self._source, self._built.program)
        frame = _Frame(kernels, self._factors, len(self._names))
        for number, groups in self._grids:
            entry, kernel = self._source.entry_points[number], kernels[number]
            handle = ctypes.c_void_p(kernel.int_ptr)
            for number_of_argument, argument in enumerate(entry.arguments):
                index = ctypes.c_uint(number_of_argument)
                if argument.name in self._names:
                    frame.places[self._names.index(argument.name)].append((handle, index))
                elif argument.name in self._rooms:
                    frame.rooms.append((argument.name, handle, index))
                else:
                    data = np.dtype(argument.dtype).type(value_of(entry, argument.name, self._values)).tobytes()
                    self._set(handle, index, ctypes.c_size_t(len(data)), data)
                    if argument.name in ("alpha", "beta"):
                        frame.scalars.append((argument.name, argument.dtype, handle, index))
            everywhere, group = ranges(entry, groups)
            sizes = ctypes.c_size_t * 3
            frame.launches.append(_Launch(handle, sizes(*everywhere), sizes(*group)))
        return frame


# --- NumPy's arrays -------------------------------------------------------------------------------

#: Multiply-adds that take no longer than waking another thread; and those of a single work-item, whose vectors do many
#: at a time, and for which no other thread could help. Python is blocked for as long: 0.05 ms.
FEW, FEW_FOR_ONE = 2**16, 2**20
_STATUS, _COMPLETE = cl.event_info.COMMAND_EXECUTION_STATUS, cl.command_execution_status.COMPLETE


def may_prepare(source: Source, request: Request, queue: cl.CommandQueue) -> bool:
    """Whether only the arrays' addresses differ from call to call, and the queue executes in order."""
    views = [view for _, view in request.inputs.values()] + [request.output[2]]
    if not all(view.span for view in views):
        return False
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


class AddressCall(HostCall):
    """A prepared call with NumPy's arrays, whose kernels take addresses.

    Args:
        views: as for `HostCall`.
        is_within: whether the queue's kernels run in the calling thread, so that they have ended when the enqueue
            returns (cl_intel_exec_by_local_thread).
    """

    def __init__(
        self, launches: OpenCLLaunches, queue: cl.CommandQueue, views: Sequence[View], is_within: bool
    ) -> None:
        super().__init__(views)
        self._launches, self._queue, self._is_within = launches, queue, is_within
        self._queue_launch, self._pace = launches.launch, Pace()

    def compute(self, addresses: tuple[int, ...], factors: Factors, held: object) -> None:
        if self._is_within:
            self._queue_launch(addresses, factors)
        else:
            self.event(addresses, factors, held)

    def first(
        self,
        a: Numbers,
        b: Numbers,
        c: Numbers | None,
        operands: Sequence[object],
        factors: Factors,
        place: Place[cl.CommandQueue, cl.Event, Never],
    ) -> tuple[Numbers, cl.Event] | None:
        """The result and the event of the call that was prepared. None if its arrays may overlap."""
        others = cast("Sequence[Numbers]", operands)
        addresses = address_of(a), address_of(b), 0 if c is None else address_of(c)
        made = self.placed(c, addresses, tuple(map(address_of, others)))
        if made is None:
            return None
        result, placed = made
        event = self.event(placed, factors, (a, b, result, others), place.wait_for)
        if self._is_within and event.get_info(_STATUS) != _COMPLETE:
            event.wait()
            self._is_within = False  # the runtime does not do what its extension says
        return result, event

    def event(
        self, addresses: tuple[int, ...], factors: Factors, held: object, wait_for: Sequence[cl.Event] = ()
    ) -> cl.Event:
        """As `compute`, after some events. Returns the event of the last kernel."""
        if is_main_thread():
            return self._waited(addresses, factors, held, wait_for)
        with under_way():
            return self._waited(addresses, factors, held, wait_for)

    def _waited(
        self, addresses: tuple[int, ...], factors: Factors, held: object, wait_for: Sequence[cl.Event]
    ) -> cl.Event:
        try:
            handle = self._launches.launch(addresses, factors, [event.int_ptr for event in wait_for], True)
            event = cl.Event.from_int_ptr(handle, retain=False)
            if not self._is_within:
                self._pace.wait(partial(_wait, handle, self._queue.device))
        except KeyboardInterrupt:
            leave(partial(opencl_driver.finish, self._queue), held)
            raise
        return event


def event_of_prepared(
    table: Table,
    arrays: tuple[object, object, object],
    factors: Factors,
    operands: Mapping[str, object],
    place: Place[cl.CommandQueue, cl.Event, Never],
) -> tuple[object, cl.Event] | None:
    """The result and the event of a call with NumPy's arrays, if one like it is prepared on the same queue."""
    if any(type(x) is not np.ndarray for x in (*arrays, *operands.values()) if x is not None):
        return None
    a, b, c = cast("tuple[Numbers, Numbers, Numbers | None]", arrays)
    try:
        call = table.get(numpy_key(place.queue, a, b, c, factors, operands)[0])
        if not isinstance(call, AddressCall):
            return None
        return call.first(a, b, c, list(operands.values()), factors, place)
    except MISFIT:
        return None


def _wait(handle: int, device: cl.Device) -> None:
    """Wait in C. Raises: DeviceError."""
    event = ctypes.c_void_p(handle)
    if code := opencl_driver.library().clWaitForEvents(ctypes.c_uint32(1), ctypes.byref(event)):
        raise failure(code, "clWaitForEvents", device)


# --- pyopencl's arrays ----------------------------------------------------------------------------


class BufferCall:
    """A prepared call with pyopencl's arrays, each a whole buffer.

    Args:
        shape, dtype: a new result's, as it is stored.
        turned: whether a new result is the transpose of what is stored.

    Attributes:
        about: as `HostCall`'s.
    """

    about: object = None

    def __init__(
        self,
        launches: OpenCLLaunches,
        queue: cl.CommandQueue,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        turned: bool,
    ) -> None:
        self._launches, self._queue = launches, queue
        self._shape, self._dtype, self._turned, self._mirrored = shape, dtype, turned, False

    def run(
        self,
        a: DeviceArray,
        b: DeviceArray,
        c: DeviceArray | None,
        operands: Sequence[DeviceArray],
        factors: Factors,
        wait_for: Sequence[cl.Event] = (),
    ) -> tuple[DeviceArray, cl.Event] | None:
        """The result and its event; None if the full checks are needed."""
        c = self._new() if c is None else c
        read = (b, a, *operands) if self._mirrored else (a, b, *operands)
        if any(c.base_data == x.base_data for x in read):
            return None
        first, second, *others = read
        every = (first, second, c, *others)
        before = [event.int_ptr for event in wait_for] + [event.int_ptr for x in every for event in x.events]
        buffers = tuple(cast(cl.Buffer, x.base_data).int_ptr for x in every)
        handle = self._launches.launch(buffers, factors, before, True)
        event = cl.Event.from_int_ptr(handle, retain=False)
        c.add_event(event)
        return c, event

    def _new(self) -> DeviceArray:
        from pyopencl.array import empty

        made = empty(self._queue, self._shape, self._dtype)
        if self._turned:
            last = len(self._shape) - 1
            made = made.transpose((*range(last - 1), last, last - 1))
        return cast(DeviceArray, made)

    def of_product(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], _reach: tuple[int, ...], mirrored: bool, /
    ) -> BufferCall:
        made = copy(self)
        made._shape, made._dtype, made._turned, made._mirrored = shape, dtype, False, mirrored
        return made

    def keep(
        self,
        table: Table,
        how: Hashable,
        arrays: tuple[object, object, object],
        factors: Factors,
        operands: Mapping[str, object],
        provisional: bool = False,
    ) -> None:
        from pyopencl.array import Array

        if type(arrays[0]) is not Array:
            return
        known = cast("tuple[DeviceArray, DeviceArray, DeviceArray | None]", arrays)
        with suppress(TypeError, AttributeError):  # a schedule that is no key, say
            key = buffer_key(how, *known, factors, operands)
            if key is not None:
                table.keep(key, self, provisional)
            READERS[Array] = cast("Callable[..., object]", replay_buffers)


def buffer_key(
    how: Hashable,
    a: DeviceArray,
    b: DeviceArray,
    c: DeviceArray | None,
    factors: Factors,
    operands: Mapping[str, object],
) -> Hashable | None:
    """The key of a call with pyopencl's arrays; None for parts of buffers."""
    found: list[object] = [how, kind_of(*factors), c is None, *operands]
    for x in (a, b, *(() if c is None else (c,)), *cast("Mapping[str, DeviceArray]", operands).values()):
        if type(x) is not type(a) or not _is_whole(x):
            return None
        found += (x.shape, x.strides, x.dtype, x.queue, x.context)
    return tuple(found)


def replay_buffers(
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
    """A call with pyopencl's arrays, if one like it is prepared (`calls.Reader`)."""
    factors = cast(Factors, (alpha, beta))
    arrays = cast("tuple[DeviceArray, DeviceArray, DeviceArray | None]", (a, b, c))
    try:
        key = buffer_key(how, *arrays, factors, operands)
        call = None if key is None else table.get(key)
        if call is None:
            return None
        table.last = call
        others = list(cast("Mapping[str, DeviceArray]", operands).values())
        done = cast(BufferCall, call).run(*arrays, others, factors)
        return None if done is None else done[0]
    except MISFIT:
        return None
