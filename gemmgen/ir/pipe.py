"""Pipes: how one part of a kernel hands tiles over to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gemmgen.ir.expr import Node, Var
from gemmgen.ir.meetings import Roles

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
            `roles` for box copies that work-items begin which do nothing else, by a pair of mbarriers for each slot.
        batch: slots that are handed over at a time; divides `stages`.
        across: whether, in a loop of a loop, the last step's prefetch is the first of the next outer round.
        through_registers: whether the next slot is loaded into registers before the consumer's work, and stored after.
        roles: of `sync` by roles, who has which.
        before: of `sync` by mbarriers, how many batches were handed over before a loop; None where it is the first.
    """

    name: str
    stages: int
    sync: Sync
    through_registers: bool = False
    across: bool = False
    batch: int = 1
    roles: Roles | None = None
    before: Var | None = None


@dataclass(frozen=True, slots=True)
class PipeOp(Node):
    """One of the four verbs on a pipe."""

    verb: PipeVerb
    pipe: Pipe
