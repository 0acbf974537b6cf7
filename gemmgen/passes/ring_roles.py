"""Rings that a warpgroup of its own fills by boxes, for work-items that multiply by themselves."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Space
from gemmgen.ir.meetings import Barrier, Handover
from gemmgen.ir.pipe import Pipe
from gemmgen.ir.stmt import Alloc, Body, For, If, Let, Stmt
from gemmgen.ir.walk import map_body, walk
from gemmgen.passes.batches import copy_batches, lower_batches, made_ready
from gemmgen.passes.roles import behind_names, parted
from gemmgen.passes.slots import pipe_of, split


def ring_of_roles(body: Body) -> Pipe | None:
    """The pipe of such a ring, if there is one."""
    pipes = (pipe_of(stmt.body) for stmt in walk(body) if isinstance(stmt, For))
    return next((p for p in pipes if p is not None and p.sync == "mbarrier" and p.roles is not None), None)


def share_out(body: Body, pipe: Pipe) -> Body:
    """The body of a kernel, behind names and local memory, as those that multiply have it, and the one that copies."""
    roles = pipe.roles
    if roles is None:
        raise LoweringError(f"pipe {pipe.name} has no roles")
    first = next(i for i, stmt in enumerate(body) if _has(stmt, pipe))
    common = tuple(s for s in body[:first] if _is_for_all(s))
    own = tuple(s for s in body[:first] if not _is_for_all(s) and not isinstance(s, Handover))
    handover = tuple(s for s in body[:first] if isinstance(s, Handover))

    def multiplying(stmt: Stmt) -> Body:
        if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
            return lower_batches(stmt, pipe, split(stmt.body, pipe))
        # Those that multiply wait for nobody but for copies.
        return () if stmt == Barrier() else (stmt,)

    multiply = (*own, *map_body(body[first:], multiplying))
    return (*common, *made_ready(pipe), *handover, parted(roles, multiply, _copying(body[first], pipe)))


def _has(stmt: Stmt, pipe: Pipe) -> bool:
    """Whether it is the pipe's loop, or one around it, or asks whether that is run at all."""
    return any(isinstance(s, For) and pipe_of(s.body) == pipe for s in walk((stmt,)))


def _is_for_all(stmt: Stmt) -> bool:
    return isinstance(stmt, Let) or (isinstance(stmt, Alloc) and stmt.buffer.space is Space.LOCAL)


def _copying(stmt: Stmt, pipe: Pipe) -> Body:
    """Of a loop, the names, the loops and the questions that lead to the copies."""
    if not isinstance(stmt, For | If):
        raise LoweringError(f"pipe {pipe.name} has no loop")
    if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
        return (copy_batches(stmt, pipe),)
    body = stmt.then if isinstance(stmt, If) else stmt.body
    inner = behind_names(body, _copying(next(s for s in body if _has(s, pipe)), pipe))
    return (replace(stmt, then=inner) if isinstance(stmt, If) else replace(stmt, body=inner),)
