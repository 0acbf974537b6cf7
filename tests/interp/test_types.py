"""Element types other than float32, run by the interpreter: presets of each way to memory, against float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8, I32, I64, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, check_products, interpret

#: What C can be, for each type of A and B.
PAIRS: list[tuple[DType, DType]] = [
    (F64, F64),
    (F16, F16),
    (F16, F32),
    (BF16, BF16),
    (BF16, F32),
    (I8, I32),
    (I64, I64),
]
#: Loads of single elements; vectors; a sub-group's shared registers; local memory by vectors, through registers.
SCHEDULES = {name: presets.load(name).schedule for name in ("naive", "vec4_4x4", "smem_8x8_double")}
SCHEDULES["simd"] = defaults("simd", (8, 2), (2, 8), 16)

pytestmark = pytest.mark.parametrize("types", PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")


def spec_of(types: tuple[DType, DType]) -> GemmSpec:
    return GemmSpec(dtype=types[0], c_dtype=types[1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_ways_to_memory(name: str, types: tuple[DType, DType], rng: np.random.Generator) -> None:
    spec = spec_of(types)
    program = driver.lower_program(spec, SCHEDULES[name], TARGETS["intel"])
    check_products(program, spec, rng, (33, 18, 19), (1, 1, 1))


@pytest.mark.parametrize("target", ["intel", "sm_80"])
def test_vectors_of_c_and_parts_of_k(target: str, types: tuple[DType, DType], rng: np.random.Generator) -> None:
    """Vector stores change the type, too; the parts of K meet in the type of sums."""
    spec = spec_of(types)
    schedule = presets.load("smem_8x8_double").schedule.but(name=None, c_width=4, split_k=2)
    program = driver.lower_program(spec, schedule, TARGETS[target])
    check_products(program, spec, rng, (37, 44, 29), factors=(2.0, -1.0))


def test_asynchronous_copies(types: tuple[DType, DType], rng: np.random.Generator) -> None:
    """They move 4, 8 or 16 bytes: lines of small elements must be assumed to begin where those may."""
    spec = replace(spec_of(types), a_order="col", ld_multiple=4)
    schedule = presets.load("async_8x8_16x16").schedule.but(stages=2)
    check_products(driver.lower_program(spec, schedule, TARGETS["sm_90"]), spec, rng, (41, 37, 35), factors=(1.0, 0.0))


def test_beta_of_zero_never_reads_c(types: tuple[DType, DType], rng: np.random.Generator) -> None:
    spec = spec_of(types)
    problem = Problem.of(rng, spec, 9, 10, 8, 1.0, 0.0)
    if spec.result.is_float:
        problem = replace(problem, c=np.full((9, 10), np.nan).astype(numpy_dtype(spec.result)))
    program = driver.lower_program(spec, presets.load("naive").schedule, TARGETS["intel"])
    problem.check(interpret(program, spec, problem))
