"""Matrices that a kernel before the product lays out anew: in either order, turned or not, of any size."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F16, F32
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret, layouts

NAMES = {"naive": "portable", "lds_8x8_16x16_k8": "portable", "async_4x4_8x16": "sm_90", "tile_8x8": "sm_80"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
def test_packed(name: str, a: bool, b: bool, rng: np.random.Generator) -> None:
    plain = presets.load(name).schedule
    schedule = replace(plain, a=replace(plain.a, packed=a), b=replace(plain.b, packed=b))
    for spec, size in product((GemmSpec(), GemmSpec(a_order="col", b_order="col")), ((70, 45, 33), (33, 65, 7))):
        problem = Problem.random(rng, *size, 1.5, -0.5)
        problem.check(interpret(driver.lower_program(spec, schedule, TARGETS[NAMES[name]]), spec, problem))


def test_every_layout(rng: np.random.Generator) -> None:
    plain = presets.load("lds_8x8_16x16_k8").schedule
    schedule = replace(plain, a=replace(plain.a, packed=True), b=replace(plain.b, packed=True))
    for spec in layouts(GemmSpec()):
        problem = Problem.integers(rng, 41, 35, 18)
        result = interpret(driver.lower_program(spec, schedule, TARGETS["portable"]), spec, problem)
        assert np.array_equal(result, problem.expected)


def test_the_product_asks_nothing_of_what_is_packed() -> None:
    source = driver.emit(GemmSpec(), presets.load("mbarrier_8x16_8x8_slices4_packed").schedule, "cuda")
    assert [w.name for w in source.workspaces] == ["a_packed", "b_packed"]
    before, main = source.entry_points
    assert {argument.name for argument in before.arguments} >= {"a", "lda", "b", "ldb"}
    assert not {argument.name for argument in main.arguments} & {"a", "lda", "b", "ldb"}
    body = source.text.split("slices4_packed(int m", 1)[1]
    assert "async_copy4_inside" not in body
    assert "async_copy_inside" not in body


def test_what_is_packed_is_copied_by_vectors_however_the_others_lines_lie(rng: np.random.Generator) -> None:
    """One question about A's lines decided how both are copied."""
    plain, spec = presets.load("mma_8x16_16x16").schedule, GemmSpec(dtype=F16, c_dtype=F32)
    schedule = replace(plain, b=replace(plain.b, packed=True), name=None)
    text = driver.emit(spec, schedule, "cuda", TARGETS["sm_90"]).text
    assert "a_row_by1" in text and "b_packed_row_by1" not in text and "b_row_by1" not in text
    program = driver.lower_program(spec, schedule, TARGETS["sm_90"])
    problem = Problem.of(rng, spec, 9, 11, 70, 1.0, 0.0)
    problem.check(interpret(program, spec, problem, 3))
    ring = driver.emit(GemmSpec(), presets.load("mbarrier_8x16_16x16_packed_a").schedule, "cuda").text
    assert "_by1" not in ring.replace("b_row_by1", "")


def test_whole_sizes_need_no_other_names() -> None:
    schedule = presets.load("mbarrier_8x16_16x16_packed").schedule
    assert "m_whole" in driver.emit(GemmSpec(), schedule, "cuda").text
    assert "_whole" not in driver.emit(GemmSpec(multiple_of=(128, 256, 32)), schedule, "cuda").text


def test_images_are_not_packed() -> None:
    """Blocks of buffers are: `test_columns.py`."""
    plain = presets.load("block_read_32x1_1x8").schedule
    remedy = "--method simd --tile 32x1 --group 1x8 --set a.packed=true"
    with pytest.raises(
        ScheduleError, match=f"a.packed makes a buffer of a matrix, but a.memory is 'image': .*{remedy}"
    ):
        driver.emit(GemmSpec(), replace(plain, a=replace(plain.a, packed=True)))
    spec, remedied = GemmSpec(prologue_a="a * 2"), defaults("simd", (32, 1), (1, 8))
    driver.emit(spec, replace(remedied, a=replace(remedied.a, packed=True)))
