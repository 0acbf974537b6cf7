"""What a product takes on a CPU by a schedule of panels, from the device's own constants: one analytic model.

    cycles = rounds x (a work-item's steps + copies + beginnings of tiles) + waking threads + waiting for the last

It counts what the busiest core does. A step is the longest of multiplying, loading and bringing lines from the levels
of the caches, each a little longer where others are as long. Where a line comes from follows from how many bytes pass
before it is read again. The constants stand in `gemmgen.cpu.machine`. NumPy computes all schedules of a list at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from math import gcd
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gemmgen.cpu.machine import Machine
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Numbers: TypeAlias = npt.NDArray[np.float64]
Shape = tuple[int, int, int]
#: How much of the shorter ones of things done side by side is hidden by the longest one: all, were it infinite.
SHARP = 1.8
LINE, PAGE = 64, 4096
#: Of a cache, the part that holds what passes before a line is read again.
HELD = 0.7
#: Rows of a tile from which on its beginning takes as long as it does.
FULL = 6
#: Instructions of a load of a narrower type than that of the sums: two of them convert.
CONVERTED = 3
#: Rows of B in place at a time whose lines hardware follows; of rows from memory; and of those at the same places of
#: their pages that it keeps.
FOLLOWED, FOLLOWED_FAR, WAYS = 16, 8, 8


@dataclass(frozen=True, slots=True)
class Panels:
    """What the model looks at of schedules, an array each.

    Attributes:
        rows, cols: of a tile.
        vector: elements.
        copied: whether from a private copy of B.
        dot: whether vectors lie along K.
        down, across: tiles of a work-item at most (`macro_kernel`).
        even_down, even_across: what numbers of work-items are multiples of (`grid_multiple`).
        kc: depth of a block of K; 0 for all of K.
        mc: tiles of a column before those right of them; 0 for all.
        parts: of K.
        cores: that share C.
        fused: whether the first tile of a column copies B as it multiplies.
    """

    rows: Numbers
    cols: Numbers
    vector: Numbers
    copied: Numbers
    dot: Numbers
    down: Numbers
    across: Numbers
    even_down: Numbers
    even_across: Numbers
    kc: Numbers
    mc: Numbers
    parts: Numbers
    cores: Numbers
    fused: Numbers

    @classmethod
    def of(cls, rows: Sequence[Sequence[float]] | Numbers) -> Panels:
        """From a row each."""
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, len(fields(cls))).T.copy())

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Panels:
        """Some of them."""
        return Panels(*(getattr(self, each.name)[which] for each in fields(Panels)))


def panels(schedules: Sequence[Schedule], cores: int) -> Panels:
    """Of schedules with vectors."""
    return Panels.of(
        [
            (
                *(*s.tile, s.vector, s.b.memory == "private", s.dot_product, *s.macro_kernel, *s.grid_multiple),
                *(s.kc, s.mc, s.split_k, cores, s.fused_copy),
            )
            for s in schedules
        ]
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What a work-item has to do: tiles along rows and columns, steps of K and blocks of them, tiles of a column that
    are computed before those right of them, work-items of all and of the busiest core, and whether B comes from memory
    so few rows at a time that hardware follows all of them.
    """

    down: Numbers
    across: Numbers
    depth: Numbers
    block: Numbers
    blocks: Numbers
    stay: Numbers
    groups: Numbers
    rounds: Numbers
    streams: npt.NDArray[np.bool_]


def cycles(spec: GemmSpec, p: Panels, shape: Shape, machine: Machine) -> Numbers:
    """What the busiest core takes for a product by each schedule."""
    return sum(account(spec, p, shape, machine).values(), np.zeros_like(p.rows))


