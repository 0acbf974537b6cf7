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
from math import ceil, gcd

from gemmgen import presets
from gemmgen.ir.dtypes import BF16, F16, F32, FLOAT8
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]

#: Types that there are constants for, by what multiplies them: float32 is rounded to TF32 by request alone. In others,
#: float64 say, the same tiles have other rates.
ATOMS = {"fma": (F32,), "mma": (F16, BF16), "wgmma": (F16, BF16), "wgmma_f8": FLOAT8}
TYPES = frozenset(dtype for dtypes in ATOMS.values() for dtype in dtypes)
#: Bytes of a line, as caches hold it and tensor maps copy it, and those that are asked for at once at least.
LINE, SECTOR = 128, 32
#: How much of the shorter ones of things done side by side is hidden by the longest one: all, were it infinite.
SHARP = 4
#: Sums of a block in a cluster that leave no room for a second block.
LARGE_SUMS = 64 * 64
#: Groups of the kernel that adds up parts of K (`passes/total.py`): columns of each, fewer from so many planes on.
TOTAL_GROUP, SMALL_TOTAL_GROUP, MANY_PLANES = 256, 32, 32


@dataclass(frozen=True)
class Tile:
    """A preset's constants; `waves.toml` says what each is."""

    preset: str
    rate: float
    block: float
    resident: int
    lone: float
    alone: float = 0.0
    line: float = 0.0
    single: float = 0.0
    turned: float = 0.0

    @property
    def schedule(self) -> Schedule:
        """The preset's, with all of K in one part."""
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
    lines: float
    all_lines: float
    straddling: float
    outside: float
    latency: float
    narrow: float
    stored: float
    element: float
    stays: float
    tiles: tuple[Tile, ...]


@cache
def costs() -> Costs:
    """As the file has them."""
    table = tomllib.loads(files("gemmgen").joinpath("waves.toml").read_text(encoding="utf-8"))
    tiles = tuple(Tile(**row) for row in table.pop("tiles"))
    return Costs(**table, tiles=tiles)


@cache
def changed(tile: Tile, parts: int, a_packed: bool, b_packed: bool, stream: int = 0, joined: int = 1) -> Schedule:
    """A tile's preset with K in parts, or dealt out, and with packed operands; named as a preset would be. Parts are no
    C, and where operands are packed C's lines may begin anywhere, too: neither can be stored by boxes, and so by blocks
    that stay.
    """
    plain = presets.load(tile.preset).schedule
    name = tile.preset.partition("_split")[0].partition("_joined")[0].partition("_packed")[0]
    name += (f"_split{parts}" if parts > joined else "") + (f"_joined{joined}" if joined > 1 else "")
    which = "" if a_packed and b_packed else "_a" if a_packed else "_b"
    name += f"_packed{which}" if a_packed or b_packed else ""
    name += f"_stream{stream}" if stream else ""
    pairs = (plain.a, a_packed), (plain.b, b_packed)
    a, b = (replace(o, packed=p, pad=0 if p else o.pad) for o, p in pairs)
    boxes = plain.c_stages if parts == 1 and not (a_packed or b_packed) else 0
    width = plain.c_width if joined == plain.joined else 4 if joined > 1 else 1
    stays = plain.persistent and boxes > 0
    stores = replace(plain, c_stages=boxes, c_width=width, persistent=stays, c_turns=plain.c_turns and stays)
    return replace(stores, split=parts, joined=joined, stream=stream, a=a, b=b, name=name)


@cache
def tile_of(schedule: Schedule) -> Tile | None:
    """The constants for a schedule, from the preset with the same tiles; None where there are none."""

    def same(known: Schedule) -> bool:
        keys = ("tile", "group", "k_step", "stages", "slices", "mbarrier", "boxes", "cluster", "c_turns", "atom")
        return all(getattr(known, key) == getattr(schedule, key) for key in keys)

    return next((tile for tile in costs().tiles if same(tile.schedule)), None)


