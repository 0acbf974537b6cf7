"""Leave only what says something: no loop of one round, no array of one element, no unused name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.constants import is_free
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, both, convert
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    BlockPayload,
    Body,
    Comment,
    For,
    FragmentApply,
    If,
    Let,
    Multiply,
    Stmt,
    Store,
    TmaCopy,
    VectorCopy,
)
from gemmgen.ir.walk import (
    bodies,
    bound,
    exprs,
    map_bodies,
    map_body,
    map_body_exprs,
    of_kind,
    places,
    substitute,
    walk,
    walk_expr,
)


def simplify(kernel: Kernel) -> Kernel:
    """The same kernel, said more plainly."""
    body = map_body(_without_constants(kernel.body), _fold)
    body = _splice(body, frozenset())
    body = _collapse(body)
    body = _bind(body)
    while (smaller := _drop_unused(body)) != body:
        body = smaller
    body = _inline_single_uses(body)
    return replace(kernel, body=_drop_comments(body))


def _without_constants(body: Body) -> Body:
    """A kernel's body without names for what is the same everywhere, such as the column of warps above one another."""
    values = {s.var: s.value for s in body if isinstance(s, Let) and isinstance(s.value, Const)}
    return map_body_exprs(tuple(s for s in body if not (isinstance(s, Let) and s.var in values)), substitute(values))


def _fold(stmt: Stmt) -> Body:
    """Loops of no or one round, decided branches; a value of many parts gets a name before its type changes."""
    match stmt:
        case Store(buffer, _, Call("convert", (Bin() | Select() | Call() as value,), dtype)):
            name = Var(f"{buffer.name}_value", value.dtype)
            return (Block((Let(name, value), replace(stmt, value=convert(name, dtype)))),)
        case For(var, Const(int(start)), Const(int(stop)), step, body):
            if start >= stop:
                return ()
            if start + step >= stop and not (is_free(stop) or is_free(step)):
                return (Block(map_body(map_body_exprs(body, substitute({var: Const(start)})), _fold)),)
        case If(Const(value), then, orelse):
            return (Block(then if value else orelse),)
        case If(_, (), ()):
            return ()
        case If(_, then, orelse) if then == orelse:
            return (Block(then),)
        case If(outer, (If(inner, then, ()),), ()):
            return (If(both(outer, inner), then),)
    return (stmt,)


def _declared(body: Body) -> frozenset[str]:
    """The names that a block declares, at any depth."""
    return frozenset(name.name for stmt in walk(body) for name in bound(stmt))


def _splice(body: Body, outer: frozenset[str]) -> Body:
    """Take the braces off blocks whose names mean nothing else around them."""
    out: list[Stmt] = []
    for i, stmt in enumerate(body):
        match stmt:
            case Block(inner, None):
                visible = outer | _declared(tuple(out)) | _declared(body[i + 1 :])
                spliced = _splice(inner, outer)
                out += spliced if not _declared_here(spliced) & visible else (Block(spliced),)
            case _:
                out.append(map_bodies(stmt, lambda inner: _splice(inner, outer)))
    return tuple(out)


def _declared_here(body: Body) -> frozenset[str]:
    """The names that a block declares to its end."""
    return frozenset(name.name for stmt in body if not stmt.BODIES for name in bound(stmt))


# --- arrays ---------------------------------------------------------------------------------------


def _buffers(body: Body) -> Iterator[Buffer]:
    return (s.buffer for s in of_kind(Alloc, body))


def _kept(body: Body) -> dict[Buffer, tuple[int, ...]]:
    """The arrays that have dimensions of extent one, and the others of each."""
    kept: dict[Buffer, tuple[int, ...]] = {}
    for buffer in _buffers(body):
        axes = tuple(i for i, extent in enumerate(buffer.extents) if extent > 1 or is_free(extent))
        if buffer.distributed == 1 and buffer.space is not Space.POINTERS and len(axes) < len(buffer.extents):
            kept[buffer] = axes
    return kept


