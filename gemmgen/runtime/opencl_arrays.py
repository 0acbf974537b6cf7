"""Arrays of NumPy and of pyopencl as buffers and images for a launch, with as few copies as the device allows.

A stage releases its allocations when it ends, also on errors. OpenCL keeps memory alive for commands that are still
running.

On a CPU the kernel works in NumPy arrays' own memory, and calls return when the result is complete. If the device can
access all of the process's memory (fine-grained system SVM, as Intel's runtime), the kernel gets the arrays' addresses.
Otherwise it gets buffers over that memory (USE_HOST_PTR), and mapping a buffer makes the result visible. Intel's
runtime does not use these buffers, since it copies read-only ones that do not begin at a multiple of 128 bytes, as
NumPy's arrays rarely do. Other devices get copies without the gaps between lines.

pyopencl's arrays are used in place, and calls don't wait for the device. A view is copied on the device if it begins at
an address where the device allows no sub-buffer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import pyopencl as cl

from gemmgen.errors import DeviceError, SpecError
from gemmgen.runtime import opencl_driver
from gemmgen.runtime.opencl_devices import IMAGE_PITCH_ALIGNMENT, raw_info, reaches_host_memory, type_of
from gemmgen.runtime.views import Numbers, View, new_array, stored_shape
from gemmgen.runtime.waiting import leave


class Memory(Protocol):
    """A buffer or an image, which can be released."""

    def release(self) -> None: ...


M = TypeVar("M", bound=Memory)
A = TypeVar("A")


class Stage(ABC, Generic[A]):
    """The operands of one launch, or of several launches with the same operands, on the device of a queue.

    Attributes:
        wait_for: events that the launch must wait for.
    """

    def __init__(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()) -> None:
        self.queue, self.device = queue, queue.device
        self.wait_for = list(wait_for)
        self._owned = ExitStack()

    @abstractmethod
    def input(self, array: A, view: View) -> tuple[object, View]:
        """The kernel's argument for a matrix, and the matrix's layout there."""

    @abstractmethod
    def image(self, array: A, view: View) -> cl.Image:
        """The matrix as an image: `view.fast` wide, `view.slow` high, one float32 per pixel."""

    def unread(self, as_image: bool) -> cl.Image | None:
        """The argument for a matrix that no kernel reads: None for a buffer, but an image must exist."""
        return self.allocate_image(View(1, 1, "row", 1)) if as_image else None

    @abstractmethod
    def empty(self, view: View) -> A:
        """A new array for a result."""

    @abstractmethod
    def output(self, array: A | None, view: View, load: bool) -> tuple[A, object, View]:
        """The result array (allocated if None), the kernel's argument for it and the matrix's layout there.

        Args:
            load: whether the kernel reads the array's old elements.
        """

    @abstractmethod
    def finish(self, event: cl.Event) -> cl.Event:
        """Copy the result to its array after `event`, if necessary. Returns the event of its completion."""

    def nothing_to_do(self) -> cl.Event:
        """The event for an empty result, for which no kernel runs."""
        return cast("cl.Event", cl.enqueue_marker(self.queue, self.wait_for))

    def __enter__(self) -> Stage[A]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Kernels may still use memory that is about to be released.
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: they may take long
            leave(partial(opencl_driver.finish, self.queue), self, self._owned.pop_all().close)
            return
        with self._owned:
            if kind is not None:
                self.queue.finish()

    def own(self, memory: M) -> M:
        """Release `memory` when the stage ends."""
        self._owned.callback(memory.release)
        return memory

    def allocate(self, view: View, access: cl.mem_flags) -> cl.Buffer:
        """A buffer for the matrix as it is laid out."""
        size, limit = max(1, view.laid_out().span) * view.item, self.device.max_mem_alloc_size
        if size > limit:
            raise DeviceError(
                f"an array of {'x'.join(map(str, view.shape))} takes {size:,} B > {limit:,} B, the largest buffer of "
                f"{self.device.name.strip()}: multiply it in parts"
            )
        return self.own(cl.Buffer(self.queue.context, access, size))

    def allocate_image(self, view: View) -> cl.Image:
        """An empty image for the matrix."""
        return self.own(
            cl.Image(self.queue.context, cl.mem_flags.READ_ONLY, image_format(), desc=image_descriptor(view, 0, None))
        )


def image_format() -> cl.ImageFormat:
    """One float32 per pixel."""
    return cl.ImageFormat(cl.channel_order.R, cl.channel_type.FLOAT)


def image_descriptor(view: View, pitch: int, buffer: cl.Buffer | None) -> cl.ImageDescriptor:
    """A 2D image of the matrix, over a buffer or not; `pitch` in bytes, 0 for the device's choice."""
    descriptor = cl.ImageDescriptor()
    descriptor.image_type = cl.mem_object_type.IMAGE2D
    descriptor.shape = (view.fast, view.slow, 1)
    descriptor.array_size = 0
    descriptor.pitches = (pitch, 0)
    descriptor.num_mip_levels = 0
    descriptor.num_samples = 0
    descriptor.buffer = buffer
    return descriptor


