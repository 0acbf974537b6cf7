"""Which schedule a GPU of CUDA computes a product by: of the designs (`gemmgen.choice.designs`), with K in parts or
dealt out, and of the kernels for few rows, whatever takes least by the prior.

K in parts is weighed by columns of numbers alone. Only what comes out fastest is built and validated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from heapq import merge

import numpy as np
import numpy.typing as npt

from gemmgen.candidates import PARTS, ROUNDS, VECTOR, Shape, changed, reaches, short_lines
from gemmgen.checks.schedulers import MOST_JOINED
from gemmgen.choice import columns, few_rows, prior
from gemmgen.choice.designs import more, named, varies
from gemmgen.choice.machine import Machine, machine_of
from gemmgen.choice.warpgroups import Kind, blocks_of, built, divides, kinds, row
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.passes.validate import is_transposed, problems_as_asked
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.spec import GemmSpec

#: Parts of K that are weighed for all sizes of C, where the order of sums has to be the same for all.
PARTS_IN_ORDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
#: Places for blocks that parts are to fill, of all that there are: more parts that leave as many empty gain nothing.
FILLED = (0.5, 1.0, 2.0)
_PARTS = np.array(PARTS, dtype=np.float64)
#: Elements of a block up to which a cluster may add up parts of K, and of how many.
JOINED_BLOCK, JOINED = 64 * 128, 2

Numbers = npt.NDArray[np.float64]
Ranked = tuple[float, Schedule]


def choose_for_gpu(spec: GemmSpec, shape: Shape, target: Target, products: int = 1) -> Schedule | None:
    """The schedule for a product on a GPU of CUDA; None where the target is none, or where no designs suit the types.

    Args:
        products: of a batch.
    """
    m, n, k = shape
    # Where a size is 0 any schedule will do.
    return _choose(spec, (max(1, m), max(1, n), max(1, k)), target, products, machine_of(target))


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
) -> Iterator[Ranked]:
    """What can compute a product, the cheapest first, each with its microseconds.

    Args:
        wider: whether designs that nobody has measured are weighed as well.
        fixed: the parts of K that are weighed; by itself those that fill the device.
    """
    machine = machine or machine_of(target)
    found: list[Iterable[Ranked]] = [_in_order(spec, shape, target, products, machine, fixed, wider)]
    if spec.c_order == "col":
        # What takes no column-major C computes C^T by rows.
        by_rows = spec.transposed(), (shape[1], shape[0], shape[2])
        transposed = _in_order(*by_rows, target, products, machine, fixed, wider)
        found.append(x for x in transposed if is_transposed(spec, x[1], target))
    return merge(*found, key=_cost)


def by_order(spec: GemmSpec, shape: Shape, target: Target) -> Iterator[Ranked]:
    """The schedules of every order of sums, the cheapest first, each with its microseconds. Parts of K are the same
    whatever the sizes of C.
    """
    return ranked(spec, shape, target, fixed=PARTS_IN_ORDER)


def _cost(found: Ranked) -> float:
    return found[0]


@dataclass(frozen=True, slots=True)
class _Known:
    """The designs of a kind of product.

    Attributes:
        plain: all of them, by the model's numbers.
        divides: those that can have K in parts.
        joins: those whose parts a cluster may add up by twos.
        joins_all: those whose parts a cluster may add up, all of them.
        deals: those whose blocks can be dealt out by stream-K.
    """

    schedules: tuple[Callable[[], Schedule], ...]
    plain: columns.Designs
    divides: npt.NDArray[np.bool_]
    joins: npt.NDArray[np.bool_]
    joins_all: npt.NDArray[np.bool_]
    deals: npt.NDArray[np.bool_]


@lru_cache(maxsize=256)
def _known(spec: GemmSpec, target: Target, like: Shape, wider: bool) -> _Known | None:
    """Of a class of sizes: copies depend on nothing of them but how they are aligned."""
    others = dict.fromkeys((*named(spec, target), *(more(spec, target) if wider else ())))
    tiled = tuple(x for x in others if not prior.has_no_tiles(x))
    families = [_of_kind(kind, narrow) for kind, narrow in kinds(spec, target)]
    families += [_family(tiled)] if tiled else []
    if not families:
        return None
    schedules, own, may = zip(*families, strict=True)
    copied = [
        np.zeros((4, sum(map(len, schedules)) - len(tiled))),
        *([columns.copies(spec, ((x, like) for x in tiled))] if tiled else []),
    ]
    plain = columns.of_columns(spec, np.concatenate(own, axis=1), np.concatenate(copied, axis=1))
    divides, joins, joins_all, deals = np.concatenate(may, axis=1)
    joins_all &= "clusters" in target.features
    return _Known(tuple(x for each in schedules for x in each), plain, divides, joins, joins_all, deals)


#: What makes a schedule; what the model looks at of it; and what K in parts can be to it (`_Known`).
_Family = tuple[tuple[Callable[[], Schedule], ...], Numbers, npt.NDArray[np.bool_]]


@lru_cache(maxsize=64)
def _of_kind(kind: Kind, narrow: bool) -> _Family:
    blocks = blocks_of(kind, narrow)
    may = [(divides(x), x.rows * x.cols <= JOINED_BLOCK, False, False) for x in blocks]
    return (
        tuple(partial(built, kind, x) for x in blocks),
        columns.columns(row(kind, x) for x in blocks),
        np.array(may).T,
    )


def _family(schedules: tuple[Schedule, ...]) -> _Family:
    makers = tuple(partial(_itself, x) for x in schedules)
    return makers, columns.columns(map(columns.row, schedules)), np.array([_may(x) for x in schedules]).T


def _itself(schedule: Schedule) -> Schedule:
    return schedule


@lru_cache(maxsize=8192)
def _may(s: Schedule) -> tuple[bool, bool, bool, bool]:
    """Whether K can be in parts, a cluster add them up by twos, or all of them, and blocks be dealt out."""
    by_work_items = isinstance(s.mainloop, SharedMemory)
    return (
        varies(s) and not s.persistent and not s.serial_launch,
        s.by_warpgroups and s.block_tile[0] * s.block_tile[1] <= JOINED_BLOCK,
        by_work_items and s.sliced_k == 1,
        s.mbarrier > 0 and s.sliced_k == 1,
    )


def _in_order(
    spec: GemmSpec,
    shape: Shape,
    target: Target,
    products: int,
    machine: Machine,
    fixed: tuple[int, ...],
    wider: bool,
) -> Iterator[Ranked]:
    """The designs for a product as it is asked for, and the kernels for few rows, the cheapest first."""
    asked = _asked(spec)
    few = few_rows.candidates(spec, shape, target, products) if not fixed else ()
    loads = [*few, *_without_tiles(asked, target)]
    rest = sorted(zip(prior.costs(spec, loads, shape, machine, products), loads, strict=True), key=_cost)
    for cost, schedule in merge(rest, _of_designs(asked, shape, target, products, machine, fixed, wider), key=_cost):
        if reaches(schedule, shape, products) and not problems_as_asked(asked, schedule, target):
            yield cost, schedule


@lru_cache(maxsize=256)
def _asked(spec: GemmSpec) -> GemmSpec:
    """More than a vector's alignment lets no other schedule in: fewer classes of specs are looked through."""
    a, b, c = (min(spec.ld_unit(name), max(1, VECTOR // spec.dtype.size)) for name in "abc")
    return replace(spec, ld_multiple=(a, b, c))


@lru_cache(maxsize=64)
def _without_tiles(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    return tuple(x for x in named(spec, target) if prior.has_no_tiles(x))


def _of_designs(
    spec: GemmSpec,
    shape: Shape,
    target: Target,
    products: int,
    machine: Machine,
    fixed: tuple[int, ...],
    wider: bool,
) -> Iterator[Ranked]:
    known = _known(spec, target, columns.aligned(spec, shape), wider)
    if known is None:
        return
    index, parts, joined, dealt = _shares(spec, known, shape, machine, products, fixed)
    staged, width = known.plain.staged[index] * (parts == 1), np.where(joined > 1, 4, known.plain.width[index])
    taken = known.plain.at(index, parts=parts, joined=joined, dealt=dealt, staged=staged, width=width)
    costs = prior.microseconds(spec, taken, shape, machine, products)
    # Of work-items no cluster has been measured: it costs what a second kernel does, and goes first.
    first = np.where(known.joins_all[index] & (parts <= MOST_JOINED), parts, joined)
    for at in np.argsort(costs, kind="stable"):
        for together in dict.fromkeys((int(first[at]), int(joined[at]))):
            schedule = _built(known.schedules[index[at]](), int(parts[at]), bool(dealt[at]), together)
            if schedule is not None:
                yield float(costs[at]), schedule


@lru_cache(maxsize=8192)
def _built(plain: Schedule, parts: int, dealt: bool, joined: int) -> Schedule | None:
    """With K in parts, of which a cluster adds up some, or dealt out; None where that can't be."""
    if parts == 1 and not dealt:
        return plain
    try:
        return changed(plain, parts, (plain.a.prepacked, plain.b.prepacked), dealt, joined)
    except ScheduleError:
        return None


def _shares(
    spec: GemmSpec, known: _Known, shape: Shape, machine: Machine, products: int, fixed: tuple[int, ...]
) -> tuple[npt.NDArray[np.intp], Numbers, Numbers, Numbers]:
    """Which designs are weighed; of each the parts of K, those that a cluster adds up, whether blocks are dealt out."""
    plain, (m, n, k) = known.plain, shape
    usable, by_tma = np.ones(len(known.schedules), dtype=bool), plain.unit == columns.WGMMA
    if by_tma.any():
        # What TMA could read itself is packed only where its lines are short.
        a_short, b_short = short_lines(spec, shape)
        a, b = plain.packed
        a_may, b_may = a_short or a[by_tma].all(), b_short or b[by_tma].all()
        usable = ~by_tma | ((a <= a_may) & (b <= b_may))
    blocks = np.ceil(m / plain.block[0]) * np.ceil(n / plain.block[1]) * products
    deepest = np.floor(k / (ROUNDS * plain.depth))
    if fixed:
        chosen = np.array([np.where(deepest >= x, x, 1.0) for x in fixed[1:]])
    else:
        places = machine.cores * prior.resident(spec, plain, machine)
        limits = np.minimum(deepest, np.array(FILLED)[:, None] * places / blocks)
        chosen = _PARTS[np.maximum(0, np.searchsorted(_PARTS, limits, side="right") - 1)]
    divided = usable & known.divides & (chosen > 1)
    divided[1:] &= chosen[1:] != chosen[:-1]
    dealt = usable & known.deals & (blocks % machine.cores > 0)
    dealt &= products == 1 and not (spec.batched or spec.grouped or fixed)
    # A row for each way: as one, dealt out, and by each number of parts, added up by a kernel and by clusters.
    by_twos = divided & known.joins & (chosen % JOINED == 0)
    by_parts = np.stack((divided, by_twos), axis=1).reshape(-1, len(usable))
    may = np.concatenate((np.stack((usable, dealt)), by_parts))
    way, index = np.nonzero(may)
    parts = np.where(way < 2, 1.0, chosen[np.maximum(0, way - 2) // 2, index])
    return index, parts, np.where((way > 1) & (way % 2 == 1), float(JOINED), 1.0), np.where(way == 1, 1.0, 0.0)
