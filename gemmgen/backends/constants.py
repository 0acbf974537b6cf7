"""The definitions of a file's named constants, and the guards of those whose values its text depends on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType

from gemmgen.backends.clike import CLike
from gemmgen.errors import LoweringError
from gemmgen.ir.constants import THREADS, evenly, said
from gemmgen.records import dataclass

#: Constants that are defined in one line, and what the line says of those that a file has: the first that fits.
LINES: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...] = (
    (
        ("BM", "BN", "BK"),
        {
            "BM BN BK": "block tile: BM x BN of {tiled}, BK along K per step",
            "BM BN": "block tile of {tiled}",
            "BM BK": "block tile: rows of {tiled}, BK along K per step",
            "BN BK": "block tile: columns of {tiled}, BK along K per step",
            "BM": "block tile: rows of {tiled}",
            "BN": "block tile: columns of {tiled}",
            "BK": "depth of a step along K",
        },
    ),
    (("MR", "NR"), {"MR NR": "micro-tile of C: rows and columns", "MR": "rows of C", "NR": "columns of C"}),
    (
        ("TILES_M", "TILES_N"),
        {
            "TILES_M TILES_N": "tiles of a {work_item} at most, along M and N",
            "TILES_M": "tiles of a {work_item} at most, along M",
            "TILES_N": "tiles of a {work_item} at most, along N",
        },
    ),
    (
        ("KC", "MC"),
        {
            "KC MC": "depth of a panel of B; tiles of a column that pass it together",
            "KC": "depth of a panel of B",
            "MC": "tiles of a column that pass a panel of B together",
        },
    ),
    (("ROWS",), {"ROWS": "rows of B that are copied for all panels before the next ones"}),
    (("STAGES",), {"STAGES": "stages of the pipeline"}),
    (("GROUP_M",), {"GROUP_M": "threadblock swizzle: rows of blocks that run together"}),
    (("CLUSTER",), {"CLUSTER": "blocks of a cluster, which share tiles by multicast"}),
    (("SPLIT_K",), {"SPLIT_K": "parts of K (split-K)"}),
    (("SLICES",), {"SLICES": "parts of a block's K (sliced-K)"}),
    (
        ("LANES_K", "LOAD_K"),
        {
            "LANES_K LOAD_K": "lanes along K, and elements of a lane's load along K",
            "LANES_K": "lanes along K",
            "LOAD_K": "elements of a lane's load along K",
        },
    ),
    (
        ("THREADS_M", "THREADS_N"),
        {
            "THREADS_M THREADS_N": "{work_item}s along M and N",
            "THREADS_M": "{work_item}s along M",
            "THREADS_N": "{work_item}s along N",
        },
    ),
    (
        ("TM", "TN"),
        {
            "TM TN": "tile of {tiled} of a {work_item}",
            "TM": "rows of {tiled} of a {work_item}",
            "TN": "columns of {tiled} of a {work_item}",
        },
    ),
    (
        ("CONSUMERS", "PRODUCERS"),
        {
            "CONSUMERS PRODUCERS": "threads that multiply, and threads that load",
            "CONSUMERS": "threads that multiply",
            "PRODUCERS": "threads that load",
        },
    ),
    (("THREADS",), {"THREADS": "{work_item}s of a {part}"}),
)
#: Constants that follow from others.
DERIVED: Mapping[str, tuple[str, str]] = {"TM": ("BM", "THREADS_M"), "TN": ("BN", "THREADS_N")}


#: Characters of a line.
WIDTH = 100
#: A quote and the end of a line, as C writes them in a string.
QUOTE, NEWLINE = '\\"', "\\n"
#: How the threads of a block follow from others.
SIGNS = {"product": " * ", "sum": " + "}


@dataclass(frozen=True, slots=True)
class Definition:
    """A line of constants.

    Attributes:
        values: (name, text of the value).
        comment: what they are.
    """

    values: tuple[tuple[str, str], ...]
    comment: str


def definitions(
    constants: Mapping[str, int], texts: Iterable[str], words: Mapping[str, str], tiled: str = "C"
) -> list[Definition]:
    """Of those constants that occur in `texts`, and those that they follow from.

    Args:
        tiled: the matrix that tiles are of: of a gated product A * B, which has two columns for one of C.
    """
    used = {word for text in texts for word in re.findall(r"\b[A-Z][A-Z_]*\b", text)} & constants.keys()
    derived = {name: " / ".join(x) for name, x in DERIVED.items() if name in used and {*x} <= constants.keys()}
    # Of a single row or column of threads, the tile of each is that of all.
    derived |= {
        x: whole for x, (whole, many) in DERIVED.items() if {x, whole} <= constants.keys() and many not in constants
    }
    derived = {name: text for name, text in derived.items() if name in used}
    for name, text in derived.items():
        whole, *by = (constants[part] for part in text.split(" / "))
        if constants[name] * prod(by) != whole:
            raise LoweringError(f"{name} = {constants[name]} is not {text} of {constants}")
    if "THREADS" in used:
        derived["THREADS"] = next(SIGNS[how].join(x) for how, x in THREADS.items() if {*x} <= constants.keys())
    used |= {name for text in derived.values() for name in re.findall(r"\w+", text)}
    found: list[Definition] = []
    for names, comments in LINES:
        values = [(x, derived.get(x, str(constants[x]))) for x in names if x in used]
        if values:
            comment = comments[" ".join(name for name, _ in values)]
            part = "slice" if "SLICES" in constants else words["group"]
            text = comment.format(work_item=words["work_item"], part=part, tiled=tiled)
            found.append(Definition(tuple(values), text))
    return found


#: Constants -> the field of a schedule that they are.
FIELDS: Mapping[str, str] = {
    **dict.fromkeys(("BM", "BN", "MR", "NR"), "tile"),
    **dict.fromkeys(("TILES_M", "TILES_N"), "macro_kernel"),
    "BK": "block_k",
    "KC": "kc",
    "MC": "mc",
    "STAGES": "stages",
    "GROUP_M": "threadblock_swizzle",
    "CLUSTER": "cluster",
    "SPLIT_K": "split_k",
    "SLICES": "sliced_k",
    "LANES_K": "lanes_along_k",
    "LOAD_K": "b.width",
    **dict.fromkeys(("TM", "TN"), "tile"),
    **dict.fromkeys(("THREADS_M", "THREADS_N", "CONSUMERS"), "group"),
    "PRODUCERS": "producer_threads",
}


@dataclass(frozen=True, slots=True)
class Guard:
    """What stops a compiler where somebody has changed a constant that code is written for.

    Attributes:
        holds: the condition, as C says it.
        fails: its contrary.
        message: what to do instead.
    """

    holds: str
    fails: str
    message: str

    @property
    def asserted(self) -> str:
        """As C++ says it."""
        one = f'static_assert({self.holds}, "{self.message}");'
        if len(one) <= WIDTH:
            return one
        head, wide = f"static_assert({self.holds},", len("static_assert(")
        parts = [f'"{part}"' for part in wrapped(self.message, WIDTH - wide - len('"");'))]
        parts[-1] += ");"
        # As clang-format has it: behind the condition if all of them have room there.
        if len(head) + 1 + max(map(len, parts)) <= WIDTH:
            return f"{head} " + f"\n{' ' * (len(head) + 1)}".join(parts)
        return "\n".join((head, *(" " * wide + part for part in parts)))

    @property
    def errors(self) -> list[str]:
        """As the preprocessor of OpenCL C says it."""
        # In a C header, or a library, the line is a string in a list.
        room = WIDTH - len(f'{" " * 8}"#error {QUOTE * 2}{NEWLINE}",')
        return [f'#error "{part.rstrip()}"' for part in wrapped(self.message, room)]


def wrapped(message: str, width: int) -> list[str]:
    """A message in parts of a line each, which put together are the message: a command in one line if it fits."""
    said, colon, command = message.partition(": ")
    if len(message) > width and len(said + colon) <= width and len(command) <= width:
        return [said + colon, command]
    parts = [""]
    for word in re.findall(r"\S+ ?", message):
        if len(parts[-1] + word) > width:
            parts.append("")
        parts[-1] += word
    return parts


def guards(defined: Iterable[Definition], file: CLike, kernels: Sequence[CLike]) -> list[Guard]:
    """Of constants that are neither free nor follow from others, a line for each field; of free ones, what they must be
    multiples of.
    """
    defined = list(defined)
    known = {name for definition in defined for name, _ in definition.values}
    constants, free = file.constants, file.free
    values = {name for definition in defined for name, value in definition.values if value == str(constants[name])}
    by_field: dict[str, list[str]] = {}
    for name in sorted(values - free, key=lambda name: list(FIELDS).index(name)):
        by_field.setdefault(FIELDS[name], []).append(name)
    fixed = [
        _guard(names, "== {}", "!= {}", f"cannot change here: {file.remedy(field)}", constants)
        for field, names in by_field.items()
    ]
    return [*fixed, *_steps(known, file, kernels), *_sizes(known, file), *_limits(known, file)]


def _steps(known: set[str], file: CLike, kernels: Sequence[CLike]) -> list[Guard]:
    """What free constants are multiples of."""
    even = [pair for pair in (evenly(*x) for x in file.kernel.multiples) if pair is not None]
    even += [(product, str(unit)) for printer in kernels for product, unit in sorted(printer.parts)]
    even += [
        (whole, many) for name, (whole, many) in DERIVED.items() if {name, whole, many} <= known and whole in file.free
    ]
    changed = file.free | {name for name, (whole, _) in DERIVED.items() if whole in file.free}
    multiples, vectors = dict[str, list[str]](), dict[tuple[bool, str], list[str]]()
    for number, unit in _not_implied([*dict.fromkeys(even)]):
        names = {*re.findall("[A-Z][A-Z_]*", f"{number} {unit}")}
        if not names <= known or not names & changed:
            continue
        multiples.setdefault(unit, []).append(number)
        if number in DERIVED and unit.isdigit():
            # Of one vector, and of several, elements are counted differently.
            vectors.setdefault((file.constants[number] == int(unit), unit), []).append(number)
    guards = []
    for unit, numbers in multiples.items():
        what = f"must be {'multiples' if numbers[1:] else 'a multiple'} of {unit.strip('()')}"
        guards.append(_guard(numbers, f"% {unit} == 0", f"% {unit} != 0", what))
    for (is_one, unit), numbers in vectors.items():
        holds, fails, must = ("==", "!=", "be") if is_one else (">", "<=", "exceed")
        what = f"must {must} {unit} here: {file.remedy('tile')}"
        guards.append(_guard(numbers, f"{holds} {unit}", f"{fails} {unit}", what))
    return guards


def _sizes(known: set[str], file: CLike) -> list[Guard]:
    """Free constants that divide a size, which is why the text has no bounds checks along it."""
    spec = file.spec
    m, n, k = map(spec.divisor, "mnk")
    return [
        Guard(
            f"{size} % {name} == 0",
            f"{size} % {name} != 0",
            f"{name} must divide {size}: bounds checks are left out for that size",
        )
        for size, name in ((m, "BM"), (n * spec.halves, "BN"), (k, "BK"))
        if name in known & file.free and size % file.constants[name] == 0
    ]


def _not_implied(even: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(number, unit) without those that follow from others."""
    return [pair for pair in even if not any(other != pair and _implies(other, pair) for other in even)]


