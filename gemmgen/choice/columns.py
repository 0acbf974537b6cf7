"""What the prior looks at of schedules with tiles in shared memory: a row of numbers each, an array for each column.

Most of a row follows from the schedule alone. What threads copy depends on how well the product's sizes are aligned.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from math import gcd
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gemmgen.candidates import VECTOR
from gemmgen.checks.capacity import depth_of_tiles
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

Numbers: TypeAlias = npt.NDArray[np.float64]
Shape = tuple[int, int, int]
#: What multiplies, by its number in `Columns.unit`.
FMA, MMA, WGMMA = range(3)
#: Bytes of a line of L2, and of a sector.
LINE, SECTOR = 128, 32
#: Bytes that a thread copies asynchronously, at least.
WORD = 4
#: Instructions for an element that a thread loads ahead by itself, of lines along K and of lines across it: others
#: multiply while it is on its way.
AHEAD, AHEAD_ACROSS = 0.8, 0.4
#: How many times the instructions of another copy one has whose width is told at run time.
NARROWER = 1.25
#: Elements along K that compilers have a thread hold at least: what it multiplies next is read while it multiplies.
READ_AHEAD = 2
#: Threads of a block up to which compilers begin a step with what it reads of tiles; the elements that a thread then
#: holds for each along K, fewer than its sums in any case; and at most. With K in parts it has 157 to 164 registers in
#: steps of 16, 247 to 255 in steps of 32, and 40 with two sums (nvcc 13.0 and 13.2); beside 127 other threads 64.
FEW_THREADS, HOISTED, MOST_HOISTED = 64, 5.0, 135
#: Threads of a warpgroup, and rows that its instructions multiply.
WARPGROUP, WARPGROUP_ROWS = 128, 64

_Number = TypeVar("_Number")
_Pair = TypeVar("_Pair")


class Columns(NamedTuple, Generic[_Number, _Pair]):
    """What the model looks at of a schedule, or an array of each for several: pairs in rows and in columns of C, then
    single numbers.

    Attributes:
        block: rows and columns of a block.
        together: of C, those of the threads that read shared memory together: a warp or a warpgroup.
        cluster: blocks of a cluster above one another, and beside one another.
        packed: whether a kernel before lays A, and B, out.
        copy: instructions of a thread for each element of A, and of B, that it copies.
        across: whether the copied tile is transposed; 2 where its lines are not apart.
        begins: where blocks begin inside of a line of A, and of B: how much of a TMA tile has parts of two.
        depth: of a step.
        held: elements of A and B that all stages hold, padding counted.
        stages: steps that can be on their way.
        threads, producers: of a block: those that multiply, and those that only fetch.
        sums: elements of C of a thread.
        fragment_depth: elements along K of each of its rows and columns that a thread holds at once.
        loads: of a thread from shared memory for each element along K, where it multiplies by itself.
        slices: of sliced-K.
        min_blocks: blocks of a multiprocessor that registers are left for; 0 for any number.
        unit: what multiplies.
        rs_as_stored: whether `wgmma` takes A or B from registers (RS), as it is stored.
        fetched: by TMA: no thread copies.
        parts, joined: of K; those that a cluster adds up.
        dealt: by stream-K.
        stays: whether blocks are persistent.
        turns: warpgroups of a block that store one after the other; 1 where all store at once.
        staged: whether C is stored by TMA.
        width: elements of C that a thread stores at once.
        band: rows of blocks of the threadblock swizzle.
    """

    block: _Pair
    together: _Pair
    cluster: _Pair
    packed: _Pair
    copy: _Pair
    across: _Pair
    begins: _Pair
    depth: _Number
    held: _Number
    stages: _Number
    threads: _Number
    producers: _Number
    sums: _Number
    fragment_depth: _Number
    loads: _Number
    slices: _Number
    min_blocks: _Number
    unit: _Number
    rs_as_stored: _Number
    fetched: _Number
    parts: _Number
    joined: _Number
    dealt: _Number
    stays: _Number
    turns: _Number
    staged: _Number
    width: _Number
    band: _Number


Row: TypeAlias = Columns[float, tuple[float, float]]
#: Views of a table: what is written to one is written to the other.
Designs: TypeAlias = Columns[Numbers, Numbers]
#: Columns that are pairs.
_PAIRS = Columns._fields.index("depth")


def table(rows: Iterable[Row]) -> Numbers:
    """A column of each schedule."""
    flat = [(*chain.from_iterable(cast("tuple[tuple[float, float], ...]", x[:_PAIRS])), *x[_PAIRS:]) for x in rows]
    # Numbers of a kind lie side by side, as the model goes through them.
    return np.array(flat, dtype=np.float64).T.copy()


def stacked(of: Designs) -> Numbers:
    """The table of such columns: what `designs` takes apart."""
    return np.concatenate((*of[:_PAIRS], of[_PAIRS:]), dtype=np.float64)


def designs(of: Numbers) -> Designs:
    """The columns of a table by their names."""
    pairs, singles = of[: 2 * _PAIRS], of[2 * _PAIRS :]
    return Columns._make((*pairs.reshape(_PAIRS, 2, -1), *singles))


def lie_along_k(spec: GemmSpec) -> tuple[bool, bool]:
    """Whether lines of A, and of B, lie along K."""
    return spec.a_order == "row", spec.b_order == "col"


def aligned(spec: GemmSpec, shape: Shape) -> Shape:
    """Sizes that are as well aligned: a row depends on nothing else of them, and that of small elements whose lines are
    assumed to begin at vectors on nothing.
    """
    unit = SECTOR // min(SECTOR, spec.dtype.size)
    a, b = (spec.dtype.size >= WORD or spec.ld_unit(x) * spec.dtype.size < VECTOR for x in "ab")
    of_a, of_b = lie_along_k(spec)
    free = a and not of_a, b and not of_b, (a and of_a) or (b and of_b)
    m, n, k = (gcd(size, unit) if counts else unit for size, counts in zip(shape, free, strict=True))
    return m, n, k


def _begins(block: tuple[int, int], size: int) -> tuple[float, float]:
    """Where blocks begin inside of a line, whose elements have so many bytes: how much of a tile has parts of two."""
    rows, cols = (1 - gcd(extent, LINE // size) * size / LINE for extent in block)
    return rows, cols


@lru_cache(maxsize=8192)
def column(spec: GemmSpec, s: Schedule, like: Shape) -> Numbers:
    """The table of one schedule. Arguments as `row` has them."""
    return table([row(spec, s, like)])


def row(spec: GemmSpec, s: Schedule, like: Shape) -> Row:
    """What the model looks at of a schedule.

    Args:
        like: sizes as well aligned as the product's.
    """
    block, slices, fetched = s.block_tile, s.sliced_k, s.by_warpgroups or s.tma
    threads = s.group[0] * s.group[1] * slices
    (copy_a, across_a), (copy_b, across_b) = (_copy(spec, s, x, like) for x in "ab")
    return Columns(
        block=block,
        together=_read_together(s),
        cluster=s.cluster,
        packed=(s.a.prepacked, s.b.prepacked),
        copy=(copy_a, copy_b),
        across=(across_a, across_b),
        begins=_begins(block, spec.dtype.size) if fetched else (0, 0),
        depth=s.round_depth,
        held=_held(spec, s),
        stages=s.stages / max(1, s.mbarrier),
        threads=threads,
        producers=s.producer_threads * s.by_warpgroups,
        sums=block[0] * block[1] * slices / threads,
        fragment_depth=_fragment_depth(spec, s),
        loads=_loads(spec, s),
        slices=slices,
        min_blocks=s.min_blocks,
        unit=WGMMA if s.by_warpgroups else MMA if s.by_warps else FMA,
        rs_as_stored=rs_as_stored(spec, s),
        fetched=fetched,
        parts=s.split_k,
        joined=s.cluster_reduction,
        dealt=s.stream_k,
        stays=s.persistent,
        turns=threads // WARPGROUP if s.ordered_epilogue else 1,
        staged=s.epilogue_stages,
        width=s.c_width,
        band=s.threadblock_swizzle,
    )


def as_stored(spec: GemmSpec, matrix: str) -> bool:
    """Whether a matrix' elements are multiplied as they are stored."""
    return spec.element(matrix) == spec.dtype and spec.formula_of(matrix) is None


