"""What `gemmgen.choose` names for shapes that nobody tuned for, beside every preset of its kind, on this machine's GPU.

    python benchmarks/choose_cuda.py --shapes 40 --seed 7 > chosen.txt
    python benchmarks/choose_cuda.py --shapes 40 --seed 7 --dtype bfloat16 --timings rows.json
    python benchmarks/choose_cuda.py --shapes 0 --given 1024,6008x1152x48 --dtype bfloat16 --more 8 --timings rows.json

Times that are kept are what `benchmarks/prior_regret.py` reads; `--more` has them of what the prior puts next, too.

Each shape: one schedule after the other in shuffled rounds, by replayed graphs, each replayed before to warm up; those
that the first round has found to be much slower than the fastest one are not timed any further. The ratio is the best
preset's time to the chosen schedule's, at most 1 where that is no better; where they are close the two are timed again.
Results are compared with torch's, roughly. All kernels are compiled beforehand, by processes side by side.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates, driver
from gemmgen.api.compile import cuda_kernel
from gemmgen.bench.records import parse_sizes
from gemmgen.choice import gpu, prior
from gemmgen.choice.machine import machine_of
from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.ir.target import Target
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import is_possible
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Multiply-adds of a product at least, and the logarithm of their number at most: neither the launch nor patience is to
#: decide.
LEAST, MOST = 2**24, 36
ROUNDS, AGAIN = 5, 12
#: Microseconds of a replay, and launches in it at most; of products that take long longer ones, since a card that is
#: limited by its power takes as long to settle.
REPLAY, MOST_LAUNCHES, LONG, SETTLING = 1500.0, 200, 80.0, 8000.0
#: Times the chosen one's estimate from which a preset is not tried; times the least time from which a schedule is timed
#: but once, and up to which the two that decide are timed again.
HOPELESS, FAR, CLOSE = 5.0, 1.25, 1.06
#: Of the model's candidates with the same tiles, so many are timed.
OF_TILE = 2
#: The presets that compete, by what their names begin with; naive ones only where the model names them.
KINDS = ("mbarrier_", "async_", "mma_", "wgmma_")
#: How far an element may be off, of the largest one: a coarse sieve; `gemmgen run --validate` is the fine one.
OFF = 0.02

Shape = tuple[int, int, int]

# Shapes share most kernels.
driver.emit = cache(driver.emit)  # type: ignore[assignment]


class Graph(Protocol):
    """What is used of a `cupy.cuda.Graph`."""

    def launch(self, stream: object) -> None: ...


@dataclass
class Runner:
    """A schedule at a shape, captured some times in a graph; `kernel` has the memory that the graph knows of."""

    name: str
    graph: Graph
    count: int
    stream: object
    kernel: object
    times: list[float] = field(default_factory=list)

    def replay(self) -> None:
        """Once to warm up, once timed."""
        import cupy

        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        self.graph.launch(self.stream)
        begin.record(self.stream)
        self.graph.launch(self.stream)
        end.record(self.stream)
        end.synchronize()
        self.times.append(float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / self.count)


# --- what is timed --------------------------------------------------------------------------------


def shapes(count: int, seed: int, most: int) -> list[Shape]:
    """Sizes whose logarithms are even, half of them multiples of 8."""
    rng = random.Random(seed)
    found: list[Shape] = []
    while len(found) < count:
        m, n, k = (max(1, round(2 ** rng.uniform(3, 14))) for _ in range(3))
        if len(found) % 2:
            m, n, k = (-(-x // 8) * 8 for x in (m, n, k))
        if LEAST <= m * n * k <= 2**most:
            found.append((m, n, k))
    return found


def aligned(spec: GemmSpec, shape: Shape) -> GemmSpec:
    """What matrices of this size, by rows without gaps, can be assumed to have: as `ld_multiple`."""
    unit = 16 // spec.dtype.size
    return spec if shape[1] % unit or shape[2] % unit else replace(spec, ld_multiple=unit)


def with_assumptions(spec: GemmSpec, schedule: Schedule, shape: Shape) -> GemmSpec:
    """TMA needs assumptions, which these matrices meet; other kernels find out for themselves."""
    return aligned(spec, shape) if schedule.by_warpgroups or schedule.tma else spec


def rivals(spec: GemmSpec, shape: Shape, target: Target) -> list[Schedule]:
    """The presets that could have been chosen."""
    names = [name for name in candidates.names() if name.startswith(KINDS) and "atomic" not in name]
    found = [candidates.load(name).schedule for name in names]
    return [x for x in found if is_possible(with_assumptions(spec, x, shape), x, target)]


def likely(spec: GemmSpec, shape: Shape, target: Target, count: int) -> list[Schedule]:
    """What the model puts first."""
    found: dict[tuple[int, int], list[Schedule]] = {}
    for _, schedule in gpu.ranked(aligned(spec, shape), shape, target):
        same = found.setdefault(schedule.block_tile, [])
        if sum(map(len, found.values())) < count and len(same) < OF_TILE:
            same.append(schedule)
    return [x for same in found.values() for x in same]


def contenders(spec: GemmSpec, shape: Shape, more: int) -> list[Schedule]:
    """What is chosen, and then others, none of them twice."""
    target = target_of(pick())
    chosen = choose(aligned(spec, shape), shape, target)
    most = HOPELESS * guessed(spec, chosen, shape)
    others = [x for x in rivals(spec, shape, target) if guessed(spec, x, shape) < most]
    others += likely(spec, shape, target, more)
    return list({kernel_name(x, spec): x for x in (chosen, *others)}.values())


# --- compiling and timing -------------------------------------------------------------------------


def build(request: tuple[GemmSpec, Schedule, Shape]) -> None:
    """Compile what a product of these sizes runs, which stays on disk."""
    import torch

    spec, schedule, (m, n, k) = request
    with suppress(Exception):  # said when it would be timed
        kernel = cuda_kernel(with_assumptions(spec, schedule, (m, n, k)), schedule, pick())
        kind = getattr(torch, spec.dtype.name)
        kernel(*(torch.empty(x, dtype=kind, device="cuda") for x in ((m, k), (k, n))))
        torch.cuda.synchronize()


def requests(spec: GemmSpec, plan: list[tuple[Shape, list[Schedule]]]) -> Iterator[tuple[GemmSpec, Schedule, Shape]]:
    """One for each kernel of the plan."""
    known = set()
    for shape, schedules in plan:
        for schedule in schedules:
            units = (*schedule.block_tile, schedule.round_depth)
            whole = all(size % unit == 0 for size, unit in zip(shape, units, strict=True))
            kernel = (schedule, aligned(spec, shape), whole)
            if kernel not in known:
                known.add(kernel)
                yield spec, schedule, shape


def runners(spec: GemmSpec, shape: Shape, schedules: list[Schedule]) -> Iterator[Runner]:
    """Those that can compute it, checked and captured."""
    import cupy
    import torch

    m, n, k = shape
    kind = getattr(torch, spec.dtype.name)
    a, b = (torch.randn(x, dtype=torch.float32, device="cuda").to(kind) for x in ((m, k), (k, n)))
    c, right = torch.empty((m, n), dtype=kind, device="cuda"), torch.matmul(a, b).float()
    most, stream = float(right.abs().max()), cupy.cuda.Stream(non_blocking=True)
    for schedule in schedules:
        try:
            kernel = cuda_kernel(with_assumptions(spec, schedule, shape), schedule, pick())
            c.fill_(float("nan"))
            torch.cuda.synchronize()
            kernel(a, b, c, stream=stream)
            stream.synchronize()
        except UserError as error:
            print(f"# {kernel_name(schedule, spec)} is left out: {str(error)[:150]}", file=sys.stderr)
            continue
        if not float((c.float() - right).abs().max()) < OFF * most:
            print(f"# {kernel_name(schedule, spec)} is wrong at {shape}", flush=True)
            continue
        guess = guessed(spec, schedule, shape)
        count = max(2, min(MOST_LAUNCHES, round((SETTLING if guess > LONG else REPLAY) / guess)))
        with stream:
            stream.begin_capture()
            for _ in range(count):
                kernel(a, b, c, stream=stream)
            graph = stream.end_capture()
        yield Runner(kernel_name(schedule, spec), graph, count, stream, kernel)


def guessed(spec: GemmSpec, schedule: Schedule, shape: Shape) -> float:
    """The prior's microseconds."""
    (cost,) = prior.costs(aligned(spec, shape), [schedule], shape, machine_of(target_of(pick())))
    return cost


