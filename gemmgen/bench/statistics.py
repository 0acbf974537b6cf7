"""How certain a ratio is: a bootstrap interval of the median over rounds, and a remedy where the interval is wide."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

#: Of the intervals that hold the true median, in repeated measurements.
CONFIDENCE = 0.95
#: Samples that are drawn with replacement from the rounds, and the seed of the draw: the same rounds give the same
#: interval.
RESAMPLES = 10_000
SEED = 0
#: Rounds that an interval needs: of n rounds all lie on one side of the true median with probability 2^(1-n).
FEWEST_ROUNDS = 6
#: Rounds where none are asked for: an odd number, so that the median is one of them.
ROUNDS = 9
#: A ratio whose interval is wider than this part of it is uncertain.
WIDE = 0.1
#: More rounds than these are no remedy that is offered: the machine is too busy.
MOST_ROUNDS = 101
#: Rounds that differ by more than this part of their median were disturbed.
DISTURBED = 1.0
#: Products shorter than this, in seconds, take about as long as the call that starts them.
SHORT = 50e-6


@dataclass(frozen=True, slots=True)
class Interval:
    """The ends of a confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{three_digits(self.low)} to {three_digits(self.high)}"

    def width(self, estimate: float) -> float:
        """As a part of the estimate that it belongs to."""
        return (self.high - self.low) / estimate


@lru_cache(maxsize=256)
def median_interval(values: tuple[float, ...]) -> Interval | None:
    """The percentile bootstrap interval of the values' median; None for fewer than `FEWEST_ROUNDS`."""
    if len(values) < FEWEST_ROUNDS:
        return None
    import numpy as np

    drawn = np.random.default_rng(SEED).choice(np.array(values), (RESAMPLES, len(values)))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), (tail, 1 - tail))
    return Interval(float(low), float(high))


def remedy(interval: Interval | None, ratio: float, rounds: int, spread: float, seconds: float) -> str:
    """What makes a ratio certain; empty where it is.

    Args:
        interval: the ratio's; None where there were too few rounds.
        rounds: how many there were.
        spread: of the contender whose rounds differ more, (slowest - fastest) / median.
        seconds: of one product, by the faster contender.
    """
    if interval is None:
        return f"{FEWEST_ROUNDS} rounds or more give an interval: --rounds {ROUNDS}"
    width = interval.width(ratio)
    if width <= WIDE:
        return ""
    # An interval is as wide as one over the square root of the rounds.
    needed = math.ceil(rounds * (width / WIDE) ** 2) | 1
    if spread <= DISTURBED and needed <= MOST_ROUNDS:
        return f"more rounds narrow the interval: --rounds {needed}"
    if seconds < SHORT:
        return "a product takes about as long as its call: measure a larger size, or a batch (--sizes 64:N)"
    return f"something else uses this machine (rounds differ by {percent(spread)}): measure while it is idle"


def three_digits(value: float) -> str:
    """A figure with three significant digits, without an exponent: 0.0123, 1.05, 234, 12300."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{round(value, 2 - exponent):.{max(0, 2 - exponent)}f}"


def percent(part: float) -> str:
    """A part of one as a percentage: 2.5%, 31%, 900%."""
    return f"{part:.1%}" if part < 0.0995 else f"{part:.0%}"
