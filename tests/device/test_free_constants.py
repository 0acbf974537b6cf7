"""Constants changed by hand in an emitted file: it computes the same, or a guard stops the compiler."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import DeviceError
from gemmgen.ir.target import Target
from gemmgen.runtime import opencl, sycl
from gemmgen.runtime.opencl_devices import DeviceInfo
from gemmgen.runtime.opencl_devices import target_of as opencl_target_of
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.runtime.sycl_devices import target_of as sycl_target_of
from gemmgen.schedule import Pair
from gemmgen.source import Source
from tests.device.naive import DEVICES
from tests.device.test_sycl_presets import DEVICES as SYCL_DEVICES
from tests.support.problems import Matrix, Problem
from tests.support.tools import tool

#: Presets whose block tile and depth are free, with thread tiles and depths that make others.
CHANGED: list[tuple[str, Pair, int]] = [
    *(
        (name, tile, 8)
        for name in ("smem_8x8", "smem_8x8_transposed", "smem_8x8_double")
        for tile in ((16, 8), (8, 16))
    ),
    *((name, (8, 8), depth) for name in ("smem_8x8", "lds_8x8_16x16_k8") for depth in (16, 32)),
    ("smem_8x8_double", (8, 8), 16),
    ("lds_8x8_16x16_k16_double", (8, 8), 32),
    ("smem_8x8", (16, 8), 16),
]
#: Changes that guards speak against, and what they say.
GUARDED = [
    ({"BK": 12}, "BK must be|multiple of BK"),
    ({"BM": 100}, "BM must be a multiple of THREADS_M"),
    ({"THREADS_M": 12}, "cannot change here:.*gemmgen emit --preset smem_8x8 .*--set group=8x16"),
]
THREADS = 16


def edited(text: str, **constants: int) -> str:
    """A file in which somebody has changed constants."""
    for name, value in constants.items():
        text, count = re.subn(rf"(\b{name} = |#define {name} )\d+", rf"\g<1>{value}", text)
        assert count == 1
    return text


def by_hand(name: str, tile: Pair, depth: int, backend: str, target: Target, form: str | None) -> Source:
    """A preset whose block tile and depth were changed in its text; what a host must know of it is that of others."""
    preset = presets.load(name)
    text = driver.emit(preset.spec, preset.schedule, backend, target, form).text
    other = driver.emit(preset.spec, preset.schedule.but(tile=tile, block_k=depth), backend, target, form)
    return replace(other, text=edited(text, BM=tile[0] * THREADS, BN=tile[1] * THREADS, BK=depth))


def wrong(name: str, changes: dict[str, int], backend: str, target: Target, form: str | None) -> Source:
    """A preset in whose text constants were changed to what it is not right for."""
    preset = presets.load(name)
    source = driver.emit(preset.spec, preset.schedule, backend, target, form)
    return replace(source, text=edited(source.text, **changes))


def check(gemm: Callable[..., Matrix], rng: np.random.Generator) -> None:
    for size in ((129, 131, 37), (256, 256, 64)):
        problem = Problem.random(rng, *size, -1.5, 0.25)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-1.5, beta=0.25))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "tile", "depth"), CHANGED)
def test_opencl(name: str, tile: Pair, depth: int, device: DeviceInfo, rng: np.random.Generator) -> None:
    source = by_hand(name, tile, depth, "opencl", opencl_target_of(device.handle), None)
    source = replace(source, build_options=(*source.build_options, "-cl-opt-disable"))
    check(opencl.CompiledKernel.from_source(source, device), rng)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("changes", "message"), GUARDED)
def test_a_guard_of_opencl(changes: dict[str, int], message: str, device: DeviceInfo) -> None:
    source = wrong("smem_8x8", changes, "opencl", opencl_target_of(device.handle), None)
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        opencl.CompiledKernel.from_source(source, device)


@pytest.mark.parametrize("device", SYCL_DEVICES)
@pytest.mark.parametrize(("name", "tile", "depth"), CHANGED)
def test_sycl(name: str, tile: Pair, depth: int, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    source = by_hand(name, tile, depth, "sycl", sycl_target_of(device), "kernel")
    check(sycl.SyclKernel.from_source(source, device), rng)


@pytest.mark.parametrize("device", SYCL_DEVICES)
@pytest.mark.parametrize(("changes", "message"), GUARDED)
def test_a_guard_of_sycl(changes: dict[str, int], message: str, device: SyclDeviceInfo) -> None:
    source = wrong("smem_8x8", changes, "sycl", sycl_target_of(device), "kernel")
    with pytest.raises(DeviceError, match=f"(?s){message}"):
        sycl.SyclKernel.from_source(source, device)


@pytest.mark.parametrize(
    ("name", "changes", "refused"),
    [
        ("wgmma_128x256_s4", {"STAGES": 3}, None),
        ("wgmma_128x256_s4", {"GROUP_M": 8}, None),
        ("wgmma_128x256_s4", {"BK": 128, "STAGES": 2}, None),
        ("wgmma_128x256_s4", {"BK": 32}, "BK must be a multiple of 64"),
        ("wgmma_128x256_s4", {"BN": 128}, "emit --preset wgmma_128x256_s4 --backend cuda --set tile=2x32"),
        ("wgmma_f8_128x256_s4", {"BK": 256, "STAGES": 2}, None),
        ("mma_8x16_16x8", {"STAGES": 3}, None),
        ("mma_8x16_16x8", {"STAGES": 5, "BK": 64}, None),
        ("mma_8x16_16x8", {"BM": 64, "BN": 64}, None),
        ("mma_8x16_16x8", {"BK": 16}, "BK must be a multiple of 32"),
        ("smem_8x8", {"BM": 256, "BK": 16}, None),
        ("smem_8x8", {"BN": 256, "BK": 32}, None),
        ("smem_8x8", {"BM": 96}, "BM . BK .*must be .*THREADS . 4"),
        ("smem_8x8", {"BK": 64}, "an array of a fixed size has no room"),
        ("async_8x8_16x16", {"BM": 256, "BN": 256}, None),
        ("async_8x8_16x16", {"BK": 16, "STAGES": 6}, None),
        ("mbarrier_8x16_16x16", {"BN": 128, "BK": 16}, None),
        ("mbarrier_8x16_16x16", {"BK": 4, "STAGES": 32}, None),
        ("mbarrier_8x16_16x16", {"STAGES": 8}, "STAGES must be 12 or more"),
    ],
)
def test_nvcc(name: str, changes: dict[str, int], refused: str | None, tmp_path: Path) -> None:
    preset = presets.load(name)
    target = driver.default_target(preset.spec, preset.schedule, "cuda")
    file = tmp_path / "changed.cu"
    file.write_text(edited(driver.emit(preset.spec, preset.schedule, "cuda", target).text, **changes))
    command = [tool("nvcc"), "-std=c++17", f"-arch={target.name}", "-cubin", str(file), "-o", str(file) + "bin"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode == 0) == (refused is None), result.stderr
    assert refused is None or re.search(refused, result.stderr)
