"""Dpas on 2D blocks in SYCL: run in software on every SYCL device, which has none of Intel's functions."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.numeric import in_pairs
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo, target_of
from gemmgen.runtime.sycl_library import helper
from gemmgen.schedule import Schedule
from gemmgen.schedule.fields import AddressPayloads
from gemmgen.spec import GemmSpec, Order
from tests.device.test_sycl_presets import DEVICES
from tests.support.problems import Matrix, Problem

pytestmark = pytest.mark.parametrize("device", DEVICES)

#: Whole tiles; lines that 2D block reads take, and lines that they don't; parts of a word; a single element.
SIZES = ((32, 64, 128), (33, 80, 128), (17, 65, 99), (1, 1, 1))


@pytest.mark.parametrize(
    ("dtype", "order", "kept"),
    [
        *((F16, "row", "all"), (F16, "col", "prefetches"), (BF16, "row", "none")),
        *((I8, "row", "none"), (I8, "col", "all"), (F32, "row", "all"), (F32, "col", "none")),
    ],
)
def test_exact_sums(
    dtype: DType, order: Order, kept: AddressPayloads, device: SyclDeviceInfo, rng: np.random.Generator
) -> None:
    """Of small whole numbers, which all types have."""
    spec = GemmSpec(dtype=dtype, c_dtype=None if dtype == I8 else F32, b_order=order)
    schedule = Schedule.of(tile=(8, 2), group=(2, 32), block_k=64, atom="dpas", block_2d=True, prefetch_distance=1)
    schedule = schedule.but(block_writes=True, barrier=True, address_payloads=kept, tf32=dtype == F32)
    gemm = SyclKernel.from_source(driver.emit(spec, schedule, "sycl", target_of(device), "kernel"), device)
    for size in SIZES:
        exact = Problem.integers(rng, *size)
        for beta in (0.0, 3.0):
            c = rng.integers(-8, 9, exact.c.shape).astype(np.float32)
            problem = replace(exact, c=c, alpha=-2.0, beta=beta).typed(spec)
            result = gemm(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=beta)
            assert np.array_equal(result, problem.expected)


def test_int4_by_int8(device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    """Bytes of two neighbours along K, as they are stored."""
    spec = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
    schedule = Schedule.of(tile=(8, 2), group=(2, 32), block_k=64, atom="dpas", block_2d=True, block_writes=True)
    gemm = SyclKernel.from_source(driver.emit(spec, schedule, "sycl", target_of(device), "kernel"), device)
    for size in ((32, 64, 128), (33, 80, 256), (17, 65, 99), (1, 1, 1)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        of_b = cast("Matrix", np.asfortranarray(in_pairs(problem.b, 0)))
        problem.check(gemm(problem.a, of_b, problem.c.copy(), alpha=-2, beta=3))


def test_256_registers_reach_the_devices_compiler(device: SyclDeviceInfo) -> None:
    """As an option that only the compiler of Intel's GPUs takes: that of a CPU says which one it was given."""
    if device.type == "gpu":
        return
    preset = presets.load("dpas_32x4_8x64_block_2d")
    source = driver.emit(preset.spec, preset.schedule, "sycl", form="kernel")
    asked = (*source.gpu_options, "-DGEMMGEN_DPAS_SOFTWARE")
    content, log = helper().compile(device.number, source.text, source.name, options=asked)
    assert content is None
    assert "-ze-opt-large-register-file" in log
