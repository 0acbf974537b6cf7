"""Which schedule a GPU of CUDA computes a product by: of the designs (`gemmgen.choice.designs`), with K in parts or
dealt out, and of the kernels for few rows, whatever takes least by the prior.

K in parts is weighed by columns of numbers alone. Only what comes out fastest is built and validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from heapq import merge

import numpy as np
import numpy.typing as npt

from gemmgen.candidates import PARTS, VECTOR, Shape, Way, changed, reaches, short_lines
from gemmgen.checks.schedulers import cluster_problems
from gemmgen.choice import columns, few_rows, loads, prior, rates
from gemmgen.choice.columns import Numbers
from gemmgen.choice.designs import as_wide_as_lines, named, of_few_rows, of_other_sizes, of_threads, of_warps, varies
from gemmgen.choice.machine import Machine, machine_of
from gemmgen.choice.warpgroups import Kind, blocks_of, built, divides, kinds, table
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.passes.validate import is_transposed, problems_as_asked
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.spec import GemmSpec
from gemmgen.sum_order import SumOrder, sum_order

#: Parts of K that are weighed for all sizes of C, where the order of sums has to be the same for all.
PARTS_IN_ORDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
#: Places for blocks that parts are to fill, of all that there are: more parts that leave as many empty gain nothing.
FILLED = (0.5, 1.0, 2.0)
_PARTS, _FILLED = np.array(PARTS, dtype=np.float64), np.array(FILLED)[:, None]
#: Rows, or columns, up to which a block is for few of them.
SMALL = 8
#: Elements of a block up to which a cluster may add up parts of K, and of how many.
JOINED_BLOCK, JOINED = 64 * 128, 2

Rows = npt.NDArray[np.intp]
Ranked = tuple[float, Schedule]


def choose_for_gpu(spec: GemmSpec, shape: Shape, target: Target, products: int = 1) -> Schedule | None:
    """The schedule for a product on a GPU of CUDA; None where the target is none, or where no designs suit the types.

    Args:
        products: of a batch.
    """
    m, n, k = shape
    # Where a size is 0, or there are no products, any schedule will do.
    return _choose(spec, (max(1, m), max(1, n), max(1, k)), target, max(1, products), machine_of(target))


@lru_cache(maxsize=1024)
def _choose(spec: GemmSpec, shape: Shape, target: Target, products: int, machine: Machine) -> Schedule | None:
    return next((schedule for _, schedule in ranked(spec, shape, target, products, machine)), None)


def ranked(
    spec: GemmSpec,
    shape: Shape,
    target: Target,
    products: int = 1,
    machine: Machine | None = None,
    wider: bool = False,
    fixed: tuple[int, ...] = (),
    wanted: Callable[[Schedule], bool] | None = None,
) -> Iterator[Ranked]:
    """What can compute a product, the cheapest first, each with its microseconds.

    Args:
        wider: whether designs that nobody has measured are weighed as well.
        fixed: the parts of K that are weighed; by itself those that fill the device.
        wanted: which of them; by itself all. It is asked before whether a schedule is legal, which takes longer.
    """
    about = _About(target, products, machine or machine_of(target), wider, fixed, wanted)
    found = _in_order(spec, shape, about)
    if spec.c_order == "row":
        return found
    # What takes no column-major C computes C^T by rows.
    by_rows = _in_order(spec.transposed(), (shape[1], shape[0], shape[2]), about)
    return merge(found, (x for x in by_rows if is_transposed(spec, x[1], target)), key=_cost)


def by_order(spec: GemmSpec, shape: Shape, target: Target) -> Iterator[Ranked]:
    """The cheapest legal schedule of every order of sums, with its microseconds; the cheapest order first. Parts of K
    are the same whatever the sizes of C. Nothing lies in registers that other orders of A read from shared memory.
    """
    seen = set[SumOrder | None]()

    def is_new(schedule: Schedule) -> bool:
        return sum_order(schedule, shape[2]) not in seen and not columns.rs_as_stored(spec, schedule)

    for found in ranked(spec, shape, target, fixed=PARTS_IN_ORDER, wanted=is_new):
        # Of a column-major C the cheapest of two kinds have been looked at before either is here.
        if is_new(found[1]):
            seen.add(sum_order(found[1], shape[2]))
            yield found


def _cost(found: Ranked) -> float:
    return found[0]


@dataclass(frozen=True, slots=True)
class _About:
    """What else a choice depends on. Attributes as `ranked` has them."""

    target: Target
    products: int
    machine: Machine
    wider: bool
    fixed: tuple[int, ...]
    wanted: Callable[[Schedule], bool] | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    """The designs of a kind of product, and how each is weighed: all as they are, then some with blocks dealt out by
    stream-K, then for each number of parts of K those that can have parts, added up by a kernel and by clusters.

    Attributes:
        schedules: what makes the schedule of each design.
        rows: the number of the design of each way.
        plain: the ways that have all of K in one part, by the model's numbers.
        ways: all of them.
        deals: the numbers of designs whose blocks can be dealt out.
        divides: the numbers of those that can have K in parts.
        joins: the numbers, among those, of designs of which a cluster may add up parts by twos.
        joins_two: whether a cluster may add up two parts of each design, by work-items.
    """

    schedules: tuple[Callable[[], Schedule], ...]
    rows: Rows
    plain: rates.Weighed
    ways: rates.Weighed
    deals: Rows
    divides: Rows
    joins: Rows
    joins_two: npt.NDArray[np.bool_]


@lru_cache(maxsize=64)
def _known(
    spec: GemmSpec, target: Target, machine: Machine, like: Shape, short: Way, wider: bool, numbers: int
) -> _Known | None:
    """Of a class of sizes: copies depend on nothing of them but how they are aligned.

    Args:
        short: whether lines of A, and of B, are. What TMA could read itself is packed only where they are.
        numbers: how many numbers of parts of K are weighed.
    """
    of_warpgroups = kinds(spec, target)
    needed = next((kind.packed for kind, narrow in reversed(of_warpgroups) if not narrow), (True, True))
    allowed = short[0] or needed[0], short[1] or needed[1]
    kinds_of_tiles = named, of_warps, of_other_sizes, of_few_rows
    others = dict.fromkeys(x for each in kinds_of_tiles for x in each(spec, target))
    if wider:
        others |= dict.fromkeys(of_threads(spec, target))
    tiled = tuple(
        as_wide_as_lines(spec, x, like)
        for x in others
        if not loads.has_no_tiles(x) and (not x.by_warpgroups or _within((x.a.prepacked, x.b.prepacked), allowed))
    )
    families = [_of_kind(kind, narrow) for kind, narrow in of_warpgroups if _within(kind.packed, allowed)]
    families += [_family(spec, target, tiled, like)] if tiled else []
    if not families:
        return None
    schedules, own, may = zip(*families, strict=True)
    makers, table = tuple(x for each in schedules for x in each), np.concatenate(own, axis=1)
    divides, joins, joins_two, deals = np.concatenate(may, axis=1)
    dealt, divided, joined = (np.flatnonzero(x) for x in (deals, divides, divides & joins))
    rows = np.concatenate((np.arange(len(makers)), dealt, *(divided, joined) * numbers))
    whole = len(makers) + len(dealt)
    ways = table.take(rows, 1)
    d = columns.designs(ways)
    d.dealt[len(makers) : whole] = 1
    d.parts[whole:], d.staged[whole:] = JOINED, 0
    by_clusters = d.joined[whole:].reshape(numbers, -1)[:, len(divided) :]
    by_clusters[:] = JOINED
    d.width[whole:].reshape(numbers, -1)[:, len(divided) :] = 4
    known = rates.weighed(spec, ways, machine)
    return _Known(makers, rows, known.first(whole), known, dealt, divided, np.searchsorted(divided, joined), joins_two)


def _within(packed: Way, allowed: Way) -> bool:
    """Whether nothing is packed but what is allowed."""
    return all(each <= limit for each, limit in zip(packed, allowed, strict=True))


#: What makes a schedule; what the model looks at of it; and what K in parts can be to it (`_Known`).
_Family = tuple[tuple[Callable[[], Schedule], ...], Numbers, npt.NDArray[np.bool_]]


@lru_cache(maxsize=64)
def _of_kind(kind: Kind, narrow: bool) -> _Family:
    blocks = blocks_of(kind, narrow)
    own = table(kind, blocks)
    d = columns.designs(own)
    may = np.array((divides(d), d.block.prod(0) <= JOINED_BLOCK, *np.zeros((2, len(blocks)), dtype=np.bool_)))
    return tuple(partial(built, kind, x) for x in blocks), own, may


def _family(spec: GemmSpec, target: Target, schedules: tuple[Schedule, ...], like: Shape) -> _Family:
    makers = tuple(partial(_itself, x) for x in schedules)
    own = [columns.column(spec, x, like) for x in schedules]
    return makers, np.concatenate(own, axis=1), np.array([_may(spec, x, target) for x in schedules]).T


def _itself(schedule: Schedule) -> Schedule:
    return schedule


@lru_cache(maxsize=8192)
def _may(spec: GemmSpec, s: Schedule, target: Target) -> tuple[bool, bool, bool, bool]:
    """Whether K can be in parts, a cluster add them up by twos, or both where they are two, and blocks be dealt out."""
    in_parts = varies(s) and not s.persistent and not s.serial_launch
    two = _built(s, JOINED, False, JOINED) if in_parts and isinstance(s.mainloop, SharedMemory) else None
    return (
        in_parts,
        s.by_warpgroups and s.block_tile[0] * s.block_tile[1] <= JOINED_BLOCK,
        two is not None and not any(cluster_problems(spec, two, target)),
        s.mbarrier > 0 and s.sliced_k == 1,
    )


def _in_order(spec: GemmSpec, shape: Shape, about: _About) -> Iterator[Ranked]:
    """The designs for a product as it is asked for, and the kernels for few rows, the cheapest first."""
    own, target, products = _asked(spec), about.target, about.products
    few = few_rows.candidates(spec, shape, target, products) if not about.fixed else ()
    loads = [*few, *_without_tiles(own, target)]
    of_loads = prior.costs(spec, loads, shape, about.machine, products)
    designs = _of_designs(own, shape, about)
    both, wanted = merge(sorted(zip(of_loads, loads, strict=True), key=_cost), designs, key=_cost), about.wanted
    asked = (x for x in both if wanted is None or wanted(x[1]))
    return (x for x in asked if reaches(x[1], shape, products) and not problems_as_asked(own, x[1], target))


@lru_cache(maxsize=256)
def _asked(spec: GemmSpec) -> GemmSpec:
    """More than a vector's alignment lets no other schedule in: fewer classes of specs are looked through."""
    sizes = spec.element("a").size, spec.element("b").size, spec.result.size
    a, b, c = (min(spec.ld_unit(name), max(1, VECTOR // size)) for name, size in zip("abc", sizes, strict=True))
    return replace(spec, ld_multiple=(a, b, c))


@lru_cache(maxsize=64)
def _without_tiles(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    return tuple(x for x in named(spec, target) if loads.has_no_tiles(x))


def _of_designs(spec: GemmSpec, shape: Shape, about: _About) -> Iterator[Ranked]:
    like, short, fixed = columns.aligned(spec, shape), short_lines(spec, shape), about.fixed
    numbers = len(fixed[1:] or FILLED)
    known = _known(spec, about.target, about.machine, like, short, about.wider, numbers)
    if known is None:
        return
    taken, usable = _shares(spec, known, shape, about)
    costs, d = prior.microseconds(spec, taken, shape, about.machine, about.products), taken.rates
    costs[len(known.schedules) :][~usable] = np.inf
    costs[_is_for_fewer(d, shape)] = np.inf
    for at in _cheapest_first(costs):
        design = known.rows[at]
        parts, joined, plain = int(taken.parts[at]), int(d.joined[at]), known.schedules[design]()
        schedule = _built(plain, parts, bool(d.dealt[at]), joined)
        if schedule is not None:
            yield float(costs[at]), schedule


def _is_for_fewer(d: rates.Rates, shape: Shape) -> npt.NDArray[np.bool_]:
    """Which blocks, of those that threads copy, are for fewer rows or columns than a product has: beyond two small
    blocks above one another no GPU has timed them.
    """
    sides = np.array(shape[:2]).reshape(2, 1)
    found: npt.NDArray[np.bool_] = ((d.block <= SMALL) & (sides > 2 * d.block)).any(0) & (d.fetched == 0)
    return found


def _cheapest_first(costs: Numbers) -> Iterator[int]:
    """Their numbers, without those that can't be. Most choices ask for one of them alone, which takes no sorting."""
    yield int(np.argmin(costs))
    yield from np.argsort(costs, kind="stable")[1 : np.isfinite(costs).sum()].tolist()


@lru_cache(maxsize=8192)
def _built(plain: Schedule, parts: int, dealt: bool, joined: int) -> Schedule | None:
    """With K in parts, of which a cluster adds up some, or dealt out; None where that can't be."""
    if parts == 1 and not dealt:
        return plain
    try:
        return changed(plain, parts, (plain.a.prepacked, plain.b.prepacked), dealt, joined)
    except ScheduleError:
        return None


def _shares(spec: GemmSpec, known: _Known, shape: Shape, about: _About) -> tuple[rates.Weighed, npt.NDArray[np.bool_]]:
    """The ways that are weighed, with their numbers of parts of K; and which of those behind the designs can be."""
    (m, n, k), cores, d, at = shape, about.machine.cores, known.plain.rates, known.divides
    dealt = np.ceil(m / d.block[0, known.deals]) * np.ceil(n / d.block[1, known.deals]) % cores > 0
    if about.products > 1 or spec.batched or spec.grouped or about.fixed:
        dealt[:] = False
    deepest = np.floor(k / d.depth[at])
    if about.fixed:
        chosen = np.array([np.where(deepest >= x, x, 1.0) for x in about.fixed[1:]])
    else:
        rows, cols = d.block[:, at]
        blocks = np.ceil(m / rows) * np.ceil(n / cols) * about.products
        # With K in parts another number of blocks may be there at once.
        whole = len(known.plain.parts)
        resident = known.ways.rates.resident[whole : whole + len(at)]
        limits = np.minimum(deepest, _FILLED * (cores * resident / blocks))
        chosen = _PARTS[np.maximum(0, np.searchsorted(_PARTS, limits, side="right") - 1)]
    may = chosen > 1
    if not may.any():
        return known.plain, dealt
    may[1:] &= chosen[1:] != chosen[:-1]
    by_clusters = chosen[:, known.joins]
    joined = may[:, known.joins] & (by_clusters % JOINED == 0)
    parts = np.ones(len(known.rows))
    parts[len(known.plain.parts) :] = np.concatenate((chosen, by_clusters), axis=1).ravel()
    # Of work-items clusters add up two parts sooner than a second kernel, and four or eight much later (1.02 to 1.44 of
    # the whole time on an H100).
    by_pairs, own = known.joins_two[known.rows] & (parts == JOINED), known.ways.rates
    if by_pairs.any():
        own = own._replace(joined=np.where(by_pairs, JOINED, own.joined))
    usable = np.concatenate((dealt, np.concatenate((may, joined), axis=1).ravel()))
    return known.ways._replace(parts=parts, rates=own), usable
