"""Direct: every thread loads its elements of A and B into registers and multiplies them, one step of K after the other.

Operands come from global memory, or through tiles of shared memory (`shared_memory.py`). Sub-groups and warps do the
same with other fragments and instructions (`sub_group.py`, `warp_mma.py`).
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import epilogues, groups
from gemmgen.checks.capacity import blocks_at_once, depth_of_tiles
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import is_free, said
from gemmgen.ir.copy_instructions import (
    IMAGE_BLOCK_READ,
    SCALAR,
    VECTOR,
    AxisLayout,
    CopyAtom,
    ThreadValueLayout,
    aligned,
    block_read,
)
from gemmgen.ir.elementwise import Step
from gemmgen.ir.expr import Const, Expr, Var, all_of, both, compare, is_const, minimum, number, select
from gemmgen.ir.instructions import DP4A, FMA, FMA_SNAKE, Instruction
from gemmgen.ir.kernel import COL as J
from gemmgen.ir.kernel import ROW as I
from gemmgen.ir.kernel import Kernel, Limit, arguments
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    EpilogueStore,
    Fill,
    For,
    FragmentLoad,
    If,
    Let,
    Mma,
    Registers,
    Stmt,
    Tile,
)
from gemmgen.ir.synchronization import Barrier, Pipe, PipeOp
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.mainloops.shared_memory import SharedTiles
from gemmgen.passes.sub_group_size import unless_in_sub_groups_of
from gemmgen.positions import (
    COL,
    COL0,
    K0,
    K_END,
    K_MAIN,
    KK,
    LOCAL_COL,
    PART,
    ROW,
    ROW0,
    SLICE,
    position_in_c,
)
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass
from gemmgen.schedulers import store_whole_or_share

#: Multiply-adds that take as long as an element of A or B from global memory (on an H200 26 of float32).
FED = 25
#: Unroll the steps through a block of K up to this many; beyond it the code outgrows instruction caches.
MOST_UNROLLED = 16


@dataclass(frozen=True)
class Direct(Mainloop):
    """The mainloop and its kernel."""

    @cached_property
    def acc(self) -> Registers:
        """A thread's sums."""
        return self.accumulators()

    @property
    def combined(self) -> Registers:
        """The sums, or what a gate makes of them."""
        return epilogues.part_of(self.acc, 0, self.problem.spec.halves)

    @property
    def results(self) -> Registers:
        """The same as they are stored."""
        return self.combined

    def exchanged(self) -> Body:
        """What makes them of the accumulators."""
        return epilogues.gated(self.problem, self.acc)

    @property
    def step_sums(self) -> Registers:
        """What an instruction adds to."""
        return self.acc

    # --- operands ---------------------------------------------------------------------------------

    @cached_property
    def tiles(self) -> SharedTiles:
        """Tiles of shared memory that operands pass through, if any do."""
        return SharedTiles(self.problem)

    @cached_property
    def register_pipe(self) -> Pipe:
        """The slots of double-buffered fragments."""
        return Pipe("fragments", self.schedule.register_stages, "none", across_tiles=self.schedule.across_tiles)

    @cached_property
    def a(self) -> OperandPath:
        """The path of A."""
        return self.path("a")

    @cached_property
    def b(self) -> OperandPath:
        """The path of B."""
        return self.path("b")

    @property
    def operands(self) -> tuple[OperandPath, OperandPath]:
        """Both."""
        return self.a, self.b

    def path(self, name: str) -> OperandPath:
        """The way of an operand."""
        tile, fragment = self.tiles.tile(name), self.fragment(name)
        instruction = self.load_instruction(name, tile, fragment)
        return OperandPath.of(self.problem, name, tile, fragment, instruction, self.register_pipe)

    def fragment(self, name: str) -> ThreadValueLayout:
        """A thread's elements of an operand in a step: its rows of A by the depth, the depth by its columns of B."""
        tile = self.tiles.tile(name)
        fast = self.problem.is_transposed(name) if tile is None else tile.transposed
        fast = name == "b" if self.by_fours else fast
        deep = AxisLayout(self.depth)
        rows, cols = (self.threads.rows, deep) if name == "a" else (deep, self.threads.cols)
        return ThreadValueLayout(rows, cols, transposed=fast)

    def load_instruction(self, name: str, tile: Tile | None, fragment: ThreadValueLayout) -> tuple[CopyAtom, int]:
        """What fills it, and how many neighbours it gives a thread."""
        if tile is not None:
            return self.tiles.load_instruction(tile, fragment)
        # Vectors are of neighbours in memory, and fours of neighbours along K.
        along = fragment.transposed == self.problem.is_transposed(name)
        return load_from_memory(self.problem, name) if along or not self.by_fours else (SCALAR, 1)

    def load(self, path: OperandPath, k0: Expr, kk: Expr) -> Body:
        """A fragment, for the step that begins `kk` behind `k0`; of sliced-K, in this slice's part."""
        kk = SLICE * self.slice_depth + kk if self.schedule.sliced_k > 1 else kk
        return path.fill(self.threads.rows.lanes > 1, k0, kk)

    # --- a step of K ------------------------------------------------------------------------------

    @cached_property
    def depth(self) -> int:
        """Depth of one inner step: the width of the widest load along K."""
        s = self.schedule
        if s.whole_steps:
            return s.block_k
        if s.b_sub_step:
            return s.b_sub_step
        a_along_k = s.a.memory == "global" and not s.a.shuffle and not self.problem.is_transposed("a")
        b_along_k = s.b.memory == "image" or (s.b.memory == "global" and self.problem.is_transposed("b"))
        least = DP4A.depth if self.by_fours else 1
        of_tiles = depth_of_tiles(self.problem.spec, s)
        return max(least, s.a.width if a_along_k else 1, s.b.width if b_along_k else 1, of_tiles)

    @property
    def by_fours(self) -> bool:
        """Whether four neighbours along K are multiplied at a time, which registers hold together."""
        return self.schedule.atom == DP4A.name

    @property
    def slice_depth(self) -> int:
        """How much of a step of K the threads of a slice go through."""
        return self.schedule.block_k // self.schedule.sliced_k

    @property
    def instruction(self) -> Instruction:
        """What multiplies."""
        if self.by_fours:
            return DP4A
        return FMA_SNAKE if self.schedule.serpentine else FMA

    @property
    def written_out(self) -> bool:
        """Whether all inner steps are written out, however many there are."""
        return False

    def step(self, k0: Expr) -> Body:
        """One step of K: stage, load, multiply."""
        blocks = tuple(
            s
            for path in self.operands
            if path.whole_step
            for s in (Alloc(path.registers.buffer), *self.load(path, k0, Const(0)))
        )
        return self.tiles.handed_over(k0, self.multiply(k0, blocks))

    def multiply(self, k0: Expr, blocks: Body) -> Body:
        """The products of a step, behind `blocks`, which load what is held for all of it."""
        meet = (Barrier("none"),) if self.schedule.barrier and self.schedule.b_sub_step else ()
        return (*blocks, *meet, *self._inner_steps(k0))

    def _inner_steps(self, k0: Expr) -> Body:
        """The products of one step of K, as deep as an instruction or a load goes at a time."""
        per_step = [path for path in self.operands if not path.whole_step]
        pipe = self.register_pipe if any(path.registers.pipe for path in per_step) else None
        fills = tuple(s for path in per_step for s in self.load(path, k0, KK))
        allocs = tuple(Alloc(path.registers.buffer) for path in per_step)
        a_k, conj = KK if self.a.whole_step else Const(0), self.problem.spec.conj
        mma = Mma(self.step_sums, self.a.registers, self.b.registers, a_k, Const(0), self.depth, self.instruction, conj)
        body: Body
        if pipe is not None:
            produce = (PipeOp("acquire", pipe), *fills, PipeOp("commit", pipe))
            body = (*produce, PipeOp("wait", pipe), mma, *self.after_product(), PipeOp("release", pipe))
        else:
            step_barrier = (Barrier("none"),) if self.schedule.barrier and not self.schedule.b_sub_step else ()
            body = (*allocs, *fills, *step_barrier, mma, *self.after_product())
        rounds = self.slice_depth // self.depth
        unroll = pipe is not None or self.a.whole_step or self.written_out or self.slice_depth <= MOST_UNROLLED
        at_once, most = 0, self.tiles.unrolled_steps(rounds)
        if rounds > most and not self.written_out and not (pipe is not None and pipe.across_tiles):
            unroll, at_once = False, most
        steps = For(KK, Const(0), Const(self.slice_depth), self.depth, body, unroll, exact=True, unroll_factor=at_once)
        return (*allocs, steps) if pipe is not None and not pipe.across_tiles else (steps,)

    def after_product(self) -> Body:
        """What follows an inner step's products."""
        return ()

    # --- along K ----------------------------------------------------------------------------------

    @cached_property
    def inside(self) -> tuple[Expr, ...]:
        """What the main loop needs of a group's block of C, where that is not known."""
        return ()

    @cached_property
    def k_stop(self) -> Expr:
        """Where the main loop ends: with the sum, or with the last whole step where the rest is another matter."""
        if self.has_no_main:
            return self.scheduler.k_start
        if self.inside:
            return K_MAIN
        if self.problem.exact_k or self.schedule.asynchronous:
            return self.scheduler.k_end
        if self.problem.spec.k is None or self.schedule.split_k > 1:
            return K_MAIN
        return Const(self.problem.spec.k - self.problem.spec.k % self.schedule.block_k)

    @cached_property
    def has_no_main(self) -> bool:
        """Whether no group has a whole step: K is known to be shorter, or no block of C to be inside."""
        if self.problem.exact_k or self.schedule.asynchronous:
            return False
        k, step = self.problem.spec.k, self.schedule.block_k
        return is_const(all_of(self.inside), 0) or (k is not None and k < step)

    @property
    def _k_main(self) -> Body:
        """A name for that."""
        if self.k_stop != K_MAIN:
            return ()
        k = self.problem.k
        whole = k if self.problem.exact_k else k - k % self.schedule.block_k
        whole = minimum(whole, K_END) if self.scheduler.in_parts else whole
        return (Let(K_MAIN, select(all_of(self.inside), whole, self.scheduler.k_start)),)

    def zeros(self) -> Body:
        """The sums, before all steps."""
        return Alloc(self.acc.buffer), Fill(self.acc, number(0, self.problem.sums))

    @property
    def said_step(self) -> str:
        """How deep a step of K is, for a comment."""
        return said(self.schedule.block_k)

    def along_k(self) -> Body:
        """The sum over K: whole steps, and what is left of K after them."""
        step, exact = self.schedule.block_k, self.problem.exact_k
        has_rest = self.k_stop != self.scheduler.k_end
        until = self.scheduler.copied_until
        exact = exact and until is None
        main = For(
            K0,
            self.scheduler.k_start,
            self.k_stop,
            step,
            self.step(K0),
            exact=exact or has_rest,
            copied_until=until,
        )
        say: Body = ()
        if self.has_no_main:
            return self._rest()
        if has_rest:
            edge = "; at the edge of C there are none" if self.inside else ""
            say = (Comment(f"Whole steps of {self.said_step} along K{edge}."),)
        elif not exact:
            fills = "cp.async fills in zeros past K" if self.tiles.pipe.sync != "barrier" else "zeros are stored past K"
            say = (Comment(f"Main loop; {fills}."),)
        return (*say, *self._whole_and_edge(main), *(self._rest() if has_rest else ()))

    @property
    def asks_lines_once(self) -> bool:
        """Whether the kernel asks before its main loop if all lines are made of vectors: where slices share a block and
        stage nothing, they wait for memory, and a check in front of each load has loads wait for one another.
        """
        return self.schedule.sliced_k > 1 and all(path.staged is None for path in self.operands)

    def _whole_and_edge(self, main: For) -> Body:
        """The main loop; twice where vectors fill registers from a matrix that they may not fit: once where they do,
        whose loads ask nothing.
        """
        inside, lines = self._vectors_fit()
        if any(is_const(x, 0) for x in lines) or not (inside or lines):
            return (main,)
        edge = "A block at the edge of C: every load has a bounds check."
        anywhere = "Lines that begin anywhere, or end within a vector: every load has a check of its own."
        return (If(all_of((*lines, *inside)), (main,), (Comment(anywhere if lines else edge), main)),)

    def _vectors_fit(self) -> tuple[list[Expr], list[Expr]]:
        """Conditions under which vectors from global memory fill registers unchecked: that the block is inside; that
        lines begin and end where vectors do, so that what lies past their end is read from their last vector.
        """
        inside: list[Expr] = []
        lines: list[Expr] = []
        problem, assumed = self.problem, self.problem.assumptions()
        for axis, (path, origin) in enumerate(((self.a, ROW0), (self.b, COL0))):
            if path.staged is not None or path.width == 1:
                continue
            size, block = (problem.m, problem.n)[axis], problem.c_tile[axis]
            known = problem.spec.divisor("mn"[axis])
            across_k = path.transposed == (path.name == "a")
            if path.atom == VECTOR and across_k and known % block:
                inside.append(origin + block <= size)
            if path.atom.aligned and self.asks_lines_once:
                begin = aligned(path.atom, path.width, path.matrix)
                end = compare("==", size % path.width, 0) if across_k and known % block else None
                lines += [x for x in (begin, end) if x is not None and x not in assumed and x not in lines]
        return inside, lines

    def _rest(self) -> Body:
        """What is left of K after whole steps."""
        past = "" if self.problem.exact_k else "; what lies past it counts as zero"
        what = "The rest of K, at the edge of C all of it" if self.inside else "The rest of K"
        say = Comment(f"{'All of K' if self.has_no_main else what}{past}.")
        if self.asks_lines_once:
            # Single elements past K are zeros without a check in front of each load.
            s = self.schedule
            single = s.but(a=replace(s.a, width=1), b=replace(s.b, width=1), atom="fma")
            return Direct(replace(self.problem, schedule=single, blocks_of=s)).rest(say)
        return self.rest(say)

    def rest(self, say: Comment) -> Body:
        """The same behind what is said of it."""
        return (If(self.has_rest(), (say, *self.step(self.k_stop))),)

    def has_rest(self) -> Expr:
        """Whether anything is left; of the parts of K, the one that holds it."""
        begun = (self.scheduler.k_start <= self.k_stop,) if self.schedule.split_k > 1 and not self.has_no_main else ()
        return all_of((*begun, self.k_stop < self.scheduler.k_end))

    # --- the kernel -------------------------------------------------------------------------------

    @property
    def _waits_for_memory(self) -> bool:
        """Whether a product has room for the next kernel's groups from its start, since memory is what it waits for:
        they cost others' arithmetic, and gather where a few multiprocessors happen to be idle.
        """
        rows, cols = self.schedule.block_tile
        return rows * cols < FED * (rows + cols)

    def _block(self) -> Body:
        """One block of C, or a part of its sum."""
        problem, s = self.problem, self.schedule
        between = {x.name for x, _ in problem.buffers_between}
        awaited = problem.awaited(*(path.matrix for path in self.operands if path.matrix.name in between))
        along_k = self.along_k()
        say, loops = (along_k[:1], along_k[1:]) if isinstance(along_k[0], Comment) else ((), along_k)
        if s.stream_k:
            # Awaited before the first of several loops. Between them the group meets: who is early would overwrite what
            # others still read, beyond the loop's end too.
            awaited, loops = (), (*loops, Barrier())
        # Parts of stream-K end where they begin if alpha is zero: their mbarriers count on from one to the next.
        asks = problem.asks_alpha and not s.stream_k
        product = (*awaited, *problem.unless_zero((*say, *loops))) if asks else (*say, *awaited, *loops)
        out: list[Stmt] = [*self.zeros(), *product]
        if s.atomic and problem.spec.beta != 1 and not problem.packed:
            out += problem.awaited(problem.c)
        if epilogues.destination(problem) != problem.c and not self._waits_for_memory:
            out += problem.released()
        return (*out, *self._store())

    def _store(self) -> Body:
        """C, or what the scheduler has in its place."""
        results = self.results
        store = epilogues.store_from_registers(self.problem, results)
        if self.schedule.stream_k:
            return store_whole_or_share(self.problem, results, *store)
        if self.schedule.sliced_k > 1:
            in_tiles = any(path.staged is not None for path in self.operands)
            return epilogues.add_up_slices(self.problem, results, in_tiles, store)
        if self.schedule.cluster_reduction > 1:
            return epilogues.add_up_parts(self.problem, results, store)
        comment, update = store
        return *self.exchanged(), comment, replace(update, atom=self.store_instruction(update))

    def store_instruction(self, update: EpilogueStore) -> CopyAtom:
        """What reads and writes C."""
        return update.atom

    def kernel(self) -> Kernel:
        """All of it."""
        s, problem, result = self.schedule, self.problem, epilogues.destination(self.problem)
        stores_c = result == problem.c
        rows, cols = self.threads.rows, self.threads.cols
        body = self._block()
        if s.tile == (1, 1) and s.method == "naive" and not s.barrier and s.sliced_k == 1:
            row, col = position_in_c(ROW, ROW0, rows), position_in_c(COL, COL0, cols)
            body = (If(both(row < problem.m, col < problem.n), body),)
        stored = replace(self.threads, cols=self.results.fragment.cols)
        names, body = self.scheduler.loop_over_blocks(self.scheduler.positions(stored, self._k_main), body)
        finishing = epilogues.matrices(problem) if stores_c else ()
        share = (*(() if stores_c else (PART,)), *self._own_element(stores_c))
        unless = unless_in_sub_groups_of(s.sub_group, problem.target, result, share, s.tile, problem.sums)
        early = problem.released() if not stores_c and self._waits_for_memory else ()
        return Kernel(
            name=problem.name,
            params=self._parameters(result),
            body=(
                *names,
                *early,
                *problem.to_product(self.a.matrix, self.b.matrix, result, *finishing),
                *unless,
                *self._allocations(),
                *body,
            ),
            group=s.all_work_items,
            grid=self.scheduler.grid(),
            sub_group=self.lanes,
            min_blocks=self.min_blocks,
            nonnegative=self.scheduler.assumptions(),
            assumptions=problem.assumptions(),
            grid_z=problem.layers,
            cluster=self.scheduler.clustered,
            multiples=self._multiples,
            limits=(*self.tiles.limits, *self._limits),
            large_registers=s.large_grf,
        )

    @property
    def min_blocks(self) -> int:
        """Blocks of a multiprocessor that registers are to be left for; 0 for any number."""
        return blocks_at_once(self.problem.spec, self.schedule, self.problem.target)

    @property
    def _limits(self) -> tuple[Limit, ...]:
        """Where half of a gated tile's columns is one vector, they are counted as its elements."""
        halves, cols = self.problem.spec.halves, self.acc.fragment.cols
        if halves == 1 or cols.values != halves * cols.vector:
            return ()
        return (Limit(cols.values, int(cols.values), int(cols.values), "each half of it is one vector"),)

    @property
    def _multiples(self) -> tuple[tuple[int, int], ...]:
        """Threads' tiles are made of vectors, and a step of K of inner steps: of two at a time where two slots of
        registers take turns beyond its end.
        """
        s = self.schedule
        vectors = tuple((own, run) for own, run in zip(s.tile, s.thread_vector, strict=True) if run > 1)
        inner = self.depth * (s.register_stages if s.across_tiles else 1)
        steps = ((self.slice_depth, inner),) if is_free(s.block_k) and inner > 1 else ()
        return (*vectors, *steps, *self.tiles.multiples)

    def _allocations(self) -> Body:
        """Shared memory, and registers that outlive a step of K."""
        out: list[Stmt] = []
        for path in self.operands:
            out += self.tiles.allocations(path.name)
            out += [Alloc(path.registers.buffer)] if self.schedule.across_tiles else []
        return tuple(out)

    @property
    def lanes(self) -> int | None:
        """Of a sub-group, where the kernel asks for a number."""
        return self.schedule.sub_group

    def _own_element(self, stores_c: bool) -> tuple[Expr, Expr]:
        """The place in C of row `i` and column `j` of a thread's tile, by its place in the group, not its lane."""
        rows, cols = self.threads.rows, self.threads.cols
        row = position_in_c(ROW, ROW0, rows) + rows.step(I)
        col = COL0 + LOCAL_COL * cols.vector + cols.step(J)
        return (col, row) if stores_c and self.problem.spec.c_order == "col" else (row, col)

    def _parameters(self, result: Buffer) -> tuple[Buffer | Var, ...]:
        problem, s, stores_c = self.problem, self.schedule, result == self.problem.c
        order: list[Expr | Buffer] = [*groups.sizes(problem), problem.alpha]
        order += problem.parameters_of(self.a.matrix, self.b.matrix)
        order += [problem.workspace(writable=True)] if s.stream_k else []
        order += [] if s.partial_sums > 1 else [problem.beta]
        order += problem.parameters_of(problem.c) if stores_c else [result]
        order += problem.prologue_parameters({"a", "b"} - {*problem.packed})
        order += epilogues.parameters(problem) if stores_c else ()
        return arguments(*order)


