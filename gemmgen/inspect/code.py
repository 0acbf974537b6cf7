"""Machine code as all vendors share it: instructions of a kind, labels, lines that nobody understood, and loops.

Loops are found by dominators: which instructions a loop runs itself, which of them always, which loop is hot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Space = Literal["global", "local", "scratch"]


class Kind(StrEnum):
    """What an instruction is for."""

    FMA = "multiply-add"
    MATRIX = "matrix"
    FLOAT = "other float"
    INT = "integer"
    MOVE = "move"
    SHUFFLE = "shuffle"
    SELECT = "compare, select"
    CONVERT = "convert"
    SCALAR = "scalar"
    LOAD = "load"
    STORE = "store"
    BRANCH = "branch"
    BARRIER = "barrier"
    WAIT = "wait"
    OTHER = "other"
    UNKNOWN = "unknown"


#: What a report counts as multiply-adds.
MATH = frozenset({Kind.FMA, Kind.MATRIX})


@dataclass(frozen=True, slots=True)
class Access:
    """What a load or a store moves.

    Attributes:
        how: its kind and width in the vendor's words: `LDS.128`, `media block read, 8 registers`.
        bytes: for all lanes of a thread (a warp, a wave); None where the instruction does not say.
    """

    space: Space
    how: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        text: the disassembler's line.
        fmas: multiply-adds of all lanes together; None where that is not known.
        targets: labels it may go to.
        falls_through: whether the next instruction may follow it.
        line: of the source; 0 where the tool does not say.
        lanes: that it works on; 0 for all of the thread's.
        calls: whether it goes to a function, and what follows comes after that.
    """

    kind: Kind
    text: str
    fmas: int | None = 0
    access: Access | None = None
    targets: tuple[str, ...] = ()
    falls_through: bool = True
    line: int = 0
    lanes: int = 0
    calls: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """A kernel's instructions in order.

    Attributes:
        labels: label -> number of the instruction that follows it.
        strange: lines that the parser does not understand; any of them may be an instruction.
    """

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    strange: tuple[str, ...] = ()

    def counted(self, members: Iterable[int] | None = None) -> Counter[Kind]:
        """How many there are of each kind, of those numbered or of all."""
        numbers = range(len(self.instructions)) if members is None else members
        return Counter(self.instructions[i].kind for i in numbers)


@dataclass
class Builder:
    """Gathers a listing line by line."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    strange: list[str] = field(default_factory=list)

    def label(self, name: str) -> None:
        """The next instruction's label."""
        self.labels[name] = len(self.instructions)

    def listing(self) -> Listing:
        return Listing(tuple(self.instructions), dict(self.labels), tuple(self.strange))


