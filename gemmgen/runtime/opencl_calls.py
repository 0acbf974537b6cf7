"""The calls of kernels on an OpenCL device, with arrays of NumPy and of pyopencl.

Most replays pass arrays' addresses, or whole buffers. Other arrays are staged at each call: copied, or as images.

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
from dataclasses import field, replace
from functools import partial
from typing import Any, Never, TypeAlias, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import ScheduleError
from gemmgen.records import dataclass
from gemmgen.runtime import opencl_arrays, opencl_driver
from gemmgen.runtime.arrays import Request, value_of
from gemmgen.runtime.call import Place
from gemmgen.runtime.calls import Factors, Held, HostCall, Key, Outcome, PreparedCall, kind_of, written
from gemmgen.runtime.opencl_arrays import DeviceArray, HostStage, ResidentStage, Stage
from gemmgen.runtime.opencl_build import kernels_of, ranges
from gemmgen.runtime.opencl_driver import failure, translated
from gemmgen.runtime.views import Numbers, View
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
        self._may_stay = all(self._addressed)
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
        self,
        arguments: tuple[int, ...],
        factors: Factors = (None, None),
        wait_for: Sequence[cl.Event] = (),
        is_ordered: bool = False,
    ) -> list[cl.Event]:
        """As `launch`, on any queue, after some events. Returns the event of each kernel, or of the last one only.

        Args:
            is_ordered: whether the queue keeps the kernels' order, and their times do not matter.

        Raises: as `launch`.
        """
        frame, before, events = self._taken(arguments, factors), wait_for, list[cl.Event]()
        for each in frame.launches:
            event = None if is_ordered and each is not frame.launches[-1] else ctypes.c_void_p()
            waits = (
                (len(before), (ctypes.c_void_p * len(before))(*(x.int_ptr for x in before))) if before else (0, None)
            )
            told = None if event is None else ctypes.byref(event)
            if code := self._enqueue(self._handle, each.kernel, 3, None, each.everywhere, each.group, *waits, told):
                raise failure(code, "clEnqueueNDRangeKernel", self._queue.device)
            before = ()
            if event is not None:
                events.append(cl.Event.from_int_ptr(event.value or 0, retain=False))
                before = events[-1:]
        self._frames.append(frame)
        return events

    def _taken(self, arguments: tuple[int, ...], factors: Factors) -> _Frame:
        """A frame with these arguments."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = self._new_frame()
        if arguments != frame.arguments or not self._may_stay:
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
        self.names = tuple(sizes)

    @contextmanager
    def taken(self) -> Iterator[tuple[int, ...]]:
        """Context with the handles of the buffers, to enqueue a call's kernels in. The queue keeps their order."""
        with self._scratch.lock:
            yield tuple(self._scratch.buffer(self._context, *each).int_ptr for each in self._sizes.items())


#: Events to wait for, and a queue.
_Place: TypeAlias = Place[cl.CommandQueue, cl.Event, Never]


@dataclass(frozen=True, slots=True)
class Work:
    """What the calls of one kind run.

    Attributes:
        kind: a checked call without its arrays.
        names: the names of the arrays, in order.
        factors: alpha and beta as they were passed.
        outcome: the result.
        rooms: the workspaces; None if there are none.
    """

    source: Source
    program: opencl_driver.Program
    queue: cl.CommandQueue
    kind: Request
    names: Sequence[str]
    factors: Factors
    outcome: Outcome
    rooms: Rooms | None

    def launches(self) -> OpenCLLaunches:
        """The kernels, for arrays that are used in place."""
        addressed = () if self.kind.on_device else self.names
        names = [*self.names, *(self.rooms.names if self.rooms else ())]
        values = self.kind.numbers(self.kind.views)
        return OpenCLLaunches(self.source, self.program, self.queue, names, values, self.factors, addressed)


