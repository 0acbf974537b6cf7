"""Mainloop by `joint_matrix` of SYCL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gemmgen.schedule.fields import Flat
from gemmgen.schedule.mainloop import Mainloop, Method, barrier_field, large_grf_field
from gemmgen.schedule.operand import Operand
from gemmgen.schedule.schedulers import OneTile, Scheduler, SplitK
from gemmgen.schedule.tiling import Tiling

#: Lanes of a sub-group, and so columns of a fragment.
LANES = 16


@dataclass(frozen=True, slots=True)
class JointMatrix(Mainloop):
    """Sub-groups of Xe-HPC and Xe2 multiply fragments of A and B, which they load as one from the matrices as they are.

    Attributes:
        barrier: whether the work-group meets before each step, to stay in step for the cache.
        large_grf: whether a thread gets twice as many registers, of which there are then half as many threads: a
            build option.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK)
    without: ClassVar[frozenset[str]] = frozenset({"c_width"})

    barrier: bool = barrier_field()
    large_grf: bool = large_grf_field()

    @classmethod
    def fixed(cls, atom: str, tiling: Tiling) -> Flat:
        """Sub-groups lie side by side along a group's rows."""
        return {"atom": "joint_matrix", "sub_group": min(tiling.group[1], LANES)}

    @classmethod
    def operand_keys(cls, name: str, operand: Operand) -> frozenset[str]:
        """None: one instruction brings both."""
        return frozenset()

    @property
    def method(self) -> Method:
        """The family it belongs to."""
        return "joint_matrix"
