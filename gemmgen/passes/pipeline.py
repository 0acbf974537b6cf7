"""Lower pipes: turn acquire/commit/wait/release into prologues, slots and barriers.

With S slots the producer runs S - 1 steps ahead. In step t of a loop

    wait      a barrier: tile t is there, and nobody still reads slot t - 1
    acquire   the producer fills slot (t + S - 1) % S, which is slot t - 1
    consume   slot t % S

so that one barrier a step is enough for S >= 2. With one slot the two take turns, between two barriers. On targets
whose loops must not begin with a barrier, it stands before the loop and at the end of each step.
A pipe through registers loads before the consumer's work and stores after it, so that the loads' latency
passes behind arithmetic. A pipe without `sync` (registers of one thread) needs no barrier at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile

from gemmgen.ir.constants import is_free
from gemmgen.ir.expr import Const, Expr, Node, as_int
from gemmgen.ir.kernel import Kernel, loop
from gemmgen.ir.stmt import Block, Body, Comment, CooperativeCopy, For, If, Let, Registers, Stmt
from gemmgen.ir.synchronization import AsyncGroup, Barrier, DependentLaunch, Mbarrier, Pipe, PipeOp
from gemmgen.ir.walk import map_body, map_body_exprs, map_parts, substitute
from gemmgen.passes.mbarrier_ring import lower_batches, ring_with_producer, specialize_ring
from gemmgen.passes.slots import Across, Parts, across_in, by_elements, in_slot, pipe_of, split, whole_or_part
from gemmgen.passes.warp_specialization import role_pipe, specialize
from gemmgen.positions import K_LOAD, LOAD_STAGE, STAGE


def pipeline(kernel: Kernel) -> Kernel:
    """The kernel without pipe verbs."""
    if (pipe := role_pipe(kernel.body)) is not None:
        return replace(kernel, body=specialize(kernel.body, pipe))
    if (pipe := ring_with_producer(kernel.body)) is not None:
        return replace(kernel, body=map_body(specialize_ring(kernel.body, pipe), _lower_loop))
    body = _ready_once(map_body(kernel.body, _lower_loop))
    return replace(kernel, body=_awaited_late(_said_behind(_serialise_all(body))))


def _ready_once(body: Body) -> Body:
    """Barriers of a ring that loops share are made ready before the first."""
    out: list[Stmt] = []
    for stmt in body:
        inside = stmt.body if isinstance(stmt, For) else ()
        made = tuple(s for s in inside if isinstance(s, Mbarrier) and s.verb == "init")
        if isinstance(stmt, For) and made:
            met = next(s for s in stmt.body if isinstance(s, Barrier))
            out += (*made, met)
            stmt = replace(stmt, body=tuple(s for s in stmt.body if s not in made and s is not met))
        out.append(stmt)
    return tuple(out)


def _said_behind(body: Body) -> Body:
    """What is said of a loop stands behind the barriers that are made ready for it."""
    for i, (said, first) in enumerate(pairwise(body)):
        if isinstance(said, Comment) and isinstance(first, Mbarrier):
            ready = tuple(takewhile(lambda stmt: isinstance(stmt, Barrier | Mbarrier), body[i + 1 :]))
            return (*body[:i], *ready, said, *body[i + 1 + len(ready) :])
    return body


def _awaited_late(body: Body) -> Body:
    """Barriers are made ready while the kernels before end."""
    out = list(body)
    for i in range(1, len(out)):
        if isinstance(out[i - 1], DependentLaunch) and isinstance(out[i], Barrier | Mbarrier):
            out[i - 1], out[i] = out[i], out[i - 1]
    return tuple(out)


def _free(pipe: Pipe) -> Body:
    """Wait until nobody reads the slot that is filled next."""
    return () if pipe.sync == "none" else (Barrier(),)


def _ready(pipe: Pipe, ahead: int) -> Body:
    """Wait until a slot is filled, while those of `ahead` later steps may still be on their way."""
    landed = (AsyncGroup("wait", ahead),) if pipe.sync == "async_group" else ()
    return (*landed, *_free(pipe))


def _committed(pipe: Pipe) -> Body:
    """The copies of a step as one group; a step past the end makes an empty one, so that counts stay right."""
    return (AsyncGroup("commit"),) if pipe.sync == "async_group" else ()


def _only(body: Body, part: str) -> Body:
    """One half of each staging through registers; what goes past them, all of it with the loads."""

    def rewrite(stmt: Stmt) -> Body:
        if isinstance(stmt, AsyncGroup) or (isinstance(stmt, CooperativeCopy) and stmt.via is None):
            return (stmt,) if part == "load" else ()
        if not isinstance(stmt, CooperativeCopy):
            return (stmt,)
        return (replace(stmt, part="load" if part == "load" else "store"),)

    return map_body(body, rewrite)


def _lower_loop(stmt: Stmt) -> Body:
    """A loop whose body has a pipe, as prologue and steady state."""
    pipe = pipe_of(stmt.body) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or pipe is None or pipe.across_tiles:
        return (stmt,)
    parts = split(stmt.body, pipe)
    if pipe.sync == "mbarrier":
        return lower_batches(stmt, pipe, parts)
    if pipe.stages == 1 and not pipe.through_registers:
        return (replace(stmt, body=_in_turn(parts, pipe)),)
    ahead = max(pipe.stages - 1, 1)
    produce = partial(_produce_at, stmt, pipe, parts.produce)
    if is_free(ahead):
        prologue = loop(LOAD_STAGE, ahead, produce(stmt.start + LOAD_STAGE * stmt.step, LOAD_STAGE))
    else:
        filled = (produce(stmt.start + i * stmt.step, Const(i % pipe.stages)) for i in range(ahead))
        # What has names ends with them.
        prologue = tuple(x for body in filled for x in ((Block(body),) if isinstance(body[0], Let) else body))
    step = (stmt.var - stmt.start) // stmt.step
    names, (slot, next_slot) = _slots(pipe, step % pipe.stages, (step + ahead) % pipe.stages)
    following = produce(stmt.var + ahead * stmt.step, next_slot)
    ready = _ready(pipe, ahead - 1)
    consume = partial(in_slot, parts.consume, pipe)
    head = (*names, *parts.before)
    inner = across_in(parts.consume)
    if inner is None:
        work = _work(pipe, following, consume(slot))
        if not pipe.leads:
            return (*prologue, *ready, _lowered(stmt, (*head, *work, *parts.after, *ready)))
        return (*prologue, _lowered(stmt, (*head, *ready, *work, *parts.after)))
    across = Across.of(inner, consume, slot)
    first = (*ready, If(stmt.start < stmt.stop, across.fill_first(Const(0))))
    body = _round_across(stmt, pipe, ready, following, across)
    return (*prologue, *first, _lowered(stmt, (*head, *body, *parts.after)))


def _lowered(loop: For, body: Body) -> For:
    """The loop without a pipe."""
    return replace(loop, body=body, copied_until=None)


def _work(pipe: Pipe, following: Body, consume: Body) -> Body:
    """The halves in order: begin later copies, compute, and store what went through registers."""
    if not pipe.through_registers:
        return (*following, *consume)
    # One slot: its readers must be done before it is overwritten.
    turn = _free(pipe) if pipe.stages == 1 else ()
    return (*_only(following, "load"), *consume, *turn, *_only(following, "store"))


def _round_across(loop: For, pipe: Pipe, ready: Body, following: Body, across: Across) -> Body:
    """The same where operands of the next tile are read before it begins.

    The wait for the next tile stands before the last inner step; what is read there fills the slot of
    registers with which the next round starts.
    """
    through = pipe.through_registers
    begin = _only(following, "load") if through else following
    finish = _only(following, "store") if through else ()
    next_tile = ((loop.var - loop.start) // loop.step + 1) % pipe.stages
    read_next = If(loop.var + loop.step < loop.stop, across.fill_first(next_tile))
    return (*begin, across.steps, *finish, *ready, read_next, *across.last)


def _slots(pipe: Pipe, slot: Expr, next_slot: Expr) -> tuple[Body, tuple[Expr, Expr]]:
    """The slot that is read and the one that is filled, by name in a loop that stays a loop."""
    if pipe.sync == "none" or pipe.stages == 1:
        return (), (slot, next_slot)
    lets = Let(STAGE, slot), Let(LOAD_STAGE, next_slot)
    return lets, (lets[0].var, lets[1].var)


def _produce_at(loop: For, pipe: Pipe, produce: Body, position: Expr, slot: Expr) -> Body:
    """The producer's half for the step at `position`, if the loop reaches it."""
    # Of what is one statement, the step has a name: the prologue's copy of it is then the loop's.
    named: Body = ()
    if not (pipe.through_registers or pipe.sync == "none"):
        named, position = (Let(K_LOAD, position),), K_LOAD
        if isinstance(slot, Const) and pipe.stages > 1:
            named, slot = (Let(LOAD_STAGE, slot), *named), LOAD_STAGE
    shifted = map_body_exprs(produce, substitute({loop.var: position}))
    fill = in_slot(shifted, pipe, slot)
    # Said so that guards inside follow from it: a whole step is there, not only its first element.
    whole = position + loop.step <= loop.copies_end
    either = whole_or_part(fill, whole)
    if not loop.exact:
        reached = If(position < loop.stop, either)
    else:
        # What is never copied by single elements needs its other way wherever lines begin.
        ways = fill if by_elements(fill) else either
        reached = If(whole if as_int(loop.stop) is None else position < loop.stop, ways)
    return (*named, reached, *_committed(pipe))


