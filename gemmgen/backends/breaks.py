"""Where statements of C are broken: at the least cost, by the rules of `clang-format` and the style in `.clang-format`.

A break costs more the deeper in brackets it stands and the tighter the operator beside it binds, and the first at each
depth more than the next. Of breaks that cost the same, those are taken that come later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from gemmgen.backends.syntax import (
    CLOSING,
    LEVELS,
    Assignment,
    Atom,
    Chain,
    Choice,
    Group,
    Node,
    Text,
    Unreadable,
    parsed,
)
from gemmgen.records import cached_property, dataclass

#: What a line is indented by that continues another.
HANG = 4
# What breaks cost, by the rules of clang-format: more the deeper they stand and the tighter operators bind.
_DEPTH, _FIRST, _BRACKET, _CONDITIONAL, _ASSIGN, _COMMA, _SUBSCRIPT, _MEMBER = 20, 15, 19, 3, 2, 1, 200, 150
_OPERATORS = {sign: 4 + level + (level > 6) for level, signs in enumerate(LEVELS) for sign in signs}
_BRACKET_OF_HEAD, _NAME = 100, 95
#: Of a break between launch bounds: more than of one before them, less than of one more line of parameters.
_IN_BOUNDS = 10
#: How much deeper what stands in brackets is.
_DEEPER = {"(": 1, "{": 1, "[": 10, "<": 10}
_TOO_LONG = 1_000_000


class Place(NamedTuple):
    """Where a part of a statement begins.

    Attributes:
        column: of its first character.
        base: what is broken after a bracket stands `HANG` further in than this.
        rest: columns that what follows its last line takes.
        limit: columns of a line.
        depth: of brackets around it, as breaks cost.
        skips: whether the operands of a chain stand below each other; else `HANG` further in.
        fixed: whether nothing in it may be broken.
        indent: where the lines of what it is a part of begin.
    """

    column: int
    base: int
    rest: int
    limit: int
    depth: int = 1
    skips: bool = False
    fixed: bool = False
    indent: int = 0


@dataclass(frozen=True)
class _Laid:
    """Lines and what their breaks cost: the first without what stands before it, the others as they are."""

    cost: int
    lines: tuple[str, ...]

    def __lt__(self, other: _Laid) -> bool:
        """Whether it is better: cheaper, or as cheap with breaks that come later."""
        return self._order < other._order

    @cached_property
    def _order(self) -> tuple[int, tuple[int, ...]]:
        return self.cost, tuple(-len(line) for line in self.lines)

    def end(self, place: Place) -> int:
        """The column behind the last line."""
        return len(self.lines[-1]) + (place.column if len(self.lines) == 1 else 0)


@lru_cache(maxsize=1 << 12)
def _has_choices(node: Node) -> bool:
    """Whether one choice follows another in it: those are not written side by side in a statement of several lines."""
    match node:
        case Text():
            return False
        case Group(items=parts) | Atom(parts) | Chain(parts):
            return any(map(_has_choices, parts))
        case Choice(condition, then, other):
            return isinstance(other, Choice) or any(map(_has_choices, (condition, then)))
        case Assignment(target, _, value):
            return _has_choices(target) or _has_choices(value)


@lru_cache(maxsize=1 << 14)
def lay(node: Node, place: Place) -> _Laid:
    """The cheapest breaks of a part."""
    excess = max(0, place.column + len(node.flat) + place.rest - place.limit)
    flat = _Laid(excess * _TOO_LONG, (node.flat,))
    if (not excess and not _has_choices(node)) or place.fixed or isinstance(node, Text):
        return flat
    found = _broken(node, place)
    return found if _has_choices(node) else min(found, flat)


def _broken(node: Group | Atom | Chain | Choice | Assignment, place: Place) -> _Laid:
    match node:
        case Group():
            return _lay_atom(Atom((node,)), place)
        case Atom():
            return _lay_atom(node, place)
        case Chain():
            return _lay_chain(node, place)
        case Choice():
            return _lay_choice(node, place)
        case Assignment():
            return _lay_assignment(node, place)


def _joined(before: _Laid, text: str, after: _Laid, cost: int = 0) -> _Laid:
    """One behind the other, on the same line."""
    first, *others = after.lines
    return _Laid(before.cost + after.cost + cost, (*before.lines[:-1], before.lines[-1] + text + first, *others))


def _below(before: _Laid, text: str, column: int, after: _Laid, cost: int) -> _Laid:
    """One below the other."""
    first, *others = after.lines
    lines = (*before.lines[:-1], before.lines[-1] + text, " " * column + first, *others)
    return _Laid(before.cost + after.cost + cost, lines)


_NOTHING = _Laid(0, ("",))


def _lay_assignment(node: Assignment, place: Place) -> _Laid:
    own = place._replace(rest=len(node.sign) + 1)
    target = lay(node.target, own)
    column = target.end(place) + len(node.sign) + 2
    base = column if isinstance(node.value, Chain | Choice) else place.base
    beside = place._replace(column=column, base=base, skips=True)
    hang = place.base + HANG
    below = place._replace(column=hang, base=hang, skips=True)
    same = _joined(target, f" {node.sign} ", lay(node.value, beside))
    if node.value.flat.startswith("{"):
        return same
    return min(
        same,
        _below(target, f" {node.sign}", hang, lay(node.value, below), _DEPTH * place.depth + _FIRST + _ASSIGN),
    )


def _lay_choice(node: Choice, place: Place) -> _Laid:
    if isinstance(node.other, Choice):
        return _lay_choices(node, place)
    cost = _DEPTH * place.depth + _CONDITIONAL
    hang = max(place.column, place.indent) + HANG
    place = place._replace(indent=hang)
    condition = lay(node.condition, place._replace(base=place.column, rest=0, skips=False))
    found = list[_Laid]()
    if len(condition.lines) == 1:
        # `condition ? then` over `: other`, the signs below each other.
        sign = condition.end(place) + 1
        then = lay(node.then, place._replace(column=sign + 2, base=sign + 2, rest=0, skips=False))
        other = lay(node.other, place._replace(column=sign + 2, base=sign + 2, skips=False))
        upper = _joined(condition, " ? ", then)
        found.append(_below(upper, "", sign, _prefixed(": ", other), cost + _FIRST))
    # Each on a line of its own.
    sign = hang
    then = lay(node.then, place._replace(column=sign + 2, base=sign + 2, rest=0, skips=False))
    other = lay(node.other, place._replace(column=sign + 2, base=sign + 2, skips=False))
    upper = _below(condition, "", sign, _prefixed("? ", then), cost + _FIRST)
    found.append(_below(upper, "", sign, _prefixed(": ", other), cost))
    return min(found)


def _prefixed(prefix: str, laid: _Laid) -> _Laid:
    return _Laid(laid.cost, (prefix + laid.lines[0], *laid.lines[1:]))


def _lay_choices(node: Choice, place: Place) -> _Laid:
    """One choice after another: a line each, the signs below each other."""
    conditions, values = [node.condition.flat], [node.then.flat]
    last = node.other
    while isinstance(last, Choice):
        conditions.append(f": {last.condition.flat}")
        values.append(last.then.flat)
        last = last.other
    width = max(map(len, conditions))
    rows = [f"{x:{width}} ? {value}" for x, value in zip(conditions, values, strict=True)]
    rows.append(f"{' ' * width} : {last.flat}")
    excess = max(place.column + max(map(len, rows)), place.column + len(rows[-1]) + place.rest) - place.limit
    cost = (_DEPTH * place.depth + _CONDITIONAL) * (len(rows) - 1) + _FIRST
    indent = " " * place.column
    return _Laid(cost + max(0, excess) * _TOO_LONG, (rows[0], *(indent + row for row in rows[1:])))


def _lay_chain(node: Chain, place: Place) -> _Laid:
    column = max(place.column, place.indent) + (0 if place.skips else HANG)
    place = place._replace(indent=column)
    cost = _DEPTH * place.depth + _OPERATORS[node.operators[0]]
    is_pair = len(node.operands) == 2
    is_relation = node.operators[0] in ("<", ">", "<=", ">=")
    # What can be left of a comparison without a break behind its sign: all but another operation.
    stays = (is_relation or node.operators[0] in ("==", "!=")) and not isinstance(node.operands[0], Chain)
    rests = [len(sign) + 1 for sign in node.operators] + [place.rest]
    first = lay(node.operands[0], place._replace(base=place.column, rest=rests[0], skips=False))
    return _filled(
        node.operands,
        [f" {x}" for x in node.operators],
        rests,
        first,
        place,
        column,
        cost,
        is_pair or is_relation,
        stays,
    )


def _filled(
    items: Sequence[Node],
    separators: Sequence[str],
    rests: Sequence[int],
    first: _Laid,
    place: Place,
    column: int,
    cost: int,
    loose: bool,
    stays: bool = False,
) -> _Laid:
    """Items behind the first over as few lines as fit.

    Args:
        separators: that follow the items but the last.
        rests: columns of what follows each.
        first: the lines of the first item.
        column: where lines begin.
        cost: of a break.
        loose: whether an item may be broken that begins behind another.
        stays: whether an item may follow on the last line of one that is broken.
    """
    if len(first.lines) == 1 and all(
        _fits_alone(x, column, rest, place) for x, rest in zip(items[1:], rests[1:], strict=True)
    ):
        return _greedily(items, separators, rests, first, place, column, cost)
    states: dict[tuple[int, bool, bool], _Laid] = {(first.end(place), len(first.lines) > 1, False): first}
    for i, item in enumerate(items[1:], 1):
        text = separators[i - 1]
        following: dict[tuple[int, bool, bool], _Laid] = {}
        for (end, is_split, has_break), before in states.items():
            own = place._replace(rest=rests[i], skips=False, column=column, base=column)
            after = lay(item, own)
            options = [(_below(before, text, column, after, cost + (0 if has_break else _FIRST)), True)]
            if not is_split or stays:
                start = end + len(text) + 1
                beside = own._replace(column=start, base=start, fixed=place.fixed or not loose)
                options.append((_joined(before, f"{text} ", lay(item, beside)), has_break))
            for laid, breaks in options:
                last_split = len(laid.lines) - len(before.lines) - (laid is options[0][0]) > 0
                key = (len(laid.lines[-1]) + (place.column if len(laid.lines) == 1 else 0), last_split, breaks)
                if key not in following or laid < following[key]:
                    following[key] = laid
        states = following
    return min(states.values())


def _fits_alone(item: Node, column: int, rest: int, place: Place) -> bool:
    return column + len(item.flat) + rest <= place.limit and not _has_choices(item)


def _greedily(
    items: Sequence[Node],
    separators: Sequence[str],
    rests: Sequence[int],
    first: _Laid,
    place: Place,
    column: int,
    cost: int,
) -> _Laid:
    """`_filled` where each item fits on a line: as many as there is room for, since breaks within them cost more."""
    lines, end, total = [first.lines[0]], first.end(place), first.cost
    for item, separator, rest in zip(items[1:], separators, rests[1:], strict=True):
        lines[-1] += separator
        end += len(separator) + 1 + len(item.flat)
        if end + rest <= place.limit:
            lines[-1] += f" {item.flat}"
        else:
            total += cost if lines[1:] else cost + _FIRST
            lines.append(" " * column + item.flat)
            end = column + len(item.flat)
    return _Laid(total, tuple(lines))


def _lay_atom(node: Atom, place: Place) -> _Laid:
    """Some of its brackets are broken, or subscripts stand below each other."""
    found = [_Begun(_NOTHING)]
    parts = _members(node)
    for i, part in enumerate(parts):
        rest = place.rest + sum(len(x.flat) for x in parts[i + 1 :])
        hang = place.column + len(node.flat) - len(node.flat.lstrip("&*")) + HANG
        found = [further for begun in found for further in begun.with_part(part, place._replace(rest=rest), hang)]
    return min(_limited(begun.laid, place) for begun in found)


class _Begun(NamedTuple):
    """The first parts of an expression with its brackets.

    Attributes:
        subscripts: the column of the first subscript, below which others may stand; 0 where there is none.
    """

    laid: _Laid
    subscripts: int = 0

    def with_part(self, part: Text | Group, place: Place, hang: int) -> Iterator[_Begun]:
        """With one part more, in each of the ways that may be the best; a member below it is indented by `hang`."""
        start, break_cost = self.laid.end(place), _DEPTH * place.depth + _FIRST
        too_long = start + len(part.flat) + place.rest > place.limit
        if isinstance(part, Text) or not part.items:
            yield self._replace(laid=_joined(self.laid, part.flat, _NOTHING))
            if too_long and part.flat.startswith("."):
                member = _Laid(0, (part.flat,))
                yield self._replace(laid=_below(self.laid, "", hang, member, break_cost + _MEMBER))
            return
        is_subscript = part.opening == "["
        begun = self._replace(subscripts=self.subscripts or start * is_subscript)
        if not _has_choices(part):
            yield begun._replace(laid=_joined(self.laid, part.flat, _NOTHING))
        if too_long or _has_choices(part):
            head = self.laid.lines[-1].lstrip()
            for laid in _lay_group(part, place._replace(column=start), head):
                yield begun._replace(laid=_joined(self.laid, "", laid))
        if is_subscript and self.subscripts:
            below = [_Laid(0, (part.flat,))]
            if self.subscripts + len(part.flat) + place.rest > place.limit:
                below += _lay_group(part, place._replace(column=self.subscripts), "")
            for laid in below:
                yield begun._replace(laid=_below(self.laid, "", self.subscripts, laid, break_cost + _SUBSCRIPT))


def _members(node: Atom) -> list[Text | Group]:
    """Its parts, with the members of structures apart."""
    parts = list[Text | Group]()
    for part in node.parts:
        is_path = isinstance(part, Text) and re.fullmatch(r"[&*]*[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", part.flat)
        parts += [Text(x) for x in re.split(r"(?=\.)", part.flat)] if is_path else [part]
    return parts


def _limited(laid: _Laid, place: Place) -> _Laid:
    """With what lines past the limit cost."""
    widths = [place.column + len(laid.lines[0]), *map(len, laid.lines[1:])]
    widths[-1] += place.rest
    return _Laid(laid.cost % _TOO_LONG + sum(max(0, w - place.limit) for w in widths) * _TOO_LONG, laid.lines)


def _lay_group(group: Group, place: Place, head: str, bracket: int = _BRACKET) -> Iterator[_Laid]:
    """Brackets with their items broken: below the first item, or `HANG` further in than what they belong to."""
    depth = place.depth + _DEEPER[group.opening]
    closing = CLOSING[group.opening]
    separators = [x for _, x in group.separated][:-1]
    rests = [1] * (len(group.items) - 1) + [place.rest + 1]
    loose = len(group.items) == 2 or group.separators[:1] == (";",)
    cost = _DEPTH * depth + (0 if group.separators[:1] == (";",) else _COMMA)
    is_head = head in ("if ", "for ", "while ", "switch ")
    column = place.column + 1
    inside = place._replace(
        column=column,
        base=column if is_head or len(group.items) > 1 else place.base,
        rest=rests[0],
        depth=depth,
        skips=len(group.items) == 1,
        indent=column,
    )
    first = lay(group.items[0], inside)
    laid = _filled(group.items, separators, rests, first, inside, column, cost, loose)
    yield _joined(_joined(_Laid(0, (group.opening,)), "", laid), closing, _NOTHING)
    hang = place.base + HANG
    if group.opening in "({" and not is_head:
        inside = inside._replace(column=hang, base=hang, indent=hang)
        first = lay(group.items[0], inside)
        laid = _filled(group.items, separators, rests, first, inside, hang, cost, loose)
        laid = _below(_Laid(0, (group.opening,)), "", hang, laid, _DEPTH * depth + bracket + _FIRST)
        yield _joined(laid, closing, _NOTHING)


# --- heads of functions -----------------------------------------------------------------------------


def declaration(text: str, indent: int, limit: int, ending: str = "") -> tuple[str, ...]:
    """The head of a function, and what stands behind it. Its name begins a line where that is cheaper, and always where
    what stands before it takes two.
    """
    node = parsed(text)
    if not isinstance(node, Atom) or not isinstance(group := node.parts[-1], Group):
        raise Unreadable(f"{text!r} is no function's head")
    before, _, name = "".join(part.flat for part in node.parts[:-1]).rpartition(" ")
    whole = Place(0, indent, len(ending), limit)

    def named(start: str, further: int) -> Iterator[_Laid]:
        head = f"{start}{name}"
        place = Place(len(head), further, len(ending), limit)
        for laid in _lay_group(group, place, head, _BRACKET_OF_HEAD):
            yield _limited(_joined(_Laid(0, (head,)), "", laid), whole)

    found: list[_Laid] = []
    for prefix, further in _prefixes(before, indent, limit):
        found += named(f"{prefix.lines[0]} ", further) if len(prefix.lines) == 1 else []
        begin = " " * further
        for below in (_Laid(0, (f"{begin}{name}{group.flat}",)), *named(begin, further)):
            found.append(_limited(_below(prefix, "", 0, below, _NAME), whole))
    *lines, last = min(found).lines
    return (*lines, last + ending)


def _prefixes(text: str, indent: int, limit: int) -> Iterator[tuple[_Laid, int]]:
    """The lines before a function's name, one an attribute where they are too long, and the name's indentation."""
    whole = " " * indent + text
    if len(whole) <= limit:
        yield _Laid(0, (whole,)), indent
        return
    words = re.split(r"(?<=\)) ", text)
    if not text.endswith(")"):
        # The type stands behind the last.
        words = [*words[:-2], " ".join(words[-2:])]
    if len(words) > 1 or "__launch_bounds__(" not in text:
        yield _Laid(0, tuple(" " * indent + word for word in words)), indent
        return
    kind, _, attribute = whole.partition("__launch_bounds__(")
    bound, comma, blocks = attribute.partition(", ")
    head = f"{kind}__launch_bounds__("
    if comma and len(head) + len(bound) + 1 <= limit:
        yield _Laid(_IN_BOUNDS, (f"{head}{bound},", " " * len(head) + blocks)), indent
    # Below the type, and what follows is indented as it is.
    further = indent + HANG
    yield _Laid(0, (kind.rstrip(), f"{' ' * further}__launch_bounds__({attribute}")), further
