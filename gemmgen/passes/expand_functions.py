"""Expand prologues and epilogues: what they make of elements of A and B where these are first at hand, and of elements
of C before they are stored; and the factors alpha and beta.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import FLOAT16, I4, I8, DType
from gemmgen.ir.elementwise import ELEMENT_COL, ELEMENT_K, ELEMENT_LINE, ELEMENT_ROW, Step, element, old
from gemmgen.ir.expr import (
    Bin,
    Call,
    Const,
    Expr,
    Load,
    Select,
    Var,
    compare,
    convert,
    is_const,
    minimum,
    number,
    select,
)
from gemmgen.ir.kernel import ELEMENT, loop
from gemmgen.ir.stmt import Alloc, Body, Comment, CooperativeCopy, EpilogueStore, If, Let, Stmt, Store, VectorCopy
from gemmgen.ir.walk import map_expr, map_index, substitute, walk_expr
from gemmgen.passes.nibbles import PAIRS_OF_WORD
from gemmgen.positions import FIRST_ROW

# --- prologues ------------------------------------------------------------------------------------

_NOTHING: Body = ()


def prologue_applied(
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
    inside = compare("<", place[along], matrix.shape[along])
    names, value = made_anywhere(step, matrix, place, raw, inside)
    return names, select(inside, convert(value, dtype), number(0, dtype))


def made_anywhere(
    step: Step, matrix: Buffer, place: tuple[Expr, Expr], raw: Expr | None, inside: Expr | None = None
) -> tuple[Body, Expr]:
    """The same in the type of sums, and whatever it is past the axis that is summed over.

    Args:
        inside: where the element may be read, which has not been loaded before.
    """
    along = matrix.contracted or 0
    k, line = place[along], minimum(place[1 - along], matrix.shape[1 - along] - 1)
    where: Body = ()
    if Counter(walk_expr(step.value))[ELEMENT_LINE] + (raw is None) > 1 and not isinstance(line, Const | Var):
        named = Var(f"{matrix.name}_element_{'row' if matrix.name == 'a' else 'col'}")
        where, line = (Let(named, line),), named
    place = (line, k) if along else (k, line)
    given = (raw, place) if raw is not None else (Load(matrix, place), place, inside)
    names, value = prologue_applied(step, matrix, *given)
    return (*where, *names), value


def filled(step: Step, move: VectorCopy) -> Body:
    """A load of a fragment, of elements that a prologue makes: by the load itself where it can."""
    zero_point = _zero_point(step, move)
    return copied(step, move) if zero_point is None else (replace(move, zero_point=zero_point),)


def copied(step: Step, move: VectorCopy) -> Body:
    """A load into registers, of elements that a prologue makes."""
    src, dst, width = move.src, move.dst, move.width
    if width == 1:
        names, value = made(step, src, _last(move.src_index), dst.dtype)
        return (*names, Store(dst, move.dst_index, value))
    raw = _vector(src, width)
    return (*_loaded(raw, move), *_each(step, move, raw, Const(0)))


def _zero_point(step: Step, move: VectorCopy) -> Expr | None:
    """What all elements of a vector are less, where it is a whole number and a load can subtract it: of integers that
    become 16-bit floats, which hold the difference as it is.
    """
    (line, first), sums = _last(move.src_index), step.value.dtype
    if move.src.dtype not in (I4, I8) or move.dst.dtype not in FLOAT16 or move.width % PAIRS_OF_WORD:
        return None
    match _by_vectors(step, move, first).value:
        case Bin("-", Var() as whole, Call("convert", (Load(buffer, index),))) if whole == element(sums):
            if buffer.dtype == I8 and not any(ELEMENT_K in walk_expr(place) for place in index):
                line = minimum(line, move.src.shape[-2] - 1)
                return Load(buffer, map_index(index, substitute({ELEMENT_LINE: line})))
    return None


def _last(index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
    return index[-2], index[-1]


def _vector(matrix: Buffer, width: int) -> Buffer:
    return Buffer(f"{matrix.name}_vector", matrix.dtype, Space.PRIVATE, Layout.packed(1, width))


def _loaded(raw: Buffer, move: VectorCopy) -> Body:
    """A vector as the matrix holds it."""
    return (Alloc(raw), VectorCopy(raw, (Const(0), Const(0)), move.src, move.src_index, move.atom, move.width))


def _each(step: Step, move: VectorCopy, raw: Buffer, vector: Expr, slow: bool = False) -> Body:
    """Each element of a vector in registers, made and stored side by side (or, `slow`, one below the other)."""
    (line, first), at = _last(move.src_index), move.dst_index
    own = Load(raw, (vector, ELEMENT))
    names, value = made(_by_vectors(step, move, first), move.src, (line, first + ELEMENT), move.dst.dtype, own)
    index = (*at[:-2], at[-2] + ELEMENT, at[-1]) if slow else (*at[:-1], at[-1] + ELEMENT)
    # A row that all of the vector lies in is named once.
    once = tuple(name for name in names if isinstance(name, Let) and ELEMENT not in walk_expr(name.value))
    own_names = tuple(name for name in names if name not in once)
    return (*once, *loop(ELEMENT, move.width, (*own_names, Store(move.dst, index, value))))


def _by_vectors(step: Step, move: VectorCopy, first: Expr) -> Step:
    """A step for the elements of a vector along K, which begins on a multiple of its width: all are of one group."""

    def of_first(node: Expr) -> Expr:
        match node:
            case Bin("/", place, Const(int(group))) if place == ELEMENT_K and group % move.width == 0:
                return first // group
        return node

    along = move.src.contracted == len(move.src.shape) - 1
    return replace(step, value=map_expr(step.value, of_first)) if along else step


def without_factor(step: Step, depth: int) -> tuple[Step | None, Expr | None]:
    """The rest of a prologue, None for elements as they are; and its factor, if it has one that `depth` neighbours
    along K share, the first of them on a multiple of that.
    """
    match step.value:
        case Bin("*", first, second):
            for factor, rest in ((second, first), (first, second)):
                if _is_shared(factor, depth) and not _is_shared(rest, depth):
                    return None if isinstance(rest, Var) else replace(step, value=rest), factor
    return step, None


def _is_shared(value: Expr, depth: int) -> bool:
    """Whether it is the same for so many neighbours along K."""

    def as_constant(node: Expr) -> Expr:
        match node:
            case Bin("/", place, Const(int(group))) if place == ELEMENT_K and group % depth == 0:
                return Const(0)
        return node

    names = {node.name for node in walk_expr(map_expr(value, as_constant)) if isinstance(node, Var)}
    return names.isdisjoint({element(value.dtype).name, ELEMENT_K.name})


def staged(step: Step, stage: CooperativeCopy, move: VectorCopy, along: bool, vector: Expr) -> Body:
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


# --- alpha and beta -------------------------------------------------------------------------------


def scaled(update: EpilogueStore, sum_: Expr) -> Expr:
    """alpha * sum; a factor of one leaves nothing behind."""
    return sum_ if is_const(update.alpha, 1) else Bin("*", update.alpha, sum_)


def with_old(update: EpilogueStore, value: Expr, before: Expr) -> Expr:
    """value + beta * before."""
    if is_const(update.beta, 1):
        return Bin("+", value, before)
    return Call("fma", (update.beta, before, value), value.dtype)


def blended(update: EpilogueStore, sum_: Expr, before: Expr) -> Expr:
    """alpha * sum + beta * before, which is not read where beta is zero."""
    value, beta = scaled(update, sum_), update.beta
    if is_const(beta, 0):
        return value
    total = with_old(update, value, before)
    return total if is_const(beta, 1) else select(compare("==", beta, number(0, value.dtype)), value, total)


def unless_beta_is_zero(update: EpilogueStore, body: Body) -> Body:
    """What reads C, behind the question whether beta asks for it."""
    beta = update.beta
    if isinstance(beta, Const):
        return () if is_const(beta, 0) else body
    return (If(compare("!=", beta, number(0, beta.dtype)), body),)


# --- epilogues ------------------------------------------------------------------------------------


def epilogue_applied(update: EpilogueStore, value: Expr, before: Load, row: Expr, col: Expr) -> tuple[Body, Expr]:
    """What is named on the way, and what an element of C becomes in the end.

    Args:
        value: alpha * A * B + beta * C.
        before: the element as it is in C.
    """
    dtype = update.acc.buffer.dtype
    where = {ELEMENT_ROW: row, ELEMENT_COL: col, old(dtype): convert(before, dtype)}
    names: list[Stmt] = []
    name, seen = "value", Counter[str]()
    for step in update.steps:
        uses = Counter(walk_expr(step.value))[element(dtype)]
        if uses > 1 or isinstance(value, Select):
            names.append(Let(Var(name, dtype), value))
            value = Var(name, dtype)
        # The old element may be the value itself, so that one is not replaced in the other.
        value = map_expr(step.value, substitute({**where, element(dtype): value}))
        seen[step.name] += 1
        name = f"after_{step.name}{seen[step.name] if seen[step.name] > 1 else ''}"
    return tuple(names), value


def finished(update: EpilogueStore, store: Store, value: Expr, row: Expr, col: Expr) -> Body:
    """The store of an element after all functions, where it is inside of C: so that what they take is inside, too."""
    buffer, inside = store.buffer, (row < _extent(update, "rows"), col < _extent(update, "cols"))
    body: Body = ()
    several = update.acc.fragment.cols.values > 1
    if several and any(ELEMENT_COL in walk_expr(step.value) for step in update.steps):
        # Of sums that were put down column by column it is one of C's rows.
        named, given = Var(f"{buffer.name}_{'row' if FIRST_ROW in walk_expr(col) else 'col'}"), col
        body, col = () if given == named else (Let(named, given),), named

        def by_name(node: Expr) -> Expr:
            return named if node == given else node

        store, value = replace(store, index=map_index(store.index, by_name)), map_expr(value, by_name)
    names, value = epilogue_applied(update, value, Load(buffer, store.index), row, col)
    body = (*body, *names, replace(store, value=convert(value, buffer.dtype)))
    return (If(inside[0], (If(inside[1], body),)),)


def once_whole(update: EpilogueStore, finish: Body, before: Body = ()) -> Body:
    """What is done once a sum is whole, and before that."""
    if update.last is None or not finish:
        return finish
    return (If(update.last, (Comment("After K's last block: the sum is whole."), *finish), before),)


def _extent(update: EpilogueStore, axis: str) -> Expr:
    """How many rows or columns C has."""
    slow, fast = update.dst.buffer.shape[-2:]
    return slow if (axis == "rows") != update.dst.transposed else fast
