"""Products by dpas on 2D block reads, as the interpreter runs them: writes, transposed B, int4, TF32, and faults."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.instructions import TF32_DIGITS
from gemmgen.ir.numeric import of_pairs
from gemmgen.ir.stmt import If, Prefetch, VectorCopy
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.schedule import Schedule
from gemmgen.simulator.execute import run_program
from gemmgen.simulator.semantics import significant
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import broken, changed, dropped, faults
from tests.support.problems import Matrix, Problem, check_products, interpret

TARGET = TARGETS["xe_hpc"]
SPEC = GemmSpec(dtype=F16, c_dtype=F32)
#: One sub-group, and several beside and above one another that prefetch together.
SCHEDULES = [
    Schedule.of(tile=(32, 4), group=(1, 16), block_k=64, atom="dpas", block_2d=True, large_grf=True),
    Schedule.of(
        tile=(16, 2),
        group=(4, 32),
        block_k=128,
        atom="dpas",
        block_2d=True,
        barrier=True,
        prefetch_distance=2,
        address_payloads="all",
    ),
    Schedule.of(tile=(8, 1), group=(2, 16), block_k=32, atom="dpas", block_2d=True, prefetch_distance=1),
    Schedule.of(
        tile=(32, 2),
        group=(2, 32),
        block_k=64,
        atom="dpas",
        block_2d=True,
        prefetch_distance=1,
        address_payloads="prefetches",
        large_grf=True,
    ),
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["one", "four_by_two", "two_by_one", "two_by_two"])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.0), (-2.0, 0.0), (2.0, 3.0)])
def test_block_writes(alpha: float, beta: float, dtype: DType, schedule: Schedule, rng: np.random.Generator) -> None:
    """Ragged sizes, with lines of C as they ask and not."""
    spec = GemmSpec(dtype=dtype, c_dtype=F32 if dtype == BF16 else None)
    program = driver.lower_program(spec, schedule.but(block_writes=True), TARGET)
    for size, pad in (((33, 64, 64), 0), ((70, 100, 48), 12), ((5, 97, 99), 0), ((3, 3, 7), 0)):
        check_products(program, spec, rng, size, factors=(alpha, beta), pad=pad)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=["one", "four_by_two", "two_by_one", "two_by_two"])
@pytest.mark.parametrize("dtype", [BF16, I8], ids=str)
def test_a_column_major_b_is_transposed_by_its_reads(
    dtype: DType, schedule: Schedule, rng: np.random.Generator
) -> None:
    spec = GemmSpec(dtype=dtype, b_order="col", ld_multiple=16)
    program = driver.lower_program(spec, schedule, TARGET)
    check_products(program, spec, rng, (33, 66, 131), (5, 97, 99), (3, 3, 7), (32, 64, 192), pad=0)


@pytest.mark.parametrize("number", [0, 1, 3], ids=["one", "four_by_two", "two_by_two"])
def test_int4_by_int8(number: int, rng: np.random.Generator) -> None:
    """Bytes of two neighbours along K. 2D block reads take lines of B from a K of 127 on, which have 64 bytes."""
    schedule = SCHEDULES[number]
    plain = GemmSpec(dtype=I8, b_dtype=I4, b_order="col", ld_multiple=16)
    program = driver.lower_program(plain, schedule, TARGET)
    check_products(program, plain, rng, (33, 66, 131), (5, 97, 199), (3, 3, 7), (32, 64, 256), pad=0)
    program = driver.lower_program(replace(plain, ld_multiple=1), schedule, TARGET)
    check_products(program, replace(plain, ld_multiple=1), rng, (33, 66, 131), pad=1)
    in_parts = driver.lower_program(plain, schedule.but(split_k=3), TARGET)
    check_products(in_parts, plain, rng, (9, 33, 425), (9, 33, 129), (3, 3, 1), pad=0)


def test_the_half_byte_past_k_never_counts(rng: np.random.Generator) -> None:
    """With an odd K the last byte of a column of int4 holds one that is not B's."""
    spec = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
    program = driver.lower_program(spec, SCHEDULES[0], TARGET)
    a, b = rng.integers(-128, 128, (32, 144)).astype(np.int8), rng.integers(0, 256, (64, 80)).astype(np.uint8)
    c = np.zeros((32, 64), np.int32)
    sizes = {"m": 32, "n": 64, "k": 131, "alpha": 1, "beta": 0, "lda": 144, "ldb": 80, "ldc": 64}
    run_program(program, {**sizes, "a": a.reshape(-1), "b": b.view(np.int8).reshape(-1), "c": c.reshape(-1)})
    want = a[:, :131].astype(np.int64) @ of_pairs(b, 1, 131).T.astype(np.int64)
    assert np.array_equal(c, want)


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [F16, I8], ids=str)
def test_lines_at_any_pitch(dtype: DType, order: Order, rng: np.random.Generator) -> None:
    spec = GemmSpec(dtype=dtype, b_order=order)
    program = driver.lower_program(spec, SCHEDULES[0], TARGET)
    for pad in (1, 2, 8, 16):
        check_products(program, spec, rng, (33, 66, 100), pad=pad)


