"""What a target, and a product, have against a tile scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.schedulers import AtomicSplitK, StreamK, TileScheduler
from gemmgen.spec import GemmSpec

#: Work-items of a group that adds up a row of a block.
MOST_ITEMS = 1024


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


_CHECKS: Mapping[type[TileScheduler], Callable[[GemmSpec, Schedule, Target], Iterator[str]]] = {
    AtomicSplitK: atomic_problems,
    StreamK: stream_problems,
}


def scheduler_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """Those of the member that a schedule has."""
    check = _CHECKS.get(type(s.scheduler))
    return iter(()) if check is None else check(spec, s, target)
