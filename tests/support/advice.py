"""Follows the advice of refusals, as far as it leads: of requests made in Python."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.backends import backend as find_backend
from gemmgen.errors import ScheduleError, UserError
from gemmgen.fuzz.checks import Place
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8
from gemmgen.methods import METHODS, change, defaults
from gemmgen.options import FIELDS, build_spec, parse_value
from gemmgen.schedule import PLAIN, Flat, Value
from tests.support.draws import Request, flat_of
from tests.support.remedies import keys_in, proposals

#: How often advice is followed, one step for all problems that are told at once, and how often anew, otherwise.
STEPS, WALKS = 6, 6


def accepted(request: Request, number: int) -> tuple[Request, int] | str:
    """The request after its refusals' advice, and how many steps that took; or what is wrong with the advice."""
    before = request.problems()
    if not before:
        return request, 0
    rng, last = random.Random(number), before
    for walk in range(WALKS):
        current, seen = request, {before}
        for step in range(1, STEPS + 1):
            current = begun = _on_another_target(current)
            for problem in current.problems():
                if problem not in current.problems():  # gone with another
                    continue
                options = list(_ways(problem, current))
                if not options:
                    return f"says nothing to be tried: {problem}"
                # Back to where it was is no way on, nor is what can't even be said, while other problems are left.
                made = [x for x in options[:40] if x.made or not current.made]
                options = [x for x in made or options if x.problems() not in seen] or options
                if not made and len(current.problems()) > 1:
                    continue
                current = _chosen(rng, options) if walk > 0 else min(options, key=_badness)
                seen.add(current.problems())
            if current is begun and (ways := [x for p in current.problems() for x in _ways(p, current)]):
                current = ways[walk % len(ways)]
            last = current.problems()
            if not last:
                return current, step
    return f"no way out in {WALKS} walks of {STEPS} steps: {' | '.join(before)}\n    ends at {' | '.join(last)}"


def _on_another_target(request: Request) -> Request:
    """On the best of the targets that any of the problems proposes, if one is better."""
    proposed = [x for problem in request.problems() for x in _options(problem) if "--target" in x and len(x) < 5]
    ways = [way for options in proposed if (way := _after(request, options)) is not None]
    return min((request, *ways), key=_badness)


def _options(problem: str) -> list[list[str]]:
    try:
        return proposals(problem)
    except AssertionError:
        return []


def _chosen(rng: random.Random, options: list[Request]) -> Request:
    """The best, in most cases."""
    rng.shuffle(options)
    return min(options, key=_badness) if rng.random() < 0.6 else options[0]


def _badness(request: Request) -> tuple[bool, int]:
    """Of two ways on, the one with less of it is taken."""
    return not request.made, len(request.problems())


def _ways(problem: str, request: Request) -> Iterator[Request]:
    """The request after each of the things that a problem proposes."""
    found = False
    for options in _options(problem):
        if (way := _after(request, options)) is not None:
            found = True
            yield way
    if not found or re.search(r"smaller|method|private", problem):
        yield from _in_words(problem, request)


def _after(request: Request, options: list[str]) -> Request | None:
    """With options as the command line has them; None where one of them has no such value."""
    changes: Flat = {}
    backend, target = request.place.backend, request.place.name
    given: dict[str, str] = {}
    base = None
    for option, text in zip(options[::2], options[1::2], strict=True):
        key, value = text.split("=") if option == "--set" else (option.lstrip("-").replace("-", "_"), text)
        wrong: list[str] = []
        if key in FIELDS:
            changes[key] = parse_value(key, value, wrong)
        elif key == "backend":
            backend = value
            target = target if target in find_backend(value).targets else ""
        elif key == "target":
            target = value
        elif key == "method":
            base = defaults(value)
        elif key == "preset":
            base = candidates.load(value).schedule
        else:
            given[{"M": "m", "N": "n", "K": "k"}.get(key, key)] = value
        if wrong:
            return None
    try:
        spec = build_spec(request.spec, **given) if given else request.spec  # type: ignore[arg-type]
        after = _changed(
            replace(request, spec=spec) if base is None else Request(base, {}, spec, request.place), changes
        )
        if not target:
            target = driver.default_target(spec, after.schedule(), backend).name
        if target not in find_backend(backend).targets:
            backend = next(x for x in BACKENDS if target in find_backend(x).targets)
    except UserError:
        return None
    return replace(after, place=Place.named(backend, target))


