"""Derivatives of formulas, against differences of the formulas themselves."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from gemmgen.derivatives import derivative, derivative_of
from gemmgen.epilogue import NAMED, NAMES, RESULT, UP, applied
from gemmgen.formulas import formula, parse
from gemmgen.ir.dtypes import F64, I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, Var, is_const
from gemmgen.simulator.evaluate import MEANINGS

Doubles = npt.NDArray[np.float64]
OPERATORS: dict[str, Callable[[Doubles, Doubles], Doubles]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
STEP = 1e-6
FORMULAS = (
    "acc * acc * acc - 2 * acc",
    "(acc + 1) / (scale * scale + acc * acc)",
    "exp(-acc) * log(3 + acc)",
    "sqrt(5 + acc) + rsqrt(4 + acc * scale)",
    "tanh(acc * scale) + erf(acc - c)",
    "abs(acc) + min(acc, c) * max(acc, scale)",
    "fma(acc, scale, c * acc)",
    "acc * c if acc < scale else acc - c if row <= col else 2 * acc",
)


def evaluated(node: Expr, known: dict[str, Doubles]) -> Doubles:
    match node:
        case Const(int() | float() as value):
            return np.asarray(float(value))
        case Var(name):
            return known[name]
        case Bin(op, a, b):
            return OPERATORS[op](evaluated(a, known), evaluated(b, known))
        case Select(condition, then, other):
            holds = evaluated(condition, known)
            return np.asarray(np.where(holds, evaluated(then, known), evaluated(other, known)))
        case Call("fma", (a, b, c)):
            return evaluated(a, known) * evaluated(b, known) + evaluated(c, known)
        case Call(function, args):
            return np.asarray(MEANINGS[function](*(evaluated(arg, known) for arg in args)), np.float64)
    raise AssertionError(node)


def values(rng: np.random.Generator) -> dict[str, Doubles]:
    """Numbers for all names, none of which is near a corner of a formula."""
    known = {name: rng.uniform(-1.5, 1.5, 200) for name in (*NAMES, UP)}
    corners = np.abs(known["acc"]) < 0.01
    known["acc"][corners] = 0.5
    return known | {name: rng.integers(0, 9, 200).astype(np.float64) for name in ("row", "col")}


def difference(value: Expr, known: dict[str, Doubles], name: str) -> Doubles:
    above, below = (evaluated(value, {**known, name: known[name] + step}) for step in (STEP, -STEP))
    return (above - below) / (2 * STEP)


@pytest.mark.parametrize("text", FORMULAS)
@pytest.mark.parametrize("name", ["acc", "scale", "c"])
def test_formulas(text: str, name: str, rng: np.random.Generator) -> None:
    value, known = formula(parse(text), NAMES, F64), values(rng)
    right, found = difference(value, known, name), evaluated(derivative(value, name), known)
    # A side of a comparison may change within a step.
    assert np.mean(np.abs(found - right) > 1e-4 * (1 + np.abs(right))) <= 0.01


@pytest.mark.parametrize("name", NAMED)
def test_functions(name: str, rng: np.random.Generator) -> None:
    text = name + {"clamp": "(-0.75, 1)", "leaky_relu": "(0.1)"}.get(name, "")
    (function,) = applied((text,), F64)
    known = values(rng)
    known[RESULT] = evaluated(function.value, known)
    for by in function.names:
        right, found = difference(function.value, known, by), evaluated(derivative_of(function, by), known)
        assert np.mean(np.abs(found - right) > 1e-6 * (1 + np.abs(right))) <= 0.01


@pytest.mark.parametrize("name", ["silu", "sigmoid", "tanh", "gelu", "gelu_tanh"])
def test_large_arguments_give_the_limit_instead_of_nan(name: str) -> None:
    (function,) = applied((name,), F64)
    acc = np.array([-3000.0, -800.0, 800.0, 3000.0])
    with np.errstate(over="ignore"):
        known = {"acc": acc, RESULT: evaluated(function.value, {"acc": acc})}
        found = evaluated(derivative_of(function, "acc"), known)
    limit = 0.0 if name in ("sigmoid", "tanh") else (acc > 0).astype(float)
    np.testing.assert_allclose(found, np.broadcast_to(limit, found.shape), atol=1e-6)


def test_sums_have_constant_derivatives() -> None:
    """Where no product is needed none is computed."""
    for text in ("bias", "residual", "expr: acc + 2 - bias"):
        (function,) = applied((text,), I32)
        assert is_const(derivative_of(function, "acc"), 1)
        assert isinstance(derivative_of(function, next(iter(function.names - {"acc"}))), Const | Call)
