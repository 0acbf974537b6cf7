"""`CompiledKernel`: an OpenCL source that can be called with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Never, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import DeviceError, SpecError
from gemmgen.runtime import opencl_driver
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.cache import Kept, once
from gemmgen.runtime.call import CallableKernel, Place
from gemmgen.runtime.calls import Factors, Outcome, PreparedCall
from gemmgen.runtime.opencl_arrays import DeviceArray, common_queue
from gemmgen.runtime.opencl_build import build, check_workspaces
from gemmgen.runtime.opencl_calls import (
    AddressCall,
    BufferCall,
    Rooms,
    Scratch,
    StagedBufferCall,
    StagedCall,
    StagedHostCall,
    Work,
    is_small,
    may_prepare,
)
from gemmgen.runtime.opencl_devices import (
    PROFILING,
    DeviceInfo,
    DeviceLike,
    info_of,
    own_queue,
    resolve,
    target_of,
    within_calls,
)
from gemmgen.runtime.opencl_driver import translated
from gemmgen.runtime.waiting import under_way
from gemmgen.source import Source

KEPT = 8  # contexts that a kernel stays built for, and queues that memory is kept for


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
        names: Sequence[str],
        factors: Factors,
        queue: cl.CommandQueue | None,
        iterations: int,
    ) -> list[float]:
        queue = self._queue_for(request, queue)
        if not queue.properties & PROFILING:
            raise DeviceError("the queue measures no time: make it with command_queue_properties.PROFILING_ENABLE")
        return _staged(self._work(request, names, factors, queue)).times(request, iterations)

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

    def _call(
        self, request: Request, names: Sequence[str], factors: Factors, queue: cl.CommandQueue | None, /
    ) -> PreparedCall:
        is_free = queue is None and not request.on_device
        queue = self._queue_for(request, queue)
        with translated(queue.device):
            if not may_prepare(self.source, request, queue):
                return _staged(self._work(request, names, factors, queue))
            within = None
            if is_free and queue == own_queue(queue.device):
                is_within = is_small(self.source, request, target_of(queue.device).cores)
                within = within_calls(queue.device) if is_within else None
            work = self._work(request, names, factors, within or queue)
            return BufferCall(work) if request.on_device else AddressCall(work, within is not None)

    def _work(self, request: Request, names: Sequence[str], factors: Factors, queue: cl.CommandQueue) -> Work:
        sizes = request.workspaces
        check_workspaces(sizes, queue.device)
        rooms = Rooms(queue.context, self._scratch.get(queue, Scratch), sizes) if sizes else None
        kind, outcome = request.without_arrays(), Outcome.of(request, names)
        return Work(self.source, self._program(queue), queue, kind, names, factors, outcome, rooms)

    def _queue_of(self, place: Place[cl.CommandQueue, cl.Event, Never], a: object, /) -> cl.CommandQueue | None:
        # A call that waits for events names a queue, and so does not run in the calling thread.
        is_own = place.queue is None and place.wait_for and type(a) is np.ndarray
        return self.queue if is_own else place.queue

    def release(self) -> None:
        """Free what is kept for later calls: prepared launches and workspaces."""
        self._calls.clear()
        self._scratch = Kept(KEPT)

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


def _staged(work: Work) -> StagedCall:
    return StagedBufferCall(work) if work.kind.on_device else StagedHostCall(work)
