"""Occupancy, bank conflicts, and what no schedule of these instructions can exceed. Nothing was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmgen.inspect.code import Instruction, Resources
from gemmgen.inspect.machine import Figures, Machine, Port
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Block, Body, For, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.walk import exprs, map_expr, walk_expr

#: What run-time sizes and leading dimensions are taken to be.
SIZE = 4096
_BANK_BYTES = 4
#: Lanes that an access of 8 or 16 bytes is served in at a time: a half and a quarter of a warp.
_PASS_BYTES = 128
Names = dict[str, int]


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


# --- local memory: which addresses the lanes of a thread touch together, by the IR ----------------


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """An access of a whole thread to local memory, in the main loop.

    Attributes:
        bytes: of one lane.
        times: how often it runs in a step of the main loop.
        clocks: that the banks take for it; `least` without any conflict and without any sharing.
        words: different ones of all lanes: a bank delivers one a clock, however compilers join accesses.
    """

    buffer: str
    is_store: bool
    bytes: int
    times: int
    clocks: int
    least: int
    words: int

    @property
    def ways(self) -> float:
        """How many times longer conflicts make it; 1 without any."""
        return max(1.0, self.clocks / self.least)


def local_accesses(kernel: Kernel, lanes: int, banks: int) -> tuple[LocalAccess, ...]:
    """The accesses of the first thread of a group in the first round of the main loop."""
    sizes = {v.name: SIZE for v in kernel.scalars if not v.dtype.is_float}
    group = kernel.group[0] * kernel.group[1]
    names = [_start(kernel, lane, sizes) for lane in range(min(lanes, group))]
    return tuple(_Walk(banks).body(kernel.body, names, 0))


def _start(kernel: Kernel, lane: int, sizes: Mapping[str, int]) -> Names:
    """The names that a lane begins with; built-ins stand among them under names that no variable has."""
    rows, columns = divmod(lane, kernel.group[1])
    ids = {"local_id 0": columns, "local_id 1": rows, "lane_id": lane % (kernel.sub_group or lane + 1)}
    return {**sizes, **ids, "group_id 0": 0, "group_id 1": 0}


@dataclass(frozen=True, slots=True)
class _Walk:
    banks: int

    def body(self, body: Body, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        """The accesses below; `times` is 0 outside of the main loop, where nothing counts."""
        lanes = [dict(names) for names in lanes]
        for stmt in body:
            if times:
                yield from self._accesses(stmt, lanes, times)
            match stmt:
                case Let(var, value):
                    for names in lanes:
                        if (number := value_of(value, names)) is not None:
                            names[var.name] = number
                case For():
                    yield from self._loop(stmt, lanes, times)
                case If(condition, then, orelse):
                    yield from self.body(then, [x for x in lanes if value_of(condition, x) != 0], times)
                    yield from self.body(orelse, [x for x in lanes if value_of(condition, x) == 0], times)
                case Block(inner):
                    yield from self.body(inner, lanes, times)

    def _loop(self, loop: For, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        if not lanes:
            return
        start, stop = value_of(loop.start, lanes[0]), value_of(loop.stop, lanes[0])
        if start is None or stop is None or start >= stop:
            return
        for names in lanes:
            names[loop.var.name] = start
        is_main = loop.var.name == "k0"
        rounds = 1 if is_main else len(range(start, stop, loop.step))
        yield from self.body(loop.body, lanes, rounds * (times or int(is_main)))

    def _accesses(self, stmt: Stmt, lanes: list[Names], times: int) -> Iterator[LocalAccess]:
        match stmt:
            case VectorCopy() if stmt.src.space is Space.LOCAL:
                yield from self._access(stmt.src, stmt.src_index, stmt.width, False, lanes, times)
            case VectorCopy() if stmt.dst.space is Space.LOCAL:
                yield from self._access(stmt.dst, stmt.dst_index, stmt.width, True, lanes, times)
            case Store(buffer, index, _) if buffer.space is Space.LOCAL:
                yield from self._access(buffer, index, 1, True, lanes, times)
        for node in (n for root in exprs(stmt) for n in walk_expr(root)):
            if isinstance(node, Load) and node.buffer.space is Space.LOCAL:
                yield from self._access(node.buffer, node.index, 1, False, lanes, times)

    def _access(
        self, buffer: Buffer, index: tuple[Expr, ...], width: int, is_store: bool, lanes: list[Names], times: int
    ) -> Iterator[LocalAccess]:
        offset = buffer.layout.offset(index)
        found = [value_of(offset, names) for names in lanes]
        places = [place for place in found if place is not None]
        if not places or len(places) < len(found):
            return
        size = width * buffer.dtype.size
        words = [
            [(place * buffer.dtype.size + byte) // _BANK_BYTES for byte in range(0, size, _BANK_BYTES)]
            for place in places
        ]
        at_a_time = max(1, _PASS_BYTES // max(size, _BANK_BYTES))
        passes = [words[i : i + at_a_time] for i in range(0, len(words), at_a_time)]
        clocks = sum(self._most(part) for part in passes)
        different = len({word for own in words for word in own})
        yield LocalAccess(buffer.name, is_store, size, times, clocks, len(passes), different)

    def _most(self, words: list[list[int]]) -> int:
        """The most different words of one bank: each takes a clock, equal ones are served together."""
        return max(Counter(word % self.banks for word in {w for own in words for w in own}).values())


def value_of(node: Expr, names: Mapping[str, int]) -> int | None:
    """An integer expression's value; None where it depends on what is not known."""

    def known(part: Expr) -> Expr:
        match part:
            case Var(name) if name in names:
                return Const(names[name])
            case Call(function, args):
                name = " ".join((function, *(str(a.value) for a in args if isinstance(a, Const))))
                return Const(names[name]) if name in names else part
            case Bin("&", Const(int(x)), Const(int(y))):
                return Const(x & y)
            case Bin("^", Const(int(x)), Const(int(y))):
                return Const(x ^ y)
        return part

    result = map_expr(node, known)
    return result.value if isinstance(result, Const) and isinstance(result.value, int) else None


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
