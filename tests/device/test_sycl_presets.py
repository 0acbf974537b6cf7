"""Every preset that SYCL can express, on every SYCL device, against float64, on aligned and ragged sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.presets import SIZES, check_any_size, check_layouts
from tests.support.problems import Problem

LAID_OUT = ["naive", "L3_SIMD_16x2_4x8", "L3_SLM_8x8_8x16", "smem_8x8_double"]
DEVICES = [pytest.param(d, id=f"sycl-{d.number}") for d in sycl.devices()] or [
    pytest.param(None, marks=pytest.mark.skip(reason=str(sycl.why_no_device())))
]

pytestmark = pytest.mark.parametrize("device", DEVICES)


def compiled(name: str, device: SyclDeviceInfo, spec: GemmSpec) -> SyclKernel:
    return built(candidates.load(name).schedule, device, spec)


def built(schedule: Schedule, device: SyclDeviceInfo, spec: GemmSpec) -> SyclKernel:
    return SyclKernel.from_source(driver.emit(spec, schedule, "sycl", target_of(device), "kernel"), device)


@pytest.mark.parametrize("name", sycl.names())
def test_any_size(name: str, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    spec = candidates.load(name).spec
    check_any_size(compiled(name, device, spec), spec, rng)


@pytest.mark.parametrize("name", LAID_OUT)
def test_layouts(name: str, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    assert check_layouts(name, lambda schedule, spec: built(schedule, device, spec), rng)


@pytest.mark.parametrize("name", ["naive", "sg16_block_16x2", "smem_8x8"])
def test_from_usm_and_by_copies(name: str, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    """The three ways to memory give the same bits, and touch nothing around C."""
    spec = candidates.load(name).spec
    in_place = compiled(name, device, spec)
    copying = compiled(name, replace(device, system=False), spec)
    for size in SIZES:
        problem = Problem.random(rng, *size, 1.5, 0.5)
        outer = np.full((problem.c.shape[0] + 2, problem.c.shape[1] + 5), 7.0, np.float32)
        results = []
        for gemm in (in_place, copying):
            whole = outer.copy()
            inner = whole[1:-1, 2:-3]
            inner[...] = problem.c
            assert gemm(problem.a, problem.b, inner, alpha=1.5, beta=0.5) is inner
            results.append(inner.copy())
            inner[...] = 7.0
            assert (whole == 7.0).all()
        usm = [in_place.empty(x.shape) for x in (problem.a, problem.b, problem.c)]
        for place, x in zip(usm, (problem.a, problem.b, problem.c), strict=True):
            np.asarray(place)[...] = x
        assert in_place(*usm, alpha=1.5, beta=0.5) is usm[2]
        results.append(np.asarray(usm[2]))
        problem.check(results[0])
        assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers_by_vectors(dtype: str, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    """SYCL's `select` takes no vectors of `long long`."""
    schedule = candidates.load("cpu_6x16_v8_copied").schedule
    kernel = built(schedule, device, GemmSpec(dtype=dtype, epilogue=("bias", "relu")))
    a, b, bias = (rng.integers(-99, 99, size).astype(dtype) for size in ((20, 30), (30, 37), 37))
    assert np.array_equal(kernel(a, b, bias=bias), np.maximum(a @ b + bias, 0))


@pytest.mark.parametrize("block", [8, 16, 32])
def test_transpose(block: int, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    source = driver.emit_transpose(GemmSpec(), block, "sycl", target_of(device), form="kernel")
    kernel = SyclKernel.from_source(source, device)
    for shape in ((1, 1), (16, 16), (17, 33), (100, 7), (64, 256)):
        a = rng.standard_normal(shape, dtype=np.float32)
        assert np.array_equal(kernel.transpose(a), a.T)
        usm = kernel.empty(shape)
        np.asarray(usm)[...] = a
        assert np.array_equal(np.asarray(kernel.transpose(usm)), a.T)
