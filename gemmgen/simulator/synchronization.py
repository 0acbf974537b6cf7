"""What synchronises work-items in the simulator: barriers, mbarriers, roles, and waits for copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NoReturn

import numpy as np

from gemmgen.errors import KernelFault
from gemmgen.ir.expr import Call, Const, Expr, Select, Var, as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Body, For, If, Let, Stmt
from gemmgen.ir.synchronization import AsyncGroup, Barrier, Mbarrier
from gemmgen.ir.walk import map_expr, of_kind, walk
from gemmgen.records import dataclass
from gemmgen.simulator.evaluate import IndexCode, require_whole
from gemmgen.simulator.in_flight import CopyInFlight, Queue
from gemmgen.simulator.lanes import Active, Index, Lanes, Site, agreed, place_of
from gemmgen.simulator.memory import ClusterMemory, GlobalMemory, LocalMemory, MemoryScope
from gemmgen.simulator.tiles import TileMemory


class Phases:
    """One array of mbarriers, of all groups that run together.

    A wait for a phase orders all that was done before the arrivals that ended it before all that follows the wait.
    """

    def __init__(self) -> None:
        self.clear(0, 1)

    def clear(self, count: int, arrivals: int) -> None:
        """`count` barriers before their first phase, each of which so many arrivals end."""
        self._met = self._cluster_met = False
        self._arrivals = arrivals
        self._over = [0] * count
        self._come = [0] * count
        self._bytes = [0] * count
        self._ended = [-1] * count
        self._by_all = [True] * count
        self._ended_by_all = [True] * count
        self._copies: list[list[CopyInFlight]] = [[] for _ in range(count)]

    def meet(self, scope: MemoryScope) -> None:
        """A barrier: every work-item of the group, or of the cluster, sees what mbarriers were made ready before."""
        self._met = True
        self._cluster_met |= scope == "cluster"

    def problem(self, index: int, of_cluster: bool = False) -> str | None:
        """Why nobody may arrive at a barrier or wait for it, if so; or at those of all groups of the cluster."""
        if not 0 <= index < len(self._over):
            return f"there is no barrier {index} of {len(self._over)} made ready"
        if not self._met:
            return "it may not be ready yet for all: no barrier of the group since it was made so"
        if of_cluster and not self._cluster_met:
            return "another group's may not be ready yet: no barrier of the cluster since it was made so"
        return None

    @property
    def busy(self) -> bool:
        """Whether copies are under way that nobody has waited for."""
        return any(self._copies)

    def arrive(
        self,
        index: int,
        time: int,
        came: int,
        copies: Sequence[CopyInFlight] = (),
        expected: int = 0,
        by_all: bool = False,
    ) -> str | None:
        """So many work-items of each group have come, or will when their copies have landed, and expect so many bytes
        by TMA; `by_all` groups of the cluster come. What is wrong with that, if so.
        """
        self._come[index] += came
        if self._come[index] > self._arrivals:
            return f"{self._come[index]} arrivals where {self._arrivals} end a phase"
        self._bytes[index] += expected
        self._ended[index] = time
        self._by_all[index] &= by_all
        self._copies[index] += copies
        self._end(index)
        return None

    def bring(self, index: int, copies: Sequence[CopyInFlight], size: int) -> str | None:
        """Box copies of so many bytes begin, which the barrier counts. What is wrong with that, if so."""
        if size > self._bytes[index]:
            return f"brings {size} bytes where {self._bytes[index]} more are expected"
        self._bytes[index] -= size
        self._copies[index] += copies
        self._end(index)
        return None

    def _end(self, index: int) -> None:
        if self._come[index] == self._arrivals and not self._bytes[index]:
            self._over[index] += 1
            self._come[index] = 0
            self._ended_by_all[index], self._by_all[index] = self._by_all[index], True

    def scope(self, index: int) -> MemoryScope:
        """Who arrived to end the last phase: the group alone, or all of the cluster."""
        return "cluster" if self._ended_by_all[index] else "group"

    def is_over(self, index: int, parity: int) -> bool:
        """Whether the phase of that parity is."""
        return self._over[index] % 2 != parity

    def wait(self, index: int) -> int:
        """The time before which all is ordered now that a phase is over."""
        for copy in self._copies[index]:
            copy.complete_for_all()
        self._copies[index] = []
        return self._ended[index]


def runs(kernel: Kernel, sizes: Mapping[str, int], grid: tuple[int, int, int], most: int) -> Iterator[tuple[int, int]]:
    """(first group, groups) that can run together, at most `most` of them.

    Those that count asynchronous copies or phases must go through loops equally often, which is their own matter where
    K is split. Where alpha has a say in that, which is the same for all, they must whatever it says.
    """
    total, most = grid[0] * grid[1] * grid[2], max(1, most // kernel.cluster) * kernel.cluster
    counts = any(isinstance(s, AsyncGroup | Mbarrier) for s in walk(kernel.body))

    def courses(group: int) -> tuple[int, ...]:
        return tuple(x for which in (0, 1) for x in _course(kernel, sizes, grid, group, which))

    first, course = 0, courses(0) if counts and total else ()
    for group in range(1, total + 1):
        following = courses(group) if counts and group < total else course
        if group == total or group - first == most or following != course:
            yield first, group - first
            first, course = group, following


def _ways(body: Body) -> Iterator[Stmt]:
    """The statements of a body, and of what stands in it on a condition: of each role, or where alpha is not zero."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, If):
            yield from _ways((*stmt.then, *stmt.orelse))


