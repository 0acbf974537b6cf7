"""Where a work-item of a warpgroup stands, whichever way warpgroups lie in their group."""

from __future__ import annotations

from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr
from gemmgen.ir.stmt import Body, Let
from gemmgen.ir.warpgroup_matrix import LANES
from gemmgen.passes.plan import Plan
from gemmgen.passes.positions import LOCAL_COL, LOCAL_ROW, WARPGROUP, WARPGROUP_COL, WARPGROUP_ROW, call, linear

#: Work-items of a warpgroup above one another, and beside one another.
HIGH, WIDE = LANES // 4, 4


class WarpgroupPositions(Plan):
    """Those of a kernel whose warpgroups follow one another in the launch, wherever they lie."""

    @property
    def across(self) -> int:
        """Warpgroups beside one another."""
        return self.schedule.warpgroups[1]

    def warpgroup(self) -> Body:
        """Which warpgroup a work-item is of. By a shuffle, since all of a warp agree on what one lane says: descriptors
        of tiles are then worked out once for all lanes.
        """
        line = LOCAL_ROW if self.across == 1 else call("local_id", 1)
        number = Let(WARPGROUP, Call("broadcast", (line // HIGH, Const(0)), I32))
        if self.across == 1:
            return (number,)
        return (number, Let(WARPGROUP_ROW, WARPGROUP // self.across), Let(WARPGROUP_COL, WARPGROUP % self.across))

    def _work_item(self) -> Body:
        if self.across == 1:
            return super()._work_item()
        line = call("local_id", 1)
        row = line // (HIGH * self.across) * HIGH + line % HIGH
        col = line // HIGH % self.across * WIDE + call("local_id", 0)
        return (Let(LOCAL_ROW, row), Let(LOCAL_COL, col))

    def _number(self) -> Expr:
        own = (call("local_id", 1), call("local_id", 0))
        return super()._number() if self.across == 1 else linear(self.schedule.all_work_items, *own)
