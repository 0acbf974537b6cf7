"""Addresses of block reads, held by lanes, worked out before the main loop and moved on by it.

A sub-group's reads need an address each, the same for all lanes: scalar arithmetic, an instruction of which costs as
much as a multiply-add of all lanes does. Here each lane holds another read's address, so that one vector instruction
moves eight or sixteen of them on, and to use one is a broadcast. They count bytes, which saves a shift. The loop moves
them on before it reads: at its end, compilers would do so on the way back only, in a part of the loop of its own.

Where a step goes along the rows of a buffer, addresses can stay as they are and count from the loop's own variable,
which the compiler adds to the buffer's offset once for all reads. They do where they are many, and where a step begins
with them, as they would wait for being moved on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, as_int, compare, select
from gemmgen.ir.kernel import Kernel, loop
from gemmgen.ir.stmt import Alloc, Body, Comment, For, Let, Stmt, Store, VectorCopy, in_bytes
from gemmgen.ir.walk import map_bodies, map_expr, substitute, walk_expr
from gemmgen.positions import K_BEGIN
from gemmgen.records import dataclass

#: To add the loop's variable to an offset takes as many instructions as to move so many registers of addresses on.
MOVED = 2
_PART = Var("i")
_LANE = Call("lane_id", (), I32)


def addresses(kernel: Kernel) -> Kernel:
    """The kernel with such addresses."""
    if kernel.sub_group is None:
        return kernel
    lane = next((s.var for s in kernel.body if isinstance(s, Let) and s.value == _LANE), None)
    own: Expr = _LANE if lane is None else lane

    def rewritten(body: Body) -> Body:
        out: list[Stmt] = []
        for stmt in (map_bodies(stmt, rewritten) for stmt in body):
            # What else goes along K begins where this one ends.
            if isinstance(stmt, For) and not stmt.unroll and stmt.start in (Const(0), K_BEGIN):
                *before, main = _main_loop(stmt, kernel.sub_group or 1, own)
                # What is said of the loop stays with it.
                said = [out.pop()] if before and out and isinstance(out[-1], Comment) else []
                out += [*before, *said, main]
            else:
                out.append(stmt)
        return tuple(out)

    return replace(kernel, body=rewritten(kernel.body))


def _main_loop(main: For, lanes: int, own: Expr) -> Body:
    """A main loop, and before it what its addresses need."""
    found = list(_all_reads(main))
    # A matrix that is read at two places keeps its plain addresses.
    names = [reads.move.src.name for _, reads in found]
    held = {
        id(part): _Held(reads, main, lanes, own, part is found[0][0])
        for part, reads in found
        if names.count(reads.move.src.name) == 1
    }
    if not held:
        return (main,)

    def rewritten(body: Body) -> Body:
        return tuple(held[id(s)].rewritten(s) if id(s) in held else _around(s, rewritten) for s in body)

    moving, still = ([h for h in held.values() if h.stays is stays] for stays in (False, True))
    before: list[Stmt] = []
    if moving:
        say = "Addresses of block reads in bytes, one (or half of one) a lane; the loop adds a step first."
        before.append(Comment(say))
        before += (s for h in moving for s in h.before())
    if still:
        before.append(Comment("Addresses of block reads along rows in bytes, one a lane; they stay as they are."))
        before += (s for h in still for s in h.before())
    on = tuple(s for h in moving for s in h.on())
    return (*before, replace(main, body=(*on, *rewritten(main.body))))


def _around(stmt: Stmt, rewritten: Callable[[Body], Body]) -> Stmt:
    """A part of a step that reads stand in."""
    return replace(stmt, body=rewritten(stmt.body)) if _is_part(stmt) and isinstance(stmt, For) else stmt


def _is_part(stmt: Stmt) -> bool:
    """Whether it is a loop over parts of a step, written out by the compiler."""
    return isinstance(stmt, For) and stmt.unroll and as_int(stmt.start) == 0 and stmt.step > 1


def _all_reads(main: For) -> Iterator[tuple[Stmt, _Reads]]:
    """The reads of a step, and of the parts of it, with the statements that they are."""
    for stmt in main.body:
        if (reads := _reads(stmt, main)) is not None:
            yield stmt, reads
        elif isinstance(stmt, For) and _is_part(stmt):
            for inner in stmt.body:
                if (reads := _reads(inner, main, stmt)) is not None:
                    yield inner, reads


@dataclass(frozen=True, slots=True)
class _Reads:
    """Loops over nothing but one read.

    Attributes:
        loops: variables and rounds, the outermost first.
        part: the loop over parts of the step that the outermost goes on in, if any.
    """

    move: VectorCopy
    loops: tuple[tuple[Var, int], ...]
    axis: int
    part: For | None

    @property
    def count(self) -> int:
        total = 1
        for _, rounds in self.loops:
            total *= rounds
        parts = 1 if self.part is None else (as_int(self.part.stop) or 0) // self.part.step
        return total * parts

    @property
    def number(self) -> Expr:
        """Which of the reads it is."""
        (first, _), *others = self.loops
        total: Expr = first if self.part is None else self.part.var + first
        for var, rounds in others:
            total = total * rounds + var
        return total

    def numbered(self, number: Expr) -> dict[Var, Expr]:
        """The loops' variables of a read by its number."""
        values: dict[Var, Expr] = {}
        for var, rounds in reversed(self.loops[1:]):
            values[var], number = number % rounds, number // rounds
        # Numbers past the last are held by lanes that nobody asks.
        values |= {var: number for var, _ in self.loops[:1]}
        return values if self.part is None else {**values, self.part.var: Const(0)}


