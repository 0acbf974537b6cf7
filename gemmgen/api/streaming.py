"""Products of host arrays that are larger than a limit on device memory: tiles of them go through the device.

C is computed tile by tile, each over K in steps. While a step is multiplied, one thread stages and copies the next
tiles of A and B; another one fetches the last tile of C. So host arrays may be memory maps of files of any size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmgen.api.libraries import kind_of
from gemmgen.api.promotion import Types, types_of
from gemmgen.api.tile_memory import Place, Room, place_of
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.progress import Tick, progress
from gemmgen.records import dataclass

Host = npt.NDArray[Any]
#: `gemm` on arrays of the device.
Gemm = Callable[..., Any]
#: Units of sizes.
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{x}{unit}": base ** (i + 1) for i, x in enumerate("KMGT") for unit, base in (("iB", 1024), ("B", 1000))}
#: Elements that a side of a tile is a multiple of, and the steps of K that are weighed.
UNIT, DEPTHS = 64, (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
#: Numbers of tiles along a side that are all weighed; and steps from which on fewer are better: with fewer ones, too
#: much is copied before the first product.
MOST, FEW = 256, 8
#: Bytes that are staged and copied at a time, and threads that stage them.
PIECE, THREADS = 32 << 20, 8


@dataclass(frozen=True, slots=True)
class Plan:
    """How a product is cut.

    Attributes:
        shape: m, n and k.
        tile: of these; the last ones may be smaller.
        sizes: bytes of an element of A or B, and of a sum.
    """

    shape: tuple[int, int, int]
    tile: tuple[int, int, int]
    sizes: tuple[int, int]

    @property
    def rooms(self) -> tuple[int, int, int]:
        """Bytes of a tile of A, B and C, of each of which there are two."""
        (m, n, k), (element, total) = self.tile, self.sizes
        return m * k * element, k * n * element, m * n * total

    @property
    def device_bytes(self) -> int:
        """What the tiles take on the device."""
        return 2 * sum(self.rooms)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tiles along m, n and k."""
        rows, columns, depth = (-(-size // tile) for size, tile in zip(self.shape, self.tile, strict=True))
        return rows, columns, depth

    @property
    def traffic(self) -> int:
        """Elements of A and B that are copied: a tile of A stays for a row of C's tiles, if it has all of K."""
        (m, n, k), (rows, columns, depth) = self.shape, self.counts
        return m * k * (columns if depth > 1 else 1) + k * n * (rows if depth > 1 or columns > 1 else 1)

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Tiles in order, by the numbers of their rows, columns and depth."""
        rows, columns, depth = self.counts
        return ((i, j, p) for i in range(rows) for j in range(columns) for p in range(depth))

    def span(self, axis: int, number: int) -> slice:
        """The elements of a tile along m, n or k."""
        begin = number * self.tile[axis]
        return slice(begin, min(begin + self.tile[axis], self.shape[axis]))


def plan(shape: tuple[int, int, int], sizes: tuple[int, int], limit: int) -> Plan:
    """The cut with the fewest copies within a limit. Raises: SpecError if not even the smallest tiles fit."""
    m, n, k = shape
    found = [
        each
        for depth in sorted({min(k, x) for x in (*DEPTHS, k)})
        for rows in sorted({_tile(m, count) for count in _counts(-(-m // UNIT))})
        if (each := _widest(shape, rows, depth, sizes, limit)) is not None
    ]
    if not found:
        least = Plan(shape, (min(m, UNIT), min(n, UNIT), min(k, DEPTHS[0])), sizes)
        raise SpecError(
            f"device_memory = {limit:,} bytes is less than the {least.device_bytes:,} that the smallest tiles of "
            f"{m}x{n}x{k} take: raise it"
        )
    return min(found, key=lambda each: (each.traffic, max(FEW, prod(each.counts)), -each.tile[2], each.device_bytes))


def _counts(most: int) -> Iterator[int]:
    """Numbers of tiles along a side that are weighed: all small ones, and powers of two."""
    yield from range(1, min(MOST, most) + 1)
    yield from (2**power for power in range(MOST.bit_length(), most.bit_length()))
    yield most


def _widest(shape: tuple[int, int, int], rows: int, depth: int, sizes: tuple[int, int], limit: int) -> Plan | None:
    """The plan with tiles of so many rows and steps, and as many columns as fit."""
    n, (element, total) = shape[1], sizes
    columns = (limit // 2 - rows * depth * element) // (depth * element + rows * total)
    if columns < min(n, UNIT):
        return None
    fits = _tile(n, -(-n // columns)) if columns >= n else min(_tile(n, -(-n // columns)), columns // UNIT * UNIT)
    return Plan(shape, (rows, min(fits, columns), depth), sizes)


def _tile(extent: int, count: int) -> int:
    """The side of a tile where there are about so many."""
    side = -(-extent // count)
    return min(extent, -(-side // UNIT) * UNIT)


def size_of(value: object) -> int:
    """A size in bytes, of a number or a text such as 4GiB. Raises: SpecError."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B|)\s*", value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or float(match[1]) * _UNITS[match[2]] < 1:
        raise SpecError(f"device_memory = {value!r} is no size: pass bytes, or a text such as '4GiB' or '512MiB'")
    return int(float(match[1]) * _UNITS[match[2]])


def stream(
    gemm: Gemm, arrays: tuple[Any, Any, Any, Any], factors: tuple[complex, complex], how: dict[str, Any]
) -> Host:
    """alpha * op(A) @ op(B) + beta * C of host arrays, by tiles.

    Args:
        gemm: multiplies arrays of the device.
        arrays: a, b, c and out.
        how: the other arguments of `gemm`.

    Raises: SpecError with every problem.
    """
    limit, (alpha, beta) = size_of(how.pop("device_memory")), factors
    flags = {x: bool(how.pop(x)) for x in ("transpose_a", "transpose_b", "conjugate_a", "conjugate_b")}
    shown, dtype, backend, device = (how.pop(x) for x in ("progress", "dtype", "backend", "device"))
    schedule = how.pop("schedule")
    given = [name for name, value in how.items() if value is not None and value is not False]
    problems = [f"{x} does not go with device_memory: leave it out, and apply it to the result" for x in given]
    problems += _array_problems(arrays)
    if problems:
        raise SpecError(problems)
    a, b, c, out = arrays
    a, b = a.T if flags["transpose_a"] else a, b.T if flags["transpose_b"] else b
    target, types = _target(a, b, c, out, dtype, backend, factors, problems)
    if problems or target is None or types is None:
        raise SpecError(problems)
    if 0 in (*target.shape, a.shape[1]):
        target[...] = 0 if beta == 0 else beta * c
        return target
    place, sums = place_of(backend, device), numpy_dtype(types.sums)
    elements = numpy_dtype(types.kernel)
    cut = plan((*target.shape, a.shape[1]), (elements.itemsize, sums.itemsize), limit)
    options = {"schedule": schedule, **{x: flags[x] for x in ("conjugate_a", "conjugate_b")}}
    work = _Work(gemm, place, cut, (a, b, c if beta != 0 else None, target), (alpha, beta), (elements, sums), options)
    with progress(len(list(cut.steps()))) if shown else nullcontext(_silent) as tick:
        work.run(tick)
    return target


def _silent(text: str) -> None:
    """No progress is shown."""


def _array_problems(arrays: tuple[Any, Any, Any, Any]) -> list[str]:
    """Arrays that don't lie on the host, or are no matrices."""
    problems = []
    for name, x in zip(("a", "b", "c", "out"), arrays, strict=True):
        if x is None:
            continue
        if kind_of(x) != "NumPy" or not isinstance(x, np.ndarray):
            problems.append(f"{name} is no array of NumPy, which device_memory is for: leave device_memory out")
        elif x.ndim != 2:
            problems.append(f"{name} has {x.ndim} dimensions: with device_memory pass matrices, one product a call")
    return problems


def _target(
    a: Host,
    b: Host,
    c: Host | None,
    out: Host | None,
    dtype: npt.DTypeLike | None,
    backend: str | None,
    factors: tuple[complex, complex],
    problems: list[str],
) -> tuple[Host | None, Types | None]:
    """The array for the result, and the types. Problems are added."""
    if a.shape[1] != b.shape[0]:
        problems.append(f"a has k = {a.shape[1]}, b k = {b.shape[0]}: make them equal")
        return None, None
    shape, given = (a.shape[0], b.shape[1]), c if out is None else out
    wanted = None if dtype is None else np.dtype(dtype)
    into = None if given is None else given.dtype
    types = types_of(np.result_type(a, b), wanted, into, problems, None, backend == "cuda")
    if types is None:
        return None, None
    if types.on_host:
        raise DtypeError(f"no kernel has elements of {types.result}: leave device_memory out, or cast a and b")
    for name, x in (("c", c), ("out", out)):
        if x is not None and x.shape != shape:
            problems.append(f"{name} has shape {x.shape}, not {shape}: pass one of that shape")
    if factors[1] != 0 and c is None:
        problems.append(f"beta = {factors[1]} adds to a c that was not given: pass c, or beta = 0")
    if given is not None:
        if not given.flags.writeable:
            problems.append(f"{'c' if out is None else 'out'} is read-only: pass a writable array")
        problems += [f"the result overlaps {x}: pass a copy of {x}" for x, y in (("a", a), ("b", b)) if _meet(given, y)]
    return np.empty(shape, types.result) if given is None else given, types


def _meet(x: Host, y: Host) -> bool:
    return np.may_share_memory(x, y)


class _Work:
    """A product while it is computed.

    Args:
        arrays: A, B, C if it is added, and the result.
        types: of the elements and the sums on the device.
        options: arguments of each product.
    """

    def __init__(
        self,
        gemm: Gemm,
        place: Place,
        cut: Plan,
        arrays: tuple[Host, Host, Host | None, Host],
        factors: tuple[complex, complex],
        types: tuple[np.dtype[Any], np.dtype[Any]],
        options: dict[str, Any],
    ) -> None:
        self.gemm, self.place, self.cut, self.factors, self.options = gemm, place, cut, factors, options
        self.a, self.b, self.c, self.target = arrays
        self.elements, self.sums = types
        self.pool = ThreadPoolExecutor(THREADS)
        #: Two rooms for each matrix, the one of the last tile first, with what they hold.
        self.rooms = {name: [place.room(size) for _ in range(2)] for name, size in zip("abc", cut.rooms, strict=True)}
        self.held: dict[str, tuple[object, Any]] = {}
        self.stored: dict[Room, Future[None]] = {}

    def run(self, tick: Tick) -> None:
        """Compute all tiles."""
        steps, last = list(self.cut.steps()), self.cut.counts[2] - 1
        with ThreadPoolExecutor(1) as loader, ThreadPoolExecutor(1) as storer, self.pool:
            coming = loader.submit(self._load, steps[0])
            for at, step in enumerate(steps):
                product, rooms, sums = coming.result()
                if at + 1 < len(steps):
                    coming = loader.submit(self._load, steps[at + 1])
                self.place.queue(product, rooms)
                if step[2] == last:
                    self.stored[rooms[2]] = storer.submit(self._store, step, rooms[2], sums)
                tick(f"tile {at + 1} of {len(steps)}")
            for done in self.stored.values():
                done.result()

    def _load(self, step: tuple[int, int, int]) -> tuple[Callable[[], Any], tuple[Room, Room, Room], Any]:
        """A step's tiles on the device: its product, the rooms that it uses, and the sums."""
        i, j, p = step
        rows, columns, depth = (self.cut.span(axis, number) for axis, number in enumerate(step))
        x, is_a_transposed = self._brought("a", (i, p), self.a[rows, depth])
        y, is_b_transposed = self._brought("b", (p, j), self.b[depth, columns])
        sums = self._sums(step, rows, columns)
        alpha, beta = self.factors
        added = 1 if p else beta if self.c is not None else 0
        flags = {"transpose_a": is_a_transposed, "transpose_b": is_b_transposed}
        rooms = self.rooms["a"][0], self.rooms["b"][0], self.rooms["c"][0]
        return lambda: self.gemm(x, y, sums, alpha=alpha, beta=added, **flags, **self.options), rooms, sums

    def _brought(self, name: str, key: tuple[int, int], tile: Host) -> tuple[Any, bool]:
        """A tile of A or B on the device, in its own order, and whether that is the transposed one."""
        is_transposed = abs(tile.strides[0]) < abs(tile.strides[1])
        if self.held.get(name, (None, None))[0] != key:
            room = self._other(name)
            self.held[name] = key, self._uploaded(room, tile.T if is_transposed else tile, self.elements)
        return self.held[name][1], is_transposed

    def _sums(self, step: tuple[int, int, int], rows: slice, columns: slice) -> Any:
        """The tile of C that a step adds to."""
        key, shape = step[:2], (rows.stop - rows.start, columns.stop - columns.start)
        if self.held.get("c", (None, None))[0] != key:
            room = self._other("c")
            if (before := self.stored.get(room)) is not None:
                before.result()
            added = None if self.c is None else self._uploaded(room, self.c[rows, columns], self.sums)
            self.held["c"] = key, self.place.empty(room, shape, self.sums) if added is None else added
        return self.held["c"][1]

    def _uploaded(self, room: Room, tile: Host, dtype: np.dtype[Any]) -> Any:
        """A tile on the device: while a piece of it is copied, the next one is staged."""
        array, staged = self.place.empty(room, tile.shape, dtype), room.staged(tile.shape, dtype)
        most = max(1, PIECE // max(1, staged.strides[0]))
        for begin in range(0, len(tile), most):
            rows = slice(begin, min(begin + most, len(tile)))
            self._staged(staged[rows], tile[rows])
            self.place.upload(room, array, staged, rows)
        return array

    def _staged(self, into: Host, rows: Host) -> None:
        """Copy rows into the room's memory by several threads; a memory map is read meanwhile."""
        each = -(-len(rows) // THREADS)
        parts = [slice(begin, begin + each) for begin in range(0, len(rows), each)]
        copies = [self.pool.submit(np.copyto, into[part], rows[part], "unsafe") for part in parts]
        for copy in copies:
            copy.result()

    def _other(self, name: str) -> Room:
        """The room that was not used last, once no product reads it."""
        self.rooms[name].reverse()
        room = self.rooms[name][0]
        self.place.wait(room)
        return room

    def _store(self, step: tuple[int, int, int], room: Room, sums: Any) -> None:
        """Fetch a tile of C into the result."""
        rows, columns = (self.cut.span(axis, step[axis]) for axis in (0, 1))
        np.copyto(self.target[rows, columns], self.place.download(room, sums), casting="unsafe")
