"""What a product takes on a GPU of CUDA by a schedule, from nothing but the device's own constants: one analytic model.

    time = launch + beside(busy, memory) + packing + the sum of K's parts
    busy = beside(blocks x steps x step, blocks x end) + blocks / together x begin
    step = the longest of beside(multiplying a step's tiles, fetching them) and waiting for what is on its way; and
           lines of TMA's tiles outside of a matrix

Blocks are those of the busiest multiprocessor, `together` those that it has at once. Each formula is a few lines below;
the constants stand in `gemmgen.choice.machine`. NumPy computes all schedules of a list at once; what follows from a
schedule and a device whatever the sizes, `gemmgen.choice.rates`, is computed once. Kernels without tiles in shared
memory have a model of their own, `gemmgen.choice.loads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from gemmgen.choice.columns import (
    FMA,
    LINE,
    SECTOR,
    WARPGROUP_ROWS,
    WGMMA,
    Designs,
    Numbers,
    Shape,
    aligned,
    column,
    designs,
)
from gemmgen.choice.epilogue import bytes_read, reads_c, work
from gemmgen.choice.loads import account_without_tiles, has_no_tiles
from gemmgen.choice.machine import SUMMED, Machine, beside
from gemmgen.choice.rates import Rates, Weighed, weighed
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Elements that a thread packs.
PACKS = 4
#: m, n and k of a product, or of several.
Sizes = Shape | tuple[Numbers, Numbers, Numbers]


def costs(
    spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape, machine: Machine, products: int = 1
) -> list[float]:
    """The microseconds of a product by each schedule."""
    return costs_at(spec, [(each, shape) for each in schedules], machine, products)


def costs_at(
    spec: GemmSpec, asked: Sequence[tuple[Schedule, Shape]], machine: Machine, products: int = 1
) -> list[float]:
    """The same of products of several sizes, each by one schedule."""
    tiled, costs = [each for each in asked if not has_no_tiles(each[0])], iter(())
    if tiled:
        own = np.concatenate([column(spec, each, aligned(spec, of)) for each, of in tiled], axis=1)
        m, n, k = np.array([of for _, of in tiled], dtype=np.float64).T
        costs = iter(microseconds(spec, weighed(spec, own, machine), (m, n, k), machine, products).tolist())
    return [
        sum(account_without_tiles(spec, *each, machine, products).values()) if has_no_tiles(each[0]) else next(costs)
        for each in asked
    ]


def account(spec: GemmSpec, schedule: Schedule, shape: Shape, machine: Machine, products: int = 1) -> dict[str, float]:
    """The microseconds of a product by a schedule, by what they go to."""
    if has_no_tiles(schedule):
        return account_without_tiles(spec, schedule, shape, machine, products)
    of = weighed(spec, column(spec, schedule, aligned(spec, shape)), machine)
    return {name: float(part[0]) for name, part in accounts(spec, of, shape, machine, products).items()}


def microseconds(spec: GemmSpec, of: Weighed, shape: Sizes, machine: Machine, products: int = 1) -> Numbers:
    """Of a product by each design; of one of its own each where sizes are arrays."""
    found: Numbers = sum(accounts(spec, of, shape, machine, products).values(), np.zeros(of.own.shape[1]))
    return found


def accounts(spec: GemmSpec, of: Weighed, shape: Sizes, c: Machine, products: int = 1) -> dict[str, Numbers]:
    """The microseconds of a product by each design, by what they go to."""
    d, rates = designs(of.own), Rates(*of.rates)
    m, n, k = (np.asarray(x, dtype=np.float64) for x in shape)
    extents, size = np.array([m, n]).reshape(2, -1), spec.dtype.size
    count = np.ceil(extents / d.block)
    placed = np.ceil(count / d.cluster) * d.cluster
    blocks = placed[0] * placed[1] * products
    steps = np.ceil(np.ceil(k / d.parts) / d.depth)
    each, resident = np.ceil(blocks * d.parts / rates.cores), np.where(d.staged > 0, rates.resident, rates.unstaged)
    inside, deep, packs = np.minimum(d.block, extents), np.minimum(d.depth, k / steps), bool(d.packed.any())
    dealt, stays = d.dealt > 0, d.stays > 0
    if packs:
        each = _gathered(d, resident, each, blocks, products * k * extents, c)
    even = np.where(dealt, blocks / rates.cores, each)
    together = np.minimum(each, resident)
    grid = _Grid(extents, count, placed, blocks, steps, each, together, inside, deep, packs)
    fetch, of_all, outside = _fetch(spec, d, rates, k, grid, c)
    # The last round of blocks may have fewer of them at once.
    full = np.floor(each / together) * together / each
    rounds = np.array((together, np.maximum(1.0, each * (1 - full))))
    (multiply, last_multiply), (step, last_step) = _step(d, rates, k, steps, rounds, fetch, c)
    multiply, step = full * multiply + (1 - full) * last_multiply, full * step + (1 - full) * last_step + outside
    in_all = even * steps
    multiplying, cycles, end = in_all * multiply, in_all * step, _end(spec, d, rates, grid, c)
    # While a block stores, others multiply; not those that began at the same time. One that stays begins but once.
    hidden = np.where(stays, 1.0, 1 + c.aside * (together - 1) * (1 - together / each))
    stored = np.where(stays, even - 1, even) * end
    # Warpgroups that take turns store while others multiply, from a block's second tile of C on.
    by_turns = np.where(d.turns > 1, 1 + c.aside * (d.turns - 1) * (1 - 1 / each), hidden)
    begins = np.where(stays, rates.begin + end, each * rates.begin / together)
    own = beside(cycles, stored, by_turns) + begins + dealt * end
    functions = _functions(spec, d, rates, grid, even, cycles, hidden, c)
    late = np.maximum(0.0, in_all * of_all - own)
    busy = (own + functions + late) / c.clock
    sums = np.where(d.parts > d.joined, products * m * n * 4.0 * d.parts / d.joined, 0.0)
    sums += dealt * 2 * c.cores * d.block[0] * d.block[1] * 4
    of_a, of_b = extents * k * [[spec.element(x).bytes_of(2) / 2] for x in "ab"]
    if packs:
        of_a, of_b = np.where(d.packed > 0, extents * k * size, (of_a, of_b))
    of_c = m * n * (spec.result.size + bytes_read(spec))
    memory, cached = c.memory_times(products * (of_a + of_b + of_c) + sums)
    return {
        "multiply-adds": multiplying / c.clock,
        "tiles on their way": (cycles + late - multiplying) / c.clock,
        "beginnings and ends of blocks": (own - cycles) / c.clock,
        "the epilogue": functions / c.clock,
        "memory": beside(busy, memory, c.hidden) - busy + cached,
        "packing": _packing(spec, d, k, grid, c, products),
        "the sum of K's parts": _sum(d, grid, sums, c, products),
        "the launch": np.full(len(busy), c.launch),
    }


@dataclass(frozen=True, slots=True)
class _Grid:
    """How a product's blocks come to multiprocessors.

    Attributes:
        extents: rows and columns of C.
        count: of blocks, above one another and beside one another.
        placed: the same with those that fill up clusters.
        blocks: of C.
        steps: along K, of a part.
        each: blocks of the busiest multiprocessor, parts of K counted.
        together: of those, how many it has at once.
        inside: rows and columns of a block that lie in C.
        deep: of a step, what lies in K.
        packs: whether any design packs.
    """

    extents: Numbers
    count: Numbers
    placed: Numbers
    blocks: Numbers
    steps: Numbers
    each: Numbers
    together: Numbers
    inside: Numbers
    deep: Numbers
    packs: bool


def _gathered(d: Designs, resident: Numbers, each: Numbers, blocks: Numbers, elements: Numbers, c: Machine) -> Numbers:
    """Blocks of the busiest multiprocessor behind a kernel that packs so many elements of A, and of B: not all of its
    threads are done at once, and blocks that wait for them fill up the multiprocessors that they leave first.
    """
    packing, waiting = (elements * d.packed).sum(0) / PACKS / c.cores, each * (d.threads + d.producers)
    more = np.maximum(0, np.minimum(resident, blocks * d.parts) - each) * packing / (packing + waiting)
    # Tables show it where work-items multiply; hardly where warpgroups do.
    found: Numbers = np.where((d.unit == FMA) & (d.dealt == 0) & (d.stays == 0), each + more, each)
    return found


def _step(
    d: Designs, rates: Rates, k: Numbers, steps: Numbers, together: Numbers, fetch: Numbers, c: Machine
) -> tuple[Numbers, Numbers]:
    """Cycles of a multiprocessor to multiply a step's tiles, with the threads' own copies; and of the whole step.

    Args:
        together: blocks that it has, a row for each case.
    """
    filled = np.minimum(1.0, d.threads * together / rates.enough) ** c.crowd
    inside = np.minimum(1.0, k / (steps * d.depth * d.parts))
    multiply = rates.multiply / filled + rates.copy * inside + rates.handed / together
    return multiply, np.maximum(beside(multiply, fetch, c.fetched_aside), rates.wait / together)


def _fetch(
    spec: GemmSpec, d: Designs, rates: Rates, k: Numbers, grid: _Grid, c: Machine
) -> tuple[Numbers, Numbers, Numbers]:
    """Cycles until L2 has given a multiprocessor what it asks for in a step, and all of that has come; that L2 takes
    for a step of all of them; and what lines outside of a matrix add to a step.
    """
    # Blocks run along rows of C, or columns of a band: those that run together ask for the same lines at the same time.
    (down, across), at_once = grid.count, np.minimum(grid.blocks, c.cores * grid.together)
    of_a = np.minimum(np.maximum(at_once / np.minimum(down, np.maximum(1, d.band)), 1), across)
    of_b = np.minimum(np.maximum(at_once / of_a, 1), down)
    # A cluster asks once for what it shares.
    shared = d.cluster[::-1]
    asking = np.array((of_a, of_b)) / shared
    lines_a, lines_b = _lines(spec, d, k, asking, grid, c) / shared
    outside_a, outside_b = np.maximum(1, asking) ** c.queued * _outside(spec, d, grid, c)
    both, outside = lines_a + lines_b, c.outside * d.fetched * (outside_a + outside_b)
    # Blocks in step ask for the same lines at once, and L2 reads these once.
    asked = np.where(grid.each > 1, 1.0, c.in_step) * both * grid.blocks * d.parts / (grid.each * c.cores)
    return np.maximum(both * rates.line / c.fetch, rates.arrive), asked * rates.line / c.apart, outside


def _lines(spec: GemmSpec, d: Designs, k: Numbers, asking: Numbers, grid: _Grid, c: Machine) -> Numbers:
    """What a step's part of A, and of B, comes to in lines of L2.

    Args:
        asking: blocks that ask for the same lines at the same time, which L2 serves one after the other where they
            begin inside of a sector.
    """
    wide, block = LINE / spec.dtype.size, d.block
    by_k = _along_k(spec)
    lines: Numbers = grid.inside * np.ceil(d.depth / wide)
    if not by_k.all():
        # Where a block begins inside of a line, each of TMA's boxes, as wide as a line, has parts of two.
        two = 1 + c.parted * d.begins * (grid.count > 1)
        lines = np.where(by_k, lines, np.ceil(grid.inside / wide) * grid.deep * two)
    # What no kernel has laid out is read as it is stored.
    lines = lines * (np.array([[spec.element(x).bytes_of(2) / 2] for x in "ab"]) / spec.dtype.size)
    line = np.where(by_k, k, grid.extents) * spec.dtype.size
    if (line % LINE).any():
        torn = lines * (line % SECTOR > 0)
        hot = c.asked * asking * torn
        # A line of a TMA tile along K that begins inside of one of L2 asks for two; inside of a sector, for five
        # sectors.
        over = by_k * d.fetched * lines * (c.parted * (line % LINE > 0) + c.torn_tile * (line % SECTOR > 0))
        lines = lines + c.torn * torn + hot + over
    return np.where(d.packed > 0, np.ceil(block * d.depth / wide), lines) if grid.packs else lines


@cache
def _along_k(spec: GemmSpec) -> npt.NDArray[np.bool_]:
    """Whether lines of A, and of B, lie along K."""
    return np.array([[spec.a_order == "row"], [spec.b_order == "col"]])


def _outside(spec: GemmSpec, d: Designs, grid: _Grid, c: Machine) -> Numbers:
    """Lines of a step's tile of A, and of B, that lie outside of the matrix or in part, of the busiest multiprocessor's
    blocks in the mean: those of blocks larger than the matrix, and where the last block does not begin earlier those at
    the edge, and those that fill up a cluster.
    """
    wide, block, by_k, last = LINE / spec.dtype.size, d.block, _along_k(spec), grid.inside
    stay = d.dealt > 0
    if reads_c(spec) or not c.earlier:
        stay = np.ones_like(stay)
    elif bytes_read(spec):
        stay = stay | _is_swapped(d)
    if stay.any():
        last = np.where(stay, np.maximum(0, grid.extents - (grid.placed - 1) * block), last)
    lines: Numbers = block - last
    if not by_k.all():
        torn = _is_left_over(last, np.minimum(wide, block))
        boxes = (np.ceil(block / wide) - np.ceil(last / wide)) * d.depth + torn * grid.deep
        lines = np.where(by_k, lines, boxes)
    found: Numbers = np.maximum(1 / grid.each, 1 / grid.placed) * lines
    return np.where(d.packed > 0, 0.0, found) if grid.packs else found


def _is_left_over(size: Numbers, unit: Numbers) -> npt.NDArray[np.bool_]:
    """Whether a size is no multiple of a unit, in a fifth of the time of NumPy's remainder."""
    parts = size / unit
    found: npt.NDArray[np.bool_] = parts > np.floor(parts)
    return found


