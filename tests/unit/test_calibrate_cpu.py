"""Constants of a CPU from times that another machine's constants give: what is calibrated is what they were."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from gemmgen.cpu import prior
from gemmgen.cpu.machine import MEASURED, Machine, machine_of
from gemmgen.ir.target import TARGETS, Target
from gemmgen.tuning import calibrate
from gemmgen.tuning.device import DeviceKey
from gemmgen.tuning.job import Job, Outcome
from gemmgen.tuning.records import Records, parse
from gemmgen.tuning.study import Place

CPU = replace(TARGETS["cpu"], name="calibrated", cores=2, caches=(32 << 10, 1 << 20, 32 << 20), register_bytes=65536)
KEY = DeviceKey("opencl", "calibrated", 2, "1", "1", "1")
#: Cycles in a second.
CLOCK = 1.3e9


@dataclass
class Model:
    """Takes as long as the prior says with a machine's constants, every other time twice as long."""

    machine: Machine
    target: Target
    width: int = 1
    asked: int = 0

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        for index, job in enumerate(jobs):
            self.asked += 1
            panels = prior.panels([job.schedule], self.target.cores)
            (cycles,) = prior.cycles(job.spec, panels, job.shape, self.machine)
            yield index, Outcome(seconds=float(cycles) / CLOCK * (1 + self.asked % 2))

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to end."""


@pytest.mark.parametrize(
    "true",
    [
        {"threads": 60000.0, "third_line": 2.5, "memory_line": 14.0, "several_line": 9.0},
        {"threads": 20000.0, "third_line": 6.0, "memory_line": 10.0, "several_line": 20.0},
    ],
    ids=str,
)
def test_constants_are_found_again(true: dict[str, float]) -> None:
    told: list[str] = []
    runner = Model(replace(machine_of(CPU), **true), CPU)
    found = calibrate.measured(runner, Place("opencl", 0, CPU, KEY), told.append)
    assert found.keys() == set(MEASURED) == true.keys()
    # The product that says how long a cycle is depends on them a little.
    assert found == {name: pytest.approx(value, rel=0.2) for name, value in true.items()}
    assert len(told) == len(MEASURED) + 1
    kept = parse(Records(KEY, (), found).text(), "here")
    assert kept.machine == found


def test_one_core_wakes_no_threads() -> None:
    alone = replace(CPU, cores=1)
    found = calibrate.measured(Model(machine_of(alone), alone), Place("opencl", 0, alone, KEY))
    assert found.keys() == set(MEASURED) - {"threads"}
