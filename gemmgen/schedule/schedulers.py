"""Tile schedulers: which blocks of C, and which part of K, a group computes."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Chosen, Record, number


def _split() -> int:
    return number(1, "parts of K, each with groups of its own", 8, 1024, (1, 2, 3, 8), least=2)


@dataclass(frozen=True, slots=True)
class TileScheduler(Record):
    """What the members have in common.

    Attributes:
        threadblock_swizzle: the threadblock swizzle: rows of groups that are walked column by column, so that
            neighbours in time are neighbours in C; 0 where rows are walked one after the other.
    """

    chosen_by: ClassVar[Chosen | None] = None

    threadblock_swizzle: int = number(
        0, "rows of groups that are walked column by column; 0 for none", 8, 1024, (0, 1, 2, 3, 4), least=0
    )


@dataclass(frozen=True, slots=True)
class OneTile(TileScheduler):
    """A group for each block of C."""


@dataclass(frozen=True, slots=True)
class SplitK(TileScheduler):
    """Parts of K with groups of their own, whose sums a second kernel adds up.

    Attributes:
        split_k: parts of K.
    """

    split_k: int = _split()


@dataclass(frozen=True, slots=True)
class AtomicSplitK(TileScheduler):
    """Parts of K that are added to C one by one as they come: quicker than a second kernel, but in no fixed order, so
    that the last bits differ from run to run.

    Attributes:
        split_k: parts of K.
    """

    chosen_by: ClassVar[Chosen | None] = Chosen("atomic", "parts of K are added to C as they come")

    split_k: int = _split()


@dataclass(frozen=True, slots=True)
class ClusterSplitK(TileScheduler):
    """Parts of K whose groups run together in a cluster and add up their sums in local memory.

    Attributes:
        split_k: parts of K.
        cluster_reduction: neighbouring parts of a cluster; where that is all of them, there is no second kernel.
    """

    split_k: int = _split()
    cluster_reduction: int = number(1, "neighbouring parts of K that a cluster adds up", 2, 8, (1, 2, 4), least=2)


@dataclass(frozen=True, slots=True)
class StreamK(TileScheduler):
    """All of C's blocks and K's batches are dealt out evenly to as many groups as a device runs at once, one on each
    multiprocessor: each computes whole blocks and parts of two, which a second kernel adds up.
    """

    chosen_by: ClassVar[Chosen | None] = Chosen(
        "stream_k", "blocks and K are dealt out evenly to the groups that run at once"
    )


@dataclass(frozen=True, slots=True)
class Persistent(TileScheduler):
    """No more groups than a device runs at once, each of which computes one block of C after the other, so that the
    first tiles of the next are on their way while C is stored.
    """

    chosen_by: ClassVar[Chosen | None] = Chosen("persistent", "no more groups than run at once")


Scheduler = OneTile | SplitK | AtomicSplitK | ClusterSplitK | StreamK | Persistent
