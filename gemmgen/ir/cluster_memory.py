"""Local memory that groups of a cluster read in each other's: `Buffer.spread`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.lanes import Active, Index, Lanes, Site, Value
from gemmgen.ir.memory import LocalMemory


class ClusterMemory(LocalMemory):
    """A plane in each group's local memory, all of which every group of the cluster reads; each writes to its own.

    What one of them meets for orders nothing that others read: only a meeting of all does.
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

    def write(self, index: Sequence[Index], value: Value, active: Active, site: Site) -> None:
        """Stores of the active lanes, each to its own group's plane."""
        others = np.not_equal(active.pick(index[0]), self._lanes.base[active.lanes] % self._groups)
        if others.any():
            self._fault("race", int(np.argmax(others)), index, active, site, "that is another group's plane")
        super().write(index, value, active, site)

    def publish(self, active: Active, until: int | None = None) -> None:
        """A group alone orders nothing."""

    def meet(self) -> None:
        """All groups of the cluster have met."""
        self._accesses.forget(0, len(self._data), None)

    @property
    def settled(self) -> bool:
        """Whether nobody has read or written since the cluster met: a group that ends takes its plane along."""
        return self._accesses.settled
