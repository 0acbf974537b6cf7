"""Which schedule a GPU of CUDA computes a product by: tiles of a named schedule, K in parts, matrices packed or not,
whatever comes out cheapest by the model of `gemmgen.waves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gemmgen.ir.target import Target
from gemmgen.ir.workspace import REACHED
from gemmgen.passes.validate import is_transposed, problems_as_asked
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.waves import ATOMS, LINE, TYPES, Shape, Tile, account, blocks_of, changed, tiles, whole

#: Numbers of parts of K; few, so that a process compiles few kernels.
PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 96, 128)
#: Those that are weighed for all sizes of C.
PARTS_IN_ORDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Places for blocks that parts are to fill, of all that there are: more parts that leave as many empty gain nothing.
FILLED = (0.5, 1, 2)
#: Rounds of the main loop that a part of K has at least: fewer would not fill the ring.
ROUNDS = 4
#: Times a tile's cost by the best way of laying matrices out, up to which the plainest is weighed in parts of K, too.
PLAIN = 1.3
#: Parts of K that a cluster adds up, where it does: of larger ones there are not as many as multiprocessors.
JOINED = 2

#: Whether A and B are packed.
Way = tuple[bool, bool]
WAYS: tuple[Way, ...] = ((False, False), (False, True), (True, False), (True, True))


def choose_tiles(spec: GemmSpec, shape: Shape | None, target: Target, products: int = 1) -> Schedule | None:
    """The schedule for a product on a GPU of CUDA; None where the target is none, where there are no constants for the
    types, or where the sizes are not known.

    Args:
        products: of a batch.
    """
    if "async_copy" not in target.features or spec.dtype not in TYPES:
        return None
    m, n, k = (spec.m, spec.n, spec.k) if shape is None else shape
    if m is None or n is None or k is None:
        return None
    # Where a size is 0 any schedule will do.
    return _choose(spec, (max(1, m), max(1, n), max(1, k)), target, products)


@lru_cache(maxsize=1024)
def _choose(spec: GemmSpec, shape: Shape, target: Target, products: int) -> Schedule | None:
    found = [next(ranked(spec, shape, target, products), None)]
    if spec.c_order == "col":
        # What takes no column-major C computes C^T by rows.
        by_rows = ranked(spec.transposed(), (shape[1], shape[0], shape[2]), target, products)
        found.append(next((x for x in by_rows if is_transposed(spec, x[2], target)), None))
    return min((x for x in found if x is not None), key=lambda x: x[0], default=(0, None, None))[2]


def by_order(spec: GemmSpec, shape: Shape, target: Target) -> Iterator[tuple[float, Schedule]]:
    """The schedules of every order of sums, the cheapest first, each with its microseconds. Parts of K are the same
    whatever the sizes of C.
    """
    transposed, (m, n, k) = spec.transposed(), shape
    found = [(cost, schedule) for cost, _, schedule in ranked(spec, shape, target, 1, PARTS_IN_ORDER)]
    if spec.c_order == "col":
        by_rows = ranked(transposed, (n, m, k), target, 1, PARTS_IN_ORDER)
        found += [(cost, schedule) for cost, _, schedule in by_rows if is_transposed(spec, schedule, target)]
    yield from sorted(found, key=lambda x: x[0])


def ranked(
    spec: GemmSpec, shape: Shape, target: Target, products: int = 1, fixed: tuple[int, ...] = ()
) -> Iterator[tuple[float, Tile, Schedule]]:
    """What can compute a product, the cheapest first, each with its microseconds.

    Args:
        fixed: numbers of parts of K, whether they pay or not; none for those that may.
    """
    found: list[tuple[float, Tile, Schedule]] = []

    def add(tile: Tile, schedule: Schedule) -> float:
        cost = sum(account(spec, tile, schedule, shape, target, products).values())
        found.append((cost, tile, schedule))
        return cost

    # In one part all ways of laying matrices out; in more, which copy less each, the plainest and the best of these.
    for tile, possible in _usable(spec, target).items():
        reached = [way for way in possible if reaches(changed(tile, 1, *way), shape)]
        # Where a matrix has to be packed, whether that pays by itself is no question.
        likely = [way for way in reached if _worth(spec, changed(tile, 1, *way), shape)] or reached
        if likely:
            count = len(found)
            costs_of = {way: add(tile, changed(tile, 1, *way)) for way in likely}
            best = min(likely, key=lambda way: costs_of[way])
            ways = (likely[0], best) if costs_of[likely[0]] < PLAIN * costs_of[best] else (best,)
            if not _ends(tile.schedule):
                del found[count:]
            shares = list(_shares(spec, changed(tile, 1, *best), tile, shape, target, products, fixed))
            for way in dict.fromkeys(ways):
                for parts, stream, joined in shares:
                    add(tile, changed(tile, parts, *way, stream, joined))
    found.sort(key=lambda x: x[0])
    return (x for x in found if not problems_as_asked(spec, x[2], target))


@lru_cache(maxsize=64)
def _usable(spec: GemmSpec, target: Target) -> dict[Tile, list[Way]]:
    """The tiles for a spec, and how they have the matrices laid out."""
    found = {}
    for tile in tiles():
        if spec.dtype in ATOMS[tile.schedule.atom]:
            varied = [way for way in WAYS if any(way) <= _varies(tile.schedule)]
            ways = [way for way in varied if not problems_as_asked(spec, changed(tile, 1, *way), target)]
            found.update({tile: ways} if ways else {})
    return found


def _varies(plain: Schedule) -> bool:
    """Whether a tile is anything of its own where matrices are packed, or K is in parts: not turns, for which there are
    no TMA tiles of C then, nor clusters, which are for lines that begin anywhere, nor what copies nothing.
    """
    return not plain.ordered_epilogue and plain.cluster == (1, 1) and plain.a.memory == "local"


def reaches(s: Schedule, shape: Shape) -> bool:
    """Whether indices reach all of what is packed."""
    m, n, k = shape
    laid = (m, s.block_tile[0], s.a.prepacked), (n, s.block_tile[1], s.b.prepacked)
    return all(whole(size, unit) * whole(k, s.block_k) < REACHED for size, unit, packed in laid if packed)


def _worth(spec: GemmSpec, s: Schedule, shape: Shape) -> bool:
    """Whether matrices may be laid out so: what tensor maps could read themselves only where its lines are shorter than
    a TMA tile's.
    """
    if not s.by_warpgroups or spec.ld_multiple * spec.dtype.size % 16:
        return True
    m, n, k = shape
    a_pitch, b_pitch = k if spec.a_order == "row" else m, n if spec.b_order == "row" else k
    box = LINE // spec.dtype.size
    short = a_pitch < min(box, s.block_tile[0]), b_pitch < min(box, s.block_tile[1])
    return s.a.prepacked <= short[0] and s.b.prepacked <= short[1]


def _shares(
    spec: GemmSpec,
    plain: Schedule,
    tile: Tile,
    shape: Shape,
    target: Target,
    products: int,
    fixed: tuple[int, ...],
) -> Iterator[tuple[int, bool, int]]:
    """Parts of K, whether blocks are dealt out evenly, and parts that a cluster adds up: those that may be worth it."""
    m, n, k = shape
    blocks = blocks_of(plain, shape, products)
    if _deals(plain) and products == 1 and not spec.batched and blocks % target.cores and not fixed:
        yield 1, True, 1
    if not _varies(tile.schedule) or plain.serial_launch:
        return
    deepest, places = k // (ROUNDS * plain.round_depth), target.cores * tile.resident
    limits = (min(deepest, max(JOINED, int(filled * places / blocks))) for filled in (0, *FILLED))
    weighed = {max((x for x in PARTS if x <= limit), default=1) for limit in limits}
    for parts in sorted(({x for x in fixed if x <= deepest} if fixed else weighed) - {1}):
        if parts * m * n * products < REACHED:
            # A schedule of parts is for these alone, unless it is as good at what ends in C.
            if _ends(tile.schedule) or "_joined" not in tile.named:
                yield parts, False, 1
            if plain.by_warpgroups and parts % JOINED == 0 and (_ends(tile.schedule) or "_joined" in tile.named):
                yield parts, False, JOINED


def _ends(s: Schedule) -> bool:
    """Whether it is as good as others at what ends in C itself; not where warpgroups leave to work-items what they
    could store by TMA, as one for a second kernel does.
    """
    return not s.by_warpgroups or s.operands_swapped or s.epilogue_stages > 0


def _deals(s: Schedule) -> bool:
    """Whether its blocks can be dealt out in parts: by a ring that mbarriers hand over, to blocks that are alone."""
    return s.mbarrier > 0 and s.sliced_k == 1 and s.split_k == 1
