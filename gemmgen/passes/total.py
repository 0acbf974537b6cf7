"""Kernels with a work-item for each element of C: beside a product whose K is split, one that adds up its parts or one
that C starts with; and all that is left of a product by alpha = 0.
"""

from __future__ import annotations

from gemmgen.ir.atoms import Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, both, ceil_div, compare, convert, number, select
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, Comment, Fill, If, Let, Registers, Store, Sum, Tile, Update
from gemmgen.passes import epilogue
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import ACROSS, BATCH, BATCH_COUNT, COL, ROW, call

#: Work-items of a group, side by side along a row; fewer where each has many parts to add up, so that more of a device
#: is at it: where K is split so often, C is small.
GROUP, SMALL_GROUP, MANY_PARTS = 256, 32, 32


def build_total(plan: Plan, early: bool = False) -> Kernel:
    """Adds up the workspace's planes, one after the other, so that the same parts give the same bits.

    Args:
        early: whether the next kernel, which waits for this one, is let in while this one waits itself.
    """
    parts, total = plan.workspace(writable=False), _single(plan, "total")
    add_up = Sum(total, Tile(parts, (Const(0), ROW, COL), 1, 1), plan.schedule.planes, *plan.vector(1, plan.sums))
    comment = Comment("The parts of K, one after the other.")
    body = comment, Alloc(total.buffer), add_up, _update(plan, total)
    return _elementwise(plan, "total", body, parts, plan.released() if early else ())


def build_start(plan: Plan) -> Kernel:
    """beta * C, to which parts are added."""
    return _elementwise(plan, "start", (Comment("What the parts of K are added to."), _scale(plan)))


def build_scale(plan: Plan) -> Kernel:
    """beta * C, where nothing is added, and the epilogue."""
    comment = Comment(plan.update_comment())
    if not plan.spec.epilogue:
        return _elementwise(plan, "", (comment, _scale(plan)))
    nothing = _single(plan, "total")
    fill = Fill(nothing, number(0, plan.sums))
    return _elementwise(plan, "", (comment, Alloc(nothing.buffer), fill, _update(plan, nothing)))


def _scale(plan: Plan) -> Store:
    """A work-item's element by beta; it is not read where beta is zero."""
    place, zero = _place(plan), number(0, plan.sums)
    scaled = Bin("*", plan.beta, convert(Load(plan.c, place), plan.sums))
    value = select(compare("==", plan.beta, zero), zero, scaled)
    return Store(plan.c, place, convert(value, plan.spec.result))


def _single(plan: Plan, name: str) -> Registers:
    one = Spread(1)
    return Registers(Buffer(name, plan.sums, Space.PRIVATE, Layout.packed(1, 1)), Fragment(one, one))


def _place(plan: Plan) -> tuple[Expr, Expr]:
    """Of a work-item's element of C."""
    return (ROW, COL) if plan.spec.c_order == "row" else (COL, ROW)


def _update(plan: Plan, value: Registers) -> Update:
    """value + beta * C for a work-item's element."""
    c = Tile(plan.c, _place(plan), 1, 1, plan.spec.c_order == "col")
    vector, steps = plan.vector(1, plan.spec.result), epilogue.steps(plan)
    return Update(c, value, number(1, plan.sums), plan.beta, *vector, steps)


def _elementwise(plan: Plan, suffix: str, inside: Body, parts: Buffer | None = None, released: Body = ()) -> Kernel:
    """A kernel with a work-item for each element of C."""
    width = GROUP if parts is None or plan.schedule.planes < MANY_PARTS else SMALL_GROUP
    across = ceil_div(plan.n, width)
    body = (
        *((Let(BATCH, call("group_id", 2)),) if plan.spec.batched else ()),
        *plan.named_pitches("workspace"),
        Let(ACROSS, across),
        Let(ROW, call("group_id", 0) // ACROSS),
        Let(COL, call("group_id", 0) % ACROSS * width + call("local_id", 0)),
        *plan.to_product(parts, plan.c, *epilogue.matrices(plan)),
        *released,
        *(plan.awaited(parts) if parts is not None else plan.released() if suffix else ()),
        If(both(plan.m > ROW, plan.n > COL), inside),
    )
    listed = (plan.m, plan.n, parts, plan.beta, *plan.per_matrix(plan.c), *epilogue.parameters(plan))
    return Kernel(
        name=f"{plan.name}_{suffix}" if suffix else plan.name,
        params=tuple(p for p in listed if isinstance(p, Buffer | Var)),
        body=body,
        group=(1, width),
        grid=(Const(1), plan.m * across),
        facts=(plan.m - ROW - 1,),
        promises=plan.promises(),
        layers=BATCH_COUNT if plan.spec.batched else None,
    )
