"""What Intel's CPU runtime made of a sweep: its main loop, from the assembly that the runtime writes on request."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.runtime.opencl_devices import DeviceInfo
from tests.device.naive import DEVICES

LISTED = [value for parameters in DEVICES for value in parameters.values]
INTEL = next((d for d in LISTED if isinstance(d, DeviceInfo) and "Intel" in d.platform), None)
pytestmark = pytest.mark.skipif(INTEL is None, reason="Intel's CPU runtime is not installed")

BUILD = """
import sys
import pyopencl as cl
from gemmgen.runtime.opencl_devices import devices
device = next(d.handle for d in devices() if "Intel" in d.platform)
cl.Program(cl.Context([device]), open(sys.argv[1]).read()).build(sys.argv[2:])
"""
#: The instruction set that the runtime is told to compile for, its registers, how many hold C, and the least share of
#: multiply-adds among all instructions: ten loads go with 24 of them, and four prefetches or addresses that are no
#: pointers. Where B is copied some rows at a time, four more find the rows of a panel: four instructions a cycle still
#: leave the multiply-adds, two a cycle, no gap.
CASES = {
    "cpu_6x64_k512": ("skx", "zmm", 24, 0.5),
    "cpu_6x64_copied": ("skx", "zmm", 24, 0.53),
    "cpu_6x64_prefetched": ("skx", "zmm", 24, 0.58),
    "cpu_6x32_f64_k256": ("skx", "zmm", 24, 0.5),
    "cpu_6x16_v8_copied": ("core-avx2", "ymm", 12, 0.4),
    "cpu_4x4_along_k": ("skx", "zmm", 16, 0.44),
}


def main_loop(assembly: str) -> list[str]:
    """The instructions of the loop with the most multiply-adds for its length."""
    lines, labels, loops = assembly.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"(\.\w+):", line):
            labels[label[1]] = number
        elif (jump := re.match(r"\s+j\w+\s+(\.\w+)", line)) and jump[1] in labels:
            body = (x.strip() for x in lines[labels[jump[1]] + 1 : number + 1] if x.startswith("\t"))
            loops.append([x for x in body if not x.startswith((".", "#"))])
    return max(loops, key=lambda body: (sum(x.startswith("vfmadd") for x in body) / len(body), -len(body)))


@pytest.mark.parametrize("name", CASES)
def test_the_main_loop(name: str, tmp_path: Path) -> None:
    architecture, registers, vectors, share = CASES[name]
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule)
    file = tmp_path / "kernel.cl"
    file.write_text(source.text)
    env = os.environ | {"CL_CONFIG_DUMP_ASM": "x", "CL_CONFIG_CPU_TARGET_ARCH": architecture, "PYOPENCL_NO_CACHE": "1"}
    env["PYTHONPATH"] = os.pathsep.join(sys.path)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(file), *source.build_options],
        cwd=tmp_path, env=env, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (dump,) = tmp_path.glob("*.s")
    loop = main_loop(dump.read_text())
    fmas = [x for x in loop if x.startswith("vfmadd")]
    arithmetic = [x for x in loop if re.match(r"v(f|add|mul|sub|ins|ext|perm|shuf|blend)", x) and registers in x]
    assert len(fmas) % vectors == 0, f"{len(fmas)} multiply-adds in {len(loop)} instructions"
    assert all(registers in x for x in fmas)
    # Of what vectors go through, loads and copies between registers aside.
    assert len(fmas) >= 0.85 * len(arithmetic)
    assert not [x for x in loop if "gather" in x]
    assert not [x for x in loop if registers in x and re.search(r"\(%r[sb]p", x) and x.startswith("vmov")], "a spill"
    assert len(fmas) >= share * len(loop)
