"""Blocks of C dealt out evenly to as many groups as a device runs at once (stream-K).

As long as there are blocks for all groups, each computes whole ones. Of those that are left, between one and two for
each, all batches of K stand in one line, block after block, and every group has an equal piece of it: a part of a
block, perhaps a whole one, and a part of another. Groups so end together, however many blocks there are. What they have
summed of parts another kernel adds up, always in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Call, Const, Expr, Var, as_int, ceil_div, compare, div, minimum, select
from gemmgen.ir.sizes import GROUPS
from gemmgen.ir.stmt import Body, Let
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Work-items of a group that adds up a row of a block.
MOST_ITEMS = 1024

#: Blocks of C in all, and the one at hand; batches of K of each.
BLOCKS, BLOCK, BATCHES = Var("blocks"), Var("block"), Var("batches")
#: The first blocks, which groups compute whole; batches of all others, which are dealt out.
WHOLES, DEALT = Var("whole_blocks"), Var("dealt")
#: Which group this is, how many whole blocks it has, and where its piece of the line begins and ends.
GROUP, OWN, FIRST, LAST = Var("group"), Var("own"), Var("first_batch"), Var("last_batch")
#: What a group does one after the other: which of those it is, its batches of its block, and those done before it.
SEGMENT, SEGMENTS = Var("segment"), Var("segments")
BEGIN, END, BEFORE = Var("batch_begin"), Var("batch_end"), Var("before")
#: Where its sum of a part of a block goes: it has a place for what it begins with, whose block another has begun, and
#: one for what it ends with.
SHARE = Var("share")


def _at_least(least: int, value: Expr) -> Expr:
    known = as_int(value)
    return Call("max", (Const(least), value), I32) if known is None else Const(max(least, known))


def dealing(blocks: Expr, k: Expr, depth: int) -> Body:
    """Names for what is dealt out. Without K a block has a batch all the same, so that somebody stores it."""
    return (
        Let(BLOCKS, blocks),
        Let(BATCHES, _at_least(1, ceil_div(k, depth))),
        Let(WHOLES, BLOCKS - left_blocks(BLOCKS)),
        Let(DEALT, (BLOCKS - WHOLES) * BATCHES),
    )


def left_blocks(blocks: Expr) -> Expr:
    """How many blocks are dealt out in batches, of so many: what makes between one and two for each group."""
    return minimum(blocks, blocks % GROUPS + GROUPS)


def begin_of(group: Expr) -> Expr:
    """Where a group's piece of the line begins: the first ones have a batch more."""
    return group * (DEALT // GROUPS) + minimum(group, DEALT % GROUPS)


def group_of(batch: Expr) -> Expr:
    """Whose piece a batch belongs to."""
    each, longer = DEALT // GROUPS, DEALT % GROUPS
    early = longer * (each + 1)
    return select(batch < early, div(batch, each + 1), longer + div(batch - early, _at_least(1, each)))


def segments(number: Expr) -> Body:
    """Names for what a group has to do, and of each part of it the block and the batches."""
    of_block = (BLOCK - WHOLES) * BATCHES
    is_own = SEGMENT < OWN
    return (
        Let(GROUP, number),
        Let(OWN, WHOLES // GROUPS),
        Let(FIRST, begin_of(GROUP)),
        Let(LAST, begin_of(GROUP + 1)),
        # Of a piece of none, too: it ends where a block does.
        Let(SEGMENTS, OWN + div(LAST + BATCHES - 1, BATCHES) - div(FIRST, BATCHES)),
        Let(BLOCK, select(is_own, SEGMENT * GROUPS + GROUP, WHOLES + div(FIRST, BATCHES) + SEGMENT - OWN)),
        Let(BEGIN, select(is_own, Const(0), _at_least(0, FIRST - of_block))),
        Let(END, select(is_own, BATCHES, minimum(BATCHES, LAST - of_block))),
        Let(BEFORE, select(is_own, SEGMENT * BATCHES, OWN * BATCHES + of_block + BEGIN - FIRST)),
        Let(SHARE, GROUP * 2 + select(compare("<", 0, BEGIN), Const(0), Const(1))),
    )


def stream_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What is wrong with a schedule that deals blocks out evenly, each with a remedy."""
    if not s.mbarrier:
        yield "stream needs tiles handed over by mbarriers, but mbarrier = 0: use mbarrier 4 with stages 16, say"
    for key, given, plain in (("split", s.split, 1), ("slices", s.slices, 1)):
        if given > 1:
            yield f"stream deals out K already, but {key} = {given}: use {key} {plain}"
    if s.by_warps:
        yield f"stream is for atom fma, not {s.atom}: leave it out"
    if spec.batched:
        yield "stream deals out one product, not a batch: leave it out"
    if s.block_tile[1] > MOST_ITEMS:
        yield f"a block's {s.block_tile[1]} columns > {MOST_ITEMS}, which are added up by a group: use a smaller tile"
