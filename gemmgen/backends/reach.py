"""How far matrices reach, and the memory between kernels: what launchers refuse because indices do not count it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemmgen.backends.clike import CLike
from gemmgen.backends.vectors import PRECEDENCE
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.sizes import GROUPS, REACHED, Workspace
from gemmgen.ir.walk import walk_expr
from gemmgen.launch import given_shape, span
from gemmgen.records import dataclass

#: What 64-bit places reach, which nobody needs to be told.
FAR = 2**63


@dataclass(frozen=True, slots=True)
class Reach:
    """A matrix of the caller's, with a leading dimension, in a launcher.

    Attributes:
        lines, length, pitch: how many lines there are, how long they are and how far apart, as text.
        limit: what it must span less than.
        is_unread: whether it may be that it is not read though it has elements: A or B by a constant K.
    """

    name: str
    lines: str
    length: str
    pitch: str
    limit: int
    is_unread: bool


def reaches(file: CLike, kernels: Sequence[Kernel]) -> Iterator[Reach]:
    """The matrices of a launcher that lie in memory."""
    least, read = min(map(span, kernels)), file.reads_operands()
    for p in file.kernel.matrices:
        if is_matrix(p):
            (lines, length), pitch = map(file.expr, given_shape(p)[-2:]), file.expr(p.layout.strides[-2])
            of_product = p.name in ("a", "b")
            # Without K there are no elements, which is seen from the lines.
            unread = of_product and read is not None and read != "k > 0"
            yield Reach(p.name, lines, length, pitch, least if of_product else p.reach, unread)


def is_matrix(p: Buffer) -> bool:
    """Whether a buffer is a matrix of the caller's, with a leading dimension."""
    return p.space is Space.GLOBAL and not p.prepacked and len(p.shape) > 1 and p.name != "workspace"


def unreached(file: CLike, kernels: Sequence[Kernel], workspaces: Sequence[Workspace]) -> tuple[list[str], set[str]]:
    """What a launcher in C++ refuses, and what this calls of `templates/reach.j2`."""
    found, called = [], set[str]()
    for x in reaches(file, kernels):
        function, limit = "lie_apart" if x.limit >= FAR else "is_in_reach", ""
        if x.limit < REACHED:
            limit = f", 1LL << {x.limit.bit_length() - 1}"
            called.add("limit")
        called.add(function)
        there = f"!{function}({x.lines}, {x.length}, {x.pitch}{limit})"
        found.append(f"({file.reads_operands()} && {there})" if x.is_unread else there)
    found += [
        # From the left on, all factors are 64 bits wide.
        f"1LL * {file.expr(x.elements, PRECEDENCE['*'])} >= 1LL << 31"
        for x in workspaces
        if x.reach < FAR and GROUPS not in walk_expr(x.elements)
    ]
    return found, called
