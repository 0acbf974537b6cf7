"""Which private arrays there are at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Load
from gemmgen.ir.stmt import Alloc, Body, Registers, Stmt, Tile
from gemmgen.ir.walk import bodies, exprs, walk, walk_expr


def live(body: Body, but: Collection[str] = ()) -> list[Buffer]:
    """The private arrays, `but` those of some names, where they take most at once: each is there from its declaration
    to the last statement of its block that names it.
    """
    own: list[tuple[Buffer, int, int]] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, Alloc) and stmt.buffer.space is Space.PRIVATE and stmt.buffer.name not in but:
            last = max((j for j in range(i + 1, len(body)) if stmt.buffer.name in _named(body[j])), default=i)
            own.append((stmt.buffer, i, last))
    most: list[Buffer] = []
    for i, stmt in enumerate(body):
        around = [buffer for buffer, first, last in own if first <= i <= last]
        most = max(most, around, *([*around, *live(inner, but)] for inner in bodies(stmt)), key=_bytes)
    return most


def _named(stmt: Stmt) -> set[str]:
    """The arrays that a statement, or one below it, reads or writes."""
    names: set[str] = set()
    for one in walk((stmt,)):
        parts = [getattr(one, field.name) for field in fields(one)]
        names |= {part.name for part in parts if isinstance(part, Buffer)}
        names |= {part.buffer.name for part in parts if isinstance(part, Tile | Registers)}
        names |= {node.buffer.name for root in exprs(one) for node in walk_expr(root) if isinstance(node, Load)}
    return names


def _bytes(buffers: Sequence[Buffer]) -> int:
    return sum(buffer.bytes for buffer in buffers)
