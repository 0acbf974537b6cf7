"""Where work-items of a group meet, or wait for copies or for other kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Const, Expr, Node, Var

MbarrierVerb = Literal["init", "arrive", "arrive_copies", "expect", "wait"]
#: Of a meeting: those who arrive go on, and wait for the others later.
Part = Literal["all", "arrive", "wait"]


#: Of groups in clusters, one above or beside the other: which of its cluster's a group is. Blocks are then those of a
#: cluster.
RANK = Var("rank")


@dataclass(frozen=True, slots=True)
class Barrier(Node):
    """All work-items of the group meet, or the `role_items` of a role, or those of each sub-group by themselves, or all
    of a cluster's `groups`; `memory` says whose writes become visible, `part` whether they arrive and go on, or wait.
    """

    memory: Literal["local", "none"] = "local"
    role_items: int = 0
    of_sub_group: bool = False
    groups: int = 1
    part: Part = "all"


@dataclass(frozen=True, slots=True)
class AsyncGroup(Node):
    """Bookkeeping of a work-item's own asynchronous copies.

    Attributes:
        verb: `commit` makes a group of those begun since the last; `wait` until at most `pending` groups, the
            newest, are under way. Other work-items see what has landed after a barrier.
    """

    verb: Literal["commit", "wait"]
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Mbarrier(Node):
    """A step with an array of barriers in local memory that work-items arrive at and wait for apart.

    A phase of a barrier is over when every work-item of the group has arrived, or as many as `arrivals` says, and when
    all bytes have come that they said they expect; its phases have parities 0, 1, 0, ...

    Attributes:
        verb: `init` declares the array and has work-items with an `index` of it make that one ready, before the group
            meets; `arrive` says that a work-item is
            done; `arrive_copies` that its asynchronous copies so far have landed; `expect` that it is done, and that
            `bytes` come by box copies; `wait` until the phase of that parity is over, which is so for parity 1 before
            the first.
        count: barriers of the array.
        index: which of them.
        parity: of the phase that is waited for.
        arrivals: of `init`, how many end a phase; 0 for every work-item of the group.
        bytes: of `expect`.
        rank: of `arrive`, at whose barrier, as the groups of the cluster are numbered; None for the own one.
    """

    CHILDREN = ("index", "parity", "rank")

    verb: MbarrierVerb
    name: str
    count: int
    index: Expr
    parity: Expr = field(default_factory=lambda: Const(0))
    arrivals: int = 0
    bytes: int = 0
    rank: Expr | None = None


@dataclass(frozen=True, slots=True)
class MultiplyGroup(Node):
    """Bookkeeping of a warpgroup's own matrix instructions, which go on while it does.

    Attributes:
        verb: `fence` comes before the first that takes sums, or A, from registers which other instructions have
            written; `commit` makes a group of those begun since the last; `wait` until at most `pending` groups, the
            newest, are under way: what they have read may be overwritten from then on.
        sums: of `wait` for all, the registers that may be used from then on.
        taken: of `fence`, the registers that A is taken from, if it is.
    """

    verb: Literal["fence", "commit", "wait"]
    pending: int = 0
    sums: Buffer | None = None
    taken: Buffer | None = None


@dataclass(frozen=True, slots=True)
class StoreGroup(Node):
    """Bookkeeping of a work-item's own stores of boxes, which go on while it does.

    Attributes:
        verb: `fence` lets stores see what the work-item has written to local memory, which they read by a way of their
            own; `commit` makes a group of those begun since the last; `wait` until at most `pending` groups, the
            newest, still read local memory, which may be overwritten from then on.
    """

    verb: Literal["fence", "commit", "wait"]
    pending: int = 0


@dataclass(frozen=True, slots=True)
class Roles:
    """How the work-items of a group are shared out, the first of them to multiply, the others to copy.

    Attributes:
        consumers: work-items that multiply.
        rows: of the group, that they are.
        registers: that each of them has, and each of the others; zeros where the compiler's own stay.
        cluster: groups that copy for one another, so that each waits until none of them reads a slot.
        storing: warpgroups that store one after the other, in turns; 0 where each does when it is done.
    """

    consumers: int
    rows: int
    registers: tuple[int, int]
    cluster: int = 1
    storing: int = 0


@dataclass(frozen=True, slots=True)
class RegisterShare(Node):
    """From here on each work-item of this role has so many registers, `more` than it was launched with, or fewer."""

    registers: int
    more: bool


@dataclass(frozen=True, slots=True)
class Handover(Node):
    """Where one kernel of a program meets the next, which begins while it ends.

    Attributes:
        verb: `release` lets the next kernel's groups begin where there is room; `await` waits until the kernels before
            are over, and all that they have written is there to be read.
        buffers: of `await`, what they have written and this kernel touches, never before.
    """

    verb: Literal["release", "await"]
    buffers: tuple[Buffer, ...] = ()


#: What only roles have.
RoleStep = MultiplyGroup | StoreGroup | RegisterShare
Meeting = Barrier | AsyncGroup | Mbarrier | RoleStep | Handover
