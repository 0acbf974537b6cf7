"""Which schedule a GPU of CUDA computes a product by: tiles of a preset, K in parts, matrices packed or not, whatever
comes out cheapest of a few hundred by a small cost model.

The model counts what the busiest multiprocessor does. Its constants stand in `waves.toml`. Leading dimensions are taken
to be as the matrices' lines are long, where nothing is promised of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import product

from gemmgen import presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.kernel import REACHED
from gemmgen.ir.target import Target
from gemmgen.passes.validate import validate
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]

#: Types that there are constants for. In others, float64 say, the same tiles have other rates.
TYPES = (F32, F16, BF16)
#: What products of float32 are computed by.
F32_ATOM = "fma"
#: Numbers of parts of K; few, so that a process compiles few kernels.
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Blocks beyond so many for each place that they have would make their number no more even.
WAVES = 3
#: Rounds of the main loop that a part of K has at least: fewer would not fill the ring.
ROUNDS = 4
#: Parts of K that a cluster adds up, where it does: of larger ones there are not as many as multiprocessors.
JOINED = 2


@dataclass(frozen=True)
class Tile:
    """A preset's constants; `waves.toml` says what each is."""

    preset: str
    rate: float
    alone: float
    block: float
    resident: int
    line: float
    single: float
    lone: float

    @property
    def schedule(self) -> Schedule:
        """The preset's, with all of K in one part."""
        return changed(self, 1, False, False)


@dataclass(frozen=True)
class Costs:
    """The constants of all; `waves.toml` says what each is."""

    cycles_per_us: float
    launch: float
    another: float
    packing: float
    meeting: float
    unhidden: float
    bytes_per_us: float
    packed_bytes_per_us: float
    tiles: tuple[Tile, ...]


@cache
def costs() -> Costs:
    """As the file has them."""
    table = tomllib.loads(files("gemmgen").joinpath("waves.toml").read_text(encoding="utf-8"))
    tiles = tuple(Tile(**row) for row in table.pop("tiles"))
    return Costs(**table, tiles=tiles)


def choose_tiles(spec: GemmSpec, shape: Shape | None, target: Target, products: int = 1) -> Schedule | None:
    """The schedule for a product on a GPU of CUDA; None where the target is none, where there are no constants for the
    types, or where the sizes are not known.

    Args:
        products: of a batch.
    """
    if "async_copy" not in target.features or spec.dtype not in TYPES:
        return None
    m, n, k = (spec.m, spec.n, spec.k) if shape is None else shape
    return None if m is None or n is None or k is None else _choose(spec, (m, n, k), target, products)


@lru_cache(maxsize=1024)
def _choose(spec: GemmSpec, shape: Shape, target: Target, products: int) -> Schedule | None:
    def microseconds(candidate: tuple[Tile, Schedule]) -> float:
        return sum(account(spec, *candidate, shape, target, products).values())

    ranked = sorted(_candidates(spec, shape, target, products), key=microseconds)
    return next((schedule for _, schedule in ranked if _runs(spec, schedule, target)), None)


def _candidates(spec: GemmSpec, shape: Shape, target: Target, products: int) -> Iterator[tuple[Tile, Schedule]]:
    m, n, k = shape
    for tile in costs().tiles:
        plain = tile.schedule
        if (plain.atom == F32_ATOM) != (spec.dtype == F32):
            continue
        blocks = _blocks(plain, shape, products)
        for parts, a_packed, b_packed in product(PARTS, (False, True), (False, True)):
            if plain.c_turns and (parts > 1 or a_packed or b_packed):
                continue  # that is the same without turns, a tile of its own
            wanted = blocks * (parts - 1) < WAVES * target.cores * tile.resident
            deep = _ends(plain) if parts == 1 else k >= parts * ROUNDS * plain.round_depth
            sums = parts * m * n * products if parts > 1 else 0
            laid = _whole(m, plain.block_tile[0]) * _whole(k, plain.k_step) * a_packed
            laid = max(laid, _whole(n, plain.block_tile[1]) * _whole(k, plain.k_step) * b_packed)
            if wanted and deep and max(sums, laid) < REACHED:
                yield tile, changed(tile, parts, a_packed, b_packed)
                if plain.by_warpgroups and parts % JOINED == 0 and _ends(plain):
                    yield tile, changed(tile, parts, a_packed, b_packed, joined=JOINED)
                if parts == 1 and _deals(plain) and products == 1 and not spec.batched and blocks % target.cores:
                    yield tile, changed(tile, parts, a_packed, b_packed, target.cores)


