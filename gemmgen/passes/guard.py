"""Guard every access to a matrix that may lie outside of it; guards that are provably true never appear.

Single elements past an axis that is not summed over are read from the edge (nothing made of them is
stored), past the summed axis they count as zero. Copies that fill in zeros do so past the ends of lines,
too. Wide loads are issued where they fit and replaced by single elements where they don't. Stores happen
inside the matrix only.

Guards of whole sub-groups' loads are taken out of the main loop (`unswitch`): one loop without them, one for the
matrix's edge. A branch inside the main loop, though it goes the same way each round, keeps compilers from unrolling it.
What a single thread loads is guarded by a predicate instead and stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gemmgen.ir.affine import Knowledge
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import ALIGNED_VECTOR, SCALAR, aligned
from gemmgen.ir.expr import (
    Bin,
    Const,
    Expr,
    Load,
    Select,
    Var,
    all_of,
    both,
    compare,
    is_const,
    minimum,
    number,
    select,
    wrap,
)
from gemmgen.ir.kernel import ELEMENT, LARGEST_IN_REGISTERS, Kernel, loop
from gemmgen.ir.stmt import (
    Block,
    Body,
    Comment,
    For,
    FragmentApply,
    If,
    Let,
    PointerInit,
    Stmt,
    Store,
    VectorCopy,
    made_of,
)
from gemmgen.ir.walk import bound, map_body, map_expr, of_kind, walk, walk_expr
from gemmgen.records import dataclass

MATRIX_SPACES = (Space.GLOBAL, Space.IMAGE)


def predicate(kernel: Kernel) -> Kernel:
    """The kernel with all accesses inside their matrices."""
    scope = Knowledge({}, {}, kernel.nonnegative, kernel.group, kernel.sub_group, kernel.assumptions)
    return replace(kernel, body=_Guard(kernel).body(kernel.body, scope), nonnegative=())


@dataclass(frozen=True)
class _Guard:
    kernel: Kernel

    def body(self, body: Body, scope: Knowledge) -> Body:
        """Guard each statement, knowing what those before it bind."""
        out: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Let):
                scope = scope.with_let(stmt.var, stmt.value)
            out += self.statement(stmt, scope)
        return _hoist_guards(tuple(out))

    def statement(self, stmt: Stmt, scope: Knowledge) -> Body:
        match stmt:
            case For():
                stmt = replace(stmt, stop=map_expr(stmt.stop, partial(_proved, scope)))
                stop, inner = stmt.stop, scope
                match scope.lets.get(stop):
                    case Select(condition, whole, none) if none == stmt.start:
                        # It runs only where the condition holds.
                        stop, inner = whole, scope.with_condition(condition)
                last = stop - stmt.step if stmt.exact else stop - 1
                inner = inner.with_loop(stmt.var, stmt.start, stmt.step, last)
                if isinstance(stop, Bin) and stop.op == "min":
                    inner = inner.with_condition(both(stmt.var < stop.a, stmt.var < stop.b))
                return (replace(stmt, body=self.body(stmt.body, inner)),)
            case If(condition, then, orelse):
                inside = self.body(then, scope.with_condition(condition))
                if scope.holds(condition):
                    return inside
                if not stmt.roles and scope.contradicts(condition):
                    return self.body(orelse, scope)
                return (
                    replace(stmt, condition=scope.unproved(condition), then=inside, orelse=self.body(orelse, scope)),
                )
            case Block(body):
                return (replace(stmt, body=self.body(body, scope)),)
            case FragmentApply(layout=layout, row=row, col=col):
                rows, cols = layout.shape
                inner = scope.with_upper(row, Const(rows - 1)).with_upper(col, Const(cols - 1))
                return (replace(stmt, body=self.body(stmt.body, inner)),)
            case Store(buffer, index, _) if buffer.space is Space.GLOBAL:
                return _only_where(self._outside(buffer, index, (1,) * len(index), scope), (stmt,))
            case Store() | Let():
                return (replace(stmt, value=map_expr(stmt.value, partial(_proved, scope))),)
            case PointerInit(_, buffer, index) if buffer.space is Space.GLOBAL:
                return (replace(stmt, index=self._nearest(buffer, index, scope)),)
            case VectorCopy() if stmt.atom.edge == "part":
                return (self._whole_if_inside(stmt, scope),)
            case VectorCopy() if stmt.dst.space is Space.GLOBAL and stmt.atom.edge == "bounded":
                return (stmt,)
            case VectorCopy() if stmt.dst.space is Space.GLOBAL:
                footprint = (*(1,) * (len(stmt.dst_index) - 2), *stmt.atom.footprint(stmt.width, 1))
                return _only_where(self._outside(stmt.dst, stmt.dst_index, footprint, scope), (stmt,))
            case VectorCopy() if stmt.src.space in MATRIX_SPACES:
                return self._load(stmt, scope)
        return (stmt,)

    def _outside(
        self, buffer: Buffer, index: tuple[Expr, ...], footprint: tuple[int, ...], scope: Knowledge
    ) -> tuple[Expr | None, ...]:
        """For each axis: None where the access provably fits, else the condition that it does."""
        conditions: list[Expr | None] = []
        for place, size, extent in zip(index, buffer.shape, footprint, strict=True):
            own, end = _in_part(buffer, place, size)
            fits = own < end if extent == 1 else own + extent <= end
            if scope.contradicts(fits):
                fits = Const(0, fits.dtype)
            conditions.append(None if scope.holds(fits) or is_const(fits, 1) else fits)
        return tuple(conditions)

    def _nearest(self, buffer: Buffer, index: tuple[Expr, ...], scope: Knowledge) -> tuple[Expr, ...]:
        """A place, or the nearest inside where it may be past an end; how far K goes is for what is read from there."""
        outside = self._outside(buffer, index, (1,) * len(index), scope)
        return tuple(
            place if fits is None or axis == buffer.contracted else minimum(place, extent - 1)
            for axis, (place, fits, extent) in enumerate(zip(index, outside, buffer.shape, strict=True))
        )

    def _load(self, move: VectorCopy, scope: Knowledge) -> Body:
        if move.atom.edge in ("inside", "bounded"):
            return (move,)
        lanes = self.kernel.sub_group or 1 if any(move.atom.lane_step) else 1
        footprint = (*(1,) * (len(move.src_index) - 2), *move.atom.footprint(move.width, lanes))
        outside = self._outside(move.src, move.src_index, footprint, scope)
        if move.atom.edge == "undefined":
            return self._zero_past_the_end(move, scope)
        clamped, may_be_outside = list(move.src_index), list(outside)
        conditions: list[Expr] = self._alignment(move, scope)
        for axis, condition in enumerate(outside):
            if condition is None:
                continue
            place, extent, size = clamped[axis], footprint[axis], move.src.shape[axis]
            # A copy that fills up with zeros is told how many elements of its line are inside, and reads no others. Of
            # neighbours read in their place, all blocks would ask L2 for the same lines; lanes of one element each
            # would read the same one, and wait for one another.
            told = move.atom.edge == "zero_fill" and (move.width > 1 or axis == len(clamped) - 1)
            whole = not told and (extent == 1 or self._is_whole(place, size, extent, scope))
            if axis != move.src.contracted and whole:
                clamped[axis] = minimum(place, size - extent)
                may_be_outside[axis] = None
            else:
                conditions.append(condition)
        inside = replace(move, src_index=tuple(clamped))
        if move.atom.edge == "zero_fill":
            return self._zero_filled(inside, tuple(may_be_outside), scope)
        if not conditions:
            return (inside,)
        if move.atom.edge == "clamp":
            return (Store(move.dst, move.dst_index, select(all_of(conditions), _load_of(inside), _zero(move))),)
        return (If(all_of(conditions), (inside,), self._singly(move, scope)),)

    def _is_whole(self, place: Expr, size: Expr, extent: int, scope: Knowledge) -> bool:
        """Whether neighbours lie inside or outside all together, as lines end where vectors do."""
        ends = compare("==", size % extent, 0)
        return (is_const(ends, 1) or scope.holds(ends)) and scope.is_multiple(place, extent)

    def _whole_if_inside(self, move: VectorCopy, scope: Knowledge) -> VectorCopy:
        """A vector of which a part may be outside, by one instruction where it provably is inside and aligned."""
        matrix, index = (move.src, move.src_index) if move.dst.space is Space.PRIVATE else (move.dst, move.dst_index)
        *_, fits = self._outside(matrix, index, (*(1,) * (len(index) - 1), move.width), scope)
        condition = aligned(ALIGNED_VECTOR, move.width, matrix)
        if fits is None and (condition is None or scope.holds(condition)):
            return replace(move, atom=ALIGNED_VECTOR, valid=None)
        return move

    def _alignment(self, move: VectorCopy, scope: Knowledge) -> list[Expr]:
        """The condition that lines of the matrix begin on multiples of the vector, unless that is known."""
        condition = aligned(move.atom, move.width, move.src)
        return [] if condition is None or scope.holds(condition) else [condition]

    def _zero_filled(self, move: VectorCopy, outside: tuple[Expr | None, ...], scope: Knowledge) -> Body:
        """A copy that is told how many of its elements are inside the matrix."""
        slow, fast = outside
        valid: Expr = Const(move.width)
        if fast is not None and move.width > 1:
            place, size = move.src_index[1], move.src.shape[1]
            valid = select(fast, valid, select(place < size, size - place, Const(0)))
        elif fast is not None:
            slow = fast if slow is None else both(slow, fast)
        name: Body = ()
        if slow is not None:
            if not isinstance(valid, Const):
                along = Var(f"{move.src.name}_fits")
                name, valid = (Let(along, valid),), along
            valid = select(slow, valid, Const(0))
        if not isinstance(valid, Const):
            inside = Var(f"{move.src.name}_inside")
            name, valid = (*name, Let(inside, valid)), inside
        whole: Body = (*name, replace(move, valid=None if is_const(valid, move.width) else valid))
        alignment = self._alignment(move, scope)
        if not alignment:
            return whole
        single = replace(move, width=1)
        dst_index, src_index = self._element(single, ELEMENT)
        single = replace(single, dst_index=dst_index, src_index=src_index)
        inner = scope.with_upper(ELEMENT, wrap(move.width - 1))
        return (If(all_of(alignment), whole, loop(ELEMENT, move.width, self._load(single, inner))),)

    def _element(self, move: VectorCopy, element: Expr) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """(index in the destination, coordinates in the source) of one element of this lane."""
        lane = Var("lane") if any(move.atom.lane_step) else Const(0)
        steps = zip(move.atom.element_step, move.atom.lane_step, strict=True)
        src = tuple(
            place + element * element_step + lane * lane_step
            for place, (element_step, lane_step) in zip(move.src_index[-2:], steps, strict=True)
        )
        src = (*move.src_index[:-2], *src)
        return (*move.dst_index[:-1], move.dst_index[-1] + element), src

    def _singly(self, move: VectorCopy, scope: Knowledge) -> Body:
        """A wide load, element by element; unrolled where it fills registers, which takes compilers longer."""
        dst_index, src_index = self._element(move, ELEMENT)
        single = VectorCopy(move.dst, dst_index, move.src, src_index, SCALAR, 1, zero_point=move.zero_point)
        inner = scope.with_upper(ELEMENT, wrap(move.width - 1))
        load = self._load(single, inner)
        if move.dst.space is Space.PRIVATE and move.dst.bytes > LARGEST_IN_REGISTERS:
            return (For(ELEMENT, Const(0), Const(move.width), 1, load, exact=True),)
        return loop(ELEMENT, move.width, load)

    def _zero_past_the_end(self, move: VectorCopy, scope: Knowledge) -> Body:
        """Images may be read past their edges; what lies past the summed axis is replaced by zero."""
        axis = move.src.contracted
        inner = scope.with_upper(ELEMENT, wrap(move.width - 1))
        dst_index, src_index = self._element(move, ELEMENT)
        conditions = self._outside(move.src, src_index, (1, 1), inner)
        if axis is None or (condition := conditions[axis]) is None:
            return (move,)
        value = select(condition, Load(move.dst, dst_index), _zero(move))
        return (move, *loop(ELEMENT, move.width, (Store(move.dst, dst_index, value),)))


def _in_part(buffer: Buffer, place: Expr, size: Expr) -> tuple[Expr, Expr]:
    """A place along an axis, and the axis' size; of the second half of a gated product's B, those of that half."""
    half = buffer.apart
    own = _behind(half, place) if half is not None and size == half * 2 else None
    return (place, size) if own is None or half is None else (own, half)


def _behind(first: Expr, place: Expr) -> Expr | None:
    """What a sum adds to this first term; None where it begins with another."""
    match place:
        case Bin("+", a, b) if a == first:
            return b
        case Bin("+", a, b) if (rest := _behind(first, a)) is not None:
            return rest + b
    return None


def _proved(scope: Knowledge, node: Expr) -> Expr:
    """A choice that is provably always the same, as what it chooses."""
    match node:
        case Select(condition, then, _) if scope.holds(condition):
            return then
        case Bin("min", a, b) if scope.holds(a <= b):
            return a
    return node


def _zero(move: VectorCopy) -> Const:
    return number(0, move.dst.dtype)


def _load_of(move: VectorCopy) -> Expr:
    return made_of(move, Load(move.src, move.src_index))


def _only_where(conditions: tuple[Expr | None, ...], body: Body) -> Body:
    """Nested guards, one an axis, so that each can move out of the loops it doesn't depend on."""
    for condition in conditions[::-1]:
        if condition is not None:
            body = (If(condition, body),)
    return body


