"""Which schedule with vectors a CPU computes a product by: the cheapest of some hundred, by a small cost model.

The model counts what the busiest core does. Its constants stand in `sweeps.toml`. How deep K is cut decides the order
of sums, so that is chosen for one core: the same sizes give the same bits on any number of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from math import gcd
from typing import NamedTuple

from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.passes.validate import validate
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]

#: What is assumed of sizes that are not known yet.
USUAL: Shape = (2048, 2048, 2048)
#: Tiles (rows, vectors) that leave room for a line of B and an element of A, by how many vector registers there are.
TILES = {32: ((6, 4), (12, 2), (14, 1)), 16: ((6, 2), (12, 1))}
#: Bytes of vectors from which on a CPU has 32 registers of them (AVX-512), not 16.
MANY_REGISTERS = 64
#: Tiles that a work-item sweeps at most, downwards and across.
DOWN, ACROSS = (4, 11, 22, 43, 86, 171, 342, 683), (1, 2, 4)
#: The same where tiles go down in blocks of so many, for sweeps much longer than those.
M_BLOCKS, DOWN_IN_BLOCKS, ACROSS_IN_BLOCKS = (8, 16), (86, 171, 342, 683), (4, 8)
#: How deep blocks of K are, without a copy up to the next number; all of a K up to that goes at once. What is shallow
#: is copied only to be turned.
DEPTHS, AT_ONCE, SHALLOW = (256, 512, 1024, 2048), 1024, 32
#: K is cut into parts of at least this depth where C has few tiles.
LONG, FEW_TILES, MOST_PARTS = 8192, 16, 16


@dataclass(frozen=True)
class Costs:
    """The constants, in cycles of a core; `sweeps.toml` says what each is."""

    fma_per_cycle: float
    loads_per_cycle: float
    far_line: float
    copy_line: float
    page: float
    same_place: float
    near_line: float
    again_line: float
    memory_line: float
    panel_line: float
    same_row: float
    far_row: float
    copied_row: float
    update_line: float
    tile: float
    group: float
    kernel: float
    wait: float
    page_bytes: int
    panel_share: float
    near_share: float
    first_level: int
    rows_in_place: int
    rows_apart: int
    second_level: int
    third_level: int


@cache
def costs() -> Costs:
    """As the file has them."""
    return Costs(**tomllib.loads(files("gemmgen").joinpath("sweeps.toml").read_text(encoding="utf-8")))


def choose_sweep(spec: GemmSpec, shape: Shape | None, target: Target) -> Schedule | None:
    """The schedule for a product on a CPU; None where the target is none, or vectors can't compute the product."""
    if "vectors" not in target.features:
        return None
    known = (spec.m, spec.n, spec.k)
    m, n, k = (size or asked for size, asked in zip(known, shape or USUAL, strict=True))
    return _choose(spec, (m, n, k), target)


class _Way(NamedTuple):
    """What the model looks at of a schedule: hundreds are thought of, and one is made."""

    tile: tuple[int, int]
    vector: int
    copied: bool
    split: int
    sweep: tuple[int, int] = (1, 1)
    even: tuple[int, int] = (1, 1)
    k_block: int = 1
    m_block: int = 0

    @classmethod
    def of(cls, s: Schedule) -> _Way:
        return cls(s.tile, s.vector, s.b.memory == "private", s.split, s.sweep, s.even, s.k_block, s.m_block)

    def schedule(self) -> Schedule:
        b = Operand(memory="private") if self.copied else Operand()
        plain = Schedule(self.tile, (1, 1), vector=self.vector, split=self.split, sweep=self.sweep, even=self.even, b=b)
        return replace(plain, k_block=self.k_block, m_block=self.m_block)


@lru_cache(maxsize=256)
def _choose(spec: GemmSpec, shape: Shape, target: Target) -> Schedule | None:
    def cost(way: _Way, cores: int) -> float:
        return sum(_account(spec, way, shape, cores, target).values())

    one_core = list(_candidates(spec, shape, target, 1))
    if not one_core:
        return None
    depth = min(one_core, key=lambda way: cost(way, 1)).k_block
    all_cores = (way for way in _candidates(spec, shape, target, target.cores) if way.k_block == depth)
    return min(all_cores, key=lambda way: cost(way, target.cores)).schedule()


