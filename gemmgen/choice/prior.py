"""What a product takes on a GPU of CUDA by a schedule, from nothing but the device's own constants: one analytic model.

    time = launch + beside(busy, memory) + packing + the sum of K's parts
    busy = beside(blocks x steps x step, blocks x end) + blocks / together x begin
    step = the longest of beside(multiplying a step's tiles, fetching them) and waiting for what is on its way; and
           lines of TMA's tiles outside of a matrix

Blocks are those of the busiest multiprocessor, `together` those that it has at once. Each formula is a few lines below;
the constants stand in `gemmgen.choice.machine`. NumPy computes all schedules of a list at once; what follows from a
schedule and a device whatever the sizes (`Rates`) is computed once. Kernels without tiles in shared memory have a
model of their own, `gemmgen.choice.loads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

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
    designs,
    row,
    table,
)
from gemmgen.choice.epilogue import PROLOGUE, bytes_read, of_prologue, reads_c, work
from gemmgen.choice.loads import account_without_tiles, has_no_tiles
from gemmgen.choice.machine import BLOCKS, REGISTERS, RESERVED, SCHEDULERS, SUMMED, THREADS, WARP, Machine, beside
from gemmgen.ir.dtypes import DType
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: m, n and k of a product, or of several.
Sizes = Shape | tuple[Numbers, Numbers, Numbers]
#: Registers of a thread beside its sums.
OTHER_REGISTERS = 56
#: The part of a line's cost by TMA that it has where threads copy it: their own instructions are counted apart.
BESIDE_COPIES = 0.25


def costs(
    spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape, machine: Machine, products: int = 1
) -> list[float]:
    """The microseconds of a product by each schedule."""
    return costs_at(spec, [(each, shape) for each in schedules], machine, products)


def costs_at(
    spec: GemmSpec, asked: Sequence[tuple[Schedule, Shape]], machine: Machine, products: int = 1
) -> list[float]:
    """The same of products of several sizes, each by one schedule."""
    return costs_beside(spec, asked, None, (1, 1, 1), machine, products)[0]


def costs_beside(
    spec: GemmSpec,
    asked: Sequence[tuple[Schedule, Shape]],
    designs_of: Weighed | None,
    shape: Shape,
    machine: Machine,
    products: int = 1,
) -> tuple[list[float], Numbers]:
    """The same, and the microseconds of one product by each of many designs: NumPy's time is that of its calls, so that
    few schedules more cost next to nothing.
    """
    tiled = [each for each in asked if not has_no_tiles(each[0])]
    sizes: Sizes = shape
    if tiled:
        own = weighed(spec, table(row(spec, each, aligned(spec, of)) for each, of in tiled), machine)
        more = 0 if designs_of is None else designs_of.own.shape[1]
        of_tiled, of_designs = (
            np.array(x, dtype=np.float64).reshape(-1, 3).T for x in ([of for _, of in tiled], shape)
        )
        m, n, k = np.concatenate((of_tiled, of_designs.repeat(more, 1)), axis=1)
        sizes = m, n, k
        designs_of = own if designs_of is None else own.beside(designs_of)
    found = np.zeros(0) if designs_of is None else microseconds(spec, designs_of, sizes, machine, products)
    known = iter(found[: len(tiled)].tolist())
    costs = [
        sum(account_without_tiles(spec, *each, machine, products).values()) if has_no_tiles(each[0]) else next(known)
        for each in asked
    ]
    return costs, found[len(tiled) :]


def account(spec: GemmSpec, schedule: Schedule, shape: Shape, machine: Machine, products: int = 1) -> dict[str, float]:
    """The microseconds of a product by a schedule, by what they go to."""
    if has_no_tiles(schedule):
        return account_without_tiles(spec, schedule, shape, machine, products)
    of = weighed(spec, table([row(spec, schedule, aligned(spec, shape))]), machine)
    return {name: float(part[0]) for name, part in accounts(spec, of, shape, machine, products).items()}


class Rates(NamedTuple):
    """What follows from a design and a device whatever the sizes of the product: cycles of a multiprocessor.

    Attributes:
        multiply: to multiply a step's tiles, or to read them from shared memory, with all units busy.
        enough: threads that keep them busy.
        copy_a, copy_b: to copy a step's tiles of whole blocks by threads.
        handed: to hand over a step's tiles where no other block is there.
        vector, single: to store an element of C beside neighbours; by itself.
        begin: of a block's beginning.
        line: bytes that a line asks of L2.
    """

    multiply: Numbers
    enough: Numbers
    copy_a: Numbers
    copy_b: Numbers
    handed: Numbers
    vector: Numbers
    single: Numbers
    begin: Numbers
    line: Numbers


class Weighed(NamedTuple):
    """Designs and their rates: a table of each, a column a design."""

    own: Numbers
    rates: Numbers

    def taken(self, index: npt.NDArray[np.intp]) -> Weighed:
        """Some of them, in another order."""
        return Weighed(self.own.take(index, 1), self.rates.take(index, 1))

    def beside(self, other: Weighed) -> Weighed:
        """These, then others."""
        own, rates = (np.concatenate(each, axis=1) for each in zip(self, other, strict=True))
        return Weighed(own, rates)


def weighed(spec: GemmSpec, own: Numbers, machine: Machine) -> Weighed:
    """A table of designs with their rates."""
    return Weighed(own, np.array(_rates(spec, designs(own), machine)))


def _rates(spec: GemmSpec, d: Designs, c: Machine) -> Rates:
    dtype = spec.dtype
    peak, reads, busy, vector, single = _of_units(dtype, c)[:, d.unit.astype(np.intp)]
    (rows, cols), size = d.block, dtype.size
    # Tiles are read from shared memory as often as there are instructions beside one another; TMA writes them there.
    passes = 1 / d.together[0] + 1 / d.together[1] + (1 / rows + 1 / cols) * (d.unit == WGMMA)
    volume = rows * cols * d.depth
    # Elements of fewer than 4 bytes that are copied one by one go through registers.
    alone = np.where(d.across > 1, c.copy_conflicts, np.where(d.across > 0, c.copy_across, c.copy_single))
    each = d.block * np.where(d.copy < 1, d.copy * c.copy, alone * (c.through if size < 4 else 1.0))
    # What is stored otherwise goes through registers, unless a kernel before has laid it out.
    each_element = [_conversions(spec, x, d.unit == WGMMA) for x in "ab"]
    made = c.conversion * np.array(each_element) * c.work / SCHEDULERS / WARP
    copy_a, copy_b = d.depth * (each + np.where(d.packed > 0, 0.0, d.block * made))
    return Rates(
        multiply=np.maximum(volume / peak, volume * passes * size / reads),
        # A few warps don't keep the units busy; those whose threads have more sums each do so sooner.
        enough=np.where(d.unit == FMA, busy * (64 / d.sums) ** c.own_work, busy),
        copy_a=copy_a,
        copy_b=copy_b,
        handed=c.step + c.paired * (d.cluster[0] * d.cluster[1] > 1),
        vector=vector,
        single=single,
        begin=c.begin
        + np.where(d.fetched > 0, c.own_fetched * (d.sums / 64) ** c.own_more, c.own_copied) * d.sums
        + c.stay * d.stays
        + c.meet * (d.cluster[0] * d.cluster[1] > 1),
        line=LINE * np.where(d.fetched > 0, 1.0, BESIDE_COPIES),
    )


def _conversions(spec: GemmSpec, matrix: str, scaled: npt.NDArray[np.bool_]) -> Numbers:
    """What an element costs that is not stored as it is multiplied, in instructions that convert one.

    Args:
        scaled: whether scales multiply sums.
    """
    formula = spec.prologue_a if matrix == "a" else spec.prologue_b
    each = np.where(scaled, of_prologue(spec, matrix), PROLOGUE) if formula is not None else np.zeros(len(scaled))
    return np.asarray(each + (spec.element(matrix) != spec.dtype), dtype=np.float64)


@cache
def _of_units(dtype: DType, c: Machine) -> Numbers:
    """By what multiplies: multiply-adds of a cycle, bytes read in one, threads that keep it busy, and cycles to store
    an element by vectors and by itself.
    """
    return np.array(
        (
            (c.rate("fma", dtype), c.read_fma, c.busy, c.store_vector, c.store_single),
            (c.rate("mma", dtype), c.read_mma, c.busy, c.store_vector_mma, c.store_single_mma),
            (c.rate("wgmma", dtype), c.read_wgmma, 1.0, c.store_vector_mma, c.store_single_mma),
        )
    ).T


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
    cores = np.where(d.cluster.prod(0) > 2, c.in_fours, c.cores)
    each = np.ceil(blocks * d.parts / cores)
    even = np.where(d.dealt > 0, blocks / cores, each)
    together = np.minimum(each, resident(spec, d, c))
    grid = _Grid(extents, count, placed, blocks, steps, each, together)
    fetch, of_all, outside = _fetch(spec, d, rates, k, grid, c)
    # The last round of blocks may have fewer of them at once.
    full = np.floor(each / together) * together / each
    rounds = np.array((together, np.maximum(1.0, each * (1 - full))))
    (multiply, last_multiply), (step, last_step) = _step(d, rates, k, steps, rounds, fetch, c)
    multiply, step = full * multiply + (1 - full) * last_multiply, full * step + (1 - full) * last_step + outside
    cycles, end = even * steps * step, _end(spec, d, rates, grid, c)
    # While a block stores, others multiply; not those that began at the same time. One that stays begins but once.
    stays, begin = d.stays > 0, rates.begin
    hidden = np.where(stays, 1.0, 1 + c.aside * (together - 1) * (1 - together / each))
    stored = np.where(stays, even - 1, even) * end
    # Warpgroups that take turns store while others multiply, from a block's second tile of C on.
    by_turns = np.where(d.turns > 1, 1 + c.aside * (d.turns - 1) * (1 - 1 / each), hidden)
    ends = beside(cycles, stored, by_turns) - cycles + np.where(stays, begin + end, each * begin / together)
    own = cycles + ends + (d.dealt > 0) * end
    functions = _functions(spec, d, rates, grid, even, cycles, hidden, c)
    late = np.maximum(0.0, even * steps * of_all - own)
    busy = (own + functions + late) / c.clock
    sums = np.where(d.parts > d.joined, products * m * n * 4.0 * d.parts / d.joined, 0.0)
    sums += (d.dealt > 0) * 2 * c.cores * d.block[0] * d.block[1] * 4
    stored_as = extents * k * [[spec.element(x).bytes_of(2) / 2] for x in "ab"]
    of_a, of_b = np.where(d.packed > 0, extents * k * size, stored_as)
    of_c = m * n * (spec.result.size + bytes_read(spec))
    memory, cached = c.memory_times(products * (of_a + of_b + of_c) + sums)
    return {
        "multiply-adds": even * steps * multiply / c.clock,
        "tiles on their way": (cycles + late - even * steps * multiply) / c.clock,
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
    """

    extents: Numbers
    count: Numbers
    placed: Numbers
    blocks: Numbers
    steps: Numbers
    each: Numbers
    together: Numbers