# --- the way of an operand ------------------------------------------------------------------------


@dataclass(frozen=True)
class OperandPath:
    """The way of one operand into registers, with all that its loads and products need.

    Attributes:
        name: `a` or `b`.
        matrix: the operand in global memory or an image.
        transposed: whether the matrix is stored column-major.
        staged: the tile of shared memory that it passes through, or None.
        registers: its fragment.
        atom, width: the instruction that fills the fragment.
        whole_step: whether the fragment holds a whole step of K, not only an inner one.
        prologue: what its elements are made into on that way.
    """

    problem: Problem
    name: str
    matrix: Buffer
    transposed: bool
    staged: Tile | None
    registers: Registers
    atom: CopyAtom
    width: int
    whole_step: bool
    prologue: Step | None

    @staticmethod
    def of(
        problem: Problem,
        name: str,
        staged: Tile | None,
        fragment: ThreadValueLayout,
        instruction: tuple[CopyAtom, int],
        pipe: Pipe,
    ) -> OperandPath:
        """With the registers that a fragment takes, in the slots of `pipe` where it is double-buffered."""
        s, operand, (atom, width) = problem.schedule, problem.operand(name), instruction
        transposed = problem.is_transposed(name)
        if atom is IMAGE_BLOCK_READ:
            # An image hands a lane neighbours of the slow axis: keep those together in registers.
            fragment = replace(fragment, transposed=not transposed)
        values = fragment.place(Const(fragment.rows.values), Const(fragment.cols.values))
        shape = tuple(v.value for v in values if isinstance(v, Const) and isinstance(v.value, int))
        ring = s.register_stages > 1 and not operand.shuffle
        slots = (s.register_stages,) if ring else ()
        held = problem.spec.dtype if s.by_warps or s.atom == DP4A.name else problem.sums
        buffer = Buffer(f"{name}_frag", held, Space.PRIVATE, Layout.packed(*slots, *shape))
        registers = Registers(buffer, fragment, Const(0), pipe) if ring else Registers(buffer, fragment)
        matrix, whole = problem.source(name), operand.shuffle
        made = None if name in problem.packed else problem.prologue(name, in_registers=True)
        return OperandPath(problem, name, matrix, transposed, staged, registers, atom, width, whole, made)

    def fill(self, own_row: bool, k0: Expr, kk: Expr) -> Body:
        """Registers filled with what stands `kk` behind the beginning of the step at `k0`.

        Args:
            own_row: whether a sub-group has rows of its own, and reads them as a whole step.
        """
        rows, cols = self.registers.fragment.shape
        if self.staged is not None:
            lines_along_k = self.staged.transposed == (self.name == "b")
            offset = (Const(0), kk) if lines_along_k else (kk, Const(0))
            tile = replace(self.staged, origin=(*self.staged.origin[:-2], *offset), rows=rows, cols=cols)
            return (FragmentLoad(self.registers, tile, self.atom, self.width),)
        out, parts = list[Stmt](), self.problem.parts_of(self.name)
        cols = cols // len(parts)
        for part, (_, begin) in enumerate(parts):
            begin = ROW if own_row and self.whole_step and self.name == "a" else begin
            logical = (begin, k0 + kk) if self.name == "a" else (k0 + kk, begin)
            tile = Tile(self.matrix, logical[::-1] if self.transposed else logical, rows, cols, self.transposed)
            own = epilogues.part_of(self.registers, part, len(parts))
            out.append(FragmentLoad(own, tile, self.atom, self.width, prologue=self.prologue))
        return tuple(out)


def load_from_memory(problem: Problem, name: str) -> tuple[CopyAtom, int]:
    """What fills registers from global memory or an image, and how many neighbours it gives a thread."""
    operand, dtype = problem.operand(name), problem.source(name).dtype
    if operand.memory == "image":
        return IMAGE_BLOCK_READ, operand.width
    if operand.block_read:
        # Where a target has no block reads, lanes next to each other load what a block read would bring them.
        has = problem.target.reads_blocks(dtype)
        return (block_read(problem.schedule.sub_group or 1), operand.width) if has else (SCALAR, 1)
    return problem.vector(operand.width, dtype)
