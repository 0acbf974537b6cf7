"""What a product takes on a GPU of CUDA by a schedule, from nothing but the device's own constants: one analytic model.

    time = launch + beside(busy, memory) + packing + the sum of K's parts
    busy = beside(blocks x steps x step, blocks x end) + blocks / together x begin; of persistent blocks
           what they lose between two tiles of C instead
    step = the longest of beside(multiplying a step's tiles, fetching them) and waiting for what is on its way; and
           lines of TMA's tiles outside of a matrix

Blocks are those of the busiest multiprocessor, `together` those that it has at once. Each formula is a few lines below;
the constants stand in `gemmgen.choice.machine`. NumPy computes all schedules of a list at once; what follows from a
schedule and a device whatever the sizes, `gemmgen.choice.rates`, is computed once. Kernels without tiles in shared
memory have a model of their own, `gemmgen.choice.loads`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gemmgen.choice.columns import LINE, SECTOR, WORD, Numbers, Shape, aligned, column, lie_along_k
from gemmgen.choice.epilogue import bytes_read, reads_c, work
from gemmgen.choice.loads import account_without_tiles, has_no_tiles
from gemmgen.choice.machine import SUMMED, THREADS, WARP, Machine, beside
from gemmgen.choice.rates import Rates, Weighed, weighed
from gemmgen.ir.dtypes import F64
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Elements that a thread packs; bytes of a line that a warp does at once, and those of two that all warps do.
PACKS, PACKED_LINE = 4, 512
PACKED_AT_ONCE = 2 * PACKED_LINE * THREADS // WARP
#: m, n and k of a product, or of several.
Sizes = Shape | tuple[Numbers, Numbers, Numbers]


def costs(
    spec: GemmSpec,
    schedules: Sequence[Schedule],
    shape: Shape,
    machine: Machine,
    products: int = 1,
    like: Shape | None = None,
) -> list[float]:
    """The microseconds of a product by each schedule.

    Args:
        like: sizes as well aligned as lines are for what threads copy, if not those of the product.
    """
    return costs_at(spec, [(each, shape) for each in schedules], machine, products, like)


def costs_at(
    spec: GemmSpec,
    asked: Sequence[tuple[Schedule, Shape]],
    machine: Machine,
    products: int = 1,
    like: Shape | None = None,
) -> list[float]:
    """The same of products of several sizes, each by one schedule."""
    tiled, costs = [each for each in asked if not has_no_tiles(each[0])], iter(())
    if tiled:
        own = np.concatenate([column(spec, each, like or aligned(spec, of)) for each, of in tiled], axis=1)
        m, n, k = np.array([of for _, of in tiled], dtype=np.float64).T
        costs = iter(microseconds(spec, weighed(spec, own, machine), (m, n, k), machine, products).tolist())
    return [
        sum(account_without_tiles(spec, *each, machine, products).values()) if has_no_tiles(each[0]) else next(costs)
        for each in asked
    ]


def microseconds(spec: GemmSpec, of: Weighed, shape: Sizes, machine: Machine, products: int = 1) -> Numbers:
    """Of a product by each design; of one of its own each where sizes are arrays."""
    t = _times(spec, of, shape, machine, products)
    return beside(t.busy, t.memory, machine.hidden) + (t.cached + t.packing + t.summing + machine.launch)


def account(spec: GemmSpec, schedule: Schedule, shape: Shape, machine: Machine, products: int = 1) -> dict[str, float]:
    """The same by a schedule, by what they go to."""
    if has_no_tiles(schedule):
        return account_without_tiles(spec, schedule, shape, machine, products)
    of = weighed(spec, column(spec, schedule, aligned(spec, shape)), machine)
    t, clock = _times(spec, of, shape, machine, products), machine.clock
    multiplying = t.steps * (t.full * t.multiply[0] + (1 - t.full) * t.multiply[1])
    cycles, late = t.steps * t.step, np.maximum(0.0, t.arriving - t.own)
    parts: dict[str, Numbers | float] = {
        "multiply-adds": multiplying / clock,
        "tiles on their way": (cycles + late - multiplying) / clock,
        "beginnings and ends of blocks": (t.own - cycles) / clock,
        "the epilogue": t.functions / clock,
        "memory": beside(t.busy, t.memory, machine.hidden) - t.busy + t.cached,
        "packing": t.packing,
        "the sum of K's parts": t.summing,
        "the launch": machine.launch,
    }
    return {name: float(np.ravel(part)[0]) for name, part in parts.items()}


@dataclass(frozen=True, slots=True)
class _Times:
    """What a product's time follows from.

    Attributes:
        steps: along K, of all blocks of the busiest multiprocessor.
        full: the part of them in which it has as many blocks as it can have.
        multiply: cycles of one while it does; of the others.
        step: cycles of one in the mean, with what else it waits for.
        own: cycles of its blocks, but for an epilogue's functions.
        functions: of these.
        arriving: until L2 has given all multiprocessors what they ask for.
        busy: microseconds until it has ended.
        memory, cached: of what is read and written, from memory and from L2.
        packing, summing: of the kernels before and after.
    """

    steps: Numbers
    full: Numbers
    multiply: Numbers
    step: Numbers
    own: Numbers
    functions: Numbers | float
    arriving: Numbers
    busy: Numbers
    memory: Numbers
    cached: Numbers
    packing: Numbers | float
    summing: Numbers | float


@dataclass(frozen=True, slots=True)
class _Grid:
    """How a product's blocks come to multiprocessors.

    Attributes:
        extents: rows and columns of C.
        count: of blocks, above one another and beside one another.
        placed: the same with those that fill up clusters.
        blocks: of C.
        share: of a multiprocessor in the mean, parts of K counted.
        each: those of the busiest one; `even` where blocks may be dealt out.
        together: of those, how many it has at once.
        inside: rows and columns of a block that lie in C; `area` of the mean block.
        deep: of a step, what lies in K.
    """

    extents: Numbers
    count: Numbers
    placed: Numbers
    blocks: Numbers
    share: Numbers
    each: Numbers
    even: Numbers
    together: Numbers
    inside: Numbers
    area: Numbers
    deep: Numbers


def _times(spec: GemmSpec, of: Weighed, shape: Sizes, c: Machine, products: int) -> _Times:
    d, k = of.rates, shape[2]
    extents = np.array(shape[:2], dtype=np.float64).reshape(2, -1)
    count = np.ceil(extents / d.block)
    placed = np.ceil(count / d.cluster) * d.cluster
    blocks = placed[0] * placed[1] * products
    share, depths = blocks * of.parts / d.cores, k / (of.parts * d.depth)
    each, steps = np.ceil(share), np.ceil(depths)
    if spec.dtype == F64:
        each = each + c.edge_f64 * _is_left_over(extents[0], d.block[0])
    if len(of.packing):
        each = _gathered(d, share, each, products * k * extents, c)
    even = np.where(d.dealt, share, each) if of.deals else each
    together, inside, deep = np.minimum(each, d.resident), np.minimum(d.block, extents), np.minimum(d.depth, k / steps)
    high, wide = extents / count
    grid = _Grid(extents, count, placed, blocks, share, each, even, together, inside, high * wide, deep)
    fetch, of_all, outside = _fetch(spec, of, shape, grid, c)
    # The last round of blocks may have fewer of them at once.
    rounds = each / together
    whole = np.floor(rounds) * together
    full = whole / each
    # Small elements are put down whether they lie in K or not.
    copied = depths / steps if spec.dtype.size >= WORD else np.ones_like(steps)
    multiply, (step, last) = _step(of, copied, np.array((together, np.maximum(1.0, each - whole))), fetch, c)
    step = full * step + (1 - full) * last + outside
    in_all = even * steps
    cycles, end = in_all * step, _end(spec, of, grid)
    # While a block stores, others multiply; not those that began at the same time. One that stays begins but once.
    hidden = 1 + d.free * (together - 1) * (1 - together / each)
    # Warpgroups that take turns store while others multiply, from a block's second tile of C on.
    own = beside(cycles, (even - d.stays) * end, hidden + d.turns * (1 - 1 / each))
    own += np.where(d.stays, d.begin + end + c.between * (1 + 1 / together) * (even - together), d.begin * rounds)
    if of.deals:
        own += d.dealt * (end + c.fix_up)
    functions, arriving = _functions(spec, of, grid, cycles, hidden, c), in_all * of_all
    sums, summing = _sum(spec, of, shape, c, products) if of.adds else (0.0, 0.0)
    memory, cached = c.memory_times(np.add(_bytes(spec, of, shape, products), sums))
    # Few multiprocessors can't have all that memory could give.
    used = np.where(d.dealt, d.cores, np.minimum(blocks * of.parts, d.cores))
    memory = memory * np.maximum(1.0, c.memory / (used * c.alone * c.clock))
    packing = _packing(spec, of, k, count, c, products) if len(of.packing) else 0.0
    busy = (np.maximum(own, arriving) + functions) / c.clock
    return _Times(in_all, full, multiply, step, own, functions, arriving, busy, memory, cached, packing, summing)


def _gathered(d: Rates, share: Numbers, each: Numbers, elements: Numbers, c: Machine) -> Numbers:
    """Blocks of the busiest multiprocessor behind a kernel that packs so many elements of A, and of B: not all of its
    threads are done at once, and blocks that wait for them fill up the multiprocessors that they leave first.
    """
    packing = (elements * (1 - d.loose)).sum(0) / PACKS / c.cores
    more = np.maximum(0, np.minimum(d.resident, share * d.cores) - each)
    gathered: Numbers = each + more * packing / (packing + each * d.waiting)
    return gathered


def _step(of: Weighed, copied: Numbers, together: Numbers, fetch: Numbers, c: Machine) -> tuple[Numbers, Numbers]:
    """Cycles of a multiprocessor to multiply a step's tiles, with the threads' own copies; and of the whole step.

    Args:
        copied: how much of a step threads copy.
        together: blocks that it has, a row for each case.
    """
    d = of.rates
    multiply = d.multiply / np.minimum(1.0, d.filled * together) ** c.crowd + d.handed / together
    if of.copies:
        multiply += d.copy * copied / np.minimum(1.0, d.copying * together) ** d.crowded
    return multiply, np.maximum(beside(multiply, fetch, c.fetched_aside), d.wait / together)


def _fetch(spec: GemmSpec, of: Weighed, shape: Sizes, grid: _Grid, c: Machine) -> tuple[Numbers, Numbers, Numbers]:
    """Cycles until L2 has given a multiprocessor what it asks for in a step, and all of that has come; that L2 takes
    for a step of all of them; and what lines outside of a matrix add to a step.
    """
    # Blocks run along rows of C, or columns of a band: those that run together ask for the same lines at the same time.
    d, (down, across), at_once = of.rates, grid.count, np.minimum(grid.blocks, c.cores * grid.together)
    of_a = np.minimum(np.maximum(at_once / np.minimum(down, d.band), 1), across)
    of_b = np.minimum(np.maximum(at_once / of_a, 1), down)
    # A cluster asks once for what it shares, but for pairs beside one another.
    asking = np.array((of_a, of_b)) * d.shared
    lines_a, lines_b = _lines(spec, of, shape, asking, grid, c) * d.shared
    outside_a, outside_b = np.maximum(1, asking) ** c.queued * _outside(spec, of, grid, c)
    both, outside = lines_a + lines_b, c.outside * d.fetched * (outside_a + outside_b)
    return np.maximum(both * d.fetch, d.arrive), both * d.fetch_all * grid.share / grid.each, outside


def _lines(spec: GemmSpec, of: Weighed, shape: Sizes, asking: Numbers, grid: _Grid, c: Machine) -> Numbers:
    """What a step's part of A, and of B, comes to in lines of L2.

    Args:
        asking: blocks that ask for the same lines at the same time, which L2 serves one after the other where they
            begin inside of a sector.
    """
    d, size = of.rates, spec.dtype.size
    lines: Numbers = grid.inside * d.lines
    for at, (name, by_k) in enumerate(zip("ab", lie_along_k(spec), strict=True)):
        if not by_k:
            # Where a block begins inside of a line, each of TMA's boxes, as wide as a line, has parts of two.
            two = 1 + d.parted[at] * (grid.count[at] > 1)
            lines[at] = np.ceil(grid.inside[at] * (size / LINE)) * grid.deep * two
        # What no kernel has laid out is read as it is stored.
        if spec.element(name) != spec.dtype:
            lines[at] *= spec.element(name).bytes_of(2) / 2 / size
        line = shape[2 if by_k else at] * size
        if _is_any(line % LINE):
            # A line of a TMA tile along K that begins inside of one of L2 asks for two; inside of a sector, for five
            # sectors.
            torn, parted = (line % SECTOR > 0) * 1.0, by_k * (line % LINE > 0) * d.fetched
            lines[at] *= 1 + c.misaligned * (torn + parted) + c.asked * torn * asking[at]
    return lines * d.loose + d.laid_lines if len(of.packing) else lines


def _is_any(of: Numbers | float) -> bool:
    """Whether it is anything but 0."""
    return bool(np.any(of)) if isinstance(of, np.ndarray) else of != 0


def _outside(spec: GemmSpec, of: Weighed, grid: _Grid, c: Machine) -> Numbers:
    """Lines of a step's tile of A, and of B, that lie outside of the matrix or in part, of the busiest multiprocessor's
    blocks in the mean: those of blocks larger than the matrix, and where the last block does not begin earlier those at
    the edge, and those that fill up a cluster.
    """
    d, wide, last = of.rates, LINE / spec.dtype.size, grid.inside
    if of.deals or bytes_read(spec) or not c.earlier:
        every = reads_c(spec) or not c.earlier
        stay = np.True_ if every else d.dealt | d.swapped if bytes_read(spec) else d.dealt
        last = np.where(stay, np.maximum(0, grid.extents - (grid.placed - 1) * d.block), last)
    lines: Numbers = d.block - last
    for at, by_k in enumerate(lie_along_k(spec)):
        if not by_k:
            torn = _is_left_over(last[at], np.minimum(wide, d.block[at]))
            lines[at] = (d.boxes[at] - np.ceil(last[at] / wide)) * d.depth + torn * grid.deep
    lines /= np.minimum(grid.each, grid.placed)
    return lines * d.loose if len(of.packing) else lines


def _is_left_over(size: Numbers | float, unit: Numbers) -> npt.NDArray[np.bool_]:
    """Whether a size is no multiple of a unit, in a fifth of the time of NumPy's remainder."""
    parts = size / unit
    found: npt.NDArray[np.bool_] = parts > np.floor(parts)
    return found


