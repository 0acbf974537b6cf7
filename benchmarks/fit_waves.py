"""Fits `gemmgen/waves.toml` to what was measured on a GPU.

    python benchmarks/fit_waves.py benchmarks/results/2026-11-22_h200/rows*.json --older ... > waves.toml
    python benchmarks/fit_waves.py ... --leave-out 6

Reads files of `gemmgen bench --json` and of `benchmarks/choose_cuda.py --timings`, as far as they are of presets that
the model knows; presets change, and rows that are older than theirs do not count. Wants SciPy. What counts is the order
of schedules at a shape: errors that all of them share count for less, and so do schedules that nobody would choose.
Constants move as far as the figures make them and no further. Then they move once more, towards choices that lose
less: what comes out cheapest counts there, by the time it takes beside the best preset's. That takes a quarter of an
hour. How far off the model is goes to standard error; with `--leave-out N` at shapes that it was not fitted to, a part
of N at a time.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean, median

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates, tiles, waves
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F32, MATRIX_DTYPES
from gemmgen.ir.target import TARGETS
from gemmgen.kernel_names import kernel_name
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: What of the constants is fitted; the rest is what a preset is.
SHARED = tuple(key for key in waves.Costs.__dataclass_fields__ if key not in ("cycles_per_us", "cache", "tiles"))
OPTIONAL = ("alone", "line", "single", "transposed")
OWN = ("rate", "block", "lone", *OPTIONAL)
#: A constant's distance from where it was counts like so large an error, for each factor of e; those of `FREE` have
#: been found by these figures alone.
FREE = ("beside", "torn", "torn_by_all", "at_first", "torn_stored", "parted_stored", "pair", "lonely", "again", "aside")
TRUST = {
    **dict.fromkeys(SHARED, 0.2),
    **dict.fromkeys((*FREE, "crowd", "short", "cached_per_us"), 0.05),
    "rate": 0.2,
    "alone": 0.15,
    "block": 0.15,
    "line": 0.3,
    "single": 0.2,
    "transposed": 0.2,
    "lone": 0.07,
}
#: How much the error counts that all schedules at a shape have in common, and how fast slower ones' errors count less.
COMMON, SLOWER = 0.4, 1.5
#: Multiply-adds of a cycle and multiprocessor: float32 has no more lanes, and reaches 0.95 of them; 16-bit floats.
MOST_F32, MOST_WGMMA = 121.0, 2048.0
#: Of choices: the difference of logarithms that the model can tell; from where on a loss counts in full, and no more;
#: the same of errors of time; how much a loss counts beside those; how much constants stay where they were.
TELLS, NOTHING, ALL, FAR, LOSS, STAY = 0.03, 0.015, 0.15, 0.3, 7.5, 250.0
#: Of what constants' logarithms are moved to see what that does.
STEP = 1e-4

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

    @property
    def contest(self) -> tuple[object, ...]:
        """What schedules compete at: not all GPUs have warpgroups."""
        return *self.problem, self.schedule.by_warpgroups


@cache
def known(name: str) -> tuple[str, GemmSpec, Schedule] | None:
    """A schedule by the name of a preset or of what was chosen: its tile in the model, spec and itself."""
    if name in candidates.names():
        preset = candidates.load(name)
        tile = waves.tile_of(preset.schedule)
        return None if tile is None or preset.schedule.atomic else (tile.named, preset.spec, preset.schedule)
    return chosen().get(name)


@cache
def chosen() -> dict[str, tuple[str, GemmSpec, Schedule]]:
    """All that is chosen from beside presets, by name."""
    found = {}
    for tile in waves.costs().tiles:
        spec = candidates.load(tile.named).spec
        for parts, a, b in product(tiles.PARTS, (False, True), (False, True)):
            for stream, joined in ((False, 1), (True, 1), (False, tiles.JOINED)):
                with suppress(ScheduleError):  # not every tile can be dealt out, or added up by a cluster
                    schedule = waves.changed(tile, parts, a, b, stream and parts == 1, joined if parts > 1 else 1)
                    found[kernel_name(schedule, spec)] = tile.named, spec, schedule
    return found


def points(path: Path) -> list[Point]:
    """A file's measurements."""
    data, found = json.loads(path.read_text(encoding="utf-8")), []
    if isinstance(data, dict):
        rows = [((x["m"], x["n"], x["k"]), x["batch"], None, x["preset"], x["ours_us"]) for x in data["rows"]]
    else:
        rows = [(tuple(x["shape"]), 0, x["dtype"], name, us) for x in data for name, us in x["us"].items()]
    for shape, batch, dtype, name, us in rows:
        of = known(name)
        if of is not None and of[1].dtype in waves.TYPES:
            tile, spec, schedule = of
            spec = spec if dtype is None else replace(spec, dtype=MATRIX_DTYPES[dtype])
            # What is packed was run without the promise that lines of other sizes keep.
            unit = 16 // spec.dtype.size
            kept = all(size % unit == 0 for size in shape[1:])
            spec = replace(spec, batched=batch > 0, ld_multiple=unit if kept else 1)
            found.append(Point(spec, tile, schedule, shape, batch or 1, us))
    return found


