"""Prologues: what they take, and where each element of A or B becomes what is multiplied: where it is first at hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Const, Expr, Load, Var, compare, convert, minimum, number, select
from gemmgen.ir.steps import ELEMENT_K, ELEMENT_LINE, Step, element, places_by_type
from gemmgen.ir.stmt import Alloc, Body, Let, Move, Stage, Store
from gemmgen.ir.walk import map_expr, substitute, walk_expr
from gemmgen.passes.loops import loop
from gemmgen.passes.plan import Plan
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

ELEMENT = Var("e")
_NOTHING: Body = ()


def parameters(plan: Plan, matrices: Collection[str]) -> tuple[Buffer, ...]:
    """What a kernel takes that applies the prologues of these matrices."""
    return tuple(_operand(plan, name) for name in plan.spec.operands if OPERANDS[name].of in matrices)


def _operand(plan: Plan, name: str) -> Buffer:
    """An array of the type of sums; one of a single element has that at 0."""
    extent = {"m": plan.m, "n": plan.n, "k": plan.k, "": Const(1)}[OPERANDS[name].axes]
    return Buffer(name, plan.sums, Space.GLOBAL, Layout((extent,), (Const(1),)), writable=False)


def step(plan: Plan, name: str, in_registers: bool = False) -> Step | None:
    """The prologue of A or B, its arrays read from memory.

    Args:
        in_registers: whether it makes elements of registers, which hold the type of sums: rounded to the matrices' own
            all the same, as those that are kept in memory are.
    """
    prologue, sums = plan.spec.prologue(name), plan.sums
    if prologue is None:
        return None
    values: dict[Var, Expr] = {
        Var(name, sums): element(sums),
        **places_by_type(sums, **{"row" if name == "a" else "col": ELEMENT_LINE}, k=ELEMENT_K),
    }
    for taken in sorted(prologue.names & OPERANDS.keys()):
        places: dict[str, Expr] = {"": Const(0), "k": ELEMENT_K}
        place = places.get(OPERANDS[taken].axes, ELEMENT_LINE)
        values[Var(taken, sums)] = Load(_operand(plan, taken), (place,))
    value = map_expr(prologue.value, substitute(values))
    return Step(f"{name}_made", convert(convert(value, plan.spec.dtype), sums) if in_registers else value)


def applied(
    step: Step, matrix: Buffer, raw: Expr, place: tuple[Expr, Expr], inside: Expr | None = None
) -> tuple[Body, Expr]:
    """What is named on the way, and what an element becomes.

    Args:
        raw: the element as the matrix holds it.
        place: where it is in the matrix.
        inside: where it may be read; None for everywhere.
    """
    sums, along = step.value.dtype, matrix.contracted or 0
    value, names = convert(raw, sums), _NOTHING
    if Counter(walk_expr(step.value))[element(sums)] > 1:
        raw = raw if inside is None else select(inside, raw, number(0, raw.dtype))
        value = Var(f"{matrix.name}_element", sums)
        names = (Let(value, convert(raw, sums)),)
    where = {element(sums): value, ELEMENT_K: place[along], ELEMENT_LINE: place[1 - along]}
    return names, map_expr(step.value, substitute(where))


def parts(value: Expr) -> set[Expr]:
    """All that a value is made of."""
    return {*walk_expr(value)}


def made(
    step: Step, matrix: Buffer, place: tuple[Expr, Expr], dtype: DType, raw: Expr | None = None
) -> tuple[Body, Expr]:
    """The same with a guard: zero past the axis that is summed over, and past the other what is at the edge; where that
    is provably needless, `predicate` takes it away.

    Args:
        dtype: of what is made.
        raw: the element, where it has been loaded before.
    """
    along = matrix.contracted or 0
    k, line = place[along], minimum(place[1 - along], matrix.shape[1 - along] - 1)
    inside = compare("<", k, matrix.shape[along])
    where: Body = ()
    if Counter(walk_expr(step.value))[ELEMENT_LINE] + (raw is None) > 1 and not isinstance(line, Const | Var):
        named = Var(f"{matrix.name}_element_{'row' if matrix.name == 'a' else 'col'}")
        where, line = (Let(named, line),), named
    place = (line, k) if along else (k, line)
    given = (raw, place) if raw is not None else (Load(matrix, place), place, inside)
    names, value = applied(step, matrix, *given)
    return (*where, *names), select(inside, convert(value, dtype), number(0, dtype))


def copied(step: Step, move: Move) -> Body:
    """A load into registers, of elements that a prologue makes."""
    src, dst, width = move.src, move.dst, move.width
    if width == 1:
        names, value = made(step, src, _last(move.src_index), dst.dtype)
        return (*names, Store(dst, move.dst_index, value))
    raw = _vector(src, width)
    return (*_loaded(raw, move), *_each(step, move, raw, Const(0)))


def _last(index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    return index[-2], index[-1]


def _vector(matrix: Buffer, width: int) -> Buffer:
    return Buffer(f"{matrix.name}_vector", matrix.dtype, Space.PRIVATE, Layout.packed(1, width))


def _loaded(raw: Buffer, move: Move) -> Body:
    """A vector as the matrix holds it."""
    return (Alloc(raw), Move(raw, (Const(0), Const(0)), move.src, move.src_index, move.atom, move.width))


def _each(step: Step, move: Move, raw: Buffer, vector: Expr, slow: bool = False) -> Body:
    """Each element of a vector in registers, made and stored side by side (or, `slow`, one below the other)."""
    (line, first), at = _last(move.src_index), move.dst_index
    own = Load(raw, (vector, ELEMENT))
    names, value = made(step, move.src, (line, first + ELEMENT), move.dst.dtype, own)
    index = (*at[:-2], at[-2] + ELEMENT, at[-1]) if slow else (*at[:-1], at[-1] + ELEMENT)
    # A row that all of the vector lies in is named once.
    once = tuple(name for name in names if isinstance(name, Let) and ELEMENT not in walk_expr(name.value))
    own_names = tuple(name for name in names if name not in once)
    return (*once, *loop(ELEMENT, move.width, (*own_names, Store(move.dst, index, value))))


def staged(step: Step, stage: Stage, move: Move, along: bool, vector: Expr) -> Body:
    """One work-item's vector on its way to local memory, or the half of the way on which elements are made.

    Args:
        move: all of the way.
        along: whether the vector stays one there.
        vector: which one of those in registers, where it has been loaded before.
    """
    raw, before = stage.via if stage.part == "store" else None, _NOTHING
    at: tuple[Expr, Expr] = vector, Const(0)
    if raw is None and move.width == 1:
        return copied(step, move)
    if raw is None:
        raw, at = _vector(move.src, move.width), (Const(0), Const(0))
        before = _loaded(raw, move)
    if move.width == 1 or not along:
        return (*before, *_each(step, move, raw, at[0], slow=not along))
    wide, to = raw, at
    if raw.dtype != move.dst.dtype:
        wide = replace(raw, name=f"{move.src.name}_made", dtype=move.dst.dtype, layout=Layout.packed(1, move.width))
        before, to = (*before, Alloc(wide)), (Const(0), Const(0))
    each = _each(step, replace(move, dst=wide, dst_index=to), raw, at[0])
    return (*before, *each, replace(move, src=wide, src_index=to))


def prologue_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Where elements are nowhere at hand before they are multiplied."""
    for name, operand in (("a", s.a), ("b", s.b)):
        if spec.prologue(name) is None or operand.packed:
            continue
        if operand.async_copy:
            yield (
                f"prologue_{name}, but {name}.async_copy fills local memory past the registers: set {name}.packed, so "
                f"that a kernel before applies it, or use a schedule without async_copy"
            )
        elif operand.block or operand.share:
            before = "" if operand.memory == "image" else f"set {name}.packed, so that a kernel before applies it, or "
            yield f"prologue_{name} is applied by single work-items, not in block reads: {before}use --method slm"
