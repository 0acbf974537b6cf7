"""What the prior loses by its choices among schedules that were measured on GPUs.

    python benchmarks/prior_regret.py
    python benchmarks/prior_regret.py --files benchmarks/results/2026-11-22_h200/rows1.json

Of each problem with three schedules and more: the time of the one that the prior puts first, as a multiple of the
fastest measured. The H200's files are of `benchmarks/choose_cuda.py --timings`; presets change, and rows that no
schedule has today do not count. The H100's figures are the records that come with gemmgen.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gemmgen import candidates, tuning
from gemmgen.candidates import PARTS
from gemmgen.choice import few_rows, loads, prior
from gemmgen.choice.columns import WORD
from gemmgen.choice.machine import Machine, machine_of
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.ir.target import Target
from gemmgen.kernel_names import kernel_name
from gemmgen.options import build_spec, schedule_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.job import assuming_no_gaps
from gemmgen.tuning.records import parse
from tests.support.tables import H200, read_past_ends, tables

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "benchmarks" / "results" / "2026-11-22_h200").glob("rows*.json"))
#: As the device of the figures says of itself.
H100 = replace(H200, memory_rate=3_352_320)
#: Schedules of a problem at least; the deepest parts of K that a cluster adds up.
LEAST, JOINED = 3, 2
#: Sizes of which nothing is aligned.
ANYWHERE = (1, 1, 1)

Shape = tuple[int, int, int]


def machine_then(target: Target) -> Machine:
    """The constants of a device with the kernels of the figures: their last block never begins earlier, and of small
    elements warps copied whole vectors or one element, of which four at once went through registers. Warps
    stored each of their sums by itself: 4975x5516x151 took 114 us, and 58 on 2026-11-30.
    """
    return replace(machine_of(target), earlier=False, through=6.8, own_more_mma=0.0)


@dataclass(frozen=True)
class Problem:
    """A product, and the microseconds of the schedules that it was measured by."""

    spec: GemmSpec
    shape: Shape
    products: int
    us: dict[Schedule, float]

    def choice(self, machine: Machine) -> Schedule:
        """What the prior puts first."""
        like = None if machine.earlier or self.spec.dtype.size >= WORD else ANYWHERE
        costs = prior.costs(self.spec, list(self.us), self.shape, machine, self.products, like)
        return list(self.us)[int(np.argmin(costs))]

    def regret(self, machine: Machine) -> float:
        """The time of the prior's choice, as a multiple of the fastest."""
        return self.us[self.choice(machine)] / min(self.us.values())


@cache
def named() -> dict[str, Schedule]:
    """All that the figures may name: tiles, with K in parts and matrices packed."""
    found: dict[str, Schedule] = {}
    for name in candidates.names():
        plain = candidates.load(name).schedule
        if plain.atomic or not name.startswith(("naive_16x16", "async_", "mbarrier_", "mma_", "wgmma_")):
            continue
        found.setdefault(name, plain)
        for parts, way, (stream, joined) in product(PARTS, candidates.WAYS, ((False, 1), (True, 1), (False, JOINED))):
            if not (stream and parts > 1) and not (joined > 1 and parts % joined):
                with suppress(ScheduleError):  # not every tile can be dealt out, or added up by a cluster
                    schedule = candidates.varied(name, parts, way, stream, joined)
                    found.setdefault(schedule.name or name, schedule)
    return found


def of_file(path: Path) -> Iterator[tuple[GemmSpec, Shape, Schedule, float]]:
    """A file's measurements."""
    for row in json.loads(path.read_text(encoding="utf-8")):
        dtype, shape = MATRIX_DTYPES[row["dtype"]], tuple(row["shape"])
        # What is packed was run without the assumption that lines of other sizes meet.
        unit = 16 // dtype.size
        kept = all(size % unit == 0 for size in shape[1:])
        spec = GemmSpec(dtype=dtype, ld_multiple=unit if kept else 1)
        for name, us in row["us"].items():
            if name in named() and not read_past_ends(spec, shape, named()[name]):
                yield spec, shape, named()[name], us


def of_h200(files: Sequence[Path] = FILES) -> list[Problem]:
    """Problems of the files, each with every schedule that was measured, at its fastest."""
    found: dict[tuple[GemmSpec, Shape], dict[Schedule, float]] = defaultdict(dict)
    for path in files:
        for spec, shape, schedule, us in of_file(path):
            same, plain = found[spec, shape], schedule.but(name=None)
            same[plain] = min(us, same.get(plain, math.inf))
    return [Problem(spec, shape, 1, us) for (spec, shape), us in found.items() if len(us) >= LEAST]


def of_h100() -> tuple[list[Problem], Machine]:
    """Problems of the records, and the device as it was calibrated."""
    (path,) = tuning.shipped("cuda")
    records = parse(path.read_text(encoding="utf-8"), path.name)
    found: dict[tuple[GemmSpec, Shape, int], dict[Schedule, float]] = defaultdict(dict)
    for line in records.lines:
        made = line.measurement()
        found[assuming_no_gaps(made.spec, line.shape), line.shape, line.products][made.schedule] = line.seconds * 1e6
    problems = [Problem(*about, us) for about, us in found.items() if len(us) >= LEAST]
    return problems, replace(machine_then(H100), **records.machine)  # type: ignore[arg-type]


