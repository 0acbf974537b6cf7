"""Bodies with a pipe, taken apart: producer, consumer, and the slots of a ring that they speak of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby

from gemmgen.errors import LoweringError
from gemmgen.ir.constants import WIDTH, named
from gemmgen.ir.copy_instructions import SCALAR, aligned
from gemmgen.ir.expr import Const, Expr, Node, all_of, as_int
from gemmgen.ir.stmt import Body, CooperativeCopy, For, If, Registers, Stmt, Tile
from gemmgen.ir.synchronization import Pipe, PipeOp, PipeVerb
from gemmgen.ir.walk import map_body, map_body_exprs, map_parts, of_kind, substitute
from gemmgen.records import dataclass

#: Elements that go through registers one by one: so many at once, as most registers are taken. With 16, fewer blocks
#: fit on a multiprocessor.
SINGLY_AT_ONCE = 8


@dataclass(frozen=True)
class Parts:
    """A body with one pipe, taken apart."""

    before: Body
    produce: Body
    consume: Body
    after: Body


def pipe_of(body: Body) -> Pipe | None:
    """The pipe whose verbs stand in a body, if there is one."""
    return next((s.pipe for s in body if isinstance(s, PipeOp)), None)


def split(body: Body, pipe: Pipe) -> Parts:
    """Raises: LoweringError if a verb is missing."""
    at: dict[PipeVerb, int] = {s.verb: i for i, s in enumerate(body) if isinstance(s, PipeOp) and s.pipe == pipe}
    try:
        acquire, commit, wait, release = (at[v] for v in ("acquire", "commit", "wait", "release"))
    except KeyError as missing:
        raise LoweringError(f"pipe {pipe.name}: a body lacks {missing}") from None
    return Parts(body[:acquire], body[acquire + 1 : commit], body[wait + 1 : release], body[release + 1 :])


def in_slot(body: Body, pipe: Pipe, slot: Expr) -> Body:
    """The body with the pipe's buffers at one slot of their ring."""

    def part(held: Node) -> Node:
        match held:
            case Tile(origin=origin) if held.pipe == pipe:
                return replace(held, origin=(slot, *origin[1:]))
            case Registers() if held.pipe == pipe:
                return replace(held, slot=slot)
        return held

    return map_body(body, lambda stmt: (map_parts(stmt, part),))


def across_in(body: Body) -> For | None:
    """The inner loop whose pipe goes on from one tile to the next, if there is one."""
    for stmt in body:
        if isinstance(stmt, For) and (pipe := pipe_of(stmt.body)) is not None and pipe.across_tiles:
            return stmt
    return None


def by_elements(body: Body) -> bool:
    """Whether all that a producer's half copies can be copied by single elements as well."""
    return not any(_whole_only(s) for s in of_kind(CooperativeCopy, body))


def _whole_only(stage: CooperativeCopy) -> bool:
    """Whether its elements are too small to be copied asynchronously one by one."""
    return stage.atom.is_async and not stage.atom.moves(1, stage.src.buffer.dtype.size)


def whole_or_part(body: Body, whole: Expr) -> Body:
    """A producer's half in two versions: for what lies inside the range, by vectors where lines begin on multiples of
    them, and for the rest, element by element. What single elements can't be copied by is told how many are inside;
    where lines begin anywhere, those go through registers. What was packed lies in whole tiles, and is copied by
    vectors in either. Where lines of both operands must begin so, each decides for itself.
    """
    stages = [s for s in of_kind(CooperativeCopy, body) if not s.src.buffer.prepacked]
    alone = by_elements(body)
    lines = dict.fromkeys(c for s in stages if (c := aligned(s.atom, s.width, s.src.buffer)) is not None)
    if lines and (len(lines) > 1 or not alone) and all(isinstance(s, CooperativeCopy) for s in body):
        copies = (s for s in body if isinstance(s, CooperativeCopy))
        of_each = groupby(copies, key=lambda s: s.src.buffer)
        return tuple(way for _, parts in of_each for way in _by_alignment(tuple(parts), whole, alone))

    def narrow(stmt: Stmt) -> Body:
        match stmt:
            case CooperativeCopy() if stmt.src.buffer.prepacked:
                pass
            case CooperativeCopy() if stmt.atom.moves(1, stmt.src.buffer.dtype.size):
                return (replace(stmt, width=1),)
            case CooperativeCopy() if _whole_only(stmt):
                return (replace(stmt, atom=SCALAR, width=1, unroll_factor=SINGLY_AT_ONCE),)
            case For():
                return (replace(stmt, unroll=False),)
        return (stmt,)

    return (If(all_of((*((whole,) if alone else ()), *lines)), body, map_body(body, narrow)),)


def _by_alignment(parts: tuple[CooperativeCopy, ...], whole: Expr, alone: bool) -> Body:
    """An operand's copy by the widest vectors that its lines' beginnings allow, single elements last.

    Args:
        parts: all that is copied of it.
        alone: whether vectors are for whole steps, of which they need not be told how many elements are inside.
    """
    stage, *_ = parts
    matrix = stage.src.buffer
    if matrix.prepacked or stage.prologue is not None:
        # Vectors into registers are guarded one by one.
        return parts
    singly = tuple(
        replace(part, width=1, atom=SCALAR, unroll_factor=SINGLY_AT_ONCE)
        if _whole_only(part)
        else replace(part, width=1)
        for part in parts
    )
    sizes = (2 << i for i in range(stage.width.bit_length() - 1))
    vectors = [width for width in sizes if stage.atom.moves(width, matrix.dtype.size)]
    ways: Body = singly
    # Where single elements are copied asynchronously too, nothing stands between: TF32 would run out of registers.
    several = vectors[-1:] if alone else [named(WIDTH, width) for width in vectors]
    for width in several:
        may = aligned(stage.atom, width, matrix)
        given = all_of((*((whole,) if alone else ()), *(() if may is None else (may,))))
        of_width = tuple(replace(part, width=width) for part in parts)
        ways = (If(given, of_width if several[1:] else parts, ways),)
    return ways if vectors or not alone else (If(whole, parts, ways),)


@dataclass(frozen=True)
class Across:
    """The inner steps of a tile whose operands are read a step ahead, into the next tile.

    Attributes:
        steps: all inner steps but the last, each reading for the one after it.
        fill_first: reads a tile's first operands, by the tile's slot.
        last: the last step's arithmetic.
    """

    steps: For
    fill_first: Callable[[Expr], Body]
    last: Body

    @staticmethod
    def of(inner: For, consume: Callable[[Expr], Body], slot: Expr) -> Across:
        """The steps `inner` of a tile in `slot`, where `consume` is all that is done with a tile in a slot."""
        fragments = pipe_of(inner.body)
        stop = as_int(inner.stop)
        if fragments is None or stop is None:
            raise LoweringError("a loop across tiles needs a pipe and a known number of inner steps")

        def half(which: Callable[[Parts], Body], tile: Expr, position: Expr) -> Body:
            steps = next(s for s in consume(tile) if isinstance(s, For))
            shifted = map_body_exprs(which(split(steps.body, fragments)), substitute({inner.var: position}))
            return in_slot(shifted, fragments, position // inner.step % fragments.stages)

        fill, compute = partial(half, lambda p: p.produce), partial(half, lambda p: p.consume)
        body = (*fill(slot, inner.var + inner.step), *compute(slot, inner.var))
        final = Const(stop - inner.step)
        return Across(
            replace(inner, stop=final, body=body),
            lambda tile: fill(tile, Const(0)),
            compute(slot, final),
        )