def _end(spec: GemmSpec, of: Weighed, grid: _Grid) -> Numbers:
    """Cycles to add up what slices have, and to store a block of C or of the sums."""
    d, line = of.rates, grid.extents[int(spec.c_order == "row")]
    each = d.store
    if (line % of.widest).any():
        each = each + d.torn * (_is_left_over(line, d.width) & (of.parts <= d.joined))
    return grid.area * each + d.slices


def _functions(
    spec: GemmSpec, of: Weighed, grid: _Grid, cycles: Numbers, hidden: Numbers, c: Machine
) -> Numbers | float:
    """Cycles of a multiprocessor to apply an epilogue's functions, and to read what they take. All blocks read at the
    same time, so that each multiprocessor has its share of the memory.
    """
    d, read = of.rates, bytes_read(spec)
    together = work(spec) + read * c.cores * c.clock / c.memory
    if not together:
        return 0.0
    # Where operands are swapped, neighbours in C are of other threads, so that each reads its elements one by one.
    each = together + d.alone if read else together
    one = np.where(of.parts > d.joined, 0.0, grid.area / spec.halves * each)
    last = d.stays * one
    found: Numbers = beside(cycles, grid.even * one - last, hidden) - cycles + last
    return found


def _bytes(spec: GemmSpec, of: Weighed, shape: Sizes, products: int) -> Numbers | float:
    """What is read of A and B, and of C read and written."""
    (m, n, k), size = shape, spec.dtype.size
    found: Numbers | float = m * n * (spec.result.size + bytes_read(spec))
    for at, (name, extent) in enumerate((("a", m), ("b", n))):
        stored = spec.element(name).bytes_of(2) / 2
        packed = 1 - of.rates.loose[at] if stored != size and len(of.packing) else 0.0
        found = found + extent * k * (stored + packed * (size - stored))
    return products * found


