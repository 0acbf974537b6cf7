"""Sums in two steps: matrix instructions add up a part of K, which is then added to the accumulators as float32.

Such instructions drop bits where they add, which would show over a long K; additions of float32 are rounded.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Bin, Load, Var, number
from gemmgen.ir.stmt import Body, Comment, Fill, Registers, Store
from gemmgen.passes.loops import loop


def part_of(acc: Registers) -> Registers:
    """What instructions add to in the meantime."""
    return replace(acc, buffer=replace(acc.buffer, name="part"))


def add_part(acc: Registers) -> Body:
    """Adds a part to the accumulators, each register to its own, and begins the next with zeros."""
    part, row, col = part_of(acc), Var("i"), Var("j")
    place = acc.at(row, col)
    add = Store(acc.buffer, place, Bin("+", Load(acc.buffer, place), Load(part.buffer, part.at(row, col))))
    rows, cols = acc.fragment.rows.values, acc.fragment.cols.values
    added = loop(row, rows, loop(col, cols, (add,)))
    return (Comment("As float32, which is rounded."), *added, Fill(part, number(0, part.buffer.dtype)))
