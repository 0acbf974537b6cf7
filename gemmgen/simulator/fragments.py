"""Fragments in the simulator: a loop of each lane over the elements that it has."""

from __future__ import annotations

from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const
from gemmgen.ir.instructions import LANE
from gemmgen.ir.stmt import For, FragmentApply, Let
from gemmgen.ir.walk import map_expr, substitute


def by_lanes(stmt: FragmentApply) -> For:
    """The same as such a loop."""
    axes, lane = (stmt.layout.rows, stmt.layout.cols), Call("lane_id", (), I32)
    starts = (map_expr(axis.start, substitute({LANE: lane})) for axis in axes)
    steps = (axis.step(stmt.element) if axis.values > 1 else Const(0) for axis in axes)
    names = (Let(var, start + step) for var, start, step in zip((stmt.row, stmt.col), starts, steps, strict=True))
    values = stmt.layout.rows.values * stmt.layout.cols.values
    return For(stmt.element, Const(0), Const(values), 1, (*names, *stmt.body))