def blocks_of(s: Schedule, shape: Shape, products: int) -> int:
    """Of C, those of a cluster all or none."""
    (m, n, _), (rows, cols), (high, wide) = shape, s.block_tile, s.cluster
    return whole(up(m, rows), high) * whole(up(n, cols), wide) * products


def account(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, target: Target, products: int = 1
) -> dict[str, float]:
    """The microseconds of a product, by what they go to."""
    c, (m, n, k), (rows, cols) = costs(), shape, s.block_tile
    blocks = blocks_of(s, shape, products)
    each = up(blocks * s.split, target.cores)
    together = min(each, _resident(tile, s))
    steps = up(up(k, s.split), s.k_step)
    even, begun = (blocks / target.cores, each + 1) if s.stream else (each, each)
    multiply, step = (
        _by_boxes(spec, tile, s, shape, target, blocks, products)
        if s.by_warpgroups
        else _by_work_items(spec, tile, s, shape, together)
    )
    size, of_sums = spec.dtype.size, spec.accumulator.size
    parts = products * m * n * of_sums * s.planes if s.planes > 1 else 0
    # Of a stream two planes of sums for each group at most, beside C.
    dealt = 2 * min(s.stream, blocks) * rows * cols * of_sums if s.stream else 0
    ends = (1 + (begun - 1) * c.stays if s.persistent else begun) * _end(spec, tile, s, shape, together)
    busy = (even * steps * step + ends) / c.cycles_per_us
    memory = _memory(products * (m * k + k * n) * size, (parts or products * m * n * spec.result.size) + dealt)
    laid = products * whole(k, s.k_step) * (whole(m, rows) * s.a.packed + whole(n, cols) * s.b.packed) * size
    width = TOTAL_GROUP if s.planes < MANY_PLANES else SMALL_TOTAL_GROUP
    groups = products * m * up(n, width) / target.cores / c.cycles_per_us * c.total_group
    added = c.another + (parts + dealt) / c.cached_per_us + c.plane * s.planes + groups
    return {
        "multiply-adds": even * steps * multiply / c.cycles_per_us,
        "copies to shared memory": even * steps * (step - multiply) / c.cycles_per_us,
        "memory": _side_by_side(c.beside, busy, memory) - busy,
        "beginnings and ends of blocks": ends / c.cycles_per_us,
        "packing": (c.packing + laid / c.packed_bytes_per_us) * (s.a.packed or s.b.packed),
        "the sum of K's parts": added * (s.planes > 1 or s.stream > 0),
        "the meeting of clusters": (c.meeting + c.meeting_element * rows * cols) * (s.joined > 1),
        "the launch": c.launch + c.late * (s.by_warpgroups and not _begins_beside(tile, s, blocks, target)),
    }


def _begins_beside(tile: Tile, s: Schedule, blocks: int, target: Target) -> bool:
    """Whether a kernel's blocks find room beside the last ones of one like it, and so begin while those multiply."""
    places, count = target.cores * _resident(tile, s), blocks * s.split
    last = min(places, count) if s.persistent else (count - 1) % places + 1
    return not s.late and places - last >= min(places, count)


def _resident(tile: Tile, s: Schedule) -> int:
    """Blocks that a multiprocessor has at once: one, where what a cluster adds up has much memory of its own."""
    return 1 if s.joined > 1 and s.block_tile[0] * s.block_tile[1] >= LARGE_SUMS else tile.resident


def _memory(read: float, written: float) -> float:
    """Microseconds of what is read and written once; the less of it there is, the more is in the cache already."""
    c, both = costs(), read + written
    missed = 1 / (1 + (c.cache / max(1.0, both)) ** 2)
    return missed * (read / c.read_per_us + written / c.written_per_us) + (1 - missed) * both / c.cached_per_us


def _side_by_side(sharp: float, *times: float) -> float:
    """Of things done at the same time; the more equal they are, the less one hides of another."""
    most = max(times)
    return most * sum((x / most) ** sharp for x in times) ** (1 / sharp) if most > 0 else 0.0


# --- a step of K ----------------------------------------------------------------------------------


