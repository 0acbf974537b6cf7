"""Calls that are made again and again: kernels with every argument set but the arrays'.

What there is to check and to compute of a call depends on the shapes, strides and types of its arrays, beside where
they lie. So the first call of a kind is checked as any other, and prepares the launch; for those after it the arrays
are set and the kernels enqueued.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, cast

import numpy as np
import pyopencl as cl

from gemmgen.runtime import binding, host
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.host import Numbers, address
from gemmgen.runtime.operands import letter
from gemmgen.runtime.programs import Built, argument, kernels_of, ranges, translation, workspace_bytes
from gemmgen.runtime.resident import DeviceArray, ResidentStage
from gemmgen.runtime.views import new_array
from gemmgen.runtime.waiting import Pace, is_main_thread, leave, under_way
from gemmgen.source import Source

#: By name: a, b, c, which may be None, and what the epilogue takes.
Arrays: TypeAlias = Mapping[str, object]
#: Types of numbers whose equals scale alike, so that they can be looked up.
_NUMBERS = (int, float, complex, type(None))
#: Multiply-adds that take no longer than to wake another thread, and those of a single work-item, whose vectors do many
#: at a time, and which no other thread could help with. Python stands still for as long: 0.05 ms.
FEW, FEW_FOR_ONE = 2**16, 2**20
_STATUS, _COMPLETE = cl.event_info.COMMAND_EXECUTION_STATUS, cl.command_execution_status.COMPLETE
#: What a call was given, its result and its event; None where the arrays' places ask for a closer look.
Done: TypeAlias = "tuple[object, cl.Event] | None"


def kind_of(arrays: Arrays, alpha: object, beta: object, queue: cl.CommandQueue | None) -> Hashable | None:
    """What calls have in common that one preparation serves; None for a call that is made anew each time.

    That is one with other arrays than NumPy's and pyopencl's own, with parts of buffers, or other types of numbers.
    """
    kind: object = type(arrays["a"])
    on_host = kind is np.ndarray
    if type(alpha) not in _NUMBERS or type(beta) not in _NUMBERS or not (on_host or _is_pyopencls(kind)):
        return None
    common: list[object] = [kind, type(alpha), alpha, type(beta), beta, queue]
    for name, array in arrays.items():
        if array is None and name == "c":
            common.append(None)
            continue
        if type(array) is not kind:
            return None
        some = cast("DeviceArray", array)
        common += (name, some.shape, some.strides, some.dtype)
        if not on_host:
            if some.offset or type(some.base_data) is not cl.Buffer:
                return None
            common += (some.queue, some.context)
    return cast("Hashable", tuple(common))


def _is_pyopencls(kind: object) -> bool:
    """Whether it is their class itself; not imported for the question."""
    module = sys.modules.get("pyopencl.array")
    return module is not None and kind is module.Array


def may_prepare(source: Source, request: Request, queue: cl.CommandQueue) -> bool:
    """Whether nothing but the arrays' places differs from call to call, and the queue keeps kernels in order."""
    views = [view for _, view in request.inputs.values()] + [request.output[2]]
    if not all(view.span for view in views):
        return False
    if any(arg.kind == "image" for entry in source.entry_points for arg in entry.arguments):
        return False
    if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
        return False
    # NumPy puts complex numbers where kernels may not expect them.
    return request.on_device or (host.way_of(queue.device) == "address" and source.spec.dtype.real is None)


def is_small(source: Source, request: Request) -> bool:
    """Whether the thread that calls computes a product sooner by itself than it wakes others."""
    products = request.sizes.get("batch_count", 1)
    multiply_adds = products * math.prod(request.sizes[name] for name in "mnk")
    launches = source.launches(request.sizes)
    work_items = sum(math.prod(groups) * math.prod(source.entry_points[number].group) for number, groups in launches)
    return multiply_adds <= (FEW if work_items > 1 else FEW_FOR_ONE)


