"""Batches by warpgroups: tensor maps of three dimensions, whatever lies between matrices, one for all where its step is
0, parts of K and packed operands; and blocks that stay go through all products.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.runtime.cuda_launch import encoded
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.batches import check_interpreted, interpreted
from tests.support.problems import Matrix, Problem
from tests.support.tools import nvcc

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=8, batched=True)
PACKED = Operand(memory="local", async_copy=True, prepacked=True)


def small(**changes: object) -> Schedule:
    """64x64 of C by one warpgroup."""
    base = defaults("wgmma", (2, 16), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), stages=2)
    return base.but(**changes)


def packed() -> Schedule:
    base = small()
    return base.but(a=replace(base.a, prepacked=True), b=replace(base.b, prepacked=True))


FEW_ROWS = defaults("wgmma", (4, 2), (4, 32)).but(
    producer_threads=32, setmaxnreg=(0, 0), stages=2, split_k=2, cluster_reduction=2
)
SCHEDULES = {
    "by work-items": small(c_width=2),
    "by TMA": small(epilogue_stages=1),
    "blocks that stay": small(epilogue_stages=2, persistent=True),
    "in turns": small(group=(64, 4), epilogue_stages=2, persistent=True, ordered_epilogue=True),
    "parts of K": small(split_k=3),
    "packed": packed(),
    "clusters": small(cluster=(2, 1), epilogue_stages=1, persistent=True),
    "few rows": FEW_ROWS.but(c_width=4),
    "few rows, parts of K": FEW_ROWS.but(split_k=3, cluster_reduction=1, c_width=1),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_products_of_a_batch(name: str, rng: np.random.Generator) -> None:
    """Matrices lie an odd multiple of 16 bytes apart; sizes end within blocks, and columns within 16 bytes."""
    spec = replace(SPEC, ld_multiple=1) if name == "packed" else SPEC
    program = driver.lower_program(spec, SCHEDULES[name], SM_90A)
    for count, gap in ((3, 24), (1, 0)):
        first = Problem.of(rng, spec, 70, 43, 72, 1.5, -0.5)
        problems = [replace(Problem.of(rng, spec, 70, 43, 72, 1.5, -0.5), b=first.b) for _ in range(count)]
        check_interpreted(program, spec, problems, gap)


@pytest.mark.parametrize(("a", "b", "c"), [("col", "row", "row"), ("row", "col", "col")])
def test_orders(a: str, b: str, c: str, rng: np.random.Generator) -> None:
    spec = replace(SPEC, a_order=a, b_order=b, c_order=c)  # type: ignore[arg-type]
    schedule = small(epilogue_stages=1, block_k=16 if c == "row" else 64)
    problems = [Problem.of(rng, spec, 40, 48, 72, -1.0, 2.0) for _ in range(2)]
    problems[1] = replace(problems[1], b=problems[0].b)
    check_interpreted(driver.lower_program(spec, schedule, SM_90A), spec, problems, 8)


@pytest.mark.parametrize("name", ["by work-items", "blocks that stay"])
def test_an_epilogue_reads_each_product_its_own(name: str, rng: np.random.Generator) -> None:
    spec = replace(SPEC, epilogue=("residual",))
    plain = [Problem.of(rng, SPEC, 40, 48, 16, 1.0, 0.0) for _ in range(3)]
    plain = [replace(problem, b=plain[0].b) for problem in plain]
    residual = rng.integers(-9, 9, (3, 40, 48)).astype(np.float32)
    program = driver.lower_program(spec, SCHEDULES[name], SM_90A)
    given: dict[str, int | complex | Matrix] = {"residual": residual.reshape(-1), "ldr": 48, "stride_r": 40 * 48}
    results = interpreted(program, spec, plain, more=given)
    for problem, more, result in zip(plain, residual, results, strict=True):
        assert np.abs(result - more - problem.expected).max() < 1e-4


def test_nothing_in_a_batch_is_no_launch_and_no_map() -> None:
    """Neither grids nor the driver are asked, for blocks that end and for those that stay."""
    for name in ("by TMA", "blocks that stay"):
        source = driver.emit(SPEC, SCHEDULES[name], "cuda", SM_90A)
        sizes = {"m": 5, "n": 6, "k": 7, "batch_count": 0}
        assert source.launches(sizes) == ()
        (entry,) = source.entry_points
        steps = {"stride_a": 64, "stride_b": 0, "stride_c": 64, "lda": 8, "ldb": 8, "ldc": 8}
        assert entry.maps
        assert [encoded(each, 256, {**sizes, **steps}) for each in entry.maps] == [None] * len(entry.maps)
        assert "|| batch_count < 1" in source.text


def test_how_many_blocks_there_are() -> None:
    by_layers, in_line = (driver.emit(SPEC, SCHEDULES[x], "cuda", SM_90A) for x in ("by TMA", "blocks that stay"))
    sizes = {"m": 65, "n": 64, "k": 7, "batch_count": 5}
    assert by_layers.entry_points[0].groups(sizes) == (5, 1, 2)
    assert in_line.entry_points[0].groups(sizes) == (1, 1, 10)
    assert "const int batch = int(blockIdx.z);" in by_layers.text
    assert "const int blocks = blocks_down * blocks_across * batch_count;" in in_line.text
    load = "tma_load_3d(shared.a[stage][i][0], &a_map, k0 + i * 64, row0, batch, &shared.full[stage]);"
    assert load in " ".join(by_layers.text.split())
    maps = {x.operand: x for x in in_line.entry_points[0].maps}
    assert maps["a"].batch is not None
    assert "stride_a" not in {x.name for x in in_line.entry_points[0].arguments}
    assert "cp.async.bulk.tensor.3d" in in_line.text
    assert "cp.async.bulk.tensor.2d" not in in_line.text


def test_nvcc_takes_boxes_of_batches_in_lines_of_several_widths(tmp_path: Path) -> None:
    schedule = small(group=(64, 4), block_k=32, cluster=(2, 1), epilogue_stages=1, persistent=True)
    source = driver.emit(replace(SPEC, epilogue=("residual",)), schedule, "cuda", SM_90A)
    report = nvcc(source.text, "sm_90a", tmp_path)
    assert " 0 bytes spill stores" in report
    assert "C75" not in report


def test_lists_of_matrices_are_refused() -> None:
    with pytest.raises(ScheduleError, match="maps of matrices a stride apart, not of a list: leave listed out"):
        driver.emit(replace(SPEC, listed=True), candidates.load("wgmma_64x64_s8").schedule, "cuda", SM_90A)