def _by_work_items(spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, together: int) -> tuple[float, float]:
    """Cycles of a step's multiply-adds, and of those with the copies that the same work-items make."""
    rows, cols = s.block_tile
    slower = (tile.resident - together) / (tile.resident - 1) * (tile.rate - tile.alone) if tile.resident > 1 else 0.0
    rate = tile.rate - slower
    copies = rows * _copy(spec, tile, s, "a", shape) + cols * _copy(spec, tile, s, "b", shape)
    return rows * cols * s.k_step / rate, (rows * cols + copies) * s.k_step / rate


def _copy(spec: GemmSpec, tile: Tile, s: Schedule, name: str, shape: Shape) -> float:
    """What the copy of an element of A or B to shared memory costs, in multiply-adds."""
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    if operand.packed or (along and (line % operand.width == 0 or spec.ld_multiple % operand.width == 0)):
        return tile.line / operand.width
    return tile.single if along else tile.turned


def _by_boxes(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, target: Target, blocks: int, products: int
) -> tuple[float, float]:
    """The same where tensor maps bring boxes beside the multiplication: what they ask the caches for, line by line."""
    c, (m, n, k), (rows, cols), (high, wide) = costs(), shape, s.block_tile, s.cluster
    size, b_order = spec.dtype.size, "col" if spec.b_order == "row" else "row"
    steps = up(up(k, s.split), s.k_step) * s.split
    past = (steps * s.k_step - k) / steps
    a = (rows, 0.0) if s.a.packed else _boxes(m, k, rows, s.k_step, spec.a_order, size, past)
    b = (cols, 0.0) if s.b.packed else _boxes(n, k, cols, s.k_step, b_order, size, past)
    lines, slow = a[0] / wide + b[0] / high, a[1] / wide + b[1] / high
    busy = min(blocks * s.split, target.cores)
    multiply = rows * cols * s.k_step / tile.rate
    asked = lines / c.lines, lines * busy / c.all_lines, slow * busy / products * c.outside
    together = min(up(blocks * s.split, target.cores), _resident(tile, s))
    return multiply, _side_by_side(SHARP, multiply, *asked, c.latency / s.stages / together)


def _boxes(extent: int, k: int, block: int, depth: int, order: str, size: int, past: float) -> tuple[float, float]:
    """Lines that a step's boxes of an operand ask for, and requests that all blocks make of the same few places: for
    what lies outside, and for lines of less than a cache's.

    Args:
        extent: the operand's, of which a block has its own part.
        order: "row" where lines lie along K.
        past: lines of a step on average that lie behind K.
    """
    c, count = costs(), up(extent, block)
    inner, wide = k if order == "row" else extent, LINE // size
    pitch = inner * size
    straddle = (1 - gcd(pitch, LINE) / LINE) * min(1.0, pitch / LINE) * c.straddling
    if order == "row":
        return extent / count * (1 + straddle), block - extent if count == 1 else 0.0
    boxes, inside = up(block, wide), up(min(block, extent), wide)
    outside = past * inside + (boxes - inside) * depth
    narrow = depth * (1.0 if pitch % SECTOR else c.narrow) if pitch < min(LINE, block * size) else 0.0
    return ceil(extent / count / wide) * depth * (1 + straddle), outside + narrow


# --- a block's end --------------------------------------------------------------------------------


def _end(spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, together: int) -> float:
    """Cycles of a block to fill its ring and to store C."""
    c, (m, n, _), (rows, cols) = costs(), shape, s.block_tile
    high, wide = m / up(m, rows), n / up(n, cols)
    line = n if spec.c_order == "row" else m
    apart = s.planes == 1 and line % s.c_width > 0
    if not s.by_warpgroups:
        stored = high * wide * (tile.lone if apart and spec.ld_multiple % s.c_width > 0 else c.element)
    elif s.planes == 1 and s.c_stages:
        stored = high * ceil(wide * spec.result.size / LINE) * LINE / c.stored
    else:
        stored = high * wide * (tile.lone if apart or (s.planes == 1 and s.c_width == 1) else c.element)
    return tile.block / together + stored


def whole(extent: int, unit: int) -> int:
    """The extent filled up to whole units."""
    return up(extent, unit) * unit


def up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