# --- NumPy's arrays -------------------------------------------------------------------------------

#: How a device accesses NumPy arrays: by address, by buffers over their memory, or by copies.
Way: TypeAlias = Literal["address", "buffer", "copy"]
#: A kernel's argument for an array: a buffer, or its address.
Reachable: TypeAlias = "cl.Buffer | int"


def way_of(device: cl.Device) -> Way:
    """How a device accesses NumPy arrays."""
    if type_of(device) != "cpu":
        return "copy"
    return "address" if reaches_host_memory(device) else "buffer"


class HostStage(Stage[Numbers]):
    """Operands that are NumPy arrays."""

    def __init__(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()) -> None:
        super().__init__(queue, wait_for)
        self._way = way_of(queue.device)
        self._taken: list[tuple[int, int, cl.Buffer | None]] = []
        self._result: tuple[Numbers, View, cl.Buffer | None] | None = None
        self._lying: list[Numbers] = []  # arrays that kernels read in place; this keeps them alive

    def input(self, array: Numbers, view: View) -> tuple[Reachable, View]:
        if self._way == "address" and view.meets_assumptions and is_reachable(array, view):
            self._lying.append(array)
            return array.ctypes.data, view
        begin, end = extent(array, view)
        for taken_begin, taken_end, taken in self._taken:
            if taken is not None and view.meets_assumptions and (taken_begin, taken_end) == (begin, end):
                return taken, view  # the same matrix twice: A @ A
        if self._may_hold(begin, end, view):
            buffer = self._share(array, view, cl.mem_flags.READ_ONLY)
            return buffer, view
        buffer = self.allocate(view, cl.mem_flags.READ_ONLY)
        self._upload(buffer, array, view)
        return buffer, view.laid_out()

    def image(self, array: Numbers, view: View) -> cl.Image:
        begin, end = extent(array, view)
        # The device may access a whole pitch of every line, so the last line must be as long as its pitch.
        if view.packed and self._may_share(begin, end):
            self._taken.append((begin, end, None))
            access = cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR
            descriptor = image_descriptor(view, view.fast * view.item, None)
            return self.own(
                cl.Image(self.queue.context, access, image_format(), desc=descriptor, hostbuf=line(array, view))
            )
        image = self.allocate_image(view)
        region, pitches = (view.fast, view.slow), (view.ld * view.item,)
        cl.enqueue_copy(
            self.queue, image, line(array, view), origin=(0, 0), region=region, pitches=pitches, wait_for=self.wait_for
        )
        return image

    def empty(self, view: View) -> Numbers:
        return new_array(view)

    def output(self, array: Numbers | None, view: View, load: bool) -> tuple[Numbers, Reachable, View]:
        result = self.empty(view) if array is None else array
        if self._way == "address" and view.meets_assumptions and is_reachable(result, view):
            self._result = result, view, None
            return result, result.ctypes.data, view
        begin, end = extent(result, view)
        shared = self._may_hold(begin, end, view)
        if shared:
            buffer = self._share(result, view, cl.mem_flags.READ_WRITE)
        else:
            buffer = self.allocate(view, cl.mem_flags.READ_WRITE)
            if load:
                self._upload(buffer, result, view)
        self._result = result, view, buffer
        return result, buffer, view if shared else view.laid_out()

    def finish(self, event: cl.Event) -> cl.Event:
        assert self._result is not None
        result, view, buffer = self._result
        if buffer is None:
            event.wait()
        elif any(buffer is taken for _, _, taken in self._taken):
            # The stub knows only the array; pyopencl returns the event of the mapping beside it.
            mapped, _ = cast(
                "tuple[Numbers, cl.Event]",
                cl.enqueue_map_buffer(
                    self.queue, buffer, cl.map_flags.READ, 0, (view.span,), view.dtype, wait_for=[event]
                ),
            )
            cast("cl.MemoryMap", mapped.base).release(self.queue).wait()
        else:
            self._download(result, view, buffer, event)
        return event

    def _download(self, result: Numbers, view: View, buffer: cl.Buffer, event: cl.Event) -> None:
        for memory, place in _each(result, view):
            cl.enqueue_copy(self.queue, memory, buffer, **place, wait_for=[event])

    def _may_share(self, begin: int, end: int) -> bool:
        """Whether a buffer over this range is allowed. Two buffers over one range of memory are undefined in OpenCL,
        and an empty buffer is an error.
        """
        return (
            self._way != "copy" and begin < end and all(end <= other or last <= begin for other, last, _ in self._taken)
        )

    def _may_hold(self, begin: int, end: int, view: View) -> bool:
        """Whether a kernel may take a matrix by a buffer over its memory. NumPy accepts complex numbers aligned to half
        of their size.
        """
        return view.meets_assumptions and begin % view.item == 0 and self._may_share(begin, end)

    def _share(self, array: Numbers, view: View, access: cl.mem_flags) -> cl.Buffer:
        buffer = self.own(cl.Buffer(self.queue.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=line(array, view)))
        self._taken.append((*extent(array, view), buffer))
        return buffer

    def _upload(self, buffer: cl.Buffer, array: Numbers, view: View) -> None:
        for memory, place in _each(array, view):
            cl.enqueue_copy(self.queue, buffer, memory, **place, wait_for=self.wait_for)


