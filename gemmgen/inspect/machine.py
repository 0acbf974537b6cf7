"""Devices: what they have, from one TOML file each, with a source for each number."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal, cast

from gemmgen.errors import LoweringError, ScheduleError, suggest
from gemmgen.inspect.code import Kind
from gemmgen.ir.target import TARGETS, Target

Vendor = Literal["intel", "nvidia", "amd"]


@dataclass(frozen=True, slots=True)
class Figures:
    """Numbers of a device; None where nothing reliable was published.

    A core is an EU (vector engine), an SM or a CU.

    Attributes:
        cores: of the device.
        clock_ghz: the most it is sold with.
        flops_per_clock: of one core, float32, a multiply-add counting twice.
        bandwidth_gbs: of its memory.
        matrix_flops_per_clock: of one core's matrix unit, on elements of 16 bits.
        l1_gbs, l2_gbs: that all first-level caches deliver, and the cache behind them that all cores share.
        threads: that a core (Intel, NVIDIA: warps) or a SIMD of it (AMD: waves) holds at most.
        simds: of a core.
        registers: of a thread (Intel), of 32 bits of a core (NVIDIA), of a lane of a SIMD (AMD).
        register_bytes: of one of Intel's.
        register_granule: what they are handed out in multiples of.
        local_bytes: local memory that `local_cores` cores share.
        local_reserved: what the system takes of it for each group.
        local_granule: the least of it that Intel hands out; more comes in powers of two.
        local_bytes_per_clock: that it delivers.
        banks: of local memory, 4 bytes wide.
        groups: that a core holds at most.
    """

    cores: float | None = None
    clock_ghz: float | None = None
    flops_per_clock: float | None = None
    bandwidth_gbs: float | None = None
    matrix_flops_per_clock: float | None = None
    l1_gbs: float | None = None
    l2_gbs: float | None = None
    threads: float | None = None
    simds: float | None = None
    registers: float | None = None
    register_bytes: float | None = None
    register_granule: float | None = None
    local_bytes: float | None = None
    local_reserved: float | None = None
    local_cores: float | None = None
    local_granule: float | None = None
    local_bytes_per_clock: float | None = None
    banks: float | None = None
    groups: float | None = None


@dataclass(frozen=True, slots=True)
class Port:
    """Something that executes instructions of some kinds, beside what other ports do.

    Attributes:
        lanes: that a core has of it, per clock.
        least: lanes that an instruction takes even if it works on fewer.
        most_threads: occupancy up to which it matters; None if always.
    """

    name: str
    lanes: int
    least: int
    kinds: frozenset[Kind]
    most_threads: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """A device.

    Attributes:
        target: the name that `--target` takes.
        device: how its vendor's compiler knows it; empty where none does.
        compiler: that compiler, as `gemmgen.tools` calls it.
        platform: how Intel's disassembler knows it.
        matrices: whether it has the matrix instructions of OpenCL's extension for them.
        sources: figure -> where it comes from.
    """

    target: str
    name: str
    vendor: Vendor
    device: str
    compiler: str
    platform: str
    note: str
    figures: Figures
    sources: dict[str, str]
    ports: tuple[Port, ...]
    matrices: bool = False

    @property
    def peak_gflops(self) -> float | None:
        """Of float32 multiply-adds, at the highest clock."""
        f = self.figures
        if f.cores is None or f.clock_ghz is None or f.flops_per_clock is None:
            return None
        return f.cores * f.clock_ghz * f.flops_per_clock


#: Bytes of a register of Xe-HPC and of Xe2 on, twice those of Intel's other GPUs.
WIDE_REGISTER = 64
_ORDER: tuple[Vendor, ...] = ("intel", "nvidia", "amd")
#: Ages of targets that their names do not tell.
_AGE = "hsw bdw skl icllp tgllp dg1 adlp xe_hp_sdv dg2-g10 pvc lnl bmg ptl".split()


@cache
def machines() -> dict[str, Machine]:
    """Every device, by target: the oldest first."""
    folder = files("gemmgen.inspect") / "machines"
    texts = {f.name.removesuffix(".toml"): f.read_text("utf-8") for f in folder.iterdir() if f.name.endswith(".toml")}
    loaded = [_machine(target, text) for target, text in texts.items()]
    return {m.target: m for m in sorted(loaded, key=_rank)}


def _rank(machine: Machine) -> tuple[int, int, str]:
    target = machine.target
    age = _AGE.index(target) if target in _AGE else len(target)
    return _ORDER.index(machine.vendor), age, target


def _machine(target: str, text: str) -> Machine:
    table: dict[str, object] = tomllib.loads(text)
    sources = cast(dict[str, str], table["sources"])
    figures = cast(dict[str, dict[str, object]], table["figures"])
    known = {f.name for f in fields(Figures)}
    if wrong := sorted(set(figures) - known):
        raise LoweringError(f"machines/{target}.toml: no such figure: {', '.join(wrong)}")
    values = {name: cast(float, entry["value"]) for name, entry in figures.items()}
    ports = cast(dict[str, dict[str, object]], table.get("ports", {}))
    return Machine(
        target,
        cast(str, table["name"]),
        cast(Vendor, table["vendor"]),
        cast(str, table.get("device", "")),
        cast(str, table.get("compiler", "")),
        cast(str, table.get("platform", "")),
        cast(str, table.get("note", "")),
        Figures(**values),
        {name: sources[cast(str, entry["source"])] for name, entry in figures.items()},
        tuple(_port(name, entry) for name, entry in ports.items()),
        cast(bool, table.get("matrices", False)),
    )


def _port(name: str, entry: dict[str, object]) -> Port:
    kinds = frozenset(Kind(kind) for kind in cast(list[str], entry["kinds"]))
    limit = cast("int | None", entry.get("most_threads"))
    return Port(name, cast(int, entry["lanes"]), cast(int, entry["least"]), kinds, limit)


def choose(patterns: Iterable[str]) -> tuple[Machine, ...]:
    """The devices that names, globs or `all` mean; without a compiler only if named in full.

    Raises: ScheduleError with every name that means none.
    """
    known = machines()
    chosen: dict[str, Machine] = {}
    problems: list[str] = []
    for pattern in patterns:
        glob = "*" if pattern == "all" else pattern
        found = [m for m in known.values() if m.target == pattern or (m.device and fnmatchcase(m.target, glob))]
        chosen |= {m.target: m for m in found}
        if not found:
            problems.append(f"target {pattern!r} does not exist: {suggest(pattern, [*known, 'all'])}")
    if problems or not chosen:
        raise ScheduleError(problems or "no target is named: give --target all, or some of " + ", ".join(known))
    return tuple(chosen.values())


def target_of(machine: Machine) -> tuple[str, Target]:
    """The backend and the target that a kernel is emitted for. clang's OpenCL C for AMD has no sub-groups."""
    if machine.vendor == "nvidia":
        name = machine.target if machine.target in TARGETS else machine.target.rstrip("af")
        return "cuda", TARGETS[name]
    if machine.vendor == "amd":
        return "opencl", TARGETS["portable"]
    is_xe_hpc = machine.figures.register_bytes == WIDE_REGISTER
    return "opencl", TARGETS["xe_hpc" if is_xe_hpc else "intel"]
