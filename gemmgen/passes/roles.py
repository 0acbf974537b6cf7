"""Lower pipes between roles: work-items that begin box copies, and others that multiply what they bring.

Each slot of the ring has two mbarriers. The one work-item that copies goes through all steps on its own:

    wait      for `empty` of the slot, which is over from the start
    acquire   `full` expects the boxes' bytes; begin the copies, which it counts

and so do those that multiply, with one group of instructions under way while the next is begun:

    wait      for `full` of the slot
    consume   begin the instructions; wait for those of the step before, and arrive at `empty` of its slot

Nobody meets but here, so that neither waits for the other unless the ring is empty, or full.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Expr, Var, as_int, both, compare
from gemmgen.ir.meeting_checks import box_bytes
from gemmgen.ir.meetings import Barrier, Handover, Mbarrier, MbarrierVerb, MultiplyGroup, RegisterShare, Roles
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Pipe, Stage, Stmt, TileMma
from gemmgen.ir.visit import map_body, walk
from gemmgen.passes.positions import LOCAL_INDEX, LOCAL_ROW
from gemmgen.passes.slots import Parts, in_slot, pipe_of, split

SLOT = Var("slot")
WARP = 32


def role_pipe(body: Body) -> Pipe | None:
    """The pipe between roles, if there is one."""
    pipes = (pipe_of(stmt.body) for stmt in walk(body) if isinstance(stmt, For))
    return next((pipe for pipe in pipes if pipe is not None and pipe.sync == "roles"), None)


def part_ways(body: Body, pipe: Pipe) -> Body:
    """The body of a kernel in roles, behind names and local memory, which all have."""
    roles = pipe.roles
    if roles is None:
        raise LoweringError(f"pipe {pipe.name} has no roles")
    shared = next(i for i, stmt in enumerate(body) if not _is_for_all(stmt))
    rest, (more, fewer) = body[shared:], _shares(roles)
    own = If(compare("==", LOCAL_INDEX, roles.consumers), _copying(rest, pipe))
    consume: Body = (Comment("Those that multiply, and store C."), *more, *_multiplying(rest, pipe))
    produce: Body = (Comment("One that copies, ahead of them as far as there is room."), *fewer, own)
    ready = (
        replace(_mbarrier("init", "full", pipe), index=LOCAL_INDEX, arrivals=1),
        replace(_mbarrier("init", "empty", pipe), index=LOCAL_INDEX, arrivals=roles.consumers // WARP),
        Barrier(),
    )
    return (*body[:shared], *ready, If(roles.rows > LOCAL_ROW, consume, produce, roles=True))


def _is_for_all(stmt: Stmt) -> bool:
    return isinstance(stmt, Let | Handover) or (isinstance(stmt, Alloc) and stmt.buffer.space is Space.LOCAL)


def _shares(roles: Roles) -> tuple[Body, Body]:
    """What is said of registers, to those that multiply and to those that copy."""
    more, fewer = roles.registers
    return ((RegisterShare(more, True),), (RegisterShare(fewer, False),)) if more else ((), ())


def _mbarrier(verb: MbarrierVerb, which: str, pipe: Pipe, slot: Expr = SLOT) -> Mbarrier:
    return Mbarrier(verb, f"{pipe.name}_{which}", pipe.stages, slot)


def _step_of(loop: For) -> Expr:
    """How many steps came before."""
    return (loop.var - loop.start) // loop.step


# --- those that copy ------------------------------------------------------------------------------


def _copying(body: Body, pipe: Pipe) -> Body:
    """Of a body, the names and the loops that lead to the copies."""
    at, loop = next((i, s) for i, s in enumerate(body) if isinstance(s, For) and role_pipe((s,)) == pipe)
    names = (stmt for stmt in body[:at] if isinstance(stmt, Let))
    if pipe_of(loop.body) == pipe:
        return (*names, replace(loop, body=_copy_step(loop, pipe, split(loop.body, pipe))))
    return (*names, replace(loop, body=_copying(loop.body, pipe)))


def _copy_step(loop: For, pipe: Pipe, parts: Parts) -> Body:
    step, full = _step_of(loop), _mbarrier("expect", "full", pipe)

    def told(stmt: Stmt) -> Body:
        return (replace(stmt, tells=full),) if isinstance(stmt, Stage) else (stmt,)

    copies = map_body(in_slot(parts.produce, pipe, SLOT), told)
    size = sum(_bytes(stmt) for stmt in copies if isinstance(stmt, Stage))
    free = replace(_mbarrier("wait", "empty", pipe), parity=(step // pipe.stages + 1) % 2)
    return (Let(SLOT, step % pipe.stages), *parts.before, free, replace(full, bytes=size), *copies)


def _bytes(stage: Stage) -> int:
    """What the boxes of a tile bring, wherever they lie."""
    boxes = as_int(stage.dst.buffer.shape[1]) or 1
    return boxes * box_bytes(stage.src.buffer)


# --- those that multiply --------------------------------------------------------------------------


def _multiplying(body: Body, pipe: Pipe) -> Body:
    """All that is not about copies."""
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
            out += _multiply_steps(stmt, pipe, split(stmt.body, pipe))
        elif isinstance(stmt, For) and role_pipe((stmt,)) == pipe:
            out.append(replace(stmt, body=_multiplying(stmt.body, pipe)))
        else:
            out.append(stmt)
    return tuple(out)


def _multiply_steps(loop: For, pipe: Pipe, parts: Parts) -> Body:
    """The loop, and the wait for what it leaves under way."""
    step = _step_of(loop)
    before = (step + (pipe.stages - 1)) % pipe.stages
    by_warp = both(loop.start < loop.var, compare("==", LOCAL_INDEX % WARP, 0))
    done = MultiplyGroup("wait", 0, _sums(parts))
    begin: Body = (
        Let(SLOT, step % pipe.stages),
        *parts.before,
        replace(_mbarrier("wait", "full", pipe), parity=step // pipe.stages % 2),
        MultiplyGroup("fence"),
        *in_slot(parts.consume, pipe, SLOT),
        MultiplyGroup("commit"),
    )
    if parts.after:  # which uses the sums of the step
        arrive = If(compare("==", LOCAL_INDEX % WARP, 0), (_mbarrier("arrive", "empty", pipe),))
        return (replace(loop, body=(*begin, done, arrive, *parts.after)),)
    body: Body = (
        *begin,
        Comment("What the step before has read may be overwritten."),
        MultiplyGroup("wait", 1),
        If(by_warp, (_mbarrier("arrive", "empty", pipe, before),)),
    )
    return (replace(loop, body=body), done)


def _sums(parts: Parts) -> Buffer:
    return next(stmt.acc.buffer for stmt in walk(parts.consume) if isinstance(stmt, TileMma))
