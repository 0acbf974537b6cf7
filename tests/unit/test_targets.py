"""Targets, and what is assumed of a device that does not tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, driver
from gemmgen.ir.target import TARGETS, with_intel_registers
from tests.support.cli import printed, refused


def test_what_needs_wide_registers_is_emitted_for_who_has_them() -> None:
    preset = candidates.load("sg16_block_16x2_k32")
    (problem,) = driver.refusals(preset.spec, preset.schedule, "opencl", TARGETS["intel"])
    assert "registers 384 B per work-item > 256 B" in problem
    assert driver.default_target(preset.spec, preset.schedule).name == "xe_hpc"
    assert driver.default_target(preset.spec, preset.schedule, "sycl").name == "xe_hpc"


@pytest.mark.parametrize(
    ("sizes", "features", "known"),
    [((8, 16, 32), {"block_read"}, 4096), ((16, 32), {"block_read"}, 8192), ((32, 64), set(), 4096)],
)
def test_registers_of_a_gpu_follow_from_its_sub_groups(sizes: tuple[int, ...], features: set[str], known: int) -> None:
    target = replace(TARGETS["intel"], sub_group_sizes=sizes, features=frozenset(features))
    assert with_intel_registers(target).sub_group_register_bytes == known


def test_a_target_without_sub_groups_of_8_has_a_default_of_its_own() -> None:
    """`gemmgen emit --target xe_hpc`, and with a tile: sub-groups of 16 follow from the target."""
    for options in ((), ("--tile", "16x2"), ("--method", "dpas", "--dtype", "float16")):
        assert "intel_reqd_sub_group_size(16)" in printed("emit", "--target", "xe_hpc", *options)
    assert "sub_group = 8 is not a size" in refused("emit", "--target", "xe_hpc", "--group", "1x8")
    assert "sub-groups of 8, which Xe-HPC and\n//                Xe2 don't have (--target xe_hpc)" in printed("emit")


@pytest.mark.parametrize(
    ("name", "target", "lanes", "large"),
    [
        ("smem_8x8", "xe_hpc", 16, False),
        ("smem_8x8_double", "xe_hpc", 16, True),
        ("smem_8x8_double", "intel", None, True),
        ("naive", "xe_hpc", None, False),
        ("smem_8x8_double", "portable", None, False),
    ],
)
def test_lanes_and_registers_follow_from_the_target(name: str, target: str, lanes: int | None, large: bool) -> None:
    """Where there are sub-groups of 8, compilers choose them; a file that names none builds everywhere."""
    preset = candidates.load(name)
    kernel = driver.lower(preset.spec, preset.schedule, TARGETS[target])
    assert (kernel.compiled_for, kernel.large_registers) == (lanes, large)
    text = driver.emit(preset.spec, preset.schedule, "opencl", TARGETS[target]).text
    named = f"#ifdef cl_intel_required_subgroup_size\n__attribute__((intel_reqd_sub_group_size({lanes})))\n#endif\n"
    assert (named in text) == (lanes is not None)
    assert ("the build option -cl-intel-256-GRF-per-thread" in text) == large


@pytest.mark.parametrize(
    ("name", "need"),
    [
        ("block_read_32x2_1x8", "CL_DEVICE_IMAGE2D_MAX_WIDTH"),
        ("cpu_6x64_copied", "524,288 bytes of private memory for each work-item"),
        ("dpas_32x2_1x16", "cl_intel_subgroups_short"),
        ("L3_SIMD_32x2_1x8", "cl_intel_required_subgroup_size"),
    ],
)
def test_heads_name_what_a_kernel_needs(name: str, need: str) -> None:
    preset = candidates.load(name)
    head = driver.emit(preset.spec, preset.schedule).text.split("\n\n")[0]
    assert need in head.split("// Needs")[1]


def test_words_about_a_barrier_hold_for_every_loop() -> None:
    preset = candidates.load("L3_SIMD_8x4_8x8_barrier")
    text = driver.emit(preset.spec, preset.schedule).text
    assert "a barrier before the arithmetic of each step" in " ".join(text.replace("//", "").split())
    for loop in text.split("for (int k0")[1:]:
        assert loop.index("barrier(CLK_LOCAL_MEM_FENCE);") < loop.index("fma(")
