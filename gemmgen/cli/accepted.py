"""The options nearest to some that are refused, found by trying: whoever follows them is not refused again."""

from __future__ import annotations

import heapq
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, cast

from gemmgen.cli.request import Request, words_of
from gemmgen.errors import UserError
from gemmgen.records import dataclass

if TYPE_CHECKING:
    from gemmgen.schedule import Pair, Schedule

#: How many changed options are tried before no more are looked for.
MOST_TRIED = 400
#: What it costs to change an option: what to compute is what the user is least ready to give up, but for the method.
_HOW, _TYPE, _WHAT, _METHOD = 2, 3, 8, 16
#: What a problem that is left is expected to cost.
_PROBLEM = 4
#: Options of the schedule by themselves, of types, and of the other parts of a product.
_SHAPE = ("tile", "group", "block_k", "sub_group")
_PRODUCT = (
    *("m", "n", "k", "multiple_of", "ld_multiple", "c_dtype", "a_dtype", "b_dtype", "layout", "conj", "alpha", "beta"),
    *("batched", "listed", "grouped", "epilogue", "prologue_a", "prologue_b", "emulate", "wide", "allow_tf32"),
)

#: What is against a backend beside the request.
Beside = Callable[[str], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Options:
    """What a command says of a kernel."""

    request: Request
    backend: str

    def text(self) -> str:
        """As the command line has them."""
        words = [] if self.backend == "opencl" else ["--backend", self.backend]
        return shlex.join([*words, *words_of(self.request, (field.name for field in fields(self.request)))])

    def problems(self, beside: Beside) -> tuple[str, ...]:
        """Why there is no such kernel."""
        from gemmgen import driver

        try:
            spec, schedule, target = self.request.resolve(beside(self.backend), self.backend)
            return driver.refusals_of(spec, schedule, self.backend, target)
        except UserError as error:
            return error.problems

    def named(self, with_target: bool) -> Options:
        """The same; a target that is chosen by itself is named, where one was before."""
        if not with_target or self.request.target is not None:
            return self
        return Options(replace(self.request, target=self.request.resolve((), self.backend)[2].name), self.backend)

    def others(self) -> Iterator[tuple[int, Options]]:
        """The same with one of them changed, and what that costs."""
        yield from self._in_other_places()
        given, changed = self.request, cast("Callable[..., Request]", replace)
        for cost, changes in (*_of_shape(given), *_of_product(given), *_of_method(given)):
            yield cost, Options(changed(given, **changes), self.backend)

    def _in_other_places(self) -> Iterator[tuple[int, Options]]:
        """On other backends and targets."""
        from gemmgen.backends import BACKENDS
        from gemmgen.backends import backend as find_backend

        for backend in BACKENDS:
            language = find_backend(backend)
            # The others are chosen among where none is named.
            for target in (None, *(x for x in language.targets if x in language.chips or x == self.request.target)):
                is_another = self.request.target not in (None, target)
                if (backend, target) != (self.backend, self.request.target):
                    cost = (backend != self.backend) + 3 * is_another + 3 * (target is not None and is_another)
                    cost += 6 * (target is not None and self.request.target is None)
                    yield max(cost, 1), Options(replace(self.request, target=target), backend)


def nearest_accepted(request: Request, backend: str, beside: Beside = lambda _: ()) -> Options | None:
    """The options; None if few changes lead to none that are accepted, or none is needed.

    Args:
        beside: problems of what else the command says, for a backend.
    """
    first = Options(request, backend)
    # What is expected to be the cost of each, how many problems it has, when it was tried, and the cost until there.
    queue, seen, tried = [(0, 0, 0, 0, first, first.problems(beside))], {first.text()}, 0
    while queue and tried < MOST_TRIED:
        *_, spent, options, problems = heapq.heappop(queue)
        if not problems:
            return options.named(request.target is not None) if tried else None
        for cost, other in options.others():
            if (text := other.text()) in seen:
                continue
            seen.add(text)
            tried += 1
            left = other.problems(beside)
            if {*map(_of_any_target, left)} >= {*map(_of_any_target, problems)}:
                continue  # helps nothing
            spent_there = spent + cost
            heapq.heappush(queue, (spent_there + _PROBLEM * len(left), len(left), tried, spent_there, other, left))
    return next((options for options in _plainest(request) if not options.problems(beside)), None)


def _plainest(given: Request) -> Iterator[Options]:
    """A preset or a method with as little beside it as it can do with."""
    from gemmgen.backends import BACKENDS
    from gemmgen.ir.dtypes import MATRIX_DTYPES

    plain = Request(preset=given.preset, schedule_file=given.schedule_file)
    if (plain.preset, plain.schedule_file) != (None, None):
        yield from (Options(plain, backend) for backend in BACKENDS)
    elif given.method is not None:
        for dtype in (None, *MATRIX_DTYPES):
            bare = Request(method=given.method, dtype=dtype)
            # TMA asks for aligned lines, and 8-bit types for lines along K.
            aligned = replace(bare, layout="row,col", ld_multiple="16")
            yield from (Options(request, backend) for request in (bare, aligned) for backend in BACKENDS)


def _of_any_target(problem: str) -> str:
    """A problem without the names of the target and of types."""
    from gemmgen.ir.dtypes import STORED_DTYPES

    return re.sub(rf"target '\w+'|\b({'|'.join(STORED_DTYPES)})\b", "", problem)


def _of_shape(given: Request) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Other tiles, groups and so on, and none of what is set."""
    yield from ((_HOW, {field: None}) for field in _SHAPE if getattr(given, field) is not None)
    said = given.block_k or ""
    depth = int(said) if said.isdecimal() else 1
    for i, other in enumerate(sorted((8, 16, 32, 64), key=lambda other: abs(other - depth))):
        yield _HOW - (i == 0), {"block_k": str(other)}
    high, _, wide = (given.group or "").partition("x")
    if high.isdecimal() and wide.isdecimal():
        lanes = sorted((8, 16, 32), key=lambda other: abs(other - int(wide)))
        yield from ((_HOW - (other == lanes[0]), {"group": f"{high}x{other}"}) for other in lanes)
    sets = given.sets or []
    yield _HOW * (len(sets) + 2), {"sets": None, **dict.fromkeys(_SHAPE)}
    for i in range(len(sets)):
        yield _HOW, {"sets": [*sets[:i], *sets[i + 1 :]] or None}
    if (schedule := _schedule(given)) is not None:
        for field, (rows, cols) in (("tile", schedule.tile), ("group", schedule.group)):
            smaller: list[Pair] = [(rows // 2, cols), (rows, cols // 2), (rows // 2, cols // 2)]
            yield from ((_HOW, {field: f"{x}x{y}"}) for x, y in smaller if x and y)


def _schedule(given: Request) -> Schedule | None:
    try:
        return given.resolve()[1]
    except UserError:
        return None


def _of_product(given: Request) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Other types, and less that is asked for."""
    from gemmgen.ir.dtypes import MATRIX_DTYPES

    for dtype in (None, *MATRIX_DTYPES):
        if dtype != given.dtype:
            yield _TYPE, {"dtype": dtype}
    if given.ld_multiple is None:
        yield _TYPE, {"ld_multiple": "16"}
    for order in ("row,col", "col,row"):
        yield _WHAT, {"layout": order}
    for field in _PRODUCT:
        if getattr(given, field) not in (None, False):
            yield _WHAT, {field: False if getattr(given, field) is True else None}


def _of_method(given: Request) -> Iterator[tuple[int, Mapping[str, object]]]:
    """Other methods, and presets of nearly the same name where there is none of that name; never none of them."""
    from gemmgen.methods import METHODS
    from gemmgen.presets import names

    if given.preset is not None and given.preset not in names():
        yield from ((_HOW, {"preset": name}) for name in get_close_matches(given.preset.lower(), names(), 3, 0.5))
    if given.method is not None and given.preset is None and given.schedule_file is None:
        near = get_close_matches(given.method.lower(), METHODS, 1, 0.5) if given.method not in METHODS else []
        yield from ((_HOW if method in near else _METHOD, {"method": method}) for method in METHODS)
    elif given.method is not None:
        yield _HOW, {"method": None}
