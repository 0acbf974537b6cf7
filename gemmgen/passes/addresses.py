"""Addresses of block reads, held by lanes, worked out before the main loop and moved on by it.

A sub-group's reads need an address each, the same for all lanes: scalar arithmetic, an instruction of which costs as
much as a multiply-add of all lanes does. Here each lane holds another read's address, so that one vector instruction
moves eight or sixteen of them on, and to use one is a broadcast. They count bytes, which saves a shift. The loop moves
them on before it reads: at its end, compilers would do so on the way back only, in a part of the loop of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, as_int
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, Comment, For, Let, Move, Stmt, Store, in_bytes
from gemmgen.ir.visit import map_body, map_expr, substitute, walk_expr
from gemmgen.passes.expand import loop

_PART = Var("i")
_LANE = Call("lane_id", (), I32)


def addresses(kernel: Kernel) -> Kernel:
    """The kernel with such addresses."""
    if kernel.sub_group is None:
        return kernel
    lane = next((s.var for s in kernel.body if isinstance(s, Let) and s.value == _LANE), None)
    own: Expr = _LANE if lane is None else lane

    def main_loop(stmt: Stmt) -> Body:
        if isinstance(stmt, For) and not stmt.unroll and as_int(stmt.start) == 0:
            return _main_loop(stmt, kernel.sub_group or 1, own)
        return (stmt,)

    return replace(kernel, body=map_body(kernel.body, main_loop))


def _main_loop(main: For, lanes: int, own: Expr) -> Body:
    """A main loop, and before it what its addresses need."""
    found = [(part, reads) for part in main.body if (reads := _reads(part, main)) is not None]
    # A matrix that is read at two places keeps its plain addresses.
    names = [reads.move.src.name for _, reads in found]
    held = {id(part): _Held(reads, lanes, own) for part, reads in found if names.count(reads.move.src.name) == 1}
    if not held:
        return (main,)
    body = tuple(held[id(part)].rewritten(part) if id(part) in held else part for part in main.body)
    before = tuple(s for h in held.values() for s in h.before(main))
    on = tuple(s for h in held.values() for s in h.on(main))
    say = Comment("Where block reads begin, in bytes, a read or half a read a lane; a step before the first.")
    return (say, *before, replace(main, body=(*on, *body)))


@dataclass(frozen=True, slots=True)
class _Reads:
    """Loops over nothing but one read.

    Attributes:
        loops: variables and rounds, the outermost first.
    """

    move: Move
    loops: tuple[tuple[Var, int], ...]
    axis: int

    @property
    def count(self) -> int:
        total = 1
        for _, rounds in self.loops:
            total *= rounds
        return total

    @property
    def number(self) -> Expr:
        """Which of the reads it is."""
        total: Expr = Const(0)
        for var, rounds in self.loops:
            total = total * rounds + var
        return total

    def numbered(self, number: Expr) -> dict[Var, Expr]:
        """The loops' variables of a read by its number."""
        values: dict[Var, Expr] = {}
        for var, rounds in reversed(self.loops[1:]):
            values[var], number = number % rounds, number // rounds
        # Numbers past the last are held by lanes that nobody asks.
        return values | {var: number for var, _ in self.loops[:1]}


def _reads(part: Stmt, main: For) -> _Reads | None:
    loops: list[tuple[Var, int]] = []
    while isinstance(part, For) and part.unroll and len(part.body) == 1:
        rounds = as_int(part.stop)
        if as_int(part.start) != 0 or part.step != 1 or rounds is None:
            return None
        loops.append((part.var, rounds))
        (part,) = part.body
    if not isinstance(part, Move) or not any(part.atom.lane_step) or part.byte_place is not None:
        return None
    if part.atom.edge == "inside":
        return None  # one after the other as they lie: an address and constants
    axes = [axis for axis, place in enumerate(part.src_index) if main.var in walk_expr(place)]
    if len(axes) != 1 or not _is_sum(part.src_index[axes[0]], main.var):
        return None
    reads = _Reads(part, tuple(loops), axes[0])
    return reads if part.src.space in (Space.IMAGE, Space.GLOBAL) and reads.count > 1 else None


def _is_sum(place: Expr, var: Var) -> bool:
    """Whether an expression is a sum that the variable stands in once."""
    match place:
        case Var():
            return place == var
        case Bin("+", a, b):
            first, second = var in walk_expr(a), var in walk_expr(b)
            return first != second and _is_sum(a if first else b, var)
    return False


@dataclass(frozen=True, slots=True)
class _Held:
    """The addresses of some reads.

    Attributes:
        lanes: of a sub-group.
        own: the number of a lane.
    """

    reads: _Reads
    lanes: int
    own: Expr

    @property
    def parts(self) -> int:
        """Numbers of an address: two for an image, side by side in two lanes, as its instruction wants them."""
        return 2 if self.reads.move.src.space is Space.IMAGE else 1

    @property
    def places(self) -> int:
        """Registers that all addresses take."""
        return -(-self.reads.count * self.parts // self.lanes)

    @property
    def buffer(self) -> Buffer:
        extents = (self.places,) if self.places > 1 else ()
        return Buffer(f"{self.reads.move.src.name}_at", I32, Space.PRIVATE, Layout.packed(*extents))

    def _index(self, place: Expr) -> tuple[Expr, ...]:
        return (place,) if self.places > 1 else ()

    def _each(self, value: Expr) -> Body:
        return loop(_PART, self.places, (Store(self.buffer, self._index(_PART), value),))

    def _of_lane(self, numbers: tuple[Expr, ...]) -> Expr:
        """The one that a lane holds of an address's numbers."""
        if len(numbers) == 1:
            return numbers[0]
        y, x = numbers
        odd = self.own % 2
        if as_int(x) == 0:
            return odd * y
        return (Const(1) - odd) * x if as_int(y) == 0 else x + odd * (y - x)

    def before(self, main: For) -> Body:
        """The addresses of a step before the first."""
        per_place = self.lanes // self.parts
        place: Expr = _PART * per_place if self.places > 1 else Const(0)
        number = place + (self.own // self.parts if self.parts > 1 else self.own)
        first = substitute({**self.reads.numbered(number), main.var: Const(-main.step)})
        values = tuple(map_expr(x, first) for x in in_bytes(self.reads.move))
        return (Alloc(self.buffer), *self._each(self._of_lane(values)))

    def on(self, main: For) -> Body:
        """All of them a step further."""
        move, size = self.reads.move, self.reads.move.src.dtype.size
        if self.parts == 1:
            step: tuple[Expr, ...] = (move.src.layout.strides[self.reads.axis] * main.step * size,)
        else:
            step = (Const(main.step), Const(0)) if self.reads.axis == 0 else (Const(0), Const(main.step * size))
        return self._each(Load(self.buffer, self._index(_PART)) + self._of_lane(step))

    def rewritten(self, part: Stmt) -> Stmt:
        """The read, or the loops around it, with its address from the lanes."""
        if isinstance(part, For):
            return replace(part, body=tuple(map(self.rewritten, part.body)))
        per_place = self.lanes // self.parts
        number = self.reads.number
        held = Load(self.buffer, self._index(number // per_place))
        lane = number % per_place * self.parts if self.places > 1 else number * self.parts
        lanes = (lane + 1, lane) if self.parts == 2 else (lane,)
        return replace(self.reads.move, byte_place=tuple(Call("broadcast", (held, x), I32) for x in lanes))
