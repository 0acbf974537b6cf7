"""Where a thread stands: in its block, in C and along K; and which elements of a block of C it holds."""

from __future__ import annotations

from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var
from gemmgen.ir.instructions import WARPGROUP_LANES
from gemmgen.ir.stmt import Body, Comment, Let, Stmt
from gemmgen.ir.walk import walk_expr
from gemmgen.records import dataclass
from gemmgen.schedule import Pair, Schedule

LOCAL_INDEX, SLICE = Var("local_index"), Var("slice")
#: Which of the threads that share elements of C this is.
LANE_K = Var("lane_k")
WARP, WARPGROUP = Var("warp"), Var("warpgroup")
#: Where a warpgroup lies among those of its block.
WARPGROUP_ROW, WARPGROUP_COL = Var("warpgroup_row"), Var("warpgroup_col")
#: Where the first of a warp's bands of rows and of columns begins, with warp matrix instructions.
WARP_ROW, WARP_COL = Var("warp_row"), Var("warp_col")
LOCAL_ROW, LOCAL_COL, LANE = Var("local_row"), Var("local_col"), Var("lane")
ROW0, COL0, ROW, COL = Var("row0"), Var("col0"), Var("row"), Var("col")
#: Where a thread's part begins of the sums that go through shared memory.
SUM_ROW, SUM_COL = Var("sum_row"), Var("sum_col")
#: Where that part begins in C, along C's lines.
FIRST_ROW, FIRST_COL = Var("first_row"), Var("first_col")
K0, KK, K_MAIN = Var("k0"), Var("kk"), Var("k_main")
#: The stage of a ring that is read, and the one that is filled: with the step of K that begins there.
STAGE, LOAD_STAGE, K_LOAD = Var("stage"), Var("load_stage"), Var("k_load")
#: Blocks numbered in one line: how many lie along C's columns and rows, and which of them this is.
DOWN, ACROSS, BLOCK = Var("blocks_down"), Var("blocks_across"), Var("block")
BLOCK_ROW, BLOCK_COL, BAND, IN_BAND = Var("block_row"), Var("block_col"), Var("band_row"), Var("in_band")
#: Tile scheduler loop: blocks in all, the iteration, and how many iterations this group has.
BLOCKS, WAVE, WAVES = Var("blocks"), Var("wave"), Var("waves")
#: Sizes in whole blocks, as prepacked matrices have them.
WHOLE = {"m": Var("m_whole"), "n": Var("n_whole"), "k": Var("k_whole")}
#: Which product of a batch it is, how many there are.
BATCH, BATCH_COUNT = Var("batch"), Var("batch_count")
#: Grouped products: which group it is, and where it begins.
GROUP, GROUP_BEGIN = Var("group"), Var("group_begin")
#: A block's number where the blocks of all products of a batch stand in one line.
OF_ALL = Var("block_of_all")
#: The part of K that a group sums (split-K, stream-K), and its bounds.
PART, K_PART, K_BEGIN, K_END = Var("part"), Var("k_part"), Var("k_begin"), Var("k_end")

#: Threads of a warpgroup above one another, and beside one another.
_WARPGROUP_HIGH, _WARPGROUP_WIDE = WARPGROUP_LANES // 4, 4


def call(function: str, *args: int) -> Call:
    """A built-in id."""
    return Call(function, tuple(map(Const, args)), I32)


def linear(group: tuple[int, int], row: Expr, col: Expr) -> Expr:
    """The number of a thread in its group, whose rows follow each other."""
    rows, cols = group
    return (row * cols if rows > 1 else Const(0)) + (col if cols > 1 else Const(0))


def depending(names: Body, on: Var) -> tuple[Body, Body]:
    """Of names, those whose values depend on one of them, itself among them, and the others. A comment goes with the
    name under it.
    """
    known: set[Expr] = {on}
    own: list[Stmt] = []
    others: list[Stmt] = []
    said: list[Stmt] = []
    for stmt in names:
        if isinstance(stmt, Comment):
            said.append(stmt)
            continue
        depends = isinstance(stmt, Let) and (stmt.var == on or not known.isdisjoint(walk_expr(stmt.value)))
        if depends and isinstance(stmt, Let):
            known.add(stmt.var)
        (own if depends else others).extend([*said, stmt])
        said.clear()
    return tuple(own), tuple(others)


