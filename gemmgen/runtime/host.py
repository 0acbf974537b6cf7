"""NumPy arrays as operands.

On a CPU the kernel works in the arrays' own memory (USE_HOST_PTR), and mapping the result makes it visible; other
devices get copies without the gaps between lines. Calls return when the result is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from gemmgen.runtime.devices import type_of
from gemmgen.runtime.staging import Stage, image_descriptor, image_format
from gemmgen.runtime.views import View, new_array

Numbers = npt.NDArray[np.generic]


class HostStage(Stage[Numbers]):
    """Operands that are NumPy arrays."""

    def __init__(self, queue: cl.CommandQueue, wait_for: Sequence[cl.Event] = ()) -> None:
        super().__init__(queue, wait_for)
        self._in_place = type_of(queue.device) == "cpu"
        self._taken: list[tuple[int, int, cl.Buffer | None]] = []
        self._result: tuple[Numbers, View, cl.Buffer, bool] | None = None

    def input(self, array: Numbers, view: View) -> tuple[cl.Buffer, View]:
        begin, end = extent(array, view)
        for taken_begin, taken_end, taken in self._taken:
            if taken is not None and (taken_begin, taken_end) == (begin, end):
                return taken, view  # the same matrix twice: A @ A
        # To NumPy, a complex number stands well on a multiple of half its size.
        if self._may_share(begin, end) and begin % view.item == 0:
            buffer = self._share(array, view, cl.mem_flags.READ_ONLY)
            return buffer, view
        buffer = self.allocate(view, cl.mem_flags.READ_ONLY)
        self._upload(buffer, array, view)
        return buffer, view.without_gaps()

    def image(self, array: Numbers, view: View) -> cl.Image:
        begin, end = extent(array, view)
        # The device may touch a whole pitch of every line, so the last line must not end before its pitch does.
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

    def output(self, array: Numbers | None, view: View, load: bool) -> tuple[Numbers, cl.Buffer, View]:
        result = self.empty(view) if array is None else array
        begin, end = extent(result, view)
        shared = self._may_share(begin, end) and begin % view.item == 0
        if shared:
            buffer = self._share(result, view, cl.mem_flags.READ_WRITE)
        else:
            buffer = self.allocate(view, cl.mem_flags.READ_WRITE)
            if load:
                self._upload(buffer, result, view)
        self._result = result, view, buffer, shared
        return result, buffer, view if shared else view.without_gaps()

    def finish(self, event: cl.Event) -> cl.Event:
        assert self._result is not None
        result, view, buffer, shared = self._result
        if shared:
            # The stub knows only the array; pyopencl returns the event of the mapping beside it.
            mapped, _ = cast(
                "tuple[Numbers, cl.Event]",
                cl.enqueue_map_buffer(
                    self.queue, buffer, cl.map_flags.READ, 0, (view.span,), view.dtype, wait_for=[event]
                ),
            )
            cast("cl.MemoryMap", mapped.base).release(self.queue).wait()
        else:
            width = view.fast * view.item
            for number, memory in enumerate(_each(result, view)):
                cl.enqueue_copy(
                    self.queue,
                    memory,
                    buffer,
                    buffer_origin=(0, number * view.slow),
                    host_origin=(0, 0),
                    region=(width, view.slow),
                    buffer_pitches=(width,),
                    host_pitches=(view.ld * view.item,),
                    wait_for=[event],
                )
        return event

    def _may_share(self, begin: int, end: int) -> bool:
        """OpenCL leaves two memory objects over one range of host memory undefined, and has none of no length."""
        return self._in_place and begin < end and all(end <= other or last <= begin for other, last, _ in self._taken)

    def _share(self, array: Numbers, view: View, access: cl.mem_flags) -> cl.Buffer:
        buffer = self.own(cl.Buffer(self.queue.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=line(array, view)))
        self._taken.append((*extent(array, view), buffer))
        return buffer

    def _upload(self, buffer: cl.Buffer, array: Numbers, view: View) -> None:
        width = view.fast * view.item
        for number, memory in enumerate(_each(array, view)):
            cl.enqueue_copy(
                self.queue,
                buffer,
                memory,
                buffer_origin=(0, number * view.slow),
                host_origin=(0, 0),
                region=(width, view.slow),
                buffer_pitches=(width,),
                host_pitches=(view.ld * view.item,),
                wait_for=self.wait_for,
            )


def _each(array: Numbers, view: View) -> Iterator[Numbers]:
    """The memory of each matrix of a batch."""
    memory = line(array, view)
    return (memory[start : start + one.span] for start, one in view.each())


def line(array: Numbers, view: View) -> Numbers:
    """The memory from the first element to the last, gaps included, in one dimension: OpenCL takes nothing else."""
    return np.lib.stride_tricks.as_strided(array, (view.span,), (view.item,), writeable=array.flags.writeable)


def extent(array: Numbers, view: View) -> tuple[int, int]:
    """The addresses where the matrix begins and ends."""
    begin = array.ctypes.data
    return begin, begin + view.span * view.item
