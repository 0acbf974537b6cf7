"""Tile schedulers: which blocks of C a group computes, over which part of K, and the kernels that finish the sums.

- One tile: each group computes one block, in the launch's own grid or numbered in one line (threadblock swizzle).
- Persistent: as many groups as a device runs at once, each of which computes one block after the other.
- Split-K: each block's K in parts; a second kernel adds up the partial sums, or a cluster does, or atomic additions to
  C, which begins as beta * C.
- Stream-K: as many groups as a device runs at once. As long as there are blocks for all groups, each computes whole
  ones. Of those that are left, between one and two for each, all batches of K stand in one line, block after block, and
  every group has an equal piece of it: a part of a block, perhaps a whole one, and a part of another. Groups so end
  together, however many blocks there are. The fix-up adds up the parts, always in the same order.
"""

from __future__ import annotations

from gemmgen import epilogues, groups
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import BOOL, I32
from gemmgen.ir.expr import (
    Bin,
    Call,
    Const,
    Expr,
    Load,
    Var,
    all_of,
    as_int,
    both,
    ceil_div,
    compare,
    convert,
    div,
    is_const,
    minimum,
    number,
    select,
)
from gemmgen.ir.kernel import Kernel, arguments
from gemmgen.ir.operands import PART_BYTES
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, Fill, For, If, Let, Reduction, Registers, Store, Tile
from gemmgen.ir.synchronization import RANK
from gemmgen.positions import (
    ACROSS,
    BAND,
    BATCH,
    BATCH_COUNT,
    BLOCK,
    BLOCK_COL,
    BLOCK_ROW,
    BLOCKS,
    COL,
    COL0,
    DOWN,
    IN_BAND,
    K_BEGIN,
    K_END,
    K_PART,
    LANE,
    LOCAL_COL,
    LOCAL_INDEX,
    LOCAL_ROW,
    OF_ALL,
    PART,
    ROW,
    ROW0,
    WAVE,
    WAVES,
    ThreadLayout,
    call,
    depending,
)
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule import Schedule

#: Batches of K of each block.
BATCHES = Var("batches")
#: The first blocks, which groups compute whole; batches of all others, which are dealt out.
WHOLES, DEALT = Var("whole_blocks"), Var("dealt")
#: Which group this is, how many whole blocks it has, and where its piece of the line begins and ends.
GROUP, OWN, FIRST, LAST = Var("group"), Var("own"), Var("first_batch"), Var("last_batch")
#: What a group does one after the other: which of those it is, its batches of its block, and those done before it.
SEGMENT, SEGMENTS = Var("segment"), Var("segments")
BEGIN, END, BEFORE = Var("batch_begin"), Var("batch_end"), Var("before")
#: Where its sum of a part of a block goes: it has a place for what it begins with, whose block another has begun, and
#: one for what it ends with.
SHARE = Var("share")
#: The groups that have the first batch of a block and its last one.
FIRST_GROUP, LAST_GROUP = Var("first_group"), Var("last_group")

#: Of persistent work-groups that go through groups of rows: their first block in a group, and what keeps it.
FIRST_BLOCK = Var("first_block")
_NEXT = Buffer("next_block", I32, Space.PRIVATE, Layout.packed(), places=True)

#: Threads of a group that finishes sums, side by side along a row; fewer where each has many parts to add up, so that
#: more of a device is at it: where K is split so often, C is small.
THREADS, FEW_THREADS, MANY_PARTS = 256, 32, 32