@dataclass(frozen=True)
class ThreadLayout:
    """Which rows and columns of a block each thread holds, and where a thread stands in its block.

    Attributes:
        rows, cols: the thread-value layout of the accumulators, one axis each.
        bands: rows and columns of a warp's bands, where it multiplies by matrix instructions.
        lanes_down: whether lanes follow one another down a column, not along a row; of a slice that is one warp.
    """

    schedule: Schedule
    rows: AxisLayout
    cols: AxisLayout
    bands: Pair | None = None
    lanes_down: bool = False

    @staticmethod
    def of(schedule: Schedule, bands: Pair | None = None) -> ThreadLayout:
        """Rows over the threads of a column; columns over the lanes of a sub-group or the threads of a row."""
        (rows, cols), (high, wide), (down, across) = schedule.tile, schedule.group, schedule.thread_vector
        lane = LANE if schedule.sub_group is not None else LOCAL_COL
        return ThreadLayout(
            schedule, AxisLayout(rows, high, down, LOCAL_ROW), AxisLayout(cols, wide, across, lane), bands
        )

    @staticmethod
    def of_warpgroups(schedule: Schedule, paired: bool) -> ThreadLayout:
        """As warpgroup instructions have it: 64 rows of a warpgroup together, a lane's two eight apart or, where they
        are `paired`, side by side; columns in pairs, those of a warpgroup together.
        """
        (rows, cols), (high, wide) = schedule.tile, schedule.group
        down = (
            AxisLayout(rows, high, 2, LOCAL_ROW)
            if paired
            else AxisLayout(rows, high, 1, LOCAL_ROW, repeats=2, inner_lanes=8)
        )
        alone = schedule.warpgroups[1] == 1
        across = AxisLayout(cols, wide, 2, LOCAL_COL)
        return ThreadLayout(
            schedule, down, across if alone else AxisLayout(cols, wide, 2, LOCAL_COL, repeats=cols // 2, inner_lanes=4)
        )

    @property
    def _warpgroups_across(self) -> int:
        return self.schedule.warpgroups[1] if self.schedule.by_warpgroups else 1

    def position(self) -> Body:
        """Row and column of a thread in its group: as the launch numbers threads, or by the lane arrangement."""
        s = self.schedule
        if self._warpgroups_across > 1:
            return self._beside_others(self._warpgroups_across)
        if s.lane_arrangement is not None:
            return self._in_warps(*s.lane_arrangement)
        number, high = call("local_id", 1), s.group[0]
        slices = (Let(SLICE, number // high), Let(LOCAL_ROW, number % high))
        rows = slices if s.sliced_k > 1 else (Let(LOCAL_ROW, number),)
        if s.lanes_along_k == 1:
            return (*rows, Let(LOCAL_COL, call("local_id", 0)))
        line, lanes = call("local_id", 0), s.lanes_along_k
        if s.group[1] == 1:
            return (*rows, Let(LANE_K, line), Let(LOCAL_COL, Const(0)))
        return (*rows, Let(LANE_K, line % lanes), Let(LOCAL_COL, line // lanes))

    def number(self) -> Expr:
        """Which thread of its group this is, by the launch's own coordinates where slices share local rows."""
        own = (call("local_id", 1), call("local_id", 0))
        s = self.schedule
        shared = s.sliced_k > 1 or s.lanes_along_k > 1 or self._warpgroups_across > 1
        plain = s.lane_arrangement is None and not shared
        return linear(self.schedule.all_work_items, *((LOCAL_ROW, LOCAL_COL) if plain else own))

    def origin(self) -> Body:
        """Where a thread's own rows and columns begin in C."""
        lets = ((ROW, ROW0, self.rows), (COL, COL0, self.cols))
        return tuple(Let(var, origin + spread.start) for var, origin, spread in lets if spread.lanes > 1)

    def warpgroup(self) -> Body:
        """Which warpgroup a thread is of. By a shuffle, since all of a warp agree on what one lane says: descriptors of
        tiles are then worked out once for all lanes.
        """
        across = self._warpgroups_across
        line = LOCAL_ROW if across == 1 else call("local_id", 1)
        number = Let(WARPGROUP, Call("broadcast", (line // _WARPGROUP_HIGH, Const(0)), I32))
        if across == 1:
            return (number,)
        return (number, Let(WARPGROUP_ROW, WARPGROUP // across), Let(WARPGROUP_COL, WARPGROUP % across))

    def _beside_others(self, across: int) -> Body:
        """Warpgroups follow one another in the launch, however they lie."""
        line = call("local_id", 1)
        row = line // (_WARPGROUP_HIGH * across) * _WARPGROUP_HIGH + line % _WARPGROUP_HIGH
        col = line // _WARPGROUP_HIGH % across * _WARPGROUP_WIDE + call("local_id", 0)
        return (Let(LOCAL_ROW, row), Let(LOCAL_COL, col))

    def _in_warps(self, rows: int, cols: int) -> Body:
        """The lane arrangement: a warp's lanes in `rows` x `cols`, every other row swizzled if `lane_swizzle`."""
        s = self.schedule
        high, wide = s.group
        across = wide // cols
        own = LOCAL_INDEX % (high * wide) if s.sliced_k > 1 else LOCAL_INDEX
        lane_row = LANE // cols
        if s.lane_swizzle:
            pair = LANE // (2 * cols) * 2 if rows > 2 else Const(0)
            lane_row = pair + (LANE // cols + LANE // 2 + LANE) % 2
        if self.lanes_down:
            return (
                Let(LOCAL_INDEX, self.number()),
                *((Let(SLICE, LOCAL_INDEX // (high * wide)),) if s.sliced_k > 1 else ()),
                Let(LANE, LOCAL_INDEX % (rows * cols)),
                Let(LOCAL_ROW, LANE % rows),
                Let(LOCAL_COL, LANE // rows),
            )
        row, col = WARP // across, WARP % across
        down, on = self.bands or (0, 0)
        return (
            Let(LOCAL_INDEX, self.number()),
            *((Let(SLICE, LOCAL_INDEX // (high * wide)),) if s.sliced_k > 1 else ()),
            Let(WARP, own // (rows * cols)),
            Let(LANE, LOCAL_INDEX % (rows * cols)),
            *((Let(WARP_ROW, row * down), Let(WARP_COL, col * on)) if self.bands else ()),
            Let(LOCAL_ROW, row * rows + lane_row),
            Let(LOCAL_COL, col * cols + LANE % cols),
        )


def position_in_c(own: Var, origin: Var, spread: AxisLayout) -> Expr:
    """Where a thread's rows or columns begin: by a name of their own where it shares the axis with others."""
    return own if spread.lanes > 1 else origin