class StagedCall(PreparedCall):
    """A call whose arrays are staged each time."""

    def __init__(self, work: Work) -> None:
        super().__init__(work.outcome, work.names)
        self._work, self._queue, self._pace = work, work.queue, Pace()
        #: Launches by the layouts that kernels see, and by what is passed by address. Runtimes may keep some memory of
        #: each kernel object, so that these are used again.
        self._known: dict[object, OpenCLLaunches] = {}

    def perform(self, request: Request, factors: Factors, place: _Place) -> tuple[object, cl.Event]:
        with under_way(), translated(self._queue.device), _stage(request, self._queue, place.wait_for) as stage:
            _, output, view = request.output
            if not view.span:
                return stage.empty(view) if output is None else output, stage.nothing_to_do()
            launches, memory, result = self._placed(request, stage)
            event = launches.events(handles_of(memory), factors, stage.wait_for)[-1]
            if not request.on_device:
                self._pace.wait(event.wait, partial(opencl_driver.wait_for, event))
            return result, stage.finish(event)

    def _compute(self, _: tuple[int, ...], factors: Factors, held: Held, place: _Place | None) -> cl.Event:
        a, b, c, operands = held
        found, kind = {"a": b if self._mirrored else a, "b": a if self._mirrored else b, **operands}, self._work.kind
        inputs = {name: (found[name], view) for name, (_, view) in kind.inputs.items()}
        request = replace(kind, inputs=inputs, output=("c", c, kind.output[2]))
        return self.perform(request, factors, place or Place())[1]

    def times(self, request: Request, iterations: int) -> list[float]:
        """The device time of each run in seconds."""
        seconds, events = list[float](), list[cl.Event]()
        if not request.output[2].span:
            return [0.0] * iterations
        with under_way(), translated(self._queue.device), _stage(request, self._queue, ()) as stage:
            launches, memory, _ = self._placed(request, stage)
            for _ in range(iterations):
                events = launches.events(handles_of(memory), wait_for=stage.wait_for)
                self._pace.wait(events[-1].wait, partial(opencl_driver.wait_for, events[-1]))
                seconds.append(sum(e.profile.end - e.profile.start for e in events) * 1e-9)
            if events:
                stage.finish(events[-1])
        return seconds

    def _placed(self, request: Request, stage: Stage[object]) -> tuple[OpenCLLaunches, Mapping[str, object], object]:
        """Make every operand accessible to the kernels. Returns their launches, the arguments by name, and the result
        array.
        """
        source = self._work.source
        images = {arg.name for entry in source.entry_points for arg in entry.arguments if arg.kind == "image"}
        shown = {name: view for name, (_, view) in request.inputs.items() if name in images and view.span}
        check_images({x: v.fast for x, v in shown.items()}, {x: v.slow for x, v in shown.items()}, stage.device)
        memory, seen = dict[str, object](), dict[str, View]()
        for name, (array, view) in request.inputs.items():
            seen[name] = view
            if not view.span:
                memory[name] = stage.unread(name in images)
            elif name in images:
                memory[name] = stage.image(array, view)
            else:
                memory[name], seen[name] = stage.input(array, view)
        name, output, view = request.output
        result, memory[name], seen[name] = stage.output(output, view, request.loads_output)
        values = request.numbers(seen)
        # OpenCL keeps buffers until the kernels have ended.
        rooms = request.workspaces.items()
        memory |= {x: cl.Buffer(stage.queue.context, cl.mem_flags.READ_WRITE, size) for x, size in rooms}
        addressed = [each for each, x in memory.items() if isinstance(x, int)]
        key = tuple(seen.items()), tuple(memory), tuple(addressed)
        if (known := self._known.get(key)) is None:
            made = self._work.program, stage.queue, [*memory], values, self._work.factors, addressed
            known = self._known[key] = OpenCLLaunches(source, *made)
        return known, memory, result


def _stage(request: Request, queue: cl.CommandQueue, wait_for: Sequence[cl.Event]) -> Stage[object]:
    kind = ResidentStage if request.on_device else HostStage
    return cast("Stage[object]", kind(queue, wait_for))


def handles_of(memory: Mapping[str, object]) -> tuple[int, ...]:
    """Arguments as OpenCL takes them: addresses, handles of buffers and images, 0 for nothing."""
    return tuple(
        x if isinstance(x, int) else 0 if x is None else cast(cl.MemoryObject, x).int_ptr for x in memory.values()
    )


def check_images(widths: Mapping[str, int], heights: Mapping[str, int], device: cl.Device) -> None:
    """Raises: ScheduleError if a matrix is larger than the device's images can be."""
    most_wide, most_high = (device.image2d_max_width, device.image2d_max_height) if widths else (0, 0)
    problems = [
        f"{name} as an image is {widths[name]} wide and {heights[name]} high, more than the {most_wide}x{most_high} "
        f"of {device.name.strip()}: use a preset that reads buffers, such as L3_SIMD_32x2_1x8"
        for name in widths
        if widths[name] > most_wide or heights[name] > most_high
    ]
    if problems:
        raise ScheduleError(problems)


# --- NumPy's arrays -------------------------------------------------------------------------------

