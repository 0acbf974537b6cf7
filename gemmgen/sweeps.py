"""Which schedule with vectors a CPU computes a product by: the cheapest of some hundred, by a small cost model.

The model counts what the busiest core does. Its constants stand in `sweeps.toml`. How deep K is cut decides the order
of sums, so that is chosen for one core: the same sizes give the same bits on any number of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product
from math import gcd
from typing import NamedTuple

from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
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
M_BLOCKS, DOWN_IN_BLOCKS, ACROSS_IN_BLOCKS = (8, 16), (86, 171, 342, 683), (4,)
#: The same where vectors lie along K, (rows, columns).
TILES_ALONG_K = {
    32: ((8, 1), (8, 2), (4, 3), (4, 4), (4, 6), (2, 8), (1, 8)),
    16: ((8, 1), (4, 2), (3, 3), (2, 4), (1, 6)),
}
#: How deep blocks of K are there, and up to how many columns B is transposed for it.
DEPTHS_ALONG_K, TURNED = (1024, 4096, 16384), 16
#: Rows of C up to which a tile has no more, with what vectors; B then comes from memory a few lines at a time.
FEW_ROWS, WIDE, FEW_LINES = 5, (16, 8, 6, 4, 2), (8, 32)
#: The same of A by columns, whose elements of a step are neighbours, and need no places of their own.
FEW_ROWS_BY_COLUMNS, WIDE_BY_COLUMNS = 8, (16, 8, 6, 4, 3, 2)
#: How deep blocks of K are; a K up to the next number goes at once. What is shallow is copied only to be transposed.
DEPTHS, AT_ONCE, SHALLOW = (256, 512, 1024), 1024, 32
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
    in_place: float
    same_place: float
    near_line: float
    again_line: float
    close_line: float
    memory_line: float
    panel_line: float
    same_row: float
    far_row: float
    copied_row: float
    crowded_row: float
    update_line: float
    alone: float
    tile: float
    group: float
    kernel: float
    threads: float
    wait: float
    transposed_line: float
    apart_line: float
    passing_line: float
    element: float
    single: float
    short_tile: float
    rows_line: float
    move: float
    page_bytes: int
    panel_share: float
    near_share: float
    first_level: int
    all_first_level: int
    rows_in_place: int
    rows_in_registers: int
    rows_apart: int
    lines_apart: int
    written_out: int
    b_prefetch: int
    rows_beside_prefetch: int
    copied_tiles: tuple[tuple[int, int], ...]
    asks_for_c: int
    second_level: int
    third_level: int


@cache
def costs(maker: str = "") -> Costs:
    """As the file has them, with what it says of a maker's processors."""
    found = tomllib.loads(files("gemmgen").joinpath("sweeps.toml").read_text(encoding="utf-8"))
    makers = {name: found.pop(name) for name, value in tuple(found.items()) if isinstance(value, dict)}
    said = found | makers.get(maker, {})
    tiles = tuple((rows, vectors) for rows, vectors in said.pop("copied_tiles"))
    return Costs(**said, copied_tiles=tiles)


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
    along_k: bool = False

    @classmethod
    def of(cls, s: Schedule) -> _Way:
        copied = s.b.memory == "private"
        return cls(s.tile, s.vector, copied, s.split_k, s.macro_kernel, s.grid_multiple, s.kc, s.mc, s.dot_product)

    @property
    def order(self) -> tuple[int, int]:
        """What the order of sums depends on."""
        return self.k_block, self.vector if self.along_k else 1

    def schedule(self) -> Schedule:
        b = Operand(memory="private") if self.copied else Operand()
        plain = Schedule.of(
            tile=self.tile,
            group=(1, 1),
            vector=self.vector,
            split_k=self.split,
            macro_kernel=self.sweep,
            grid_multiple=self.even,
            b=b,
        )
        return plain.but(kc=self.k_block, mc=self.m_block, dot_product=self.along_k)


@lru_cache(maxsize=256)
def _choose(spec: GemmSpec, shape: Shape, target: Target) -> Schedule | None:
    def cost(way: _Way, cores: int) -> float:
        return sum(_account(spec, way, shape, cores, target).values())

    one_core = list(_candidates(spec, shape, target, 1))
    if not one_core:
        return None
    order = min(one_core, key=lambda way: cost(way, 1)).order
    all_cores = (way for way in _candidates(spec, shape, target, target.cores) if way.order == order)
    return _finished(spec, min(all_cores, key=lambda way: cost(way, target.cores)).schedule(), shape[2], target)