def resident(spec: GemmSpec, d: Designs, machine: Machine) -> Numbers:
    """Blocks that a multiprocessor has at once."""
    shared = d.held * spec.dtype.size + d.staged * d.block[0] * d.block[1] * spec.result.size / 2 + RESERVED
    registers = (d.sums * spec.accumulator.size / 4 + OTHER_REGISTERS) * d.threads + d.producers * 32
    most = np.minimum(machine.shared / shared, REGISTERS / registers)
    found: Numbers = np.floor(np.minimum(most, THREADS / (d.threads + d.producers)))
    return np.minimum(np.maximum(found, 1), BLOCKS)


def _step(
    d: Designs, rates: Rates, k: Numbers, steps: Numbers, together: Numbers, fetch: Numbers, c: Machine
) -> tuple[Numbers, Numbers]:
    """Cycles of a multiprocessor to multiply a step's tiles, with the threads' own copies; and of the whole step.

    Args:
        together: blocks that it has, a row for each case.
    """
    filled = np.minimum(1.0, d.threads * together / rates.enough) ** c.crowd
    inside = np.minimum(1.0, k / (steps * d.depth * d.parts))
    multiply = rates.multiply / filled + (rates.copy_a + rates.copy_b) * inside + rates.handed / together
    wait = np.where(d.stages > 1, c.latency / np.maximum(0.5, d.stages - 1) / together, 0.0)
    return multiply, np.maximum(beside(multiply, fetch, c.fetched_aside), wait)


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
    lines = _lines(spec, d, k, asking, grid, c) / shared
    outside = c.outside * d.fetched * (np.maximum(1, asking) ** c.queued * _outside(spec, d, k, grid, c)).sum(0)
    # Blocks in step ask for the same lines at once, and L2 reads these once.
    asked = np.where(grid.each > 1, 1.0, c.in_step) * lines.sum(0) * grid.blocks * d.parts / (grid.each * c.cores)
    arriving = d.block.sum(0) * d.depth * spec.dtype.size / LINE
    own = np.maximum(lines.sum(0) / c.fetch, arriving / c.arrive)
    return own * rates.line, asked * rates.line / c.apart, outside