def _is_swapped(d: Designs) -> npt.NDArray[np.bool_]:
    """Whether C's rows are columns of the instructions of warpgroups."""
    found: npt.NDArray[np.bool_] = (d.unit == WGMMA) & (
        (d.together[0] != WARPGROUP_ROWS) | (d.together[1] != d.block[1])
    )
    return found


def _end(spec: GemmSpec, d: Designs, rates: Rates, grid: _Grid, c: Machine) -> Numbers:
    """Cycles to add up what slices have, and to store a block of C or of the sums."""
    line = grid.extents[int(spec.c_order == "row")]
    high, wide = grid.extents / grid.count
    single = (d.width == 1) | (_is_left_over(line, np.maximum(1, d.width)) & (d.parts <= d.joined))
    by_threads = np.where(single, rates.single, rates.vector)
    each = np.where(d.staged > 0, spec.result.size / c.store, by_threads)
    found: Numbers = high * wide * each + c.slice * (d.slices - 1) * d.block[0] * d.block[1]
    return found


def _functions(
    spec: GemmSpec,
    d: Designs,
    rates: Rates,
    grid: _Grid,
    even: Numbers,
    cycles: Numbers,
    hidden: Numbers,
    c: Machine,
) -> Numbers:
    """Cycles of a multiprocessor to apply an epilogue's functions, and to read what they take. All blocks read at the
    same time, so that each multiprocessor has its share of the memory.
    """
    read = bytes_read(spec)
    together = work(spec) + read * c.cores * c.clock / c.memory
    if not together:
        return np.zeros_like(cycles)
    # Where operands are swapped, neighbours in C are of other threads, so that each reads its elements one by one.
    each = together + np.where(_is_swapped(d) & (read > 0), rates.single, 0.0)
    high, wide = grid.extents / grid.count
    one = np.where(d.parts > d.joined, 0.0, high * wide / spec.halves * each)
    last = d.stays * one
    found: Numbers = beside(cycles, even * one - last, hidden) - cycles + last
    return found


