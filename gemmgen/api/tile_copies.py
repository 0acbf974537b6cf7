"""Copies of tiles between host arrays and a device.

A tile whose elements the device reads as they lie is copied at once. Others go through blocks of host memory, which the
device reads at its full speed: in them threads give elements the device's type and order.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from gemmgen.api.tile_memory import Place, Room
from gemmgen.runtime.limits import processors

Host = npt.NDArray[np.generic]
#: Bytes of a block, and blocks for each direction.
BLOCK, BLOCKS = 32 << 20, 4
#: Bytes that a thread copies at a time, and the most threads. glibc copies less than some 3 MiB through caches, which
#: several threads do at a third of the speed.
PART, THREADS = 8 << 20, 16


class _Block:
    """Host memory for a piece of a tile.

    Attributes:
        memory: made when it is first needed.
        copied: the event of the last copy from it.
    """

    def __init__(self) -> None:
        self.memory: Host | None = None
        self.copied: object = None


class Copies:
    """Copies to and from a device. Each direction has blocks of its own, so that neither waits for the other.

    Args:
        most: bytes of the largest tile.
    """

    def __init__(self, place: Place, most: int) -> None:
        self.place, self.size = place, min(BLOCK, most)
        self.threads = ThreadPoolExecutor(min(THREADS, processors()))
        #: A thread for each block waits for its copies.
        self.up, self.down = (ThreadPoolExecutor(BLOCKS, initializer=place.enter) for _ in range(2))
        self.blocks: tuple[SimpleQueue[_Block], SimpleQueue[_Block]] = SimpleQueue(), SimpleQueue()
        for blocks in self.blocks:
            for _ in range(BLOCKS):
                blocks.put(_Block())

    def __enter__(self) -> None:
        """Threads start when they are needed."""

    def __exit__(self, *about: object) -> None:
        for pool in (self.up, self.down, self.threads):
            pool.shutdown(cancel_futures=about[0] is not None)

    def upload(self, room: Room, tile: Host, dtype: np.dtype[np.generic]) -> None:
        """Begin to copy a tile to a room, in which it has such elements."""
        room.array = self.place.array(room, tile.shape, dtype)
        if tile.dtype == dtype and self.place.reads(tile):
            room.copied.append(self.place.send(room, 0, tile))
            return
        pieces = _pieces(tile, self.size // dtype.itemsize)
        room.pending += [self.up.submit(self._send, room, at * dtype.itemsize, piece, dtype) for at, piece in pieces]

    def download(self, room: Room, tile: Host, dtype: np.dtype[np.generic]) -> None:
        """Begin to copy a room's elements to a tile, after the products that are queued."""
        if tile.dtype == dtype and self.place.reads(tile):
            room.used = self.place.fetch(room, 0, tile)
            room.copied.append(room.used)
            return
        pieces = _pieces(tile, self.size // dtype.itemsize)
        room.pending += [self.down.submit(self._fetch, room, at * dtype.itemsize, piece, dtype) for at, piece in pieces]

    def _send(self, room: Room, offset: int, piece: Host, dtype: np.dtype[np.generic]) -> None:
        block = self.blocks[0].get()
        try:
            staged = self._staged(block, piece.shape, dtype)
            if block.copied is not None:
                self.place.wait(block.copied)
            self._copy(staged, piece)
            block.copied = self.place.send(room, offset, staged)
            room.copied.append(block.copied)
        finally:
            self.blocks[0].put(block)

    def _fetch(self, room: Room, offset: int, piece: Host, dtype: np.dtype[np.generic]) -> None:
        block = self.blocks[1].get()
        try:
            staged = self._staged(block, piece.shape, dtype)
            self.place.wait(self.place.fetch(room, offset, staged))
            self._copy(piece, staged)
        finally:
            self.blocks[1].put(block)

    def _staged(self, block: _Block, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Host:
        """A block's memory as an array."""
        if block.memory is None:
            block.memory = self.place.block(self.size)
        return block.memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def _copy(self, target: Host, source: Host) -> None:
        """Copy and convert elements by several threads."""
        parts = zip(_pieces(target, PART // target.itemsize), _pieces(source, PART // target.itemsize), strict=True)
        copies = [self.threads.submit(np.copyto, to, part, "unsafe") for (_, to), (_, part) in parts]
        for copy in copies:
            copy.result()


def _pieces(tile: Host, most: int) -> Iterator[tuple[int, Host]]:
    """Parts of a tile of at most so many elements, and where they begin in a copy of the tile without gaps."""
    rows, columns = tile.shape
    high, wide = max(1, most // columns), min(columns, most)
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            yield i * columns + j, tile[i : i + high, j : j + wide]
