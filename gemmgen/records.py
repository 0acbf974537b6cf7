"""Records: what the fields of a dataclass must hold, and what to say of values of other kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

#: What a field must hold, in words, and whether a value is that.
Kind = tuple[str, Callable[[object], bool]]


def is_whole(value: object) -> bool:
    """Whether it is an `int` and neither a bool nor one of NumPy's, which would reach the emitted text."""
    return type(value) is int


KINDS: Mapping[str, Kind] = {
    "int": ("a whole number, such as 8", is_whole),
    "bool": ("True or False", lambda x: isinstance(x, bool)),
    "tuple[int, int]": (
        "two whole numbers, such as (8, 4)",
        lambda x: isinstance(x, tuple) and len(x) == 2 and all(map(is_whole, x)),
    ),
}


def field_problems(record: object, kinds: Mapping[str, Kind]) -> list[str]:
    """One sentence for each field whose value is not of the kind that its annotation names.

    Args:
        record: a dataclass of a module with `from __future__ import annotations`.
        kinds: annotation -> kind, for those that `KINDS` does not have; ` | None` is understood.
    """
    known = {**KINDS, **kinds}
    problems = []
    for item in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, item.name)
        annotation = str(item.type)
        words, holds = known[annotation.removesuffix(" | None")]
        optional = annotation.endswith(" | None")
        if not (holds(value) or (optional and value is None)):
            words += ", or None" if optional else ""
            problems.append(f"{item.name} = {value!r} is of type {type(value).__name__}: give {words}")
    return problems