def to_numbers(costs: waves.Costs) -> Numbers:
    """The constants' logarithms; those that may be zero are moved by one."""
    own = [getattr(tile, key) + (key in OPTIONAL) for tile in costs.tiles for key in OWN]
    return np.log(np.array([*(getattr(costs, key) for key in SHARED), *own], dtype=np.float64))


def to_costs(numbers: Numbers, like: waves.Costs) -> waves.Costs:
    """The constants again."""
    values = [float(x) for x in np.exp(numbers)]
    found = []
    for i, tile in enumerate(like.tiles):
        at = len(SHARED) + i * len(OWN)
        own = {key: max(0.0, x - (key in OPTIONAL)) for key, x in zip(OWN, values[at:], strict=False)}
        own["alone"] = min(own["alone"], own["rate"])
        found.append(waves.Tile(named=tile.named, resident=tile.resident, **own))
    return replace(like, **dict(zip(SHARED, values, strict=False)), tiles=tuple(found))


def microseconds(costs: waves.Costs, measured: Sequence[Point]) -> Numbers:
    """What the model says of the measurements' times."""
    waves.costs = lambda: costs  # type: ignore[assignment]
    by_name = {tile.named: tile for tile in costs.tiles}
    found = []
    for x in measured:
        target = TARGETS["sm_90a" if x.schedule.by_warpgroups else "sm_90"]
        parts = waves.account(x.spec, by_name[x.tile], x.schedule, x.shape, target, x.products)
        found.append(sum(parts.values()))
    return np.array(found)


def most_numbers(first: Numbers, like: waves.Costs) -> Numbers:
    """The constants' logarithms at most."""
    most = first + 2.5
    for i, tile in enumerate(like.tiles):
        dtypes, at = waves.ATOMS[tile.schedule.atom], len(SHARED) + i * len(OWN)
        if F32 in dtypes:
            most[[at + OWN.index("rate"), at + OWN.index("alone")]] = np.log(MOST_F32 + np.array([0, 1]))
        elif tile.schedule.by_warpgroups and BF16 in dtypes:
            most[at + OWN.index("rate")] = np.log(MOST_WGMMA)
    return most


def slopes(numbers: Numbers, measured: Sequence[Point], like: waves.Costs) -> tuple[Numbers, Numbers]:
    """Logarithms of the measurements' times, and how they change with each of the constants."""
    at = np.log(microseconds(to_costs(numbers, like), measured))
    found = np.zeros((len(measured), len(numbers)))
    tile = np.array([[x.named for x in like.tiles].index(x.tile) for x in measured])
    # A tile's own constants are moved all at once: each changes the times of its own schedules alone.
    for i in range(len(SHARED) + len(OWN)):
        mine = [i] if i < len(SHARED) else list(range(i, len(numbers), len(OWN)))
        moved = numbers.copy()
        moved[mine] += STEP
        slope = (np.log(microseconds(to_costs(moved, like), measured)) - at) / STEP
        if i < len(SHARED):
            found[:, i] = slope
        else:
            found[np.arange(len(measured)), i + tile * len(OWN)] = slope
    return at, found


