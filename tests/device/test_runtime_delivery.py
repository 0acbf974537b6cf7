"""Emitted kernels by `gemmgen.compile`, by import, and as modules that need no gemmgen."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen import GemmSpec, Schedule, ScheduleError, SpecError, candidates, driver
from gemmgen.errors import UserError
from gemmgen.module import render_module
from gemmgen.runtime import icd
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo
from gemmgen.source import Source
from tests.device.naive import DEVICES

NAMES = ("naive", "lds_8x8_16x16_k8", "L3_SIMD_32x2_1x8", "block_read_16x2_1x8")

CALL = """
import sys
import numpy as np, pyopencl as cl, pyopencl.array as cl_array
from {name} import {name} as gemm
(device,) = [d for p in cl.get_platforms() for d in p.get_devices() if p.name.strip() == {platform!r}][:1]
context = cl.Context([device])
queue = cl.CommandQueue(context)
rng = np.random.default_rng(0)
for m, n, k in ((64, 32, 16), (33, 17, 29), (3, 5, 0), (0, 5, 3), (3, 0, 2), (1, 1, 1)):
    a, b, c = (rng.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    assert np.array_equal(gemm(a, b, queue=queue), a @ b)
    expected = 2 * (a @ b) + 3 * c
    there = [cl_array.to_device(queue, x) for x in (a, b, c)]
    assert gemm(a, b, c, alpha=2, beta=3, queue=queue) is c
    assert np.array_equal(c, expected)
    assert gemm(*there, 2, 3) is there[2]
    assert np.array_equal(there[2].get(), expected)
    assert np.array_equal(gemm(a * np.nan, b, c.copy(), alpha=0, beta=-1, queue=queue), -c)
for bad in ((a, b[:, 0]), (a, b.astype(np.float64)), (a, [1.0]), (a, there[1]), (a, np.ones((9, 9), np.float32))):
    try:
        gemm(*bad)
    except ValueError:
        continue
    raise SystemExit("no error")
assert not [m for m in sys.modules if m.startswith("gemmgen")]
print("done")
"""


def runs_on(source: Source, device: DeviceInfo) -> bool:
    """Whether the device can take it; where not, gemmgen says so before it compiles."""
    if source.requires <= device.features:
        return True
    with pytest.raises(UserError):
        CompiledKernel.from_source(source, device)
    return False


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_module_of_its_own(device: DeviceInfo, name: str, tmp_path: Path) -> None:
    p = candidates.load(name)
    source = driver.emit(p.spec, p.schedule)
    if not runs_on(source, device):
        return
    tmp_path.joinpath(f"{name}.py").write_text(render_module(source))
    with icd.visible():  # what gemmgen sees the module can see
        files = {**os.environ, "PYTHONPATH": str(tmp_path)}
        code = CALL.format(name=name, platform=device.platform)
        command = [sys.executable, "-W", "error", "-c", code]
        result = subprocess.run(command, capture_output=True, text=True, env=files, cwd=tmp_path)
    assert result.stdout == "done\n", result.stderr


@pytest.mark.skipif(icd.intel_cpu_library() is None, reason="Intel's CPU runtime is not installed")
@pytest.mark.parametrize("code", ["gemm(x, x).sum()", "cl_array.empty(gemm_module.default_queue(), 16, 'f').size"])
def test_a_module_finds_the_runtime_that_pip_brings(code: str, tmp_path: Path) -> None:
    preset = candidates.load("L3_SIMD_32x2_1x8")
    tmp_path.joinpath("gemm_module.py").write_text(
        render_module(driver.emit(preset.spec, replace(preset.schedule, name="gemm")))
    )
    program = f"""
import os, numpy as np, pyopencl.array as cl_array, gemm_module
from gemm_module import gemm
x = np.ones((4, 4), np.float32)
print({code}, [p.name for p in gemm_module.platforms()], "OCL_ICD_VENDORS" in os.environ)
"""
    environment = {**{k: v for k, v in os.environ.items() if k != icd.VENDORS}, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert "Intel(R) OpenCL" in result.stdout, result.stderr
    assert result.stdout.endswith("False\n")


def test_a_module_without_a_device_names_the_command(tmp_path: Path) -> None:
    tmp_path.joinpath("gemm_module.py").write_text(render_module(driver.emit(GemmSpec(), Schedule(name="gemm"))))
    program = "import numpy as np, gemm_module\ngemm_module.gemm(*[np.ones((4, 4), np.float32)] * 2)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OCL_ICD_VENDORS": "/nowhere"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    if result.returncode == 0:
        pytest.skip("pyopencl brings a runtime of its own here")
    assert "ValueError: no OpenCL device among []: pip install intel-opencl-rt" in result.stderr


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_compile_a_preset(device: DeviceInfo, name: str, rng: np.random.Generator) -> None:
    p = candidates.load(name)
    if not runs_on(driver.emit(p.spec, p.schedule), device):
        return
    gemm = gemmgen.compile(None, name, device=device.number)
    assert gemm.device == device
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((45, 37), (37, 50)))
    assert np.array_equal(gemm(a, b), a @ b)
    assert np.array_equal(gemmgen.compile(GemmSpec(alpha=2.0), p.schedule, device=device)(a, b), 2 * (a @ b))


@pytest.mark.parametrize("device", DEVICES[:1])
def test_compile_without_a_wish(device: DeviceInfo) -> None:
    gemm = gemmgen.compile()
    x = np.eye(9, dtype=np.float32)
    assert np.array_equal(gemm(x, x), x)


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(ScheduleError, match="L3_SIMD_32x2_1x8"):
        gemmgen.compile(None, "L3_SIMD_32x2_1x9")
    with pytest.raises(SpecError, match="pass a GemmSpec"):
        gemmgen.compile("float32")  # type: ignore[call-overload]
    with pytest.raises(ScheduleError, match="pass a Schedule"):
        gemmgen.compile(None, 32)  # type: ignore[call-overload]
    with pytest.raises(gemmgen.DeviceError, match="backend 'metal'"):
        gemmgen.compile(None, None, "metal")


@pytest.mark.parametrize("name", ["class", "print", "buffer", "np"])
def test_names_that_python_uses(name: str) -> None:
    with pytest.raises(ScheduleError, match=name):
        render_module(replace(driver.emit(GemmSpec(), Schedule()), name=name))


def test_module_folds_what_the_kernel_folds() -> None:
    spec = GemmSpec(m=64, alpha=2.0, beta=1.0, a_order="col", c_order="col", multiple_of=(1, 8, 1))
    text = render_module(driver.emit(spec, Schedule()))
    for line in (
        "(a, b, c, queue=None):",
        '"""C = 2 * A @ B + C.',
        "if m != 64:",
        "if n % 8:",
        "np.asfortranarray(a)",
        "pitch(out, 1)",
    ):
        assert line in text
    compile(text, "module", "exec")


