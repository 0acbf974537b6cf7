"""Build the program: the kernels of a whole GEMM, each of some dozen statements on tiles.

    Kernel = Scheduler x Mainloop x Epilogue

The mainloop, which the schedule names, makes the main kernel; the scheduler says which kernels run before and after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.target import Target
from gemmgen.ir.workspace import Workspace
from gemmgen.mainloops.cpu_panel import CpuPanel
from gemmgen.mainloops.direct import Direct
from gemmgen.mainloops.dpas import Dpas
from gemmgen.mainloops.dpas_block_2d import DpasBlock2D
from gemmgen.mainloops.gemv import Gemv
from gemmgen.mainloops.joint_matrix import JointMatrix
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


class Mainloop(Protocol):
    """What every mainloop offers."""

    def kernels_before(self) -> tuple[Kernel, ...]:
        """Kernels that prepack operands."""

    def kernel(self) -> Kernel:
        """The main kernel."""

    def workspaces(self) -> tuple[Workspace, ...]:
        """The memory between kernels."""


#: Mainloops by their names in `mainloop_of`.
MAINLOOPS: dict[str, Callable[[Problem], Mainloop]] = {
    "cpu_panel": CpuPanel,
    "direct": Direct,
    "gemv": Gemv,
    "dpas": Dpas,
    "dpas_block_2d": DpasBlock2D,
    "joint_matrix": JointMatrix,
    "shared_memory": Direct,  # its operands pass through tiles
    "sub_group": SubGroup,
    "warp_mma": WarpMma,
    "warpgroup_mma": WarpgroupMma.of,
}


def mainloop_of(s: Schedule) -> str:
    """Which mainloop a schedule describes."""
    if s.atom == "dpas":
        return "dpas_block_2d" if s.block_2d else "dpas"
    if s.atom == "joint_matrix":
        return "joint_matrix"
    if s.by_warpgroups:
        return "warpgroup_mma"
    if s.by_warps:
        return "warp_mma"
    if s.vector > 1:
        return "cpu_panel"
    if s.lanes_along_k > 1:
        return "gemv"
    if any(o.shuffle or o.block_read or o.memory == "image" for o in (s.a, s.b)):
        return "sub_group"
    return "shared_memory" if "local" in (s.a.memory, s.b.memory) else "direct"


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
