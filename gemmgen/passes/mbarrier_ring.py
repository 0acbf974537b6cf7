"""Lower pipes whose slots are handed over by mbarriers, a batch of them at a time.

With G batches in the ring, two mbarriers each, threads begin the copies of batch t + G - 2 in round t, and only
then compute:

    wait      for `empty` of that batch's place: everybody is done with what stood there, two rounds ago
    acquire   begin the copies; `full` is arrived at when they have landed
    wait      for `full` of batch t (of t + 1 where its first operands are read in this round)
    consume   the batch, slot by slot; arrive at `empty`

Nobody waits for the slowest thread of its own round, as a barrier of the group has it.

A batch of tiles lies along K without gaps, in shared memory as in the matrix, so that TMA brings an operand's batch as
one tile: its lines are steps of K, as long as a block is high or wide. One producer thread then begins all loads.
"""

from __future__ import annotations

from dataclasses import field, replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.checker import tma_tile_bytes
from gemmgen.ir.dtypes import BOOL, I32
from gemmgen.ir.expr import Const, Expr, Load, Var, as_int, compare, minimum, select
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    CooperativeCopy,
    For,
    FragmentLoad,
    If,
    Let,
    PointerIncrement,
    PointerInit,
    Stmt,
    Store,
    Tile,
)
from gemmgen.ir.synchronization import Barrier, DependentLaunch, Mbarrier, MbarrierVerb, Pipe
from gemmgen.ir.walk import map_body, map_body_exprs, map_expr, of_kind, substitute
from gemmgen.passes.slots import Across, Parts, across_in, in_slot, pipe_of, split, whole_or_part
from gemmgen.passes.warp_specialization import behind_names, by_roles
from gemmgen.positions import K_LOAD, LOAD_STAGE, LOCAL_INDEX, SLICE
from gemmgen.records import dataclass

BATCH, TILE = Var("k_batch"), Var("t")
#: Where the batch begins that is loaded meanwhile, and the one that is read next.
K_AHEAD, K_NEXT = Var("k_ahead"), Var("k_next")
#: The slot that is read.
SLOT = Buffer("slot", I32, Space.PRIVATE, Layout.packed())


def lower_batches(loop: For, pipe: Pipe, parts: Parts) -> Body:
    """A loop over single slots as one over batches of them; of roles, what those that compute do."""
    return _Batches(loop, pipe, parts).body()


def made_ready(pipe: Pipe) -> Body:
    """The mbarriers of a ring that one thread fills, and others read."""
    places, consumers = pipe.stages // pipe.batch, pipe.roles.consumers if pipe.roles else 0
    full = Mbarrier("init", f"{pipe.name}_full", places, LOCAL_INDEX, arrivals=1)
    return (full, replace(full, name=f"{pipe.name}_empty", arrivals=consumers), Barrier())


def copy_batches(loop: For, pipe: Pipe) -> For:
    """The same loop of the one that copies, ahead of the others as far as there is room."""
    batches = _Batches(loop, pipe, split(loop.body, pipe))
    freed = batches._mbarrier("wait", "empty", BATCH, 1)
    begun = map_body_exprs(batches.parts.produce, substitute({loop.var: BATCH}))
    full = batches._mbarrier("expect", "full", BATCH)
    copies = _tma_loads(in_slot(begun, pipe, batches._slot(BATCH)), full, pipe.batch)
    return replace(loop, var=BATCH, step=batches.depth, body=(freed, *copies))


def _ahead(stmt: Stmt) -> Body:
    return (replace(stmt, ahead=True),) if isinstance(stmt, FragmentLoad) else (stmt,)


@dataclass
class _Ring:
    """Each thread's views of the slot that it reads.

    Attributes:
        step: the variable of the loop over a slot's inner steps.
        points: where each view begins, by its name.
    """

    pipe: Pipe
    step: Var
    points: dict[str, PointerInit] = field(default_factory=dict)

    def viewed(self, stmt: Stmt) -> Body:
        """A copy from a slot of the ring as one from the thread's view of that slot."""
        if not isinstance(stmt, FragmentLoad) or stmt.src.pipe != self.pipe:
            return (stmt,)
        src, fragment = stmt.src, stmt.dst.fragment
        ring, (slow, fast) = src.buffer, src.origin[-2:]
        spreads = (fragment.cols, fragment.rows) if src.transposed else (fragment.rows, fragment.cols)
        first = substitute({self.step: Const(0)})
        own = (map_expr(at, first) + spread.start for at, spread in zip((slow, fast), spreads, strict=True))
        layout = Layout(ring.shape[1:], ring.layout.strides[1:])
        view = Buffer(f"{ring.name.removesuffix('_shared')}_tile", ring.dtype, Space.VIEW, layout)
        self.points[view.name] = PointerInit(view, ring, (Const(0), *own))
        from_own = replace(
            fragment, rows=replace(fragment.rows, lane=Const(0)), cols=replace(fragment.cols, lane=Const(0))
        )
        shared = substitute({SLICE: Const(0)})
        tile = replace(src, buffer=view, origin=(map_expr(slow, shared), map_expr(fast, shared)), pipe=None)
        return (replace(stmt, src=tile, dst=replace(stmt.dst, fragment=from_own)),)

    def begin(self, slot: Expr) -> Body:
        """The first slot of a loop."""
        points = (replace(point, index=(slot, *point.index[1:])) for point in self.points.values())
        pointers: Body = (
            Comment("Pointers to this thread's operands in the current stage."),
            *points,
        )
        return (*pointers, Alloc(SLOT), Store(SLOT, (), slot))

    def advance(self) -> Body:
        """The next slot, around the ring."""
        slots, last = self.pipe.stages, Var("last", BOOL)
        steps = [(p.view, as_int(p.buffer.layout.strides[0]) or 0) for p in self.points.values()]
        return (
            Let(last, compare("==", Load(SLOT, ()), slots - 1)),
            Store(SLOT, (), select(last, Const(0), Load(SLOT, ()) + 1)),
            *(PointerIncrement(view, select(last, Const(-(slots - 1) * size), Const(size))) for view, size in steps),
        )


