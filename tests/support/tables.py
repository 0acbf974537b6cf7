"""Tables of schedules that `benchmarks/exhaustive.py` has measured on GPUs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean, mean

from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.job import Job, assuming_no_gaps
from gemmgen.tuning.space import Shape

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
#: Of the best speed, from which on a schedule counts as the best.
NEAR = 0.97
#: The first day whose kernels read nothing past the end of a line that they copy by single elements.
ENDS = "2026-12-01"
#: As the device says of itself.
H200 = replace(TARGETS["sm_90a"], clock=1980, memory_rate=4_800_000, cache_bytes=50 << 20)


@dataclass(frozen=True)
class Table:
    """A product, and the microseconds of the schedules that it was measured by."""

    spec: GemmSpec
    shape: Shape
    us: dict[Schedule, float]
    products: int = 1


def tables(names: str) -> list[Table]:
    """Those of some files, such as `2026-11-29_h200/exhaustive_*`.

    Only what was measured again can be the fastest: single looks are luckier.
    Files that say of which commit their kernels are store C as today's do.
    """
    found = []
    for path in sorted(RESULTS.glob(f"{names}.jsonl.gz")):
        of_today = False
        for told in map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines()):
            of_today |= "kernels" in told
            if "times" not in told:
                continue
            jobs = [Job.read(text) for text in told["jobs"]]
            best = min(us for _, us, again, _ in told["times"] if again)
            times = (us if again else max(us, best) for _, us, again, _ in told["times"])
            of = zip((job.schedule for job in jobs), times, strict=True)
            us = {schedule: time for schedule, time in of if of_today or not _is_gone(schedule)}
            spec, shape = jobs[0].spec, jobs[0].shape
            if path.parent.name < ENDS:
                us = {schedule: time for schedule, time in us.items() if not read_past_ends(spec, shape, schedule)}
            if us:
                found.append(Table(assuming_no_gaps(spec, shape), shape, us, jobs[0].products))
    return found


def read_past_ends(spec: GemmSpec, shape: Shape, schedule: Schedule) -> bool:
    """Whether kernels of before `ENDS` took longer: they copied lines of A along M or of B along N by single elements.
    For those past the end they read the last one again and again.
    """
    if spec.dtype.size < 4:
        return False  # they go through registers
    across = {"a": (spec.a_order == "col", shape[0]), "b": (spec.b_order == "row", shape[1])}
    return any(
        lies_across and length * spec.dtype.size % 16 > 0 and operand.async_copy and not operand.prepacked
        for name, (lies_across, length) in across.items()
        if (operand := schedule.operand(name)).memory == "local" and not schedule.by_warpgroups
    )


def _is_gone(schedule: Schedule) -> bool:
    """Whether its kernel stored C in another way then: one by one from registers, where today it goes line by line."""
    return schedule.by_warpgroups and schedule.c_width == 1 < schedule.thread_vector[1]


def summary(ratios: Sequence[float]) -> str:
    """Of the time of the best by that of what was found."""
    near = mean(ratio >= NEAR for ratio in ratios)
    return f"geomean {geometric_mean(ratios):.3f}, worst {min(ratios):.3f}, within 3 % on {near:.0%} of {len(ratios)}"
