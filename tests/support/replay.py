"""A recorded table in the place of a device, so that searches can be compared where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from gemmgen.schedule import Schedule
from gemmgen.tuning.job import Job, Outcome
from gemmgen.tuning.records import Line


class Replay:
    """Answers with the times of a table; a schedule that the table lacks is refused.

    Args:
        times: of one product: every legal schedule of a narrowed space, or all that are likely, as they were measured.
        width: schedules that are proposed before any of them is measured.

    Attributes:
        asked: the schedules, in the order in which they were measured.
    """

    def __init__(self, times: Mapping[Schedule, Outcome], width: int = 1) -> None:
        self.times, self.width = times, width
        self.asked: list[Schedule] = []

    @classmethod
    def of_records(cls, lines: Sequence[Line]) -> Self:
        """Of the records of one product."""
        made = [line.measurement() for line in lines]
        return cls({each.schedule: Outcome(each.seconds, each.spread, each.runs) for each in made})

    @property
    def best(self) -> float:
        """The least time of the table."""
        return min(made.seconds for made in self.times.values())

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """The recorded times."""
        for index, job in enumerate(jobs):
            self.asked.append(job.schedule)
            yield index, self._outcome(job)

    def compare(self, jobs: Sequence[Job], budget: float) -> list[Outcome]:
        """The same times: a table has no noise to compare away."""
        del budget
        return [self._outcome(replace(job, cutoff=None)) for job in jobs]

    def _outcome(self, job: Job) -> Outcome:
        made = self.times.get(job.schedule)
        if made is None:
            return Outcome(problem="the table has no such schedule")
        is_early = job.cutoff is not None and made.seconds > job.cutoff
        return replace(made, is_early=is_early)

    def close(self) -> None:
        """Nothing is held."""

    def regret(self, count: int) -> float:
        """The best of the first so many as a multiple of the table's best."""
        found = [self.times[each].seconds for each in self.asked[:count] if each in self.times]
        return min(found) / self.best if found else float("inf")
