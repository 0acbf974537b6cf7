"""The schedule that a device's records have for a product: of its own sizes, or of sizes near by.

What another machine measured is checked here before its first use: it is built, its result is compared, it is timed.
A record that fails is thrown away.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Literal

from gemmgen import tuning
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F16
from gemmgen.ir.target import Target, calibrate
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning import order
from gemmgen.tuning.device import DeviceKey, key_of
from gemmgen.tuning.records import KIND, Identity, Line, Store, kind_of, parse, spec_text

Shape = tuple[int, int, int]
_NO_STAMP: tuple[int, int] | None = None
Sizes = tuple[int | None, int | None, int | None]
How = Literal["exact", "near", "prior"]
#: Times a size that a near record's may differ by, each; how many of the nearest are looked at, and how many schedules
#: of each; the distance at which a record counts half as much as one of the same sizes.
NEAR, NEAREST, OF_EACH, CLOSE = 1.5, 4, 5, 0.25
#: How much faster an unmeasured schedule has to be by the prior, as a logarithm, than what was measured near by.
UNMEASURED = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule from records.

    Attributes:
        how: whether it was measured at these sizes, or at `shape`, near by; or the prior has chosen it, unmeasured.
    """

    schedule: Schedule
    how: How
    shape: Shape
    seconds: float

    def __str__(self) -> str:
        if self.how == "prior":
            return "the prior"
        at = "x".join(map(str, self.shape))
        return f"a record of {at}" + ("" if self.how == "exact" else ", near these sizes")


class Book:
    """A device's records, read once and again when their file has changed. Safe to use from several threads."""

    def __init__(self, key: DeviceKey, store: Store, target: Target) -> None:
        self.key, self.store, self.target = key, store, target
        self._lock = threading.Lock()
        self._stamp, self._is_read = _NO_STAMP, False
        self._lines: dict[tuple[str, int], dict[Shape, list[Line]]] = {}
        self._schedules: dict[str, Schedule | None] = {}
        self._offs: dict[Identity, float | None] = {}

    def schedule(self, line: Line) -> Schedule | None:
        """A line's; None where its text is none."""
        if line.schedule not in self._schedules:
            with suppress(ScheduleError):
                self._schedules[line.schedule] = line.built_schedule()
        return self._schedules.setdefault(line.schedule, None)

    def weighed(
        self, lines: Sequence[Line], spec: GemmSpec, shape: Shape, target: Target
    ) -> tuple[dict[Schedule, tuple[float, list[tuple[Line, float]]]], tuple[float, Schedule] | None]:
        """What the model says, in one call: of each schedule of some lines its cost at a shape, and with each line the
        logarithm of its time as a multiple of the cost at the line's own; and what it puts first at the shape.
        Schedules that it says nothing of are left out.
        """
        known = [(line, schedule) for line in lines if (schedule := self.schedule(line)) is not None]
        if not known:
            return {}, None
        new = [(line, schedule) for line, schedule in known if line.identity not in self._offs]
        here = list(dict.fromkeys(schedule for _, schedule in known))
        asked = [*((schedule, line.shape) for line, schedule in new), *((schedule, shape) for schedule in here)]
        costs, first = order.costs_and_first(asked, spec, shape, target, lines[0].products)
        for (line, _), cost in zip(new, costs, strict=False):
            self._offs[line.identity] = math.log(line.seconds / cost) if cost else None
        cost_of = dict(zip(here, costs[len(new) :], strict=True))
        found: dict[Schedule, tuple[float, list[tuple[Line, float]]]] = {}
        for line, schedule in known:
            off, cost = self._offs[line.identity], cost_of[schedule]
            if off is not None and cost:
                found.setdefault(schedule, (cost, []))[1].append((line, off))
        return found, first

    def lines(self) -> Mapping[tuple[str, int], dict[Shape, list[Line]]]:
        """By the text of a spec and the number of products, then by the shape: the best of each first."""
        stamp = self.store.stamp(self.key)
        with self._lock:
            if stamp != self._stamp or not self._is_read:
                self._stamp = stamp
                records = self.store.read(self.key)
                own = records.lines
                shipped, machine = self._shipped(own)
                calibrate(self.target, {**machine, **records.machine})
                self._lines = _indexed([*own, *shipped])
                self._is_read = True
            return self._lines

    def _shipped(self, own: Sequence[Line]) -> tuple[list[Line], Mapping[str, float]]:
        """The lines that come with gemmgen for such a device, by any driver, but for products that the user measured.

        They are trusted as presets are: every schedule is validated before it is built.
        """
        measured = {(line.spec, line.products, line.shape) for line in own if line.checked}
        found: list[Line] = []
        machine: Mapping[str, float] = {}
        for path in tuning.shipped(self.key.backend):
            records = parse(path.read_text(encoding="utf-8"), path.name)
            if records.key.is_same_device(self.key):
                found += (x for x in records.lines if (x.spec, x.products, x.shape) not in measured)
                machine = records.machine
        return found, machine


