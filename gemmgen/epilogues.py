"""Epilogues: the sums of a block on their way to C, from registers or staged through shared memory.

- From registers: each thread stores the elements that it holds, by vectors where they are neighbours.
- Staged: sums are written to shared memory as accumulators lie and read back in runs along C's lines, so that warps
  store whole lines. Sliced-K and the cluster reduction of split-K add up several planes on the way.
- By TMA: each warp writes its rows to slots of shared memory and stores them TMA tile by TMA tile (`epilogue_stages`).

The functions of an epilogue, with what they take, are applied wherever C is stored.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import groups
from gemmgen.checks.lines_of_c import SUM_PAD, stores_lines
from gemmgen.checks.warpgroup_mma import TURNED_PAD
from gemmgen.epilogue import OPERANDS, UP, Applied
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout, CopyAtom, ThreadValueLayout
from gemmgen.ir.dtypes import I64
from gemmgen.ir.elementwise import (
    ELEMENT_COL,
    ELEMENT_OWN,
    ELEMENT_OWN_COL,
    ELEMENT_ROW,
    Step,
    element,
    old,
    places_by_type,
)
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, as_int, convert, is_const, minimum, number
from gemmgen.ir.instructions import WGMMA_COLS, Instruction
from gemmgen.ir.kernel import arguments, loop
from gemmgen.ir.operands import stored_tma_tile
from gemmgen.ir.sizes import GROUP_ROWS
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, For, If, Let, Reduction, Registers, Stmt, Store, Tile
from gemmgen.ir.swizzle import line_bytes
from gemmgen.ir.synchronization import RANK, Barrier
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.launch import given_shape
from gemmgen.positions import (
    COL0,
    FIRST_COL,
    FIRST_ROW,
    GROUP_BEGIN,
    LANE_K,
    LOCAL_COL,
    LOCAL_INDEX,
    PART,
    ROW,
    ROW0,
    SLICE,
    SUM_COL,
    SUM_ROW,
    WARPGROUP_COL,
    ThreadLayout,
    position_in_c,
)
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass

# --- functions on elements of C -------------------------------------------------------------------


def operands(problem: Problem) -> tuple[Buffer, ...]:
    """The arrays that the functions take, in the order of `OPERANDS`; of a batch, vectors serve all products. Each
    group of a grouped product has vectors of its own, one after the other.
    """
    return tuple(_operand(problem, name) for name in problem.spec.operands if OPERANDS[name].of == "c")


def _operand(problem: Problem, name: str) -> Buffer:
    operand, dtype, one = OPERANDS[name], problem.spec.result, Const(1)
    if operand.axes != "mn":
        extent = problem.n if (operand.axes == "n") != problem.rows_are_columns else problem.m
        step = extent if problem.spec.grouped and extent != GROUP_ROWS else None
        return Buffer(name, dtype, Space.GLOBAL, Layout((extent,), (one,)), writable=False, batch_stride=step)
    step = Var(f"stride_{operand.letter}", I64) if problem.spec.batched or problem.spec.grouped == "k" else None
    layout = Layout(problem.c.shape, (Var(f"ld{operand.letter}"), one))
    return Buffer(name, dtype, Space.GLOBAL, layout, writable=False, batch_stride=step)


def matrices(problem: Problem) -> tuple[Buffer, ...]:
    """Those of them that a batch, or a grouped product, has one of for each product."""
    return tuple(buffer for buffer in operands(problem) if problem.spec.grouped or len(buffer.shape) == 2)


def parameters(problem: Problem) -> tuple[Buffer | Var, ...]:
    """What the kernel that stores C takes for its epilogue, after all else."""
    listed: list[Buffer | Expr | None] = []
    for buffer in operands(problem):
        listed += [buffer, *((buffer.layout.strides[0], buffer.batch_stride) if len(buffer.shape) == 2 else ())]
    return arguments(*listed)


def steps(problem: Problem, mirrored: bool = False) -> tuple[Step, ...]:
    """The functions on elements of C, their operands read from memory.

    Args:
        mirrored: whether they are applied to a tile whose rows are the problem's columns.
    """
    sums, transposed = problem.sums, (problem.spec.c_order == "col") != mirrored
    by_columns = problem.rows_are_columns != mirrored
    row, col = (ELEMENT_COL, ELEMENT_ROW) if by_columns else (ELEMENT_ROW, ELEMENT_COL)
    places = {"n": (col,), "m": (row,), "mn": (ELEMENT_ROW, ELEMENT_COL)[:: -1 if transposed else 1]}
    values: dict[Var, Expr] = {
        Var("acc", sums): element(sums),
        Var("c", sums): old(sums),
        **places_by_type(sums, row=row, col=col),
    }
    for buffer in operands(problem):
        place = places[OPERANDS[buffer.name].axes]
        values[Var(buffer.name, sums)] = convert(Load(buffer, place), sums)
    functions = problem.spec.functions[1 if problem.spec.gate else 0 :]
    return tuple(Step(f.name, map_expr(_formula(problem, f), substitute(values))) for f in functions)


def _formula(problem: Problem, function: Applied) -> Expr:
    """As the target computes it."""
    is_fast = "fast_functions" in problem.target.features and problem.spec.rounds_result
    return function.fast[1] if is_fast and function.fast is not None else function.value


def _by_coordinates(problem: Problem, step: Step) -> Step:
    """A function on elements of C that reads matrices of a batch, and what groups have, by coordinates."""
    own_row = groups.own_line(problem, ELEMENT_ROW) if problem.ends_with_groups else ELEMENT_ROW

    def reads(node: Expr) -> Expr:
        if node == ELEMENT_ROW:
            return own_row
        if not isinstance(node, Load):
            return node
        taken = _taken(problem, node.buffer)
        if problem.ends_with_groups and taken.batch_stride is None and len(taken.shape) == len(node.index):
            return Load(taken, (GROUP_BEGIN + node.index[0], *node.index[1:]))
        return Load(taken, (*(problem.product,) * (len(taken.shape) - len(node.index)), *node.index))

    return replace(step, value=map_expr(step.value, reads))


def _taken(problem: Problem, operand: Buffer) -> Buffer:
    """An operand as kernels have it that find products by coordinates: if groups share out its rows, all of them."""
    if problem.ends_with_groups and operand.batch_stride is None:
        return replace(operand, layout=replace(operand.layout, shape=given_shape(operand)))
    return problem.three_dimensional(operand)


# --- gates ----------------------------------------------------------------------------------------


def part_of(registers: Registers, number: int, parts: int) -> Registers:
    """Some of the columns of a tile in registers: of so many equal parts, one."""
    if parts == 1:
        return registers
    fragment, values = registers.fragment, registers.fragment.cols.values // parts
    cols = replace(fragment.cols, values=values, vector=min(fragment.cols.vector, values))
    return replace(registers, fragment=replace(fragment, cols=cols), first_col=values * number)


def gated(problem: Problem, acc: Registers) -> Body:
    """Of a gated product, an element of C of the sums of a column in both halves of B, in place of the first."""
    gate, row, col = problem.spec.gate, Var("i"), Var("j")
    if gate is None:
        return ()
    sums, halves = problem.sums, [part_of(acc, half, 2) for half in range(2)]
    first, second = Var("gate", sums), Var(UP, sums)
    of_both = [Load(half.buffer, half.at(row, col)) for half in halves]
    scaled = [x if is_const(problem.alpha, 1) else Bin("*", problem.alpha, x) for x in of_both]
    made = map_expr(_formula(problem, gate), substitute({Var("acc", sums): first}))
    each = (Let(first, scaled[0]), Let(second, scaled[1]), Store(acc.buffer, halves[0].at(row, col), made))
    rows, cols = halves[0].fragment.rows.values, halves[0].fragment.cols.values
    return (
        Comment(f"{gate.short}: one element of C of the sums in both halves of {problem.title('b')}'s columns."),
        *loop(row, rows, loop(col, cols, each)),
    )


def factor(problem: Problem) -> Expr:
    """What sums are multiplied by as they are stored: alpha, unless a gate has taken it."""
    return problem.alpha if problem.spec.gate is None else number(1, problem.sums)


# --- through shared memory ------------------------------------------------------------------------

#: A line of a block, and how many a thread reads before it stores the first.
LINE, LINES_AT_ONCE = Var("line"), 4


@dataclass(frozen=True)
class Staging:
    """Shared memory that a block's sums pass through.

    Attributes:
        partial: planes of sums; of a cluster a plane from each group.
        mirrored: whether a block goes through column by column.
        reuses: whether the sums lie where the tiles were.
        lanes: planes of each slice of K, from lanes that share elements of C.
        writes: which of the threads that hold the same sums writes them; None where each holds others.
    """

    problem: Problem
    partial: Buffer
    reuses: bool
    mirrored: bool = False
    lanes: int = 1
    writes: Expr | None = None

    @property
    def threads(self) -> int:
        """Those that hold sums, of all slices."""
        s = self.problem.schedule
        return s.group[0] * s.sliced_k * s.group[1] * s.lanes_along_k

    @property
    def lines(self) -> tuple[int, int]:
        """Lines of a block there, and their length."""
        rows, cols = self.problem.c_tile
        return (cols, rows) if self.mirrored else (rows, cols)

    @property
    def across(self) -> int:
        """Threads along a line when the planes are added up."""
        return self.lines[1] // self.problem.schedule.c_width

    @cached_property
    def total(self) -> Registers:
        """The sums of all planes: lines one after the other, dealt out to all threads in short runs; of the groups of a
        cluster each has a share of the lines.
        """
        s, across = self.problem.schedule, self.across
        rows, run = self.lines[0] // s.cluster_reduction, s.c_width
        down = min(rows, self.threads // across)
        fragment = ThreadValueLayout(AxisLayout(rows // down, down, 1, SUM_ROW), AxisLayout(run, across, run, SUM_COL))
        buffer = Buffer("total", self.problem.sums, Space.PRIVATE, Layout.packed(rows // down, run))
        return Registers(buffer, fragment)


def staged(
    staging: Staging, acc: Registers, say: str, plane: Expr, store: tuple[Comment, EpilogueStore], meet: Barrier
) -> Body:
    """The sums of all planes added up, and stored as `store` says, which has them in registers.

    Args:
        say: what is done, for a comment.
        plane: where a thread's own sums go.
        meet: of the threads that compute; the first time for those that still read what is overwritten.
    """
    problem, partial, total = staging.problem, staging.partial, staging.total
    schedule, (comment, update) = problem.schedule, store
    one, zero = number(1, problem.sums), number(0, problem.sums)
    # Of a cluster, sums go to the group that adds them up, and lie in its own memory there.
    to, there = ((Const(0),), (RANK,)) if partial.distributed > 1 else ((), ())
    along = update.dst.origin[-2 if update.dst.transposed else -1]
    own = Tile(partial, (*to, plane, Const(0), Const(0)), *problem.c_tile, staging.mirrored)
    planes = Tile(partial, (*there, *(Const(0),) * 3), *staging.lines)
    # Of lanes that have exchanged their sums each holds a part of the vector.
    width = 1 if staging.mirrored else min(schedule.thread_vector[1], acc.fragment.cols.values)
    # Scaled here, so that the sums may lie in any registers.
    put: Body = (EpilogueStore(own, acc, update.alpha, zero, *problem.vector(width, problem.sums)),)
    put = put if staging.writes is None else (If(staging.writes, put),)
    start, adding = total.fragment.cols.start, total.fragment.rows.lanes * staging.across
    count = schedule.sliced_k * schedule.cluster_reduction * staging.lanes
    read = (count, *problem.vector(total.fragment.cols.vector, problem.sums))
    add_up: Body = (
        Alloc(total.buffer),
        Reduction(total, planes, *read),
        comment,
        replace(update, acc=total, alpha=one),
    )
    # Reads of C would wait for the stores before them, which compilers leave in order.
    reads_c = not is_const(update.beta, 0) or any(old(problem.sums) in walk_expr(step.value) for step in update.steps)
    if count == 1 and not update.dst.transposed and not reads_c:
        column = FIRST_COL if staging.across > 1 else along + start
        lines = _line_by_line(staging, planes, read, replace(update, alpha=one))
        add_up = (comment, If(column < update.dst.buffer.shape[-1], (lines,)))
    return (
        Comment(say),
        *((meet,) if staging.reuses or schedule.persistent else ()),
        Alloc(partial, reuses=staging.reuses),
        *put,
        meet,
        Let(SUM_ROW, LOCAL_INDEX // staging.across),
        Let(SUM_COL, LOCAL_INDEX % staging.across),
        *((Let(FIRST_ROW if staging.mirrored else FIRST_COL, along + start),) if staging.across > 1 else ()),
        *(add_up if adding >= staging.threads else (If(adding > LOCAL_INDEX, add_up),)),
    )


def _line_by_line(staging: Staging, sums: Tile, read: tuple[int, CopyAtom, int], update: EpilogueStore) -> For:
    """Sums stored as they are read back, up to the last line inside the matrix: with a check in front of each store,
    compilers read one sum at a time.

    Args:
        read: planes, and the instruction that reads them.
    """
    total, dst = staging.total, update.dst
    rows, cols = total.fragment.rows, total.fragment.cols
    buffer = replace(total.buffer, layout=Layout.packed(1, cols.vector))
    own = Registers(buffer, ThreadValueLayout(AxisLayout(1), cols))
    first, extent = dst.origin[-2], dst.buffer.shape[-2]
    inside = minimum(Const(staging.lines[0]), extent - first)
    line = replace(dst, origin=(*dst.origin[:-2], first + LINE, dst.origin[-1]), rows=1)
    of_line = replace(sums, origin=(*sums.origin[:-2], LINE, sums.origin[-1]), rows=1)
    body = (Alloc(buffer), Reduction(own, of_line, *read), replace(update, dst=line, acc=own))
    return For(LINE, rows.start, inside, rows.lanes, body, unroll_factor=LINES_AT_ONCE)


def staged_lines(staging: Staging, acc: Registers, store: tuple[Comment, EpilogueStore], meet: Barrier) -> Body:
    """The sums of one plane, stored line by line."""
    where = ", in place of the tiles" if staging.reuses else ""
    say = f"Staged epilogue: through shared memory{where}, so that warps store whole lines."
    return staged(staging, acc, say, Const(0), store, meet)


def _added_across(staging: Staging, acc: Registers, store: tuple[Comment, EpilogueStore], meet: Barrier) -> Body:
    """Cluster reduction of split-K: each group adds up and stores a share of the lines.

    Args:
        meet: of the threads of a group that compute.
    """
    comment, update = store
    joined, tile, together = staging.partial.distributed, update.dst, replace(meet, groups=staging.partial.distributed)
    line = tile.origin[-2] + RANK * (staging.lines[0] // joined)
    share = replace(update, dst=replace(tile, origin=(*tile.origin[:-2], line, tile.origin[-1])))
    say = "Cluster reduction of split-K: each block adds up some lines of all parts of K."
    # Whoever writes where tiles were has met the others for that.
    begun: Body = (
        Comment("All blocks of the cluster have begun, so that their shared memory exists."),
        replace(together, part="wait"),
    )
    begun = () if staging.reuses else begun
    return (*begun, *staged(staging, acc, say, RANK, (comment, share), together))


# --- from registers -------------------------------------------------------------------------------


def tile_of_c(problem: Problem, rows: int, cols: int, row: Expr = ROW0, col: Expr = COL0) -> Tile:
    """So many rows and columns of C, from (row, col) on, in the order that C is stored in."""
    by_columns = problem.spec.c_order == "col"
    return Tile(problem.c, (col, row) if by_columns else (row, col), rows, cols, by_columns)


def destination(problem: Problem) -> Buffer:
    """Where such a kernel leaves what it sums: partial sums of split-K, or C."""
    in_parts = problem.schedule.partial_sums > 1 and not problem.schedule.atomic
    return problem.workspace(writable=True) if in_parts else problem.c


def store_from_registers(problem: Problem, acc: Registers, width: int | None = None) -> tuple[Comment, EpilogueStore]:
    """C, a part's share of it, or that share added to C; and what the kernel says of it.

    Args:
        width: columns that a lane stores at a time, if not as many as the schedule says.
    """
    s, spec, zero = problem.schedule, problem.spec, number(0, problem.sums)
    width = s.c_width if width is None else width
    vector = problem.vector(width, spec.result)
    tile = tile_of_c(problem, *problem.c_tile)
    comment, beta = Comment(problem.epilogue_comment()), problem.beta
    result = destination(problem)
    if s.atomic:
        comment, beta = Comment("Split-K: add this part's partial sums to C."), zero
        vector = problem.adding_vector(width)
    elif s.partial_sums > 1:
        tile = Tile(result, (PART, ROW0, COL0), *s.block_tile)
        comment, beta = Comment("Split-K: this part's partial sums."), zero
        vector = problem.vector(width, problem.sums)
    functions = steps(problem) if result == problem.c else ()
    return comment, EpilogueStore(tile, acc, factor(problem), beta, *vector, functions)


def add_up_slices(problem: Problem, acc: Registers, in_tiles: bool, store: tuple[Comment, EpilogueStore]) -> Body:
    """Sliced-K: the sums of all slices, added up in shared memory.

    Args:
        in_tiles: whether tiles of A or B were in shared memory before.
    """
    s, reuses = problem.schedule, in_tiles and "reused_local_memory" in problem.target.features
    partial = Buffer("partial", problem.sums, Space.LOCAL, Layout.packed(s.sliced_k, *s.block_tile))
    where = " in place of the tiles" if reuses else ""
    say = f"Sliced-K: every slice writes its partial sums{where}; then they are added up."
    return staged(Staging(problem, partial, reuses), acc, say, SLICE, store, Barrier())


def store_lines(problem: Problem, acc: Registers, store: tuple[Comment, EpilogueStore]) -> Body:
    """What the lanes of warps have of C, by way of the tiles' memory."""
    partial = Buffer("sums", problem.sums, Space.LOCAL, Layout.packed(1, *problem.c_tile, pad=SUM_PAD))
    return staged_lines(Staging(problem, partial, True), acc, store, Barrier())


