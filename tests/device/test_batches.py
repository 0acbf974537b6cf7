"""Batches and packed matrices on the devices of this machine: against float64, with gaps of every kind, in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.errors import SpecError
from gemmgen.runtime import opencl_arrays
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES
from tests.support import sycl
from tests.support.batches import SIZE, check, check_batches, operands

BATCHED = GemmSpec(batched=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["naive", "lds_8x8_16x16_k16_double", "smem_8x8_double_packed"])
def test_opencl(name: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    source = driver.emit(BATCHED, presets.load(name).schedule, target=target_of(device.handle))
    check_batches(CompiledKernel.from_source(source, device), rng)


@pytest.mark.parametrize("device", DEVICES)
def test_where_nothing_is_shared(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """Devices with memory of their own get copies without gaps."""
    monkeypatch.setattr(opencl_arrays, "way_of", lambda _: "copy")
    source = driver.emit(BATCHED, presets.load("naive").schedule, target=target_of(device.handle))
    check_batches(CompiledKernel.from_source(source, device), rng)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_on_the_device(device: DeviceInfo, rng: np.random.Generator) -> None:
    import pyopencl.array as cl_array

    source = driver.emit(BATCHED, presets.load("naive").schedule, target=target_of(device.handle))
    gemm = CompiledKernel.from_source(source, device)
    a, b = operands(rng)
    there = [cl_array.to_device(gemm.queue, x) for x in (a, b)]
    result = gemm(*there)
    assert result.shape == (SIZE[0], SIZE[1], SIZE[2])
    check(a, b, result.get())
    # Views that begin where no sub-buffer can are gathered matrix by matrix.
    wide = cl_array.to_device(gemm.queue, np.pad(a, ((0, 0), (0, 0), (1, 2))))
    check(a, b, gemm(wide[:, :, 1:-2], there[1]).get())


@sycl.needs_device
@pytest.mark.parametrize("name", ["naive", "smem_8x8_double_packed"])
def test_sycl(name: str, rng: np.random.Generator) -> None:
    gemm = gemmgen.compile(BATCHED, name, backend="sycl")
    check_batches(gemm, rng)


@pytest.mark.parametrize("backend", ["opencl", pytest.param("sycl", marks=sycl.needs_device)])
def test_lines_that_break_an_assumption(backend: Literal["opencl", "sycl"], rng: np.random.Generator) -> None:
    """The matrices of NumPy's batches are copied, and a matrix that serves all of them once."""
    gemm = gemmgen.compile(replace(BATCHED, ld_multiple=4), "naive", backend=backend)
    a, b = operands(rng)
    for left, right in ((a, b), (a[0], b), (a, b[1]), (a[:, :, :28], b[:, :28])):
        check(left, right, gemm(left, right))


def test_bad_batches(rng: np.random.Generator) -> None:
    gemm = gemmgen.compile(BATCHED, "naive")
    a, b = operands(rng)
    for arguments, said in (
        ((a, b[:3]), "the batch has 5 of a, 3 of b: pass as many of each; of a and b, one may serve all"),
        ((a, b, np.empty((2, 37, 43), np.float32)), "the batch has 5 of a, 5 of b, 2 of c"),
        ((a[::-1], b), "a's matrices are -4292 bytes apart: pass a copy of it"),
        ((a[0], b[0], np.empty((37, 43), np.float32)), "c has shape 37x43, so 2 dimensions, not 3"),
        ((a[None], b), "a has shape 1x5x37x29, so 4 dimensions, not 2 or 3: pass a.reshape(batch, rows, cols)"),
    ):
        with pytest.raises(SpecError) as error:
            gemm(*arguments)
        assert said in str(error.value)
    shared = np.lib.stride_tricks.as_strided(np.empty((37, 43), np.float32), (5, 37, 43), (0, 172, 4))
    with pytest.raises(SpecError, match="elements of c share memory: pass an array that has each of its own"):
        gemm(a, b, shared)
    with pytest.raises(SpecError, match="or compile a GemmSpec with batched=True"):
        gemmgen.compile(GemmSpec(), "naive")(a, b)
