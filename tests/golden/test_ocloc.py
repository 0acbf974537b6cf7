"""What Intel's compiler makes of the block-read kernels: arithmetic, and nothing in memory that belongs in registers.

Judged by the instructions: `ocloc` may return 0 for a kernel that it could not link.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmgen import driver, presets
from tests.support import zebin

DEVICES = ("bdw", "skl", "dg2-g10")
#: Preset -> the least share of the hot loop's instructions that multiply and add, and how many do so.
SHARES = {"block_read_32x1_1x8": (0.92, 256), "block_read_32x2_1x8": (0.95, 512)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHARES)
def test_hot_loop(name: str, device: str, needs_tool: Callable[[str], str], tmp_path: Path) -> None:
    ocloc, iga = needs_tool("ocloc"), needs_tool("iga64")
    compiled = compile_for(device, name, ocloc, tmp_path)
    assert compiled.simd == [8]
    assert not compiled.scratch
    (code,) = compiled.code.values()
    loop = zebin.busiest_loop(zebin.disassemble(iga, device, code, tmp_path))
    least, multiply_adds = SHARES[name]
    assert loop["mad"] == multiply_adds, loop
    assert loop["mad"] / loop.total() >= least, loop


def compile_for(device: str, name: str, ocloc: str, folder: Path) -> zebin.Zebin:
    """Compiles a preset's emitted file for a device."""
    preset = presets.load(name)
    source = driver.emit(preset.spec, preset.schedule, "opencl")
    file = folder / f"{name}.cl"
    file.write_text(source.text)
    options = " ".join(source.build_options) or "-cl-std=CL3.0"
    command = [ocloc, "compile", "-file", str(file), "-device", device, "--format", "zebin"]
    command += ["-options", options, "-out_dir", str(folder), "-output", name]
    result = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    outputs = sorted(folder.glob("*.bin"))
    assert outputs, result.stdout + result.stderr
    return zebin.read(outputs[0])
