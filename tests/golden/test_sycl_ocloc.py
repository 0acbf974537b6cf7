"""What Intel's GPU compiler makes of SYCL's SPIR-V, beside what it makes of the same preset in OpenCL C."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gemmgen import driver, presets
from gemmgen.runtime import sycl_build
from gemmgen.runtime.sycl_devices import pick
from tests.support import sycl, zebin

DEVICES = ("skl", "dg2-g10")
#: How far the share of multiply-adds in the busiest loop may lie under the twin's.
LEEWAY = 0.05

pytestmark = sycl.needs_device


@pytest.mark.parametrize("name", sycl.names())
def test_as_good_as_opencl(name: str, needs_tool: Callable[[str], str], tmp_path: Path) -> None:
    ocloc, iga = needs_tool("ocloc"), needs_tool("iga64")
    spirv, text = tmp_path / "sycl.spv", tmp_path / "opencl.cl"
    spirv.write_bytes(sycl.spirv(sycl_build.content(sycl.emit(name, "kernel"), pick(), "object")))
    preset = presets.load(name)
    twin = driver.emit(preset.spec, preset.schedule, "opencl")
    text.write_text(twin.text)
    for device in DEVICES:
        ours = zebin.compiled(ocloc, device, spirv, "-spirv_input")
        theirs = zebin.compiled(ocloc, device, text, "-options", " ".join(twin.build_options))
        assert not ours.scratch or theirs.scratch, f"scratch memory on {device}"
        lanes = preset.schedule.sub_group
        assert lanes is None or ours.simd == [lanes]
        our_share, their_share = (share(kernel, iga, device, tmp_path) for kernel in (ours, theirs))
        print(f"{name} {device} {our_share:.3f} {their_share:.3f}")  # noqa: T201  (for the README's table, by -s)
        assert our_share >= their_share - LEEWAY, device


def share(kernel: zebin.Zebin, iga: str, device: str, folder: Path) -> float:
    """Of multiply-adds among the instructions of the busiest loop."""
    (code,) = kernel.code.values()
    loop = zebin.busiest_loop(zebin.disassemble(iga, device, code, folder))
    assert loop["mad"], "no loop that multiplies"
    return loop["mad"] / loop.total()
