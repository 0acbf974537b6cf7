"""Long lines of C, broken where a person would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap


def fold_line(line: str, limit: int = 100, hang: int = 4) -> list[str]:
    """A statement over several lines where it is longer than `limit`; those after the first stand `hang` further in."""
    if len(line) <= limit:
        return [line]
    indent = len(line) - len(line.lstrip())
    if line.startswith("// ", indent):
        begin = " " * indent + "// "
        return wrap(line[indent + 3 :], limit, initial_indent=begin, subsequent_indent=begin)
    inner = " " * (indent + hang)
    marks = _marks(line)
    if (equals := marks.get(" = ")) is not None:
        left = fold_line(line[: equals + 2], limit)
        return [*left, *fold_line(" " * (indent + 4) + line[equals + 3 :], limit)]
    question, colon = marks.get(" ? "), marks.get(" : ")
    if question is not None and colon is not None:
        if colon > limit:
            parts = (line[:question], line[question + 1 : colon], line[colon + 1 :])
            return [parts[0], *(part for p in parts[1:] for part in fold_line(" " * (indent + 4) + p, limit))]
        # `condition ? then` over `: other`, the two signs aligned.
        return [line[:colon], *fold_line(" " * (question + 1) + line[colon + 1 :], limit)]
    depth, cut = _cut(line, limit)
    opening = re.match(r" *\w+\((?=.)", line)
    if depth > 1 and opening is not None:
        # Rather each argument whole, on lines of their own.
        return [opening[0], *fold_line(inner + line[opening.end() :], limit, hang=0)]
    if cut is None:
        return [line]
    if depth > 0 or line.startswith(" + ", cut):
        inner = " " * (indent + 4)
    return [line[:cut], *fold_line(inner + line[cut + 1 :], limit, hang=0)]


def _cut(line: str, limit: int) -> tuple[int, int | None]:
    """(depth, place) where the line is cut: after the last comma or before the last plus that fits, of those inside
    the fewest parentheses; where none fits, at the first one that doesn't.
    """
    best: tuple[int, int] | None = None
    depth, start = 0, len(line) - len(line.lstrip())
    for i, character in enumerate(line):
        depth += (character in "([{") - (character in ")]}")
        place = i + 1 if character == "," else i if line.startswith(" + ", i) and i > start else None
        if place is None:
            continue
        if place > limit:
            return best or (depth, place)
        if best is None or depth <= best[0]:
            best = depth, place
    return best or (0, None)


def _marks(line: str) -> dict[str, int]:
    """Where the operators that lines are broken at first stand outside of parentheses."""
    found: dict[str, int] = {}
    depth = 0
    for i, character in enumerate(line):
        depth += (character in "([{") - (character in ")]}")
        for mark in (" = ", " ? ", " : ") if depth == 0 and character == " " else ():
            # Not at the line's own beginning, where an earlier fold may have put one.
            if line.startswith(mark, i) and line[:i].strip():
                found.setdefault(mark, i)
    return found


def wrapped(
    opening: str, params: Sequence[str], limit: int = 100, between: str = ", ", closing: str = ")"
) -> list[str]:
    """A parameter list, or conditions, over as few lines as fit, aligned under the first of them, or below a name that
    is long.
    """
    lines, line, indent = list[str](), opening, " " * len(opening)
    if len(opening) + max(map(len, params), default=0) >= limit:
        lines, line, indent = [opening], " " * 8, " " * 8
    for i, param in enumerate(params):
        text = param + (between if i + 1 < len(params) else closing)
        if len(line) + len(text.rstrip()) > limit:
            lines.append(line.rstrip())
            line = indent
        line += text
    return [*lines, line]
