"""Shapes that nobody tuned for, drawn by a seed: the untuned choice, what tuning finds, and two libraries.

    python benchmarks/tuning_drawn.py --seed 1 --count 12 --seconds 20 -o benchmarks/results/tuning_drawn.csv

Each shape is tuned for so many seconds from nothing: no records are read or kept. Then all take turns, as in
`gemmgen bench`: the CPU's own libraries in processes of their own. The least of the rounds counts, so that what else
runs on the machine disturbs as little as can be.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from gemmgen.bench.libraries import PeerProcess
from gemmgen.bench.opencl import OpenclKernel
from gemmgen.bench.records import Size
from gemmgen.bench.session import Contender, measure
from gemmgen.choose import choose
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.selection import pick
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import key_of
from gemmgen.tuning.runners import LocalRunner
from gemmgen.tuning.study import Place, Product, Search

#: Widths of layers are multiples of these, or odd.
UNITS = (8, 16, 32, 64, 128, 1)
#: Multiply-adds of a product, at least and at most: a call's own time, and what a CPU computes in a tenth of a second.
LEAST, MOST = 2**20, 2**32
PEERS = ("mkl", "numpy")


def drawn(seed: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Sizes: rows from 1 to 4096, widths and depths from 64 to 4096, each about as often in each power of two."""
    draw = random.Random(seed)
    found = 0
    while found < count:
        rows = round(2 ** draw.uniform(0, 12))
        sizes = [max(64, round(2 ** draw.uniform(6, 12) / unit) * unit) for unit in draw.choices(UNITS, k=2)]
        shape = rows, sizes[0], sizes[1]
        if LEAST <= math.prod(shape) <= MOST:
            found += 1
            yield shape


def main() -> None:
    """Measure, and write a row a shape."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--device")
    parser.add_argument("-o", "--output", type=Path, required=True)
    said = parser.parse_args()
    spec, device = GemmSpec(), pick("opencl", device=said.device)
    place = Place("opencl", device.number, device.target, key_of("opencl", device, device.target))
    runner = LocalRunner(is_alone=True)
    head = ("shape", "trials", "untuned_ms", "tuned_ms", "mkl_ms", "openblas_ms", "untuned", "tuned")
    ratios: dict[str, list[float]] = {name: [] for name in ("untuned/tuned", "mkl/tuned", "mkl/untuned")}
    with said.output.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(head)
        for m, n, k in drawn(said.seed, said.count):
            untuned = choose(spec, (m, n, k), device.target).but(name=None)
            progress = Search(runner, place, Product(spec, (m, n, k))).run(said.seconds)
            tuned = progress.schedule or untuned
            size = Size(m, n, k)
            with ExitStack() as stack:
                own = [OpenclKernel(size, spec, each, device, 0) for each in (untuned, tuned)]
                contenders: list[Contender] = [*own, *(PeerProcess(name, size, spec.dtype.name, 0) for name in PEERS)]
                for each in contenders:
                    stack.callback(each.close)
                times = [min(timing.rounds) * 1e3 for timing in measure(contenders, said.rounds)]
            ours, best, mkl, _ = times
            for name, ratio in zip(ratios, (ours / best, mkl / best, mkl / ours), strict=True):
                ratios[name].append(ratio)
            figures = [f"{x:.4g}" for x in times]
            rows.writerow(
                [f"{m}x{n}x{k}", progress.trials, *figures, kernel_name(untuned, spec), kernel_name(tuned, spec)]
            )
            file.flush()
            sys.stdout.write(f"{m}x{n}x{k}: {progress.trials} trials, {' '.join(figures)}\n")
            sys.stdout.flush()
    runner.close()
    for name, all_of in ratios.items():
        mean = math.exp(sum(map(math.log, all_of)) / len(all_of))
        sys.stdout.write(f"{name}: geometric mean {mean:.3f}, least {min(all_of):.3f}, most {max(all_of):.3f}\n")


if __name__ == "__main__":
    main()