def of_drawn(name: str = "schedules.json") -> list[Problem]:
    """Drawn shapes on the H100, each by 4 to 51 schedules. Of `schedules_second.json`: those that lost most before."""
    path = ROOT / "benchmarks" / "results" / "2026-11-26_h100" / name
    kept = json.loads(path.read_text(encoding="utf-8"))
    known = [schedule_of(each, path.name) for each in kept["schedules"]]
    problems = []
    for told in kept["problems"]:
        shape = tuple(told["shape"])
        spec = assuming_no_gaps(build_spec(dtype=told["dtype"], layout=told["layout"]), shape)
        problems.append(Problem(spec, shape, 1, {known[int(at)]: us for at, us in told["us"].items()}))
    return problems


def of_exhaustive(names: str = "*_h100/[em]*") -> list[Problem]:
    """Drawn shapes on the H100, each by every schedule that the prior thought likely (`benchmarks/exhaustive.py`). Of
    `fresh_*`: by 24 each, of kernels whose last block begins earlier; of `clusters`: by some 60, most of them designs
    whose clusters share tiles. Of `worst_*`, on the H200: by 30 each, where the choice lost most to cuBLAS. Of
    `exhaustive_*`, on the H200: 24 drawn shapes a type. Of `sm_80_*`: without what came after that architecture. Of
    `families_*`, on the H200, by kernels of today: what the prior had first for shapes of `benchmarks/few_rows.py`.
    """
    return [Problem(table.spec, table.shape, table.products, table.us) for table in tables(names)]


def of_few_rows() -> list[Problem]:
    """Products of few rows or columns on the H100: kernels without tiles beside others (`benchmarks/few_rows.py`)."""
    known: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for path in sorted((ROOT / "benchmarks" / "results" / "2026-11-26_h100").glob("few_rows_*.txt")):
        for words in map(str.split, path.read_text(encoding="utf-8").splitlines()):
            if "new" in words and "cu" in words:
                at = words.index("new")
                about, found = words[1:4], [(words[at + 4], words[at + 1])]
                found += [(words[i + 2], words[i + 1]) for i in range(len(words)) if words[i] == "old"]
            elif "cublas" in words:
                about, found = words[2:5], [(words[-1], words[5])]
            else:
                continue
            same = known[about[0], about[1], about[2]]
            for name, told in found:
                same[name] = min(float(told), same.get(name, math.inf))
    problems = []
    for (dtype, order, size), us_of in known.items():
        m, n, k = map(int, size.split("x"))
        kept = assuming_no_gaps(build_spec(dtype=dtype, layout=f"row,{order}"), (m, n, k))
        # At that time an assumption was of all matrices.
        spec = replace(kept, ld_multiple=min(map(kept.ld_unit, "abc")))
        own = {x.name or "": x for x in few_rows.ranked(spec, (m, n, k), H100, machine_of(H100))}
        all_of = {**named(), **own}
        measured = {all_of[name]: time for name, time in us_of.items() if name in all_of}
        if len(measured) > 1 and any(loads.has_no_tiles(x) for x in measured):
            problems.append(Problem(spec, (m, n, k), 1, measured))
    return problems


def regrets(problems: Sequence[Problem], machine: Machine) -> dict[str, list[float]]:
    """By the type."""
    found: dict[str, list[float]] = defaultdict(list)
    for problem in problems:
        found[problem.spec.dtype.name].append(problem.regret(machine))
    return found


def geomean(values: Sequence[float]) -> float:
    """Of ratios."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Print a line a device and type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=Path, nargs="+", default=FILES)
    parser.add_argument("--worst", type=int, default=0, help="so many problems of the largest regret are told")
    arguments = parser.parse_args()
    for device, (problems, machine) in (
        ("H200", (of_h200(arguments.files), machine_then(H200))),
        ("H100", of_h100()),
        ("H100, drawn", (of_drawn(), of_h100()[1])),
        ("H100, drawn second", (of_drawn("schedules_second.json"), of_h100()[1])),
        ("H100, exhaustive", (of_exhaustive(), of_h100()[1])),
        ("H100, fresh", (of_exhaustive("*_h100/fresh_*"), replace(of_h100()[1], earlier=True))),
        ("H100, clusters", (of_exhaustive("*_h100/clusters"), replace(of_h100()[1], earlier=True))),
        ("H200, worst", (of_exhaustive("*_h200/worst_*"), machine_of(H200))),
        ("H200, exhaustive", (of_exhaustive("*_h200/exhaustive_*"), machine_of(H200))),
        ("H200, families", (of_exhaustive("*_h200/families_*"), machine_of(H200))),
        ("H100, few rows", (of_few_rows(), of_h100()[1])),
    ):
        for dtype, values in sorted(regrets(problems, machine).items()):
            ninth = sorted(values)[len(values) * 9 // 10]
            told = f"geomean {geomean(values):.4f}, ninth decile {ninth:.3f}, worst {max(values):.2f}"
            print(f"{device} {dtype:14} {len(values):4} problems: {told}")
        for problem in sorted(problems, key=lambda x: -x.regret(machine))[: arguments.worst]:
            best, taken = min(problem.us, key=lambda x: problem.us[x]), problem.choice(machine)
            names = (kernel_name(x, problem.spec) for x in (taken, best))
            us = ", ".join(f"{name} {problem.us[x]:.1f} us" for name, x in zip(names, (taken, best), strict=True))
            print(f"  {problem.regret(machine):.2f} {problem.shape} {problem.spec.dtype.name}: {us}")


if __name__ == "__main__":
    main()
