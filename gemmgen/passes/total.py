"""The second kernel of a product whose K is split: C from the sums over the parts."""

from __future__ import annotations

from gemmgen.ir.atoms import Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Const, Var, both, ceil_div
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Comment, If, Let, Registers, Sum, Tile, Update
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import ACROSS, COL, ROW, call

#: Work-items of a group, side by side along a row.
GROUP = 256


def build_total(plan: Plan) -> Kernel:
    """Adds up the workspace's planes, one after the other, so that the same parts give the same bits."""
    dtype = plan.spec.dtype
    one = Spread(1)
    total = Registers(Buffer("total", dtype, Space.PRIVATE, Layout.packed(1, 1)), Fragment(one, one))
    parts = plan.workspace(writable=False)
    c = Tile(plan.c, (ROW, COL) if plan.spec.c_order == "row" else (COL, ROW), 1, 1, plan.spec.c_order == "col")
    scalar = plan.vector(1)
    across = ceil_div(plan.n, GROUP)
    inside = (
        Comment("The parts of K, one after the other."),
        Alloc(total.buffer),
        Sum(total, Tile(parts, (Const(0), ROW, COL), 1, 1), plan.schedule.split, *scalar),
        Update(c, total, Const(1.0, dtype), plan.beta, *scalar),
    )
    body = (
        Let(ACROSS, across),
        Let(ROW, call("group_id", 0) // ACROSS),
        Let(COL, call("group_id", 0) % ACROSS * GROUP + call("local_id", 0)),
        If(both(plan.m > ROW, plan.n > COL), inside),
    )
    listed = (plan.m, plan.n, parts, plan.beta, plan.c, plan.c.layout.strides[0])
    params = tuple(p for p in listed if isinstance(p, Buffer | Var))
    return Kernel(
        name=f"{plan.name}_total",
        params=params,
        body=body,
        group=(1, GROUP),
        grid=(Const(1), plan.m * across),
        promises=plan.promises(),
    )
