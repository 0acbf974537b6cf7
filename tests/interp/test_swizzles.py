"""Tiles in lines of 32, 64 and 128 bytes: each line narrow where K's step, or the block, is; all in one kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.checker import tma_copy_problems
from gemmgen.ir.dtypes import BF16, F32, I8
from gemmgen.ir.stmt import TmaCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.kernel_names import kernel_name
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)


def short(k_step: int, method: str = "wgmma", **changes: object) -> Schedule:
    """64x64 of C by one warpgroup."""
    base = defaults(method, (2, 16), (32, 4), k_step)
    return base.but(producer_threads=32, setmaxnreg=(0, 0), stages=2, **changes)


def few_rows(k_step: int) -> Schedule:
    """16x64 of C, operands swapped."""
    base = defaults("wgmma", (4, 2), (4, 32), k_step)
    return base.but(producer_threads=32, setmaxnreg=(0, 0), stages=2)


def lines(source: Source) -> dict[str, int]:
    """What the maps of a source swizzle."""
    return {x.operand: x.swizzle for x in source.entry_points[0].maps}


#: A's order, B's, the schedule, and lines of A, B and C in bytes. A transposed operand's line is as wide as the block.
LINES: tuple[tuple[GemmSpec, Schedule, tuple[int, int, int]], ...] = (
    (SPEC, short(32, epilogue_stages=1), (64, 128, 128)),
    (replace(SPEC, b_order="col"), short(16, epilogue_stages=1), (32, 32, 128)),
    (replace(SPEC, a_order="col", b_order="row"), short(16, tile=(2, 8), epilogue_stages=2), (128, 64, 64)),
    (SPEC, short(32, tile=(2, 4), epilogue_stages=1), (64, 32, 32)),
    (SPEC, short(32, tile=(4, 12), c_width=1, epilogue_stages=1), (64, 128, 128)),
    (replace(SPEC, a_order="col"), few_rows(16), (32, 128, 0)),
    (replace(SPEC, ld_multiple=4, dtype=F32, b_order="col"), short(8, "wgmma_tf32", epilogue_stages=1), (32, 32, 128)),
    (replace(SPEC, ld_multiple=16, dtype=I8, b_order="col"), short(64, "wgmma_s8"), (64, 64, 0)),
    (SPEC, short(32, group=(64, 4), cluster=(2, 1), epilogue_stages=1), (64, 128, 128)),
)


@pytest.mark.parametrize(
    ("spec", "schedule", "wide"), LINES, ids=lambda x: kernel_name(x, SPEC) if isinstance(x, Schedule) else ""
)
def test_lines_as_wide_as_a_step_or_a_block(
    spec: GemmSpec, schedule: Schedule, wide: tuple[int, int, int], rng: np.random.Generator
) -> None:
    found = lines(driver.emit(spec, schedule, "cuda", SM_90A))
    assert tuple(found.get(name, 0) for name in "abc") == wide
    program = driver.lower_program(spec, schedule, SM_90A)
    problem = Problem.integers(rng, 70, 40, 56)
    problem = replace(problem, spec=spec).typed(spec)
    problem.check(interpret(program, spec, problem, 16))


def test_a_file_says_what_each_of_its_maps_swizzles_where_they_differ() -> None:
    text = driver.emit(SPEC, short(32, epilogue_stages=1), "cuda", SM_90A).text
    assert "CUtensorMapSwizzle swizzle)" in text
    assert [text.count(f"CU_TENSOR_MAP_SWIZZLE_{n}B") for n in (32, 64, 128)] == [0, 1, 2]
    assert "matrix_descriptor_64b<16>(shared.a" in text
    assert "matrix_descriptor<4096>(shared.b" in text or "matrix_descriptor<16>(shared.b" in text
    alike = driver.emit(replace(SPEC, b_order="col"), short(16, epilogue_stages=1, tile=(2, 4)), "cuda", SM_90A).text
    assert "CUtensorMapSwizzle swizzle" not in alike
    assert "CU_TENSOR_MAP_SWIZZLE_32B" in alike
    assert "stride_offset = 8 * 32 / 16;" in alike and "swizzle_mode = 3;" in alike
    assert "address ^ (address >> 3 & 16)" in alike


def test_other_lines_are_refused() -> None:
    with pytest.raises(ScheduleError, match="block_k = 48, but lines of bfloat16 are 16, 32 or 64 long"):
        driver.emit(SPEC, short(48), "cuda", SM_90A)
    packed = replace(short(16, "wgmma_3xtf32").a, prepacked=True)
    terms = short(16, "wgmma_3xtf32", a=packed, b=replace(packed, transposed=True))
    with pytest.raises(ScheduleError, match="block_k = 16, but lines of float32 are 32 long"):
        driver.emit(GemmSpec(dtype=F32), terms, "cuda", SM_90A)


def test_the_verifier_knows_how_wide_lines_are() -> None:
    kernel = driver.lower(SPEC, short(32), SM_90A)
    copy = next(s for s in walk(kernel.body) if isinstance(s, TmaCopy) and s.src.name == "a")
    assert not list(tma_copy_problems(copy, SM_90A))
    wrong = replace(copy, dst=replace(copy.dst, layout=replace(copy.dst.layout, swizzle=128)))
    assert any("bytes that swizzle" in problem for problem in tma_copy_problems(wrong, SM_90A))
