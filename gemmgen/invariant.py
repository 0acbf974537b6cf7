"""Schedules that give a row of C the same bits whatever the number of rows: one order of sums for all of them.

The order follows from the spec, N, K and the device alone. The cost models say what it costs at some numbers of rows.
M then chooses among the schedules of that order: tiles, ways to lay out A and B, stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import inf, log

from gemmgen.candidates import Shape
from gemmgen.cpu import panels
from gemmgen.errors import ScheduleError
from gemmgen.ir.sizes import REACHED
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.sum_order import SumOrder, sum_order

#: Numbers of rows that an order is judged by.
ROWS = (1, 16, 128, 1024, 8192)
#: Rows of the C that decides where no model weighs them: parts of K on a CPU, and rows of the menu.
USUAL_ROWS = 128
#: Times the best schedule's cost that an order may take at one of `ROWS`, if another order takes no more at any.
WORST = 4 / 3
#: Bytes to which leading dimensions are taken to be aligned.
ALIGNED = 16


def choose_by_model(spec: GemmSpec, shape: Shape, target: Target) -> Schedule | None:
    """The cheapest schedule of the one order; None where no cost model knows the device and the types.

    Raises: ScheduleError if no schedule for this spec has the order.
    """
    order = _order(reference(spec), shape[1:], target)
    if order is None:
        return None
    found = (s for _, s in _by_order(spec, shape, target, target.cores) if sum_order(s, shape[2]) == order)
    schedule = next(found, None)
    if schedule is None:
        raise ScheduleError(problem(order, shape))
    return schedule


def reference(spec: GemmSpec) -> GemmSpec:
    """The spec that decides the order: without all that may differ among products of the same rows."""
    size = min(spec.element("a").size, spec.element("b").size, spec.dtype.size)
    free = replace(spec, m=None, alpha=None, beta=None, multiple_of=(1, 1, 1), ld_multiple=max(1, ALIGNED // size))
    return replace(free, a_order="row", c_order="row", epilogue=(), batched=False, listed=False, wide=False)


def problem(order: SumOrder, shape: Shape) -> str:
    """The sentence for a product that no schedule of the order computes."""
    m, n, k = shape
    start = f"invariant: no kernel for {m}x{n}x{k} adds by the order of sums of these N and K ({order})"
    if order.parts * m * n >= REACHED:
        most = (REACHED - 1) // (order.parts * n)
        return f"{start}, as sums of more than {most:,} rows exceed 2^31: multiply so many at a time"
    return f"{start}: pass row-major matrices that begin on {ALIGNED} bytes, or leave invariant out"


@lru_cache(256)
def _order(spec: GemmSpec, sizes: tuple[int, int], target: Target) -> SumOrder | None:
    """The order that is nearest to the best schedules at all of `ROWS`; None without a model."""
    tables = [_costs(spec, (rows, *sizes), target) for rows in ROWS]
    best = [min(costs.values(), default=inf) for costs in tables]
    common = set(tables[0]).intersection(*tables[1:])

    def loss(order: SumOrder) -> tuple[float, float, SumOrder]:
        ratios = [costs[order] / least for costs, least in zip(tables, best, strict=True)]
        return max(WORST, *ratios), sum(map(log, ratios)), order

    return min(common, key=loss, default=None)


def _costs(spec: GemmSpec, shape: Shape, target: Target) -> dict[SumOrder, float]:
    """What the cheapest schedule of each order costs. A CPU's order is chosen for one core, whatever their number."""
    costs: dict[SumOrder, float] = {}
    for cost, schedule in _by_order(spec, shape, target, 1):
        order = sum_order(schedule, shape[2])
        if order is not None:
            costs[order] = min(cost, costs.get(order, inf))
    return costs


def _by_order(spec: GemmSpec, shape: Shape, target: Target, cores: int) -> Iterator[tuple[float, Schedule]]:
    """Schedules with their costs by the model that knows the device, the cheapest first."""
    if "vectors" in target.features:
        yield from panels.by_order(spec, shape, target, cores, USUAL_ROWS)
    elif "async_copy" in target.features:
        from gemmgen.choice import gpu

        yield from gpu.by_order(spec, shape, target)
