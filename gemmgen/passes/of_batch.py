"""Matrices of a batch by three coordinates, the first of which says which one: so tensor maps have them, and so
kernels reach them whose groups go from one product to another.
"""

from __future__ import annotations

from dataclasses import replace

from gemmgen.ir.buffer import Buffer, Layout
from gemmgen.ir.expr import Expr, Load
from gemmgen.ir.steps import Step
from gemmgen.ir.walk import map_expr
from gemmgen.passes.positions import BATCH, BATCH_COUNT


def of_batch(matrix: Buffer) -> Buffer:
    """A matrix of a batch so; any other as it is."""
    if matrix.step is None or len(matrix.shape) != 2:
        return matrix
    layout = matrix.layout
    layout = Layout((BATCH_COUNT, *layout.shape), (matrix.step, *layout.strides))
    contracted = None if matrix.contracted is None else matrix.contracted + 1
    return replace(matrix, layout=layout, contracted=contracted)


def which(matrix: Buffer) -> tuple[Expr, ...]:
    """The coordinate that stands before the others of such a matrix."""
    return (BATCH,) if len(matrix.shape) > 2 else ()


def reading_of_batch(step: Step) -> Step:
    """A function on elements of C that reads such matrices."""

    def reads(node: Expr) -> Expr:
        if not isinstance(node, Load) or len(node.index) != 2:
            return node
        matrix = of_batch(node.buffer)
        return Load(matrix, (*which(matrix), *node.index))

    return replace(step, value=map_expr(step.value, reads))