def _runs(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    try:
        validate(spec, schedule, target)
    except ScheduleError:
        return False
    return True


def _ends(s: Schedule) -> bool:
    """Whether it is as good as others at what ends in C itself; not where warpgroups leave to work-items what they
    could store by boxes, as a preset for a second kernel does.
    """
    return not s.by_warpgroups or s.swapped or s.c_stages > 0


def _deals(s: Schedule) -> bool:
    """Whether its blocks can be dealt out in parts: by a ring that mbarriers hand over, to blocks that are alone."""
    return s.mbarrier > 0 and s.slices == 1 and s.split == 1


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


def tile_of(schedule: Schedule) -> Tile | None:
    """The constants for a schedule, from the preset with the same tiles; None where there are none."""

    def same(known: Schedule) -> bool:
        keys = ("tile", "group", "k_step", "stages", "slices", "mbarrier", "boxes", "cluster", "c_turns", "atom")
        return all(getattr(known, key) == getattr(schedule, key) for key in keys)

    return next((tile for tile in costs().tiles if same(tile.schedule)), None)


def account(
    spec: GemmSpec, tile: Tile, s: Schedule, shape: Shape, target: Target, products: int = 1
) -> dict[str, float]:
    """The microseconds of a product, by what they go to."""
    c, (m, n, k), (rows, cols) = costs(), shape, s.block_tile
    blocks = _blocks(s, shape, products)
    each = -(-blocks * s.split // target.cores)
    together = min(each, tile.resident)
    speed = 1.0 if tile.resident == 1 else (together - 1) / (tile.resident - 1)
    rate = tile.alone + (tile.rate - tile.alone) * speed
    depth = _up(_up(k, s.split), s.k_step) * s.k_step
    copies = rows * _copy(spec, tile, s, "a", shape) + cols * _copy(spec, tile, s, "b", shape)
    line = n if spec.c_order == "row" else m
    lone = s.split == 1 and line % s.c_width > 0 and spec.ld_multiple % s.c_width > 0
    size, of_sums = spec.dtype.size, spec.accumulator.size
    read = products * (m * k + k * n) * size
    parts = products * m * n * of_sums * s.planes if s.planes > 1 else 0
    written = parts or products * m * n * spec.result.size
    laid = _whole(k, s.k_step) * (_whole(m, rows) * s.a.packed + _whole(n, cols) * s.b.packed) * size
    if s.stream:
        # Two planes of sums for each group at most; of a block a share of its batches.
        parts = 2 * min(s.stream, blocks) * rows * cols * of_sums
        written += parts
    even, begun = (blocks / target.cores, each + 1) if s.stream else (each, each)
    multiplied = even * rows * cols * depth / rate / c.cycles_per_us
    copied = even * depth * copies / rate / c.cycles_per_us
    of_block = tile.block + (tile.lone * rows * cols if lone else 0.0)
    busy, memory = multiplied + copied, (read + written) / c.bytes_per_us
    return {
        "multiply-adds": multiplied,
        "copies to shared memory": copied,
        "memory": max(0.0, memory - busy) + c.unhidden * min(memory, busy),
        "beginnings and ends of blocks": begun * of_block / together / c.cycles_per_us,
        "packing": (c.packing + products * laid / c.packed_bytes_per_us) * (s.a.packed or s.b.packed),
        "the sum of K's parts": (c.another + parts / c.bytes_per_us) * (s.planes > 1 or s.stream > 0),
        "the meeting of clusters": c.meeting * (s.joined > 1),
        "the launch": c.launch,
    }


def _copy(spec: GemmSpec, tile: Tile, s: Schedule, name: str, shape: Shape) -> float:
    """What the copy of an element of A or B to shared memory costs, in multiply-adds."""
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    aligned = operand.packed or (along and (line % operand.width == 0 or spec.ld_multiple % operand.width == 0))
    return tile.line / operand.width if aligned else tile.single


def _blocks(s: Schedule, shape: Shape, products: int) -> int:
    """Of C, those of a cluster all or none."""
    (m, n, _), (rows, cols), (high, wide) = shape, s.block_tile, s.cluster
    return _whole(_up(m, rows), high) * _whole(_up(n, cols), wide) * products


def _whole(extent: int, unit: int) -> int:
    """The extent filled up to whole units."""
    return _up(extent, unit) * unit


def _up(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)
