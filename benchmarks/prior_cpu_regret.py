"""What the prior of CPUs loses by its choices among schedules that were measured: tables, and how to make one.

    python benchmarks/prior_cpu_regret.py benchmarks/results/2026-11-2*_cpu/rows_*.json
    python benchmarks/prior_cpu_regret.py --time rows.json --platform Portable --shapes 40 --seed 11

A row is a shape with the microseconds of schedules of every kind that the model does not rule out, by the odd and by
the even rounds. One half says which schedule is the fastest, the other how fast it is: the luckiest of many figures is
no peer. Caches and compiler are those of the machine that a file was measured on (`MACHINES`, by a part of its name).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from choose_cpu import random_shapes, thin_shapes

from gemmgen.cpu import panels, prior
from gemmgen.cpu.machine import INTEL, MOST_THIRD, Machine
from gemmgen.driver import emit
from gemmgen.ir.target import Target
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Shape = tuple[int, int, int]
#: Of the machines of the files: L1, L2, L3, and what Intel's compiler keeps in registers, where it was that.
MACHINES = {
    "zen5": Machine(48 << 10, 1 << 20, 32 << 20, **INTEL),
    "zen4_pocl": Machine(32 << 10, 1 << 20, 32 << 20),
    "zen4": Machine(32 << 10, 1 << 20, 32 << 20, **INTEL),
    "": Machine(48 << 10, 2 << 20, MOST_THIRD, **INTEL),  # Xeons
}
#: Rounds of a table, seconds of a turn, and times the best cost up to which schedules are measured.
ROUNDS, TURN, RULED_OUT = 12, 0.002, 3.0
#: Schedules of a shape: the cheapest by the model, and others at random.
CHEAPEST, OTHERS = 11, 12


@dataclass(frozen=True)
class Row:
    """A shape, the schedules as the model looks at them, and their microseconds by either half of the rounds."""

    spec: GemmSpec
    shape: Shape
    panels: prior.Panels
    us: np.ndarray

    def regret(self, machine: Machine) -> tuple[float, float]:
        """The time of the model's choice as a multiple of the best: by halves, and by the means."""
        at = int(np.argmin(prior.cycles(self.spec, self.panels, self.shape, machine)))
        halves = [self.us[at, 1 - half] / self.us[np.argmin(self.us[:, half]), 1 - half] for half in (0, 1)]
        both = self.us.mean(1)
        return math.sqrt(halves[0] * halves[1]), both[at] / both.min()


def load(path: Path) -> list[Row]:
    """A file's."""
    found = []
    for row in json.loads(path.read_text()):
        table = [
            (*tile, vector, copied, dot, *kernel, *even, kc, mc, split, row["target"][0], *(fused or [False]))
            for tile, vector, copied, split, kernel, even, kc, mc, dot, *fused in row["ways"]
        ]
        us = np.array(row["us"][: len(table)])  # files of 2026-11-22 have the first schedule once more
        spec = GemmSpec(b_order=row.get("b_order", "row"))
        found.append(Row(spec, tuple(row["shape"]), prior.Panels.of(table), us))
    return found


def judge(path: Path) -> None:
    """Print a file's line."""
    rows = load(path)
    machine = next(machine for name, machine in MACHINES.items() if name in path.name)
    halves, means = zip(*(row.regret(machine) for row in rows), strict=True)
    geomean = math.exp(float(np.mean(np.log(halves))))
    tenth = float(np.percentile(means, 90))
    print(f"{path.name:32} {len(rows):4} shapes: geomean {geomean:.3f}, tenth {tenth:.2f}, worst {max(means):.2f}")


# --- a table --------------------------------------------------------------------------------------


def candidates(spec: GemmSpec, shape: Shape, target: Target) -> list[Schedule]:
    """The chosen one, then of each kind the cheapest, dearer ones at random."""
    chosen = panels.choose_panels(spec, shape, target)
    assert chosen is not None
    found = [chosen, *panels.liked(spec, shape, target, 1000)]
    cost = panels.cycles(spec, found, shape, target)
    found = [each for each, cycles in zip(found, cost, strict=True) if cycles < RULED_OUT * cost[0]]
    rest = found[CHEAPEST:]
    return list(dict.fromkeys([*found[:CHEAPEST], *random.sample(rest, min(len(rest), OTHERS))]))


def timed(spec: GemmSpec, shape: Shape, device: DeviceInfo, built: dict[Schedule, CompiledKernel]) -> dict[str, object]:
    """A row, as a file has it. Results are checked."""
    m, n, k = shape
    target, rng = target_of(device.handle), np.random.default_rng(0)
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    right, c = a @ b, np.empty((m, n), np.float32)
    b = np.asfortranarray(b) if spec.b_order == "col" else b
    schedules, once = candidates(spec, shape, target), list[float]()
    for each in schedules:
        if each not in built:
            built[each] = CompiledKernel.from_source(emit(spec, each, "opencl", target), device)
        c[:] = np.nan
        built[each](a, b, c)
        assert np.allclose(c, right, rtol=1e-3, atol=1e-3 * math.sqrt(k)), built[each].source.name
        begin = time.perf_counter()
        built[each](a, b, c)
        once.append(time.perf_counter() - begin)
    times: list[list[float]] = [[] for _ in schedules]
    for _ in range(ROUNDS):
        for at in random.sample(range(len(schedules)), len(schedules)):
            count = max(1, int(TURN / once[at]))
            begin = time.perf_counter()
            for _ in range(count):
                built[schedules[at]](a, b, c)
            times[at].append((time.perf_counter() - begin) / count)
    ways = [
        (
            s.tile,
            s.vector,
            s.b.memory == "private",
            s.split_k,
            *(s.macro_kernel, s.grid_multiple),
            s.kc,
            s.mc,
            s.dot_product,
            s.fused_copy,
        )
        for s in schedules
    ]
    us = [[round(min(x[half::2]) * 1e6, 1) for half in (0, 1)] for x in times]
    return {"shape": shape, "b_order": spec.b_order, "target": [target.cores], "ways": ways, "us": us}


def main() -> None:
    """Judge files, or make one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--time", type=Path, help="a file for rows that are timed now")
    parser.add_argument("--platform", default="Intel")
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--thin", action="store_true", help="shapes of few rows or columns of C")
    parser.add_argument("--b-order", default="row", choices=("row", "col"))
    given = parser.parse_args()
    for path in given.files:
        judge(path)
    if given.time is None:
        return
    random.seed(given.seed)
    device, spec = pick(type="cpu", platform=given.platform), replace(GemmSpec(), b_order=given.b_order)
    rows, built = list[dict[str, object]](), dict[Schedule, CompiledKernel]()
    for shape in (thin_shapes if given.thin else random_shapes)(given.shapes, given.seed):
        rows.append(timed(spec, shape, device, built))
        given.time.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
