"""Every preset on every OpenCL runtime that can take it, against float64, on aligned and ragged sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.presets import Preset
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES
from tests.support.presets import SIZES, check_any_size, check_layouts
from tests.support.problems import Problem

#: One of each way to memory; the interpreter goes through the layouts of all presets.
LAID_OUT = ["naive", "L3_SIMD_16x2_4x8", "L3_SLM_8x8_8x16", "block_read_16x2_1x8", "smem_8x8_double"]
#: Presets that a runtime's compiler takes some ten seconds for, or half a minute, as they begin. There they are built
#: without optimisation; and with it in four rows, where no other runtime builds them so.
SLOW = {
    "Intel(R) OpenCL": ("sg16_block_",),
    "Portable Computing Language": ("L3_SLM_", "smem_8x8", "tile_8x8", "lds_8x8_"),
}
FEW_ROWS = 4

pytestmark = pytest.mark.parametrize("device", DEVICES)


def compiled(name: str, device: DeviceInfo, spec: GemmSpec) -> CompiledKernel:
    """The preset for this device. Raises: ScheduleError where the device lacks what it needs."""
    return built(candidates.load(name).schedule, device, spec)


def built(schedule: Schedule, device: DeviceInfo, spec: GemmSpec) -> CompiledKernel:
    return CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)


def unoptimised(schedule: Schedule, device: DeviceInfo, spec: GemmSpec) -> CompiledKernel:
    source = driver.emit(spec, schedule, target=target_of(device.handle))
    return CompiledKernel.from_source(replace(source, build_options=(*source.build_options, "-cl-opt-disable")), device)


def is_slow(name: str, device: DeviceInfo) -> bool:
    return name.startswith(SLOW.get(device.handle.platform.name, ()))


def forms(preset: Preset, device: DeviceInfo) -> Iterator[CompiledKernel]:
    """What of a preset is run."""
    own = preset.schedule
    if not is_slow(own.name or "", device):
        yield built(own, device, preset.spec)
        return
    yield unoptimised(own, device, preset.spec)
    if own.sub_group is not None:
        few = own.but(tile=(FEW_ROWS, own.tile[1]), thread_vector=(FEW_ROWS, own.thread_vector[1]), name=None)
        yield built(few, device, preset.spec)


def needs(schedule: Schedule) -> frozenset[str]:
    """Features of a device without which a preset is refused."""
    asked = {
        "sub_groups": schedule.sub_group is not None,
        "image_block_read": "image" in (schedule.a.memory, schedule.b.memory),
        "vectors": schedule.vector > 1,
        "joint_matrix": schedule.atom == "joint_matrix",
        "mma": schedule.by_warps,
        "async_copy": schedule.a.async_copy or schedule.b.async_copy,
        "atomic_add": schedule.atomic,
    }
    return frozenset(feature for feature, needed in asked.items() if needed)


@pytest.mark.parametrize("name", candidates.names())
def test_any_size(name: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    if not needs(preset.schedule) <= device.features:
        with pytest.raises(ScheduleError, match="but target"):
            compiled(name, device, preset.spec)
        return
    for gemm in forms(preset, device):
        check_any_size(gemm, preset.spec, rng)


@pytest.mark.parametrize("name", LAID_OUT)
def test_layouts(name: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    build = unoptimised if is_slow(name, device) else built
    ran = check_layouts(name, lambda schedule, spec: build(schedule, device, spec), rng)
    assert ran or not needs(candidates.load(name).schedule) <= device.features


@pytest.mark.parametrize("block", [8, 16, 32])
def test_transpose(block: int, device: DeviceInfo, rng: np.random.Generator) -> None:
    target = target_of(device.handle)
    if "sub_groups" not in device.features:
        with pytest.raises(ScheduleError, match="no sub-groups to shuffle in"):
            driver.emit_transpose(GemmSpec(), block, target=target)
        return
    source = driver.emit_transpose(GemmSpec(), block, target=target)
    kernel = CompiledKernel.from_source(source, device)
    for shape in ((1, 1), (16, 16), (17, 33), (100, 7), (64, 256)):
        a = rng.standard_normal(shape, dtype=np.float32)
        assert np.array_equal(kernel.transpose(a), a.T)


@pytest.mark.parametrize("name", ["naive", "L3_SIMD_16x2_4x8", "smem_8x8_double"])
def test_parts_of_k(name: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    """Two kernels with memory between them; more parts than K has steps, too."""
    preset = candidates.load(name)
    schedule, target = preset.schedule.but(split_k=3, threadblock_swizzle=2, name=None), target_of(device.handle)
    if not needs(preset.schedule) <= device.features:
        assert "no sub-groups" in driver.refusals(preset.spec, schedule, target=target)[0]
        return
    gemm = CompiledKernel.from_source(driver.emit(preset.spec, schedule, target=target), device)
    for size in SIZES:
        problem = Problem.random(rng, *size, -1.5, 0.25)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-1.5, beta=0.25))
