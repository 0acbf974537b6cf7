"""Lower pipes between roles: work-items that begin box copies, and others that multiply what they bring.

Each slot of the ring has two mbarriers. The one work-item that copies goes through all steps on its own:

    wait      for `empty` of the slot, which is over from the start
    acquire   `full` expects the boxes' bytes; begin the copies, which it counts

and so do those that multiply, with one group of instructions under way while the next is begun:

    wait      for `full` of the slot
    consume   begin the instructions; wait for those of the step before, and arrive at `empty` of its slot

Nobody meets but here, so that neither waits for the other unless the ring is empty, or full. Where a group computes
several blocks of C, one after the other, slots and phases go on from block to block: the first tiles of the next are
copied while those that multiply store the last.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Const, Expr, Var, both, ceil_div, compare
from gemmgen.ir.meetings import Barrier, Handover, Mbarrier, MbarrierVerb, MultiplyGroup, RegisterShare, Roles
from gemmgen.ir.pipe import Pipe
from gemmgen.ir.stmt import Alloc, Body, Comment, Copy, For, If, Let, Stage, Stmt, TileMma
from gemmgen.ir.walk import exprs, map_body, walk, walk_expr
from gemmgen.passes.positions import LOCAL_INDEX, LOCAL_ROW
from gemmgen.passes.slots import Parts, in_slot, pipe_of, split
from gemmgen.passes.store_turns import in_turns, turns_ready

SLOT = Var("slot")
#: Steps of K of each block, where a group has several; and which step it is, counted over all of them.
STEPS, STEP = Var("steps"), Var("step")
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
    handover = tuple(stmt for stmt in body[:shared] if isinstance(stmt, Handover | Barrier))
    common = tuple(stmt for stmt in body[:shared] if stmt not in handover)
    rest = body[shared:]
    blocks, loop = _loops(rest, pipe)
    before = Const(0) if blocks is None else blocks.var * STEPS
    named = () if blocks is None else (Let(STEPS, ceil_div(loop.stop - loop.start, loop.step)),)
    ready = (
        replace(_mbarrier("init", "full", pipe), index=LOCAL_INDEX, arrivals=1),
        replace(_mbarrier("init", "empty", pipe), index=LOCAL_INDEX, arrivals=roles.consumers // WARP * roles.cluster),
        *turns_ready(roles),
        Barrier(groups=roles.cluster),
        # Mbarriers are made ready while the kernel before ends.
        *handover,
    )
    first = next(i for i, stmt in enumerate(common) if isinstance(stmt, Alloc))
    sides = parted(roles, _multiplying(rest, pipe, before), _copying(rest, pipe, before))
    last = (Comment("No one leaves to whom others may still copy."), Barrier(groups=roles.cluster))
    return (*common[:first], *named, *common[first:], *ready, sides, *(last if roles.cluster > 1 else ()))


def parted(roles: Roles, multiply: Body, copy: Body) -> If:
    """Both sides of a kernel in roles, with what is said of registers to each."""
    more, fewer = roles.registers
    taken, given = ((RegisterShare(more, True),), (RegisterShare(fewer, False),)) if more else ((), ())
    own = If(compare("==", LOCAL_INDEX, roles.consumers), copy)
    consume: Body = (Comment("Those that multiply, and store C."), *taken, *multiply)
    produce: Body = (Comment("One that copies, ahead of them as far as there is room."), *given, own)
    return If(roles.rows > LOCAL_ROW, consume, produce, roles=True)


def _is_for_all(stmt: Stmt) -> bool:
    if isinstance(stmt, Barrier):
        return stmt.part == "arrive"
    return isinstance(stmt, Let | Handover) or (isinstance(stmt, Alloc) and stmt.buffer.space is Space.LOCAL)


def _mbarrier(verb: MbarrierVerb, which: str, pipe: Pipe, slot: Expr = SLOT) -> Mbarrier:
    return Mbarrier(verb, f"{pipe.name}_{which}", pipe.stages, slot)


def _loops(body: Body, pipe: Pipe) -> tuple[For | None, For]:
    """The loop over blocks of C, if there is one, and the one over steps of K."""
    outer = next(stmt for stmt in body if isinstance(stmt, For) and role_pipe((stmt,)) == pipe)
    if pipe_of(outer.body) == pipe:
        return None, outer
    return outer, _loops(outer.body, pipe)[1]


def _step_of(loop: For, before: Expr) -> tuple[Body, Expr]:
    """How many steps came before: those of blocks `before`, and this one's; by name where there are both."""
    step = (loop.var - loop.start) // loop.step
    return ((), step) if before == Const(0) else ((Let(STEP, before + step),), STEP)


# --- those that copy ------------------------------------------------------------------------------


