"""The schedule that a device's records have for a product: of its own sizes, or of sizes near by.

What another machine measured is checked here before its first use: it is built, its result is compared, it is timed.
A record that fails is thrown away.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from gemmgen import tuning
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import DeviceKey, key_of
from gemmgen.tuning.records import Line, Records, Store, kind_of, spec_text

Shape = tuple[int, int, int]
How = Literal["exact", "near"]
#: Times a size that a near record's may differ by, each, and how many of the nearest are looked at.
NEAR, NEAREST = 2.0, 4
#: Times what the model says of a multiply-add at a record's own sizes that it may say here.
STILL_GOOD = 1.1


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule from records.

    Attributes:
        how: whether it was measured at these sizes, or at `shape`, near by.
    """

    schedule: Schedule
    how: How
    shape: Shape
    seconds: float

    def __str__(self) -> str:
        at = "x".join(map(str, self.shape))
        return f"a record of {at}" + ("" if self.how == "exact" else ", near these sizes")


class Book:
    """A device's records, read once and again when their file has changed. Safe to use from several threads."""

    def __init__(self, key: DeviceKey, store: Store) -> None:
        self.key, self.store = key, store
        self._lock = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        #: Spec and products -> shape -> the lines of each, the best first.
        self._lines: dict[tuple[str, int], dict[Shape, list[Line]]] = {}
        self._schedules: dict[str, Schedule | None] = {}

    def schedule(self, line: Line) -> Schedule | None:
        """A line's; None where its text is none."""
        if line.schedule not in self._schedules:
            with suppress(ScheduleError):
                self._schedules[line.schedule] = line.measurement().schedule
        return self._schedules.setdefault(line.schedule, None)

    def lines(self, spec: str, products: int) -> dict[Shape, list[Line]]:
        """Of a kind of product, the best of each shape first."""
        stamp = self.store.stamp(self.key)
        with self._lock:
            if stamp != self._stamp:
                self._stamp = stamp
                self._lines = _indexed(self.store.read(self.key)) if stamp is not None else {}
            return self._lines.get((spec, products), {})


def _indexed(records: Records) -> dict[tuple[str, int], dict[Shape, list[Line]]]:
    found: dict[tuple[str, int], dict[Shape, list[Line]]] = {}
    for line in sorted(records.lines, key=lambda line: line.rank):
        found.setdefault((line.spec, line.products), {}).setdefault(line.shape, []).append(line)
    return found


_books: dict[tuple[str, object, int], Book] = {}


def book_of(backend: str, device: object, target: Target) -> Book | None:
    """The records of a device; None where there are none at all, or the user has turned them off.

    Args:
        device: as `key_of` takes it.
    """
    if not tuning.has_records():
        return None
    store = Store()
    known = backend, str(store.folder), id(device)
    if known not in _books:
        # The device is kept, so that no other one gets its number.
        _books[known] = Book(key_of(backend, device, target), store)
        _kept.append(device)
    return _books[known]


_kept: list[object] = []


def recorded(
    book: Book | None,
    spec: GemmSpec,
    shape: tuple[int | None, int | None, int | None] | None,
    target: Target,
    products: int = 1,
    check: Callable[[Line], Line | None] | None = None,
) -> Found | None:
    """What records have for a product; None where they have nothing that can be used.

    Args:
        shape: m, n and k where the spec leaves them open.
        check: measures an unchecked line here; its own result, or None where it failed. None leaves such lines out.
    """
    sizes = [known or asked for known, asked in zip((spec.m, spec.n, spec.k), shape or (None,) * 3, strict=True)]
    m, n, k = sizes
    if book is None or not m or not n or not k:
        return None
    lines = book.lines(spec_text(kind_of(spec)), products)
    for line in lines.get((m, n, k), ()):
        if (found := _usable(line, spec, target, check, book)) is not None:
            return Found(found, "exact", line.shape, line.seconds)
    return _near(lines, spec, (m, n, k), target, check, book)


def _near(
    lines: dict[Shape, list[Line]],
    spec: GemmSpec,
    shape: Shape,
    target: Target,
    check: Callable[[Line], Line | None] | None,
    book: Book,
) -> Found | None:
    """The best record of the nearest sizes, where the model thinks as well of it here as there."""
    from gemmgen.tuning import order

    apart = ((_distance(shape, other), other) for other in lines)
    near = sorted((distance, other) for distance, other in apart if distance is not None)
    for _, other in near[:NEAREST]:
        line = lines[other][0]
        schedule = _usable(line, spec, target, check, book)
        if schedule is None:
            continue
        here, there = (order.cost(spec, schedule, each, target, line.products) for each in (shape, other))
        if here is None or there is None or here / math.prod(shape) <= STILL_GOOD * there / math.prod(other):
            return Found(schedule, "near", other, line.seconds)
    return None


def _distance(one: Shape, other: Shape) -> float | None:
    """In log space; None where a size differs by too much."""
    if any(a > NEAR * b or b > NEAR * a for a, b in zip(one, other, strict=True)):
        return None
    return sum(abs(math.log2(a / b)) for a, b in zip(one, other, strict=True))


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
    shape: tuple[int | None, int | None, int | None] | None,
    products: int = 1,
) -> Found | None:
    """What the records of a device have for a product; None where they have nothing.

    Args:
        device: as `gemmgen.runtime` describes it, or of OpenCL a queue.
        shape: m, n and k where the spec leaves them open.
    """
    book = book_of(backend, device, target)
    if book is None:
        return None
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
