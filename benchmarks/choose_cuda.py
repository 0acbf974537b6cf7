"""What `gemmgen.choose` names for shapes that nobody tuned for, beside every preset of its kind, on this machine's GPU.

    python benchmarks/choose_cuda.py --shapes 40 --seed 7 > chosen.txt
    python benchmarks/choose_cuda.py --shapes 40 --seed 7 --dtype bfloat16
    python benchmarks/choose_cuda.py --shapes 30 --seed 101 --most 33 --unchosen --timings tuning.json

The last is what `gemmgen/waves.toml` is fitted to: presets alone, at other shapes, their times kept.

Each shape: one schedule after the other in shuffled rounds, by replayed graphs; those that a few launches have found to
be much slower than the fastest one are not timed any further. The ratio is the best preset's time to the chosen
schedule's, at most 1 where that is no better.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import driver, presets
from gemmgen.api.compile import cuda_kernel
from gemmgen.bench.gpu import GpuProblem, Graphed, ours
from gemmgen.bench.measure import measure
from gemmgen.bench.records import Size
from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.methods import slug
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Multiply-adds of a product at least, and the logarithm of their number at most: neither the launch nor patience is to
#: decide.
LEAST, MOST = 2**24, 38
ROUNDS = 3
#: Times the fastest one's estimate from which a schedule is not timed any further, and seconds from which an estimate,
#: of a graph of few launches, is good enough to be told.
FAR, TELLING = 1.4, 100e-6

Shape = tuple[int, int, int]

# Shapes share most kernels.
driver.emit = cache(driver.emit)  # type: ignore[assignment]


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
    return aligned(spec, Size(*shape)) if schedule.by_warpgroups or schedule.boxes else spec


def contenders(spec: GemmSpec, problem: GpuProblem, shape: Shape, schedules: list[Schedule]) -> list[Graphed]:
    """Those that can compute it."""
    found = []
    for schedule in schedules:
        try:
            found.append(ours(problem, promised(spec, schedule, shape), schedule))
        except UserError as error:
            print(f"# {slug(schedule)} is left out: {str(error)[:150]}", file=sys.stderr)
    return found


def build(request: tuple[GemmSpec, Schedule, Shape]) -> None:
    """Compile what a product of these sizes runs, which stays on disk."""
    import cupy

    spec, schedule, (m, n, k) = request
    try:
        kernel = cuda_kernel(promised(spec, schedule, (m, n, k)), schedule, pick())
        if spec.dtype.name == "bfloat16":
            import torch

            a, b = (torch.empty(x, dtype=torch.bfloat16, device="cuda") for x in ((m, k), (k, n)))
            kernel(a, b)
        else:
            a, b = (cupy.empty(x, spec.dtype.name) for x in ((m, k), (k, n)))
            kernel(a, b)
    except Exception:  # noqa: BLE001  (said when it would be timed)
        pass


def requests(spec: GemmSpec, plan: list[tuple[Shape, list[Schedule]]]) -> Iterator[tuple[GemmSpec, Schedule, Shape]]:
    """One for each kernel of the plan."""
    known = set()
    for shape, schedules in plan:
        for schedule in schedules:
            units = (*schedule.block_tile, schedule.round_depth)
            whole = all(size % unit == 0 for size, unit in zip(shape, units, strict=True))
            kernel = (schedule, aligned(spec, Size(*shape)), whole)
            if kernel not in known:
                known.add(kernel)
                yield spec, schedule, shape


def aligned(spec: GemmSpec, size: Size) -> GemmSpec:
    """What matrices of this size, by rows without gaps, keep of promises."""
    unit = 16 // spec.dtype.size
    return spec if size.n % unit or size.k % unit else replace(spec, ld_multiple=unit)


def times(shape: Shape, spec: GemmSpec, schedules: list[Schedule], gpu: CudaDeviceInfo) -> dict[str, float]:
    """Each schedule that can compute it and its microseconds, as far as that is known."""
    problem = GpuProblem(Size(*shape), spec.dtype.name, 1, gpu, spec.result.name)
    runners = contenders(spec, problem, shape, schedules)
    # The chosen schedule, if there is one, and the best of the others are timed however far ahead somebody is.
    best = sorted(runners, key=lambda runner: runner.estimate)[:2]
    near = [x for x in runners if x.estimate < FAR * best[0].estimate or x in best or x is runners[0]]
    told = {x.name: x.estimate * 1e6 for x in runners if x not in near and x.estimate > TELLING}
    found = {timing.name: timing.seconds * 1e6 for timing in measure(near, ROUNDS)}
    for runner in runners:
        runner.close()
    return found | told


def report(shape: Shape, found: dict[str, float], chosen: str, others: list[Schedule]) -> float:
    """Prints a row; the best preset's time as a part of the chosen schedule's."""
    mine = found[chosen]
    best, least = min(((slug(s), found[slug(s)]) for s in others if slug(s) in found), key=lambda x: x[1])
    ratio = min(1.0, least / mine)
    size = "x".join(map(str, shape))
    print(f"{ratio:.3f}  {size}  {chosen} {mine:.1f} us, best {best} {least:.1f} us", flush=True)
    return ratio


def main() -> None:
    """Check all shapes and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--most", type=int, default=MOST, help="log2 of a product's multiply-adds, at most")
    parser.add_argument("--unchosen", action="store_true", help="presets alone")
    parser.add_argument("--timings", type=Path, help="a file for every schedule's time")
    parser.add_argument("--first", type=int, default=0, help="so many shapes are left out")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    parser.add_argument("--jobs", type=int, default=0, help="processes that compile, before anything is timed")
    arguments, begin = parser.parse_args(), time.perf_counter()
    spec = GemmSpec(dtype=MATRIX_DTYPES[arguments.dtype])
    kind = (
        ("mbarrier_", "async_") if arguments.dtype == "float32" else ("mma_4", "mma_8", "wgmma_1", "wgmma_2", "wgmma_6")
    )
    named = [name for name in presets.names() if name.startswith(kind) and "atomic" not in name]
    others = [presets.load(name).schedule for name in named]
    gpu = pick()
    plan: list[tuple[Shape, list[Schedule]]] = []
    for shape in shapes(arguments.shapes, arguments.seed, arguments.most)[arguments.first :]:
        chosen = [] if arguments.unchosen else [choose(aligned(spec, Size(*shape)), shape, target_of(gpu))]
        plan.append((shape, [*chosen, *(x for x in others if x not in chosen)]))
    if arguments.jobs:
        with get_context("spawn").Pool(arguments.jobs) as pool:
            pool.map(build, requests(spec, plan), chunksize=1)
        print(f"# compiled within {time.perf_counter() - begin:.0f} s", file=sys.stderr)
    ratios, kept = [], []
    for shape, schedules in plan:
        if time.perf_counter() - begin > arguments.seconds:
            break
        found = times(shape, spec, schedules, gpu)
        chosen_name = None if arguments.unchosen else slug(schedules[0])
        kept.append({"shape": shape, "dtype": arguments.dtype, "us": found, "chosen": chosen_name})
        ratios += [report(shape, found, chosen_name, others)] if chosen_name else []
        if arguments.timings:
            arguments.timings.write_text(json.dumps(kept), encoding="utf-8")
    if ratios:
        print(f"{gpu}; {len(ratios)} shapes: median {median(ratios):.3f}, worst {min(ratios):.3f}")


if __name__ == "__main__":
    main()
