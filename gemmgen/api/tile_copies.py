"""Threads that copy tiles between host arrays and a device, in pieces.

A piece whose elements the device reads as they lie is copied directly. Others go through blocks of host memory, which
the device reads at its full speed, and in which elements get the device's type and order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import prod
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmgen.api.tile_memory import Place, Room
from gemmgen.runtime.limits import processors

Host = npt.NDArray[Any]
#: Bytes of a piece, and the most threads; for each thread there are so many blocks.
PIECE, THREADS, BLOCKS = 4 << 20, 16, 2


class _Block:
    """Host memory for a piece.

    Attributes:
        memory: made when it is first needed.
        copied: the end of the last copy from it.
    """

    def __init__(self) -> None:
        self.memory: Host | None = None
        self.copied: object = None


class Copies:
    """Copies in one direction: with a pool of threads and blocks of its own, so that neither waits for the other.

    Args:
        most: bytes of the largest tile.
    """

    def __init__(self, place: Place, most: int) -> None:
        self.place, self.size = place, min(PIECE, most)
        threads = min(THREADS, processors())
        self.pool = ThreadPoolExecutor(threads, initializer=place.enter)
        self.blocks: SimpleQueue[_Block] = SimpleQueue()
        for _ in range(BLOCKS * threads):
            self.blocks.put(_Block())

    def __enter__(self) -> None:
        self.pool.__enter__()

    def __exit__(self, *about: object) -> None:
        self.pool.shutdown(cancel_futures=about[0] is not None)

    def upload(self, room: Room, tile: Host, dtype: np.dtype[Any]) -> None:
        """Begin to copy a tile to a room, in which it has such elements."""
        room.array = self.place.array(room, tile.shape, dtype)
        self._begin(self._send, room, tile, dtype)

    def download(self, room: Room, tile: Host, dtype: np.dtype[Any]) -> None:
        """Begin to copy a room's elements to a tile, after the products that are queued."""
        self._begin(self._fetch, room, tile, dtype)

    def _begin(self, copy: Callable[..., None], room: Room, tile: Host, dtype: np.dtype[Any]) -> None:
        room.pending += [
            self.pool.submit(copy, room, at * dtype.itemsize, piece, dtype)
            for at, piece in _pieces(tile, self.size // dtype.itemsize)
        ]

    def _send(self, room: Room, offset: int, piece: Host, dtype: np.dtype[Any]) -> None:
        if piece.dtype == dtype and self.place.reads(piece):
            room.copied.append(self.place.send(room, offset, piece))
            return
        with self._block() as block:
            staged = self._staged(block, piece.shape, dtype)
            np.copyto(staged, piece, casting="unsafe")
            block.copied = self.place.send(room, offset, staged)
            room.copied.append(block.copied)

    def _fetch(self, room: Room, offset: int, piece: Host, dtype: np.dtype[Any]) -> None:
        if piece.dtype == dtype and self.place.reads(piece):
            self.place.wait(self.place.fetch(room, offset, piece))
            return
        with self._block() as block:
            staged = self._staged(block, piece.shape, dtype)
            self.place.wait(self.place.fetch(room, offset, staged))
            np.copyto(piece, staged, casting="unsafe")

    @contextmanager
    def _block(self) -> Iterator[_Block]:
        """The block that was used least recently."""
        block = self.blocks.get()
        try:
            yield block
        finally:
            self.blocks.put(block)

    def _staged(self, block: _Block, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Host:
        """A block's memory as an array, once the last copy from it is done."""
        if block.memory is None:
            block.memory = self.place.block(self.size)
        if block.copied is not None:
            self.place.wait(block.copied)
        return block.memory[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def _pieces(tile: Host, most: int) -> Iterator[tuple[int, Host]]:
    """Parts of a tile of so many elements, and where they begin in a copy without gaps, in which they have none."""
    rows, columns = tile.shape
    high, wide = max(1, most // columns), min(columns, most)
    for i in range(0, rows, high):
        for j in range(0, columns, wide):
            yield i * columns + j, tile[i : i + high, j : j + wide]