def trusted(like: waves.Costs) -> Numbers:
    """How much it counts that a constant moves."""
    return np.array([TRUST[key] for key in SHARED] + [TRUST[key] for _ in like.tiles for key in OWN])


def fit(measured: Sequence[Point], start: waves.Costs) -> waves.Costs:
    """The constants with the least errors of the kind that matters."""
    from scipy.optimize import least_squares

    us = np.array([x.us for x in measured])
    problems = list({x.contest: None for x in measured})
    number = {problem: i for i, problem in enumerate(problems)}
    of = np.array([number[x.contest] for x in measured])
    best = np.full(len(problems), np.inf)
    np.minimum.at(best, of, us)
    weight = (best[of] / us) ** SLOWER
    total, count = np.bincount(of, weight), np.bincount(of)
    first, trust = to_numbers(start), trusted(start)
    most = most_numbers(first, start)

    def weighted(errors: Numbers) -> Numbers:
        common = np.zeros((len(problems), *errors.shape[1:]))
        np.add.at(common, of, (errors.T * weight).T)
        common = (common.T / total).T
        return np.concatenate([((errors - common[of]).T * weight).T, COMMON * (common.T * np.sqrt(count)).T])

    def errors(numbers: Numbers) -> Numbers:
        off = np.log(microseconds(to_costs(numbers, start), measured) / us)
        return np.concatenate([weighted(off), trust * (numbers - first)])

    def moves(numbers: Numbers) -> Numbers:
        return np.concatenate([weighted(slopes(numbers, measured, start)[1]), np.diag(trust)])

    begin, least = np.minimum(first, most - 0.01), first - 2.5
    solved = least_squares(errors, begin, moves, loss="soft_l1", f_scale=0.1, bounds=(least, most), max_nfev=40)
    return settled(measured, to_costs(solved.x, start))