def _finished(spec: GemmSpec, s: Schedule, depth: int, target: Target) -> Schedule:
    """With what the loop over K does beside the sum, which a maker's processors want or don't, whatever the tiles."""
    c, depth = costs(target.maker), min(depth, s.kc)
    if s.b.memory != "private" or s.dot_product or depth < c.written_out:
        return s
    written_out = s.but(block_k=c.written_out)
    asks_for_c = 0 < c.asks_for_c <= depth and (spec.c_order == "row" or s.split_k > 1)
    b_prefetch = c.b_prefetch if s.tile[0] <= c.rows_beside_prefetch else 0
    asking = written_out.but(b_prefetch=b_prefetch, c_prefetch=asks_for_c)
    return asking if not problems_as_asked(spec, asking, target) else written_out


def liked(spec: GemmSpec, shape: Shape, target: Target, count: int) -> list[Schedule]:
    """The cheapest by the model, of each tile, depth, way to B and sharing out the cheapest alone."""
    kinds: dict[tuple[object, ...], tuple[float, _Way]] = {}
    for way in _candidates(spec, shape, target, target.cores):
        kind = way.tile, way.along_k, way.copied, way.k_block, way.even
        cost = sum(_account(spec, way, shape, target.cores, target).values())
        kinds[kind] = min(kinds.get(kind, (cost, way)), (cost, way))
    return [_finished(spec, way.schedule(), shape[2], target) for _, way in sorted(kinds.values())[:count]]


def by_order(spec: GemmSpec, shape: Shape, target: Target, cores: int, rows: int) -> Iterator[tuple[float, Schedule]]:
    """The cheapest of each order of sums, each with its cycles. Parts of K are those of a C of so many rows."""
    parts, kinds = _parts((rows, *shape[1:])), dict[tuple[object, ...], tuple[float, _Way]]()
    for way in _candidates(spec, shape, target, cores, parts):
        kind, cost = (way.order, way.copied), sum(_account(spec, way, shape, cores, target).values())
        kinds[kind] = min(kinds.get(kind, (cost, way)), (cost, way))
    for cost, way in sorted(kinds.values()):
        yield cost, _finished(spec, way.schedule(), shape[2], target)


def _candidates(spec: GemmSpec, shape: Shape, target: Target, cores: int, parts: int | None = None) -> Iterator[_Way]:
    """All that are worth a thought, and that the target can run, with K in so many parts."""
    parts = _parts(shape) if parts is None else parts
    for plain, depths in (*_of_columns(spec, shape, target, parts), *_along_k(spec, shape, target, parts)):
        if problems_as_asked(spec, plain.schedule(), target):
            continue
        tiles = tuple(map(_up, shape[:2], plain.tile))
        wide = _useful(ACROSS if tiles[0] > 1 else DOWN, tiles[1])
        sweeps = [(0, *sweep) for sweep in product(_useful(DOWN, tiles[0]), wide)]
        # A tile's rows stay in the first level while panels of B pass: for nothing, where the second is as good.
        stays = plain.along_k or (plain.copied and costs(target.maker).close_line > 0)
        if stays and min(tiles) > 1:
            sweeps += [(1, down, across) for _, down, across in sweeps if plain.along_k or across > 1]
        if plain.copied and not plain.along_k and tiles[0] > DOWN_IN_BLOCKS[0]:
            long = _useful(DOWN_IN_BLOCKS, tiles[0]), _useful(ACROSS_IN_BLOCKS, tiles[1])
            sweeps += product(M_BLOCKS, *long)
        for (m_block, down, across), even, depth in product(sweeps, _evens(cores), depths):
            fits = not plain.copied or depth * across * plain.tile[1] * spec.dtype.size <= target.private_bytes
            if fits and (depth if plain.copied else depth < max(1, shape[2])):
                yield plain._replace(sweep=(down, across), even=even, k_block=depth, m_block=m_block)


