"""Fits `gemmgen/waves.toml` to what was measured on a GPU.

    python benchmarks/fit_waves.py benchmarks/results/2026-11-21_h200 > gemmgen/waves.toml

Reads the folder's files of `gemmgen bench --json` and of `benchmarks/choose_cuda.py --timings`, as far as they are of
presets that the model knows. Wants SciPy. Constants move as far as the figures make them and no further; schedules that
nobody would choose count for less. What the model would choose among those measured goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, product
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import presets, waves
from gemmgen.ir.target import TARGETS
from gemmgen.methods import slug
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: What of the constants is fitted; the rest is what a preset is.
SHARED = ("launch", "another", "packing", "meeting", "unhidden", "bytes_per_us", "packed_bytes_per_us")
OWN = ("rate", "alone", "block", "line", "single", "lone")
#: A constant's distance from where it was counts like so large an error, for each factor of e.
TRUST = {"rate": 1.0, "alone": 0.15, "block": 0.15, "line": 0.5, "single": 0.5, "lone": 0.5}
OF_SHARED = 1.0
#: Multiply-adds of a cycle and multiprocessor: float32 has no more lanes, and reaches 0.95 of them.
MOST_F32 = 121.0

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """One measurement."""

    spec: GemmSpec
    tile: str
    schedule: Schedule
    shape: waves.Shape
    products: int
    us: float

    @property
    def problem(self) -> tuple[str, waves.Shape, int]:
        return self.spec.dtype.name, self.shape, self.products


@cache
def known(name: str) -> tuple[str, GemmSpec, Schedule] | None:
    """A schedule by the name of a preset or of what was chosen: its tile in the model, spec and itself."""
    if name in presets.names():
        preset = presets.load(name)
        tile = waves.tile_of(preset.schedule)
        return None if tile is None or preset.schedule.atomic else (tile.preset, preset.spec, preset.schedule)
    return chosen().get(name)


@cache
def chosen() -> dict[str, tuple[str, GemmSpec, Schedule]]:
    """All that the model chooses from beside presets, by name."""
    found = {}
    dealt = TARGETS["sm_90"].cores
    for tile in waves.costs().tiles:
        spec = presets.load(tile.preset).spec
        for parts, a, b in product(waves.PARTS, (False, True), (False, True)):
            for stream, joined in ((0, 1), (dealt, 1), (0, waves.JOINED)):
                schedule = waves.changed(tile, parts, a, b, stream if parts == 1 else 0, joined if parts > 1 else 1)
                found[slug(schedule)] = tile.preset, spec, schedule
    return found


def points(folder: Path) -> list[Point]:
    """All files' measurements."""
    found = []
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = (
            data["rows"]
            if isinstance(data, dict)
            else [
                {"m": x["shape"][0], "n": x["shape"][1], "k": x["shape"][2], "batch": 0, "preset": name, "ours_us": us}
                for x in data
                for name, us in x["us"].items()
            ]
        )
        for row in rows:
            of = known(row["preset"])
            if of is not None and of[1].dtype in waves.TYPES:
                tile, spec, schedule = of
                shape = row["m"], row["n"], row["k"]
                # What is packed was run without the promise that lines of other sizes keep.
                kept = all(size % spec.ld_multiple == 0 for size in shape[1:])
                spec = replace(spec, batched=row["batch"] > 0, ld_multiple=spec.ld_multiple if kept else 1)
                found.append(Point(spec, tile, schedule, shape, row["batch"] or 1, row["ours_us"]))
    return found


def to_numbers(costs: waves.Costs) -> Numbers:
    """The constants' logarithms; those that may be zero are moved by one."""
    own = [getattr(tile, key) + (key in ("line", "single")) for tile in costs.tiles for key in OWN]
    values: list[float] = [*(getattr(costs, key) for key in SHARED), *own]
    return np.array([math.log(x) for x in values], dtype=np.float64)


def to_costs(numbers: Numbers, like: waves.Costs) -> waves.Costs:
    """The constants again."""
    values = [float(x) for x in np.exp(numbers)]
    tiles = []
    for i, tile in enumerate(like.tiles):
        at = len(SHARED) + i * len(OWN)
        own = {key: x - (key in ("line", "single")) for key, x in zip(OWN, values[at:], strict=False)}
        own["alone"] = own["rate"] if tile.resident == 1 else min(own["alone"], own["rate"])
        tiles.append(waves.Tile(preset=tile.preset, resident=tile.resident, **own))
    shared = dict(zip(SHARED, values, strict=False))
    return waves.Costs(cycles_per_us=like.cycles_per_us, **shared, tiles=tuple(tiles))


