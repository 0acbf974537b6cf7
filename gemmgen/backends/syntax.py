"""Statements of C as trees of expressions, as far as line breaks ask about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmgen.records import cached_property, dataclass

_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "%=")
#: Binary operators, those that bind loosest first.
LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL_OF = {sign: level for level, signs in enumerate(LEVELS) for sign in signs}
STRING = r"\"(?:[^\"\\]|\\.)*\""
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_TOKEN = re.compile(
    r"\s+|R?\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//.*|/\*.*?\*/|[A-Za-z_0-9]+(?:\.[0-9]\w*)?|<<=|>>=|->|::|<<|>>"
    r"|[-+*/%|&^=!<>]=|&&|\|\||\+\+|--|."
)


class Unreadable(ValueError):
    """A statement in words that printers don't use: it stays as it is."""


@dataclass(frozen=True)
class Text:
    """Tokens between which nothing is broken."""

    flat: str


@dataclass(frozen=True)
class Group:
    """Brackets around items: arguments, a subscript, the head of a loop."""

    opening: str
    items: tuple[Node, ...]
    separators: tuple[str, ...]

    @property
    def separated(self) -> list[tuple[Node, str]]:
        """Each item, and what stands behind it."""
        return list(zip(self.items, (*self.separators, "")[: len(self.items)], strict=True))

    @cached_property
    def flat(self) -> str:
        """In one line."""
        texts = [x.flat + (f"{s} " if s else "") for x, s in self.separated]
        return f"{self.opening}{''.join(texts)}{CLOSING[self.opening]}"


@dataclass(frozen=True)
class Atom:
    """Names and brackets one after another: a call, an element of an array."""

    parts: tuple[Text | Group, ...]

    @cached_property
    def flat(self) -> str:
        """In one line."""
        return "".join(part.flat for part in self.parts)


@dataclass(frozen=True)
class Chain:
    """Operands between operators that bind equally."""

    operands: tuple[Node, ...]
    operators: tuple[str, ...]

    @cached_property
    def flat(self) -> str:
        """In one line."""
        rest = (f" {sign} {x.flat}" for sign, x in zip(self.operators, self.operands[1:], strict=True))
        return self.operands[0].flat + "".join(rest)


@dataclass(frozen=True)
class Choice:
    """`condition ? then : other`."""

    condition: Node
    then: Node
    other: Node

    @cached_property
    def flat(self) -> str:
        """In one line."""
        return f"{self.condition.flat} ? {self.then.flat} : {self.other.flat}"


@dataclass(frozen=True)
class Assignment:
    """`target = value`; the target may be declared there."""

    target: Node
    sign: str
    value: Node

    @cached_property
    def flat(self) -> str:
        """In one line."""
        return f"{self.target.flat} {self.sign} {self.value.flat}"


Node = Text | Group | Atom | Chain | Choice | Assignment


class _Parser:
    """Reads what printers and templates write: binary operators stand between spaces, others do not."""

    def __init__(self, text: str) -> None:
        self.tokens = _TOKEN.findall(text)
        self.place = 0

    def _peek(self, ahead: int = 0) -> str:
        place = self.place + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def _operator(self) -> str:
        """The operator that comes next, between spaces."""
        is_between = self._peek().isspace() and self._peek(2).isspace()
        return self._peek(1) if is_between else ""

    def assignment(self) -> Node:
        """An expression, or an assignment of one."""
        target = self._choice()
        if (sign := self._operator()) in _ASSIGNMENTS:
            self.place += 3
            return Assignment(target, sign, self.assignment())
        return target

    def _choice(self) -> Node:
        condition = self._chain()
        if self._operator() != "?":
            return condition
        self.place += 3
        then = self._choice()
        if self._operator() != ":":
            raise Unreadable(f"a choice has no other side: {''.join(self.tokens)}")
        self.place += 3
        return Choice(condition, then, self._choice())

    def _chain(self) -> Node:
        operands, operators = [self._atom()], list[str]()
        while (sign := self._operator()) in _LEVEL_OF:
            self.place += 3
            operators.append(sign)
            operands.append(self._atom())
        return _grouped(operands, operators)

    def _atom(self) -> Node:
        parts = list[Text | Group]()
        words = ""
        while token := self._peek():
            if token in ")]},;" or (token == ">" and not words.endswith(" ") and not self._peek(-1).isspace()):
                break
            if token.isspace() and (self._is_operator(self._peek(1)) and self._peek(2).isspace()):
                break
            is_template = token == "<" and self.place > 0 and not self._peek(-1).isspace()
            if token in "([{" or is_template:
                parts += [Text(words)] if words else []
                words = ""
                parts.append(self._group())
                continue
            words += " " if token.isspace() else token
            self.place += 1
        parts += [Text(words)] if words else []
        return parts[0] if len(parts) == 1 else Atom(tuple(parts))

    @staticmethod
    def _is_operator(token: str) -> bool:
        return token in ("?", ":") or token in _ASSIGNMENTS or token in _LEVEL_OF

    def _group(self) -> Group:
        opening = self._peek()
        closing = CLOSING[opening]
        self.place += 1
        items, separators = list[Node](), list[str]()
        while True:
            while self._peek().isspace():
                self.place += 1
            if self._peek() == closing and not items:
                break
            items.append(self.assignment())
            token = self._peek()
            if token not in (",", ";"):
                break
            separators.append(token)
            self.place += 1
        if self._peek() != closing:
            raise Unreadable(f"{opening} is not closed: {''.join(self.tokens)}")
        self.place += 1
        return Group(opening, tuple(items), tuple(separators))


def _grouped(operands: Sequence[Node], operators: Sequence[str]) -> Node:
    """Chains by how tightly operators bind."""
    if not operators:
        return operands[0]
    loosest = min(_LEVEL_OF[sign] for sign in operators)
    cuts = [i for i, sign in enumerate(operators) if _LEVEL_OF[sign] == loosest]
    starts, ends = [0, *(i + 1 for i in cuts)], [*cuts, len(operators)]
    parts = tuple(_grouped(operands[i : j + 1], operators[i:j]) for i, j in zip(starts, ends, strict=True))
    return Chain(parts, tuple(operators[i] for i in cuts))


def parsed(text: str) -> Node:
    """The tree of an expression or a declaration in one line. Raises: Unreadable where brackets do not match."""
    parser = _Parser(text)
    node = parser.assignment()
    if parser.place != len(parser.tokens):
        raise Unreadable(f"cannot lay out {text!r}, from {''.join(parser.tokens[parser.place :])!r} on")
    return node
