"""Fields of a schedule's records: what each may hold, an example, a line about it and values to try.

All of this is metadata of the record's own field. The command line's keys, parsing, printing, their documentation and
what `gemmgen fuzz` tries are read off it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field, field, fields
from functools import partial
from typing import Literal, TypeVar, cast, get_args

from gemmgen.errors import ScheduleError, suggest
from gemmgen.records import KINDS, Kind, dataclass, field_problems

Pair = tuple[int, int]
Value = int | bool | str | Pair | None
Flat = dict[str, Value]

Memory = Literal["global", "local", "image", "private"]
#: What a work-item multiplies by: multiply-adds, or dot products of four neighbours along K.
ThreadAtom = Literal["fma", "dp4a"]
#: Matrix instructions of warps, of warpgroups, and all; each is a method of its own, too.
WarpAtom = Literal["mma", "mma_s8", "mma_f8", "mma_f64", "mma_tf32", "mma_3xtf32"]
WarpgroupAtom = Literal["wgmma", "wgmma_s8", "wgmma_f8", "wgmma_tf32", "wgmma_3xtf32"]
#: Which messages of 2D blocks have an address payload that a kernel fills once and advances.
AddressPayloads = Literal["none", "prefetches", "all"]
MatrixAtom = Literal["dpas", "joint_matrix", "mfma", WarpAtom, WarpgroupAtom]
Atom = Literal[ThreadAtom, MatrixAtom]

_Kind = TypeVar("_Kind")
_META = "gemmgen"
#: Annotations of words, and the words.
WORDS: Mapping[str, tuple[str, ...]] = {
    "Memory": get_args(Memory),
    "Atom": get_args(Atom),
    "ThreadAtom": get_args(ThreadAtom),
    "WarpAtom": get_args(WarpAtom),
    "WarpgroupAtom": get_args(WarpgroupAtom),
    "AddressPayloads": get_args(AddressPayloads),
}


def _is_one_of(words: tuple[str, ...], value: object) -> bool:
    return isinstance(value, str) and value in words


#: What fields hold, by their annotations.
HOLDS: Mapping[str, Kind] = {
    **KINDS,
    "Operand": ("a gemmgen.Operand", lambda x: type(x).__name__ == "Operand"),
    "Pair": KINDS["tuple[int, int]"],
    **{name: (f"one of {', '.join(words)}", partial(_is_one_of, words)) for name, words in WORDS.items()},
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a field means and may hold.

    Attributes:
        help: a line about it.
        like: an example, for messages.
        least, most: of each of its numbers. The upper limit only keeps nonsense out of what a user writes.
        tries: values that are worth trying.
    """

    help: str
    like: str
    least: int
    most: int
    tries: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A key that has no value but its member: where it is true, that member is meant.

    Attributes:
        help: a line about it.
    """

    key: str
    help: str


def number(default: int, help: str, like: int, most: int, tries: tuple[int, ...], least: int = 1) -> int:
    """A field of a record: a whole number."""
    return field(default=default, metadata={_META: Meaning(help, str(like), least, most, tries)})


def lanes(help: str, most: int, tries: tuple[int | None, ...]) -> int | None:
    """A field of a record: so many lanes, or none."""
    return cast("int | None", field(default=None, metadata={_META: Meaning(help, "8", 1, most, tries)}))


def flag(help: str) -> bool:
    """A field of a record that is true or false."""
    return field(default=False, metadata={_META: Meaning(help, "true", 0, 1, (False, True))})


def pair(
    default: _Kind,
    help: str,
    like: str,
    most: int,
    tries: tuple[Pair | None, ...],
    least: int = 1,
) -> _Kind:
    """A field of a record: two whole numbers, or None where its annotation has that."""
    return field(default=default, metadata={_META: Meaning(help, like, least, most, tries)})


def word(default: _Kind, help: str, like: str, tries: tuple[str, ...] = ()) -> _Kind:
    """A field of a record: one of the words of its annotation."""
    return field(default=default, metadata={_META: Meaning(help, like, 0, 0, tries)})


_MEANINGS: dict[type, Mapping[str, tuple[str, Meaning]]] = {}


def meanings(record: type) -> Mapping[str, tuple[str, Meaning]]:
    """The fields of a record that a user can name: annotation and meaning of each."""
    if record not in _MEANINGS:
        own: tuple[Field[object], ...] = fields(record)
        found = {item.name: (str(item.type), item.metadata[_META]) for item in own if _META in item.metadata}
        _MEANINGS[record] = found
    return _MEANINGS[record]


@dataclass(frozen=True, slots=True)
class Record:
    """A member of an axis, or an operand's path."""

    def __post_init__(self) -> None:
        """Raises: ScheduleError with every field of a wrong type, and every number below its least one."""
        if problems := _problems(self):
            raise ScheduleError(problems)


def _problems(record: Record) -> list[str]:
    """A sentence for each; where a key chose the record, leaving that out is another way."""
    if problems := field_problems(record, HOLDS):
        return problems
    chosen: Chosen | None = getattr(record, "chosen_by", None)
    others = "" if chosen is None else f", or leave {chosen.key} out"
    for name, meaning in _numbers(type(record)):
        value = getattr(record, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, int) and part < meaning.least:
                shown = f"{value[0]}x{value[1]}" if isinstance(value, tuple) else value
                problems.append(f"{name} = {shown} < {meaning.least}: give {meaning.least} to {meaning.most}{others}")
                break
    return problems


_NUMBERS: dict[type, tuple[tuple[str, Meaning], ...]] = {}


def _numbers(record: type) -> tuple[tuple[str, Meaning], ...]:
    """Fields that can be too small."""
    if record not in _NUMBERS:
        known, others = meanings(record).items(), {"bool", *WORDS}
        _NUMBERS[record] = tuple((name, meaning) for name, (kind, meaning) in known if kind not in others)
    return _NUMBERS[record]


def text_of(value: object) -> str:
    """A value as the command line and TOML write it."""
    if isinstance(value, tuple):
        return f"{value[0]}x{value[1]}"
    return str(value).lower() if isinstance(value, bool) else "none" if value is None else str(value)


def no_field(key: str, known: Iterable[str]) -> str:
    """The problem with a field that there is not."""
    return f"{key!r} is no field of a schedule: {suggest(key, known, 'gemmgen fields')}"
