"""What is done to an element of C before it is stored, and to one of A or B before it is multiplied."""

from __future__ import annotations

from gemmgen.ir.dtypes import I32, I64, DType
from gemmgen.ir.expr import Expr, Var, convert
from gemmgen.records import dataclass

#: Where the element is in C.
ELEMENT_ROW, ELEMENT_COL = Var("element_row"), Var("element_col")
#: Where it is in A or B: along K, and which row of A or column of B.
ELEMENT_K, ELEMENT_LINE = Var("element_k"), Var("element_line")
#: Which of a work-item's own rows of A that is; of C, which of its own columns.
ELEMENT_OWN, ELEMENT_OWN_COL = Var("element_own"), Var("element_own_col")

#: Where, in a step along K, the instruction begins that takes an element of registers.
ELEMENT_STEP_K = Var("element_step_k")


def element(dtype: DType) -> Var:
    """What the steps so far have made of it."""
    return Var("element", dtype)


def old(dtype: DType) -> Var:
    """What C held there before."""
    return Var("old", dtype)


def places_by_type(sums: DType, **places: Expr) -> dict[Var, Expr]:
    """What a formula's names of places stand for: in the type of sums, and in those that places are compared in."""
    types = dict.fromkeys((sums, I32, I64))
    return {Var(name, dtype): convert(place, dtype) for name, place in places.items() for dtype in types}


@dataclass(frozen=True, slots=True)
class Step:
    """One of an epilogue's functions, or a prologue.

    Attributes:
        name: for the name of what it makes.
        value: in terms of `element`, `old`, `ELEMENT_ROW`, `ELEMENT_COL`, and where a work-item holds what is read of
            arrays, `ELEMENT_OWN` and `ELEMENT_OWN_COL`; of a prologue, of `element`, `ELEMENT_K`, `ELEMENT_LINE`,
            `ELEMENT_OWN` and `ELEMENT_STEP_K`.
    """

    name: str
    value: Expr
