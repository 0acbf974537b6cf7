"""What `gemmgen.choose` names for shapes that nobody tuned for, beside others of its kind, on this machine's CPU.

    python benchmarks/choose_cpu.py --shapes 30 --seed 31 > chosen.txt
    python benchmarks/choose_cpu.py --sizes 1x1000000x3,8192x1x8192,1000 --others 40
    python benchmarks/choose_cpu.py --thin --b-order col

Beside the chosen schedule: the presets `cpu_*` that the device can run, and the `--others` that the model likes best,
no two of one tile, depth, way to B and sharing out. All in rounds of shuffled order, on NumPy's arrays, by the clock
around a call; a schedule's time is the median of rounds, the ratio the best one's time to the chosen one's, at most 1.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from gemmgen import candidates
from gemmgen.bench.records import parse_sizes
from gemmgen.choose import choose
from gemmgen.cpu import panels
from gemmgen.driver import emit
from gemmgen.errors import UserError
from gemmgen.ir.target import Target
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, parse_dtype

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


Shape = tuple[int, int, int]
ROUNDS = 7
#: Seconds of a schedule's turn.
TURN = 0.012


def thin_shapes(count: int, seed: int) -> list[Shape]:
    """C of up to 16 rows, and of up to 16 columns, in turn; the other sizes from 100 to 6000."""
    rng = random.Random(seed)
    shapes: list[Shape] = []
    for index in range(count):
        thin = int(math.exp(rng.uniform(0, math.log(17))))
        wide, k = (int(math.exp(rng.uniform(math.log(100), math.log(6000)))) for _ in "mk")
        shapes.append((thin, wide, k) if index % 2 else (wide, thin, k))
    return shapes


def random_shapes(count: int, seed: int) -> list[Shape]:
    """Sizes from 60 to 2600 whose logarithms are even."""
    rng = random.Random(seed)
    return [
        (sizes[0], sizes[1], sizes[2])
        for sizes in ([int(math.exp(rng.uniform(math.log(60), math.log(2600)))) for _ in "mnk"] for _ in range(count))
    ]


def contenders(spec: GemmSpec, shape: Shape, target: Target, count: int) -> list[Schedule]:
    """The chosen one first; then presets, then what the model likes."""
    named = [candidates.load(name) for name in candidates.names() if name.startswith("cpu_")]
    found = [choose(spec, shape, target), *(p.schedule for p in named if p.spec.dtype == spec.dtype)]
    return list(dict.fromkeys([*found, *panels.liked(spec, shape, target, count)]))


def timed(kernels: list[CompiledKernel], spec: GemmSpec, shape: Shape) -> list[float]:
    """The seconds of each."""
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size).astype(spec.dtype.name) for size in ((m, k), (k, n)))
    b = np.asfortranarray(b) if spec.b_order == "col" else b
    c, right = np.empty((m, n), spec.dtype.name), a.astype(np.float64) @ b
    once: list[float] = []
    for kernel in kernels:
        c[:] = np.nan
        kernel(a, b, c)
        assert np.allclose(c, right, rtol=1e-3, atol=1e-3 * math.sqrt(k)), kernel.source.name
        begin = time.perf_counter()
        kernel(a, b, c)
        once.append(time.perf_counter() - begin)
    rounds: list[list[float]] = [[] for _ in kernels]
    for _ in range(ROUNDS):
        for at in random.sample(range(len(kernels)), len(kernels)):
            count = max(2, int(TURN / once[at]))
            kernels[at](a, b, c)
            begin = time.perf_counter()
            for _ in range(count):
                kernels[at](a, b, c)
            rounds[at].append((time.perf_counter() - begin) / count)
    return [median(times) for times in rounds]


def check(shape: Shape, spec: GemmSpec, device: DeviceInfo, count: int, show: bool) -> float:
    """Prints a row; the best one's time as a part of the chosen schedule's."""
    target = target_of(device.handle)
    kernels: dict[str, CompiledKernel] = {}
    for schedule in contenders(spec, shape, target, count):
        try:
            kernels[kernel_name(schedule, spec)] = CompiledKernel.from_source(
                emit(spec, schedule, "opencl", target), device
            )
        except UserError as error:
            print(f"# {kernel_name(schedule, spec)} is left out: {error}", file=sys.stderr)
    times = dict(zip(kernels, timed(list(kernels.values()), spec, shape), strict=True))
    mine = next(iter(times))
    best = min(times, key=lambda name: times[name])
    ratio, flops = times[best] / times[mine], 2 * math.prod(shape)
    speed = {name: f"{seconds * 1e6:.1f} us ({flops / seconds / 1e9:.0f} GFLOP/s)" for name, seconds in times.items()}
    size = "x".join(map(str, shape))
    print(f"{ratio:.3f}  {size}  {mine} {speed[mine]}, best {best} {speed[best]}", flush=True)
    if show:
        for name in sorted(times, key=lambda name: times[name]):
            print(f"       {name} {speed[name]}")
    return ratio


def main() -> None:
    """Check all shapes and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--sizes", default="", help="these, MxNxK, in place of random ones")
    parser.add_argument("--others", type=int, default=9)
    parser.add_argument("--thin", action="store_true", help="random ones of few rows or columns of C")
    parser.add_argument("--b-order", default="row", choices=("row", "col"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--platform", default="Intel")
    parser.add_argument("--show", action="store_true", help="every schedule's time")
    arguments = parser.parse_args()
    device = pick(platform=arguments.platform, type="cpu")
    spec = replace(GemmSpec(), dtype=parse_dtype(arguments.dtype), b_order=arguments.b_order)
    given = parse_sizes(arguments.sizes) if arguments.sizes else ()
    at_random = thin_shapes if arguments.thin else random_shapes
    shapes = [(s.m, s.n, s.k) for s in given] or at_random(arguments.shapes, arguments.seed)
    ratios = [check(shape, spec, device, arguments.others, arguments.show) for shape in shapes]
    good = sum(ratio >= 0.97 for ratio in ratios)
    print(
        f"{device}; {len(ratios)} shapes: median {median(ratios):.3f}, at least 0.97 on {good}, worst {min(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
