"""`gemmgen inspect`: what compilers make of a kernel, without the device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.cli.output import deliver, path_problems, say, write
from gemmgen.cli.request import Request, attempt, complete_presets, takes_request
from gemmgen.errors import UserError

if TYPE_CHECKING:
    from gemmgen.inspect.html import Section
    from gemmgen.inspect.jobs import Failure, Job, Outcome
    from gemmgen.inspect.machine import Machine

EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen inspect --preset block_read_32x2_1x8 --target bdw,skl,tgllp,dg2-g10",
        "gemmgen inspect --preset 'smem_*' --target 'sm_*' --json smem.json",
        "gemmgen inspect --tile 8x4 --target all --html report.html",
        "gemmgen inspect kernel.cl --kernel gemm --target gfx906,skl --asm",
        "gemmgen inspect --preset smem_8x8_double --target all --plot roofline.png",
    )
)
_PICTURES = ("png", "svg", "pdf")


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel on all targets that were asked for."""

    name: str
    jobs: Sequence[Job | Failure]


def complete_machines(incomplete: str) -> list[str]:
    """Targets, for the shell; the last of a list."""
    from gemmgen.inspect.machine import machines

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ("all", *machines()) if name.startswith(last)]


def _files(*names: str, metavar: str, text: str) -> object:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel="Output")


@takes_request
def inspect(
    request: Request,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A file of your own: .cl, .cu, .hpp or .spv.", show_default=False),
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", metavar="NAME", help="The kernel in FILE.")] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(
            "--preset",
            metavar="NAME[,NAME]",
            help="Presets; * matches. Can be repeated.",
            autocompletion=complete_presets,
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="NAME[,NAME]",
            help="Devices by their compilers' names: skl, sm_90a, gfx906, ...; * matches; all.",
            autocompletion=complete_machines,
        ),
    ] = "all",
    asm: Annotated[bool, typer.Option("--asm", help="Also print the hot loops.", rich_help_panel="Output")] = False,
    json_file: Annotated[
        Path | None, _files("--json", metavar="FILE", text="Every figure; - is standard output.")
    ] = None,
    html: Annotated[
        Path | None, _files("--html", metavar="FILE", text="A page with the loops beside the source.")
    ] = None,
    plot: Annotated[Path | None, _files("--plot", metavar="FILE", text="A roofline: .png, .svg or .pdf.")] = None,
) -> None:
    """Compile a kernel by each vendor's own compiler, and say what became of it.

    Nothing is run and nothing is measured: counts are read from machine code, bounds follow from them and from the
    devices' published figures. What can't be counted for certain is printed as unknown.
    """
    from gemmgen.inspect import show
    from gemmgen.inspect.jobs import inspect as compile_all
    from gemmgen.inspect.machine import choose

    problems = _problems(request, file, kernel, preset, {"--json": json_file, "--html": html, "--plot": plot})
    machines = attempt(problems, choose, [name.strip() for name in target.split(",") if name.strip()])
    kernels = attempt(problems, _kernels, request, file, kernel, preset, machines or ())
    if problems or kernels is None:
        raise UserError(problems)
    found = [(k, compile_all(k.jobs)) for k in kernels]
    _check(found)
    if json_file is None or str(json_file) != "-":
        for one, outcomes in found:
            _print(one, outcomes, asm)
        say(f"{show.CAPTION}\n")
    _deliver(found, json_file, html, plot)


# --- what is asked for ----------------------------------------------------------------------------


def _problems(
    request: Request, file: Path | None, kernel: str | None, preset: list[str] | None, outputs: dict[str, Path | None]
) -> list[str]:
    problems: list[str] = []
    for option, path in outputs.items():
        if path is not None and str(path) != "-":
            problems += (p.replace("-o ", f"{option} ", 1) for p in path_problems(path, "report" + path.suffix))
    plot = outputs["--plot"]
    if str(outputs["--html"]) == "-":
        problems.append("--html -: a page goes to a file: name one, such as report.html")
    if plot is not None and plot.suffix.lstrip(".") not in _PICTURES:
        problems.append(f"--plot {plot}: its name must end in .{', .'.join(_PICTURES)}, such as roofline.png")
    if kernel is not None and file is None:
        problems.append(f"--kernel {kernel} names a kernel in a file: name the file as well")
    if file is not None and (preset or request != Request()):
        problems.append(f"{file} is compiled as it is: leave out the options that make a kernel")
    return problems


