"""What Intel's compiler makes of the block-read kernels: arithmetic, and nothing in memory that belongs in registers.

Judged by the instructions: `ocloc` may return 0 for a kernel that it could not link.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.inspect import reported

DEVICES = ("bdw", "skl", "dg2-g10")
#: Preset -> the least share of the hot loop's instructions that multiply and add, and how many do so.
SHARES = {"block_read_32x1_1x8": (0.92, 256), "block_read_32x2_1x8": (0.95, 512)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHARES)
def test_hot_loop(name: str, device: str, needs_tool: Callable[[str], str]) -> None:
    needs_tool("ocloc"), needs_tool("iga64")
    found = reported(name, device)
    assert found.compiled.resources.lanes == 8
    assert found.compiled.resources.scratch == 0
    least, multiply_adds = SHARES[name]
    assert found.loop is not None
    assert found.loop.math == multiply_adds
    assert found.loop.share >= least