def _collapse(body: Body) -> Body:
    """Drop the dimensions of extent one of private and local arrays."""
    kept = _kept(body)

    def smaller(buffer: Buffer) -> Buffer:
        if buffer not in kept:
            return buffer
        layout = buffer.layout
        axes = kept[buffer]
        shape, strides = (tuple(of[i] for i in axes) for of in (layout.shape, layout.strides))
        return replace(buffer, layout=replace(layout, shape=shape, strides=strides))

    def shorter(buffer: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(index[i] for i in kept[buffer]) if buffer in kept else index

    def expression(node: Expr) -> Expr:
        return Load(smaller(node.buffer), shorter(node.buffer, node.index)) if isinstance(node, Load) else node

    def statement(stmt: Stmt) -> Body:
        match stmt:
            case Alloc(buffer):
                return (replace(stmt, buffer=smaller(buffer)),)
            case FragmentApply(fragment):
                return (replace(stmt, fragment=smaller(fragment), index=shorter(fragment, stmt.place)[:-1]),)
        changed: dict[str, object] = {}
        for (name, index), (buffer, at) in zip(stmt.PLACES, places(stmt), strict=True):
            changed |= {name: smaller(buffer), index: shorter(buffer, at)} if buffer in kept else {}
        return (replace(stmt, **changed) if changed else stmt,)  # type: ignore[arg-type]

    return map_body_exprs(map_body(body, statement), expression)


def _writes(body: Body) -> Counter[Buffer]:
    count: Counter[Buffer] = Counter()
    for stmt in walk(body):
        match stmt:
            case Store(buffer, _, _):
                count[buffer] += 1
            case VectorCopy():
                count[stmt.dst] += 1
            case Multiply():
                count[stmt.acc] += 1
    return count


def _bind(body: Body) -> Body:
    """A private scalar that is set once, in the block that declares it, is a name for a value."""
    out: list[Stmt] = []
    for i, stmt in enumerate(body):
        match stmt:
            case Alloc(buffer) if buffer.space is Space.PRIVATE and not buffer.shape:
                rest = body[i + 1 :]
                moved = any(s.src == buffer for s in of_kind(VectorCopy, rest))
                if _writes(rest)[buffer] == 1 and not moved and any(_bound(s, buffer) for s in rest):
                    return (*out, *_bind(_with_name(rest, buffer)))
                out.append(stmt)
            case _:
                out.append(map_bodies(stmt, _bind))
    return tuple(out)


def _bound(stmt: Stmt, buffer: Buffer) -> Expr | None:
    """The value that a statement gives a scalar, where that can be written as an expression."""
    match stmt:
        case Store(written, _, value) if written == buffer:
            return value
        case VectorCopy() if stmt.dst == buffer and not any(stmt.atom.lane_step):
            return convert(Load(stmt.src, stmt.src_index), buffer.dtype)
    return None


def _with_name(body: Body, buffer: Buffer) -> Body:
    """The block with the scalar's only write as a `Let` and its reads as that name."""
    var = Var(buffer.name, buffer.dtype)
    named = tuple(s if (value := _bound(s, buffer)) is None else Let(var, value) for s in body)
    return map_body_exprs(named, lambda e: var if isinstance(e, Load) and e.buffer == buffer else e)


# --- names ----------------------------------------------------------------------------------------


def _uses(body: Body) -> Counter[Var | Buffer]:
    """How often each name and buffer is used."""
    count: Counter[Var | Buffer] = Counter()
    for stmt in walk(body):
        for buffer, _ in places(stmt):
            # TMA goes by a map, in which strides stand.
            count.update((buffer, *(() if isinstance(stmt, TmaCopy) else _shape_names(buffer))))
        match stmt:
            case FragmentApply():
                count[stmt.fragment] += 1
            case BlockPayload(payload):
                count[payload] += 1
        for root in exprs(stmt):
            for node in walk_expr(root):
                if isinstance(node, Var):
                    count[node] += 1
                elif isinstance(node, Load):
                    count.update((node.buffer, *_shape_names(node.buffer)))
    return count


def _shape_names(buffer: Buffer) -> tuple[Var, ...]:
    """What an element's address is made of, besides its coordinates."""
    steps = (*buffer.layout.strides, *(buffer.shape[1:2] if buffer.layout.ends else ()))
    return tuple(x for step in steps for x in walk_expr(step) if isinstance(x, Var))


def _drop_unused(body: Body) -> Body:
    uses = _uses(body)
    declared = Counter(name for stmt in walk(body) for name in bound(stmt))

    def in_block(block: Body) -> Body:
        out: list[Stmt] = []
        for i, stmt in enumerate(block):
            match stmt:
                # A name may mean something else in another block, where it is used.
                case Let(var, _) if not uses[var] or (declared[var] > 1 and not _uses(block[i + 1 :])[var]):
                    continue
                case Alloc(buffer) if not uses[buffer]:
                    continue
            smaller = map_bodies(stmt, in_block)
            if not isinstance(smaller, For | If) or any(bodies(smaller)):
                out.append(smaller)
        return tuple(out)

    return in_block(body)


def _inline_single_uses(body: Body) -> Body:
    """At the top of a kernel, a position that only one other position is made of needs no name."""
    uses = _uses(body)
    lets = [s for s in body if isinstance(s, Let)]
    inside = {node for let in lets for node in walk_expr(let.value) if isinstance(node, Var) and uses[node] == 1}
    found = {s.var: s.value for s in lets if s.var in inside and _is_position(s.value)}
    # One that is made of another of them waits for the next round.
    values = {var: value for var, value in found.items() if found.keys().isdisjoint(walk_expr(value))}
    kept = tuple(s for s in body if not (isinstance(s, Let) and s.var in values))
    out = map_body_exprs(kept, substitute(values))
    return _inline_single_uses(out) if values else out


def _is_position(value: Expr) -> bool:
    return any(isinstance(node, Call) for node in walk_expr(value)) and all(
        not isinstance(node, Load) for node in walk_expr(value)
    )


def _drop_comments(body: Body) -> Body:
    """A comment with nothing under it goes."""
    out: list[Stmt] = []
    for i, stmt in enumerate(body):
        following = body[i + 1] if i + 1 < len(body) else None
        match stmt:
            case Comment() if following is None or isinstance(following, Comment):
                continue
            case _:
                out.append(map_bodies(stmt, _drop_comments))
    return tuple(out)