def _sum(d: Designs, grid: _Grid, sums: Numbers, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that adds up parts of K, and of a cluster's own sum."""
    if not (sums.any() or (d.joined > 1).any()):
        return sums
    m, n = grid.extents
    groups = np.where(d.dealt > 0, np.minimum(m, c.cores * d.block[0]), products * m) * np.ceil(n / SUMMED)
    by_kernel = c.another + sums / c.cached + groups * c.sum_group / c.cores / c.clock + c.plane * d.parts / d.joined
    return np.where(sums > 0, by_kernel, 0.0) + np.where(d.joined > 1, c.another, 0.0)


def _packing(spec: GemmSpec, d: Designs, k: Numbers, grid: _Grid, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that lays matrices out before, in whole tiles."""
    if not grid.packs:
        return np.zeros_like(d.depth)
    of_a, of_b = products * np.ceil(k / d.depth) * d.depth * grid.count * d.block * d.packed
    laid = spec.dtype.size * (of_a + of_b)
    # Bytes of an element as it is stored, two of which may share one.
    stored_a, stored_b = (spec.element(x).bytes_of(2) / 2 for x in "ab")
    memory, cached = c.memory_times(np.maximum(1.0, laid + stored_a * of_a + stored_b * of_b))
    return np.where(laid > 0, c.packing + np.maximum(laid / c.packed, memory + cached), 0.0)
