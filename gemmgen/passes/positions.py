"""Where a work-item stands: in its group, in C and along K."""

from __future__ import annotations

from functools import cached_property

from gemmgen.ir.atoms import Spread
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var, all_of, ceil_div, div, minimum, select
from gemmgen.ir.meetings import RANK
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Body, Let, Stmt
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk_expr
from gemmgen.ir.warp_matrix import LINES, warp_atom
from gemmgen.ir.warpgroup_matrix import warpgroup_atom
from gemmgen.passes import stream
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

LOCAL_INDEX, SLICE = Var("local_index"), Var("slice")
WARP, WARPGROUP = Var("warp"), Var("warpgroup")
#: Where a warpgroup lies among those of its group.
WARPGROUP_ROW, WARPGROUP_COL = Var("warpgroup_row"), Var("warpgroup_col")
#: Where the first of a warp's bands of eight rows and of eight columns begins, where it multiplies as one.
WARP_ROW, WARP_COL = Var("warp_row"), Var("warp_col")
LOCAL_ROW, LOCAL_COL, LANE = Var("local_row"), Var("local_col"), Var("lane")
ROW0, COL0, ROW, COL = Var("row0"), Var("col0"), Var("row"), Var("col")
#: Where a work-item adds up slices.
SUM_ROW, SUM_COL = Var("sum_row"), Var("sum_col")
#: Where its own of those begin in C, along C's lines.
FIRST_ROW, FIRST_COL = Var("first_row"), Var("first_col")
K0, KK, K_MAIN = Var("k0"), Var("kk"), Var("k_main")
#: Of groups that are numbered in one line: how many lie along C's columns and rows, and which of them this is.
DOWN, ACROSS, BLOCK = Var("blocks_down"), Var("blocks_across"), stream.BLOCK
BLOCK_ROW, BLOCK_COL, BAND, IN_BAND = Var("block_row"), Var("block_col"), Var("band_row"), Var("in_band")
#: Of groups that compute one block after the other: how many there are in all, and how many of them are this group's.
BLOCKS, WAVE, WAVES = stream.BLOCKS, Var("wave"), Var("waves")
#: Sizes in whole blocks, as packed matrices have them.
WHOLE = {"m": Var("m_whole"), "n": Var("n_whole"), "k": Var("k_whole")}
#: Which product of a batch it is, how many there are.
BATCH, BATCH_COUNT = Var("batch"), Var("batch_count")
#: A block's number where those of all products stand in one line.
OF_ALL = Var("block_of_all")
#: The part of K that a group sums, and its bounds.
PART, K_PART, K_BEGIN, K_END = Var("part"), Var("k_part"), Var("k_begin"), Var("k_end")


def call(function: str, *args: int) -> Call:
    """A built-in id."""
    return Call(function, tuple(map(Const, args)), I32)


def linear(group: tuple[int, int], row: Expr, col: Expr) -> Expr:
    """The number of a work-item in its group, whose rows follow each other."""
    rows, cols = group
    return (row * cols if rows > 1 else Const(0)) + (col if cols > 1 else Const(0))


def depending(names: Body, on: Var) -> tuple[Body, Body]:
    """Of names, those whose values depend on one of them, itself among them, and the others."""
    known, own = {on}, []
    for stmt in names:
        if isinstance(stmt, Let) and (stmt.var == on or known & {*walk_expr(stmt.value)}):
            known.add(stmt.var)
            own.append(stmt)
    return tuple(own), tuple(stmt for stmt in names if stmt not in own)


