"""What a call of one of gemmgen's functions must be: checked wherever expressions are verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gemmgen.ir.dtypes import BOOL, I32, DType
from gemmgen.ir.expr import Call, as_int
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
