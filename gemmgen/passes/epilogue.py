"""Epilogues: what they take, and what they make of each element of C before it is stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import I64
from gemmgen.ir.expr import Const, Expr, Load, Select, Var, convert
from gemmgen.ir.steps import ELEMENT_COL, ELEMENT_ROW, Step, element, old, places_by_type
from gemmgen.ir.stmt import Body, Comment, If, Let, Stmt, Store, Update
from gemmgen.ir.walk import map_expr, map_index, substitute, walk_expr
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import FIRST_ROW


def operands(plan: Plan) -> tuple[Buffer, ...]:
    """The arrays that the functions take, in the order of `OPERANDS`; of a batch, vectors serve all products."""
    return tuple(_operand(plan, name) for name in plan.spec.operands if OPERANDS[name].of == "c")


def _operand(plan: Plan, name: str) -> Buffer:
    operand, dtype, one = OPERANDS[name], plan.spec.result, Const(1)
    if operand.axes != "mn":
        extent = plan.n if (operand.axes == "n") != plan.rows_are_columns else plan.m
        return Buffer(name, dtype, Space.GLOBAL, Layout((extent,), (one,)), writable=False)
    step = Var(f"stride_{operand.letter}", I64) if plan.spec.batched else None
    layout = Layout(plan.c.shape, (Var(f"ld{operand.letter}"), one))
    return Buffer(name, dtype, Space.GLOBAL, layout, writable=False, step=step)


def matrices(plan: Plan) -> tuple[Buffer, ...]:
    """Those of them that a batch has one of for each product."""
    return tuple(buffer for buffer in operands(plan) if len(buffer.shape) == 2)


def parameters(plan: Plan) -> tuple[Buffer | Var, ...]:
    """What the kernel that stores C takes for its epilogue, after all else."""
    listed: list[Buffer | Expr | None] = []
    for buffer in operands(plan):
        listed += [buffer, buffer.layout.strides[0], buffer.step]
    return tuple(p for p in listed if isinstance(p, Buffer | Var))


def steps(plan: Plan, flipped: bool = False) -> tuple[Step, ...]:
    """The functions on elements of C, their operands read from memory.

    Args:
        flipped: whether they are applied to a tile whose rows are the plan's columns.
    """
    sums, turned = plan.sums, (plan.spec.c_order == "col") != flipped
    row, col = (ELEMENT_COL, ELEMENT_ROW) if plan.rows_are_columns != flipped else (ELEMENT_ROW, ELEMENT_COL)
    places = {"n": (col,), "m": (row,), "mn": (ELEMENT_ROW, ELEMENT_COL)[:: -1 if turned else 1]}
    values: dict[Var, Expr] = {
        Var("acc", sums): element(sums),
        Var("c", sums): old(sums),
        **places_by_type(sums, row=row, col=col),
    }
    for buffer in operands(plan):
        place = places[OPERANDS[buffer.name].axes]
        values[Var(buffer.name, sums)] = convert(Load(buffer, place), sums)
    functions = plan.spec.functions
    return tuple(Step(function.name, map_expr(function.value, substitute(values))) for function in functions)


def applied(update: Update, value: Expr, before: Load, row: Expr, col: Expr) -> tuple[Body, Expr]:
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


def finished(update: Update, store: Store, value: Expr, row: Expr, col: Expr) -> Body:
    """The store of an element after all functions, where it is inside of C: so that what they take is inside, too."""
    buffer, inside = store.buffer, (row < _extent(update, "rows"), col < _extent(update, "cols"))
    body: Body = ()
    several = update.acc.fragment.cols.values > 1
    if several and any(ELEMENT_COL in walk_expr(step.value) for step in update.steps):
        # Of sums that were put down column by column it is one of C's rows.
        named, given = Var(f"{buffer.name}_{'row' if FIRST_ROW in walk_expr(col) else 'col'}"), col
        body, col = (Let(named, given),), named

        def by_name(node: Expr) -> Expr:
            return named if node == given else node

        store, value = replace(store, index=map_index(store.index, by_name)), map_expr(value, by_name)
    names, value = applied(update, value, Load(buffer, store.index), row, col)
    body = (*body, *names, replace(store, value=convert(value, buffer.dtype)))
    return (If(inside[0], (If(inside[1], body),)),)


def once_whole(update: Update, finish: Body, before: Body = ()) -> Body:
    """What is done once a sum is whole, and before that."""
    if update.last is None or not finish:
        return finish
    return (If(update.last, (Comment("After K's last block: the sum is whole."), *finish), before),)


def _extent(update: Update, axis: str) -> Expr:
    """How many rows or columns C has."""
    slow, fast = update.dst.buffer.shape[-2:]
    return slow if (axis == "rows") != update.dst.transposed else fast
