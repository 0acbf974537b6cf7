"""What `gemmgen fuzz` found in gemmgen itself, each as small as it made it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.fuzz.case import OF_DEVICE, Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.fuzz.devices import place_of
from gemmgen.ir.dtypes import F64, I8, I64, DType
from gemmgen.oracle import answer
from gemmgen.runtime.opencl_devices import DeviceInfo
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.device.naive import DEVICES
from tests.support import sycl
from tests.support.tools import nvcc

NAIVE = presets.load("naive").schedule


@pytest.mark.parametrize(("backend", "target"), [("opencl", "khr"), ("sycl", "sycl"), ("cuda", "sm_80")])
def test_places_are_not_converted_to_int64(backend: str, target: str) -> None:
    """OpenCL C had no name for it."""
    spec = GemmSpec(dtype=I64, epilogue=("expr: acc + row",))
    check(Case(spec, NAIVE, (3, 4, 5), backend, target), Place.named(backend, target))


def test_a_residual_of_listed_matrices_is_looked_for_in_a_list() -> None:
    """It lies a stride apart, whether A, B and C are listed or not."""
    spec = GemmSpec(batched=True, listed=True, epilogue=("residual",))
    check(Case(spec, NAIVE, (3, 4, 5), "sycl", "sycl", count=3), Place.named("sycl", "sycl"))


def test_a_root_of_what_is_not_negative_has_a_bound() -> None:
    """That of zero had none, as a little less has no root: a right result was said to be wrong."""
    spec = GemmSpec(epilogue=("expr: sqrt(abs(tanh(acc)))", "bias"))
    nothing, bias = np.zeros((1, 0), np.float32), np.full(1, 0.5, np.float32)
    right = answer(spec, (nothing, nothing.T, None), operands={"bias": bias})
    assert right.holds(np.full((1, 1), 0.5, np.float32)).all() and np.isfinite(right.error).all()
    assert not right.holds(np.full((1, 1), 0.5001, np.float32)).any()


def test_groups_with_parts_of_other_lengths_count_their_own_copies() -> None:
    """The interpreter ran them together where the loop stands on a condition, as it does where K is folded."""
    a, b = Operand("local", async_copy=True), Operand("local", async_copy=True)
    schedule = Schedule.of(tile=(2, 4), group=(4, 8), thread_vector=(2, 4), block_k=2, a=a, b=b, stages=2, split_k=2)
    check(Case(GemmSpec(k=1), schedule, (1, 1, 1), "cuda", "sm_80"), Place.named("cuda", "sm_80"))


@pytest.mark.parametrize("far", [-100.0, -300.0, -2000.0])
def test_what_is_too_large_on_the_way_is_no_error(far: float) -> None:
    """exp(90) is infinite in float32, so that -90 / (1 + exp(90)) is -0, not -7e-38; exp(2000) is, in float64."""
    spec = GemmSpec(epilogue=("silu", "bias", "gelu"))
    a, one = np.full((1, 1), far, np.float32), np.ones((1, 1), np.float32)
    right = answer(spec, (a, one, None), operands={"bias": np.full(1, 0.25, np.float32)})
    assert right.holds(right.rounded).all()
    assert not right.holds((right.value + 1e-4).astype(np.float32)).any()
    silu = answer(replace(spec, epilogue=("silu",)), (np.full((1, 1), -90, np.float32), one, None))
    assert silu.holds(np.full((1, 1), -0.0, np.float32)).all()
    assert not silu.holds(np.full((1, 1), -1e-30, np.float32)).any()


@pytest.mark.parametrize(("a_order", "b_order"), [("col", "row"), ("row", "col"), ("col", "col")])
def test_packed_operands_are_read_as_if_they_lay_as_before(a_order: Order, b_order: Order) -> None:
    """A's load along K was as deep as it would be of A by columns, one element: no load of four was made of that."""
    packed = Operand(width=4, prepacked=True)
    spec = GemmSpec(a_order=a_order, b_order=b_order)
    schedule = Schedule.of(tile=(4, 4), group=(4, 4), thread_vector=(4, 4), block_k=32, a=packed, b=packed)
    check(Case(spec, schedule, (9, 10, 35), "sycl", "sycl"), Place.named("sycl", "sycl"))
    check(Case(spec, schedule.but(sliced_k=8), (9, 10, 35), "sycl", "sycl"), Place.named("sycl", "sycl"))


