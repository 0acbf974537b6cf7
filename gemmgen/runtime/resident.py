"""pyopencl arrays as operands: used where they are, and nothing waits for the device.

A view that begins where the device can start no sub-buffer is copied on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import DeviceError, SpecError
from gemmgen.runtime.devices import IMAGE_PITCH_ALIGNMENT, raw_info
from gemmgen.runtime.staging import Stage, image_descriptor, image_format
from gemmgen.runtime.views import View


class DeviceArray(Protocol):
    """What is used of a `pyopencl.array.Array`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[np.generic]
    offset: int
    base_data: object
    queue: cl.CommandQueue | None
    context: cl.Context
    events: Sequence[cl.Event]

    def add_event(self, evt: cl.Event) -> None: ...


class ResidentStage(Stage[DeviceArray]):
    """Operands that are pyopencl arrays."""

    def __init__(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()) -> None:
        super().__init__(queue, wait_for)
        self._result: tuple[DeviceArray, View, cl.Buffer | None] | None = None

    def input(self, array: DeviceArray, view: View) -> tuple[cl.Buffer, View]:
        self.wait_for += array.events
        base = base_buffer(array)
        if (buffer := self._region(base, array.offset, view.span * view.item)) is not None:
            return buffer, view
        return self._gather(base, array.offset, view), view.without_gaps()

    def image(self, array: DeviceArray, view: View) -> cl.Image:
        self.wait_for += array.events
        base = base_buffer(array)
        if (image := self._image_over(base, array.offset, view)) is not None:
            return image
        offset = array.offset
        if not view.packed:
            base, offset = self._gather(base, offset, view), 0
        image = self.allocate_image(view)
        copied = cl.enqueue_copy(
            self.queue, image, base, offset=offset, origin=(0, 0), region=(view.fast, view.slow), wait_for=self.wait_for
        )
        self.wait_for.append(cast("cl.Event", copied))
        return image

    def output(self, array: DeviceArray | None, view: View, load: bool) -> tuple[DeviceArray, cl.Buffer, View]:
        result = self.empty(view) if array is None else array
        self.wait_for += result.events
        base = base_buffer(result)
        buffer = self._region(base, result.offset, view.span * view.item)
        if buffer is not None:
            self._result = result, view, None
            return result, buffer, view
        if load:
            buffer = self._gather(base, result.offset, view, cl.mem_flags.READ_WRITE)
        else:
            buffer = self.allocate(view, cl.mem_flags.READ_WRITE)
        self._result = result, view, buffer
        return result, buffer, view.without_gaps()

    def finish(self, event: cl.Event) -> cl.Event:
        assert self._result is not None
        result, view, packed = self._result
        if packed is not None:
            own = view.without_gaps()
            event = self._copy_lines(packed, 0, own, base_buffer(result), result.offset, view, [event])
        result.add_event(event)
        return event

    def empty(self, view: View) -> DeviceArray:
        import pyopencl.array as cl_array

        if view.order == "row" or view.count is None:
            order = "C" if view.order == "row" else "F"
            return cast("DeviceArray", cl_array.empty(self.queue, view.shape, view.dtype, order=order))
        turned = cl_array.empty(self.queue, (view.count, view.cols, view.rows), view.dtype)
        return cast("DeviceArray", turned.transpose((0, 2, 1)))

    def _region(self, base: cl.Buffer, offset: int, size: int) -> cl.Buffer | None:
        """The part of a buffer that begins at `offset`, or None if the device starts no sub-buffer there."""
        if offset == 0:
            return base
        if offset % (self.device.mem_base_addr_align // 8):  # the device counts in bits
            return None
        return self.own(base.get_sub_region(offset, size))

    def _gather(
        self, base: cl.Buffer, offset: int, view: View, access: cl.mem_flags = cl.mem_flags.READ_ONLY
    ) -> cl.Buffer:
        """A copy without gaps, made on the device."""
        packed = self.allocate(view, access)
        copied = self._copy_lines(base, offset, view, packed, 0, view.without_gaps(), self.wait_for)
        self.wait_for.append(copied)
        return packed

    def _copy_lines(
        self,
        source: cl.Buffer,
        source_offset: int,
        source_view: View,
        target: cl.Buffer,
        target_offset: int,
        target_view: View,
        wait_for: Sequence[cl.Event],
    ) -> cl.Event:
        """From one place to another, matrix by matrix; offsets in bytes."""
        # The origin's first coordinate may be any number of bytes, pitches only matter from the second line on.
        item = source_view.item
        source_pitch, target_pitch = source_view.ld * item, target_view.ld * item
        for (begin, one), (to, _) in zip(source_view.each(), target_view.each(), strict=True):
            here, there = source_offset + begin * item, target_offset + to * item
            event = cl.enqueue_copy(
                self.queue,
                target,
                source,
                src_origin=(here % source_pitch, here // source_pitch),
                dst_origin=(there % target_pitch, there // target_pitch),
                region=(one.fast * item, one.slow),
                src_pitches=(source_pitch,),
                dst_pitches=(target_pitch,),
                wait_for=wait_for,
            )
            wait_for = [cast("cl.Event", event)]
        return wait_for[-1]

    def _image_over(self, base: cl.Buffer, offset: int, view: View) -> cl.Image | None:
        """An image in the buffer's own memory, or None where the device can't (cl_khr_image2d_from_buffer)."""
        alignment = next(iter(raw_info(self.device, IMAGE_PITCH_ALIGNMENT)), 0)
        size = view.ld * view.slow * view.item
        if not alignment or view.ld % alignment or base.size - offset < size:
            return None
        buffer = self._region(base, offset, size)
        if buffer is None:
            return None
        try:
            descriptor = image_descriptor(view, view.ld * view.item, buffer)
            image = cl.Image(self.queue.context, cl.mem_flags.READ_ONLY, image_format(), desc=descriptor)
        except cl.Error:  # the base address may have to be aligned more strictly
            return None
        return self.own(image)


def base_buffer(array: DeviceArray) -> cl.Buffer:
    """The buffer that an array lies in. Raises: DeviceError for shared virtual memory."""
    base = array.base_data
    if isinstance(base, cl.Buffer):
        return base
    if isinstance(base, cl.MemoryObjectHolder):  # from a memory pool
        return cast("cl.Buffer", cl.Buffer.from_int_ptr(base.int_ptr, retain=True))
    raise DeviceError(
        f"the array lies in {type(base).__name__}, not in an OpenCL buffer: allocate it without an SVM allocator"
    )


def common_queue(arrays: dict[str, DeviceArray], queue: cl.CommandQueue | None) -> cl.CommandQueue:
    """The queue given, else the first that an array has. Raises: SpecError if there is none, or contexts differ."""
    chosen = queue or next((a.queue for a in arrays.values() if a.queue is not None), None)
    if chosen is None:
        raise SpecError("none of the arrays has a queue: pass queue=")
    strangers = [name for name, array in arrays.items() if array.context != chosen.context]
    if strangers:
        raise SpecError(
            f"{', '.join(strangers)} belongs to another OpenCL context than the queue: "
            "make all arrays with queues of one context, or pass x.get()"
        )
    return chosen