def _kernels(
    request: Request, file: Path | None, kernel: str | None, preset: list[str] | None, machines: Sequence[Machine]
) -> list[_Kernel]:
    """Raises: UserError with every problem."""
    from gemmgen.inspect.jobs import file_jobs, jobs
    from gemmgen.methods import slug

    if file is not None:
        return [_Kernel(file.name, file_jobs(file, kernel, machines))]
    names = _presets(preset) if preset else [None]
    out = []
    for name in names:
        spec, schedule, _ = replace(request, preset=name).resolve()
        out.append(_Kernel(slug(schedule), jobs(spec, schedule, machines)))
    return out


def _presets(texts: list[str]) -> list[str | None]:
    """Names as they are, and those that a pattern matches, each once."""
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


def _check(found: Sequence[tuple[_Kernel, Sequence[Outcome]]]) -> None:
    """Raises: UserError where no target has anything to show."""
    from gemmgen.inspect.jobs import Failure

    outcomes = [outcome for _, outcomes in found for outcome in outcomes]
    problems = [p for o in outcomes if isinstance(o, Failure) for p in o.problems]
    if all(isinstance(outcome, Failure) for outcome in outcomes):
        raise UserError(dict.fromkeys(problems))


def _print(kernel: _Kernel, outcomes: Sequence[Outcome], asm: bool) -> None:
    from io import StringIO
    from textwrap import fill

    from rich.console import Console

    from gemmgen.inspect import show
    from gemmgen.inspect.report import Report

    detected = Console()
    text = StringIO()
    # A pipe has no width: a row then stays a row, to be searched by grep.
    width = detected.width if detected.is_terminal else show.WIDTH
    Console(file=text, width=width, force_terminal=detected.is_terminal).print(show.table(kernel.name, outcomes))
    text.writelines(f"{fill(line, width, subsequent_indent='    ')}\n" for line in show.remarks(outcomes))
    sources = _sources(kernel)
    if asm:
        reports = (outcome for outcome in outcomes if isinstance(outcome, Report))
        text.writelines("\n" + show.listing(r, sources.get(r.target, "").splitlines()) for r in reports)
    say(text.getvalue() + "\n")


def _sources(kernel: _Kernel) -> dict[str, str]:
    from gemmgen.inspect.jobs import Job

    return {job.machine.target: job.text for job in kernel.jobs if isinstance(job, Job)}


def _deliver(
    found: Sequence[tuple[_Kernel, Sequence[Outcome]]], json_file: Path | None, html: Path | None, plot: Path | None
) -> None:
    from gemmgen.inspect import show
    from gemmgen.inspect.jobs import Job

    if json_file is not None:
        reports = [show.plain(outcome, k.name) for k, outcomes in found for outcome in outcomes]
        text = json.dumps({"note": show.CAPTION, "reports": reports}, indent=2) + "\n"
        deliver(text, None if str(json_file) == "-" else json_file)
    if html is not None:
        from gemmgen.inspect.html import page

        deliver(page([_section(k, outcomes) for k, outcomes in found]), html)
    if plot is not None:
        from gemmgen.inspect.plot import roofline

        sizes = {k.name: next((j.subject.sizes for j in k.jobs if isinstance(j, Job)), (4096,) * 3) for k, _ in found}
        drawn = [(k.name, sizes[k.name], outcomes) for k, outcomes in found]
        write(plot, lambda file: roofline(drawn, file, plot.suffix.lstrip(".")))


def _section(kernel: _Kernel, outcomes: Sequence[Outcome]) -> Section:
    from gemmgen.inspect.html import Section

    return Section(kernel.name, outcomes, _sources(kernel))
