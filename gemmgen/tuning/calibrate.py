"""The constants of a GPU, measured by products whose time is that of one thing (`gemmgen tune --calibrate`).

| constant | from |
|---|---|
| `launch` | the smallest product |
| `memory` | a product of few rows, whose B is read once |
| `fma`, `mma`, `wgmma` | a large product by a schedule of each mainloop: the rate by which the prior takes as long |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import prod

from gemmgen import candidates
from gemmgen.choice import gpu, prior
from gemmgen.choice.machine import Machine, derived
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning import calibrate_cpu
from gemmgen.tuning.job import Job, assuming_no_gaps
from gemmgen.tuning.runners import Runner
from gemmgen.tuning.space import Shape
from gemmgen.tuning.study import Place

#: Seconds of a measurement; steps by which a rate is found.
LOOK, HALVINGS = 1.0, 20
SMALL: Shape = (16, 16, 16)
#: B takes half a gigabyte.
FEW_ROWS: Shape = (16, 16384, 16384)
LARGE: Mapping[str, Shape] = {"fma": (4096, 4096, 4096), "mma": (4096, 4096, 4096), "wgmma": (8192, 8192, 4096)}
NAMED: Mapping[str, tuple[str, str]] = {
    "fma": ("float32", "async_8x8_16x16"),
    "mma": ("bfloat16", "mma_8x16_16x16"),
    "wgmma": ("bfloat16", "wgmma_128x256_s4"),
}


def measured(runner: Runner, place: Place, tell: Callable[[str], None] = lambda _: None) -> dict[str, float]:
    """The constants that could be measured on a device, by their names."""
    target = place.target
    if "vectors" in target.features:
        return calibrate_cpu.measured(runner, place, tell)
    machine, found = derived(target), dict[str, float]()
    for name, spec, shape, schedule in _products(place):
        job = Job(place.backend, place.number, spec, shape, 1, schedule, budget=LOOK)
        outcome = next(outcome for _, outcome in runner.run([job]))
        if outcome.problem is not None:
            tell(f"{name}: {outcome.problem}")
            continue
        us, (m, n, k) = outcome.seconds * 1e6, shape
        if name == "launch":
            found[name] = us
        elif name == "memory":
            found[name] = ((m + n) * k + m * n) * spec.dtype.size / us
        else:
            known = replace(machine, **found)  # type: ignore[arg-type]
            found[name] = rate(name, us, assuming_no_gaps(spec, shape), shape, schedule, known)
        tell(f"{name}: {found[name]:.4g}, {getattr(machine, name):.4g} before")
    return found


def rate(name: str, us: float, spec: GemmSpec, shape: Shape, schedule: Schedule, machine: Machine) -> float:
    """The multiply-adds of a cycle by which the prior takes as long for a product, at most those of the device's
    architecture, and at least what they come to where they are all that takes time.
    """
    least, most = prod(shape) / us / machine.clock / machine.cores, float(getattr(machine, name))
    for _ in range(HALVINGS):
        middle = (least + most) / 2
        (cost,) = prior.costs(spec, [schedule], shape, replace(machine, **{name: middle}))  # type: ignore[arg-type]
        least, most = (middle, most) if cost > us else (least, middle)
    return most


def _products(place: Place) -> Iterator[tuple[str, GemmSpec, Shape, Schedule]]:
    target = place.target
    for name in ("launch", "memory"):
        spec, shape = GemmSpec(dtype="bfloat16"), SMALL if name == "launch" else FEW_ROWS
        first = next(gpu.ranked(assuming_no_gaps(spec, shape), shape, target), None)
        if first is not None:
            yield name, spec, shape, first[1]
    for name, (dtype, named) in NAMED.items():
        schedule = candidates.load(named).schedule
        needs = {"fma": "async_copy"}.get(name, name)
        if needs in target.features:
            yield name, GemmSpec(dtype=dtype), LARGE[name], schedule.but(name=None)
