"""What Intel's GPU compiler makes of SYCL's SPIR-V, beside what it makes of the same preset in OpenCL C."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.ir.target import TARGETS
from tests.support import baseline, sycl
from tests.support.inspect import compiled, figures, kept
from tests.support.tools import tool

DEVICES = ("skl", "dg2-g10")
#: Those whose registers presets for the target `xe_hpc` need.
WIDE = ("pvc",)
#: How far the share of multiply-adds in the busiest loop may lie under the twin's.
LEEWAY = 0.05
#: Bytes of scratch memory that are known and not mended yet: outside of the main loop, where the matrix's edge is read.
KNOWN = {
    ("L3_SIMD_32x2_1x8", "skl"): 256,
    ("smem_8x8_double", "dg2-g10"): 1024,
    ("smem_8x8_double_packed", "dg2-g10"): 8,
    ("smem_8x8_transposed", "dg2-g10"): 8,
    ("lds_8x8_16x16_k8", "dg2-g10"): 8,
    ("smem_8x8_reg_double", "skl"): 128,
    ("smem_8x8_reg_double", "dg2-g10"): 32,
    # OpenCL's are compiled for 256 registers a thread there, which SYCL's headers don't ask for.
    ("tile_8x8", "dg2-g10"): 512,
    ("sg16_block_24x4_k32", "pvc"): 1024,
}

#: Shares that lie further under the twin's, and by how much: for want of those registers, or of OpenCL's loads.
BEHIND = {
    ("tile_8x8", "dg2-g10"): 0.10,
    ("sg16_block_24x4_k32", "pvc"): 0.42,
    ("smem_8x8_double", "dg2-g10"): 0.21,
    ("smem_8x8_double_packed", "skl"): 0.08,
    ("smem_8x8_double_packed", "dg2-g10"): 0.13,
    ("smem_8x8_reg_double", "skl"): 0.08,
    ("smem_8x8_reg_double", "dg2-g10"): 0.10,
}

pytestmark = sycl.needs_device


@pytest.fixture(scope="module")
def modules() -> list[bytes]:
    """SPIR-V with a kernel each."""
    return sycl.spirv(sycl.compile_together("kernel", "-fsycl-device-code-split=per_kernel"))


@pytest.mark.parametrize("name", sycl.names_for_any())
def test_as_good_as_opencl(name: str, modules: list[bytes], root: Path) -> None:
    tool("ocloc"), tool("ocloc-legacy"), tool("iga64")
    spirv = next(module for module in modules if f"__sycl_kernel_{name}\0".encode() in module)
    preset = candidates.load(name)
    devices = DEVICES if sycl.expressible(preset.schedule, TARGETS["sycl"]) else WIDE
    for device in devices:
        ours = compiled(spirv, device, f"__sycl_kernel_{name}", "SPIR-V")
        if driver.refusals(preset.spec, preset.schedule):
            assert ours.compiled.resources.scratch == 0, f"scratch memory on {device}"
            continue
        theirs, found = figures(root, name, device), ours.compiled.resources
        assert found.scratch is not None and theirs["scratch"] is not None
        lanes = preset.schedule.sub_group
        assert lanes is None or found.lanes == lanes
        share = theirs["share"]
        assert ours.loop is not None and isinstance(share, float), "no loop that multiplies"
        print(f"{name} {device} {ours.loop.share:.3f} {share:.3f}")  # noqa: T201  (for the docs, by -s)
        problems = []
        if not theirs["scratch"] and found.scratch > KNOWN.get((name, device), 0):
            problems.append(f"{device}: {found.scratch} bytes of scratch memory")
        if ours.loop.share < share - BEHIND.get((name, device), LEEWAY):
            problems.append(f"{device}: a share of {ours.loop.share:.3f}, where OpenCL C has {share:.3f}")
        compiler = ours.machine.compiler
        changes = baseline.changes(kept(root, compiler), compiler)
        if changes is not None and problems:
            warnings.warn(f"{changes}: {'; '.join(problems)}", stacklevel=1)
        assert changes is not None or not problems
