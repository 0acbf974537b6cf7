"""Prologues: what each element of A or of B is made into before it is multiplied, such as `b * b_scale`.

A prologue is one formula, in the language of `gemmgen.formulas`, over the element (`a` or `b`), where it is (`row` and
`k` in A, `k` and `col` in B) and the arrays of `epilogue.OPERANDS` that are meant for that matrix.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from gemmgen.epilogue import OPERANDS, Applied
from gemmgen.errors import SpecError
from gemmgen.formulas import formula, parse
from gemmgen.ir.dtypes import DType
from gemmgen.names import transposed

#: Where an element is.
_PLACES = {"a": ("row", "k"), "b": ("k", "col")}


def names(matrix: str) -> tuple[str, ...]:
    """What the formula of a matrix may name."""
    return (matrix, *_PLACES[matrix], *(name for name, operand in OPERANDS.items() if operand.of == matrix))


@lru_cache(maxsize=256)
def prologue(matrix: str, text: str, sums: DType) -> Applied:
    """The formula of A or B, where `sums` is what it is computed in. Raises: SpecError with every problem."""
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    try:
        tree = parse(text, f"{matrix} * {matrix}_scale")
        value = formula(tree, names(matrix), sums)
        found = Applied("prologue", ast.unparse(tree), ast.unparse(tree), value)
        if matrix not in found.names:
            raise SpecError(f"it does not name {matrix}, the element that it is made of: use it")
    except SpecError as error:
        raise SpecError(f"prologue_{matrix} {shown!r}: {problem}" for problem in error.problems) from None
    return found


def of_transpose(text: str) -> str:
    """The prologue of A as that of B = A^T, and the other way round."""
    return re.sub(r"\w+", lambda name: transposed(name[0]), text)