def _course(
    kernel: Kernel, sizes: Mapping[str, int], grid: tuple[int, int, int], group: int, which: int
) -> tuple[int, ...]:
    """How far each loop goes whose bounds are known, at the top of the kernel or where all work-items go; of two bounds
    that a condition chooses by numbers that are not known here, by this one.
    """
    ids = place_of(group, grid)
    known: dict[str, int] = dict(sizes)

    def value(node: Expr) -> int | None:
        def rewrite(part: Expr) -> Expr:
            match part:
                case Call("group_id", (Const(int(dimension)),), _):
                    return Const(ids[dimension])
                case Call("group_count", (Const(int(dimension)),), _):
                    return Const(grid[2 - dimension])
                case Call("max", (Const(int(a)), Const(int(b))), _):
                    return Const(max(a, b))
                case Select(_, then, other):
                    return other if which else then
                case Var(name, _) if name in known:
                    return Const(known[name])
            return part

        return as_int(map_expr(node, rewrite))

    def differs(loop: For) -> bool:
        """Whether loops inside it that wait for phases may be longer for some groups than for others."""
        inner = (s for s in of_kind(For, loop.body) if any(isinstance(x, Mbarrier) for x in s.body))
        return any(value(s.start) is None or value(s.stop) is None for s in inner)

    lengths: list[int] = []
    for stmt in _ways(kernel.body):
        if isinstance(stmt, Let) and (number := value(stmt.value)) is not None:
            known[stmt.var.name] = number
        if isinstance(stmt, For):
            start, stop = value(stmt.start), value(stmt.stop)
            if start is not None and stop is not None:
                lengths.append(max(0, stop - start))
            lengths += [group] if stop != 0 and differs(stmt) else []
    return tuple(lengths)


class _Stopped(Exception):
    """Another role has failed."""


