"""What a target, and a product, have against a tile scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.schedulers import AtomicSplitK, ClusterSplitK, StreamK, TileScheduler
from gemmgen.spec import GemmSpec

#: Work-items of a group that adds up a row of a block.
MOST_ITEMS = 1024
#: Groups of a cluster that every device of its kind has room for.
MOST_JOINED = 8


def atomic_problems(spec: GemmSpec, _: Schedule, target: Target) -> Iterator[str]:
    """What a product and a target have against sums that are added to C as they come."""
    if "atomic_add" not in target.features:
        yield f"atomic, but target {target.name!r} adds nothing in one step: drop it, and a second kernel adds up"
    if spec.epilogue:
        yield f"atomic shows no kernel whole sums, which {spec.functions[0].short} needs: drop atomic, keep split"
    if spec.c_order == "col":
        yield "atomic adds to rows of C, which is column-major: drop it"


def stream_problems(spec: GemmSpec, s: Schedule, _: Target) -> Iterator[str]:
    """What a product has against dealing out blocks evenly."""
    if not s.mbarrier:
        yield (
            "stream_k needs an mbarrier pipeline, but mbarrier = 0: use mbarrier 4 with stages 16, say, or "
            "leave stream_k out"
        )
    if s.sliced_k > 1:
        yield f"stream_k deals out K already, but sliced_k = {s.sliced_k}: use sliced_k 1"
    if spec.batched:
        yield "stream_k deals out one product, not a batch: leave it out"
    if s.block_tile[1] > MOST_ITEMS:
        yield f"a block's {s.block_tile[1]} columns > {MOST_ITEMS}, which a group adds up: use a smaller tile"


def cluster_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What a product and a target have against clusters that add up parts of K, where work-items multiply."""
    if "clusters" not in target.features:
        yield (
            f"cluster_reduction = {s.cluster_reduction}, but target {target.name!r} has no clusters: use 1, and a "
            "second kernel adds up, or sm_90 or later"
        )
    if spec.c_order == "col":
        yield f"cluster_reduction = {s.cluster_reduction} adds up rows of C, which is column-major: use 1"
    if s.sliced_k > 1:
        yield (
            f"cluster_reduction = {s.cluster_reduction} and sliced_k = {s.sliced_k} both add up in local memory: use 1 "
            "for one of them"
        )
    yield from joined_problems(s, s.block_tile)


def joined_problems(s: Schedule, lines: tuple[int, int]) -> Iterator[str]:
    """What each group of a cluster adds up of a block, and stores.

    Args:
        lines: of a block as they are added up, and their length.
    """
    if s.split_k % s.cluster_reduction or s.cluster_reduction > MOST_JOINED:
        known = ", ".join(str(n) for n in range(1, MOST_JOINED + 1) if s.split_k % n == 0)
        yield (
            f"cluster_reduction = {s.cluster_reduction} of split_k = {s.split_k} parts is none of their divisors up to "
            f"{MOST_JOINED}, the most groups of a cluster: use one of {known}"
        )
    (count, length), work_items = lines, s.group[0] * s.group[1]
    each = work_items * s.c_width
    if s.c_width not in (1, 2, 4, 8):
        yield f"c_width = {s.c_width}: use 1, 2, 4 or 8"
    elif count % s.cluster_reduction or each % length or count * length % (each * s.cluster_reduction):
        yield (
            f"{count} lines of {length} for {s.cluster_reduction} groups of a cluster, in runs of {s.c_width} to "
            f"{work_items} work-items, do not come out even: use another c_width or cluster_reduction"
        )


_CHECKS: Mapping[type[TileScheduler], Callable[[GemmSpec, Schedule, Target], Iterator[str]]] = {
    AtomicSplitK: atomic_problems,
    ClusterSplitK: cluster_problems,
    StreamK: stream_problems,
}


def scheduler_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """Those of the member that a schedule has."""
    check = _CHECKS.get(type(s.scheduler))
    return iter(()) if check is None else check(spec, s, target)