def times(found: list[Runner], rounds: int) -> dict[str, float]:
    """Each one's microseconds."""
    shuffle, near = random.Random(0), found
    for number in range(rounds):
        shuffle.shuffle(near := list(near))
        for runner in near:
            runner.replay()
        if not number:
            least = min(runner.times[-1] for runner in near)
            near = [x for x in near if x.times[-1] < FAR * least]
    return {runner.name: median(runner.times) for runner in found}


def compare(shape: Shape, found: list[Runner], us: dict[str, float]) -> float:
    """Prints a row, the two that decide timed again where they are close; the best preset's time by the chosen one's.
    Where all presets are hopeless, the chosen one stands for them.
    """
    chosen = found[0]
    best = min((x for x in found if x.name in candidates.names()), key=lambda x: us[x.name], default=chosen)
    if chosen is not best and us[best.name] < us[chosen.name] < CLOSE * us[best.name]:
        for runner in (chosen, best):
            runner.times.clear()
        us |= times([chosen, best], AGAIN)
    ratio = min(1.0, us[best.name] / us[chosen.name])
    size = "x".join(map(str, shape))
    print(f"{ratio:.3f}  {size}  {chosen.name} {us[chosen.name]:.2f}, {best.name} {us[best.name]:.2f}", flush=True)
    return ratio


