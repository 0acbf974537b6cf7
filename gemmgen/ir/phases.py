"""Mbarriers at run time: which phases are over, and what that orders."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgen.ir.expr import Call, Expr, Var
from gemmgen.ir.flights import Flight
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import AsyncGroup, For, Let, Mbarrier
from gemmgen.ir.visit import walk, walk_expr


class Phases:
    """One array of mbarriers. All work-items of all groups arrive and wait together, as uniform control flow has it.

    So an arrival ends a phase, and a wait for it orders all that was done before the arrival before all that
    follows the wait, for every work-item.
    """

    def __init__(self) -> None:
        self.clear(0)

    def clear(self, count: int) -> None:
        """`count` barriers before their first phase."""
        self._over = [0] * count
        self._ended = [-1] * count
        self._flights: list[list[Flight]] = [[] for _ in range(count)]

    def arrive(self, index: int, time: int, copies: Sequence[Flight]) -> None:
        """Every work-item has come, or will when its copies have landed."""
        self._over[index] += 1
        self._ended[index] = time
        self._flights[index] += copies

    def wait(self, index: int, parity: int) -> int | None:
        """The time before which all is ordered now; None if the phase is not over, so that nobody would ever go on."""
        over = self._over[index]
        if over % 2 == parity:
            return None
        for flight in self._flights[index]:
            flight.memory.land(flight.addresses, flight.values, flight.lanes, flight.site, for_all=True)
        self._flights[index] = []
        return self._ended[index]


def parts_ways(kernel: Kernel) -> bool:
    """Whether groups count asynchronous copies in loops whose length is their own."""
    if not any(isinstance(s, AsyncGroup | Mbarrier) for s in walk(kernel.body)):
        return False
    own: set[str] = set()

    def depends(node: Expr) -> bool:
        parts = walk_expr(node)
        return any(
            (isinstance(p, Call) and p.function == "group_id") or (isinstance(p, Var) and p.name in own) for p in parts
        )

    for stmt in walk(kernel.body):
        if isinstance(stmt, Let) and depends(stmt.value):
            own.add(stmt.var.name)
        if isinstance(stmt, For) and (depends(stmt.start) or depends(stmt.stop)):
            return True
    return False
