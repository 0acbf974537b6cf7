"""Gemv: lanes that share elements of C, each of which loads neighbours of its own along K and sums them up.

A lane goes along K on its own, by whole loads; what is left of K behind them is less than one load, of which a lane
has one element. Then the sums of lanes meet by shuffles, or in shared memory where a target has none. By shuffles, a
lane gives half of its sums away at a time: to the lane whose number differs in one bit, which gives the other half in
return. Once each has a single sum left, that goes the same way whole. So every lane ends with few sums, and there are
about as many shuffles as sums.

Where a prologue multiplies all elements of a load by the same number, a weight's scale, a lane adds up the load's
products without it, and multiplies their sum.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen import epilogues
from gemmgen.ir.constants import named, said
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, both, compare, select
from gemmgen.ir.kernel import COL, ROW, loop
from gemmgen.ir.stmt import Body, Comment, For, If, Let, Registers, Store
from gemmgen.mainloops.direct import Direct, OperandPath
from gemmgen.mainloops.sum_factors import SumFactors
from gemmgen.positions import K0, LANE_K, LOCAL_COL, LOCAL_ROW, SLICE, SUM_COL, SUM_ROW
from gemmgen.records import cached_property, dataclass
from gemmgen.schedule import Schedule


@dataclass(frozen=True)
class Gemv(Direct):
    """The mainloop of one kernel."""

    @cached_property
    def sums(self) -> LaneSums | None:
        """What lanes make of their sums by shuffles; None where they meet in shared memory."""
        target, lanes = self.problem.target, self.schedule.lanes_along_k
        known = "sub_groups" in target.features and "free_sub_group_size" not in target.features
        shuffled = lanes in target.sub_group_sizes and known and self.problem.sums.real is None
        return LaneSums(self.schedule, self.acc) if shuffled else None

    @property
    def lanes(self) -> int | None:
        """Of a sub-group: those that shuffle."""
        return None if self.sums is None else self.schedule.lanes_along_k

    # --- along K ----------------------------------------------------------------------------------

    @property
    def k_stop(self) -> Expr:
        """Where the sum ends."""
        return self.scheduler.k_end

    @property
    def asks_lines_once(self) -> bool:
        """Always."""
        return True

    @property
    def _place(self) -> Expr:
        """The number of a lane among those that go along K side by side."""
        s = self.schedule
        return SLICE * s.lanes_along_k + LANE_K if s.sliced_k > 1 else LANE_K

    @cached_property
    def depth(self) -> int:
        """Neighbours along K that a lane loads at a time."""
        return named("LOAD_K", super().depth)

    def path(self, name: str) -> OperandPath:
        """The way of an operand, whose elements are made without the factor of sums."""
        return replace(super().path(name), prologue=self._factors.rest(name))

    @cached_property
    def _factors(self) -> SumFactors:
        """What sums are multiplied by, in place of a load's elements, all of which share it: scales of A or B."""
        return SumFactors(self.problem, self.acc, self.depth)

    def along_k(self) -> Body:
        """The sum over K: whole loads, then less than one; and what all products of a sum are multiplied by."""
        return (*self._factors.read_before(), *self._loads_along_k(), *self._factors.scale_sums())

    def _loads_along_k(self) -> Body:
        """The sum over K: whole loads, then less than one."""
        s, end, depth = self.schedule, self.scheduler.k_end, self.depth
        step = s.sliced_k * s.lanes_along_k * depth
        begin = self.scheduler.k_start + self._place * depth
        rounds = s.block_k // step
        body = self.products(K0)
        main = For(K0, begin, end - (depth - 1), step, body, unroll_factor=rounds if rounds > 1 else 0)
        say = Comment(f"Each lane goes along K by {said(depth)} elements at a time." if depth > 1 else "Along K.")
        return (say, *self._whole_and_edge(main), *self._tail())

    def products(self, k: Expr) -> Body:
        """What a lane loads from `k` on, and its products."""
        return self._factors.products(k, self.operands, self.instruction)

    def _tail(self) -> Body:
        """What is left of K behind whole loads: an element for each of some lanes."""
        spec, depth, end = self.problem.spec, self.depth, self.scheduler.k_end
        if depth == 1 or spec.divisor("k") % depth == 0:
            return ()
        s = self.schedule
        single = s.but(a=replace(s.a, width=1), b=replace(s.b, width=1), atom="fma")
        one = Gemv(replace(self.problem, schedule=single, blocks_of=s))
        k = Var("k_left")
        return (
            Comment("What is left of K: a lane has one element of it."),
            Let(k, end - end % depth + self._place),
            If(both(self.scheduler.k_start <= k, k < end) if s.split_k > 1 else k < end, one.products(k)),
        )

    # --- sums -------------------------------------------------------------------------------------

    def _store(self) -> Body:
        """C of the sums of all lanes and slices that share its elements."""
        store, sums = epilogues.store_from_registers(self.problem, self.acc), self.sums
        if sums is None:
            return epilogues.add_up_lanes(self.problem, self.acc, store, shuffled=False)
        one = compare("==", LANE_K % sums.alike, 0) if sums.alike > 1 else None
        if self.schedule.sliced_k == 1:
            return *sums.exchange(), *self._stored(sums.after, one)
        added = epilogues.add_up_lanes(self.problem, sums.after, store, shuffled=True, writes=one)
        return *sums.exchange(), *added

    def _stored(self, acc: Registers, one: Expr | None) -> Body:
        """C of lanes that have the sums of a whole block: nothing of it goes through shared memory.

        Args:
            one: which of the lanes that hold the same sums stores them; None where each holds others.
        """
        names = dict[Var, Expr]()

        def named(axis: AxisLayout, name: Var) -> AxisLayout:
            if axis.lanes == 1:
                return axis
            names[name] = axis.lane
            return replace(axis, lane=name)

        fragment = acc.fragment
        rows, cols = named(fragment.rows, SUM_ROW), named(fragment.cols, SUM_COL)
        acc = replace(acc, fragment=replace(fragment, rows=rows, cols=cols))
        width = min(self.schedule.c_width, fragment.cols.values)
        comment, update = epilogues.store_from_registers(self.problem, acc, width)
        store: Body = (comment, update) if one is None else (comment, If(one, (update,)))
        return *(Let(name, value) for name, value in names.items()), *store


