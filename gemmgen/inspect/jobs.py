"""From a preset, a schedule or a file to reports, several targets at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from gemmgen import driver
from gemmgen.banks import LocalAccess, local_accesses
from gemmgen.errors import ToolError, UserError
from gemmgen.inspect import amd, intel, nvidia
from gemmgen.inspect.bounds import traffic
from gemmgen.inspect.code import Compiled
from gemmgen.inspect.machine import Machine, target_of
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchain import SUFFIXES, Input, Language, version
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

#: The options that an emitted file of OpenCL C names in its head, whose long lines go on further in.
_CONTINUED = re.compile(r"\n// {16}")
_BUILD_LINE = re.compile(r'^// Build +clBuildProgram\(\.\.\., "([^"]*)", \.\.\.\)$', re.MULTILINE)
_GPU_OPTION = re.compile(r"^//.* on Intel's GPUs, and only there, the build option (\S+)$", re.MULTILINE)
LANGUAGES: dict[str, Language] = {suffix: language for language, suffix in SUFFIXES.items()}
#: Vendor -> the languages that its compiler takes here.
COMPILERS: dict[str, dict[Language, Callable[[Machine, Input], Compiled]]] = {
    "intel": {"OpenCL C": intel.compiled, "SPIR-V": intel.compiled, "SYCL": intel.compiled},
    "nvidia": {"CUDA C++": nvidia.compiled},
    "amd": {"OpenCL C": amd.compiled},
}
_AT_LAUNCH = "the launch decides how much local memory a group has: it is not known here, nor is occupancy"


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
    lanes, banks = 32 if machine.vendor == "nvidia" or machine.figures.simds == 2 else 64, machine.figures.banks
    accesses = () if banks is None else _accesses(kernel, lanes, int(banks))
    sizes = tuple(size or 4096 for size in (spec.m, spec.n, spec.k))
    fmas = schedule.tile[0] * schedule.tile[1] * schedule.block_k
    subject = Subject(source.name, accesses, fmas, (sizes[0], sizes[1], sizes[2]), traffic(spec, schedule))
    return Job(machine, given, subject, source.text)


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
    head = _CONTINUED.sub(" ", text)
    built, more = _BUILD_LINE.search(head), _GPU_OPTION.findall(head)
    return (*(built[1].split() if built else ()), *(more if machine.vendor == "intel" else ()))


# Compiled code is judged by the machine code, never by an exit status.


def compile_for(machine: Machine, source: Input) -> Compiled:
    """A kernel as the device's compiler leaves it.

    Raises: ToolError if a tool is missing or refuses the source, or if there is no such kernel in the result.
    """
    if not machine.device:
        raise ToolError(f"{machine.target}: {machine.note}")
    able = COMPILERS[machine.vendor]
    if source.language not in able:
        raise ToolError(f"{machine.target} takes no {source.language} here: {' or '.join(able)}")
    compiled = able[source.language](machine, source)
    if not compiled.listing.instructions:
        raise ToolError(f"{machine.target}: {compiled.kernel} came out empty: a built-in that {machine.target} lacks?")
    known, notes = compiled.resources, compiled.notes
    group = known.group if known.group is not None else source.group
    local = None if known.local_bytes is None else known.local_bytes + (source.launch_bytes or 0)
    if known.at_launch and source.launch_bytes is None:
        local, notes = None, (*notes, _AT_LAUNCH)
    by = f"{machine.compiler} {version(machine.compiler)}"
    return replace(compiled, resources=replace(known, group=group, local_bytes=local), notes=notes, compiler=by)


def inspect(made: Sequence[Job | Failure]) -> list[Outcome]:
    """Compile and report, as many at a time as there are processors."""
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(_one, made))


def _one(job: Job | Failure) -> Outcome:
    if isinstance(job, Failure):
        return job
    try:
        return report(job.machine, compile_for(job.machine, job.source), job.subject)
    except ToolError as error:
        return Failure(job.machine, error.problems)
