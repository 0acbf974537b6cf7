"""From a preset, a schedule or a file to reports, several targets at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from gemmgen import driver
from gemmgen.errors import ToolError, UserError
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchains import Input, Language, compile_for
from gemmgen.inspect.traffic import LocalAccess, local_accesses
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.target import TARGETS, Target
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

#: Bytes of a register of Xe-HPC, twice those of all other Intel GPUs here.
WIDE_REGISTER = 64
#: The options that an emitted file of OpenCL C names in its head.
_BUILD_LINE = re.compile(r'^// Build +clBuildProgram\(\.\.\., "([^"]*)", \.\.\.\)$', re.MULTILINE)
_GPU_OPTION = re.compile(r"^//.* on Intel's GPUs, and only there, the build option (\S+)$", re.MULTILINE)
LANGUAGES: dict[str, Language] = {".cl": "OpenCL C", ".cu": "CUDA C++", ".hpp": "SYCL", ".spv": "SPIR-V"}


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
    if machine.vendor == "amd":
        return "opencl", TARGETS["portable"]
    is_xe_hpc = machine.figures.register_bytes == WIDE_REGISTER
    return "opencl", TARGETS["xe_hpc" if is_xe_hpc else "intel"]


def jobs(spec: GemmSpec, schedule: Schedule, chosen: Sequence[Machine]) -> list[Job | Failure]:
    """A schedule's kernels. Targets that can do the same get the same text, which is emitted once."""
    made: dict[tuple[str, Target], tuple[Source, Kernel]] = {}
    out: list[Job | Failure] = []
    for machine in chosen:
        backend, target = target_of(machine)
        if problems := driver.refusals(spec, schedule, backend, target):
            out.append(Failure(machine, problems))
            continue
        key = (backend, target)
        if key not in made:
            source, program = driver.emit_program(spec, schedule, backend, target)
            made[key] = source, program.main
        out.append(_job(machine, *made[key], spec, schedule))
    return out


def _job(machine: Machine, source: Source, kernel: Kernel, spec: GemmSpec, schedule: Schedule) -> Job:
    # What scales C before parts of K are added to it comes first, a sum over such parts last.
    entry = next(e for e in source.entry_points if e.name == kernel.name)
    group = entry.group[0] * entry.group[1]
    options = () if machine.vendor == "nvidia" else source.options(machine.vendor == "intel", machine.matrices)
    given = Input(
        "CUDA C++" if machine.vendor == "nvidia" else "OpenCL C",
        source.text.encode(),
        entry.name,
        options,
        group,
        source.name,
        entry.dynamic_bytes,
    )
    accesses: dict[str, tuple[LocalAccess, ...]] = {}
    if machine.figures.banks is not None:
        lanes = 32 if machine.vendor == "nvidia" or machine.figures.simds == 2 else 64
        accesses[machine.target] = _accesses(kernel, lanes, int(machine.figures.banks))
    sizes = tuple(size or 4096 for size in (spec.m, spec.n, spec.k))
    fmas = schedule.tile[0] * schedule.tile[1] * schedule.k_step
    return Job(machine, given, Subject(source.name, accesses, fmas, (sizes[0], sizes[1], sizes[2])), source.text)


@lru_cache(maxsize=8)
def _accesses(kernel: Kernel, lanes: int, banks: int) -> tuple[LocalAccess, ...]:
    return local_accesses(kernel, lanes, banks)


def file_jobs(path: Path, kernel: str | None, chosen: Sequence[Machine]) -> list[Job | Failure]:
    """A user's file, for each target. Raises: UserError if it can't be read or is of no kind that is known."""
    if path.suffix not in LANGUAGES:
        listed = ", ".join(f"{suffix} ({name})" for suffix, name in LANGUAGES.items())
        raise UserError(f"{path}: of which language is it? Its name must end in {listed}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}") from None
    # What a binary was made of is not at hand.
    text = "" if path.suffix == ".spv" else content.decode("utf-8", "replace")
    source = Input(LANGUAGES[path.suffix], content, kernel, (), None, path.name)
    return [
        Job(machine, replace(source, options=_named_options(text, machine)), Subject(path.name), text)
        for machine in chosen
    ]


def _named_options(text: str, machine: Machine) -> tuple[str, ...]:
    """The build options that the head of an emitted file of OpenCL C tells its users."""
    built, more = _BUILD_LINE.search(text), _GPU_OPTION.findall(text)
    return (*(built[1].split() if built else ()), *(more if machine.vendor == "intel" else ()))


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
