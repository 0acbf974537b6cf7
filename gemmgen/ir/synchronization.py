"""Synchronisation: barriers, mbarriers, groups of operations in flight, roles, dependent launch, and pipes."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Const, Expr, Node, Var
from gemmgen.records import dataclass

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
class GroupStep(Node):
    """Bookkeeping of operations in flight, which go on while those who issued them do.

    Attributes:
        verb: `commit` makes a group of those issued since the last commit; `wait` until at most `pending` groups, the
            newest, are under way; `fence` comes before the first that reads what others have written.
    """

    verb: Literal["fence", "commit", "wait"]
    pending: int = 0


@dataclass(frozen=True, slots=True)
class AsyncGroup(GroupStep):
    """Of a work-item's own asynchronous copies. Other work-items see what has landed after a barrier."""


@dataclass(frozen=True, slots=True)
class StoreGroup(GroupStep):
    """Of a work-item's own TMA stores. The fence lets stores see what the work-item has written to local memory, which
    they read by a way of their own; what those of a group have read may be overwritten once it is waited for.
    """


@dataclass(frozen=True, slots=True)
class MultiplyGroup(GroupStep):
    """Of a warpgroup's own matrix instructions. The fence comes before the first that takes sums, or A, from registers
    which other instructions have written; what those of a group have read may be overwritten once it is waited for.

    Attributes:
        sums: of `wait` for all, the registers that may be used from then on.
        taken: of `fence`, the registers that A is taken from, if it is.
        which: the fragments among those, by the array's first coordinate; empty for all.
    """

    CHILDREN = ("which",)

    sums: Buffer | None = None
    taken: Buffer | None = None
    which: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class Mbarrier(Node):
    """A step with an array of barriers in local memory that work-items arrive at and wait for apart.

    A phase of a barrier is over when every work-item of the group has arrived, or as many as `arrivals` says, and when
    all bytes have come that they said they expect; its phases have parities 0, 1, 0, ...

    Attributes:
        verb: `init` declares the array and has work-items with an `index` of it make that one ready, before the group
            meets; `arrive` says that a work-item is
            done; `arrive_copies` that its asynchronous copies so far have landed; `expect` that it is done, and that
            `bytes` come by TMA loads; `wait` until the phase of that parity is over, which is so for parity 1 before
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
class WarpSpecialization:
    """Warp specialisation: the group's first work-items are consumers, which multiply, the others are producers.

    Attributes:
        consumers: work-items that multiply.
        rows: of the group, that the consumers are.
        registers: of a consumer's work-item and of a producer's (`setmaxnreg`); zeros leave the compiler's.
        cluster: groups that copy for one another, so that each waits until none of them reads a slot.
        storing: warpgroups whose epilogues run in order, one after the other; 0 where each stores when it is done.
    """

    consumers: int
    rows: int
    registers: tuple[int, int]
    cluster: int = 1
    storing: int = 0


@dataclass(frozen=True, slots=True)
class SetMaxRegisters(Node):
    """`setmaxnreg`: from here on each work-item of this role has so many registers, more or fewer than at launch."""

    registers: int
    increase: bool


@dataclass(frozen=True, slots=True)
class DependentLaunch(Node):
    """Programmatic dependent launch: one kernel of a program begins while the one before it ends.

    Attributes:
        verb: `release` lets the next kernel's groups begin (`griddepcontrol.launch_dependents`); `await` waits until
            the kernels before are complete and their writes visible (`griddepcontrol.wait`).
        buffers: of `await`, what they have written and this kernel touches, never before.
    """

    verb: Literal["release", "await"]
    buffers: tuple[Buffer, ...] = ()


#: What only specialised warps have.
RoleStep = MultiplyGroup | StoreGroup | SetMaxRegisters
SyncStmt = Barrier | AsyncGroup | Mbarrier | RoleStep | DependentLaunch


PipeVerb = Literal["acquire", "commit", "wait", "release"]
Sync = Literal["barrier", "none", "async_group", "mbarrier", "roles"]


@dataclass(frozen=True, slots=True)
class Pipe:
    """A ring of `stages` slots between a producer and a consumer.

    `acquire` opens a free slot, `commit` hands it over, `wait` takes the oldest one, `release` frees it.

    Attributes:
        name: for reading the IR.
        stages: slots; 1 means that producer and consumer take turns.
        sync: how the hand-over is made visible: `barrier` between work-items of a group, `none` where a
            work-item hands over to itself (registers), `async_group` for asynchronous copies, waited for by groups and
            then a barrier, `mbarrier` for asynchronous copies by a pair of mbarriers (full, empty) for each `batch`,
            `roles` for TMA loads by producer warps, with a pair of mbarriers (full, empty) for each slot.
        batch: slots that are handed over at a time; divides `stages`.
        across_tiles: whether, in a loop of a loop, the last step's prefetch is the first of the next outer round.
        through_registers: whether the next slot is loaded into registers before the consumer's work, and stored after.
        leads: of `sync` by barriers and several slots, whether a step begins with its barrier; else that stands before
            the loop and at the end of each step.
        roles: of `sync` by roles, who has which.
        before: of `sync` by mbarriers, how many batches were handed over before a loop; None where it is the first.
    """

    name: str
    stages: int
    sync: Sync
    through_registers: bool = False
    leads: bool = True
    across_tiles: bool = False
    batch: int = 1
    roles: WarpSpecialization | None = None
    before: Var | None = None


@dataclass(frozen=True, slots=True)
class PipeOp(Node):
    """One of the four verbs on a pipe."""

    verb: PipeVerb
    pipe: Pipe
