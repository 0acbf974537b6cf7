"""What a target, and a product, have against a schedule: by families of mainloops, and what several of them share.

What can't be at all `gemmgen.schedule` refuses already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from gemmgen.checks.capacity import capacity_problems
from gemmgen.checks.cpu_panel import vector_problems
from gemmgen.checks.direct import dp4a_problems, gemv_problems
from gemmgen.checks.dpas import block_2d_problems, joint_matrix_problems, matrix_problems
from gemmgen.checks.tma_ring import tma_problems
from gemmgen.checks.warp_mma import direct_mma_problems, mfma_problems, warp_problems
from gemmgen.checks.warpgroup_mma import warpgroup_problems
from gemmgen.checks.work_items import work_item_problems
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.cpu_panel import CpuPanel
from gemmgen.schedule.direct import Direct, Gemv, SubGroup
from gemmgen.schedule.dpas import Dpas, DpasBlock2D, JointMatrix
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.tma_ring import TmaRing
from gemmgen.schedule.warp_mma import DirectMma, Mfma, WarpMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec

Check = Callable[[GemmSpec, Schedule, Target], Iterable[str]]


def _of_work_items(*own: Check) -> Check:
    """Of all whose work-items or warps multiply, and of one of them; whether there is room, if all else is well."""

    def check(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
        problems = [problem for each in (work_item_problems, *own) for problem in each(spec, s, target)]
        yield from problems or capacity_problems(spec, s, target)

    return check


#: A mainloop's own.
CHECKS: Mapping[type[Mainloop], Check] = {
    Direct: _of_work_items(dp4a_problems),
    Gemv: _of_work_items(gemv_problems),
    SubGroup: _of_work_items(),
    SharedMemory: _of_work_items(dp4a_problems),
    TmaRing: _of_work_items(tma_problems),
    WarpMma: _of_work_items(warp_problems),
    WarpgroupMma: warpgroup_problems,
    Dpas: matrix_problems,
    DpasBlock2D: block_2d_problems,
    JointMatrix: joint_matrix_problems,
    DirectMma: _of_work_items(direct_mma_problems),
    Mfma: _of_work_items(mfma_problems),
    CpuPanel: vector_problems,
}
