"""The sizes that a launch depends on, by name, and the memory that its kernels pass on. Hosts ask for them, so this
module knows nothing of kernels.
"""

from __future__ import annotations

from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Var
from gemmgen.records import dataclass

#: How many groups a device runs at once, one on each multiprocessor. A grid that depends on it says so by this name,
#: and the host asks the device.
GROUPS = Var("groups")
#: Integers that must not be zero for anything to be there to do.
EXTENTS = ("m", "n", "rows", "cols", "batch_count", "group_count")
#: Groups of a grouped product, and what one of them has of M or of K, which no host knows.
GROUP_COUNT, GROUP_ROWS, GROUP_DEPTH = Var("group_count"), Var("group_rows"), Var("group_depth")
#: What all groups have together.
OF_ALL_GROUPS: dict[Var, Expr] = {GROUP_ROWS: Var("m"), GROUP_DEPTH: Var("k")}
#: Steps of the bisection by which a work-group of a grouped product finds its group, and how many groups they tell
#: apart.
GROUP_STEPS = 16
MOST_GROUPS = 2**GROUP_STEPS
#: Blocks along y and along z of a grid of CUDA.
MOST_BLOCKS = 65_535
#: Elements that 32-bit indices reach.
REACHED = 2**31


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that one kernel passes to the next, as the argument of that name.

    Attributes:
        elements: how many of `dtype`, as an expression over the integer arguments; of all products of a batch.
        reach: how many the kernels' places are counted by.
    """

    name: str
    dtype: DType
    elements: Expr
    reach: int = REACHED

    def problem(self, elements: int) -> str | None:
        """The sentence for more elements than are reached."""
        if elements < self.reach:
            return None
        name, remedy = self.name, "multiply in parts, pack nothing, or (but for dpas) use --wide"
        if self.name == "workspace":
            name, remedy = "the workspace", "use a lower split, or --wide"
        return f"{name} has {elements:,} elements, more than 32-bit indices reach: {remedy}"
