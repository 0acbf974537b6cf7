"""What has to hold of one node of an expression, a call of a function among them, whatever names are bound there."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gemmgen.ir.dtypes import BOOL, I32, I64, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, as_int
from gemmgen.ir.functions import ARITY, MATH
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.show import show_expr
from gemmgen.ir.target import Target

_OF_SUB_GROUPS = ("lane_id", "sub_group_size", "broadcast", "shuffle_xor")
#: Functions whose arguments are all of the type that comes out.
_ALIKE = ("fma", "conj", "tf32", "tf32_head", "tf32_rest", "tf32_finite_rest")
#: Functions of one argument, whose type is another matter: whether it fits what comes out, and what is wrong else.
_OF_OTHERS: dict[str, tuple[Callable[[DType, DType], bool], str]] = {
    "convert": (lambda given, made: given not in (BOOL, made), "converts nothing"),
    "any_in_group": (lambda given, made: given == made == BOOL, "asks for no condition"),
}


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


def call_problems(node: Call, kernel: Kernel, target: Target) -> Iterator[str]:
    """What is wrong with a call in a kernel, the gravest first."""
    name, args = node.function, node.args
    if name not in ARITY:
        yield f"no function {name}"
        return
    if len(args) != ARITY[name]:
        yield f"{name} takes {ARITY[name]} arguments, not {len(args)}"
        return
    if name in _OF_SUB_GROUPS:
        if "sub_groups" not in target.features:
            yield f"{name} needs sub_groups, which {target.name} lacks"
        if kernel.sub_group is None:
            yield f"{name} in a kernel that requires no sub-group size"
    if name in ("group_id", "group_count", "local_id"):
        dimensions = (0, 1, 2) if name == "group_id" and kernel.layers is not None else (0, 1)
        if as_int(args[0]) not in dimensions:
            yield f"{show_expr(node)} has no constant dimension of {', '.join(map(str, dimensions))}"
    if name in ("broadcast", "shuffle_xor") and args[1].dtype != I32:
        yield f"{show_expr(args[1])} is {args[1].dtype}, not an integer"
    if name in _OF_OTHERS:
        fits, what = _OF_OTHERS[name]
        if not fits(args[0].dtype, node.dtype):
            yield f"{show_expr(node)} {what}"
        return
    if name == "nan":
        yield from () if node.dtype.is_float else (f"{show_expr(node)} is {node.dtype}, which has none",)
        return
    if name == "conj" and node.dtype.real is None:
        yield f"{show_expr(node)} is {node.dtype}, not complex"
    alike = name in MATH or name in _ALIKE
    values = args if alike else {"broadcast": args[:1], "shuffle_xor": args[:1]}.get(name)
    for dtype in (I32,) if values is None else (value.dtype for value in values):
        if dtype != node.dtype:
            yield f"{name} and its arguments differ in type: {node.dtype} and {dtype}"
