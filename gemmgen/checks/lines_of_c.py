"""Sums on their way to C by way of local memory, so that a warp stores whole lines: when they go there, how they lie
there, and whether they come out even.
"""

from __future__ import annotations

from gemmgen.schedule import Schedule
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.spec import GemmSpec

#: Elements after each row of sums in local memory, so that a warp's pairs of eight rows lie in different banks.
SUM_PAD = 8


def stores_lines(spec: GemmSpec, s: Schedule, swapped: bool = False) -> bool:
    """Whether sums pass through local memory: one by one where matrix instructions leave pairs to a work-item, and of
    warpgroups in longer runs, for which the lanes of a warp exchange them by shuffles. Of swapped operands, whose pairs
    are columns of C, single ones go from registers.

    Args:
        spec, s: as the kernel has them.
        swapped: whether operands are.
    """
    pair = s.thread_vector[1]
    of_warps = isinstance(s.mainloop, WarpMma) and s.sliced_k == 1
    one_by_one = s.c_width < pair and not swapped and (of_warps or s.by_warpgroups)
    longer = s.c_width > pair and s.by_warpgroups
    return spec.c_order == "row" and (one_by_one or longer) and not s.epilogue_stages


def comes_out_even(block: tuple[int, int], run: int, work_items: int) -> bool:
    """Whether rows and columns of a block of C can be dealt out in runs of neighbours, lines one after the other."""
    rows, cols = block
    at_once = work_items * run
    return at_once % cols == 0 and rows * cols % at_once == 0
