"""Mbarriers at run time: which phases are over, and what that orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gemmgen.ir.expr import Call, Const, Expr, Select, Var, as_int
from gemmgen.ir.flights import Flight
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.lanes import place_of
from gemmgen.ir.meetings import AsyncGroup, Mbarrier
from gemmgen.ir.stmt import Body, For, If, Let, Stmt
from gemmgen.ir.walk import map_expr, walk


class Phases:
    """One array of mbarriers, of all groups that run together.

    A wait for a phase orders all that was done before the arrivals that ended it before all that follows the wait.
    """

    def __init__(self) -> None:
        self.clear(0, 1)

    def clear(self, count: int, arrivals: int) -> None:
        """`count` barriers before their first phase, each of which so many arrivals end."""
        self._met = False
        self._arrivals = arrivals
        self._over = [0] * count
        self._come = [0] * count
        self._bytes = [0] * count
        self._ended = [-1] * count
        self._flights: list[list[Flight]] = [[] for _ in range(count)]

    def meet(self) -> None:
        """The group has met: every work-item sees the barriers that were made ready before."""
        self._met = True

    def problem(self, index: int) -> str | None:
        """Why nobody may arrive at a barrier or wait for it, if so."""
        if not 0 <= index < len(self._over):
            return f"there is no barrier {index} of {len(self._over)} made ready"
        return None if self._met else "it may not be ready yet for all: no barrier of the group since it was made so"

    @property
    def busy(self) -> bool:
        """Whether copies are under way that nobody has waited for."""
        return any(self._flights)

    def arrive(self, index: int, time: int, came: int, copies: Sequence[Flight] = (), expected: int = 0) -> str | None:
        """So many work-items of each group have come, or will when their copies have landed, and expect so many bytes
        by box copies. What is wrong with that, if so.
        """
        self._come[index] += came
        if self._come[index] > self._arrivals:
            return f"{self._come[index]} arrivals where {self._arrivals} end a phase"
        self._bytes[index] += expected
        self._ended[index] = time
        self._flights[index] += copies
        self._end(index)
        return None

    def bring(self, index: int, copies: Sequence[Flight], size: int) -> str | None:
        """Box copies of so many bytes begin, which the barrier counts. What is wrong with that, if so."""
        if size > self._bytes[index]:
            return f"brings {size} bytes where {self._bytes[index]} more are expected"
        self._bytes[index] -= size
        self._flights[index] += copies
        self._end(index)
        return None

    def _end(self, index: int) -> None:
        if self._come[index] == self._arrivals and not self._bytes[index]:
            self._over[index] += 1
            self._come[index] = 0

    def is_over(self, index: int, parity: int) -> bool:
        """Whether the phase of that parity is."""
        return self._over[index] % 2 != parity

    def wait(self, index: int) -> int:
        """The time before which all is ordered now that a phase is over."""
        for flight in self._flights[index]:
            flight.memory.land(flight.addresses, flight.values, flight.lanes, flight.site, for_all=True)
        self._flights[index] = []
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
        inner = (s for s in walk(loop.body) if isinstance(s, For) and any(isinstance(x, Mbarrier) for x in s.body))
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
