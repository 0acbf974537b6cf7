"""What a product takes on a GPU by a schedule, from nothing but the device's own constants: one analytic model.

    time = launch + beside(rounds of blocks, bytes of memory) + what packing and split-K add

A round is what one multiprocessor does for the blocks that it has at once: `steps` times the longest of multiplying,
fetching and copying a step's tiles, then the beginning and the end of a block. Each formula is a few lines below; the
constants stand in `gemmgen.tuning.machine`. NumPy computes all schedules of a list at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.machine import Machine

Numbers: TypeAlias = npt.NDArray[np.float64]
Shape = tuple[int, int, int]
#: How much of the shorter ones of things done side by side is hidden by the longest one: all, were it infinite.
SHARP = 2.5
#: Of the end of a block that stays, the part that is not hidden by the next one's beginning.
SHOWN = 0.5
#: Bytes of a line of L2, and of a sector.
LINE, SECTOR = 128, 32
#: Registers of a thread beside its sums, and of a multiprocessor; threads and blocks of a multiprocessor at most.
OTHER_REGISTERS, REGISTERS, THREADS, BLOCKS = 56, 65536, 2048, 24
#: Shared memory of a block that is no tile: mbarriers, and what the driver keeps.
RESERVED = 1536
#: Columns of C that a block of the kernel that adds up parts of K has.
SUMMED = 256


@dataclass(frozen=True, slots=True)
class Designs:
    """What the model looks at of schedules, an array each.

    Attributes:
        rows, cols, depth: of a block and of a step.
        held_deep: depth that all stages hold.
        stages: steps that can be on their way.
        threads, others: of a block: those that multiply, and producers.
        warp_rows, warp_cols: of C that the threads have that read shared memory together: a warp or a warpgroup.
        rate: multiply-adds of a multiprocessor in a cycle at most.
        fetched: by TMA: no thread copies.
        a_copy, b_copy: cycles of a multiprocessor for a thread's copy of an element.
        a_packed, b_packed: whether a kernel before lays the matrix out.
        parts, joined: of K; those that a cluster adds up.
        dealt: by stream-K.
        stays: 1 where blocks are persistent, 2 where warpgroups also take turns to store.
        staged: whether C is stored by TMA.
        width: elements of C that a thread stores at once.
        a_by_k, b_by_k: whether the matrix' lines lie along K.
        a_torn, b_torn: whether lines that TMA reads begin inside of a sector.
        high, wide: blocks of a cluster.
    """

    rows: Numbers
    cols: Numbers
    depth: Numbers
    held_deep: Numbers
    stages: Numbers
    threads: Numbers
    others: Numbers
    warp_rows: Numbers
    warp_cols: Numbers
    rate: Numbers
    fetched: Numbers
    a_copy: Numbers
    b_copy: Numbers
    a_packed: Numbers
    b_packed: Numbers
    parts: Numbers
    joined: Numbers
    dealt: Numbers
    stays: Numbers
    staged: Numbers
    width: Numbers
    a_by_k: Numbers
    b_by_k: Numbers
    a_torn: Numbers
    b_torn: Numbers
    high: Numbers
    wide: Numbers

    def but(self, **changes: Numbers) -> Designs:
        """The same with other columns."""
        return Designs(**{each.name: changes.get(each.name, getattr(self, each.name)) for each in fields(Designs)})


def designs(spec: GemmSpec, schedules: Sequence[Schedule], shape: Shape, machine: Machine) -> Designs:
    """Of schedules that can compute a product."""
    like = aligned(spec, shape)
    rows = [_row(spec, each, like, machine) for each in schedules]
    return Designs(*(np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)))


def aligned(spec: GemmSpec, shape: Shape) -> Shape:
    """Sizes that are as well aligned: a design's columns depend on nothing else of them."""
    m, n, k = shape
    unit = SECTOR // min(SECTOR, spec.dtype.size)
    return (
        gcd(m, unit) if spec.a_order == "col" else unit,
        gcd(n, unit) if spec.b_order == "row" else unit,
        gcd(k, unit),
    )


