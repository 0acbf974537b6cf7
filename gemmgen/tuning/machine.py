"""The constants of a GPU that the prior computes with: from what the device says of itself, or measured on it.

What a device says are its multiprocessors, clock, memory and L2; the rates of instructions follow from its compute
capability. `gemmgen tune --calibrate` measures the fields of `MEASURED`, which are kept with the device's records. The
other constants are cycles that a block, a copy or a store takes on any of these GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from gemmgen.cpu import machine as cpu
from gemmgen.ir.dtypes import DType
from gemmgen.ir.target import Target

#: What is measured; each is said below.
MEASURED: tuple[str, ...] = ("memory", "launch", "wgmma", "mma", "fma")
#: All that files of records may hold: of GPUs, and of CPUs.
KEPT = (*MEASURED, *cpu.MEASURED)
#: Of what devices promise, what is reached of a memory's rate; of L2, how much a product may take to be half in it.
REACHED, HELD = 0.9, 0.8
#: A device that says nothing of its clock (MHz), memory (bytes in a microsecond) or L2 (bytes).
CLOCK, MEMORY, L2 = 1700, 2_000_000, 40 << 20
#: Multiply-adds of a multiprocessor in a cycle by the compute capability: of float32, and of 16-bit floats by
#: `mma.sync` and by `wgmma` (CUDA C++ Programming Guide, arithmetic throughput; NVIDIA's papers on the architectures).
RATES: Mapping[str, tuple[int, int, int]] = {
    "sm_75": (64, 512, 0),
    "sm_80": (64, 1024, 0),
    "sm_86": (128, 256, 0),
    "sm_89": (128, 512, 0),
    "sm_90": (128, 1024, 0),
    "sm_90a": (128, 1024, 2048),
    "sm_100": (128, 1024, 0),
}
#: Of those, what kernels reach: by multiply-adds; by warps' instructions, whose operands pass registers; by
#: warpgroups', beside what the card has the power for.
OF_FMA, OF_MMA, OF_WGMMA = 0.92, 0.78, 0.85


@dataclass(frozen=True, slots=True)
class Machine:
    """The constants of a device.

    Attributes:
        cores: multiprocessors.
        clock: cycles in a microsecond.
        shared: bytes of shared memory of a block at most.
        memory: bytes from and to memory in a microsecond.
        cached: the same from and to L2.
        cache: bytes of a product of which half is found in L2.
        launch: microseconds of a kernel.
        wgmma, mma: multiply-adds of 16-bit elements of a multiprocessor in a cycle; of others by their size.
        fma: the same of float32.
        fetch: bytes that L2 gives a multiprocessor in a cycle.
        shared_rate: bytes of shared memory that warps read in a cycle, each operand once for all that read it together.
        latency: cycles from asking for a tile until it is there.
        begin: cycles of a block beside the wait for its first tile.
        step: cycles to hand over a step's tiles, where no other block is there.
        busy: threads that keep a multiprocessor's units busy.
        third: how much longer steps take where three warpgroups share the units.
        store: bytes of C that a multiprocessor stores in a cycle by TMA.
        store_element, store_single: cycles for an element that threads store, beside neighbours and by itself.
        copy: cycles of a multiprocessor for a vector that threads copy to shared memory.
        copy_single, copy_across: the same of an element by itself; times as much where its tile is transposed.
        torn: how much slower L2 gives lines that begin inside of a sector.
        packed: bytes in a microsecond that a kernel lays out.
        sum_group: cycles of a block of the kernel that adds up parts of K.
        meeting: microseconds of a cluster that adds up parts of K.
    """

    cores: int
    clock: float
    shared: float
    memory: float
    cached: float
    cache: float
    wgmma: float
    mma: float
    fma: float
    launch: float = 1.0
    fetch: float = 40.0
    shared_rate: float = 190.0
    latency: float = 1500.0
    begin: float = 25.0
    step: float = 62.0
    busy: float = 246.0
    third: float = 1.14
    store: float = 78.0
    store_element: float = 0.4
    store_single: float = 0.75
    copy: float = 0.33
    copy_single: float = 0.32
    copy_across: float = 0.52
    torn: float = 1.04
    packed: float = 2.4e6
    sum_group: float = 195.0
    meeting: float = 0.7

    def rate(self, atom: str, dtype: DType) -> float:
        """Multiply-adds of a multiprocessor in a cycle by an instruction, at most."""
        if atom == "fma":
            return self.fma * 4 / max(4, dtype.size)
        return (self.wgmma if atom.startswith("wgmma") else self.mma) * 2 / dtype.size


#: What was measured on a device, by its target.
_measured: dict[Target, Mapping[str, float]] = {}


def calibrate(target: Target, measured: Mapping[str, float]) -> None:
    """From now on, constants of a device are those that were measured on it."""
    if "vectors" in target.features:
        cpu.calibrate(target, measured)
        return
    known = {key: value for key, value in measured.items() if key in MEASURED and value > 0}
    if _measured.get(target, {}) != known:
        _measured[target] = known
        machine_of.cache_clear()


@cache
def machine_of(target: Target) -> Machine:
    """The constants of a device: measured, or as it says, or as its architecture has them."""
    fma, mma, wgmma = RATES.get(target.name, RATES["sm_80"])
    clock, memory = target.clock or CLOCK, REACHED * (target.memory_rate or MEMORY)
    derived = Machine(
        cores=target.cores,
        clock=clock,
        shared=target.local_bytes,
        memory=memory,
        cached=64.0 * target.cores * clock,
        cache=HELD * (target.cache_bytes or L2),
        wgmma=OF_WGMMA * wgmma,
        mma=OF_MMA * mma,
        fma=OF_FMA * fma,
    )
    return replace(derived, **_measured.get(target, {}))  # type: ignore[arg-type]
