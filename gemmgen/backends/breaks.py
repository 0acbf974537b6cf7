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
    ASSIGNS,
    CHOOSES,
    CLOSING,
    COMPARES,
    EQUALS,
    Atom,
    Chain,
    Group,
    Node,
    Unreadable,
    flat,
    parsed,
)
from gemmgen.records import dataclass

#: What a line is indented by that continues another.
HANG = 4
# What breaks cost, by the rules of clang-format: more the deeper they stand and the tighter operators bind.
_DEPTH, _FIRST, _BRACKET, _COMMA, _SUBSCRIPT, _MEMBER = 20, 15, 19, 1, 200, 150
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


@dataclass(frozen=True, eq=False)
class Laid:
    """Lines and what their breaks cost: the first without what stands before it, the others as they are."""

    cost: int
    lines: tuple[str, ...]

    def __lt__(self, other: Laid) -> bool:
        """Whether it is better: cheaper, or as cheap with breaks that come later."""
        if self.cost != other.cost:
            return self.cost < other.cost
        return [-len(line) for line in self.lines] < [-len(line) for line in other.lines]

    def end(self, place: Place) -> int:
        """The column behind the last line."""
        return len(self.lines[-1]) + (place.column if len(self.lines) == 1 else 0)

    def then(self, text: str, after: Laid | None = None) -> Laid:
        """With a text behind it, and what follows on the same line."""
        first, *others = after.lines if after else ("",)
        lines = (*self.lines[:-1], self.lines[-1] + text + first, *others)
        return Laid(self.cost + (after.cost if after else 0), lines)

    def over(self, text: str, column: int, after: Laid, cost: int) -> Laid:
        """With a text behind it, and what follows on the next line."""
        first, *others = after.lines
        lines = (*self.lines[:-1], self.lines[-1] + text, " " * column + first, *others)
        return Laid(self.cost + after.cost + cost, lines)


_NOTHING = Laid(0, ("",))


@lru_cache(maxsize=1 << 14)
def lay(node: Node, place: Place) -> Laid:
    """The cheapest breaks of a part."""
    excess = max(0, place.column + len(node.flat) + place.rest - place.limit)
    whole = Laid(excess * _TOO_LONG, (node.flat,))
    is_word = isinstance(node, Atom) and not node.groups
    if is_word or place.fixed or not (excess or node.has_choices):
        return whole
    if isinstance(node, Atom):
        broken = _lay_atom(node, place)
    elif node.level == ASSIGNS:
        broken = _lay_assignment(node, place)
    else:
        broken = _lay_choice(node, place) if node.level == CHOOSES else _lay_chain(node, place)
    return broken if node.has_choices else min(broken, whole)


def _cost(chain: Chain, place: Place) -> int:
    """Of a break beside an operator."""
    return _DEPTH * place.depth + 2 + chain.level + (chain.level > COMPARES)


def _lay_assignment(node: Chain, place: Place) -> Laid:
    (target, value), (sign,) = node.operands, node.operators
    before = lay(target, place._replace(rest=len(sign) + 1))
    column = before.end(place) + len(sign) + 2
    same = before.then(f" {sign} ", lay(value, place._replace(column=column, skips=True)))
    if value.flat.startswith("{"):
        return same
    hang = place.base + HANG
    below = lay(value, place._replace(column=hang, base=hang, skips=True))
    return min(same, before.over(f" {sign}", hang, below, _cost(node, place) + _FIRST))


def _lay_choice(node: Chain, place: Place) -> Laid:
    if node.operators[2:]:
        return _lay_choices(node, place)
    condition, then, other = node.operands
    cost, hang = _cost(node, place), max(place.column, place.indent) + HANG
    begun = lay(condition, place._replace(base=place.column, rest=0, skips=False, indent=hang))

    def sides(sign: int) -> tuple[Laid, Laid]:
        own = place._replace(column=sign + 2, base=sign + 2, skips=False, indent=hang)
        return lay(then, own._replace(rest=0)), Laid(0, (": ",)).then("", lay(other, own))

    # Each on a line of its own.
    yes, no = sides(hang)
    upper = begun.over("", hang, Laid(0, ("? ",)).then("", yes), cost + _FIRST)
    found = upper.over("", hang, no, cost)
    if begun.lines[1:]:
        return found
    # `condition ? then` over `: other`, the signs below each other.
    sign = begun.end(place) + 1
    yes, no = sides(sign)
    return min(begun.then(" ? ", yes).over("", sign, no, cost + _FIRST), found)


def _lay_choices(node: Chain, place: Place) -> Laid:
    """One choice after another: a line each, the signs below each other."""
    *texts, last = (x.flat for x in node.operands)
    conditions = [texts[0], *(f": {x}" for x in texts[2::2])]
    width = max(map(len, conditions))
    rows = [f"{x:{width}} ? {value}" for x, value in zip(conditions, texts[1::2], strict=True)]
    rows.append(f"{' ' * width} : {last}")
    excess = max(*map(len, rows), len(rows[-1]) + place.rest) + place.column - place.limit
    indent = " " * place.column
    cost = _cost(node, place) * (len(rows) - 1) + _FIRST
    return Laid(cost + max(0, excess) * _TOO_LONG, (rows[0], *(indent + row for row in rows[1:])))