@lru_cache(maxsize=8192)
def _row(spec: GemmSpec, s: Schedule, shape: Shape, machine: Machine) -> tuple[float, ...]:
    (rows, cols), group = s.block_tile, s.group
    threads, fetched = group[0] * group[1] * s.sliced_k, s.by_warpgroups or s.tma
    if s.by_warpgroups:
        warps = max(1, threads // 128)
        warp_rows, warp_cols = (rows, cols / warps) if s.operands_swapped else (rows / warps, cols)
    elif s.by_warps:
        warp = (8, 4)
        warp_rows, warp_cols = s.tile[0] * warp[0], s.tile[1] * warp[1]
    else:
        warp_rows, warp_cols = s.tile
    copies = (0.0, 0.0) if fetched else tuple(_copy(spec, s, x, shape, machine) for x in "ab")
    torn = tuple(fetched and _torn(spec, s, x, shape) for x in "ab")
    ring = s.stages * s.block_k
    rate = machine.rate(s.atom, spec.dtype)
    return (
        *(
            rows,
            cols,
            s.round_depth,
            ring,
            s.stages / max(1, s.mbarrier),
            threads,
            s.producer_threads * s.by_warpgroups,
        ),
        *(warp_rows, warp_cols, rate, fetched, *copies, s.a.prepacked, s.b.prepacked, s.split_k, s.cluster_reduction),
        *(
            s.stream_k,
            s.persistent + s.ordered_epilogue,
            s.epilogue_stages,
            s.c_width,
            spec.a_order == "row",
            spec.b_order == "col",
            *torn,
            *s.cluster,
        ),
    )


def _copy(spec: GemmSpec, s: Schedule, name: str, shape: Shape, machine: Machine) -> float:
    """Cycles of a multiprocessor for an element that a thread copies to shared memory."""
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    if operand.memory != "local":
        return 0.0
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    whole = line % operand.width == 0 or spec.ld_multiple % operand.width == 0
    if operand.prepacked or (along and whole):
        return machine.copy / operand.width
    return machine.copy_single * (1.0 if along else machine.copy_across)


def _torn(spec: GemmSpec, s: Schedule, name: str, shape: Shape) -> bool:
    """Whether lines of a matrix that TMA reads begin inside of a sector."""
    m, n, k = shape
    by_k = ((spec.a_order if name == "a" else spec.b_order) == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    operand = s.a if name == "a" else s.b
    return not operand.prepacked and line * spec.dtype.size % SECTOR > 0


def _whole(count: Numbers, unit: Numbers) -> Numbers:
    return np.ceil(count / unit) * unit


def microseconds(spec: GemmSpec, d: Designs, shape: Shape, machine: Machine, products: int = 1) -> Numbers:
    """Of a product by each design."""
    return sum(account(spec, d, shape, machine, products).values(), np.zeros_like(d.rows))


def account(spec: GemmSpec, d: Designs, shape: Shape, machine: Machine, products: int = 1) -> dict[str, Numbers]:
    """The microseconds of a product by each design, by what they go to."""
    (m, n, k), size = shape, spec.dtype.size
    blocks = _whole(np.ceil(m / d.rows), d.high) * _whole(np.ceil(n / d.cols), d.wide) * products
    steps = np.ceil(np.ceil(k / d.parts) / d.depth)
    each = np.ceil(blocks * d.parts / machine.cores)
    even = np.where(d.dealt > 0, blocks / machine.cores, each)
    together = np.minimum(each, resident(spec, d, machine))
    multiply, fetch = _step(spec, d, together, machine)
    step = np.maximum(beside(multiply, fetch), machine.latency / np.maximum(1, d.stages - 1) / together)
    begin, end = machine.latency + machine.begin, _end(spec, d, shape, machine)
    rounds = np.maximum(1.0, even / together)
    # A block that stays fetches the next one's tiles while it stores.
    ends = np.where(
        d.stays > 0,
        begin + (rounds - 1) * end * SHOWN * (d.stays < 2) + end,
        rounds * (begin + end * (1 + together) / 2),
    )
    cycles = even * steps * step
    busy = (cycles + ends + (d.dealt > 0) * end) / machine.clock
    sums = np.where(d.parts > d.joined, products * m * n * 4.0 * d.parts / d.joined, 0.0)
    sums += (d.dealt > 0) * 2 * machine.cores * d.rows * d.cols * 4
    read, written = products * (m * k + k * n) * size, products * m * n * spec.result.size
    memory = _memory(read, written + sums, machine)
    return {
        "multiply-adds": even * steps * multiply / machine.clock,
        "tiles on their way": (cycles - even * steps * multiply) / machine.clock,
        "beginnings and ends of blocks": busy - cycles / machine.clock,
        "memory": beside(busy, memory) - busy,
        "packing": _packing(spec, d, shape, machine, products),
        "the sum of K's parts": _sum(d, shape, sums, machine, products),
        "the launch": np.full_like(busy, machine.launch),
    }


def resident(spec: GemmSpec, d: Designs, machine: Machine) -> Numbers:
    """Blocks that a multiprocessor has at once."""
    tiles = d.held_deep * (d.rows + d.cols) * spec.dtype.size
    shared = tiles + d.staged * d.rows * d.cols * spec.result.size / 2 + RESERVED
    registers = (d.rows * d.cols / d.threads * spec.accumulator.size / 4 + OTHER_REGISTERS) * d.threads + d.others * 32
    most = np.minimum(machine.shared / shared, REGISTERS / registers)
    return np.clip(np.floor(np.minimum(most, THREADS / (d.threads + d.others))), 1, BLOCKS)


def _step(spec: GemmSpec, d: Designs, together: Numbers, machine: Machine) -> tuple[Numbers, Numbers]:
    """Cycles of a multiprocessor to multiply a step's tiles, with the threads' own copies, and to fetch them."""
    size = spec.dtype.size
    volume = d.rows * d.cols * d.depth
    # Tiles are read from shared memory as often as there are warps beside one another.
    read = volume * (1 / d.warp_rows + 1 / d.warp_cols) * size / machine.shared_rate
    # A few warps alone don't keep the units busy.
    filled = np.minimum(1.0, (d.threads * together / machine.busy) ** 0.5)
    multiply = np.maximum(volume / (d.rate * filled), read)
    copied = d.depth * (d.rows * d.a_copy + d.cols * d.b_copy)
    lines = _lines(d.rows, d.a_by_k, LINE / size) * (1 + d.a_torn * machine.torn)
    lines += _lines(d.cols, d.b_by_k, LINE / size) * (1 + d.b_torn * machine.torn)
    multiply *= np.where((d.fetched > 0) & (d.threads > 256), machine.third, 1.0)
    return multiply + copied + machine.step / together, d.depth * size * lines / machine.fetch


def _lines(extent: Numbers, by_k: Numbers, line: float) -> Numbers:
    """What a side of a block comes to in whole lines of L2, where those lie along it."""
    return np.where(by_k > 0, extent, np.ceil(extent / line) * line)


def _end(spec: GemmSpec, d: Designs, shape: Shape, machine: Machine) -> Numbers:
    """Cycles to store a block of C or of the sums."""
    m, n, _ = shape
    line = n if spec.c_order == "row" else m
    high, wide = m / np.ceil(m / d.rows), n / np.ceil(n / d.cols)
    is_whole = (line % np.maximum(1, d.width) == 0) | (d.parts > d.joined)
    single = (d.staged == 0) & (~is_whole | (d.width == 1))
    each = np.where(
        d.staged > 0, spec.result.size / machine.store, np.where(single, machine.store_single, machine.store_element)
    )
    return high * wide * each


def _sum(d: Designs, shape: Shape, sums: Numbers, machine: Machine, products: int) -> Numbers:
    """Microseconds of the kernel that adds up parts of K, and of a cluster's own sum."""
    m, n, _ = shape
    groups = np.where(d.dealt > 0, np.minimum(m, machine.cores * d.rows), products * m) * -(-n // SUMMED)
    by_kernel = machine.launch + sums / machine.cached + groups * machine.sum_group / machine.cores / machine.clock
    return np.where(sums > 0, by_kernel, 0.0) + np.where(d.joined > 1, machine.meeting, 0.0)


def _packing(spec: GemmSpec, d: Designs, shape: Shape, machine: Machine, products: int) -> Numbers:
    m, n, k = shape
    laid = products * k * (m * d.a_packed + n * d.b_packed) * spec.dtype.size
    return np.where(laid > 0, machine.launch + 2 * laid / machine.packed, 0.0)


def _memory(read: float, written: Numbers, machine: Machine) -> Numbers:
    """Microseconds of what is read and written once; the less of it, the more lies in L2 already."""
    both = read + written
    missed = 1 / (1 + (machine.cache / both) ** 2)
    return missed * both / machine.memory + (1 - missed) * both / machine.cached


def beside(one: Numbers, other: Numbers) -> Numbers:
    """Of two things done at the same time; the more equal they are, the less one hides of the other."""
    most = np.maximum(one, other)
    return most * (1 + (np.minimum(one, other) / np.maximum(most, 1e-12)) ** SHARP) ** (1 / SHARP)
