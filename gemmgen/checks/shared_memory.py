"""What a target has against asynchronous copies to local memory, and their mbarriers."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule


def async_problems(s: Schedule, target: Target) -> Iterator[str]:
    """Asynchronous copies."""
    for name, o in (("a", s.a), ("b", s.b)):
        if not o.async_copy:
            continue
        if "async_copy" not in target.features:
            yield f"{name}.async_copy, but target {target.name!r} has none: drop it, or use sm_80 or later"
        if s.prefetch:
            yield (
                f"prefetch keeps the next tile in registers, which {name}.async_copy passes by: "
                f"use prefetch false, or {name}.async_copy false"
            )
    if s.mbarrier:
        yield from _mbarrier(s, target)
    if s.a.async_copy != s.b.async_copy and "local" == s.a.memory == s.b.memory:
        yield "a and b share one pipeline: set async_copy for both or for none"


def _mbarrier(s: Schedule, target: Target) -> Iterator[str]:
    """Tiles handed over in batches."""
    if "mbarrier" not in target.features:
        yield f"mbarrier = {s.mbarrier}, but target {target.name!r} has none: use 0, or sm_90 or later"
    if not s.a.async_copy and not s.b.async_copy:
        yield (
            "mbarrier waits for asynchronous copies, but there are none: set a.async_copy and b.async_copy, or use "
            "mbarrier 0"
        )
    if s.stages % s.mbarrier or s.stages < 3 * s.mbarrier:
        yield (
            f"mbarrier = {s.mbarrier} tiles at a time need a ring of three batches or more, but stages = {s.stages}: "
            f"use stages {4 * s.mbarrier}"
        )