def _changed(request: Request, changes: Flat) -> Request:
    """With other values of some fields; as the command line has it, others follow where they stood as usual."""
    try:
        schedule = request.schedule()
    except ScheduleError:
        return replace(request, changes={**request.changes, **changes})
    try:
        return replace(request, base=change(schedule, changes), changes={})
    except ScheduleError:
        return replace(request, base=schedule, changes=changes)


def _in_words(problem: str, request: Request) -> Iterator[Request]:
    """Advice that names no value: a smaller tile, a multiple, another value, one of two left out, another order."""
    fact, _, remedy = problem.rpartition(": ")
    try:
        flat = flat_of(request.schedule())
    except ScheduleError:
        flat = {**PLAIN, **flat_of(request.base), **request.changes}

    yield from _other_products(problem, request)

    def changed(**changes: Value) -> Request:
        return _changed(request, changes)

    for key in ("tile", "group"):
        pair = flat[key]
        if re.search(rf"smaller [\w, ]*{key}|{key}s?\b", remedy) and isinstance(pair, tuple):
            rows, cols = pair
            smaller = ((rows // 2, cols), (rows, cols // 2), (rows // 2, cols // 2))
            yield from (changed(**{key: (max(1, r), max(1, c))}) for r, c in smaller)
            yield from (changed(**{key: (r, c)}) for r, c in ((2 * rows, cols), (rows, 2 * cols)))
    for number, key in re.findall(r"(\d+) (\w+) instead of", remedy):
        if key in FIELDS:
            yield changed(**{key: int(number)})
    for key in dict.fromkeys((*keys_in(remedy), *keys_in(fact))):
        if re.search(r"\b(leave|drop)\b", remedy):
            yield changed(**{key: PLAIN[key]})
        if "the other way" in remedy:
            yield changed(**{key: not flat[key]})
        yield from (changed(**{key: value}) for value in FIELDS[key].tries)
    for name in re.findall(r"set (\w+) for both", remedy):
        yield from (changed(**{f"a.{name}": value, f"b.{name}": value}) for value in (True, False))
    for unit in re.findall(r"multiple of (\d+)", remedy):
        for key in ("block_k", "tile", "group"):
            value = flat[key]
            if key == "block_k" and isinstance(value, int):
                yield changed(block_k=-(-value // int(unit)) * int(unit))
            elif isinstance(value, tuple):
                yield changed(**{key: (-(-value[0] // int(unit)) * int(unit), value[1])})
                yield changed(**{key: (value[0], -(-value[1] // int(unit)) * int(unit))})


def _other_products(problem: str, request: Request) -> Iterator[Request]:
    """Another order, another type, one product in the place of many, or a named schedule."""
    remedy = problem.rpartition(": ")[2]
    for name in ("a", "b", "c"):
        for order in ("row", "col"):
            if re.search(rf"\b{name}\b.*{order}-major|{name}_order|store it {order}", problem, re.IGNORECASE):
                with_order: dict[str, str] = {f"{name}_order": order}
                yield replace(request, spec=replace(request.spec, **with_order))  # type: ignore[arg-type]
    if re.search(r"beside|one after the other|spec|dtype|float", remedy):
        for dtype in (F32, F16, BF16, F64, I8):
            try:
                yield replace(request, spec=replace(request.spec, dtype=dtype, c_dtype=None))
            except UserError:
                continue
    for words in re.findall(r"method (\w+(?: or \w+)*)", remedy):
        methods = [word for word in words.split(" or ") if word in METHODS]
        yield from (replace(request, base=defaults(method), changes={}) for method in methods)
    for name in re.findall(r"preset .*such as (\w+)", remedy):
        yield replace(request, base=candidates.load(name).schedule, changes={})
    if "listed" in remedy or "batch" in remedy:
        yield replace(request, spec=replace(request.spec, batched=False, listed=False))
