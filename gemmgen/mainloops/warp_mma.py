"""Warp matrix instructions (`mma`): a warp multiplies fragments that its lanes have loaded from shared memory; a
wavefront (`mfma`) those from global memory.

3xTF32 makes three instructions of one, of the high and low parts of elements, and adds up in two steps: instructions
add up a step of K, which is then added to the accumulators as float32. They drop bits where they add, which would show
over a long K; additions of float32 are rounded. What is not finite has no low part, and is summed a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmgen import epilogues
from gemmgen.checks.lines_of_c import stores_lines
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import PART_OF_VECTOR, SCALAR, AxisLayout, CopyAtom, ThreadValueLayout
from gemmgen.ir.dtypes import BOOL, F64
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, compare, number, select
from gemmgen.ir.instructions import Instruction, matrix_instruction
from gemmgen.ir.kernel import COL, ROW, each_register
from gemmgen.ir.operands import ldmatrix_atom
from gemmgen.ir.stmt import Alloc, Body, Comment, EpilogueStore, Fill, For, If, Registers, Store, Tile
from gemmgen.mainloops import exchange
from gemmgen.mainloops.direct import Direct, OperandPath
from gemmgen.mainloops.shared_memory import SharedTiles
from gemmgen.positions import K0, KK, WARP_COL, WARP_ROW, ThreadLayout
from gemmgen.records import cached_property, dataclass


@dataclass(frozen=True)
class WarpMma(Direct):
    """The mainloop of one kernel.

    Attributes:
        repeats: the mainloop whose product this one repeats by high parts alone: a tile after the other, each where the
            first of the ring lies.
    """

    repeats: WarpMma | None = None

    @cached_property
    def instruction(self) -> Instruction:
        """The warp's."""
        atom = matrix_instruction(self.schedule.atom, self.problem.spec.dtype, "warp")
        if atom is None:
            raise LoweringError(f"no {self.schedule.atom} of {self.problem.spec.dtype}")
        return atom if self.repeats is None else atom.of_heads

    @property
    def lanes(self) -> int | None:
        """A warp's."""
        return self.instruction.lanes

    @cached_property
    def threads(self) -> ThreadLayout:
        """A warp's rows and columns lie in bands as wide as the instruction's operands."""
        layout = ThreadLayout.of(self.schedule, (self.instruction.a.rows.lanes, self.instruction.b.cols.lanes))
        return replace(layout, cols=exchange.before(layout.cols, self._side_by_side))

    @property
    def _side_by_side(self) -> int:
        """Instructions whose columns follow one another, where lanes exchange their sums. What goes through shared
        memory anyway, as with sliced-K, is dealt out anew there.
        """
        return exchange.instructions(self.schedule)

    @cached_property
    def depth(self) -> int:
        """That of an instruction."""
        return self.instruction.depth

    @property
    def written_out(self) -> bool:
        """Always: fragments are registers."""
        return True

    def fragment(self, name: str) -> ThreadValueLayout:
        """As the instruction has it: a lane may hold other rows of A, and columns of B, than of C."""
        a, b, c = self.instruction.a, self.instruction.b, self.instruction.c
        if name == "a":
            return ThreadValueLayout(self.threads.rows if a.rows == c.rows else self._bands(0, a.rows, c.rows), a.cols)
        return ThreadValueLayout(b.rows, self._bands(1, b.cols, c.cols), transposed=True)

    def _bands(self, axis: int, own: AxisLayout, sums: AxisLayout) -> AxisLayout:
        """The rows of A, or columns of B, of all the block's instructions.

        Args:
            own, sums: those that a lane holds of one instruction's operand, and of its sums.
        """
        values = self.schedule.tile[axis] // sums.values * own.values
        lanes = self.schedule.group[axis] // sums.lanes * own.lanes
        bands = AxisLayout(values, lanes, 1, (WARP_ROW, WARP_COL)[axis] + own.lane)
        return bands if axis == 0 else exchange.beside(bands, self._side_by_side, own.lanes)

    def load_instruction(self, name: str, tile: Tile | None, fragment: ThreadValueLayout) -> tuple[CopyAtom, int]:
        """`ldmatrix`, and the elements that it brings a lane: two bands at once where there are two."""
        if tile is None:
            return super().load_instruction(name, tile, fragment)
        bands, depth = (fragment.rows, fragment.cols) if name == "a" else (fragment.cols, fragment.rows)
        width = depth.values * (1 if bands.values % 2 else 2)
        atom = ldmatrix_atom(name, tile.transposed != (name == "b"), self.problem.spec.dtype.size)
        return (SCALAR, 1) if atom is None else (atom, width)

    # --- stored -----------------------------------------------------------------------------------

    @property
    def results(self) -> Registers:
        """The sums, exchanged between the lanes of a line."""
        return exchange.after(self.combined, self._side_by_side)

    def store_instruction(self, update: EpilogueStore) -> CopyAtom:
        """Vectors of which a part may be inside: registers are free that fragments were in, for all that is read of C
        before the first store.
        """
        # Of float64 a pair fills a vector, and waits for multiplications sooner than for C.
        whole = update.width > 1 and update.dst.buffer.dtype.size < F64.size
        whole = whole and not (update.dst.transposed or update.acc.fragment.transposed)
        return PART_OF_VECTOR if whole and not update.atom.adds else update.atom

    def exchanged(self) -> Body:
        """A gate, and the exchange."""
        return (*super().exchanged(), *exchange.statements(self.combined, self._side_by_side))

    def _store(self) -> Body:
        """From registers, or line by line."""
        if not stores_lines(self.problem.spec, self.schedule):
            return super()._store()
        store = epilogues.store_from_registers(self.problem, self.results)
        return *self.exchanged(), *epilogues.store_lines(self.problem, self.results, store)

    # --- sums in two steps ------------------------------------------------------------------------

    @property
    def in_two_steps(self) -> bool:
        """Whether instructions add up a step of K apart from the accumulators."""
        return self.instruction.products > 1

    @property
    def step_sums(self) -> Registers:
        """What an instruction adds to."""
        return step_sums_of(self.acc) if self.in_two_steps else self.acc

    def zeros(self) -> Body:
        """The sums, before all steps."""
        if not self.in_two_steps:
            return super().zeros()
        return *super().zeros(), Alloc(self.step_sums.buffer), Fill(self.step_sums, number(0, self.problem.sums))

    def after_product(self) -> Body:
        """After the last inner step, its sums are added to the accumulators."""
        if not self.in_two_steps:
            return ()
        return (If(Const(self.slice_depth - self.depth) <= KK, add_step(self.acc)),)

    def along_k(self) -> Body:
        """The sum over K; in high and low parts, a second one of high parts alone where there is any NaN."""
        if not self.in_two_steps:
            return super().along_k()
        return (*super().along_k(), *instead_of_nan(self.acc, self._by_high_parts()))

    # --- a second product by high parts -----------------------------------------------------------

    def _by_high_parts(self) -> Body:
        """The loop along K, to sums beside the accumulators."""
        alone = self.schedule.but(stages=1, register_stages=1, across_tiles=False)
        again = WarpMma(replace(self.problem, schedule=alone), repeats=self)
        exact, step = self.problem.exact_k, self.schedule.block_k
        return (For(K0, self.scheduler.k_start, again.k_stop, step, again.step(K0), exact=exact),)

    @cached_property
    def acc(self) -> Registers:
        """A thread's sums."""
        acc = self.accumulators(self.instruction.c.transposed)
        return acc if self.repeats is None else step_sums_of(acc)

    @cached_property
    def tiles(self) -> SharedTiles:
        """Tiles of shared memory that operands pass through."""
        return super().tiles if self.repeats is None else SharedTiles(self.problem, "heads", self.repeats.tiles)

    def path(self, name: str) -> OperandPath:
        """The way of an operand."""
        path = super().path(name)
        if self.repeats is None:
            return path
        buffer = replace(path.registers.buffer, name=f"{name}_head")
        return replace(path, registers=replace(path.registers, buffer=buffer))


