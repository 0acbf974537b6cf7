"""What is done to an element of C before it is stored."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Var

#: Where the element is in C.
ELEMENT_ROW, ELEMENT_COL = Var("element_row"), Var("element_col")


def element(dtype: DType) -> Var:
    """What the steps so far have made of it."""
    return Var("element", dtype)


def old(dtype: DType) -> Var:
    """What C held there before."""
    return Var("old", dtype)


@dataclass(frozen=True, slots=True)
class Step:
    """One of an epilogue's functions.

    Attributes:
        name: for the name of what it makes.
        value: in terms of `element`, `old`, `ELEMENT_ROW` and `ELEMENT_COL`.
    """

    name: str
    value: Expr