def _lines(spec: GemmSpec, d: Designs, k: Numbers, asking: Numbers, grid: _Grid, c: Machine) -> Numbers:
    """What a step's part of A, and of B, comes to in lines of L2.

    Args:
        asking: blocks that ask for the same lines at the same time, which L2 serves one after the other where they
            begin inside of a sector.
    """
    wide, block, extents, count = LINE / spec.dtype.size, d.block, grid.extents, grid.count
    by_k = np.array([[spec.a_order == "row"], [spec.b_order == "col"]])
    inside, deep = np.minimum(block, extents), np.minimum(d.depth, k / grid.steps)
    # Where a block begins inside of a line, each of TMA's boxes, as wide as a line, has parts of two.
    two = 1 + c.parted * d.begins * (count > 1)
    # What no kernel has laid out is read as it is stored.
    stored = np.array([[spec.element(x).bytes_of(2) / 2 / spec.dtype.size] for x in "ab"])
    lines = np.where(by_k, inside * np.ceil(d.depth / wide), np.ceil(inside / wide) * deep * two)
    lines = lines * np.where(d.packed > 0, 1.0, stored)
    line = np.where(by_k, k, extents) * spec.dtype.size
    torn = lines * (line % SECTOR > 0)
    hot = c.asked * asking * torn
    # A line of a TMA tile along K that begins inside of one of L2 asks for two; inside of a sector, for five sectors.
    over = by_k * d.fetched * lines * (c.parted * (line % LINE > 0) + c.torn_tile * (line % SECTOR > 0))
    found: Numbers = lines + c.torn * torn + hot + over
    return np.where(d.packed > 0, np.ceil(block * d.depth / wide), found) if d.packed.any() else found


