"""Contenders taking turns: shuffled blocks, the first half of each to warm up, medians over rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gemmgen.bench.records import Accuracy, Timing

#: Half of a block, in seconds: long enough for clocks to settle under the load, and for events to be exact.
HALF_BLOCK = 0.025
#: Halves of a block that go by before the one that is timed, where a host's clock times: cores need longer to wake.
HOST_WARM_UP = 2
#: Products of one block at most.
MOST_LAUNCHES = 2000


class Contender(Protocol):
    """A kernel or a library on one size, its result already checked; `variant` says which of a kernel's it is."""

    name: str
    variant: str
    accuracy: Accuracy

    def block(self) -> float:
        """Seconds of one product in the second half of a block."""

    def cold(self) -> float:
        """Seconds of one product in half a block without warming up."""

    def close(self) -> None:
        """Give memory and processes back."""


def launches(seconds: float) -> int:
    """How many products of that duration make half a block."""
    return max(1, min(MOST_LAUNCHES, round(HALF_BLOCK / max(seconds, 1e-9))))


class Stopped(KeyboardInterrupt):
    """Ctrl-C while contenders took turns; `timings` are of the rounds that all of them had finished, empty if none."""

    def __init__(self, timings: list[Timing]) -> None:
        super().__init__()
        self.timings = timings


def measure(
    contenders: Sequence[Contender],
    rounds: int,
    pause: float = 0.0,
    seed: int = 0,
    tick: Callable[[], None] = lambda: None,
) -> list[Timing]:
    """Each contender's timing, in the order given.

    Args:
        rounds: blocks of each contender.
        pause: seconds to wait before each contender's cold block; 0 for none.
        tick: called after each round.

    Raises: Stopped on Ctrl-C, with the rounds so far.
    """
    shuffle = random.Random(seed)
    finished: list[list[float]] = []
    cold: list[float | None] = [None] * len(contenders)

    def timings() -> list[Timing]:
        if not finished:
            return []
        return [
            Timing(contender.name, tuple(rounds), contender.accuracy, cold[index], contender.variant)
            for index, (contender, rounds) in enumerate(zip(contenders, zip(*finished, strict=True), strict=True))
        ]

    try:
        for _ in range(rounds):
            order = list(range(len(contenders)))
            shuffle.shuffle(order)
            turn = {index: contenders[index].block() for index in order}
            finished.append([turn[index] for index in range(len(contenders))])
            tick()
        if pause > 0:
            for index, contender in enumerate(contenders):
                time.sleep(pause)
                cold[index] = contender.cold()
    except KeyboardInterrupt:
        raise Stopped(timings()) from None
    return timings()
