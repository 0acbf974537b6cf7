"""Producers and consumers of a group: how many there are, and the registers of both."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from gemmgen.ir.instructions import WARPGROUP_LANES
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule

#: What lines of a matrix, and its first one, begin on multiples of.
ALIGNMENT = 16
#: Lines of a TMA tile at most.
MOST_LINES = 256
#: Work-items that go one way together.
WARP = 32
#: Registers of a multiprocessor, and how many a warp's work-items get at a time.
REGISTERS, REGISTER_UNIT = 65536, 8


def role_problems(s: Schedule, target: Target) -> Iterator[str]:
    """Who copies, and the registers of both: more than the launch has would be waited for without end."""
    consumers = s.group[0] * s.group[1]
    work_items = consumers + s.producer_threads
    if s.producer_threads not in (32, WARPGROUP_LANES):
        yield f"producer_threads = {s.producer_threads}: use {WARPGROUP_LANES}, a warpgroup, or 32, a warp"
        return
    if consumers % WARP:
        rows, cols = s.group
        whole = rows * WARP // gcd(WARP, consumers)
        yield (
            f"group {rows}x{cols} has {consumers} work-items, but consumers are whole warps, as producers are: use "
            f"group {whole}x{cols}, say"
        )
    if work_items > target.max_group:
        most = target.max_group
        yield f"{consumers} work-items and {s.producer_threads} producers > {most} on this target: use a smaller group"
        return
    more, fewer = s.setmaxnreg
    if s.setmaxnreg == (0, 0):
        return
    if s.producer_threads != WARPGROUP_LANES:
        yield (
            f"setmaxnreg {more}x{fewer} are set by whole warpgroups, but producer_threads = "
            f"{s.producer_threads}: use 0x0"
        )
    if more % REGISTER_UNIT or fewer % REGISTER_UNIT or not 24 <= fewer <= more <= 256:
        yield f"setmaxnreg {more}x{fewer} are no multiples of {REGISTER_UNIT} from 24 to 256, larger first: use 232x40"
    at_launch = launched(s)
    asked = consumers * more + s.producer_threads * fewer
    if asked > at_launch * work_items:
        yield (
            f"setmaxnreg {more}x{fewer} are {asked:,} of a block's {at_launch * work_items:,} ({at_launch} for each of "
            f"{work_items} work-items), and would be waited for without end: use fewer"
        )


def launched(s: Schedule) -> int:
    """Registers that a work-item has at most when a block of them begins, alone on its multiprocessor: whole warpgroups
    count.
    """
    warpgroups = -(-(s.group[0] * s.group[1] + s.producer_threads) // WARPGROUP_LANES)
    return min(256, REGISTERS // (warpgroups * WARPGROUP_LANES) // REGISTER_UNIT * REGISTER_UNIT)
