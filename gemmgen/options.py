"""From what a user writes (`--tile 32x2`, `--set a.width=4`, TOML) to a schedule, with every problem at once."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Literal, get_args

from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import DType, accumulator
from gemmgen.methods import METHODS, Flat, Pair, Value, change, defaults, flatten, text_of
from gemmgen.names import name_problem
from gemmgen.schedule import Atom, Memory, Schedule
from gemmgen.spec import GemmSpec, parse_dtype, parse_orders

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
    "slices": Field("int", "4", 32),
    "split": Field("int", "8", 1024),
    "atomic": Field("bool", "true"),
    "raster": Field("int", "8", 1024, least=0),
    "prefetch": Field("bool", "true"),
    "register_stages": Field("int", "2", 2),
    "barrier": Field("bool", "true"),
    "atom": Field("atom", "dpas"),
    "warp": Field("maybe_pair", "4x8 (rows x columns of a warp's lanes)", 32),
    "stagger": Field("bool", "true"),
    "across": Field("bool", "true"),
    "snake": Field("bool", "true"),
    "c_width": Field("int", "4", 16),
    **{f"{operand}.{name}": field for operand in "ab" for name, field in _OPERAND.items()},
}
_SPEC_KEYS = tuple(field.name for field in fields(GemmSpec))


# --- values ---------------------------------------------------------------------------------------


def suggest(word: str, known: Iterable[str]) -> str:
    """` did you mean ...?` for the nearest of the known words, or all of them where none is near."""
    words = list(known)
    near = get_close_matches(word, words, 3, 0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"give one of {', '.join(words)}"


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
            problems.append(f"{key} = {raw!r} is not true or false")
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

    `sets` are of the form `key=value`, with the keys of `FIELDS`; without a `base`, the defaults of
    `method` are where to start.

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
        else:
            problems.append(f"--set {text!r} is not like key=value, for example stages=2 or a.width=4")
    if name is not None and (problem := name_problem(name)):
        problems.append(problem)
    changes = _changes(given, problems)
    if problems:
        raise ScheduleError(problems)
    start = base or defaults(method or DEFAULT_METHOD)
    schedule = change(start, changes)
    # A preset that was changed must not go by the preset's name.
    kept = start.name if flatten(schedule) == flatten(start) else None
    return replace(schedule, name=name or kept)


def _changes(given: Iterable[tuple[str, object]], problems: list[str]) -> Flat:
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


# --- TOML -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Document:
    """What a TOML file says: a line about it, what to compute and how."""

    summary: str
    spec: GemmSpec
    schedule: Schedule


def schedule_to_toml(schedule: Schedule) -> str:
    """A schedule as TOML: its shape, and every other field that is not as `Schedule()` has it."""
    plain = flatten(Schedule())
    flat = {k: v for k, v in flatten(schedule).items() if k in ("tile", "group", "k_step") or v != plain[k]}
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


def schedule_from_toml(text: str, where: str) -> Schedule:
    """The schedule of a TOML text. Raises: ScheduleError with every problem, each led by `where`."""
    return read_document(text, where).schedule


def read_document(text: str, where: str) -> Document:
    """The whole of a TOML text. Raises: ScheduleError with every problem, each led by `where`."""
    try:
        table: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScheduleError(f"{where}: not TOML: {error}") from None
    problems: list[str] = []
    summary, method, name = (_word(table.pop(key, None), key, problems) for key in ("summary", "method", "name"))
    if method is not None and method not in METHODS:
        problems.append(f"method {method!r} does not exist: {suggest(method, METHODS)}")
        method = None
    if name is not None and (problem := name_problem(name)):
        problems.append(problem)
    spec = _spec(_table(table.pop("spec", {}), "spec", problems), problems)
    changes = _changes(_fields(table, problems), problems)
    if problems:
        raise ScheduleError(f"{where}: {problem}" for problem in problems)
    schedule = change(defaults(method) if method else Schedule(), changes)
    return Document(summary or "", spec, replace(schedule, name=name))


def _fields(table: Mapping[str, object], problems: list[str]) -> list[tuple[str, object]]:
    """The fields of the schedule, the operands' as `a.width`."""
    out: list[tuple[str, object]] = []
    for key, value in table.items():
        if key in ("a", "b"):
            out += [(f"{key}.{field}", item) for field, item in _table(value, key, problems).items()]
        elif key in FIELDS:
            out.append((key, value))
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


