"""Refuse what can't be built, with every problem at once: the value, the limit and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gemmgen.checks import CHECKS
from gemmgen.checks.gated import gated_problems
from gemmgen.checks.grouped import grouped_problems
from gemmgen.checks.prologues import sum_scale_problems
from gemmgen.checks.types import int4_problems
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def validate(spec: GemmSpec, schedule: Schedule, target: Target) -> None:
    """Raises: ScheduleError, with what is against the product as it is asked for."""
    problems = problems_as_asked(spec, schedule, target)
    if problems and not is_transposed(spec, schedule, target):
        raise ScheduleError(problems)


def is_transposed(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    """Whether a column-major C = A B is computed as the row-major C^T = B^T A^T: where the schedule takes that, and not
    the product as it is asked for. The rows of its tiles are then columns of C.
    """
    if (
        spec.c_order == "row"
        or spec.alpha == 0
        or spec.grouped == "rows"
        or spec.halves > 1
        or not problems_as_asked(spec, schedule, target)
    ):
        return False
    return not problems_as_asked(spec.transposed(), schedule, target)


@lru_cache(maxsize=1024)
def problems_as_asked(spec: GemmSpec, schedule: Schedule, target: Target) -> tuple[str, ...]:
    """What is against a product as it is asked for, not as that of the transposes."""
    problems = [*_listed(spec, target), *sum_scale_problems(spec, schedule), *int4_problems(spec, schedule)]
    problems += gated_problems(spec, schedule)
    problems = problems or [*CHECKS[type(schedule.mainloop)](spec, schedule, target)]
    return tuple(grouped_problems(spec, schedule, target)) or tuple(problems)


@lru_cache(maxsize=1024)
def is_possible(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    """The same for those who have others to choose from."""
    return not problems_as_asked(spec, schedule, target) or is_transposed(spec, schedule, target)


def _listed(spec: GemmSpec, target: Target) -> Iterator[str]:
    if spec.listed and "address_lists" not in target.features:
        remedy = "use a batch with a constant stride, or launch a kernel for each, as gemmgen.gemm does"
        yield f"listed matrices, but target {target.name!r} takes no arrays of addresses: {remedy}"
