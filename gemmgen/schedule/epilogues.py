"""Epilogues: how sums leave a group for C."""

from __future__ import annotations

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Record, flag, number


@dataclass(frozen=True, slots=True)
class Registers(Record):
    """Work-items store what they hold.

    Attributes:
        c_width: elements of C that one store writes, where they are inside, or as many of them as the target's
            instructions move.
    """

    c_width: int = number(1, "elements of C that one store writes", 4, 16, (1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class Staged(Record):
    """C passes through local memory and is stored by TMA, a warp's lines at a time.

    Attributes:
        epilogue_stages: slots of local memory, no more than a warp has TMA tiles.
        ordered_epilogue: whether the warpgroups of a group store their rows one after the other, so that the first of
            them multiplies for the next block while the others still store.
    """

    epilogue_stages: int = number(1, "slots of local memory from which C is stored by TMA; 0 for none", 2, 8, (0, 1, 2))
    ordered_epilogue: bool = flag("the warpgroups of a group store one after the other")


Epilogue = Registers | Staged
