"""`gemmgen explain`: a schedule as a picture."""

from __future__ import annotations

from gemmgen.cli.output import say
from gemmgen.cli.request import Request, takes_request

EXAMPLES = "\n\n".join(
    (
        "[bold]Examples[/bold]",
        "gemmgen explain --tile 32x2",
        "gemmgen explain --preset L3_SLM_8x8_8x16",
        "gemmgen explain --method slm --tile 8x8 --set stages=2 --set prefetch=true",
    )
)


@takes_request
def explain(request: Request) -> None:
    """Draw a schedule: tiles, the way of A and B, registers, local memory, flops per byte."""
    from gemmgen import driver
    from gemmgen.backends import BACKENDS
    from gemmgen.explain import explain as picture

    spec, schedule, target = request.resolve()
    if request.target is None:
        # Of the languages, the first that has a target which takes the schedule.
        takers = [name for name in BACKENDS if not driver.refusals(spec, schedule, name)]
        target = driver.default_target(spec, schedule, takers[0]) if takers else target
    say(picture(spec, schedule, target))
