"""What the prior looks at of schedules with tiles in shared memory: a row of numbers each, an array for each column.

Most follow from the schedule alone (`Row`). What threads copy depends on how well the product's sizes are aligned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from math import gcd
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Shape = tuple[int, int, int]
#: What multiplies, by its number in `Designs.unit`.
FMA, MMA, WGMMA = range(3)
#: Bytes of a line of L2, and of a sector.
LINE, SECTOR = 128, 32
#: Rows that an instruction of warpgroups multiplies.
WARPGROUP_ROWS = 64


@dataclass(frozen=True, slots=True)
class Designs:
    """What the model looks at of schedules, an array each: a number a schedule, or two, in rows and in columns of C.

    Attributes:
        block: rows and columns of a block.
        together: of C, those of the threads that read shared memory together: a warp or a warpgroup.
        cluster: blocks of a cluster above one another, and beside one another.
        packed: whether a kernel before lays A, and B, out.
        depth: of a step.
        held: elements of A and B that all stages hold, padding counted.
        stages: steps that can be on their way.
        threads, producers: of a block: those that multiply, and those that only fetch.
        slices: of sliced-K.
        unit: what multiplies.
        fetched: by TMA: no thread copies.
        parts, joined: of K; those that a cluster adds up.
        dealt: by stream-K.
        stays: whether blocks are persistent.
        staged: whether C is stored by TMA.
        width: elements of C that a thread stores at once.
        band: rows of blocks of the threadblock swizzle.
        copy: instructions of a thread for each element of A, and of B, that it copies.
        across: whether the copied tile is transposed.
        begins: where blocks begin inside of a line of A, and of B: how much of a TMA tile has parts of two.
    """

    block: Numbers
    together: Numbers
    cluster: Numbers
    packed: Numbers
    depth: Numbers
    held: Numbers
    stages: Numbers
    threads: Numbers
    producers: Numbers
    slices: Numbers
    unit: Numbers
    fetched: Numbers
    parts: Numbers
    joined: Numbers
    dealt: Numbers
    stays: Numbers
    staged: Numbers
    width: Numbers
    band: Numbers
    copy: Numbers
    across: Numbers
    begins: Numbers

    def at(self, index: npt.NDArray[np.intp], **changes: Numbers) -> Designs:
        """Some of them, in another order, with other columns."""
        taken = ((name, changes.get(name), getattr(self, name)) for name in _NAMES)
        return Designs(**{name: own.take(index, -1) if new is None else new for name, new, own in taken})

    @property
    def summed_apart(self) -> Flags:
        """Whether a kernel after adds up parts of K."""
        return self.parts > self.joined

    @property
    def sums(self) -> Numbers:
        """Elements of C of a thread."""
        found: Numbers = self.block[0] * self.block[1] * self.slices / self.threads
        return found


_NAMES = tuple(each.name for each in fields(Designs))


class Row(NamedTuple):
    """What follows from a schedule alone, in the order of `Designs`."""

    rows: float
    cols: float
    together_rows: float
    together_cols: float
    high: float
    wide: float
    a_packed: float
    b_packed: float
    depth: float
    held: float
    stages: float
    threads: float
    producers: float
    slices: float
    unit: float
    fetched: float
    parts: float
    joined: float
    dealt: float
    stays: float
    staged: float
    width: float
    band: float


def designs(spec: GemmSpec, asked: Sequence[tuple[Schedule, Shape]]) -> Designs:
    """Of schedules with tiles in shared memory, each with the sizes of the product that it computes."""
    own = columns(row(schedule) for schedule, _ in asked)
    return of_columns(spec, own, copies(spec, ((schedule, aligned(spec, shape)) for schedule, shape in asked)))


def columns(rows: Iterable[Row]) -> Numbers:
    """A column of each schedule."""
    return np.array(list(rows), dtype=np.float64).T


def copies(spec: GemmSpec, asked: Iterable[tuple[Schedule, Shape]]) -> Numbers:
    """Of schedules, each with sizes as well aligned as the product's: the instructions of a thread for an element of A
    and of B that it copies, and whether its tiles are transposed.
    """
    found = [sum(zip(*(_copy(spec, each, x, like) for x in "ab"), strict=True), ()) for each, like in asked]
    return np.array(found, dtype=np.float64).T


def of_columns(spec: GemmSpec, own: Numbers, copied: Numbers) -> Designs:
    """Of such columns."""
    line, pairs, block, fetched = LINE // spec.dtype.size, range(0, 8, 2), own[:2], own[Row._fields.index("fetched")]
    begins = fetched * (1 - np.gcd(block.astype(int), line) / line)
    arrays: list[Numbers] = [*(own[at : at + 2] for at in pairs), *own[8:], copied[:2], copied[2:], begins]
    return Designs(*arrays)


def aligned(spec: GemmSpec, shape: Shape) -> Shape:
    """Sizes that are as well aligned: a design's columns depend on nothing else of them."""
    unit = SECTOR // min(SECTOR, spec.dtype.size)
    free = spec.a_order == "col", spec.b_order == "row", True
    m, n, k = (gcd(size, unit) if counts else unit for size, counts in zip(shape, free, strict=True))
    return m, n, k


@lru_cache(maxsize=8192)
def row(s: Schedule) -> Row:
    """What the model looks at of a schedule."""
    threads = s.group[0] * s.group[1] * s.sliced_k
    return Row(
        *(*s.block_tile, *_read_together(s), *s.cluster, s.a.prepacked, s.b.prepacked),
        *(s.round_depth, _held(s), s.stages / max(1, s.mbarrier)),
        *(threads, s.producer_threads * s.by_warpgroups, s.sliced_k),
        *(WGMMA if s.by_warpgroups else MMA if s.by_warps else FMA, s.by_warpgroups or s.tma),
        *(s.split_k, s.cluster_reduction, s.stream_k, s.persistent, s.epilogue_stages),
        *(s.c_width, s.threadblock_swizzle),
    )


def _held(s: Schedule) -> int:
    """Elements of A and B that all stages hold."""
    (rows, cols), depth, a, b = s.block_tile, s.block_k, s.a, s.b
    of_a = depth * (rows + a.pad) if a.transposed else rows * (depth + a.pad)
    of_b = cols * (depth + b.pad) if b.transposed else depth * (cols + b.pad)
    return s.stages * (of_a + of_b)


def _read_together(s: Schedule) -> tuple[float, float]:
    """Rows and columns of C of the threads that read shared memory together."""
    rows, cols = s.block_tile
    if s.by_warpgroups:
        return (rows, WARPGROUP_ROWS) if s.operands_swapped else (WARPGROUP_ROWS, cols)
    return (s.tile[0] * 8, s.tile[1] * 4) if s.by_warps else s.tile


def _copy(spec: GemmSpec, s: Schedule, name: str, shape: Shape) -> tuple[float, float]:
    """Instructions for an element that threads copy to shared memory, and whether its tile is transposed."""
    if s.by_warpgroups or s.tma:
        return 0.0, 0.0
    m, n, k = shape
    order = spec.a_order if name == "a" else spec.b_order
    operand = s.staged(name, order)
    if operand.memory != "local":
        return 0.0, 0.0
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    # Vectors of small elements are fast where they are promised of both matrices: so it was measured.
    whole = spec.ld_unit(name) % operand.width == 0 or (line % operand.width == 0 and spec.dtype.size >= 4)
    return (1 / operand.width, 0.0) if operand.prepacked or (along and whole) else (1.0, float(not along))
