"""Walking and rewriting expressions and statements, by what each kind of node declares that it holds (`expr.Node`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.constants import Named
from gemmgen.ir.expr import (
    Bin,
    Call,
    Const,
    Expr,
    Load,
    Node,
    Select,
    Var,
    add,
    both,
    compare,
    div,
    minimum,
    mod,
    mul,
    select,
    sub,
)

if TYPE_CHECKING:  # a start from the cache walks expressions alone
    from gemmgen.ir.stmt import Body, Stmt

Rewrite = Callable[[Expr], Expr]
#: The constructors of operators that are folded.
_FOLDED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": div,
    "%": mod,
    "min": minimum,
    "&&": both,
}
_Part = TypeVar("_Part", bound=Node)
_Held = TypeVar("_Held")
_Kind = TypeVar("_Kind")


def children(node: Node) -> list[Node]:
    """The expressions and parts that a node holds itself, in order; not its bodies."""
    held: list[Node] = []
    for name in node.CHILDREN:
        child = getattr(node, name)
        if child.__class__ is tuple:
            held += child
        elif child is not None:
            held.append(child)
    return held


def _or_same(old: tuple[_Held, ...], new: tuple[_Held, ...]) -> tuple[_Held, ...]:
    """`new`, or `old` where that holds the very same things, so that what is unchanged stays the same object."""
    return old if len(old) == len(new) and all(map(is_, old, new)) else new


def _with(node: _Part, names: tuple[str, ...], rewrite: Callable[[object], object]) -> _Part:
    """The node with these fields rewritten: itself where all of them stay."""
    held = [(name, getattr(node, name)) for name in names]
    changed = {name: new for name, old in held if (new := rewrite(old)) is not old}
    return replace(node, **changed) if changed else node


# --- expressions ----------------------------------------------------------------------------------


def walk_expr(node: Expr) -> Iterator[Expr]:
    """The node and all below it."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        if node.CHILDREN:
            pending += cast("list[Expr]", children(node)[::-1])


def rebuild(op: str, a: Expr, b: Expr) -> Expr:
    """A binary node through the folding constructors."""
    if (folded := _FOLDED.get(op)) is not None:
        return folded(a, b)
    match op:
        case "<" | "<=" | "==" | "!=":
            return compare(op, a, b)
        case "&" | "^":
            return Bin(op, a, b)
    raise LoweringError(f"unknown operator {op!r}")


def in_numbers(node: Expr) -> Expr:
    """An expression with plain numbers for named constants, for text that stands where the names are not defined."""
    return map_expr(node, lambda x: replace(x, value=int(cast(int, x.value))) if _is_named(x) else x)


def _is_named(node: Expr) -> TypeGuard[Const]:
    return isinstance(node, Const) and isinstance(node.value, Named)


def map_expr(node: Expr, rewrite: Rewrite) -> Expr:
    """Rewrite bottom-up; nodes are rebuilt by the folding constructors."""
    match node:
        case Const() | Var():
            return rewrite(node)
        case Bin(op, a, b):
            if op in ("*", "+", "-") and node.dtype.is_float:
                return rewrite(Bin(op, map_expr(a, rewrite), map_expr(b, rewrite)))
            return rewrite(rebuild(op, map_expr(a, rewrite), map_expr(b, rewrite)))
        case Select(condition, then, other):
            return rewrite(select(map_expr(condition, rewrite), map_expr(then, rewrite), map_expr(other, rewrite)))
        case Load(buffer, index):
            return rewrite(Load(buffer, map_index(index, rewrite)))
        case Call(function, args, dtype):
            return rewrite(Call(function, map_index(args, rewrite), dtype))


def map_index(index: tuple[Expr, ...], rewrite: Rewrite) -> tuple[Expr, ...]:
    """`map_expr` on each coordinate."""
    return _or_same(index, tuple(map_expr(i, rewrite) for i in index))


def substitute(values: Mapping[Var, Expr]) -> Rewrite:
    """A rewrite that replaces variables."""

    def rewrite(node: Expr) -> Expr:
        return values.get(node, node) if isinstance(node, Var) else node

    return rewrite


