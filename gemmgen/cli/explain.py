"""`gemmgen explain`: a schedule as a picture."""

from __future__ import annotations

from typing import Annotated

import typer

from gemmgen.cli.output import say
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
    )
)


@takes_request
def explain(
    request: Request,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="opencl, cuda or sycl. By itself opencl; of a preset or a file the first that can express it.",
            autocompletion=complete_backends,
        ),
    ] = None,
) -> None:
    """Draw a schedule: tiles, how A and B reach registers, how many there are, local memory, flops per byte.

    What emit refuses for the same options, it refuses as well.
    """
    from gemmgen import driver
    from gemmgen.backends import BACKENDS
    from gemmgen.explain import explain as picture

    problems = backend_problems(backend)
    if backend is None and request.target is not None:
        backend = speaking(request.target)
    spec, schedule, target = request.resolve(problems, backend or "opencl")
    is_ready_made = request.preset is not None or request.schedule_file is not None
    if backend is None and is_ready_made:
        # It says by itself for which language it was made: the first that takes it.
        takers = [name for name in BACKENDS if not driver.refusals(spec, schedule, name)]
        target = driver.default_target(spec, schedule, takers[0]) if takers else target
        backend = takers[0] if takers else None
    if refused := driver.refusals_of(spec, schedule, backend or "opencl", target):
        raise UserError(refused)
    say(picture(spec, schedule, target))
