"""`gemmgen explain`: draw a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmgen.backends import NAMED
from gemmgen.cli.declared import Text, TunedDevice, complete_backends, flag, option
from gemmgen.cli.output import deliver, examples, path_problems, say
from gemmgen.cli.request import Request, backend_problems, device_problems, speaking, takes_request
from gemmgen.errors import UserError, suggest

if TYPE_CHECKING:
    from gemmgen.ir.target import Target
    from gemmgen.schedule import Schedule
    from gemmgen.spec import GemmSpec

#: What a picture can show, and the most groups that a multiprocessor of any GPU runs at once.
VIEWS, MOST_RESIDENT = ("schedule", "banks", "waves"), 32
EXAMPLES = examples(
    "gemmgen explain --tile 32x2",
    "gemmgen explain --preset L3_SLM_8x8_8x16",
    "gemmgen explain --method slm --tile 8x8 --set stages=2 --set prefetch=true",
    "gemmgen explain --backend cuda --tile 8x8 --method slm",
    "gemmgen explain --preset wgmma_128x256_s4 --svg picture.svg",
    "gemmgen explain --preset smem_8x8 --backend cuda --view banks --svg banks.svg",
    "gemmgen explain --preset wgmma_128x256_s4 -M 4096 -N 4096 --view waves --svg waves.svg",
)


_BACKEND = f"{NAMED}. By itself opencl; of a preset or a file the first that can express it."
_SVG = "A picture instead: SVG, which any browser shows."
_VIEW = "What --svg draws: schedule, banks (bank conflicts), waves (the order of the blocks of C)."
_RESIDENT = "For --view waves: groups that a multiprocessor runs at once. By itself 1."


@takes_request
def explain(
    request: Request,
    backend: Annotated[Text, option("--backend", "NAME", _BACKEND, complete_backends)] = None,
    tuned: Annotated[
        bool, flag("--tuned", "The schedule that gemm takes for the sizes on this device, and why.")
    ] = False,
    device: TunedDevice = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", dir_okay=False, help=_SVG)] = None,
    view: Annotated[Text, option("--view", "NAME", _VIEW)] = None,
    resident: Annotated[int | None, option("--resident", "N", _RESIDENT)] = None,
) -> None:
    """Draw a schedule: tiles, how A and B reach registers, how many there are, local memory, flops per byte.

    What emit refuses for the same options, it refuses as well.
    """
    from gemmgen.cli.accepted import nearest_accepted
    from gemmgen.explain import explain as picture

    problems = [*backend_problems(backend), *device_problems(device, tuned), *_picture_problems(svg, view, resident)]
    if tuned and not problems:
        request = _decided(request, backend or "opencl", device)
    try:
        spec, schedule, target = _resolved(request, backend, problems)
    except UserError as error:
        options = None if tuned or problems else nearest_accepted(request, backend or "opencl")
        error.works = None if options is None else f"gemmgen explain {options.text()}".strip()
        raise
    if svg is not None:
        deliver(_picture(spec, schedule, target, view or "schedule", resident or 1), svg)
        return
    said = ""
    if None not in (spec.m, spec.n, spec.k):
        from gemmgen.api.calibration import said_of

        said = said_of(spec)
    say(picture(spec, schedule, target) + (f"\n{said}\n" if said else ""))


def _resolved(request: Request, backend: str | None, problems: list[str]) -> tuple[GemmSpec, Schedule, Target]:
    """What is drawn, for the backend or the first that can express it. Raises: UserError with what emit refuses."""
    from gemmgen import driver
    from gemmgen.backends import BACKENDS

    if backend is None and request.target is not None:
        backend = speaking(request.target)
    spec, schedule, target = request.resolve(problems, backend or "opencl")
    if backend is None and (request.preset is not None or request.schedule_file is not None):
        # A schedule determines its language: the first backend that supports it.
        takers = [name for name in BACKENDS if not driver.refusals(spec, schedule, name)]
        target = driver.default_target(spec, schedule, takers[0]) if takers else target
        backend = takers[0] if takers else None
    if refused := driver.refusals_of(spec, schedule, backend or "opencl", target):
        raise UserError(refused)
    return spec, schedule, target


def _picture_problems(svg: Path | None, view: str | None, resident: int | None) -> list[str]:
    """What is wrong with the options of a picture."""
    problems = path_problems(svg, "picture.svg", "--svg")
    if view is not None and view not in VIEWS:
        problems.append(f"--view {view!r} does not exist: {suggest(view, VIEWS)}")
    if view is not None and svg is None:
        problems.append(f"--view {view} is a picture: add --svg {view}.svg")
    if resident is not None and view != "waves":
        problems.append("--resident is for --view waves: add that, or leave it out")
    if resident is not None and not 1 <= resident <= MOST_RESIDENT:
        problems.append(f"--resident {resident}: give 1 to {MOST_RESIDENT}, as gemmgen inspect reports it")
    return problems


def _picture(spec: GemmSpec, schedule: Schedule, target: Target, view: str, resident: int) -> str:
    """Raises: UserError."""
    from gemmgen.drawing import draw, draw_banks, draw_waves

    if view == "waves":
        return draw_waves(spec, schedule, target, resident).svg
    return (draw_banks if view == "banks" else draw)(spec, schedule, target).svg


def _decided(request: Request, backend: str, device: str | None) -> Request:
    """With the options of the schedule that gemm would take, after saying what decided. Raises: UserError."""
    from gemmgen.cli.tuned import decided

    said, why = decided(request, backend, device)
    say(f"decided by {why}\n\n")
    return said