def account(spec: GemmSpec, p: Panels, shape: Shape, machine: Machine) -> dict[str, Numbers]:
    """The cycles of the busiest core for a product by each schedule, by what they go to."""
    work = _work(spec, p, shape, machine)
    tiles, many = work.down * work.across, np.minimum(work.groups, p.cores) > 1
    multiply, together = _steps(spec, p, work, shape, machine)
    b_lines = work.across * work.depth * p.cols * spec.dtype.size / LINE
    is_transposed = (p.dot > 0) == (spec.b_order == "row")
    moves = machine.move * np.maximum(0, LINE / (p.vector * spec.dtype.size) - 1)
    by_rows = b_lines * (machine.copy + moves) + work.depth * machine.row
    made = np.where(is_transposed, b_lines * machine.transposed, by_rows)
    copy: Numbers = np.where(p.copied > p.fused, made, 0.0)
    begin = machine.tile * np.minimum(1, p.rows / FULL) + p.dot * p.rows * p.cols * machine.element
    single = machine.single * p.rows * p.cols * (2 * work.blocks - 1) if spec.c_order == "col" else 0.0 * tiles
    parts = {
        "multiply-adds and loads": multiply,
        "lines on their way": together - multiply,
        "copies of B": copy,
        "beginnings of tiles": tiles * np.where(work.streams, 1, work.blocks) * begin,
        "single elements of C": tiles * single,
    }
    total = {name: work.rounds * part for name, part in parts.items()}
    each = sum(parts.values(), np.zeros_like(tiles))
    return total | {
        "beginnings of work-items": machine.group * np.ceil(work.groups / p.cores),
        "waking threads": machine.threads * many,
        "the sum of K's parts": machine.kernel * (p.parts > 1),
        # Two for each core balance no better than one: each core takes two, unless one of them is half as fast.
        "waiting for the last": machine.wait * each * np.minimum(work.rounds, 2) * (p.cores > 1),
    }


def _work(spec: GemmSpec, p: Panels, shape: Shape, machine: Machine) -> _Work:
    m, n, k = shape
    down, rows_each = _shares(m, p.rows, p.down, p.even_down)
    across, cols_each = _shares(n, p.cols, p.across, p.even_across)
    depth = np.ceil(max(1, k) / p.parts)
    block = np.where(p.kc > 0, np.minimum(depth, p.kc), depth)
    groups = down * across * p.parts
    # Cores take groups as they come: all are busy until the last few.
    even_share = np.ceil(m / p.rows) * np.ceil(n / p.cols) * p.parts / p.cores / (rows_each * cols_each)
    return _Work(
        down=rows_each,
        across=cols_each,
        depth=depth,
        block=block,
        blocks=np.ceil(depth / block),
        stay=np.where(p.mc > 0, np.minimum(rows_each, p.mc), rows_each),
        groups=groups,
        rounds=np.minimum(np.ceil(groups / p.cores), even_share + 1 - 1 / p.cores),
        streams=(p.copied == 0) & (p.dot == 0) & (block <= FOLLOWED_FAR) & _is_far(spec, shape, machine),
    )


def _shares(extent: int, unit: Numbers, most: Numbers, even: Numbers) -> tuple[Numbers, Numbers]:
    """Groups along an axis, and the tiles that each has there."""
    groups = np.ceil(extent / (unit * most * even)) * even
    return groups, np.ceil(np.ceil(extent / unit) / groups)


def _steps(spec: GemmSpec, p: Panels, work: _Work, shape: Shape, machine: Machine) -> tuple[Numbers, Numbers]:
    """A work-item's cycles for multiplying and loading, and for these beside lines that are on their way."""
    (m, n, k), size = shape, spec.dtype.size
    steps, in_place = work.down * work.across * work.depth, (p.copied == 0) & (p.dot == 0)
    # The steps that read B in place: all of them, or those of the first tile of a column.
    far = steps * (in_place + p.fused / work.down)
    rest = p.dot * (work.block % p.vector) / work.block
    width = np.where(p.dot > 0, 1.0, p.vector)
    lanes = np.where(p.dot > 0, p.vector, 1.0)
    fma = steps / lanes * np.maximum(p.rows * p.cols / width / machine.fma, machine.latency)
    # The first tile has loaded what it copies: a store a cycle is left.
    fma += p.fused * steps / work.down * p.cols / width
    # What waits for memory goes from a block of K to the next: each vector of sums is loaded and stored, or each
    # element at an edge of C.
    whole = np.floor(m / p.rows) * np.floor(n / p.cols) / (np.ceil(m / p.rows) * np.ceil(n / p.cols))
    sums = p.rows * p.cols * (2 / width + machine.single * (1 - whole))
    fma += work.streams * work.down * work.across * (work.blocks - 1) * sums
    known = np.where(p.dot > 0, np.inf, np.where(p.copied > 0, machine.pointers_beside_copy, machine.pointers))
    loaded = CONVERTED if spec.accumulator.size > size else 1
    # In place, where rows are no whole lines, vectors lie on two lines: as many of them as a vector is parts of a line.
    second_lines = in_place * (n * size % LINE > 0) * p.vector * size / LINE
    of_b = np.where(p.copied > 0, 1, loaded) + second_lines
    loads = loaded * p.rows * (1 + (p.rows > known)) + of_b * p.cols / width
    multiply = _beside(fma, steps * loads / lanes / machine.load)
    second, third, home = _lines(spec, p, work, shape, machine)
    from_memory = _is_far(spec, shape, machine)
    apart = far * _apart(spec, p, work, shape, from_memory) * machine.apart
    is_third = n * k * size > HELD * machine.second and not from_memory
    first_pass = np.where(p.fused, apart, apart / work.down) * is_third
    second *= np.where(in_place, machine.strided, 1.0)
    beyond = second * machine.second_line, third * machine.third_line + home + first_pass
    together = _beside(fma, steps * loads / lanes / machine.load, *beyond)
    # In place, a step's line of B may lie on a page of its own.
    page = far * machine.page * min(1.0, n * size / PAGE) + apart * from_memory
    # Lines of C beyond the second level are fetched ahead where the next tile is that to the right.
    is_apart = (m * n * size > HELD * machine.second) & ((p.mc != 1) | (work.across == 1))
    page += is_apart * machine.apart * _stored(spec, p, work) / LINE
    return multiply, together + page + steps * p.rows * p.cols * rest * machine.rest


