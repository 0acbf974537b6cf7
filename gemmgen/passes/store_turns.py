"""Warpgroups that store one after the other: while one does, another multiplies.

All of a group would come to the end of a block at the same time, and leave the matrix units idle while they store. In
turns the first is through sooner, and from then on ahead of the next by as much: it stores while that one still
multiplies, and multiplies for the next block while that one stores. Each waits for the one before it; the first for
the last one's turn at the block before, so that none is ahead by more than a block. Behind the last block nothing is
multiplied, so that all store at once.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.expr import Const, Expr, both, compare, select
from gemmgen.ir.meetings import Mbarrier, MbarrierVerb, Roles
from gemmgen.ir.stmt import Block, Body, Comment, If
from gemmgen.passes.positions import LOCAL_INDEX, WARPGROUP, WAVE, WAVES

WARP, WARPS = 32, 4


def turns_ready(roles: Roles) -> Body:
    """The mbarriers that say who may store."""
    if not roles.storing:
        return ()
    return (replace(_may_store(roles, "init", LOCAL_INDEX), arrivals=WARPS),)


def in_turns(store: Body, roles: Roles | None) -> Body:
    """What stores a block's part of C, warpgroup after warpgroup."""
    if roles is None or not roles.storing:
        return store
    # The first may store its first block at once, as if the last had stored one before.
    parity = (WAVE + select(compare("==", WARPGROUP, 0), Const(1), Const(0))) % 2
    goes_on = WAVE + 1 < WAVES
    wait = replace(_may_store(roles, "wait", WARPGROUP), parity=parity)
    following = _may_store(roles, "arrive", (WARPGROUP + 1) % roles.storing)
    passed_on = If(both(goes_on, compare("==", LOCAL_INDEX % WARP, 0)), (following,))
    say = Comment("Warpgroups store one after the other, so that another multiplies meanwhile.")
    return (say, Block((If(goes_on, (wait,)), *store, passed_on), WARPGROUP, roles.storing))


def _may_store(roles: Roles, verb: MbarrierVerb, which: Expr) -> Mbarrier:
    return Mbarrier(verb, "may_store", roles.storing, which)