def _spec(table: Mapping[str, object], problems: list[str]) -> GemmSpec:
    """The [spec] table."""
    unknown = (key for key in table if key not in _SPEC_KEYS)
    problems += (f"unknown key {key!r} in [spec]: {suggest(key, _SPEC_KEYS)}" for key in unknown)
    orders = [str(table.get(f"{x}_order", "row")) for x in "abc"]
    ld_multiple = str(table.get("ld_multiple", 1))
    units = table.get("multiple_of", [1, 1, 1])
    multiple_of = ",".join(map(str, units)) if isinstance(units, list) else str(units)
    m, n, k, alpha, beta = (str(table[key]) if key in table else None for key in ("m", "n", "k", "alpha", "beta"))
    try:
        dtype = str(table.get("dtype", "float32"))
        batched = table.get("batched", False)
        if not isinstance(batched, bool):
            problems.append(f"batched = {batched!r} in [spec] is neither true nor false: give one of them")
        c_dtype, layout, many = table.get("c_dtype"), ",".join(orders), batched is True
        c_type = None if c_dtype is None else str(c_dtype)
        return build_spec(m, n, k, dtype, layout, alpha, beta, multiple_of, ld_multiple, many, c_dtype=c_type)
    except SpecError as error:
        problems += error.problems
        return GemmSpec()


# --- what to compute ------------------------------------------------------------------------------


def build_spec(
    m: str | None = None,
    n: str | None = None,
    k: str | None = None,
    dtype: str | None = None,
    layout: str | None = None,
    alpha: str | None = None,
    beta: str | None = None,
    multiple_of: str | None = None,
    ld_multiple: str | None = None,
    batched: bool = False,
    base: GemmSpec | None = None,
    c_dtype: str | None = None,
) -> GemmSpec:
    """A spec from options as they are written; what is not given is as in `base`.

    Raises: SpecError with every problem.
    """
    base = base or GemmSpec()
    problems: list[str] = []
    sizes = [_size(axis, text, problems) for axis, text in (("M", m), ("N", n), ("K", k))]
    units = base.multiple_of if multiple_of is None else _units(multiple_of, problems)
    lines = _size("leading dimensions' multiple", ld_multiple, problems) or base.ld_multiple
    element, result = base.dtype, base.c_dtype
    orders = (base.a_order, base.b_order, base.c_order)
    try:
        element = base.dtype if dtype is None else parse_dtype(dtype)
        result = base.c_dtype if c_dtype is None else parse_dtype(c_dtype, "c_dtype")
    except SpecError as error:
        problems += error.problems
    sums = accumulator(element)
    factors = [_factor(key, text, sums, problems) for key, text in (("alpha", alpha), ("beta", beta))]
    try:
        orders = orders if layout is None else parse_orders(layout.replace(" ", ""))
    except SpecError as error:
        problems += error.problems
    alpha_beta = [known if x is None else x for x, known in zip(factors, (base.alpha, base.beta), strict=True)]
    m_n_k = [known if x is None else x for x, known in zip(sizes, (base.m, base.n, base.k), strict=True)]
    try:
        factor = alpha_beta[0], alpha_beta[1]
        sized = GemmSpec(m_n_k[0], m_n_k[1], m_n_k[2], element, *orders, *factor, units, lines, c_dtype=result)
        spec = replace(sized, batched=batched or base.batched)
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from None
    if problems:
        raise SpecError(problems)
    return spec


def _size(axis: str, text: str | None, problems: list[str]) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) < 2**31 - 1024:
        problems.append(f"{axis} = {text!r} is no size: give a whole number from 1 to {2**31 - 1025}")
        return None
    return int(text)


def _factor(key: str, text: str | None, sums: DType, problems: list[str]) -> float | None:
    try:
        value = None if text is None else float(text)
    except ValueError:
        problems.append(f"{key} = {text!r} is not a number: give one such as 1 or 0.5, or leave it out")
        return None
    if value is not None and sums.largest < abs(value) < math.inf:
        problems.append(f"{key} = {text} > {sums.largest:g}, the largest number of {sums}: give a smaller one")
        return None
    return value


def _units(text: str, problems: list[str]) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        parts *= 3
    if len(parts) != 3 or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        problems.append(f"multiple_of {text!r} is not like 32,16,8 (for M, N and K): give three whole numbers")
        return (1, 1, 1)
    m, n, k = map(int, parts)
    return m, n, k
