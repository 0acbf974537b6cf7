"""The three things that can go wrong, apart from each other.

`SpecError` and `ScheduleError` are the user's: they list every problem found, each with the value, the
limit and a remedy. `LoweringError` is a bug of gemmgen.
"""

from __future__ import annotations

from collections.abc import Iterable


class GemmgenError(Exception):
    """Base of every error that gemmgen raises on purpose."""


class UserError(GemmgenError):
    """Input that can't be served. Holds one sentence per problem.

    Args:
        problems: one sentence each: the value, the limit and the remedy.
    """

    def __init__(self, problems: Iterable[str] | str) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))


class SpecError(UserError, ValueError):
    """What to compute is not expressible: sizes, dtypes, layouts, arrays."""


class DtypeError(SpecError, TypeError):
    """Element types that can't be multiplied, or whose product can't be put where it is wanted; scalars for arrays."""


class ScheduleError(UserError):
    """How to compute it does not fit: tiles, groups, registers, local memory, a missing feature."""


class DeviceError(UserError):
    """No device, or one that lacks what a kernel needs; the remedy names the command that helps."""


class ToolError(UserError):
    """A compiler that is missing or that refuses a source, or machine code without the kernel that was asked for."""


class LoweringError(GemmgenError):
    """A pass or a backend broke an invariant: please report it with the schedule that showed it."""
