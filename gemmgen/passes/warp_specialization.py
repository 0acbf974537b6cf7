"""Warp specialisation: one producer thread begins TMA loads, consumer warps multiply the tiles.

Each slot of the ring has two mbarriers. The producer goes through all steps on its own:

    wait      for `empty` of the slot, which is over from the start
    acquire   `full` expects the bytes of the TMA tiles; begin the loads, which it counts

and so do the consumers, with one group of instructions under way while the next is begun:

    wait      for `full` of the slot
    consume   begin the instructions; wait for those of the step before, and arrive at `empty` of its slot

Where A is taken from registers, an instruction is a group: while those before it are under way, the registers of the
next are filled, which a step before were taken by an instruction that is waited for.

Nobody meets but here, so that neither waits for the other unless the ring is empty, or full. Where a group computes
several blocks of C, one after the other, slots and phases go on from block to block: the first tiles of the next are
copied while consumers store the last.

Ordered epilogue (ping-pong): all of a group would come to the end of a block at the same time, and leave the matrix
units idle while they store. In turns the first is through sooner, and from then on ahead of the next by as much: it
stores while that one still multiplies, and multiplies for the next block while that one stores. Each waits for the one
before it; the first for the last one's turn at the block before, so that none is ahead by more than a block. Behind the
last block nothing is multiplied, so that all store at once.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import BYTE_OF_PAIR, PAIR
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, both, ceil_div, compare, select
from gemmgen.ir.kernel import end_of_search
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    Body,
    Comment,
    CooperativeCopy,
    For,
    FragmentLoad,
    If,
    Let,
    Stmt,
    Store,
    Tile,
    TileMma,
)
from gemmgen.ir.synchronization import (
    Barrier,
    DependentLaunch,
    Mbarrier,
    MbarrierVerb,
    MultiplyGroup,
    Pipe,
    SetMaxRegisters,
    WarpSpecialization,
)
from gemmgen.ir.walk import map_body, nodes, of_kind, walk
from gemmgen.passes.slots import Parts, in_slot, pipe_of, split
from gemmgen.positions import KK, LOCAL_INDEX, LOCAL_ROW, WARPGROUP, WAVE, WAVES

SLOT = Var("stage")
#: Steps of K of each block, where a group has several; and which step it is, counted over all of them.
STEPS, STEP = Var("steps"), Var("step")
#: Where blocks differ in their steps: those of the blocks before, and those that a side has done.
BEFORE = Var("steps_before")
_DONE = Buffer("steps_done", I32, Space.PRIVATE, Layout.packed(), places=True)
WARP = 32


def role_pipe(body: Body) -> Pipe | None:
    """The pipe between roles, if there is one."""
    pipes = (pipe_of(stmt.body) for stmt in of_kind(For, body))
    return next((pipe for pipe in pipes if pipe is not None and pipe.sync == "roles"), None)


def specialize(body: Body, pipe: Pipe) -> Body:
    """The body of a kernel in roles, behind names and local memory, which all have."""
    roles = pipe.roles
    if roles is None:
        raise LoweringError(f"pipe {pipe.name} has no roles")
    # Groups' ends are read first, and another kernel may have written them.
    start = max(end_of_search(body), int(isinstance(body[0], DependentLaunch)))
    search, body = body[:start], body[start:]
    shared = next(i for i, stmt in enumerate(body) if not _is_for_all(stmt))
    dependent_launch = tuple(stmt for stmt in body[:shared] if isinstance(stmt, DependentLaunch | Barrier))
    common = tuple(stmt for stmt in body[:shared] if stmt not in dependent_launch)
    rest = body[shared:]
    blocks, loop = _loops(rest, pipe)
    steps = Let(STEPS, ceil_div(loop.stop - loop.start, loop.step))
    differ = blocks is not None and (blocks.var != WAVE or not _is_known_before(blocks, (steps,)))
    before: Expr = Const(0) if blocks is None else BEFORE if differ else blocks.var * STEPS
    named = () if blocks is None or differ else (steps,)
    ready = (
        replace(_mbarrier("init", "full", pipe), index=LOCAL_INDEX, arrivals=1),
        replace(_mbarrier("init", "empty", pipe), index=LOCAL_INDEX, arrivals=roles.consumers // WARP * roles.cluster),
        *order_ready(roles),
        Barrier(groups=roles.cluster),
        # Mbarriers are made ready while the kernel before ends.
        *dependent_launch,
    )
    first = next(i for i, stmt in enumerate(common) if isinstance(stmt, Alloc))
    multiply, copy = _multiplying(rest, pipe, before), _copying(rest, pipe, before)
    if blocks is not None and differ:
        multiply, copy = (_counting(side, blocks.var, loop) for side in (multiply, copy))
    sides = by_roles(roles, multiply, copy)
    last = (
        Comment("A block may not exit while others of the cluster still copy to it."),
        Barrier(groups=roles.cluster),
    )
    return (*search, *common[:first], *named, *common[first:], *ready, sides, *(last if roles.cluster > 1 else ()))


def by_roles(roles: WarpSpecialization, multiply: Body, copy: Body) -> If:
    """Both sides of a kernel in roles, with what is said of registers to each."""
    more, fewer = roles.registers
    taken, given = ((SetMaxRegisters(more, True),), (SetMaxRegisters(fewer, False),)) if more else ((), ())
    own = If(compare("==", LOCAL_INDEX, roles.consumers), copy)
    consume: Body = (Comment("Consumer warpgroups: multiply, then store C."), *taken, *multiply)
    produce: Body = (Comment("Producer: one thread loads tiles by TMA while a stage is free."), *given, own)
    return If(roles.rows > LOCAL_ROW, consume, produce, roles=True)


def _is_for_all(stmt: Stmt) -> bool:
    if isinstance(stmt, Barrier):
        return stmt.part == "arrive"
    if isinstance(stmt, Alloc):
        return stmt.buffer.space is Space.LOCAL
    return isinstance(stmt, Let | Comment | DependentLaunch)


def _mbarrier(verb: MbarrierVerb, which: str, pipe: Pipe, slot: Expr = SLOT) -> Mbarrier:
    return Mbarrier(verb, f"{pipe.name}_{which}", pipe.stages, slot)


def _loops(body: Body, pipe: Pipe) -> tuple[For | None, For]:
    """The loop over blocks of C, if there is one, and the one over steps of K."""
    outer = next(stmt for stmt in body if isinstance(stmt, For) and role_pipe((stmt,)) == pipe)
    if pipe_of(outer.body) == pipe:
        return None, outer
    return outer, _loops(outer.body, pipe)[1]


def _is_known_before(blocks: For, names: Body) -> bool:
    """Whether what stands in front of the loop over blocks of C is enough for those names."""
    inside = {stmt.var for stmt in blocks.body if isinstance(stmt, Let)}
    return inside.isdisjoint(nodes(names))


def _counting(body: Body, block: Var, loop: For) -> Body:
    """A side whose blocks of C differ in their steps, of which it keeps count."""
    done = Load(_DONE, ())
    # A group that offsets leave nothing of may end before it begins.
    steps = ceil_div(Call("max", (Const(0), loop.stop - loop.start), I32), loop.step)
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For) and stmt.var == block:
            each = replace(stmt, body=_counting(stmt.body, block, loop))
            out += [Alloc(_DONE), Store(_DONE, (), Const(0)), each]
        elif isinstance(stmt, For) and any(x.var == loop.var for x in of_kind(For, stmt.body)):
            out.append(replace(stmt, body=_counting(stmt.body, block, loop)))
        elif isinstance(stmt, For) and stmt.var == loop.var:
            out += [Let(STEPS, steps), Let(BEFORE, done), Store(_DONE, (), BEFORE + STEPS), stmt]
        else:
            out.append(stmt)
    return tuple(out)


def _step_of(loop: For, before: Expr) -> tuple[Body, Expr]:
    """How many steps came before: those of blocks `before`, and this one's; by name where there are both."""
    step = (loop.var - loop.start) // loop.step
    return ((), step) if before == Const(0) else ((Let(STEP, before + step),), STEP)


