"""Follows the advice of error messages, as a user would: reads what is proposed, and tries it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from gemmgen.options import FIELDS

#: Longest first, so that `a.width` is not read as a `width`.
_KEYS = sorted(FIELDS, key=len, reverse=True)
_KEY = rf"(?<![\w.])({'|'.join(map(re.escape, _KEYS))})(?![\w.])"
_MEMORY = r"'?(?:local|global|image|private)'?"
_VALUE = rf"(true|false|none|{_MEMORY}|\d+x\d+|\d+)"


def proposals(problem: str) -> list[list[str]]:
    """The options that a problem proposes, each of which should take it away by itself.

    Raises: AssertionError for advice that says nothing to be tried.
    """
    fact, _, remedy = problem.rpartition(": ")
    found = [*_options(remedy), *_fields(fact, remedy), *_dropped(fact, remedy), *_targets(remedy)]
    assert found, f"nothing to be tried in: {problem}"
    return found


def keys_in(text: str) -> list[str]:
    """The fields that a text names."""
    return re.findall(_KEY, text)


def _options(remedy: str) -> Iterator[list[str]]:
    """`use --backend cuda --target sm_90a, or ...`: what stands together goes together."""
    for part in re.split(r",? or |; ", remedy):
        if part.startswith("write ") or "numpy.save" in part:
            continue
        words = re.findall(r"--[a-z][\w.-]*(?: (?!--|or\b|and\b)[^\s,():]+)*", part.replace(" by --", " --"))
        if words:
            yield [word for option in words for word in shlex.split(option)]


def _fields(fact: str, remedy: str) -> Iterator[list[str]]:
    """`use block_k 8`, `use a.width = 1`, and `use one of 1, 2, 4` of what the problem is about."""
    if "--" in remedy:
        return
    for key, value in re.findall(rf"{_KEY}(?: of| =|) ?{_VALUE}", remedy):
        stripped = value.strip("'")
        yield ["--set", f"{key}={stripped}"]
    for rows in re.findall(r"smaller tile, such as (\d+x\d+)", remedy):
        yield ["--tile", rows]
    about = re.search(_KEY, fact)
    if about is not None and (named := re.search(rf"use {about[1].rpartition('.')[2]} {_VALUE}", remedy)):
        stripped = named[1].strip("'")
        yield ["--set", f"{about[1]}={stripped}"]
    if about is None or re.search(rf"{_KEY}(?: of| =|) ?{_VALUE}", remedy):
        return
    if numbers := re.match(r"(?:use|give) (?:one of )?(\d+(?:x\d+)?(?:(?:, | or )\d+(?:x\d+)?)*)", remedy):
        for value in re.split(r", | or ", numbers[1]):
            yield ["--set", f"{about[1]}={value}"]


def _dropped(fact: str, remedy: str) -> Iterator[list[str]]:
    """`drop it`, `leave it out`, `leave tma out`: back to what the field is by itself."""
    if "--" not in remedy:
        yield from (["--set", f"{key}=false"] for key in re.findall(rf"leave {_KEY} out", remedy))
    if "--" in remedy or not re.search(r"\b(drop|leave) it\b", remedy):
        return
    about = re.search(_KEY, fact)
    if about is not None:
        field = FIELDS[about[1]]
        plain = {"bool": "false", "int": str(field.least)}.get(field.kind)
        if plain is not None and not field.optional:
            yield ["--set", f"{about[1]}={plain}"]


def _targets(remedy: str) -> Iterator[list[str]]:
    """`use target sm_90a`, `use sm_80 or later`, `use target intel`."""
    if "--" not in remedy:
        yield from (["--target", name] for name in re.findall(r"\b(?:target )?(sm_\d+a?|(?<=target )\w+)", remedy)[:1])
