"""Lower pipes: turn acquire/commit/wait/release into prologues, slots and barriers.

With S slots the producer runs S - 1 steps ahead. In step t of a loop

    wait      a barrier: tile t is there, and nobody still reads slot t - 1
    acquire   the producer fills slot (t + S - 1) % S, which is slot t - 1
    consume   slot t % S

so that one barrier a step is enough for S >= 2. With one slot the two take turns, between two barriers.
A pipe through registers loads before the consumer's work and stores after it, so that the loads' latency
passes behind arithmetic. A pipe without `sync` (registers of one work-item) needs no barrier at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gemmgen.errors import LoweringError
from gemmgen.ir.expr import Const, Expr, Var, as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import (
    AsyncGroup,
    Barrier,
    Body,
    Copy,
    For,
    If,
    Let,
    Mma,
    Pipe,
    PipeOp,
    PipeVerb,
    Registers,
    Stage,
    Stmt,
    Tile,
)
from gemmgen.ir.visit import map_body, map_body_exprs, substitute


def pipeline(kernel: Kernel) -> Kernel:
    """The kernel without pipe verbs."""
    body = map_body(kernel.body, _lower_loop)
    return replace(kernel, body=_serialise_all(body))


@dataclass(frozen=True)
class _Parts:
    """A body with one pipe, taken apart."""

    before: Body
    produce: Body
    consume: Body
    after: Body


def _pipe_of(body: Body) -> Pipe | None:
    return next((s.pipe for s in body if isinstance(s, PipeOp)), None)


def _split(body: Body, pipe: Pipe) -> _Parts:
    at: dict[PipeVerb, int] = {s.verb: i for i, s in enumerate(body) if isinstance(s, PipeOp) and s.pipe == pipe}
    try:
        acquire, commit, wait, release = (at[v] for v in ("acquire", "commit", "wait", "release"))
    except KeyError as missing:
        raise LoweringError(f"pipe {pipe.name}: a body lacks {missing}") from None
    return _Parts(body[:acquire], body[acquire + 1 : commit], body[wait + 1 : release], body[release + 1 :])


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


def _in_slot(body: Body, pipe: Pipe, slot: Expr) -> Body:
    """The body with the pipe's buffers at one slot of their ring."""

    def tile(t: Tile) -> Tile:
        return replace(t, origin=(slot, *t.origin[1:])) if t.pipe == pipe else t

    def registers(r: Registers) -> Registers:
        return replace(r, slot=slot) if r.pipe == pipe else r

    def rewrite(stmt: Stmt) -> Body:
        match stmt:
            case Copy():
                return (replace(stmt, dst=registers(stmt.dst), src=tile(stmt.src)),)
            case Stage():
                return (replace(stmt, dst=tile(stmt.dst)),)
            case Mma():
                return (replace(stmt, a=registers(stmt.a), b=registers(stmt.b)),)
        return (stmt,)

    return map_body(body, rewrite)


def _only(body: Body, part: str) -> Body:
    """One half of each staging through registers."""

    def rewrite(stmt: Stmt) -> Body:
        if not isinstance(stmt, Stage):
            return (stmt,)
        return (replace(stmt, part="load" if part == "load" else "store"),)

    return map_body(body, rewrite)


def _lower_loop(stmt: Stmt) -> Body:
    """A loop whose body has a pipe, as prologue and steady state."""
    pipe = _pipe_of(stmt.body) if isinstance(stmt, For) else None
    if not isinstance(stmt, For) or pipe is None or pipe.across:
        return (stmt,)
    parts = _split(stmt.body, pipe)
    if pipe.stages == 1 and not pipe.through_registers:
        return (replace(stmt, body=_in_turn(parts, pipe)),)
    ahead = max(pipe.stages - 1, 1)
    produce = partial(_produce_at, stmt, pipe, parts.produce)
    prologue = [s for i in range(ahead) for s in produce(stmt.start + i * stmt.step, Const(i % pipe.stages))]
    step = stmt.var // stmt.step
    names, (slot, next_slot) = _slots(pipe, step % pipe.stages, (step + ahead) % pipe.stages)
    following = produce(stmt.var + ahead * stmt.step, next_slot)
    steady = _Steady(pipe, _ready(pipe, ahead - 1), following, partial(_in_slot, parts.consume, pipe), slot)
    head = (*names, *parts.before)
    inner = _across_in(parts.consume)
    if inner is None:
        return (*prologue, replace(stmt, body=(*head, *steady.body(), *parts.after)))
    first, body = steady.across(stmt, inner)
    return (*prologue, *first, replace(stmt, body=(*head, *body, *parts.after)))