def _indexed(lines: Sequence[Line]) -> dict[tuple[str, int], dict[Shape, list[Line]]]:
    found: dict[tuple[str, int], dict[Shape, list[Line]]] = {}
    for line in sorted(lines, key=lambda line: line.rank):
        found.setdefault((line.spec, line.products), {}).setdefault(line.shape, []).append(line)
    return found


_books: dict[tuple[str, object, int], Book] = {}


def book_of(backend: str, device: object, target: Target) -> Book | None:
    """The records of a device; None where there are none at all, or the user has turned them off.

    Args:
        device: as `key_of` takes it.
    """
    if not tuning.has_records(backend):
        return None
    store = Store()
    known = backend, str(store.folder), id(device)
    if known not in _books:
        # The device is kept, so that no other one gets its number.
        _books[known] = Book(key_of(backend, device, target), store, target)
        _kept.append(device)
    return _books[known]


_kept: list[object] = []


def recorded(
    book: Book | None,
    spec: GemmSpec,
    shape: Sizes | None,
    target: Target,
    products: int = 1,
    check: Callable[[Line], Line | None] | None = None,
) -> Found | None:
    """What records have for a product; None where they have nothing that can be used.

    Args:
        shape: m, n and k where the spec leaves them open.
        check: measures an unchecked line here; its own result, or None where it failed. None leaves such lines out.
    """
    m, n, k = _sizes(spec, shape)
    if book is None or not m or not n or not k:
        return None
    known = book.lines()
    # Assumptions and sizes are no part of a kind: of all specs with other ones it is named once.
    about = tuple(getattr(spec, key) for key in KIND)
    for number, kind in enumerate(_texts_alike(about, "wgmma" in target.features)):
        lines = known.get((kind, products), {})
        for line in lines.get((m, n, k), ()):
            if (found := _usable(line, spec, target, check, book)) is not None:
                return Found(found, "near" if number else "exact", line.shape, line.seconds)
        near = _near(lines, spec, (m, n, k), target, check, book)
        if near is not None:
            return near
    return None


@lru_cache(maxsize=1024)
def _texts_alike(about: tuple[object, ...], by_warpgroups: bool) -> tuple[str, ...]:
    """A kind of product, and those whose schedules are as fast, as records name them.

    Args:
        about: what a spec has in the fields that tell kinds apart.
    """
    spec = GemmSpec(**dict(zip(KIND, about, strict=True)))  # type: ignore[arg-type]
    return tuple(spec_text(kind) for kind in _alike(kind_of(spec), by_warpgroups))


def _alike(kind: GemmSpec, by_warpgroups: bool) -> Iterator[GemmSpec]:
    """Warpgroups multiply both types of 16 bits alike, and TMA takes matrices of any order."""
    yield kind
    if not by_warpgroups or kind.dtype.size > 2:
        return
    dtypes = (BF16, F16) if kind.dtype in (BF16, F16) else (kind.dtype,)
    # Two elements of a byte lie along K: there is but one order.
    other_order = kind.b_order if kind.element("b").pairs else "row" if kind.b_order == "col" else "col"
    for dtype in dtypes:
        for order_of_b in dict.fromkeys((kind.b_order, other_order)):
            other = replace(kind, dtype=dtype, b_order=order_of_b, a_order="row")
            if other != kind and (dtype.size == 2 or order_of_b == kind.b_order):
                yield other


def _sizes(spec: GemmSpec, shape: Sizes | None) -> Sizes:
    """The spec's, and what it leaves open as the shape has it."""
    m, n, k = shape or (None, None, None)
    return spec.m or m, spec.n or n, spec.k or k


