"""Expressions: what a statement computes with.

Seven frozen node types and a few constructors that fold constants as they build, so that no pass has to
write `+ 0` away after the fact. Integer division and remainder are only ever applied to values that are
not negative, so that C, Python and NumPy agree on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

from gemmgen.ir.constants import divides, is_free
from gemmgen.ir.dtypes import BOOL, I32, I64, DType
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.ir.buffer import Buffer

#: `||` stands in printed text alone (`backends/routines.py`): no kernel has it.
Op = Literal["+", "-", "*", "/", "%", "&", "^", "<", "<=", "==", "!=", "&&", "||", "min"]
COMPARISONS: frozenset[str] = frozenset({"<", "<=", "==", "!=", "&&"})


@dataclass(frozen=True, slots=True)
class Node:
    """What a kernel is made of: expressions, statements, and parts of statements such as tiles.

    Each kind declares here what its fields hold, once; all that walks or rewrites a kernel (`ir/walk.py`) follows it.

    Attributes:
        CHILDREN: fields with expressions or parts: one, a tuple of them, or None for none.
        PLACES: of each element of a buffer that it touches, the field with the buffer and that with its coordinates.
        WRITES: those of the fields with buffers, or tiles, that it writes to.
        BODIES: fields with statements.
        BINDS: fields with names that are bound: in the node's bodies, or, if it has none, to the end of its block.
    """

    CHILDREN: ClassVar[tuple[str, ...]] = ()
    PLACES: ClassVar[tuple[tuple[str, str], ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    BODIES: ClassVar[tuple[str, ...]] = ()
    BINDS: ClassVar[tuple[str, ...]] = ()

    @property
    def binds(self) -> tuple[str, ...]:
        """Those of `BINDS` that this one does bind."""
        return self.BINDS


class _Arithmetic(Node):
    """Python operators on expressions; they fold constants."""

    __slots__ = ()

    def __add__(self, other: Expr | int) -> Expr:
        return add(_expr(self), other)

    def __radd__(self, other: int) -> Expr:
        return add(other, _expr(self))

    def __sub__(self, other: Expr | int) -> Expr:
        return sub(_expr(self), other)

    def __mul__(self, other: Expr | int) -> Expr:
        return mul(_expr(self), other)

    def __rmul__(self, other: int) -> Expr:
        return mul(_expr(self), other)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return div(_expr(self), other)

    def __mod__(self, other: Expr | int) -> Expr:
        return mod(_expr(self), other)

    def __lt__(self, other: Expr | int) -> Expr:
        return compare("<", _expr(self), other)

    def __le__(self, other: Expr | int) -> Expr:
        return compare("<=", _expr(self), other)


@dataclass(frozen=True, slots=True)
class Const(_Arithmetic):
    """A literal."""

    value: int | float | complex
    dtype: DType = I32


@dataclass(frozen=True, slots=True)
class Var(_Arithmetic):
    """A parameter, a loop variable or the name that a `Let` binds."""

    name: str
    dtype: DType = I32


@dataclass(frozen=True, slots=True)
class Bin(_Arithmetic):
    """A binary operation on two operands of one type; of two integers, the wider one's."""

    CHILDREN = ("a", "b")

    op: Op
    a: Expr
    b: Expr

    @property
    def dtype(self) -> DType:
        if self.op in COMPARISONS:
            return BOOL
        return self.b.dtype if self.b.dtype == I64 else self.a.dtype


@dataclass(frozen=True, slots=True)
class Select(_Arithmetic):
    """`then` where `condition` holds, else `other`. Only the chosen side is evaluated."""

    CHILDREN = ("condition", "then", "other")

    condition: Expr
    then: Expr
    other: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype


@dataclass(frozen=True, slots=True)
class Load(_Arithmetic):
    """One element of a buffer, by its storage coordinates."""

    CHILDREN = ("index",)

    buffer: Buffer
    index: tuple[Expr, ...]

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class Call(_Arithmetic):
    """A function of the target, by gemmgen's own name for it (`ir/functions.py`)."""

    CHILDREN = ("args",)

    function: str
    args: tuple[Expr, ...]
    dtype: DType


Expr = Const | Var | Bin | Select | Load | Call


def _expr(node: object) -> Expr:
    assert isinstance(node, Const | Var | Bin | Select | Load | Call)
    return node


def wrap(value: Expr | int) -> Expr:
    """An `int` as a constant; an expression as it is."""
    return Const(value) if isinstance(value, int) else value


def is_const(node: Expr, value: complex | None = None) -> bool:
    """Whether `node` is a literal, and `value` if that is given."""
    return isinstance(node, Const) and (value is None or node.value == value)


def as_int(node: Expr) -> int | None:
    """The value of an integer literal, else None."""
    return node.value if isinstance(node, Const) and isinstance(node.value, int) else None


def _always(number: int | None, value: int) -> bool:
    """Whether a number has a value, whatever somebody makes of constants in the text."""
    return number == value and not is_free(number)


def _folded(value: int, *operands: Expr) -> Const:
    """What an operation on integers comes to, in the widest of their types."""
    return Const(value, I64 if any(x.dtype == I64 for x in operands) else I32)


