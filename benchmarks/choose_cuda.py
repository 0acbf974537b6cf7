"""What `gemmgen.choose` names for shapes that nobody tuned for, beside every preset of its kind, on this machine's GPU.

    python benchmarks/choose_cuda.py --shapes 40 --seed 7 > chosen.txt
    python benchmarks/choose_cuda.py --shapes 40 --seed 7 --dtype bfloat16

Each shape: one schedule after the other in shuffled rounds, by replayed graphs. The ratio is the best preset's time to
the chosen schedule's, at most 1 where that is no better.
"""

from __future__ import annotations

import argparse
import random
import sys
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

#: Multiply-adds of a product at least and at most, so that neither the launch nor patience decides.
LEAST, MOST = 2**24, 2**38
ROUNDS = 5


def shapes(count: int, seed: int) -> list[tuple[int, int, int]]:
    """Sizes whose logarithms are even, half of them multiples of 8."""
    rng = random.Random(seed)
    found: list[tuple[int, int, int]] = []
    while len(found) < count:
        m, n, k = (max(1, round(2 ** rng.uniform(3, 14))) for _ in range(3))
        if len(found) % 2:
            m, n, k = (-(-x // 8) * 8 for x in (m, n, k))
        if LEAST <= m * n * k <= MOST:
            found.append((m, n, k))
    return found


def contenders(spec: GemmSpec, problem: GpuProblem, schedules: list[Schedule]) -> list[Graphed]:
    """Those that can compute it."""
    found = []
    for schedule in schedules:
        try:
            found.append(ours(problem, spec, schedule))
        except UserError as error:
            print(f"# {schedule.slug()} is left out: {error}", file=sys.stderr)
    return found


def check(shape: tuple[int, int, int], spec: GemmSpec, others: list[Schedule], gpu: CudaDeviceInfo) -> float:
    """Prints a row; the best preset's time as a part of the chosen schedule's."""
    m, n, k = shape
    problem = GpuProblem(Size(m, n, k), spec.dtype.name, 1, gpu, spec.result.name)
    chosen = choose(spec, shape, target_of(gpu))
    runners = contenders(spec, problem, [chosen, *others])
    mine, *rest = [(timing.seconds * 1e6, timing.name) for timing in measure(runners, ROUNDS)]
    for runner in runners:
        runner.close()
    best = min(rest)
    ratio = min(1.0, best[0] / mine[0])
    print(f"{ratio:.3f}  {m}x{n}x{k}  {mine[1]} {mine[0]:.1f} us, best {best[1]} {best[0]:.1f} us", flush=True)
    return ratio


def main() -> None:
    """Check all shapes and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    arguments = parser.parse_args()
    spec, gpu = GemmSpec(dtype=MATRIX_DTYPES[arguments.dtype]), pick()
    kind = ("mbarrier_", "async_") if arguments.dtype == "float32" else ("mma_4", "mma_8")
    named = [name for name in presets.names() if name.startswith(kind) and "atomic" not in name]
    others = [presets.load(name).schedule for name in named]
    ratios = [check(shape, spec, others, gpu) for shape in shapes(arguments.shapes, arguments.seed)]
    print(f"{gpu}; {len(ratios)} shapes: median {median(ratios):.3f}, worst {min(ratios):.3f}")


if __name__ == "__main__":
    main()
