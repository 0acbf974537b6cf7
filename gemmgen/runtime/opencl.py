"""`CompiledKernel`: an OpenCL source that can be called with arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Never, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.runtime import opencl_driver
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.cache import Kept, once
from gemmgen.runtime.call import CallableKernel, Place
from gemmgen.runtime.calls import Factors, Outcome
from gemmgen.runtime.opencl_arrays import DeviceArray, HostStage, ResidentStage, Stage, common_queue
from gemmgen.runtime.opencl_build import build, workspace_bytes
from gemmgen.runtime.opencl_calls import (
    AddressCall,
    BufferCall,
    OpenCLLaunches,
    Rooms,
    Scratch,
    is_small,
    may_prepare,
)
from gemmgen.runtime.opencl_devices import PROFILING, DeviceInfo, DeviceLike, info_of, own_queue, resolve, within_calls
from gemmgen.runtime.opencl_driver import translated
from gemmgen.runtime.views import View
from gemmgen.runtime.waiting import Pace, under_way
from gemmgen.source import Source

KEPT = 8  # contexts that a kernel stays built for, and queues that memory is kept for
CALLS = 64  # kinds of calls whose durations and launches are kept


class CompiledKernel(CallableKernel[cl.Event, cl.CommandQueue, cl.Event, Never]):
    """A kernel that can be called with arrays, all NumPy's or all pyopencl's. Safe to call from several threads.

    It is built once for each context, at the first call there.
    """

    places = frozenset({"queue", "wait_for", "return_event"})

    def __init__(self, source: Source, device: DeviceLike = None) -> None:
        super().__init__(source, device)
        self._own_queue = once(lambda: resolve(device, source.requires))
        self._built: Kept[tuple[cl.Context, cl.Device], opencl_driver.Program] = Kept(KEPT)
        self._scratch: Kept[cl.CommandQueue, Scratch]
        self._paces: Kept[tuple[int, ...], Pace]
        self._launches: Kept[tuple[object, ...], OpenCLLaunches]
        self.release()

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue for calls with NumPy arrays. It measures device time. Small products may run in the calling thread
        instead. Pass this queue to a call that must wait for work queued here.
        """
        return self._own_queue()

    @property
    def device(self) -> DeviceInfo:
        """The device of `queue`."""
        return info_of(self.queue.device)

    def build(self, queue: cl.CommandQueue | None = None) -> None:
        """Compile now for the device of `queue` (its own by default), so that later calls need not.

        Raises: DeviceError, ScheduleError.
        """
        self._program(queue or self.queue)

    def _timed(
        self,
        request: Request,
        factors: Factors,  # noqa: ARG002  (the request has them)
        operands: Sequence[str],  # noqa: ARG002
        queue: cl.CommandQueue | None,
        iterations: int,
    ) -> list[float]:
        queue = self._queue_for(request, queue)
        if not queue.properties & PROFILING:
            raise DeviceError("the queue measures no time: make it with command_queue_properties.PROFILING_ENABLE")
        program, seconds = self._program(queue), []
        if not request.output[2].span:
            return [0.0] * iterations
        events: list[cl.Event] = []
        with under_way(), translated(queue.device), self._stage(request, queue, ()) as stage:
            launches, memory, _ = self._place(request, stage, program)
            for _ in range(iterations):
                events = launches.events(handles_of(memory), wait_for=stage.wait_for)
                self._wait(request, events[-1])
                seconds.append(sum(e.profile.end - e.profile.start for e in events) * 1e-9)
            if events:
                stage.finish(events[-1])
        return seconds

    def _expect_place(self, place: Place[cl.CommandQueue, cl.Event, Never], /) -> None:
        queue, before = cast("tuple[object, object]", (place.queue, place.wait_for))
        problems = []
        if not isinstance(queue, cl.CommandQueue | None):
            problems.append(f"queue is of type {type(queue).__name__}: pass a pyopencl.CommandQueue")
        events = before if isinstance(before, Sequence) else [before]
        wrong = {type(x).__name__ for x in events if not isinstance(x, cl.Event)}
        problems += [f"wait_for holds what is of type {name}: pass a list of pyopencl.Event" for name in sorted(wrong)]
        if problems:
            raise SpecError(problems)

    def _prepared(
        self, request: Request, names: Sequence[str], factors: Factors, queue: cl.CommandQueue | None, /
    ) -> AddressCall | BufferCall | None:
        is_free = queue is None and not request.on_device
        queue = self._queue_for(request, queue)
        if not may_prepare(self.source, request, queue):
            return None
        program = self._program(queue)
        with translated(queue.device):
            within = None
            if is_free and is_small(self.source, request) and queue == own_queue(queue.device):
                within = within_calls(queue.device)
            queue = within or queue
            found = request.views
            values = request.numbers(found)
            outcome, addressed = Outcome.of([found[name] for name in names]), () if request.on_device else names
            sizes = workspace_bytes(self.source, request.sizes, queue.device)
            rooms = Rooms(queue.context, self._scratch.get(queue, Scratch), sizes) if sizes else None
            launches = OpenCLLaunches(self.source, program, queue, [*names, *sizes], values, factors, addressed)
            if request.on_device:
                return BufferCall(launches, queue, outcome, rooms)
            return AddressCall(launches, queue, outcome, rooms, within is not None)

    def _queue_of(self, place: Place[cl.CommandQueue, cl.Event, Never], a: object, /) -> cl.CommandQueue | None:
        # A call that waits for events names a queue, and so does not run in the calling thread.
        is_own = place.queue is None and place.wait_for and type(a) is np.ndarray
        return self.queue if is_own else place.queue

    def release(self) -> None:
        """Free what is kept for later calls: prepared launches and workspaces."""
        self._calls.clear()
        self._scratch, self._paces, self._launches = Kept(KEPT), Kept(CALLS), Kept(CALLS)

    def _run(self, request: Request, place: Place[cl.CommandQueue, cl.Event, Never]) -> tuple[object, cl.Event | None]:
        queue = self._queue_for(request, place.queue)
        program = self._program(queue)
        with under_way(), translated(queue.device), self._stage(request, queue, place.wait_for) as stage:
            _, output, view = request.output
            if not view.span:
                return stage.empty(view) if output is None else output, stage.nothing_to_do()
            launches, memory, result = self._place(request, stage, program)
            event = launches.events(handles_of(memory), wait_for=stage.wait_for)[-1]
            if not request.on_device:
                self._wait(request, event)
            return result, stage.finish(event)

    def _wait(self, request: Request, event: cl.Event) -> None:
        """Wait until a call's last kernel has ended."""
        self._paces.get(tuple(request.sizes.values()), Pace).wait(event.wait, partial(opencl_driver.wait_for, event))

    def _queue_for(self, request: Request, queue: cl.CommandQueue | None) -> cl.CommandQueue:
        if not request.on_device:
            return queue or self.queue
        arrays = {name: array for name, (array, _) in request.inputs.items()}
        name, output, _ = request.output
        if output is not None:
            arrays[name] = output
        with translated():
            return common_queue(cast("dict[str, DeviceArray]", arrays), queue)

    def _program(self, queue: cl.CommandQueue) -> opencl_driver.Program:
        with translated(queue.device):
            key = queue.context, queue.device
        with under_way():
            return self._built.get(key, lambda: build(self.source, *key))

    @staticmethod
    def _stage(request: Request, queue: cl.CommandQueue, wait_for: Sequence[cl.Event]) -> Stage[object]:
        kind = ResidentStage if request.on_device else HostStage
        return cast("Stage[object]", kind(queue, wait_for))

    def _place(
        self, request: Request, stage: Stage[object], program: opencl_driver.Program
    ) -> tuple[OpenCLLaunches, Mapping[str, object], object]:
        """Make every operand accessible to the kernels. Returns their launches, the arguments by name, and the result
        array.
        """
        images = {arg.name for entry in self.source.entry_points for arg in entry.arguments if arg.kind == "image"}
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
        flags = cl.mem_flags.READ_WRITE
        rooms = workspace_bytes(self.source, request.sizes, stage.device)
        memory |= {each: cl.Buffer(stage.queue.context, flags, size) for each, size in rooms.items()}
        addressed = [each for each, x in memory.items() if isinstance(x, int)]
        # Runtimes may keep some memory of each kernel object, so that these are used again.
        launches = self._launches.get(
            (stage.queue, tuple(values.values()), tuple(memory), tuple(addressed)),
            lambda: OpenCLLaunches(self.source, program, stage.queue, [*memory], values, addressed=addressed),
        )
        return launches, memory, result


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
