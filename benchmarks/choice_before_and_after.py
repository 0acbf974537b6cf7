"""The schedule that another checkout of gemmgen chooses on this machine's CPU, beside this one's.

    python benchmarks/choice_before_and_after.py --before ../before --platform Portable --shapes 10 --seed 24

Shapes are drawn: sizes from 64 to 1500 whose logarithms are even, every third one with one size from 1 to 16. Both
schedules are compiled by this checkout and run in turns. A time is the least of many: of the clock, and of processors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gemmgen.driver import emit
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.records import Line, spec_text

Shape = tuple[int, int, int]
#: Asks a checkout for its choices: shapes in, schedules out, as JSON.
ASK = """
import json, sys
from gemmgen.choose import choose
from gemmgen.runtime.opencl_devices import pick, target_of
from gemmgen.spec import GemmSpec
from gemmgen.tuning.records import schedule_text
target = target_of(pick(type="cpu", platform=sys.argv[1]).handle)
print(json.dumps([schedule_text(choose(GemmSpec(), tuple(shape), target)) for shape in json.loads(sys.argv[2])]))
"""
#: Turns that a schedule has.
TURNS = 40


def drawn(count: int, seed: int) -> list[Shape]:
    """Sizes."""
    rng, found = random.Random(seed), list[Shape]()
    for index in range(count):
        sizes = [round(math.exp(rng.uniform(math.log(64), math.log(1500)))) for _ in "mnk"]
        if index % 3 == 2:
            sizes[rng.randrange(3)] = rng.randint(1, 16)
        found.append((sizes[0], sizes[1], sizes[2]))
    return found


def chosen(checkout: Path, platform: str, shapes: list[Shape]) -> list[Schedule]:
    """What a checkout chooses."""
    command = [sys.executable, "-W", "ignore", "-c", ASK, platform, json.dumps(shapes)]
    where = checkout.resolve()
    environment = os.environ | {"PYTHONPATH": str(where)}
    answer = subprocess.run(command, env=environment, cwd=where, capture_output=True, text=True, check=True).stdout
    lines = (Line(spec_text(GemmSpec()), (1, 1, 1), 1, text, 1.0, 0.0, 1, False, True) for text in json.loads(answer))
    return [line.measurement().schedule for line in lines]


def least(kernels: list[CompiledKernel], shape: Shape, clock: Callable[[], float]) -> list[float]:
    """The least time of each in turns, by a clock. Results are checked."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    right, times = a @ b, [list[float]() for _ in kernels]
    for _ in range(TURNS):
        for at in random.sample(range(len(kernels)), len(kernels)):
            c = np.full((m, n), np.nan, np.float32)
            begin = clock()
            kernels[at](a, b, c)
            times[at].append(clock() - begin)
            assert np.allclose(c, right, rtol=1e-3, atol=1e-3 * math.sqrt(k)), kernels[at].source.name
    return [min(each) for each in times]


def main() -> None:
    """A line for each shape, then the geometric means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("--platform", default="Intel")
    parser.add_argument("--shapes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=24)
    given = parser.parse_args()
    device, shapes = pick(type="cpu", platform=given.platform), drawn(given.shapes, given.seed)
    target, here = target_of(device.handle), Path(__file__).resolve().parents[1]
    ratios: list[tuple[float, float]] = []
    for shape, *both in zip(shapes, *(chosen(x, given.platform, shapes) for x in (given.before, here)), strict=True):
        kernels = [CompiledKernel.from_source(emit(GemmSpec(), s, "opencl", target), device) for s in both]
        wall, busy = (least(kernels, shape, clock) for clock in (time.perf_counter, time.process_time))
        ratios.append((wall[0] / wall[1], busy[0] / busy[1]))
        names = " -> ".join(f"{kernel.source.name} {us * 1e6:.0f} us" for kernel, us in zip(kernels, wall, strict=True))
        size, (by_clock, by_processors) = "x".join(map(str, shape)), ratios[-1]
        print(f"{size:16} {by_clock:.2f} by the clock, {by_processors:.2f} by processors: {names}", flush=True)
    geomean = np.exp(np.log(ratios).mean(0))
    print(f"{device}: {geomean[0]:.3f} times as fast by the clock, {geomean[1]:.3f} by processor time")


if __name__ == "__main__":
    main()
