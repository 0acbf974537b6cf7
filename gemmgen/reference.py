"""What prologues and an epilogue make of numbers, in float64, and how far off a device of fewer digits may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from gemmgen.epilogue import OPERANDS, UP
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import BF16, F16, F64
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, Var
from gemmgen.records import dataclass
from gemmgen.simulator.evaluate import MEANINGS
from gemmgen.spec import GemmSpec

Doubles = NDArray[np.float64]
#: Units in the last place by which a device's function may be off: what OpenCL allows `erf`, more than any other here.
FUNCTION_ULPS = 16
#: What fast functions may be off besides: of their results, and of their arguments (`ir.functions.FAST`).
FAST_ERROR, FAST_LEAST = 2.0**-14, 2.0**-18
#: Functions whose values are never below zero, so that a root of them has one.
NOT_NEGATIVE = ("abs", "exp", "sqrt", "rsqrt")
#: Of a sum, a product or a quotient; OpenCL allows a quotient 2.5.
OPERATION_ULPS = 3
#: What rounding loses below the normal numbers of a type at most.
LEAST = {F16: 2.0**-25, BF16: 2.0**-134}


@dataclass(frozen=True, slots=True)
class Bounded:
    """Numbers, and how far from them those of a device may be; but none is below `least`."""

    value: Doubles
    error: Doubles
    least: float = -np.inf


def finished(spec: GemmSpec, product: Bounded, c: Doubles | None, operands: Mapping[str, Doubles]) -> Bounded:
    """alpha * A * B + beta * C after the spec's epilogue, before it is rounded to C's type.

    Args:
        product: alpha * A * B + beta * C; of a gated product of all columns of B.
        c: what C holds before; None where nothing reads it.
        operands: the epilogue's, by name.
    """
    product, up = _halves(product) if spec.gate is not None else (product, None)
    rows, cols = product.value.shape[-2:]
    known = {"row": np.arange(rows, dtype=np.float64)[:, None], "col": np.arange(cols, dtype=np.float64)[None, :]}
    known |= {} if c is None else {"c": c}
    known |= {name: spread(name, array) for name, array in operands.items() if OPERANDS[name].of == "c"}
    exact = {name: Bounded(array, np.zeros_like(array)) for name, array in known.items()}
    exact |= {} if up is None else {UP: up}
    reader = _Reader.of(spec)
    with np.errstate(all="ignore"):
        for function in spec.functions:
            before = product
            product = reader.expr(function.value, {**exact, "acc": before})
            if function.fast is not None and spec.rounds_result:
                size = np.abs(before.value) + before.error
                if up is not None and function.is_gate:
                    size = size * (np.abs(up.value) + up.error)
                product = replace(product, error=product.error + FAST_ERROR * np.abs(product.value) + FAST_LEAST * size)
    shape = np.broadcast_shapes(product.value.shape, (rows, cols))
    return Bounded(np.broadcast_to(product.value, shape), np.broadcast_to(product.error, shape))


def _halves(product: Bounded) -> tuple[Bounded, Bounded]:
    """Those of the columns of a product."""
    cols = product.value.shape[-1] // 2
    first, second = (
        Bounded(product.value[..., half], product.error[..., half]) for half in (slice(cols), slice(cols, None))
    )
    return first, second


def multiplied(spec: GemmSpec, name: str, stored: Doubles, operands: Mapping[str, Doubles]) -> Bounded:
    """A (`a`) or B (`b`) after its prologue, rounded to the type that it is multiplied in; times what sums are scaled
    by, if they are.

    Args:
        stored: what the matrix holds.
        operands: the prologue's, by name.
    """
    prologue = spec.formula_of(name)
    if prologue is None:
        return Bounded(stored, np.zeros(stored.shape))
    rows, cols = (np.arange(extent, dtype=np.float64) for extent in stored.shape[-2:])
    places = {"row": rows[:, None], "k": cols} if name == "a" else {"k": rows[:, None], "col": cols}
    taken = {x: spread(x, array, stored.shape) for x, array in operands.items() if OPERANDS[x].of == name}
    exact = {x: Bounded(array, np.zeros_like(array)) for x, array in {name: stored, **places, **taken}.items()}
    with np.errstate(all="ignore"):
        made = _Reader.of(spec).expr(prologue.value, exact)
        value, error = np.broadcast_to(made.value, stored.shape), np.broadcast_to(made.error, stored.shape)
        if spec.dtype != spec.accumulator and spec.sum_scale(name) is None:
            error = error + 0.5**spec.dtype.digits * (np.abs(value) + error) + LEAST.get(spec.dtype, 0.0)
    return Bounded(value, error)


def product(
    spec: GemmSpec, a: Doubles, b: Doubles, operands: Mapping[str, Doubles]
) -> tuple[Doubles, Doubles, Doubles]:
    """A * B after prologues; |A| |B|, how large its terms may be; and how far it is off by what A and B are."""
    if spec.prologue_a is None and spec.prologue_b is None:
        size: Doubles = np.abs(a) @ np.abs(b)
        return a @ b, size, np.zeros_like(size)
    left, right = multiplied(spec, "a", a, operands), multiplied(spec, "b", b, operands)
    most_a, most_b = np.abs(left.value) + left.error, np.abs(right.value) + right.error
    return left.value @ right.value, most_a @ most_b, left.error @ most_b + np.abs(left.value) @ right.error


def spread(name: str, array: Doubles, shape: tuple[int, ...] = ()) -> Doubles:
    """An operand in the shape of its matrix, as far as it can be broadcast to it.

    Args:
        shape: the matrix', which groups along K need.
    """
    operand = OPERANDS[name]
    if operand.axes == "g":
        k, lines = shape[-2:][:: -1 if operand.of == "a" else 1]
        by_k = np.repeat(array.reshape(-1, lines), operand.group, axis=0)[:k]
        return by_k.T if operand.of == "a" else by_k
    if operand.axes == "t":
        k, lines = shape[-2:][:: -1 if operand.of == "a" else 1]
        tiles = array.reshape(-(-k // operand.group), -1)
        each = np.repeat(np.repeat(tiles, operand.group, axis=0), operand.group, axis=1)[:k, :lines]
        return each.T if operand.of == "a" else each
    return array[:, None] if operand.each.startswith("each row") else array


@dataclass(frozen=True, slots=True)
class _Reader:
    """Computes with bounds: of sums, products and quotients by their first and second order, of functions, which are
    all monotonic (`abs` is, on either side of its least value), at both ends of what their argument may be.
    """

    unit: float
    rounds: bool
    largest: float

    @classmethod
    def of(cls, spec: GemmSpec) -> Self:
        """In the type of sums; the reference is rounded as well, which shows where that is float64."""
        sums = spec.accumulator
        return cls(2.0**-sums.digits * (2 if sums == F64 else 1), sums.is_float, sums.largest)

    def expr(self, node: Expr, known: Mapping[str, Bounded]) -> Bounded:
        match node:
            case Const(int() | float() as value):
                number = self._rounded(np.asarray(float(value)), np.zeros(()), 1)
                return number if value < 0 else replace(number, least=0.0)
            case Var(name):
                return known[name]
            case Bin(op, a, b):
                return self._operation(op, self.expr(a, known), self.expr(b, known))
            case Select(Bin(op, a, b), then, other):
                # Places are whole numbers, which are compared as such.
                reader = self if a.dtype.is_float else replace(self, rounds=False)
                sides = reader.expr(a, known), reader.expr(b, known)
                return _select(op, *sides, self.expr(then, known), self.expr(other, known))
            case Call("fma", (a, b, c)):
                product = self._operation("*", self.expr(a, known), self.expr(b, known))
                return self._operation("+", product, self.expr(c, known))
            case Call(name, args):
                of = [self.expr(arg, known) for arg in args]
                least = max(arg.least for arg in of) if name == "max" else 0.0 if name in NOT_NEGATIVE else -np.inf
                return replace(self._function(name, of), least=least)
        raise LoweringError(f"no bound for a {type(node).__name__}")

    def _rounded(self, value: Doubles, error: Doubles, ulps: int) -> Bounded:
        if not self.rounds:
            return Bounded(value, error)
        # What underflows may become zero. What float64 can't hold no other type can.
        error = error + ulps * (self.unit * (np.abs(value) + error) + 2.0**-126)
        return Bounded(value, np.where(np.isinf(value), 0, error))

    def _operation(self, op: str, a: Bounded, b: Bounded) -> Bounded:
        x, y = np.abs(a.value), np.abs(b.value)
        match op:
            case "+" | "-":
                value = a.value + b.value if op == "+" else a.value - b.value
                return self._rounded(value, a.error + b.error, OPERATION_ULPS)
            case "*":
                return self._rounded(a.value * b.value, x * b.error + y * a.error + a.error * b.error, OPERATION_ULPS)
            case "/":
                least = np.maximum(y - b.error, 0)
                error = (a.error + x * b.error / y) / least
                # By what is too large for the type of the sums, and infinite there, it is 0.
                error = np.where(y + b.error >= self.largest, np.maximum(error, x / y), error)
                return self._rounded(a.value / b.value, error, OPERATION_ULPS)
        raise LoweringError(f"no bound for {op}")

    def _function(self, name: str, args: list[Bounded]) -> Bounded:
        meaning = MEANINGS[name]
        value = meaning(*(arg.value for arg in args)).astype(np.float64)
        error = np.zeros(())
        for i, arg in enumerate(args):
            for sign in (-1, 1):
                moved = [
                    np.maximum(x.value + sign * x.error, x.least) if i == j else x.value for j, x in enumerate(args)
                ]
                away = np.abs(meaning(*moved).astype(np.float64) - value)
                error = np.maximum(error, np.where(arg.error == 0, 0, away))
        # `min` and `max` of two are off by no more than the worse of the two.
        return self._rounded(value, error, 0 if name in ("neg", "abs", "min", "max") else FUNCTION_ULPS)


def _select(op: str, a: Bounded, b: Bounded, then: Bounded, other: Bounded) -> Bounded:
    """Where the sides of a comparison are too near to each other to be told apart, either may be chosen."""
    holds = {"<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal}[op](a.value, b.value)
    value, error = np.where(holds, then.value, other.value), np.where(holds, then.error, other.error)
    unsure = (np.abs(a.value - b.value) <= a.error + b.error) & (a.error + b.error > 0)
    either = np.maximum(np.abs(then.value - value) + then.error, np.abs(other.value - value) + other.error)
    return Bounded(value, np.where(unsure, either, error))