def test_generated_kernels_are_importable(rng: np.random.Generator) -> None:
    import gemmgen.generated.opencl as opencl

    for name in opencl.__all__:
        assert getattr(opencl, name).source.name == name
    assert set(opencl.__all__) <= set(dir(opencl))
    with pytest.raises(AttributeError, match="no kernel"):
        opencl.nothing_of_the_kind  # noqa: B018


@pytest.mark.parametrize("device", DEVICES[:1])
def test_a_generated_kernel_multiplies(device: DeviceInfo, rng: np.random.Generator) -> None:
    import gemmgen.generated.opencl as opencl

    if not opencl.__all__:
        pytest.skip("generated/opencl holds no kernels yet: pytest tests/golden --update-golden")
    gemm = getattr(opencl, "naive" if "naive" in opencl.__all__ else opencl.__all__[0])
    x = rng.integers(-4, 5, (19, 19)).astype(np.float32)
    assert np.array_equal(gemm(x, x), x @ x)
    if "L3_SIMD_32x2_1x8" in opencl.__all__:
        with pytest.raises(AttributeError, match="did you mean L3_SIMD_32x2_1x8 or"):
            opencl.L3_SIMD_32x2_1x9  # noqa: B018


def test_an_assumption_beside_the_spec() -> None:
    a, b = np.ones((3, 5), np.float32), np.ones((5, 8), np.float32)
    kernel = gemmgen.compile(GemmSpec(), "naive", ld_multiple=4)
    assert kernel.source.spec.ld_multiple == 4
    assert (kernel(a, b) == 5).all()
    assert (gemmgen.compile(GemmSpec(ld_multiple=4), "naive", ld_multiple=1)(a, b) == 5).all()
    with pytest.raises(SpecError, match="multiples of 0 < 1"):
        gemmgen.compile(schedule="naive", ld_multiple=0)
