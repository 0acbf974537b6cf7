"""What a product takes on a GPU of CUDA by a schedule, from nothing but the device's own constants: one analytic model.

    time = launch + beside(busy, memory) + packing + the sum of K's parts
    busy = beside(blocks x steps x step, blocks x end) + blocks / together x begin
    step = the longest of multiplying a step's tiles, fetching them, and waiting for what is on its way

Blocks are those of the busiest multiprocessor, `together` those that it has at once. Each formula is a few lines below;
the constants stand in `gemmgen.choice.machine`. NumPy computes all schedules of a list at once. Kernels without tiles
in shared memory (`Direct`, `Gemv`) have a formula of their own, `_account_of_loads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import ceil, gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmgen.choice.machine import Machine
from gemmgen.schedule import Schedule
from gemmgen.schedule.direct import Direct, Gemv
from gemmgen.spec import GemmSpec

Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Shape = tuple[int, int, int]
#: What multiplies, by its number in `Designs.unit`.
FMA, MMA, WGMMA = range(3)
#: Bytes of a line of L2, and of a sector.
LINE, SECTOR = 128, 32
#: Registers of a thread beside its sums, and of a multiprocessor; threads and blocks of a multiprocessor at most.
OTHER_REGISTERS, REGISTERS, THREADS, BLOCKS = 56, 65536, 2048, 24
#: Shared memory of a block that is no tile: mbarriers, and what the driver keeps.
RESERVED = 1536
#: Columns of C that a block of the kernel that adds up parts of K has.
SUMMED = 256
#: Lanes of a warp, warp instructions of a multiprocessor in a cycle, threads that hide the latency of loads.
WARP, SCHEDULERS, MANY_THREADS = 32, 4, 1024
#: The part of a line's cost by TMA that it has where threads copy it: their own instructions are counted apart.
BESIDE_COPIES = 0.25


@dataclass(frozen=True, slots=True)
class Designs:
    """What the model looks at of schedules, an array each.

    Attributes:
        rows, cols, depth: of a block and of a step.
        held: elements of A and B that all stages hold, padding counted.
        stages: steps that can be on their way.
        threads, producers: of a block: those that multiply, and those that only fetch.
        slices: of sliced-K.
        warp_rows, warp_cols: of C that the threads have that read shared memory together: a warp or a warpgroup.
        unit: what multiplies.
        fetched: by TMA: no thread copies.
        a_packed, b_packed: whether a kernel before lays the matrix out.
        parts, joined: of K; those that a cluster adds up.
        dealt: by stream-K.
        stays: whether blocks are persistent.
        staged: whether C is stored by TMA.
        width: elements of C that a thread stores at once.
        high, wide: blocks of a cluster.
        band: rows of blocks of the threadblock swizzle.
        a_copy, b_copy: instructions of a thread for each element that it copies.
        a_across, b_across: whether the copied tile is transposed.
        a_by_k, b_by_k: whether the matrix' lines lie along K.
    """

    rows: Numbers
    cols: Numbers
    depth: Numbers
    held: Numbers
    stages: Numbers
    threads: Numbers
    producers: Numbers
    slices: Numbers
    warp_rows: Numbers
    warp_cols: Numbers
    unit: Numbers
    fetched: Numbers
    a_packed: Numbers
    b_packed: Numbers
    parts: Numbers
    joined: Numbers
    dealt: Numbers
    stays: Numbers
    staged: Numbers
    width: Numbers
    high: Numbers
    wide: Numbers
    band: Numbers
    a_copy: Numbers
    b_copy: Numbers
    a_across: Numbers
    b_across: Numbers
    a_by_k: Numbers
    b_by_k: Numbers

    def but(self, **changes: Numbers) -> Designs:
        """The same with other columns."""
        return Designs(**{each.name: changes.get(each.name, getattr(self, each.name)) for each in fields(Designs)})

    def at(self, index: npt.NDArray[np.intp]) -> Designs:
        """Some of them, in another order."""
        return Designs(*(getattr(self, each.name)[index] for each in fields(Designs)))

    @property
    def summed_apart(self) -> Flags:
        """Whether a kernel after adds up parts of K."""
        return self.parts > self.joined

    @property
    def sums(self) -> Numbers:
        """Elements of C of a thread."""
        return self.rows * self.cols * self.slices / self.threads


def designs(spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape) -> Designs:
    """Of schedules with tiles in shared memory that can compute a product."""
    like = aligned(spec, shape)
    rows = [_row(spec, each, like) for each in schedules]
    return Designs(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def aligned(spec: GemmSpec, shape: Shape) -> Shape:
    """Sizes that are as well aligned: a design's columns depend on nothing else of them."""
    unit = SECTOR // min(SECTOR, spec.dtype.size)
    free = spec.a_order == "col", spec.b_order == "row", True
    m, n, k = (gcd(size, unit) if counts else unit for size, counts in zip(shape, free, strict=True))
    return m, n, k


