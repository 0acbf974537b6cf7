"""Matrices that span more than 2^31 elements, on CPU devices: memory that is mostly never touched."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from numpy.typing import NDArray

import gemmgen
from gemmgen import GemmSpec, presets
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import F16, I8
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from tests.device.naive import devices_that

Array = NDArray[np.generic]
FAR = 2**30 + 8
SCHEDULE = presets.load("naive").schedule

#: Elements of up to 2 bytes, two lines of them beside one another; memory that other kinds of devices would copy.
pytestmark = pytest.mark.parametrize(
    "device", devices_that(lambda device: device.type == "cpu" and device.handle.max_mem_alloc_size >= 5 * FAR)
)


def lines(rows: int, cols: int, apart: int, dtype: type[np.generic]) -> Array:
    """A matrix whose lines lie far apart, in pages of its own that come as they are touched."""
    elements = (rows - 1) * apart + cols
    size = elements * np.dtype(dtype).itemsize
    memory = np.frombuffer(mmap.mmap(-1, size), dtype)
    return np.lib.stride_tricks.as_strided(memory, (rows, cols), (apart * memory.itemsize, memory.itemsize))


def test_a_and_b_beyond_2_31_elements(device: DeviceInfo, rng: np.random.Generator) -> None:
    a, b = lines(3, 5, FAR, np.int8), lines(5, 4, FAR // 2 + 4, np.int8)
    for matrix in (a, b):
        matrix[...] = rng.integers(-128, 128, matrix.shape)
    expected = a.astype(np.int32) @ b.astype(np.int32)
    gemm = gemmgen.compile(GemmSpec(dtype=I8, wide=True), SCHEDULE, device=device.handle)
    assert np.array_equal(gemm(a, b), expected)


def test_c_beyond_2_31_elements(device: DeviceInfo, rng: np.random.Generator) -> None:
    c = lines(3, 4, FAR, np.float16)
    a, b = (rng.integers(-8, 9, shape).astype(np.float16) for shape in ((3, 5), (5, 4)))
    c[...] = 1
    gemm = gemmgen.compile(GemmSpec(dtype=F16, wide=True), SCHEDULE, device=device.handle)
    assert gemm(a, b, c, beta=1.0) is c
    assert np.array_equal(c, a @ b + 1)


def test_a_call_that_needs_it_gets_it(device: DeviceInfo, rng: np.random.Generator) -> None:
    a, b = lines(3, 5, FAR, np.int8), rng.integers(-128, 128, (5, 4)).astype(np.int8)
    a[...] = rng.integers(-128, 128, a.shape)
    gemm = gemmgen.compile(GemmSpec(dtype=I8), SCHEDULE, device=device.handle)
    for _ in range(2):
        assert np.array_equal(gemm(a, b), a.astype(np.int32) @ b.astype(np.int32))
    assert len(gemm.time(a, b, iterations=2)) == 2
    assert gemm.source.span == 2**31
    assert gemm.wider is not None and gemm.wider() is gemm.wider() and gemm.wider().source.span == 2**63


def test_a_kernel_without_a_twin_refuses(device: DeviceInfo) -> None:
    a = lines(3, 5, FAR, np.int8)
    source = gemmgen.emit(GemmSpec(dtype=I8), SCHEDULE, target=target_of(device.handle))
    with pytest.raises(SpecError, match=r"a spans 2147483669 elements .* use GemmSpec\(wide=True\), --wide"):
        CompiledKernel.from_source(source, device)(a, np.zeros((5, 4), np.int8))
