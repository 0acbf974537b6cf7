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
    ("spec", "target", "method", "packed"),
    [
        (SPEC, "sm_90a", "wgmma_f8", (False, False)),
        (replace(SPEC, b_order="row"), "sm_90a", "wgmma_f8", (False, False)),  # B from registers
        (replace(SPEC, ld_multiple=1), "sm_90a", "wgmma_f8", (True, True)),
        (SPEC, "sm_89", "mma_f8", (False, False)),
    ],
)
def test_methods(spec: GemmSpec, target: str, method: str, packed: tuple[bool, bool]) -> None:
    found = choose(spec, (64, 64, 64), TARGETS[target])
    assert (found.method, (found.a.prepacked, found.b.prepacked)) == (method, packed)


@pytest.mark.parametrize(
    ("size", "elements"), [(512, 64 * 64), (1024, 64 * 128), (1536, 128 * 144), (2048, 128 * 256), (3072, 128 * 192)]
)
def test_tiles_by_sizes(size: int, elements: int) -> None:
    """About as large as an H200 has them, whose 132 multiprocessors the target knows."""
    device = replace(TARGETS["sm_90a"], cores=132)
    rows, cols = choose(SPEC, (size, size, 4096), device).block_tile
    assert elements / 2 <= rows * cols <= elements * 2
    assert kernel_name(choose(SPEC, None, device), SPEC) == "wgmma_f8_128x256_s4"


def test_who_has_none() -> None:
    for target in ("sm_80", "intel", "cpu"):
        with pytest.raises(ScheduleError, match="8-bit floats"):
            choose(SPEC, None, TARGETS[target])