def _each(array: Numbers, view: View) -> Iterator[tuple[Numbers, dict[str, tuple[int, ...]]]]:
    """For each matrix of a batch: its memory, and the layouts of its lines there and, as laid out, in a buffer."""
    memory, width, pitch = line(array, view), view.fast * view.item, view.laid_out().ld * view.item
    lines = {"region": (width, view.slow), "buffer_pitches": (pitch,), "host_pitches": (view.ld * view.item,)}
    for number, (start, one) in enumerate(view.each()):
        place = {"buffer_origin": (0, number * view.slow), "host_origin": (0, 0)}
        yield memory[start : start + one.span], {**place, **lines}


def is_reachable(array: Numbers, view: View) -> bool:
    """Whether elements are aligned as devices require. NumPy accepts half of a complex number's size."""
    return view.dtype.kind != "c" or array.ctypes.data % view.item == 0


def line(array: Numbers, view: View) -> Numbers:
    """The memory from the first element to the last, with gaps, in one dimension, as OpenCL requires."""
    return np.lib.stride_tricks.as_strided(array, (view.span,), (view.item,), writeable=array.flags.writeable)


def extent(array: Numbers, view: View) -> tuple[int, int]:
    """The addresses where the matrix begins and ends."""
    begin = array.ctypes.data
    return begin, begin + view.span * view.item


# --- pyopencl's arrays ----------------------------------------------------------------------------


class DeviceArray(Protocol):
    """The members of `pyopencl.array.Array` that are used."""

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
        return self._gather(base, array.offset, view), view.laid_out()

    def image(self, array: DeviceArray, view: View) -> cl.Image:
        view = replace(view, unit=1)  # the image has a pitch of its own
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
        buffer = self._region(base, result.offset, view.span * view.item) if view.meets_assumptions else None
        if buffer is not None:
            self._result = result, view, None
            return result, buffer, view
        if load:
            buffer = self._gather(base, result.offset, view, cl.mem_flags.READ_WRITE)
        else:
            buffer = self.allocate(view, cl.mem_flags.READ_WRITE)
        self._result = result, view, buffer
        return result, buffer, view.laid_out()

    def finish(self, event: cl.Event) -> cl.Event:
        assert self._result is not None
        result, view, packed = self._result
        if packed is not None:
            own = view.laid_out()
            event = self._copy_lines(packed, 0, own, base_buffer(result), result.offset, view, [event])
        result.add_event(event)
        return event

    def empty(self, view: View) -> DeviceArray:
        import pyopencl.array as cl_array

        made = cl_array.empty(self.queue, stored_shape(view), view.dtype)
        last = len(view.shape) - 1
        axes = (*range(last - 1), last, last - 1)
        return cast("DeviceArray", made if view.order == "row" else made.transpose(axes))

    def _region(self, base: cl.Buffer, offset: int, size: int) -> cl.Buffer | None:
        """The sub-buffer that begins at `offset`, or None if the device allows no sub-buffer there."""
        if offset == 0:
            return base
        if offset % (self.device.mem_base_addr_align // 8):  # the device reports bits
            return None
        return self.own(base.get_sub_region(offset, size))

    def _gather(
        self, base: cl.Buffer, offset: int, view: View, access: cl.mem_flags = cl.mem_flags.READ_ONLY
    ) -> cl.Buffer:
        """A copy as it is laid out, made on the device."""
        packed = self.allocate(view, access)
        copied = self._copy_lines(base, offset, view, packed, 0, view.laid_out(), self.wait_for)
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
        """Copy the lines from one buffer to another, matrix by matrix. Offsets are in bytes."""
        # The origin's first coordinate may be any number of bytes. Pitches only matter from the second line on.
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
        """An image over the buffer's memory, or None if the device lacks cl_khr_image2d_from_buffer."""
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
    """The buffer that holds an array. Raises: DeviceError for shared virtual memory."""
    base = array.base_data
    if isinstance(base, cl.Buffer):
        return base
    if isinstance(base, cl.MemoryObjectHolder):  # from a memory pool
        return cast("cl.Buffer", cl.Buffer.from_int_ptr(base.int_ptr, retain=True))
    raise DeviceError(
        f"the array is in {type(base).__name__}, not in an OpenCL buffer: allocate it without an SVM allocator"
    )


def common_queue(arrays: dict[str, DeviceArray], queue: cl.CommandQueue | None) -> cl.CommandQueue:
    """The given queue, or else the first array's. Raises: SpecError if there is none, or if contexts differ."""
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
