"""The commands that emit a kernel with another value of a field, for guards of constants that a text depends on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter

from gemmgen import presets
from gemmgen.errors import ScheduleError
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule, text_of
from gemmgen.spec import GemmSpec


@dataclass(frozen=True)
class Remedies:
    """Those of one kernel.

    Attributes:
        spec, schedule: what is emitted.
        options: what a command says beside the schedule, such as `--backend cuda`.
        accepted: whether another schedule can be had.
    """

    spec: GemmSpec
    schedule: Schedule
    options: str
    accepted: Callable[[Schedule], bool]

    def command(self, field: str) -> str:
        """The command for the first other value of a field that can be had; what is known of it where none can."""
        value = next((x for x in others(attrgetter(field)(self.schedule)) if self._is_accepted(field, x)), None)
        if value is None:
            return f"this schedule has no other {field}"
        change = f"--set {field}={text_of(value)}"
        if not self._is_preset:
            return f"emit it again with {change}"
        return " ".join(filter(None, ("gemmgen emit --preset", self.schedule.name, self.options, change)))

    @property
    def _is_preset(self) -> bool:
        """Whether a preset's name says all of it."""
        name = self.schedule.name
        preset = presets.load(name) if name in presets.names() else None
        return preset is not None and (preset.spec, preset.schedule) == (self.spec, self.schedule)

    def _is_accepted(self, field: str, value: int | tuple[int, int]) -> bool:
        try:
            return self.accepted(self.schedule.but(**{field: value}))
        except ScheduleError:
            return False


def others(value: int | tuple[int, int]) -> Iterator[int | tuple[int, int]]:
    """Other values near one, the likeliest first; of tiles and groups the smaller ones, which fit into registers."""
    if isinstance(value, tuple):
        rows, cols = value
        yield from ((rows // 2, cols),) if rows > 1 else ()
        yield from ((rows, cols // 2),) if cols > 1 else ()
        yield from ((rows * 2, cols), (rows, cols * 2))
        return
    yield from (x for x in (value * 2, value // 2, value + 1, value - 1) if x not in (0, value))