def rs_as_stored(spec: GemmSpec, s: Schedule) -> bool:
    """Whether `wgmma` takes A or B from registers (RS), as it is stored."""
    return s.by_warpgroups and any(s.operand(x).memory == "private" and as_stored(spec, x) for x in "ab")


def _held(spec: GemmSpec, s: Schedule) -> float:
    """Elements of A and B that all stages hold; of what is made in registers, by the bytes that are stored."""
    (rows, cols), depth, a, b = s.block_tile, s.block_k, s.a, s.b
    of_a: float = depth * (rows + a.pad) if a.transposed else rows * (depth + a.pad)
    of_b: float = cols * (depth + b.pad) if b.transposed else depth * (cols + b.pad)
    if s.by_warpgroups and s.operands_swapped and b.memory == "private":
        of_b *= spec.element("b").bytes_of(2) / 2 / spec.dtype.size
    return s.stages * (of_a + of_b)


def _fragment_depth(spec: GemmSpec, s: Schedule) -> float:
    """Elements along K of each of its rows and columns that a thread holds at once."""
    depth = depth_of_tiles(spec, s)
    if depth == 1 and s.register_stages == 1 and s.group[0] * s.group[1] * s.sliced_k <= FEW_THREADS:
        held = min(MOST_HOISTED, s.block_k * min(HOISTED, s.tile[0] * s.tile[1] - 1))
        return max(READ_AHEAD, held / sum(s.tile))
    return max(READ_AHEAD, s.register_stages * depth)


