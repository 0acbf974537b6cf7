"""From a preset, a schedule or a file to reports, several targets at a time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gemmgen import driver
from gemmgen.errors import ScheduleError, ToolError, UserError
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchains import Input, Language, compile_for
from gemmgen.inspect.traffic import LocalAccess, local_accesses
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.target import TARGETS, Target
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

LANGUAGES: dict[str, Language] = {".cl": "OpenCL C", ".cu": "CUDA C++", ".spv": "SPIR-V"}


@dataclass(frozen=True, slots=True)
class Failure:
    """A target that a kernel can't be had on, and why."""

    machine: Machine
    problems: tuple[str, ...]


Outcome = Report | Failure


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel for a target, ready to compile."""

    machine: Machine
    source: Input
    subject: Subject
    text: str


def target_of(machine: Machine) -> tuple[str, Target]:
    """The backend and the target that a kernel is emitted for. clang's OpenCL C for AMD has no sub-groups."""
    if machine.vendor == "nvidia":
        name = machine.target if machine.target in TARGETS else machine.target.rstrip("af")
        return "cuda", TARGETS[name]
    return "opencl", TARGETS["portable" if machine.vendor == "amd" else "intel"]


def jobs(spec: GemmSpec, schedule: Schedule, chosen: Sequence[Machine]) -> list[Job | Failure]:
    """A schedule's kernels; each target's text is emitted once."""
    made: dict[tuple[str, str], tuple[Source, Kernel] | ScheduleError] = {}
    out: list[Job | Failure] = []
    for machine in chosen:
        backend, target = target_of(machine)
        key = (backend, target.name)
        if key not in made:
            made[key] = _emit(spec, schedule, backend, target)
        found = made[key]
        if isinstance(found, ScheduleError):
            out.append(Failure(machine, found.problems))
        else:
            out.append(_job(machine, *found, spec, schedule))
    return out


def _emit(spec: GemmSpec, schedule: Schedule, backend: str, target: Target) -> tuple[Source, Kernel] | ScheduleError:
    try:
        return driver.emit(spec, schedule, backend, target), driver.lower(spec, schedule, target)
    except ScheduleError as error:
        return error


def _job(machine: Machine, source: Source, kernel: Kernel, spec: GemmSpec, schedule: Schedule) -> Job:
    # Others pack before it, or add up parts of K after it.
    entry = next(e for e in source.entry_points if e.name == source.name)
    group = entry.group[0] * entry.group[1]
    options = source.build_options if machine.vendor != "nvidia" else ()
    given = Input(
        "CUDA C++" if machine.vendor == "nvidia" else "OpenCL C",
        source.text.encode(),
        entry.name,
        options,
        group,
        source.name,
    )
    accesses: dict[str, tuple[LocalAccess, ...]] = {}
    if machine.figures.banks is not None:
        lanes = 32 if machine.vendor == "nvidia" or machine.figures.simds == 2 else 64
        accesses[machine.target] = local_accesses(kernel, lanes, int(machine.figures.banks))
    sizes = tuple(size or 4096 for size in (spec.m, spec.n, spec.k))
    fmas = schedule.tile[0] * schedule.tile[1] * schedule.k_step
    return Job(machine, given, Subject(source.name, accesses, fmas, (sizes[0], sizes[1], sizes[2])), source.text)


def file_jobs(path: Path, kernel: str | None, chosen: Sequence[Machine]) -> list[Job | Failure]:
    """A user's file, for each target. Raises: UserError if it can't be read or is of no kind that is known."""
    if path.suffix not in LANGUAGES:
        remedy = "compile SYCL to SPIR-V first, and give the .spv" if path.suffix in (".hpp", ".cpp") else ""
        listed = ", ".join(f"{suffix} ({name})" for suffix, name in LANGUAGES.items())
        raise UserError(f"{path}: of which language is it? Its name must end in {listed}{remedy and '; ' + remedy}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None
    source = Input(LANGUAGES[path.suffix], content, kernel, (), None, path.name)
    text = "" if path.suffix == ".spv" else content.decode("utf-8", "replace")
    return [Job(machine, source, Subject(path.name), text) for machine in chosen]


def inspect(made: Sequence[Job | Failure]) -> list[Outcome]:
    """Compile and report, as many at a time as there are processors."""
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(partial(_one), made))


def _one(job: Job | Failure) -> Outcome:
    if isinstance(job, Failure):
        return job
    try:
        return report(job.machine, compile_for(job.machine, job.source), job.subject)
    except ToolError as error:
        return Failure(job.machine, error.problems)
