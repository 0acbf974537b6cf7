"""The sizes that a launch depends on, by name. Hosts ask for them, so this module knows nothing of kernels."""

from __future__ import annotations

from gemmgen.ir.expr import Expr, Var

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
