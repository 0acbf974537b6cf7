"""Products of host arrays that are larger than a limit on device memory: tiles of them go through the device.

C is computed tile by tile. While a tile is multiplied, the next ones of A and B are copied to the device, and the last
ones of C from it. So host arrays may be memory maps of files of any size.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmgen.api.gemm_problems import FLAGS, factor_problems, flag_problems, is_set, schedule_problems
from gemmgen.api.libraries import kind_of
from gemmgen.api.promotion import Types, types_of
from gemmgen.api.tile_copies import Copies
from gemmgen.api.tile_memory import Place, Room, place_of
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.progress import Tick, progress
from gemmgen.records import dataclass
from gemmgen.runtime.views import meets_itself

Host = npt.NDArray[np.generic]
#: `gemm` on arrays of the device.
Gemm = Callable[..., Any]
#: Units of sizes.
_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{x}{unit}": base ** (i + 1) for i, x in enumerate("KMGT") for unit, base in (("iB", 1024), ("B", 1000))}
#: Elements that a side of a tile is a multiple of, if it is long, and else; and the steps of K that are weighed.
LONG, UNIT, DEPTHS = 256, 64, (256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
#: Tiles of A, B and C on the device: where tiles have all of K, and others.
HELD, STEPPED = ((2, 4, 4), (4, 2, 4)), (2, 2, 2)
#: Flags that do not go with tiles, and what to do.
_NEITHER = {
    "invariant": "tiles decide how K is summed; leave one of the two out",
    "allow_tf32": "tiles are multiplied in float32; leave one of the two out",
    "emulate": "it is for SYCL, which takes no tiles; leave it out",
}
#: Bytes that could be copied while a product is queued.
LAUNCH = 4 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How a product is cut.

    Attributes:
        shape: m, n and k.
        tile: of these; the last ones may be smaller.
        sizes: bytes of an element of A or B, and of a sum.
        most: tiles of A, B and C that lie on the device. If they have all of K, those of A go past as many of B, which
            stay; or those of B past more of A.
    """

    shape: tuple[int, int, int]
    tile: tuple[int, int, int]
    sizes: tuple[int, int]
    most: tuple[int, int, int]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Tiles along m, n and k."""
        rows, columns, depth = (-(-size // tile) for size, tile in zip(self.shape, self.tile, strict=True))
        return rows, columns, depth

    @property
    def rooms(self) -> tuple[tuple[int, int], ...]:
        """For A, B and C: the bytes of a tile, and how many tiles lie on the device."""
        (m, n, k), (rows, columns, depth), (element, total) = self.tile, self.counts, self.sizes
        tiles = (m * k * element, rows * depth), (k * n * element, depth * columns), (m * n * total, rows * columns)
        return tuple((size, min(count, most)) for (size, count), most in zip(tiles, self.most, strict=True))

    @property
    def device_bytes(self) -> int:
        """What the tiles take on the device."""
        return sum(size * count for size, count in self.rooms)

    @property
    def passes(self) -> tuple[int, int]:
        """How often A and B are copied."""
        (rows, columns, depth), (of_a, of_b, _) = self.counts, self.most
        if depth > 1:
            return columns, rows
        if self._holds_a:
            return 1, 1 if columns <= of_b else -(-rows // of_a)
        return 1 if rows <= of_a else -(-columns // of_b), 1

    @property
    def _holds_a(self) -> bool:
        return self.most[0] > self.most[1]

    @property
    def traffic(self) -> int:
        """Bytes of A and B that are copied."""
        (m, n, k), (of_a, of_b) = self.shape, self.passes
        return (m * of_a + n * of_b) * k * self.sizes[0]

    @property
    def cost(self) -> float:
        """The time, in bytes: of all copies, and of what follows the last one to the device, which is the products with
        one tile and the copy of C's.
        """
        (rows, columns, depth), (of_a, of_b) = self.counts, self.passes
        loads = rows * columns * depth if depth > 1 else columns * of_b if self._holds_a else rows * of_a
        return self.traffic * (1 + 1 / loads) + self.rooms[2][0] + LAUNCH * rows * columns * depth

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Tiles in order, by the numbers of their rows, columns and depth."""
        rows, columns, depth = self.counts
        if depth > 1:
            yield from product(range(rows), range(columns), range(depth))
            return
        held, others, most = (rows, columns, self.most[0]) if self._holds_a else (columns, rows, self.most[1])
        for begin in range(0, held, most):
            # Each second time backwards, so that the last tile serves again.
            for x in range(others)[:: -1 if begin // most % 2 else 1]:
                for y in range(begin, min(begin + most, held)):
                    yield (y, x, 0) if self._holds_a else (x, y, 0)

    def span(self, axis: int, number: int) -> slice:
        """The elements of a tile along m, n or k."""
        begin = number * self.tile[axis]
        return slice(begin, min(begin + self.tile[axis], self.shape[axis]))


@lru_cache(maxsize=64)
def plan(shape: tuple[int, int, int], sizes: tuple[int, int], limit: int) -> Plan:
    """The cut of the least cost within a limit. Raises: SpecError if not even the smallest tiles fit."""
    m, n, k = shape
    ways = [(k, most) for most in HELD] + [(depth, STEPPED) for depth in sorted({min(k, x) for x in (*DEPTHS, k)})]
    found = [
        each
        for depth, most in ways
        for rows in sorted({_tile(m, count) for count in _counts(-(-m // UNIT))})
        for each in _widest(shape, (rows, depth), sizes, most, limit)
    ]
    if not found:
        least = Plan(shape, (min(m, UNIT), min(n, UNIT), min(k, DEPTHS[0])), sizes, STEPPED)
        raise SpecError(
            f"device_memory = {limit:,} bytes is less than the {least.device_bytes:,} that the smallest tiles of "
            f"{m}x{n}x{k} take: raise it"
        )
    return min(found, key=lambda each: each.cost)


def _counts(most: int) -> Iterator[int]:
    """Numbers of tiles along a side that are weighed."""
    yield from (count for power in range(most.bit_length()) for count in (2**power, 3 * 2**power) if count < most)
    yield most


def _widest(
    shape: tuple[int, int, int],
    lines: tuple[int, int],
    sizes: tuple[int, int],
    most: tuple[int, int, int],
    limit: int,
) -> Iterator[Plan]:
    """Plans with tiles of so many rows and such a depth: with all columns, and with as many as always fit."""
    n, (rows, depth) = shape[1], lines
    if (whole := Plan(shape, (rows, n, depth), sizes, most)).device_bytes <= limit:
        yield whole
    (a, count), (column, _), (of_c, _) = Plan(shape, (rows, 1, depth), sizes, most).rooms
    columns = (limit - a * count) // (column * most[1] + of_c * most[2])
    if columns >= min(n, UNIT):
        least = -(-n // min(columns, n))
        tiles = -(-least // most[1]) * most[1] if least > 1 or depth == shape[2] else least
        yield Plan(shape, (rows, min(_tile(n, tiles), max(columns // UNIT * UNIT, min(n, UNIT))), depth), sizes, most)


def _tile(extent: int, count: int) -> int:
    """The side of a tile where there are about so many."""
    side = -(-extent // count)
    unit = LONG if side > 2 * LONG else UNIT
    return min(extent, -(-side // unit) * unit)


def size_of(value: object, problems: list[str]) -> int:
    """A size in bytes, of a number or a text such as 4GiB; 0 where it is none, which is added to the problems."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?i?B|)\s*", value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or float(match[1]) * _UNITS[match[2]] < 1:
        problems.append(f"device_memory = {value!r} is no size: pass bytes, or a text such as '4GiB' or '512MiB'")
        return 0
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
    problems: list[str] = []
    (a, b, c, out), (alpha, beta) = arrays, factors
    limit = size_of(how.pop("device_memory"), problems)
    asked = {x: how.pop(x) for x in FLAGS}
    flags = {x: is_set(value) for x, value in asked.items()}
    shown, dtype, backend, device = (how.pop(x) for x in ("progress", "dtype", "backend", "device"))
    schedule = how.pop("schedule")
    problems += flag_problems(asked)
    factor_problems(factors, c is not None, problems)
    given = [*(x for x in _NEITHER if flags[x]), *(x for x, value in how.items() if value is not None)]
    problems += [f"{x} does not go with device_memory: {_instead(x)}" for x in given]
    problems += [*_array_problems(arrays), *schedule_problems(schedule)]
    if problems:
        raise SpecError(problems)
    a, b = a.T if flags["transpose_a"] else a, b.T if flags["transpose_b"] else b
    target, types = _target(a, b, c, out, dtype, backend, problems)
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


def _instead(option: str) -> str:
    """What to do where an option does not go with tiles."""
    if option in _NEITHER:
        return _NEITHER[option]
    of = option[-1] if option.startswith("prologue_") else "c" if option == "epilogue" else OPERANDS[option].of
    return f"leave it out, and apply it to {'the result' if of == 'c' else of}"


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
    if given is not None:
        if not given.flags.writeable:
            problems.append(f"{'c' if out is None else 'out'} is read-only: pass a writable array")
        if meets_itself(given):
            name = "c" if out is None else "out"
            problems.append(f"elements of {name} share memory: pass an array that has each of its own")
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
        types: tuple[np.dtype[np.generic], np.dtype[np.generic]],
        options: dict[str, Any],
    ) -> None:
        self.gemm, self.place, self.cut, self.factors = gemm, place, cut, factors
        self.a, self.b, self.c, self.target = arrays
        self.elements, self.sums = types
        self.steps = list(cut.steps())
        #: The tiles of A and B are copied in their own order.
        self.transposed = [abs(x.strides[0]) < abs(x.strides[1]) for x in (self.a, self.b)]
        self.options = {**options, "transpose_a": self.transposed[0], "transpose_b": self.transposed[1]}
        #: The rooms of A, B and C, the one that was used least recently first.
        self.rooms = [[place.room(size) for _ in range(count)] for size, count in cut.rooms]
        self.copies = Copies(place, max(size for size, _ in cut.rooms))

    def run(self, tick: Tick) -> None:
        """Compute all tiles."""
        loaded: deque[list[Room]] = deque()
        try:
            with self.copies:
                for at, step in enumerate(self.steps):
                    while (ahead := at + len(loaded)) < len(self.steps) and self._can_load(ahead, at):
                        loaded.append(self._load(ahead))
                    self._multiply(step, loaded.popleft())
                    tick(f"tile {at + 1} of {len(self.steps)}")
                for room in self.rooms[2]:
                    room.finish()
        finally:
            self.place.finish()

    def _keys(self, number: int) -> tuple[tuple[int, int], ...]:
        """The tiles of A, B and C that a step uses."""
        i, j, p = self.steps[number]
        return (i, p), (p, j), (i, j)

    def _can_load(self, number: int, queued: int) -> bool:
        """Whether rooms for a step's tiles are left by products that are queued, as those before a step are."""
        return all(
            rooms[0].step < queued or any(room.key == key for room in rooms)
            for key, rooms in zip(self._keys(number), self.rooms, strict=True)
        )

    def _load(self, number: int) -> list[Room]:
        """The rooms of a step's tiles, which are being copied."""
        found = []
        spans = [self.cut.span(axis, at) for axis, at in enumerate(self.steps[number])]
        for name, (key, rooms) in enumerate(zip(self._keys(number), self.rooms, strict=True)):
            room = next((room for room in rooms if room.key == key), rooms[0])
            rooms.remove(room)
            rooms.append(room)
            if room.key != key:
                self._fill(room, name, spans)
            room.key, room.step = key, number
            found.append(room)
        return found

    def _fill(self, room: Room, name: int, spans: list[slice]) -> None:
        """Begin to copy a tile of A, B or C to a room."""
        rows, columns, depth = spans
        if name < 2:
            tile = self.b[depth, columns] if name else self.a[rows, depth]
            self.copies.upload(room, tile.T if self.transposed[name] else tile, self.elements)
        elif self.c is not None:
            room.finish()
            self.copies.upload(room, self.c[rows, columns], self.sums)
        else:
            room.array = self.place.array(room, (rows.stop - rows.start, columns.stop - columns.start), self.sums)

    def _multiply(self, step: tuple[int, int, int], rooms: list[Room]) -> None:
        """Queue a product once its tiles are on their way, and then the copy of C's tile if that is complete."""
        for room in rooms:
            room.finish()
        x, y, sums = (room.array for room in rooms)
        alpha, beta = self.factors
        added = 1 if step[2] else beta if self.c is not None else 0
        self.place.queue(lambda: self.gemm(x, y, sums, alpha=alpha, beta=added, **self.options), rooms)
        if step[2] + 1 == self.cut.counts[2]:
            rows, columns = (self.cut.span(axis, step[axis]) for axis in (0, 1))
            self.copies.download(rooms[2], self.target[rows, columns], self.sums)
