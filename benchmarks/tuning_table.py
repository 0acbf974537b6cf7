"""Measure every legal schedule of a small space for one product, as a table that a search can be replayed on.

    python benchmarks/tuning_table.py 256x384x512 -o tests/support/tuning_table.jsonl [--device 1]

The table in tests/support was made so. Times are one look each; the best ten are compared in turns.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemmgen.runtime.selection import pick
from gemmgen.schedule import Value
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.spec import GemmSpec
from gemmgen.tuning.device import key_of
from gemmgen.tuning.job import Job
from gemmgen.tuning.order import static_problem
from gemmgen.tuning.records import Line, Records
from gemmgen.tuning.runners import LocalRunner
from gemmgen.tuning.space import spaces

#: The space: all other axes have the first of their values.
VALUES: dict[str, tuple[Value, ...]] = {
    "vector": (16,),
    "b.memory": ("global", "private"),
    "tile.rows": (6, 8, 12, 14),
    "tile.columns": (1, 2, 4),
    "macro_kernel.rows": (4, 43),
    "macro_kernel.columns": (1, 4),
    "grid_multiple.rows": (2,),
    "kc": (0, 128, 512),
    "block_k": (1, 4),
}
#: Schedules measured at a time, and those that are compared at the end.
BATCH, BEST = 8, 10


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", help="MxNxK")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device")
    said = parser.parse_args()
    m, n, k = map(int, said.shape.split("x"))
    spec, device = GemmSpec(), pick("opencl", device=said.device)
    space = next(x for x in spaces(spec, device.target) if x.mainloop is CpuPanel)
    narrow = space.narrowed({axis.name: VALUES.get(axis.name, axis.values[:1]) for axis in space.axes})
    found = [x for _, x in narrow.points() if static_problem(x, (m, n, k), device.target) is None]
    jobs = [Job("opencl", device.number, spec, (m, n, k), 1, x, budget=0.05) for x in found]
    records = Records(key_of("opencl", device, device.target), ())
    runner = LocalRunner(is_alone=True)
    times: list[tuple[float, Job]] = []
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        for index, outcome in runner.run(batch):
            if outcome.problem is None:
                records = records.merged([Line.of(outcome.measurement(batch[index]))])
                times.append((outcome.seconds, batch[index]))
            else:
                sys.stderr.write(f"{outcome.problem}\n")
        sys.stderr.write(f"{start + len(batch)} of {len(jobs)}\n")
    best = [job for _, job in sorted(times, key=lambda each: each[0])[:BEST]]
    for job, outcome in zip(best, runner.compare(best, 5.0), strict=True):
        records = records.merged([Line.of(outcome.measurement(job, compared=True))])
    runner.close()
    said.output.write_text(records.text())


if __name__ == "__main__":
    main()
