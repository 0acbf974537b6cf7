"""The three things that can go wrong, apart from each other.

`SpecError` and `ScheduleError` are the user's: they list every problem found, each with the value, the
limit and a remedy. `LoweringError` is a bug of gemmgen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class GemmgenError(Exception):
    """Base of every error that gemmgen raises on purpose."""


class UserError(GemmgenError):
    """Input that can't be served. Holds one sentence per problem.

    Args:
        problems: one sentence each: the value, the limit and the remedy.
        works: a command like the one that was refused, which is not.
    """

    def __init__(self, problems: Iterable[str] | str, works: str | None = None) -> None:
        self.works = works
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


def attempt(problems: list[str], call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """The call's result, or None with its problems added, so that those of other calls are told as well."""
    try:
        return call(*args, **kwargs)
    except UserError as error:
        problems += error.problems
        return None


class SpecError(UserError, ValueError):
    """What to compute is not expressible: sizes, dtypes, layouts, arrays."""


class DtypeError(SpecError, TypeError):
    """Element types that can't be multiplied, or whose product can't be put where it is wanted; scalars for arrays."""


class ScheduleError(UserError):
    """How to compute it does not fit: tiles, groups, registers, local memory, a missing feature."""


class DeviceError(UserError):
    """No device, or one that lacks what a kernel needs; the remedy names the command that helps."""


class ToolError(UserError):
    """A compiler that is missing or that refuses a source, or machine code without the kernel that was asked for."""


class LoweringError(GemmgenError):
    """A pass or a backend broke an invariant: please report it with the schedule that showed it."""


FaultKind = Literal[
    "race",
    "out-of-bounds",
    "unwritten",
    "divergent barrier",
    "divergent sub-group operation",
    "pipe",
    "arithmetic",
    "alignment",
]


class KernelFault(GemmgenError):
    """A kernel whose meaning is undefined.

    Args:
        kind: the class of mistake.
        statement: the statement that made it, as `show` prints it.
        detail: who did what to which element.
    """

    def __init__(self, kind: FaultKind, statement: str, detail: str) -> None:
        self.kind: FaultKind = kind
        self.statement = statement
        self.detail = detail
        super().__init__(f"{kind}: {detail}\n  in `{statement}`")


def suggest(word: str, known: Iterable[str], listing: str = "") -> str:
    """`did you mean ...?` for the nearest of the known words, or where none is near all of them.

    Args:
        listing: of words too many for a message, the command that lists them; it stands in their place.
    """
    from difflib import get_close_matches

    words = {known_word.lower(): known_word for known_word in known}
    near = get_close_matches(word.lower(), words, 3, 0.5)
    # A part of a name is a better hint than letters in common.
    within = [lower for lower in words if len(word) > 1 and word.lower() in lower and lower not in near]
    found = [words[lower] for lower in [*near, *within][:3]]
    all_of_them = f"{listing} lists all {len(words)}" if listing else f"give one of {', '.join(words.values())}"
    if not found:
        return all_of_them
    return f"did you mean {' or '.join(found)}?" + (f" {all_of_them}" if listing else "")