def _loads(spec: GemmSpec, s: Schedule) -> float:
    """Of a thread from shared memory for each element along K: vectors along a line of C, or along K."""
    if s.by_warpgroups or s.by_warps:
        return 0.0
    depth, most = depth_of_tiles(spec, s), max(1, VECTOR // spec.dtype.size)
    rows, cols = (gcd(width, most) for width in s.thread_vector)
    of_a = s.tile[0] / max(rows, 1 if s.a.transposed else depth)
    of_b = s.tile[1] / max(cols, depth if s.b.transposed else 1)
    return of_a + of_b


def _read_together(s: Schedule) -> tuple[float, float]:
    """Rows and columns of C of the threads that read shared memory together."""
    rows, cols = s.block_tile
    if s.by_warpgroups:
        return (rows, WARPGROUP_ROWS) if s.operands_swapped else (WARPGROUP_ROWS, cols)
    return (s.tile[0] * 8, s.tile[1] * 4) if s.by_warps else s.tile


def _copy(spec: GemmSpec, s: Schedule, name: str, shape: Shape) -> tuple[float, float]:
    """Instructions for an element that threads copy to shared memory, and whether its tile is transposed: 2 where its
    lines are not apart.
    """
    if s.by_warpgroups or s.tma:
        return 0.0, 0.0
    m, n, k = shape
    order = spec.order(name)
    operand = s.staged(name, order)
    if operand.memory != "local":
        return 0.0, 0.0
    by_k = (order == "row") == (name == "a")
    line = k if by_k else m if name == "a" else n
    along = operand.transposed == (order == "col")
    width, size = operand.width, spec.dtype.size
    # Of small elements the alignment is assumed, or warps copy vectors as lines have them; of others the sizes say it.
    seen = gcd(line, width) if size >= WORD or (s.by_warps and operand.async_copy) else 1
    each = 1.0
    if size < WORD and s.by_warps and operand.async_copy:
        # Copies are narrower where no wider ones are there.
        assumed = gcd(spec.ld_unit(name), width)
        each, width = NARROWER if seen > assumed else 1.0, max(assumed, seen)
    whole = width * size >= WORD and (spec.ld_unit(name) % width == 0 or seen % width == 0)
    across = 0.0 if along else 1.0 if operand.pad else 2.0
    if s.by_warps and s.prefetch and not operand.prepacked:
        return (AHEAD if by_k else AHEAD_ACROSS), 0.0
    if operand.prepacked:
        return 1 / operand.width, 0.0
    return (each / width, 0.0) if along and whole else (1.0, across)
