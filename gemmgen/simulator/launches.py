"""Programmatic dependent launch at run time: a kernel launched early runs beside the kernels before it, until its
work-items wait for these.

The interpreter runs the kernels of a stream one after the other, which is one of the orders that a device may choose.
So each kernel leaves behind which bytes of global memory it read and wrote, and each access of a later kernel that is
in no order with an earlier kernel is compared with those: where one of the two writes, it is a race.

- A kernel that is not launched early begins when all kernels before it are complete.
- One that is begins when each group of the kernel before it has let it in (`release`) or is over. Whatever that group
  did not know to be complete by then may still run.
- A work-item that has waited (`await`) knows the kernel before it to be complete, and what that one knew in its turn.

What ran on the stream before the first kernel may have touched anything.

Source: CUDA C++ Programming Guide, Programmatic Dependent Launch and Synchronization; PTX ISA, griddepcontrol.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from gemmgen.errors import KernelFault
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.synchronization import DependentLaunch
from gemmgen.records import dataclass
from gemmgen.simulator.lanes import Active, Bools, Floats, Ints, Lanes, Site

#: The number of whatever ran on the stream before its first kernel.
_OTHERS = -1
_NONE: frozenset[int] = frozenset()


@dataclass
class Stream:
    """Kernels launched one after the other. They share arrays: where two have the same address, they are the same."""

    launches: list[Launch] = field(default_factory=list)

    def launch(self, kernel: Kernel, lanes: Lanes, early: bool) -> Launch:
        """The next one. Where `early`, it may begin before the kernels before it are complete."""
        before = self.launches[-1] if self.launches else None
        if not early:
            launch = Launch(self, kernel.name, lanes, _NONE, _NONE)
        elif before is None:
            launch = Launch(self, kernel.name, lanes, frozenset({_OTHERS}), _NONE)
        else:
            running = before.running_as_next_begins | {len(self.launches) - 1}
            launch = Launch(self, kernel.name, lanes, running, before.running_at_end)
        self.launches.append(launch)
        return launch


class Launch:
    """One kernel of a stream: who may still run beside it, and what it touches.

    Attributes:
        running: the kernels before, by number, that may still run as its first work-items begin.
        running_after_wait: those that may still run once a work-item has waited.
    """

    def __init__(
        self, stream: Stream, name: str, lanes: Lanes, running: frozenset[int], running_after_wait: frozenset[int]
    ) -> None:
        self._stream, self._name, self._lanes = stream, name, lanes
        self.running, self.running_after_wait = running, running_after_wait
        self._some_waited = False
        self._let_in_beside = _NONE
        self._read: dict[int, Bools] = {}
        self._written: dict[int, Bools] = {}
        self._begin()
        lanes.on_load(self._next_groups)

    @property
    def running_at_end(self) -> frozenset[int]:
        """The kernels before that may still run when this one is complete."""
        return self.running_after_wait if self._some_waited else self.running

    @property
    def running_as_next_begins(self) -> frozenset[int]:
        """The same when the next kernel may begin."""
        self._groups_end()
        return self._let_in_beside

    def _begin(self) -> None:
        self._waited: Bools = np.zeros(self._lanes.count, np.bool_)
        self._released: Bools = np.zeros(self._lanes.groups, np.bool_)

    def _next_groups(self) -> None:
        self._groups_end()
        self._begin()

    def _groups_end(self) -> None:
        """A group that has not let the next kernel in does so as it ends."""
        silent = np.flatnonzero(~self._released)
        waited = set(np.flatnonzero(self._waited) // self._lanes.group_size)
        for group in silent:
            self._let_in_beside |= self.running_after_wait if group in waited else self.running

    def step(self, stmt: DependentLaunch, active: Active) -> None:
        """What a wait, or the permission for the next kernel, does."""
        if stmt.verb == "await":
            self._waited[active.lanes] = True
            self._some_waited = True
            return
        for lane in active.lanes:
            self._let_in_beside |= self.running_after_wait if self._waited[lane] else self.running
        self._released[self._lanes.base[active.lanes]] = True

    def touch(self, name: str, data: Floats, addresses: Ints, lanes: Ints, writes: bool, site: Site) -> None:
        """Note that each of `lanes` reads, or writes, its element of a matrix.

        Raises: KernelFault where a kernel that may still run touches it, too, and one of the two writes.
        """
        waited = self._waited[lanes]
        for some, running in ((~waited, self.running), (waited, self.running_after_wait)):
            for number in running if some.any() else ():
                self._compare(number, name, data, addresses[some], lanes[some], writes, site)
        _bytes(self._written if writes else self._read, data)[addresses] = True

    def _compare(
        self, number: int, name: str, data: Floats, addresses: Ints, lanes: Ints, writes: bool, site: Site
    ) -> None:
        if number == _OTHERS:
            who, verb, clash = "what ran before", "touch", np.ones(len(addresses), np.bool_)
        else:
            other = self._stream.launches[number]
            who, verb = f"kernel {other._name}", "write"
            clash = np.logical_or.reduce(_bytes(other._written, data)[addresses], axis=1)
            if writes and not clash.any():
                verb = "read"
                clash = np.logical_or.reduce(_bytes(other._read, data)[addresses], axis=1)
        if not clash.any():
            return
        position = int(np.argmax(clash))
        lane = self._lanes.who(self._lanes.first + int(lanes[position]))
        now = "writes" if writes else "reads"
        where = f"element {int(addresses[position])} of {name}"
        why = f"which {who} may still {verb}: it has not waited for the kernels before"
        raise KernelFault("race", site.text, f"{lane} of kernel {self._name} {now} {where}, {why}")


def _bytes(touched: dict[int, Bools], data: Floats) -> Bools:
    """Flags of an array's bytes, a row for each element of it, whichever type a kernel reads it by."""
    start = int(data.__array_interface__["data"][0])
    flags = touched.get(start)
    if flags is None:
        flags = touched[start] = np.zeros(data.nbytes, np.bool_)
    return flags.reshape(-1, data.itemsize)