def _in_turn(parts: Parts, pipe: Pipe) -> Body:
    produce = (*_free(pipe), *parts.produce, *_committed(pipe))
    return (*parts.before, *produce, *_ready(pipe, 0), *parts.consume, *parts.after)


def _serialise_all(body: Body) -> Body:
    """What remains outside of loops (the rest of K) takes turns, in slot 0."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case If(condition, then, orelse):
                out.append(If(condition, _serialise_all(then), _serialise_all(orelse)))
            case For() if (pipe := pipe_of(stmt.body)) is not None:
                out += _lower_loop(_alone(stmt, pipe))
            case _:
                out.append(stmt)
    pipe = pipe_of(tuple(out))
    if pipe is None:
        return tuple(out)
    slot: Callable[[Body], Body] = partial(in_slot, pipe=pipe, slot=Const(0))
    parts = split(tuple(out), pipe)
    return _in_turn(replace(parts, produce=slot(parts.produce), consume=slot(parts.consume)), pipe)


def _alone(loop: For, pipe: Pipe) -> For:
    """A loop with its pipe ending where the loop ends: what stands outside of a loop over tiles."""
    plain = replace(pipe, across_tiles=False)

    def part(held: Node) -> Node:
        return replace(held, pipe=plain) if isinstance(held, Registers) and held.pipe == pipe else held

    def rewrite(stmt: Stmt) -> Body:
        return (
            (PipeOp(stmt.verb, plain),) if isinstance(stmt, PipeOp) and stmt.pipe == pipe else (map_parts(stmt, part),)
        )

    return replace(loop, body=map_body(loop.body, rewrite))
