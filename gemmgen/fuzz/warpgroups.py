"""Schedules of warpgroups drawn by hypothesis: tiles that boxes bring, A in registers or not, every way out of C."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from gemmgen.ir.dtypes import BF16, F16, F32, I8, RESULTS, DType
from gemmgen.ir.swizzle import LINES_BYTES
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order

#: What is multiplied, by what. 8-bit floats are left out: what their sums lose shows even in small whole numbers.
TYPES: tuple[tuple[str, DType], ...] = (("wgmma", BF16), ("wgmma", F16), ("wgmma_tf32", F32), ("wgmma_s8", I8))
#: Work-items: one warpgroup, two above and beside one another; the same lying along columns swaps operands.
GROUPS = ((32, 4), (64, 4), (32, 8))
#: What a work-item has of the 64 rows of a warpgroup, and of its columns.
ROWS, COLS = (2, 2, 4), (4, 8, 12, 16, 20, 32)
#: What may be made of an element on its way to registers, in whole numbers that bfloat16 has.
MADE = (None, None, "{} * 2", "abs({}) - 1")

orders: st.SearchStrategy[Order] = st.sampled_from(("row", "col"))


@st.composite
def warpgroups(draw: st.DrawFn) -> tuple[GemmSpec, Schedule]:
    """Blocks of one or two warpgroups, and a spec that goes with them."""
    atom, dtype = draw(st.sampled_from(TYPES))
    swapped, held = draw(st.booleans()), draw(st.booleans())
    schedule = draw(_shapes(atom, dtype, swapped))
    schedule = draw(_ways_out(draw(_roles(schedule))))
    mine, its = ("b", "a") if swapped else ("a", "b")
    if held:
        own = replace(getattr(schedule, mine), memory="private")
        schedule = replace(schedule, **{mine: own})
    return draw(_specs(dtype, mine, its, held)), schedule


@st.composite
def _shapes(draw: st.DrawFn, atom: str, dtype: DType, swapped: bool) -> Schedule:
    """Tiles, and a ring of them."""
    tile, group = (draw(st.sampled_from(ROWS)), draw(st.sampled_from(COLS))), draw(st.sampled_from(GROUPS))
    line = draw(st.sampled_from(LINES_BYTES[::-1]))
    shape = (tile[::-1], group[::-1]) if swapped else (tile, group)
    schedule = defaults(atom, *shape, line // dtype.size)
    return replace(schedule, stages=draw(st.integers(2, 4)), raster=draw(st.sampled_from([0, 1, 2, 3])))


@st.composite
def _roles(draw: st.DrawFn, schedule: Schedule) -> Schedule:
    """Who copies, for whom, and for how long."""
    clusters = st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)])
    schedule = replace(schedule, persistent=draw(st.booleans()), cluster=draw(clusters), late=draw(st.booleans()))
    # Registers are handed over by whole warpgroups alone.
    return replace(schedule, producers=32, registers=(0, 0)) if draw(st.booleans()) else schedule


@st.composite
def _ways_out(draw: st.DrawFn, schedule: Schedule) -> Schedule:
    """How C is stored: by boxes, one warpgroup after the other, by work-items, or as parts of K."""
    if draw(st.booleans()):
        schedule = replace(schedule, c_stages=draw(st.integers(1, 3)))
        several = schedule.group[0] * schedule.group[1] > 128
        return replace(schedule, c_turns=several and schedule.persistent and draw(st.booleans()))
    schedule, parts = replace(schedule, c_width=draw(st.sampled_from([1, 2, 4]))), draw(st.booleans())
    if not parts:
        return schedule
    split, joined = draw(st.sampled_from([2, 3, 4])), draw(st.sampled_from([2, 1]))
    return replace(schedule, split=split, joined=joined, persistent=False, cluster=(1, 1))


@st.composite
def _specs(draw: st.DrawFn, dtype: DType, mine: str, its: str, held: bool) -> GemmSpec:
    """Orders that instructions turn, and what the way to registers does to elements."""
    stored = I8 if held and dtype.size == 2 and draw(st.booleans()) else None
    made = draw(st.sampled_from(MADE)) if stored is not None else None
    # Of elements that no instruction turns lines lie along K.
    along_k: dict[str, Order] = {"a": "row", "b": "col"}
    order = draw(orders)
    changes: dict[str, object] = {
        f"{its}_order": order if dtype.size == 2 else along_k[its],
        f"{mine}_order": draw(orders) if held or dtype.size == 2 else along_k[mine],
        f"{mine}_dtype": stored,
        f"prologue_{mine}": None if made is None else made.format(mine),
    }
    spec = GemmSpec(dtype=dtype, c_dtype=draw(st.sampled_from(RESULTS[dtype])), c_order=draw(orders), ld_multiple=16)
    return replace(spec, **changes)  # type: ignore[arg-type]
