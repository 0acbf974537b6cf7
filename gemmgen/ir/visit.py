"""Walking and rewriting statements, and what a kernel's hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Call, Const, Expr, Load, Var
from gemmgen.ir.expr_visit import Rewrite, map_expr, map_index, substitute, walk_expr
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.meetings import Handover, Mbarrier, MultiplyGroup, RegisterShare, StoreGroup
from gemmgen.ir.stmt import (
    Advance,
    Alloc,
    Block,
    Body,
    BoxCopy,
    Copy,
    For,
    If,
    Let,
    Mma,
    Move,
    Multiply,
    Point,
    Prefetch,
    Registers,
    Stage,
    Stmt,
    Store,
    Sum,
    Tile,
    TileMma,
    Update,
)


def _map_tile(tile: Tile, rewrite: Rewrite) -> Tile:
    return replace(tile, origin=map_index(tile.origin, rewrite))


def _map_registers(registers: Registers, rewrite: Rewrite) -> Registers:
    if registers.slot is None:
        return registers
    return replace(registers, slot=map_expr(registers.slot, rewrite))


def _map_move(stmt: Move, rewrite: Rewrite) -> Move:
    return replace(
        stmt,
        dst_index=map_index(stmt.dst_index, rewrite),
        src_index=map_index(stmt.src_index, rewrite),
        valid=None if stmt.valid is None else map_expr(stmt.valid, rewrite),
        byte_place=None if stmt.byte_place is None else map_index(stmt.byte_place, rewrite),
        from_element=None if stmt.from_element is None else map_expr(stmt.from_element, rewrite),
    )


def _map_mbarrier(step: Mbarrier, rewrite: Rewrite) -> Mbarrier:
    rank = None if step.rank is None else map_expr(step.rank, rewrite)
    return replace(step, index=map_expr(step.index, rewrite), parity=map_expr(step.parity, rewrite), rank=rank)


def _map_tiles(stmt: Copy | Stage | TileMma | Sum, rewrite: Rewrite) -> Stmt:
    match stmt:
        case Copy():
            of = None if stmt.of is None else _map_tile(stmt.of, rewrite)
            return replace(stmt, dst=_map_registers(stmt.dst, rewrite), src=_map_tile(stmt.src, rewrite), of=of)
        case Stage():
            tells = None if stmt.tells is None else _map_mbarrier(stmt.tells, rewrite)
            return replace(stmt, dst=_map_tile(stmt.dst, rewrite), src=_map_tile(stmt.src, rewrite), tells=tells)
        case TileMma():
            a = _map_tile(stmt.a, rewrite) if isinstance(stmt.a, Tile) else _map_registers(stmt.a, rewrite)
            return replace(stmt, a=a, b=_map_tile(stmt.b, rewrite))
        case Sum():
            return replace(stmt, src=_map_tile(stmt.src, rewrite))


def _map_places(stmt: Multiply | BoxCopy | Point | Prefetch, rewrite: Rewrite) -> Stmt:
    if isinstance(stmt, Prefetch):
        return replace(stmt, index=map_index(stmt.index, rewrite))
    if isinstance(stmt, Point):
        which = None if stmt.which is None else map_expr(stmt.which, rewrite)
        return replace(stmt, index=map_index(stmt.index, rewrite), which=which)
    if isinstance(stmt, BoxCopy):
        dst, src = (map_index(i, rewrite) for i in (stmt.dst_index, stmt.src_index))
        tells = None if stmt.tells is None else _map_mbarrier(stmt.tells, rewrite)
        return replace(stmt, dst_index=dst, src_index=src, tells=tells)
    acc, a, b = (map_index(i, rewrite) for i in (stmt.acc_index, stmt.a_index, stmt.b_index))
    return replace(stmt, acc_index=acc, a_index=a, b_index=b)


def map_stmt_exprs(stmt: Stmt, rewrite: Rewrite) -> Stmt:
    """Rewrite every expression of a statement, those of its body included."""
    match stmt:
        case Let(var, value):
            return Let(var, map_expr(value, rewrite))
        case Store(buffer, index, value):
            return Store(buffer, map_index(index, rewrite), map_expr(value, rewrite))
        case Move():
            return _map_move(stmt, rewrite)
        case For():
            return replace(
                stmt,
                start=map_expr(stmt.start, rewrite),
                stop=map_expr(stmt.stop, rewrite),
                body=map_body_exprs(stmt.body, rewrite),
            )
        case If(condition, then, orelse):
            then, orelse = (map_body_exprs(side, rewrite) for side in (then, orelse))
            return replace(stmt, condition=map_expr(condition, rewrite), then=then, orelse=orelse)
        case Block(body):
            return replace(stmt, body=map_body_exprs(body, rewrite))
        case Copy() | Stage() | TileMma() | Sum():
            return _map_tiles(stmt, rewrite)
        case Mma():
            return replace(
                stmt,
                a=_map_registers(stmt.a, rewrite),
                b=_map_registers(stmt.b, rewrite),
                a_k=map_expr(stmt.a_k, rewrite),
                b_k=map_expr(stmt.b_k, rewrite),
            )
        case Multiply() | BoxCopy() | Point() | Prefetch():
            return _map_places(stmt, rewrite)
        case Advance(view, by):
            return Advance(view, map_expr(by, rewrite))
        case Mbarrier():
            return _map_mbarrier(stmt, rewrite)
        case Update():
            return replace(
                stmt,
                dst=_map_tile(stmt.dst, rewrite),
                alpha=map_expr(stmt.alpha, rewrite),
                beta=map_expr(stmt.beta, rewrite),
                first=None if stmt.first is None else map_expr(stmt.first, rewrite),
                last=None if stmt.last is None else map_expr(stmt.last, rewrite),
            )
        case _:
            return stmt


def map_body_exprs(body: Body, rewrite: Rewrite) -> Body:
    """`map_stmt_exprs` on each statement."""
    return tuple(map_stmt_exprs(s, rewrite) for s in body)


def map_body(body: Body, rewrite: Callable[[Stmt], Body]) -> Body:
    """Replace each statement by any number of others, innermost bodies first."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case For():
                stmt = replace(stmt, body=map_body(stmt.body, rewrite))
            case If(_, then, orelse):
                stmt = replace(stmt, then=map_body(then, rewrite), orelse=map_body(orelse, rewrite))
            case Block(inner):
                stmt = replace(stmt, body=map_body(inner, rewrite))
        out.extend(rewrite(stmt))
    return tuple(out)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, outer ones before those they hold."""
    for stmt in body:
        yield stmt
        match stmt:
            case For():
                yield from walk(stmt.body)
            case If(_, then, orelse):
                yield from walk(then)
                yield from walk(orelse)
            case Block(inner):
                yield from walk(inner)


def exprs(stmt: Stmt) -> Iterator[Expr]:
    """The expressions that a statement itself holds (not those of its body), roots only."""
    match stmt:
        case Let(_, value):
            yield value
        case Store(_, index, value):
            yield from (*index, value)
        case Move():
            valid = () if stmt.valid is None else (stmt.valid,)
            yield from (*stmt.dst_index, *stmt.src_index, *valid, *(stmt.byte_place or ()))
            yield from () if stmt.from_element is None else (stmt.from_element,)
        case For():
            yield from (stmt.start, stmt.stop)
        case If(condition, _, _):
            yield condition
        case Block(_, Var() as apart):
            yield apart
        case Copy() | Stage() | TileMma() | Sum():
            yield from _tile_exprs(stmt)
        case Mma():
            yield from (stmt.a_k, stmt.b_k)
        case Multiply() | BoxCopy() | Point() | Prefetch():
            yield from _place_exprs(stmt)
        case Advance(_, by):
            yield by
        case Mbarrier():
            yield from (stmt.index, stmt.parity, *(() if stmt.rank is None else (stmt.rank,)))
        case Update():
            known = (expr for expr in (stmt.first, stmt.last) if expr is not None)
            yield from (*stmt.dst.origin, stmt.alpha, stmt.beta, *known)


def _tile_exprs(stmt: Copy | Stage | TileMma | Sum) -> tuple[Expr, ...]:
    match stmt:
        case Copy():
            return (*stmt.src.origin, *(() if stmt.of is None else stmt.of.origin))
        case Sum():
            return stmt.src.origin
        case Stage():
            told = () if stmt.tells is None else (stmt.tells.index,)
            return (*stmt.dst.origin, *stmt.src.origin, *told)
        case TileMma():
            return (*(stmt.a.origin if isinstance(stmt.a, Tile) else ()), *stmt.b.origin)


def _place_exprs(stmt: Multiply | BoxCopy | Point | Prefetch) -> tuple[Expr, ...]:
    match stmt:
        case Multiply():
            return (*stmt.acc_index, *stmt.a_index, *stmt.b_index)
        case BoxCopy():
            told = () if stmt.tells is None else (stmt.tells.index,)
            return (*stmt.dst_index, *stmt.src_index, *told)
        case Point():
            return (*stmt.index, *(() if stmt.which is None else (stmt.which,)))
        case Prefetch():
            return stmt.index


def idle_without(kernel: Kernel, size: Var) -> bool:
    """Whether a kernel has no groups where a size is zero, though it may have some where others are not."""
    return any(map_expr(extent, substitute({size: Const(0)})) == Const(0) for extent in kernel.grid)


def local_bytes(kernel: Kernel) -> int:
    """Local memory of a group, in bytes."""
    local = [s for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]
    own, reused = (sum(s.buffer.bytes for s in local if s.reuses is reuses) for reuses in (False, True))
    return max(own, reused)


def expressions(kernel: Kernel) -> Iterator[Expr]:
    """Every expression of a kernel, those inside others too."""
    return (node for stmt in walk(kernel.body) for root in exprs(stmt) for node in walk_expr(root))


def addressed(kernel: Kernel) -> frozenset[str]:
    """The matrices that it reads or writes by addresses of its own, not by boxes."""
    found = {node.buffer for node in expressions(kernel) if isinstance(node, Load)}
    for stmt in walk(kernel.body):
        found |= {stmt.src, stmt.dst} if isinstance(stmt, Move) else {stmt.buffer} if isinstance(stmt, Store) else set()
    return frozenset(buffer.name for buffer in found if buffer.space is Space.GLOBAL)


def uses_calls(kernel: Kernel, functions: Collection[str]) -> bool:
    """Whether any of these functions is called."""
    return any(isinstance(node, Call) and node.function in functions for node in expressions(kernel))


def conversions(kernel: Kernel) -> set[tuple[DType, DType, int]]:
    """Every change of type in a kernel of instructions: from what, to what, and how many elements at a time; those in
    the meaning of matrix instructions, too.
    """
    moves = {(s.src.dtype, s.dst.dtype, s.width) for s in walk(kernel.body) if isinstance(s, Move)}
    nodes = expressions(kernel)
    calls = {(n.args[0].dtype, n.dtype, 1) for n in nodes if isinstance(n, Call) and n.function == "convert"}
    factors = {(s.atom.dtype, s.atom.sums, 1) for s in walk(kernel.body) if isinstance(s, Multiply)}
    return {change for change in moves | calls | factors if change[0] != change[1]}


def uses_features(kernel: Kernel) -> frozenset[str]:
    """The features of a target that the kernel's instructions need."""
    needs = frozenset({"sub_groups"} if kernel.sub_group else ())
    needs |= {p.dtype.needs for p in kernel.params if p.dtype.needs is not None}
    if any(isinstance(s, Mbarrier) for s in walk(kernel.body)):
        needs |= {"mbarrier"}
    if any(isinstance(s, Handover) for s in walk(kernel.body)):
        needs |= {"dependent_launch"}
    if any(isinstance(s, BoxCopy | StoreGroup) for s in walk(kernel.body)):
        needs |= {"tensor_maps"}
    if any(isinstance(s, MultiplyGroup | RegisterShare) for s in walk(kernel.body)):
        needs |= {"wgmma"}
    if any(isinstance(s, Prefetch) for s in walk(kernel.body)):
        needs |= {"cache_prefetch"}
    return needs.union(*(s.atom.needs for s in walk(kernel.body) if isinstance(s, Move | Multiply)))
