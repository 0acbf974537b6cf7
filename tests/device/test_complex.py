"""Complex elements on the devices of this machine, against complex128; and that compilers take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import C64, C128, DType
from gemmgen.methods import defaults
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES, devices_that, needs_device
from tests.support.cuda import why_no_gpu
from tests.support.opencl import compiled
from tests.support.problems import Problem
from tests.support.sycl import device_compile, host_check
from tests.support.sycl import devices as sycl_devices
from tests.support.sycl import needs_device as needs_sycl
from tests.support.tools import clang, nvcc

if TYPE_CHECKING:
    from gemmgen.runtime.opencl import CompiledKernel
    from gemmgen.runtime.opencl_devices import DeviceInfo

ALPHA, BETA = -2 + 0.5j, 3 - 1j
#: Small, so that compilers are quick: single loads; local memory by vectors of every kind, through registers too.
SCHEDULES: dict[str, Schedule] = {
    "naive": defaults("naive", (1, 1), (4, 4)),
    "slm": defaults("slm", (4, 4), (4, 4), 4).but(
        a=Operand("local", 2, transposed=True, pad=2),
        b=Operand("local", 4),
        stages=2,
        prefetch=True,
        c_width=4,
    ),
}
BOTH = [C64, C128]
#: As CUDA has them: by copies of 8 or 16 bytes, and the parts of K added up by a second kernel.
CUDA: dict[str, Schedule] = {
    **SCHEDULES,
    "asynchronous": SCHEDULES["slm"].but(
        prefetch=False,
        split_k=2,
        a=Operand("local", 4, transposed=True, async_copy=True),
        b=Operand("local", 4, async_copy=True),
    ),
}
CASES = [("naive", C128), ("slm", C64), ("slm", C128)]


def check(gemm: CompiledKernel | SyclKernel, spec: GemmSpec, rng: np.random.Generator) -> None:
    """A ragged product, and one with what is not given."""
    problem = Problem.of(rng, spec, 33, 17, 9, ALPHA, BETA)
    problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=ALPHA, beta=BETA))
    problem = Problem.of(rng, spec, 20, 30, 21, 1.0, 0.0)
    problem.check(gemm(problem.a, problem.b))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "dtype"), CASES[:-1], ids=str)
def test_opencl(name: str, dtype: DType, device: DeviceInfo, rng: np.random.Generator) -> None:
    check_opencl(name, dtype, device, rng)


# Devices without sub-groups take seconds to compile it, and have run both halves of it above.
@pytest.mark.parametrize("device", devices_that(lambda device: "sub_groups" in device.features))
def test_opencl_by_local_memory(device: DeviceInfo, rng: np.random.Generator) -> None:
    check_opencl(*CASES[-1], device, rng)


def check_opencl(name: str, dtype: DType, device: DeviceInfo, rng: np.random.Generator) -> None:
    """One of both operands conjugated, or both."""
    spec = GemmSpec(dtype=dtype, conj_a=dtype == C64, conj_b=True)
    check(compiled(spec, SCHEDULES[name], device), spec, rng)


@needs_device
def test_arrays_that_stand_on_half_an_element_only(rng: np.random.Generator) -> None:
    """NumPy's unit of complex128 is 8 bytes; a kernel's loads are of 16, so that such arrays are copied."""
    from gemmgen.runtime.opencl import CompiledKernel

    spec = GemmSpec(dtype=C128)
    gemm = CompiledKernel(driver.emit(spec, SCHEDULES["slm"]))
    problem = Problem.of(rng, spec, 12, 16, 8, 1.0, BETA)

    def shifted(matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> object:
        memory = np.zeros(2 * matrix.size + 2)
        start = 1 if memory.ctypes.data % 16 == 0 else 0
        view = memory[start : start + 2 * matrix.size].view(np.complex128).reshape(matrix.shape)
        view[...] = matrix
        assert view.ctypes.data % 16 == 8
        return view

    problem.check(gemm(shifted(problem.a), shifted(problem.b), shifted(problem.c), beta=BETA))  # type: ignore[arg-type]


@pytest.mark.skipif(why_no_gpu() is not None, reason=str(why_no_gpu()))
@pytest.mark.parametrize("dtype", BOTH, ids=str)
@pytest.mark.parametrize("name", CUDA)
def test_cuda(name: str, dtype: DType, rng: np.random.Generator) -> None:
    """Ragged and whole, of both orders; where K is in parts, through a workspace of complex numbers."""
    import cupy

    info = pick()
    for spec in (GemmSpec(dtype=dtype, conj_b=True), GemmSpec(dtype=dtype, a_order="col", conj_a=True)):
        gemm = CudaKernel.from_source(driver.emit(spec, CUDA[name], "cuda", target_of(info)), info)
        for size, alpha, beta in (((33, 17, 9), ALPHA, BETA), ((64, 64, 32), 1.0, 0.0)):
            problem = Problem.of(rng, spec, *size, alpha, beta)
            a = cupy.array(problem.a, order="C" if spec.a_order == "row" else "F")
            b, c = cupy.asarray(problem.b), cupy.asarray(problem.c)
            problem.check(gemm(a, b, c, alpha=alpha, beta=beta).get())


@pytest.mark.parametrize("device", sycl_devices())
@pytest.mark.parametrize(("name", "dtype"), CASES[:2], ids=str)
def test_sycl(name: str, dtype: DType, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    spec = GemmSpec(dtype=dtype, conj_b=True)
    check(SyclKernel(driver.emit(spec, SCHEDULES[name], "sycl", form="kernel"), device), spec, rng)


@needs_sycl
def test_sycl_headers_are_taken_without_warnings(tmp_path: Path) -> None:
    """By g++, both in one program; the device's side by DPC++, one of them."""
    sources = [
        driver.emit(GemmSpec(dtype=dtype, conj_a=True), replace(SCHEDULES["slm"], name=f"slm_{dtype}"), "sycl")
        for dtype in BOTH
    ]
    file = tmp_path / "all.cpp"
    file.write_text("\n".join(source.text for source in sources))
    host_check(file)
    device_compile(sources[1])


