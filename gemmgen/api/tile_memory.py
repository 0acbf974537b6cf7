"""Where tiles of host arrays lie on a device while they are multiplied: buffers, copies to and fro, and their order.

Copies have a queue or a stream of their own. So the next tiles come while the device multiplies, where it can do both.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from gemmgen.errors import DeviceError, SpecError
from gemmgen.ir.target import BLOCK_FEATURES

if TYPE_CHECKING:
    import pyopencl as cl

Host = npt.NDArray[Any]


class Room:
    """Memory for one tile at a time.

    Attributes:
        device: the buffer.
        host: as many bytes of the host, which copies go through.
        used: by what a wait ends for all products that read or write it; None if there is none.
    """

    def __init__(self, device: object, host: Host) -> None:
        self.device, self.host = device, host
        self.used: object = None

    def staged(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Host:
        """The host's memory as an array."""
        return self.host[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


class Place(Protocol):
    """A device, as tiles need it. All methods may be called from several threads."""

    def room(self, size: int) -> Room:
        """Memory for a tile of so many bytes."""

    def upload(self, room: Room, array: Any, staged: Host, rows: slice) -> None:
        """Begin to copy rows of a staged tile to an array in the same room. Later products wait for it."""

    def empty(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array without elements in a room."""

    def queue(self, product: Any, rooms: tuple[Room, ...]) -> None:
        """Queue a product, and note it in the rooms that it uses."""

    def wait(self, room: Room) -> None:
        """Wait for the products that use a room."""

    def download(self, room: Room, array: Any) -> Host:
        """The elements of an array in a room, after all products."""


class OpenCLPlace:
    """A device of OpenCL: two queues, whose commands wait for each other's events."""

    def __init__(self, device: object) -> None:
        import pyopencl as cl

        from gemmgen.runtime.opencl_devices import resolve

        self.cl, self.products = cl, resolve(cast("cl.Device", device), BLOCK_FEATURES)
        self.copies = cl.CommandQueue(self.products.context, self.products.device)

    def room(self, size: int) -> Room:
        """Memory for a tile."""
        buffer = self.cl.Buffer(self.products.context, self.cl.mem_flags.READ_WRITE, max(1, size))
        return Room(buffer, np.empty(max(1, size), np.uint8))

    def empty(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array in a room."""
        import pyopencl.array as cl_array

        return cl_array.Array(self.products, shape, dtype, data=room.device)

    def upload(self, room: Room, array: Any, staged: Host, rows: slice) -> None:
        """Copy rows by an event that products wait for."""
        offset, piece = rows.start * staged.strides[0], staged[rows]
        array.add_event(self.cl.enqueue_copy(self.copies, room.device, piece, dst_offset=offset, is_blocking=False))
        self.copies.flush()

    def queue(self, product: Any, rooms: tuple[Room, ...]) -> None:
        """Queue a product; its result has the event."""
        result = product()
        self.products.flush()
        for room in rooms:
            room.used = result.events[-1] if result.events else None

    def wait(self, room: Room) -> None:
        """Wait for the last product's event."""
        if room.used is not None:
            cast("cl.Event", room.used).wait()

    def download(self, room: Room, array: Any) -> Host:
        """The elements, by the queue of copies."""
        staged = room.staged(array.shape, array.dtype)
        if array.size:
            events = [room.used] if room.used is not None else []
            self.cl.enqueue_copy(self.copies, staged, room.device, wait_for=events)
        return staged


class CudaPlace:
    """A GPU by CuPy: a stream for copies from pinned memory, and one for products."""

    def __init__(self, device: object) -> None:
        try:
            import cupy
            import cupyx
        except ImportError:
            raise DeviceError('device_memory on CUDA needs CuPy: pip install "gemmgen[cuda]"') from None
        from gemmgen.runtime.cuda_devices import pick

        self.cupy, self.pinned = cupy, cupyx.empty_pinned
        self.device = cupy.cuda.Device(pick(cast("int | None", device)).number)
        with self.device:
            self.products, self.copies = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def room(self, size: int) -> Room:
        """Memory for a tile, pinned on the host."""
        with self.device:
            return Room(self.cupy.empty(max(1, size), np.uint8), self.pinned(max(1, size), np.uint8))

    def empty(self, room: Room, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array in a room."""
        memory = cast("Host", room.device)
        return memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def upload(self, room: Room, array: Any, staged: Host, rows: slice) -> None:  # noqa: ARG002
        """Copy rows by the stream of copies, which the products' stream waits for."""
        with self.device, self.copies:
            array[rows].set(staged[rows], stream=self.copies)
            self.products.wait_event(self.copies.record())

    def queue(self, product: Any, rooms: tuple[Room, ...]) -> None:
        """Queue a product on its stream."""
        with self.device, self.products:
            product()
            event = self.products.record()
        for room in rooms:
            room.used = event

    def wait(self, room: Room) -> None:
        """Wait for the last product's event."""
        if room.used is not None:
            cast("Any", room.used).synchronize()

    def download(self, room: Room, array: Any) -> Host:
        """The elements, by the stream of copies."""
        self.wait(room)
        with self.device:
            staged = room.staged(array.shape, array.dtype)
            array.get(stream=self.copies, out=staged)
            self.copies.synchronize()
        return staged


def place_of(backend: str | None, device: object) -> Place:
    """The device that tiles are multiplied on. Raises: SpecError, DeviceError."""
    if backend == "cuda":
        return CudaPlace(device)
    if backend in (None, "opencl"):
        return OpenCLPlace(device)
    raise SpecError(f"backend {backend!r} has no device_memory: use opencl or cuda")