def liked(spec: GemmSpec, shape: Shape, target: Target, count: int) -> list[Schedule]:
    """The cheapest by the model, of each tile, depth, way to B and sharing out the cheapest alone."""
    kinds: dict[tuple[object, ...], tuple[float, _Way]] = {}
    for way in _candidates(spec, shape, target, target.cores):
        kind = way.tile, way.copied, way.k_block, way.even
        cost = sum(_account(spec, way, shape, target.cores, target).values())
        kinds[kind] = min(kinds.get(kind, (cost, way)), (cost, way))
    return [way.schedule() for _, way in sorted(kinds.values())[:count]]


def _candidates(spec: GemmSpec, shape: Shape, target: Target, cores: int) -> Iterator[_Way]:
    """All that are worth a thought, and that the target can run."""
    m, n, k = shape
    lanes = _lanes(spec, n, target)
    registers = 32 if target.vector_bytes >= MANY_REGISTERS else 16
    split = _parts(shape)
    by_lines = spec.b_order == "row"
    # Deeper than K is needless, but a copy has to say how deep it is at most.
    enough = next((depth for depth in DEPTHS if depth >= k), DEPTHS[-1])
    depths = (*((0,) if by_lines and k <= AT_ONCE else ()), *(depth for depth in DEPTHS if depth <= enough))
    for (rows, vectors), copied in product(TILES[registers], (False, True)):
        # In place, a C narrower than a tile goes the slow way; a copy has no edges.
        most = _up(n, lanes) if copied else n // lanes
        if (by_lines and copied and k <= SHALLOW) or not (copied or by_lines) or vectors > max(1, most):
            continue
        plain = _Way((rows, vectors * lanes), lanes, copied, split)
        if not _is_possible(spec, plain.schedule(), target):
            continue
        tiles = _up(m, rows), _up(n, plain.tile[1])
        sweeps = [(0, *sweep) for sweep in product(_useful(DOWN, tiles[0]), _useful(ACROSS, tiles[1]))]
        if copied and tiles[0] > DOWN_IN_BLOCKS[0]:
            long = _useful(DOWN_IN_BLOCKS, tiles[0]), _useful(ACROSS_IN_BLOCKS, tiles[1])
            sweeps += product(M_BLOCKS, *long)
        for (m_block, down, across), even, depth in product(sweeps, _evens(cores), depths):
            fits = not copied or depth * across * plain.tile[1] * spec.dtype.size <= target.private_bytes
            if fits and (depth if copied else depth < max(1, k) and depth <= AT_ONCE):
                yield plain._replace(sweep=(down, across), even=even, k_block=depth, m_block=m_block)


def _useful(lengths: tuple[int, ...], tiles: int) -> list[int]:
    """Lengths of sweeps that there are tiles for, and one that takes them all."""
    return [at for at, before in zip(lengths, (0, *lengths), strict=False) if before < tiles]


def _evens(cores: int) -> tuple[tuple[int, int], ...]:
    return ((1, 1),) if cores == 1 else ((cores, 1), (1, cores), (1, 1))


def _lanes(spec: GemmSpec, n: int, target: Target) -> int:
    """Elements of a vector: as wide as the target's, unless C is narrower."""
    lanes = target.vector_bytes // spec.dtype.size
    while lanes > 2 and lanes > n:
        lanes //= 2
    return lanes


