"""What a product takes on a GPU of CUDA: a small model, by which `gemmgen.tiles` chooses a schedule and
`gemmgen explain` says what the time goes to.

The model counts what the busiest multiprocessor does. Its constants stand in `waves.toml`. Leading dimensions are taken
to be as the matrices' lines are long, where nothing is promised of them.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import ceil
from typing import NamedTuple

from gemmgen import candidates
from gemmgen.ir.dtypes import BF16, F16, F32, FLOAT8, I8
from gemmgen.ir.target import Target
from gemmgen.schedule import Atom, Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]

#: Types that there are constants for, by what multiplies them: float32 is rounded to TF32 by request alone. In others,
#: float64 say, the same tiles have other rates.
ATOMS = {"fma": (F32,), "mma": (F16, BF16), "wgmma": (F16, BF16), "wgmma_f8": FLOAT8, "wgmma_s8": (I8,)}
#: Instructions that multiply elements of the same size at the same rate as another, whose tiles' constants are theirs.
SAME_RATE: dict[Atom, Atom] = {"wgmma_s8": "wgmma_f8"}
TYPES = frozenset(dtype for dtypes in ATOMS.values() for dtype in dtypes)
#: Bytes of a line, as caches hold it and tensor maps copy it, and those that are asked for at once at least.
LINE, SECTOR = 128, 32
#: How much of the shorter ones of things done side by side is hidden by the longest one: all, were it infinite.
SHARP = 4
#: Sums of a block in a cluster that leave no room for a second block.
LARGE_SUMS = 64 * 64
#: Groups of the kernel that adds up parts of K (`schedulers.py`): columns of each, fewer from so many planes on.
TOTAL_GROUP, SMALL_TOTAL_GROUP, MANY_PLANES = 256, 32, 32


@dataclass(frozen=True)
class Tile:
    """A schedule's constants; `waves.toml` says what each is.

    Attributes:
        named: the schedule, of `gemmgen.candidates`.
        atom: what multiplies in place of the schedule's instruction, at the same rate.
    """

    named: str
    rate: float
    block: float
    resident: int
    lone: float
    alone: float = 0.0
    line: float = 0.0
    single: float = 0.0
    transposed: float = 0.0
    atom: Atom | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule, with all of K in one part."""
        return changed(self, 1, False, False)


@dataclass(frozen=True)
class Costs:
    """The constants of all; `waves.toml` says what each is."""

    cycles_per_us: float
    launch: float
    late: float
    another: float
    plane: float
    total_group: float
    packing: float
    packed_bytes_per_us: float
    meeting: float
    meeting_element: float
    beside: float
    read_per_us: float
    written_per_us: float
    cached_per_us: float
    cache: float
    power: float
    asked: float
    torn: float
    torn_by_all: float
    outside: float
    at_first: float
    within: float
    latency: float
    stored: float
    stored_by_all: float
    torn_stored: float
    parted_stored: float
    element: float
    pair: float
    lonely: float
    stays: float
    again: float
    aside: float
    crowd: float
    short: float
    tiles: tuple[Tile, ...]


@cache
def costs() -> Costs:
    """As the file has them."""
    table = tomllib.loads(files("gemmgen").joinpath("waves.toml").read_text(encoding="utf-8"))
    tiles = tuple(Tile(**row) for row in table.pop("tiles"))
    return Costs(**table, tiles=tiles)


@cache
def tiles() -> tuple[Tile, ...]:
    """Those that there are constants for, and the same by other instructions of their rate."""
    known = costs().tiles
    twins = ((tile, atom) for tile in known for atom, of in SAME_RATE.items() if tile.schedule.atom == of)
    return (*known, *(replace(tile, atom=atom) for tile, atom in twins))


def changed(
    tile: Tile,
    parts: int,
    a_packed: bool,
    b_packed: bool,
    stream: bool = False,
    joined: int = 1,
) -> Schedule:
    """A tile's schedule with K in parts, or dealt out, and with packed operands (`candidates.varied`)."""
    return candidates.varied(tile.named, parts, (a_packed, b_packed), stream, joined, tile.atom)


@cache
def tile_of(schedule: Schedule) -> Tile | None:
    """The constants for a schedule, from the named one with the same tiles; None where there are none."""

    def same(known: Schedule) -> bool:
        keys = (
            "tile",
            "group",
            "block_k",
            "stages",
            "sliced_k",
            "mbarrier",
            "tma",
            "cluster",
            "ordered_epilogue",
            "atom",
        )
        return all(getattr(known, key) == getattr(schedule, key) for key in keys)

    return next((tile for tile in tiles() if same(tile.schedule)), None)