def _of_columns(spec: GemmSpec, shape: Shape, target: Target, parts: int) -> Iterator[tuple[_Way, tuple[int, ...]]]:
    """Vectors of neighbouring columns: tiles, ways to B, and how deep blocks of K can be."""
    m, n, k = shape
    by_lines = spec.b_order == "row"
    # Deeper than K is needless, but a copy has to say how deep it is at most.
    enough = next((depth for depth in DEPTHS if depth >= k), DEPTHS[-1])
    depths = (*((0,) if by_lines and k <= AT_ONCE else ()), *(depth for depth in DEPTHS if depth <= enough))
    widest, fitting = target.vector_bytes // spec.dtype.size, _lanes(spec, n, target)
    more = costs(target.maker).copied_tiles if _registers(target) == max(TILES) and m > FEW_ROWS_BY_COLUMNS else ()
    ways = [*product(_tiles(spec, m, target), (False, True)), *((tile, True) for tile in more)]
    for ((rows, vectors), copied), lanes in product(ways, {fitting: 0, widest: 0}):
        # In place, a C narrower than a tile goes the slow way; a copy has no edges.
        most = _up(n, lanes) if copied else n // lanes
        # A copy that one tile alone reads is needless.
        if (lanes > fitting and not copied) or (by_lines and copied and rows >= m):
            continue
        if (by_lines and copied and k <= SHALLOW) or not (copied or by_lines) or vectors > max(1, most):
            continue
        few = FEW_LINES if m <= FEW_ROWS and not copied else ()
        if spec.c_order == "col" and by_lines and not copied:
            few = (0, *few)  # what waits in C goes there and back an element at a time
        yield _Way((rows, vectors * lanes), lanes, copied, parts), (*few, *depths)


def _along_k(spec: GemmSpec, shape: Shape, target: Target, parts: int) -> Iterator[tuple[_Way, tuple[int, ...]]]:
    """The same of vectors along K, for which B that has lines is transposed by a copy."""
    m, n, k = shape
    lanes, transposed = target.vector_bytes // spec.dtype.size, spec.b_order == "row"
    if k < lanes or (transposed and n > TURNED):
        return
    enough = next((depth for depth in DEPTHS_ALONG_K if depth >= k), DEPTHS_ALONG_K[-1])
    depths = tuple(depth for depth in DEPTHS_ALONG_K if depth <= enough)
    for rows, cols in TILES_ALONG_K[_registers(target)]:
        tile = min(m, rows), min(n, cols)
        yield _Way(tile, lanes, transposed, parts, k_block=lanes, along_k=True), depths if transposed else (0, *depths)


def _registers(target: Target) -> int:
    return 32 if target.vector_bytes >= MANY_REGISTERS else 16


def _tiles(spec: GemmSpec, m: int, target: Target) -> tuple[tuple[int, int], ...]:
    """Rows and vectors of tiles; where C has few rows a tile has as many, and vectors instead."""
    registers = _registers(target)
    few, wide = (FEW_ROWS, WIDE) if spec.a_order == "row" else (FEW_ROWS_BY_COLUMNS, WIDE_BY_COLUMNS)
    if m > few:
        return TILES[registers]
    # With a single row each vector of B is used once, and needs no register.
    return (*TILES[registers], *((m, width) for width in wide if width * (m + (m > 1)) < registers))


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


def cycles(spec: GemmSpec, s: Schedule, shape: Shape, target: Target) -> float:
    """What the busiest core takes for a product."""
    return sum(account(spec, s, shape, target).values())


def account(spec: GemmSpec, s: Schedule, shape: Shape, target: Target) -> dict[str, float]:
    """The cycles of the busiest core, by what they go to."""
    return _account(spec, _Way.of(s), shape, target.cores, target)


