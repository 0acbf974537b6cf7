"""Batches in the interpreter: each product its own, whatever lies between matrices, one matrix for all where asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.ir.interp import run
from gemmgen.ir.stmt import Advance
from gemmgen.ir.target import TARGETS
from gemmgen.ir.visit import evaluate
from gemmgen.spec import GemmSpec
from tests.support.problems import CANARY, Matrix, Problem, stored

BATCHED = GemmSpec(batched=True)
#: A plain loop, local memory, sub-groups, a ring, slices, parts of K by either way, matrices packed before.
NAMES = {
    "naive": "portable",
    "lds_8x8_16x16_k8_double": "portable",
    "L3_SIMD_8x4_1x8": "intel",
    "async_8x4_8x16": "sm_90",
    "mbarrier_8x8_4x8_slices8": "sm_90",
    "mbarrier_8x8_2x16_split8": "sm_90",
    "mbarrier_8x8_2x16_atomic8": "sm_90",
    "mbarrier_8x16_8x8_slices4_packed": "sm_90",
    "mma_3xtf32_8x8_16x16": "sm_90",
}


def in_a_row(matrices: list[Matrix], gap: int) -> tuple[Matrix, int]:
    """Matrices one after the other with a gap between, and how far apart they lie."""
    step = matrices[0].size + gap
    memory = np.full(step * len(matrices), CANARY, np.float32)
    for number, matrix in enumerate(matrices):
        memory[number * step : number * step + matrix.size] = matrix.reshape(-1)
    return memory, step


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("gap", [0, 5])
def test_products_of_a_batch(name: str, gap: int, rng: np.random.Generator) -> None:
    preset = presets.load(name)
    spec = replace(BATCHED, a_order="col") if gap and "SIMD" not in name else BATCHED
    program = driver.lower_program(
        spec, replace(preset.schedule, split=min(3, preset.schedule.split)), TARGETS[NAMES[name]]
    )
    m, n, k, pad = 37, 21, 19, 3
    problems = [Problem.random(rng, m, n, k, 1.5, -0.5) for _ in range(3)]
    first = problems[0].b
    problems = [replace(problem, b=first) for problem in problems]  # one B for all
    known: dict[str, int | float | Matrix] = {"m": m, "n": n, "k": k, "alpha": 1.5, "beta": -0.5, "batch_count": 3}
    known["a"], known["stride_a"] = in_a_row([stored(p.a, spec.a_order, pad) for p in problems], gap)
    known["b"], known["stride_b"] = stored(first, "row", pad).reshape(-1), 0
    known["c"], known["stride_c"] = in_a_row([stored(p.c, "row", pad) for p in problems], gap)
    known |= {"lda": (m if spec.a_order == "col" else k) + pad, "ldb": n + pad, "ldc": n + pad}
    sizes = {"m": m, "n": n, "k": k, "batch_count": 3}
    for workspace in program.workspaces:
        known[workspace.name] = np.full(evaluate(workspace.elements, sizes), np.nan, np.float32)
    for kernel in program.kernels:
        run(kernel, {p.name: known[p.name] for p in kernel.launch_params})
    result = np.asarray(known["c"]).reshape(3, -1)
    assert (result[:, m * (n + pad) :] == CANARY).all()
    lines = result[:, : m * (n + pad)].reshape(3, m, n + pad)
    assert (lines[:, :, n:] == CANARY).all()
    for problem, c in zip(problems, lines, strict=True):
        problem.check(c[:, :n])


def test_vectors_ask_for_the_stride_too() -> None:
    """A batch whose matrices begin between vectors must not be read by them, however its lines lie."""
    schedule = presets.load("smem_8x8").schedule
    text = driver.emit(BATCHED, schedule, "cuda").text
    assert "lda % 4 == 0 && stride_a % 4 == 0" in text
    promised = driver.emit(replace(BATCHED, ld_multiple=4), schedule, "cuda").text
    assert "stride_a % 4" not in promised


def test_matrices_move_once_and_in_64_bits() -> None:
    kernel = driver.lower(BATCHED, presets.load("naive").schedule)
    moved = [stmt for stmt in kernel.body if isinstance(stmt, Advance)]
    assert [stmt.view.name for stmt in moved] == ["a", "b", "c"]
    assert {str(stmt.by.dtype) for stmt in moved} == {"int64"}


def test_an_image_holds_no_batch() -> None:
    with pytest.raises(ScheduleError, match="an image holds one matrix, not a batch: use a preset that reads buffers"):
        driver.emit(BATCHED, presets.load("block_read_32x1_1x8").schedule)
