"""Operations in flight: asynchronous copies, TMA stores and matrix instructions that go on while their work-items do.

All of them are issued, committed in groups and waited for (`ir.synchronization.GroupStep`), so one queue holds them.
What their end means is the operation's own matter: a copy lands, a store or a product no longer reads local memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from gemmgen.errors import KernelFault
from gemmgen.ir.synchronization import GroupStep
from gemmgen.records import dataclass
from gemmgen.simulator.lanes import Active, Floats, Ints, Site
from gemmgen.simulator.memory import LocalMemory
from gemmgen.simulator.tiles import TileMemory


class Operation(Protocol):
    """What is under way."""

    def complete(self, site: Site) -> None:
        """It is over, and a work-item knows that by the statement of `site`."""


@dataclass(frozen=True, slots=True)
class CopyInFlight:
    """One copy of one element for each of `lanes`, begun and not yet landed."""

    memory: LocalMemory
    addresses: Ints
    values: Floats
    lanes: Ints
    site: Site

    def complete(self, site: Site) -> None:  # noqa: ARG002 - races are reported at the copy
        """Its elements are there, as if each lane had just stored its own."""
        self.memory.land(self.addresses, self.values, self.lanes, self.site)

    def complete_for_all(self) -> None:
        """They are there for all to see, since an mbarrier says so."""
        self.memory.land(self.addresses, self.values, self.lanes, self.site, for_all=True)


@dataclass(frozen=True, slots=True)
class StoreInFlight:
    """A TMA store of a lane, which reads a tile of local memory."""

    tile: TileMemory
    addresses: Ints
    lane: int

    def complete(self, site: Site) -> None:
        """The tile may be overwritten, once others know."""
        self.tile.end_store(self.addresses, self.lane, site)


@dataclass(frozen=True, slots=True)
class ProductInFlight:
    """A matrix instruction of a warpgroup, which reads operands and adds to sums.

    Attributes:
        over: frees an operand that it read, or finds out that it was written to meanwhile.
        sums: the memory that it adds to.
    """

    over: Callable[[], None]
    sums: object

    def complete(self, site: Site) -> None:  # noqa: ARG002 - faults are reported at the instruction
        """Its operands may be overwritten."""
        self.over()


@dataclass(slots=True)
class _Issued:
    """An operation of a lane; `group` is which of the lane's groups it belongs to, None until the commit."""

    operation: Operation
    lane: int
    group: int | None = None


class Queue:
    """Operations of one kind that nobody has waited for, oldest first. Each work-item counts its own groups."""

    def __init__(self) -> None:
        self.clear(0)

    def clear(self, count: int) -> None:
        """So many other work-items run now."""
        self._issued: list[_Issued] = []
        self._committed: Ints = np.zeros(count, np.int64)

    @property
    def busy(self) -> bool:
        """Whether an operation is under way."""
        return bool(self._issued)

    def adds_to(self, sums: object) -> bool:
        """Whether an instruction that adds to some memory is under way."""
        own = (issued.operation for issued in self._issued)
        return any(isinstance(x, ProductInFlight) and x.sums is sums for x in own)

    def groups_of(self, lane: int) -> int:
        """How many groups a lane has committed: the number of the next."""
        return int(self._committed[lane])

    def issue(self, operation: Operation, lane: int) -> None:
        """An operation begins; a lane that issued it stands for all of them."""
        self._issued.append(_Issued(operation, lane))

    def commit(self, active: Active) -> None:
        """Of each lane, what it has issued since its last commit is one group, which may hold none."""
        for issued in self._issued:
            if issued.group is None and active.mask[issued.lane]:
                issued.group = int(self._committed[issued.lane])
        self._committed[active.lanes] += 1

    def wait(self, pending: int, active: Active, site: Site) -> None:
        """All groups of each active lane are over but the newest `pending`."""

        def is_over(issued: _Issued) -> bool:
            ends = issued.group is not None and issued.group < self._committed[issued.lane] - pending
            return ends and bool(active.mask[issued.lane])

        over = [issued for issued in self._issued if is_over(issued)]
        self._issued = [issued for issued in self._issued if not is_over(issued)]
        for issued in over:
            issued.operation.complete(site)

    def take(self) -> list[Operation]:
        """The operations issued since the last commit, which something else than a group waits for."""
        taken = [issued.operation for issued in self._issued if issued.group is None]
        self._issued = [issued for issued in self._issued if issued.group is not None]
        return taken


def group_step(
    stmt: GroupStep,
    queue: Queue,
    site: Site,
    together: Callable[[Active], None] | None = None,
    fence: Callable[[Active], None] | None = None,
    waited: Callable[[], None] | None = None,
) -> Callable[[Active], None]:
    """What a fence, a commit or a wait does.

    Args:
        together: checks who comes, where several work-items must.
        fence: what a fence does for operations of this kind.
        waited: what else a wait makes known.
    """

    def act(active: Active) -> None:
        if together is not None:
            together(active)
        match stmt.verb:
            case "commit":
                queue.commit(active)
            case "wait":
                queue.wait(stmt.pending, active, site)
                if waited is not None:
                    waited()
            case "fence" if fence is not None:
                fence(active)

    return act


def all_come(site: Site) -> Callable[[Active], None]:
    """A check that all work-items execute a statement."""

    def check(active: Active) -> None:
        if not active.full:
            raise KernelFault("pipe", site.text, "not every work-item comes, so that groups cannot be counted")

    return check
