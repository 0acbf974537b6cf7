"""Statements of C as trees of expressions, as far as line breaks ask about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gemmgen.records import cached_property, dataclass

#: Operators between spaces, those that bind loosest first.
LEVELS = (
    ("=", "+=", "-=", "*=", "/=", "|=", "^=", "&=", "%="),
    ("?", ":"),
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
ASSIGNS, CHOOSES, EQUALS, COMPARES = (_LEVEL_OF[sign] for sign in ("=", "?", "==", "<"))
STRING = r"\"(?:[^\"\\]|\\.)*\""
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ENDS = {*CLOSING.values(), ",", ";"}
_TOKEN = re.compile(
    rf"\s+(?:{'|'.join(map(re.escape, _LEVEL_OF))})\s+|\s+|R?{STRING}|'(?:[^'\\]|\\.)*'|/\*.*?\*/|->|<<|>>|[\w.:]+|."
)


class Unreadable(ValueError):
    """A statement in words that printers don't use: it stays as it is."""


@dataclass(frozen=True, eq=False)
class Group:
    """Brackets around items: arguments, a subscript, the head of a loop."""

    opening: str
    items: tuple[Node, ...]
    separators: tuple[str, ...]

    @cached_property
    def flat(self) -> str:
        """In one line."""
        texts = (f"{item.flat}{sign}" for item, sign in zip(self.items, (*self.separators, ""), strict=False))
        return f"{self.opening}{' '.join(texts)}{CLOSING[self.opening]}"

    @cached_property
    def has_choices(self) -> bool:
        """Whether one choice follows another in it: those are not written side by side."""
        return any(item.has_choices for item in self.items)


@dataclass(frozen=True, eq=False)
class Atom:
    """Words and brackets one after another: a name, a call, an element of an array."""

    parts: tuple[str | Group, ...]

    @cached_property
    def flat(self) -> str:
        """In one line."""
        return "".join(map(flat, self.parts))

    @cached_property
    def groups(self) -> list[Group]:
        """Its brackets."""
        return [part for part in self.parts if isinstance(part, Group)]

    @cached_property
    def has_choices(self) -> bool:
        """As a group's."""
        return any(group.has_choices for group in self.groups)


@dataclass(frozen=True, eq=False)
class Chain:
    """Operands between operators that bind equally; an assignment has two, a choice three or more."""

    operands: tuple[Node, ...]
    operators: tuple[str, ...]

    @property
    def level(self) -> int:
        """How tightly its operators bind."""
        return _LEVEL_OF[self.operators[0]]

    @cached_property
    def flat(self) -> str:
        """In one line."""
        rest = (f" {sign} {x.flat}" for sign, x in zip(self.operators, self.operands[1:], strict=True))
        return self.operands[0].flat + "".join(rest)

    @cached_property
    def has_choices(self) -> bool:
        """As a group's."""
        return self.operators[:3] == ("?", ":", "?") or any(operand.has_choices for operand in self.operands)


Node = Atom | Chain


def flat(part: str | Group) -> str:
    """A part of an expression in one line."""
    return part if isinstance(part, str) else part.flat


def parsed(text: str) -> Node:
    """The tree of an expression or a declaration in one line: binary operators stand between spaces, others do not.

    Raises: Unreadable where brackets do not match.
    """
    rest = _TOKEN.findall(text)[::-1]
    node = _expression(rest)
    if rest:
        raise Unreadable(f"cannot lay out {text!r}, from {''.join(rest[::-1])!r} on")
    return node


def _expression(rest: list[str]) -> Node:
    """The one that comes next; `rest` are the tokens from the last on, of which those that it has are taken."""
    operands, operators = [_atom(rest)], list[str]()
    while rest and _is_operator(rest[-1]):
        operators.append(rest.pop().strip())
        operands.append(_atom(rest))
    return _grouped(operands, operators)


def _is_operator(token: str) -> bool:
    return token[0].isspace() and not token.isspace()


def _atom(rest: list[str]) -> Atom:
    parts = list[str | Group]()
    while rest and not _is_operator(rest[-1]) and rest[-1] not in _ENDS:
        token = rest.pop()
        if token in CLOSING:
            parts.append(_group(token, rest))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += token
        else:
            parts.append(token)
    return Atom(tuple(parts))


def _group(opening: str, rest: list[str]) -> Group:
    items, separators = list[Node](), list[str]()
    while rest and not (rest[-1] == CLOSING[opening] and not items):
        if rest[-1].isspace():
            rest.pop()
            continue
        items.append(_expression(rest))
        if rest[-1:] not in ([","], [";"]):
            break
        separators.append(rest.pop())
    if rest[-1:] != [CLOSING[opening]]:
        raise Unreadable(f"{opening} is not closed before {''.join(rest[::-1])!r}")
    rest.pop()
    return Group(opening, tuple(items), tuple(separators))


def _grouped(operands: Sequence[Node], operators: Sequence[str]) -> Node:
    """Chains by how tightly operators bind."""
    if not operators:
        return operands[0]
    loosest = min(_LEVEL_OF[sign] for sign in operators)
    cuts = [i for i, sign in enumerate(operators) if _LEVEL_OF[sign] == loosest]
    if loosest == ASSIGNS:
        cuts = cuts[:1]  # what follows is the value
    starts, ends = [0, *(i + 1 for i in cuts)], [*cuts, len(operators)]
    parts = tuple(_grouped(operands[i : j + 1], operators[i:j]) for i, j in zip(starts, ends, strict=True))
    signs = tuple(operators[i] for i in cuts)
    if loosest == CHOOSES and signs != ("?", ":") * (len(signs) // 2):
        raise Unreadable(f"choices within a choice: {signs}")
    return Chain(parts, signs)