@dataclass(frozen=True, slots=True)
class Resources:
    """What the compiler reports of a kernel; None where it does not.

    Attributes:
        lanes: of a thread: the SIMD width, the warp, the wave.
        registers: per work-item (NVIDIA, AMD) or per thread (Intel: of 32 or 64 bytes).
        scratch: bytes of memory per work-item that stand in for registers.
        spills: registers or bytes spilled, in the compiler's own words; empty if none.
        local_bytes: local memory of a group, as far as the compiler knows.
        group: work-items of a group.
        occupancy: waves, where the compiler says it itself.
        at_launch: whether the launch adds local memory of a size that the compiler does not know.
    """

    lanes: int | None = None
    registers: int | None = None
    scratch: int | None = None
    spills: str = ""
    local_bytes: int | None = None
    group: int | None = None
    occupancy: int | None = None
    at_launch: bool = False


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel as a vendor's compiler left it.

    Attributes:
        compiler: its name and version.
    """

    kernel: str
    resources: Resources
    listing: Listing
    notes: tuple[str, ...] = ()
    compiler: str = ""


# --- loops ----------------------------------------------------------------------------------------

#: The instruction that a label at the end of a listing stands for.
_NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop.

    Attributes:
        header: number of its first instruction.
        body: all its instructions, those of inner loops among them.
        own: those that no inner loop holds.
        always: those of its own that each round runs; the others stand behind a condition.
        math: how many of its own multiply and add.
    """

    header: int
    body: frozenset[int]
    own: tuple[int, ...]
    always: frozenset[int]
    math: int


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops of a kernel.

    Attributes:
        all: every loop, in the order of the code.
        hot: the one whose own instructions multiply and add most; of equals the shortest. None where none does.
        rivals: loops with as many multiply-adds.
        regular: whether every backward way is a loop with one entrance; if not, a loop may be missing.
    """

    all: tuple[Loop, ...]
    hot: Loop | None
    rivals: tuple[Loop, ...]
    regular: bool

    def inner(self, loop: Loop) -> tuple[Loop, ...]:
        """The loops inside one."""
        return tuple(x for x in self.all if x.body < loop.body)

    def outer(self, loop: Loop) -> tuple[Loop, ...]:
        """The loops around one."""
        return tuple(x for x in self.all if loop.body < x.body)


def find_loops(listing: Listing) -> Loops:
    """The loops of a listing."""
    graph = _Graph(listing)
    bodies: dict[int, set[int]] = {}
    latches: dict[int, list[int]] = {}
    regular = True
    for block in graph.order:
        for after in graph.successors[block]:
            if graph.dominates(after, block):
                bodies.setdefault(after, {after}).update(graph.reaching(block, after))
                latches.setdefault(after, []).append(block)
            elif graph.position[after] <= graph.position[block]:
                regular = False
    loops = [_loop(listing, graph, header, bodies, latches[header]) for header in sorted(bodies)]
    candidates = [loop for loop in loops if loop.math]
    hot = min(candidates, key=lambda x: (-x.math, len(x.own), x.header), default=None)
    rivals = tuple(x for x in candidates if hot is not None and x is not hot and x.math == hot.math)
    return Loops(tuple(loops), hot, rivals, regular)


def _loop(listing: Listing, graph: _Graph, header: int, bodies: dict[int, set[int]], latches: list[int]) -> Loop:
    body = bodies[header]
    inner = [other for start, other in bodies.items() if start != header and other < body]
    own = sorted(body.difference(*inner))
    always = [block for block in own if all(graph.dominates(block, latch) for latch in latches)]
    numbers = tuple(i for block in own for i in graph.members(block))
    math = sum(listing.instructions[i].kind in MATH for i in numbers)
    everything = frozenset(i for block in body for i in graph.members(block))
    return Loop(header, everything, numbers, frozenset(i for b in always for i in graph.members(b)), math)


class _Graph:
    """Basic blocks, each known by the number of its first instruction."""

    def __init__(self, listing: Listing) -> None:
        code = listing.instructions
        starts = {0, *listing.labels.values()}
        starts |= {i + 1 for i, x in enumerate(code) if x.targets or not x.falls_through or x.kind is Kind.BRANCH}
        self._starts = sorted(i for i in starts if 0 <= i < len(code))
        ends = [*self._starts[1:], len(code)]
        self._end = dict(zip(self._starts, ends, strict=False)) if code else {}
        self.successors: dict[int, list[int]] = {}
        for start, end in self._end.items():
            last = code[end - 1]
            ways = [listing.labels.get(name, _NOWHERE) for name in last.targets]
            ways += [end] if last.falls_through else []
            self.successors[start] = [x for x in dict.fromkeys(ways) if x in self._end]
        self.order = self._reverse_postorder()
        self.position = {block: i for i, block in enumerate(self.order)}
        self._predecessors: dict[int, list[int]] = {block: [] for block in self.order}
        for block in self.order:
            for after in self.successors[block]:
                self._predecessors[after].append(block)
        self._dominator = self._dominators()

    def members(self, block: int) -> range:
        """The instructions of a block."""
        return range(block, self._end[block])

    def _reverse_postorder(self) -> list[int]:
        """The blocks that can be reached from the entrance."""
        if not self._starts:
            return []
        done: list[int] = []
        seen = {0}
        stack = [(0, iter(self.successors[0]))]
        while stack:
            block, ways = stack[-1]
            after = next((x for x in ways if x not in seen), None)
            if after is None:
                done.append(block)
                stack.pop()
            else:
                seen.add(after)
                stack.append((after, iter(self.successors[after])))
        return done[::-1]

    def _dominators(self) -> dict[int, int]:
        """The nearest dominator of each block (Cooper, Harvey and Kennedy's iteration)."""
        nearest = {block: block for block in self.order[:1]}
        changed = True
        while changed:
            changed = False
            for block in self.order[1:]:
                known = [p for p in self._predecessors[block] if p in nearest]
                best = known[0]
                for other in known[1:]:
                    best = self._meet(nearest, best, other)
                changed |= nearest.get(block) != best
                nearest[block] = best
        return nearest

    def _meet(self, nearest: dict[int, int], a: int, b: int) -> int:
        while a != b:
            while self.position[a] > self.position[b]:
                a = nearest[a]
            while self.position[b] > self.position[a]:
                b = nearest[b]
        return a

    def dominates(self, upper: int, block: int) -> bool:
        """Whether every way to `block` leads through `upper`."""
        while self.position[block] > self.position[upper]:
            block = self._dominator[block]
        return block == upper

    def reaching(self, latch: int, header: int) -> set[int]:
        """The blocks on a way from the header to the latch."""
        found = {header, latch}
        stack = [latch] if latch != header else []
        while stack:
            for before in self._predecessors[stack.pop()]:
                if before not in found:
                    found.add(before)
                    stack.append(before)
        return found
