"""What a step and a block of a design take on a GPU of CUDA whatever the sizes of the product: the part of the prior
(`gemmgen.choice.prior`) that is computed once for a class of products.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from gemmgen.choice.columns import (
    FMA,
    LINE,
    MMA,
    WARPGROUP_ROWS,
    WGMMA,
    Designs,
    Numbers,
    designs,
)
from gemmgen.choice.epilogue import PROLOGUE, of_prologue, of_sums
from gemmgen.choice.machine import (
    BLOCKS,
    MOST_REGISTERS,
    REGISTERS,
    RESERVED,
    SCHEDULERS,
    THREADS,
    WARP,
    Machine,
    beside,
)
from gemmgen.ir.dtypes import F64, DType
from gemmgen.spec import GemmSpec

#: Registers of a thread beside its sums; and beside those and its parts of A and B, where it multiplies by itself, with
#: those for each matrix that is copied as it is stored.
OTHER_REGISTERS, ADDRESSES, ADDRESSES_OF_EACH = 56, 24, 3
#: Registers that threads are given at once; threads of two warpgroups.
GIVEN, TWO = 8, 256
#: The part of a line's cost by TMA that it has where threads copy it: their own instructions are counted apart.
BESIDE_COPIES = 0.25


class Rates(NamedTuple):
    """What the model takes of designs: pairs in rows and in columns of C, or of A and of B, then single numbers.

    Attributes:
        block: rows and columns of a block.
        cluster: blocks of a cluster above one another, and beside one another.
        shared: the part of the lines of A, and of B, that each block of a cluster asks for.
        laid: rows of a block of A, and columns of one of B, where a kernel before lays these out; otherwise 0.
        laid_lines: lines of L2 of a step's tiles of those.
        loose: 1 where A, and B, is read as it is stored, otherwise 0.
        boxes: lines of L2 that are as wide as a block of A, and of B.
        parted: how much more a line of a TMA tile costs that begins inside of another.
        depth: of a step.
        lines: the same in lines of L2.
        band: rows of blocks that run at the same time.
        multiply: cycles to multiply a step's tiles, or to read them from shared memory, with all units busy.
        filled: the part of those that the threads of one block keep busy.
        copy: cycles to copy a step's tiles of whole blocks by threads.
        copying: the part of those that copy which the threads of one block keep busy: of matrix instructions a warp of
            each scheduler does.
        crowded: the power by which fewer of them are slower.
        handed: cycles to hand over a step's tiles where no other block is there.
        fetch: cycles until L2 has given a line; where all ask for theirs, `fetch_all`.
        fetch_all: the same of a line of each block, for each that a multiprocessor has in the mean.
        arrive: cycles until a step's tiles have come.
        wait: cycles of a step, by a single block, until what it has asked for is there, and in registers.
        fetched: 1 where TMA reads, otherwise 0.
        store: cycles to store an element of C, or of sums, whose lines are multiples of what a thread stores at once.
        torn: how many more where they are not.
        width: elements of C that a thread stores at once.
        alone: cycles to store an element by itself, where operands are swapped; otherwise 0.
        slices: cycles to add up what slices of sliced-K have.
        begin: cycles of a block's beginning.
        free: how much of storing each other block hides: none where blocks stay.
        turns: how much of it warpgroups hide that store one after the other.
        cores: multiprocessors that blocks find room on.
        resident: blocks that a multiprocessor has at once.
        waiting: threads of a block that gathers with others where a kernel before ends; infinite where none do.
        joined: parts of K that a cluster adds up.
        joining: what that takes, where work-items multiply, of the cycles of a kernel that does it.
        dealt_bytes: those of sums, where blocks are dealt out.
        stays, dealt, swapped: whether blocks are persistent; are dealt out by stream-K; have operands swapped.
    """

    block: Numbers
    cluster: Numbers
    shared: Numbers
    laid: Numbers
    laid_lines: Numbers
    loose: Numbers
    boxes: Numbers
    parted: Numbers
    depth: Numbers
    lines: Numbers
    band: Numbers
    multiply: Numbers
    filled: Numbers
    copy: Numbers
    copying: Numbers
    crowded: Numbers
    handed: Numbers
    fetch: Numbers
    fetch_all: Numbers
    arrive: Numbers
    wait: Numbers
    fetched: Numbers
    store: Numbers
    torn: Numbers
    width: Numbers
    alone: Numbers
    slices: Numbers
    begin: Numbers
    free: Numbers
    turns: Numbers
    cores: Numbers
    resident: Numbers
    waiting: Numbers
    joined: Numbers
    joining: Numbers
    dealt_bytes: Numbers
    stays: npt.NDArray[np.bool_]
    dealt: npt.NDArray[np.bool_]
    swapped: npt.NDArray[np.bool_]


class Weighed(NamedTuple):
    """Designs with their rates.

    Attributes:
        parts: of K.
        packing: the numbers of those for which a kernel before lays matrices out.
        deals: whether any blocks are dealt out.
        adds: whether any sums are added up: those of K's parts, or of blocks that are dealt out.
        copies: whether any threads copy, or make elements.
        widest: elements of C that a thread stores at once, at most.
    """

    rates: Rates
    parts: Numbers
    packing: npt.NDArray[np.intp]
    deals: bool
    adds: bool
    copies: bool
    widest: int

    def first(self, count: int) -> Weighed:
        """So many of them, none with K in parts."""
        rates = Rates._make(each[..., :count] for each in self.rates)
        packing = self.packing[: int(np.searchsorted(self.packing, count))]
        return Weighed(rates, self.parts[:count], packing, self.deals, self.deals, self.copies, self.widest)


def weighed(spec: GemmSpec, own: Numbers, machine: Machine) -> Weighed:
    """A table of designs with their rates."""
    d = designs(own)
    rates, deals = _rates(spec, d, machine), bool(d.dealt.any())
    adds = deals or bool((d.parts > 1).any())
    packing, copies = np.flatnonzero(d.packed.any(0)), bool(rates.copy.any())
    return Weighed(rates, d.parts, packing, deals, adds, copies, int(d.width.max()))


def _rates(spec: GemmSpec, d: Designs, c: Machine) -> Rates:
    (rows, cols), size, wide = d.block, spec.dtype.size, LINE / spec.dtype.size
    area, units = rows * cols, _of_units(spec.dtype, c)[:, d.unit.astype(np.intp)]
    (multiply, filled), (*_, vector, single) = _multiplying(spec, d, units, c), units
    line = LINE * np.where(d.fetched > 0, 1.0, BESIDE_COPIES)
    swapped = (d.unit == WGMMA) & ((d.together[0] != WARPGROUP_ROWS) | (d.together[1] != cols))
    in_cluster, dealt, stays = d.cluster.prod(0), d.dealt > 0, d.stays > 0
    cores = np.where(in_cluster > 2, c.in_fours, c.cores)
    store, torn = _stores(spec, d, vector, single, swapped, c)
    return Rates(
        block=d.block,
        cluster=d.cluster,
        shared=_shared(d),
        laid=d.block * d.packed,
        laid_lines=d.packed * np.ceil(d.block * d.depth / wide),
        loose=1 - d.packed,
        boxes=np.ceil(d.block / wide),
        parted=c.misaligned * d.begins,
        depth=d.depth,
        lines=np.ceil(d.depth / wide),
        band=np.maximum(1, d.band),
        multiply=multiply,
        filled=filled,
        copy=_copies(spec, d, c),
        copying=d.threads / (SCHEDULERS * WARP) / np.where(d.unit == FMA, c.busy_copying, 1.0),
        crowded=np.where(d.unit == FMA, c.crowd, 1.0),
        handed=c.step + c.paired * (in_cluster > 1),
        fetch=line / c.fetch,
        fetch_all=LINE / c.apart * cores / c.cores,
        arrive=d.block.sum(0) * d.depth * size / LINE / c.arrive * line,
        wait=np.maximum(_waits(d, in_cluster, c), c.rs_step * d.rs_as_stored),
        fetched=d.fetched,
        store=store,
        torn=torn,
        width=d.width,
        alone=np.where(swapped, single, 0.0),
        slices=c.slice * (d.slices - 1) * area,
        begin=c.begin + _own(d, c) + c.stay * d.stays + c.meet * (in_cluster > 1),
        free=np.where(stays, 0.0, c.aside),
        turns=c.aside * (d.turns - 1),
        cores=cores,
        resident=_resident(spec, d, c),
        waiting=_waiting(d),
        joined=d.joined,
        joining=np.where(d.unit == FMA, c.joining, 0.0),
        dealt_bytes=np.where(dealt, 2 * c.cores * area * spec.accumulator.size, 0.0),
        stays=stays,
        dealt=dealt,
        swapped=swapped,
    )


def _shared(d: Designs) -> Numbers:
    """The part of the lines of A, and of B, that each block of a cluster asks for. Two blocks beside one another save
    nothing of A: on an H100 and an H200 they take 1.01 of the time of two that share nothing, in the mean.
    """
    above, beside_one_another = d.cluster
    return np.array((np.where(beside_one_another > 2, 1 / beside_one_another, 1.0), 1 / above))


def _waits(d: Designs, in_cluster: Numbers, c: Machine) -> Numbers:
    """Cycles of a step, by a single block, until what it has asked for is there."""
    each = (c.latency + c.met * (in_cluster > 1)) / np.maximum(0.5, d.stages - 1)
    return np.where(d.stages > 1, each, 0.0)


def _stores(
    spec: GemmSpec, d: Designs, vector: Numbers, single: Numbers, swapped: npt.NDArray[np.bool_], c: Machine
) -> tuple[Numbers, Numbers]:
    """Cycles to store an element of C; and how many more where its lines are no multiples of what a thread stores at
    once.
    """
    of_warpgroups, by_tma = d.unit == WGMMA, d.staged > 0
    by_lines = ((of_warpgroups & ~swapped) | (d.unit == MMA)) & ~by_tma & (d.width == 1) & (d.slices == 1)
    in_pairs = of_warpgroups & (d.width == 2)
    by_vectors = np.where(in_pairs & ~swapped, c.store_pair, vector)
    by_threads = np.where(by_lines, c.store_line, np.where(d.width > 1, by_vectors, single))
    alone = np.where(in_pairs, c.store_apart, single)
    store = np.where(by_tma, spec.result.size / c.store, by_threads)
    return store, np.where(by_tma, 0.0, alone - by_threads)


def _own(d: Designs, c: Machine) -> Numbers:
    """Cycles of a block's beginning and end that a thread's sums take."""
    # Three warpgroups begin and end no sooner than two that have the same block.
    sums = np.where(d.unit == WGMMA, np.maximum(d.sums, d.block.prod(0) / TWO), d.sums)
    copied = c.own_copied * np.where(d.unit == MMA, (sums / 64) ** c.own_more_mma, 1.0)
    found: Numbers = np.where(d.fetched > 0, c.own_fetched * (sums / 64) ** c.own_more, copied) * sums
    return found


def _multiplying(spec: GemmSpec, d: Designs, units: Numbers, c: Machine) -> tuple[Numbers, Numbers]:
    """Cycles to multiply a step's tiles, or to read them from shared memory, with all units busy; and the part of those
    that the threads of one block keep busy.
    """
    peak, reads, busy, *_ = units
    (rows, cols), volume = d.block, d.block.prod(0) * d.depth
    # Tiles are read from shared memory as often as there are instructions beside one another; TMA writes them there.
    passes = 1 / d.together[0] + 1 / d.together[1] + (1 / rows + 1 / cols) * (d.unit == WGMMA)
    # A few warps don't keep the units busy; those whose threads have more sums each do so sooner.
    enough = busy * (64 / d.sums) ** c.own_work
    of_peak, of_reads = volume / peak, volume * passes * spec.dtype.size / reads
    # Loads from shared memory take the place of multiply-adds.
    of_peak *= np.where(d.unit == FMA, np.maximum(1, (1 + d.loads / d.sums) / c.issued), 1.0)
    # Reads of float64 take nearly as long as its instructions.
    multiply = beside(of_peak, of_reads, c.hidden) if spec.dtype == F64 else np.maximum(of_peak, of_reads)
    multiply *= np.where((d.unit == FMA) & (_registers(spec, d) > MOST_REGISTERS), c.spilled, 1.0)
    return multiply + volume * of_sums(spec, d.depth), d.threads / enough


def _copies(spec: GemmSpec, d: Designs, c: Machine) -> Numbers:
    """Cycles to copy a step's tiles of whole blocks by threads."""
    if spec.dtype == F64:
        # Its instructions take so long that copies find room beside them.
        return np.zeros(d.depth.shape)
    # Elements of fewer than 4 bytes that are copied one by one go through registers.
    alone = np.where(d.across > 1, c.copy_conflicts, c.copy_single)
    each = d.block * np.where(d.copy < 1, d.copy * c.copy, alone * (c.through if spec.dtype.size < 4 else 1.0))
    # What is stored otherwise goes through registers, unless a kernel before has laid it out.
    each_element = [_conversions(spec, x, d.unit == WGMMA) for x in "ab"]
    made = c.conversion * np.array(each_element) * c.work / SCHEDULERS / WARP
    of_a, of_b = d.depth * (each + np.where(d.packed > 0, 0.0, d.block * made))
    return cast("Numbers", (of_a + of_b) * np.where(d.slices > 1, c.copy_sliced, 1.0))


