"""A small language of formulas, such as `acc * 0.5 + col`.

Python's own parser reads them; here they are checked node by node and made into `Expr`. What is not listed here is an
error that says where it stands. No text of a user's reaches an emitted source: what is printed there is printed from
the nodes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Literal

from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import I32, I64, SMALLEST, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Select, Var
from gemmgen.ir.functions import FAST, MATH
from gemmgen.records import dataclass

#: Longer or deeper ones are no formulas that somebody wrote.
MOST_CHARACTERS, DEEPEST = 1000, 32
#: Names of where an element is, and how large they can be: whole numbers, and compared as such.
PLACES, LAST_PLACE = ("row", "col", "k"), 2**31 - 1026
_FUNCTIONS = {**{name: row.arguments for name, row in MATH.items() if name != "neg"}, "fma": 3}
_SYMBOLS: dict[type[ast.operator], Literal["+", "-", "*", "/"]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}
#: Comparisons -> the one of the IR, and whether its sides change places.
_COMPARISONS: dict[type[ast.cmpop], tuple[Literal["<", "<=", "==", "!="], bool]] = {
    ast.Lt: ("<", False),
    ast.LtE: ("<=", False),
    ast.Gt: ("<", True),
    ast.GtE: ("<=", True),
    ast.Eq: ("==", False),
    ast.NotEq: ("!=", False),
}


def parse(text: str, such_as: str = "acc * 0.5 + col") -> ast.expr:
    """The syntax tree of a text in which nothing is checked yet. Raises: SpecError that says where it goes wrong."""
    text = text.strip()
    if len(text) > MOST_CHARACTERS:
        raise SpecError(f"{len(text):,} characters > {MOST_CHARACTERS}: write a shorter one")
    if strange := re.search(r"[^ -~]", text):
        raise SpecError(f"character {strange.start() + 1}, {strange[0]!r}, is not ASCII or not printable: leave it out")
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        at = error.offset or len(text) + 1
        raise SpecError(f"character {at}: {error.msg}: write one as {such_as}") from None
    except (RecursionError, MemoryError, ValueError):
        raise SpecError(f"nested deeper than {DEEPEST}: write it flatter") from None


def formula(tree: ast.expr, names: Iterable[str], dtype: DType, fast: bool = False, placed: bool = True) -> Expr:
    """A tree as an expression over variables of `dtype`, by the names that are allowed.

    Args:
        fast: whether it may call functions that few targets have.
        placed: whether problems say where they stand, as in a text that a user wrote.

    Raises: SpecError with every problem.
    """
    functions = {**_FUNCTIONS, **dict.fromkeys(FAST, 1)} if fast else _FUNCTIONS
    reader = _Reader(tuple(names), dtype, functions, placed)
    value = reader.expr(tree)
    if reader.problems:
        raise SpecError(reader.problems)
    return value


@dataclass
class _Reader:
    names: tuple[str, ...]
    dtype: DType
    functions: Mapping[str, int]
    placed: bool = True
    problems: list[str] = field(default_factory=list)

    def expr(self, node: ast.expr, depth: int = 1) -> Expr:
        """The expression; any, with a problem noted, for what is none."""
        if depth > DEEPEST:
            return self._wrong(node, f"nested deeper than {DEEPEST}: write it flatter")
        match node:
            case ast.Constant(value):
                return self._number(node, value)
            case ast.Name(name):
                return self._name(node, name)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if value:
                return self._number(node, -value)
            case ast.UnaryOp(ast.USub(), operand):
                return Call("neg", (self.expr(operand, depth + 1),), self.dtype)
            case ast.BinOp(left, operator, right) if type(operator) in _SYMBOLS:
                symbol = _SYMBOLS[type(operator)]
                if symbol == "/" and not self.dtype.is_float:
                    return self._wrong(node, f"/ divides floats, but sums are {self.dtype}: use float types")
                return Bin(symbol, self.expr(left, depth + 1), self.expr(right, depth + 1))
            case ast.IfExp(ast.Compare(left, [comparison], [right]), then, other) if type(comparison) in _COMPARISONS:
                op, swapped = _COMPARISONS[type(comparison)]
                whole = self._whole(left, right)
                reader = self if whole is None else replace(self, dtype=whole)
                a, b = reader.expr(left, depth + 1), reader.expr(right, depth + 1)
                sides = (self.expr(then, depth + 1), self.expr(other, depth + 1))
                return Select(Bin(op, b, a) if swapped else Bin(op, a, b), *sides)
            case ast.Call(ast.Name(name), args, []):
                return self._call(node, name, args, depth)
        return self._wrong(
            node,
            f"{_kind(node)} is not allowed: use numbers, names ({', '.join(self.names)}), + - * /, "
            f"functions ({', '.join(self.functions)}), or `x if a < b else y`",
        )

    def _whole(self, *sides: ast.expr) -> DType | None:
        """The type in which places are compared with each other and with whole numbers, none of which a float need
        hold; None for other comparisons.
        """
        largest = [_largest(side) for side in sides]
        places = {node.id for side in sides for node in ast.walk(side) if isinstance(node, ast.Name)}
        if None in largest or not places or not places <= {*PLACES} & {*self.names}:
            return None
        most = max(x for x in largest if x is not None)
        return next((dtype for dtype in (I32, I64) if most <= dtype.largest), None)

    def _number(self, node: ast.expr, value: object) -> Expr:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return self._wrong(node, f"{type(value).__name__} is no number: give one such as 0.5")
        if not abs(value) <= self.dtype.largest:
            return self._wrong(node, f"a number exceeds {self.dtype}'s {self.dtype.largest:g}: give a smaller one")
        if not self.dtype.is_float:
            if value != int(value):
                return self._wrong(node, f"{value} is no whole number, but sums are {self.dtype}: use float types")
            return Const(int(value), self.dtype)
        if 0 < abs(value) < (least := SMALLEST[self.dtype]):
            return self._wrong(node, f"{value} is below {self.dtype}'s {least:.3g}: give a larger one, or 0")
        return Const(float(value), self.dtype)

    def _name(self, node: ast.expr, name: str) -> Expr:
        if name in self.names:
            return Var(name, self.dtype)
        return self._wrong(node, f"unknown name {name[:40]!r}: use {', '.join(self.names)}")

    def _call(self, node: ast.expr, name: str, args: list[ast.expr], depth: int) -> Expr:
        if name not in self.functions:
            return self._wrong(node, f"unknown function {name[:40]!r}: use {', '.join(self.functions)}")
        if len(args) != self.functions[name]:
            return self._wrong(node, f"{name} takes {self.functions[name]} arguments, not {len(args)}: give as many")
        if name in MATH and not (self.dtype.is_float or MATH[name].integers):
            return self._wrong(node, f"{name} is a function of floats, but sums are {self.dtype}: use float types")
        return Call(name, tuple(self.expr(arg, depth + 1) for arg in args), self.dtype)

    def _wrong(self, node: ast.expr, problem: str) -> Expr:
        self.problems.append(f"character {node.col_offset + 1}: {problem}" if self.placed else problem)
        return Const(0, self.dtype)


def _largest(node: ast.expr) -> int | None:
    """What a sum, a difference or a product of places and whole numbers is at most, without its sign."""
    match node:
        case ast.Constant(int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(name) if name in PLACES:
            return LAST_PLACE
        case ast.UnaryOp(ast.USub(), operand):
            return _largest(operand)
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as operator, right):
            a, b = _largest(left), _largest(right)
            if a is not None and b is not None:
                return max(a, 1) * max(b, 1) if isinstance(operator, ast.Mult) else a + b
    return None


def _kind(node: ast.expr) -> str:
    """What a node is, in words."""
    words = {
        ast.Attribute: "an attribute",
        ast.Subscript: "a subscript",
        ast.Lambda: "a lambda",
        ast.Compare: "a comparison outside of `x if a < b else y`, or a chain of them,",
        ast.IfExp: "a condition other than one comparison",
        ast.Call: "a call of anything but a function by its name, or with keywords,",
        ast.BoolOp: "and or or",
    }
    operators = {ast.BinOp: "this operator", ast.UnaryOp: "this sign"}
    return {**words, **operators}.get(type(node), type(node).__name__)
