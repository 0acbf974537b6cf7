"""Rows for the constants of `gemmgen/sweeps.toml`, and which constants choose best among what was timed.

    python benchmarks/fit_sweeps.py --time rows.json --shapes 40 --seed 5    # by the clock, on this machine's CPU
    python benchmarks/fit_sweeps.py rows.json others.json                    # what the model chooses there; a fit

A row is a shape with the seconds of schedules of every kind that the model does not think hopeless, in rounds of
shuffled order; the chosen one is timed twice, as two kernels, which says how far the same code differs. Which one is
fastest is said by every other round, and how fast it is by those between: the luckiest of many figures is no peer. The
fit changes one constant after the other, as long as what the model would choose of each row comes nearer to the fastest
on the average. It is judged by rows that it was not shown, in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from choose_cpu import random_shapes

from gemmgen import sweeps
from gemmgen.bench.records import parse_sizes
from gemmgen.driver import emit
from gemmgen.errors import UserError
from gemmgen.ir.target import TARGETS, Target
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import pick, target_of
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]
SPEC = GemmSpec()
ROUNDS, TURN = 10, 0.006
#: What is not hopeless, by the model, and how many of one shape are timed at most.
HOPEFUL, MOST = 1.6, 26
#: Constants that are fitted, and by what they are multiplied in turn.
FITTED = (
    *("far_line", "copy_line", "page", "same_place", "again_line", "panel_line", "same_row", "far_row", "crowded_row"),
    *("update_line", "tile", "group", "wait", "loads_per_cycle", "near_line", "panel_share"),
)
STEPS = (0.5, 0.7, 0.85, 1.18, 1.4, 2.0)
#: For a constant that is zero.
FIRST = 0.1
PARTS = 4


@dataclass(frozen=True)
class Row:
    """A shape, the target's cores and cache, and the seconds of each way by either half of the rounds; the first one's
    other kernel.
    """

    shape: Shape
    target: Target
    ways: tuple[sweeps._Way, ...]
    seconds: tuple[tuple[float, float], ...]
    again: tuple[float, float]


def kinds(shape: Shape, target: Target) -> list[sweeps._Way]:
    """The chosen one first, then of each tile, way to B, depth and sharing out the cheapest, dearer ones at random."""
    found: dict[tuple[object, ...], tuple[float, sweeps._Way]] = {}
    for way in sweeps._candidates(SPEC, shape, target, target.cores):
        kind = way.tile, way.along_k, way.copied, way.k_block, way.even, way.m_block, way.sweep[1]
        cost = sum(sweeps._account(SPEC, way, shape, target.cores, target).values())
        found[kind] = min(found.get(kind, (cost, way)), (cost, way))
    costs = sorted(found.values())
    hopeful = [way for cost, way in costs[1:] if cost < HOPEFUL * costs[0][0]]
    first = hopeful[: MOST // 2]
    return [costs[0][1], *first, *random.sample(hopeful[MOST // 2 :], max(0, min(len(hopeful) - MOST // 2, MOST // 2)))]


def timed(shape: Shape, target: Target, device: object, built: dict[str, CompiledKernel]) -> Row:
    """A row."""
    m, n, k = shape
    ways = kinds(shape, target)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    c = np.empty((m, n), np.float32)
    kernels: list[CompiledKernel] = []
    for number, way in enumerate((*ways, ways[0])):
        schedule = sweeps._finished(SPEC, way.schedule(), k, target)
        name = kernel_name(schedule, SPEC) + "_again" * (number == len(ways))
        if name not in built:
            source = emit(SPEC, schedule, "opencl", target)
            built[name] = CompiledKernel.from_source(source, device)  # type: ignore[arg-type]
        kernels.append(built[name])
    once = []
    for kernel in kernels:
        kernel(a, b, c)
        begin = time.perf_counter()
        kernel(a, b, c)
        once.append(time.perf_counter() - begin)
    times: list[list[float]] = [[] for _ in kernels]
    for _ in range(ROUNDS):
        for at in random.sample(range(len(kernels)), len(kernels)):
            kernels[at](a, b, c)
            begin, count = time.perf_counter(), max(1, int(TURN / once[at]))
            for _ in range(count):
                kernels[at](a, b, c)
            times[at].append((time.perf_counter() - begin) / count)
    *seconds, again = ((median(x[::2]), median(x[1::2])) for x in times)
    return Row(shape, target, tuple(ways), tuple(seconds), again)


def regret(row: Row) -> float:
    """How much longer than the fastest what the model chooses of a row takes, less one."""
    cost = [sum(sweeps._account(SPEC, way, row.shape, row.target.cores, row.target).values()) for way in row.ways]
    chosen = row.seconds[min(range(len(cost)), key=cost.__getitem__)]
    fastest = (min(row.seconds, key=lambda halves: halves[half]) for half in (0, 1))
    return mean(chosen[1 - half] / best[1 - half] for half, best in enumerate(fastest)) - 1


def fit(rows: Sequence[Row], start: sweeps.Costs) -> sweeps.Costs:
    """Constants by which less is lost, changed one at a time."""

    def lost(constants: sweeps.Costs) -> float:
        use(constants)
        moved = sum(abs(math.log(max(getattr(constants, x), 1e-3) / max(getattr(start, x), 1e-3))) for x in FITTED)
        return mean(map(regret, rows)) + 0.0005 * moved

    best, least = start, lost(start)
    while True:
        before = least
        for name in FITTED:
            now = getattr(best, name)
            for value in (FIRST,) if now == 0 else (0.0, *(now * step for step in STEPS)):
                tried = replace(best, **{name: value})
                if name != "loads_per_cycle" or value:
                    best, least = min((least, 0, best), (lost(tried), 1, tried), key=lambda x: x[:2])[::-2]
        if least > before - 0.0003:
            return best


def use(constants: sweeps.Costs) -> None:
    """The model's constants from now on."""
    sweeps.costs = lambda _="": constants  # type: ignore[assignment]