def account(costs: waves.Costs, point: Point) -> float:
    """What the model says of a measurement's time."""
    waves.costs = lambda: costs  # type: ignore[assignment]
    tile = next(x for x in costs.tiles if x.preset == point.tile)
    target = TARGETS["sm_90a" if point.schedule.by_warpgroups else "sm_90"]
    return sum(waves.account(point.spec, tile, point.schedule, point.shape, target, point.products).values())


def fit(measured: list[Point], start: waves.Costs) -> waves.Costs:
    """The constants with the least relative errors."""
    best: dict[object, float] = {}
    for x in measured:
        best[x.problem] = min(best.get(x.problem, x.us), x.us)
    weights = np.array([(best[x.problem] / x.us) ** 0.7 for x in measured])
    first = to_numbers(start)
    most = first + 2.5
    for i, tile in enumerate(start.tiles):
        if presets.load(tile.preset).schedule.atom == waves.F32_ATOM:
            at = len(SHARED) + i * len(OWN)
            most[at : at + 2] = np.log(MOST_F32)
    first = np.minimum(first, most - 0.01)
    own = [TRUST[key] for _ in start.tiles for key in OWN]
    trust = np.array([OF_SHARED for _ in SHARED] + own)

    def errors(numbers: Numbers) -> Numbers:
        costs = to_costs(numbers, start)
        off = np.array([np.log(account(costs, x) / x.us) for x in measured])
        return np.concatenate([off * weights, trust * (numbers - first)])

    solved = least_squares(errors, first, loss="soft_l1", f_scale=0.1, bounds=(first - 2.5, most))
    return to_costs(solved.x, start)


def report(costs: waves.Costs, measured: list[Point]) -> None:
    """How far off the model is, and what it would have chosen."""
    off = [abs(account(costs, x) / x.us - 1) for x in measured]
    print(f"{len(off)} figures: off by {median(off):.3f} in the median", file=sys.stderr)
    ratios = []
    for problem, group in groupby(sorted(measured, key=lambda x: x.problem), key=lambda x: x.problem):
        rows = list(group)
        if len(rows) == 1:
            continue
        chosen, best = min(rows, key=lambda x: account(costs, x)), min(rows, key=lambda x: x.us)
        ratios.append((best.us / chosen.us, problem, slug(chosen.schedule), slug(best.schedule)))
    within = sum(ratio[0] > 0.97 for ratio in ratios)
    told = f"median {median(r[0] for r in ratios):.3f}, within 3 % at {within} of {len(ratios)} shapes"
    print(f"chosen among those measured: {told}", file=sys.stderr)
    for ratio, *what in sorted(ratios)[:12]:
        print(f"  {ratio:.3f}", *what, file=sys.stderr)


def rounded(key: str, value: float) -> str:
    """As many digits as mean something."""
    if key.endswith("_per_us"):
        return re.sub(r"e\+0*", "e", f"{value:.2e}")
    return f"{value:.2f}" if key in (*SHARED, "lone") else f"{round(value, 1):g}" if key == "line" else f"{value:.0f}"


def rewritten(text: str, costs: waves.Costs) -> str:
    """The file with other numbers, its comments as they are."""
    head, *tables = text.split("[[tiles]]")
    for key in SHARED:
        head = re.sub(rf"(?m)^({key} = )[\d.e]+", rf"\g<1>{rounded(key, getattr(costs, key))}", head)
    for i, tile in enumerate(costs.tiles):
        for key in OWN:
            number = float(rounded(key, max(0.0, getattr(tile, key))))
            tables[i] = re.sub(rf"(?m)^({key} = )[\d.e]+", rf"\g<1>{number}", tables[i])
    return "[[tiles]]".join((head, *tables))


def main() -> None:
    """Prints the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--leave-out", type=int, default=0, metavar="N", help="every N-th shape is told of, not fitted to"
    )
    arguments = parser.parse_args()
    measured, start = points(arguments.folder), waves.costs()
    shapes = sorted({x.problem for x in measured})
    others = set(shapes[:: arguments.leave_out] if arguments.leave_out else ())
    found = fit([x for x in measured if x.problem not in others], start)
    report(found, [x for x in measured if x.problem not in others])
    if others:
        print("of those that were left out:", file=sys.stderr)
        report(found, [x for x in measured if x.problem in others])
    print(rewritten(Path(waves.__file__).with_suffix(".toml").read_text(encoding="utf-8"), found), end="")


if __name__ == "__main__":
    main()
