"""Schedules of a GPU of CUDA by tile, stages and warpgroups, of which the prior takes the fastest for a product.

A design is a schedule with all of K in one part: what follows from its tile is filled in by rule. They are points of
`gemmgen.tuning.space`, the widths by the instructions' own steps. K in parts is weighed by columns of numbers alone.
Only what comes out fastest is built and validated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gemmgen import candidates
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import FLOAT8, I8
from gemmgen.ir.target import Target
from gemmgen.passes.validate import is_possible
from gemmgen.schedule import Atom, Schedule
from gemmgen.spec import GemmSpec
from gemmgen.tuning import prior
from gemmgen.tuning.machine import Machine, machine_of

Shape = tuple[int, int, int]
#: Bytes of a swizzled line: how deep a step of warpgroups is.
LINE = 128
#: Bytes of a vector that a thread copies, and that TMA asks of lines.
VECTOR = 16
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
#: Parts of K, rounds of the main loop that each has at least, and blocks of a multiprocessor that they make at most.
PARTS, ROUNDS, FILLED = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64), 4, 4
#: Rows of a block where operands are swapped; stages of what waits for memory most of the time.
FEW_ROWS, MORE_STAGES = (8, 16, 24, 32, 48, 64), (8, 10, 12)
#: Elements of a block up to which a cluster may add up parts of K, and of how many.
JOINED_BLOCK, JOINED = 64 * 128, 2
#: Tiles of warps, in elements a thread has, and groups of work-items (mma.sync); the same of multiply-adds.
OF_WARPS = ((4, 8), (8, 8), (8, 16), (4, 16))
GROUPS_OF_WARPS = ((8, 8), (16, 8), (16, 16))
OF_THREADS = ((4, 4), (8, 4), (8, 8), (8, 16))
GROUPS_OF_THREADS = ((8, 16), (16, 16), (8, 8))
#: Schedules by which those grow, and the times that an unbuilt one may be refused before the next tile is looked at.
_WARPS: dict[int, str] = {1: "mma_f8_8x16_16x8", 2: "mma_8x16_16x8"}
_THREADS = ("async_8x8_8x16", "async_8x8_16x16")
MOST_REFUSED = 12


def _atom(spec: GemmSpec) -> Atom:
    return "wgmma_f8" if spec.dtype in FLOAT8 else "wgmma_s8" if spec.dtype == I8 else "wgmma"


def of_warpgroups(spec: GemmSpec, target: Target) -> Iterator[Schedule]:
    """Of `wgmma`, for one part of K."""
    base = candidates.load("wgmma_128x256_s4").schedule.but(name=None)
    depth, size = LINE // spec.dtype.size, spec.dtype.size
    for rows, count in WARPGROUPS:
        for cols in WIDTHS:
            if rows * cols // (128 * count) > MOST_SUMS[count]:
                continue
            ring = (rows + cols) * depth * size
            # Columns of C that a stage of the epilogue has; what that takes of shared memory shows when it is built.
            slot = rows * min(cols, LINE // spec.result.size) * spec.result.size
            shared = target.local_bytes - RESERVED
            most = [(shared - slot) // ring, (shared // 2 - slot) // ring]
            tried = {min(MOST_STAGES, x) for x in most[: 3 - count]} | {most[0] - 1}
            for stages in sorted(x for x in tried if LEAST_STAGES <= x <= MOST_STAGES):
                for stays, turns in ((False, False), (True, False), (True, True)):
                    if turns and (rows, stages) != (128, most[0]):
                        continue
                    yield base.but(
                        tile=(2 * (rows // 64) // count, cols // 4),
                        group=(32 * count, 4),
                        atom=_atom(spec),
                        block_k=depth,
                        stages=stages,
                        c_width=4 if 128 * count % (cols // 4) == 0 else 2,
                        epilogue_stages=2 if turns else 1,
                        ordered_epilogue=turns,
                        producer_threads=32 if count == 1 else 128,
                        setmaxnreg=HANDED[count],
                        threadblock_swizzle=12 if turns else 8,
                        persistent=stays,
                    )


def of_few_rows(spec: GemmSpec, target: Target) -> Iterator[Schedule]:
    """Of `wgmma` with operands swapped, so that C's few rows are the instruction's columns."""
    base = candidates.load("wgmma_16x64_s8_joined2").schedule.but(name=None, split_k=1, cluster_reduction=1, c_width=1)
    depth = LINE // spec.dtype.size
    for rows in FEW_ROWS:
        for count in (1, 2):
            ring = (rows + 64 * count) * LINE
            fitting = [x for x in MORE_STAGES if x <= (target.local_bytes - RESERVED) // ring]
            for stages in sorted({fitting[0], fitting[-1]}) if fitting else ():
                yield base.but(
                    tile=(rows // 4, 2),
                    group=(4, 32 * count),
                    atom=_atom(spec),
                    block_k=depth,
                    stages=stages,
                    producer_threads=32 if count == 1 else 128,
                    setmaxnreg=(0, 0),
                )


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


@lru_cache(maxsize=64)
def of_target(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """All that a device can run for such a product, each once."""
    makers = []
    if "wgmma" in target.features and (spec.dtype.size <= 2):
        makers += [of_warpgroups, of_few_rows]
    elif "mma" in target.features and spec.dtype.size in _WARPS:
        makers.append(of_warps)
    elif "async_copy" in target.features:
        makers.append(of_threads)
    made = (schedule for maker in makers for schedule in maker(spec, target))
    return tuple(dict.fromkeys(each for each in made if is_possible(spec, each, target)))


@lru_cache(maxsize=256)
def _columns(spec: GemmSpec, target: Target, aligned: Shape, machine: Machine) -> prior.Designs | None:
    """Of all designs, whose copies depend on nothing of the sizes but how they are aligned."""
    known = of_target(spec, target)
    return prior.designs(spec, known, aligned, machine) if known else None


def ranked(
    spec: GemmSpec, shape: Shape, target: Target, products: int = 1, machine: Machine | None = None
) -> Iterator[tuple[float, Schedule]]:
    """What can compute a product, the cheapest first, with its microseconds by the prior."""
    machine = machine or machine_of(target)
    m, n, k = shape
    # More than a vector's alignment lets no other design in: fewer classes of specs are looked through.
    spec = replace(spec, ld_multiple=min(spec.ld_multiple, max(1, VECTOR // spec.dtype.size)))
    plain = _columns(spec, target, prior.aligned(spec, shape), machine)
    if plain is None:
        return
    known = of_target(spec, target)
    blocks = np.ceil(m / plain.rows) * np.ceil(n / plain.cols) * products
    deep = k // (ROUNDS * plain.depth)
    small = (plain.rows * plain.cols <= JOINED_BLOCK) & (plain.rate > 0) if known[0].by_warpgroups else blocks < 0
    options: list[tuple[npt.NDArray[np.intp], int, int]] = [(np.arange(len(known)), 1, 1)]
    for parts in PARTS[1:]:
        fits = (blocks * parts <= FILLED * machine.cores) & (deep >= parts) & (plain.stays == 0)
        options.append((np.flatnonzero(fits), parts, 1))
        if parts % JOINED == 0:
            options.append((np.flatnonzero(fits & small), parts, JOINED))
    index = np.concatenate([which for which, _, _ in options])
    parts_of, joined_of = (np.concatenate([np.full(len(x[0]), float(x[at])) for x in options]) for at in (1, 2))
    taken = prior.Designs(*(getattr(plain, each.name)[index] for each in fields(plain)))
    whole = parts_of == 1
    width = np.where(joined_of > 1, 4, taken.width)
    taken = taken.but(parts=parts_of, joined=joined_of, staged=taken.staged * whole, width=width)
    costs = prior.microseconds(spec, taken, shape, machine, products)
    for at in np.argsort(costs, kind="stable"):
        schedule = split(known[index[at]], int(parts_of[at]), int(joined_of[at]))
        if schedule is not None and _can(spec, schedule, target):
            yield float(costs[at]), schedule


@lru_cache(maxsize=4096)
def _can(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    return is_possible(spec, schedule, target)


@lru_cache(maxsize=4096)
def split(schedule: Schedule, parts: int, joined: int = 1) -> Schedule | None:
    """With K in parts, of which a cluster adds up some; None where that can't be."""
    if parts == 1:
        return schedule
    changes: dict[str, object] = {"split_k": parts}
    if schedule.by_warpgroups:
        width = {"c_width": 4} if joined > 1 else {}
        changes |= {"epilogue_stages": 0, "cluster_reduction": joined, **width}
    try:
        return schedule.but(**changes)
    except ScheduleError:
        return None
