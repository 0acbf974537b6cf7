"""Batches in the interpreter: each product its own, whatever lies between matrices, one matrix for all where asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.stmt import PointerIncrement
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import evaluate
from gemmgen.options import read_document
from gemmgen.simulator.execute import run_program
from gemmgen.spec import GemmSpec
from tests.support.batches import check_interpreted, in_a_row
from tests.support.problems import Matrix, Problem, stored
from tests.support.tools import nvcc

BATCHED = GemmSpec(batched=True)
#: A plain loop, local memory, sub-groups, a ring, slices, parts of K by either way, matrices packed before.
NAMES = {
    "naive": "portable",
    "lds_8x8_16x16_k16_double": "portable",
    "L3_SIMD_8x4_1x8": "intel",
    "async_8x4_8x16": "sm_90",
    "mbarrier_8x8_4x8_slices8": "sm_90",
    "mbarrier_8x8_2x16_split8": "sm_90",
    "mbarrier_8x8_2x16_atomic8": "sm_90",
    "mbarrier_8x16_8x8_slices4_packed": "sm_90",
    "mma_3xtf32_8x8_16x16": "sm_90",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gap", [0, 5])
def test_products_of_a_batch(name: str, gap: int, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    spec = replace(BATCHED, a_order="col") if gap and "SIMD" not in name else BATCHED
    program = driver.lower_program(
        spec, preset.schedule.but(split_k=min(3, preset.schedule.split_k)), TARGETS[NAMES[name]]
    )
    problems = [Problem.random(rng, 37, 21, 19, 1.5, -0.5) for _ in range(3)]
    problems = [replace(problem, b=problems[0].b) for problem in problems]
    check_interpreted(program, spec, problems, gap, pad=3)


@pytest.mark.parametrize("name", NAMES)
def test_products_whose_addresses_are_given(name: str, rng: np.random.Generator) -> None:
    """In any order, with one B for two of them; the interpreter takes places in one array for addresses."""
    preset = candidates.load(name)
    schedule = preset.schedule.but(split_k=min(3, preset.schedule.split_k))
    program = driver.lower_program(replace(BATCHED, listed=True), schedule, TARGETS[NAMES[name]])
    m, n, k, pad = 37, 21, 19, 3
    problems = [Problem.random(rng, m, n, k, 1.5, -0.5) for _ in range(3)]
    problems[2] = replace(problems[2], b=problems[0].b)
    known: dict[str, int | float | Matrix] = {"m": m, "n": n, "k": k, "alpha": 1.5, "beta": -0.5, "batch_count": 3}
    order = (2, 0, 1)  # of the matrices in memory
    for matrix, lines, ld in (("a", m, k + pad), ("b", k, n + pad), ("c", m, n + pad)):
        # Each begins where vectors may stand, which is asked of addresses.
        gap = 8 - lines * ld % 4
        known[matrix], step = in_a_row([stored(getattr(problems[i], matrix), "row", pad) for i in order], gap)
        places = np.array([order.index(i) * step for i in range(3)])
        if matrix == "b":
            places[2] = places[0]
        known |= {f"{matrix}_list": places, f"ld{matrix}": ld}
    for workspace in program.workspaces:
        elements = evaluate(workspace.elements, {"m": m, "n": n, "k": k, "batch_count": 3})
        known[workspace.name] = np.full(elements, np.nan, np.float32)
    run_program(program, known)
    result = np.asarray(known["c"]).reshape(3, -1)[[order.index(i) for i in range(3)]]
    for problem, c in zip(problems, result[:, : m * (n + pad)].reshape(3, m, n + pad), strict=True):
        problem.check(c[:, :n])


def test_addresses_are_those_of_the_language() -> None:
    listed = replace(BATCHED, listed=True)
    cuda = driver.emit(listed, candidates.load("naive").schedule, "cuda")
    assert "const float *const *__restrict__ a_list, int lda" in cuda.text
    assert "    float *__restrict__ c = c_list[batch];" in cuda.text
    assert "stride_" not in cuda.text
    said = "// Takes      a_list, b_list, c_list: batch_count addresses, of each product's A, B and C; a C is no"
    assert said in cuda.text
    scaled = driver.emit(replace(listed, alpha=0.0, epilogue=("residual",)), candidates.load("naive").schedule, "cuda")
    assert "// Takes      c_list: batch_count addresses, of each product's C; a C is no other" in scaled.text
    assert "// Epilogue   residual: acc + residual" in scaled.text
    assert (
        "stored as C is, and no part of it; the\n//                next product's stride_r elements on, or 0"
        in scaled.text
    )
    assert [a.name for a in cuda.entry_points[0].arguments if a.kind == "buffer"] == ["a_list", "b_list", "c_list"]
    sycl = driver.emit(listed, candidates.load("naive").schedule, "sycl").text
    assert "    const float *__restrict b = b_list[batch];" in sycl
    with pytest.raises(ScheduleError, match="takes no arrays of addresses: use a batch with a constant stride"):
        driver.emit(listed, candidates.load("naive").schedule)
    with pytest.raises(SpecError, match="listed matrices are those of a batch: set batched"):
        GemmSpec(listed=True)
    assert read_document('tile = "2x2"\n[spec]\nbatched = true\nlisted = true', "here").spec.listed


def test_nvcc_takes_arrays_of_addresses(tmp_path: Path) -> None:
    for name in ("smem_8x8_double_packed", "mbarrier_8x8_2x16_split8"):
        text = driver.emit(replace(BATCHED, listed=True), candidates.load(name).schedule, "cuda").text
        assert " 0 bytes spill stores" in nvcc(text, "sm_90", tmp_path)


def test_vectors_ask_for_the_stride_too() -> None:
    """A batch whose matrices begin between vectors must not be read by them, however its lines lie."""
    schedule = candidates.load("smem_8x8").schedule
    text = driver.emit(BATCHED, schedule, "cuda").text
    assert "lda % 4 == 0 && stride_a % 4 == 0" in text
    assumed = driver.emit(replace(BATCHED, ld_multiple=4), schedule, "cuda").text
    kernel, launcher = assumed.split("cudaError_t", 1)
    assert "stride_a % 4" not in kernel and "stride_a % 4" in launcher


def test_matrices_move_once_and_in_64_bits() -> None:
    kernel = driver.lower(BATCHED, candidates.load("naive").schedule)
    moved = [stmt for stmt in kernel.body if isinstance(stmt, PointerIncrement)]
    assert [stmt.view.name for stmt in moved] == ["a", "b", "c"]
    assert {str(stmt.by.dtype) for stmt in moved} == {"int64"}


def test_an_image_holds_no_batch() -> None:
    with pytest.raises(ScheduleError, match="an image holds one matrix, not a batch: use a preset that reads buffers"):
        driver.emit(BATCHED, candidates.load("block_read_32x1_1x8").schedule)
