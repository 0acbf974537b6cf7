"""HIP files compile for AMD's GPUs, kernels and launchers, and say what they need."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.backends import backend
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.support import hip
from tests.support.tools import tool

TARGET_NAMES = backend("hip").targets
NAMES = tuple(p.name for p in map(presets.load, presets.names()) if not driver.refusals(p.spec, p.schedule, "hip"))
#: Of other types, batches and functions.
SPECS = {
    "float64": GemmSpec(dtype="float64"),
    "float16": GemmSpec(dtype="float16"),
    "bfloat16": GemmSpec(dtype="bfloat16", c_dtype="float32"),
    "complex64": GemmSpec(dtype="complex64", conj_a=True),
    "int8": GemmSpec(dtype="int8"),
    "listed": GemmSpec(batched=True, listed=True),
    "wide": GemmSpec(wide=True),
    "functions": GemmSpec(b_dtype="int8", epilogue=("bias", "clamp(0, 6)"), prologue_b="(b - b_shift) * b_scale"),
}


def test_all_presets_but_those_of_others_instructions() -> None:
    """Images, matrix instructions, copies and barriers of NVIDIA's, vectors of a CPU's."""
    missing = set(presets.names()) - set(NAMES)
    others = ("block_read_", "dpas_", "mma_", "wgmma_", "async_", "mbarrier_", "cpu_", "joint_matrix_")
    assert missing == {name for name in presets.names() if name.startswith(others)}


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_presets_compile(name: str, target: str, tmp_path: Path) -> None:
    preset = presets.load(name)
    hip.compiled(hip.emitted(preset.spec, preset.schedule, target), target, tool("clang"), tmp_path)


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("name", ["naive", "smem_8x8"])
def test_types_compile(name: str, spec: GemmSpec, target: str, tmp_path: Path) -> None:
    source = hip.emitted(spec, presets.load(name).schedule, target)
    hip.compiled(source, target, tool("clang"), tmp_path)


@pytest.mark.parametrize("target", TARGET_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_the_header_of_rocm(name: str, target: str, tmp_path: Path) -> None:
    """It has the names by which launchers and kernels call it."""
    if not hip.INSTALLED.exists():
        pytest.skip("hip/hip_runtime.h is not on this machine: apt-get install libamdhip64-dev")
    preset = presets.load(name)
    hip.checked(hip.emitted(preset.spec, preset.schedule, target), target, tool("clang"), tmp_path)


def test_a_file_is_of_hip_alone() -> None:
    preset = presets.load("smem_8x8")
    text = driver.emit(preset.spec, preset.schedule, "hip").text
    assert "#include <hip/hip_runtime.h>" in text and 'extern "C" hipError_t smem_8x8_launch(' in text
    assert "hipcc -std=c++17 -O3 --offload-arch=gfx1100 -c smem_8x8.hip" in text
    assert "cuda" not in text.lower() and "nvcc" not in text


def test_what_amd_lacks_is_refused_with_who_has_it() -> None:
    preset = presets.load("async_8x8_16x16")
    with pytest.raises(ScheduleError, match=r"async_copy.*use --backend cuda --target sm_80"):
        driver.emit(preset.spec, preset.schedule, "hip")
    with pytest.raises(ScheduleError, match="use --backend opencl or hip"):
        driver.emit(GemmSpec(), presets.load("naive").schedule, "cuda", TARGETS["gfx942"])
