"""Matrices that a kernel before the product lays out anew: in either order, transposed or not, of any size."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F16, F32
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, check_products, interpret, layouts

NAMES = {"naive": "portable", "lds_8x8_16x16_k8": "portable", "async_4x4_8x16": "sm_90", "tile_8x8": "sm_80"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("a", "b"), [(True, False), (False, True), (True, True)])
def test_packed(name: str, a: bool, b: bool, rng: np.random.Generator) -> None:
    plain = candidates.load(name).schedule
    schedule = plain.but(a=replace(plain.a, prepacked=a), b=replace(plain.b, prepacked=b))
    for spec, size in product((GemmSpec(), GemmSpec(a_order="col", b_order="col")), ((70, 45, 33), (33, 65, 7))):
        problem = Problem.random(rng, *size, 1.5, -0.5)
        problem.check(interpret(driver.lower_program(spec, schedule, TARGETS[NAMES[name]]), spec, problem))


def test_every_layout(rng: np.random.Generator) -> None:
    plain = candidates.load("lds_8x8_16x16_k8").schedule
    schedule = plain.but(a=replace(plain.a, prepacked=True), b=replace(plain.b, prepacked=True))
    for spec in layouts(GemmSpec()):
        problem = Problem.integers(rng, 41, 35, 18)
        result = interpret(driver.lower_program(spec, schedule, TARGETS["portable"]), spec, problem)
        assert np.array_equal(result, problem.expected)


def test_the_product_asks_nothing_of_what_is_packed() -> None:
    source = driver.emit(GemmSpec(), candidates.load("mbarrier_8x16_8x8_slices4_packed").schedule, "cuda")
    assert [w.name for w in source.workspaces] == ["a_packed", "b_packed"]
    before, main = source.entry_points
    assert {argument.name for argument in before.arguments} >= {"a", "lda", "b", "ldb"}
    assert not {argument.name for argument in main.arguments} & {"a", "lda", "b", "ldb"}
    body = source.text.split("slices4_packed(int m", 1)[1]
    assert "cp_async_16_zfill" not in body
    assert "cp_async_4_zfill" not in body


def test_what_is_packed_is_copied_by_vectors_however_the_others_lines_lie(rng: np.random.Generator) -> None:
    """One question about A's lines decided how both are copied."""
    plain, spec = candidates.load("mma_8x16_16x16").schedule, GemmSpec(dtype=F16, c_dtype=F32)
    schedule = plain.but(b=replace(plain.b, prepacked=True), name=None)
    text = driver.emit(spec, schedule, "cuda", TARGETS["sm_90"]).text
    assert "load_a(2);" in text and "load_b" not in text and "cp_async_16(&" in re.sub(r"\(\s+&", "(&", text)
    program = driver.lower_program(spec, schedule, TARGETS["sm_90"])
    check_products(program, spec, rng, (9, 11, 70), factors=(1.0, 0.0))
    ring = driver.emit(GemmSpec(), candidates.load("mbarrier_8x16_16x16_packed_a").schedule, "cuda").text
    assert "a_packed_k_by1" not in ring and "b_k_by1" in ring


def test_whole_sizes_need_no_other_names() -> None:
    schedule = candidates.load("mbarrier_8x16_16x16_packed").schedule
    assert "m_whole" in driver.emit(GemmSpec(), schedule, "cuda").text
    assert "_whole" not in driver.emit(GemmSpec(multiple_of=(128, 256, 32)), schedule, "cuda").text


def test_images_are_not_packed() -> None:
    """Blocks of buffers are: `test_columns.py`."""
    plain = candidates.load("block_read_32x1_1x8").schedule
    remedy = "--method simd --tile 32x1 --group 1x8 --set a.prepacked=true"
    with pytest.raises(
        ScheduleError, match=f"a.prepacked makes a buffer of a matrix, but a.memory is 'image': .*{remedy}"
    ):
        driver.emit(GemmSpec(), plain.but(a=replace(plain.a, prepacked=True)))
    spec, remedied = GemmSpec(prologue_a="a * 2"), defaults("simd", (32, 1), (1, 8))
    driver.emit(spec, remedied.but(a=replace(remedied.a, prepacked=True)))