def _row(spec: GemmSpec, s: Schedule, shape: Shape) -> tuple[float, ...]:
    own, fetched = _of_schedule(s)
    (a_copy, a_across), (b_copy, b_across) = ((0.0, 0.0) if fetched else _copy(spec, s, x, shape) for x in "ab")
    return (*own, a_copy, b_copy, a_across, b_across, spec.a_order == "row", spec.b_order == "col")


@lru_cache(maxsize=8192)
def _of_schedule(s: Schedule) -> tuple[tuple[float, ...], bool]:
    """What follows from a schedule alone, and whether TMA fetches."""
    (rows, cols), threads = s.block_tile, s.group[0] * s.group[1] * s.sliced_k
    fetched = s.by_warpgroups or s.tma
    own = (
        *(rows, cols, s.round_depth, _held(s), s.stages / max(1, s.mbarrier)),
        *(threads, s.producer_threads * s.by_warpgroups, s.sliced_k, *_read_together(s, threads)),
        *(WGMMA if s.by_warpgroups else MMA if s.by_warps else FMA, fetched),
        *(s.a.prepacked, s.b.prepacked, s.split_k, s.cluster_reduction, s.stream_k, s.persistent, s.epilogue_stages),
        *(s.c_width, *s.cluster, s.threadblock_swizzle),
    )
    return own, fetched


def _held(s: Schedule) -> int:
    """Elements of A and B that all stages hold."""
    (rows, cols), depth, a, b = s.block_tile, s.block_k, s.a, s.b
    of_a = depth * (rows + a.pad) if a.transposed else rows * (depth + a.pad)
    of_b = cols * (depth + b.pad) if b.transposed else depth * (cols + b.pad)
    return s.stages * (of_a + of_b)