def _sum(spec: GemmSpec, of: Weighed, shape: Sizes, c: Machine, products: int) -> tuple[Numbers, Numbers]:
    """Bytes of sums of K's parts, and microseconds of the kernel that adds them up, and of a cluster's own sum."""
    d, (m, n, _), size = of.rates, shape, float(spec.accumulator.size)
    planes = of.parts / d.joined
    sums, groups = np.where(planes > 1, planes * (products * m * n * size), 0.0), products * m
    if of.deals:
        sums += d.dealt_bytes
        groups = np.where(d.dealt, np.minimum(m, c.cores * d.block[0]), groups)
    of_groups = groups * (np.ceil(n / SUMMED) * c.sum_group / c.cores / c.clock)
    by_kernel = np.where(sums > 0, of_groups + c.another + c.passed_on(sums) + c.plane * planes, 0.0)
    return sums, by_kernel + np.where(d.joined > 1, c.another + d.joining * of_groups, 0.0)


def _packing(spec: GemmSpec, of: Weighed, k: Numbers | float, count: Numbers, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that lays matrices out before, in whole tiles."""
    at, d = of.packing, of.rates
    depth, wide = (np.ceil(k / d.depth) * d.depth)[at], PACKED_LINE / spec.dtype.size
    extents = (count * d.laid)[:, at]
    of_a, of_b = extents * (products * depth)
    laid = spec.dtype.size * (of_a + of_b)
    # Of short lines threads have nothing to do, which counts where they come in turns.
    idle = (_up(depth if by_k else x, wide) for x, by_k in zip(extents, lie_along_k(spec), strict=True))
    whole = spec.dtype.size * sum(x * more for x, more in zip((of_a, of_b), idle, strict=True))
    whole = np.where(whole > c.cores * PACKED_AT_ONCE, whole, laid)
    # Bytes of an element as it is stored, two of which may share one.
    stored_a, stored_b = (spec.element(x).bytes_of(2) / 2 for x in "ab")
    memory, cached = c.memory_times(np.maximum(1.0, laid + stored_a * of_a + stored_b * of_b))
    found = np.zeros_like(d.depth)
    found[at] = c.packing + np.maximum(whole / c.packed, memory + cached)
    return found


def _up(size: Numbers, unit: float) -> Numbers:
    """How much larger the next multiple of a unit is."""
    found: Numbers = np.ceil(size / unit) * unit / np.maximum(size, 1)
    return found
