"""Walking and rewriting expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gemmgen.errors import LoweringError
from gemmgen.ir.expr import (
    Bin,
    Call,
    Const,
    Expr,
    Load,
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

Rewrite = Callable[[Expr], Expr]


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct operands."""
    match node:
        case Const() | Var():
            return ()
        case Bin(_, a, b):
            return (a, b)
        case Select(condition, then, other):
            return (condition, then, other)
        case Load(_, index):
            return index
        case Call(_, args, _):
            return args


def walk_expr(node: Expr) -> Iterator[Expr]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk_expr(child)


def rebuild(op: str, a: Expr, b: Expr) -> Expr:
    """A binary node through the folding constructors."""
    match op:
        case "+":
            return add(a, b)
        case "-":
            return sub(a, b)
        case "*":
            return mul(a, b)
        case "/":
            return div(a, b)
        case "%":
            return mod(a, b)
        case "min":
            return minimum(a, b)
        case "&&":
            return both(a, b)
        case "<" | "<=" | "==" | "!=":
            return compare(op, a, b)
        case "&":
            return Bin("&", a, b)
        case "^":
            return Bin("^", a, b)
    raise LoweringError(f"unknown operator {op!r}")


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
    return tuple(map_expr(i, rewrite) for i in index)


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
        return result.value
    raise LoweringError(f"{node} is not a number over {sorted(values)}")