def _near(
    lines: dict[Shape, list[Line]],
    spec: GemmSpec,
    shape: Shape,
    target: Target,
    check: Callable[[Line], Line | None] | None,
    book: Book,
) -> Found | None:
    """Of the best records of the nearest sizes the one that the model, set right by all of them, puts first here.

    What was measured is divided by what the model says there: the model need only know how a schedule's time changes
    from those sizes to these.
    """
    near = _nearest_sizes(lines, shape)
    if not near:
        return None
    weights = {other: 1 / (distance + CLOSE) for distance, other in near}
    best, first = book.weighed([x for other in weights for x in lines[other][:OF_EACH]], spec, shape, target)
    if not best:
        return _nearest(lines, near, spec, target, check, book)
    guessed = {}
    for schedule, (cost, measured) in best.items():
        weight = sum(weights[line.shape] for line, _ in measured)
        guessed[schedule] = math.log(cost) + sum(weights[line.shape] * off for line, off in measured) / weight
    if first is not None and first[1].but(name=None) not in best:
        offs = [off for _, measured in best.values() for _, off in measured]
        if math.log(first[0]) + sum(offs) / len(offs) + UNMEASURED < min(guessed.values()):
            return Found(first[1], "prior", shape, first[0] * 1e-6)
    for schedule in sorted(guessed, key=lambda each: guessed[each]):
        line = best[schedule][1][0][0]
        if _usable(line, spec, target, check, book) is not None:
            return Found(schedule, "near", line.shape, line.seconds)
    return None if first is None else Found(first[1], "prior", shape, first[0] * 1e-6)


def _nearest(
    lines: dict[Shape, list[Line]],
    near: Sequence[tuple[float, Shape]],
    spec: GemmSpec,
    target: Target,
    check: Callable[[Line], Line | None] | None,
    book: Book,
) -> Found | None:
    """The best of the nearest sizes, where there is no model."""
    for _, other in near:
        line = lines[other][0]
        schedule = _usable(line, spec, target, check, book)
        if schedule is not None:
            return Found(schedule, "near", other, line.seconds)
    return None


def _nearest_sizes(known: Iterable[Shape], shape: Shape) -> list[tuple[float, Shape]]:
    """Those of which no size differs by too much, each with its distance in log space, the nearest first."""
    (low_m, high_m), (low_n, high_n), (low_k, high_k) = ((size / NEAR, size * NEAR) for size in shape)
    near = (x for x in known if low_m <= x[0] <= high_m and low_n <= x[1] <= high_n and low_k <= x[2] <= high_k)
    return sorted((sum(abs(math.log2(a / b)) for a, b in zip(shape, x, strict=True)), x) for x in near)[:NEAREST]


def _usable(
    line: Line, spec: GemmSpec, target: Target, check: Callable[[Line], Line | None] | None, book: Book
) -> Schedule | None:
    """The schedule of a line that the device can run, and whose result was checked here."""
    from gemmgen.passes.validate import is_possible

    schedule = book.schedule(line)
    if schedule is None or not is_possible(spec, schedule, target):
        return None
    if line.checked:
        return schedule
    return _checked(line, schedule, check, book)


def _checked(
    line: Line, schedule: Schedule, check: Callable[[Line], Line | None] | None, book: Book
) -> Schedule | None:
    """The schedule where this device gives the right result by it: its own time replaces the stranger's."""
    made = check(line) if check is not None else None
    if check is None:
        return None
    with suppress(OSError):
        if made is None:
            gone = line.identity
            book.store.change(
                book.key, lambda records: replace(records, lines=tuple(x for x in records.lines if x.identity != gone))
            )
        else:
            book.store.add(book.key, [made])
    if made is None:
        logging.getLogger("gemmgen").warning("an imported record was wrong on %s and is dropped: %s", book.key, line)
    return None if made is None else schedule


def ask(
    backend: str,
    device: object,
    target: Target,
    spec: GemmSpec,
    shape: Sizes | None,
    products: int = 1,
) -> Found | None:
    """What the records of a device have for a product; None where they have nothing.

    Args:
        device: as `gemmgen.runtime` describes it, or of OpenCL a queue.
        shape: m, n and k where the spec leaves them open.
    """
    book = book_of(backend, device, target)
    return recorded(book, spec, shape, target, products, check_by(backend, device))


def _number(device: object) -> int | None:
    """A device's among those of its backend."""
    number = getattr(device, "number", None)
    if number is None and hasattr(device, "device"):
        from gemmgen.runtime.opencl_devices import info_of

        number = info_of(device.device).number
    return number if isinstance(number, int) and number >= 0 else None


def check_by(backend: str, device: object) -> Callable[[Line], Line | None]:
    """A check on a device: builds, compares the result, and times."""

    def check(line: Line) -> Line | None:
        from gemmgen.tuning.job import Job
        from gemmgen.tuning.measure import measure

        made = line.measurement()
        job = Job(backend, _number(device), made.spec, made.shape, made.products, made.schedule)
        outcome = measure(job)
        return Line.of(outcome.measurement(job)) if outcome.problem is None else None

    return check
