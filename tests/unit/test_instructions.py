"""The table of instructions: every element is held once, and the semantics that follows from layouts is the product."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gemmgen.ir.copy_instructions import ThreadValueLayout
from gemmgen.ir.instructions import DPAS_INSTRUCTIONS, INSTRUCTIONS, WGMMA_INSTRUCTIONS, Instruction, wgmma_form
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import FEATURES
from gemmgen.simulator.semantics import Numbers, gather, multiply, places, scatter, unpacked

MATRIX = [x for x in INSTRUCTIONS if not x.is_expanded]
WIDE = [
    wgmma_form(WGMMA_INSTRUCTIONS[0], cols, held=held, paired=paired)
    for cols, held, paired in ((24, False, False), (128, True, False), (256, True, True))
]


def label(x: Instruction) -> str:
    return f"{x.name}-{x.dtype}-{x.lanes}x{x.cols}"


@pytest.mark.parametrize("instruction", [*MATRIX, *WIDE], ids=label)
def test_every_element_is_held_once(instruction: Instruction) -> None:
    rows, cols, depth = instruction.rows, instruction.cols, instruction.depth
    layouts = [(instruction.a, (rows, depth)), (instruction.c, (rows, cols))]
    if instruction.b_place == "registers":
        layouts.append((instruction.b, (depth, cols)))
    for layout, shape in layouts:
        assert layout.shape == shape
        held_rows, held_cols = places(layout, instruction.threads)
        held = sorted(zip(held_rows.ravel().tolist(), held_cols.ravel().tolist(), strict=True))
        assert held == list(product(range(shape[0]), range(shape[1])))


@pytest.mark.parametrize("instruction", [x for x in MATRIX if x.b_place == "registers"], ids=label)
def test_the_semantics_is_the_product(instruction: Instruction, rng: np.random.Generator) -> None:
    """Of two scopes side by side."""
    rows, cols, depth = instruction.rows, instruction.cols, instruction.depth
    c, a, b = (rng.integers(-8, 9, (2, *shape)) for shape in ((rows, cols), (rows, depth), (depth, cols)))
    held = [
        scatter(layout, matrix.astype(numpy_dtype(dtype)), instruction.threads)
        for layout, matrix, dtype in (
            (instruction.c, c, instruction.sums),
            (instruction.a, a, instruction.dtype),
            (instruction.b, b, instruction.dtype),
        )
    ]
    after = multiply(instruction, *held)
    assert after.dtype == numpy_dtype(instruction.sums)
    assert np.array_equal(gather(instruction.c, after), c + a @ b)


@pytest.mark.parametrize("instruction", [x for x in DPAS_INSTRUCTIONS if x.a_word], ids=label)
def test_words_hold_neighbours_along_k(instruction: Instruction, rng: np.random.Generator) -> None:
    """Eight words a lane with a matrix' elements, in the order of the layout's table."""

    def words(layout: ThreadValueLayout, matrix: Numbers, word: str) -> Numbers:
        out = np.zeros((instruction.lanes, layout.rows.values * layout.cols.values), matrix.dtype)
        for (_, lane, row_value, col_value), place in layout.table().items():
            out[lane, row_value * layout.cols.values + col_value] = matrix[place]
        return out.view(word)

    for layout, word in ((instruction.a, instruction.a_register), (instruction.b, instruction.b_register)):
        matrix = rng.integers(-8, 9, layout.shape).astype(numpy_dtype(instruction.dtype))
        packed = words(layout, matrix, word.name)
        assert packed.shape == (instruction.lanes, 8)
        assert np.array_equal(gather(layout, unpacked(layout, packed, instruction)[np.newaxis])[0], matrix)


def test_rows_ask_for_features_that_there_are() -> None:
    assert all(x.needs <= FEATURES.keys() for x in INSTRUCTIONS)
    named = [(x.name, x.of, x.lanes, x.snake) for x in INSTRUCTIONS]
    assert len(named) == len(set(named))