@needs_device
def test_pyopencl_arrays() -> None:
    import pyopencl.array as cl_array

    from gemmgen.runtime.opencl import CompiledKernel

    gemm = CompiledKernel(driver.emit(GemmSpec(dtype=C64, conj_a=True), SCHEDULES["naive"]))
    a, b = np.full((5, 6), 1 + 2j, np.complex64), np.full((6, 7), 3j, np.complex64)
    there = gemm(cl_array.to_device(gemm.queue, a), cl_array.to_device(gemm.queue, b), alpha=1j)
    assert there.dtype == np.complex64
    assert np.array_equal(there.get(), 1j * (a.conj() @ b))


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_clang_takes_them_without_warnings(dtype: DType, tmp_path: Path) -> None:
    for name, schedule in SCHEDULES.items():
        source = driver.emit(GemmSpec(dtype=dtype, conj_a=True, alpha=1 + 2j, beta=-1.5), schedule)
        file = tmp_path / f"{name}.cl"
        file.write_text(source.text)
        clang(file, *source.build_options)


@pytest.mark.parametrize("dtype", BOTH, ids=str)
def test_nvcc_takes_them_without_warnings_or_spills(dtype: DType, tmp_path: Path) -> None:
    """By vectors where two fit into one."""
    spec = GemmSpec(dtype=dtype, a_order="col", conj_a=True)
    both = (replace(CUDA["slm"], name="plain"), replace(CUDA["asynchronous"], name="asynchronous"))
    texts = [driver.emit(spec, schedule, "cuda").text for schedule in both]
    assert "cp.async" in texts[1]
    for text in texts:
        assert " 0 bytes spill stores" in nvcc(text, "sm_90", tmp_path)
