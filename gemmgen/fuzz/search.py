"""Looks for a case that fails, until the time or the number of cases is up, and makes it small."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import HypothesisWarning

from gemmgen.fuzz import strategies
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.records import dataclass

#: Cases of a round: each begins anew with a seed of its own, and is left when a case fails.
ROUND = 50


@dataclass(frozen=True, slots=True)
class Found:
    """A case that failed, as small as it could be made, and how."""

    case: Case
    error: Exception


@dataclass
class Search:
    """Runs rounds of cases.

    Attributes:
        seconds: when to stop; what has failed is still made small.
        most: cases to try, at most; None for as many as there is time for. Making one small takes more.
        report: told of each case before it runs.
        tried: how many were run.
    """

    places: Sequence[Place]
    seed: int
    seconds: float
    most: int | None = None
    report: Callable[[Case], None] = lambda _: None
    tried: int = 0
    _failed: Found | None = None
    _started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._started

    @property
    def over(self) -> bool:
        """Whether no more cases are to be tried."""
        return self.elapsed >= self.seconds or (self.most is not None and self.tried >= self.most)

    def failures(self) -> list[Found]:
        """Those of all rounds, each once."""
        found: dict[str, Found] = {}
        number = 0
        while not self.over:
            if (failed := self._round(self.seed * 1_000_003 + number)) is not None:
                found.setdefault(failed.case.file_name(), failed)
            number += 1
        return list(found.values())

    def _round(self, seed: int) -> Found | None:
        """One round; the smallest case that failed in it."""
        self._failed = None
        run = given(strategies.cases(self.places))(self._try)
        run = settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )(seeded(seed)(run))
        try:
            with warnings.catch_warnings():
                # Of how a failure is to be printed, which is done otherwise.
                warnings.simplefilter("ignore", HypothesisWarning)
                run()
        except Exception:
            # What a case raised: hypothesis runs the smallest one last. Or it says that it did not fail each time.
            if self._failed is None:
                raise
        return self._failed

    def _try(self, drawn: tuple[Case, Place]) -> None:
        if self.over and self._failed is None:
            return
        case, place = drawn
        self.tried += 1
        self.report(case)
        try:
            check(case, place)
        except Exception as error:
            self._failed = Found(case, error)
            raise
