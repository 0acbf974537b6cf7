"""Asynchronous copies that are under way, and stores of boxes."""

from __future__ import annotations

from dataclasses import dataclass

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


#: The addresses of a tile that a lane's store reads.
Reading = tuple[TileMemory, Ints, int]


class Stores:
    """The stores of boxes begun since the last commit, and the groups committed before, oldest first.

    All work-items that count groups count them alike.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Other work-items run now."""
        self._open: list[Reading] = []
        self._groups: list[list[Reading]] = []
        self._who: Ints | None = None

    @property
    def busy(self) -> bool:
        """Whether local memory is read by a store that nobody has waited for."""
        return bool(self._open or any(self._groups))

    def come(self, active: Active) -> bool:
        """Whether the same work-items come as before."""
        self._who = active.lanes if self._who is None else self._who
        return len(self._who) == len(active.lanes) and bool((self._who == active.lanes).all())

    def begin(self, tile: TileMemory, addresses: Ints, lane: int) -> None:
        """A store begins."""
        self._open.append((tile, addresses, lane))

    def commit(self) -> None:
        """What was begun since the last commit is one group."""
        self._groups.append(self._open)
        self._open = []

    def wait(self, pending: int) -> list[Reading]:
        """All groups but the newest `pending` have read what they store."""
        over: list[Reading] = []
        while len(self._groups) > pending:
            over += self._groups.pop(0)
        return over
