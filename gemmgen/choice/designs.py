"""The schedules that a product on a GPU of CUDA is chosen from, all of K in one part (`gemmgen.choice.gpu`).

Of warpgroups they are designs by axes: rows, widths by the instructions' own steps, stages; what follows from those is
filled in by rule. Of mma and of multiply-adds they are the named tiles. Where TMA, or a prologue, needs it, a kernel
before packs A or B. All are points of `gemmgen.tuning.space`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from gemmgen import candidates
from gemmgen.candidates import LINE, VECTOR, WAYS, Way
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F16, F32, FLOAT8, I8, DType
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import Atom, Schedule
from gemmgen.spec import GemmSpec, Grouped

#: Rows of a block and the warpgroups that multiply them; registers that these have and their producers, where any are
#: handed over.
WARPGROUPS: tuple[tuple[int, int], ...] = ((64, 1), (128, 2), (192, 3), (256, 2))
HANDED = {1: (0, 0), 2: (232, 40), 3: (160, 32)}
#: Columns by the instruction's steps; sums of a thread at most, by warpgroups: ptxas gives 128 registers to a thread of
#: four warpgroups, producers counted, and 192x208 does not compile.
WIDTHS = (*range(16, 257, 16),)
MOST_SUMS = {1: 128, 2: 128, 3: 96}
#: Stages that are tried, the most of them that fit and those for two blocks at once; shared memory that is no tile.
MOST_STAGES, LEAST_STAGES, RESERVED = 8, 3, 2048
#: Rows of a block where operands are swapped: few, and many by steps that TMA stores.
FEW_ROWS, MANY_ROWS = (8, 16, 24, 32, 48, 64), (*range(80, 257, 16),)
#: Blocks of a cluster, which share tiles of A or of B by multicast; elements of such a block at least.
CLUSTERS, CLUSTERED = ((1, 2), (2, 1)), 64 * 128
#: Columns of designs that also take what TMA could read itself from a kernel that packs it, where lines are short.
PACKED = (64, 128)
#: Named tiles beside those, by what multiplies: shallow steps and few stages for a short K, blocks that share tiles.
NAMED: dict[str, tuple[str, ...]] = {
    "wgmma": ("wgmma_64x128_k16_s4", "wgmma_64x128_k32_s4", "wgmma_64x128_s2", "wgmma_64x128_s4_2x1"),
    "mma": ("mma_8x16_16x16", "mma_8x16_16x8", "mma_4x8_16x8"),
    "mma_f8": ("mma_f8_8x16_16x8",),
    "mma_s8": ("mma_s8_8x16_16x8",),
    "fma": (
        "mbarrier_8x16_16x16",
        "mbarrier_8x16_16x16_boxes_packed",
        "mbarrier_8x16_8x8_slices4",
        "mbarrier_8x8_4x8_slices8",
        "mbarrier_8x8_8x8_split128",
        "mbarrier_8x8_2x16_split8",
        "async_8x8_16x16",
        "async_8x8_8x16",
        "async_8x4_8x16",
        "async_4x4_8x16",
        "naive_16x16",
    ),
}
#: Types whose products there are designs for, by what multiplies them: float32 is rounded to TF32 by request alone.
TYPES: dict[DType, tuple[str, ...]] = {
    F32: ("fma",),
    **dict.fromkeys((F16, BF16), ("wgmma", "mma")),
    **dict.fromkeys(FLOAT8, ("mma_f8",)),
    I8: ("mma_s8",),
}
#: Tiles of warps, in elements a thread has, and groups of work-items (mma.sync); the same of multiply-adds.
OF_WARPS = ((4, 8), (8, 8), (8, 16), (4, 16))
GROUPS_OF_WARPS = ((8, 8), (16, 8), (16, 16))
OF_THREADS = ((4, 4), (8, 4), (8, 8), (8, 16))
GROUPS_OF_THREADS = ((8, 16), (16, 16), (8, 8))
#: Schedules by which those grow.
_WARPS: dict[int, str] = {1: "mma_f8_8x16_16x8", 2: "mma_8x16_16x8"}
_THREADS = ("async_8x8_8x16", "async_8x8_16x16")


def _atom(spec: GemmSpec) -> Atom:
    return "wgmma_f8" if spec.dtype in FLOAT8 else "wgmma_s8" if spec.dtype == I8 else "wgmma"


def of_warpgroups(atom: Atom, sizes: tuple[int, int], target: Target) -> Iterator[Schedule]:
    """Of `wgmma`.

    Args:
        sizes: bytes of an element of A and B, and of C.
    """
    base = candidates.load("wgmma_128x256_s4").schedule.but(name=None)
    size, result = sizes
    depth = LINE // size
    for rows, count in WARPGROUPS:
        for cols in WIDTHS:
            c_width = _c_width((rows, cols), 128 * count)
            if rows * cols // (128 * count) > MOST_SUMS[count]:
                continue
            ring = (rows + cols) * depth * size
            # Columns of C that a stage of the epilogue has; what that takes of shared memory shows when it is built.
            slot = rows * min(cols, LINE // result) * result
            shared = target.local_bytes - RESERVED
            most = [(shared - slot) // ring, (shared // 2 - slot) // ring]
            tried = {min(MOST_STAGES, x) for x in most[: 3 - count]} | {most[0] - 1}
            # Of what costs the same the first is taken: more stages, and a store that is hidden.
            for stages in sorted((x for x in tried if LEAST_STAGES <= x <= MOST_STAGES), reverse=True):
                for stays, turns in ((False, False), (True, True), (True, False)):
                    if turns and (rows, stages) != (128, most[0]):
                        continue
                    yield base.but(
                        tile=(2 * (rows // 64) // count, cols // 4),
                        group=(32 * count, 4),
                        atom=atom,
                        block_k=depth,
                        stages=stages,
                        c_width=c_width,
                        epilogue_stages=2 if turns else 1,
                        ordered_epilogue=turns,
                        producer_threads=32 if count == 1 else 128,
                        setmaxnreg=HANDED[count],
                        threadblock_swizzle=12 if turns else 8,
                        persistent=stays,
                    )


def _c_width(block: tuple[int, int], threads: int) -> int:
    """Elements of C that a thread stores at once: four if they can be dealt out evenly, or the pairs that it has."""
    rows, cols = block
    return 4 if threads * 4 % cols == 0 and rows * cols % (threads * 4) == 0 else 2


def of_swapped(atom: Atom, sizes: tuple[int, int], target: Target) -> Iterator[Schedule]:
    """Of `wgmma` with operands swapped: C's rows are the instruction's columns, for few rows, and for numbers of rows
    that leave much of a block of 128 without work. TMA stores many of them.

    Args:
        sizes: bytes of an element of A and B, and of C.
    """
    base = candidates.load("wgmma_16x64_s8_joined2").schedule.but(name=None, split_k=1, cluster_reduction=1, c_width=1)
    size, result = sizes
    for rows in (*FEW_ROWS, *MANY_ROWS):
        many = rows in MANY_ROWS
        for count in (1, 2):
            slot = 64 * count * min(rows, LINE // result) * result if many else 0
            stages = (target.local_bytes - RESERVED - slot) // ((rows + 64 * count) * LINE)
            yield base.but(
                tile=(rows // 4, 2),
                group=(4, 32 * count),
                atom=atom,
                block_k=LINE // size,
                stages=min(MOST_STAGES, stages),
                epilogue_stages=int(many),
                producer_threads=32 if count == 1 else 128,
                setmaxnreg=HANDED[count] if many else (0, 0),
                threadblock_swizzle=8 if many else 0,
            )


def of_clusters(plain: Iterable[Schedule]) -> Iterator[Schedule]:
    """Those whose blocks can share tiles, of each block the one of most stages."""
    most: dict[tuple[bool, tuple[int, int]], Schedule] = {}
    for each in plain:
        (rows, cols), same = each.block_tile, (each.operands_swapped, each.block_tile)
        if rows * cols >= CLUSTERED and not each.persistent and each.epilogue_stages:
            most[same] = max(most.get(same, each), each, key=lambda x: x.stages)
    for each in most.values():
        for cluster in CLUSTERS:
            with suppress(ScheduleError):
                yield each.but(cluster=cluster)


def of_warps(spec: GemmSpec, target: Target) -> Iterator[Schedule]:
    """Of `mma.sync`."""
    del target
    base = candidates.load(_WARPS[spec.dtype.size]).schedule.but(name=None)
    for tile in OF_WARPS:
        for group in GROUPS_OF_WARPS:
            for stages in (3, 4):
                yield base.but(tile=tile, group=group, stages=stages)


def of_threads(spec: GemmSpec, target: Target) -> Iterator[Schedule]:
    """Of multiply-adds."""
    del spec, target
    for name in _THREADS:
        base = candidates.load(name).schedule.but(name=None)
        for tile in OF_THREADS:
            for group in GROUPS_OF_THREADS:
                for stages in (3, 4):
                    yield base.but(tile=tile, group=group, stages=stages)


def more(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """Tiles of warps and of threads that nobody has named: worth measuring, not known to be worth choosing."""
    if "wgmma" in target.features and spec.dtype.size <= 2:
        return ()
    maker = of_warps if "mma" in target.features and spec.dtype.size in _WARPS else of_threads
    return tuple(each for each in maker(spec, target) if not problems_as_asked(spec, each, target))


@lru_cache(maxsize=64)
def of_target(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """All that a device may have for such a product as it is asked for, each once. Single ones may yet be refused."""
    if "async_copy" not in target.features or spec.dtype not in TYPES:
        return ()
    found: dict[Schedule, None] = {}
    if "wgmma" in target.features and spec.dtype.size <= 2:
        known = _by_axes(_atom(spec), (spec.dtype.size, spec.result.size), target, spec.grouped)
        staged = spec.ld_unit("c") * spec.result.size % VECTOR == 0
        way = next((way for way in WAYS if _can(spec, _as(known[0], way, staged), target)), None)
        found |= {} if way is None else dict.fromkeys(_packed(known, way, staged))
        if way == WAYS[0] and spec.grouped is None:
            known = tuple(x for x in known if not x.persistent and not (x.operands_swapped and x.epilogue_stages))
            narrow = tuple(x for x in known if x.block_tile[1] in PACKED)
            found |= {x: None for other in WAYS[1:] for x in _packed(narrow, other, staged)}
    for name in (name for unit in TYPES[spec.dtype] for name in NAMED[unit]):
        plain = candidates.varied(name)
        for way in WAYS if varies(plain) else WAYS[:1]:
            if _can(spec, made := _as(plain, way), target):
                found[made] = None
    return tuple(found)


@lru_cache(maxsize=64)
def _by_axes(atom: Atom, sizes: tuple[int, int], target: Target, grouped: Grouped | None) -> tuple[Schedule, ...]:
    plain = tuple(of_warpgroups(atom, sizes, target))
    if grouped == "rows":
        # Of what costs the same, what has no surplus blocks is taken; no warpgroups take turns.
        return tuple(sorted((x for x in plain if not x.ordered_epilogue), key=lambda x: not x.persistent))
    if grouped == "k":
        return (*plain, *of_clusters(plain))
    plain += tuple(of_swapped(atom, sizes, target))
    return (*plain, *of_clusters(plain))


@lru_cache(maxsize=64)
def _packed(known: tuple[Schedule, ...], way: Way, staged: bool) -> tuple[Schedule, ...]:
    """Those that are anything of their own with A, B or both packed.

    Args:
        staged: whether C's lines begin where TMA can store them.
    """
    return tuple(dict.fromkeys(_as(plain, way, staged) for plain in known if way == WAYS[0] or varies(plain)))


def _as(plain: Schedule, way: Way, staged: bool = True) -> Schedule:
    made = candidates.changed(plain, 1, way) if any(way) else plain
    boxes = plain.epilogue_stages if staged else 0
    if made.epilogue_stages == boxes:
        return made
    stays = plain.persistent and boxes > 0
    return made.but(epilogue_stages=boxes, persistent=stays, ordered_epilogue=plain.ordered_epilogue and stays)


def _can(spec: GemmSpec, made: Schedule, target: Target) -> bool:
    try:
        return not problems_as_asked(spec, made, target)
    except ScheduleError:
        return False


def varies(plain: Schedule) -> bool:
    """Whether a schedule is anything of its own where matrices are packed, or K is in parts: not one that takes turns,
    for which there are no TMA tiles of C then, nor clusters, nor what copies nothing.
    """
    return not plain.ordered_epilogue and plain.cluster == (1, 1) and plain.a.memory == "local"
