"""Expand statements on sums that sub-groups hold as fragments (`joint_matrix`): fragment after fragment, element by
element, as `FragmentApply` tells where those stand.
"""

from __future__ import annotations

from collections.abc import Callable

from gemmgen.errors import LoweringError
from gemmgen.ir.copy_instructions import ThreadValueLayout
from gemmgen.ir.expr import Expr, Load, Var
from gemmgen.ir.kernel import loop
from gemmgen.ir.stmt import Body, EpilogueStore, Fill, FragmentApply, Let, Registers, Store
from gemmgen.passes.expand_epilogue import new_element

ROW, COL = Var("i"), Var("j")
#: Where an element stands in its fragment, and which of its lane's it is.
FRAGMENT_ROW, FRAGMENT_COL, ELEMENT = Var("r"), Var("q"), Var("sum")
#: Where it stands in C.
C_ROW, C_COL = Var("c_row"), Var("c_col")


def fill_fragments(fill: Fill) -> Body:
    """The same value for all elements."""
    return _each(fill.dst, lambda place: (Store(fill.dst.buffer, place, fill.value),))


def store_fragments(update: EpilogueStore) -> Body:
    """C, element by element; the tile of C begins where the sub-group's own does."""
    *planes, row, col = update.dst.origin
    rows, cols = _layout(update.acc).shape
    place = (Let(C_ROW, row + ROW * rows + FRAGMENT_ROW), Let(C_COL, col + COL * cols + FRAGMENT_COL))
    old = Load(update.dst.buffer, (*planes, C_ROW, C_COL))
    return _each(update.acc, lambda own: (*place, *new_element(update, old, own, C_ROW, C_COL)))


def _each(registers: Registers, body: Callable[[tuple[Expr, ...]], Body]) -> Body:
    """A body for each element, which is told the place of that among the registers."""
    down, across = registers.buffer.extents[:2]
    names = FRAGMENT_ROW, FRAGMENT_COL, ELEMENT
    apply = FragmentApply(registers.buffer, (ROW, COL), _layout(registers), *names, body((ROW, COL, ELEMENT)))
    return loop(ROW, down, loop(COL, across, (apply,)))


def _layout(registers: Registers) -> ThreadValueLayout:
    """That of a fragment."""
    if registers.opaque is None:
        raise LoweringError(f"{registers.buffer.name} is not made of fragments")
    return registers.opaque
