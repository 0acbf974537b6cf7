"""Expand a product of tiles in registers: multiply-adds of single elements."""

from __future__ import annotations

from gemmgen.ir.atoms import BROADCAST_FMA, MmaAtom, Spread
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, compare, conj, select
from gemmgen.ir.stmt import Body, Let, Mma, Registers, Store
from gemmgen.passes.loops import loop

ROW, COL, DEPTH = Var("i"), Var("j"), Var("p")


def multiply_adds(mma: Mma, atom: MmaAtom) -> Body:
    """Multiply-adds over rows, columns and depth, nested as the atom asks."""
    acc, a, b = mma.acc, mma.a, mma.b
    a_k, b_k = mma.a_k + DEPTH, mma.b_k + DEPTH
    counts = {"i": acc.fragment.rows.values, "j": acc.fragment.cols.values, "k": mma.depth}
    turn = Var("turn")
    column: Expr = turn if atom.snake and counts["i"] > 1 else COL
    broadcast = atom is BROADCAST_FMA
    a_value: Expr = _shared(a, ROW, a_k) if broadcast else Load(a.buffer, a.at(ROW, a_k))
    b_value: Expr = Load(b.buffer, b.at(b_k, column))
    a_value, b_value = (conj(x) if c else x for x, c in zip((a_value, b_value), mma.conj, strict=True))
    at, dtype = acc.at(ROW, column), acc.buffer.dtype
    names = {"i": ROW, "j": COL, "k": DEPTH}
    shared = Var("a_value", dtype)
    factor = shared if broadcast else a_value
    body: Body = (Store(acc.buffer, at, Call("fma", (factor, b_value, Load(acc.buffer, at)), dtype)),)
    if column is turn:
        forward = compare("==", ROW % 2, 0)
        body = (Let(turn, select(forward, COL, Const(counts["j"] - 1) - COL)), *body)
    for axis in reversed(atom.order):
        body = loop(names[axis], counts[axis], body)
        if axis == "j" and broadcast:
            body = (Let(shared, a_value), *body)
    return body


def _shared(registers: Registers, row: Expr, k: Expr) -> Expr:
    """A's element (row, k), from the lane of the sub-group that holds it."""
    fragment = registers.fragment
    row_value, row_lane = _held(fragment.rows, row)
    k_value, k_lane = _held(fragment.cols, k)
    element = Load(registers.buffer, registers.at(row_value, k_value))
    return Call("broadcast", (element, k_lane if fragment.cols.lanes > 1 else row_lane), registers.buffer.dtype)


def _held(spread: Spread, element: Expr) -> tuple[Expr, Expr]:
    """The (value, lane) that holds an element of an axis dealt out to lanes one by one."""
    if spread.lanes == 1:
        return element, Const(0)
    if spread.values == 1:
        return Const(0), element
    return element // spread.lanes, element % spread.lanes
