"""Warpgroup matrix instructions (`wgmma`): TMA loads tiles that warpgroups multiply, out of shared memory or with A
from registers. The kernel is specialised by warps: one producer thread loads, all others multiply and store.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import epilogues, groups, kernels
from gemmgen.checks.roles import MOST_LINES
from gemmgen.checks.warpgroup_mma import exchange_operands
from gemmgen.epilogues import WarpgroupEpilogue
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import is_free
from gemmgen.ir.copy_instructions import (
    ALIGNED_VECTOR,
    BYTE_OF_PAIR,
    PAIR,
    SCALAR,
    AxisLayout,
    CopyAtom,
    ThreadValueLayout,
)
from gemmgen.ir.dtypes import I8, I64, DType
from gemmgen.ir.elementwise import Step
from gemmgen.ir.expr import Const, Expr, Var, convert, number
from gemmgen.ir.instructions import (
    WARPGROUP_LANES,
    WGMMA_DEPTH_BYTES,
    WORD_BYTES,
    Instruction,
    matrix_instruction,
    wgmma_form,
)
from gemmgen.ir.kernel import Kernel, Limit, arguments
from gemmgen.ir.operands import LDMATRIX_BYTES, ldmatrix_atom
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import (
    Alloc,
    Body,
    Comment,
    CooperativeCopy,
    Fill,
    For,
    FragmentLoad,
    Let,
    Registers,
    Stmt,
    Tile,
    TileMma,
)
from gemmgen.ir.swizzle import LINES_BYTES, line_bytes
from gemmgen.ir.synchronization import Barrier, Pipe, PipeOp, StoreGroup, WarpSpecialization
from gemmgen.mainloops.held_prologue import HeldPrologue
from gemmgen.mainloops.mainloop import Mainloop
from gemmgen.mainloops.step_sums import StepSums
from gemmgen.passes.nibbles import in_bytes
from gemmgen.positions import (
    COL0,
    K0,
    LOCAL_COL,
    ROW0,
    ThreadLayout,
)
from gemmgen.problem import Problem
from gemmgen.records import cached_property, dataclass

#: Where the sum ends in a kernel that asks for alpha itself.
K_LAST = Var("k_last")


@dataclass(frozen=True)
class WarpgroupMma(Mainloop):
    """The mainloop and its kernel.

    Attributes:
        problem: what this kernel computes: the product, or the same with its operands swapped.
        product: what kernels before and after this one are of.
    """

    product: Problem

    @staticmethod
    def of(product: Problem) -> WarpgroupMma:
        """For a problem whose schedule may ask for its operands to be swapped."""
        if not product.schedule.operands_swapped:
            return WarpgroupMma(product, product)
        spec, schedule = exchange_operands(product.spec, product.schedule)
        swapped = replace(product, spec=spec, schedule=schedule, swapped=True, named_for=product.named_for)
        return WarpgroupMma(swapped, product)

    @cached_property
    def threads(self) -> ThreadLayout:
        """Which elements of C each thread holds."""
        return ThreadLayout.of_warpgroups(self.schedule, self.instruction.paired)

    @cached_property
    def epilogue(self) -> WarpgroupEpilogue:
        """What stores C, or partial sums."""
        return WarpgroupEpilogue(self.problem, self.threads, self.instruction)

    @cached_property
    def pipe(self) -> Pipe:
        """The ring of tiles between producer and consumers."""
        s = self.schedule
        high, wide = s.group
        storing = high * wide // WARPGROUP_LANES if s.ordered_epilogue else 0
        roles = WarpSpecialization(
            high * wide, high, s.setmaxnreg, self.scheduler.clustered // s.cluster_reduction, storing
        )
        return Pipe("tiles", s.stages, "roles", roles=roles)

    @cached_property
    def instruction(self) -> Instruction:
        """The one for all columns of a warpgroup."""
        s, spec = self.schedule, self.problem.spec
        atom = matrix_instruction(s.atom, spec.dtype, "warpgroup")
        if atom is None:
            raise LoweringError(f"no {s.atom} of {spec.dtype}")
        a_transposed, b_transposed = self.problem.is_transposed("a"), not self.problem.is_transposed("b")
        held = s.a.memory == "private"
        paired = held and a_transposed and spec.element("a").size == 1
        cols = s.block_tile[1] // s.warpgroups[1]
        return wgmma_form(atom, cols, a_transposed, b_transposed, held, paired)

    @cached_property
    def acc(self) -> Registers:
        """A thread's sums."""
        return self.accumulators()

    # --- tiles ------------------------------------------------------------------------------------

    def _element(self, name: str) -> DType:
        """What an operand's tile holds: what it is stored in, where prologues are applied to registers."""
        from_registers = self.instruction.held and name == "a"
        found = self.problem.spec.element(name) if from_registers else self.problem.spec.made(name)
        return I8 if found.pairs else found

    def _each(self, name: str) -> int:
        """Elements of an element of an operand's tile: bytes of int4 hold pairs along K, taken apart in registers."""
        return PAIR if name == "a" and self.problem.source("a").dtype.pairs else 1

    @property
    def _depth(self) -> int:
        """Elements of a step along K, high and low parts counted apart."""
        return self.schedule.block_k * self.instruction.terms

    def _logical(self, name: str) -> tuple[int, int]:
        """Rows and columns of an operand's tile."""
        rows, cols = self.schedule.block_tile
        return (rows, self._depth // self._each("a")) if name == "a" else (self._depth, cols)

    def _extents(self, name: str) -> tuple[int, int]:
        """The same in storage order."""
        rows, cols = self._logical(name)
        return (cols, rows) if self.problem.is_transposed(name) else (rows, cols)

    def _extents_of_part(self, name: str) -> tuple[int, int]:
        """The same of each part of a tile (`Problem.parts_of`)."""
        slow, fast = self._extents(name)
        parts, across_k = len(self.problem.parts_of(name)), self.problem.is_transposed(name) != (name == "b")
        return (slow, fast // parts) if across_k else (slow // parts, fast)

    def _line(self, name: str) -> int:
        """Elements of a line of an operand's tile."""
        size = self._element(name).size
        along = self.schedule.tile_line(name, self.problem.spec.order(name)) // self._each(name)
        line = line_bytes(along * size) // size
        # Of the widest there may be several side by side.
        several = is_free(along) and line * size == LINES_BYTES[-1]
        return along if along == line and not several else line

    def matrix(self, name: str) -> Buffer:
        """An operand as tensor maps have it: TMA tiles as wide as a line in shared memory. Packed ones have no gaps. Of
        a tile that a cluster shares by multicast each group brings some TMA tiles, or some lines of each.
        """
        matrix = self.problem.source(name)
        matrix = in_bytes(matrix) if matrix.dtype.pairs else matrix
        if name in self.problem.packed:
            lines, length = matrix.shape
            step = convert(lines, I64) * length if self.problem.spec.batched else None
            matrix = replace(matrix, layout=Layout.pitched(lines, length, length), batch_stride=step)
        (slow, fast), shared = self._extents_of_part(name), self.schedule.cluster[1 if name == "a" else 0]
        line = self._line(name)
        line = min(line, fast)
        by_boxes = fast % (line * shared) == 0
        box = slow if by_boxes else slow // shared, line
        # What a prologue makes elements into is rounded after that.
        made = name == "a" and self._prologue is not None and self._prologue.step is not None
        rounded = matrix.dtype == self.instruction.dtype and self.instruction.rounded_by_tma and not made
        first = self.schedule.operand(name).evict_first
        boxed = replace(matrix, tma_tile=box, rounded=rounded, multicast=shared, evict_first=first)
        return groups.ending_with(boxed) if self._is_shared_out(boxed) else self.problem.three_dimensional(boxed)

    def _is_shared_out(self, matrix: Buffer) -> bool:
        """Whether groups have lines of it, not a matrix each."""
        return self.problem.spec.grouped is not None and matrix.batch_stride is None

    def tile(self, name: str) -> Tile:
        """The ring of an operand's tiles, each [box][line][element]; the last box may be narrower than its lines."""
        slow, fast = self._extents(name)
        line, element = self._line(name), self._element(name)
        layout = Layout.packed(self.schedule.stages, -(-fast // line), slow, line)
        layout = replace(layout, swizzle=line * element.size)
        buffer = Buffer(f"{name}_shared", element, Space.LOCAL, layout)
        rows, cols = self._logical(name)
        zero = Const(0)
        return Tile(buffer, (zero, zero, zero, zero), rows, cols, self.problem.is_transposed(name), self.pipe)

    def _source(self, name: str, begin: Expr | None = None) -> Tile:
        """Where the TMA tiles of a step come from, from a row of A or a column of B on."""
        k0 = K0 * self.instruction.terms // self._each(name)
        matrix, transposed = self.matrix(name), self.problem.is_transposed(name)
        begin = begin or (ROW0 if name == "a" else COL0)
        logical = (begin, k0) if name == "a" else (k0, begin)
        slow, fast = logical[::-1] if transposed else logical
        place: tuple[Expr, ...] = (*self.problem.which_product(matrix), slow, fast)
        place = groups.place_in(self.problem, slow, fast) if self._is_shared_out(matrix) else place
        rows, cols = self._logical(name)
        return Tile(matrix, place, rows, cols // len(self.problem.parts_of(name)), transposed)

    def _loads(self, name: str) -> Body:
        """What fills an operand's tile, part by part."""
        tile, out = self.tile(name), list[Stmt]()
        for first, begin in self.problem.parts_of(name):
            source, line = self._source(name, begin), self._line(name)
            # The tile is [box][line][element]: of lines along K, some lines of each box, else some boxes.
            box, down = (first // line, 0) if tile.transposed != (name == "b") else (0, first)
            origin = (tile.origin[0], Const(box), Const(down), Const(0))
            part = tile if source.cols == tile.cols else replace(tile, origin=origin, cols=source.cols)
            out.append(CooperativeCopy(part, source, SCALAR))
        return tuple(out)

    # --- along K ----------------------------------------------------------------------------------

    @cached_property
    def _a_registers(self) -> Registers:
        """A step's A in registers, where it is multiplied from there."""
        lane = LOCAL_COL if self.schedule.warpgroups[1] == 1 else LOCAL_COL % 4
        return _registers_of_a(self.instruction, self.schedule.block_k, self.threads.rows, lane)

    def _multiply(self, sums: tuple[Registers, ...]) -> Body:
        """The products of a step; where there are several sums, of each of its lines along K."""
        if not self.instruction.held:
            tiles, lines = (self.tile("a"), self.tile("b")), range(len(sums)) if len(sums) > 1 else (None,)
            anew = bool(self._step_sums.operands)
            return tuple(TileMma(x, *tiles, self.instruction, line, anew) for x, line in zip(sums, lines, strict=True))
        source, each, made = self._source("a"), self._each("a"), self._prologue
        # Prologues ask for places by elements.
        of = source if each == 1 else replace(source, origin=(*source.origin[:-1], K0))
        filled = _fill(self._a_registers, self.tile("a"), of, each, None if made is None else made.step)
        return (filled, TileMma(sums[0], self._a_registers, self.tile("b"), self.instruction))

    @cached_property
    def _prologue(self) -> HeldPrologue | None:
        """What makes A's elements on their way to registers."""
        if not self.instruction.held:
            return None
        return HeldPrologue(self.problem, self.threads.rows, self.threads.rows.values * self.acc.fragment.cols.values)

    @cached_property
    def _step_sums(self) -> StepSums:
        """A step's sums beside those of all of K."""
        return StepSums(self.problem, self.threads.rows)

    @property
    def _k_stop(self) -> Expr:
        return K_LAST if self.problem.asks_alpha else self.scheduler.k_end

    def _k_last(self) -> Body:
        """A name for it, where alpha decides."""
        if not self.problem.asks_alpha:
            return ()
        return (Let(K_LAST, self.problem.end_unless_zero(self.scheduler.k_start, self.scheduler.k_end)),)

    def _block(self) -> Body:
        """One block of C, or a part of its sum."""
        pipe, zero, scales, made = self.pipe, number(0, self.problem.sums), self._step_sums, self._prologue
        sums: tuple[Registers, ...] = (self.acc,)
        fresh: Body = ()
        added: Body = ()
        scales_steps = made is not None and made.scales_steps
        if self.instruction.terms > 1 or scales.operands or scales_steps:
            sums, added = scales.sums(self.acc), scales.add_step(self.acc)
            added = made.add_step(self.acc) if made is not None and scales_steps else added
            zeros = () if scales.operands else tuple(Fill(x, zero) for x in sums)
            fresh = (*(Alloc(x.buffer) for x in sums), *zeros)
        step = (
            PipeOp("acquire", pipe),
            *(load for name in "ab" for load in self._loads(name)),
            PipeOp("commit", pipe),
            PipeOp("wait", pipe),
            *(() if made is None else made.reads.read_in_step()),
            *scales.reads.read_in_step(),
            *self._multiply(sums),
            PipeOp("release", pipe),
            *added,
        )
        said = "C^T = B^T * A^T: columns of C are the rows of the sums."
        start, exact = self.scheduler.k_start, self.problem.exact_k
        return (
            *((Alloc(self._a_registers.buffer),) if self.instruction.held else ()),
            Alloc(self.acc.buffer),
            Fill(self.acc, zero),
            *fresh,
            *(() if made is None else made.reads.read_before(start, self._k_stop)),
            *scales.reads.read_before(start, self._k_stop),
            *self.epilogue.read_before(),
            *((Comment(said),) if self.problem.rows_are_columns else ()),
            For(K0, start, self._k_stop, self.schedule.block_k, step, exact=exact),
            *(() if made is None else made.scale_sums(self.acc)),
            *self._slots_read(),
            *self.epilogue.store(self.acc),
        )

    def _slots_read(self) -> Body:
        """TMA stores of the last block read their slots for some time, for most of which there is K to go."""
        if not (self.schedule.persistent and self.schedule.epilogue_stages):
            return ()
        return (StoreGroup("wait", 0), Barrier(of_sub_group=True))

    # --- the kernels ------------------------------------------------------------------------------

    def kernels_before(self) -> tuple[Kernel, ...]:
        """What packs operands."""
        return kernels.packing(self.product)

    def workspaces(self) -> tuple[Workspace, ...]:
        """The memory between kernels."""
        return self.product.workspaces()

    def kernel(self) -> Kernel:
        """What multiplies."""
        problem, s, slots, joined = self.problem, self.schedule, self.epilogue.slots, self.schedule.cluster_reduction
        shared = [self.tile("a").buffer, self.tile("b").buffer, *(() if slots is None else (slots,))]
        # Wide lines first: eight lines begin on a multiple of their bytes.
        tiles: Body = tuple(map(Alloc, sorted(shared, key=lambda x: -x.layout.swizzle)))
        left: Body = ()
        if slots is not None:
            left = (
                Comment("A block may not exit while TMA stores still read its shared memory."),
                StoreGroup("wait", 0),
            )
        names: Body = (*self.scheduler.positions(self.threads), *self.threads.warpgroup(), *self._k_last())
        names, blocks = self.scheduler.loop_over_blocks(names, self._block())
        params = self._parameters()
        grouped = problem.spec.grouped is not None
        moved = problem.to_product(*self._by_pointers)
        begun: Body = (Barrier(groups=joined, part="arrive"),) if joined > 1 else ()
        awaited = problem.awaited(*(p for p in params if isinstance(p, Buffer)))
        of_many: tuple[Expr, ...] = (problem.products - problem.product - 1,) if problem.strided else ()
        of_many += groups.assumptions(problem) if problem.ends_with_groups else ()
        return Kernel(
            name=problem.name,
            params=params,
            # Blocks of the next kernel, if it waits as this one does, wait where this one leaves room. Where groups end
            # is read by the first names.
            body=(
                *(awaited if grouped else ()),
                *names,
                *begun,
                *(() if grouped else awaited),
                *problem.released(),
                *tiles,
                *moved,
                *blocks,
                *left,
            ),
            group=s.all_work_items,
            grid=self.scheduler.grid(),
            sub_group=self.instruction.lanes,
            nonnegative=(*self.scheduler.assumptions(), *of_many),
            assumptions=problem.assumptions(),
            grid_z=self.scheduler.layers,
            persistent=s.persistent,
            cluster=self.scheduler.clustered,
            swapped=problem.swapped,
            multiples=((s.block_k, self.instruction.depth),) if is_free(s.block_k) else (),
            limits=self._limits,
        )

    @property
    def _by_pointers(self) -> tuple[Buffer, ...]:
        """Of what the epilogue writes and takes, what no coordinate tells the products of: pointers go to one's own."""
        if self.problem.spec.grouped is None:
            return () if self.epilogue.whole else (self.epilogue.result,)
        if self.problem.by_coordinates:
            return ()
        found = (self.epilogue.result, *epilogues.matrices(self.problem))
        return tuple(x for x in found if len(x.shape) < 3 and self.problem.three_dimensional(x) == x)

    @property
    def _limits(self) -> tuple[Limit, ...]:
        """Of the depth of a step: lines along K that are narrow swizzle differently, and TMA tiles end across K."""
        depth, limits = self.schedule.block_k, list[Limit]()
        if self._step_sums.operands:
            limits.append(Limit(depth, depth, depth, "scales of sums hold for as many along K"))
        for name in "ab":
            if self.problem.is_transposed(name) != (name == "b"):
                limits.append(Limit(depth, None, MOST_LINES, "TMA tiles have no longer sides"))
            elif (size := depth * self._element(name).size // self._each(name)) < LINES_BYTES[-1]:
                limits.append(Limit(depth, depth, depth, f"its lines swizzle as lines of {int(size)} bytes do"))
        return tuple(dict.fromkeys(limits))

    def _parameters(self) -> tuple[Buffer | Var, ...]:
        problem, epilogue = self.problem, self.epilogue
        held = {"a"} - {*problem.packed} if self.instruction.held else set[str]()
        made = problem.prologue_parameters(held | self._step_sums.operands)
        order: list[Buffer | Expr] = [*groups.sizes(problem), problem.alpha]
        order += problem.parameters_of(self.matrix("a"), self.matrix("b"))
        if epilogue.whole:
            order += [problem.beta, *problem.parameters_of(epilogue.c), *made, *epilogue.operands()]
        else:
            order += [epilogue.result, *made]
        order += [problem.products] if self.scheduler.batch_in_line else []
        return arguments(*order)


# --- A from registers -----------------------------------------------------------------------------


def _registers_of_a(atom: Instruction, k_step: int, rows: AxisLayout, lane: Expr) -> Registers:
    """A step's A, the fragments of its instructions after one another."""
    fragment = ThreadValueLayout(rows, replace(atom.a.cols, lane=lane))
    shape = k_step // atom.depth, rows.values, fragment.cols.values
    return Registers(Buffer("a_frag", atom.dtype, Space.PRIVATE, Layout.packed(*shape)), fragment, Const(0))


def _fill(dst: Registers, src: Tile, of: Tile, each: int, made: Step | None) -> FragmentLoad:
    """What loads it there from its tile, which TMA fills from `of`; `each` of its elements hold several."""
    atom, width = _instruction(dst, src, made is not None) if each == 1 else (BYTE_OF_PAIR, each)
    return FragmentLoad(dst, src, atom, width, prologue=made, of=of)


def _instruction(dst: Registers, src: Tile, changes: bool) -> tuple[CopyAtom, int]:
    """The instruction that reads the tile, and the elements that it gives a work-item."""
    dtype, run = dst.buffer.dtype, dst.fragment.cols.vector
    atom = ldmatrix_atom("a", src.transposed, dtype.size)
    if atom is not None and not changes and src.buffer.dtype == dtype:
        return atom, 4 * WORD_BYTES // dtype.size
    # One transposing ldmatrix of bytes fills the fragments of one instruction on bytes, or of two on 2-byte elements.
    # It does not fit TF32, nor a block K shorter than that.
    fits = src.buffer.dtype.size == 1 and dtype.size <= 2 and src.cols % WGMMA_DEPTH_BYTES == 0
    if src.transposed and fits:
        return LDMATRIX_BYTES, LDMATRIX_BYTES.widths[0]
    return (SCALAR, 1) if src.transposed or run == 1 else (ALIGNED_VECTOR, run)
