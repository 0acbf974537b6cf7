"""Targets, and what is assumed of a device that does not tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import driver, presets
from gemmgen.ir.target import TARGETS


def test_what_needs_wide_registers_is_emitted_for_who_has_them() -> None:
    preset = presets.load("sg16_block_16x2_k32")
    (problem,) = driver.refusals(preset.spec, preset.schedule, "opencl", TARGETS["intel"])
    assert "registers 384 B per work-item > 256 B" in problem
    assert driver.default_target(preset.spec, preset.schedule).name == "xe_hpc"
    assert driver.default_target(preset.spec, preset.schedule, "sycl").name == "xe_hpc"


@pytest.mark.parametrize(
    ("sizes", "features", "known"),
    [((8, 16, 32), {"block_read"}, 4096), ((16, 32), {"block_read"}, 8192), ((32, 64), set(), 4096)],
)
def test_registers_of_a_gpu_follow_from_its_sub_groups(sizes: tuple[int, ...], features: set[str], known: int) -> None:
    devices = pytest.importorskip("gemmgen.runtime.devices")
    target = replace(TARGETS["intel"], sub_group_sizes=sizes, features=frozenset(features))
    assert devices.register_bytes(target) == known
