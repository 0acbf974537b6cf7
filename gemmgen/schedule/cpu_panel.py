"""Mainloop of CPUs: a work-item computes on vectors of its own, panel by panel."""

from __future__ import annotations

from typing import ClassVar

from gemmgen.records import dataclass
from gemmgen.schedule.fields import Memory, Pair, flag, number, pair
from gemmgen.schedule.mainloop import Mainloop, Method, OperandKeys
from gemmgen.schedule.schedulers import OneTile, Scheduler, SplitK
from gemmgen.schedule.tiling import Tiling


@dataclass(frozen=True, slots=True)
class CpuPanel(Mainloop):
    """A work-item computes on vectors of its own, tile after tile, by the vector instructions of a CPU: `b.memory` says
    whether from a private copy of a panel of B.

    Attributes:
        vector: neighbouring columns that are computed as one vector (outer product).
        dot_product: whether such a vector is of neighbours along K instead, each of which sums a part of an element of
            C (dot product): where C has few columns or B has its columns in lines, vectors of columns would be mostly
            empty or gathered.
        macro_kernel: tiles (rows, columns) that a work-item computes at most, one after the other: the caches then
            serve them all, and a core has few work-items.
        grid_multiple: groups along rows and columns come in multiples of these, so that each core has as many.
        kc: how deep in K the tiles of a sweep go before they all go on, so that their part of B stays in a cache;
            sums wait in C meanwhile. 0 is all of K.
        mc: where B is copied, how many tiles of a column are computed before those right of them, so that their
            part of A stays in a cache. 0 is all of them.
        b_prefetch: how many steps of K before they are read lines of B, or of its copy, are prefetched to the first
            level of the cache; 0 leaves that to the processor.
        fused_copy: whether the first tile of a column of tiles copies B's panel as it multiplies, in place of a copy of
            the whole block before: where few rows of C share a panel.
        c_prefetch: whether a tile of C is prefetched row by row while its sum is computed; where B is copied.
    """

    tiling: ClassVar[type[Tiling]] = Tiling
    schedulers: ClassVar[tuple[type[Scheduler], ...]] = (OneTile, SplitK)
    without: ClassVar[frozenset[str]] = frozenset({"threadblock_swizzle", "c_width"})
    memories: ClassVar[tuple[Memory, ...]] = ("global", "private")
    operands: ClassVar[OperandKeys] = {"a": frozenset(), "b": frozenset({"memory"})}
    family: ClassVar[Method] = "vector"

    vector: int = number(16, "neighbouring columns that a work-item computes as one vector", 16, 16, (1, 2, 8, 16), 2)
    dot_product: bool = flag("vectors are of neighbours along K: a dot product")
    macro_kernel: Pair = pair(
        (1, 1),
        "rows x columns of tiles that a work-item computes",
        "22x2 (rows x columns of tiles per work-item)",
        4096,
        ((1, 1), (2, 1), (4, 4)),
    )
    grid_multiple: Pair = pair(
        (1, 1),
        "what groups along rows x columns are multiples of",
        "2x1 (what groups along rows x columns are multiples of)",
        1024,
        ((1, 1), (2, 2)),
    )
    kc: int = number(0, "depth in K of a panel; 0 for all of K", 512, 1 << 20, (0, 32, 256), least=0)
    mc: int = number(0, "tiles of a column before those right of them; 0 for all", 16, 4096, (0, 1, 2), least=0)
    b_prefetch: int = number(0, "steps of K that B is prefetched ahead; 0 for none", 8, 64, (0, 8), least=0)
    fused_copy: bool = flag("the first tile of a column copies B as it multiplies")
    c_prefetch: bool = flag("a tile of C is prefetched while its sum is made")