def _hoist_guards(body: Body) -> Body:
    """Take a guard out of each loop that holds nothing else and whose variable it doesn't name."""
    return tuple(_hoist_guard(s) if isinstance(s, For) else s for s in body)


def _hoist_guard(stmt: For) -> Stmt:
    match stmt.body:
        case (If(condition, then, ()),) if stmt.unroll and stmt.var not in walk_expr(condition):
            return If(condition, (_hoist_guard(replace(stmt, body=then)),))
    return stmt


# --- guards out of the main loop ------------------------------------------------------------------


def unswitch(kernel: Kernel) -> Kernel:
    """The kernel with such loops written twice."""
    return replace(kernel, body=map_body(kernel.body, _versions))


def _versions(stmt: Stmt) -> Body:
    if not isinstance(stmt, For) or stmt.unroll:
        return (stmt,)
    conditions = tuple(dict.fromkeys(_guards(stmt)))
    if not conditions:
        return (stmt,)
    fast = replace(stmt, body=_decided(stmt.body, conditions, True))
    # Where one guard alone decides, it fails in the other loop; of several, any may.
    slow = replace(stmt, body=_decided(stmt.body, conditions, False)) if len(conditions) == 1 else stmt
    edge = Comment("At the edge of the matrix each lane loads its own elements.")
    return (If(all_of(conditions), (fast,), (edge, slow)),)


def _guards(loop: For) -> Iterator[Expr]:
    """The conditions of collective loads that are the same in each round."""
    inside = {name for stmt in walk((loop,)) for name in bound(stmt)}
    for stmt in of_kind(If, loop.body):
        if _is_collective(stmt.then) and not inside & _names(stmt.condition):
            yield stmt.condition


def _is_collective(body: Body) -> bool:
    return any(any(s.atom.lane_step) for s in of_kind(VectorCopy, body))


def _names(node: Expr) -> set[Var]:
    return {x for x in walk_expr(node) if isinstance(x, Var)}


def _decided(body: Body, conditions: tuple[Expr, ...], holds: bool) -> Body:
    """The body where all of the conditions hold, or none."""

    def decide(stmt: Stmt) -> Body:
        match stmt:
            case If(condition, then, orelse) if condition in conditions:
                return (Block(then if holds else orelse),)
        return (stmt,)

    return map_body(body, decide)