# --- the producer -------------------------------------------------------------------------------


def _copying(body: Body, pipe: Pipe, before: Expr) -> Body:
    """Of a body, the names and the loops that lead to the copies."""
    at, loop = next((i, s) for i, s in enumerate(body) if isinstance(s, For) and role_pipe((s,)) == pipe)
    own = pipe_of(loop.body) == pipe
    inner = _copy_step(loop, pipe, split(loop.body, pipe), before) if own else _copying(loop.body, pipe, before)
    return behind_names(body[:at], (replace(loop, body=inner),))


def behind_names(before: Body, body: Body) -> Body:
    """A body behind those names of what stands before it that it uses, and what keeps places between its rounds."""
    kept = nodes((*before, *body))
    for stmt in reversed(before):
        if isinstance(stmt, Let):
            needed = stmt.var in nodes(body)
        else:
            found = {x.buffer for x in walk((stmt,)) if isinstance(x, Alloc | Store) and x.buffer.places}
            needed = any(isinstance(node, Load) and node.buffer in found for node in kept)
        body = (stmt, *body) if needed else body
    return body


def _copy_step(loop: For, pipe: Pipe, parts: Parts, before: Expr) -> Body:
    (named, step), full = _step_of(loop, before), _mbarrier("expect", "full", pipe)

    def told(stmt: Stmt) -> Body:
        return (replace(stmt, mbarrier=full),) if isinstance(stmt, CooperativeCopy) else (stmt,)

    copies = map_body(in_slot(parts.produce, pipe, SLOT), told)
    size = sum(_bytes(stmt) for stmt in copies if isinstance(stmt, CooperativeCopy))
    free = replace(_mbarrier("wait", "empty", pipe), parity=(step // pipe.stages + 1) % 2)
    return (*named, Let(SLOT, step % pipe.stages), *parts.before, free, replace(full, bytes=size), *copies)


def _bytes(stage: CooperativeCopy) -> int:
    """The TMA loads of a tile, wherever they are."""
    return stage.src.rows * stage.src.cols * stage.src.buffer.dtype.size


# --- the consumers ------------------------------------------------------------------------------


def _multiplying(body: Body, pipe: Pipe, before: Expr) -> Body:
    """All that is not about copies."""
    out: list[Stmt] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, For) and pipe_of(stmt.body) == pipe:
            steps = _multiply_steps(stmt, pipe, split(stmt.body, pipe), before)
            return (*out, *steps, *in_order(body[i + 1 :], pipe.roles))
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
    # What instructions take from registers is there before the fence; what that is made by, before tiles are.
    reads = tuple(stmt for stmt in parts.consume if not isinstance(stmt, FragmentLoad | TileMma))
    fills = tuple(stmt for stmt in parts.consume if isinstance(stmt, FragmentLoad))
    products = tuple(stmt for stmt in parts.consume if isinstance(stmt, TileMma))
    full: Body = (
        *named,
        Let(SLOT, step % pipe.stages),
        *parts.before,
        *reads,
        replace(_mbarrier("wait", "full", pipe), parity=step // pipe.stages % 2),
    )
    commit = MultiplyGroup("commit")
    begin: Body = (
        *full,
        *in_slot(fills, pipe, SLOT),
        MultiplyGroup("fence", taken=next((s.dst.buffer for s in fills), None)),
        *(stmt for each in in_slot(products, pipe, SLOT) for stmt in (each, commit)),
    )
    by_parts = _from_registers(in_slot((*fills, *products), pipe, SLOT))
    waited: Body = (*full, *by_parts) if by_parts else begin
    arrive = If(first_of_warp, (replace(_mbarrier("arrive", "empty", pipe), rank=rank),))
    if fills and not by_parts and not parts.after:  # which the next step's take the place of
        return (replace(loop, body=(*begin, MultiplyGroup("wait", 0), arrive)), whole)
    if parts.after:  # which uses the sums of the step
        return (replace(loop, body=(*waited, *_behind_waits(parts.after, products, arrive))),)
    body: Body = (
        *waited,
        Comment("The previous step's wgmma are complete: its stage is free."),
        *(() if by_parts else (MultiplyGroup("wait", 1),)),
        If(both(loop.start < loop.var, first_of_warp), (replace(_mbarrier("arrive", "empty", pipe, last), rank=rank),)),
    )
    main = replace(loop, body=body)
    if not named:
        return (*(() if cluster == 1 else _with_zeros(whole)), main, whole)
    # For the next block: nothing comes after the last step that would arrive for it.
    last = (before + STEPS - 1) % pipe.stages
    given = If(both(Const(0) < STEPS, first_of_warp), (replace(_mbarrier("arrive", "empty", pipe, last), rank=rank),))
    return main, whole, Comment("The last step's stage is free as well."), given


def _behind_waits(after: Body, products: Body, arrive: Stmt) -> Body:
    """What uses the sums of a step's products, each behind the wait for these; behind the last one the tiles are free.
    What uses none is done while they are computed.
    """
    out, sums = list[Stmt](), [stmt.acc.buffer for stmt in of_kind(TileMma, products)]
    for pending, own in zip(reversed(range(len(sums))), sums, strict=True):
        first = next(i for i, stmt in enumerate(after) if _names(stmt, own) and i >= bool(out))
        out += (*after[:first], MultiplyGroup("wait", pending, own), *(() if pending else (arrive,)))
        after = after[first:]
    return (*out, *after)


def _with_zeros(whole: MultiplyGroup) -> Body:
    """What keeps the zeros of sums in front of a loop. Compilers would set them apart for where there is no such loop,
    together with the lanes that arrive at clusters' barriers; then ptxas has matrix instructions wait for each other.
    """
    say = "The accumulators' zeros are written here, not later, so that no wgmma waits for another (ptxas C7515)."
    return Comment(say), whole


def _from_registers(consume: Body) -> Body:
    """A step's products with A from registers, part by part, each a group of its own: before registers are filled, the
    instruction that took them a step before is complete. Empty where a step is one part.
    """
    match consume:
        case (FragmentLoad() as load, TileMma() as mma) if mma.atom.terms == 1:
            pass
        case _:
            return ()
    # What one load brings: some bring the fragments of two instructions.
    at_once = max(1, load.width // load.dst.fragment.rows.values // mma.atom.a.cols.values) if load.atom.matrices else 1
    depth = mma.atom.depth * at_once
    count = mma.b.rows // depth
    if count < 2:
        return ()
    fragments = tuple(KK // mma.atom.depth + i for i in range(at_once))
    registers = replace(load.dst, slot=fragments[0])
    each = PAIR if load.atom is BYTE_OF_PAIR else 1
    filled = replace(load, dst=registers, src=_along(load.src, KK // each, depth // each))
    products = (
        replace(mma, a=replace(registers, slot=slot), b=_across(mma.b, KK + i * mma.atom.depth, mma.atom.depth))
        for i, slot in enumerate(fragments)
    )
    part: Body = (
        Comment("What took these registers a step ago is complete; later wgmma are under way."),
        MultiplyGroup("wait", count - 1),
        filled,
        MultiplyGroup("fence", taken=registers.buffer, which=fragments),
        *products,
        MultiplyGroup("commit"),
    )
    return (For(KK, Const(0), Const(mma.b.rows), depth, part, unroll=True, exact=True),)


def _along(a: Tile, first: Expr, depth: int) -> Tile:
    """Part of A's columns."""
    *before, slow, fast = a.origin
    return replace(a, origin=(*before, *((slow + first, fast) if a.transposed else (slow, fast + first))), cols=depth)


def _across(b: Tile, first: Expr, depth: int) -> Tile:
    """Part of B's rows."""
    *before, slow, fast = b.origin
    return replace(b, origin=(*before, *((slow, fast + first) if b.transposed else (slow + first, fast))), rows=depth)


def _names(stmt: Stmt, buffer: Buffer) -> bool:
    """Whether a statement is about a buffer, or says something of the next one."""
    return isinstance(stmt, Comment) or any(isinstance(x, Load) and x.buffer == buffer for x in nodes((stmt,)))


def _sums(parts: Parts) -> Buffer:
    return next(stmt.acc.buffer for stmt in of_kind(TileMma, parts.consume))


# --- the ordered epilogue -------------------------------------------------------------------------

WARPS = 4


def order_ready(roles: WarpSpecialization) -> Body:
    """The mbarriers that say who may store."""
    if not roles.storing:
        return ()
    return (replace(_may_store(roles, "init", LOCAL_INDEX), arrivals=WARPS),)


def in_order(store: Body, roles: WarpSpecialization | None) -> Body:
    """What stores a block's part of C, warpgroup after warpgroup."""
    if roles is None or not roles.storing:
        return store
    # The first may store its first block at once, as if the last had stored one before.
    parity = (WAVE + select(compare("==", WARPGROUP, 0), Const(1), Const(0))) % 2
    goes_on = WAVE + 1 < WAVES
    wait = replace(_may_store(roles, "wait", WARPGROUP), parity=parity)
    following = _may_store(roles, "arrive", (WARPGROUP + 1) % roles.storing)
    passed_on = If(both(goes_on, compare("==", LOCAL_INDEX % WARP, 0)), (following,))
    say = Comment("Ordered epilogue: one warpgroup stores while the other multiplies.")
    return (say, Block((If(goes_on, (wait,)), *store, passed_on), WARPGROUP, roles.storing))


def _may_store(roles: WarpSpecialization, verb: MbarrierVerb, which: Expr) -> Mbarrier:
    return Mbarrier(verb, "may_store", roles.storing, which)