def _parts(shape: Shape) -> int:
    """Parts of K, by the sizes alone, since the order of sums depends on them."""
    m, n, k = shape
    tiles = _up(m, 6) * _up(n, 64)
    return 1 if tiles >= FEW_TILES else max(1, min(MOST_PARTS, k // LONG))


def _is_possible(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    try:
        validate(spec, schedule, target)
    except ScheduleError:
        return False
    return True


def cycles(spec: GemmSpec, s: Schedule, shape: Shape, target: Target) -> float:
    """What the busiest core takes for a product."""
    return sum(account(spec, s, shape, target).values())


def account(spec: GemmSpec, s: Schedule, shape: Shape, target: Target) -> dict[str, float]:
    """The cycles of the busiest core, by what they go to."""
    return _account(spec, _Way.of(s), shape, target.cores, target)


def _account(spec: GemmSpec, s: _Way, shape: Shape, cores: int, target: Target) -> dict[str, float]:
    c, (m, n, k), (rows, cols), size = costs(), shape, s.tile, spec.dtype.size
    (down, rows_each), (across, cols_each) = (
        _shares(extent, unit, sweep, even)
        for extent, unit, sweep, even in zip((m, n), s.tile, s.sweep, s.even, strict=True)
    )
    depth = _up(k, s.split)
    block = max(1, min(depth, s.k_block or depth))
    blocks = max(1, _up(depth, block))
    lines = cols * size / 64
    cached = min(c.second_level, target.cache_bytes or c.second_level)
    fmas, loads = rows * cols / s.vector / c.fma_per_cycle, (rows + cols / s.vector) / c.loads_per_cycle
    # In place, a step's line of B may lie on a page of its own; a panel that the cache can't hold comes anew each time.
    panel = block * cols * size
    slow = lines * (c.far_line * (panel > c.panel_share * cached) + c.near_line * (panel > c.first_level))
    if not s.copied:
        # Lines of B that begin at the same places of their pages are kept in the same few places of the cache.
        slow += lines * c.same_place * (block * gcd(n * size, c.page_bytes) > cached)
        slow += c.page * min(1, n * size / c.page_bytes)
    a_row = _row_cost(rows, k * size * (spec.a_order == "row"))
    if s.copied and rows > c.rows_in_place:
        a_row += c.copied_row
    # A comes from afar for each column of tiles, unless all of its rows stay, or a block's: then B's panels come again.
    stay = min(rows_each, s.m_block or rows_each)
    a_times = 1 if stay * rows * block * size <= c.near_share * cached else cols_each
    b_times = _up(rows_each, stay) if cols_each * block * cols * size > c.near_share * cached else 1
    a_lines, b_lines = rows_each * rows * depth * size / 64, cols_each * depth * lines
    first, again = (c.far_line, c.again_line) if (m + n) * k * size <= c.third_level else (c.memory_line, c.memory_line)
    groups, tiles = down * across * s.split, rows_each * cols_each
    # Cores take groups as they come: all are busy until the last few.
    even_share = _up(m, rows) * _up(n, cols) * s.split / cores / tiles
    rounds = min(_up(groups, cores), even_share + 1 - 1 / cores)
    parts = {
        "multiply-adds and loads": tiles * depth * max(fmas, loads),
        "B where it is slow to read": tiles * depth * slow,
        "A's rows": tiles * depth * rows * a_row,
        "A and B from afar": (a_lines + b_lines) * first
        + a_lines * (a_times - 1) * again
        + b_lines * (b_times - 1) * c.panel_line,
        "copies of B": b_lines * c.copy_line * s.copied,
        "C": tiles * rows * lines * (2 * blocks - 1) * c.update_line,
        "beginnings of tiles": tiles * blocks * c.tile,
    }
    total = {name: rounds * part for name, part in parts.items()}
    return total | {
        "beginnings of work-items": c.group * _up(groups, cores),
        "the sum of K's parts": c.kernel * (s.split > 1),
        "waiting for the last": c.wait * sum(parts.values()),
    }


def _row_cost(rows: int, pitch: int) -> float:
    """What an element of A costs beside its load, where a tile's rows are so many bytes apart (0: side by side)."""
    c = costs()
    drive_out = rows * gcd(pitch, c.page_bytes) > c.rows_in_place * c.page_bytes
    return c.same_row * (pitch > 0 and drive_out) + c.far_row * (rows > c.rows_in_place and pitch > c.rows_apart)


def _shares(extent: int, unit: int, sweep: int, even: int) -> tuple[int, int]:
    """Groups along an axis, and the tiles that each has there."""
    groups = _up(extent, unit * sweep * even) * even
    return groups, _up(_up(extent, unit), groups)


def _up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
