"""What the prior loses by its choices among schedules that were measured on an H200, beside the fitted model.

    python benchmarks/prior_regret.py benchmarks/results/2026-11-22_h200/rows*.json

Of each problem with three schedules and more: the time of the one that a model puts first, as a multiple of the fastest
measured. The fitted model (`gemmgen.waves`) was fitted to these figures, the prior has no constant of a schedule's own.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from fit_waves import Point, points

from gemmgen import waves
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.tuning import prior
from gemmgen.tuning.machine import machine_of

#: As the device of the figures says of itself.
H200 = replace(TARGETS["sm_90a"], clock=1980, memory_rate=4_800_000, cache_bytes=50 << 20)
#: Schedules of a problem at least.
LEAST = 3


def problems(files: Sequence[Path]) -> list[list[Point]]:
    """The measurements of each problem, of a schedule the fastest."""
    found: dict[object, dict[Schedule, Point]] = defaultdict(dict)
    for path in files:
        for point in points(path):
            same = found[point.problem, point.spec.ld_multiple]
            if point.schedule not in same or point.us < same[point.schedule].us:
                same[point.schedule] = point
    return [list(same.values()) for same in found.values() if len(same) >= LEAST]


def by_prior(measured: Sequence[Point]) -> Sequence[float]:
    """What the prior says of a problem's schedules."""
    first, machine = measured[0], machine_of(H200)
    made = prior.designs(first.spec, [x.schedule for x in measured], first.shape, machine)
    return [float(x) for x in prior.microseconds(first.spec, made, first.shape, machine, first.products)]


def by_fit(measured: Sequence[Point]) -> Sequence[float]:
    """The same by the fitted model."""
    found = []
    for x in measured:
        target, tile = TARGETS["sm_90a" if x.schedule.by_warpgroups else "sm_90"], waves.tile_of(x.schedule)
        assert tile is not None
        found.append(sum(waves.account(x.spec, tile, x.schedule, x.shape, target, x.products).values()))
    return found


MODELS: dict[str, Callable[[Sequence[Point]], Sequence[float]]] = {"prior": by_prior, "fitted": by_fit}


def regrets(files: Sequence[Path]) -> dict[tuple[str, str], list[float]]:
    """By the model and the type."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for measured in problems(files):
        best = min(x.us for x in measured)
        for name, model in MODELS.items():
            chosen = measured[int(np.argmin(model(measured)))]
            found[name, measured[0].spec.dtype.name].append(chosen.us / best)
    return found


def geomean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Print a line a model and type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    for (name, dtype), values in sorted(regrets(parser.parse_args().files).items(), key=lambda x: x[0][::-1]):
        ninth = sorted(values)[len(values) * 9 // 10]
        told = f"geomean {geomean(values):.4f}, ninth decile {ninth:.3f}, worst {max(values):.2f}"
        print(f"{dtype:14} {name:8} {len(values):4} problems: {told}")


if __name__ == "__main__":
    main()