def _implies(known: tuple[str, str], pair: tuple[str, str]) -> bool:
    """Whether a multiple of one unit is one of another, or part of a larger number that is."""
    (number, unit), (other, part) = known, pair
    whole = DERIVED.get(number, ("", ""))[0]
    if number == other or whole == other:
        bare = unit.strip("()")
        (of, number_of), (of_part, number_of_part) = (x.strip("()").rpartition(" * ")[::2] for x in (unit, part))
        both = number_of.isdigit() and number_of_part.isdigit() and of == of_part
        digits = both and int(number_of) % int(number_of_part) == 0
        return digits or (number == other and bare.startswith(f"{part.strip('()')} * "))
    return unit == part and other.startswith(f"{number} * ")


def _limits(known: set[str], file: CLike) -> list[Guard]:
    """Bounds of what is made of free constants, one a side for each reason."""
    guards: list[Guard] = []
    by_reason: dict[tuple[str, int, str], list[str]] = {}
    for limit in file.kernel.limits:
        text = said(limit.number)
        names = {*re.findall("[A-Z][A-Z_]*", text)}
        if names <= known and names & file.free:
            equal = limit.least == limit.most
            bounds = (("" if equal else " or more", limit.least), (" or less", None if equal else limit.most))
            for side, bound in ((x, y) for x, y in bounds if y is not None):
                by_reason.setdefault((side, bound, limit.reason), []).append(text)
    for (side, bound, reason), numbers in by_reason.items():
        holds, fails = {"": ("==", "!="), " or more": (">=", "<"), " or less": ("<=", ">")}[side]
        numbers = [*dict.fromkeys(numbers)]
        guards.append(_guard(numbers, f"{holds} {bound}", f"{fails} {bound}", f"must be {bound}{side}: {reason}"))
    if "STAGES" in known & file.free and not any("STAGES >=" in guard.holds for guard in guards):
        guards.append(Guard("STAGES >= 2", "STAGES < 2", "STAGES must be 2 or more"))
    return guards


def _guard(
    numbers: Sequence[str], holds: str, fails: str, what: str, values: Mapping[str, int] = MappingProxyType({})
) -> Guard:
    """That the same holds of all these numbers; `{}` stands for a value of each."""
    conditions, contraries = ([f"{x} {text.format(values.get(x))}" for x in numbers] for text in (holds, fails))
    return Guard(" && ".join(conditions), " || ".join(contraries), f"{_enumerated(numbers)} {what}")


def _enumerated(names: Sequence[str]) -> str:
    """As a sentence has them: `TM, TN and BN`."""
    return " and ".join((", ".join(names[:-1]), names[-1])) if names[1:] else names[0]
