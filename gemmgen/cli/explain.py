"""`gemmgen explain`: draw a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gemmgen.backends import NAMED
from gemmgen.cli.output import deliver, say
from gemmgen.cli.request import Request, takes_request
from gemmgen.cli.targets import backend_problems, complete_backends, speaking
from gemmgen.errors import UserError

EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen explain --tile 32x2",
        "gemmgen explain --preset L3_SLM_8x8_8x16",
        "gemmgen explain --method slm --tile 8x8 --set stages=2 --set prefetch=true",
        "gemmgen explain --backend cuda --tile 8x8 --method slm",
        "gemmgen explain --preset wgmma_128x256_s4 --svg picture.svg",
    )
)


@takes_request
def explain(
    request: Request,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{NAMED}. By itself opencl; of a preset or a file the first that can express it.",
            autocompletion=complete_backends,
        ),
    ] = None,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="The schedule that gemm takes for the sizes on this device, and why.")
    ] = False,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="FILE", dir_okay=False, help="A picture instead: SVG, which any browser shows."),
    ] = None,
) -> None:
    """Draw a schedule: tiles, how A and B reach registers, how many there are, local memory, flops per byte.

    What emit refuses for the same options, it refuses as well.
    """
    from gemmgen import driver
    from gemmgen.backends import BACKENDS
    from gemmgen.drawing import draw
    from gemmgen.explain import explain as picture

    problems = backend_problems(backend)
    if tuned and not problems:
        request = _decided(request, backend or "opencl")
    if backend is None and request.target is not None:
        backend = speaking(request.target)
    spec, schedule, target = request.resolve(problems, backend or "opencl")
    is_ready_made = request.preset is not None or request.schedule_file is not None
    if backend is None and is_ready_made:
        # A schedule determines its language: the first backend that supports it.
        takers = [name for name in BACKENDS if not driver.refusals(spec, schedule, name)]
        target = driver.default_target(spec, schedule, takers[0]) if takers else target
        backend = takers[0] if takers else None
    if refused := driver.refusals_of(spec, schedule, backend or "opencl", target):
        raise UserError(refused)
    if svg is not None:
        deliver(draw(spec, schedule, target).svg, svg)
        return
    said = ""
    if None not in (spec.m, spec.n, spec.k):
        from gemmgen.api.calibration import said_of

        said = said_of(spec)
    say(picture(spec, schedule, target) + (f"\n{said}\n" if said else ""))


def _decided(request: Request, backend: str) -> Request:
    """With the options of the schedule that gemm would take, after saying what decided. Raises: UserError."""
    from gemmgen.cli.tuned import decided

    said, why = decided(request, backend)
    say(f"decided by {why}\n\n")
    return said
