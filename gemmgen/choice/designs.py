"""The schedules that a product on a GPU of CUDA is chosen from, all of K in one part (`gemmgen.choice.gpu`).

Of warpgroups they are designs by axes (`gemmgen.choice.warpgroups`), and of warps (mma.sync) where there are none of
those; of multiply-adds the named tiles, and others for few rows and for sizes between theirs. Where TMA, or a prologue,
needs it, a kernel before packs A or B. All are points of `gemmgen.tuning.space`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import gcd

from gemmgen import candidates
from gemmgen.candidates import VECTOR, WAYS, Shape, Way
from gemmgen.choice.columns import WORD, lie_along_k
from gemmgen.choice.machine import WARP
from gemmgen.ir.dtypes import F32, F64, FLOAT8, FLOAT16, I8, DType
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.fields import Pair
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.spec import GemmSpec

#: What else multiplies float32 where it may be rounded to TF32.
OF_TF32 = "mma_tf32"
#: Named tiles beside those, by what multiplies: shallow steps and few stages for a short K, blocks that share tiles.
NAMED: dict[str, tuple[str, ...]] = {
    "wgmma": ("wgmma_64x128_k16_s4", "wgmma_64x128_k32_s4", "wgmma_64x128_s2", "wgmma_64x128_s4_2x1"),
    "mma": ("mma_8x16_16x16", "mma_8x16_16x8", "mma_4x8_16x8"),
    "mma_f8": ("mma_f8_8x16_16x8",),
    "mma_s8": ("mma_s8_8x16_16x8",),
    "mma_f64": ("mma_f64_4x8_16x8",),
    OF_TF32: ("mma_tf32_8x16_16x8",),
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
#: Types whose products there are designs for, by what multiplies them.
TYPES: dict[DType, tuple[str, ...]] = {
    F32: ("fma",),
    **dict.fromkeys(FLOAT16, ("wgmma", "mma")),
    **dict.fromkeys(FLOAT8, ("mma_f8",)),
    I8: ("mma_s8",),
    F64: ("mma_f64",),
}
#: Tiles, in elements a thread has, with groups of work-items: of warps (mma.sync), and of multiply-adds; stages. Two
#: warps with 64 sums a thread and more are left out: they take longer than the prior says.
OF_WARPS = (((4, 8), (8, 8)), *product(((4, 8), (8, 8), (4, 16), (8, 16)), ((16, 8), (16, 16))))
#: The same of elements that are loaded ahead one by one; and of float64.
LOADED_AHEAD = (((8, 8), (16, 16)), ((6, 8), (16, 16)), ((4, 8), (16, 16)), ((4, 8), (16, 8)))
OF_F64 = (((2, 8), (16, 8)), ((4, 4), (16, 8)), ((6, 8), (16, 8)), ((6, 4), (8, 16)), ((4, 8), (32, 8)))
OF_THREADS = (*product(((4, 4), (8, 4), (8, 8), (8, 16)), ((8, 16), (16, 16), (8, 8))),)
#: Tiles for few rows and the depths of their steps, where lines of the long matrix lie along K, and where they lie
#: across it; for few columns the other way around.
ALONG_K = (
    *product((((2, 2), (2, 32)), ((2, 4), (4, 16)), ((4, 4), (4, 16)), ((4, 8), (4, 16))), (32,)),
    *product((((4, 4), (8, 16)), ((4, 8), (8, 16))), (16, 32)),
)
ACROSS_K = tuple(
    product(
        (
            ((1, 2), (2, 32)),
            ((2, 4), (2, 16)),
            ((4, 4), (2, 16)),
            ((4, 4), (2, 32)),
            ((4, 4), (4, 32)),
            ((8, 4), (4, 32)),
        ),
        (16, 32),
    )
)
#: Tiles and groups of blocks of 128x64, and of 64x80 and 96x128 either way: less of them lies outside of a C whose
#: sizes lie between those of the named tiles' blocks.
OTHER_SIZES = (((8, 8), (16, 8)), ((8, 5), (8, 16)), ((5, 8), (16, 8)), ((12, 8), (8, 16)), ((8, 12), (16, 8)))
STAGES = (3, 4)
#: Rows of a block at least beside warpgroups: smaller blocks take longer than the prior says.
ROWS = 64
#: Groups of one warp and of two, each thread with 4x4 sums, for a small C, of which batches have many; depths of steps.
OF_SMALL, DEPTHS_OF_SMALL = (((4, 4), (4, 8)), ((4, 4), (8, 8))), (8, 16)
#: Elements by which lines of a tile are apart that threads copy across lines of the matrix. Without them all lanes of a
#: warp write to the same bank.
APART = 4
#: Schedules by which those grow.
_WARPS: dict[DType, str] = {
    **dict.fromkeys(FLOAT16, "mma_8x16_16x8"),
    **dict.fromkeys(FLOAT8, "mma_f8_8x16_16x8"),
    I8: "mma_s8_8x16_16x8",
    F64: "mma_f64_4x8_16x8",
}
_WARPS_OF_TF32 = NAMED[OF_TF32][0]
_THREADS: tuple[str, ...] = ("async_8x8_8x16", "async_8x8_16x16")
_SMALL, _MEDIUM = "async_4x4_8x16", "async_8x8_8x16"
#: Lanes of a warp above one another at most.
_LANES_DOWN = 4


@lru_cache(maxsize=64)
def of_warps(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """Tiles of warps (`mma.sync`) beside the named ones: of float64, which warpgroups don't multiply; of others where
    these don't take A and B as they are stored, or lines of C begin anywhere.
    """
    name = _WARPS_OF_TF32 if spec.allow_tf32 else _WARPS.get(spec.dtype)
    if name is None or "mma" not in target.features:
        return ()
    base = candidates.load(name).schedule
    if spec.dtype == F64:
        return _grown(spec, target, (base,), OF_F64, (base.stages,))
    anywhere = [spec.ld_unit(x) * spec.element(x).size % VECTOR > 0 for x in "ab"]
    c_anywhere = spec.c_order == "row" and spec.ld_unit("c") * spec.result.size % VECTOR > 0
    tiles = OF_WARPS
    if "wgmma" in target.features:
        if not any((*anywhere, c_anywhere)):
            return ()
        tiles = tuple(x for x in OF_WARPS if x[0][0] * x[1][0] >= ROWS)
    # Where vectors of C begin anywhere, warps store whole lines sooner.
    plain = base.but(c_width=1) if c_anywhere else base
    found = _grown(spec, target, (plain,), tiles, STAGES)
    ahead = base.but(prefetch=True, register_stages=1, across_tiles=False, c_width=1)
    if spec.dtype not in FLOAT16 or spec.c_order == "col" or not any(anywhere):
        return found
    return found + _grown(spec, target, (ahead,), LOADED_AHEAD, (2,))


def of_threads(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """Tiles of threads that nobody has named: worth measuring, not known to be worth choosing."""
    if spec.dtype in _WARPS and "mma" in target.features:
        return ()
    return _grown(spec, target, [candidates.load(name).schedule for name in _THREADS], OF_THREADS, STAGES)


@lru_cache(maxsize=64)
def of_few_rows(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """Tiles for few rows, or few columns. Where the long matrix' lines lie along K, tiles of both lie as lines do, and
    are copied and read by vectors along K. Else they lie along rows and columns of C: lines of the short matrix that
    lie along K are copied element by element.
    """
    if "fma" not in TYPES.get(spec.dtype, ()) or "async_copy" not in target.features:
        return ()
    base = candidates.load(_SMALL).schedule.but(register_stages=1, across_tiles=False, name=None)
    by_k = dict(zip("ab", lie_along_k(spec), strict=True))
    as_they_lie = {x: replace(base.operand(x), transposed=x == "b", pad=APART) for x in "ab" if by_k[x]}
    found = []
    for long, turn in (("b", 1), ("a", -1)):
        like = base.but(**as_they_lie) if by_k[long] else base
        for (tile, group), depth in ALONG_K if by_k[long] else ACROSS_K:
            # Four columns beside one another along K, of each of four lanes, would lie in two lanes' banks.
            most = 2 if by_k[long] and turn < 0 else VECTOR // WORD
            vector = (min(tile[0], most), 1 if by_k[long] else tile[1])[::turn]
            lanes = min(group[0], _LANES_DOWN)
            found.append(
                like.but(
                    tile=tile[::turn],
                    group=group[::turn],
                    lane_arrangement=(lanes, WARP // lanes)[::turn],
                    thread_vector=vector,
                    c_width=vector[1],
                    block_k=depth,
                    serpentine=min(tile) > 1,
                )
            )
    return tuple(x for x in (_apart(spec, each) for each in found) if not problems_as_asked(spec, x, target))


@lru_cache(maxsize=64)
def of_other_sizes(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """Tiles for a C that is smaller than the named ones, or of a size between them."""
    if "fma" not in TYPES.get(spec.dtype, ()) or "async_copy" not in target.features:
        return ()
    base = candidates.load(_SMALL).schedule
    bases = [base.but(block_k=depth) for depth in DEPTHS_OF_SMALL]
    small = _grown(spec, target, bases, OF_SMALL, (base.stages,))
    others, medium = list[Schedule](), candidates.load(_MEDIUM).schedule
    for tile, group in OTHER_SIZES:
        vector = gcd(tile[0], VECTOR // WORD), gcd(tile[1], VECTOR // WORD)
        other = medium.but(tile=tile, group=group, thread_vector=vector, c_width=vector[1], name=None)
        others.append(_apart(spec, other))
    return small + tuple(x for x in others if not problems_as_asked(spec, x, target))


def _grown(
    spec: GemmSpec,
    target: Target,
    bases: Iterable[Schedule],
    tiles: tuple[tuple[Pair, ...], ...],
    stages: tuple[int, ...],
) -> tuple[Schedule, ...]:
    grown = (
        base.but(tile=tile, group=group, stages=count, name=None)
        for base, (tile, group), count in product(bases, tiles, stages)
    )
    found = (_apart(spec, each) for each in grown)
    return tuple(each for each in found if not problems_as_asked(spec, each, target))


@lru_cache(maxsize=64)
def named(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """The named tiles, and those with matrices packed."""
    if "async_copy" not in target.features:
        return ()
    found: dict[Schedule, None] = {}
    units = (*((OF_TF32,) if spec.allow_tf32 else ()), *TYPES.get(spec.dtype, ()))
    for name in (name for unit in units for name in NAMED[unit]):
        plain = candidates.varied(name)
        for way in WAYS if varies(plain) else WAYS[:1]:
            made = _apart(spec, _as(plain, way))
            if not problems_as_asked(spec, made, target):
                found[made] = None
    return tuple(found)


def _as(plain: Schedule, way: Way) -> Schedule:
    made = candidates.changed(plain, 1, way) if any(way) else plain
    if made.epilogue_stages == plain.epilogue_stages:
        return made
    return made.but(epilogue_stages=plain.epilogue_stages, persistent=plain.persistent)


def _apart(spec: GemmSpec, plain: Schedule) -> Schedule:
    """With lines of B's tile apart where the matrix' lines lie across them. Those of A's always are."""
    b, copied = plain.b, isinstance(plain.mainloop, SharedMemory) and plain.atom == "fma" and not plain.b.prepacked
    if spec.b_order == "row" or not copied or b.memory != "local" or b.transposed or b.pad:
        return plain
    return plain.but(b=replace(b, pad=APART), name=None)


def as_wide_as_lines(spec: GemmSpec, plain: Schedule, like: Shape) -> Schedule:
    """With copies of fewer elements than a vector has, where lines of A or B are a multiple of these alone: a copy that
    does not fit is made element by element.

    Args:
        like: sizes as well aligned as the product's.
    """
    if not isinstance(plain.mainloop, SharedMemory) or spec.dtype.size < WORD:
        return plain
    m, n, k = like
    found = plain
    for name, order, line in (
        ("a", spec.a_order, k if spec.a_order == "row" else m),
        ("b", spec.b_order, n if spec.b_order == "row" else k),
    ):
        operand: Operand = getattr(plain, name)
        width = gcd(line, operand.width)
        along = operand.memory == "local" and not operand.prepacked and operand.transposed == (order == "col")
        if along and 1 < width < operand.width:
            found = found.but(**{name: replace(operand, width=width)}, name=None)
    return found


def varies(plain: Schedule) -> bool:
    """Whether a schedule is anything of its own where matrices are packed, or K is in parts: not one that takes turns,
    for which there are no TMA tiles of C then, nor clusters, nor what copies nothing.
    """
    return not plain.ordered_epilogue and plain.cluster == (1, 1) and plain.a.memory == "local"
