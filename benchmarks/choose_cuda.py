"""What `gemmgen.choose` names for shapes that nobody tuned for, beside every preset of its kind, on this machine's GPU.

    python benchmarks/choose_cuda.py --shapes 40 --seed 7 > chosen.txt
    python benchmarks/choose_cuda.py --shapes 40 --seed 7 --dtype bfloat16
    python benchmarks/choose_cuda.py --shapes 30 --seed 101 --most 33 --unchosen --timings tuning.json

The last is what `gemmgen/waves.toml` is fitted to: presets alone, at other shapes, their times kept.

Each shape: one schedule after the other in shuffled rounds, by replayed graphs. The ratio is the best preset's time to
the chosen schedule's, at most 1 where that is no better.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import presets
from gemmgen.bench.gpu import GpuProblem, Graphed, ours
from gemmgen.bench.measure import measure
from gemmgen.bench.records import Size
from gemmgen.choose import choose
from gemmgen.errors import UserError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Multiply-adds of a product at least, and the logarithm of their number at most: neither the launch nor patience is to
#: decide.
LEAST, MOST = 2**24, 38
ROUNDS = 5


def shapes(count: int, seed: int, most: int) -> list[tuple[int, int, int]]:
    """Sizes whose logarithms are even, half of them multiples of 8."""
    rng = random.Random(seed)
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        m, n, k = (max(1, round(2 ** rng.uniform(3, 14))) for _ in range(3))
        if len(found) % 2:
            m, n, k = (-(-x // 8) * 8 for x in (m, n, k))
        if LEAST <= m * n * k <= 2**most:
            found.append((m, n, k))
    return found


def contenders(spec: GemmSpec, problem: GpuProblem, schedules: list[Schedule]) -> list[Graphed]:
    """Those that can compute it."""
    found = []
    for schedule in schedules:
        # What copies boxes has to be promised what these matrices keep; others find out for themselves.
        own = aligned(spec, problem.size) if schedule.by_warpgroups else spec
        try:
            found.append(ours(problem, own, schedule))
        except UserError as error:
            print(f"# {schedule.slug()} is left out: {error}", file=sys.stderr)
    return found


def aligned(spec: GemmSpec, size: Size) -> GemmSpec:
    """What matrices of this size, by rows without gaps, keep of promises."""
    unit = 16 // spec.dtype.size
    return spec if size.n % unit or size.k % unit else replace(spec, ld_multiple=unit)


def times(
    shape: tuple[int, int, int], spec: GemmSpec, schedules: list[Schedule], gpu: CudaDeviceInfo
) -> list[tuple[str, float]]:
    """Each schedule that can compute it and its microseconds."""
    problem = GpuProblem(Size(*shape), spec.dtype.name, 1, gpu, spec.result.name)
    runners = contenders(spec, problem, schedules)
    found = [(timing.name, timing.seconds * 1e6) for timing in measure(runners, ROUNDS)]
    for runner in runners:
        runner.close()
    return found


def report(shape: tuple[int, int, int], found: list[tuple[str, float]]) -> float:
    """Prints a row; the best preset's time as a part of the first, the chosen schedule's."""
    (chosen, mine), *rest = found
    best, least = min(rest, key=lambda x: x[1])
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
    arguments = parser.parse_args()
    spec, gpu = GemmSpec(dtype=MATRIX_DTYPES[arguments.dtype]), pick()
    kind = (
        ("mbarrier_", "async_") if arguments.dtype == "float32" else ("mma_4", "mma_8", "wgmma_1", "wgmma_2", "wgmma_6")
    )
    named = [name for name in presets.names() if name.startswith(kind) and "atomic" not in name]
    others = [presets.load(name).schedule for name in named]
    ratios, kept = [], []
    for shape in shapes(arguments.shapes, arguments.seed, arguments.most):
        chosen = [] if arguments.unchosen else [choose(aligned(spec, Size(*shape)), shape, target_of(gpu))]
        found = times(shape, spec, [*chosen, *others], gpu)
        kept.append({"shape": shape, "dtype": arguments.dtype, "us": dict(found)})
        ratios += [report(shape, found)] if chosen else []
        if arguments.timings:
            arguments.timings.write_text(json.dumps(kept), encoding="utf-8")
    if ratios:
        print(f"{gpu}; {len(ratios)} shapes: median {median(ratios):.3f}, worst {min(ratios):.3f}")


if __name__ == "__main__":
    main()
