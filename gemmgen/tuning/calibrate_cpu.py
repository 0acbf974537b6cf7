"""The constants of a CPU, measured by products whose time is mostly that of one thing (`gemmgen tune --calibrate`).

| constant | from |
|---|---|
| cycles in a microsecond | a product whose matrices fit the caches |
| `threads` | a small product of several work-items |
| `third_line`, `memory_line` | products of one row, whose B is read once: from the third level, and from memory |
| `several_line` | a product of one column, whose A is read once from memory, eight rows at a time |

A constant is the one by which the prior says the time that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from gemmgen.cpu import prior
from gemmgen.cpu.machine import Machine, machine_of
from gemmgen.cpu.panels import choose_panels
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.job import Job, assuming_no_gaps
from gemmgen.tuning.runners import Runner
from gemmgen.tuning.space import Shape
from gemmgen.tuning.study import Place

#: The constant that it is for, and the product by a schedule.
Product: TypeAlias = tuple[str, GemmSpec, Shape, Schedule]
#: Seconds of a measurement, and how often all are repeated: other processes of the machine disturb some of them.
LOOK, ROUNDS = 0.4, 5
#: Sizes of the product that says how long a cycle is, and of the one that wakes threads.
IN_CACHES, SMALL = (480, 512, 512), (64, 64, 64)
#: Rows that a tile reads at a time.
SEVERAL = 8
#: Parts of the third level that B takes to be read from there, and from memory; bytes of it at most.
PART, TIMES, MOST = 0.25, 4, 1 << 30
#: Times a constant's usual value that it is looked for in, and halvings of that.
RANGE, HALVINGS = 16.0, 40


def measured(runner: Runner, place: Place, tell: Callable[[str], None] = lambda _: None) -> dict[str, float]:
    """The constants that could be measured on a device, by their names."""
    products = list(_products(place))
    least = _least(runner, place, products, tell)
    machine, found, clock = machine_of(place.target), dict[str, float](), 0.0
    for name, spec, shape, schedule in products:
        panels = prior.panels([schedule], place.target.cores)
        if name == "clock":
            clock = float(prior.cycles(spec, panels, shape, machine)[0]) / (least[name] * 1e6)
            tell(f"cycles in a microsecond: {clock:.4g}")
            continue
        usual: float = getattr(machine, name)
        if clock and math.isfinite(least[name]):
            found[name] = _solved(usual, least[name] * 1e6 * clock, _cycles(name, spec, panels, shape, machine))
            tell(f"{name}: {found[name]:.4g}, {usual:.4g} before")
            machine = replace(machine, **{name: found[name]})
    return found


def _least(runner: Runner, place: Place, products: Sequence[Product], tell: Callable[[str], None]) -> dict[str, float]:
    """The least seconds of each product in some rounds."""
    least = {name: math.inf for name, *_ in products}
    for number in range(ROUNDS):
        for name, spec, shape, schedule in products:
            job = Job(place.backend, place.number, spec, shape, 1, schedule, budget=LOOK)
            outcome = next(outcome for _, outcome in runner.run([job]))
            if outcome.problem is None:
                least[name] = min(least[name], outcome.seconds)
            elif number == 0:
                tell(f"{name}: {outcome.problem}")
    return least


def _cycles(
    name: str, spec: GemmSpec, panels: prior.Panels, shape: Shape, machine: Machine
) -> Callable[[float], float]:
    """What a product takes with a value of a constant."""
    return lambda value: float(prior.cycles(spec, panels, shape, replace(machine, **{name: value}))[0])


def _products(place: Place) -> Iterator[Product]:
    target, machine = place.target, machine_of(place.target)
    sides = (math.isqrt(int(min(MOST, part * machine.third)) // 4) // 64 * 64 for part in (PART, TIMES))
    third, memory = sides
    for name, shape in (
        *(("clock", IN_CACHES), ("threads", SMALL), ("third_line", (1, third, third))),
        *(("memory_line", (1, memory, memory)), ("several_line", (memory, 1, memory))),
    ):
        schedule = choose_panels(GemmSpec(), shape, target)
        if schedule is None or (name == "threads" and target.cores == 1):
            continue
        if name == "threads":
            schedule = schedule.but(macro_kernel=(1, 1), grid_multiple=(target.cores, 1))
        if name == "several_line":
            schedule = schedule.but(tile=(SEVERAL, 1), macro_kernel=(1 + memory // SEVERAL // target.cores, 1))
        yield name, assuming_no_gaps(GemmSpec(), shape), shape, schedule


def _solved(usual: float, wanted: float, cycles: Callable[[float], float]) -> float:
    """The value of a constant by which a product takes so many cycles: they grow with it."""
    low, high = usual / RANGE, usual * RANGE
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cycles(middle) > wanted else (middle, high)
    return math.sqrt(low * high)
