"""Prologues with every way into registers, in the interpreter, against float64; nothing outside of an array is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I8, I32, DType
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.epilogues import Finished
from tests.support.problems import Matrix

#: Every array, where the element is, and an element that is named twice; neither makes zero of zero.
A = "(a - a_shift) * a_scale * a_scale_k + a_shift_k * a_factor + 0.1 * row - 0.2 * k"
B = "b_factor * (b - b_shift_k) * b_scale / (1 + exp(-abs(b))) + b_scale_k - b_shift + 0.1 * col"


def small(name: str, **changes: object) -> Schedule:
    """Few elements of C for each of few work-items, otherwise as the preset."""
    base = candidates.load(name).schedule
    return base.but(tile=(4, 4), thread_vector=(4, 4), group=(2, 2), name=None, **changes)


def packed(schedule: Schedule) -> Schedule:
    return schedule.but(a=replace(schedule.a, prepacked=True), b=replace(schedule.b, prepacked=True))


#: A way into registers each: from global memory element by element and by vectors, through local memory, from there by
#: registers, laid out by a kernel before; the same for asynchronous copies and for matrix instructions.
WAYS = {
    "naive": candidates.load("naive").schedule,
    "vectors": small("vec4_4x4"),
    "local": small("lds_8x8_16x16_k8"),
    "prefetch": small("smem_8x8_double"),
    "packed": small("smem_8x8_double_packed"),
    "split_k": small("lds_8x8_16x16_k8", split_k=2),
    "packed_async": packed(candidates.load("async_4x4_8x16").schedule),
}


def run(spec: GemmSpec, schedule: Schedule, data: Finished) -> Matrix:
    backend = "cuda" if schedule.asynchronous else "opencl"
    return data.interpret(driver.lower_program(spec, schedule, driver.default_target(spec, schedule, backend)))


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, size: tuple[int, int, int]) -> None:
    data = Finished.random(rng, spec, *size, -2.0, 3.0)
    data.check(run(spec, schedule, data))


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_into_registers(way: str, order: Order, rng: np.random.Generator) -> None:
    spec = GemmSpec(prologue_a=A, prologue_b=B, a_order=order, b_order=order, epilogue=("bias",))
    check(spec, WAYS[way], rng, (19, 13, 11))


@pytest.mark.parametrize("stored", [{"b_dtype": I8}, {"a_dtype": F16}, {"a_dtype": BF16, "b_dtype": BF16}], ids=str)
@pytest.mark.parametrize("way", ["vectors", "prefetch", "packed_async"])
def test_what_is_stored_in_another_type(way: str, stored: dict[str, DType], rng: np.random.Generator) -> None:
    check(GemmSpec(prologue_a=A, prologue_b=B, **stored), WAYS[way], rng, (9, 10, 6))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["naive", "local", "packed"])
@pytest.mark.parametrize("dtype", [F64, F16, BF16, I32], ids=str)
def test_each_type(dtype: DType, way: str, rng: np.random.Generator) -> None:
    a, b = (A, B) if dtype.is_float else ("max(a, 3 * row - k)", "b * b_scale - col * b_factor")
    check(GemmSpec(dtype=dtype, prologue_a=a, prologue_b=b), WAYS[way], rng, (9, 10, 6))


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("way", WAYS)
def test_groups_along_k(way: str, group: int, rng: np.random.Generator) -> None:
    """Of both matrices; a K that ends within a group, and one that is less than a group."""
    b = f"(b - b_shift_{group}) * b_scale_{group}"
    spec = GemmSpec(prologue_a=f"a * a_scale_{group} + a_shift_{group}", prologue_b=b)
    check(spec, WAYS[way], rng, (9, 10, 150))
    check(replace(spec, b_order="col", a_order="col"), WAYS[way], rng, (5, 7, 20))


@pytest.mark.parametrize("way", WAYS)
def test_tiles(way: str, rng: np.random.Generator) -> None:
    """A scale for each 128x128 of both matrices: sizes that end within a tile."""
    spec = GemmSpec(prologue_a="a * a_scale_128x128", prologue_b="b * b_scale_128x128", epilogue=("bias",))
    check(spec, WAYS[way], rng, (9, 131, 150))
    check(replace(spec, b_order="col", a_order="col"), WAYS[way], rng, (130, 7, 20))


def test_groups_of_int8_are_exact(rng: np.random.Generator) -> None:
    """Scales that are powers of two round nothing: the interpreter has NumPy's bits."""
    m, n, k = 5, 12, 70
    spec = GemmSpec(b_dtype=I8, prologue_b="(b - b_shift_32) * b_scale_32", alpha=1, beta=0)
    data = Finished.random(rng, spec, m, n, k)
    a, b = data.problem.a, data.problem.b
    a[...] = rng.integers(-4, 5, (m, k))
    data.operands["b_scale_32"][...] = 2.0 ** rng.integers(-3, 4, 3 * n)
    data.operands["b_shift_32"][...] = rng.integers(-9, 9, 3 * n)
    by_k = [np.repeat(data.operands[x].reshape(3, n), 32, axis=0)[:k] for x in ("b_shift_32", "b_scale_32")]
    expected = a.astype(np.float64) @ ((b.astype(np.float64) - by_k[0]) * by_k[1])
    assert np.array_equal(run(spec, WAYS["local"], data), expected)


def test_matrix_instructions(rng: np.random.Generator) -> None:
    """Their operands are packed anyway, in float16; A may then be stored as it likes."""
    preset = candidates.load("dpas_32x2_1x8")
    check(replace(preset.spec, prologue_a=A, prologue_b=B), preset.schedule, rng, (35, 20, 17))


def test_all_ways_make_the_same_bits(rng: np.random.Generator) -> None:
    """What a prologue makes is rounded to the matrices' type wherever it is made."""
    spec = GemmSpec(dtype=F16, c_dtype=F32, prologue_a=A, prologue_b=B)
    data = Finished.random(rng, spec, 9, 10, 13)
    results = [run(spec, WAYS[way], data) for way in ("naive", "vectors", "local", "prefetch", "packed")]
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_made_of_what_lies_past_k(way: str, rng: np.random.Generator) -> None:
    """0 * Inf would be NaN; and a sum over a step of K that isn't there would be no zero."""
    spec = GemmSpec(prologue_a="a + 1", prologue_b="b * b_scale")
    data = Finished.random(rng, spec, 9, 10, 5)
    data.problem.b[...] = np.abs(data.problem.b)
    data.problem.a[...] = np.abs(data.problem.a)
    data.operands["b_scale"][:] = np.inf
    assert (run(spec, WAYS[way], data) == np.inf).all()


@pytest.mark.parametrize("way", ["naive", "local", "packed"])
def test_no_term_is_made_where_k_is_zero(way: str, rng: np.random.Generator) -> None:
    spec = GemmSpec(prologue_a="a * a_scale_k + 1", prologue_b="b + 1")
    data = Finished.random(rng, spec, 9, 10, 0)
    assert (run(spec, WAYS[way], data) == 0).all()


def test_half_of_a_matrix(rng: np.random.Generator) -> None:
    """A triangle, by where the element is."""
    spec = GemmSpec(prologue_a="a if k <= row else 0")
    data = Finished.random(rng, spec, 9, 10, 9)
    expected = np.tril(data.problem.a.astype(np.float64)) @ data.problem.b
    assert np.allclose(run(spec, WAYS["local"], data), expected, atol=1e-5)
