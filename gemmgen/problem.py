"""The problem of one kernel: what is asked for, its sizes, its matrices, and the memory that kernels pass on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import (
    ALIGNED_VECTOR,
    ATOMIC_ADD,
    ATOMIC_ADD_VECTOR,
    PAIR,
    SCALAR,
    VECTOR,
    CopyAtom,
    in_pairs,
)
from gemmgen.ir.dtypes import I32, I64, DType
from gemmgen.ir.elementwise import ELEMENT_K, ELEMENT_LINE, Step, element, places_by_type
from gemmgen.ir.expr import Const, Expr, Load, Var, ceil_div, compare, convert, number, select
from gemmgen.ir.instructions import Instruction, matrix_instruction
from gemmgen.ir.kernel import arguments
from gemmgen.ir.sizes import GROUP_COUNT, GROUP_DEPTH, GROUP_ROWS, GROUPS, Workspace
from gemmgen.ir.stmt import Body, Comment, If, Let, PointerIncrement
from gemmgen.ir.synchronization import DependentLaunch
from gemmgen.ir.target import Target
from gemmgen.ir.walk import map_expr, substitute
from gemmgen.kernel_names import kernel_name
from gemmgen.positions import BATCH, BATCH_COUNT, COL0, GROUP, GROUP_BEGIN, ROW0, WHOLE
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import MATRICES, GemmSpec

#: Widths of vectors, for what is assumed of leading dimensions.
WIDTHS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Problem:
    """What a kernel computes. All parts of a builder take it, and ask it for matrices and sizes.

    Attributes:
        transposed: whether the product that was asked for is the transpose of the spec's: a column-major C by rows.
        swapped: whether this kernel computes C^T = B^T A^T, while other kernels of the product compute C.
        named_for: the schedule that names the kernels, where operands are swapped.
        blocks_of: the schedule whose blocks prepacked matrices are made of, where that is another.
    """

    spec: GemmSpec
    schedule: Schedule
    target: Target
    transposed: bool = False
    swapped: bool = False
    named_for: Schedule | None = None
    blocks_of: Schedule | None = None

    @property
    def name(self) -> str:
        """The main kernel's."""
        return kernel_name(self.named_for or self.schedule, self.spec)

    @property
    def rows_are_columns(self) -> bool:
        """Whether its rows are columns of the C that was asked for, by which an epilogue's operands go."""
        return self.swapped != self.transposed

    # --- factors ----------------------------------------------------------------------------------

    @property
    def sums(self) -> DType:
        """The type of everything in registers; elements are converted as they are loaded and stored."""
        return self.spec.accumulator

    @cached_property
    def alpha(self) -> Expr:
        """By its name, or as the spec folds it."""
        return Var("alpha", self.sums) if self.spec.alpha is None else number(self.spec.alpha, self.sums)

    @cached_property
    def beta(self) -> Expr:
        """By its name, or as the spec folds it."""
        return Var("beta", self.sums) if self.spec.beta is None else number(self.spec.beta, self.sums)

    @property
    def asks_alpha(self) -> bool:
        """Whether the kernel itself must see to it that A and B are not read where alpha is 0: K is no argument."""
        return (self.spec.k is not None or self.spec.grouped == "k") and self.spec.alpha is None

    def unless_zero(self, body: Body) -> Body:
        """What is summed along K, where alpha is not zero; elsewhere A and B are not read."""
        if not self.asks_alpha:
            return body
        say = Comment("A and B are not read where alpha is zero.")
        return (say, If(compare("!=", self.alpha, number(0, self.sums)), body))

    def end_unless_zero(self, begin: Expr, end: Expr) -> Expr:
        """Where the sum ends: where alpha is zero, with its beginning, so that A and B are not read."""
        if not self.asks_alpha:
            return end
        return select(compare("==", self.alpha, number(0, self.sums)), begin, end)

    # --- what comments say ------------------------------------------------------------------------

    def title(self, name: str) -> str:
        """What comments call A (`a`), B or C: as the product was asked for."""
        return dict(zip("abc", MATRICES[self.transposed], strict=True))[name]

    def epilogue_comment(self) -> str:
        """What the kernel says of C."""
        spec = self.spec
        reads = ", which reads C." if spec.names_c else "; C is not read where beta is zero."
        return spec.formula(matrices=MATRICES[self.transposed]) + spec.then() + (reads if spec.beta is None else ".")

    # --- sizes ------------------------------------------------------------------------------------

    @cached_property
    def m(self) -> Expr:
        """Rows of C, of a group its own."""
        if self.spec.grouped == "rows":
            return GROUP_ROWS
        return Var("m") if self.spec.m is None else Const(self.spec.m)

    @cached_property
    def n(self) -> Expr:
        """Columns of C."""
        return Var("n") if self.spec.n is None else Const(self.spec.n)

    @cached_property
    def k(self) -> Expr:
        """The axis that is summed over, of a group its share."""
        if self.spec.grouped == "k":
            return GROUP_DEPTH
        return Var("k") if self.spec.k is None else Const(self.spec.k)

    @cached_property
    def units(self) -> dict[str, int]:
        """Extents of a block of C, and of a round along K."""
        blocks = self.blocks_of or self.schedule
        return dict(zip("mnk", (*blocks.block_tile, blocks.round_depth), strict=True))

    @property
    def c_tile(self) -> tuple[int, int]:
        """Rows and columns of C of a block: of a gated product half as many as the block multiplies of B."""
        rows, cols = self.schedule.block_tile
        return rows, cols // self.spec.halves

    def parts_of(self, name: str) -> tuple[tuple[int, Expr], ...]:
        """What a block's rows of A, or columns of B, are made of: the first of each part in the block, and in the
        matrix. Of a gated product a block has the same columns of both halves of B.
        """
        if name == "a":
            return ((0, ROW0),)
        second = ((self.c_tile[1], self.n + COL0),) if self.spec.halves > 1 else ()
        return ((0, COL0), *second)

    @cached_property
    def overlapping(self) -> tuple[bool, bool]:
        """Along C's rows, and along its columns: whether the last block begins earlier, to end where C does. TMA takes
        long for what lies outside of A or B. Two blocks store the same bits then, so that none may read them first. A
        residual is no part of C; but kernels of swapped operands, which read it by elements, were mostly slower so.
        """
        s, spec = self.schedule, self.spec
        takes_matrix = any(OPERANDS[name].axes == "mn" for name in spec.operands)
        if not (s.tma or s.by_warpgroups) or s.stream_k or s.atomic or spec.names_c or (self.swapped and takes_matrix):
            return False, False
        rows, cols = (spec.divisor(axis) % block > 0 for axis, block in zip("mn", self.c_tile, strict=True))
        by_tiles = any(OPERANDS[name].axes == "t" for name in spec.operands)
        return (
            rows and "a" not in self.packed and spec.grouped != "rows",
            cols and "b" not in self.packed and not by_tiles,
        )

    @cached_property
    def exact_k(self) -> bool:
        """Whether K is known to be a multiple of a round's depth."""
        return self.all_packed or self.spec.divisor("k") % self.schedule.round_depth == 0

    @property
    def k_extent(self) -> Expr:
        """Where the main loop may go."""
        return self.named_whole("k") if self.all_packed else self.k

    def whole(self, axis: str) -> Expr:
        """A size in whole blocks, or rounds of K."""
        size, unit = {"m": self.m, "n": self.n, "k": self.k}[axis], self.units[axis]
        assumed = dict(zip("mnk", self.spec.multiple_of, strict=True))[axis]
        return size if assumed % unit == 0 else ceil_div(size, unit) * unit

    def named_whole(self, axis: str) -> Expr:
        """The same by its name, if it needs one."""
        size = self.whole(axis)
        return size if isinstance(size, Var | Const) else WHOLE[axis]

    def wholes(self) -> Body:
        """Names for those, and for the lengths of prepacked matrices' lines."""
        axes = {"a": "m", "b": "n"}
        named = [*(axes[name] for name in self.packed), *("k" for _ in self.packed[:1])]
        lets = tuple(Let(WHOLE[x], self.whole(x)) for x in named if self.named_whole(x) == WHOLE[x])
        return (*lets, *self.named_pitches(*(f"{name}_packed" for name in self.packed)))

    # --- matrices ---------------------------------------------------------------------------------

    @cached_property
    def c(self) -> Buffer:
        """C."""
        return replace(self.matrix("c", self.m, self.n, self.spec.c_order), stored_again=any(self.overlapping))

    def given(self, name: str) -> Buffer:
        """An operand as the caller has it."""
        if name == "a":
            return self.matrix("a", self.m, self.k, self.spec.a_order, "cols")
        cols = self.n if self.spec.halves == 1 else self.n * self.spec.halves
        b = self.matrix("b", self.k, cols, self.spec.b_order, "rows")
        within_lines = self.spec.halves > 1 and self.spec.b_order == "row"
        return replace(b, apart=self.n) if within_lines else b

    def operand(self, name: str) -> Operand:
        """What the schedule says of A or B."""
        return self.schedule.operand(name)

    def source(self, name: str) -> Buffer:
        """An operand as the product reads it: by TMA tiles as deep as a batch of the ring, if it has those."""
        matrix, s = self.packed_matrix(name, writable=False) if name in self.packed else self.given(name), self.schedule
        if not s.tma:
            return matrix
        # The kernel asks for no address in a packed matrix, and so has no name for the length of its lines.
        lines, length = matrix.shape
        layout = Layout.pitched(lines, length, length) if name in self.packed else matrix.layout
        box = (s.round_depth, s.block_tile["ab".index(name)])
        return replace(matrix, layout=layout, tma_tile=box, evict_first=self.operand(name).evict_first)

    def matrix(self, name: str, rows: Expr, cols: Expr, order: str, contracted: str = "") -> Buffer:
        """A parameter, in storage order; `contracted` names the logical axis that is summed over."""
        space = Space.IMAGE if name != "c" and self.operand(name).memory == "image" else Space.GLOBAL
        slow, fast = (rows, cols) if order == "row" else (cols, rows)
        axis = {"": None, "rows": int(order == "col"), "cols": int(order == "row")}[contracted]
        layout = Layout.pitched(slow, fast, self.pitch(name))
        step: Expr | None = Var(f"stride_{name}", I64) if name in self.strided else None
        dtype = self.spec.result if name == "c" else self.spec.element(name)
        if dtype.pairs:
            # Arguments count bytes, and places elements, until `passes/nibbles.py` makes bytes of these.
            layout, step = Layout.pitched(slow, fast, self.pitch(name) * PAIR), None if step is None else step * PAIR
        return Buffer(name, dtype, space, layout, writable=name == "c", contracted=axis, batch_stride=step)

    def pitch(self, name: str) -> Var:
        """The leading dimension of a matrix; of 64 bits, so is every place that it is a factor of."""
        return Var(f"ld{name}", I64 if self.spec.is_wide else I32)

    def is_transposed(self, name: str) -> bool:
        """Whether the product reads an operand by columns."""
        return self.schedule.read_order(name, self.spec.order(name)) == "col"

    def assumptions(self) -> tuple[Expr, ...]:
        """What is known of leading dimensions, of the steps of a batch, and of rows and columns."""
        assumed: list[tuple[Expr, int]] = [(self.pitch(name), self.spec.ld_unit(name)) for name in "abc"]
        assumed += [(Var(f"stride_{name}", I64), self.spec.ld_unit(name)) for name in self.strided]
        sizes = [(self.named_whole(axis), self.units[axis]) for axis in ("mnk" if self.packed else "")]
        lines = [(self._pitch(f"{name}_packed"), self.units[self.packed_axes(name)[1]]) for name in self.packed]
        lines.append((self._pitch("workspace"), 4 if self.schedule.c_width > 1 else 1))
        assumed += [(x, unit) for x, unit in (*sizes, *lines) if isinstance(x, Var)]
        assumed += zip((self.m, self.n), self.spec.multiple_of, strict=False)
        return tuple(compare("==", x % width, 0) for x, unit in assumed for width in WIDTHS if unit % width == 0)

    # --- prepacked operands -----------------------------------------------------------------------

    @property
    def packed(self) -> tuple[str, ...]:
        """The operands that a kernel before this one packs."""
        return tuple(name for name in "ab" if self.operand(name).prepacked)

    @property
    def all_packed(self) -> bool:
        """Whether nothing is read that lies past K without being zero."""
        return len(self.packed) == 2

    @cached_property
    def in_terms(self) -> Instruction | None:
        """What multiplies high and low parts that a kernel before makes of elements, if something does (3xTF32)."""
        atom = matrix_instruction(self.schedule.atom, self.spec.dtype, "warpgroup")
        return atom if atom is not None and atom.terms > 1 else None

    def changes_order(self, name: str) -> bool:
        """Whether packing changes the order of a matrix."""
        return (self.spec.order(name) == "col") != self.is_transposed(name)

    def packed_axes(self, name: str) -> tuple[str, str]:
        """Of a packed operand, the slow axis and the fast one."""
        slow, fast = ("m", "k") if name == "a" else ("k", "n")
        return (fast, slow) if self.is_transposed(name) else (slow, fast)

    def packed_matrix(self, name: str, writable: bool) -> Buffer:
        """An operand in whole tiles, its lines as long as the name says that kernels bind; of elements in two terms, a
        line of high parts and then their low parts, and so on.
        """
        slow, fast = self.packed_axes(name)
        contracted = int((name == "a") != self.is_transposed(name))
        rows, line, pitch = self.whole(slow), self.whole(fast), self._pitch(f"{name}_packed")
        terms = 1 if self.in_terms is None else self.in_terms.terms
        layout = Layout.pitched(rows, line, pitch) if terms == 1 else Layout.pitched(rows, line * terms, pitch * terms)
        dtype = self.spec.made(name)
        return Buffer(f"{name}_packed", dtype, Space.GLOBAL, layout, writable, contracted, prepacked=True)

    # --- prologues --------------------------------------------------------------------------------

    def prologue_parameters(self, matrices: Collection[str]) -> tuple[Buffer, ...]:
        """What a kernel takes that applies the prologues of these matrices."""
        return tuple(self._prologue_operand(name) for name in self.spec.operands if OPERANDS[name].of in matrices)

    def _prologue_operand(self, name: str) -> Buffer:
        """The array; one of a single element has that at 0."""
        operand, lines = OPERANDS[name], self._lines_of(name)
        groups = ceil_div(self.k, operand.group)
        tiles = groups * ceil_div(lines, operand.group)
        extents = {"m": self.m, "n": self.n, "k": self.k, "g": groups * lines, "t": tiles, "": Const(1)}
        extent = extents[operand.axes] * (GROUP_COUNT if self._is_of_group(name) else 1)
        return Buffer(name, self.spec.operand(name), Space.GLOBAL, Layout((extent,), (Const(1),)), writable=False)

    def _lines_of(self, name: str) -> Expr:
        """Rows of A, of all groups, or columns of B."""
        if OPERANDS[name].of == "b":
            return self.n
        return Var("m") if self.spec.grouped else self.m

    def _is_of_group(self, name: str) -> bool:
        """Whether such an array is there for each group of a grouped product, one behind the other."""
        return self.spec.grouped is not None and OPERANDS[name].of == "b"

    def element_of(self, name: str, k: Expr, line: Expr) -> Load:
        """What such an array holds for an element of A or B: for its place along K, and its row or column."""
        operand, lines = OPERANDS[name], self._lines_of(name)
        group, tile = k // operand.group, line // operand.group
        if self._is_of_group(name):
            group = GROUP * ceil_div(self.k, operand.group) + group
        places: dict[str, Expr] = {
            "": Const(0),
            "k": k,
            "g": group * lines + line,
            "t": group * ceil_div(lines, operand.group) + tile,
        }
        return Load(self._prologue_operand(name), (places.get(operand.axes, line),))

    def passes_registers(self, name: str) -> bool:
        """Whether an operand's tiles are loaded into registers, the next one before the current one's arithmetic: where
        that is asked for and, of what warps multiply, where a prologue makes elements on the way.
        """
        if not self.schedule.by_warps:
            return self.schedule.prefetch
        is_copied = self.operand(name).async_copy and name not in self.packed
        return is_copied and (self.schedule.prefetch or self.spec.prologue(name) is not None)

    def prologue(self, name: str, in_registers: bool = False) -> Step | None:
        """The function on an element of A or B, its arrays read from memory.

        Args:
            in_registers: whether it makes elements of registers, which hold the type of sums: rounded to the matrices'
                own all the same, as those that are kept in memory are.
        """
        prologue, sums = self.spec.prologue(name), self.sums
        if prologue is None:
            return None
        values: dict[Var, Expr] = {
            Var(name, sums): element(sums),
            **places_by_type(sums, **{"row" if name == "a" else "col": ELEMENT_LINE}, k=ELEMENT_K),
        }
        for taken in sorted(prologue.names & OPERANDS.keys()):
            values[Var(taken, sums)] = convert(self.element_of(taken, ELEMENT_K, ELEMENT_LINE), sums)
        value = map_expr(prologue.value, substitute(values))
        return Step(f"{name}_made", convert(convert(value, self.spec.dtype), sums) if in_registers else value)

    # --- memory between kernels -------------------------------------------------------------------

    @cached_property
    def buffers_between(self) -> tuple[tuple[Buffer, Expr], ...]:
        """Memory that kernels pass on to others, and the elements that each product has there."""
        out: list[tuple[Buffer, Expr]] = []
        for name in self.packed:
            matrix = self.packed_matrix(name, writable=True)
            out.append((matrix, matrix.shape[0] * matrix.shape[1]))
        if self.schedule.stream_k:
            shares = self.workspace(writable=True)
            out.append((shares, shares.shape[0] * shares.layout.strides[0]))
        elif self.schedule.partial_sums > 1 and not self.schedule.atomic:
            sums = self.workspace(writable=True)
            out.append((sums, sums.shape[0] * (self._of_c[0] * self._lines["workspace"])))
        return tuple(out)

    def workspaces(self) -> tuple[Workspace, ...]:
        """The same as a program has them: for all products of a batch."""
        count = BATCH_COUNT if self.spec.batched else Const(1)
        return tuple(Workspace(x.name, x.dtype, size * count, self._reach(x)) for x, size in self.buffers_between)

    def workspace(self, writable: bool) -> Buffer:
        """The partial sums of K between two kernels: planes of rows that begin where vectors may stand. With stream-K,
        two planes a group, as large as a block.
        """
        if self.schedule.stream_k:
            high, wide = self.schedule.block_tile
            shape = GROUPS * 2, Const(high), Const(wide)
            layout = Layout(shape, (Const(high * wide), Const(wide), Const(1)))
            return Buffer("workspace", self.sums, Space.GLOBAL, layout, writable=writable)
        pitch, (rows, cols) = self._pitch("workspace"), self._of_c
        layout = Layout((Const(self.schedule.partial_sums), rows, cols), (rows * pitch, pitch, Const(1)))
        again = writable and any(self.overlapping)
        return Buffer("workspace", self.sums, Space.GLOBAL, layout, writable=writable, stored_again=again)

    @property
    def _of_c(self) -> tuple[Expr, Expr]:
        """Rows and columns of C, as the kernels before and after have it."""
        return (self.n, self.m) if self.swapped else (self.m, self.n)

    def _reach(self, matrix: Buffer) -> int:
        """How many elements of a matrix places count; block reads from buffers count bytes."""
        bytewise = matrix.prepacked and self.schedule.by_blocks and self.target.reads_blocks(matrix.dtype)
        return matrix.reach // matrix.dtype.size if bytewise and not self.spec.is_wide else matrix.reach

    @property
    def _lines(self) -> dict[str, Expr]:
        """How long the lines of each are."""
        lines = {f"{name}_packed": self.named_whole(self.packed_axes(name)[1]) for name in self.packed}
        cols = self._of_c[1]
        return {**lines, "workspace": ceil_div(cols, 4) * 4 if self.schedule.c_width > 1 else cols}

    def _pitch(self, name: str) -> Expr:
        """The length of a line, by its name if it needs one; by one of 64 bits where matrices may be of any span: so is
        every place then.
        """
        line = self._lines[name]
        if not self.spec.is_wide:
            return line if isinstance(line, Var | Const) else Var(f"ld_{name}")
        return Const(line.value, I64) if isinstance(line, Const) else Var(f"ld_{name}", I64)

    def named_pitches(self, *names: str) -> Body:
        """Names for how far the lines of these lie apart, where they have any."""
        named = ((self._pitch(name), self._lines[name]) for name in names)
        return tuple(Let(pitch, line) for pitch, line in named if isinstance(pitch, Var) and pitch != line)

    # --- batches and parameters -------------------------------------------------------------------

    @property
    def strided(self) -> str:
        """The matrices that each product has its own of, a stride behind the one before."""
        if self.spec.grouped:
            return {"rows": "b", "k": "c"}[self.spec.grouped]
        return "abc" if self.spec.batched and not self.spec.listed else ""

    @property
    def layers(self) -> Var | None:
        """How many products have a grid each; None where one grid is all."""
        return GROUP_COUNT if self.spec.grouped == "k" else BATCH_COUNT if self.spec.batched else None

    @property
    def product(self) -> Var:
        """Which of those a kernel's block is of: a product of a batch, or a group."""
        return GROUP if self.spec.grouped else BATCH

    @property
    def products(self) -> Var:
        """How many there are."""
        return GROUP_COUNT if self.spec.grouped else BATCH_COUNT

    @property
    def by_coordinates(self) -> bool:
        """Whether coordinates say which group's C it is, and which operands of an epilogue, not pointers: where a
        kernel goes from group to group, and where TMA stores rows of a C that groups share out.
        """
        s, kind = self.schedule, self.spec.grouped
        return kind is not None and (s.persistent or (kind == "rows" and s.epilogue_stages > 0))

    @property
    def ends_with_groups(self) -> bool:
        """Whether coordinates say which rows of C, and of what an epilogue takes, a group has of those of all."""
        return self.by_coordinates and self.spec.grouped == "rows"

    def three_dimensional(self, matrix: Buffer) -> Buffer:
        """A matrix of a batch, or one that each group has its own of, by three coordinates, the first of which says
        which one: so tensor maps have it, and so does a persistent kernel, whose groups go from one product to another.
        A vector that each group has its own of, by two, if by coordinates at all. Anything else as it is.
        """
        if matrix.batch_stride is not None and len(matrix.shape) == 1 and self.by_coordinates:
            layout = Layout((self.products, *matrix.shape), (matrix.batch_stride, *matrix.layout.strides))
            return replace(matrix, layout=layout, batch_stride=None)
        if matrix.batch_stride is None or len(matrix.shape) != 2:
            return matrix
        layout = Layout((self.products, *matrix.shape), (matrix.batch_stride, *matrix.layout.strides))
        contracted = None if matrix.contracted is None else matrix.contracted + 1
        return replace(matrix, layout=layout, contracted=contracted)

    def which_product(self, matrix: Buffer) -> tuple[Expr, ...]:
        """The coordinate that stands before the others of such a matrix."""
        return (self.product,) if len(matrix.shape) > 2 else ()

    def _to_group(self, matrices: Collection[Buffer | None]) -> Body:
        """Moves matrices on to what a group has of them: by a stride, or to where its share begins along their rows, or
        along K.
        """
        out: list[PointerIncrement] = []
        for x in matrices:
            if x is not None and x.batch_stride is not None:
                out.append(PointerIncrement(x, GROUP * x.batch_stride))
            elif x is not None:
                out.append(PointerIncrement(x, GROUP_BEGIN * x.layout.strides[self._ragged_axis(x)]))
        return tuple(out)

    def _ragged_axis(self, matrix: Buffer) -> int:
        """The storage axis of a matrix, or of an epilogue's operand, that groups share out."""
        if matrix.contracted is not None:
            return matrix.contracted if self.spec.grouped == "k" else 1 - matrix.contracted
        return int(len(matrix.shape) > 1 and self.spec.c_order == "col")

    def to_product(self, *matrices: Buffer | None) -> Body:
        """Of a batch or a grouped product, moves the matrices on to this group's product."""
        if self.spec.grouped:
            return self._to_group(matrices)
        if not self.spec.batched:
            return ()
        wide = self.spec.is_wide
        sizes = {x.name: x.shape[0] * x.layout.strides[0] if wide else size for x, size in self.buffers_between}
        out: list[PointerIncrement] = []
        for x in matrices:
            if x is None:
                continue
            if x.batch_stride is None and x.name not in sizes:
                out.append(PointerIncrement(x, Load(self._addresses(x), (BATCH,))))
            else:
                step = x.batch_stride or sizes[x.name]
                out.append(PointerIncrement(x, BATCH * in_pairs(step) * PAIR if x.dtype.pairs else BATCH * step))
        return tuple(out)

    @staticmethod
    def _addresses(matrix: Buffer) -> Buffer:
        """Where the matrices of a batch are."""
        layout = Layout((BATCH_COUNT,), (Const(1),))
        return Buffer(f"{matrix.name}_list", I64, Space.GLOBAL, layout, writable=False, addresses=matrix)

    def parameters_of(self, *matrices: Buffer) -> tuple[Buffer | Var, ...]:
        """The parameters that say where matrices are."""
        out: list[Buffer | Expr | None] = []
        for matrix in matrices:
            alone = matrix.space is Space.IMAGE or matrix.prepacked
            lists = [self._addresses(matrix)] if self.spec.listed and not alone and matrix.name in "abc" else []
            steps = (matrix.layout.strides[-2], matrix.batch_stride)
            counted = [in_pairs(x) if matrix.dtype.pairs and x is not None else x for x in steps]
            out += [matrix] if alone else [matrix, *lists, *counted]
        return arguments(*out)

    # --- dependent launches -----------------------------------------------------------------------

    def awaited(self, *buffers: Buffer) -> Body:
        """Waits for the kernels before, which have written these, on devices where a kernel begins before they end."""
        return (DependentLaunch("await", buffers),) if buffers and self._launches_early else ()

    def released(self) -> Body:
        """Lets the next kernel begin."""
        return (DependentLaunch("release"),) if self._launches_early else ()

    @property
    def _launches_early(self) -> bool:
        """Whether a kernel of the device may begin before the one before it ends, and those of this product do."""
        return "dependent_launch" in self.target.features and not self.schedule.serial_launch

    # --- instructions of a single thread ----------------------------------------------------------

    def vector(self, width: int, dtype: DType) -> tuple[CopyAtom, int]:
        """The instruction that moves `width` neighbours, or as many as the target can."""
        atom = VECTOR if "unaligned_vectors" in self.target.features else ALIGNED_VECTOR
        in_pairs_of = PAIR if dtype.pairs and width > 1 else 1
        width = atom.widest(width // in_pairs_of, dtype.size) * in_pairs_of
        return (atom, width) if width > 1 else (SCALAR, 1)

    def adding_vector(self, width: int) -> tuple[CopyAtom, int]:
        """The instruction that adds `width` neighbours to global memory, or as many as the target can."""
        if width == 1 or "atomic_vectors" not in self.target.features:
            return ATOMIC_ADD, 1
        return ATOMIC_ADD_VECTOR, ATOMIC_ADD_VECTOR.widest(width, self.spec.result.size)
