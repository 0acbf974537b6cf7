"""Operands on their way to a kernel and back: buffers and images, with as few copies as the device allows.

What a stage allocates it releases when it ends, also on errors; OpenCL keeps memory alive for commands that still
run. `host.py` stages NumPy arrays, `resident.py` those of pyopencl.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, TypeVar, cast

import pyopencl as cl

from gemmgen.errors import DeviceError
from gemmgen.runtime import binding
from gemmgen.runtime.views import View
from gemmgen.runtime.waiting import leave


class Memory(Protocol):
    """A buffer or an image, which can be given back."""

    def release(self) -> None: ...


M = TypeVar("M", bound=Memory)
A = TypeVar("A")


class Stage(ABC, Generic[A]):
    """The operands of a launch, or of several with the same operands, on the device of a queue.

    Attributes:
        wait_for: events that the launch must wait for.
    """

    def __init__(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()) -> None:
        self.queue, self.device = queue, queue.device
        self.wait_for = list(wait_for)
        self._owned = ExitStack()

    @abstractmethod
    def input(self, array: A, view: View) -> tuple[object, View]:
        """A kernel's argument that begins with the matrix, and how it lies there."""

    @abstractmethod
    def image(self, array: A, view: View) -> cl.Image:
        """The matrix as an image: `view.fast` wide, `view.slow` high, one float32 per pixel."""

    def unread(self, as_image: bool) -> cl.Image | None:
        """What stands for a matrix that nothing reads: no buffer; an image must be there."""
        return self.allocate_image(View(1, 1, "row", 1)) if as_image else None

    @abstractmethod
    def empty(self, view: View) -> A:
        """A new array for a result."""

    @abstractmethod
    def output(self, array: A | None, view: View, load: bool) -> tuple[A, object, View]:
        """The result array (allocated if None), the kernel's argument for it and how the matrix lies there.

        Args:
            load: whether the kernel reads what the array holds.
        """

    @abstractmethod
    def finish(self, event: cl.Event) -> cl.Event:
        """Bring the result to its array after `event`; the event after which it is there."""

    def nothing_to_do(self) -> cl.Event:
        """The event that passes where no kernel has to run, for a result that has no element."""
        return cast("cl.Event", cl.enqueue_marker(self.queue, self.wait_for))

    def __enter__(self) -> Stage[A]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Kernels may still work in memory that is about to go.
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C: they may take long
            leave(partial(binding.finish, self.queue), self, self._owned.pop_all().close)
            return
        with self._owned:
            if kind is not None:
                self.queue.finish()

    def own(self, memory: M) -> M:
        """Release it when the stage ends."""
        self._owned.callback(memory.release)
        return memory

    def allocate(self, view: View, access: cl.mem_flags) -> cl.Buffer:
        """A buffer for the matrix without gaps between its lines."""
        size, limit = max(1, view.without_gaps().span) * view.item, self.device.max_mem_alloc_size
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
    """A 2D image of the matrix, over a buffer or not; `pitch` in bytes, 0 for what the device likes."""
    descriptor = cl.ImageDescriptor()
    descriptor.image_type = cl.mem_object_type.IMAGE2D
    descriptor.shape = (view.fast, view.slow, 1)
    descriptor.array_size = 0
    descriptor.pitches = (pitch, 0)
    descriptor.num_mip_levels = 0
    descriptor.num_samples = 0
    descriptor.buffer = buffer
    return descriptor
