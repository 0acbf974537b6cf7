"""Schedules of a GPU of CUDA by tile, stages and warpgroups, of which the prior takes the fastest for a product.

A design is a schedule with all of K in one part: what follows from its tile is filled in by rule. They are points of
`gemmgen.tuning.space`, the widths by the instructions' own steps. K in parts is weighed by columns of numbers alone, and
only what comes out fastest is built and validated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from math import gcd

import numpy as np

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
#: Rows of a block and the warpgroups that multiply them; registers that these have and their producers, where any are
#: handed over.
WARPGROUPS: tuple[tuple[int, int], ...] = ((64, 1), (128, 2), (192, 3), (256, 2))
HANDED = {1: (0, 0), 2: (232, 40), 3: (160, 32)}
#: Columns by the instruction's steps; sums of a thread at most.
WIDTHS, MOST_SUMS = (*range(16, 257, 16),), 128
#: Stages that are tried, the most of them that fit and those for two blocks at once.
MOST_STAGES, LEAST_STAGES = 8, 3
#: Parts of K, and rounds of the main loop that each has at least.
PARTS, ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64), 4
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
            if rows * cols // (128 * count) > MOST_SUMS:
                continue
            staged = rows * cols * spec.result.size
            ring = (rows + cols) * depth * size
            shared = target.local_bytes - 2048
            both = (
                [(shared - staged) // ring, (shared // 2 - staged) // ring]
                if count < 3
                else [(shared - staged) // ring]
            )
            for stages in sorted({min(MOST_STAGES, x) for x in both if x >= LEAST_STAGES}):
                for stays in (False, True):
                    yield base.but(
                        tile=(2 * (rows // 64) // count, cols // 4),
                        group=(32 * count, 4),
                        atom=_atom(spec),
                        block_k=depth,
                        stages=stages,
                        c_width=4 if 128 * count % (cols // 4) == 0 else 2,
                        epilogue_stages=1,
                        producer_threads=32 if count == 1 else 128,
                        setmaxnreg=HANDED[count],
                        threadblock_swizzle=8,
                        persistent=stays,
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
        makers.append(of_warpgroups)
    elif "mma" in target.features and spec.dtype.size in _WARPS:
        makers.append(of_warps)
    elif "async_copy" in target.features:
        makers.append(of_threads)
    found: dict[Schedule, None] = {}
    for maker in makers:
        schedules = maker(spec, target)
        while True:
            try:
                schedule = next(schedules)
            except StopIteration:
                break
            except ScheduleError:
                break
            if is_possible(spec, schedule, target):
                found[schedule] = None
    return tuple(found)


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
    plain = _columns(spec, target, (gcd(m, LINE), gcd(n, LINE), gcd(k, LINE)), machine)
    if plain is None:
        return
    known = of_target(spec, target)
    blocks = np.ceil(m / plain.rows) * np.ceil(n / plain.cols) * products
    chosen: list[tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], int]] = []
    for parts in PARTS:
        fits = (blocks * parts <= 4 * machine.cores) & (k >= parts * ROUNDS * plain.depth)
        if parts == 1:
            fits |= True
        if parts > 1:
            fits &= plain.stays == 0
        chosen.append((np.flatnonzero(fits), parts))
    index = np.concatenate([which for which, _ in chosen])
    parts_of = np.concatenate([np.full(len(which), float(parts)) for which, parts in chosen])
    taken = prior.Designs(*(getattr(plain, each.name)[index] for each in fields(plain)))
    whole = parts_of == 1
    taken = taken.but(parts=parts_of, staged=taken.staged * whole, width=np.where(whole, taken.width, 4))
    costs = prior.microseconds(spec, taken, shape, machine, products)
    for at in np.argsort(costs, kind="stable"):
        schedule = split(known[index[at]], int(parts_of[at]))
        if schedule is not None and is_possible(spec, schedule, target):
            yield float(costs[at]), schedule


@lru_cache(maxsize=4096)
def split(schedule: Schedule, parts: int) -> Schedule | None:
    """With K in parts; None where that can't be."""
    if parts == 1:
        return schedule
    changes: dict[str, object] = {"split_k": parts}
    if schedule.by_warpgroups:
        changes |= {"epilogue_stages": 0, "c_width": 1, "persistent": False}
    try:
        return schedule.but(**changes)
    except ScheduleError:
        return None