@dataclass(frozen=True)
class _Steady:
    """One round of a pipelined loop.

    Attributes:
        ready: waits until the slot that is read is filled.
        following: the producer's half for a later round.
        consume: the consumer's half, by the slot that it reads.
        slot: that slot.
    """

    pipe: Pipe
    ready: Body
    following: Body
    consume: Callable[[Expr], Body]
    slot: Expr

    def body(self) -> Body:
        """The halves in order: wait, begin later copies, compute, and store what went through registers."""
        consume = self.consume(self.slot)
        if not self.pipe.through_registers:
            return (*self.ready, *self.following, *consume)
        # One slot: its readers must be done before it is overwritten.
        turn = _free(self.pipe) if self.pipe.stages == 1 else ()
        return (*self.ready, *_only(self.following, "load"), *consume, *turn, *_only(self.following, "store"))

    def across(self, loop: For, inner: For) -> tuple[Body, Body]:
        """What goes before the loop, and the round, where operands of the next tile are read before it begins.

        The wait for the next tile stands before the last inner step; what is read there fills the slot of
        registers with which the next round starts.
        """
        fragments = _pipe_of(inner.body)
        if fragments is None:
            raise LoweringError("a loop across tiles without a pipe")
        next_tile = (loop.var // loop.step + 1) % self.pipe.stages

        def step(slot: Expr) -> tuple[Callable[[Expr], Body], Callable[[Expr], Body]]:
            """(fill, compute) of an inner step, reading the tile in `slot`."""
            tile = next(s for s in self.consume(slot) if isinstance(s, For))
            parts = _split(tile.body, fragments)

            def at(body: Body, position: Expr) -> Body:
                shifted = map_body_exprs(body, substitute({inner.var: position}))
                return _in_slot(shifted, fragments, position // inner.step % fragments.stages)

            return partial(at, parts.produce), partial(at, parts.consume)

        fill, compute = step(self.slot)
        fill_first, fill_next = step(Const(0))[0], step(next_tile)[0]
        last = as_int(inner.stop)
        if last is None:
            raise LoweringError("a loop across tiles needs a known number of inner steps")
        final = Const(last - inner.step)
        steps = replace(inner, stop=final, body=(*fill(inner.var + inner.step), *compute(inner.var)))
        through = self.pipe.through_registers
        begin = _only(self.following, "load") if through else self.following
        finish = _only(self.following, "store") if through else ()
        follows = loop.var + 2 * loop.step <= loop.stop
        round_ = (*begin, steps, *finish, *self.ready, If(follows, fill_next(Const(0))), *compute(final))
        first = (*self.ready, If(loop.start + loop.step <= loop.stop, fill_first(Const(0))))
        return first, round_


def _across_in(body: Body) -> For | None:
    """The inner loop whose pipe goes on from one tile to the next, if there is one."""
    for stmt in body:
        if isinstance(stmt, For) and (pipe := _pipe_of(stmt.body)) is not None and pipe.across:
            return stmt
    return None


def _slots(pipe: Pipe, slot: Expr, next_slot: Expr) -> tuple[Body, tuple[Expr, Expr]]:
    """The slot that is read and the one that is filled, by name in a loop that stays a loop."""
    if pipe.sync == "none" or pipe.stages == 1:
        return (), (slot, next_slot)
    lets = Let(Var("slot"), slot), Let(Var("next_slot"), next_slot)
    return lets, (lets[0].var, lets[1].var)


def _produce_at(loop: For, pipe: Pipe, produce: Body, position: Expr, slot: Expr) -> Body:
    """The producer's half for the step at `position`, if the loop reaches it."""
    shifted = map_body_exprs(produce, substitute({loop.var: position}))
    # Said so that guards inside follow from it: a whole step is there, not only its first element.
    whole = loop.exact and as_int(loop.stop) is None
    reached = position + loop.step <= loop.stop if whole else position < loop.stop
    return (If(reached, _in_slot(shifted, pipe, slot)), *_committed(pipe))


def _in_turn(parts: _Parts, pipe: Pipe) -> Body:
    produce = (*_free(pipe), *parts.produce, *_committed(pipe))
    return (*parts.before, *produce, *_ready(pipe, 0), *parts.consume, *parts.after)


def _serialise_all(body: Body) -> Body:
    """What remains outside of loops (the rest of K) takes turns, in slot 0."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case If(condition, then, orelse):
                out.append(If(condition, _serialise_all(then), _serialise_all(orelse)))
            case For() if (pipe := _pipe_of(stmt.body)) is not None:
                out += _lower_loop(_alone(stmt, pipe))
            case _:
                out.append(stmt)
    pipe = _pipe_of(tuple(out))
    if pipe is None:
        return tuple(out)
    slot: Callable[[Body], Body] = partial(_in_slot, pipe=pipe, slot=Const(0))
    parts = _split(tuple(out), pipe)
    return _in_turn(replace(parts, produce=slot(parts.produce), consume=slot(parts.consume)), pipe)


def _alone(loop: For, pipe: Pipe) -> For:
    """A loop with its pipe ending where the loop ends: what stands outside of a loop over tiles."""
    plain = replace(pipe, across=False)

    def own(registers: Registers) -> Registers:
        return replace(registers, pipe=plain) if registers.pipe == pipe else registers

    def rewrite(stmt: Stmt) -> Body:
        match stmt:
            case PipeOp(verb, other) if other == pipe:
                return (PipeOp(verb, plain),)
            case Copy():
                return (replace(stmt, dst=own(stmt.dst)),)
            case Mma():
                return (replace(stmt, a=own(stmt.a), b=own(stmt.b)),)
        return (stmt,)

    return replace(loop, body=map_body(loop.body, rewrite))
