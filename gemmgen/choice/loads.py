"""What a product takes on a GPU of CUDA by kernels without tiles in shared memory (`Direct`, `Gemv`, `DirectMma`), from
the device's own constants: instructions of a work-item's loads and multiply-adds, what blocks ask L2 for, rounds of
waiting, and memory.
"""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gemmgen.checks.capacity import slice_registers
from gemmgen.checks.warp_mma import spans
from gemmgen.choice.columns import LINE, Numbers, Shape, lie_along_k
from gemmgen.choice.epilogue import of_prologue
from gemmgen.choice.machine import (
    BLOCKS,
    MOST_REGISTERS,
    REGISTERS,
    RESERVED,
    SCHEDULERS,
    SUMMED,
    THREADS,
    WARP,
    Amount,
    Machine,
    beside,
)
from gemmgen.ir.instructions import ACROSS, LINES
from gemmgen.schedule import Schedule
from gemmgen.schedule.direct import Direct, Gemv
from gemmgen.schedule.warp_mma import DIRECT_LANES, DirectMma, blocks_together, neighbours
from gemmgen.spec import GemmSpec

#: Elements along K of a slice that compilers ask for at once where each is checked to be inside.
CHECKED = 8
#: Threads that hide the latency of loads.
MANY_THREADS = 1024
#: Elements along K that compilers ask for at once, at least; bytes of a multiprocessor's shared memory.
UNROLLED, SHARED = 4, 228 << 10
#: Instructions that make an element of 16 bits by twos, by its bits; elements of B that a lane has in an instruction.
MADE_BY_TWOS, MMA_ELEMENTS = 1.75, 8
#: Instructions that cut a vector out of two that lie where they may: two choices of words and the shifts.
CUT = 15
#: Bytes of a register; those that a lane has beside its sums, loads and addresses.
WORD, BESIDE_LANES = 4, 16


def has_no_tiles(schedule: Schedule) -> bool:
    """Whether work-items load what they multiply."""
    return isinstance(schedule.mainloop, (Direct, DirectMma, Gemv))


def account_without_tiles(spec: GemmSpec, s: Schedule, shape: Shape, c: Machine, products: int) -> dict[str, float]:
    """The microseconds of a product by such a schedule, by what they go to."""
    if isinstance(s.mainloop, DirectMma):
        found = account_of_lanes(spec, Lanes.of(s), shape, c, products)
        return {name: float(np.ravel(part)[0]) for name, part in found.items()}
    return account_of_loads(spec, Loads.of(s), shape, c, products)