def _copying(body: Body, pipe: Pipe, before: Expr) -> Body:
    """Of a body, the names and the loops that lead to the copies."""
    at, loop = next((i, s) for i, s in enumerate(body) if isinstance(s, For) and role_pipe((s,)) == pipe)
    own = pipe_of(loop.body) == pipe
    inner = _copy_step(loop, pipe, split(loop.body, pipe), before) if own else _copying(loop.body, pipe, before)
    return behind_names(body[:at], (replace(loop, body=inner),))


def behind_names(before: Body, body: Body) -> Body:
    """A body behind those names of what stands before it that it uses."""
    for stmt in reversed(before):
        if isinstance(stmt, Let) and stmt.var in used_in(body):
            body = (stmt, *body)
    return body


def used_in(body: Body) -> set[Expr]:
    """All that expressions are made of."""
    return {node for stmt in walk(body) for root in exprs(stmt) for node in walk_expr(root)}


def _copy_step(loop: For, pipe: Pipe, parts: Parts, before: Expr) -> Body:
    (named, step), full = _step_of(loop, before), _mbarrier("expect", "full", pipe)

    def told(stmt: Stmt) -> Body:
        return (replace(stmt, tells=full),) if isinstance(stmt, Stage) else (stmt,)

    copies = map_body(in_slot(parts.produce, pipe, SLOT), told)
    size = sum(_bytes(stmt) for stmt in copies if isinstance(stmt, Stage))
    free = replace(_mbarrier("wait", "empty", pipe), parity=(step // pipe.stages + 1) % 2)
    return (*named, Let(SLOT, step % pipe.stages), *parts.before, free, replace(full, bytes=size), *copies)


def _bytes(stage: Stage) -> int:
    """What the boxes of a tile bring, wherever they lie."""
    return stage.src.rows * stage.src.cols * stage.src.buffer.dtype.size


# --- those that multiply --------------------------------------------------------------------------


def _multiplying(body: Body, pipe: Pipe, before: Expr) -> Body:
    """All that is not about copies."""
    out: list[Stmt] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
            steps = _multiply_steps(stmt, pipe, split(stmt.body, pipe), before)
            return (*out, *steps, *in_turns(body[i + 1 :], pipe.roles))
        if isinstance(stmt, For) and role_pipe((stmt,)) == pipe:
            out.append(replace(stmt, body=_multiplying(stmt.body, pipe, before)))
        else:
            out.append(stmt)
    return tuple(out)


def _multiply_steps(loop: For, pipe: Pipe, parts: Parts, before: Expr) -> Body:
    """The loop, and the wait for what it leaves under way."""
    named, step = _step_of(loop, before)
    last = (step + (pipe.stages - 1)) % pipe.stages
    cluster = 1 if pipe.roles is None else pipe.roles.cluster
    # One lane of a warp for each group of the cluster.
    lane = LOCAL_INDEX % WARP
    first_of_warp = compare("==", lane, 0) if cluster == 1 else lane < cluster
    rank = None if cluster == 1 else lane
    whole = MultiplyGroup("wait", 0, _sums(parts))
    # What instructions take from registers is there before the fence.
    fills = tuple(stmt for stmt in parts.consume if not isinstance(stmt, TileMma))
    begin: Body = (
        *named,
        Let(SLOT, step % pipe.stages),
        *parts.before,
        replace(_mbarrier("wait", "full", pipe), parity=step // pipe.stages % 2),
        *in_slot(fills, pipe, SLOT),
        MultiplyGroup("fence", taken=next((s.dst.buffer for s in fills if isinstance(s, Copy)), None)),
        *in_slot(tuple(stmt for stmt in parts.consume if stmt not in fills), pipe, SLOT),
        MultiplyGroup("commit"),
    )
    if fills:  # which the next step's take the place of
        arrive = If(first_of_warp, (replace(_mbarrier("arrive", "empty", pipe), rank=rank),))
        return (replace(loop, body=(*begin, MultiplyGroup("wait", 0), arrive)), whole)
    if parts.after:  # which uses the sums of the step
        arrive = If(first_of_warp, (replace(_mbarrier("arrive", "empty", pipe), rank=rank),))
        return (replace(loop, body=(*begin, whole, arrive, *parts.after)),)
    body: Body = (
        *begin,
        Comment("What the step before has read may be overwritten."),
        MultiplyGroup("wait", 1),
        If(both(loop.start < loop.var, first_of_warp), (replace(_mbarrier("arrive", "empty", pipe, last), rank=rank),)),
    )
    done: Body = ()
    if named:  # for the next block: nothing comes after the last step that would arrive for it
        last = (before + STEPS - 1) % pipe.stages
        given = replace(_mbarrier("arrive", "empty", pipe, last), rank=rank)
        arrive = If(both(Const(0) < STEPS, first_of_warp), (given,))
        done = (Comment("So may what the last step has."), arrive)
    return (replace(loop, body=body), whole, *done)


def _sums(parts: Parts) -> Buffer:
    return next(stmt.acc.buffer for stmt in walk(parts.consume) if isinstance(stmt, TileMma))
