"""What a choice and a short search lose against all schedules that the prior doesn't rule out, on this machine's GPU.

    python benchmarks/exhaustive.py --commit $(git rev-parse HEAD) --dtype bfloat16 --count 24 --output table.jsonl.gz
    python benchmarks/exhaustive.py --read table.jsonl.gz
    python benchmarks/exhaustive.py --read table.jsonl.gz --search 40

Shapes are drawn by a commit's hash, as by `drawn_shapes.py`. Of each are measured: what a search would begin with; what
the prior puts at most three times as high as its first; and points of the space near its best. The fastest ten are
measured again, in turns with the choice. With `--most 24` only the first 12 of a search and the prior's first are
measured: less of each shape, and more shapes. `--part 2/4` is the second of four parts of the shapes: a process a GPU.
`--after 9` leaves out the first nine of them, which an earlier run has measured.
`--target sm_80` leaves out what came after that architecture, so that this GPU stands for an older one.

A line a shape: how many were measured; the time of the fastest by that of the choice, and by that of the fastest of the
first 10, 20 and 40 in the order that a search begins with.

With `--search 40` tables are read, and a search measures so many schedules for each of their shapes. Its best few and
the best two of the table take turns then: the time of the table's best by that of the search's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from drawn_shapes import Shape, drawn

from gemmgen.choice import gpu
from gemmgen.choose import choose
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.target import TARGETS, Target
from gemmgen.kernel_names import kernel_name
from gemmgen.options import build_spec
from gemmgen.runtime.cuda_devices import pick
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import key_of
from gemmgen.tuning.job import Job, Outcome, assuming_no_gaps
from gemmgen.tuning.order import RULED_OUT, ordered, static_problem
from gemmgen.tuning.runners import LocalRunner
from gemmgen.tuning.space import is_precise, space_of
from gemmgen.tuning.study import FINALISTS, Place, Product, Search
from tests.support.tables import summary

#: What a search begins with; near points of each of the prior's best so many; schedules of a shape at most.
BEGUN, NEAR_OF, NEAR, MOST = 60, 12, 6, 380
#: Seconds for each; what needs so many times the fastest of a search's first 20 is given up early.
LOOK, GIVEN_UP, RACED = 0.05, 2.0, 20
#: Those measured again, the choice among them, and seconds for it.
AGAIN, SECONDS = 10, 1.5
#: How many of a search's measurements are looked at.
COUNTS = (10, 20, 40)
#: Of a table, those that a search's finalists take turns with.
BEST = 2


def candidates(spec: GemmSpec, shape: Shape, target: Target, most: int = MOST) -> list[Schedule]:
    """In the order of a search; what it would not come to follows."""
    found = dict.fromkeys(islice(ordered(spec, shape, target), min(BEGUN, most // 2)))
    ranked = list(islice(gpu.ranked(spec, shape, target, wider=True), MOST))
    likely = [schedule.but(name=None) for cost, schedule in ranked if cost <= RULED_OUT * ranked[0][0]]
    if most < MOST:
        found.update(dict.fromkeys(likely[:most]))
        return list(found)[:most]
    found.update(dict.fromkeys(likely[: MOST - NEAR_OF * NEAR]))
    draw = random.Random(0)
    for schedule in likely[:NEAR_OF]:
        space = space_of(schedule, spec, target)
        for near in (space.near(schedule, draw) for _ in range(NEAR)):
            if near is not None and is_precise(near, spec) and static_problem(near, shape, target) is None:
                found[near.but(name=None)] = None
    return list(found)


def measured(spec: GemmSpec, shape: Shape, target: Target, runner: LocalRunner, most: int = MOST) -> dict[str, object]:
    """A row of the table: schedules in the search's order, each with its time."""
    found = candidates(spec, shape, target, most)
    jobs = [Job("cuda", None, spec, shape, 1, schedule, LOOK) for schedule in found]
    times: dict[int, float] = {}
    wrong = []
    for index, outcome in raced(jobs, runner):
        if outcome.problem is None:
            times[index] = outcome.seconds
        elif "wrong" in outcome.problem:
            wrong.append(f"{kernel_name(found[index], spec)}: {outcome.problem}")
    best = sorted(times, key=lambda index: times[index])[:AGAIN]
    again = list(dict.fromkeys([*best, *([0] if 0 in times else [])]))
    for index, outcome in zip(again, runner.compare([jobs[x] for x in again], SECONDS), strict=True):
        if outcome.problem is None:
            times[index] = outcome.seconds
    chosen = choose(spec, shape, target).but(name=None)
    lines = [[kernel_name(found[x], spec), round(t * 1e6, 3), x in again, found[x] == chosen] for x, t in times.items()]
    texts = [jobs[x].text() for x in times]
    return {"shape": shape, "layout": [spec.a_order, spec.b_order], "times": lines, "jobs": texts, "wrong": wrong}


def raced(jobs: Sequence[Job], runner: LocalRunner) -> Iterator[tuple[int, Outcome]]:
    """The first to their end; of the others those that the first don't leave far behind."""
    first, others, fastest = jobs[:RACED], jobs[RACED:], math.inf
    runner.ahead(others)
    for index, outcome in runner.run(first):
        if outcome.problem is None:
            fastest = min(fastest, outcome.seconds)
        yield index, outcome
    cutoff = GIVEN_UP * fastest if fastest < math.inf else None
    for index, outcome in runner.run([replace(job, cutoff=cutoff) for job in others]):
        yield index + len(first), outcome


