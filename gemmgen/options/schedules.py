"""Schedules from what a user writes: `--tile 32x2`, `--set a.width=4`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, get_args

from gemmgen.errors import ScheduleError, suggest
from gemmgen.methods import METHODS, Flat, Pair, Value, change, defaults, flatten, text_of
from gemmgen.names import name_problem
from gemmgen.schedule import Atom, Memory, Schedule

DEFAULT_METHOD = "simd"
Kind = Literal["pair", "maybe_pair", "int", "lanes", "bool", "memory", "atom"]


@dataclass(frozen=True, slots=True)
class Field:
    """What a field of a schedule can hold; the upper limits only keep nonsense out early.

    Attributes:
        like: an example, for messages.
    """

    kind: Kind
    like: str
    most: int = 1
    least: int = 1


_OPERAND = {
    "memory": Field("memory", "local"),
    "width": Field("int", "4", 16),
    "block": Field("bool", "true"),
    "share": Field("bool", "true"),
    "transposed": Field("bool", "true"),
    "pad": Field("int", "1", 64, least=0),
    "async_copy": Field("bool", "true"),
    "packed": Field("bool", "true"),
    "streamed": Field("bool", "true"),
}
#: Every field that `--set` and TOML can name.
FIELDS: dict[str, Field] = {
    "tile": Field("pair", "32x2 (rows x columns of C per work-item)", 256),
    "group": Field("pair", "1x8 (rows x columns of work-items)", 1024),
    "run": Field("pair", "8x4 (neighbouring rows x columns)", 256),
    "k_step": Field("int", "8", 1024),
    "b_step": Field("int", "8", 1024, least=0),
    "sub_group": Field("lanes", "8", 128),
    "stages": Field("int", "2", 64),
    "mbarrier": Field("int", "4", 32, least=0),
    "boxes": Field("bool", "true"),
    "slices": Field("int", "4", 32),
    "split": Field("int", "8", 1024),
    "joined": Field("int", "2", 8),
    "stream": Field("bool", "true"),
    "atomic": Field("bool", "true"),
    "raster": Field("int", "8", 1024, least=0),
    "prefetch": Field("bool", "true"),
    "register_stages": Field("int", "2", 2),
    "barrier": Field("bool", "true"),
    "late": Field("bool", "true"),
    "atom": Field("atom", "dpas"),
    "warp": Field("maybe_pair", "4x8 (rows x columns of a warp's lanes)", 32),
    "stagger": Field("bool", "true"),
    "across": Field("bool", "true"),
    "snake": Field("bool", "true"),
    "large_registers": Field("bool", "true"),
    "c_width": Field("int", "4", 16),
    "c_stages": Field("int", "2", 8, least=0),
    "c_turns": Field("bool", "true"),
    "vector": Field("int", "16", 16),
    "along_k": Field("bool", "true"),
    "sweep": Field("pair", "22x2 (rows x columns of tiles per work-item)", 4096),
    "even": Field("pair", "2x1 (what groups along rows x columns are multiples of)", 1024),
    "k_block": Field("int", "512", 1 << 20, least=0),
    "m_block": Field("int", "16", 4096, least=0),
    "b_prefetch": Field("int", "8", 64, least=0),
    "c_prefetch": Field("bool", "true"),
    "producers": Field("int", "128", 128, least=0),
    "registers": Field("pair", "232x40 (of a work-item that computes x of a producer)", 255, least=0),
    "persistent": Field("bool", "true"),
    "cluster": Field("pair", "2x1 (rows x columns of groups)", 2),
    **{f"{operand}.{name}": field for operand in "ab" for name, field in _OPERAND.items()},
}


# --- values ---------------------------------------------------------------------------------------


def parse_value(key: str, raw: object, problems: list[str]) -> Value:
    """The value of one field, from text or from TOML; None, with a problem noted, if it has no such value."""
    field = FIELDS[key]
    text = str(raw).strip().lower() if isinstance(raw, bool | int | str) else ""
    match field.kind:
        case "maybe_pair" if text == "none":
            return None
        case "pair" | "maybe_pair" if not isinstance(raw, int):
            return _pair(key, field, text, raw, problems)
        case "lanes" if text == "none":
            return None
        case "int" | "lanes" if not isinstance(raw, bool) and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            return _bounded(key, field, int(text), problems)
        case "bool" if text in ("true", "false"):
            return text == "true"
        case "memory" | "atom":
            words = get_args(Memory if field.kind == "memory" else Atom)
            if text in words:
                return text
            problems.append(f"{key} = {raw!r}: {suggest(text, words)}")
        case "bool":
            problems.append(f"{key} = {raw!r} is neither true nor false: give one of them, or the flag --set {key}")
        case kind:
            limits = f"from {field.least} to {field.most}" + (", or none" if kind == "lanes" else "")
            problems.append(f"{key} = {raw!r} is not like {field.like}: give whole numbers {limits}")
    return None


def _pair(key: str, field: Field, text: str, raw: object, problems: list[str]) -> Pair | None:
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


def _bounded(what: str, field: Field, number: int, problems: list[str]) -> int | None:
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
    k_step: int | str | None = None,
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
    options = {"tile": tile, "group": group, "k_step": k_step, "sub_group": sub_group}
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
            problems.append(f"{key!r} is no field of a schedule: {suggest(key, FIELDS)}")
            continue
        before = len(problems)
        value = parse_value(key, raw, problems)
        written = str(raw) if len(problems) > before else text_of(value)
        if texts.setdefault(key, written) != written:
            problems.append(f"{key} is given twice, as {texts[key]} and {written}: leave one out")
        changes[key] = value
    return changes
