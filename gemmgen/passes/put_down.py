"""Sums by way of local memory: put down as accumulators lie, taken up in runs along C's rows."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr, number
from gemmgen.ir.meetings import RANK, Barrier
from gemmgen.ir.stmt import Alloc, Body, Comment, Let, Sum, Tile, Update
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import FIRST_COL, FIRST_ROW, LOCAL_INDEX, SUM_COL, SUM_ROW


def by_local_memory(plan: Plan, say: str, plane: Expr, comment: Comment, store: Update, meet: Barrier) -> Body:
    """The sums of each of `partial`'s planes added up, and stored as `store` says, which has them in registers.

    Args:
        say: what is done, for a comment.
        plane: where a work-item's own sums go.
        comment: what is stored.
        meet: of the work-items that compute; the first time for those that still read what is put down upon.
    """
    schedule, partial, total = plan.schedule, plan.partial, plan.total
    one, zero = number(1, plan.sums), number(0, plan.sums)
    # What a cluster puts down goes to the group that adds it up, and lies in its own there.
    to, there = ((Const(0),), (RANK,)) if partial.spread > 1 else ((), ())
    along = store.dst.origin[-2 if store.dst.transposed else -1]
    own = Tile(partial, (*to, plane, Const(0), Const(0)), *schedule.block_tile, plan.flipped)
    planes = Tile(partial, (*there, *(Const(0),) * 3), *plan.put_down)
    return (
        Comment(say),
        *((meet,) if plan.reuses or schedule.persistent else ()),
        Alloc(partial, reuses=plan.reuses),
        # Scaled here, so that the sums may lie in any registers.
        Update(own, plan.acc, store.alpha, zero, *plan.vector(1 if plan.flipped else schedule.run[1], plan.sums)),
        meet,
        Let(SUM_ROW, LOCAL_INDEX // plan.sum_across),
        Let(SUM_COL, LOCAL_INDEX % plan.sum_across),
        Let(FIRST_ROW if plan.flipped else FIRST_COL, along + total.fragment.cols.start),
        Alloc(total.buffer),
        Sum(total, planes, schedule.slices * schedule.joined, *plan.vector(total.fragment.cols.run, plan.sums)),
        comment,
        replace(store, acc=total, alpha=one),
    )