def _read_together(s: Schedule, threads: int) -> tuple[float, float]:
    """Rows and columns of C of the threads that read shared memory together."""
    rows, cols = s.block_tile
    if s.by_warpgroups:
        groups = max(1, threads // 128)
        return (rows, cols / groups) if s.operands_swapped else (rows / groups, cols)
    return (s.tile[0] * 8, s.tile[1] * 4) if s.by_warps else s.tile


def _copy(spec: GemmSpec, s: Schedule, name: str, shape: Shape) -> tuple[float, float]:
    """Instructions for an element that threads copy to shared memory, and whether its tile is transposed."""
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    if operand.memory != "local":
        return 0.0, 0.0
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    # Vectors of small elements are fast where they are promised of both matrices: so it was measured.
    whole = spec.ld_unit(name) % operand.width == 0 or (line % operand.width == 0 and spec.dtype.size >= 4)
    return (1 / operand.width, 0.0) if operand.prepacked or (along and whole) else (1.0, float(not along))


# --- a list of schedules --------------------------------------------------------------------------


def costs(
    spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape, machine: Machine, products: int = 1
) -> list[float]:
    """The microseconds of a product by each schedule."""
    tiled = [each for each in schedules if not has_no_tiles(each)]
    made = designs(spec, tiled, shape) if tiled else None
    known = iter([] if made is None else microseconds(spec, made, shape, machine, products))
    return [
        sum(_account_of_loads(spec, each, shape, machine, products).values())
        if has_no_tiles(each)
        else float(next(known))
        for each in schedules
    ]


def account(spec: GemmSpec, schedule: Schedule, shape: Shape, machine: Machine, products: int = 1) -> dict[str, float]:
    """The microseconds of a product by a schedule, by what they go to."""
    if has_no_tiles(schedule):
        return _account_of_loads(spec, schedule, shape, machine, products)
    parts = accounts(spec, designs(spec, [schedule], shape), shape, machine, products)
    return {name: float(part[0]) for name, part in parts.items()}


def has_no_tiles(schedule: Schedule) -> bool:
    """Whether work-items load what they multiply."""
    return isinstance(schedule.mainloop, Direct | Gemv)


def microseconds(spec: GemmSpec, d: Designs, shape: Shape, machine: Machine, products: int = 1) -> Numbers:
    """Of a product by each design."""
    return sum(accounts(spec, d, shape, machine, products).values(), np.zeros_like(d.rows))


def accounts(spec: GemmSpec, d: Designs, shape: Shape, c: Machine, products: int = 1) -> dict[str, Numbers]:
    """The microseconds of a product by each design, by what they go to."""
    (m, n, k), size = shape, spec.dtype.size
    blocks = _whole(np.ceil(m / d.rows), d.high) * _whole(np.ceil(n / d.cols), d.wide) * products
    steps = np.ceil(np.ceil(k / d.parts) / d.depth)
    each = np.ceil(blocks * d.parts / c.cores)
    even = np.where(d.dealt > 0, blocks / c.cores, each)
    together = np.minimum(each, resident(spec, d, c))
    # The last round of blocks may have fewer of them at once.
    full = np.floor(each / together) * together / each
    fetch, of_all = _fetch(spec, d, shape, _Grid(blocks, steps, each, together), c)
    multiply, step = _step(spec, d, k, steps, together, fetch, c)
    if np.any(full < 1):
        last = _step(spec, d, k, steps, np.maximum(1.0, each * (1 - full)), fetch, c)
        multiply, step = full * multiply + (1 - full) * last[0], full * step + (1 - full) * last[1]
    cycles, end = even * steps * step, _end(spec, d, shape, c)
    begin = c.begin + np.where(d.fetched > 0, c.own_fetched, c.own_copied) * d.sums + c.stay * d.stays
    # While a block stores, others multiply; not those that began at the same time. One that stays begins but once.
    hidden = np.where(d.stays > 0, 1.0, 1 + c.aside * (together - 1) * (1 - together / each))
    stored = np.where(d.stays > 0, even - 1, even) * end
    ends = beside(cycles, stored, hidden) - cycles + np.where(d.stays > 0, begin + end, each * begin / together)
    own = cycles + ends + (d.dealt > 0) * end
    late = np.maximum(0.0, even * steps * of_all - own)
    busy = (own + late) / c.clock
    sums = np.where(d.summed_apart, products * m * n * 4.0 * d.parts / d.joined, 0.0)
    sums += (d.dealt > 0) * 2 * c.cores * d.rows * d.cols * 4
    of_a = np.where(d.a_packed > 0, m * k * size, spec.element("a").bytes_of(m * k))
    of_b = np.where(d.b_packed > 0, k * n * size, spec.element("b").bytes_of(k * n))
    memory, cached = _memory(products * (of_a + of_b + m * n * spec.result.size) + sums, c)
    return {
        "multiply-adds": even * steps * multiply / c.clock,
        "tiles on their way": (cycles + late - even * steps * multiply) / c.clock,
        "beginnings and ends of blocks": (own - cycles) / c.clock,
        "memory": beside(busy, memory, c.hidden) - busy + cached,
        "packing": _packing(spec, d, shape, c, products),
        "the sum of K's parts": _sum(d, shape, sums, c, products),
        "the launch": np.full_like(busy, c.launch),
    }


@dataclass(frozen=True, slots=True)
class _Grid:
    """How a product's blocks come to multiprocessors.

    Attributes:
        blocks: of C.
        steps: along K, of a part.
        each: blocks of the busiest multiprocessor, parts of K counted.
        together: of those, how many it has at once.
    """

    blocks: Numbers
    steps: Numbers
    each: Numbers
    together: Numbers


def _whole(count: Numbers, unit: Numbers) -> Numbers:
    return np.ceil(count / unit) * unit


def resident(spec: GemmSpec, d: Designs, machine: Machine) -> Numbers:
    """Blocks that a multiprocessor has at once."""
    shared = d.held * spec.dtype.size + d.staged * d.rows * d.cols * spec.result.size / 2 + RESERVED
    registers = (d.sums * spec.accumulator.size / 4 + OTHER_REGISTERS) * d.threads + d.producers * 32
    most = np.minimum(machine.shared / shared, REGISTERS / registers)
    return np.clip(np.floor(np.minimum(most, THREADS / (d.threads + d.producers))), 1, BLOCKS)


def _by_unit(d: Designs, fma: float, mma: float, wgmma: float) -> Numbers:
    return np.where(d.unit == WGMMA, wgmma, np.where(d.unit == MMA, mma, fma))


def _step(
    spec: GemmSpec, d: Designs, k: int, steps: Numbers, together: Numbers, fetch: Numbers, c: Machine
) -> tuple[Numbers, Numbers]:
    """Cycles of a multiprocessor to multiply a step's tiles, with the threads' own copies; and of the whole step."""
    size, volume = spec.dtype.size, d.rows * d.cols * d.depth
    # Tiles are read from shared memory as often as there are warps beside one another.
    read = volume * (1 / d.warp_rows + 1 / d.warp_cols) * size / _by_unit(d, c.read_fma, c.read_mma, c.read_wgmma)
    peak = _by_unit(d, c.rate("fma", spec.dtype), c.rate("mma", spec.dtype), c.rate("wgmma", spec.dtype))
    # A few warps don't keep the units busy; those whose threads have more sums each do so sooner.
    enough = np.where(d.unit == FMA, c.busy_fma * (64 / d.sums) ** c.own_work, c.busy_mma)
    filled = np.where(d.unit == WGMMA, 1.0, np.minimum(1.0, d.threads * together / enough) ** c.crowd)
    a = _copies(d.a_copy, np.where(d.a_across > 0, c.copy_across, c.copy_single), size, c)
    b = _copies(d.b_copy, np.where(d.b_across > 0, c.copy_apart, c.copy_single), size, c)
    inside = np.minimum(1.0, k / (steps * d.depth * d.parts))
    copied = d.depth * (d.rows * a + d.cols * b) * inside
    handed = (c.step + c.paired * (d.high * d.wide > 1)) / together
    multiply = np.maximum(volume / peak, read) / filled + copied + handed
    wait = np.where(d.stages > 1, c.latency / np.maximum(0.5, d.stages - 1) / together, 0.0)
    return multiply, np.maximum(np.maximum(multiply, fetch), wait)


def _copies(count: Numbers, single: Numbers, size: int, c: Machine) -> Numbers:
    """Cycles of a multiprocessor for an element that threads copy; one of fewer than 4 bytes goes through registers."""
    return np.where(count < 1, count * c.copy, single * (c.through if size < 4 else 1.0))


def _fetch(spec: GemmSpec, d: Designs, shape: Shape, grid: _Grid, c: Machine) -> tuple[Numbers, Numbers]:
    """Cycles until L2 has given a multiprocessor a step's lines; and that L2 takes for a step of all of them."""
    (m, n, k), size = shape, spec.dtype.size
    # Blocks run along rows of C, or columns of a band: those that run together ask for the same lines at the same time.
    down, across = np.ceil(m / d.rows), np.ceil(n / d.cols)
    at_once = np.minimum(grid.blocks, c.cores * grid.together)
    of_a = np.clip(at_once / np.minimum(down, np.maximum(1, d.band)), 1, across)
    of_b = np.clip(at_once / of_a, 1, down)
    of_a = _lines(d, d.rows, m, k, d.a_by_k > 0, d.a_packed > 0, of_a / d.wide, size, grid, c)
    of_b = _lines(d, d.cols, n, k, d.b_by_k > 0, d.b_packed > 0, of_b / d.high, size, grid, c)
    # Blocks in step ask for the same lines at once, and L2 reads these once; a cluster asks once for what it shares.
    asked = np.where(grid.each > 1, of_a / d.wide + of_b / d.high, 0.0) * grid.blocks * d.parts / (grid.each * c.cores)
    single = LINE * np.where(d.fetched > 0, 1.0, BESIDE_COPIES)
    return (of_a + of_b) * single / c.fetch, asked * single / c.apart


def _lines(
    d: Designs,
    block: Numbers,
    extent: int,
    k: int,
    by_k: Flags,
    packed: Flags,
    asking: Numbers,
    size: int,
    grid: _Grid,
    c: Machine,
) -> Numbers:
    """What a step's part of an operand comes to in lines of L2.

    Args:
        extent: the operand's, of which a block has its own part.
        asking: blocks that ask for the same lines at the same time, which L2 serves one after the other where they
            begin inside of a sector, or lie outside of a matrix or in part.
    """
    wide, count = LINE / size, np.ceil(extent / block)
    last, at_edge = extent - (count - 1) * block, np.maximum(1 / grid.each, 1 / count)
    inside, deep = np.minimum(block, extent), np.minimum(d.depth, k / grid.steps)
    # Where a block begins inside of a line, each of TMA's boxes, as wide as a line, has parts of two.
    begins_inside = (d.fetched > 0) & (count > 1) & (block % wide > 0)
    two = np.where(begins_inside, 1 + c.parted * (1 - np.gcd(block.astype(int), int(wide)) / wide), 1.0)
    lines = np.where(by_k, inside * np.ceil(d.depth / wide), np.ceil(inside / wide) * deep * two)
    boxes = (np.ceil(block / wide) - np.ceil(last / wide)) * d.depth + (last % np.minimum(wide, block) > 0) * deep
    outside = at_edge * np.where(by_k, block - last, boxes)
    torn = lines * (np.where(by_k, k, extent) * size % SECTOR > 0)
    # Blocks that all begin at once ask at once; later they are apart.
    hot = c.asked * asking * (1 + c.at_first / grid.steps) * (torn + outside)
    return np.where(packed, np.ceil(block * d.depth / wide), lines + c.torn * torn + hot)


def _end(spec: GemmSpec, d: Designs, shape: Shape, c: Machine) -> Numbers:
    """Cycles to add up what slices have, and to store a block of C or of the sums."""
    m, n, _ = shape
    line = n if spec.c_order == "row" else m
    high, wide = m / np.ceil(m / d.rows), n / np.ceil(n / d.cols)
    single = (d.width == 1) | ((line % np.maximum(1, d.width) > 0) & ~d.summed_apart)
    by_threads = np.where(
        single,
        _by_unit(d, c.store_single, c.store_single_mma, c.store_single_mma),
        _by_unit(d, c.store_vector, c.store_vector_mma, c.store_vector_mma),
    )
    by_tma = spec.result.size / c.store * (1 + c.torn_store * (line * spec.result.size % SECTOR > 0))
    each = np.where(d.staged > 0, by_tma, by_threads)
    return high * wide * each + c.slice * (d.slices - 1) * d.rows * d.cols


def _sum(d: Designs, shape: Shape, sums: Numbers, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that adds up parts of K, and of a cluster's own sum."""
    m, n, _ = shape
    groups = np.where(d.dealt > 0, np.minimum(m, c.cores * d.rows), products * m) * -(-n // SUMMED)
    by_kernel = c.another + sums / c.cached + groups * c.sum_group / c.cores / c.clock + c.plane * d.parts / d.joined
    return np.where(sums > 0, by_kernel, 0.0) + np.where(d.joined > 1, c.meeting, 0.0)


def _packing(spec: GemmSpec, d: Designs, shape: Shape, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that lays matrices out before, in whole tiles."""
    m, n, k = shape
    high, wide, deep = (np.ceil(size / unit) * unit for size, unit in ((m, d.rows), (n, d.cols), (k, d.depth)))
    of_a, of_b = products * deep * high * d.a_packed, products * deep * wide * d.b_packed
    laid = spec.dtype.size * (of_a + of_b)
    # Bytes of an element as it is stored, two of which may share one.
    stored_a, stored_b = (spec.element(x).bytes_of(2) / 2 for x in "ab")
    memory, cached = _memory(np.maximum(1.0, laid + stored_a * of_a + stored_b * of_b), c)
    return np.where(laid > 0, c.packing + np.maximum(laid / c.packed, memory + cached), 0.0)


def _memory(both: Numbers, c: Machine) -> tuple[Numbers, Numbers]:
    """Microseconds of what is read and written once, from memory and from L2; the less of it, the more lies in L2."""
    missed = 1 / (1 + (c.cache / both) ** 2)
    return missed * both / c.memory, (1 - missed) * both / c.cached


def beside(one: Numbers, other: Numbers, sharp: float | Numbers) -> Numbers:
    """Of two things done at the same time; the more equal they are, the less one hides of the other."""
    most = np.maximum(one, other)
    return most * (1 + (np.minimum(one, other) / np.maximum(most, 1e-12)) ** sharp) ** (1 / sharp)


# --- without tiles --------------------------------------------------------------------------------


def _account_of_loads(spec: GemmSpec, s: Schedule, shape: Shape, c: Machine, products: int) -> dict[str, float]:
    """Where each work-item loads what it multiplies: instructions of its loads and multiply-adds, beside memory."""
    (m, n, k), (rows, cols) = shape, s.tile
    threads = products * ceil(m / rows) * ceil(n / cols) * s.lanes_along_k * s.sliced_k * s.split_k
    work = products * ceil(m / rows) * ceil(n / cols) * k / WARP
    by_fours = s.atom == "dp4a"
    # An instruction or two makes a small element a float32, and each prologue twice as many.
    small = 0 if by_fours or spec.dtype.size >= 4 else 1
    converted = c.conversion * sum(
        extent * (small + 2 * (formula is not None))
        for extent, formula in ((rows, spec.prologue_a), (cols, spec.prologue_b))
    )
    fmas = rows * cols * max(1.0, spec.dtype.size / 4) / (2 if by_fours else 1)
    multiply = (fmas + converted) * c.work / SCHEDULERS
    loads = (rows / s.a.width + cols / s.b.width) * c.load
    filled = min(1.0, threads / c.cores / MANY_THREADS) ** c.crowd
    busy = (work * max(multiply, loads) / c.cores / filled + c.begin) / c.clock
    sums = products * m * n * 4.0 * s.split_k if s.split_k > 1 else 0.0
    stored = spec.element("a").bytes_of(m * k) + spec.element("b").bytes_of(k * n)
    bytes_once = products * (stored + m * n * spec.result.size) + sums
    memory, cached = _memory(np.array([float(bytes_once)]), c)
    waits = beside(np.array([busy]), memory, c.hidden) - busy + cached
    groups = products * m * ceil(n / SUMMED)
    total = c.another + sums / c.cached + groups * c.sum_group / c.cores / c.clock + c.plane * s.split_k
    return {
        "multiply-adds": work * multiply / c.cores / filled / c.clock,
        "loads and beginnings of blocks": busy - work * multiply / c.cores / filled / c.clock,
        "memory": float(waits[0]),
        "the sum of K's parts": total if sums else 0.0,
        "the launch": c.launch,
    }