def blocks_of(s: Schedule, shape: Shape, products: int) -> int:
    """Of C, those of a cluster all or none."""
    (m, n, _), (rows, cols), (high, wide) = shape, s.block_tile, s.cluster
    return whole(up(m, rows), high) * whole(up(n, cols), wide) * products


class _Grid(NamedTuple):
    """How a product's blocks come to multiprocessors.

    Attributes:
        blocks: of C.
        each: blocks of the busiest multiprocessor, parts of K counted.
        even: the same of a stream, whose blocks are dealt out evenly.
        begun: blocks that the busiest multiprocessor begins.
        together: of those, how many it has at once.
        at_once: how many all have of one product, on average: the last ones are alone.
        steps: along K, of a part.
    """

    blocks: int
    each: int
    even: float
    begun: int
    together: int
    at_once: float
    steps: int

    @property
    def rounds(self) -> float:
        """Blocks that one place of it has one after the other."""
        return max(1.0, self.even / self.together)


def _grid(tile: Tile, s: Schedule, shape: Shape, target: Target, products: int) -> _Grid:
    blocks = blocks_of(s, shape, products)
    each = up(blocks * s.split_k, target.cores)
    even = blocks / target.cores if s.stream_k else each
    at_once = max(1.0, blocks * s.split_k / each / products)
    begun, together = each + s.stream_k, min(each, _resident(tile, s))
    return _Grid(blocks, each, even, begun, together, at_once, up(up(shape[2], s.split_k), s.block_k))


def account(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, target: Target, products: int = 1
) -> dict[str, float]:
    """The microseconds of a product, by what they go to."""
    c, (m, n, k), (rows, cols), grid = costs(), shape, s.block_tile, _grid(tile, s, shape, target, products)
    warpgroups, size, of_sums = s.by_warpgroups, spec.dtype.size, spec.accumulator.size
    cycles = _by_boxes if warpgroups else _by_work_items
    multiply, steps, busy = (x / c.cycles_per_us for x in cycles(spec, tile, s, shape, grid, target))
    parts = products * m * n * of_sums * s.partial_sums if s.partial_sums > 1 else 0
    # Of a stream two planes of sums for each group at most, beside C.
    dealt = 2 * min(target.cores, grid.blocks) * rows * cols * of_sums if s.stream_k else 0
    done = grid.blocks * s.split_k * grid.steps * rows * cols * s.block_k
    powered = _side_by_side(SHARP, busy, done / c.power) if warpgroups else busy
    written = (parts or products * m * n * spec.result.size) + dealt
    return {
        "multiply-adds": multiply,
        "copies to shared memory": steps - multiply,
        "beginnings and ends of blocks": busy - steps,
        "power": powered - busy,
        "memory": _beside_memory(powered, products * (m * k + k * n) * size, written) - powered,
        "packing": _packing(spec, s, shape, products) if s.a.prepacked or s.b.prepacked else 0.0,
        "the sum of K's parts": _total(s, shape, target, products, parts + dealt) if parts or s.stream_k else 0.0,
        "the meeting of clusters": (c.meeting + c.meeting_element * rows * cols) * (s.cluster_reduction > 1),
        "the launch": c.launch + c.late * (warpgroups and not _begins_beside(tile, s, grid.blocks, target)),
    }


def _packing(spec: GemmSpec, s: Schedule, shape: Shape, products: int) -> float:
    """Microseconds of the kernel that lays matrices out before."""
    c, (m, n, k), (rows, cols) = costs(), shape, s.block_tile
    laid = products * whole(k, s.block_k) * (whole(m, rows) * s.a.prepacked + whole(n, cols) * s.b.prepacked)
    return c.packing + laid * spec.dtype.size / c.packed_bytes_per_us


def _total(s: Schedule, shape: Shape, target: Target, products: int, summed: int) -> float:
    """Microseconds of the kernel that adds up parts of K, of so many bytes."""
    c, (m, n, _), (rows, cols) = costs(), shape, s.block_tile
    width = TOTAL_GROUP if s.partial_sums < MANY_PLANES else SMALL_TOTAL_GROUP
    groups = products * m * up(n, width)
    if s.stream_k:  # it adds up blocks that two have computed parts of, no more than there are groups
        groups = min(groups, target.cores * rows * up(cols, width))
    cycles = groups / target.cores * c.total_group
    return c.another + summed / c.cached_per_us + c.plane * s.partial_sums + cycles / c.cycles_per_us