def test_a_function_of_a_number_alone() -> None:
    """The interpreter made an array without dimensions of erf(0.5)."""
    check(Case(GemmSpec(epilogue=("expr: erf(0.5) + acc",)), NAIVE, (1, 1, 0)), Place.named("opencl", "intel"))
    check(Case(GemmSpec(epilogue=("expr: erf(0.5)",)), NAIVE, (1, 1, 0)), Place.named("opencl", "intel"))


@pytest.mark.parametrize("formula", ["acc - acc", "acc * 0", "max(acc - acc, 2 - 7)", "acc - acc + row * 0"])
def test_what_comes_to_nothing_has_no_type(formula: str) -> None:
    """`acc - acc` of int64 was an int32."""
    spec = GemmSpec(dtype=I64, epilogue=(f"expr: {formula}",))
    check(Case(spec, NAIVE, (3, 4, 5), "cuda", "sm_80"), Place.named("cuda", "sm_80"))


@sycl.needs_device
def test_a_factor_that_nothing_uses_has_a_size() -> None:
    """SYCL's entry point took alpha for an int where no element of C needs it, and was given a double."""
    spec = GemmSpec(dtype=F64, epilogue=("expr: c",))
    place = place_of("sycl", sycl.devices()[0])
    check(Case(spec, NAIVE, (3, 4, 5), "sycl", OF_DEVICE), place)


#: Of whole numbers: signs, literals, and where the element is, each beside what has the sums' type.
OF_WHOLE = (
    "expr: min(abs(acc), 2) + max(-abs(row), acc) if abs(acc) < -3 else -acc",
    "expr: 5 if acc == 7 else min(max(acc, row), 100)",
    "leaky_relu(2)",
)


@pytest.mark.parametrize("dtype", [I8, I64], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_abs_has_no_sign(device: DeviceInfo, dtype: DType) -> None:
    """OpenCL's abs(int) is a uint, below which -3 is not; and min(long, int) is none of its functions."""
    place = place_of("opencl", device)
    check(Case(GemmSpec(dtype=dtype, epilogue=OF_WHOLE), NAIVE, (5, 6, 7), target=OF_DEVICE), place)


def test_names_of_two_words_convert_nothing(tmp_path: Path) -> None:
    """`long long(row)` is not C++."""
    nvcc(driver.emit(GemmSpec(dtype=I64, epilogue=OF_WHOLE), NAIVE, "cuda").text, "sm_90", tmp_path)


@sycl.needs_device
def test_names_of_two_words_convert_nothing_in_sycl() -> None:
    case = Case(GemmSpec(dtype=I64, epilogue=OF_WHOLE), NAIVE, (5, 6, 7), "sycl", OF_DEVICE)
    check(case, place_of("sycl", sycl.devices()[0]))


@pytest.mark.parametrize(
    "formula", ["acc if row_bias >= -2 else row_scale", "acc if acc >= 0 else c", "c if -acc >= 0 else acc"]
)
def test_elements_may_be_negative(formula: str) -> None:
    """Whole numbers were taken for places, which are not: where a name stood for what was chosen, it always was."""
    spec = GemmSpec(dtype=I8, epilogue=(f"expr: {formula}", "relu"))
    assert " ? " in driver.emit(spec, NAIVE, "cuda").text
    check(Case(spec, NAIVE, (5, 6, 7), "cuda", "sm_80", data="whole"), Place.named("cuda", "sm_80"))


@pytest.mark.parametrize("schedule", ["cpu_4x4_along_k", "cpu_6x64"])
def test_parts_of_k_whose_lines_lie_far_apart(schedule: str) -> None:
    """With leading dimensions of 64 bits the workspace's had no name where work-items have vectors."""
    by_vectors = presets.load(schedule).schedule.but(name=None, vector=4, tile=(2, 4), split_k=2, kc=8)
    spec = GemmSpec(wide=True, batched=True)
    check(Case(spec, by_vectors, (5, 9, 21), "opencl", "cpu", count=2), Place.named("opencl", "cpu"))