@pytest.mark.parametrize("schedule", SCHEDULES[1:], ids=["four_by_two", "two_by_one", "two_by_two"])
@pytest.mark.parametrize("order", ["row", "col"])
def test_float32_by_tf32(order: Order, schedule: Schedule, rng: np.random.Generator) -> None:
    """Two rows of A stand side by side on the lanes. Products of numbers of eleven bits are those of float32."""
    spec = GemmSpec(b_order=order)
    program = driver.lower_program(spec, schedule.but(tf32=True), TARGET)
    for size, pad in (((33, 66, 131), 0), ((5, 97, 99), 0), ((3, 3, 7), 0), ((32, 64, 192), 4), ((33, 68, 64), 1)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        cut = _cut(problem)
        result = interpret(program, spec, cut, pad)
        cut.check(result)
        # The other bits never count.
        assert np.array_equal(result, interpret(program, spec, problem, pad))


def test_parts_of_k_by_tf32(rng: np.random.Generator) -> None:
    spec = GemmSpec()
    program = driver.lower_program(spec, SCHEDULES[2].but(split_k=3, tf32=True), TARGET)
    for size, pad in (((9, 33, 99), 5), ((8, 40, 64), 0), ((3, 3, 1), 0)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        cut = _cut(problem)
        cut.check(interpret(program, spec, cut, pad))


@pytest.mark.parametrize("number", [0, 1], ids=["A", "B"])
def test_prefetches_ask_of_a_matrix_what_reads_do(number: int, rng: np.random.Generator) -> None:
    """One that begins at an odd column of bytes is found."""
    kernel = driver.lower(SPEC, SCHEDULES[2].but(group=(1, 16)), TARGET)
    odd = changed(Prefetch, lambda s: replace(s, index=(s.index[0], s.index[1] + 1)), only=number)
    with faults("alignment", "a column that begins on no multiple of 4 bytes"):
        interpret(broken(kernel, odd), SPEC, Problem.of(rng, SPEC, 33, 64, 64, 1.0, 0.0), pad=0)


@pytest.mark.parametrize(
    ("part", "what"),
    [("arrive", "none of those that are waited"), ("wait", "all have arrived already")],
)
def test_half_a_barrier_is_found(part: str, what: str, rng: np.random.Generator) -> None:
    kernel = driver.lower(SPEC, SCHEDULES[2].but(barrier=True), TARGET)
    met = [s for s in walk(kernel.body) if isinstance(s, Barrier) and not s.of_sub_group]
    assert [s.part for s in met] == ["arrive", "wait"]
    with faults("divergent barrier", what):
        problem = Problem.of(rng, SPEC, 16, 64, 96, 1.0, 0.0)
        interpret(broken(kernel, dropped(Barrier, part=part)), SPEC, problem, pad=0)


def test_writes_that_the_hardware_does_not_define(rng: np.random.Generator) -> None:
    """C's lines 260 bytes apart, where the kernel does not ask how they lie."""

    def writes(stmt: If) -> bool:
        return any(isinstance(s, VectorCopy) and s.dst.name == "c" for s in walk(stmt.then))

    kernel = driver.lower(SPEC, SCHEDULES[0].but(block_writes=True), TARGET)
    with faults("alignment", "lines lie 260 bytes apart, no multiple of 16"):
        problem = Problem.of(rng, SPEC, 32, 64, 64, 1.0, 0.0)
        interpret(broken(kernel, changed(If, lambda s: s.then, writes)), SPEC, problem, pad=1)


def _cut(problem: Problem) -> Problem:
    """The same with numbers that TF32 has."""
    a, b = (cast("Matrix", significant(x, TF32_DIGITS)) for x in (problem.a, problem.b))
    return replace(problem, a=a, b=b)
