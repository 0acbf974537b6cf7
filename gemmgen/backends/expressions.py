"""Expressions of C-family languages: operators with their precedence, elements of arrays, literals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from gemmgen.backends.pairs import Pairs
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import F32, I64, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, as_int
from gemmgen.ir.functions import MATH

#: How tightly operators bind, from C's grammar; higher binds tighter.
PRECEDENCE = {"&&": 2, "^": 2, "&": 3, "==": 4, "!=": 4, "<": 5, "<=": 5, "+": 7, "-": 7, "*": 8, "/": 8, "%": 8}
TERNARY, UNARY, POSTFIX = 1, 9, 10
#: Functions of numbers that C calls otherwise where they are of floats.
FLOAT_NAMES = {"abs": "fabs", "min": "fmin", "max": "fmax"}


class Expressions(ABC):
    """How a language writes values."""

    name: ClassVar[str]
    #: What it calls each type of elements.
    types: ClassVar[Mapping[str, str]]
    #: How it writes complex numbers.
    pairs: ClassVar[Pairs]
    #: The smaller of two numbers.
    minimum: ClassVar[str] = "min"
    #: What its integer literals of 64 bits end in.
    long: ClassVar[str] = "LL"

    @abstractmethod
    def call(self, call: Call) -> tuple[str, int]:
        """A built-in function, and how tightly its text binds."""

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """One element: `a[i * lda + j]` of a matrix or a view, `acc[i][j]` of an array."""
        if buffer.space in (Space.GLOBAL, Space.VIEW):
            return f"{buffer.name}[{self.expr(buffer.layout.offset(index))}]"
        name = buffer.name
        if buffer.spread > 1:
            name, index = self.in_group(buffer, index[0]), index[1:]
        return name + "".join(f"[{self.expr(i)}]" for i in index)

    def in_group(self, buffer: Buffer, rank: Expr) -> str:
        """The array of one of a cluster's groups, where the language has clusters."""
        raise LoweringError(f"{self.name} has no {buffer.name} of group {self.expr(rank)} of a cluster")

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """A pointer to one element; an array's name where that is its first."""
        if buffer.space not in (Space.GLOBAL, Space.VIEW) and index and as_int(index[-1]) == 0:
            return self.element(buffer, index[:-1])
        return f"&{self.element(buffer, index)}"

    def expr(self, node: Expr, outer: int = 0) -> str:
        """An expression, in parentheses only where `outer` binds tighter."""
        text, inner = self._bound(node)
        return f"({text})" if inner < outer else text

    def _bound(self, node: Expr) -> tuple[str, int]:
        if (of_pairs := self.pairs.arithmetic(node, self.expr)) is not None:
            return of_pairs
        match node:
            case Const(value, dtype):
                return self.literal(value, dtype)
            case Var(name, _):
                return name, POSTFIX
            case Load(buffer, index):
                return self.element(buffer, index), POSTFIX
            case Call("convert", (value,), dtype):
                return self.conversion(value, dtype)
            case Call("fma", (a, b, c), dtype) if not dtype.is_float:
                return self._bound(Bin("+", c, Bin("*", a, b)))
            case Call("neg", (value,)):
                return f"-{self.expr(value, POSTFIX)}", UNARY
            case Call(name, args, dtype) if name in MATH:
                return f"{self.math(name, dtype)}({', '.join(map(self.expr, args))})", POSTFIX
            case Call():
                return self.call(node)
            case Select(condition, then, other):
                texts = (self.expr(condition, TERNARY + 1), self.expr(then, TERNARY + 1), self.expr(other, TERNARY))
                return "{} ? {} : {}".format(*texts), TERNARY
            case Bin("min", a, b):
                return f"{self.minimum}({self.expr(a)}, {self.expr(b)})", POSTFIX
            case Bin("^", a, b):
                # Compilers ask for parentheses around what stands beside it.
                return f"{self.expr(a, POSTFIX)} ^ {self.expr(b, POSTFIX)}", PRECEDENCE["^"]
            case Bin(op, a, b):
                level = PRECEDENCE[op]
                # The right operand of - / % must not be regrouped; + and * of integers may stand as they are.
                right = level if op in ("+", "&&") else level + 1
                return f"{self.expr(a, level)} {op} {self.expr(b, right)}", level

    def math(self, name: str, dtype: DType) -> str:
        """What a function of numbers is called: as in C, or by the prefix or the ending that the language has."""
        return FLOAT_NAMES.get(name, name) if dtype.is_float else name

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        """A value in another type."""
        return f"{converting(self.types[dtype.name])}({self.expr(value)})", POSTFIX

    def literal(self, value: complex, dtype: DType) -> tuple[str, int]:
        """A literal of a type; of those that have none, zero as it is made of nothing."""
        if (real := dtype.real) is not None:
            return self.pairs.number(value, self.types[dtype.name], lambda part: self.literal(part, real)[0]), UNARY
        if not isinstance(value, int | float):
            raise LoweringError(f"{value} is no {dtype}")
        if dtype.is_float and dtype.size < F32.size:
            if value:
                raise LoweringError(f"{self.name} has no literal {value} of {dtype}")
            return f"{self.types[dtype.name]}()", POSTFIX
        suffix = {F32: "f", I64: self.long}.get(dtype, "")
        text = f"{float(value)!r}{suffix}" if dtype.is_float else f"{value}{suffix}"
        return text, UNARY if value < 0 else POSTFIX


def converting(name: str) -> str:
    """What makes a value one of a type of C++: its name, where that is one word."""
    return f"static_cast<{name}>" if " " in name else name
