"""A source, ready to be called with arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Never, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import DeviceError, ScheduleError, SpecError
from gemmgen.runtime import binding
from gemmgen.runtime.arrays import Request, check_gemm, check_transpose
from gemmgen.runtime.call import CallableKernel, Matrix, Place
from gemmgen.runtime.devices import DeviceInfo, info_of
from gemmgen.runtime.host import HostStage
from gemmgen.runtime.kept import Kept, once
from gemmgen.runtime.operands import letter
from gemmgen.runtime.prepared import Arrays, Done, Prepared, Scratch, is_small, kind_of, may_prepare
from gemmgen.runtime.programs import Built, build, enqueue, translated, workspace_bytes
from gemmgen.runtime.queues import PROFILING, DeviceLike, own_queue, resolve, within_calls
from gemmgen.runtime.resident import DeviceArray, ResidentStage, common_queue
from gemmgen.runtime.staging import Stage
from gemmgen.runtime.views import SpanError
from gemmgen.runtime.waiting import Pace, under_way
from gemmgen.source import Source

KEPT = 8  # contexts that a kernel stays built for, and queues that memory is kept for
CALLS = 64  # kinds of calls that stay prepared


class CompiledKernel(CallableKernel[cl.Event, cl.CommandQueue, cl.Event, Never]):
    """A kernel that can be called with arrays, all NumPy's or all pyopencl's. Safe to call from several threads.

    It is built once for each context, when that is first needed.
    """

    places = frozenset({"queue", "wait_for", "return_event"})

    def __init__(self, source: Source, device: DeviceLike = None) -> None:
        super().__init__(source)
        self._own_queue = once(lambda: resolve(device, source.requires))
        self._built: Kept[tuple[cl.Context, cl.Device], Built] = Kept(KEPT)
        self._prepared: Kept[Hashable, Prepared | None]
        self._scratch: Kept[cl.CommandQueue, Scratch]
        self._paces: Kept[tuple[int, ...], Pace]
        self.release()

    @classmethod
    def from_source(cls, source: Source, device: DeviceLike = None) -> CompiledKernel:
        """Choose the device and build at once.

        Args:
            device: a device, context or queue of pyopencl; a number or part of a name (`gemmgen devices`);
                None for one that has what the source requires.

        Raises: DeviceError, ScheduleError with everything that is amiss.
        """
        kernel = cls(source, device)
        kernel.build()
        return kernel

    @property
    def queue(self) -> cl.CommandQueue:
        """Where calls with NumPy arrays run, but for small products, which may run within the call: name it for those
        that must wait for what was queued there. It measures device time.
        """
        return self._own_queue()

    @property
    def device(self) -> DeviceInfo:
        """The device of `queue`."""
        return info_of(self.queue.device)

    def build(self, queue: cl.CommandQueue | None = None) -> None:
        """Compile now for the device of `queue` (its own by default); later calls find it done.

        Raises: DeviceError, ScheduleError.
        """
        self._kernels(queue or self.queue)

    def _request(
        self,
        a: object,
        b: object,
        c: object,
        alpha: complex | None,
        beta: complex | None,
        operands: Mapping[str, object],
    ) -> Request:
        spec, span = self.source.spec, self.source.span
        return self._between.checked(check_gemm(spec, a, b, c, alpha, beta, span=span, operands=operands))

    def transpose(self, a: Matrix, out: Matrix | None = None, *, queue: cl.CommandQueue | None = None) -> Matrix:
        """The transposed matrix, for a kernel whose operation that is.

        Args:
            a: [rows, cols], row-major.
            out: [cols, rows], written in place; None allocates it.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        self._expect("transpose")
        request = check_transpose(self.source.spec.dtype, a, out)
        result, _ = self._run(request, Place(queue))
        return cast("Matrix", result)

    def time(
        self,
        a: object,
        b: object = None,
        c: object = None,
        *,
        alpha: complex | None = None,
        beta: complex | None = None,
        queue: cl.CommandQueue | None = None,
        iterations: int = 10,
        **operands: object,
    ) -> list[float]:
        """Run several times on the same arrays; the seconds that the device took for each run.

        Args: as for a call (or for `transpose`, with `b` its result); c is computed `iterations` times.

        Raises: SpecError, DeviceError, ScheduleError.
        """
        if self.source.operation == "gemm":
            request = self._request(a, b, c, alpha, beta, operands)
        else:
            request = check_transpose(self.source.spec.dtype, a, b)
        queue = self._queue_for(request, queue)
        if not queue.properties & PROFILING:
            raise DeviceError("the queue measures no time: make it with command_queue_properties.PROFILING_ENABLE")
        built, seconds = self._kernels(queue), []
        if not request.output[2].span:
            return [0.0] * iterations
        events: list[cl.Event] = []
        with under_way(), translated(queue.device), self._stage(request, queue, ()) as stage:
            values, _ = self._place(request, stage)
            for _ in range(iterations):
                events = self._launch(built, stage, values)
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

    def again(
        self, arrays: Mapping[str, object], alpha: complex | None, beta: complex | None, /
    ) -> tuple[object, cl.Event] | None:
        kind = kind_of(arrays, alpha, beta, None)
        prepared = None if kind is None else self._prepared.known(kind)
        return None if prepared is None else prepared.run(arrays, ())

    def _once_more(
        self,
        arrays: Arrays,
        factors: tuple[complex | None, complex | None],
        place: Place[cl.CommandQueue, cl.Event, Never],
        /,
    ) -> Done:
        # What waits for events says where, and so is not run within the call.
        queue = place.queue
        if queue is None and place.wait_for and type(arrays["a"]) is np.ndarray:
            queue = self.queue
        kind = kind_of(arrays, *factors, queue)
        if kind is None:
            return None
        prepared = self._prepared.get(kind, lambda: self._prepare(arrays, factors, queue))
        return None if prepared is None else prepared.run(arrays, place.wait_for)

    def _prepare(
        self, arrays: Arrays, factors: tuple[complex | None, complex | None], queue: cl.CommandQueue | None
    ) -> Prepared | None:
        """The launch for calls such as this one, which is checked; None where each is to be made anew.

        Args:
            queue: the caller's; None where a small product may as well run within the call.
        """
        try:
            operands = {name: x for name, x in arrays.items() if name not in ("a", "b", "c")}
            request = self._request(arrays["a"], arrays["b"], arrays["c"], *factors, operands)
        except SpanError:
            return None  # its twin will prepare it
        is_free = queue is None and not request.on_device
        queue = self._queue_for(request, queue)
        if not may_prepare(self.source, request, queue):
            return None
        built = self._kernels(queue)
        with translated(queue.device):
            within = None
            if is_free and is_small(self.source, request) and queue == own_queue(queue.device):
                within = within_calls(queue.device)
            queue = within or queue
            scratch = self._scratch.get(queue, Scratch)
            return Prepared(self.source, built, queue, request, scratch, within is not None)

    def release(self) -> None:
        """Give back what is kept for calls to come: their launches, and the memory between a program's kernels."""
        self._prepared, self._scratch, self._paces = Kept(CALLS), Kept(KEPT), Kept(CALLS)

    def _run(self, request: Request, place: Place[cl.CommandQueue, cl.Event, Never]) -> tuple[object, cl.Event | None]:
        queue = self._queue_for(request, place.queue)
        built = self._kernels(queue)
        with under_way(), translated(queue.device), self._stage(request, queue, place.wait_for) as stage:
            _, output, view = request.output
            if not view.span:
                return stage.empty(view) if output is None else output, stage.nothing_to_do()
            values, result = self._place(request, stage)
            event = self._launch(built, stage, values)[-1]
            if not request.on_device:
                self._wait(request, event)
            return result, stage.finish(event)

    def _wait(self, request: Request, event: cl.Event) -> None:
        """Until a call's last kernel is through."""
        self._paces.get(tuple(request.sizes.values()), Pace).wait(event.wait, partial(binding.wait_for, event))

    def _queue_for(self, request: Request, queue: cl.CommandQueue | None) -> cl.CommandQueue:
        if not request.on_device:
            return queue or self.queue
        arrays = {name: array for name, (array, _) in request.inputs.items()}
        name, output, _ = request.output
        if output is not None:
            arrays[name] = output
        with translated():
            return common_queue(cast("dict[str, DeviceArray]", arrays), queue)

    def _kernels(self, queue: cl.CommandQueue) -> Built:
        with translated(queue.device):
            key = queue.context, queue.device
        with under_way():
            return self._built.get(key, lambda: build(self.source, *key))

    @staticmethod
    def _stage(request: Request, queue: cl.CommandQueue, wait_for: Sequence[cl.Event]) -> Stage[object]:
        kind = ResidentStage if request.on_device else HostStage
        return cast("Stage[object]", kind(queue, wait_for))

    def _place(self, request: Request, stage: Stage[object]) -> tuple[Mapping[str, object], object]:
        """Every operand where the kernel can reach it: argument name -> value, and the result array."""
        images = {arg.name for entry in self.source.entry_points for arg in entry.arguments if arg.kind == "image"}
        shown = {name: view for name, (_, view) in request.inputs.items() if name in images and view.span}
        check_images({x: v.fast for x, v in shown.items()}, {x: v.slow for x, v in shown.items()}, stage.device)
        values: dict[str, object] = {**request.sizes, **request.scalars}
        for name, (array, view) in request.inputs.items():
            if not view.span:
                values |= {name: stage.unread(name in images), f"ld{name}": view.ld, f"stride_{name}": view.stride}
            elif name in images:
                values[name], values[f"ld{name}"] = stage.image(array, view), view.ld
            else:
                values[name], placed = stage.input(array, view)
                values |= {f"ld{letter(name)}": placed.ld, f"stride_{letter(name)}": placed.stride}
        name, output, view = request.output
        result, values[name], placed = stage.output(output, view, request.loads_output)
        values |= {f"ld{name}": placed.ld, f"stride_{name}": placed.stride}
        for workspace, size in workspace_bytes(self.source, request.sizes, stage.device).items():
            # OpenCL keeps it until the kernels are through.
            values[workspace] = cl.Buffer(stage.queue.context, cl.mem_flags.READ_WRITE, size)
        return values, result

    def _launch(self, built: Built, stage: Stage[object], values: Mapping[str, object]) -> list[cl.Event]:
        """Enqueue every kernel that has something to do, in order; the events."""
        events: list[cl.Event] = []
        sizes = {name: value for name, value in values.items() if isinstance(value, int)}
        for number, groups in self.source.launches(sizes):
            entry, kernel = built.kernels[number]
            wait_for = [*stage.wait_for, *events[-1:]]
            with built.lock:
                events.append(enqueue(stage.queue, entry, kernel, groups, values, wait_for))
        return events


def check_images(widths: Mapping[str, int], heights: Mapping[str, int], device: cl.Device) -> None:
    """Raises: ScheduleError for matrices that are larger than images of the device can be."""
    most_wide, most_high = (device.image2d_max_width, device.image2d_max_height) if widths else (0, 0)
    problems = [
        f"{name} as an image is {widths[name]} wide and {heights[name]} high, more than the {most_wide}x{most_high} "
        f"of {device.name.strip()}: use a preset that reads buffers, such as L3_SIMD_32x2_1x8"
        for name in widths
        if widths[name] > most_wide or heights[name] > most_high
    ]
    if problems:
        raise ScheduleError(problems)
