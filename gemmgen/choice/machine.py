"""The constants of a GPU that the prior computes with: from what the device says of itself, or measured on it.

What a device says are its multiprocessors, clock, memory and L2; the rates of instructions follow from its compute
capability. `gemmgen tune --calibrate` measures the fields of `MEASURED`, which are kept with the device's records. The
other constants are cycles that a block, a copy or a store takes on any of these GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TypeVar, overload

import numpy as np

from gemmgen.choice.columns import Numbers
from gemmgen.ir.dtypes import F64, DType
from gemmgen.ir.target import Measured, Target, measured_on
from gemmgen.records import dataclass

Amount = TypeVar("Amount", float, Numbers)
#: Registers of a multiprocessor; threads and blocks of one at most; shared memory of a block that is no tile:
#: mbarriers, and what the driver keeps.
REGISTERS, THREADS, BLOCKS, RESERVED = 65536, 2048, 24, 1536
#: Registers of a thread at most.
MOST_REGISTERS = 255
#: Lanes of a warp; warp instructions of a multiprocessor in a cycle.
WARP, SCHEDULERS = 32, 4
#: Columns of C that a block of the kernel that adds up parts of K has.
SUMMED = 256
#: What is measured; each is said below.
MEASURED: tuple[str, ...] = ("memory", "launch", "wgmma", "mma", "fma")
#: The part of multiprocessors on which clusters of four find room: 120 of an H100's 132 are, 128 are not.
IN_FOURS = 0.91
#: Of the memory rate that a device states, what is reached; of L2, how much a product may take to be half in it.
REACHED, HELD = 0.95, 0.72
#: A device that says nothing of its clock (MHz), memory (bytes in a microsecond) or L2 (bytes).
CLOCK, MEMORY, L2 = 1700, 2_000_000, 40 << 20
#: Multiply-adds of a multiprocessor in a cycle by the compute capability: of float32; of 16-bit floats by `mma.sync`
#: and by `wgmma`; of float64 by `mma.sync` (CUDA C++ Programming Guide, arithmetic throughput; NVIDIA's papers on the
#: architectures).
RATES: Mapping[str, tuple[int, int, int, int]] = {
    "sm_75": (64, 512, 0, 2),
    "sm_80": (64, 1024, 0, 64),
    "sm_86": (128, 256, 0, 2),
    "sm_89": (128, 512, 0, 2),
    "sm_90": (128, 1024, 0, 128),
    "sm_90a": (128, 1024, 2048, 128),
    "sm_100": (128, 1024, 0, 64),
}
#: Of those, what kernels reach: by multiply-adds; by warps' instructions, whose operands pass registers; by
#: warpgroups', beside what the card has the power for.
OF_FMA, OF_MMA, OF_WGMMA = 0.94, 0.91, 0.935


@dataclass(frozen=True, slots=True)
class Machine:
    """The constants of a device.

    Attributes:
        cores: multiprocessors.
        in_fours: those on which clusters of four blocks find room.
        clock: cycles in a microsecond.
        shared: bytes of shared memory of a block at most.
        memory: bytes from and to memory in a microsecond.
        cached: the same from and to L2.
        cache: bytes of a product of which half is found in L2.
        launch, another, packing: microseconds of a kernel, of one after it (or of a cluster's blocks) that adds up
            parts of K, and of one before it that packs.
        wgmma, mma: multiply-adds of 16-bit elements of a multiprocessor in a cycle; of others by their size.
        mma_f64: the same of float64.
        fma: the same of float32.
        fix_up: cycles that multiprocessors wait for one another's partial sums in stream-K.
        edge_f64: how much longer a block of float64 takes whose last rows lie outside, for which copies fill in zeros.
        fetch: bytes of the lines that a multiprocessor asks L2 for in a cycle, of what a cluster shares its part.
        arrive: bytes that come to a multiprocessor in a cycle.
        alone: the same from memory, where others ask for little.
        fetched_aside: how much of the shorter of multiplying and fetching is hidden: all, were it infinite.
        apart: what L2 gives all multiprocessors, for each.
        misaligned: how much more a line costs that begins inside of a sector; once more a TMA tile's that begins inside
            of a line of L2.
        asked: the same of the former for each block that asks for such a line at the same time.
        outside, queued: cycles of a step for each line of a TMA tile that lies outside of a matrix; the power by which
            they grow with the blocks that ask for it at the same time.
        earlier: whether the last block begins earlier where C is not read, to end where C does. Kernels of before
            2026-11-27 never did.
        latency: cycles from asking for a tile until it is there, while others are asked for.
        met: how many more where a cluster shares it: all of its blocks must have room.
        read_fma, read_mma, read_mma_f64, read_wgmma: bytes of shared memory that warps read in a cycle, each operand
            once for all that read it together; of float64 by single elements.
        issued: instructions for each multiply-add up to which `fma` is reached: those of 8x8 sums, read by vectors.
        busy: threads that keep a multiprocessor's units busy, with 64 sums each.
        busy_copying: warps of a scheduler that keep it busy copying, beside multiply-adds of their own.
        spilled: times as long where a thread of multiply-adds has no register for some of what it holds.
        own_work, crowd: powers: fewer threads do if each has more sums; how fast fewer ones are slower.
        step, paired: cycles to hand over a step's tiles, where no other block is there; how many more in a cluster.
        rs_step: cycles of a step at least, by a single block, where A or B comes from registers (RS), as it is stored.
        begin: cycles of a block until its first tile is there.
        stay, meet: how many more of a persistent one, and of one in a cluster.
        between: cycles of a multiprocessor from a persistent block's tile of C to its next; as many again are shared by
            the blocks that it has at once.
        own_fetched, own_copied: cycles of its begin and end for each sum of a thread: after TMA, where a thread has 64,
            and after threads' copies; of matrix instructions, where a thread has 64.
        own_more, own_more_mma: the powers by which the former, and those of matrix instructions, grow with a thread's
            sums.
        aside: how much of storing other blocks hide, for each.
        store: bytes of C that a multiprocessor stores in a cycle by TMA.
        store_vector, store_single: cycles for an element that threads store, beside neighbours and by itself.
        store_vector_mma, store_single_mma: the same where it comes from matrix instructions.
        store_pair, store_apart: the same of a warpgroup's pairs, as they lie in registers, and of their elements alone.
        store_line: the same of warps that store line by line, by way of shared memory.
        slice: cycles for each element of C and further slice of sliced-K.
        copy: cycles of a multiprocessor for a vector that threads copy to shared memory.
        copy_sliced: times as much where slices share a block: each waits for what the others copy.
        copy_single, copy_conflicts: the same of an element by itself; of one of tiles whose lines are not apart, so
            that lanes write to the same bank.
        through: times as much for elements that go through registers.
        load: cycles of a multiprocessor for a warp's load from global memory.
        own_line: the same for each line that it reads where lanes read lines of their own.
        begin_loads: cycles of a block of lanes and slices along K beside its loads and sums.
        waits, waits_near: cycles until what its work-items have asked for at once is there; the same where neighbours
            read the same lines along K.
        slice_after: cycles to add up a work-item's sums of each further slice.
        conversion: instructions that make an element of another type.
        work: cycles of each of them beside matrix instructions and copies.
        packed: bytes in a microsecond that a kernel lays out.
        sum_group: cycles of a block of the kernel that adds up parts of K.
        joining: of those, what work-items of a cluster take that add up two parts.
        plane: microseconds for each of those parts.
        hidden: how much of the shorter of multiprocessors and memory is hidden: all, were it infinite.
    """

    cores: int
    in_fours: int
    clock: float
    shared: float
    memory: float
    cached: float
    cache: float
    wgmma: float
    mma: float
    mma_f64: float
    fma: float
    fix_up: float = 10000.0
    edge_f64: float = 0.5
    launch: float = 0.294
    another: float = 1.1
    packing: float = 1.58
    fetch: float = 44.0
    arrive: float = 100.0
    alone: float = 20.0
    fetched_aside: float = 5.5
    apart: float = 40.0
    misaligned: float = 0.27
    asked: float = 0.0064
    outside: float = 0.29
    queued: float = 0.75
    earlier: bool = True
    latency: float = 2080.0
    met: float = 500.0
    read_fma: float = 165.0
    read_mma: float = 58.5
    read_mma_f64: float = 115.0
    read_wgmma: float = 128.0
    issued: float = 1.0625
    busy: float = 424.0
    busy_copying: float = 2.5
    spilled: float = 1.6
    own_work: float = 0.588
    crowd: float = 0.386
    step: float = 27.0
    paired: float = 20.0
    rs_step: float = 850.0
    begin: float = 1080.0
    stay: float = 1000.0
    meet: float = 600.0
    between: float = 300.0
    own_fetched: float = 46.0
    own_more: float = 0.2
    own_copied: float = 53.9
    own_more_mma: float = -0.5
    aside: float = 0.53
    store: float = 46.0
    store_vector: float = 0.113
    store_single: float = 0.9
    store_vector_mma: float = 0.311
    store_single_mma: float = 0.537
    store_pair: float = 0.45
    store_apart: float = 1.2
    store_line: float = 0.15
    slice: float = 0.0642
    copy: float = 0.168
    copy_sliced: float = 1.2
    copy_single: float = 0.11
    copy_conflicts: float = 0.42
    through: float = 4.5
    load: float = 2.65
    own_line: float = 0.51
    begin_loads: float = 2300.0
    waits: float = 330.0
    waits_near: float = 219.0
    slice_after: float = 51.0
    conversion: float = 2.3
    work: float = 1.5
    packed: float = 2772000.0
    sum_group: float = 281.0
    joining: float = 0.65
    plane: float = 0.0108
    hidden: float = 2.95

    def rate(self, atom: str, dtype: DType) -> float:
        """Multiply-adds of a multiprocessor in a cycle by an instruction, at most."""
        if dtype == F64:
            return self.mma_f64 / (2 if atom == "fma" else 1)
        if atom == "fma":
            return self.fma * 4 / max(4, dtype.size)
        return (self.wgmma if atom.startswith("wgmma") else self.mma) * 2 / dtype.size

    def passed_on(self, size: Amount) -> Amount:
        """Microseconds of bytes that a kernel writes and the next one reads, by way of L2."""
        return 2 * size / self.cached

    def memory_times(self, both: Amount) -> tuple[Amount, Amount]:
        """Microseconds of bytes that are read and written once, from memory and from L2: of few, more lie in L2."""
        missed = both / (1 + (self.cache / both) ** 2)
        return missed / self.memory, (both - missed) / self.cached


@overload
def beside(one: float, other: float, sharp: float) -> float: ...
@overload
def beside(one: Numbers, other: Numbers | float, sharp: float | Numbers) -> Numbers: ...
def beside(one: Numbers | float, other: Numbers | float, sharp: float | Numbers) -> Numbers | float:
    """Of two things done at the same time, which are not both nothing; the more equal they are, the less one hides of
    the other.
    """
    most: Numbers = np.maximum(one, other)
    return most * (1 + (np.minimum(one, other) / most) ** sharp) ** (1 / sharp)


def machine_of(target: Target) -> Machine:
    """The constants of a device: measured, or as it says, or as its architecture has them."""
    return _machine(target, measured_on(target))


@cache
def _machine(target: Target, measured: Measured) -> Machine:
    known = {name: value for name, value in measured if name in MEASURED}
    return replace(derived(target), **known)  # type: ignore[arg-type]


@cache
def derived(target: Target) -> Machine:
    """The constants of a device that nobody has measured."""
    fma, mma, wgmma, mma_f64 = RATES.get(target.name, RATES["sm_80"])
    clock, memory = target.clock or CLOCK, REACHED * (target.memory_rate or MEMORY)
    return Machine(
        cores=target.cores,
        in_fours=int(IN_FOURS * target.cores) // 4 * 4,
        clock=clock,
        shared=target.local_bytes,
        memory=memory,
        cached=64.0 * target.cores * clock,
        cache=HELD * (target.cache_bytes or L2),
        wgmma=OF_WGMMA * wgmma,
        mma=OF_MMA * mma,
        mma_f64=OF_MMA * mma_f64,
        fma=OF_FMA * fma,
    )