@dataclass(slots=True)
class Scratch:
    """The memory between a program's kernels: as much as its largest product so far needed, on one queue.

    Attributes:
        lock: held from a program's first kernel until its last one is enqueued; the queue then keeps their order.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    buffers: dict[str, cl.Buffer] = field(default_factory=dict)

    def buffer(self, context: cl.Context, name: str, size: int) -> cl.Buffer:
        """What is there, if it is large enough."""
        there = self.buffers.get(name)
        if there is None or there.size < size:
            self.buffers.pop(name, None)
            there = self.buffers[name] = cl.Buffer(context, cl.mem_flags.READ_WRITE, size)
        return there


@dataclass(frozen=True, slots=True)
class _Launch:
    """One kernel of a call: its own object, which holds the arguments, and which of them are arrays."""

    kernel: cl.Kernel
    everywhere: tuple[int, int, int]
    group: tuple[int, int, int]
    arrays: tuple[tuple[int, str], ...]


class Prepared:
    """A call but for its arrays. Safe to use from several threads.

    Args:
        request: one that `may_prepare`, whose arrays are forgotten.
        scratch: the queue's memory between kernels.
        is_within: whether the queue's kernels run in the thread that calls, so that they are through when it
            comes back.
    """

    def __init__(
        self,
        source: Source,
        built: Built,
        queue: cl.CommandQueue,
        request: Request,
        scratch: Scratch,
        is_within: bool,
    ) -> None:
        self._queue, self._device, self._scratch, self._on_device = queue, queue.device, scratch, request.on_device
        self._views = {name: view for name, (_, view) in request.inputs.items()} | {"c": request.output[2]}
        values: dict[str, object] = {**request.sizes, **request.scalars}
        for name, view in self._views.items():
            values |= {f"ld{letter(name)}": view.ld, f"stride_{letter(name)}": view.stride}
        self._between = workspace_bytes(source, request.sizes, queue.device)
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        self._is_within, self._pace = is_within, Pace()
        self._launches: list[_Launch] = []
        kernels = kernels_of(source, built.program)
        for number, groups in source.launches(sizes):
            entry, kernel = source.entry_points[number], kernels[number]
            for index, arg in enumerate(entry.arguments):
                if arg.kind != "buffer":
                    kernel.set_arg(index, argument(entry, arg.name, arg.kind, arg.dtype, values))
            places = tuple((index, arg.name) for index, arg in enumerate(entry.arguments) if arg.kind == "buffer")
            self._launches.append(_Launch(kernel, *ranges(entry, groups), places))

    def run(self, arrays: Arrays, wait_for: Sequence[cl.Event]) -> Done:
        """Compute it. Raises: DeviceError."""
        try:  # not `translated`, which takes longer to enter than all else here
            if self._on_device:
                return self._on_buffers(arrays, wait_for)
            if self._is_within or is_main_thread():
                return self._on_memory(arrays, wait_for)
            with under_way():
                return self._on_memory(arrays, wait_for)
        except cl.Error as error:
            raise translation(error, self._device) from error

    def _on_memory(self, arrays: Arrays, wait_for: Sequence[cl.Event]) -> Done:
        given = cast("Mapping[str, Numbers | None]", arrays)
        c = new_array(self._views["c"]) if given["c"] is None else given["c"]
        if not c.flags.behaved:
            return None
        places: dict[str, object] = {"c": address(c, self._views["c"])}
        for name, x in given.items():
            if x is None or name == "c":
                continue
            if not x.flags.aligned or np.may_share_memory(c, x):
                return None
            places[name] = address(x, self._views[name])
        try:
            event = self._enqueue(places, wait_for)
            if not (self._is_within and event.get_info(_STATUS) == _COMPLETE):
                self._pace.wait(event.wait, partial(binding.wait_for, event))
        except KeyboardInterrupt:
            leave(partial(binding.finish, self._queue), (given, c))
            raise
        return c, event

    def _on_buffers(self, arrays: Arrays, wait_for: Sequence[cl.Event]) -> Done:
        read = {name: cast("DeviceArray", x) for name, x in arrays.items() if name != "c"}
        given = cast("DeviceArray | None", arrays["c"])
        c = ResidentStage(self._queue).empty(self._views["c"]) if given is None else given
        if any(c.base_data == x.base_data for x in read.values()):
            return None
        all_of_them = {**read, "c": c}
        before = [*wait_for, *(event for x in all_of_them.values() for event in x.events)]
        event = self._enqueue({name: x.base_data for name, x in all_of_them.items()}, before)
        c.add_event(event)
        return c, event

    def _enqueue(self, arrays: Mapping[str, object], wait_for: Sequence[cl.Event]) -> cl.Event:
        """All kernels, each after the one before; the last one's event."""
        event: cl.Event | None = None
        places = cast("dict[str, cl.Buffer]", dict(arrays) if self._between else arrays)
        with self._scratch.lock:
            for name, size in self._between.items():
                places[name] = self._scratch.buffer(self._queue.context, name, size)
            for launch in self._launches:
                set_arg = launch.kernel.set_arg
                for index, name in launch.arrays:
                    set_arg(index, places[name])
                before = wait_for if event is None else [event]
                event = cl.enqueue_nd_range_kernel(
                    self._queue, launch.kernel, launch.everywhere, launch.group, wait_for=before
                )
        assert event is not None
        return event
