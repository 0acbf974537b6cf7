"""Derivatives of formulas and of an epilogue's functions, as formulas: what a backward pass multiplies gradients by."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.epilogue import Applied
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, Var, is_const


def derivative_of(function: Applied, name: str) -> Expr:
    """The partial derivative of an epilogue's function by one of the names of its formula.

    It may name what the formula names, and `gemmgen.epilogue.RESULT`.
    """
    if name == "acc" and function.derivative is not None:
        return function.derivative
    return derivative(function.value, name)


def derivative(value: Expr, name: str) -> Expr:
    """The partial derivative of a formula by a name. Where a formula has a corner, it is that of one of its sides."""
    match value:
        case Const():
            return Const(0, value.dtype)
        case Var(known):
            return Const(int(known == name), value.dtype)
        case Bin("+", a, b):
            return _plus(derivative(a, name), derivative(b, name))
        case Bin("-", a, b):
            return _minus(derivative(a, name), derivative(b, name))
        case Bin("*", a, b):
            return _plus(_times(derivative(a, name), b), _times(a, derivative(b, name)))
        case Bin("/", a, b):
            return _over(_minus(derivative(a, name), _times(_over(a, b), derivative(b, name))), b)
        case Select(condition, then, other):
            return _select(condition, derivative(then, name), derivative(other, name))
        case Call("min" | "max" as function, (a, b)):
            first, second = (a, b) if function == "min" else (b, a)
            return _select(Bin("<", first, second), derivative(a, name), derivative(b, name))
        case Call("fma", (a, b, c)):
            return derivative(Bin("+", Bin("*", a, b), c), name)
        case Call(function, (a,)) if function in _CHAIN:
            return _times(_CHAIN[function](a, value), derivative(a, name))
    raise LoweringError(f"{type(value).__name__} is no part of a formula, and has no derivative")


def _number(value: float, dtype: DType) -> Const:
    return Const(value if dtype.is_float else int(value), dtype)


def _plus(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0):
        return b
    return a if is_const(b, 0) else Bin("+", a, b)


def _minus(a: Expr, b: Expr) -> Expr:
    if is_const(b, 0):
        return a
    return Call("neg", (b,), b.dtype) if is_const(a, 0) else Bin("-", a, b)


def _times(a: Expr, b: Expr) -> Expr:
    if is_const(a, 0) or is_const(b, 1):
        return a
    return b if is_const(b, 0) or is_const(a, 1) else Bin("*", a, b)


def _over(a: Expr, b: Expr) -> Expr:
    return a if is_const(a, 0) else Bin("/", a, b)


def _select(condition: Expr, then: Expr, other: Expr) -> Expr:
    return then if then == other else Select(condition, then, other)


def _of_tanh(_: Expr, value: Expr) -> Expr:
    return Bin("-", _number(1, value.dtype), Bin("*", value, value))


def _of_erf(a: Expr, value: Expr) -> Expr:
    bell = Call("exp", (Call("neg", (Bin("*", a, a),), value.dtype),), value.dtype)
    return Bin("*", _number(1.1283791670955126, value.dtype), bell)


def _of_abs(a: Expr, value: Expr) -> Expr:
    return Select(Bin("<", a, _number(0, value.dtype)), _number(-1, value.dtype), _number(1, value.dtype))


#: A function of one number -> its derivative, from its argument and its value.
_CHAIN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "neg": lambda _, value: _number(-1, value.dtype),
    "exp": lambda _, value: value,
    "log": lambda a, value: Bin("/", _number(1, value.dtype), a),
    "sqrt": lambda _, value: Bin("/", _number(0.5, value.dtype), value),
    "rsqrt": lambda a, value: Bin("*", _number(-0.5, value.dtype), Bin("/", value, a)),
    "tanh": _of_tanh,
    "erf": _of_erf,
    "abs": _of_abs,
}
