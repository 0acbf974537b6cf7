"""Sums of blocks that several groups have parts of: where each leaves its own, and the kernel that adds them up."""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.atoms import Fragment, Spread
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.expr import Bin, Const, Expr, Load, Var, all_of, both, ceil_div, compare, number
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Registers, Store, Tile, Update
from gemmgen.passes import epilogue, stream
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import ACROSS, BLOCK, COL, COL0, DOWN, LOCAL_COL, LOCAL_ROW, ROW, ROW0, call

#: The groups that have the first batch of a block and its last one, and those between.
FIRST_GROUP, LAST_GROUP, GROUP = Var("first_group"), Var("last_group"), Var("group")


def whole_or_share(plan: Plan, comment: Comment, store: Update) -> Body:
    """C where a group has all batches of a block, else its own sum, for others to be added to."""
    share = Tile(plan.workspace(writable=True), (stream.SHARE, Const(0), Const(0)), *plan.schedule.block_tile)
    vector = plan.vector(plan.schedule.c_width, plan.sums)
    kept = Update(share, plan.acc, plan.alpha, number(0, plan.sums), *vector)
    is_whole = both(compare("==", stream.BEGIN, 0), compare("==", stream.END, stream.BATCHES))
    others = Comment("Of a block that others have parts of: this group's share.")
    return (If(is_whole, (comment, store), (others, kept)),)


def build_shares(plan: Plan) -> Kernel:
    """Adds up what groups have of blocks that none of them has all of, one after the other: the same bits each time."""
    s, shares, c = plan.schedule, plan.workspace(writable=False), plan.c
    rows, cols = s.block_tile
    one = Spread(1)
    total = Registers(Buffer("total", plan.sums, Space.PRIVATE, Layout.packed(1, 1)), Fragment(one, one))
    down, across = ceil_div(plan.m, rows), ceil_div(plan.n, cols)

    def share(group: Expr, ends: int) -> Load:
        return Load(shares, (group * 2 + ends, LOCAL_ROW, LOCAL_COL))

    place = (ROW, COL) if plan.spec.c_order == "row" else (COL, ROW)
    tile = Tile(c, place, 1, 1, plan.spec.c_order == "col")
    update = Update(tile, total, number(1, plan.sums), plan.beta, *plan.vector(1, plan.spec.result))
    sum_at = total.at(Const(0), Const(0))
    add = Store(total.buffer, sum_at, Bin("+", Load(total.buffer, sum_at), share(GROUP, 0)))
    work: Body = (
        Comment(f"The groups' shares, one after the other. {plan.update_comment()}"),
        Alloc(total.buffer),
        Store(total.buffer, sum_at, share(FIRST_GROUP, 1)),
        For(GROUP, FIRST_GROUP + 1, LAST_GROUP + 1, 1, (add,), exact=True),
        replace(update, steps=epilogue.steps(plan)),
    )
    begin = (BLOCK - stream.WHOLES) * stream.BATCHES
    body: Body = (
        Let(DOWN, down),
        Let(ACROSS, across),
        *plan.dealing(DOWN * ACROSS),
        Let(LOCAL_ROW, call("group_id", 0) % rows),
        Let(LOCAL_COL, call("local_id", 0)),
        Let(BLOCK, stream.WHOLES + call("group_id", 0) // rows),
        *plan.walk(),
        Let(ROW, ROW0 + LOCAL_ROW),
        Let(COL, COL0 + LOCAL_COL),
        Let(FIRST_GROUP, stream.group_of(begin)),
        Let(LAST_GROUP, stream.group_of(begin + stream.BATCHES - 1)),
        *plan.awaited(shares),
        If(all_of((FIRST_GROUP < LAST_GROUP, plan.m > ROW, plan.n > COL)), work),
    )
    listed = (plan.m, plan.n, plan.k, GROUPS, shares, plan.beta, *plan.per_matrix(c), *epilogue.parameters(plan))
    left = stream.left_blocks(down * across)
    return Kernel(
        name=f"{plan.name}_total",
        params=tuple(p for p in listed if isinstance(p, Buffer | Var)),
        body=body,
        group=(1, cols),
        grid=(Const(1), left * rows),
        promises=plan.promises(),
    )
