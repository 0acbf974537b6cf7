"""Synchronisation faults, planted one at a time in a right kernel: each statement that orders anything is dropped,
weakened, or moved to where it orders less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Load
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.show import headline
from gemmgen.ir.stmt import Body, For, Multiply, Stmt, Store, TmaCopy, VectorCopy
from gemmgen.ir.synchronization import AsyncGroup, Barrier, Mbarrier, MultiplyGroup, StoreGroup
from gemmgen.ir.walk import exprs, walk, walk_expr
from gemmgen.schedule import Schedule

#: The way to a statement: its number in a body, the name of one of its own bodies, a number in that, and so on.
Path = tuple[int | str, ...]
Ordering = Barrier | AsyncGroup | StoreGroup | MultiplyGroup | Mbarrier


@dataclass(frozen=True)
class Fault:
    """One planted fault: what was done to which statement, and the kernel that comes of it."""

    name: str
    kernel: Kernel


def planted(kernel: Kernel) -> Iterator[Fault]:
    """Every fault of a kernel."""
    places = list(_places(kernel.body))
    for number, (path, stmt) in enumerate(places):
        if not isinstance(stmt, Ordering) or _is_for_compilers(stmt, path, places[:number]):
            continue
        for name, change in _changes(stmt, kernel):
            body = _edit(kernel.body, path, change)
            if body != kernel.body:
                yield Fault(f"{number}: {name} `{headline(stmt)}`", replace(kernel, body=body))


def sizes(schedule: Schedule) -> tuple[tuple[int, int, int], ...]:
    """M, N and K that show faults of a schedule's kernels: two blocks along each axis or a ragged one; more steps of K
    than a ring has slots, so that it goes around more than twice, in whole steps and with a rest; and fewer.
    """
    rows, cols = schedule.block_tile
    ring = schedule.block_k * schedule.split_k
    steps = 2 * schedule.stages + 3
    return (
        (rows * schedule.cluster[0], cols * schedule.cluster[1], ring * steps),
        (rows + 5, cols + 3, ring * steps + 1),
        (rows * 2, cols * 2, ring),
    )


def _is_for_compilers(stmt: Ordering, path: Path, before: list[tuple[Path, Stmt]]) -> bool:
    """Whether it waits, outside loops, for matrix instructions before the first of them: it orders nothing."""
    issued = any(isinstance(one, MultiplyGroup) and one.verb == "commit" for _, one in before)
    in_loop = any(isinstance(one, For) and path[: len(at)] == at for at, one in before)
    return isinstance(stmt, MultiplyGroup) and stmt.verb == "wait" and not issued and not in_loop


Change = Callable[[Body, int], Body]


def _changes(stmt: Ordering, kernel: Kernel) -> Iterator[tuple[str, Change]]:
    """What may be wrong with a statement."""
    if not (isinstance(stmt, Mbarrier) and stmt.verb == "init"):
        yield "drop", lambda body, i: (*body[:i], *body[i + 1 :])
    for name, weaker in _weaker(stmt, kernel):
        yield name, lambda body, i, new=weaker: (*body[:i], new, *body[i + 1 :])  # type: ignore[misc]
    yield ("later", _later) if _is_acquire(stmt) else ("earlier", _earlier)


def _weaker(stmt: Ordering, kernel: Kernel) -> Iterator[tuple[str, Stmt]]:
    """Statements in its place that order less."""
    items = kernel.group[0] * kernel.group[1]
    match stmt:
        case Barrier():
            # An arrival and a wait apart only tell that all have begun: nothing was written that they hand over.
            if stmt.memory == "local" and not stmt.of_sub_group and stmt.part == "all":
                yield "no memory", replace(stmt, memory="none")
            if stmt.groups > 1:
                yield "of one group", replace(stmt, groups=1, part="all")
            if not stmt.of_sub_group and kernel.sub_group is not None and items > kernel.sub_group:
                yield "of a sub-group", Barrier(of_sub_group=True)
        case AsyncGroup("wait", pending) | MultiplyGroup("wait", pending) | StoreGroup("wait", pending):
            yield "one more pending", replace(stmt, pending=pending + 1)
        case Mbarrier("arrive_copies"):
            yield "without copies", replace(stmt, verb="arrive")
        case Mbarrier("wait"):
            yield "other parity", replace(stmt, parity=(stmt.parity + 1) % 2)
        case Mbarrier("expect"):
            yield "half the bytes", replace(stmt, bytes=stmt.bytes // 2)
        case Mbarrier("arrive") if stmt.rank is not None:
            yield "at its own", replace(stmt, rank=None)
        case Mbarrier("init") if stmt.arrivals > 1:
            yield "one arrival less", replace(stmt, arrivals=stmt.arrivals - 1)


def _is_acquire(stmt: Ordering) -> bool:
    """Whether it makes known what others did, and not to others what was done."""
    match stmt:
        case Barrier():
            return stmt.part != "arrive"
        case AsyncGroup(verb) | MultiplyGroup(verb) | StoreGroup(verb):
            return verb == "wait"
        case Mbarrier(verb):
            return verb == "wait"


def _later(body: Body, i: int) -> Body:
    """Behind the next statement that touches memory."""
    to = next((j for j in range(i + 1, len(body)) if _touches(body[j])), None)
    return body if to is None else (*body[:i], *body[i + 1 : to + 1], body[i], *body[to + 1 :])


def _earlier(body: Body, i: int) -> Body:
    """In front of the statement before that touches memory."""
    to = next((j for j in range(i - 1, -1, -1) if _touches(body[j])), None)
    return body if to is None else (*body[:to], body[i], *body[to:i], *body[i + 1 :])


def _touches(stmt: Stmt) -> bool:
    """Whether it, or one in it, reads or writes local memory."""
    for one in walk((stmt,)):
        held: tuple[Buffer, ...] = ()
        match one:
            case VectorCopy() | TmaCopy():
                held = one.dst, one.src
            case Store():
                held = (one.buffer,)
            case Multiply():
                held = one.a, one.b
        loads = (n.buffer for root in exprs(one) for n in walk_expr(root) if isinstance(n, Load))
        if any(buffer.space in (Space.LOCAL, Space.VIEW) for buffer in (*held, *loads)):
            return True
    return False


def _places(body: Body, path: Path = ()) -> Iterator[tuple[Path, Stmt]]:
    """Every statement, with the way to it."""
    for i, stmt in enumerate(body):
        yield (*path, i), stmt
        for name in stmt.BODIES:
            yield from _places(getattr(stmt, name), (*path, i, name))


def _edit(body: Body, path: Path, change: Change) -> Body:
    """The body with the statement at a place changed."""
    i, *rest = path
    assert isinstance(i, int)
    if not rest:
        return change(body, i)
    name, *inner = rest
    held = _edit(getattr(body[i], str(name)), tuple(inner), change)
    return (*body[:i], replace(body[i], **{str(name): held}), *body[i + 1 :])  # type: ignore[arg-type]
