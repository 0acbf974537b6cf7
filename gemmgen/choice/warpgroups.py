"""The designs of warpgroups (`wgmma`) that a product is chosen from, all of K in one part: rows, widths by the
instructions' own steps, stages, clusters; what follows from those is filled in by rule.

A block is a few numbers, from which the model's columns follow. Only what is taken becomes a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from gemmgen.candidates import LINE, VECTOR, WAYS, Way
from gemmgen.choice.columns import (
    READ_AHEAD,
    WARPGROUP_ROWS,
    WGMMA,
    Columns,
    Designs,
    Numbers,
    as_stored,
    lie_along_k,
    stacked,
)
from gemmgen.ir.dtypes import FLOAT8, FLOAT16, I8, DType
from gemmgen.ir.swizzle import line_bytes
from gemmgen.ir.target import Target
from gemmgen.passes.validate import problems_as_asked
from gemmgen.records import dataclass
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.epilogues import Registers, Staged
from gemmgen.schedule.fields import Memory, Pair, WarpgroupAtom
from gemmgen.schedule.schedulers import OneTile, Persistent
from gemmgen.schedule.tiling import Tiling
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec, Grouped

_Number = TypeVar("_Number", int, Numbers)
#: Rows of a block and the warpgroups that multiply them; registers that these have and their producers, where any are
#: handed over.
WARPGROUPS: tuple[tuple[int, int], ...] = ((64, 1), (128, 2), (192, 3), (256, 2))
HANDED = {1: (0, 0), 2: (232, 40), 3: (160, 32)}
#: Columns by the instruction's steps; sums of a thread at most, by warpgroups: ptxas gives 128 registers to a thread of
#: four warpgroups, producers counted, and 192x208 does not compile.
WIDTHS = (*range(16, 257, 8),)
MOST_SUMS = {1: 128, 2: 192, 3: 96}
#: The same where a thread has them three times: of two groups along K that are scaled, and of all.
MOST_SUMS_OF_LINES = {1: 64, 2: 64, 3: 32}
#: The same where A or B is multiplied from registers as it is stored.
MOST_SUMS_OF_RS = {1: 128, 2: 160, 3: 96}
#: The same where threads store the sums of a part of K.
MOST_SUMS_OF_PARTS = 128
#: Steps of the widths of persistent blocks, and of int8.
COARSE = 16
#: Stages that are tried, the most of them that fit and those for two blocks at once, of one line and of several; shared
#: memory that is no tile.
MOST_STAGES, LEAST_STAGES, LEAST_STAGES_OF_LINES, RESERVED = 8, 3, 2, 2048
#: Rows of a block where operands are swapped: few, and many.
FEW_ROWS, MANY_ROWS = (8, 16, 24, 32, 48, 64), (*range(72, 257, 8),)
#: Warpgroups of such a block, and instructions of each beside one another, of 64 columns.
BESIDE = ((1, 1), (2, 1), (2, 2))
#: Blocks of a cluster, which share tiles of A or of B by multicast; elements of such a block at least.
PAIRS = ((1, 2), (2, 1))
CLUSTERS, CLUSTERED = (*PAIRS, (1, 4), (4, 1)), 64 * 64
#: Columns of designs that also take what TMA could read itself from a kernel that packs it, where lines are short.
PACKED = (64, 128)
#: Columns of which a gated product can have half of each half of B, however B lies.
GATED = 128
#: What multiplies elements of a type; of float32, where it may be rounded, the instruction of TF32 does.
_ATOMS: dict[DType, WarpgroupAtom] = {
    **dict.fromkeys(FLOAT16, "wgmma"),
    I8: "wgmma_s8",
    **dict.fromkeys(FLOAT8, "wgmma_f8"),
}
#: Threads of a warpgroup, those that fetch for a single one, and columns of an instruction's rows where operands are
#: swapped.
THREADS, PRODUCERS, COLUMNS = 128, 32, 64


@dataclass(frozen=True, slots=True)
class Kind:
    """What the designs of warpgroups follow from.

    Attributes:
        size, result: bytes of an element of A and B, and of C.
        by_k: whether lines of A, and of B, lie along K.
        packed: of A and B.
        staged: whether TMA may store C: where its lines begin at multiples of a vector.
        grouped: what groups share out.
        shared: bytes of shared memory of a block.
        rs_bytes: bytes of an element of A, and of B, as it is stored, where `wgmma` takes that from registers (RS), B
            with operands swapped; 0 where it is multiplied from shared memory.
        rs_as_stored: whether what comes from registers is multiplied as it is stored.
        lines: of shared memory that a step is deep.
    """

    atom: WarpgroupAtom
    size: int
    result: int
    by_k: tuple[bool, bool]
    packed: Way
    staged: bool
    grouped: Grouped | None
    shared: int
    rs_bytes: tuple[float, float] = (0.0, 0.0)
    rs_as_stored: bool = False
    lines: int = 1

    def most_stages(self, block: Pair, slot: int) -> tuple[int, int]:
        """Stages that a block can have beside a stage of the epilogue, and each of two of a multiprocessor."""
        of_tiles = map(self._tile_bytes, block, self.by_k, self.stored)
        stage, room = self.lines * sum(of_tiles), self.shared - RESERVED
        return (room - slot) // stage, (room // 2 - slot) // stage

    def multiplies(self, width: int) -> bool:
        """Whether there is an instruction of so many columns."""
        return self.atom != "wgmma_s8" or width % COARSE == 0

    @property
    def depth(self) -> int:
        """Of a step."""
        return self.lines * LINE // self.size

    def has_registers(self, groups: int, sums: int) -> bool:
        """Whether a thread has some for its sums, where each line has sums of its own beside those of all."""
        of_steps = MOST_SUMS_OF_RS if self.rs_as_stored else MOST_SUMS
        return sums <= (of_steps if self.lines == 1 else MOST_SUMS_OF_LINES)[groups]

    @property
    def stored(self) -> tuple[float, float]:
        """Bytes that a tile of A, and of B, takes, as a part of those of elements as they are multiplied."""
        of_a, of_b = (each / self.size or 1.0 for each in self.rs_bytes)
        return of_a, of_b

    def _tile_bytes(self, extent: int, by_k: bool, stored: float) -> int:
        """Of A's tile or of B's, in whole lines."""
        if by_k:
            return int(extent * LINE * stored)
        line = line_bytes(extent * self.size)
        return int(LINE // self.size * -(-extent * self.size // line) * line * stored)


class Block(NamedTuple):
    """A design.

    Attributes:
        rows, cols: of C.
        groups: warpgroups that multiply.
        swapped: whether operands are.
        stages: of the ring.
        slots: stages of the epilogue; 0 where threads store C.
        width: elements of C that a thread stores at once, as it does sums of a part of K in any case.
        turns: whether warpgroups store one after the other.
        stays: whether blocks are persistent.
        above, beside: blocks of a cluster.
    """

    rows: int
    cols: int
    groups: int
    swapped: bool
    stages: int
    slots: int
    width: int = 1
    turns: bool = False
    stays: bool = False
    above: int = 1
    beside: int = 1

    @property
    def cluster(self) -> Pair:
        """Rows and columns of blocks."""
        return self.above, self.beside

    @property
    def few(self) -> bool:
        """Whether it is for few rows."""
        return self.swapped and self.rows in FEW_ROWS

    @property
    def tiling(self) -> tuple[Pair, Pair]:
        """Tile of a thread, and threads of a block."""
        if self.swapped:
            return (self.rows // 4, self.cols // (32 * self.groups)), (4, 32 * self.groups)
        return (self.rows // (32 * self.groups), self.cols // 4), (32 * self.groups, 4)

    @property
    def producers(self) -> int:
        """Threads that only fetch."""
        return PRODUCERS if self.groups == 1 else THREADS

    @property
    def band(self) -> int:
        """Of the threadblock swizzle."""
        return band_of(self.few, self.turns)


def band_of(few: _Number, turns: _Number) -> _Number:
    """The band of the threadblock swizzle, of a block or of many."""
    return (8 + 4 * turns) * (1 - few)


def kinds(spec: GemmSpec, target: Target) -> tuple[tuple[Kind, bool], ...]:
    """Each with whether its narrow blocks alone are meant: the first way of packing that is possible, and where that
    packs nothing, the others for short lines; before them what is multiplied from registers.
    """
    if "wgmma" not in target.features or not (spec.dtype in _ATOMS or spec.allow_tf32):
        return ()
    known = [_kind_of(spec, target, way) for way in WAYS]
    least = WIDTHS[0] if spec.gate is None else GATED
    of_each = ((x, next(block for block in _plain(x) if block.cols >= least)) for x in known)
    first = next((x for x, block in of_each if not problems_as_asked(spec, built(x, block), target)), None)
    if first is None:
        return ()
    of_registers = () if first is known[0] else _from_registers(spec, target)
    can = (x for x in of_registers if not problems_as_asked(spec, built(x, next(iter(blocks_of(x)))), target))
    others = ((kind, True) for kind in known[1:] if first is known[0] and not first.grouped)
    # Where groups along K are scaled, the sums of one are, while the next is multiplied.
    lines = ((replace(first, lines=2), False),) if spec.sum_group == LINE // first.size else ()
    return *((x, False) for x in can), (first, False), *lines, *others


def _from_registers(spec: GemmSpec, target: Target) -> Iterator[Kind]:
    """Those where A or B is multiplied from registers: a B that is stored otherwise, or made; and what lies across K,
    of elements that no instruction transposes. A kernel packs the other one if that lies across K, too.
    """
    stored, (a_by_k, b_by_k) = [spec.element(x).bytes_of(2) / 2 for x in "ab"], lie_along_k(spec)
    transposes = spec.dtype not in FLOAT16
    a_is_made, b_is_made = (not as_stored(spec, x) for x in "ab")
    if b_is_made or (transposes and not b_by_k):
        of_b = _kind_of(spec, target, (transposes and not a_by_k, False))
        yield replace(of_b, rs_bytes=(0.0, stored[1]), rs_as_stored=not b_is_made)
    if transposes and not a_by_k and not b_is_made and spec.grouped is None:
        of_a = _kind_of(spec, target, (False, not b_by_k))
        yield replace(of_a, rs_bytes=(stored[0], 0.0), rs_as_stored=not a_is_made)


def _kind_of(spec: GemmSpec, target: Target, packed: Way) -> Kind:
    atom = _ATOMS.get(spec.dtype, "wgmma_tf32")
    # Of 16-bit floats `wgmma` takes tiles by rows and by columns; of others a kernel that packs them transposes them.
    transposes = spec.dtype not in FLOAT16
    of_a, of_b = lie_along_k(spec)
    by_k = of_a or (packed[0] and transposes), of_b or (packed[1] and transposes)
    staged = spec.ld_unit("c") * spec.result.size % VECTOR == 0
    sizes = spec.dtype.size, spec.result.size
    return Kind(atom, *sizes, by_k, packed, staged, spec.grouped, target.local_bytes)


@lru_cache(maxsize=64)
def blocks_of(kind: Kind, narrow: bool = False) -> tuple[Block, ...]:
    """All of a kind.

    Args:
        narrow: whether only those that may be worth packing what TMA could read itself.
    """
    if any(kind.rs_bytes):
        return tuple(_swapped(kind) if kind.rs_bytes[1] else (x for x in _plain(kind) if not x.turns))
    if narrow:
        swapped = () if kind.grouped else (x for x in _swapped(kind, FEW_ROWS) if x.cols in PACKED)
        found = (*(x for x in _plain(kind, PACKED) if not x.stays), *swapped)
    else:
        found = (*_plain(kind), *(() if kind.grouped else _swapped(kind)))
    if kind.grouped == "rows":
        # Of what costs the same, persistent blocks go first, as none is surplus; but not the small ones, which serve
        # many groups of few rows. No warpgroups take turns.
        return tuple(sorted((x for x in found if not x.turns), key=lambda x: (x.count == 1) == x.stays))
    if kind.grouped == "k":
        # Where groups are short along K, stores take most of the time: of whole lines (64 groups of 4096x2048x64 on an
        # H100: 494 us by 256x160, 456 by 256x128).
        found = tuple(x for x in found if x.cols % (LINE // kind.result) == 0)
        # No GPU has timed other clusters of groups.
        return (*found, *_clusters((x for x in found if not x.stays), PAIRS))
    return found if any(kind.packed) else (*found, *_clusters(found, CLUSTERS))


def _plain(kind: Kind, widths: tuple[int, ...] = WIDTHS) -> Iterator[Block]:
    for rows, count in WARPGROUPS:
        for cols in widths:
            if not (kind.multiplies(cols) and kind.has_registers(count, rows * cols // (THREADS * count))):
                continue
            made = Block(rows, cols, count, False, 0, int(kind.staged))
            at_once = (_usual_width(*made.tiling),) if kind.staged else _at_once(made)
            # Columns of C that a stage of the epilogue has, in lines of shared memory.
            slot = rows * line_bytes(min(cols * kind.result, LINE))
            most = kind.most_stages((rows, cols), slot)
            # Of blocks with one warpgroup two find room on a multiprocessor.
            tried = {min(MOST_STAGES, x) for x in (most if count == 1 else most[:1])} | {most[0] - 1}
            least = LEAST_STAGES if kind.lines == 1 else LEAST_STAGES_OF_LINES
            # Of what costs the same the first is taken: more stages, and a store that is hidden.
            for stages in sorted((x for x in tried if least <= x <= MOST_STAGES), reverse=True):
                yield from (Block(*made[:4], stages, made.slots, width) for width in at_once)
                if cols % COARSE or not kind.staged:
                    continue
                (width,) = at_once
                # Groups that take turns read what lies as TMA can read it.
                if (rows, stages) == (128, most[0]) and not any(kind.packed):
                    yield Block(*made[:4], stages, 2, width, True, True)
                yield Block(*made[:4], stages, 1, width, False, True)


def _at_once(of: Block) -> tuple[int, ...]:
    """Elements of C that a thread stores at once: one or four of a line, by way of shared memory, where they can be
    dealt out evenly; or else the pairs that it has.
    """
    threads = THREADS * of.groups
    even = (x for x in (1, 4) if x * threads % of.cols == 0 and of.rows * of.cols % (x * threads) == 0)
    return (*even,) or (2,)


@lru_cache(maxsize=256)
def _usual_width(tile: Pair, group: Pair) -> int:
    return WarpgroupMma.usual_width(Tiling(tile, group))


def _swapped(kind: Kind, of_rows: tuple[int, ...] = (*FEW_ROWS, *MANY_ROWS)) -> Iterator[Block]:
    """C's rows are the instruction's columns, for few rows, and for numbers of rows that leave much of a block of 128
    without work. TMA stores many of them.
    """
    for rows in filter(kind.multiplies, of_rows):
        many = rows in MANY_ROWS
        # TMA stores no pairs of rows that bytes from registers leave apart.
        staged = many and not (kind.rs_bytes[1] and kind.size == 1 < kind.result)
        for count, own in BESIDE:
            if not (kind.has_registers(count, own * rows // 2) and (own == 1 or many)):
                continue
            cols = COLUMNS * count * own
            slot = COLUMNS * count * min(rows, LINE // kind.result) * kind.result if staged else 0
            stages = min(MOST_STAGES, kind.most_stages((rows, cols), slot)[0])
            yield Block(rows, cols, count, True, stages, int(staged and kind.staged))


def _clusters(plain: Iterable[Block], clusters: tuple[Pair, ...]) -> Iterator[Block]:
    """Those whose blocks can share tiles, of each block the one of most stages, which comes first."""
    most: dict[tuple[bool, int, int, bool, bool], Block] = {}
    for each in plain:
        same = each.swapped, each.rows, each.cols, each.stays, each.turns
        if each.rows * each.cols >= CLUSTERED and not each.few:
            most.setdefault(same, each)
    for each in most.values():
        # Persistent ones share the larger tile.
        only = (PAIRS[each.rows <= each.cols],) if each.stays else clusters
        yield from (Block(*each[:-2], *cluster) for cluster in only)


@lru_cache(maxsize=8192)
def built(kind: Kind, block: Block) -> Schedule:
    """The schedule of a block."""
    a, b = _operands(kind)
    loop = WarpgroupMma(
        a=a,
        b=b,
        atom=kind.atom,
        stages=block.stages,
        producer_threads=block.producers,
        setmaxnreg=(0, 0) if block.few else HANDED[block.groups],
        cluster=block.cluster,
    )
    epilogue = Staged(block.slots, block.turns) if block.slots else Registers(block.width)
    scheduler = Persistent(block.band) if block.stays else OneTile(block.band)
    return Schedule(Tiling(*block.tiling, kind.depth), loop, epilogue, scheduler)


@lru_cache(maxsize=64)
def _operands(kind: Kind) -> tuple[Operand, Operand]:
    (of_a, of_b), (a_by_k, b_by_k) = kind.packed, kind.by_k
    memories: tuple[Memory, Memory] = "local", "private"
    in_a, in_b = (memories[each > 0] for each in kind.rs_bytes)
    return (
        Operand(in_a, async_copy=True, prepacked=of_a, transposed=of_a and not a_by_k),
        Operand(in_b, async_copy=True, prepacked=of_b, transposed=of_b and b_by_k),
    )


def table(kind: Kind, blocks: Sequence[Block]) -> Numbers:
    """What the model looks at of blocks, a column of each. All at once: one by one they take ten times as long."""
    numbers = np.fromiter(chain.from_iterable(blocks), np.float64).reshape(len(blocks), -1).T
    rows, cols, groups, swapped, stages, slots, width, turns, stays, *cluster = numbers
    depth, threads, one = kind.depth, THREADS * groups, np.ones(len(blocks))
    block, none, line = np.array((rows, cols)), np.zeros((2, len(blocks))), LINE // kind.size
    return stacked(
        Columns(
            block=block,
            together=np.where(swapped, (rows, WARPGROUP_ROWS * one), (WARPGROUP_ROWS * one, cols)),
            cluster=np.array(cluster),
            packed=none + np.array(kind.packed)[:, None],
            copy=none,
            across=none,
            begins=1 - np.gcd(block.astype(int), line) / line,
            depth=depth * one,
            held=stages * np.dot(kind.stored, block) * depth,
            stages=stages,
            threads=threads,
            producers=np.where(groups == 1, PRODUCERS, THREADS),
            sums=rows * cols / threads,
            fragment_depth=READ_AHEAD * one,
            loads=none[0],
            slices=one,
            min_blocks=none[0],
            unit=WGMMA * one,
            rs_as_stored=kind.rs_as_stored * one,
            fetched=one,
            parts=one,
            joined=one,
            dealt=none[0],
            stays=stays,
            turns=np.where(turns, groups, 1),
            staged=slots,
            width=width,
            band=band_of(swapped * (rows <= FEW_ROWS[-1]), turns),
        )
    )


def divides(of: Designs) -> npt.NDArray[np.bool_]:
    """Whether K can be in parts: not where blocks stay or take turns, nor in clusters, nor where threads spill."""
    found: npt.NDArray[np.bool_] = (of.stays == 0) & (of.cluster.prod(0) == 1) & (of.sums <= MOST_SUMS_OF_PARTS)
    return found
