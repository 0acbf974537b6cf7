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
DOWN, ACROSS = (4, 11, 22, 43, 86), (1, 2, 4)
#: All of K at once up to the last of these and a quarter.
DEPTHS = (256, 512)
#: K is cut into parts of at least this depth where C has few tiles.
LONG, FEW_TILES, MOST_PARTS = 8192, 16, 16


@dataclass(frozen=True)
class Costs:
    """The constants, in cycles of a core; `sweeps.toml` says what each is."""

    fma_per_cycle: float
    loads_per_cycle: float
    far_line: float
    first_line: float
    copy_line: float
    page: float
    update_line: float
    tile: float
    group: float
    kernel: float
    wait: float
    page_bytes: int
    panel_share: float
    near_share: float
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


@lru_cache(maxsize=256)
def _choose(spec: GemmSpec, shape: Shape, target: Target) -> Schedule | None:
    one_core = list(_candidates(spec, shape, replace(target, cores=1)))
    if not one_core:
        return None
    depth = min(one_core, key=lambda s: cycles(spec, s, shape, replace(target, cores=1))).k_block
    all_cores = (s for s in _candidates(spec, shape, target) if s.k_block == depth)
    return min(all_cores, key=lambda s: cycles(spec, s, shape, target))


def _candidates(spec: GemmSpec, shape: Shape, target: Target) -> Iterator[Schedule]:
    """All that are worth a thought, and that the target can run."""
    _, n, k = shape
    lanes = _lanes(spec, n, target)
    registers = 32 if target.vector_bytes >= MANY_REGISTERS else 16
    cores = target.cores
    split = _parts(shape)
    by_lines = spec.b_order == "row"
    depths = (*((0,) if by_lines and k <= DEPTHS[-1] * 5 // 4 else ()), *(d for d in DEPTHS if d < k or not by_lines))
    for (rows, vectors), copied in product(TILES[registers], (False, True)):
        # In place, a C narrower than a tile goes the slow way; a copy has no edges.
        most = _up(n, lanes) if copied else n // lanes
        if not (copied or by_lines) or vectors > max(1, most):
            continue
        plain = Schedule((rows, vectors * lanes), (1, 1), vector=lanes, split=split)
        plain = replace(plain, b=Operand(memory="private")) if copied else plain
        if not _is_possible(spec, replace(plain, k_block=1), target):
            continue
        for down, across, even, depth in product(DOWN, ACROSS, _evens(cores), depths):
            schedule = replace(plain, sweep=(down, across), even=even, k_block=depth)
            fits = not copied or depth * across * plain.tile[1] * spec.dtype.size <= target.private_bytes
            if fits and (depth or not copied):
                yield schedule


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
    c, (m, n, k), (rows, cols), size = costs(), shape, s.tile, spec.dtype.size
    (down, rows_each), (across, cols_each) = (
        _shares(extent, unit, sweep, even)
        for extent, unit, sweep, even in zip((m, n), s.tile, s.sweep, s.even, strict=True)
    )
    depth = _up(k, s.split)
    block = max(1, min(depth, s.k_block or depth))
    blocks = max(1, _up(depth, block))
    copied, lines = s.b.memory == "private", cols * size / 64
    cached = min(c.second_level, target.cache_bytes or c.second_level)
    fmas, loads = rows * cols / s.vector / c.fma_per_cycle, (rows + cols / s.vector) / c.loads_per_cycle
    # In place, a step's line of B may lie on a page of its own; a panel that the cache can't hold comes anew each time.
    slow = lines * c.far_line * (block * cols * size > c.panel_share * cached) + c.page * (
        not copied and n * size >= c.page_bytes
    )
    # A comes from afar for each column of tiles, unless all of its rows stay.
    a_times = 1 if (rows_each * rows + cols) * block * size <= c.near_share * cached else cols_each
    a_lines, b_lines = rows_each * rows * depth * size / 64, cols_each * depth * lines
    first = c.far_line if (m + n) * k * size <= c.third_level else c.first_line
    rounds, tiles = _up(down * across * s.split, target.cores), rows_each * cols_each
    parts = {
        "multiply-adds and loads": tiles * depth * max(fmas, loads),
        "B where it is slow to read": tiles * depth * slow,
        "A and B from afar": (a_lines + b_lines) * first + a_lines * (a_times - 1) * c.far_line,
        "copies of B": b_lines * c.copy_line * copied,
        "C": tiles * rows * lines * (2 * blocks - 1) * c.update_line,
        "beginnings": tiles * blocks * c.tile + c.group,
    }
    total = {name: rounds * part for name, part in parts.items()}
    return total | {
        "the sum of K's parts": c.kernel * (s.split > 1),
        "waiting for the last": c.wait * sum(parts.values()),
    }


def _shares(extent: int, unit: int, sweep: int, even: int) -> tuple[int, int]:
    """Groups along an axis, and the tiles that each has there."""
    groups = _up(extent, unit * sweep * even) * even
    return groups, _up(_up(extent, unit), groups)


def _up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