def _lay_chain(node: Chain, place: Place) -> Laid:
    column = max(place.column, place.indent) + (0 if place.skips else HANG)
    # What can be left of a comparison without a break behind its sign: all but another operation.
    stays = node.level in (EQUALS, COMPARES) and not isinstance(node.operands[0], Chain)
    own = place._replace(base=place.column, skips=False, indent=column)
    signs = [f" {sign}" for sign in node.operators]
    return _filled(node.operands, signs, own, column, _cost(node, place), len(node.operands) == 2, stays)


def _filled(
    items: Sequence[Node],
    separators: Sequence[str],
    place: Place,
    column: int,
    cost: int,
    loose: bool,
    stays: bool = False,
) -> Laid:
    """Items over as few lines as fit.

    Args:
        separators: that follow the items but the last.
        place: of the first item; what follows the last has the same `rest`.
        column: where the other lines begin.
        cost: of a break.
        loose: whether an item may be broken that begins behind another.
        stays: whether an item may follow on the last line of one that is broken.
    """
    rests = [*map(len, separators), place.rest]
    first = lay(items[0], place._replace(rest=rests[0]))
    # Breaks within items cost more than those between them: none where each fits on a line.
    if not first.lines[1:] and all(
        column + len(x.flat) + rest <= place.limit and not x.has_choices
        for x, rest in zip(items[1:], rests[1:], strict=True)
    ):
        return _filled_greedily(items, separators, first, place, column, cost)
    # The best by where it ends, whether its last item is broken, and whether there is a break between items.
    states = {(first.end(place), len(first.lines) > 1, False): first}
    for item, text, rest in zip(items[1:], separators, rests[1:], strict=True):
        own = place._replace(rest=rest, skips=False, column=column, base=column)
        following = dict[tuple[int, bool, bool], Laid]()
        for (end, is_split, has_break), before in states.items():
            below = lay(item, own)
            ways = [(before.over(text, column, below, cost + (0 if has_break else _FIRST)), below, True)]
            if stays or not is_split:
                start = end + len(text) + 1
                beside = lay(item, own._replace(column=start, base=start, fixed=not loose))
                ways.append((before.then(f"{text} ", beside), beside, has_break))
            for laid, last, breaks in ways:
                key = laid.end(place), len(last.lines) > 1, breaks
                following[key] = min(following.get(key, laid), laid)
        states = following
    return min(states.values())


def _filled_greedily(
    items: Sequence[Node], separators: Sequence[str], first: Laid, place: Place, column: int, cost: int
) -> Laid:
    """Items, none of them broken, each on the line of the one before if it fits there."""
    lines, end = list(first.lines), first.end(place)
    rests = [*map(len, separators), place.rest]
    for item, text, rest in zip(items[1:], separators, rests[1:], strict=True):
        end += len(text) + 1 + len(item.flat)
        if end + rest <= place.limit:
            lines[-1] += f"{text} {item.flat}"
        else:
            lines[-1] += text
            lines.append(" " * column + item.flat)
            end = len(lines[-1])
    breaks = len(lines) - 1
    return Laid(first.cost + breaks * cost + (_FIRST if breaks else 0), tuple(lines))


def _lay_atom(node: Atom, place: Place) -> Laid:
    """Some of its brackets are broken, or subscripts stand below each other."""
    found = [_Begun(_NOTHING)]
    parts = _members(node)
    hang = place.column + len(node.flat) - len(node.flat.lstrip("&*")) + HANG
    for i, part in enumerate(parts):
        own = place._replace(rest=place.rest + sum(len(flat(x)) for x in parts[i + 1 :]))
        found = [further for begun in found for further in begun.with_part(part, own, hang)]
    return min(_limited(begun.laid, place) for begun in found)


class _Begun(NamedTuple):
    """The first parts of an expression with its brackets.

    Attributes:
        subscripts: the column of the first subscript, below which others may stand; 0 where there is none.
    """

    laid: Laid
    subscripts: int = 0

    def with_part(self, part: str | Group, place: Place, hang: int) -> Iterator[_Begun]:
        """With one part more, in each of the ways that may be the best; a member below it is indented by `hang`."""
        text = flat(part)
        start, break_cost = self.laid.end(place), _DEPTH * place.depth + _FIRST
        too_long = start + len(text) + place.rest > place.limit
        if isinstance(part, str) or not part.items:
            yield self._replace(laid=self.laid.then(text))
            if too_long and text.startswith("."):
                yield self._replace(laid=self.laid.over("", hang, Laid(0, (text,)), break_cost + _MEMBER))
            return
        is_subscript = part.opening == "["
        begun = self._replace(subscripts=self.subscripts or start * is_subscript)
        if not part.has_choices:
            yield begun._replace(laid=self.laid.then(text))
        if too_long or part.has_choices:
            head = self.laid.lines[-1].lstrip()
            for laid in _lay_group(part, place._replace(column=start), head):
                yield begun._replace(laid=self.laid.then("", laid))
        if is_subscript and self.subscripts:
            below = [Laid(0, (text,))]
            if self.subscripts + len(text) + place.rest > place.limit:
                below += _lay_group(part, place._replace(column=self.subscripts), "")
            for laid in below:
                yield begun._replace(laid=self.laid.over("", self.subscripts, laid, break_cost + _SUBSCRIPT))


