"""Schedules from what a user writes: `--tile 32x2`, `--set a.width=4`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from gemmgen.errors import ScheduleError, suggest
from gemmgen.methods import METHODS, change, defaults, flatten
from gemmgen.names import name_problem
from gemmgen.schedule import KEYS, Flat, Key, Pair, Schedule, Value, text_of
from gemmgen.schedule.fields import no_field

DEFAULT_METHOD = "simd"
#: Every field that `--set` and TOML can name.
FIELDS = KEYS


# --- values ---------------------------------------------------------------------------------------


def parse_value(key: str, raw: object, problems: list[str]) -> Value:
    """The value of one field, from text or from TOML; None, with a problem noted, if it has no such value."""
    field = FIELDS[key]
    text = str(raw).strip().lower() if isinstance(raw, bool | int | str) else ""
    if field.optional and text == "none":
        return None
    match field.kind:
        case "Pair" if not isinstance(raw, int):
            return _pair(key, field, text, raw, problems)
        case "int" if not isinstance(raw, bool) and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            return _bounded(key, field, int(text), problems)
        case "bool" if text in ("true", "false"):
            return text == "true"
        case "bool":
            problems.append(f"{key} = {raw!r} is neither true nor false: give one of them, or the flag --set {key}")
        case _ if field.words:
            if text in field.words:
                return text
            problems.append(f"{key} = {raw!r}: {suggest(text, field.words)}")
        case _:
            limits = f"from {field.least} to {field.most}" + (", or none" if field.optional else "")
            problems.append(f"{key} = {raw!r} is not like {field.like}: give whole numbers {limits}")
    return None


def _pair(key: str, field: Key, text: str, raw: object, problems: list[str]) -> Pair | None:
    match = re.fullmatch(r"([+-]?[0-9]{1,18})x([+-]?[0-9]{1,18})", text)
    if match is None:
        limits = f"two whole numbers from {field.least} to {field.most}"
        problems.append(f"{key} {raw!r} is not like {field.like}: give {limits} with an x between")
        return None
    rows, cols = int(match[1]), int(match[2])
    before = len(problems)
    for axis, number in (("rows", rows), ("columns", cols)):
        _bounded(f"{key} {text}: {axis}", field, number, problems)
    return (rows, cols) if len(problems) == before else None


def _bounded(what: str, field: Key, number: int, problems: list[str]) -> int | None:
    if number < field.least:
        problems.append(f"{what} = {number} < {field.least}: give {field.least} to {field.most}")
    elif number > field.most:
        problems.append(f"{what} = {number} > {field.most}: give {field.least} to {field.most}")
    else:
        return number
    return None


# --- schedules ------------------------------------------------------------------------------------


def build_schedule(
    method: str | None = None,
    tile: str | None = None,
    group: str | None = None,
    block_k: int | str | None = None,
    sub_group: int | str | None = None,
    sets: Iterable[str] = (),
    base: Schedule | None = None,
    name: str | None = None,
) -> Schedule:
    """A schedule from options as they are written.

    Fields that are not given follow from those that are, by the rules of the method; of `base`, a preset or
    a file, those follow that it leaves to its method.

    `sets` are of the form `key=value`, with the keys of `FIELDS`, or `key` for a flag; without a `base`, the
    defaults of `method` are where to start.

    Raises: ScheduleError with every problem.
    """
    problems: list[str] = []
    if method is not None and method not in METHODS:
        problems.append(f"method {method!r} does not exist: {suggest(method, METHODS)}")
    elif base is not None and method not in (None, base.method):
        problems.append(f"method {method} is not that of the preset or file ({base.method}): leave one of the two out")
    options = {"tile": tile, "group": group, "block_k": block_k, "sub_group": sub_group}
    given: list[tuple[str, object]] = [(key, value) for key, value in options.items() if value is not None]
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if equals and key == "name":
            name = value.strip()
        elif equals:
            given.append((key, value))
        elif key in FIELDS and FIELDS[key].kind == "bool":
            given.append((key, True))  # a flag
        elif key in FIELDS:
            problems.append(f"--set {key} says no value: give one, --set {key}={FIELDS[key].like.split()[0]}, say")
        else:
            problems.append(f"--set {text!r} is not like key=value, for example stages=2 or a.width=4")
    if name is not None and (problem := name_problem(name)):
        problems.append(problem)
    changes = changed(given, problems)
    if problems:
        raise ScheduleError(problems)
    start = base or defaults(method or DEFAULT_METHOD)
    schedule = change(start, changes)
    # A preset that was changed must not go by the preset's name.
    kept = start.name if flatten(schedule) == flatten(start) else None
    return replace(schedule, name=name or kept)


def changed(given: Iterable[tuple[str, object]], problems: list[str]) -> Flat:
    """The fields that are given, each once."""
    changes: Flat = {}
    texts: dict[str, str] = {}
    for key, raw in given:
        if key not in FIELDS:
            problems.append(no_field(key, FIELDS))
            continue
        before = len(problems)
        value = parse_value(key, raw, problems)
        written = str(raw) if len(problems) > before else text_of(value)
        if texts.setdefault(key, written) != written:
            problems.append(f"{key} is given twice, as {texts[key]} and {written}: leave one out")
        changes[key] = value
    return changes
