"""What a loop over a vector's elements must be, so that one instruction can do all of its rounds."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.buffer import Space
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, as_int, mod
from gemmgen.ir.functions import MATH
from gemmgen.ir.stmt import For, Store
from gemmgen.ir.walk import map_expr, substitute, walk_expr


def loop_problem(loop: For) -> str | None:
    """Why a loop marked `vector` can't be one instruction a statement; None if it can."""
    width = as_int(loop.stop)
    if as_int(loop.start) != 0 or loop.step != 1 or width is None:
        return "a vector's elements are not counted from 0 to their number"
    for stmt in loop.body:
        if not isinstance(stmt, Store):
            return f"{type(stmt).__name__} among what is done to a vector's elements"
        if not _is_vector(stmt.buffer.vector, stmt.index, loop.var, width):
            return f"{stmt.buffer.name} is not stored to by whole vectors of {width}"
        for load in _loads(stmt.value):
            if load.buffer == stmt.buffer and load.index != stmt.index:
                return f"a round needs what another makes of {load.buffer.name}"
            if loop.var not in walk_expr(load):
                continue
            # Half of a vector can be read as well.
            held = load.buffer.vector
            held = width if held == 2 * width else held
            if load.buffer.space is Space.IMAGE or not _is_vector(held, load.index, loop.var, width):
                return f"{load.buffer.name} is not read by whole vectors of {width}"
    return None


def value_problem(value: Expr, var: Var, width: int) -> str | None:
    """Why a value can't be worked out for all elements of a vector at once; None if it can."""
    if var not in walk_expr(value):
        return None
    parts: tuple[Expr, ...]
    match value:
        case Load(buffer, index):
            return None if _is_vector(buffer.vector, index, var, width) else f"{buffer.name} is not read by vectors"
        case Bin("+" | "-" | "*" | "/" as op, a, b) if value.dtype.is_float or op != "/":
            parts = a, b
        case Call(name, parts, dtype) if name == "fma" or (dtype.is_float and name in MATH):
            pass
        case Select(Bin("<" | "<=" | "==" | "!=", a, b) as condition, then, other) if a.dtype == value.dtype:
            if var not in walk_expr(condition):
                return "one condition chooses between vectors"
            parts = a, b, then, other
        case _:
            return f"vectors have no {value}"
    return next((problem for part in parts if (problem := value_problem(part, var, width))), None)


def _loads(value: Expr) -> Iterator[Load]:
    return (node for node in walk_expr(value) if isinstance(node, Load))


def _is_vector(held: int, index: tuple[Expr, ...], var: Var, width: int) -> bool:
    """Whether an index runs through neighbours, in an array of vectors from the first one of a vector."""
    *outer, last = index
    if any(var in walk_expr(place) for place in outer):
        return False
    first = map_expr(last, substitute({var: Const(0)}))
    return last == first + var and (held == 1 or (held == width and place_in(first, width) == 0))


def place_in(index: Expr, width: int) -> int | None:
    """How far an index is into the vector of `width` elements that it lies in; None where that isn't known."""
    match index:
        case Bin("+", first, Const(int(further))) if as_int(mod(first, width)) == 0:
            return further % width
    return as_int(mod(index, width))
