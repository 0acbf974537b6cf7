"""What comes of requests drawn at random: accepted or not, right or wrong, and what of the records they tried."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from time import perf_counter

from gemmgen import driver
from gemmgen.errors import GemmgenError, ScheduleError
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, interpreted
from gemmgen.fuzz.data import Numbers
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.kernel import Program
from gemmgen.schedule import Schedule, Value
from gemmgen.schedule.fields import meanings
from gemmgen.schedule.flat import AXES
from gemmgen.source import Source
from tests.support import heads
from tests.support.advice import accepted
from tests.support.draws import Request, draw

#: Of M, N and K.
LARGEST = (70, 70, 100)
#: What a fault of gemmgen shows as.
INTERNAL = (GemmgenError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


def case_of(request: Request, number: int) -> Case:
    """Ragged sizes, small whole numbers. Of 8-bit floats sums lose even of those, and so do heads and
    rests.
    """
    rng, schedule, spec = random.Random(number), request.schedule(), request.spec
    around = (*schedule.block_tile, schedule.round_depth)
    sizes = [
        min(most, rng.choice((rng.randint(1, 9), unit + rng.randint(-2, 2), rng.randint(1, most))))
        for most, unit in zip(LARGEST, around, strict=True)
    ]
    # A ring goes around.
    if rng.random() < 0.5:
        sizes[2] = min(LARGEST[2], schedule.round_depth * (schedule.stages + 1) + 1)
    m, n, k = (-(-max(1, size) // unit) * unit for size, unit in zip(sizes, spec.multiple_of, strict=True))
    if rng.random() < 0.25:
        spec = replace(spec, m=m, n=n, k=k)
    return Case(
        spec,
        schedule,
        (m, n, k),
        request.place.backend,
        request.place.name,
        count=2 if spec.batched else 1,
        pads=(1, 2, 3),
        alpha=2.0 if spec.alpha is None else spec.alpha,
        beta=-1.0 if spec.beta is None else spec.beta,
        data="normal" if spec.dtype in FLOAT8 or "3xtf32" in schedule.atom else "whole",
        seed=number,
    )


def wrong(case: Case, place: Place) -> str | None:
    """What is wrong with an accepted case. Raises: whatever goes wrong inside of gemmgen, or in the kernel."""
    try:
        source, program = driver.emit_program(case.spec, case.schedule, case.backend, place.target)
    except ScheduleError as error:
        return f"refused as it is emitted, with m = {case.spec.m}: {error}"
    if says := _head(source, program):
        return says
    numbers = Numbers.of(case)
    return numbers.problem(interpreted(program, numbers))


def _head(source: Source, program: Program) -> str | None:
    found = heads.problems(source, program)
    return found[0] if found else None


@dataclass
class Tally:
    """What came of many draws.

    Attributes:
        members: of those that were accepted as drawn and run, and of those after advice.
        values: of each field, what it was where it means something.
        failures: a reproducer of each.
    """

    drawn: int = 0
    direct: int = 0
    advised: int = 0
    run: int = 0
    steps: Counter[int] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    values: dict[str, set[Value]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, number: int, run_advised: bool = True) -> None:
        """Draw one, follow advice, and run what is accepted."""
        begun = perf_counter()
        self.drawn += 1
        request = draw(number)
        try:
            self._add(number, request, run_advised)
        except INTERNAL as error:
            self.failures.append(f"draw {number}: {type(error).__name__}: {error}\n    {request}")
        self.seconds += perf_counter() - begun

    def _add(self, number: int, request: Request, run_advised: bool) -> None:
        found = accepted(request, number)
        if isinstance(found, str):
            self.failures.append(f"draw {number}: {found}\n    {request}")
            return
        final, steps = found
        self.steps[steps] += 1
        self.direct += steps == 0
        self.advised += steps > 0
        if steps > 0 and not run_advised:
            return
        case = case_of(final, number)
        try:
            if (problem := wrong(case, final.place)) is not None:
                self.failures.append(f"draw {number}: {problem}\n    {case}\n    {final}")
        except INTERNAL as error:
            self.failures.append(f"draw {number}: {type(error).__name__}: {error}\n    {case}\n    {final}")
        self.run += 1
        self._count(final.schedule(), final.place)

    def _count(self, schedule: Schedule, place: Place) -> None:
        self.targets[f"{place.backend} {place.name}"] += 1
        for axis, part in zip(AXES, schedule.parts, strict=True):
            self.members[f"{axis} {type(part).__name__}"] += 1
            for key in meanings(type(part)):
                if key not in schedule.mainloop.without:
                    self.values.setdefault(f"{type(part).__name__}.{key}", set()).add(getattr(part, key))
        for name, operand in (("a", schedule.a), ("b", schedule.b)):
            for key in schedule.mainloop.operand_keys(name, operand):
                self.values.setdefault(f"{name}.{key}", set()).add(getattr(operand, key))

    def fields_with_one_value(self) -> dict[str, list[str]]:
        """Fields of which nothing was learnt."""
        return {key: sorted(map(str, found)) for key, found in sorted(self.values.items()) if len(found) < 2}

    def report(self) -> str:
        """All counts, and what failed."""
        return "\n".join(
            (
                f"{self.drawn} drawn in {self.seconds:.0f} s",
                f"{self.direct} accepted, {self.advised} after advice, {self.run} run",
                f"steps of advice: {dict(sorted(self.steps.items()))}",
                f"members: {dict(self.members.most_common())}",
                f"members never seen: {sorted(all_members() - set(self.members))}",
                f"targets: {dict(self.targets.most_common())}",
                f"fields: {dict(sorted((key, len(found)) for key, found in self.values.items()))}",
                f"fields with one value: {self.fields_with_one_value()}",
                f"{len(self.failures)} failures",
                *self.failures,
            )
        )


def all_members() -> set[str]:
    """Every member of every axis."""
    return {f"{axis} {member.__name__}" for axis, members in AXES.items() for member in members}