@dataclass(frozen=True)
class Scheduler:
    """That of one kernel: its grid, where a group's block begins, and the bounds of its part of K."""

    problem: Problem

    @property
    def _schedule(self) -> Schedule:
        return self.problem.schedule

    @property
    def clustered(self) -> int:
        """Groups of a cluster."""
        s = self._schedule
        return s.cluster[0] * s.cluster[1] * s.cluster_reduction

    @cached_property
    def in_line(self) -> bool:
        """Whether groups are numbered in one line, not in two."""
        s = self._schedule
        return any((s.threadblock_swizzle, s.split_k - 1, s.persistent, s.stream_k, self.clustered - 1))

    @property
    def batch_in_line(self) -> bool:
        """Whether the blocks of all products of a batch stand in one line, as persistent groups go through them."""
        return bool(self.problem.layers) and self._schedule.persistent

    @property
    def layers(self) -> Var | None:
        """How many grids there are: a product's each, of a batch."""
        return None if self.batch_in_line else self.problem.layers

    # --- along K ----------------------------------------------------------------------------------

    @property
    def in_parts(self) -> bool:
        """Whether a group sums a part of K at a time."""
        return self._schedule.split_k > 1 or self._schedule.stream_k

    @property
    def k_start(self) -> Expr:
        """Where a group's sum begins."""
        return K_BEGIN if self.in_parts else Const(0)

    @property
    def k_end(self) -> Expr:
        """Where it ends."""
        return K_END if self.in_parts else self.problem.k_extent

    @property
    def by_groups(self) -> bool:
        """Whether persistent work-groups go through the groups of rows, and through the blocks of each."""
        return self.problem.spec.grouped == "rows" and self._schedule.persistent

    @property
    def _goes_past_k(self) -> bool:
        """Whether groups of a cluster go equally far, past K for the zeros that asynchronous copies fill in."""
        return self._schedule.cluster_reduction > 1 and (self._schedule.by_warpgroups or self._schedule.asynchronous)

    @property
    def copied_until(self) -> Expr | None:
        """Where K ends, if a group's part may go on."""
        return self.problem.k_extent if self._goes_past_k else None

    def _part_of_k(self) -> Body:
        """Names for the bounds of a group's part."""
        s, extent, depth = self._schedule, self.problem.k_extent, self._schedule.round_depth
        if s.stream_k:
            last = self.problem.end_unless_zero(K_BEGIN, minimum(extent, END * depth))
            return Let(K_BEGIN, BEGIN * depth), Let(K_END, last)
        if s.split_k == 1:
            return ()
        part: Expr = PART if s.partial_sums > 1 else Const(0)
        end: Expr = minimum(extent, K_BEGIN + K_PART)
        if s.cluster_reduction > 1:
            part = part * s.cluster_reduction + RANK
            end = K_BEGIN + K_PART if self._goes_past_k else end
        each = ceil_div(self.problem.k, s.split_k * depth) * depth
        return Let(K_PART, each), Let(K_BEGIN, part * K_PART), Let(K_END, end)

    # --- in C -------------------------------------------------------------------------------------

    @cached_property
    def _block(self) -> tuple[Expr, Expr]:
        """Which block of C a group computes, counted along its rows and its columns."""
        if not self.in_line:
            return call("group_id", 1), call("group_id", 0)
        high, wide = self._schedule.cluster
        return BLOCK_ROW * high + (RANK if high > 1 else 0), BLOCK_COL * wide + (RANK if wide > 1 else 0)

    @cached_property
    def _unit(self) -> tuple[int, int]:
        """Rows and columns of C of a group, or of all groups of a cluster."""
        (rows, cols), (high, wide) = self.problem.c_tile, self._schedule.cluster
        return rows * high, cols * wide

    @property
    def _down(self) -> Expr:
        """Blocks along C's rows; of groups of rows as many as there can be."""
        rows = self._unit[0]
        return groups.most_blocks(rows) if self.problem.spec.grouped == "rows" else ceil_div(self.problem.m, rows)

    def grid(self) -> tuple[Expr, Expr]:
        """Groups along rows and columns."""
        problem = self.problem
        down, across = self._down, ceil_div(problem.n, self._unit[1])
        if self._schedule.stream_k:
            return Const(1), GROUPS
        each = Const(self._schedule.partial_sums * self.clustered)
        across = across * problem.products if self.batch_in_line else across
        return (Const(1), down * across * each) if self.in_line else (down, across)

    def _numbered(self) -> Body:
        """The block of a group by its number: all blocks of a part, then the next part's."""
        problem, (rows, cols) = self.problem, self._unit
        if self.by_groups:
            down = Let(DOWN, ceil_div(_at_least(0, problem.m), rows))
            of_group = (*groups.share_of_rows(), down, Let(BLOCKS, DOWN * ACROSS))
            in_group = Let(BLOCK, FIRST_BLOCK + WAVE * call("group_count", 0))
            return (Let(ACROSS, ceil_div(problem.n, cols)), *of_group, in_group, *self._swizzled())
        sizes: Body = (Let(DOWN, self._down), Let(ACROSS, ceil_div(problem.n, cols)))
        number: Expr = call("group_id", 0)
        count: Expr = call("group_count", 0)
        if self.clustered > 1:
            sizes = (Let(RANK, number % self.clustered), *sizes)
            number, count = number // self.clustered, count // self.clustered
        if self._schedule.persistent:
            waves = div(BLOCKS - number + count - 1, count)
            blocks = DOWN * ACROSS * (problem.products if self.batch_in_line else 1)
            sizes = (*sizes, Let(BLOCKS, blocks), Let(WAVES, waves))
            number = WAVE * count + number
        block: Body = (Let(BLOCK, number),)
        if self._schedule.stream_k:
            dealt = _dealing(DOWN * ACROSS, problem.k, self._schedule.round_depth)
            sizes = (*sizes, Let(GROUPS, count), *dealt)
            block = _segments(number)
        if self._schedule.partial_sums > 1:
            block = Let(PART, number // (DOWN * ACROSS)), Let(BLOCK, number % (DOWN * ACROSS))
        if self.batch_in_line:
            place = Let(OF_ALL, number)
            block = place, *self._product(OF_ALL // (DOWN * ACROSS)), Let(BLOCK, OF_ALL % (DOWN * ACROSS))
        return (*sizes, *block, *self._swizzled())

    def _swizzled(self) -> Body:
        """Row and column of a block by its number. With a threadblock swizzle of R, blocks of R rows are walked column
        by column, so that those that run together share rows of A and columns of B in the cache.
        """
        raster = self._schedule.threadblock_swizzle
        if not raster:
            return (Let(BLOCK_ROW, BLOCK // ACROSS), Let(BLOCK_COL, BLOCK % ACROSS))
        height = minimum(Const(raster), DOWN - BAND)
        return (
            Let(BAND, BLOCK // (ACROSS * raster) * raster),
            Let(IN_BAND, BLOCK % (ACROSS * raster)),
            Let(BLOCK_ROW, BAND + IN_BAND % height),
            Let(BLOCK_COL, IN_BAND // height),
        )

    def origin(self) -> Body:
        """Where a block begins in C."""
        (rows, cols), (row, col) = self.problem.c_tile, self._block
        by_search = self.problem.spec.grouped == "rows" and not self.by_groups
        down = () if by_search else (Let(ROW0, self._begin(0, row * rows)),)
        across = Let(COL0, self._begin(1, col * cols))
        return *(groups.group_of(row, rows) if by_search else ()), *self._why_earlier(), *down, across

    @property
    def _earlier(self) -> Expr:
        """Whether the last blocks begin earlier: where they read nothing of C."""
        reads_none = compare("==", self.problem.beta, number(0, self.problem.sums))
        none = self._schedule.partial_sums > 1 or not any(self.problem.overlapping)
        return Const(int(any(self.problem.overlapping)), BOOL) if none else reads_none

    def _why_earlier(self) -> Body:
        if is_const(self._earlier, 0):
            return ()
        where = "The last" if is_const(self._earlier) else "Where C is not read, the last"
        return (Comment(f"{where} block begins earlier, to end where C does: TMA is slow outside of matrices."),)

    def _begin(self, axis: int, begin: Expr) -> Expr:
        """Where a block begins along C's rows or columns. Along C's lines that is always on a multiple of what is
        stored at once.
        """
        problem, spec = self.problem, self.problem.spec
        if not problem.overlapping[axis]:
            return begin
        operand, line_of_c = problem.source("ab"[axis]), int(spec.c_order == "row")
        sizes = [operand.dtype.size] if operand.contracted == 0 else []
        sizes += [spec.result.size] if axis == line_of_c else []
        unit = PART_BYTES // min([PART_BYTES, *sizes])
        size = (problem.m, problem.n)[axis]
        last = ceil_div(size - minimum(size, Const(problem.c_tile[axis])), unit) * unit
        return select(self._earlier, minimum(begin, last), begin)

    def origin_by_number(self) -> Body:
        """The same, by its number."""
        return (*self._swizzled(), *self.origin())

    def product(self) -> Body:
        """Which product of several a grid is, and of a group its share of K."""
        return () if self.layers is None else self._product(call("group_id", 2))

    def _product(self, number: Expr) -> Body:
        return groups.share_of_k(number) if self.problem.spec.grouped else (Let(BATCH, number),)

    def positions(self, threads: ThreadLayout, k_main: Body = ()) -> Body:
        """Where a thread stands, names that nothing uses being dropped by `simplify`; `k_main` names where the main
        loop ends, if that is not with the sum.
        """
        s = self._schedule
        return (
            *self.product(),
            *threads.position(),
            *((Let(LANE, call("lane_id")),) if s.sub_group is not None else ()),
            *(self._numbered() if self.in_line else ()),
            *self.origin(),
            *threads.origin(),
            *self.problem.wholes(),
            *self._part_of_k(),
            *k_main,
            *((Let(LOCAL_INDEX, threads.number()),) if s.lane_arrangement is None else ()),
            *self.problem.named_pitches("workspace"),
        )

    def loop_over_blocks(self, names: Body, block: Body) -> tuple[Body, Body]:
        """The computation of one block, for all blocks of a group; and the names that stand before it."""
        problem = self.problem
        if self.by_groups:
            return self._loop_over_groups(names, block)
        if self._schedule.persistent:
            of_each, names = depending(names, WAVE)
            return names, (For(WAVE, Const(0), WAVES, 1, (*of_each, *block)),)
        if self._schedule.stream_k:
            of_each, names = depending(names, BLOCK)
            awaited = problem.awaited(*(x for x, _ in problem.buffers_between if x.prepacked))
            segments = For(SEGMENT, Const(0), SEGMENTS, 1, (*of_each, *block))
            return names, (*awaited, segments, *problem.released())
        return names, block

    def _loop_over_groups(self, names: Body, block: Body) -> tuple[Body, Body]:
        """The blocks of all groups of rows, dealt out in line: a work-group goes on in the next group of rows where its
        turn is there.
        """
        of_each, names = depending(names, WAVE)
        of_group, names = depending(names, self.problem.product)
        count, after = call("group_count", 0), FIRST_BLOCK + WAVES * call("group_count", 0) - BLOCKS
        each: Body = (
            Comment("The blocks of all groups in line: the first that is dealt to this one, then every so many."),
            *of_group,
            Let(FIRST_BLOCK, Load(_NEXT, ())),
            Let(WAVES, div(_at_least(0, BLOCKS - FIRST_BLOCK) + count - 1, count)),
            Store(_NEXT, (), after),
            For(WAVE, Const(0), WAVES, 1, (*of_each, *block)),
        )
        loop = For(self.problem.product, Const(0), self.problem.products, 1, each)
        return names, (Alloc(_NEXT), Store(_NEXT, (), call("group_id", 0)), loop)

    def assumptions(self) -> tuple[Expr, ...]:
        """What follows from `multiple_of`: the last group's tile ends inside the matrix. Blocks of groups of rows are
        more than there may be rows for, if a block has one row, too.
        """
        problem, s = self.problem, self._schedule
        known: list[Expr] = [Const(s.partial_sums - 1) - PART] if s.partial_sums > 1 else []
        known += [GROUPS * 2 - 1 - SHARE] if s.stream_k else []
        for axis, group in enumerate((BLOCK_ROW, BLOCK_COL) if self.clustered > 1 else self._block):
            extent, block = (problem.m, problem.n)[axis], self._unit[axis]
            surplus = axis == 0 and problem.spec.grouped == "rows"
            if not surplus and problem.spec.divisor("mn"[axis]) % block == 0:
                known.append(extent - group * block - block)
            # A cluster's last groups may lie past what is packed, whose blocks are single ones.
            if ("a", "b")[axis] in problem.packed and problem.units["mn"[axis]] % block == 0:
                known.append(problem.named_whole("mn"[axis]) - group * block - block)
        if problem.packed:
            known.append(problem.named_whole("k") - problem.k)
        return tuple(known)


# --- stream-K -------------------------------------------------------------------------------------


def _dealing(blocks: Expr, k: Expr, depth: int) -> Body:
    """Names for what is dealt out. Without K a block has a batch all the same, so that somebody stores it."""
    return (
        Comment("Stream-K: groups compute whole blocks in turn; the others' batches along K are dealt out."),
        Let(BLOCKS, blocks),
        Let(BATCHES, _at_least(1, ceil_div(k, depth))),
        Let(WHOLES, BLOCKS - _left_blocks(BLOCKS)),
        Let(DEALT, (BLOCKS - WHOLES) * BATCHES),
    )


def _segments(group: Expr) -> Body:
    """Names for what a group has to do, and of each part of it the block and the batches."""
    of_block = (BLOCK - WHOLES) * BATCHES
    is_own = SEGMENT < OWN
    return (
        Comment("This group: whole blocks, then an equal part of the batches; a segment is of one block."),
        Let(GROUP, group),
        Let(OWN, WHOLES // GROUPS),
        Let(FIRST, _begin_of(GROUP)),
        Let(LAST, _begin_of(GROUP + 1)),
        # Of a piece of none, too: it ends where a block does.
        Let(SEGMENTS, OWN + div(LAST + BATCHES - 1, BATCHES) - div(FIRST, BATCHES)),
        Comment(f"The block of this segment, and its batches from {BEGIN.name} to {END.name}."),
        Let(BLOCK, select(is_own, SEGMENT * GROUPS + GROUP, WHOLES + div(FIRST, BATCHES) + SEGMENT - OWN)),
        Let(BEGIN, select(is_own, Const(0), _at_least(0, FIRST - of_block))),
        Let(END, select(is_own, BATCHES, minimum(BATCHES, LAST - of_block))),
        Comment("Batches that this group loaded before, which say where the ring stands."),
        Let(BEFORE, select(is_own, SEGMENT * BATCHES, OWN * BATCHES + of_block + BEGIN - FIRST)),
        Comment("A group has two places for partial sums: of a block's end, then of a block's begin."),
        Let(SHARE, GROUP * 2 + select(compare("<", 0, BEGIN), Const(0), Const(1))),
    )


def _at_least(least: int, value: Expr) -> Expr:
    known = as_int(value)
    return Call("max", (Const(least), value), I32) if known is None else Const(max(least, known))


def _left_blocks(blocks: Expr) -> Expr:
    """How many blocks are dealt out in batches, of so many: what makes between one and two for each group."""
    return minimum(blocks, blocks % GROUPS + GROUPS)


def _begin_of(group: Expr) -> Expr:
    """Where a group's piece of the line begins: the first ones have a batch more."""
    return group * (DEALT // GROUPS) + minimum(group, DEALT % GROUPS)


def _group_of(batch: Expr) -> Expr:
    """Whose piece a batch belongs to."""
    each, longer = DEALT // GROUPS, DEALT % GROUPS
    early = longer * (each + 1)
    return select(batch < early, div(batch, each + 1), longer + div(batch - early, _at_least(1, each)))


def store_whole_or_share(problem: Problem, acc: Registers, comment: Comment, store: EpilogueStore) -> Body:
    """C where a group has all batches of a block, else its partial sums, for the fix-up."""
    share = Tile(problem.workspace(writable=True), (SHARE, Const(0), Const(0)), *problem.schedule.block_tile)
    vector = problem.vector(problem.schedule.c_width, problem.sums)
    kept = EpilogueStore(share, acc, problem.alpha, number(0, problem.sums), *vector)
    is_whole = both(compare("==", BEGIN, 0), compare("==", END, BATCHES))
    others = Comment("A part of a block: partial sums for the fix-up.")
    return (If(is_whole, (comment, store), (others, kept)),)


def fix_up_kernel(problem: Problem, origin: Body) -> Kernel:
    """Adds up the partial sums of blocks that no group has all of, one after the other: the same bits each time.

    Args:
        origin: names where a block begins, by its number.
    """
    shares, c = problem.workspace(writable=False), problem.c
    rows, cols = problem.schedule.block_tile
    total = _single(problem, "total")
    down, across = ceil_div(problem.m, rows), ceil_div(problem.n, cols)

    def share(group: Expr, ends: int) -> Load:
        return Load(shares, (group * 2 + ends, LOCAL_ROW, LOCAL_COL))

    sum_at = total.at(Const(0), Const(0))
    add = Store(total.buffer, sum_at, Bin("+", Load(total.buffer, sum_at), share(GROUP, 0)))
    work: Body = (
        Comment(f"Fix-up of stream-K: the partial sums in order. {problem.epilogue_comment()}"),
        Alloc(total.buffer),
        Store(total.buffer, sum_at, share(FIRST_GROUP, 1)),
        For(GROUP, FIRST_GROUP + 1, LAST_GROUP + 1, 1, (add,), exact=True),
        _update(problem, total),
    )
    begin = (BLOCK - WHOLES) * BATCHES
    body: Body = (
        Let(DOWN, down),
        Let(ACROSS, across),
        *_dealing(DOWN * ACROSS, problem.k, problem.schedule.round_depth),
        Let(LOCAL_ROW, call("group_id", 0) % rows),
        Let(LOCAL_COL, call("local_id", 0)),
        Comment("The block that this group finishes a row of."),
        Let(BLOCK, WHOLES + call("group_id", 0) // rows),
        *origin,
        Let(ROW, ROW0 + LOCAL_ROW),
        Let(COL, COL0 + LOCAL_COL),
        Comment("Groups that computed its first and its last batch; where they are one, it stored C itself."),
        Let(FIRST_GROUP, _group_of(begin)),
        Let(LAST_GROUP, _group_of(begin + BATCHES - 1)),
        *problem.awaited(shares),
        If(all_of((FIRST_GROUP < LAST_GROUP, problem.m > ROW, problem.n > COL)), work),
    )
    sums = (GROUPS, shares, problem.beta, *problem.parameters_of(c))
    left = _left_blocks(down * across)
    return Kernel(
        name=f"{problem.name}_total",
        params=arguments(problem.m, problem.n, problem.k, *sums, *epilogues.parameters(problem)),
        body=body,
        group=(1, cols),
        grid=(Const(1), left * rows),
        assumptions=problem.assumptions(),
    )


# --- kernels with a thread for each element of C --------------------------------------------------


def reduction_kernel(problem: Problem, early: bool = False) -> Kernel:
    """Split-K: adds up the partial sums, one after the other, so that the same parts give the same bits.

    Args:
        early: whether the next kernel, which waits for this one, is let in while this one waits itself.
    """
    parts, total = problem.workspace(writable=False), _single(problem, "total")
    add_up = Reduction(
        total, Tile(parts, (Const(0), ROW, COL), 1, 1), problem.schedule.partial_sums, *problem.vector(1, problem.sums)
    )
    comment = Comment("Reduction of split-K: the partial sums in order.")
    body = comment, Alloc(total.buffer), add_up, _update(problem, total)
    return _elementwise(problem, "total", body, parts, problem.released() if early else ())


def beta_kernel(problem: Problem) -> Kernel:
    """Split-K by atomic additions: beta * C, to which parts are added."""
    return _elementwise(
        problem, "start", (Comment("C = beta * C, to which the parts of K are added."), _scale(problem))
    )


def scale_kernel(problem: Problem) -> Kernel:
    """All that is left of a product by alpha = 0: beta * C, and the epilogue."""
    comment = Comment(problem.epilogue_comment())
    if not problem.spec.epilogue:
        return _elementwise(problem, "", (comment, _scale(problem)))
    nothing = _single(problem, "total")
    fill = Fill(nothing, number(0, problem.sums))
    return _elementwise(problem, "", (comment, Alloc(nothing.buffer), fill, _update(problem, nothing)))


def _scale(problem: Problem) -> Store:
    """A thread's element by beta; it is not read where beta is zero."""
    place, zero = epilogues.tile_of_c(problem, 1, 1, ROW, COL).origin, number(0, problem.sums)
    scaled = Bin("*", problem.beta, convert(Load(problem.c, place), problem.sums))
    value = select(compare("==", problem.beta, zero), zero, scaled)
    return Store(problem.c, place, convert(value, problem.spec.result))


def _single(problem: Problem, name: str) -> Registers:
    one = AxisLayout(1)
    return Registers(Buffer(name, problem.sums, Space.PRIVATE, Layout.packed(1, 1)), ThreadValueLayout(one, one))


def _update(problem: Problem, value: Registers) -> EpilogueStore:
    """value + beta * C for a thread's element."""
    c = epilogues.tile_of_c(problem, 1, 1, ROW, COL)
    vector, steps = problem.vector(1, problem.spec.result), epilogues.steps(problem)
    return EpilogueStore(c, value, number(1, problem.sums), problem.beta, *vector, steps)


def _elementwise(
    problem: Problem, suffix: str, inside: Body, parts: Buffer | None = None, released: Body = ()
) -> Kernel:
    """A kernel with a thread for each element of C."""
    width = THREADS if parts is None or problem.schedule.partial_sums < MANY_PARTS else FEW_THREADS
    across = ceil_div(problem.n, width)
    body = (
        *((Let(BATCH, call("group_id", 2)),) if problem.spec.batched else ()),
        *problem.named_pitches("workspace"),
        Let(ACROSS, across),
        Let(ROW, call("group_id", 0) // ACROSS),
        Let(COL, call("group_id", 0) % ACROSS * width + call("local_id", 0)),
        *problem.to_product(parts, problem.c, *epilogues.matrices(problem)),
        *released,
        *(problem.awaited(parts) if parts is not None else problem.released() if suffix else ()),
        If(both(problem.m > ROW, problem.n > COL), inside),
    )
    c = (*problem.parameters_of(problem.c), *epilogues.parameters(problem))
    return Kernel(
        name=f"{problem.name}_{suffix}" if suffix else problem.name,
        params=arguments(problem.m, problem.n, parts, problem.beta, *c),
        body=body,
        group=(1, width),
        grid=(Const(1), problem.m * across),
        nonnegative=(problem.m - ROW - 1,),
        assumptions=problem.assumptions(),
        grid_z=BATCH_COUNT if problem.spec.batched else None,
    )


def finishing_kernels(problem: Problem) -> tuple[Kernel, ...]:
    """What runs after the main kernel: the fix-up of stream-K, or the reduction of split-K."""
    s = problem.schedule
    if s.stream_k:
        return (fix_up_kernel(problem, Scheduler(problem).origin_by_number()),)
    if s.partial_sums == 1 or s.atomic:
        return ()
    return (reduction_kernel(problem, early=s.by_warpgroups),)
