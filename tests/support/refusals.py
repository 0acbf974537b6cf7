"""What is against a schedule: where it is made already, or for a product on a target."""

from __future__ import annotations

from collections.abc import Callable

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: A schedule, or what makes it.
Made = Schedule | Callable[[], Schedule]


def made(schedule: Made) -> Schedule:
    """The schedule. Raises: ScheduleError."""
    return schedule if isinstance(schedule, Schedule) else schedule()


def refusals(spec: GemmSpec, schedule: Made, backend: str, target: Target) -> tuple[str, ...]:
    """What `driver.refusals` says, or why there is no such schedule."""
    try:
        return driver.refusals(spec, made(schedule), backend, target)
    except ScheduleError as error:
        return error.problems
