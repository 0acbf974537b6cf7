"""Take guards of whole sub-groups' loads out of the main loop: one loop without them, one for the matrix's edge.

A branch inside the main loop, though it goes the same way each round, keeps compilers from unrolling it. What a single
work-item loads is guarded by a predicate instead and stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemmgen.ir.expr import Expr, Var, all_of
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Block, Body, Comment, For, If, Move, Stmt
from gemmgen.ir.walk import bound, map_body, walk, walk_expr


def unswitch(kernel: Kernel) -> Kernel:
    """The kernel with such loops written twice."""
    return replace(kernel, body=map_body(kernel.body, _versions))


def _versions(stmt: Stmt) -> Body:
    if not isinstance(stmt, For) or stmt.unroll:
        return (stmt,)
    conditions = tuple(dict.fromkeys(_guards(stmt)))
    if not conditions:
        return (stmt,)
    fast = replace(stmt, body=_decided(stmt.body, conditions, True))
    # Where one guard alone decides, it fails in the other loop; of several, any may.
    slow = replace(stmt, body=_decided(stmt.body, conditions, False)) if len(conditions) == 1 else stmt
    edge = Comment("At the edge of the matrix, each lane loads for itself.")
    return (If(all_of(conditions), (fast,), (edge, slow)),)


def _guards(loop: For) -> Iterator[Expr]:
    """The conditions of collective loads that are the same in each round."""
    inside = {name for stmt in walk((loop,)) for name in bound(stmt)}
    for stmt in walk(loop.body):
        if isinstance(stmt, If) and _is_collective(stmt.then) and not inside & _names(stmt.condition):
            yield stmt.condition


def _is_collective(body: Body) -> bool:
    return any(isinstance(s, Move) and any(s.atom.lane_step) for s in walk(body))


def _names(node: Expr) -> set[Var]:
    return {x for x in walk_expr(node) if isinstance(x, Var)}


def _decided(body: Body, conditions: tuple[Expr, ...], holds: bool) -> Body:
    """The body where all of the conditions hold, or none."""

    def decide(stmt: Stmt) -> Body:
        match stmt:
            case If(condition, then, orelse) if condition in conditions:
                return (Block(then if holds else orelse),)
        return (stmt,)

    return map_body(body, decide)
