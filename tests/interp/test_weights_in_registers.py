"""Weights of 8 and 4 bits that warpgroups multiply from registers, in the interpreter: which scales multiply sums, what
is read once, and that numbers of which no sum is rounded come out bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F8_E4M3, F16, F32, I4, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from gemmgen.sum_order import sum_order
from tests.support.epilogues import Finished

SM_90A = TARGETS["sm_90a"]
#: Rows and columns of a thread, and threads: few sums, and more than are kept apart for a step.
FEW, MANY = ((4, 2), (4, 32)), ((40, 2), (4, 32))


def held(shape: tuple[tuple[int, int], tuple[int, int]], **changes: object) -> Schedule:
    base = defaults("wgmma", *shape).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    return base.but(b=replace(base.b, memory="private"), **changes)


def spec_of(stored: DType, formula: str, dtype: DType = BF16) -> GemmSpec:
    return GemmSpec(dtype=dtype, c_dtype=F32, b_dtype=stored, b_order="col", prologue_b=formula, ld_multiple=16)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, size: tuple[int, int, int]) -> None:
    """Within the bound on rounding, and exactly where scales are powers of two."""
    program = driver.lower_program(spec, schedule, SM_90A)
    random = Finished.random(rng, spec, *size)
    random.check(random.interpret(program, 16))
    data = Finished.random(rng, spec, *size)
    problem = data.problem
    problem.a[...] = rng.integers(-4, 5, problem.a.shape)
    made = problem.b.astype(np.float64)
    for name, values in sorted(data.operands.items(), reverse=True):  # shifts before scales
        drawn = 2.0 ** rng.integers(-2, 3, values.shape) if "scale" in name else rng.integers(-8, 8, values.shape)
        values[...] = drawn
        group = int(name.rpartition("_")[2]) if name[-1].isdigit() else len(made)
        each = np.repeat(values.astype(np.float64).reshape(-1, made.shape[1]), group, axis=0)[: len(made)]
        made = made * each if "scale" in name else made - each
    assert np.array_equal(data.interpret(program, 16), problem.a.astype(np.float64) @ made)


@pytest.mark.parametrize("shape", [FEW, MANY], ids=["few", "many"])
@pytest.mark.parametrize("stored", [I8, I4], ids=str)
@pytest.mark.parametrize(
    "formula",
    [
        "b * b_scale",
        "(b - b_shift) * b_scale",
        "b * b_scale_128",
        "(b - b_shift_64) * b_scale_64",
        "b_scale_32 * (b - b_shift_32)",
        "(b - b_zero_32) * b_scale_32",
        "b_scale_32 * b",
    ],
)
def test_each_kind_of_weights(
    formula: str, stored: DType, shape: tuple[tuple[int, int], tuple[int, int]], rng: np.random.Generator
) -> None:
    """K of whole steps, and an odd one, of which the last byte has half an element of none."""
    schedule = held(shape)
    rows, cols = schedule.block_tile
    for k in (256, 201):
        check(spec_of(stored, formula), schedule, rng, (rows + 3, cols + 5, k))


@pytest.mark.parametrize(("stored", "order", "k"), [(I8, "col", 201), (I8, "row", 201), (I4, "col", 202)], ids=str)
def test_nothing_is_made_of_what_lies_past_k(stored: DType, order: Order, k: int, rng: np.random.Generator) -> None:
    """What TMA fills up with is zero, and 0 * Inf would be NaN."""
    spec = replace(spec_of(stored, "(b + 9) * b_scale_64"), b_order=order)
    schedule = held(MANY)
    rows, cols = schedule.block_tile
    data = Finished.random(rng, spec, rows, cols, k)
    data.problem.a[...] = np.abs(data.problem.a) + 1
    data.problem.b[...] = np.abs(data.problem.b)
    data.operands["b_scale_64"][...] = np.inf
    assert (data.interpret(driver.lower_program(spec, schedule, SM_90A), 16) == np.inf).all()


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize(
    "changes",
    [{"split_k": 2}, {"split_k": 4, "cluster_reduction": 4}, {"block_k": 32}, {"stages": 3}],
    ids=str,
)
def test_other_schedules(changes: dict[str, object], dtype: DType, rng: np.random.Generator) -> None:
    spec = spec_of(I4, "(b - b_shift_64) * b_scale_64", dtype)
    check(spec, held(FEW, **changes), rng, (5, 67, 640))


@pytest.mark.parametrize("orders", [("col", "row"), ("row", "col"), ("col", "col")], ids=str)
def test_orders_of_a_and_c(orders: tuple[Order, Order], rng: np.random.Generator) -> None:
    """Where C is not read, blocks at an edge begin earlier."""
    spec = replace(spec_of(I4, "b * b_scale_64"), a_order=orders[0], c_order=orders[1])
    for each in (spec, replace(spec, beta=0.0)):
        check(each, held(FEW), rng, (21, 67, 201))


def test_sizes_alpha_and_c(rng: np.random.Generator) -> None:
    """Factors, an epilogue and a bfloat16 C, by TMA where there are many rows."""
    spec = replace(spec_of(I4, "b * b_scale_128"), c_dtype=BF16, epilogue=("bias", "relu"))
    for shape, changes in ((FEW, {}), (((32, 2), (4, 64)), {"epilogue_stages": 1})):
        schedule = held(shape, **changes)
        program = driver.lower_program(spec, schedule, SM_90A)
        data = Finished.random(rng, spec, 70, 136, 264, -2.0, 3.0)
        data.check(data.interpret(program, 16))


def test_sums_that_are_scaled_are_another_order() -> None:
    """So that rows of many have no other bits than rows of few, and none than elements that a kernel before made."""
    schedules = held(FEW), held(MANY), defaults("wgmma", *FEW).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    assert len({sum_order(schedule, 4096) for schedule in schedules}) == 3


def test_the_text_scales_sums() -> None:
    """Of a column once; of a group once a step, read before the step's tiles are there."""
    text = " ".join(driver.emit(spec_of(I8, "b * b_scale"), held(FEW), "cuda", SM_90A).text.split())
    assert (
        "acc[i][j] = acc[i][j] * own_b_scale[i];" in text
        and "copy2(&b_frag[kk / 16][i][j * 2], &shared.b[stage]" in text
    )
    text = " ".join(driver.emit(spec_of(I4, "b * b_scale_64"), held(FEW), "cuda", SM_90A).text.split())
    read = text.index("next_b_scale_64[i] = b_scale_64[min(k0 + BK, k - 1)")
    waits = text.index("mbarrier_wait(&shared.full")
    assert read < waits < text.index("fmaf(step_sums[i][j], own_b_scale_64[i], acc[i][j]);")
    assert "copy_pair(&b_frag[kk / 16][i][j * 2], &shared.b[stage]" in text
    assert "tma_load_2d(shared.b[stage][0], &b_map, k0 / 2, col0" in text
    many = " ".join(driver.emit(spec_of(I4, "b * b_scale_32"), held(MANY), "cuda", SM_90A).text.split())
    assert "step_sums" not in many and "nibble(b_pair, e) * own_b_scale_32[kk / 2 / 16][i]" in many


