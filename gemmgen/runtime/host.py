"""NumPy arrays as operands.

On a CPU the kernel works in the arrays' own memory: by their addresses where the device reaches all of the process's
memory (fine-grained system SVM), else through buffers over it (USE_HOST_PTR), whose mapping makes the result visible.
Intel's runtime has the first, and copies what is behind its read-only buffers unless it begins at a multiple of 128
bytes, which NumPy's arrays don't. Other devices get copies without the gaps between lines. Calls return when the
result is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from gemmgen.runtime.devices import reaches_host_memory, type_of
from gemmgen.runtime.staging import Stage, image_descriptor, image_format
from gemmgen.runtime.views import View, new_array

Numbers = npt.NDArray[np.generic]
#: The arrays' own addresses, buffers over their memory, or copies.
Way: TypeAlias = Literal["address", "buffer", "copy"]
#: What a kernel's argument can be.
Reachable: TypeAlias = "cl.Buffer | cl.SVM[Numbers]"


def way_of(device: cl.Device) -> Way:
    """How a device gets at NumPy's arrays."""
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
        self._lying: list[Numbers] = []  # what kernels read where it is, and so lasts as long as this

    def input(self, array: Numbers, view: View) -> tuple[Reachable, View]:
        if self._way == "address" and is_reachable(array, view):
            self._lying.append(array)
            return address(array, view), view
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

    def output(self, array: Numbers | None, view: View, load: bool) -> tuple[Numbers, Reachable, View]:
        result = self.empty(view) if array is None else array
        if self._way == "address" and is_reachable(result, view):
            self._result = result, view, None
            return result, address(result, view), view
        begin, end = extent(result, view)
        shared = self._may_share(begin, end) and begin % view.item == 0
        if shared:
            buffer = self._share(result, view, cl.mem_flags.READ_WRITE)
        else:
            buffer = self.allocate(view, cl.mem_flags.READ_WRITE)
            if load:
                self._upload(buffer, result, view)
        self._result = result, view, buffer
        return result, buffer, view if shared else view.without_gaps()

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
        """OpenCL leaves two memory objects over one range of host memory undefined, and has none of no length."""
        return (
            self._way != "copy" and begin < end and all(end <= other or last <= begin for other, last, _ in self._taken)
        )

    def _share(self, array: Numbers, view: View, access: cl.mem_flags) -> cl.Buffer:
        buffer = self.own(cl.Buffer(self.queue.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=line(array, view)))
        self._taken.append((*extent(array, view), buffer))
        return buffer

    def _upload(self, buffer: cl.Buffer, array: Numbers, view: View) -> None:
        for memory, place in _each(array, view):
            cl.enqueue_copy(self.queue, buffer, memory, **place, wait_for=self.wait_for)


def _each(array: Numbers, view: View) -> Iterator[tuple[Numbers, dict[str, tuple[int, ...]]]]:
    """The memory of each matrix of a batch, and where its lines lie there and, without gaps, in a buffer."""
    memory, width = line(array, view), view.fast * view.item
    lines = {"region": (width, view.slow), "buffer_pitches": (width,), "host_pitches": (view.ld * view.item,)}
    for number, (start, one) in enumerate(view.each()):
        place = {"buffer_origin": (0, number * view.slow), "host_origin": (0, 0)}
        yield memory[start : start + one.span], {**place, **lines}


def is_reachable(array: Numbers, view: View) -> bool:
    """Whether elements lie where a device expects them; to NumPy, half of a complex number's size is enough."""
    return view.dtype.kind != "c" or array.ctypes.data % view.item == 0


def address(array: Numbers, view: View) -> cl.SVM[Numbers]:
    """An argument that is the array's own memory."""
    flags = array.flags
    memory = array if flags.forc else line(array, view)
    # pyopencl takes none that is read-only, though a kernel may well only read.
    return cl.SVM(memory if flags.writeable else np.asarray(_Writable(memory)))


class _Writable:
    """A read-only array's memory, for those who promise to write nothing there."""

    def __init__(self, memory: Numbers) -> None:
        self._memory = memory  # which must outlive this
        self.__array_interface__ = memory.__array_interface__ | {"data": (memory.ctypes.data, False)}


def line(array: Numbers, view: View) -> Numbers:
    """The memory from the first element to the last, gaps included, in one dimension: OpenCL takes nothing else."""
    return np.lib.stride_tricks.as_strided(array, (view.span,), (view.item,), writeable=array.flags.writeable)


def extent(array: Numbers, view: View) -> tuple[int, int]:
    """The addresses where the matrix begins and ends."""
    begin = array.ctypes.data
    return begin, begin + view.span * view.item
