"""TOML: schedules and specs, read with every problem at once, and written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import cast

from gemmgen.errors import ScheduleError, UserError, attempt, suggest
from gemmgen.methods import METHODS, change, defaults, flatten, unflatten
from gemmgen.names import name_problem
from gemmgen.options.schedules import FIELDS, changed
from gemmgen.options.specs import SpecTexts, build_spec
from gemmgen.records import dataclass
from gemmgen.schedule import PLAIN, Schedule, Value
from gemmgen.spec import GemmSpec

#: Fields of a spec: all, and those that are flags, texts of one value or several, and texts in quotes.
_SPEC_KEYS = tuple(field.name for field in fields(GemmSpec))
_FLAGS = ("batched", "listed", "wide", "emulate", "allow_tf32", "conj_a", "conj_b")
_TEXTS = (*("m", "n", "k", "multiple_of", "ld_multiple", "dtype", "c_dtype", "a_dtype", "b_dtype", "alpha", "beta"),)
_WORDS = ("prologue_a", "prologue_b", "grouped")
#: The most that a text may hold which a user names: far more than one has.
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Document:
    """What a TOML file says: a line about it, what to compute and how."""

    summary: str
    spec: GemmSpec
    schedule: Schedule


def schedule_to_toml(schedule: Schedule) -> str:
    """A schedule as TOML: its shape, and every other field that is not as a plain one has it."""
    flat = {k: v for k, v in flatten(schedule).items() if k in ("tile", "group", "block_k") or v != PLAIN[k]}
    lines = [] if schedule.name is None else [f"name = {_toml(schedule.name)}"]
    lines += [f"{key} = {_toml(value)}" for key, value in flat.items() if "." not in key]
    for operand in "ab":
        own = [f"{key[2:]} = {_toml(value)}" for key, value in flat.items() if key.startswith(f"{operand}.")]
        lines += ["", f"[{operand}]", *own] if own else []
    return "\n".join(lines) + "\n"


def _toml(value: Value) -> str:
    match value:
        case bool():
            return str(value).lower()
        case (rows, cols):
            return f'"{rows}x{cols}"'
        case int():
            return str(value)
    return f'"{value}"'  # names and memories: identifiers, nothing to escape


def read_text(path: Path, option: str, wanted: str) -> str:
    """A file that an option names. Raises: UserError.

    Args:
        wanted: what to name instead, for messages.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UserError(f"{option} {path} is larger than {_MOST_BYTES >> 20} MiB: name {wanted}")
        return data.decode("utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise UserError(f"{option} {path} can't be read: {error.strerror or error}: name {wanted}") from None
    except UnicodeDecodeError:
        raise UserError(f"{option} {path} is not text in UTF-8: name {wanted}") from None


def read_document(text: str, where: str) -> Document:
    """The whole of a TOML text. Raises: ScheduleError with every problem, each led by `where`."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScheduleError(f"{where}: not TOML: {error}") from None
    return document_of(table, where)


def document_of(table: dict[str, object], where: str) -> Document:
    """The same of a table. Raises: ScheduleError."""
    problems: list[str] = []
    summary, method, name = (_word(table.pop(key, None), key, problems) for key in ("summary", "method", "name"))
    if method is not None and method not in METHODS:
        problems.append(f"method {method!r} does not exist: {suggest(method, METHODS)}")
        method = None
    if name is not None and (problem := name_problem(name)):
        problems.append(problem)
    spec = _spec(_table(table.pop("spec", {}), "spec", problems), problems)
    changes = changed(_fields(table, problems), problems)
    if problems:
        raise ScheduleError(f"{where}: {problem}" for problem in problems)
    schedule = change(defaults(method) if method else Schedule(), changes)
    return Document(summary or "", spec, replace(schedule, name=name))


def spec_of(table: Mapping[str, object], where: str) -> GemmSpec:
    """The spec of a [spec] table by itself. Raises: ScheduleError."""
    problems: list[str] = []
    spec = _spec(table, problems)
    if problems:
        raise ScheduleError(f"{where}: {problem}" for problem in problems)
    return spec


def schedule_of(table: Mapping[str, object], where: str) -> Schedule:
    """The schedule of a table as `schedule_to_toml` writes it: what it leaves out is as a plain one has it, and follows
    nothing. Raises: ScheduleError.
    """
    problems: list[str] = []
    flat = changed(_fields(table, problems), problems)
    if problems:
        raise ScheduleError(f"{where}: {problem}" for problem in problems)
    return unflatten(flat)


def _fields(table: Mapping[str, object], problems: list[str]) -> list[tuple[str, object]]:
    """The fields of the schedule, the operands' as `a.width`."""
    out: list[tuple[str, object]] = []
    for key, value in table.items():
        if key in ("a", "b"):
            out += [(f"{key}.{field}", item) for field, item in _table(value, key, problems).items()]
        elif key in FIELDS:
            out.append((key, value))
        elif isinstance(value, dict):
            problems.append(f"unknown table {key!r}: write its fields above [a], [b] and [spec]")
        else:
            known = ("summary", "method", "name", "a", "b", "spec", *(k for k in FIELDS if "." not in k))
            problems.append(f"unknown key {key!r}: {suggest(key, known)}")
    return out


def _table(value: object, key: str, problems: list[str]) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    problems.append(f"{key} = {value!r} is not a table: write [{key}] on a line of its own")
    return {}


def _word(value: object, key: str, problems: list[str]) -> str | None:
    if value is None or isinstance(value, str):
        return value
    problems.append(f"{key} = {value!r} is not text: put it in quotes")
    return None


def _flag(table: Mapping[str, object], key: str, problems: list[str]) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        problems.append(f"{key} = {value!r} in [spec] is neither true nor false: give one of them")
    return value is True


def _texts(value: object, key: str, problems: list[str]) -> list[str]:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return value
    problems.append(f'{key} = {value!r} is no list of texts: write {key} = ["bias", "gelu"], say')
    return []


def _listed(value: object) -> str:
    """A list of numbers, or one, as options have it."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _spec(table: Mapping[str, object], problems: list[str]) -> GemmSpec:
    """The [spec] table."""
    unknown = (key for key in table if key not in _SPEC_KEYS)
    problems += (f"unknown key {key!r} in [spec]: {suggest(key, _SPEC_KEYS)}" for key in unknown)
    flags = {key: _flag(table, key, problems) for key in _FLAGS if key in table}
    conj = "".join(name for name in "ab" if flags.pop(f"conj_{name}", False))
    texts = {key: _listed(table[key]) for key in _TEXTS if key in table}
    words = {key: _word(table.get(key), key, problems) for key in _WORDS}
    orders = ",".join(str(table.get(f"{x}_order", "row")) for x in "abc")
    then = _texts(table.get("epilogue", []), "epilogue", problems)
    given = {**flags, **texts, **words, "conj": conj, "layout": orders, "epilogue": then}
    return attempt(problems, build_spec, **cast("SpecTexts", given)) or GemmSpec()
