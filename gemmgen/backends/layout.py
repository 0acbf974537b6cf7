"""The text of a file in lines of at most 100 columns, as `clang-format` has them with the style in `.clang-format`.

It is laid out once, when all of it is there: printers and templates write a statement in one line, however long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from textwrap import wrap

from gemmgen.backends.breaks import HANG, Place, declaration, lay
from gemmgen.backends.syntax import STRING, Unreadable, parsed

#: Columns of a line.
LIMIT = 100
#: How a line begins that continues the one before, and how one ends that goes on.
_GOES_ON = re.compile(r".*(?:[(\[,]| (?:[-+*/%|&^=<>?]|[-+*/|&^<>=!]=|&&|\|\|)|\breturn)$")
#: How a comment begins that says one thing of a kernel: `// Launch     block (4, 96)`.
_LABEL = re.compile(r" *// \w+ {2,}(?=\S)")
_CONTINUES = re.compile(r"\s*(?:[?:+] |&& |\|\| )")


def lay_out(text: str, limit: int = LIMIT) -> str:
    """The text of a file whose lines have at most `limit` columns, as far as that can be."""
    lines = [line for unit in _units(_filled(text.split("\n"), limit)) for line in _laid(unit, limit)]
    # No two empty lines in a row.
    return "\n".join(line for i, line in enumerate(lines) if line or not i or lines[i - 1] or i + 1 == len(lines))


def _filled(lines: Sequence[str], limit: int) -> list[str]:
    """The lines with comments that are too long joined to what follows of them, for `_comment` to break anew."""
    filled = list[str]()
    joins = ""  # how a line begins that goes on with the comment that is too long
    for line in lines:
        rest = re.fullmatch(joins + r"(\S.*)", line) if joins else None
        if rest is not None and not _LABEL.match(line):
            filled[-1] += " " + rest[1]
            continue
        begin = _LABEL.match(line) or re.match(r" *// (?=\S)", line)
        joins = ""
        if begin is not None and len(line) > limit:
            indent = line[: line.index("//")]
            joins = re.escape(indent + "//".ljust(len(begin[0]) - len(indent)))
        filled.append(line)
    return filled


def _units(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The lines of each statement, opening line or directive together."""
    unit, depth, is_off = list[str](), 0, False
    for i, line in enumerate(lines):
        stripped = line.strip()
        if stripped in ("// clang-format off", "// clang-format on"):
            is_off = stripped.endswith("off")
        unit.append(line)
        is_verbatim = not stripped or stripped.startswith(("#", "//"))
        if is_off or (len(unit) == 1 and is_verbatim and not stripped.endswith("\\")):
            yield tuple(unit)
            unit, depth = [], 0
            continue
        if stripped.startswith("#") and len(unit) > 1 and not unit[0].lstrip().startswith("#"):
            yield tuple(unit[:-1])
            yield (line,)
            unit, depth = [], 0
            continue
        if unit[0].lstrip().startswith("#"):
            if not stripped.endswith("\\"):
                yield tuple(unit)
                unit, depth = [], 0
            continue
        depth += _depth(stripped)
        following = lines[i + 1] if i + 1 < len(lines) else ""
        goes_on = _is_attribute(unit, following) or (
            _GOES_ON.fullmatch(stripped) is not None and not stripped.endswith(",")
        )
        if stripped.endswith("{") or (depth <= 0 and not goes_on and not _CONTINUES.match(following)):
            yield tuple(unit)
            unit, depth = [], 0
    if unit:
        yield tuple(unit)


def _is_attribute(unit: Sequence[str], following: str) -> bool:
    """Whether lines are what stands before a function's name."""
    is_attribute = re.match(r"(?:extern \"C\" )?(?:__attribute__|__kernel|SYCL_EXT|__global__)", unit[0]) is not None
    return is_attribute and not following.strip().startswith("{") and not unit[-1].strip().endswith(";")