@pytest.mark.parametrize(("stored", "order"), [(I8, "col"), (I8, "row"), (F8_E4M3, "col"), (I4, "col")], ids=str)
def test_two_neighbours_are_converted_at_once(stored: DType, order: Order) -> None:
    """Whatever they are: the step that reaches past K makes zeros of what lies there."""
    spec = replace(spec_of(stored, "b * b_scale_32"), b_order=order)
    text = " ".join(driver.emit(spec, held(MANY), "cuda", SM_90A).text.split())
    last = "if ((k + 1) / 2 * 2 < k0 + BK) {" if stored == I4 else "if (k < k0 + BK) {"
    assert "__floats2bfloat162_rn(from[0], from[1]);" in text and ", b_values);" in text
    assert last in text and "? __nv_bfloat16(" not in text
    assert ("float b_vector[2]; copy2(b_vector, &shared.b" in text) == (stored == I8 and order == "col")
    whole = " ".join(driver.emit(replace(spec, multiple_of=(1, 1, 64)), held(MANY), "cuda", SM_90A).text.split())
    assert ", b_values);" in whole and "= __nv_bfloat16();" not in whole


def test_zero_points_are_converted_once() -> None:
    """As they are read: by ptxas, conversions between wgmma instructions have these wait for one another."""
    text = " ".join(driver.emit(spec_of(I4, "(b - b_zero_32) * b_scale_32"), held(MANY), "cuda", SM_90A).text.split())
    assert "float own_b_zero_32[" in text and "(nibble(b_pair, e) - own_b_zero_32[kk / 2 / 16][i])" in text


def test_what_is_refused() -> None:
    """Lines of int4 narrower than any that swizzle; elements that instructions take from shared memory."""
    with pytest.raises(ScheduleError, match="block_k = 16 of int4 are lines of 8 bytes: use block_k 32 or more"):
        driver.emit(spec_of(I4, "b * b_scale"), held(FEW, block_k=16), "cuda", SM_90A)
    schedule = defaults("wgmma", *FEW)
    with pytest.raises(ScheduleError, match="prologue_b, but TMA loads go straight to shared memory"):
        driver.emit(spec_of(I4, "b"), schedule.but(b=replace(schedule.b, memory="local")), "cuda", SM_90A)
