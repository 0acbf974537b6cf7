"""Grouped products (mixture of experts): which rows of C, or which part of K, a group of them has.

An array on the device, `offsets`, holds the end of each group; a group begins where the one before ends. No host reads
it. So the grid of groups of rows is the most that offsets can ask for, and surplus work-groups return.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.constants import said
from gemmgen.ir.dtypes import I32
from gemmgen.ir.expr import Const, Expr, Load, Var, compare, minimum, select
from gemmgen.ir.sizes import GROUP_COUNT, GROUP_DEPTH, GROUP_ROWS, GROUP_STEPS
from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Return, Store
from gemmgen.launch import given_shape
from gemmgen.positions import GROUP, GROUP_BEGIN, ROW0
from gemmgen.problem import Problem
from gemmgen.spec import OFFSETS

#: Where each group ends, in rows of A or along K.
ENDS = Buffer(OFFSETS, I32, Space.GLOBAL, Layout((GROUP_COUNT,), (Const(1),)), writable=False, places=True)
_TOTAL_M, _TOTAL_K = Var("m"), Var("k")
#: The bisection: a group that begins no later than the block, how many from it on are left, and half of those.
_FOUND = Buffer("found", I32, Space.PRIVATE, Layout.packed(), places=True)
_LEFT = Buffer("left", I32, Space.PRIVATE, Layout.packed(), places=True)
_STEP, _AHEAD, _MIDDLE = Var("step"), Var("ahead"), Var("middle")


def sizes(problem: Problem) -> tuple[Expr | Buffer, ...]:
    """The sizes that a kernel takes, of all groups, and where these end; their number, unless each has a grid."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.spec.grouped == "rows":
        return _TOTAL_M, n, k, GROUP_COUNT, ENDS
    return (m, n, _TOTAL_K, ENDS) if problem.spec.grouped == "k" else (m, n, k)


def most_blocks(rows: int) -> Expr:
    """Blocks of so many rows that all groups have at most. Group g has those from begin / rows + g on; they end before
    the next one's, since ceil((end - begin) / rows) <= end / rows - begin / rows + 1.
    """
    return _TOTAL_M // rows + GROUP_COUNT


def _first_block(group: Expr, begin: Expr, rows: int) -> Expr:
    """The first of the blocks that a group has."""
    return begin // rows + group


def group_of(block: Expr, rows: int, begin: Var = ROW0) -> Body:
    """The group that has a block of so many rows, found by bisection: its bounds, and a name (`begin`) for where
    the block begins in it. The work-groups of surplus blocks return.
    """
    found, left = Load(_FOUND, ()), Load(_LEFT, ())
    middle = found + _AHEAD
    begins = _first_block(_MIDDLE, Load(ENDS, (_MIDDLE - 1,)), rows)
    halve: Body = (
        Let(_AHEAD, left // 2),
        Let(_MIDDLE, middle),
        If(compare("<", 0, _AHEAD), (If(begins <= block, (Store(_FOUND, (), _MIDDLE),)),)),
        Store(_LEFT, (), left - _AHEAD),
    )
    return (
        Comment(f"This block's group, by bisection: its first block is offsets[group - 1] / {said(rows)} + group."),
        Alloc(_FOUND),
        Store(_FOUND, (), Const(0)),
        Alloc(_LEFT),
        Store(_LEFT, (), GROUP_COUNT),
        For(_STEP, Const(0), Const(GROUP_STEPS), 1, halve, exact=True),
        Let(GROUP, found),
        *_bounds(GROUP_ROWS, _TOTAL_M),
        Let(begin, (block - _first_block(GROUP, GROUP_BEGIN, rows)) * rows),
        If(begin >= GROUP_ROWS, (Return(),)),
    )


def share_of_rows() -> Body:
    """Bounds of the group that a loop over all has come to."""
    return _bounds(GROUP_ROWS, _TOTAL_M)


def share_of_k(group: Expr) -> Body:
    """A group's bounds along K."""
    return Let(GROUP, group), *_bounds(GROUP_DEPTH, _TOTAL_K)


def _bounds(size: Var, total: Var) -> Body:
    """Where a group begins, and how long it is: offsets past the end of the matrices are taken for that."""
    before = select(compare("==", GROUP, 0), Const(0), Load(ENDS, (GROUP - 1,)))
    return Let(GROUP_BEGIN, before), Let(size, minimum(Load(ENDS, (GROUP,)), total) - GROUP_BEGIN)


# --- by tensor maps -------------------------------------------------------------------------------


def ending_with(matrix: Buffer) -> Buffer:
    """A matrix whose lines groups share out, as tensor maps have it: a matrix for each line e that a group may end at,
    which has as many lines as there are in all, the last of them line e - 1. So nothing that lies past a group is
    loaded, but zeros, nor stored to. A group's lines are the last ones of its matrix, so that nothing before it counts.
    """
    lines, length = given_shape(matrix)
    pitch, one = matrix.layout.strides
    layout = Layout((lines + 1, lines, length), (pitch, pitch, one), ends=True)
    contracted = None if matrix.contracted is None else matrix.contracted + 1
    return replace(matrix, layout=layout, contracted=contracted)


def place_in(problem: Problem, line: Expr, element: Expr) -> tuple[Expr, ...]:
    """The coordinates there of a place among a group's own lines."""
    own = GROUP_ROWS if problem.spec.grouped == "rows" else GROUP_DEPTH
    return GROUP_BEGIN + own, lines_before(problem) + line, element


def lines_before(problem: Problem) -> Expr:
    """How many lines of its matrix lie before the group's own."""
    return _TOTAL_M - GROUP_ROWS if problem.spec.grouped == "rows" else _TOTAL_K - GROUP_DEPTH


def assumptions(problem: Problem) -> tuple[Expr, ...]:
    """What can't be negative: lines before a group's own in its matrix, and lines behind it."""
    before = lines_before(problem)
    return before, before - GROUP_BEGIN


def own_line(problem: Problem, line: Expr) -> Expr:
    """Which of the group's own lines a line of its matrix is."""
    return line - lines_before(problem)