#: The registers of a step's sums.
STEP_SUMS = "step_sums"


def step_sums_of(acc: Registers, name: str = STEP_SUMS) -> Registers:
    """What instructions add to in the meantime."""
    return replace(acc, buffer=replace(acc.buffer, name=name))


def add_step(acc: Registers, scale: Expr | None = None, name: str = STEP_SUMS, anew: bool = False) -> Body:
    """Adds a part to the accumulators, each register to its own, and begins the next with zeros.

    Args:
        scale: what a row's part is multiplied by.
        name: of the part.
        anew: whether the next needs no zeros, since its first instruction begins it anew.
    """
    part, dtype = step_sums_of(acc, name), acc.buffer.dtype

    def with_part(total: Expr, place: tuple[Expr, ...]) -> Expr:
        step = Load(part.buffer, place)
        return Bin("+", total, step) if scale is None else Call("fma", (step, scale, total), dtype)

    added = _each(acc, with_part)
    whose = "step" if name == STEP_SUMS else "group"
    said = f"The {whose}'s sum is " + ("added in float32, rounded" if scale is None else "scaled, and added")
    zeros = () if anew else (Fill(part, number(0, part.buffer.dtype)),)
    return (Comment(f"{said}."), *added, *zeros)


def instead_of_nan(acc: Registers, product: Body) -> Body:
    """Where any work-item of the group has NaN, a second product, which `part` takes up, says what it is. What is not
    finite makes NaN of its rest, where it may have to be infinite.
    """
    part, dtype = step_sums_of(acc), acc.buffer.dtype
    doubt = Buffer("doubt", dtype, Space.PRIVATE, Layout.packed(1))
    at = (Const(0),)
    found = _each(acc, lambda total, _: Call("fma", (total, number(0, dtype), Load(doubt, at)), dtype), (doubt, at))
    kept = _each(acc, lambda total, place: select(compare("==", total, total), total, Load(part.buffer, place)))
    again = Call("any_in_group", (compare("!=", Load(doubt, at), number(0, dtype)),), BOOL)
    say = Comment("Inf and NaN have no low part: where it made a sum NaN, the high parts decide.")
    return (say, Alloc(doubt), Store(doubt, at, number(0, dtype)), *found, If(again, (*product, *kept)))


def _each(
    acc: Registers, value: Callable[[Expr, tuple[Expr, ...]], Expr], to: tuple[Buffer, tuple[Expr, ...]] | None = None
) -> Body:
    """Stores what comes of each sum and its place, there or elsewhere."""
    place = acc.at(ROW, COL)
    buffer, at = to or (acc.buffer, place)
    return each_register(acc, Store(buffer, at, value(Load(acc.buffer, place), place)))
