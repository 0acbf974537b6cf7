"""Times presets and what the chooser's model puts first, at many shapes in little time, on this machine's GPU.

    python benchmarks/time_cuda.py --shapes 30 --seed 41 --dtype bfloat16 --timings rows.json
    python benchmarks/time_cuda.py --given 1024,6008x1152x48 --shapes 0 --dtype bfloat16 --timings rows.json

The rows are what `benchmarks/fit_waves.py` reads. Each shape: schedules whose estimate is within `--within` of the least
one's, one after the other in shuffled rounds, by replayed graphs of a millisecond or so; the median of the rounds.
Results are compared with torch's, roughly. All kernels are compiled beforehand, by processes side by side.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import presets, waves
from gemmgen.bench.records import parse_sizes
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.runtime import variants
from gemmgen.runtime.api import cuda_kernel
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Multiply-adds of a product at least: the launch alone is not to decide.
LEAST = 2**22
ROUNDS = 5
#: Microseconds of a replay, and launches in it at most.
REPLAY, MOST_LAUNCHES = 1500.0, 200
#: Of the candidates with the same tiles, so many are timed.
OF_TILE = 2
#: Multiply-adds up to which the smallest preset is timed, too.
SMALL = 2**25
#: Times the least time from which a schedule is timed but once.
FAR = 1.25

Shape = tuple[int, int, int]

# Shapes share most kernels.
variants.emit = cache(variants.emit)  # type: ignore[assignment]


@dataclass
class Runner:
    """A schedule's graph at a shape."""

    name: str
    graph: object
    count: int
    times: list[float]


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


def promised(spec: GemmSpec, schedule: Schedule, shape: Shape) -> GemmSpec:
    """What copies boxes has to be promised what these matrices keep; others find out for themselves."""
    return aligned(spec, shape) if schedule.by_warpgroups or schedule.boxes else spec


def aligned(spec: GemmSpec, shape: Shape) -> GemmSpec:
    """What matrices of this size, by rows without gaps, keep of promises."""
    unit = 16 // spec.dtype.size
    return spec if shape[1] % unit or shape[2] % unit else replace(spec, ld_multiple=unit)


def likely(spec: GemmSpec, shape: Shape, within: float, most: int) -> list[tuple[float, Schedule]]:
    """The presets of the type's kind, and of all candidates the first, each with its estimate."""
    asked, target = aligned(spec, shape), target_of(pick())
    found: dict[str, tuple[float, Schedule]] = {}

    def add(tile: waves.Tile, schedule: Schedule, limit: float) -> None:
        cost = sum(waves.account(asked, tile, schedule, shape, target).values())
        if cost <= limit and waves._runs(promised(spec, schedule, shape), schedule, target):
            found.setdefault(schedule.slug(), (cost, schedule))

    candidates = waves._candidates(asked, shape, target, 1)
    ranked = sorted(
        (sum(waves.account(asked, t, s, shape, target).values()), i, t, s) for i, (t, s) in enumerate(candidates)
    )
    of_tile: dict[str, int] = {}
    for cost, _, tile, schedule in ranked:
        if (
            len(found) < most
            and of_tile.get(tile.preset, 0) < OF_TILE
            and (not found or cost < within * min(found.values(), key=lambda x: x[0])[0])
        ):
            before = len(found)  # it may not run
            add(tile, schedule, float("inf"))
            of_tile[tile.preset] = of_tile.get(tile.preset, 0) + len(found) - before
    least = min(cost for cost, _ in found.values())
    for name in presets.names():
        schedule = presets.load(name).schedule
        tile = waves.tile_of(schedule)
        if tile and not schedule.atomic and (schedule.atom == waves.F32_ATOM) == (spec.dtype == waves.F32):
            add(tile, schedule, within * least)
    if shape[0] * shape[1] * shape[2] <= SMALL:
        found["naive_16x16"] = (10.0, presets.load("naive_16x16").schedule)
    return list(found.values())


def build(request: tuple[GemmSpec, Schedule, Shape]) -> None:
    """Compile what a product of these sizes runs, which stays on disk."""
    import torch

    spec, schedule, (m, n, k) = request
    try:
        kernel = cuda_kernel(promised(spec, schedule, (m, n, k)), schedule, pick())
        kind = getattr(torch, spec.dtype.name)
        a, b = (torch.empty(x, dtype=kind, device="cuda") for x in ((m, k), (k, n)))
        kernel(a, b)
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001  (said when it would be timed)
        pass