def add_up_parts(problem: Problem, acc: Registers, store: tuple[Comment, EpilogueStore]) -> Body:
    """Cluster reduction of split-K: the sums of all groups of a cluster, in place of their tiles."""
    s, (rows, cols) = problem.schedule, problem.schedule.block_tile
    joined = s.cluster_reduction
    planes = Layout.packed(joined, joined, rows // joined, cols)
    partial = Buffer("partial", problem.sums, Space.LOCAL, planes, distributed=joined)
    return _added_across(Staging(problem, partial, True), acc, store, Barrier(role_items=s.group[0] * s.group[1]))


def add_up_lanes(
    problem: Problem,
    acc: Registers,
    store: tuple[Comment, EpilogueStore],
    shuffled: bool,
    writes: Expr | None = None,
) -> Body:
    """The sums of slices and of lanes that share elements of C, added up in shared memory.

    Args:
        acc: the sums of a thread.
        shuffled: whether they are those of all lanes already.
        writes: which of the threads that hold the same sums writes them; None where each holds others.
    """
    s = problem.schedule
    lanes = 1 if shuffled else s.lanes_along_k
    plane = SLICE * lanes + (Const(0) if shuffled else LANE_K) if s.sliced_k > 1 else Const(0) if shuffled else LANE_K
    partial = Buffer("partial", problem.sums, Space.LOCAL, Layout.packed(s.sliced_k * lanes, *s.block_tile))
    whose = "slice" if shuffled else "work-item"
    say = f"Every {whose} writes its partial sums; then they are added up."
    return staged(Staging(problem, partial, False, lanes=lanes, writes=writes), acc, say, plane, store, Barrier())


# --- of warpgroups --------------------------------------------------------------------------------


@dataclass(frozen=True)
class WarpgroupEpilogue:
    """That of a kernel whose warpgroups multiply: C or partial sums, from registers, staged, or by TMA."""

    problem: Problem
    threads: ThreadLayout
    atom: Instruction

    @property
    def _own_cols(self) -> int:
        """Columns of C that a warpgroup has."""
        return self.atom.cols // self.problem.spec.halves

    @property
    def whole(self) -> bool:
        """Whether it stores C, not partial sums of split-K."""
        return self.problem.schedule.partial_sums == 1

    @property
    def c(self) -> Buffer:
        """C as this kernel has it, with TMA tiles where it is stored so."""
        c = self.problem.three_dimensional(self.problem.c)
        c = groups.ending_with(c) if self.problem.ends_with_groups else c
        return replace(c, tma_tile=self._box) if self.problem.schedule.epilogue_stages else c

    @property
    def result(self) -> Buffer:
        """Where the kernel leaves what it sums."""
        return self.c if self.whole else self.problem.workspace(writable=True)

    @property
    def _box(self) -> tuple[int, int]:
        """What a warp stores by one TMA instruction."""
        return stored_tma_tile(self._own_cols, self.problem.spec.result, self.problem.spec.c_order == "col")

    @property
    def slots(self) -> Buffer | None:
        """Shared memory for TMA tiles of C before they are stored, one of each warp at a time."""
        s, c = self.problem.schedule, self.problem.c
        if not s.epilogue_stages:
            return None
        (lines, length), size = self._box, c.dtype.size
        line, cols = line_bytes(length * size), lines if self.problem.spec.c_order == "col" else length
        boxes = -(-self._own_cols // cols) * (s.tile[0] // 2)
        warps = self.threads.rows.lanes * s.warpgroups[1] * 4 // self.atom.lanes
        layout = Layout.packed(min(boxes, s.epilogue_stages), warps * lines, line // size)
        return Buffer("c_shared", c.dtype, Space.LOCAL, replace(layout, swizzle=line))

    @property
    def _by_columns(self) -> bool:
        """Whether the lines that are stored are columns of the sums."""
        return (self.problem.spec.c_order == "col") if self.whole else self.problem.swapped

    @property
    def _staging(self) -> Staging:
        """A plane of sums, its rows so far apart that a warp's pairs lie in different banks. Where a cluster adds them
        up, they lie as they are stored then. They reuse the tiles' memory, unless the tiles of the next block are there
        by then, or others of a cluster write them, who do not know whether a tile is still read.
        """
        s = self.problem.schedule
        mirrored = s.cluster_reduction > 1 and self._by_columns
        lines, length = self.problem.c_tile[:: -1 if mirrored else 1]
        planes = (s.cluster_reduction, s.cluster_reduction) if s.cluster_reduction > 1 else (1,)
        layout = Layout.packed(*planes, lines // s.cluster_reduction, length, pad=TURNED_PAD if mirrored else SUM_PAD)
        partial = Buffer("sums", self.problem.sums, Space.LOCAL, layout, distributed=s.cluster_reduction)
        return Staging(self.problem, partial, not s.persistent and s.cluster_reduction == 1, mirrored)

    def store(self, acc: Registers) -> Body:
        """C, or a part's share of it, from registers or by way of shared memory."""
        return (*gated(self.problem, acc), *self._stored(part_of(acc, 0, self.problem.spec.halves)))

    def _stored(self, acc: Registers) -> Body:
        problem, s, staging = self.problem, self.problem.schedule, self._staging
        by_columns = self._by_columns
        origin = (COL0, ROW0) if by_columns else (ROW0, COL0)
        planes: tuple[Expr, ...] = problem.which_product(self.c) if self.whole else (PART,)
        place = groups.place_in(problem, *origin) if self.problem.ends_with_groups else (*planes, *origin)
        tile = Tile(self.result, place, *staging.lines, by_columns and not staging.mirrored)
        vector = problem.vector(s.c_width, problem.spec.result if self.whole else problem.sums)
        functions = tuple(replace(x, value=map_expr(x.value, self._held)) for x in self._functions)
        update = EpilogueStore(tile, acc, factor(problem), problem.beta, *vector, functions)
        comment = Comment(problem.epilogue_comment())
        if not self.whole:
            update = replace(update, beta=number(0, problem.sums), steps=())
            comment = Comment("Split-K: this part's partial sums.")
        if self.slots is not None:
            atom, width = problem.vector(1 if by_columns else s.thread_vector[1], problem.spec.result)
            return (comment, replace(update, atom=atom, width=width, via=self.slots))
        meet = Barrier(role_items=s.group[0] * s.group[1])
        if s.cluster_reduction > 1:
            return _added_across(staging, acc, (comment, update), meet)
        if not stores_lines(problem.spec, s, problem.swapped):
            return (comment, update)
        return staged_lines(staging, acc, (comment, update), meet)

    # --- vectors that the functions take ----------------------------------------------------------

    @cached_property
    def _vectors(self) -> dict[Expr, tuple[Load, Buffer, bool]]:
        """What is read of arrays with an element for each row or column, where C is stored by TMA: the element, the
        registers that hold it instead, and whether it is one of columns. They keep the array's type, so that nothing
        waits for an element before it is needed; only bytes are converted, which no shuffle takes.
        """
        found, sums = dict[Expr, tuple[Load, Buffer, bool]](), self.problem.sums
        for step in self._functions if self.slots is not None and self.whole else ():
            for load in walk_expr(step.value):
                if isinstance(load, Load) and load.index:
                    places = [node for x in load.index for node in walk_expr(x) if node in (ELEMENT_ROW, ELEMENT_COL)]
                    if len(places) != 1:
                        continue  # a matrix, or one element
                    of_cols, name = places[0] == ELEMENT_COL, load.buffer.name
                    count = -(-self._own_cols // self.atom.lanes) if of_cols else self.threads.rows.values
                    dtype = load.dtype if load.dtype.size > 1 else sums
                    own = Buffer(f"{'lane' if of_cols else 'own'}_{name}", dtype, Space.PRIVATE, Layout.packed(count))
                    found[convert(load, sums)] = load, own, of_cols
        return found

    @cached_property
    def _functions(self) -> tuple[Step, ...]:
        """Those on elements of C, as this kernel has what they take."""
        return tuple(_by_coordinates(self.problem, step) for step in steps(self.problem, self._staging.mirrored))

    def _held(self, node: Expr) -> Expr:
        """An expression by those registers: of columns, each lane of a warp has one of every 32."""
        if node not in self._vectors:
            return node
        (_, own, of_cols), sums = self._vectors[node], self.problem.sums
        if not of_cols:
            return convert(Load(own, (ELEMENT_OWN,)), sums)
        pair, lanes = ELEMENT_OWN_COL // 2, self.atom.lanes
        lane = pair % (lanes // WGMMA_COLS) * WGMMA_COLS + self._lane_col * 2 + ELEMENT_OWN_COL % 2
        return convert(Call("shuffle", (Load(own, (ELEMENT_OWN_COL // (lanes // 4),)), lane), own.dtype), sums)

    @property
    def _lane_col(self) -> Expr:
        """Which of the four lanes that share a row."""
        return LOCAL_COL if self.problem.schedule.warpgroups[1] == 1 else LOCAL_COL % 4

    def read_before(self) -> Body:
        """Fills them, in front of the loop along K, so that no store of C waits for them."""
        part, out, lanes = Var("i"), list[Stmt](), self.atom.lanes
        first = COL0 + WARPGROUP_COL * self._own_cols if self.problem.schedule.warpgroups[1] > 1 else COL0
        for one, own, _ in self._vectors.values():
            rows = self.threads.rows
            row = position_in_c(ROW, ROW0, rows) + rows.step(part)
            row = groups.lines_before(self.problem) + row if self.problem.ends_with_groups else row
            values: dict[Var, Expr] = {ELEMENT_ROW: row, ELEMENT_COL: first + part * lanes + LOCAL_INDEX % lanes}
            at = map_expr(one.index[-1], substitute(values))
            place = (*one.index[:-1], minimum(at, one.buffer.shape[-1] - 1))
            value = convert(replace(one, index=place), own.dtype)
            out += [Alloc(own), *loop(part, as_int(own.shape[0]) or 1, (Store(own, (part,), value),))]
        return (Comment("What the epilogue takes of each row or column is read ahead."), *out) if out else ()

    def operands(self) -> tuple[Buffer | Var, ...]:
        """What the functions take, as this kernel has it."""
        taken = parameters(self.problem)
        return tuple(_taken(self.problem, p) if isinstance(p, Buffer) else p for p in taken)
