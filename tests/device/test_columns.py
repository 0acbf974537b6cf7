"""Column-major matrices on devices: what a schedule takes by rows alone, and what is packed for block reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from _pytest.mark import ParameterSet

import gemmgen
from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.passes.validate import is_transposed
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.runtime.sycl_devices import target_of as sycl_target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import devices_that
from tests.device.test_sycl_presets import DEVICES as SYCL_DEVICES
from tests.support.problems import Problem

COLUMNS = GemmSpec(a_order="col", b_order="col", c_order="col")
SIZES = ((1, 1, 1), (33, 70, 17), (129, 131, 37), (256, 128, 64))
NAMES = ("L3_SIMD_8x4_8x8_barrier", "block_read_16x2_4x8", "block_read_4x1_1x8", "smem_8x8_double_packed")
#: What takes matrices by columns itself.
AS_ASKED = ("smem_8x8_double_packed",)


def schedule_of(name: str) -> Schedule:
    """A preset; of two, in small: what compilers take long for."""
    schedule = candidates.load(name).schedule
    return schedule.but(tile=(4, 4), thread_vector=(4, 4), name=None) if name.startswith("smem") else schedule


def fortran(problem: Problem) -> list[np.ndarray]:
    return [np.array(x, order="F") for x in (problem.a, problem.b, problem.c)]


def takes(spec: GemmSpec, schedule: Schedule) -> Callable[[DeviceInfo], bool]:
    """Whether a device can have the kernel."""
    return lambda device: not driver.refusals(spec, schedule, target=target_of(device.handle))


def of_each(names: tuple[str, ...], spec: GemmSpec, schedule: Callable[[str], Schedule]) -> list[ParameterSet]:
    """(device, name), for devices that can have the preset's kernel."""
    return [
        pytest.param(*param.values, name, id=f"{param.id}-{name}", marks=param.marks)
        for name in names
        for param in devices_that(takes(spec, schedule(name)))
    ]


@pytest.mark.parametrize(("device", "name"), of_each(NAMES, COLUMNS, schedule_of))
def test_by_columns(device: DeviceInfo, name: str, rng: np.random.Generator) -> None:
    """NaN lies in C where beta is zero."""
    schedule, target = schedule_of(name), target_of(device.handle)
    source = driver.emit(COLUMNS, schedule, target=target)
    assert is_transposed(COLUMNS, schedule, target) == (name not in AS_ASKED)
    gemm = CompiledKernel.from_source(source, device)
    for size in SIZES:
        for alpha, beta in ((1.0, 0.0), (-1.5, 0.25)):
            problem = Problem.random(rng, *size, alpha, beta)
            a, b, c = fortran(problem)
            problem.check(gemm(a, b, c, alpha=alpha, beta=beta))


BATCH = replace(COLUMNS, batched=True, epilogue=("bias", "row_scale"))


@pytest.mark.parametrize("device", devices_that(takes(BATCH, candidates.load("L3_SIMD_8x4_1x8").schedule)))
def test_an_epilogue_and_a_batch(device: DeviceInfo, rng: np.random.Generator) -> None:
    schedule, target = candidates.load("L3_SIMD_8x4_1x8").schedule, target_of(device.handle)
    source = driver.emit(BATCH, schedule, target=target)
    count, m, n, k = 3, 21, 37, 19
    a, b = rng.standard_normal((count, k, m), dtype=np.float32), rng.standard_normal((count, n, k), dtype=np.float32)
    bias, scale = rng.standard_normal(n, dtype=np.float32), rng.standard_normal(m, dtype=np.float32)
    a, b = a.swapaxes(1, 2), b.swapaxes(1, 2)
    found = CompiledKernel.from_source(source, device)(a, b, bias=bias, row_scale=scale)
    expected = (a.astype(np.float64) @ b.astype(np.float64) + bias) * scale[:, None]
    assert found.shape == (count, m, n) and found.strides[1] < found.strides[2]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)


B_BY_COLUMNS = GemmSpec(b_order="col")


def packed(name: str) -> Schedule:
    """A preset of few rows whose B is packed."""
    plain = candidates.load(name).schedule
    return plain.but(tile=(8, plain.tile[1]), thread_vector=(8, 1), b=replace(plain.b, prepacked=True), name=None)


@pytest.mark.parametrize(("device", "name"), of_each(("L3_SIMD_8x4_1x8", "L3_SIMD_32x2_1x8"), B_BY_COLUMNS, packed))
def test_one_by_columns_is_packed_for_block_reads(device: DeviceInfo, name: str, rng: np.random.Generator) -> None:
    """As torch has weights."""
    source = driver.emit(B_BY_COLUMNS, packed(name), target=target_of(device.handle))
    gemm = CompiledKernel.from_source(source, device)
    for size in SIZES:
        problem = Problem.random(rng, *size)
        problem.check(gemm(problem.a, np.asfortranarray(problem.b)))


@pytest.mark.parametrize(("name", "transposed"), [("L3_SIMD_8x4_1x8", True), ("smem_8x8_double_packed", False)])
@pytest.mark.parametrize("device", SYCL_DEVICES)
def test_sycl(name: str, transposed: bool, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    schedule, target = schedule_of(name), sycl_target_of(device)
    assert is_transposed(COLUMNS, schedule, target) == transposed
    gemm = SyclKernel.from_source(driver.emit(COLUMNS, schedule, "sycl", target, "kernel"), device)
    for size in SIZES:
        problem = Problem.random(rng, *size, -1.5, 0.25)
        a, b, c = fortran(problem)
        problem.check(gemm(a, b, c, alpha=-1.5, beta=0.25))


def test_gemm_of_fortran_arrays(rng: np.random.Generator) -> None:
    """By the schedule that is chosen, and by one that reads blocks."""
    for schedule in (None, "L3_SIMD_8x4_1x8"):
        problem = Problem.random(rng, 67, 45, 31, 1.5, 0.0)
        a, b, out = fortran(problem)
        try:
            found = gemmgen.gemm(a, b, out=out, alpha=1.5, schedule=schedule)
        except ScheduleError as error:
            pytest.skip(str(error))
        assert found is out and out.flags.f_contiguous
        problem.check(out)