def _outside(spec: GemmSpec, d: Designs, k: Numbers, grid: _Grid, c: Machine) -> Numbers:
    """Lines of a step's tile of A, and of B, that lie outside of the matrix or in part, of the busiest multiprocessor's
    blocks in the mean: those of blocks larger than the matrix, and where the last block does not begin earlier those at
    the edge, and those that fill up a cluster.
    """
    wide, block, deep = LINE / spec.dtype.size, d.block, np.minimum(d.depth, k / grid.steps)
    by_k = np.array([[spec.a_order == "row"], [spec.b_order == "col"]])
    last = np.maximum(0, grid.extents - (grid.placed - 1) * block)
    if c.earlier and not reads_c(spec):
        stay = (d.dealt > 0) | (_is_swapped(d) & (bytes_read(spec) > 0))
        last = np.where(stay, last, np.minimum(block, grid.extents))
    boxes = (np.ceil(block / wide) - np.ceil(last / wide)) * d.depth + (last % np.minimum(wide, block) > 0) * deep
    lines = np.where(d.packed > 0, 0.0, np.where(by_k, block - last, boxes))
    found: Numbers = np.maximum(1 / grid.each, 1 / grid.placed) * lines
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
    single = (d.width == 1) | ((line % np.maximum(1, d.width) > 0) & (d.parts <= d.joined))
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
    m, n = grid.extents
    groups = np.where(d.dealt > 0, np.minimum(m, c.cores * d.block[0]), products * m) * np.ceil(n / SUMMED)
    by_kernel = c.another + sums / c.cached + groups * c.sum_group / c.cores / c.clock + c.plane * d.parts / d.joined
    return np.where(sums > 0, by_kernel, 0.0) + np.where(d.joined > 1, c.another, 0.0)


def _packing(spec: GemmSpec, d: Designs, k: Numbers, grid: _Grid, c: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that lays matrices out before, in whole tiles."""
    if not d.packed.any():
        return np.zeros_like(d.depth)
    of_a, of_b = products * np.ceil(k / d.depth) * d.depth * grid.count * d.block * d.packed
    laid = spec.dtype.size * (of_a + of_b)
    # Bytes of an element as it is stored, two of which may share one.
    stored_a, stored_b = (spec.element(x).bytes_of(2) / 2 for x in "ab")
    memory, cached = c.memory_times(np.maximum(1.0, laid + stored_a * of_a + stored_b * of_b))
    return np.where(laid > 0, c.packing + np.maximum(laid / c.packed, memory + cached), 0.0)
