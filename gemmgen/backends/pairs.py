"""Complex numbers in C-family languages: vectors of a real and an imaginary part, and functions of their arithmetic.

A language has a row: how it writes such a number, and the parts of one. Multiplications are real multiply-adds, so
that no library stands behind them (that of C++'s `std::complex` looks for NaN after each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gemmgen.backends.files import rendered
from gemmgen.errors import LoweringError
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr
from gemmgen.ir.kernel import Kernel, expressions
from gemmgen.records import dataclass

#: How tightly text binds that needs no parentheses, and the conditions below.
_POSTFIX, _AND, _OR = 10, 2, 1
#: In the order in which they are printed.
FUNCTIONS = ("conjugate", "cadd", "cmul", "cfma")


@dataclass(frozen=True, slots=True)
class Pairs:
    """How a language writes complex numbers.

    Attributes:
        make: what stands before the two parts, in parentheses, of a number of `{type}`.
        parts: what follows a value to name its real and its imaginary part.
        inline: what stands before a function of the file's own.
        fma: the real multiply-add of float32, and of float64.
        adds: whether `+` adds them.
    """

    make: str
    parts: tuple[str, str]
    inline: str
    fma: tuple[str, str] = ("fma", "fma")
    adds: bool = True

    def number(self, value: complex, typename: str, real: Callable[[float], str]) -> str:
        """A literal."""
        return f"{self.make.format(type=typename)}({real(value.real)}, {real(value.imag)})"

    def function(self, node: Expr) -> str | None:
        """The function that an expression calls, if it is complex and calls one."""
        if node.dtype.real is None:
            return None
        match node:
            case Bin("*"):
                return "cmul"
            case Bin("+"):
                return None if self.adds else "cadd"
            case Call("fma"):
                return "cfma"
            case Call("conj"):
                return "conjugate"
        return None

    def arithmetic(self, node: Expr, expr: Callable[[Expr], str]) -> tuple[str, int] | None:
        """A complex expression that is a call of such a function, and how tightly its text binds; else None."""
        name = self.function(node)
        match node:
            case Bin(_, a, b) if name is not None:
                return f"{name}({expr(a)}, {expr(b)})", _POSTFIX
            case Call(_, args, _) if name is not None:
                return f"{name}({', '.join(map(expr, args))})", _POSTFIX
            case Bin("==" | "!=" as op, a, Const(value)) if a.dtype.real is not None:
                if value != 0:
                    raise LoweringError(f"{op} {value}: complex numbers are compared with zero only")
                return self._comparison(op, expr(a), "0.0f" if a.dtype.real == F32 else "0.0")
        return None

    def _comparison(self, op: str, text: str, zero: str) -> tuple[str, int]:
        """Part by part."""
        one, other = (f"{text}{part} {op} {zero}" for part in self.parts)
        return (f"{one} && {other}", _AND) if op == "==" else (f"{one} || {other}", _OR)

    def functions(self, kernel: Kernel, types: Mapping[str, str]) -> list[str]:
        """The lines of the functions that a kernel calls."""
        found: set[tuple[str, DType]] = set()
        for node in expressions(kernel):
            name = self.function(node)
            if name is not None:
                found.add((name, node.dtype))
        if not found:
            return []
        functions = [
            {
                "name": name,
                "type": types[dtype.name],
                "real": types[str(dtype.real)],
                "make": self.make.format(type=types[dtype.name]),
                "fma": self.fma[dtype.real != F32],
            }
            for name, dtype in sorted(found, key=lambda x: (FUNCTIONS.index(x[0]), x[1].name))
        ]
        re, im = self.parts
        return rendered("complex.j2", functions=functions, inline=self.inline, re=re, im=im)
