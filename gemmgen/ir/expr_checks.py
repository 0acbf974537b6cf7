"""What has to hold of one node of an expression, whatever names are bound where it stands."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.dtypes import BOOL, I32, I64
from gemmgen.ir.expr import Bin, Const, Expr, Select
from gemmgen.ir.show import show_expr


def expr_problems(node: Expr) -> Iterator[str]:
    """What is wrong with the types of a node's own operands."""
    match node:
        case Const(value, dtype):
            if not dtype.is_float and not isinstance(value, int):
                yield f"{value} is not of type {dtype}"
            if dtype.real is None and type(value) is complex:
                yield f"{value} is no {dtype}"
        case Bin():
            yield from _operator_problems(node)
        case Select(condition, then, other):
            if condition.dtype != BOOL:
                yield f"the condition {show_expr(condition)} is {condition.dtype}"
            if then.dtype != other.dtype:
                yield f"the sides of {show_expr(node)} differ in type: {then.dtype} and {other.dtype}"
        case _:
            return


def _operator_problems(node: Bin) -> Iterator[str]:
    op, a, b = node.op, node.a.dtype, node.b.dtype
    if a != b and not {a, b} <= {I32, I64}:
        yield f"the operands of {show_expr(node)} differ in type: {a} and {b}"
    if a == BOOL and op not in ("&&", "==", "!="):
        yield f"{op} on bool"
    if op == "&&" and a != BOOL:
        yield f"&& on {a}"
    if (a.real is not None and op not in ("+", "*", "==", "!=")) or (a.is_float and op in ("%", "&", "^")):
        yield f"{op} on {a}"
