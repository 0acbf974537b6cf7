"""What steps with mbarriers, and waits for groups of copies, do at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from gemmgen.ir.evaluate import IndexCode
from gemmgen.ir.fault import KernelFault
from gemmgen.ir.flights import Flights, Stores
from gemmgen.ir.lanes import Active, Index, Lanes, Site, agreed
from gemmgen.ir.meetings import AsyncGroup, Mbarrier
from gemmgen.ir.memory import LocalMemory
from gemmgen.ir.phases import Phases
from gemmgen.ir.tile_memory import BoxedMatrix
from gemmgen.ir.turns import Turns


@dataclass(frozen=True)
class Group:
    """What work-items of a group share, of all groups that run together: who they are, local memory, matrices in boxes,
    copies and stores under way, mbarriers by their names, and roles.
    """

    lanes: Lanes
    memories: list[LocalMemory] = field(default_factory=list)
    matrices: list[BoxedMatrix] = field(default_factory=list)
    flights: Flights = field(default_factory=Flights)
    stores: Stores = field(default_factory=Stores)
    phases: dict[str, Phases] = field(default_factory=dict)
    turns: Turns = field(default_factory=Turns)

    def barriers(self, name: str) -> Phases:
        """The array of that name."""
        return self.phases.setdefault(name, Phases())


def mbarrier_step(step: Mbarrier, codes: Sequence[IndexCode], group: Group, site: Site) -> Callable[[Active], None]:
    """What it does; `codes` give the index, the parity and, if there is one, the rank."""
    lanes, phases = group.lanes, group.barriers(step.name)

    def fault(detail: str) -> NoReturn:
        raise KernelFault("pipe", site.text, detail)

    def act(active: Active) -> None:
        if not (active.full or group.turns.parted):
            fault("not every work-item comes, so that phases cannot be counted")
        if step.verb == "init":
            if lanes.group_size < step.count:
                fault(f"{lanes.group_size} work-items for {step.count} barriers")
            phases.clear(step.count, step.arrivals or lanes.group_size)
            return
        which, of, *ranks = (agreed(code(active), active) for code in codes)
        if isinstance(which, np.ndarray) or isinstance(of, np.ndarray):
            fault("work-items mean different barriers or phases")
        if problem := phases.problem(which):
            fault(problem)
        if step.verb == "wait":
            wait(active, which, of)
            return
        came = lanes.each_group(active)
        if came is None:
            fault("not as many work-items come of each group")
        if ranks and not _one_each(active.pick(ranks[0]), lanes.cluster):
            fault("not as many work-items arrive at each group's barrier")
        copies = group.flights.take() if step.verb == "arrive_copies" else ()
        if problem := phases.arrive(which, lanes.time, came, copies, step.bytes):
            fault(problem)
        lanes.time += 1
        group.turns.happened()

    def wait(active: Active, which: int, of: int) -> None:
        if not group.turns.until(lambda: phases.is_over(which, of)):
            fault(f"waits for a phase of {step.name}[{which}] that never ends")
        lanes.role = active if group.turns.parted else None
        until = phases.wait(which)
        for memory in group.memories:
            memory.publish(active, until)

    return act


def _one_each(ranks: Index, cluster: int) -> bool:
    """Whether all groups of a cluster are meant, each as often."""
    counts = np.bincount(np.atleast_1d(ranks), minlength=cluster)
    return len(counts) == cluster and bool((counts == counts[0]).all())


def async_group_step(stmt: AsyncGroup, group: Group, site: Site) -> Callable[[Active], None]:
    """What a statement about asynchronous copies does."""

    def act(active: Active) -> None:
        if not active.full:
            raise KernelFault("pipe", site.text, "not every work-item comes, so that groups cannot be counted")
        if stmt.verb == "commit":
            group.flights.commit()
        else:
            group.flights.wait(stmt.pending)

    return act
