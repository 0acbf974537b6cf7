"""An epilogue on tensors: what its functions compute, and their derivatives."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch

from gemmgen.derivatives import derivative_of
from gemmgen.epilogue import RESULT, UP, Applied, applied
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import F32, F64
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, Var
from gemmgen.ir.walk import walk_expr
from gemmgen.torch.product import sums_of

#: A tensor, or a number that needs none.
Value: TypeAlias = "torch.Tensor | float"
_OPERATORS: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "abs": torch.abs,
    # Of two numbers one of which is NaN they give the other one.
    "min": torch.fmin,
    "max": torch.fmax,
}


class Chain:
    """The functions of an epilogue on a stack of matrices, one after the other. Values are computed when asked for.

    Args:
        functions: of `gemmgen.epilogue.applied`.
        first: computes the sums, [..., m, n], in the type in which functions are computed; [..., m, 2 n] where the
            first function is a gate.
        known: what formulas name besides: operands, `c`, and `row` where it does not count from the first one. Their
            shapes broadcast to [..., m, n].
        like: a tensor [..., m, n] on the device, of the type in which functions are computed. No element is read.
        last: the epilogue's result, if it is at hand.
    """

    def __init__(
        self,
        functions: Sequence[Applied],
        first: Callable[[], torch.Tensor],
        known: Mapping[str, torch.Tensor],
        like: torch.Tensor,
        last: torch.Tensor | None = None,
    ) -> None:
        self._functions = functions
        self._first = first
        self._known = known
        self._like = like
        self._values: dict[int, torch.Tensor] = {} if last is None else {len(functions): last}

    def value(self, index: int) -> torch.Tensor:
        """The argument of a function; of the index past the last one, the epilogue's result."""
        if index not in self._values:
            if index == 0:
                self._values[0] = self._first()
            else:
                value = self._evaluate(self._functions[index - 1].value, index - 1)
                self._values[index] = value if isinstance(value, torch.Tensor) else torch.full_like(self._like, value)
        return self._values[index]

    def gradients(self, gradient: torch.Tensor, names: Sequence[str]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The gradients of the sums, and of the named operands, [..., m, n] each, from that of the result."""
        found: dict[str, torch.Tensor] = {}
        for index, function in reversed(tuple(enumerate(self._functions))):
            for name in names:
                if name in function.names:
                    part = self._scaled(gradient, derivative_of(function, name), index)
                    found[name] = found[name] + part if name in found else part
            sides = [self._scaled(gradient, derivative_of(function, name), index) for name in _sums_of(function)]
            gradient = torch.cat(sides, -1) if function.is_gate else sides[0]
        return gradient, found

    def _scaled(self, gradient: torch.Tensor, by: Expr, index: int) -> torch.Tensor:
        """A gradient times a derivative. Masks are applied as such, so that its type stays."""
        match by:
            case Const(0):
                return torch.zeros_like(gradient)
            case Const(1):
                return gradient
            case Select(condition, then, other):
                holds = self._evaluate(condition, index)
                if not isinstance(holds, torch.Tensor):
                    return self._scaled(gradient, then if holds else other, index)
                sides = (self._scaled(gradient, side, index) for side in (then, other))
                return torch.where(holds, *sides)
        return gradient * self._evaluate(by, index)

    def _evaluate(self, node: Expr, index: int) -> Value:
        match node:
            case Const(int() | float() as value):
                return value
            case Var(name):
                return self._named(node, name, index)
            case Bin(op, a, b):
                return _OPERATORS[op](self._evaluate(a, index), self._evaluate(b, index))
            case Select(condition, then, other):
                holds = self._evaluate(condition, index)
                if not isinstance(holds, torch.Tensor):
                    return self._evaluate(then if holds else other, index)
                return torch.where(holds, self._tensor(then, index), self._tensor(other, index))
            case Call("neg", (a,)):
                return operator.neg(self._evaluate(a, index))
            case Call("fma", (a, b, c)):
                return self._evaluate(Bin("+", Bin("*", a, b), c), index)
            case Call(function, args) if function in _FUNCTIONS:
                return _FUNCTIONS[function](*(self._tensor(arg, index) for arg in args))
        raise LoweringError(f"{type(node).__name__} is no part of a formula, and torch has nothing for it")

    def _tensor(self, node: Expr, index: int) -> torch.Tensor:
        value = self._evaluate(node, index)
        if isinstance(value, torch.Tensor):
            return value
        return torch.full((), value, dtype=self._like.dtype, device=self._like.device)

    def _named(self, node: Var, name: str, index: int) -> torch.Tensor:
        if name in ("acc", UP) and self._functions[index].is_gate:
            return self.value(index).chunk(2, -1)[name == UP]
        if name in ("acc", RESULT):
            return self.value(index + (name == RESULT))
        if name in ("row", "col"):
            like = self._like
            # As kernels do: whole numbers where they are compared with such, else of the type of sums.
            dtype = like.dtype if node.dtype.is_float else torch.int64
            if name in self._known:
                return self._known[name].to(dtype)
            places = torch.arange(like.shape[-2 if name == "row" else -1], device=like.device).to(dtype)
            return places.unsqueeze(-1) if name == "row" else places
        return self._known[name]


def _sums_of(function: Applied) -> tuple[str, ...]:
    """What a function is made of, which gradients go to."""
    return ("acc", UP) if function.is_gate else ("acc",)


def functions_of(texts: Sequence[str] | None, a: torch.Tensor, b: torch.Tensor) -> tuple[Applied, ...]:
    """The functions of an epilogue of a product of a and b. Raises: SpecError with every problem."""
    return applied(tuple(texts), F64 if sums_of(a, b) == torch.float64 else F32) if texts else ()


def names_in_derivatives(functions: Sequence[Applied]) -> list[frozenset[str]]:
    """Of each function what its derivatives name."""
    return [
        frozenset(
            node.name
            for name in function.names - {"row", "col"}
            for node in walk_expr(derivative_of(function, name))
            if isinstance(node, Var)
        )
        for function in functions
    ]
