"""Sums in two steps: matrix instructions add up a part of K, which is then added to the accumulators as float32.

Such instructions drop bits where they add, which would show over a long K; additions of float32 are rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Var, compare, number, select
from gemmgen.ir.stmt import Alloc, Body, Comment, Fill, If, Registers, Store
from gemmgen.passes.loops import loop


def part_of(acc: Registers) -> Registers:
    """What instructions add to in the meantime."""
    return replace(acc, buffer=replace(acc.buffer, name="step_sums"))


def add_part(acc: Registers) -> Body:
    """Adds a part to the accumulators, each register to its own, and begins the next with zeros."""
    part = part_of(acc)
    added = _each(acc, lambda total, place: Bin("+", total, Load(part.buffer, place)))
    return (Comment("As float32, which is rounded."), *added, Fill(part, number(0, part.buffer.dtype)))


def instead_of_nan(acc: Registers, product: Body) -> Body:
    """Where any work-item of the group has NaN, a second product, which `part` takes up, says what it is. What is not
    finite makes NaN of its rest, where it may have to be infinite.
    """
    part, dtype = part_of(acc), acc.buffer.dtype
    doubt = Buffer("doubt", dtype, Space.PRIVATE, Layout.packed(1))
    at = (Const(0),)
    found = _each(acc, lambda total, _: Call("fma", (total, number(0, dtype), Load(doubt, at)), dtype), (doubt, at))
    kept = _each(acc, lambda total, place: select(compare("==", total, total), total, Load(part.buffer, place)))
    again = Call("any_in_group", (compare("!=", Load(doubt, at), number(0, dtype)),), BOOL)
    say = Comment("What is not finite has no rest: where it made NaN of a sum, heads alone say what that is.")
    return (say, Alloc(doubt), Store(doubt, at, number(0, dtype)), *found, If(again, (*product, *kept)))


def _each(
    acc: Registers, value: Callable[[Expr, tuple[Expr, ...]], Expr], to: tuple[Buffer, tuple[Expr, ...]] | None = None
) -> Body:
    """Stores what comes of each sum and its place, there or elsewhere."""
    row, col = Var("i"), Var("j")
    place = acc.at(row, col)
    buffer, at = to or (acc.buffer, place)
    store = Store(buffer, at, value(Load(acc.buffer, place), place))
    rows, cols = acc.fragment.rows.values, acc.fragment.cols.values
    return loop(row, rows, loop(col, cols, (store,)))
