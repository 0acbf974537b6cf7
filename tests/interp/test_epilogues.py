"""Epilogues with every way of storing C, in the interpreter, against float64; nothing outside of an operand is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.epilogue import FUNCTIONS
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8, DType
from gemmgen.options import build_schedule
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.epilogues import Finished

#: Numbers for those functions that want some.
WRITTEN = {"leaky_relu": "leaky_relu(0.125)", "clamp": "clamp(-1, 2.5)"}
#: Every operand, C by its name, and a function applied twice.
LONG = ("scale", "row_scale", "bias", "relu", "row_bias", "residual", "relu", "expr: acc + 0.5 * c - col + 3 * row")
#: A way of storing C each, and parts of K: element by element, by vectors, in sub-groups, of slices that a kernel adds
#: up or that local memory does, of packed operands.
STORES = {
    "naive": 1,
    "lds_8x8_16x16_k8": 2,
    "L3_SIMD_16x2_1x8": 1,
    "async_4x4_8x16": 1,
    "mbarrier_8x8_4x8_slices8": 1,
    "smem_8x8_double_packed": 1,
}


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, size: tuple[int, int, int]) -> None:
    backend = "cuda" if schedule.asynchronous else "opencl"
    program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, backend))
    for alpha, beta in ((1.0, 0.0), (-2.0, 3.0)):
        problem = Finished.random(rng, spec, *size, alpha, beta)
        problem.check(problem.interpret(program))


def small(**changes: int) -> Schedule:
    """Two rows and columns of C for each of four by four work-items."""
    base = candidates.load("lds_8x8_16x16_k8").schedule.but(tile=(2, 2), thread_vector=(2, 2), group=(4, 4), name=None)
    return base.but(**changes)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function(function: str, rng: np.random.Generator) -> None:
    check(GemmSpec(epilogue=(WRITTEN.get(function, function),)), small(), rng, (19, 13, 9))


@pytest.mark.parametrize(
    ("name", "order"),
    [*((name, "row") for name in STORES), ("naive", "col"), ("lds_8x8_16x16_k8", "col"), ("L3_SIMD_16x2_1x8", "col")],
)
def test_each_store(name: str, order: Order, rng: np.random.Generator) -> None:
    schedule = candidates.load(name).schedule.but(name=None, split_k=STORES[name])
    check(GemmSpec(epilogue=LONG, c_order=order), schedule, rng, (37, 22, 11))


def test_the_bound_tells_functions_apart(rng: np.random.Generator) -> None:
    """The two forms of gelu differ by less than 0.0005."""
    spec = GemmSpec(epilogue=("gelu",))
    program = driver.lower_program(spec, small(), driver.default_target(spec, small()))
    problem = Finished.random(rng, spec, 8, 8, 8)
    result = problem.interpret(program)
    other = Finished(replace(problem.problem, spec=GemmSpec(epilogue=("gelu_tanh",))), {})
    problem.check(result)
    with pytest.raises(AssertionError, match="elements off"):
        other.check(result)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("dtype", [F64, F16, BF16, I8], ids=str)
def test_each_type(dtype: DType, width: int, rng: np.random.Generator) -> None:
    whole = ("bias", "expr: max(abs(acc) - row, 3) if acc != residual else -col", "relu")
    spec = GemmSpec(dtype=dtype, epilogue=LONG[:-1] if dtype.is_float else whole)
    check(spec, small(c_width=width), rng, (11, 14, 6))


@pytest.mark.parametrize(
    "name", ["naive", "lds_8x8_16x16_k8", "smem_8x8_double", "smem_8x8_double_packed", "async_4x4_8x16"]
)
@pytest.mark.parametrize("stored", [{"a_dtype": I8}, {"b_dtype": BF16}, {"a_dtype": F16, "b_dtype": F16}], ids=str)
def test_operands_stored_in_another_type(name: str, stored: dict[str, DType], rng: np.random.Generator) -> None:
    schedule = replace(candidates.load(name).schedule, name=None)
    spec = GemmSpec(epilogue=("scale", "row_scale"), **stored)  # type: ignore[arg-type]
    if schedule.asynchronous:
        with pytest.raises(ScheduleError, match="async_copy moves 4, 8, 16 bytes at a time"):
            driver.emit(spec, schedule, "cuda")
        return
    check(spec, schedule, rng, (37, 22, 11))


def test_float64_of_float32(rng: np.random.Generator) -> None:
    check(GemmSpec(dtype=F64, b_dtype=F32), small(), rng, (11, 14, 6))


def test_what_is_not_converted() -> None:
    for dtype, stored, words in (
        (F16, {"a_dtype": F32}, "a_dtype float32 is not converted to float16 in a load: use "),
        (
            F32,
            {"b_dtype": F64},
            "b_dtype float64 is not converted to float32 in a load: use float16 or bfloat16 or int8",
        ),
        (F32, {"a_dtype": F16, "b_dtype": I8}, "a_dtype float16 and b_dtype int8 are two other types"),
    ):
        with pytest.raises(SpecError, match=words):
            GemmSpec(dtype=dtype, **stored)  # type: ignore[arg-type]
    for name in ("L3_SIMD_16x2_1x8", "sg16_block_16x2"):
        with pytest.raises(ScheduleError, match="a_dtype int8 is converted by single work-items"):
            driver.emit(GemmSpec(a_dtype=I8), candidates.load(name).schedule)


def test_matrix_instructions(rng: np.random.Generator) -> None:
    preset = candidates.load("dpas_32x2_1x8")
    check(replace(preset.spec, epilogue=LONG), preset.schedule, rng, (35, 20, 17))


# --- gates ----------------------------------------------------------------------------------------

GATED: dict[str, tuple[str, DType, int, tuple[tuple[int, int, int], ...]]] = {
    "tile_8x8": ("opencl", F32, 1, ((37, 22, 11), (3, 1, 5))),
    "lds_8x8_16x16_k8": ("opencl", F32, 1, ((37, 22, 11), (3, 1, 5))),
    "smem_8x8": ("opencl", F32, 1, ((70, 67, 19),)),
    "smem_8x8_double": ("cuda", F32, 1, ((130, 66, 19),)),
    "async_8x8_16x16": ("cuda", F32, 1, ((130, 66, 19), (5, 7, 9))),
    "mma_8x16_16x8": ("cuda", BF16, 1, ((37, 22, 11), (130, 72, 40))),
    "mma_8x8_16x16_prefetch": ("cuda", BF16, 1, ((37, 22, 11), (130, 72, 40))),
    "wgmma_128x256_s4": ("cuda", BF16, 8, ((37, 23, 41),)),
    "wgmma_128x256_s4_turns": ("cuda", BF16, 8, ((150, 136, 70),)),
}


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("order", ["row", "col"])
def test_each_mainloop_with_a_gate(name: str, order: Order, rng: np.random.Generator) -> None:
    """A block has the same columns of both halves of B; where nothing reads C, it holds NaN."""
    backend, dtype, unit, sizes = GATED[name]
    schedule = candidates.load(name).schedule.but(name=None)
    for epilogue in (("swiglu", "bias", "residual"), ("expr: acc - 2 * up",)):
        spec = GemmSpec(dtype=dtype, b_order=order, ld_multiple=unit, epilogue=epilogue)
        program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, backend))
        for size in sizes:
            problem = Finished.random(rng, spec, *size, -2.0)
            problem.check(problem.interpret(program))


@pytest.mark.parametrize("order", ["row", "col"])
def test_gates_of_elements_that_are_made(order: Order, rng: np.random.Generator) -> None:
    """Each work-item makes a vector of either half, by the same registers: these were allocated twice."""
    spec = GemmSpec(b_order=order, prologue_b="b * 2", epilogue=("swiglu",))
    schedule = build_schedule("slm", tile="8x8", group="8x16")
    program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, "cuda"))
    problem = Finished.random(rng, spec, 70, 67, 19)
    problem.check(problem.interpret(program))


def test_gates_by_clusters(rng: np.random.Generator) -> None:
    """Blocks of a cluster share parts of both halves."""
    base = candidates.load("wgmma_128x256_s4").schedule
    for cluster in ((1, 2), (2, 1)):
        schedule = base.but(cluster=cluster, persistent=False, epilogue_stages=1, name=None)
        for order in ("row", "col"):
            spec = GemmSpec(dtype=BF16, b_order=order, ld_multiple=8, epilogue=("geglu",))
            program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, "cuda"))
            problem = Finished.random(rng, spec, 150, 136, 70)
            problem.check(problem.interpret(program))


@pytest.mark.parametrize("order", ["row", "col"])
def test_gates_by_columns_of_c(order: Order, rng: np.random.Generator) -> None:
    schedule = candidates.load("smem_8x8").schedule.but(name=None)
    spec = GemmSpec(b_order=order, c_order="col", epilogue=("swiglu",), m=37, n=21, k=9)
    program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, "opencl"))
    problem = Finished.random(rng, spec, 37, 21, 9)
    problem.check(problem.interpret(program))


def test_small_whole_numbers_come_out_exactly(rng: np.random.Generator) -> None:
    """Of either half the right column: in whole numbers each differs from its neighbours."""
    spec = GemmSpec(epilogue=("expr: acc * 1024 + up",), alpha=1)
    schedule = candidates.load("smem_8x8").schedule.but(name=None)
    program = driver.lower_program(spec, schedule, driver.default_target(spec, schedule, "opencl"))
    drawn = Finished.random(rng, spec, 33, 35, 8)
    a, b = (np.rint(3 * x).astype(np.float32) for x in (drawn.problem.a, drawn.problem.b))
    whole = Finished(replace(drawn.problem, a=a, b=b), {})
    both = a.astype(np.float64) @ b
    assert np.array_equal(whole.interpret(program), both[:, :35] * 1024 + both[:, 35:])


def test_what_keeps_sums_apart_is_refused() -> None:
    for name, words in (
        ("cpu_6x64", "threads of CpuPanel hold others: use --method slm, mma or wgmma, or multiply by the second half"),
        ("L3_SIMD_16x2_1x8", "threads of SubGroup hold others"),
        ("dpas_32x2_1x8", "threads of Dpas hold others"),
        ("mbarrier_8x16_16x16_boxes_packed", "threads of TmaRing hold others"),
        ("naive", "makes half as many columns of C of a thread's 1, in vectors of 1: use a tile of 2 columns"),
        ("smem_8x8_double_packed", "leave out b.prepacked"),
        ("sg16_block_16x1_split4", "hold others"),
    ):
        preset = candidates.load(name)
        with pytest.raises(ScheduleError, match=words):
            driver.emit(replace(preset.spec, epilogue=("swiglu",)), preset.schedule)
    split = candidates.load("smem_8x8").schedule.but(split_k=2, name=None)
    with pytest.raises(ScheduleError, match="takes whole sums, but this schedule adds parts of K up"):
        driver.emit(GemmSpec(epilogue=("swiglu",)), split)
    swapped = candidates.load("wgmma_128x256_s4").schedule.but(
        tile=(64, 2), group=(4, 64), epilogue_stages=0, name=None
    )
    with pytest.raises(ScheduleError, match="leave out operands_swapped"):
        driver.emit(GemmSpec(dtype=BF16, ld_multiple=8, epilogue=("swiglu",)), swapped, "cuda")