def _begins_beside(tile: Tile, s: Schedule, blocks: int, target: Target) -> bool:
    """Whether a kernel's blocks find room beside the last ones of one like it, and so begin while those multiply."""
    places, count = target.cores * _resident(tile, s), blocks * s.split_k
    last = min(places, count) if s.persistent else (count - 1) % places + 1
    return not s.serial_launch and places - last >= min(places, count)


def _resident(tile: Tile, s: Schedule) -> int:
    """Blocks that a multiprocessor has at once: one, where what a cluster adds up has much memory of its own."""
    return 1 if s.cluster_reduction > 1 and s.block_tile[0] * s.block_tile[1] >= LARGE_SUMS else tile.resident


def _beside_memory(busy: float, read: float, written: float) -> float:
    """Microseconds of multiprocessors beside what is read and written once; the less of that there is, the more is in
    the cache already, from which it has to come all the same.
    """
    c, both = costs(), read + written
    missed = 1 / (1 + (c.cache / max(1.0, both)) ** 2)
    memory = missed * (read / c.read_per_us + written / c.written_per_us)
    return _side_by_side(c.beside, busy, memory) + (1 - missed) * both / c.cached_per_us


def _side_by_side(sharp: float, *times: float) -> float:
    """Of things done at the same time; the more equal they are, the less one hides of another."""
    most = max(times)
    return most * sum([(x / most) ** sharp for x in times]) ** (1 / sharp) if most > 0 else 0.0


# --- where work-items copy ------------------------------------------------------------------------


def _by_work_items(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, grid: _Grid, target: Target
) -> tuple[float, float, float]:
    """Cycles of the busiest multiprocessor: multiply-adds, those with the copies that the same work-items make, and all
    that blocks take. While some of its blocks store others multiply, but for those that all begin at the same time.
    """
    c, (rows, cols), each = costs(), s.block_tile, grid.each
    full, rest = divmod(each, tile.resident)
    places = full * tile.resident / _rate(tile, tile.resident) + (rest / _rate(tile, rest) if rest else 0.0)
    copies = rows * _copy(spec, tile, s, "a", shape) + cols * _copy(spec, tile, s, "b", shape)
    copies *= min(1.0, shape[2] / s.split_k / (grid.steps * s.block_k)) ** c.short
    cycles = grid.even / each * places * grid.steps * s.block_k
    stored = grid.begun * _stored(spec, tile, s, shape, grid, target)
    if s.stream_k:
        stored = grid.even / grid.begun * stored + (grid.begun - grid.even) * rows * cols * c.element
    sharp = 1 + c.aside * (grid.together - 1) * (1 - grid.together / grid.begun)
    steps = (rows * cols + copies) * cycles
    busy = _side_by_side(sharp, steps, stored) + grid.begun * tile.block / grid.together
    return rows * cols * cycles, steps, busy


def _rate(tile: Tile, together: int) -> float:
    """Multiply-adds a cycle of a multiprocessor that has so many blocks: the more, the less one more brings."""
    lack: float = ((tile.resident - together) / max(1, tile.resident - 1)) ** costs().crowd
    return tile.rate - lack * (tile.rate - tile.alone)


def _copy(spec: GemmSpec, tile: Tile, s: Schedule, name: str, shape: Shape) -> float:
    """What the copy of an element of A or B to shared memory costs, in multiply-adds."""
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    if operand.prepacked or (along and (line % operand.width == 0 or spec.ld_multiple % operand.width == 0)):
        return tile.line / operand.width
    return tile.single if along else tile.transposed


# --- where tensor maps bring boxes ----------------------------------------------------------------