def judge(rows: Sequence[Row], say: str) -> None:
    """What is lost on rows."""
    kept = [1 / (1 + regret(row)) for row in rows]  # may exceed 1, as the fastest is not known for certain
    good = sum(ratio >= 0.97 for ratio in kept)
    middle = f"median {median(kept):.3f}, mean {mean(kept):.3f}"
    print(f"{say}: {middle}, 0.97 and more on {good} of {len(kept)}, worst {min(kept):.3f}")


def save(path: Path, rows: Sequence[Row]) -> None:
    """As JSON; of targets what the model asks."""
    told = [
        {
            "shape": row.shape,
            "target": [row.target.cores, row.target.cache_bytes, row.target.vector_bytes, row.target.maker],
            "ways": [list(way) for way in row.ways],
            "us": [[round(x * 1e6, 1) for x in halves] for halves in (*row.seconds, row.again)],
        }
        for row in rows
    ]
    path.write_text("[\n" + ",\n".join(map(json.dumps, told)) + "\n]\n")


def load(path: Path) -> list[Row]:
    """Rows of a file."""
    found = []
    for row in json.loads(path.read_text()):
        cores, cache, width, maker = row["target"]
        target = replace(TARGETS["cpu"], cores=cores, cache_bytes=cache, vector_bytes=width, maker=maker)
        ways = tuple(sweeps._Way(*(tuple(x) if isinstance(x, list) else x for x in way)) for way in row["ways"])
        *seconds, again = ((first * 1e-6, second * 1e-6) for first, second in row["us"])
        found.append(Row(tuple(row["shape"]), target, ways, tuple(seconds), again))
    return found


def main() -> None:
    """Time rows, or fit to them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--time", type=Path, help="a file for rows that are timed now")
    parser.add_argument("--shapes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", default="", help="these, MxNxK, in place of random ones")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new shape after so long")
    arguments = parser.parse_args()
    if arguments.time is not None:
        random.seed(arguments.seed)
        device = pick(type="cpu", platform="Intel")
        shapes = [(s.m, s.n, s.k) for s in parse_sizes(arguments.sizes)] if arguments.sizes else None
        rows, built, end = list[Row](), dict[str, CompiledKernel](), time.perf_counter() + arguments.seconds
        for shape in shapes or random_shapes(arguments.shapes, arguments.seed):
            if time.perf_counter() > end:
                break
            try:
                rows.append(timed(shape, target_of(device.handle), device, built))
            except UserError as error:
                print(f"# {shape} is left out: {error}", file=sys.stderr)
            save(arguments.time, rows)
        return
    rows = [row for path in arguments.files for row in load(path)]
    same = sorted(abs(math.log(sum(row.again) / sum(row.seconds[0]))) for row in rows)
    middle, tenth = same[len(same) // 2], same[len(same) * 9 // 10]
    print(f"the same code twice differs by {middle:.3f} at the median, by {tenth:.3f} in every tenth row")
    (maker,) = {row.target.maker for row in rows}  # each has constants of its own
    start = sweeps.costs(maker)
    judge(rows, "as they are")
    random.Random(0).shuffle(rows)
    kept: list[Row] = []
    unseen = []
    for part in range(PARTS):
        use(fit([row for at, row in enumerate(rows) if at % PARTS != part], start))
        others = rows[part::PARTS]
        unseen += [1 / (1 + regret(row)) for row in others]
        kept += others
    print(f"fitted to the others: median {median(unseen):.3f}, mean {mean(unseen):.3f}, worst {min(unseen):.3f}")
    best = fit(rows, start)
    use(best)
    judge(rows, "fitted to all")
    was = asdict(start)
    print({name: round(value, 4) for name, value in asdict(best).items() if value != was[name]})


if __name__ == "__main__":
    main()