class Positions:
    """Sizes and positions of one kernel."""

    def __init__(self, spec: GemmSpec, schedule: Schedule, target: Target) -> None:
        self.spec, self.schedule, self.target = spec, schedule, target
        self.m, self.n, self.k = (
            Var(name) if size is None else Const(size) for name, size in (("m", spec.m), ("n", spec.n), ("k", spec.k))
        )
        #: What a warp multiplies by as one, if it does.
        self.warp_atom = warp_atom(schedule.atom, spec.dtype)
        group_atom = warpgroup_atom(schedule.atom, spec.dtype)
        #: What multiplies heads and rests that a kernel before makes of elements, if something does.
        self.in_terms = group_atom if group_atom is not None and group_atom.terms > 1 else None
        self.uses_sub_group = schedule.sub_group is not None
        #: Whether groups are numbered in one line, not in two.
        alone = (schedule.raster, schedule.split - 1, schedule.persistent, schedule.stream, self.clustered - 1)
        self.in_line = any(alone)

    @property
    def batch_in_line(self) -> bool:
        """Whether the blocks of all products of a batch stand in one line, as groups that stay go through them."""
        return self.spec.batched and self.schedule.persistent

    @property
    def layers(self) -> Var | None:
        """How many grids there are: a product's each, of a batch."""
        return BATCH_COUNT if self.spec.batched and not self.batch_in_line else None

    @property
    def clustered(self) -> int:
        """Groups of a cluster."""
        return self.schedule.cluster[0] * self.schedule.cluster[1] * self.schedule.joined

    # --- along K ----------------------------------------------------------------------------------

    @cached_property
    def exact_k(self) -> bool:
        """Whether K is known to be a multiple of a round's depth."""
        known = self.spec.k if self.spec.k is not None else self.spec.multiple_of[2]
        return self.all_packed or known % self.schedule.round_depth == 0

    @property
    def k_start(self) -> Expr:
        """Where the main loop begins."""
        return K_BEGIN if self.in_parts else Const(0)

    @property
    def k_end(self) -> Expr:
        """Where the sum ends."""
        return K_END if self.in_parts else self.k_extent

    @property
    def in_parts(self) -> bool:
        """Whether a group sums a part of K at a time."""
        return self.schedule.split > 1 or self.schedule.stream

    @cached_property
    def k_stop(self) -> Expr:
        """Where the main loop ends: with the sum, or with the last whole step where the rest is another matter."""
        if self.inside:
            return K_MAIN
        if self.exact_k or self.schedule.asynchronous:
            return self.k_end
        if self.spec.k is None or self.schedule.split > 1:
            return K_MAIN
        return Const(self.spec.k - self.spec.k % self.schedule.k_step)

    @property
    def packed(self) -> tuple[str, ...]:
        """The operands that a kernel before this one packs."""
        operands = (("a", self.schedule.a), ("b", self.schedule.b))
        return tuple(name for name, operand in operands if operand.packed)

    @property
    def all_packed(self) -> bool:
        """Whether nothing is read that lies past K without being zero."""
        return len(self.packed) == 2

    @property
    def k_extent(self) -> Expr:
        """Where the main loop may go."""
        return self.named_whole("k") if self.all_packed else self.k

    @cached_property
    def units(self) -> dict[str, int]:
        """Extents of a block of C, and of a round along K."""
        return dict(zip("mnk", (*self.schedule.block_tile, self.schedule.round_depth), strict=True))

    def whole(self, axis: str) -> Expr:
        """A size in whole blocks, or rounds of K."""
        size, unit = {"m": self.m, "n": self.n, "k": self.k}[axis], self.units[axis]
        promised = dict(zip("mnk", self.spec.multiple_of, strict=True))[axis]
        return size if promised % unit == 0 else ceil_div(size, unit) * unit

    def named_whole(self, axis: str) -> Expr:
        """The same by its name, if it needs one."""
        size = self.whole(axis)
        return size if isinstance(size, Var | Const) else WHOLE[axis]

    def wholes(self) -> Body:
        """Names for those."""
        axes = {"a": "m", "b": "n"}
        named = [*(axes[name] for name in self.packed), *("k" for _ in self.packed[:1])]
        return tuple(Let(WHOLE[x], self.whole(x)) for x in named if self.named_whole(x) == WHOLE[x])

    @cached_property
    def inside(self) -> tuple[Expr, ...]:
        """What block reads from buffers need of a group's block of C, where it is not known. At the edge there are no
        whole steps then, all is rest: a branch around the main loop makes its messages dearer on some chips.
        """
        s, axes = self.schedule, []
        by_blocks = "block_read" in self.target.features and s.by_blocks and s.b.memory == "global"
        if not by_blocks or s.k_step == s.sub_group:
            return ()
        for axis, origin in ((0, ROW0), (1, COL0)):
            size, block = (self.m, self.n)[axis], s.block_tile[axis]
            known = (self.spec.m, self.spec.n)[axis] or self.spec.multiple_of[axis]
            # What is packed has whole blocks.
            reads_block = axis == 1 or self.spec.a_order == "col"
            if reads_block and "ab"[axis] not in self.packed and known % block:
                axes.append(origin + block <= size)
        return tuple(axes)

    def _along_k(self) -> Body:
        lets: list[Stmt] = []
        if self.schedule.split > 1:
            depth = self.schedule.round_depth
            number: Expr = PART if self.schedule.planes > 1 else Const(0)
            end: Expr = minimum(self.k_extent, K_BEGIN + K_PART)
            if self.schedule.joined > 1:
                # Groups of a cluster go equally far, past K for zeros.
                number, end = number * self.schedule.joined + RANK, K_BEGIN + K_PART
            lets = [
                Let(K_PART, ceil_div(self.k, self.schedule.split * depth) * depth),
                Let(K_BEGIN, number * K_PART),
                Let(K_END, end),
            ]
        if self.schedule.stream:
            depth = self.schedule.round_depth
            lets = [
                Let(K_BEGIN, stream.BEGIN * depth),
                Let(K_END, minimum(self.k_extent, stream.END * depth)),
            ]
        if self.k_stop == K_MAIN:
            whole = self.k if self.exact_k else self.k - self.k % self.schedule.k_step
            whole = minimum(whole, K_END) if lets else whole
            lets.append(Let(K_MAIN, select(all_of(self.inside), whole, self.k_start)))
        return tuple(lets)

    # --- in C -------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> Spread:
        """The accumulators' rows: over the work-items of a group's column."""
        return Spread(self.schedule.tile[0], self.schedule.group[0], self.schedule.run[0], LOCAL_ROW)

    @cached_property
    def cols(self) -> Spread:
        """The accumulators' columns: over the lanes of a sub-group or the work-items of a group's row."""
        lane = LANE if self.uses_sub_group else LOCAL_COL
        return Spread(self.schedule.tile[1], self.schedule.group[1], self.schedule.run[1], lane)

    @cached_property
    def _block(self) -> tuple[Expr, Expr]:
        """Which block of C a group computes, counted along its rows and its columns."""
        if not self.in_line:
            return call("group_id", 1), call("group_id", 0)
        high, wide = self.schedule.cluster
        return BLOCK_ROW * high + (RANK if high > 1 else 0), BLOCK_COL * wide + (RANK if wide > 1 else 0)

    @cached_property
    def _unit(self) -> tuple[int, int]:
        """Rows and columns of C of a group, or of all groups of a cluster."""
        rows, cols = (a * b for a, b in zip(self.schedule.block_tile, self.schedule.cluster, strict=True))
        return rows, cols

    def grid(self) -> tuple[Expr, Expr]:
        """Groups along rows and columns."""
        down, across = (ceil_div(size, block) for size, block in zip((self.m, self.n), self._unit, strict=True))
        if self.schedule.stream:
            return Const(1), GROUPS
        each = Const(self.schedule.planes * self.clustered)
        across = across * BATCH_COUNT if self.batch_in_line else across
        return (Const(1), down * across * each) if self.in_line else (down, across)

    def dealing(self, blocks: Expr) -> Body:
        """What is dealt out to groups that have parts of blocks."""
        return stream.dealing(blocks, self.k, self.schedule.round_depth)

    def _in_line(self) -> Body:
        """The block of a group by its number: all blocks of a part, then the next part's.

        With a raster of R, blocks of R rows are walked column by column, so that those that run together share rows
        of A and columns of B in the cache.
        """
        rows, cols = self._unit
        sizes: Body = (Let(DOWN, ceil_div(self.m, rows)), Let(ACROSS, ceil_div(self.n, cols)))
        number: Expr = call("group_id", 0)
        count: Expr = call("group_count", 0)
        if self.clustered > 1:
            sizes = (Let(RANK, number % self.clustered), *sizes)
            number, count = number // self.clustered, count // self.clustered
        if self.schedule.persistent:
            waves = div(BLOCKS - number + count - 1, count)
            blocks = DOWN * ACROSS * (BATCH_COUNT if self.batch_in_line else 1)
            sizes = (*sizes, Let(BLOCKS, blocks), Let(WAVES, waves))
            number = WAVE * count + number
        block: Body = (Let(BLOCK, number),)
        if self.schedule.stream:
            sizes = (*sizes, Let(GROUPS, count), *self.dealing(DOWN * ACROSS))
            block = stream.segments(number)
        if self.schedule.planes > 1:
            block = Let(PART, number // (DOWN * ACROSS)), Let(BLOCK, number % (DOWN * ACROSS))
        if self.batch_in_line:
            place = Let(OF_ALL, number)
            block = place, Let(BATCH, OF_ALL // (DOWN * ACROSS)), Let(BLOCK, OF_ALL % (DOWN * ACROSS))
        return (*sizes, *block, *self._walk())

    def walk(self) -> Body:
        """Where a block begins, by its number."""
        (rows, cols), (row, col) = self.schedule.block_tile, self._block
        return (*self._walk(), Let(ROW0, row * rows), Let(COL0, col * cols))

    def _walk(self) -> Body:
        """Row and column of a block by its number."""
        raster = self.schedule.raster
        if not raster:
            return (Let(BLOCK_ROW, BLOCK // ACROSS), Let(BLOCK_COL, BLOCK % ACROSS))
        height = minimum(Const(raster), DOWN - BAND)
        return (
            Let(BAND, BLOCK // (ACROSS * raster) * raster),
            Let(IN_BAND, BLOCK % (ACROSS * raster)),
            Let(BLOCK_ROW, BAND + IN_BAND % height),
            Let(BLOCK_COL, IN_BAND // height),
        )

    def positions(self) -> Body:
        """Where this work-item stands; names that nothing uses are dropped by `simplify`."""
        (block_rows, block_cols), (row, col) = self.schedule.block_tile, self._block
        lets: list[Stmt] = [
            *((Let(BATCH, call("group_id", 2)),) if self.layers is not None else ()),
            *self._work_item(),
            *((Let(LANE, call("lane_id")),) if self.uses_sub_group else ()),
            *(self._in_line() if self.in_line else ()),
            Let(ROW0, row * block_rows),
            Let(COL0, col * block_cols),
        ]
        for var, origin, spread in ((ROW, ROW0, self.rows), (COL, COL0, self.cols)):
            if spread.lanes > 1:
                lets.append(Let(var, origin + spread.start))
        lets += [*self.wholes(), *self._along_k()]
        if self.schedule.warp is None:
            lets.append(Let(LOCAL_INDEX, self._number()))
        return tuple(lets)

    def _number(self) -> Expr:
        """Which work-item of its group this is, by the launch's own coordinates where slices share local rows."""
        own = (call("local_id", 1), call("local_id", 0))
        plain = self.schedule.warp is None and self.schedule.slices == 1
        return linear(self.schedule.all_work_items, *((LOCAL_ROW, LOCAL_COL) if plain else own))

    def _work_item(self) -> Body:
        """Row and column of the work-item in its group: as it is numbered, or by where its warp's lanes lie."""
        s = self.schedule
        high, wide = s.group
        if s.warp is None:
            number = call("local_id", 1)
            slices = (Let(SLICE, number // high), Let(LOCAL_ROW, number % high))
            return (*(slices if s.slices > 1 else (Let(LOCAL_ROW, number),)), Let(LOCAL_COL, call("local_id", 0)))
        rows, cols = s.warp
        across = wide // cols
        own = LOCAL_INDEX % (high * wide) if s.slices > 1 else LOCAL_INDEX
        lane_row = LANE // cols
        if s.stagger:
            lane_row = LANE // (2 * cols) * 2 + (LANE // cols + LANE // 2 + LANE) % 2
        return (
            Let(LOCAL_INDEX, self._number()),
            *((Let(SLICE, LOCAL_INDEX // (high * wide)),) if s.slices > 1 else ()),
            Let(WARP, own // (rows * cols)),
            Let(LANE, LOCAL_INDEX % (rows * cols)),
            *self._bands(WARP // across, WARP % across),
            Let(LOCAL_ROW, WARP // across * rows + lane_row),
            Let(LOCAL_COL, WARP % across * cols + LANE % cols),
        )

    def _bands(self, row: Expr, col: Expr) -> Body:
        """Where the bands of a warp begin that multiplies as one."""
        return () if self.warp_atom is None else (Let(WARP_ROW, row * LINES), Let(WARP_COL, col * LINES))

    def facts(self) -> tuple[Expr, ...]:
        """What divisibility promises: the last group's tile ends inside the matrix."""
        facts: list[Expr] = [Const(self.schedule.planes - 1) - PART] if self.schedule.planes > 1 else []
        facts += [GROUPS * 2 - 1 - stream.SHARE] if self.schedule.stream else []
        for axis, group in enumerate((BLOCK_ROW, BLOCK_COL) if self.clustered > 1 else self._block):
            size = (self.m, self.n)[axis]
            known = (self.spec.m, self.spec.n)[axis]
            block = self._unit[axis]
            if (known if known is not None else self.spec.multiple_of[axis]) % block == 0:
                facts.append(size - group * block - block)
            if ("a", "b")[axis] in self.packed:
                facts.append(self.named_whole("mn"[axis]) - group * block - block)
        if self.packed:
            facts.append(self.named_whole("k") - self.k)
        return tuple(facts)
