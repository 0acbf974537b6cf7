"""Records: what the fields of a dataclass must hold, and what to say of values of other kinds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

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
    record_type = type(record)
    if record_type not in _EXPECTED:
        _EXPECTED[record_type] = tuple(_expected(record_type, {**KINDS, **kinds}))
    problems = []
    for name, words, holds, optional in _EXPECTED[record_type]:
        value = getattr(record, name)
        if not (holds(value) or (optional and value is None)):
            problems.append(f"{name} = {value!r}: give {words}")
    return problems


#: Of each field its name, what it must hold in words and as a test, and whether it may be None; by the record's type.
_EXPECTED: dict[type, tuple[tuple[str, str, Callable[[object], bool], bool], ...]] = {}


def _expected(
    record_type: type, known: Mapping[str, Kind]
) -> Iterator[tuple[str, str, Callable[[object], bool], bool]]:
    for item in dataclasses.fields(record_type):
        annotation = str(item.type)
        optional = annotation.endswith(" | None")
        words, holds = known[annotation.removesuffix(" | None")]
        yield item.name, words + (", or None" if optional else ""), holds, optional