@dataclass(frozen=True)
class _Batches:
    loop: For
    pipe: Pipe
    parts: Parts

    @property
    def depth(self) -> int:
        """What a batch covers of the loop's range."""
        return self.loop.step * self.pipe.batch

    @property
    def places(self) -> int:
        """Batches that the ring holds."""
        return self.pipe.stages // self.pipe.batch

    def body(self) -> Body:
        """Prologue and rounds."""
        loop, ahead = self.loop, (self.places - 2) * self.depth
        ready: Body = (self._mbarrier("init", "full"), self._mbarrier("init", "empty"), Barrier())
        end = minimum(loop.start + ahead, loop.stop)
        prologue: Body = (For(BATCH, loop.start, end, self.depth, self._produce(BATCH), exact=loop.exact),)
        freed = self._mbarrier("wait", "empty", K_AHEAD, 1)
        following: Body = (
            Let(K_AHEAD, BATCH + ahead),
            If(self._reached(K_AHEAD), (freed, *self._produce(K_AHEAD))),
        )
        release = self._mbarrier("arrive", "empty", BATCH)
        inner = across_in(self.parts.consume)
        if self.pipe.roles is not None:
            ready, prologue, following = (), (), ()
        if inner is None:
            consume = self._tiles(in_slot(self.parts.consume, self.pipe, self._slot(loop.var)))
            body: Body = (*following, self._mbarrier("wait", "full", BATCH), consume, release)
            return (*ready, *prologue, self._rounds(body))
        first, consume, next_full = self._across(inner)
        body = (*following, *next_full, consume, release)
        return (*ready, *prologue, *first, self._rounds(body))

    def _rounds(self, body: Body) -> For:
        """The loop over batches."""
        return replace(self.loop, var=BATCH, step=self.depth, body=body, copied_until=None)

    def _across(self, inner: For) -> tuple[Body, For, Body]:
        """What comes before the first round, the tiles of a round, and the wait for the batch after it.

        Every thread keeps a pointer to its own operands in the tile that is read, and moves it around the ring: an
        address that is computed anew for each tile costs instructions between the multiply-adds, and registers.
        """
        loop, ring = self.loop, _Ring(self.pipe, inner.var)
        tile = map_body(self.parts.consume, ring.viewed)
        across = Across.of(inner, lambda _slot: tile, Const(0))
        read_first = If(
            loop.start < loop.stop,
            (self._mbarrier("wait", "full", loop.start), *across.fill_first(Const(0))),
        )
        wait = self._mbarrier("wait", "full", K_NEXT)
        next_full: Body = (Let(K_NEXT, BATCH + self.depth), If(compare("<", K_NEXT, loop.stop), (wait,)))
        # After the last tile nothing follows: what is read there is not used.
        read_next = map_body(across.fill_first(Const(0)), _ahead)
        tiles = self._tiles((across.steps, *ring.advance(), *read_next, *across.last))
        return (*ring.begin(self._slot(loop.start)), read_first), tiles, next_full

    def _tiles(self, body: Body) -> For:
        """The batch's slots one by one, as far as the range goes."""
        loop = self.loop
        stop = BATCH + self.depth if loop.exact else minimum(BATCH + self.depth, loop.stop)
        return For(loop.var, BATCH, stop, loop.step, (*self.parts.before, *body, *self.parts.after))

    def _produce(self, position: Expr) -> Body:
        """The copies of a batch; past the range's end they load zeros."""
        pipe, arrive = self.pipe, self._mbarrier("arrive_copies", "full", position)
        named: Body = ()
        begin, first_slot = position, self._slot(position)
        if not self.loop.exact:
            # As a function's arguments: the prologue's copy of it is then the loop's. Of an exact range what bounds the
            # batch bounds all that is in it, and needs the batch's own position.
            named = (Let(LOAD_STAGE, first_slot), Let(K_LOAD, begin))
            begin, first_slot = K_LOAD, LOAD_STAGE
        shifted = map_body_exprs(self.parts.produce, substitute({self.loop.var: begin + TILE * self.loop.step}))
        copies = in_slot(shifted, pipe, first_slot + TILE)
        tiles = For(TILE, Const(0), Const(pipe.batch), 1, copies, unroll=True, exact=True)
        if self.loop.exact:
            return (tiles, arrive)
        return (*named, *whole_or_part((tiles,), begin + self.depth <= self.loop.copies_end), arrive)

    def _reached(self, position: Expr) -> Expr:
        """Whether the range has a batch there."""
        # Said so that guards inside follow from it: a whole batch is there, not only its first element.
        return position + self.depth <= self.loop.stop if self.loop.exact else position < self.loop.stop

    # --- places and phases ------------------------------------------------------------------------

    def _slot(self, position: Expr) -> Expr:
        tile = (position - self.loop.start) // self.loop.step
        before = self.pipe.before
        return (tile if before is None else before * self.pipe.batch + tile) % self.pipe.stages

    def _mbarrier(self, verb: MbarrierVerb, which: str, position: Expr | None = None, turn: int = 0) -> Mbarrier:
        """A step with the barrier of the batch at a position, `turn` phases away from that batch's own."""
        name = f"{self.pipe.name}_{which}"
        if position is None:
            return Mbarrier("init", name, self.places, LOCAL_INDEX)
        batch = (position - self.loop.start) // self.depth
        batch = batch if self.pipe.before is None else self.pipe.before + batch
        phase = (batch // self.places + turn) % 2 if verb == "wait" else Const(0)
        return Mbarrier(verb, name, self.places, batch % self.places, phase)


# --- filled by a producer -------------------------------------------------------------------------


def ring_with_producer(body: Body) -> Pipe | None:
    """The pipe of such a ring, if there is one."""
    pipes = (pipe_of(stmt.body) for stmt in of_kind(For, body))
    return next((p for p in pipes if p is not None and p.sync == "mbarrier" and p.roles is not None), None)


def specialize_ring(body: Body, pipe: Pipe) -> Body:
    """The body of a kernel, behind names and local memory, as those that multiply have it, and the one that copies."""
    roles = pipe.roles
    if roles is None:
        raise LoweringError(f"pipe {pipe.name} has no roles")
    first = next(i for i, stmt in enumerate(body) if _has(stmt, pipe))
    common = tuple(s for s in body[:first] if _is_for_all(s))
    own = tuple(s for s in body[:first] if not _is_for_all(s) and not isinstance(s, DependentLaunch))
    dependent_launch = tuple(s for s in body[:first] if isinstance(s, DependentLaunch))

    def multiplying(stmt: Stmt) -> Body:
        if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
            return lower_batches(stmt, pipe, split(stmt.body, pipe))
        # Those that multiply wait for nobody but for copies.
        return () if stmt == Barrier() else (stmt,)

    multiply = (*own, *map_body(body[first:], multiplying))
    return (*common, *made_ready(pipe), *dependent_launch, by_roles(roles, multiply, _producing(body[first], pipe)))


def _has(stmt: Stmt, pipe: Pipe) -> bool:
    """Whether it is the pipe's loop, or one around it, or asks whether that is run at all."""
    return any(pipe_of(s.body) == pipe for s in of_kind(For, (stmt,)))


def _is_for_all(stmt: Stmt) -> bool:
    return isinstance(stmt, Let | Comment) or (isinstance(stmt, Alloc) and stmt.buffer.space is Space.LOCAL)


def _producing(stmt: Stmt, pipe: Pipe) -> Body:
    """Of a loop, the names, the loops and the questions that lead to the copies."""
    if not isinstance(stmt, For | If):
        raise LoweringError(f"pipe {pipe.name} has no loop")
    if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
        return (copy_batches(stmt, pipe),)
    body = stmt.then if isinstance(stmt, If) else stmt.body
    inner = behind_names(body, _producing(next(s for s in body if _has(s, pipe)), pipe))
    return (replace(stmt, then=inner) if isinstance(stmt, If) else replace(stmt, body=inner),)


def _tma_loads(produce: Body, full: Mbarrier, tiles: int) -> Body:
    """The loads of a batch of so many tiles, by those of its first; `full` is told what comes."""

    def whole(tile: Tile) -> Tile:
        return replace(tile, cols=tile.cols * tiles) if tile.transposed else replace(tile, rows=tile.rows * tiles)

    def told(stmt: Stmt) -> Body:
        match stmt:
            case CooperativeCopy(dst, src):
                return (replace(stmt, dst=whole(dst), src=whole(src), mbarrier=full),)
        return (stmt,)

    size = sum(tma_tile_bytes(stmt.src.buffer) for stmt in produce if isinstance(stmt, CooperativeCopy))
    return (replace(full, bytes=size), *map_body(produce, told))