def _resident(spec: GemmSpec, d: Designs, machine: Machine) -> Numbers:
    """Blocks that a multiprocessor has at once."""
    shared = d.held * spec.dtype.size + d.staged * d.block[0] * d.block[1] * spec.result.size / 2 + RESERVED
    each = np.ceil(np.minimum(_registers(spec, d), MOST_REGISTERS) / GIVEN) * GIVEN
    most_each = REGISTERS / (np.maximum(1, d.min_blocks) * d.threads)
    each = np.where(d.min_blocks > 0, np.minimum(each, np.floor(most_each / GIVEN) * GIVEN), each)
    registers = each * d.threads + d.producers * 32
    most = np.minimum(machine.shared / shared, REGISTERS / registers)
    found: Numbers = np.floor(np.minimum(most, THREADS / (d.threads + d.producers)))
    return np.minimum(np.maximum(found, 1), BLOCKS)


def _registers(spec: GemmSpec, d: Designs) -> Numbers:
    """Those that a thread asks for, more than it can have or not."""
    # With K in parts, what a work-item copies has addresses of its own: of whole lines along K compilers know the
    # distances. So it has beside more than 64 sums: 8x12 take 192 to 236 registers (nvcc 13.0 and 13.2), here 194.
    own_addresses = (d.parts > 1) | (d.sums > 64)
    as_stored = 1 - d.packed
    addresses = own_addresses * (d.block * as_stored).sum(0) * d.depth * (1 - d.fetched) / d.threads
    addresses += ADDRESSES + ADDRESSES_OF_EACH * as_stored.sum(0)
    other = np.where(d.unit == FMA, addresses + d.fragment_depth * d.together.sum(0), OTHER_REGISTERS)
    found: Numbers = d.sums * spec.accumulator.size / 4 + other
    return found


def _waiting(d: Designs) -> Numbers:
    """Threads of a block that gathers behind another kernel. Tables show it where work-items multiply; hardly where
    warpgroups do.
    """
    gathers = (d.unit == FMA) & (d.dealt == 0) & (d.stays == 0)
    return np.where(gathers, d.threads + d.producers, np.inf)


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
    rate = c.rate("mma", dtype)
    # Instructions of float64 take so long that a warp of each scheduler keeps the units busy.
    read_mma, busy_mma = (c.read_mma_f64, SCHEDULERS * WARP) if dtype == F64 else (c.read_mma, c.busy)
    return np.array(
        (
            (c.rate("fma", dtype), c.read_fma, c.busy, c.store_vector, c.store_single),
            (rate, read_mma, busy_mma, c.store_vector_mma, c.store_single_mma),
            (c.rate("wgmma", dtype), c.read_wgmma, 1.0, c.store_vector_mma, c.store_single_mma),
        )
    ).T