def _depth(line: str) -> int:
    """How many brackets a line opens more than it closes."""
    if '"' in line or "'" in line or "//" in line:
        line = re.sub(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|//.*", "", line)
    return line.count("(") + line.count("[") - line.count(")") - line.count("]")


def _laid(unit: tuple[str, ...], limit: int) -> Sequence[str]:
    first = unit[0]
    stripped = first.strip()
    if len(unit) == 1 and len(first) <= limit and not stripped.startswith("asm"):
        return unit
    indent = len(first) - len(first.lstrip())
    if stripped.startswith("// ") and len(unit) == 1:
        return _comment(stripped, indent, limit)
    behind = re.fullmatch(r"([^\"]*;) // (.*)", stripped)
    if behind is not None and len(unit) == 1:
        # A comment for which there is no room behind a statement stands above it.
        above = _comment(f"// {behind[2][0].upper()}{behind[2][1:]}.", indent, limit)
        return [*above, *_laid((" " * indent + behind[1],), limit)]
    text = " ".join(line.strip() for line in unit)
    text = re.sub(r"([(\[]) ", r"\1", text)
    if stripped.startswith("#define "):
        return _macro(unit, limit)
    if named := re.fullmatch(r"(const auto \w+ = \[[&=]\]) \{ (.*;) \};", text):
        body = _laid((" " * (indent + HANG) + named[2],), limit)
        return [f"{' ' * indent}{named[1]} {{", *body, " " * indent + "};"]
    # What people lay out by hand: other functions within expressions, comments within statements, other directives.
    if stripped.startswith(("#", "}")) or re.search(r"//|\[[&=]\]", text):
        return unit
    if re.match(r"asm\b", stripped):
        return _assembly(text, indent, limit)
    if re.search(r"\" +\"", text):
        return unit
    try:
        return _statement(text, indent, limit)
    except Unreadable:
        return unit


def _comment(text: str, indent: int, limit: int) -> list[str]:
    """A comment over several lines; of a label's text the others stand below the first."""
    begin = re.match(r"// (?:\w+ {2,})? *", text)
    width = begin.end() if begin else 0
    return wrap(
        text,
        limit,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent + "//".ljust(width),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _macro(unit: Sequence[str], limit: int) -> Sequence[str]:
    """A macro, in one line or with its text below its name: of a list the later lines stand further in."""
    text = " ".join(line.strip().rstrip("\\").strip() for line in unit)
    match = re.fullmatch(r"(#define \w+(?:\([^)]*\))?) (.*)", text)
    if match is None or len(text) <= limit:
        return [text]
    head, body = match.groups()
    items = _listed(body)
    if len(items) > 1:
        lines = _filled_list(items, HANG, 2 * HANG, limit - 2)
    elif unit[2:]:
        return unit  # several statements
    else:
        lines = list(_statement(body, HANG, limit - 2))
    return [*(f"{line} \\" for line in [head, *lines[:-1]]), lines[-1]]


def _listed(text: str) -> list[str]:
    """What stands between the commas outside of brackets."""
    items, depth = [""], 0
    for x in re.findall(rf"{STRING}|.", text):
        depth += (x in "([") - (x in ")]")
        if x == "," and not depth:
            items.append("")
        else:
            items[-1] += x
    return [item.strip() for item in items]


def _filled_list(items: Sequence[str], first: int, others: int, limit: int) -> list[str]:
    """A list over as few lines as fit; the first is indented by `first`."""
    lines = [" " * first + items[0]]
    for item in items[1:]:
        lines[-1] += ","
        if len(lines[-1]) + 1 + len(item) + 1 <= limit:
            lines[-1] += f" {item}"
        else:
            lines.append(" " * others + item)
    return lines


def _assembly(text: str, indent: int, limit: int) -> list[str]:
    """An instruction: its literals, and each of the lists behind colons, on lines of their own."""
    opening, _, inside = text.partition("(")
    match = re.fullmatch(rf"((?:{STRING} ?)+)(.*)\);", inside)
    if match is None:
        raise Unreadable(text)
    literals, behind = re.findall(STRING, match[1]), match[2]
    # Lists between colons outside of literals: `::` is two with nothing between.
    parts = [x if x.startswith('"') else x.replace(":", "\n") for x in re.findall(rf"{STRING}|[^\"]+", behind)]
    lists = [_listed(x.strip()) for x in "".join(parts).split("\n")[1:]]
    sections = "".join(f" : {', '.join(x)}".rstrip() for x in lists)
    flat = f"{' ' * indent}{opening}({literals[0]}{sections});"
    if len(literals) == 1 and len(flat) <= limit:
        return [flat]
    begin = " " * (indent + len(opening) + 1)
    lines = [begin + literal for literal in literals]
    lines[0] = f"{' ' * indent}{opening}({literals[0]}"
    for items in lists:
        filled = _filled_list(items, len(begin) + 2, len(begin) + 2, limit)
        lines += [f"{begin}: {filled[0].strip()}".rstrip(), *filled[1:]]
    return _ended(lines, ");")


def _ended(lines: list[str], after: str) -> list[str]:
    return [*lines[:-1], lines[-1] + after]


#: What prototypes begin with.
_PROTOTYPES = ('extern "C" ', "static ", "__attribute__((overloadable)) ")


@lru_cache(maxsize=4096)
def _statement(text: str, indent: int, limit: int) -> Sequence[str]:
    """The lines of a statement or of the head of a block."""
    if indent + len(text) <= limit:
        return (" " * indent + text,)
    match = re.fullmatch(r"(return |else |)(.*?)(;| \{|,|)", text)
    if match is None:
        raise Unreadable(f"cannot lay out {text!r}")
    opening, middle, ending = match.groups()
    is_prototype = ending == ";" and middle.startswith(_PROTOTYPES)
    if (not ending or is_prototype) and re.fullmatch(r"[^=(]*\(.*\)", middle):
        return declaration(middle, indent, limit, ending)
    place = Place(indent + len(opening), indent, len(ending), limit, skips=opening == "return ")
    first, *others = lay(parsed(middle), place).lines
    return tuple(_ended([" " * indent + opening + first, *others], ending))