def _stored(spec: GemmSpec, p: Panels, work: _Work) -> Numbers:
    """Bytes of C that a work-item reads and writes."""
    return work.down * work.across * p.rows * p.cols * spec.dtype.size * (2 * work.blocks - 1)


def _is_far(spec: GemmSpec, shape: Shape, machine: Machine) -> bool:
    """Whether B comes from memory."""
    return shape[1] * shape[2] * spec.dtype.size > HELD * machine.third


def _apart(spec: GemmSpec, p: Panels, work: _Work, shape: Shape, from_memory: bool) -> Numbers:
    """Of B in place, the lines of a step that hardware does not fetch ahead: it follows few rows at a time."""
    row = shape[1] * spec.dtype.size
    followed = FOLLOWED_FAR if from_memory else min(FOLLOWED, WAYS * PAGE / gcd(row, PAGE))
    width = p.cols * spec.dtype.size
    return np.where(p.across * width >= PAGE, 1 - np.minimum(1.0, followed / work.block), 1.0) * width / LINE


def _lines(spec: GemmSpec, p: Panels, work: _Work, shape: Shape, machine: Machine) -> tuple[Numbers, Numbers, Numbers]:
    """A work-item's lines of A and B from the second level and from the third, and the cycles of those that it reads
    or writes for the first time.

    Tiles of a column are computed below each other, `stay` of them, before those right of them: A's rows are read again
    for the next column, B's panel for the next tile, and for the rows after those that stay.
    """
    (m, n, k), size = shape, spec.dtype.size
    rows, panel = p.rows * work.block * size, p.cols * work.block * size
    # Lines in place that begin at the same places of their pages share few places of a cache.
    share = np.where(p.copied > 0, 1.0, np.minimum(1.0, p.cols * size / gcd(n * size, PAGE)))
    passes = np.ceil(work.down / work.stay)
    second, third = 0.0 * rows, 0.0 * rows
    for lines, distance, part in (
        (work.down * (work.across - 1) * rows, work.stay * rows + panel, 1.0),
        (work.across * (work.down - passes) * panel, panel + rows, share),
        (work.across * (passes - 1) * panel, work.across * panel + work.stay * rows, share),
    ):
        beyond = distance > HELD * machine.second * part
        second += lines * ((distance > HELD * machine.first * part) & ~beyond)
        third += lines * beyond
    # Of a copy and the rows of B that it is made of, the first leave the second level as the last come.
    third += work.across * panel * ((p.copied > p.fused) * 2 * work.across * panel > machine.second)
    # Sums that wait for the next few rows of B come back before other lines have driven them from the second level.
    stored, sums = _stored(spec, p, work), work.down * work.across * p.rows * p.cols * size
    near = work.streams & (sums + work.across * panel <= HELD * machine.second)
    c = np.where(near, sums, stored)
    second += (stored - c) * work.block / work.depth
    a_line, b_line = np.full_like(rows, machine.third_line), machine.third_line
    if (m + n) * k * size > HELD * machine.third:
        several = (p.dot > 0) & (p.rows > 1)
        a_line, b_line = np.where(several, machine.several_line, machine.memory_line), machine.memory_line
    scale = work.depth / work.block / LINE
    home = (work.down * rows * a_line + work.across * panel * b_line) * scale + c * machine.third_line / LINE
    return second * scale, third * scale, home


def _beside(*times: Numbers) -> Numbers:
    """Of things done at the same time the longest, and a little more where others are as long."""
    most: Numbers = np.maximum.reduce(times)
    parts = sum(((time / np.maximum(most, 1e-9)) ** SHARP for time in times), np.zeros_like(most))
    return most * parts ** (1 / SHARP)
