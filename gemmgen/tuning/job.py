"""What is to be measured and what came of it, as they go from process to process: one line of JSON each."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from math import gcd, sqrt
from typing import cast

from gemmgen.ir.dtypes import FLOAT8
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning.records import Line, Measurement, kind_of
from gemmgen.tuning.space import Shape

#: Seconds of one look at a schedule, beside its first runs.
LOOK = 0.15
#: Whole numbers in A and B are at most so large; smaller where K is so long that sums would not be exact.
LARGEST = (8, 4, 2, 1)
#: Sums up to this are exact. Instructions of 8-bit floats keep 13 bits behind the first one of a sum.
EXACT, EXACT_FLOAT8 = 2**24, 2**13
#: What the answer begins with after which a process ends.
LAST = "!"
#: Standard deviations within which all sums of a product lie.
DEVIATIONS = 7


@dataclass(frozen=True, slots=True)
class Job:
    """A schedule to measure on a device.

    Attributes:
        device: its number among the backend's devices; None for the one that is picked by itself.
        spec: of which `kind_of` counts.
        products: of a batch.
        budget: seconds to run it for.
        cutoff: seconds of a product; a schedule that needs more is given up early. None for none.
    """

    backend: str
    device: int | None
    spec: GemmSpec
    shape: Shape
    products: int
    schedule: Schedule
    budget: float = LOOK
    cutoff: float | None = None

    def text(self) -> str:
        """For another process."""
        where = (self.backend, self.device, self.budget, self.cutoff)
        line = Line.of(Measurement(kind_of(self.spec), self.shape, self.products, self.schedule, 1.0, 0.0, 1))
        return json.dumps([*where, asdict(line)])

    @classmethod
    def read(cls, text: str) -> Job:
        """The inverse of `text`."""
        backend, device, budget, cutoff, line = json.loads(text)
        m, n, k = line["shape"]
        made = Line(**{**line, "shape": (m, n, k)}).measurement()
        return cls(backend, device, made.spec, made.shape, made.products, made.schedule, budget, cutoff)


def largest_drawn(spec: GemmSpec, k: int) -> int:
    """How large whole numbers in A and B may be, for sums of `k` products to be exact in the kernel's accumulators."""
    if spec.dtype not in FLOAT8:
        return next(x for x in LARGEST if k * x**2 < EXACT or x == LARGEST[-1])
    # Numbers from -x to x have the variance x (x + 1) / 3, their products its square.
    return next(x for x in LARGEST if DEVIATIONS * x * (x + 1) / 3 * sqrt(k) <= EXACT_FLOAT8 or x == LARGEST[-1])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job.

    Attributes:
        seconds: the median time of a product; 0 where there is none.
        spread: the middle half of the times, as a part of the median.
        runs: how many were timed.
        problem: why there is no time: refused, not built, a wrong result; None where there is one.
        is_early: whether it was given up early, as it needs more than the job's cutoff.
        built: what a process that has built the kernel hands to the one that measures it; empty for nothing.
    """

    seconds: float = 0.0
    spread: float = 0.0
    runs: int = 0
    problem: str | None = None
    is_early: bool = False
    built: str = ""

    def measurement(self, job: Job, compared: bool = False) -> Measurement:
        """For the records."""
        kept = (self.seconds, self.spread, self.runs, compared)
        return Measurement(kind_of(job.spec), job.shape, job.products, job.schedule, *kept)

    def text(self) -> str:
        """For another process."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Outcome:
        """The inverse of `text`."""
        return replace(cls(), **cast("dict[str, object]", json.loads(text)))  # type: ignore[arg-type]


def assuming_no_gaps(spec: GemmSpec, shape: Shape) -> GemmSpec:
    """The spec with the assumption on leading dimensions that matrices without gaps meet."""
    m, n, k = shape
    pitches = (k if spec.a_order == "row" else m, n if spec.b_order == "row" else k, n if spec.c_order == "row" else m)
    of_a, of_b, of_c = (gcd(16, pitch) for pitch in pitches)
    return replace(spec, ld_multiple=(of_a, of_b, of_c))