def _account(spec: GemmSpec, s: _Way, shape: Shape, cores: int, target: Target) -> dict[str, float]:
    c, (m, n, k), (rows, cols), size = costs(target.maker), shape, s.tile, spec.dtype.size
    (down, rows_each), (across, cols_each) = (
        _shares(extent, unit, sweep, even)
        for extent, unit, sweep, even in zip((m, n), s.tile, s.sweep, s.even, strict=True)
    )
    depth = _up(k, s.split)
    block = max(1, min(depth, s.k_block or depth))
    blocks = max(1, _up(depth, block))
    lines = cols * size / 64
    cached = min(c.second_level, target.cache_bytes or c.second_level)
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
    tile = _tile_along_k(c, s, size, depth, block) if s.along_k else _tile(c, spec, s, shape, depth, block, cached)
    # Memory gives a row after the other fastest, and whole rows.
    is_scattered = rows > 1 >= cols - 1 or block * size <= c.page_bytes
    begin = c.short_tile if s.along_k else c.tile * min(1, rows / (FEW_ROWS + 1))
    moves = max(0, 64 // (s.vector * size) - 1)
    is_transposed = s.along_k == (spec.b_order == "row")
    parts = {
        **{name: tiles * cost for name, cost in tile.items()},
        "A and B from afar": (a_lines + b_lines) * first
        + a_lines * c.rows_line * (1 - 1 / rows) * (s.along_k and first == c.memory_line and is_scattered)
        + a_lines * (a_times - 1) * again
        + a_lines * (cols_each - a_times) * c.close_line * (stay * rows * block * size > c.first_level)
        + b_lines * (b_times - 1) * c.panel_line,
        "copies of B": b_lines * (c.transposed_line if is_transposed else c.copy_line + moves * c.move) * s.copied,
        "C": tiles * rows * (2 * blocks - 1) * (lines * c.update_line if spec.c_order == "row" else cols * c.alone),
        "beginnings of tiles": tiles * blocks * begin,
    }
    total = {name: rounds * part for name, part in parts.items()}
    return total | {
        "beginnings of work-items": c.group * _up(groups, cores) + c.threads * (min(groups, cores) > 1),
        "the sum of K's parts": c.kernel * (s.split > 1),
        # Two for each core balance no better than one: each core takes two, unless one of them is half as fast.
        "waiting for the last": c.wait * sum(parts.values()) * min(rounds, 2) * (cores > 1),
    }


def _tile(c: Costs, spec: GemmSpec, s: _Way, shape: Shape, depth: int, block: int, cached: int) -> dict[str, float]:
    """What a tile takes along K, in vectors of columns."""
    (_, n, k), (rows, cols), size = shape, s.tile, spec.dtype.size
    lines = cols * size / 64
    fmas, loads = rows * cols / s.vector / c.fma_per_cycle, (rows + cols / s.vector) / c.loads_per_cycle
    # In place, a step's line of B may lie on a page of its own; a panel that the cache can't hold comes anew each time.
    panel = block * cols * size
    slow = lines * (c.far_line * (panel > c.panel_share * cached) + c.near_line * (panel > c.first_level))
    if not s.copied:
        # Lines of B that begin at the same places of their pages are kept in the same few places of the cache.
        slow += lines * c.same_place * (block * gcd(n * size, c.page_bytes) > cached)
        slow += c.in_place + c.page * min(1, n * size / c.page_bytes)
        # From memory it comes in runs of whole pages, of few lines at a time, or slowly.
        apart = 1 if s.sweep[1] * cols * size < c.page_bytes else min(1, block / c.lines_apart)
        slow += lines * c.apart_line * apart * (n * k * size > c.third_level)
    a_row = _row_cost(c, rows, k * size * (spec.a_order == "row"))
    if s.copied and rows > c.rows_in_place:
        a_row += c.copied_row
    elif rows > c.rows_in_registers:
        a_row += c.crowded_row
    costs_of_a_step = {
        "multiply-adds and loads": max(fmas, loads),
        "B where it is slow to read": slow,
        "A's rows": rows * a_row,
    }
    return {name: depth * cost for name, cost in costs_of_a_step.items()}


def _tile_along_k(c: Costs, s: _Way, size: int, depth: int, block: int) -> dict[str, float]:
    """The same in vectors along K, whose elements are added up at the end of each block."""
    rows, cols = s.tile
    steps, rest = divmod(block, s.vector)
    blocks = _up(depth, block)
    # What goes by while the other stays comes from the second level; both do where the first can't hold one.
    passing, staying = (cols, rows) if s.m_block == 1 else (rows, cols)
    near = passing + staying * ((rows + cols) * block * size > c.all_first_level)
    step = max(rows * cols / c.fma_per_cycle, (rows + cols) / c.loads_per_cycle, near * c.passing_line)
    return {
        "multiply-adds and loads": blocks * steps * step,
        "elements of vectors, and what is left of K": blocks * rows * cols * (c.element + rest * c.single),
    }


def _row_cost(c: Costs, rows: int, pitch: int) -> float:
    """What an element of A costs beside its load, where a tile's rows are so many bytes apart (0: side by side)."""
    drive_out = rows * gcd(pitch, c.page_bytes) > c.rows_in_place * c.page_bytes
    return c.same_row * (pitch > 0 and drive_out) + c.far_row * (rows > c.rows_in_place and pitch > c.rows_apart)


def _shares(extent: int, unit: int, sweep: int, even: int) -> tuple[int, int]:
    """Groups along an axis, and the tiles that each has there."""
    groups = _up(extent, unit * sweep * even) * even
    return groups, _up(_up(extent, unit), groups)


def _up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
