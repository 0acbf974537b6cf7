"""`gemmgen inspect`: compile a kernel by the vendors' compilers, and report the machine code. Needs no device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.declared import Text, complete_presets, completing, flag, option
from gemmgen.cli.output import deliver, examples, path_problems, say
from gemmgen.cli.request import Request, takes_request
from gemmgen.errors import UserError, attempt

if TYPE_CHECKING:
    from gemmgen.inspect.jobs import Failure, Job
    from gemmgen.inspect.machine import Machine
    from gemmgen.inspect.page import Section

EXAMPLES = examples(
    "gemmgen inspect --preset block_read_32x2_1x8 --target bdw,skl,tgllp,dg2-g10",
    "gemmgen inspect --preset 'smem_*' --target 'sm_*' --json smem.json",
    "gemmgen inspect --tile 8x4 --target all --html report.html",
    "gemmgen inspect kernel.cl --kernel gemm --target gfx906,skl --asm",
    "gemmgen inspect --preset smem_8x8_double --target all --plot roofline.svg",
)


_OUTPUT = "Output"
_TARGET = "Devices by their compilers' names: skl, sm_90a, gfx906, ...; * matches; all."
complete_machines = completing(lambda: ("all", *import_module("gemmgen.inspect.machine").machines()))
_FILE = "A file of your own: .cl, .cu, .hpp or .spv."


@takes_request
def inspect(
    request: Request,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help=_FILE, show_default=False)] = None,
    kernel: Annotated[Text, option("--kernel", "NAME", "The kernel in FILE.")] = None,
    preset: Annotated[
        list[str] | None,
        option("--preset", "NAME[,NAME]", "Presets; * matches. Can be repeated.", complete_presets),
    ] = None,
    target: Annotated[str, option("--target", "NAME[,NAME]", _TARGET, complete_machines)] = "all",
    asm: Annotated[bool, flag("--asm", "Also print the hot loops.", _OUTPUT)] = False,
    json_file: Annotated[
        Path | None, option("--json", "FILE", "Every figure; - is standard output.", panel=_OUTPUT)
    ] = None,
    html: Annotated[
        Path | None, option("--html", "FILE", "A page with the loops beside the source.", panel=_OUTPUT)
    ] = None,
    plot: Annotated[Path | None, option("--plot", "FILE.svg", "A roofline a device, as SVG.", panel=_OUTPUT)] = None,
) -> None:
    """Compile a kernel by each vendor's own compiler, and say what became of it.

    Nothing is run and nothing is measured: counts are read from machine code, bounds follow from them and from the
    devices' published figures. What can't be counted for certain is printed as unknown.
    """
    from gemmgen.inspect.machine import choose

    problems = _problems(request, file, kernel, preset, {"--json": json_file, "--html": html, "--plot": plot})
    machines = attempt(problems, choose, [name.strip() for name in target.split(",") if name.strip()])
    kernels = attempt(problems, _kernels, request, file, kernel, preset, machines or ())
    if problems or kernels is None:
        raise UserError(problems)
    sections = [_section(name, jobs) for name, jobs in kernels]
    _check(sections)
    _deliver(sections, asm, json_file, html, plot)


# --- what is asked for ----------------------------------------------------------------------------


def _problems(
    request: Request, file: Path | None, kernel: str | None, preset: list[str] | None, outputs: dict[str, Path | None]
) -> list[str]:
    problems: list[str] = []
    for name, path in outputs.items():
        if path is not None and str(path) != "-":
            problems += path_problems(path, "report" + path.suffix, name)
    plot = outputs["--plot"]
    if str(outputs["--html"]) == "-":
        problems.append("--html -: a page goes to a file: name one, such as report.html")
    if plot is not None and plot.suffix != ".svg":
        problems.append(f"--plot {plot}: its name must end in .svg, such as roofline.svg")
    if kernel is not None and file is None:
        problems.append(f"--kernel {kernel} names a kernel in a file: name the file as well")
    if file is not None and (preset or request != Request()):
        problems.append(f"{file} is compiled as it is: leave out the options that make a kernel")
    return problems


def _kernels(
    request: Request, file: Path | None, kernel: str | None, preset: list[str] | None, machines: Sequence[Machine]
) -> list[tuple[str, Sequence[Job | Failure]]]:
    """Each kernel's name, and the job for all targets. Raises: UserError with every problem."""
    from gemmgen.inspect.jobs import file_jobs, jobs
    from gemmgen.kernel_names import kernel_name

    if file is not None:
        return [(file.name, file_jobs(file, kernel, machines))]
    names = _presets(preset) if preset else [None]
    out: list[tuple[str, Sequence[Job | Failure]]] = []
    for name in names:
        spec, schedule, _ = replace(request, preset=name).resolve()
        out.append((kernel_name(schedule, spec), jobs(spec, schedule, machines)))
    return out


