"""Specs from what a user writes: `-M 512`, `--dtype float16`, `--layout row,col`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import cast

from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import DType, accumulator
from gemmgen.spec import GROUPED, GemmSpec, Grouped, LdMultiple, parse_dtype, parse_orders

Step = Callable[[GemmSpec], GemmSpec]


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
    conj: str | None = None,
    epilogue: Sequence[str] | None = None,
    stored: tuple[str | None, str | None] = (None, None),
    prologues: tuple[str | None, str | None] = (None, None),
    grouped: str | None = None,
) -> GemmSpec:
    """A spec from options as they are written; what is not given is as in `base`.

    Raises: SpecError with every problem.
    """
    base = base or GemmSpec()
    problems: list[str] = []
    sizes = [_size(axis, text, problems) for axis, text in (("M", m), ("N", n), ("K", k))]
    units = base.multiple_of if multiple_of is None else _units(multiple_of, problems)
    lines = base.ld_multiple if ld_multiple is None else _lines(ld_multiple, problems)
    element, result, a_dtype, b_dtype = _types(base, dtype, c_dtype, stored, problems)
    orders = (base.a_order, base.b_order, base.c_order)
    sums = accumulator(element)
    conj_a, conj_b = (base.conj_a, base.conj_b) if conj is None else _conjugated(conj, problems)
    factors = [_factor(key, text, sums, problems) for key, text in (("alpha", alpha), ("beta", beta))]
    if grouped is not None and grouped not in GROUPED:
        problems.append(f"grouped {grouped!r} is nothing that groups share out: give {' or '.join(GROUPED)}")
        grouped = None
    shared = cast("Grouped | None", grouped) or base.grouped
    try:
        orders = orders if layout is None else parse_orders(layout.replace(" ", ""))
    except SpecError as error:
        problems += error.problems
    alpha_beta = [known if x is None else x for x, known in zip(factors, (base.alpha, base.beta), strict=True)]
    m_n_k = [known if x is None else x for x, known in zip(sizes, (base.m, base.n, base.k), strict=True)]
    factor, many = (alpha_beta[0], alpha_beta[1]), batched or base.batched
    made = [old if x is None else x for x, old in zip(prologues, (base.prologue_a, base.prologue_b), strict=True)]
    then = base.epilogue if epilogue is None else tuple(epilogue)
    steps: list[Step] = [
        lambda _: GemmSpec(m_n_k[0], m_n_k[1], m_n_k[2], element, *orders, *factor, units, lines, c_dtype=result),
        lambda x: replace(x, batched=many, listed=base.listed, wide=base.wide, emulate=base.emulate, grouped=shared),
        lambda x: replace(x, conj_a=conj_a, conj_b=conj_b, a_dtype=a_dtype, b_dtype=b_dtype),
        lambda x: replace(x, epilogue=then),
        lambda x: replace(x, prologue_a=made[0], prologue_b=made[1]),
    ]
    return _stepwise(GemmSpec(dtype=element), steps, problems)


def _stepwise(spec: GemmSpec, steps: Iterable[Step], problems: list[str]) -> GemmSpec:
    """One step after the other, so that what is wrong with one hides nothing of the others. Raises: SpecError."""
    for step in steps:
        try:
            spec = step(spec)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return spec


def _types(
    base: GemmSpec,
    dtype: str | None,
    c_dtype: str | None,
    stored: tuple[str | None, str | None],
    problems: list[str],
) -> tuple[DType, DType | None, DType | None, DType | None]:
    """The types of products, of C, and of A and B where they are stored in others."""
    before = len(problems)
    element = _parsed("dtype", dtype, base.dtype, problems)
    has_element = len(problems) == before
    given = zip(("c_dtype", "a_dtype", "b_dtype"), (c_dtype, *stored), strict=True)
    known = base.c_dtype, base.a_dtype, base.b_dtype
    others = [_parsed(key, text, old, problems) for (key, text), old in zip(given, known, strict=True)]
    # Whether they go with a type that is not known nobody can say.
    return element or base.dtype, *(others if has_element else known)


def _parsed(key: str, text: str | None, known: DType | None, problems: list[str]) -> DType | None:
    try:
        return known if text is None else parse_dtype(text, key)
    except SpecError as error:
        problems += error.problems
    return known


def _size(axis: str, text: str | None, problems: list[str]) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) < 2**31 - 1024:
        problems.append(f"{axis} = {text!r} is no size: give a whole number from 1 to {2**31 - 1025}")
        return None
    return int(text)


def _conjugated(text: str, problems: list[str]) -> tuple[bool, bool]:
    """Whether A, and whether B, is among the matrices named."""
    if text not in ("", "a", "b", "ab"):
        problems.append(f"conj {text!r} names no matrices: give a, b or ab, or leave it out")
    return "a" in text, "b" in text


def _factor(key: str, text: str | None, sums: DType, problems: list[str]) -> complex | None:
    if text is None:
        return None
    try:
        value = complex(text.strip())
    except ValueError:
        other = " or 1+2j" if sums.real is not None else ""
        problems.append(f"{key} = {text!r} is not a number: give one such as 1 or 0.5{other}, or leave it out")
        return None
    parts = abs(value.real), abs(value.imag)
    if any(sums.largest < part < math.inf for part in parts):
        problems.append(f"{key} = {text} > {sums.largest:g}, the largest number of {sums}: give a smaller one")
        return None
    return value if "j" in text.lower() else value.real


def _lines(text: str, problems: list[str]) -> LdMultiple:
    """What leading dimensions are multiples of: of all matrices, or of A, B and C."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) not in (1, 3):
        problems.append(
            f"ld_multiple {text!r} is not like 8, or 8,8,1 (for A, B and C): give one whole number or three"
        )
        return 1
    a, *others = (_size("leading dimensions' multiple", part, problems) or 1 for part in parts)
    return (a, others[0], others[1]) if others else a


def _units(text: str, problems: list[str]) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) == 1:
        parts *= 3
    if len(parts) != 3 or not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        problems.append(
            f"multiple_of {text!r} is not like 32,16,8 (for M, N and K): give three whole numbers, or one for all"
        )
        return (1, 1, 1)
    m, n, k = map(int, parts)
    return m, n, k