def _reads(part: Stmt, main: For, around: For | None = None) -> _Reads | None:
    loops: list[tuple[Var, int]] = []
    while isinstance(part, For) and part.unroll and len(part.body) == 1:
        rounds = as_int(part.stop)
        if as_int(part.start) != 0 or part.step != 1 or rounds is None:
            return None
        loops.append((part.var, rounds))
        (part,) = part.body
    if not isinstance(part, VectorCopy) or not any(part.atom.lane_step) or part.byte_place is not None:
        return None
    if part.src.reach > 2**31:
        return None  # lanes hold 32 bits
    if part.atom.edge in ("inside", "bounded"):
        return None  # one after the other as they lie: an address and constants; or by coordinates
    axes = [axis for axis, place in enumerate(part.src_index) if main.var in walk_expr(place)]
    if len(axes) != 1 or not loops or not _is_sum(place := part.src_index[axes[0]], main.var):
        return None
    if around is not None and not (loops[0][1] == around.step and _is_sum(place, around.var, loops[0][0])):
        return None
    reads = _Reads(part, tuple(loops), axes[0], around)
    return reads if part.src.space in (Space.IMAGE, Space.GLOBAL) and reads.count > 1 else None


def _is_sum(place: Expr, *variables: Var) -> bool:
    """Whether an expression is a sum that each variable stands in once."""
    if len(variables) > 1:
        return all(_is_sum(place, var) for var in variables)
    match place:
        case Var():
            return place == variables[0]
        case Bin("+", a, b):
            first, second = variables[0] in walk_expr(a), variables[0] in walk_expr(b)
            return first != second and _is_sum(a if first else b, *variables)
    return False


@dataclass(frozen=True, slots=True)
class _Held:
    """The addresses of some reads.

    Attributes:
        lanes: of a sub-group.
        own: the number of a lane.
        begins: whether the reads are a step's first.
    """

    reads: _Reads
    main: For
    lanes: int
    own: Expr
    begins: bool

    @property
    def parts(self) -> int:
        """Numbers of an address: two for an image, side by side in two lanes, as its instruction wants them."""
        return 2 if self.reads.move.src.space is Space.IMAGE else 1

    @property
    def stays(self) -> bool:
        """Whether they count from the loop's variable: along rows, where the reads begin the step or are many."""
        along_rows = self.parts == 1 and as_int(self.reads.move.src.layout.strides[self.reads.axis]) == 1
        return along_rows and (self.begins or self.places > MOVED)

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
        return select(compare("==", self.own % 2, 0), x, y)

    def before(self) -> Body:
        """The addresses of a step before the first, or of the first along K where they stay."""
        per_place = self.lanes // self.parts
        place: Expr = _PART * per_place if self.places > 1 else Const(0)
        number = place + (self.own // self.parts if self.parts > 1 else self.own)
        # Where they stay, the loop's variable, from wherever it starts, is added to them.
        begin = Const(0) if self.stays else self.main.start - self.main.step
        first = substitute({**self.reads.numbered(number), self.main.var: begin})
        values = tuple(map_expr(x, first) for x in in_bytes(self.reads.move))
        return (Alloc(self.buffer), *self._each(self._of_lane(values)))

    def on(self) -> Body:
        """All of them a step further."""
        move, size, by = self.reads.move, self.reads.move.src.dtype.size, self.main.step
        if self.parts == 1:
            step: tuple[Expr, ...] = (move.src.layout.strides[self.reads.axis] * by * size,)
        else:
            step = (Const(by), Const(0)) if self.reads.axis == 0 else (Const(0), Const(by * size))
        return self._each(Load(self.buffer, self._index(_PART)) + self._of_lane(step))

    def rewritten(self, part: Stmt) -> Stmt:
        """The read, or the loops around it, with its address from the lanes."""
        if isinstance(part, For):
            return replace(part, body=tuple(self.rewritten(s) for s in part.body))
        per_place = self.lanes // self.parts
        number = self.reads.number
        held = Load(self.buffer, self._index(number // per_place))
        lane = number % per_place * self.parts if self.places > 1 else number * self.parts
        lanes = (lane + 1, lane) if self.parts == 2 else (lane,)
        place = tuple(Call("broadcast", (held, x), I32) for x in lanes)
        return replace(self.reads.move, byte_place=place, from_element=self.main.var if self.stays else None)
