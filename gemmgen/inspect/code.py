"""Machine code as all vendors share it: instructions of a kind, labels, and lines that nobody understood."""

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
        to_local: whether a load goes to local memory, past the registers.
    """

    space: Space
    how: str
    bytes: int | None
    to_local: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        opcode: as the disassembler spells it, modifiers and all.
        text: the disassembler's line.
        fmas: multiply-adds of all lanes together; None where that is not known.
        targets: labels it may go to.
        falls_through: whether the next instruction may follow it.
        line: of the source; 0 where the tool does not say.
        lanes: that it works on; 0 for all of the thread's.
        calls: whether it goes to a function, and what follows comes after that.
    """

    opcode: str
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
    """A kernel as a vendor's compiler left it."""

    kernel: str
    resources: Resources
    listing: Listing
    notes: tuple[str, ...] = ()