def searched(row: dict[str, object], runner: LocalRunner, place: Place, trials: int) -> tuple[str, float]:
    """A line for a shape of a table, and the time of the table's best by that of a search's."""
    jobs = [Job.read(text) for text in cast("list[str]", row["jobs"])]
    times = cast("list[tuple[str, float, bool, bool]]", row["times"])
    search = Search(runner, place, Product(jobs[0].spec, jobs[0].shape))
    measured = search.run(math.inf, trials).trials
    found = sorted(search.times, key=lambda each: search.times[each])[:FINALISTS]
    best = sorted((x for x, (*_, again, _) in enumerate(times) if again), key=lambda x: times[x][1])[:BEST]
    about = [replace(jobs[0], schedule=each, cutoff=None) for each in found] + [jobs[x] for x in best]
    outcomes = [x.seconds if x.problem is None else math.inf for x in runner.compare(about, SECONDS)]
    at = min(range(len(found)), key=lambda x: outcomes[x])
    ratio = min(outcomes[len(found) :]) / outcomes[at]
    names = kernel_name(found[at], jobs[0].spec), times[best[0]][0]
    took = f"{names[0]} {outcomes[at] * 1e6:.1f} us, {names[1]} {min(outcomes[len(found) :]) * 1e6:.1f} us"
    return f"{row['shape']} {row['layout']}: {measured} measured, {ratio:.3f}; {took}", ratio


def told(row: dict[str, object]) -> tuple[str, list[float]]:
    """A line for a row, and its ratios: of the choice, and of each count."""
    times = cast("list[tuple[str, float, bool, bool]]", row["times"])
    # Only what was measured again counts as the fastest: single looks are luckier.
    name, best = min(((name, us) for name, us, again, _ in times if again), key=lambda each: each[1])
    chosen = next((us for _, us, _, is_choice in times if is_choice), math.inf)
    first = [min(us if again else max(us, best) for _, us, again, _ in times[:count]) for count in COUNTS]
    ratios = [best / chosen, *(best / us for us in first)]
    texts = " ".join(f"{ratio:.3f}" for ratio in ratios)
    return f"{row['shape']} {row['layout']}: {len(times)} measured, {texts}; {name} {best:.1f} us", ratios


def summaries(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    """A line for the choice, and for each count."""
    table = [told(row)[1] for row in rows]
    for name, column in zip(("choice", *(f"first {count}" for count in COUNTS)), zip(*table, strict=True), strict=True):
        yield f"{name}: {summary(column)}"


def read(paths: Sequence[Path]) -> list[dict[str, object]]:
    """The rows of tables."""
    lines = (line for path in paths for line in gzip.decompress(path.read_bytes()).decode().splitlines())
    return [row for line in lines if "times" in (row := json.loads(line))]


def main() -> None:
    """Measure or read, and say what is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", default="")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--most", type=int, default=MOST, help="schedules of a shape")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--after", type=int, default=0, help="shapes of this part that are there already")
    parser.add_argument("--target", help="sm_80: with the instructions that this architecture has, and no others")
    parser.add_argument("--builders", type=int, help="processes that compile")
    parser.add_argument("--seconds", type=float, default=1e9, help="no further shape is begun after so many")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--read", type=Path, nargs="+", help="tables, in place of measuring")
    parser.add_argument(
        "--search", type=int, default=0, help="schedules that a search measures of each shape of tables"
    )
    said, begin = parser.parse_args(), time.perf_counter()
    if said.search and not said.read:
        parser.error("--search needs the tables that it is compared with: --read TABLE")
    if said.read and not said.search:
        rows = read(said.read)
        print(*(told(row)[0] for row in rows), *summaries(rows), sep="\n")
        return
    info, (part, parts) = pick(), map(int, said.part.split("/"))
    builders = said.builders or max(1, len(os.sched_getaffinity(0)) // parts - 1)
    runner, rows, target = LocalRunner(is_alone=False, builders=builders), [], info.target
    if said.target:
        target = replace(target, name=said.target, features=TARGETS[said.target].features)
    if said.search:
        place, ratios = Place("cuda", None, target, key_of("cuda", info, target)), list[float]()
        for row in read(said.read)[part - 1 :: parts][said.after :]:
            if ratios and time.perf_counter() - begin > said.seconds:
                break
            line, ratio = searched(row, runner, place, said.search)
            ratios.append(ratio)
            print(line, flush=True)
        runner.close()
        print(f"search of {said.search}: {summary(ratios)}")
        return
    layouts = ["row,col"] if build_spec(dtype=said.dtype).dtype in FLOAT8 else "row,row row,col col,row col,col".split()
    lines = [json.dumps({"device": str(info), "commit": said.commit, "dtype": said.dtype})]
    for shape, layout in list(drawn(said.commit, said.dtype, said.count, layouts))[part - 1 :: parts][said.after :]:
        if time.perf_counter() - begin > said.seconds:
            break
        spec = assuming_no_gaps(build_spec(dtype=said.dtype, layout=layout), shape)
        rows.append(measured(spec, shape, target, runner, said.most))
        lines.append(json.dumps(rows[-1]))
        print(told(rows[-1])[0], *cast("list[str]", rows[-1]["wrong"]), sep="\n", flush=True)
        if said.output:
            said.output.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    runner.close()
    print(*summaries(rows), sep="\n")


if __name__ == "__main__":
    main()