def requests(
    spec: GemmSpec, plan: list[tuple[Shape, list[tuple[float, Schedule]]]]
) -> Iterator[tuple[GemmSpec, Schedule, Shape]]:
    """One for each kernel of the plan."""
    known = set()
    for shape, schedules in plan:
        for _, schedule in schedules:
            units = (*schedule.block_tile, schedule.round_depth)
            whole = all(size % unit == 0 for size, unit in zip(shape, units, strict=True))
            kernel = (schedule, aligned(spec, shape), whole)
            if kernel not in known:
                known.add(kernel)
                yield spec, schedule, shape


def times(shape: Shape, spec: GemmSpec, schedules: list[tuple[float, Schedule]]) -> dict[str, float]:
    """Each schedule's microseconds."""
    import cupy
    import torch

    m, n, k = shape
    kind = getattr(torch, spec.dtype.name)
    a, b = (torch.randn(x, dtype=torch.float32, device="cuda").to(kind) for x in ((m, k), (k, n)))
    c, right = torch.empty((m, n), dtype=kind, device="cuda"), torch.matmul(a, b)
    stream = cupy.cuda.Stream(non_blocking=True)
    torch.cuda.synchronize()
    runners = []
    for cost, schedule in schedules:
        try:
            kernel = cuda_kernel(promised(spec, schedule, shape), schedule, pick())
            c.fill_(float("nan"))
            torch.cuda.synchronize()
            kernel(a, b, c, stream=stream)
            stream.synchronize()
            off = float((c - right).float().abs().max()) / (1e-6 + float(right.float().abs().max()))
            if not off < 0.02:
                print(f"# {schedule.slug()} is off by {off} at {shape}", flush=True)
                continue
            count = max(2, min(MOST_LAUNCHES, round(REPLAY / cost)))
            with stream:
                stream.begin_capture()
                for _ in range(count):
                    kernel(a, b, c, stream=stream)
                graph = stream.end_capture()
            runners.append((Runner(schedule.slug(), graph, count, []), kernel))
        except UserError as error:
            print(f"# {schedule.slug()} is left out: {str(error)[:150]}", flush=True)
    shuffle = random.Random(0)
    near = [runner for runner, _ in runners]
    for round_ in range(ROUNDS):
        shuffle.shuffle(near)
        for runner in near:
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            runner.graph.launch(stream)
            begin.record(stream)
            runner.graph.launch(stream)
            end.record(stream)
            end.synchronize()
            runner.times.append(float(cupy.cuda.get_elapsed_time(begin, end)) * 1e3 / runner.count)
        if not round_:
            least = min(runner.times[0] for runner in near)
            near = [runner for runner in near if runner.times[0] < FAR * least]
    return {runner.name: median(runner.times) for runner, _ in runners}


def main() -> None:
    """Time all shapes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--given", default="", help="shapes before the random ones: 1024x1024x1024,6008x1152x48")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--most", type=int, default=36, help="log2 of a product's multiply-adds, at most")
    parser.add_argument("--within", type=float, default=2.0, help="times the least estimate")
    parser.add_argument("--first", type=int, default=8, help="of the model's candidates")
    parser.add_argument("--timings", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    parser.add_argument("--jobs", type=int, default=15, help="processes that compile, before anything is timed")
    arguments, begin = parser.parse_args(), time.perf_counter()
    spec = GemmSpec(dtype=MATRIX_DTYPES[arguments.dtype])
    wanted = [(size.m, size.n, size.k) for size in parse_sizes(arguments.given)] if arguments.given else []
    wanted += shapes(arguments.shapes, arguments.seed, arguments.most)
    plan = [(shape, likely(spec, shape, arguments.within, arguments.first)) for shape in wanted]
    asked = list(requests(spec, plan))
    with get_context("spawn").Pool(arguments.jobs) as pool:
        pool.map(build, asked, chunksize=1)
    print(f"# {len(asked)} kernels within {time.perf_counter() - begin:.0f} s", flush=True)
    kept = []
    for shape, schedules in plan:
        if time.perf_counter() - begin > arguments.seconds:
            break
        found = times(shape, spec, schedules)
        kept.append(
            {"shape": shape, "dtype": arguments.dtype, "us": {name: round(us, 3) for name, us in found.items()}}
        )
        arguments.timings.write_text(json.dumps(kept), encoding="utf-8")
    print(
        f"# {len(kept)} of {len(plan)} shapes, {sum(len(x['us']) for x in kept)} times, {time.perf_counter() - begin:.0f} s"
    )


if __name__ == "__main__":
    main()