def add(a: Expr | int, b: Expr | int) -> Expr:
    """a + b, with constants gathered on the right: `(x + 2) + 3` is `x + 5`."""
    a, b = wrap(a), wrap(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return _folded(x + y, a, b)
    if _always(x, 0):
        return b
    if _always(y, 0):
        return a
    if x is not None:
        return add(b, a)
    if y is not None:
        if isinstance(a, Bin) and a.op == "+" and (inner := as_int(a.b)) is not None:
            return add(a.a, inner + y)
        if isinstance(a, Bin) and a.op == "-" and (inner := as_int(a.b)) is not None:
            return add(a.a, y - inner)
        return Bin("-", a, Const(-y)) if y < 0 else Bin("+", a, b)
    if isinstance(b, Bin) and b.op == "+":
        return add(add(a, b.a), b.b)
    if isinstance(a, Bin) and a.op == "+" and (inner := as_int(a.b)) is not None:
        return add(add(a.a, b), inner)
    return Bin("+", a, b)


def sub(a: Expr | int, b: Expr | int) -> Expr:
    """a - b."""
    a, b = wrap(a), wrap(b)
    if (y := as_int(b)) is not None:
        return add(a, -y)
    return _folded(0, a) if a == b else Bin("-", a, b)


def mul(a: Expr | int, b: Expr | int) -> Expr:
    """a * b, with a constant factor on the right; works for floating-point factors of one as well."""
    a, b = wrap(a), wrap(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return _folded(x * y, a, b)
    if x is not None:
        return mul(b, a)
    if _always(y, 0):
        return _folded(0, a, b)
    if _always(y, 1) or (y is None and is_const(b, 1.0)):
        return a
    if is_const(a, 1.0):
        return b
    if y is not None and isinstance(a, Bin) and a.op == "*" and (inner := as_int(a.b)) is not None:
        return mul(a.a, inner * y)
    return Bin("*", a, b)


def div(a: Expr | int, b: Expr | int) -> Expr:
    """a / b, both not negative, rounded down."""
    a, b = wrap(a), wrap(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(x // y)
    if _always(y, 1) or _always(x, 0):
        return a
    if y is not None and isinstance(a, Bin) and a.op in ("*", "+") and (inner := as_int(a.b)) and divides(inner, y):
        return mul(a.a, inner // y) if a.op == "*" else add(div(a.a, y), inner // y)
    if y is not None and isinstance(a, Bin) and a.op == "+" and isinstance(a.a, Bin) and a.a.op == "*":
        inner, more = as_int(a.a.b), as_int(a.b)
        if inner and more is not None and more >= 0 and inner % y == 0:  # (x * 8 + 7) / 8 is x
            return add(mul(a.a.a, inner // y), more // y)
    return Bin("/", a, b)


def mod(a: Expr | int, b: Expr | int) -> Expr:
    """a mod b, both not negative."""
    a, b = wrap(a), wrap(b)
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(x % y)
    if _always(y, 1) or _always(x, 0):
        return Const(0)
    if y is not None and isinstance(a, Bin) and a.op == "*" and (inner := as_int(a.b)) and inner % y == 0:
        return Const(0)
    return Bin("%", a, b)


def ceil_div(a: Expr | int, b: int) -> Expr:
    """a / b rounded up, a not negative."""
    return div(add(a, b - 1), b)


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of two integers."""
    x, y = as_int(a), as_int(b)
    if x is not None and y is not None:
        return Const(min(x, y))
    return a if a == b else Bin("min", a, b)


def convert(value: Expr, dtype: DType) -> Expr:
    """`value` in another type, or as it is where that is its own."""
    return value if value.dtype == dtype else Call("convert", (value,), dtype)


def conj(value: Expr) -> Expr:
    """The complex conjugate."""
    return Call("conj", (value,), value.dtype)


def number(value: complex, dtype: DType) -> Const:
    """A literal of a matrix' type or of its sums'."""
    if dtype.real is not None:
        return Const(complex(value), dtype)
    return Const(float(value.real) if dtype.is_float else int(value.real), dtype)


def compare(op: Literal["<", "<=", "==", "!="], a: Expr | int, b: Expr | int) -> Expr:
    """A comparison, decided at once between literals."""
    a, b = wrap(a), wrap(b)
    if isinstance(a, Const) and isinstance(b, Const):
        x, y = a.value, b.value
        if op in ("==", "!="):
            return Const(int((x == y) == (op == "==")), BOOL)
        if isinstance(x, int | float) and isinstance(y, int | float):  # complex numbers have no order
            return Const(int(x < y if op == "<" else x <= y), BOOL)
    return Bin(op, a, b)


def both(a: Expr, b: Expr) -> Expr:
    """a and b; b is only evaluated where a holds."""
    if isinstance(a, Const):
        return b if a.value else a
    if isinstance(b, Const):
        return a if b.value else b
    return Bin("&&", a, b)


def all_of(conditions: Iterable[Expr]) -> Expr:
    """The conjunction; true when there is none."""
    true: Expr = Const(1, BOOL)
    return reduce(both, conditions, true)


def select(condition: Expr, then: Expr, other: Expr) -> Expr:
    """`then` or `other`, decided at once where the condition is a literal."""
    if isinstance(condition, Const):
        return then if condition.value else other
    return Select(condition, then, other)