def _by_boxes(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, grid: _Grid, target: Target
) -> tuple[float, float, float]:
    """The same where boxes come beside the multiplication. A block that stays has the next one's first tiles on their
    way while it stores: either the multiprocessor is busy all the time, or its places wait for what is on its way.
    """
    c, (rows, cols) = costs(), s.block_tile
    multiply, asked = rows * cols * s.block_k / tile.rate, _asked(spec, s, shape, grid)
    stored, late, count = _stored(spec, tile, s, shape, grid, target), c.latency / s.stages, grid.even * grid.steps
    step = _side_by_side(c.within, multiply, asked)
    if s.persistent:
        alone = grid.steps * _side_by_side(c.within, multiply, asked, late) + stored
        waits = grid.rounds * alone + (grid.rounds - 1) * tile.block * c.stays
        return count * multiply, count * step, tile.block + max(count * step + grid.begun * stored, waits)
    step = max(step, late / grid.together)
    ends = tile.block * (1 + (grid.rounds - 1) * c.again) + grid.begun * stored
    return count * multiply, count * step, count * step + ends


def _asked(spec: GemmSpec, s: Schedule, shape: Shape, grid: _Grid) -> float:
    """Cycles until a step's boxes are there, by the lines that they ask the cache for."""
    c, (m, n, k), (rows, cols), (high, wide) = costs(), shape, s.block_tile, s.cluster
    # Blocks run along rows of C, or columns of a band: those that run together ask for the same lines at the same time.
    down, across, size = up(m, rows), up(n, cols), spec.dtype.size
    of_a = min(across, max(1.0, grid.at_once / min(down, s.threadblock_swizzle or 1)))
    of_b = min(down, max(1.0, grid.at_once / of_a))
    behind = (grid.steps * s.split_k * s.block_k - k) / (grid.steps * s.split_k)
    laid = s.block_k * size / LINE * c.asked
    first = 1 + c.at_first / grid.steps
    a = _lines(m, k, rows, s.block_k, spec.a_order == "row", size, behind, grid.each, of_a * first)
    b = _lines(n, k, cols, s.block_k, spec.b_order == "col", size, behind, grid.each, of_b * first)
    return (rows * laid if s.a.prepacked else a) / wide + (cols * laid if s.b.prepacked else b) / high


def _lines(
    extent: int, k: int, block: int, depth: int, along_k: bool, size: int, behind: float, each: int, asking: float
) -> float:
    """Cycles that a step's lines of an operand take.

    Args:
        extent: the operand's, of which a block has its own part.
        dot_product: where lines lie along K.
        behind: lines of a step on average that lie behind K.
        each: blocks of a multiprocessor, of which one at least is at the matrix' edge.
        asking: blocks that ask for the same lines at a time.
    """
    c, count, wide = costs(), up(extent, block), LINE // size
    last, at_edge = extent - (count - 1) * block, max(1 / each, 1 / count)
    torn = (k if along_k else extent) * size % SECTOR > 0
    if along_k:
        lines, outside = extent / count, (block - last) * at_edge
    else:
        lines = ceil(extent / count / wide) * (depth - behind)
        boxes, cut = up(block, wide) - up(last, wide), last % wide > 0
        outside = behind * ceil(extent / count / wide) + at_edge * (boxes * depth + cut * (depth - behind))
    return lines * (c.asked + torn * (c.torn + c.torn_by_all * asking)) + outside * asking * c.outside


# --- a block's end --------------------------------------------------------------------------------


def _stored(spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, grid: _Grid, target: Target) -> float:
    """Cycles of a block to store C, or its part of the sums."""
    c, (m, n, _), (rows, cols) = costs(), shape, s.block_tile
    high, wide = m / up(m, rows), n / up(n, cols)
    line = n if spec.c_order == "row" else m
    apart = s.partial_sums == 1 and line % s.c_width > 0
    if s.by_warpgroups and s.partial_sums == 1 and s.epilogue_stages:
        begins = line * spec.result.size
        slower = c.torn_stored if begins % SECTOR else c.parted_stored if begins % LINE else 0.0
        size = high * up(ceil(wide * spec.result.size), SECTOR) * SECTOR
        both = size / c.stored, size * min(grid.blocks, target.cores) / c.stored_by_all
        return _side_by_side(SHARP, *both) * (1 + slower)
    if s.by_warpgroups:
        single = apart or s.partial_sums == s.c_width == 1
    else:  # neighbours of a work-item's lie in a row
        single = spec.c_order == "col" or (apart and spec.ld_multiple % s.c_width > 0)
    if single:
        longer: float = (tile.resident / grid.together) ** c.lonely
        return high * wide * tile.lone * longer
    return high * wide * (c.pair if s.c_width == 2 else c.element)


def whole(extent: int, unit: int) -> int:
    """The extent filled up to whole units."""
    return up(extent, unit) * unit


def up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
