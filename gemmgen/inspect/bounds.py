"""Occupancy, what no schedule of these instructions can exceed, what tiles ask of caches. Nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmgen.banks import LocalAccess
from gemmgen.inspect.code import Instruction, Resources
from gemmgen.inspect.machine import Figures, Machine, Port
from gemmgen.schedule import Schedule
from gemmgen.schedule.dpas import BLOCK_2D_LANES
from gemmgen.spec import GemmSpec


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many threads (waves) can be resident.

    Attributes:
        threads: per EU, SM or SIMD.
        most: that it holds.
        limit: what keeps it from holding more; empty if nothing does.
    """

    threads: float
    most: int
    unit: str
    limit: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The share of the device's peak that can't be exceeded.

    Attributes:
        shares: what each part allows: `issue slots`, `local memory`, `memory`; None where it is not known.
        scratch: loads and stores of scratch memory in the loop, whose time no part counts.
    """

    shares: dict[str, float | None]
    scratch: int = 0

    @property
    def share(self) -> float | None:
        """The least; None where it says nothing: where issue slots are not known, and where nothing that is counted
        limits a loop that waits for scratch memory.
        """
        if self.shares.get("issue slots") is None:
            return None
        least = min(x for x in self.shares.values() if x is not None)
        return None if self.scratch and least == 1 else least

    @property
    def limit(self) -> str:
        """The part that allows least."""
        known = {name: x for name, x in self.shares.items() if x is not None}
        if self.share is None:
            return ""
        return min(known, key=lambda name: known[name]) if min(known.values()) < 1 else "nothing"


# --- occupancy ------------------------------------------------------------------------------------


def occupancy(machine: Machine, resources: Resources) -> Occupancy | None:
    """What registers, local memory and the group's size leave room for; None where they are not known."""
    rules = {"intel": _intel, "nvidia": _nvidia, "amd": _amd}
    return rules[machine.vendor](machine.figures, resources)


def _least(limits: dict[str, float], most: float, unit: str) -> Occupancy:
    name = min(limits, key=lambda key: limits[key])
    return Occupancy(limits[name], int(most), unit, name if limits[name] < most else "")