def settled(measured: Sequence[Point], start: waves.Costs) -> waves.Costs:
    """The constants by which choices lose least, near those: as if the model drew schedules, the cheaper the likelier.
    Times count as well, but for what is far off.
    """
    from scipy.optimize import minimize

    us = np.array([x.us for x in measured])
    problems = list({x.problem: None for x in measured})
    number = {problem: i for i, problem in enumerate(problems)}
    of = np.array([number[x.problem] for x in measured])
    best = np.full(len(problems), np.inf)
    np.minimum.at(
        best, of, np.where([kernel_name(x.schedule, x.spec) in candidates.names() for x in measured], us, np.inf)
    )
    loss = np.clip(np.log(us / np.minimum(best, us.max())[of]), 0, ALL)
    loss *= loss / (loss + NOTHING)
    first, trust = to_numbers(start), trusted(start)

    def lost(numbers: Numbers) -> tuple[float, Numbers]:
        times, by = slopes(numbers, measured, start)
        cheapest = np.full(len(problems), np.inf)
        np.minimum.at(cheapest, of, times)
        drawn = np.exp((cheapest[of] - times) / TELLS)
        drawn /= np.bincount(of, drawn)[of]
        mean_loss = np.bincount(of, drawn * loss)
        off = np.clip(times - np.log(us), -FAR, FAR)
        moved = numbers - first
        value = LOSS * mean_loss.sum() + (off**2).sum() / 2 + STAY * ((trust * moved) ** 2).sum()
        change = LOSS / TELLS * drawn * (mean_loss[of] - loss) + off * (abs(off) < FAR)
        return float(value), change @ by + 2 * STAY * trust**2 * moved

    bounds = list(zip(first - 0.7, np.minimum(first + 0.7, np.maximum(first, most_numbers(first, start))), strict=True))
    solved = minimize(lost, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
    return to_costs(solved.x, start)


def left_out(measured: Sequence[Point], start: waves.Costs, parts: int) -> Numbers:
    """The times of each part of the shapes by a fit to the others."""
    problems = sorted({x.problem for x in measured})
    random.Random(0).shuffle(problems)
    found = np.zeros(len(measured))
    for i in range(parts):
        part = set(problems[i::parts])
        fitted = fit([x for x in measured if x.problem not in part], start)
        own = [j for j, x in enumerate(measured) if x.problem in part]
        found[own] = microseconds(fitted, [measured[j] for j in own])
    return found


def report(guessed: Numbers, measured: Sequence[Point]) -> None:
    """How far off the model is, and what it would have chosen of what was measured, beside the best preset."""
    off = [abs(guess / x.us - 1) for guess, x in zip(guessed, measured, strict=True)]
    print(f"{len(off)} figures: off by {median(off):.3f} in the median", file=sys.stderr)
    for dtype in sorted({x.spec.dtype.name for x in measured}):
        ratios = []
        for problem in sorted({x.problem for x in measured if x.spec.dtype.name == dtype}):
            rows = [(guess, x) for guess, x in zip(guessed, measured, strict=True) if x.problem == problem]
            rivals = [x for _, x in rows if kernel_name(x.schedule, x.spec) in candidates.names()]
            if len(rows) > 1 and rivals:
                _, named = min(rows, key=lambda row: row[0])
                best = min(rivals, key=lambda x: x.us)
                what = f"{'x'.join(map(str, problem[1]))} {kernel_name(named.schedule, named.spec)} {named.us:.2f} us,"
                ratios.append(
                    (
                        min(1.0, best.us / named.us),
                        f"{what} best {kernel_name(best.schedule, best.spec)} {best.us:.2f} us",
                    )
                )
        values = [ratio for ratio, _ in ratios] or [1.0]
        within = f"within 3 % at {sum(x > 0.97 for x in values)} of {len(values)} shapes"
        print(f"{dtype}: {within}, mean {mean(values):.3f}, worst {min(values):.3f}", file=sys.stderr)
        for ratio, what in sorted(ratios)[:8]:
            print(f"  {ratio:.3f} {what}", file=sys.stderr)


def rewritten(text: str, costs: waves.Costs) -> str:
    """The file with other numbers, its comments as they are."""
    head, *tables = text.split("[[tiles]]")
    for key in SHARED:
        head = re.sub(rf"(?m)^({key} = )[-+\d.e]+", rf"\g<1>{getattr(costs, key):.3g}".replace("e+0", "e"), head)
    for i, tile in enumerate(costs.tiles):
        for key in OWN:
            value = round(getattr(tile, key), 3)
            tables[i] = re.sub(rf"(?m)^({key} = )[-+\d.e]+", rf"\g<1>{value:.4g}", tables[i])
    return "[[tiles]]".join((head, *tables))


def main() -> None:
    """Prints the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--older", type=Path, nargs="*", default=[], help="files whose rows of warpgroups do not count")
    parser.add_argument("--leave-out", type=int, default=0, metavar="N", help="tell of shapes that were left out")
    arguments = parser.parse_args()
    start = waves.costs()
    measured = [x for path in arguments.files for x in points(path)]
    measured += [x for path in arguments.older for x in points(path) if not x.schedule.by_warpgroups]
    if arguments.leave_out:
        report(left_out(measured, start, arguments.leave_out), measured)
        return
    found = fit(measured, start)
    report(microseconds(found, measured), measured)
    print(rewritten(Path(waves.__file__).with_suffix(".toml").read_text(encoding="utf-8"), found), end="")


if __name__ == "__main__":
    main()
