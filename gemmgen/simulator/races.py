"""Who touched which element since the group last synchronised."""

from __future__ import annotations

import numpy as np

from gemmgen.records import dataclass
from gemmgen.simulator.lanes import Bools, Ints

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two accesses of different work-items to one element, at least one a write, in no order.

    Attributes:
        position: of the later access, in the arrays that were given.
        lane: who made the earlier one.
        site: where; None if it is the same statement.
        wrote: whether the earlier one was a write.
    """

    position: int
    lane: int
    site: int | None
    wrote: bool


class Accesses:
    """The accesses to `size` elements that nothing has ordered before what comes next.

    One writer and two different readers are remembered for each element: whoever comes next, one of the two
    is somebody else. Each with its time, a number that grows whenever work-items arrive at an mbarrier. Where a
    sub-group has met since, its first lane stands for all of it, as a number below that of nobody.
    """

    def __init__(self, size: int) -> None:
        self._together = 1
        self._writer, *readers = (np.full(size, _NOBODY, np.int64) for _ in range(3))
        # Where and when: of no meaning where there is nobody, and so never filled.
        self._written_at, self._written_when, *rest = (np.zeros(size, np.int64) for _ in range(6))
        self._readers, self._read_at, self._read_when = tuple(readers), tuple(rest[:2]), tuple(rest[2:])

    def read(self, addresses: Ints, lanes: Ints, site: int, time: int = 0) -> Conflict | None:
        """Note that each of `lanes` read its address."""
        conflict = self._clash(self._writer, self._written_at, addresses, lanes, wrote=True)
        if conflict is not None:
            return conflict
        first, second = self._readers
        fresh = first[addresses] == _NOBODY
        if fresh.any():
            first[addresses[fresh]] = lanes[fresh]
            self._read_at[0][addresses[fresh]] = site
        other = first[addresses] != lanes
        self._read_when[0][addresses[~other]] = time
        if other.any():
            second[addresses[other]] = lanes[other]
            self._read_at[1][addresses[other]] = site
            self._read_when[1][addresses[other]] = time
        return None

    def write(self, addresses: Ints, lanes: Ints, site: int, time: int = 0) -> Conflict | None:
        """Note that each of `lanes` wrote to its address."""
        conflict = self._clash(self._writer, self._written_at, addresses, lanes, wrote=True)
        for reader, at in zip(self._readers, self._read_at, strict=True):
            conflict = conflict or self._clash(reader, at, addresses, lanes, wrote=False)
        if conflict is not None:
            return conflict
        self._writer[addresses] = lanes
        self._written_at[addresses] = site
        self._written_when[addresses] = time
        # Of several lanes that write to one element at once, only the last has left its name.
        twice = self._writer[addresses] != lanes
        if twice.any():
            position = int(np.argmax(twice))
            return Conflict(position, int(self._writer[addresses[position]]), None, True)
        return None

    def was_written(self, addresses: Ints) -> Bools:
        """Where somebody has written."""
        written: Bools = self._writer[addresses] != _NOBODY
        return written

    @property
    def settled(self) -> bool:
        """Whether all that was done is ordered before what follows."""
        return all(bool((record == _NOBODY).all()) for record in (self._writer, *self._readers))

    def forget(self, start: int, stop: int, until: int | None = None, by: Bools | None = None) -> None:
        """What was done to the elements from `start` to `stop` (up to a time, by some lanes) comes before the rest."""
        records = (self._writer, self._written_when), *zip(self._readers, self._read_when, strict=True)
        for record, when in records:
            if until is None and by is None:
                record[start:stop] = _NOBODY
                continue
            done = np.ones(stop - start, np.bool_) if until is None else when[start:stop] <= until
            if by is not None:
                done &= by[_lanes(record[start:stop])]
            record[start:stop][done] = _NOBODY

    def meet(self, some: Bools, together: int) -> None:
        """What `some` lanes did, sub-groups of so many that are all among them, comes before what their own do next."""
        self._together = together
        for record in (self._writer, *self._readers):
            theirs = (record >= 0) & some[record]
            record[theirs] = -2 - record[theirs] // together * together

    def landed(self, addresses: Ints) -> None:
        """Writes there come before whatever follows: who goes there has waited for them."""
        self._writer[addresses] = _NOBODY

    def over(self, addresses: Ints, began: int, time: int) -> None:
        """Reads that went on since `began` are over now."""
        for when in self._read_when:
            when[addresses] = np.where(when[addresses] == began, time, when[addresses])

    def _clash(self, record: Ints, sites: Ints, addresses: Ints, lanes: Ints, wrote: bool) -> Conflict | None:
        earlier = record[addresses]
        clash = (earlier != lanes) & (earlier != _NOBODY)
        if self._together > 1:
            clash &= earlier != -2 - lanes // self._together * self._together
        if not clash.any():
            return None
        position = int(np.argmax(clash))
        return Conflict(position, int(_lanes(earlier)[position]), int(sites[addresses[position]]), wrote)


def _lanes(record: Ints) -> Ints:
    """Who is meant, by a lane; nobody as it is."""
    return np.where(record < _NOBODY, -2 - record, record)
