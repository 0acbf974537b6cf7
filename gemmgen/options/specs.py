"""Specs from what a user writes: `-M 512`, `--dtype float16`, `--layout row,col`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypedDict, Unpack, cast

from gemmgen.errors import SpecError, attempt
from gemmgen.ir.dtypes import DType, accumulator
from gemmgen.spec import GROUPED, GemmSpec, LdMultiple, Order, parse_dtype, parse_orders

#: What reads the text of one field by itself. Raises: SpecError if it has no such value.
Reader = Callable[[str], object]


class SpecTexts(TypedDict, total=False):
    """The options of a spec as a user writes them; None and False are as good as none."""

    m: str | None
    n: str | None
    k: str | None
    multiple_of: str | None
    ld_multiple: str | None
    dtype: str | None
    c_dtype: str | None
    a_dtype: str | None
    b_dtype: str | None
    layout: str | None
    conj: str | None
    alpha: str | None
    beta: str | None
    batched: bool
    listed: bool
    grouped: str | None
    epilogue: Sequence[str] | None
    prologue_a: str | None
    prologue_b: str | None
    emulate: bool
    wide: bool
    allow_tf32: bool


#: Their names.
SPEC_TEXTS = tuple(SpecTexts.__annotations__)
#: Fields of a spec in the order in which they are set, so that what is wrong with some hides nothing of the others.
_STEPS = (
    (
        *("m", "n", "k", "dtype", "a_order", "b_order", "c_order"),
        *("multiple_of", "ld_multiple", "c_dtype"),
    ),
    ("batched", "listed", "wide", "emulate", "grouped", "allow_tf32"),
    ("conj_a", "conj_b", "a_dtype", "b_dtype"),
    ("epilogue",),
    ("alpha", "beta"),  # of an epilogue, 0 and 1 change C
    ("prologue_a", "prologue_b"),
)


def build_spec(base: GemmSpec | None = None, **texts: Unpack[SpecTexts]) -> GemmSpec:
    """A spec from options as they are written; what is not given is as in `base`.

    Raises: SpecError with every problem.
    """
    base = base or GemmSpec()
    problems: list[str] = []
    given = {key: text for key, text in texts.items() if text is not None and text is not False}
    values = {step: getattr(base, step) for steps in _STEPS for step in steps} | _read(given, base, problems)
    spec = GemmSpec(dtype=values["dtype"])
    for step in _STEPS:
        spec = attempt(problems, replace, spec, **{key: values[key] for key in step}) or spec
    if problems:
        raise SpecError(problems)
    return spec


def _read(given: Mapping[str, object], base: GemmSpec, problems: list[str]) -> dict[str, object]:
    """The fields of the spec that are given."""
    values = _by_readers(given, {axis: partial(_size, axis.upper()) for axis in "mnk"}, problems)
    values |= _by_readers(given, {"multiple_of": _units, "ld_multiple": _lines}, problems)
    values |= _types(given, problems)
    sums = accumulator(cast("DType", values.get("dtype", base.dtype)))
    values |= _by_readers(given, {key: partial(_factor, key, sums) for key in ("alpha", "beta")}, problems)
    values |= _by_readers(given, {"grouped": _grouped, "layout": _orders, "conj": _conjugated}, problems)
    values |= zip(("a_order", "b_order", "c_order"), cast("tuple[Order, ...]", values.pop("layout", ())), strict=False)
    values |= zip(("conj_a", "conj_b"), cast("tuple[bool, ...]", values.pop("conj", ())), strict=False)
    plain = ("batched", "listed", "wide", "emulate", "allow_tf32", "epilogue", "prologue_a", "prologue_b")
    return values | {key: given[key] for key in plain if key in given}


def _by_readers(given: Mapping[str, object], readers: Mapping[str, Reader], problems: list[str]) -> dict[str, object]:
    read = {key: attempt(problems, reader, str(given[key])) for key, reader in readers.items() if key in given}
    return {key: value for key, value in read.items() if value is not None}


def _types(given: Mapping[str, object], problems: list[str]) -> dict[str, object]:
    """The types of products, of C, and of A and B where they are stored in others."""
    before = len(problems)
    element = _by_readers(given, {"dtype": parse_dtype}, problems)
    has_element = len(problems) == before
    keys = ("c_dtype", "a_dtype", "b_dtype")
    others = _by_readers(given, {key: partial(parse_dtype, key=key) for key in keys}, problems)
    # Whether they go with a type that is not known nobody can say.
    return element | (others if has_element else {})


def _orders(text: str) -> tuple[Order, Order, Order]:
    return parse_orders(text.replace(" ", ""))


def _grouped(text: str) -> str:
    if text not in GROUPED:
        raise SpecError(f"grouped {text!r} is nothing that groups share out: give {' or '.join(GROUPED)}")
    return text


def _size(axis: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) < 2**31 - 1024:
        shown = text if re.fullmatch(r"-?[0-9]+", text) else repr(text)
        raise SpecError(f"{axis} = {shown} is no size: give a whole number from 1 to {2**31 - 1025}")
    return int(text)


def _conjugated(text: str) -> tuple[bool, bool]:
    """Whether A, and whether B, is among the matrices named."""
    if text not in ("", "a", "b", "ab"):
        raise SpecError(f"conj {text!r} names no matrices: give a, b or ab, or leave it out")
    return "a" in text, "b" in text


def _factor(key: str, sums: DType, text: str) -> complex:
    try:
        value: complex = complex(text.strip())
    except ValueError:
        other = " or 1+2j" if sums.real is not None else ""
        raise SpecError(
            f"{key} = {text!r} is not a number: give one such as 1 or 0.5{other}, or leave it out"
        ) from None
    if not sums.is_float and re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        value = int(text)  # floats lose the last digits of large ones
    most = f"{sums.largest:g}" if sums.is_float else f"{sums.largest}"
    for part in (value.real, value.imag):
        if sums.largest < part < math.inf:
            raise SpecError(f"{key} = {text} > {most}, the largest factor of {sums}: give a smaller one")
        if -math.inf < part < -sums.largest:
            raise SpecError(f"{key} = {text} < -{most}, the smallest factor that {sums} folds: give a larger one")
    return value if "j" in text.lower() else value.real


def _lines(text: str) -> LdMultiple:
    """What leading dimensions are multiples of: of all matrices, or of A, B and C."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (1, 3):
        raise SpecError(
            f"ld_multiple {text!r} is not like 8, or 8,8,1 (for A, B and C): give one whole number or three"
        )
    problems: list[str] = []
    a, *others = (attempt(problems, _size, "leading dimensions' multiple", part) or 1 for part in parts)
    if problems:
        raise SpecError(problems)
    return (a, others[0], others[1]) if others else a


def _units(text: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        parts *= 3
    if len(parts) != 3 or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise SpecError(
            f"multiple_of {text!r} is not like 32,16,8 (for M, N and K): give three whole numbers, or one for all"
        )
    m, n, k = map(int, parts)
    return m, n, k
