"""Kernels with Khronos' sub-groups on a device whose compiler may choose their size."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from gemmgen import driver, presets
from gemmgen.errors import DeviceError
from gemmgen.ir.target import TARGETS
from gemmgen.module import render_module
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES

REQUIRED = "#ifdef cl_intel_required_subgroup_size"
KHR = [
    param
    for param in DEVICES
    if isinstance(device := param.values[0], DeviceInfo)
    and "cl_khr_subgroup_shuffle" in device.handle.extensions.split()
]


def source(name: str = "L3_SIMD_8x4_8x8") -> Source:
    schedule = replace(presets.load("L3_SIMD_8x4_8x8").schedule, name=name)
    return driver.emit(GemmSpec(), schedule, "opencl", TARGETS["khr"])


def free(made: Source) -> Source:
    """As a compiler without the extension sees it."""
    assert REQUIRED in made.text
    return replace(made, text=made.text.replace(REQUIRED, "#ifdef missing_extension"))


def chosen(device: DeviceInfo) -> int:
    """What the device's compiler chooses for this kernel."""
    made = source()
    context = cl.Context([device.handle])  # Intel's programs don't keep it
    program = cl.Program(context, free(made).text).build(options=list(made.build_options))
    kernel, query = cl.Kernel(program, "L3_SIMD_8x4_8x8"), cl.kernel_sub_group_info.MAX_SUB_GROUP_SIZE_FOR_NDRANGE
    size = kernel.get_sub_group_info(device.handle, query, [8, 8])
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize("device", KHR)
def test_the_size_is_required_where_that_is_possible(device: DeviceInfo, rng: np.random.Generator) -> None:
    a, b = (rng.integers(-3, 4, size).astype(np.float32) for size in ((45, 37), (37, 61)))
    assert (CompiledKernel.from_source(source(), device)(a, b) == a @ b).all()


@pytest.mark.parametrize("device", KHR)
def test_by_hand_all_of_c_becomes_nan(device: DeviceInfo) -> None:
    assert chosen(device) != 8, "this test needs a compiler that chooses another size"
    made, (m, n, k) = free(source()), (45, 61, 37)
    context = cl.Context([device.handle])
    queue = cl.CommandQueue(context)
    kernel = cl.Kernel(cl.Program(context, made.text).build(options=list(made.build_options)), "L3_SIMD_8x4_8x8")
    c = np.full((m, n + 3), 7, np.float32)
    a, b, given = (
        cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
        for x in (np.ones((m, k), np.float32), np.ones((k, n), np.float32), c)
    )
    sizes = [np.int32(x) for x in (m, n, k)]
    f1, f0 = np.float32(1), np.float32(0)
    args = (*sizes, f1, a, np.int32(k), b, np.int32(n), f0, given, np.int32(n + 3))
    kernel(queue, ((n + 31) // 32 * 8, (m + 63) // 64 * 8), (8, 8), *args)
    cl.enqueue_copy(queue, c, given)
    assert np.isnan(c[:, :n]).all()
    assert (c[:, n:] == 7).all()


@pytest.mark.parametrize("device", KHR)
def test_the_runtime_refuses_with_both_numbers(device: DeviceInfo) -> None:
    with pytest.raises(DeviceError, match=f"written for sub-groups of 8, but .* compiled it for {chosen(device)}"):
        CompiledKernel.from_source(free(source()), device)


@pytest.mark.parametrize("device", KHR)
def test_the_python_module_refuses_with_both_numbers(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = render_module(source("by_lanes"))
    assert 'EXTENSIONS = ["cl_khr_subgroups", "cl_khr_subgroup_shuffle"]' in text
    (tmp_path / "by_lanes.py").write_text(text.replace(REQUIRED, "#ifdef missing_extension"))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("by_lanes", None)
    from by_lanes import by_lanes  # type: ignore[import-not-found]

    context = cl.Context([device.handle])
    queue = cl.CommandQueue(context)
    with pytest.raises(ValueError, match=f"written for sub-groups of 8, but .* makes them of {chosen(device)}"):
        by_lanes(np.ones((9, 9), np.float32), np.ones((9, 9), np.float32), queue=queue)
