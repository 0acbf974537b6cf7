"""What multiplies 8-bit floats where nothing is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F8_E5M2
from gemmgen.ir.target import TARGETS
from gemmgen.kernel_names import kernel_name
from gemmgen.spec import GemmSpec

SPEC = GemmSpec(dtype=F8_E5M2, b_order="col", ld_multiple=16)


@pytest.mark.parametrize(
    ("spec", "target", "name"),
    [
        (SPEC, "sm_90a", "wgmma_f8_64x64_s8"),
        (replace(SPEC, b_order="row"), "sm_90a", "wgmma_f8_64x64_s8_packed_b"),
        (replace(SPEC, ld_multiple=1), "sm_90a", "wgmma_f8_64x64_s8_packed"),
        (SPEC, "sm_89", "mma_f8_8x16_16x8"),
    ],
)
def test_presets(spec: GemmSpec, target: str, name: str) -> None:
    assert kernel_name(choose(spec, (64, 64, 64), TARGETS[target]), spec) == name


@pytest.mark.parametrize(
    ("size", "tile"),
    [(512, "64x64_s8"), (1024, "64x128_s4"), (1536, "128x144_s4"), (2048, "128x256_s4"), (3072, "192x192_s4")],
)
def test_tiles_by_sizes(size: int, tile: str) -> None:
    """As an H200 has them, whose 132 multiprocessors the target knows."""
    device = replace(TARGETS["sm_90a"], cores=132)
    assert kernel_name(choose(SPEC, (size, size, 4096), device), SPEC).removesuffix("_joined2") == f"wgmma_f8_{tile}"
    assert kernel_name(choose(SPEC, (4096, 4096, 64), device), SPEC) == "wgmma_f8_128x256_s4_turns"
    assert kernel_name(choose(SPEC, None, device), SPEC) == "wgmma_f8_128x256_s4"


def test_who_has_none() -> None:
    for target in ("sm_80", "intel", "cpu"):
        with pytest.raises(ScheduleError, match="8-bit floats"):
            choose(SPEC, None, TARGETS[target])