#: Multiply-adds of real numbers that take no longer than waking another thread; and those where no other thread could
#: help, since there is one core or one work-item. Ctrl-C is heard after them: 1 ms by vectors, some 50 ms without.
FEW, FEW_FOR_ONE = 2**18, 2**26
_STATUS, _COMPLETE = cl.event_info.COMMAND_EXECUTION_STATUS, cl.command_execution_status.COMPLETE


def may_prepare(source: Source, request: Request, queue: cl.CommandQueue) -> bool:
    """Whether only the arrays' addresses differ from call to call, and the queue executes in order."""
    if request.is_empty or request.output[0] != "c":
        return False
    if any(arg.kind == "image" for entry in source.entry_points for arg in entry.arguments):
        return False
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return False
    if not request.meets_assumptions:
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


def is_small(source: Source, request: Request, cores: int) -> bool:
    """Whether the calling thread computes a product faster than it could wake other threads."""
    products = request.sizes.get("batch_count", 1)
    multiply_adds = products * math.prod(request.sizes[name] for name in "mnk") * source.spec.dtype.flops // 2
    launches = source.launches(request.sizes)
    work_items = sum(math.prod(groups) * math.prod(source.entry_points[number].group) for number, groups in launches)
    return multiply_adds <= (FEW_FOR_ONE if min(work_items, cores) == 1 else FEW)


class StagedHostCall(StagedCall, HostCall):
    """A call with NumPy's arrays, which are staged."""


class AddressCall(HostCall):
    """A call with NumPy's arrays, whose kernels take addresses.

    Args:
        is_within: whether the queue's kernels run in the calling thread, so that they have ended when the enqueue
            returns (cl_intel_exec_by_local_thread).
    """

    is_by_address = True

    def __init__(self, work: Work, is_within: bool) -> None:
        super().__init__(work.outcome, work.names)
        self._launches, self._queue, self._is_within, self._rooms = work.launches(), work.queue, is_within, work.rooms
        self._queue_launch, self._pace = self._launches.launch, Pace()

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
        return launches.events(addresses, factors, wait_for, is_ordered=True)[0]
    with rooms.taken() as handles:
        return launches.events((*addresses, *handles), factors, wait_for, is_ordered=True)[0]


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
    """The key of a call (`KeyOf`); None for memory without buffers. The places are handles of buffers."""
    found: list[object] = [how, kind_of(factors), c is None, *operands]
    places: list[int] = []
    for x in (a, b, *(() if c is None else (c,)), *operands.values()):
        base = x.base_data
        if type(x) is not type(a) or not isinstance(base, cl.MemoryObjectHolder):
            return None
        found += (x.shape, x.strides, x.dtype, x.queue, x.context, x.offset)
        places.append(base.int_ptr)
    at_a, at_b, at_c, *more = places if c is not None else (*places[:2], 0, *places[2:])
    return tuple(found), (at_a, at_b, at_c), tuple(more)


class ResidentCall(PreparedCall):
    """A call with pyopencl's arrays."""

    key_of = staticmethod(buffer_key)
    _queue: cl.CommandQueue

    def __init__(self, outcome: Outcome, names: Sequence[str]) -> None:
        from pyopencl.array import Array

        self.types = frozenset({Array})
        super().__init__(outcome, names)

    def _take(self, outcome: Outcome) -> None:
        # Places are handles: arrays overlap if they are the same buffer.
        super()._take(replace(outcome, reach=(1,) * len(outcome.reach)))

    def _place_of(self, array: Any) -> int:
        handle: int = cast(cl.Buffer, array.base_data).int_ptr
        return handle

    def _new(self, a: object) -> tuple[Any, int]:  # noqa: ARG002
        from pyopencl.array import empty

        made = empty(self._queue, self._shape, self._dtype)
        handle = cast(cl.Buffer, made.base_data).int_ptr
        if self._transposed:
            last = len(self._shape) - 1
            made = made.transpose((*range(last - 1), last, last - 1))
        return made, handle


class StagedBufferCall(StagedCall, ResidentCall):
    """A call with pyopencl's arrays, which are staged."""


class BufferCall(ResidentCall):
    """A call with pyopencl's arrays, each a whole buffer."""

    def __init__(self, work: Work) -> None:
        super().__init__(work.outcome, work.names)
        self._launches, self._queue, self._rooms = work.launches(), work.queue, work.rooms

    def _compute(self, addresses: tuple[int, ...], factors: Factors, held: Held, place: _Place | None) -> cl.Event:
        a, b, c, operands = held
        before = [] if place is None else list(place.wait_for)
        before += [event for x in (a, b, c, *operands.values()) for event in x.events]
        event = _queued(self._launches, self._rooms, addresses, factors, before)
        c.add_event(event)
        return event
