"""Local memory that groups of a cluster write to in each other's: `Buffer.spread`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.lanes import Active, Index, Lanes, Site, Value
from gemmgen.ir.meetings import Part
from gemmgen.ir.memory import LocalMemory


class ClusterMemory(LocalMemory):
    """A plane in each group's local memory, which that group reads, and every group of the cluster writes to.

    What one of them meets for orders nothing that others wrote: only a meeting of all does. Nobody writes to a group
    that may not have begun.
    """

    def __init__(self, lanes: Lanes, buffer: Buffer, sizes: dict[str, int], sites: Sequence[Site]) -> None:
        self._groups, self._plane = buffer.spread, buffer.elements
        super().__init__(lanes, buffer, sizes, sites)

    def allocate(self) -> None:
        """Undefined content, all planes of a cluster one after the other."""
        self._size = self._plane
        super().allocate()
        self._size = self._plane * self._groups
        self._base = self._lanes.base // self._groups * self._size
        self._arrived = self._begun = False

    def read(self, index: Sequence[Index], active: Active, site: Site) -> Value:
        """Loads of the active lanes, each from its own group's plane."""
        self._not_others(index, active, site, "that is another group's plane")
        return super().read(index, active, site)

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes."""
        if not self._begun:
            self._not_others(index, active, site, "that group may not have begun")
        super().write(index, value, active, site)

    def _not_others(self, index: Sequence[Index], active: Active, site: Site, why: str) -> None:
        others = np.not_equal(active.pick(index[0]), self._lanes.base[active.lanes] % self._groups)
        if others.any():
            self._fault("race", int(np.argmax(others)), index, active, site, why)

    def publish(self, active: Active, until: int | None = None) -> None:
        """A group alone orders nothing."""

    def meet(self, part: Part) -> bool:
        """All groups of the cluster meet, or arrive, or wait for that; False if nobody has arrived."""
        waits = part == "all" or (part == "wait" and self._arrived)
        if waits:
            self._accesses.forget(0, len(self._data), None)
        self._begun, self._arrived = self._begun or waits, part == "arrive"
        return waits or part == "arrive"