def main() -> None:
    """Check all shapes and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--given", default="", help="shapes before the random ones, as for gemmgen bench --sizes")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--most", type=int, default=MOST, help="log2 of a product's multiply-adds, at most")
    parser.add_argument("--more", type=int, default=0, help="so many of the model's candidates are timed as well")
    parser.add_argument("--timings", type=Path, help="a file for every schedule's time")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    parser.add_argument("--jobs", type=int, default=15, help="processes that compile, before anything is timed")
    arguments, begin = parser.parse_args(), time.perf_counter()
    spec = GemmSpec(dtype=MATRIX_DTYPES[arguments.dtype])
    wanted = [(x.m, x.n, x.k) for x in parse_sizes(arguments.given)] if arguments.given else []
    wanted += shapes(arguments.shapes, arguments.seed, arguments.most)
    plan = [(shape, contenders(spec, shape, arguments.more)) for shape in wanted]
    with get_context("spawn").Pool(arguments.jobs) as pool:
        pool.map(build, requests(spec, plan), chunksize=1)
    print(f"# compiled within {time.perf_counter() - begin:.0f} s", flush=True)
    ratios, kept = [], []
    for shape, schedules in plan:
        if time.perf_counter() - begin > arguments.seconds:
            break
        found = list(runners(spec, shape, schedules))
        us = times(found, ROUNDS)
        ratios.append(compare(shape, found, us))
        us = {name: round(time, 3) for name, time in us.items()}
        kept.append({"shape": shape, "dtype": arguments.dtype, "us": us, "chosen": found[0].name})
        if arguments.timings:
            arguments.timings.write_text(json.dumps(kept), encoding="utf-8")
    within = sum(ratio >= 0.97 for ratio in ratios)
    told = f"within 3 % at {within} of {len(ratios)} shapes, median {median(ratios):.3f}, worst {min(ratios):.3f}"
    print(f"{pick()}; {arguments.dtype}, seed {arguments.seed}: {told}; {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