def _presets(texts: list[str]) -> list[str | None]:
    """The given names, and the names that match a given pattern, each once."""
    from gemmgen.presets import names

    chosen: list[str | None] = []
    for part in (p.strip() for text in texts for p in text.split(",") if p.strip()):
        glob = "*" if part == "all" else part
        found = [name for name in names() if fnmatchcase(name, glob)]
        chosen += found or [part]
    if not chosen:
        raise UserError("--preset names none: give one of gemmgen presets, or a pattern such as 'smem_*'")
    return list(dict.fromkeys(chosen))


# --- what came of it ------------------------------------------------------------------------------


def _section(name: str, jobs: Sequence[Job | Failure]) -> Section:
    """A kernel, compiled for each target."""
    from gemmgen.inspect.jobs import Job, inspect
    from gemmgen.inspect.page import Section

    made = [job for job in jobs if isinstance(job, Job)]
    sizes = made[0].subject.sizes if made else (4096, 4096, 4096)
    return Section(name, inspect(jobs), {job.machine.target: job.text for job in made}, sizes)


def _check(sections: Sequence[Section]) -> None:
    """Raises: UserError if no target has a result."""
    from gemmgen.inspect.jobs import Failure

    outcomes = [outcome for section in sections for outcome in section.outcomes]
    problems = [p for o in outcomes if isinstance(o, Failure) for p in o.problems]
    if all(isinstance(outcome, Failure) for outcome in outcomes):
        raise UserError(dict.fromkeys(problems))


def _deliver(
    sections: Sequence[Section], asm: bool, json_file: Path | None, html: Path | None, plot: Path | None
) -> None:
    """Print the report, unless standard output is for JSON, and write the files that are asked for."""
    from gemmgen.inspect import page, show

    if json_file is None or str(json_file) != "-":
        for section in sections:
            _print(section, asm)
        say(f"{show.CAPTION}\n")
    if json_file is not None:
        reports = [show.plain(outcome, section.name) for section in sections for outcome in section.outcomes]
        text = json.dumps({"note": show.CAPTION, "reports": reports}, indent=2) + "\n"
        deliver(text, None if str(json_file) == "-" else json_file)
    if html is not None:
        deliver(page.page(sections), html)
    if plot is not None:
        deliver(page.roofline(sections).svg, plot)


def _print(section: Section, asm: bool) -> None:
    from io import StringIO
    from textwrap import fill

    from rich.console import Console

    from gemmgen.inspect import show
    from gemmgen.inspect.report import Report

    detected = Console()
    text = StringIO()
    # In a pipe a row stays on one line, so that grep can search it.
    width = detected.width if detected.is_terminal else show.WIDTH
    table = show.table(section.name, section.outcomes)
    Console(file=text, width=width, force_terminal=detected.is_terminal).print(table)
    text.writelines(
        f"{fill(line, width, subsequent_indent='    ')}\n" for line in show.remarks(section.name, section.outcomes)
    )
    for report in section.outcomes if asm else ():
        if isinstance(report, Report):
            text.write("\n" + show.listing(report, section.sources.get(report.target, "").splitlines()))
    say(text.getvalue() + "\n")
