"""Places of boxes in CUDA C++: PTX counts from the fast axis, of a batch's matrices up to which one it is."""

from __future__ import annotations

from collections.abc import Sequence

from gemmgen.backends.clike import CLike
from gemmgen.ir.expr import Expr
from gemmgen.ir.stmt import Body, BoxCopy
from gemmgen.ir.walk import walk


def place(index: Sequence[Expr], printer: CLike) -> str:
    """Where a box begins, as functions that copy it take it."""
    return ", ".join(map(printer.expr, reversed(index)))


def words(body: Body) -> dict[str, str]:
    """What functions that copy boxes of one matrix, or of a batch's, differ in."""
    copies = [stmt for stmt in walk(body) if isinstance(stmt, BoxCopy)]
    if not any(len(matrix.shape) > 2 for copy in copies for matrix in (copy.dst, copy.src) if matrix.box is not None):
        return {"rank": "2", "which": "", "given": "", "fourth": "", "fifth": "", "sixth": ""}
    operands = {"fourth": ", %4", "fifth": ", %5", "sixth": ", %6"}
    return {"rank": "3", "which": "int batch, ", "given": ', "r"(batch)', **operands}