class RoleSchedule:
    """Runs the roles' statements in threads of their own, of which one at a time goes on.

    So a role is a plain walk through its statements, as all of a kernel without roles is. Who comes next is the same
    each time: the next one that is not over and for which something has happened since it had to wait.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._turn = 0
        self._events = 0
        self._waiting: list[int | None] = []
        self._failure: BaseException | None = None

    @property
    def parted(self) -> bool:
        """Whether roles run now."""
        return bool(self._waiting)

    def happened(self) -> None:
        """Somebody has arrived, or bytes have come: who waits may look again."""
        self._events += 1

    def run(self, roles: Sequence[Callable[[], None]]) -> None:
        """All of them, until each is over. Raises: what one of them raises."""
        self._waiting, self._turn, self._failure = [None] * len(roles), 0, None
        threads = [threading.Thread(target=self._role, args=(i, role), daemon=True) for i, role in enumerate(roles)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._waiting = []
        if self._failure is not None:
            raise self._failure

    def until(self, ready: Callable[[], bool]) -> bool:
        """Let others go on until it is so; False if it will never be."""
        me = self._turn
        while not ready():
            if not self.parted:
                return False
            self._waiting[me] = self._events
            following = self._next(me)
            if following is None:
                return False
            self._pass_on(me, following)
        return True

    def _next(self, me: int) -> int | None:
        """A role for which something has happened since it had to wait; None if all wait in vain."""
        count = len(self._waiting)
        others = ((me + step) % count for step in range(1, count))
        return next((i for i in others if self._waiting[i] != self._events and self._waiting[i] != _OVER), None)

    def _pass_on(self, me: int, following: int) -> None:
        with self._changed:
            self._turn = following
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == me or self._failure is not None)
        if self._failure is not None:
            raise _Stopped

    def _role(self, me: int, role: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == me or self._failure is not None)
        try:
            if self._failure is None:
                with np.errstate(all="ignore"):  # a thread has a setting of its own
                    role()
        except _Stopped:
            return
        except BaseException as failure:  # noqa: BLE001 - raised again where the roles began
            self._failure = failure
        with self._changed:
            self._waiting[me] = _OVER
            following = (i for i, state in enumerate(self._waiting) if state != _OVER)
            self._turn = next(following, me)
            self._changed.notify_all()


#: In the place of when a role began to wait.
_OVER = -1


def one_by_one(number: IndexCode, parts: int, body: Callable[[Active], None]) -> Callable[[Active], None]:
    """Parts of a group by themselves: the work-items of number 0 first, then those of number 1, and so on."""

    def step(active: Active) -> None:
        own = number(active)
        for part in range(parts):
            among, _ = active.split(own == part)
            if among is not None:
                body(among)

    return step


@dataclass
class Group:
    """What work-items of a group share, of all groups that run together: who they are, local memory, matrices that
    TMA copies, operations in flight by their kind, mbarriers by their names, and roles.
    """

    lanes: Lanes
    memories: list[LocalMemory] = field(default_factory=list)
    matrices: list[GlobalMemory] = field(default_factory=list)
    copies: Queue = field(default_factory=Queue)
    stores: Queue = field(default_factory=Queue)
    products: Queue = field(default_factory=Queue)
    phases: dict[str, Phases] = field(default_factory=dict)
    roles: RoleSchedule = field(default_factory=RoleSchedule)
    #: Whether a group has copied to another of its cluster, or arrived at a barrier there, since a barrier of the
    #: cluster; and, where all have arrived at one and not waited yet, the same of what was before that, and its time.
    touches_others: bool = False
    arrived: tuple[bool, int] | None = None

    def clear(self) -> None:
        """Other groups run now."""
        for queue in (self.copies, self.stores, self.products):
            queue.clear(self.lanes.count)
        self.touches_others, self.arrived = False, None

    def fence(self, active: Active) -> None:
        """TMA stores see what the active lanes have written to tiles."""
        for memory in self.memories:
            if isinstance(memory, TileMemory):
                memory.fence(active)

    def barriers(self, name: str) -> Phases:
        """The array of that name."""
        return self.phases.setdefault(name, Phases())


def mbarrier_step(step: Mbarrier, codes: Sequence[IndexCode], group: Group, site: Site) -> Callable[[Active], None]:
    """What it does; `codes` give the index, the parity and, if there is one, the rank."""
    lanes, phases = group.lanes, group.barriers(step.name)

    def fault(detail: str) -> NoReturn:
        raise KernelFault("pipe", site.text, detail)

    def act(active: Active) -> None:
        if not (active.full or group.roles.parted):
            fault("not every work-item comes, so that phases cannot be counted")
        if step.verb == "init":
            if lanes.group_size < step.count:
                fault(f"{lanes.group_size} work-items for {step.count} barriers")
            phases.clear(step.count, step.arrivals or lanes.group_size)
            return
        which, of, *ranks = (agreed(code(active), active) for code in codes)
        if isinstance(which, np.ndarray) or isinstance(of, np.ndarray):
            fault("work-items mean different barriers or phases")
        if problem := phases.problem(which, bool(ranks)):
            fault(problem)
        if step.verb == "wait":
            wait(active, which, of)
            return
        came = lanes.each_group(active)
        if came is None:
            fault("not as many work-items come of each group")
        if ranks and not _one_each(active.pick(ranks[0]), lanes.cluster):
            fault("not as many work-items arrive at each group's barrier")
        copies = [x for x in group.copies.take() if isinstance(x, CopyInFlight)] if step.verb == "arrive_copies" else ()
        if problem := phases.arrive(which, lanes.time, came, copies, step.bytes, bool(ranks)):
            fault(problem)
        group.touches_others |= bool(ranks)
        lanes.time += 1
        group.roles.happened()

    def wait(active: Active, which: int, of: int) -> None:
        if not group.roles.until(lambda: phases.is_over(which, of)):
            fault(f"waits for a phase of {step.name}[{which}] that never ends")
        lanes.role = active if group.roles.parted else None
        until, scope = phases.wait(which), phases.scope(which)
        for memory in group.memories:
            memory.publish(active, scope, until)

    return act


def _one_each(ranks: Index, cluster: int) -> bool:
    """Whether all groups of a cluster are meant, each as often."""
    counts = np.bincount(np.atleast_1d(ranks), minlength=cluster)
    return len(counts) == cluster and bool((counts == counts[0]).all())


def barrier_step(stmt: Barrier, group: Group, site: Site) -> Callable[[Active], None]:
    """What a barrier does: of a group, of a role, or of each sub-group for itself."""
    lanes = group.lanes

    def barrier(active: Active) -> None:
        if stmt.of_sub_group:
            _sub_groups_meet(group, active, site)
            return
        if stmt.role_items and lanes.each_group(active) != stmt.role_items:
            raise KernelFault("divergent barrier", site.text, "not all work-items of the role come")
        if not stmt.role_items and not lanes.whole(active, lanes.group_size):
            away = lanes.missing(active)
            raise KernelFault("divergent barrier", site.text, f"{lanes.who(away)} does not come")
        if stmt.groups == 1 and stmt.part == "all":
            publish(active, "role" if stmt.role_items else "group", None)
        elif stmt.part == "arrive":
            if group.arrived is not None:
                raise KernelFault("divergent barrier", site.text, "all have arrived already, and none has waited yet")
            released = stmt.memory == "local"
            group.arrived = released and group.touches_others, lanes.time if released else -1
            group.touches_others &= not released
            lanes.time += 1
        else:
            cluster_meets(active)

    def cluster_meets(active: Active) -> None:
        until = None
        if stmt.part == "all":
            group.touches_others &= stmt.memory != "local"
        elif group.arrived is None:
            raise KernelFault("divergent barrier", site.text, "none of those that are waited for has arrived")
        else:
            # What was done between the arrival and the wait is in no order.
            touched, until = group.arrived
            group.touches_others |= touched and stmt.memory != "local"
            group.arrived = None
        for memory in group.memories if stmt.groups > 1 else ():
            if isinstance(memory, ClusterMemory):
                memory.has_begun()
        publish(active, "cluster" if stmt.groups > 1 else "group", until)

    def publish(active: Active, scope: MemoryScope, until: int | None) -> None:
        if stmt.memory != "local":
            return
        for memory in group.memories:
            memory.publish(active, scope, until)
        for phases in group.phases.values():
            phases.meet(scope)

    return barrier


def _sub_groups_meet(group: Group, active: Active, site: Site) -> None:
    """What the work-items of each did to local memory and to matrices comes before what they do next."""
    require_whole(group.lanes, active, site)
    for memory in group.memories:
        memory.publish(active, "sub_group")
    for matrix in group.matrices:
        matrix.publish_in_sub_groups(active)
