"""Weights of few bits by warps: made in registers, on their way to shared memory, while A is copied past these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.stmt import CooperativeCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.epilogues import Finished

SM_80 = TARGETS["sm_80"]
#: Two warps beside each other; a ring of three, and one of two whose operands are read across tiles.
SMALL = candidates.load("mma_4x8_16x8").schedule.but(name=None, tile=(2, 4), group=(8, 8))
WAYS: dict[str, Schedule] = {
    "ring": SMALL.but(stages=3, across_tiles=False, register_stages=1),
    "across": SMALL.but(stages=2, across_tiles=True, register_stages=2),
    "slices": SMALL.but(stages=3, across_tiles=False, register_stages=1, sliced_k=2, block_k=64),
    "split": SMALL.but(stages=3, across_tiles=False, register_stages=1, split_k=2),
}
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, b_dtype=I8, b_order="col", prologue_b="(b - b_shift_32) * b_scale_32")
#: Lines that begin anywhere, and K of less than a step and of some steps and a part.
SIZES = ((17, 21, 19), (33, 18, 200))


@pytest.mark.parametrize("stored", [I8, I4], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_weights(way: str, dtype: DType, stored: DType, rng: np.random.Generator) -> None:
    spec = replace(SPEC, dtype=dtype, b_dtype=stored)
    for multiple in (1, 16):
        made = replace(spec, ld_multiple=multiple)
        program = driver.lower_program(made, WAYS[way], SM_80)
        assert len(program.kernels) == (2 if way == "split" else 1)
        for size in SIZES:
            data = Finished.random(rng, made, *size)
            data.check(data.interpret(program))


def test_bits_are_those_of_the_packed_product(rng: np.random.Generator) -> None:
    """Elements are rounded as a kernel before would round them."""
    packed = WAYS["ring"].but(a=replace(SMALL.a, prepacked=True), b=replace(SMALL.b, prepacked=True))
    data = Finished.random(rng, SPEC, *SIZES[1])
    one, other = (data.interpret(driver.lower_program(SPEC, x, SM_80)) for x in (WAYS["ring"], packed))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("order", ["row", "col"])
def test_a_is_made_as_well(order: str, rng: np.random.Generator) -> None:
    """In another type, and by a formula alone; B by rows, whose tile `ldmatrix` turns."""
    spec = GemmSpec(dtype=F16, c_dtype=F32, a_order=order, prologue_a="a * a_scale + 0.5", b_dtype=I8, prologue_b="b")  # type: ignore[arg-type]
    data = Finished.random(rng, spec, 33, 18, 77)
    data.check(data.interpret(driver.lower_program(spec, WAYS["ring"], SM_80)))


def test_loads_are_begun_before_the_arithmetic() -> None:
    """B's bytes wait in registers while the tile before is multiplied."""
    body = driver.lower_program(SPEC, WAYS["ring"], SM_80, "pipeline").main.body
    parts = [s.part for s in walk(body) if isinstance(s, CooperativeCopy) and s.src.buffer.name == "b"]
    assert {"load", "store"} <= {*parts} and parts.index("load") < parts.index("store")


def test_what_is_refused() -> None:
    """A type without a formula, and types of other instructions."""
    without = driver.refusals(replace(SPEC, prologue_b=None), WAYS["ring"], "cuda", SM_80)
    assert any("atom mma takes A and B as they are" in problem for problem in without)
    high = driver.refusals(SPEC, WAYS["ring"].but(tile=(8, 16)), "cuda", SM_80)
    assert any("tile 8x16 has 128 sums > 64, which leave no registers for prologue_b" in problem for problem in high)
    tf32 = candidates.load("mma_tf32_8x16_16x8").schedule
    others = driver.refusals(GemmSpec(b_dtype=I8, prologue_b="b"), tf32, "cuda", SM_80)
    assert any("async_copy" in problem for problem in others)
