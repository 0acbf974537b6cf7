"""What may be done with fragments, of which no kernel may know which lane has which element."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Expr, Load
from gemmgen.ir.show import show_index
from gemmgen.ir.stmt import Body, FragmentApply, Multiply, Store, VectorCopy
from gemmgen.ir.walk import bodies, exprs, walk, walk_expr


def fragments_of(body: Body) -> dict[Buffer, str]:
    """The arrays of fragments, and what instructions use them for."""
    found: dict[Buffer, str] = {}
    for stmt in walk(body):
        if isinstance(stmt, Multiply) and stmt.atom.name == "joint_matrix":
            found |= {stmt.a: "a", stmt.b: "b", stmt.acc: "accumulator"}
    return found


def fragment_problems(body: Body) -> Iterator[str]:
    """Elements of fragments that are reached otherwise than by the `FragmentApply` around them."""
    fragments = fragments_of(body)
    return _problems(body, fragments, None) if fragments else iter(())


def _problems(body: Body, fragments: dict[Buffer, str], here: FragmentApply | None) -> Iterator[str]:
    for stmt in body:
        reached: list[tuple[Buffer, tuple[Expr, ...]]] = []
        if isinstance(stmt, Store):
            reached.append((stmt.buffer, stmt.index))
        if isinstance(stmt, VectorCopy) and stmt.atom.fragment is None:
            reached += [(stmt.dst, stmt.dst_index), (stmt.src, stmt.src_index)]
        reached += [(x.buffer, x.index) for root in exprs(stmt) for x in walk_expr(root) if isinstance(x, Load)]
        for buffer, index in reached:
            if buffer in fragments and (here is None or (buffer, index) != (here.fragment, here.place)):
                yield f"{show_index(buffer, index)} is an element of a fragment, which only its FragmentApply reaches"
        inner = stmt if isinstance(stmt, FragmentApply) else here
        for held in bodies(stmt):
            yield from _problems(held, fragments, inner)
