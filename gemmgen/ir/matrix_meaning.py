"""What matrix instructions compute, on NumPy: the software that they are held to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from gemmgen.ir.evaluate import IndexCode, require_whole
from gemmgen.ir.lanes import Active, Index, Lanes, Site, Value
from gemmgen.ir.matrix import ROWS, MatrixAtom
from gemmgen.ir.memory import Memory
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.warp_matrix import WarpAtom
from gemmgen.ir.warp_meaning import multiply_step

Numbers = npt.NDArray[np.number]


def multiply(atom: MatrixAtom, acc: Sequence[Numbers], a: Sequence[Numbers], b: Sequence[Numbers]) -> list[Numbers]:
    """The new accumulators.

    Args:
        acc, a, b: eight registers each, a value for each lane of any number of sub-groups one after the other.
    """
    left = _matrices(atom, a, numpy_dtype(atom.a_word))  # [sub-group, row, k]
    right = _matrices(atom, b, np.dtype(np.int32))  # [sub-group, word, lane and element]
    columns = right.reshape(-1, len(b), atom.lanes, atom.packed).transpose(0, 1, 3, 2)
    product = left @ columns.reshape(-1, atom.depth, atom.lanes)
    before = np.stack([x.reshape(-1, atom.lanes) for x in acc], axis=1)
    after = (before + product).astype(numpy_dtype(atom.sums))
    return [after[:, row].reshape(-1) for row in range(after.shape[1])]


def _matrices(atom: MatrixAtom, registers: Sequence[Numbers], word: np.dtype[np.generic]) -> Numbers:
    """[sub-group, register, element], in a type that holds products and their sums."""
    words = np.stack([np.asarray(x).astype(word).reshape(-1, atom.lanes) for x in registers], axis=1)
    elements = np.ascontiguousarray(words).view(numpy_dtype(atom.dtype))
    wide: Numbers = elements.astype(np.float64 if atom.sums.is_float else np.int64)
    return wide


def matrix_step(
    atom: MatrixAtom | WarpAtom, operands: Sequence[tuple[Memory, Sequence[IndexCode]]], lanes: Lanes, site: Site
) -> Callable[[Active], None]:
    """What an instruction does whose sums, A and B begin at these registers of private arrays."""
    if isinstance(atom, WarpAtom):
        return multiply_step(atom, operands, lanes, site)

    def step(active: Active) -> None:
        require_whole(lanes, active, site)
        found = [(memory, [code(active) for code in index]) for memory, index in operands]
        values = [
            [_everywhere(memory.read(neighbour(index, e), active, site), active) for e in range(ROWS)]
            for memory, index in found
        ]
        memory, index = found[0]
        for e, value in enumerate(multiply(atom, *values)):
            memory.write(neighbour(index, e), cast(Value, value), active, site)

    return step


def neighbour(index: list[Index], element: int) -> list[Index]:
    """Where the element so many places further on lies; a single one may have no index at all."""
    return [*index[:-1], index[-1] + element] if element else index


def _everywhere(value: Value, active: Active) -> Numbers:
    """A register of each lane, where one value may stand for all."""
    return cast(Numbers, np.broadcast_to(np.asarray(value), active.mask.shape))
