"""Asynchronous copies that are under way, and stores of boxes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmgen.ir.lanes import Active, Floats, Ints, Site
from gemmgen.ir.memory import LocalMemory
from gemmgen.ir.tile_memory import TileMemory


@dataclass(frozen=True, slots=True)
class Flight:
    """One copy of one element for each of `lanes`, begun and not yet landed."""

    memory: LocalMemory
    addresses: Ints
    values: Floats
    lanes: Ints
    site: Site


class Flights:
    """The copies begun since the last commit, and the groups committed before, oldest first.

    All work-items count their groups alike, since only uniform control flow may commit and wait.
    """

    def __init__(self) -> None:
        self._open: list[Flight] = []
        self._groups: list[list[Flight]] = []

    def clear(self) -> None:
        """Other work-items run now."""
        self._open, self._groups = [], []

    @property
    def busy(self) -> bool:
        """Whether a copy is under way."""
        return bool(self._open or any(self._groups))

    def begin(self, flight: Flight) -> None:
        """A copy begins."""
        self._open.append(flight)

    def commit(self) -> None:
        """What was begun since the last commit is one group."""
        self._groups.append(self._open)
        self._open = []

    def take(self) -> list[Flight]:
        """The copies begun since the last commit, which something else than a group waits for."""
        taken, self._open = self._open, []
        return taken

    def wait(self, pending: int) -> None:
        """All groups but the newest `pending` land."""
        while len(self._groups) > pending:
            for flight in self._groups.pop(0):
                flight.memory.land(flight.addresses, flight.values, flight.lanes, flight.site)


@dataclass(slots=True)
class Reading:
    """What a lane's store reads of a tile.

    Attributes:
        group: which of the lane's groups it belongs to; None until that is committed.
    """

    tile: TileMemory
    addresses: Ints
    lane: int
    group: int | None = None


class Stores:
    """The stores of boxes that nobody has waited for yet. Each work-item counts its own groups."""

    def __init__(self) -> None:
        self.clear(0)

    def clear(self, count: int) -> None:
        """So many other work-items run now."""
        self._readings: list[Reading] = []
        self._committed: Ints = np.zeros(count, np.int64)

    @property
    def busy(self) -> bool:
        """Whether local memory is read by a store that nobody has waited for."""
        return bool(self._readings)

    def begin(self, tile: TileMemory, addresses: Ints, lane: int) -> None:
        """A store begins."""
        self._readings.append(Reading(tile, addresses, lane))

    def commit(self, active: Active) -> None:
        """Of each lane, what it has begun since its last commit is one group, which may hold none."""
        for reading in self._readings:
            if reading.group is None and active.mask[reading.lane]:
                reading.group = int(self._committed[reading.lane])
        self._committed[active.lanes] += 1

    def wait(self, pending: int, active: Active) -> list[Reading]:
        """What the groups of each lane have read by then, all but the newest `pending`."""

        def is_over(reading: Reading) -> bool:
            ends = reading.group is not None and reading.group < self._committed[reading.lane] - pending
            return ends and bool(active.mask[reading.lane])

        over = [reading for reading in self._readings if is_over(reading)]
        self._readings = [reading for reading in self._readings if not is_over(reading)]
        return over
