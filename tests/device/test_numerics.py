"""What docs/numerics.md says of CPU devices: denormals, zeros, NaN, and bits that schedules share."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from tests.device.naive import DEVICES

pytestmark = pytest.mark.parametrize("device", DEVICES)
NAMES = ["naive", "lds_8x8_16x16_k16_double", "vec4_4x4", "L3_SIMD_16x2_4x8", "smem_8x8_double_packed"]


def full(value: float, rows: int = 1, cols: int = 1) -> np.ndarray:
    return np.full((rows, cols), value, np.float32)


def test_schedules_without_parts_of_k_give_the_same_bits(device: DeviceInfo, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((33, 203), (203, 37)))
    target, results = target_of(device.handle), []
    for name in NAMES:
        preset = candidates.load(name)
        if not driver.refusals(preset.spec, preset.schedule, "opencl", target):
            source = driver.emit(preset.spec, preset.schedule, target=target)
            results.append(CompiledKernel.from_source(source, device)(a, b).tobytes())
    assert len(results) >= 4 and len(set(results)) == 1


def test_special_numbers(device: DeviceInfo) -> None:
    gemm = CompiledKernel.from_source(
        driver.emit(candidates.load("naive").spec, candidates.load("naive").schedule), device
    )
    tiny = np.float32(1e-40)
    assert gemm(full(1e-30), full(1e-10)) == tiny, "a product that is denormal"
    assert gemm(full(1e-40), full(1)) == tiny and gemm(full(1e-30), full(1), alpha=1e-10) == tiny
    minus = full(-0.0, 1, 2)
    assert not np.signbit(gemm(minus, full(1, 2, 1))), "sums begin with +0"
    assert np.signbit(gemm(full(0), full(1), alpha=-1.0))
    assert np.isnan(gemm(full(np.inf), full(0))) and np.isposinf(gemm(full(np.inf), full(2)))
    assert np.isnan(gemm(full(1), full(1), full(np.nan), beta=0.5))
    assert gemm(full(1), full(1), full(np.nan), beta=0.0) == 1
    assert np.isposinf(gemm(full(3e38, 1, 2), full(1, 2, 1)))
