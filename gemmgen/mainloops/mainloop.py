"""A mainloop builds the main kernel of a problem. What all of them have in common: their problem, its schedule and tile
scheduler, the kernels that run before, and the memory between kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from gemmgen import kernels
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import ThreadValueLayout
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import Registers
from gemmgen.positions import ThreadLayout
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule import Schedule
from gemmgen.schedulers import Scheduler


@dataclass(frozen=True)
class Mainloop(ABC):
    """The mainloop of one kernel."""

    problem: Problem

    @property
    def schedule(self) -> Schedule:
        """The problem's."""
        return self.problem.schedule

    @cached_property
    def scheduler(self) -> Scheduler:
        """What deals blocks of C to groups."""
        return Scheduler(self.problem)

    @cached_property
    def threads(self) -> ThreadLayout:
        """Which elements of C each thread holds."""
        return ThreadLayout.of(self.schedule)

    @abstractmethod
    def kernel(self) -> Kernel:
        """The main kernel."""

    def accumulators(self, by_columns: bool = False) -> Registers:
        """A thread's sums: row after row, or column after column."""
        tile = self.schedule.tile
        layout = Layout.packed(*(tile[::-1] if by_columns else tile))
        buffer = Buffer("acc", self.problem.sums, Space.PRIVATE, layout)
        return Registers(buffer, ThreadValueLayout(self.threads.rows, self.threads.cols, by_columns))

    def kernels_before(self) -> tuple[Kernel, ...]:
        """What packs operands."""
        return kernels.packing(self.problem)

    def workspaces(self) -> tuple[Workspace, ...]:
        """The memory between kernels."""
        return self.problem.workspaces()