class Loads(NamedTuple):
    """What the model looks at of a schedule without tiles: fields as `Schedule` has them, and those of its operands."""

    tile: tuple[int, int]
    group: tuple[int, int]
    lanes_along_k: int
    sliced_k: int
    split_k: int
    block_k: int
    width_a: int
    width_b: int
    by_fours: bool

    @classmethod
    def of(cls, s: Schedule) -> Loads:
        """Those of a schedule."""
        widths = s.a.width, s.b.width
        return cls(s.tile, s.group, s.lanes_along_k, s.sliced_k, s.split_k, s.block_k, *widths, s.atom == "dp4a")

    @property
    def is_plain(self) -> bool:
        """Whether neighbours read the same lines along K, which lie in the cache after the first of them."""
        return self.lanes_along_k == 1 and self.sliced_k == 1

    @property
    def resident(self) -> int:
        """Blocks that a multiprocessor has at once."""
        (rows, cols), (high, wide) = self.tile, self.group
        threads = high * wide * self.lanes_along_k * self.sliced_k
        most = min(THREADS // threads, BLOCKS)
        if self.lanes_along_k > 1:
            return most  # compilers unroll less where registers run out
        registers = slice_registers(self.tile, self.block_k // self.sliced_k)
        shared = self.sliced_k * rows * high * cols * wide * 4 if self.sliced_k > 1 else 0
        return min(most, REGISTERS // (registers * threads), SHARED // (shared + RESERVED))

    def step(self, spec: GemmSpec) -> int:
        """Elements along K that a block asks for at once."""
        if self.lanes_along_k == 1:
            return self.block_k
        along = self.width_a if spec.a_order == "row" else 1, self.width_b if spec.b_order == "col" else 1
        return self.sliced_k * self.lanes_along_k * max(along)

    def rounds(self, spec: GemmSpec, k: int) -> int:
        """How often a work-item waits for what it has asked for."""
        # Steps that are unrolled are asked for at once, but not those that are left.
        step = max(UNROLLED, self.step(spec))
        whole, left = divmod(ceil(k / self.split_k / step), max(1, self.block_k // step))
        own, over = self.block_k // self.sliced_k, k % self.block_k
        if over and own > CHECKED and self.lanes_along_k == 1 and not self.is_plain:
            return whole - 1 + 2 * min(own, over)  # each waits for A, then for B
        return whole + left


def account_of_loads(spec: GemmSpec, s: Loads, shape: Shape, c: Machine, products: int = 1) -> dict[str, float]:
    """Where each work-item loads what it multiplies: instructions of its loads and multiply-adds, beside memory."""
    (m, n, k), (rows, cols), (high, wide) = shape, s.tile, s.group
    block = rows * high, cols * wide
    blocks = products * ceil(m / block[0]) * ceil(n / block[1]) * s.split_k
    own, step = high * wide * s.lanes_along_k * s.sliced_k, s.step(spec)
    work = blocks * high * wide * ceil(k / s.split_k / step) * step / WARP
    # A few instructions make a small element a float32.
    small = 0.0 if s.by_fours or spec.dtype.size >= 4 else 1.0
    of_a = small if spec.prologue_a is None else small + of_prologue(spec, "a")
    of_b = small if spec.prologue_b is None else small + of_prologue(spec, "b")
    fmas = rows * cols * (c.fma / c.rate("fma", spec.dtype)) / (2 if s.by_fours else 1)
    multiply = (fmas + c.conversion * (rows * of_a + cols * of_b)) / SCHEDULERS
    of_a = of_b = c.load
    if s.lanes_along_k > 1:
        # Lanes along K read other lines of the cache where the matrix' lines lie across K.
        pitch = WARP * max(s.width_a, s.width_b) * spec.dtype.size / LINE
        if m > 1 and spec.a_order == "col":
            of_a = max(c.load, c.own_line * min(WARP, pitch * m))
        if n > 1 and spec.b_order == "row":
            of_b = max(c.load, c.own_line * min(WARP, pitch * n))
    loads = min(rows, m) / s.width_a * of_a + min(cols, n) / s.width_b * of_b
    # Of the busiest multiprocessor's blocks, so many run at once; each waits for its loads in every round.
    each = ceil(blocks / c.cores)
    together = max(1, min(each, s.resident))
    filled = min(1.0, own * together / MANY_THREADS) ** c.crowd
    # Lanes add up by shuffles, slices one after the other.
    sums = blocks * own / WARP * rows * cols * 2 * log2(s.lanes_along_k) / SCHEDULERS / c.cores
    sums += each / together * (s.sliced_k - 1) * c.slice_after * max(1.0, rows * high * cols * wide / own)
    busiest = each / blocks / filled
    loop, rounds = work * max(multiply, loads) * busiest, each / together * s.rounds(spec, k)
    if s.is_plain:
        busy = (max(loop, rounds * c.waits_near) + sums + c.begin) / c.clock
    else:
        fetch = each / s.split_k * _fetch(spec, *block, shape, c)
        busy = (loop + fetch + rounds * c.waits + sums + c.begin_loads) / c.clock
    found = _with_memory(spec, shape, c, products, s.split_k, work * multiply * busiest / c.clock, busy)
    return {name: float(part) for name, part in found.items()}


class Lanes(NamedTuple):
    """The same of schedules whose lanes load what a warp multiplies by matrix instructions: numbers that each has for
    itself are arrays.

    Attributes:
        high: rows of a lane's tile.
        wide: columns of it.
    """

    high: int
    wide: Numbers
    sliced_k: Numbers
    split_k: Numbers
    block_k: Numbers
    width_a: int
    width_b: int

    @classmethod
    def of(cls, s: Schedule) -> Lanes:
        """That of a schedule alone."""
        wide, warps, parts, step = np.array([[s.tile[1]], [s.sliced_k], [s.split_k], [s.block_k]], np.float64)
        return cls(s.tile[0], wide, warps, parts, step, s.a.width, s.b.width)

    @property
    def block(self) -> tuple[int, Numbers]:
        """Rows and columns of a block of C."""
        return self.high * DIRECT_LANES[0], self.wide * DIRECT_LANES[1]

    @property
    def lines(self) -> tuple[int, Numbers]:
        """Rows of A and columns of B of a lane: eight lanes lie across each."""
        return self.block[0] // LINES, self.wide

    @property
    def depth(self) -> int:
        """Elements of each of them that a lane has at a time."""
        return neighbours(self.width_a, self.width_b)

    @property
    def vectors(self) -> tuple[int, Numbers]:
        """Of A, and of B, that a lane has of those."""
        (of_a, of_b), depth = self.lines, self.depth
        return of_a * depth // self.width_a, of_b * (depth / self.width_b)

    def spanned(self, spec: GemmSpec) -> tuple[bool, bool]:
        """Whether those are cut out of two each."""
        return spans(spec, "a", self.width_a), spans(spec, "b", self.width_b)

    def registers(self, spec: GemmSpec) -> Numbers:
        """Those of a lane: what it loads in a step is asked for at once, by a register for each load at least. Lines
        along K have addresses of two registers each, others an index.
        """
        rounds: Numbers = self.block_k / (self.sliced_k * (self.depth * ACROSS))
        found: Numbers = self.high * self.wide + BESIDE_LANES
        widths, two = (self.width_a, self.width_b), self.spanned(spec)
        for at, (name, by_k) in enumerate(zip("ab", lie_along_k(spec), strict=True)):
            each = max(1, int(spec.element(name).bytes_of(widths[at])) // WORD) * (1 + two[at])
            found = found + rounds * self.vectors[at] * each + self.lines[at] * (1 + by_k)
        return found

    def is_held(self, spec: GemmSpec) -> npt.NDArray[np.bool_]:
        """Whether launch bounds leave a lane as many registers."""
        blocks = np.array([blocks_together(int(warps)) for warps in self.sliced_k])
        most: Numbers = np.minimum(MOST_REGISTERS, REGISTERS / (WARP * self.sliced_k * blocks))
        found: npt.NDArray[np.bool_] = self.registers(spec) <= most
        return found

    def resident(self, spec: GemmSpec) -> Numbers:
        """Blocks that a multiprocessor has at once."""
        found: Numbers = np.floor(REGISTERS / (self.registers(spec) * WARP * self.sliced_k))
        return np.maximum(1.0, found)


def account_of_lanes(spec: GemmSpec, s: Lanes, shape: Shape, c: Machine, products: int = 1) -> dict[str, Numbers]:
    """The same where lanes load what a warp multiplies by matrix instructions."""
    (m, n, k), (rows, cols), two = shape, s.block, s.spanned(spec)
    blocks: Numbers = products * ceil(m / rows) * np.ceil(n / cols) * s.split_k
    each, deep = np.ceil(blocks / c.cores), s.depth * ACROSS
    steps: Numbers = each * np.ceil(k / (s.split_k * deep))
    made = MADE_BY_TWOS if spec.element("b") != spec.dtype else 0.0
    issued: Numbers = s.wide * (s.depth * (made + s.high / 2 / MMA_ELEMENTS))
    # Lanes of a load stand on so many lines, and read little of each.
    loads = np.zeros_like(steps)
    for at, (x, by_k) in enumerate(zip(two, lie_along_k(spec), strict=True)):
        issued = issued + CUT * x * s.vectors[at]
        loads += steps * s.vectors[at] * ((1 + x) * max(c.load, c.own_line * (LINES if by_k else ACROSS)))
    work, units = issued * (c.work / SCHEDULERS), cols * (rows * deep / c.rate("mma", spec.dtype))
    multiply: Numbers = steps * np.maximum(work, units)
    rounds = each / np.minimum(each, s.resident(spec))
    waits = rounds * np.ceil(k / (s.split_k * s.block_k)) * c.waits
    sums = rounds * (s.sliced_k - 1) * c.slice_after * np.maximum(1.0, rows * cols / (WARP * s.sliced_k))
    fetch = each / s.split_k * _fetch(spec, rows, cols, shape, c)
    busy: Numbers = (np.maximum(multiply, loads) + fetch + waits + sums + c.begin_loads) / c.clock
    return _with_memory(spec, shape, c, products, s.split_k, multiply / c.clock, busy)


def _fetch(spec: GemmSpec, rows: int, cols: Amount, shape: Shape, c: Machine) -> Amount:
    """Cycles until L2 has given a block its rows of A and columns of B. Of what other blocks read too, a multiprocessor
    has half in a cache of its own.
    """
    m, n, k = shape
    of_a = min(rows, m) * spec.element("a").bytes_of(2) * (1 + 1 / np.ceil(n / cols))
    of_b = np.minimum(cols, n) * (spec.element("b").bytes_of(2) * (1 + 1 / ceil(m / rows)))
    found: Amount = (of_a + of_b) * (k / 4 / c.fetch)
    return found


def _with_memory(
    spec: GemmSpec, shape: Shape, c: Machine, products: int, parts: Amount, multiply: Amount, busy: Amount
) -> dict[str, Amount]:
    """The account of multiprocessors that are busy for so long, beside memory, and of the sum of K's parts."""
    m, n, k = shape
    in_parts = cast("Amount", parts > 1)
    size, groups = float(spec.accumulator.size), products * m * ceil(n / SUMMED)
    partial = products * m * n * size * parts * in_parts
    adding = c.another + groups * c.sum_group / c.cores / c.clock + c.plane * parts
    stored = spec.element("a").bytes_of(m * k) + spec.element("b").bytes_of(k * n)
    late, cached = c.memory_times(products * (stored + m * n * spec.result.size) + partial)
    return {
        "multiply-adds": multiply,
        "loads and beginnings of blocks": busy - multiply,
        "memory": beside(busy, late, c.hidden) - busy + cached,
        "the sum of K's parts": in_parts * adding + c.passed_on(partial),
        "the launch": 0 * busy + c.launch,
    }