def _intel(f: Figures, r: Resources) -> Occupancy | None:
    if f.threads is None or f.registers is None or r.registers is None or r.lanes is None:
        return None
    limits = {"registers": float(int(f.threads * f.registers // max(r.registers, 1)))}
    if r.group is not None and f.local_cores is not None:
        threads = -(-r.group // r.lanes)
        groups = f.local_cores * limits["registers"] // threads
        limits["group size"] = groups * threads / f.local_cores
        if r.local_bytes and f.local_bytes is not None:
            size = f.local_granule or 1
            while size < r.local_bytes:
                size *= 2
            limits["local memory"] = f.local_bytes // size * threads / f.local_cores
    limits = {name: min(limit, f.threads) for name, limit in limits.items()}
    return _least(limits, f.threads, "threads per EU")


def _nvidia(f: Figures, r: Resources) -> Occupancy | None:
    if f.threads is None or f.registers is None or r.registers is None or f.register_granule is None:
        return None
    per_warp = -(-max(r.registers, 1) * 32 // f.register_granule) * f.register_granule
    # A quarter of the registers belongs to each of four schedulers.
    warps = f.registers / 4 // per_warp * 4
    limits = {"registers": min(warps, f.threads)}
    if r.group is not None:
        block = -(-r.group // 32)
        limits["registers"] = min(warps // block * block, f.threads)
        limits["group size"] = f.threads // block * block
        if f.groups is not None:
            limits["groups per SM"] = min(f.groups * block, f.threads)
        if r.local_bytes and f.local_bytes is not None:
            taken = -(-r.local_bytes // 128) * 128 + (f.local_reserved or 0)
            limits["local memory"] = min(f.local_bytes // taken * block, f.threads)
    return _least(limits, f.threads, "warps per SM")


def _amd(f: Figures, r: Resources) -> Occupancy | None:
    if None in (f.threads, f.registers, f.register_granule, f.simds) or r.registers is None or r.lanes is None:
        return None
    most, granule, simds = f.threads or 0, f.register_granule or 1, f.simds or 1
    taken = -(-max(r.registers, 1) // granule) * granule
    limits = {"registers": min((f.registers or 0) // taken, most)}
    if r.group is not None and r.local_bytes and f.local_bytes is not None:
        waves = -(-r.group // r.lanes)
        # From gfx10 on a group may use the local memory of two CUs, and their SIMDs.
        pair = 2 if simds == 2 else 1
        groups = f.local_bytes * pair // (-(-r.local_bytes // 512) * 512)
        limits["local memory"] = min(-(-groups * waves // (simds * pair)), most)
    found = _least(limits, most, "waves per SIMD")
    if r.occupancy is None or r.occupancy == found.threads:
        return found
    return Occupancy(float(r.occupancy), int(most), found.unit, "as clang says")


# --- the bound ------------------------------------------------------------------------------------


def issue_share(
    machine: Machine, lanes: int, always: Sequence[Instruction], fmas: int, threads: float | None
) -> float | None:
    """What ports leave for multiply-adds, if other threads fill every gap.

    Args:
        always: the instructions that each round of the loop runs.
        fmas: of a round, all lanes together.
        threads: occupancy.
    """
    flops = machine.figures.flops_per_clock
    if flops is None or not machine.ports or not fmas:
        return None
    ideal = fmas / (flops / 2)
    ports = [p for p in machine.ports if p.most_threads is None or (threads is not None and threads <= p.most_threads)]
    return ideal / max(ideal, *(_clocks(port, lanes, always) for port in ports))


def _clocks(port: Port, lanes: int, always: Sequence[Instruction]) -> float:
    return sum(max(x.lanes or lanes, port.least) / port.lanes for x in always if x.kind in port.kinds)


def local_share_of_bytes(machine: Machine, fmas: int, loaded: int) -> float | None:
    """What local memory's bandwidth leaves, where each lane's bytes pass by themselves."""
    f = machine.figures
    if not loaded:
        return 1.0
    if f.local_bytes_per_clock is None or f.flops_per_clock is None or f.local_cores is None:
        return None
    clocks = loaded / f.local_bytes_per_clock
    ideal = fmas / (f.flops_per_clock / 2 * f.local_cores)
    return min(1.0, ideal / clocks)


def local_share_of_words(machine: Machine, fmas: int, accesses: Sequence[LocalAccess]) -> float | None:
    """What local memory's banks leave, where lanes that read one word are served together, and without conflicts.

    Args:
        fmas: of a thread in a step of the main loop.
    """
    f = machine.figures
    words = sum(access.words * access.times for access in accesses)
    if not words:
        return 1.0
    if f.flops_per_clock is None or f.banks is None or not fmas:
        return None
    return min(1.0, fmas / (f.flops_per_clock / 2) / (words / f.banks))


def memory_share(machine: Machine, sizes: tuple[int, int, int]) -> float | None:
    """The roofline, with every element of A and B read once and of C written once."""
    peak, bandwidth = machine.peak_gflops, machine.figures.bandwidth_gbs
    if peak is None or bandwidth is None:
        return None
    return min(1.0, intensity(sizes) * bandwidth / peak)


def intensity(sizes: tuple[int, int, int]) -> float:
    """Flops per byte of a float32 product that reads and writes each element once."""
    m, n, k = sizes
    return 2 * m * n * k / (4 * (m * k + k * n + m * n))


# --- caches, through which sub-groups share tiles: counted from the tiles, beside what was published ----------------

#: Bytes of an element that a device's peak of its matrix units is given for: those half as large go at twice the speed.
_PEAK_BYTES = 2


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a floating-point operation takes, a multiply-add being two.

    Attributes:
        l1: that sub-groups read, each its own tiles of A and B.
        l2: that a work-group reads, if all that its sub-groups share stays in L1.
        size: bytes of an element.
    """

    l1: float
    l2: float
    size: int


def traffic(spec: GemmSpec, schedule: Schedule) -> Traffic | None:
    """That of a schedule; None where tiles are not shared through caches alone."""
    if not schedule.block_2d:
        return None
    rows, cols = schedule.tile
    high, wide = schedule.block_tile
    size = spec.dtype.size
    return Traffic(_bytes_a_flop(rows, cols * BLOCK_2D_LANES, size), _bytes_a_flop(high, wide, size), size)


def _bytes_a_flop(rows: int, cols: int, size: int) -> float:
    return (rows + cols) * size / (2 * rows * cols)


def cache_needs(machine: Machine, asked: Traffic | None) -> Iterator[str]:
    """What the caches must deliver if the matrix units shall never wait, beside what they do."""
    f = machine.figures
    if asked is None or f.matrix_flops_per_clock is None or f.cores is None or f.clock_ghz is None:
        return
    peak = f.cores * f.clock_ghz * f.matrix_flops_per_clock * _PEAK_BYTES / asked.size
    for name, share, gbs in (("L1", asked.l1, f.l1_gbs), ("L2", asked.l2, f.l2_gbs)):
        published = "not published" if gbs is None else f"{gbs / 1000:,.1f} TB/s published"
        enough = "" if gbs is None else f", enough for {min(1.0, gbs / (peak * share)):.2f} of the peak"
        yield f"tiles take {peak * share / 1000:,.1f} TB/s from {name} at the matrix units' peak; {published}{enough}"