def _members(node: Atom) -> list[str | Group]:
    """Its parts, with the members of structures apart."""
    parts = list[str | Group]()
    for part in node.parts:
        is_path = isinstance(part, str) and re.fullmatch(r"[&*]*[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", part)
        parts += re.split(r"(?=\.)", flat(part)) if is_path else [part]
    return parts


def _limited(laid: Laid, place: Place) -> Laid:
    """With what lines past the limit cost."""
    widths = [place.column + len(laid.lines[0]), *map(len, laid.lines[1:])]
    widths[-1] += place.rest
    return Laid(laid.cost % _TOO_LONG + sum(max(0, w - place.limit) for w in widths) * _TOO_LONG, laid.lines)


def _lay_group(group: Group, place: Place, head: str, bracket: int = _BRACKET) -> Iterator[Laid]:
    """Brackets with their items broken: below the first item, or `HANG` further in than what they belong to."""
    depth = place.depth + _DEEPER[group.opening]
    is_loop, is_head = group.separators[:1] == (";",), head in ("if ", "for ", "while ", "switch ")
    is_single = len(group.items) == 1
    opening, hang = Laid(0, (group.opening,)), place.base + HANG

    def items(column: int, base: int) -> Laid:
        own = place._replace(column=column, base=base, rest=place.rest + 1, depth=depth, skips=is_single, indent=column)
        cost, loose = _DEPTH * depth + (0 if is_loop else _COMMA), is_loop or len(group.items) == 2
        return _filled(group.items, group.separators, own, column, cost, loose).then(CLOSING[group.opening])

    column = place.column + 1
    yield opening.then("", items(column, place.base if is_single and not is_head else column))
    if group.opening in "({" and not is_head:
        yield opening.over("", hang, items(hang, hang), _DEPTH * depth + bracket + _FIRST)


# --- heads of functions -----------------------------------------------------------------------------


def declaration(text: str, indent: int, limit: int, ending: str = "") -> tuple[str, ...]:
    """The head of a function, and what stands behind it. Its name begins a line where that is cheaper, and always where
    what stands before it takes two.
    """
    node = parsed(text)
    if not isinstance(node, Atom) or not isinstance(group := node.parts[-1], Group):
        raise Unreadable(f"{text!r} is no function's head")
    before, _, name = "".join(map(flat, node.parts[:-1])).rpartition(" ")
    whole = Place(0, indent, len(ending), limit)

    def named(start: str, further: int) -> Iterator[Laid]:
        head = f"{start}{name}"
        place = Place(len(head), further, len(ending), limit)
        for laid in _lay_group(group, place, head, _BRACKET_OF_HEAD):
            yield _limited(Laid(0, (head,)).then("", laid), whole)

    found: list[Laid] = []
    for prefix, further in _prefixes(before, indent, limit):
        found += named(f"{prefix.lines[0]} ", further) if len(prefix.lines) == 1 else []
        begin = " " * further
        for below in (Laid(0, (f"{begin}{name}{group.flat}",)), *named(begin, further)):
            found.append(_limited(prefix.over("", 0, below, _NAME), whole))
    *lines, last = min(found).lines
    return (*lines, last + ending)


def _prefixes(text: str, indent: int, limit: int) -> Iterator[tuple[Laid, int]]:
    """The lines before a function's name, one an attribute where they are too long, and the name's indentation."""
    whole = " " * indent + text
    if len(whole) <= limit:
        yield Laid(0, (whole,)), indent
        return
    words = re.split(r"(?<=\)) ", text)
    if not text.endswith(")"):
        # The type stands behind the last.
        words = [*words[:-2], " ".join(words[-2:])]
    if len(words) > 1 or "__launch_bounds__(" not in text:
        yield Laid(0, tuple(" " * indent + word for word in words)), indent
        return
    kind, _, attribute = whole.partition("__launch_bounds__(")
    bound, comma, blocks = attribute.partition(", ")
    head = f"{kind}__launch_bounds__("
    if comma and len(head) + len(bound) + 1 <= limit:
        yield Laid(_IN_BOUNDS, (f"{head}{bound},", " " * len(head) + blocks)), indent
    # Below the type, and what follows is indented as it is.
    further = indent + HANG
    yield Laid(0, (kind.rstrip(), f"{' ' * further}__launch_bounds__({attribute}")), further
