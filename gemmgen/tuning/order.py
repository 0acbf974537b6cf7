"""What the cost models make of schedules before anything runs: an order to measure them in, and what to leave out.

On a CPU the model is `gemmgen.cpu.prior`, on GPUs of CUDA the prior. Where there is none for a device, the named
schedules come first, and then what differs from them in a few values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter

from gemmgen.choice import gpu, prior
from gemmgen.choice.machine import machine_of
from gemmgen.choose import choose
from gemmgen.cpu import panels
from gemmgen.ir.target import Target
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Schedule
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.spec import GemmSpec
from gemmgen.tuning.space import Shape, is_precise, is_redundant, known_schedules, spaces

#: Times the best cost by a model, from which on a schedule is left out.
RULED_OUT = 3.0
#: Points that a model orders, and those that follow where there is no model.
SAMPLED, UNORDERED = 1500, 64
#: Vector registers beside those of C that a tile may have more than there are: compilers spill what is needed least.
SPILLED = 1.25


def cost(spec: GemmSpec, schedule: Schedule, shape: Shape, target: Target, products: int = 1) -> float | None:
    """What a model says that a product costs, in units of its own; None where there is none."""
    return next(iter(costs([schedule], spec, shape, target, products)), None)


def costs(
    schedules: Sequence[Schedule], spec: GemmSpec, shape: Shape, target: Target, products: int = 1
) -> list[float]:
    """The same of several of one kind of mainloop; empty where there is no model."""
    return costs_at([(each, shape) for each in schedules], spec, target, products)


def costs_at(asked: Sequence[tuple[Schedule, Shape]], spec: GemmSpec, target: Target, products: int = 1) -> list[float]:
    """The same of products of several sizes, each by one schedule."""
    if not asked:
        return []
    if asked[0][0].vector > 1:
        alike = groupby(asked, key=itemgetter(1))
        found = ((shape, [schedule for schedule, _ in same]) for shape, same in alike)
        return [products * float(x) for shape, own in found for x in panels.cycles(spec, own, shape, target)]
    if "async_copy" not in target.features:
        return []
    return prior.costs_at(spec, asked, machine_of(target), products)


def costs_and_first(
    asked: Sequence[tuple[Schedule, Shape]], spec: GemmSpec, shape: Shape, target: Target, products: int = 1
) -> tuple[list[float | None], tuple[float, Schedule] | None]:
    """What a model says of each of some schedules at sizes of its own, None where it says nothing; and what it puts
    first for a product among all that it weighs, on GPUs of CUDA.
    """
    if "async_copy" in target.features:
        first = next(gpu.ranked(spec, shape, target, products), None)
        return list(prior.costs_at(spec, asked, machine_of(target), products)), first
    by_vectors = [each for each in asked if each[0].vector > 1]
    known = iter(costs_at(by_vectors, spec, target, products))
    return [next(known) if schedule.vector > 1 else None for schedule, _ in asked], None


def static_problem(schedule: Schedule, shape: Shape, target: Target) -> str | None:
    """Why a schedule is not worth compiling for a shape, by figures that follow from it alone; None if it is."""
    if is_redundant(schedule, shape):
        return "a smaller number in one of its fields does the same on this shape"
    if schedule.vector > 1:
        rows, cols = schedule.tile
        held = rows * cols + cols + 1 if schedule.dot_product else (rows + 1) * (cols // schedule.vector) + 1
        registers = 32 if target.vector_bytes >= panels.MANY_REGISTERS else 16
        if held > SPILLED * registers:
            return f"{held} vectors in {registers} registers spill"
    return None


def ordered(spec: GemmSpec, shape: Shape, target: Target, products: int = 1, seed: int = 0) -> Iterator[Schedule]:
    """Schedules to measure, the likeliest to be fast first, each once: at the head the one that is chosen untuned."""
    seen: set[Schedule] = set()
    for schedule in _ordered(spec, shape, target, products, seed):
        plain = schedule.but(name=None)
        wanted = not seen or (is_precise(plain, spec) and static_problem(plain, shape, target) is None)
        if plain not in seen and wanted:
            seen.add(plain)
            yield plain


def sorted_by_cost(
    schedules: Iterable[Schedule], spec: GemmSpec, shape: Shape, target: Target, products: int = 1
) -> list[Schedule]:
    """Schedules by what the model says, the cheapest of each kind before the others; where it says nothing, last."""
    found = {schedule: cost(spec, schedule, shape, target, products) for schedule in schedules}
    costs = {schedule: math.inf if value is None else value for schedule, value in found.items()}
    # Equal costs in an order of their own: that of a set is another one in each process.
    ranked = sorted(costs, key=lambda each: (costs[each], repr(each)))
    first = {_kind(schedule): schedule for schedule in reversed(ranked)}.values()
    heads = sorted(first, key=ranked.index)
    return list(dict.fromkeys([*heads, *ranked]))


def _ordered(spec: GemmSpec, shape: Shape, target: Target, products: int, seed: int) -> Iterator[Schedule]:
    yield choose(spec, shape, target, products)
    yield from islice(_ranked(spec, shape, target, products), UNORDERED)
    for space in spaces(spec, target):
        if space.mainloop is CpuPanel:
            points = (schedule for _, schedule in space.sample(SAMPLED, seed))
            likely = [each for each in points if static_problem(each, shape, target) is None]
            yield from _of_each_kind(dict(zip(likely, costs(likely, spec, shape, target, products), strict=True)))
        elif near := [each for each in known_schedules(space) if is_possible(spec, each, target)]:
            yield from near
            yield from (schedule for _, schedule in space.sample(UNORDERED, seed, near))


def _ranked(spec: GemmSpec, shape: Shape, target: Target, products: int) -> Iterator[Schedule]:
    """What the choice itself weighs, and on GPUs of CUDA more of the kind."""
    if "vectors" in target.features:
        yield from panels.liked(spec, shape, target, UNORDERED)
    elif "async_copy" in target.features:
        yield from _first_of_each(schedule for _, schedule in gpu.ranked(spec, shape, target, products, wider=True))


def _first_of_each(schedules: Iterator[Schedule]) -> Iterator[Schedule]:
    """The cheapest of each tile."""
    seen: set[object] = set()
    for schedule in schedules:
        kind = schedule.block_tile, schedule.atom, schedule.split_k > 1
        if kind not in seen:
            seen.add(kind)
            yield schedule


def _of_each_kind(costs: dict[Schedule, float]) -> Iterator[Schedule]:
    """The cheapest of each tile, way to B and depth of a panel, the cheapest first; none that is ruled out."""
    best = min(costs.values(), default=0.0)
    kinds: set[tuple[object, ...]] = set()
    for schedule in sorted(costs, key=lambda each: costs[each]):
        if costs[schedule] <= RULED_OUT * best and _kind(schedule) not in kinds:
            kinds.add(_kind(schedule))
            yield schedule


def _kind(schedule: Schedule) -> tuple[object, ...]:
    """What tells schedules apart that are worth measuring both."""
    return schedule.tile, schedule.vector, schedule.dot_product, schedule.b.memory, schedule.kc