@dataclass(frozen=True)
class LaneSums:
    """The sums of a thread, and what it holds of them after the exchange.

    Attributes:
        acc: the sums of a thread before, packed.
    """

    schedule: Schedule
    acc: Registers

    @property
    def kept(self) -> tuple[int, int]:
        """Rows and columns of sums that a lane holds afterwards."""
        (rows, cols), lanes = self._tile, self._lanes
        own_rows = max(1, rows // lanes)
        return own_rows, max(1, cols // max(1, lanes * own_rows // rows))

    @property
    def _tile(self) -> tuple[int, int]:
        """Its rows and columns as plain numbers: quotients of named ones say nothing to a reader."""
        rows, cols = self.schedule.tile
        return int(rows), int(cols)

    @property
    def _lanes(self) -> int:
        """Those that exchange, as a plain number."""
        return int(self.schedule.lanes_along_k)

    @property
    def alike(self) -> int:
        """Neighbouring lanes that hold the same sums afterwards."""
        (rows, cols), (own_rows, own_cols) = self._tile, self.kept
        return self._lanes // (rows // own_rows * (cols // own_cols))

    @property
    def after(self) -> Registers:
        """The registers as they are then."""
        (rows, cols), (own_rows, own_cols) = self._tile, self.kept
        high, wide = self.schedule.group
        across = cols // own_cols
        down: Expr = LANE_K // (self.alike * across)
        along = LANE_K // self.alike if rows == own_rows else LANE_K // self.alike % across
        fragment = self.acc.fragment
        return replace(
            self.acc,
            fragment=replace(
                fragment,
                rows=_axis(own_rows, rows // own_rows, high, LOCAL_ROW, down),
                cols=_axis(own_cols, across, wide, LOCAL_COL, along),
            ),
        )

    def exchange(self) -> Body:
        """What adds up the sums of the lanes."""
        out: Body = (Comment("Butterfly reduction: lanes exchange halves of their sums, and each ends with its own."),)
        (rows, cols), bit = self.schedule.tile, self._lanes // 2
        while bit:
            if rows * cols == 1:
                out = (*out, *self._whole(bit))
            elif rows > 1:
                rows //= 2
                out = (*out, *self._halves(bit, (rows, cols), (ROW + rows, COL)))
            else:
                cols //= 2
                out = (*out, *self._halves(bit, (rows, cols), (ROW, COL + cols)))
            bit //= 2
        return out

    def _whole(self, bit: int) -> Body:
        """The only sum that is left, to which another lane's is added."""
        place, dtype = self.acc.at(Const(0), Const(0)), self.acc.buffer.dtype
        own = Load(self.acc.buffer, place)
        return (Store(self.acc.buffer, place, Bin("+", own, Call("shuffle_xor", (own, Const(bit)), dtype))),)

    def _halves(self, bit: int, half: tuple[int, int], upper: tuple[Expr, Expr]) -> Body:
        """One half of the sums for the other half of those of the lane whose number differs in `bit`."""
        buffer, dtype = self.acc.buffer, self.acc.buffer.dtype
        is_low, received = Var(f"is_low_{bit}", BOOL), Var("received", dtype)
        first, second = self.acc.at(ROW, COL), self.acc.at(*upper)
        low, high = Load(buffer, first), Load(buffer, second)
        one: Body = (
            Let(received, Call("shuffle_xor", (select(is_low, high, low), Const(bit)), dtype)),
            Store(buffer, first, Bin("+", select(is_low, low, high), received)),
        )
        return (
            Let(is_low, compare("==", LANE_K // bit % 2, 0)),
            *loop(ROW, half[0], loop(COL, half[1], one)),
        )


def _axis(values: int, lanes: int, threads: int, thread: Expr, lane: Expr) -> AxisLayout:
    """Neighbours of an axis over the lanes of a thread's tile, and those over the threads of a group."""
    place: Expr = Const(0)
    if lanes > 1:
        place = thread * lanes + lane if threads > 1 else lane
    elif threads > 1:
        place = thread
    return AxisLayout(values, lanes * threads, values, place)