def evaluate(node: Expr, values: Mapping[str, int]) -> int:
    """The value of an integer expression over named integers."""

    def known(part: Expr) -> Expr:
        match part:
            case Var(name) if name in values:
                return Const(values[name])
            case Call("convert", (Const() as value,)) if not part.dtype.is_float:
                return value
        return part

    result = map_expr(node, known)
    if isinstance(result, Const) and isinstance(result.value, int):
        return int(result.value)  # a plain number, without the names of the constants that it is made of
    raise LoweringError(f"{node} is not a number over {sorted(values)}")


# --- statements -----------------------------------------------------------------------------------


def exprs(node: Node) -> Iterator[Expr]:
    """The expressions that a statement itself holds (not those of its bodies), roots only."""
    for child in children(node):
        if isinstance(child, Expr):
            yield child
        else:
            yield from exprs(child)


def nodes(body: Body) -> set[Expr]:
    """All that the expressions of a body are made of."""
    return {node for stmt in walk(body) for root in exprs(stmt) for node in walk_expr(root)}


def bound(stmt: Stmt) -> tuple[Var | Buffer, ...]:
    """The names that a statement binds."""
    return tuple(getattr(stmt, name) for name in stmt.binds)


def places(stmt: Stmt) -> list[tuple[Buffer, tuple[Expr, ...]]]:
    """The elements of buffers that a statement touches, besides those that its expressions load."""
    return [(getattr(stmt, buffer), getattr(stmt, index)) for buffer, index in stmt.PLACES]


def bodies(stmt: Stmt) -> tuple[Body, ...]:
    """The statements that a statement holds, one body after the other."""
    return tuple(getattr(stmt, name) for name in stmt.BODIES)


def walk(body: Body) -> Iterator[Stmt]:
    """Every statement, outer ones before those they hold."""
    pending = [*reversed(body)]
    while pending:
        stmt = pending.pop()
        yield stmt
        if stmt.BODIES:
            pending += (inner for held in reversed(bodies(stmt)) for inner in reversed(held))


def of_kind(kind: type[_Kind], body: Body) -> Iterator[_Kind]:
    """Every statement of a kind, in the order of `walk`."""
    return (stmt for stmt in walk(body) if isinstance(stmt, kind))


def map_bodies(stmt: Stmt, rewrite: Callable[[Body], Body]) -> Stmt:
    """The statement with each of its bodies rewritten as a whole."""
    return _with(stmt, stmt.BODIES, cast("Callable[[object], object]", rewrite))


def map_body(body: Body, rewrite: Callable[[Stmt], Body]) -> Body:
    """Replace each statement by any number of others, innermost bodies first."""
    out: list[Stmt] = []
    for stmt in body:
        out += rewrite(map_bodies(stmt, lambda inner: map_body(inner, rewrite)) if stmt.BODIES else stmt)
    return _or_same(body, tuple(out))


def map_parts(stmt: _Part, rewrite: Callable[[Node], Node]) -> _Part:
    """The statement with the parts rewritten that it holds itself: tiles, registers, expressions."""
    return _with(stmt, stmt.CHILDREN, lambda held: rewrite(held) if isinstance(held, Node) else held)


def map_stmt_exprs(stmt: Stmt, rewrite: Rewrite) -> Stmt:
    """Rewrite every expression of a statement, those of its bodies included."""
    return cast("Stmt", _map_exprs(stmt, rewrite))


def map_body_exprs(body: Body, rewrite: Rewrite) -> Body:
    """`map_stmt_exprs` on each statement."""
    return _or_same(body, tuple(map_stmt_exprs(s, rewrite) for s in body))


def _map_exprs(held: object, rewrite: Rewrite) -> object:
    """What a field holds, with its expressions rewritten: a node, a tuple of nodes, or None."""
    if isinstance(held, Expr):
        return map_expr(held, rewrite)
    if isinstance(held, tuple):
        return _or_same(held, tuple(_map_exprs(x, rewrite) for x in held))
    if isinstance(held, Node):
        return _with(held, held.CHILDREN + held.BODIES, lambda x: _map_exprs(x, rewrite))
    return held
