"""Shared memory of CUDA and HIP: the tiles, what is staged, and mbarriers.

Memory that the launch asks for is one struct a kernel. Where its size is fixed, each member is an array of its own, of
which compilers know that a store to one changes no other: loads of fragments then stand further ahead of their use.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmgen.records import dataclass

#: What an mbarrier is held in.
MBARRIER, MBARRIER_BYTES = "unsigned long long", 8
#: What is said of lines whose parts of 16 bytes change places.
SWIZZLED = "// TMA swizzles the lines of tiles, so that a column of them lies in different banks."
#: What is said of lines that are longer than what they hold.
PADDED = "padded: lines begin in different banks"
#: What a guard says of arrays that together are too large for a fixed size.
TOO_LARGE = "an array of a fixed size has no room for it: emit a kernel with these constants"


@dataclass(frozen=True, slots=True)
class Member:
    """An array of it.

    Attributes:
        name: in the struct.
        declared: its declaration without alignment.
        bytes: its size.
        alignment: what it begins on multiples of.
        asked: whether that is more than its type's own.
        reuses: whether it lies where all others lie.
        padded: whether its lines are longer than what they hold.
        swizzled: whether the parts of its lines change places.
    """

    name: str
    declared: str
    bytes: int
    alignment: int
    asked: bool
    reuses: bool = False
    padded: bool = False
    swizzled: bool = False


@dataclass(frozen=True, slots=True)
class SharedStruct:
    """The struct of a kernel; a union where something reuses the memory of the tiles.

    Attributes:
        type: its name.
        members: in order.
    """

    type: str
    members: tuple[Member, ...]

    def sizes(self, most: int | None) -> list[str]:
        """Of members that are arrays of their own, a guard where all may have no more than `most` bytes."""
        if most is None:
            return []
        each = " + ".join(f"sizeof({x.declared.replace(f' {x.name}', '', 1)})" for x in self.members)
        return [f"static_assert({each} <= {most},", f'{" " * 14}"{TOO_LARGE}");', ""]

    @property
    def is_union(self) -> bool:
        """Whether one member reuses the memory of the others."""
        return any(member.reuses for member in self.members)

    @property
    def alignment(self) -> int:
        """What it begins on multiples of."""
        return max((member.alignment for member in self.members), default=1)

    @property
    def bytes(self) -> int:
        """Its size, as C++ lays it out."""
        own = _size([x for x in self.members if not x.reuses])
        return _up(max([own, *(x.bytes for x in self.members if x.reuses)]), self.alignment)

    def place(self, name: str) -> str:
        """How the kernel says a member."""
        member = next(x for x in self.members if x.name == name)
        return f"shared.tiles.{name}" if self.is_union and not member.reuses else f"shared.{name}"

    def names(self) -> set[str]:
        """The constants that its size depends on."""
        return {name for member in self.members for name in re.findall("[A-Z][A-Z_]+", member.declared)}

    def lines(self) -> list[str]:
        """Its definition."""
        own = [_line(x) for x in self.members if not x.reuses]
        swizzled = [SWIZZLED] if any(member.swizzled for member in self.members) else []
        if not self.is_union:
            struct = [
                "// Shared memory of a block.",
                *swizzled,
                f"struct {self.type} {{",
                *(f"    {x}" for x in own),
                "};",
            ]
            return [*struct, ""]
        return [
            "// Shared memory of a block: the tiles, and when they have been read, what takes their place.",
            *swizzled,
            f"union {self.type} {{",
            "    struct {",
            *(f"        {x}" for x in own),
            "    } tiles;",
            *(f"    {_line(x)}" for x in self.members if x.reuses),
            "};",
            "",
        ]


def member_of(buffer: str) -> str:
    """What a buffer or an array of mbarriers is called in the struct."""
    return buffer.removesuffix("_shared").removeprefix("tiles_")


def _line(member: Member) -> str:
    line = (f"alignas({member.alignment}) " if member.asked else "") + f"{member.declared};"
    return f"{line} // {PADDED}" if member.padded else line


def _size(members: Sequence[Member]) -> int:
    end = 0
    for member in members:
        end = _up(end, member.alignment) + member.bytes
    return _up(end, max((member.alignment for member in members), default=1))


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
