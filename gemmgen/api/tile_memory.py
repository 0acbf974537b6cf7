"""Where tiles of host arrays lie on a device while they are multiplied: memory, copies to and fro, and their order.

Copies have queues or streams of their own, one for each direction. So tiles come and go while the device multiplies,
where it can do both.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import DeviceError, SpecError
from gemmgen.ir.target import BLOCK_FEATURES

if TYPE_CHECKING:
    import cupy
    import pyopencl as cl

Host = npt.NDArray[np.generic]
#: `cudaHostRegisterPortable`: for all GPUs; `cudaHostRegisterReadOnly`.
PORTABLE, READ_ONLY = 1, 8


class Room:
    """A device's memory for one tile at a time.

    Attributes:
        memory: the buffer.
        array: the tile, or None.
        key: which one it is.
        step: the last step that uses it.
        pending: the copies to or from it that threads have to do.
        copied: the events of copies, which the next product waits for.
        used: the event of the last product that uses it, or of a later copy from it; None if there is none.
    """

    def __init__(self, memory: object) -> None:
        self.memory = memory
        self.array: Any = None
        self.key: object = None
        self.step = -1
        self.pending: list[Future[None]] = []
        self.copied: list[object] = []
        self.used: object = None

    def finish(self) -> None:
        """Wait until threads have copied. Raises: their errors."""
        for copy in self.pending:
            copy.result()
        self.pending.clear()


class Place(Protocol):
    """A device, as tiles need it. All methods but `queue` may be called from several threads."""

    def enter(self) -> None:
        """Prepare a thread for the other methods."""

    def room(self, size: int) -> Room:
        """Memory for a tile of so many bytes."""

    def array(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Any:
        """An array in a room, whose elements are not set."""

    def block(self, size: int) -> Host:
        """Host memory that the device copies at its full speed."""

    def reads(self, piece: Host) -> bool:
        """Whether a part of a host array is best copied as it lies, without a block."""

    def send(self, room: Room, offset: int, piece: Host) -> object:
        """Begin to copy to a room, after the products that use it. Returns: the event of the end."""

    def fetch(self, room: Room, offset: int, piece: Host) -> object:
        """Begin to copy from a room, after the products that use it. Returns: the event of the end."""

    def wait(self, event: object) -> None:
        """Wait for the end of a copy."""

    def queue(self, product: Any, rooms: list[Room]) -> None:
        """Queue a product after the copies to the rooms that it uses, in which it is noted."""

    def finish(self) -> None:
        """Wait for all that is queued."""


class OpenCLPlace:
    """A device of OpenCL: three queues, whose commands wait for each other's events."""

    def __init__(self, device: object) -> None:
        import pyopencl as cl

        from gemmgen.runtime.opencl_devices import resolve

        self.cl, self.products = cl, resolve(cast("cl.Device", device), BLOCK_FEATURES)
        context = self.products.context
        self.uploads, self.downloads = (cl.CommandQueue(context, self.products.device) for _ in range(2))

    def enter(self) -> None:
        """Nothing is bound to a thread."""

    def room(self, size: int) -> Room:
        """Memory for a tile."""
        return Room(self.cl.Buffer(self.products.context, self.cl.mem_flags.READ_WRITE, size))

    def array(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Any:
        """An array in a room."""
        import pyopencl.array as cl_array

        return cl_array.Array(self.products, shape, dtype, data=room.memory)

    def block(self, size: int) -> Host:
        """Ordinary memory."""
        return np.empty(size, np.uint8)

    def reads(self, piece: Host) -> bool:
        """Pieces without gaps, which the driver copies no slower than from a block."""
        return piece.flags.c_contiguous

    def send(self, room: Room, offset: int, piece: Host) -> object:
        """Copy by one queue."""
        options = {"dst_offset": offset, "is_blocking": False, "wait_for": _events(room)}
        event = self.cl.enqueue_copy(self.uploads, room.memory, piece, **options)
        self.uploads.flush()
        return event

    def fetch(self, room: Room, offset: int, piece: Host) -> object:
        """Copy by the other queue."""
        options = {"src_offset": offset, "is_blocking": False, "wait_for": _events(room)}
        event = self.cl.enqueue_copy(self.downloads, piece, room.memory, **options)
        self.downloads.flush()
        return event

    def wait(self, event: object) -> None:
        """Wait for an event."""
        cast("cl.Event", event).wait()

    def queue(self, product: Any, rooms: list[Room]) -> None:
        """Arrays have the events of copies; the result has the product's."""
        for room in rooms:
            for event in room.copied:
                room.array.add_event(event)
            room.copied.clear()
        result = product()
        self.products.flush()
        for room in rooms:
            room.used = result.events[-1] if result.events else None

    def finish(self) -> None:
        """Wait for all queues."""
        for queue in (self.uploads, self.products, self.downloads):
            queue.finish()


def _events(room: Room) -> list[Any]:
    """What a copy waits for."""
    return [] if room.used is None else [room.used]


class CudaPlace:
    """A GPU by CuPy: a stream for copies in each direction, and one for products."""

    def __init__(self, device: object) -> None:
        from gemmgen.runtime.cuda_devices import pick

        cupy = _cupy()
        self.cupy, self.runtime = cupy, cupy.cuda.runtime
        self.device = cupy.cuda.Device(pick(cast("int | None", device)).number)
        with self.device:
            self.uploads, self.products, self.downloads = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))

    def enter(self) -> None:
        """Each thread has a current GPU."""
        self.device.use()

    def room(self, size: int) -> Room:
        """Memory for a tile. CuPy's pool may give some that work on the current stream still uses."""
        with self.device:
            room = Room(self.cupy.empty(size, np.uint8))
            before = self._event(self.cupy.cuda.get_current_stream())
            for stream in (self.uploads, self.products):
                stream.wait_event(before)
        return room

    def array(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Any:
        """An array in a room."""
        return cast("Host", room.memory)[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def block(self, size: int) -> Host:
        """Pinned memory of CuPy's pool, which keeps it for the next call."""
        return np.frombuffer(self.cupy.cuda.alloc_pinned_memory(size), np.uint8, size)

    def reads(self, piece: Host) -> bool:
        """Pieces of rows without gaps, in memory that its owner has pinned."""
        begin, width = piece.ctypes.data, piece.shape[1] * piece.itemsize
        if piece.strides[1] != piece.itemsize or piece.strides[0] < width:
            return False
        ends = begin, begin + (len(piece) - 1) * piece.strides[0] + width - 1
        return all(self.runtime.pointerGetAttributes(x).type == self.runtime.memoryTypeHost for x in ends)

    def send(self, room: Room, offset: int, piece: Host) -> object:
        """Copy by the stream to the GPU."""
        width = piece.shape[1] * piece.itemsize
        to, source = (self._address(room, offset), width), (piece.ctypes.data, piece.strides[0])
        return self._copied(self.uploads, room, to, source, (width, len(piece)))

    def fetch(self, room: Room, offset: int, piece: Host) -> object:
        """Copy by the stream from the GPU."""
        width = piece.shape[1] * piece.itemsize
        to, source = (piece.ctypes.data, piece.strides[0]), (self._address(room, offset), width)
        return self._copied(self.downloads, room, to, source, (width, len(piece)))

    def _address(self, room: Room, offset: int) -> int:
        return int(cast("Any", room.memory).data.ptr) + offset

    def _copied(
        self, stream: Any, room: Room, to: tuple[int, int], source: tuple[int, int], extents: tuple[int, int]
    ) -> Any:
        """Queue a copy between addresses with pitches. Returns: the event of its end."""
        if room.used is not None:
            stream.wait_event(room.used)
        self.runtime.memcpy2DAsync(*to, *source, *extents, self.runtime.memcpyDefault, stream.ptr)
        return self._event(stream)

    def _event(self, stream: Any) -> Any:
        """An event that a stream reaches. Waits for it leave the core to other threads."""
        event = self.cupy.cuda.Event(block=True, disable_timing=True)
        event.record(stream)
        return event

    def wait(self, event: object) -> None:
        """Wait for an event."""
        cast("cupy.cuda.Event", event).synchronize()

    def queue(self, product: Any, rooms: list[Room]) -> None:
        """Queue a product on its stream."""
        for room in rooms:
            for event in room.copied:
                self.products.wait_event(event)
            room.copied.clear()
        with self.device, self.products:
            product()
            used = self._event(self.products)
        for room in rooms:
            room.used = used

    def finish(self) -> None:
        """Wait for all streams."""
        for stream in (self.uploads, self.products, self.downloads):
            stream.synchronize()


def _cupy() -> Any:
    """CuPy. Raises: DeviceError."""
    try:
        import cupy
    except ImportError:
        raise DeviceError('device_memory on CUDA needs CuPy: pip install "gemmgen[cuda]"') from None
    return cupy


@contextmanager
def pinned(*arrays: Host) -> Iterator[tuple[bool, ...]]:
    """Context in which the pages of NumPy's arrays are pinned: GPUs of CUDA copy them at their full speed.

    Yields: for each array, whether CUDA could pin it. It refuses most memory maps, which are then copied as before.
    Raises: DeviceError if there is no GPU of CUDA, or no CuPy.
    """
    from gemmgen.runtime.cuda_devices import pick

    runtime = _cupy().cuda.runtime
    pick(None)
    with ExitStack() as stack:
        yield tuple([_pin(x, runtime, stack) for x in arrays])


def _pin(array: Host, runtime: Any, stack: ExitStack) -> bool:
    """Pin an array until a context ends. Returns: whether CUDA could."""
    if not array.size:
        return True
    reaches = [(extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)]
    begin = array.ctypes.data + sum(x for x in reaches if x < 0)
    size = sum(map(abs, reaches)) + array.itemsize
    for flags in (PORTABLE, PORTABLE | READ_ONLY):
        try:
            runtime.hostRegister(begin, size, flags)
        except runtime.CUDARuntimeError:
            continue
        stack.callback(runtime.hostUnregister, begin)
        return True
    return False


def place_of(backend: str | None, device: object) -> Place:
    """The device that tiles are multiplied on. Raises: SpecError, DeviceError."""
    if backend == "cuda":
        return CudaPlace(device)
    if backend in (None, "opencl"):
        return OpenCLPlace(device)
    raise SpecError(f"backend {backend!r} has no device_memory: use opencl or cuda")
