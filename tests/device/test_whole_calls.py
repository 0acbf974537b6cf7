"""The rules of a whole call, as BLAS has them: sizes of zero, what is not read, on every runtime of the machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import gemmgen
from gemmgen import presets
from gemmgen.errors import ScheduleError
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES
from tests.support.sycl import why_no_device

F = npt.NDArray[np.float32]

#: Loads of single elements, of sub-groups, of images, and a kernel before the product.
PRESETS = ("naive", "L3_SIMD_32x2_1x8", "block_read_32x1_1x8", "smem_8x8_double_packed", "sg16_block_16x1_split4")


def zeros(*shape: int) -> F:
    return np.zeros(shape, np.float32)


def full(value: float, *shape: int) -> F:
    return np.full(shape, value, np.float32)


def compiled(spec: GemmSpec, preset: str, device: DeviceInfo) -> CompiledKernel:
    return gemmgen.compile(spec, preset, device=device)


def check_whole_call(gemm: CompiledKernel | gemmgen.SyclKernel) -> None:
    nothing = gemm(zeros(5, 0), zeros(0, 3), alpha=-1)
    assert (nothing == 0).all() and not np.signbit(nothing).any()
    c = full(2, 5, 3)
    assert gemm(zeros(5, 0), zeros(0, 3), c, alpha=np.nan, beta=0.5) is c
    assert (c == 1).all()
    spoilt = full(np.nan, 5, 7), full(np.inf, 7, 3)
    c = full(np.nan, 5, 3)
    assert (gemm(*spoilt, c, alpha=0) == 0).all()
    c = full(3, 5, 3)
    assert (gemm(*spoilt, c, alpha=0, beta=2) == 6).all()
    assert gemm(zeros(0, 4), zeros(4, 3)).shape == (0, 3)
    assert gemm(zeros(3, 4), zeros(4, 0), alpha=0).shape == (3, 0)
    assert gemm(zeros(0, 0), zeros(0, 0)).shape == (0, 0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("preset", PRESETS)
def test_zeros_and_what_is_not_read(device: DeviceInfo, preset: str) -> None:
    schedule = presets.load(preset).schedule
    if schedule.sub_group is not None and "sub_groups" not in device.features:
        with pytest.raises(ScheduleError, match="no sub-groups"):
            compiled(GemmSpec(), preset, device)
        return
    check_whole_call(compiled(GemmSpec(), preset, device))


@pytest.mark.skipif(bool(why_no_device()), reason=why_no_device() or "")
def test_the_same_on_sycl() -> None:
    gemm = gemmgen.compile(GemmSpec(), "lds_8x8_16x16_k8", backend="sycl")
    check_whole_call(gemm)
    assert (np.asarray(gemm(gemm.empty((5, 0)), gemm.empty((0, 3)))) == 0).all()
    assert gemm(gemm.empty((0, 4)), gemm.empty((4, 3))).shape == (0, 3)
    c = full(3, 5, 3)
    fixed = gemmgen.compile(GemmSpec(k=7), "lds_8x8_16x16_k8", backend="sycl")
    assert (fixed(full(np.nan, 5, 7), full(np.inf, 7, 3), c, alpha=0, beta=2) == 6).all()


@pytest.mark.parametrize("device", DEVICES)
def test_alpha_zero_where_k_is_folded(device: DeviceInfo) -> None:
    gemm, c = compiled(GemmSpec(k=7), "lds_8x8_16x16_k8", device), full(3, 5, 3)
    assert (gemm(full(np.nan, 5, 7), full(np.inf, 7, 3), c, alpha=0, beta=2) == 6).all()
    assert len(gemm.time(full(np.nan, 5, 7), full(np.inf, 7, 3), c, alpha=0, iterations=2)) == 2
    assert (c == 0).all()
    assert (gemm(full(1, 5, 7), full(1, 7, 3), c) == 7).all()


@pytest.mark.parametrize("device", DEVICES)
def test_pyopencl_arrays_without_elements(device: DeviceInfo) -> None:
    gemm = compiled(GemmSpec(), "naive", device)
    queue = cl.CommandQueue(gemm.queue.context)
    a, b = cl_array.zeros(queue, (5, 0), np.float32), cl_array.zeros(queue, (0, 3), np.float32)
    result, event = gemm(a, b, return_event=True)
    event.wait()
    assert (result.get() == 0).all()
    spoilt = [cl_array.to_device(queue, x) for x in (full(np.nan, 5, 7), full(np.nan, 7, 3))]
    assert (gemm(*spoilt, alpha=0).get() == 0).all()
    result, event = gemm(b, cl_array.zeros(queue, (3, 4), np.float32), return_event=True)
    event.wait()
    assert result.shape == (0, 4)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_without_elements(device: DeviceInfo) -> None:
    gemm = compiled(GemmSpec(batched=True), "lds_8x8_16x16_k8", device)
    assert gemm(zeros(0, 4, 5), zeros(5, 3)).shape == (0, 4, 3)
    assert gemm(zeros(2, 0, 4), zeros(2, 4, 3)).shape == (2, 0, 3)
    c = full(3, 2, 4, 3)
    assert (gemm(zeros(2, 4, 0), zeros(0, 3), c, beta=2) == 6).all()
