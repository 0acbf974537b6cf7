"""Build the program: the kernels of a whole GEMM, each of some dozen statements on tiles.

    Kernel = Scheduler x Mainloop x Epilogue

The mainloop, which the schedule names, makes the main kernel; the scheduler says which kernels run before and after it.
"""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.ir.kernel import Program
from gemmgen.ir.target import Target
from gemmgen.mainloops.cpu_panel import CpuPanel
from gemmgen.mainloops.direct import Direct
from gemmgen.mainloops.direct_mma import DirectMma
from gemmgen.mainloops.dpas import Dpas
from gemmgen.mainloops.dpas_block_2d import DpasBlock2D
from gemmgen.mainloops.gemv import Gemv
from gemmgen.mainloops.joint_matrix import JointMatrix
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.mainloops.sub_group import SubGroup
from gemmgen.mainloops.warp_mma import WarpMma
from gemmgen.mainloops.warpgroup_mma import WarpgroupMma
from gemmgen.named import NamedSchedule
from gemmgen.passes.swap import of_transpose
from gemmgen.passes.validate import is_transposed
from gemmgen.problem import Problem
from gemmgen.schedule import Schedule
from gemmgen.schedulers import beta_kernel, finishing_kernels, scale_kernel
from gemmgen.spec import GemmSpec

#: What builds each member of `gemmgen.schedule.flat.MAINLOOPS`, by its name.
MAINLOOPS: dict[str, Callable[[Problem], Mainloop]] = {
    "CpuPanel": CpuPanel,
    "Direct": Direct,
    "DirectMma": DirectMma,
    "Gemv": Gemv,
    "Dpas": Dpas,
    "DpasBlock2D": DpasBlock2D,
    "JointMatrix": JointMatrix,
    "Mfma": WarpMma,
    "SharedMemory": Direct,  # its operands pass through tiles
    "SubGroup": SubGroup,
    "TmaRing": Direct,
    "WarpMma": WarpMma,
    "WarpgroupMma": WarpgroupMma.of,
}


def mainloop_of(s: Schedule) -> str:
    """Which of those builds a schedule: its own member's, or that of sub-groups where they read one operand and the
    other passes through shared memory.
    """
    return "SubGroup" if any(o.shuffle or o.block_read for o in (s.a, s.b)) else type(s.mainloop).__name__


def build(spec: GemmSpec, schedule: Schedule, target: Target) -> Program:
    """The kernels of a validated request, in statements on tiles."""
    plain, schedule = schedule, NamedSchedule.of_schedule(schedule)
    if spec.alpha == 0:
        return Program((scale_kernel(Problem(spec, Schedule(), target, named_for=plain)),))
    # A schedule that writes rows takes a column-major C as its transpose.
    transposed = is_transposed(spec, schedule, target)
    problem = Problem(spec.transposed() if transposed else spec, schedule, target, transposed, named_for=plain)
    mainloop = MAINLOOPS[mainloop_of(schedule)](problem)
    before = mainloop.kernels_before()
    if schedule.atomic and spec.beta != 1:
        # Where all of C stays, parts are added to it as it is.
        before = (*before, beta_kernel(problem))
    kernels = (*before, mainloop.kernel(), *finishing_kernels(problem))
    program = Program(kernels, mainloop.workspaces(), len(before))
    return of_transpose(program) if problem.transposed else program
