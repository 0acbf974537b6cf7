"""Loops that the compiler is asked to unroll."""

from __future__ import annotations

from gemmgen.ir.constants import is_free
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.stmt import Body, For
from gemmgen.ir.walk import map_body_exprs, substitute


def loop(var: Var, count: int, body: Body) -> Body:
    """`count` unrolled rounds; no loop for a single one, unless a reader may change how many."""
    if count == 1 and not is_free(count):
        return map_body_exprs(body, substitute({var: Const(0)}))
    return (For(var, Const(0), Const(count), 1, body, unroll=True, exact=True),)
