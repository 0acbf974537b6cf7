"""The exchange of sums between the lanes of a line, before they are stored from registers (`Registers.c_width`).

After `mma.sync` a lane has two neighbouring columns of eight: of 2-byte elements a warp's store of them covers half of
each sector of 32 bytes, and C is read in as small pieces. So `c_width // 2` instructions of a warp have columns side by
side, and lanes exchange sums by shuffles until each has `c_width` neighbours: a transposition of instructions against
lanes, one bit of their numbers after the other.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.dtypes import BOOL
from gemmgen.ir.expr import Call, Const, Expr, Load, Var, compare, select
from gemmgen.ir.instructions import ACROSS, MMA_WIDE
from gemmgen.ir.kernel import COL, ELEMENT, ROW, loop
from gemmgen.ir.stmt import Body, Comment, Let, Registers, Store
from gemmgen.positions import LANE, LOCAL_COL
from gemmgen.schedule import Schedule

#: Which pair of instructions exchanges sums.
PAIR = Var("p")


def instructions(schedule: Schedule) -> int:
    """How many instructions of a warp have columns side by side; 1 where nothing is exchanged."""
    return max(1, schedule.c_width // MMA_WIDE) if schedule.sliced_k == 1 else 1


def before(cols: AxisLayout, count: int) -> AxisLayout:
    """Columns of the accumulators, with `count` instructions side by side."""
    return beside(cols, count, ACROSS)


def beside(cols: AxisLayout, count: int, lanes: int) -> AxisLayout:
    """An axis on which `lanes` lanes own `count` rounds side by side."""
    return cols if count == 1 else replace(cols, repeats=count, inner_lanes=lanes)


def after(acc: Registers, count: int) -> Registers:
    """The same registers as they are stored: each lane has `2 * count` neighbouring columns."""
    if count == 1:
        return acc
    cols = acc.fragment.cols
    # Of two instructions, lanes 0 and 2 of a line have the first one's columns, lanes 1 and 3 the second one's.
    lane: Expr = LOCAL_COL
    if count < ACROSS:
        lane = LOCAL_COL // ACROSS * ACROSS + LOCAL_COL % count * (ACROSS // count) + LOCAL_COL % ACROSS // count
    cols = AxisLayout(cols.values, cols.lanes, MMA_WIDE * count, lane)
    return replace(acc, fragment=replace(acc.fragment, cols=cols))


def statements(acc: Registers, count: int) -> Body:
    """The exchange, in place: one bit of the instruction's number against the same bit of the lane's."""
    if count == 1:
        return ()
    out: Body = (Comment(f"Lanes exchange sums, so that each has {MMA_WIDE * count} neighbouring columns of C."),)
    bit = 1
    while bit < count:
        out = (*out, *_across(acc, count, bit))
        bit *= 2
    return out


def _across(acc: Registers, count: int, bit: int) -> Body:
    """Sums of instructions that differ in a bit against those of lanes that differ in it."""
    fragment, dtype = acc.fragment, acc.buffer.dtype
    first = PAIR // bit * (2 * bit) + PAIR % bit if count > 2 else Const(0)
    low = acc.at(ROW, COL * (MMA_WIDE * count) + first * MMA_WIDE + ELEMENT)
    high = acc.at(ROW, COL * (MMA_WIDE * count) + (first + bit) * MMA_WIDE + ELEMENT)
    is_low, received = Var(f"is_low_{bit}" if count > 2 else "is_low", BOOL), Var("received", dtype)
    lower, upper = Load(acc.buffer, low), Load(acc.buffer, high)
    sent = select(is_low, upper, lower)
    one: Body = (
        Let(received, Call("shuffle_xor", (sent, Const(bit)), dtype)),
        Store(acc.buffer, low, select(is_low, lower, received)),
        Store(acc.buffer, high, select(is_low, received, upper)),
    )
    each = loop(PAIR, count // 2, loop(ELEMENT, MMA_WIDE, one))
    rounds = loop(ROW, fragment.rows.values, loop(COL, fragment.cols.values // (MMA_WIDE * count), each))
    return (Let(is_low, compare("==", LANE // bit % 2, 0)), *rounds)
