"""Element types other than float32 on the devices of this machine, against float64; and that compilers take them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest

import gemmgen
from gemmgen import driver
from gemmgen.api.kernels import Wanted, kernel_for
from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.dtypes import BF16, F16, F32, F64, I4, I8, I32, I64, DType
from gemmgen.ir.numeric import in_pairs, numpy_dtype
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_devices import DeviceInfo, target_of
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.sycl_devices import SyclDeviceInfo
from gemmgen.schedule import AddressPayloads, Operand, Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec, Order
from tests.device.naive import DEVICES, devices_that
from tests.support.problems import Matrix, Problem
from tests.support.sycl import device_compile, spirv
from tests.support.sycl import devices as sycl_devices
from tests.support.tools import clang, nvcc

PAIRS: list[tuple[DType, DType]] = [
    (F64, F64),
    (F16, F16),
    (F16, F32),
    (BF16, BF16),
    (BF16, F32),
    (I8, I32),
    (I64, I64),
]
#: How SPIR-V declares that a module has floats of 16 bits: OpCapability Float16Buffer, or Float16.
HALVES = [b"".join(word.to_bytes(4, "little") for word in (2 << 16 | 17, number)) for number in (8, 9)]
SPECS = [GemmSpec(dtype=dtype, c_dtype=result) for dtype, result in PAIRS]


#: Small, so that compilers are quick: single loads; a sub-group's shared registers; local memory by vectors, twice.
SCHEDULES = {
    "naive": defaults("naive", (1, 1), (4, 4)),
    "simd": defaults("simd", (2, 1), (1, 8), 8),
    "slm": defaults("slm", (4, 4), (4, 4), 4).but(b=Operand("local", 4), stages=2, c_width=4),
}


def label(spec: object) -> str:
    return f"{spec.dtype}-{spec.result}" if isinstance(spec, GemmSpec) else str(spec)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_opencl_naive(spec: GemmSpec, device: DeviceInfo, rng: np.random.Generator) -> None:
    check_opencl("naive", spec, device, rng)


# Devices without sub-groups take ten times as long to compile what goes by local memory.
@pytest.mark.parametrize("device", devices_that(lambda device: "sub_groups" in device.features))
@pytest.mark.parametrize("spec", SPECS, ids=label)
@pytest.mark.parametrize("name", ["simd", "slm"])
def test_opencl(name: str, spec: GemmSpec, device: DeviceInfo, rng: np.random.Generator) -> None:
    check_opencl(name, spec, device, rng)


def check_opencl(name: str, spec: GemmSpec, device: DeviceInfo, rng: np.random.Generator) -> None:
    """Ragged products, with C read and not."""
    schedule = SCHEDULES[name]
    gemm = CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
    for size in ((33, 17, 9), (65, 70, 37)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=3))
    problem = Problem.of(rng, spec, 20, 30, 40, 1.0, 0.0)
    problem.check(gemm(problem.a, problem.b))


@pytest.mark.parametrize("device", DEVICES)
def test_rounding_is_numpys(device: DeviceInfo) -> None:
    """Of every 16-bit pattern, and of floats between them: ties to even, overflow, infinities, zeros; NaN stays NaN."""
    for dtype in (F16, BF16):
        spec = GemmSpec(dtype=dtype, beta=0.0, alpha=1.0)
        rounds_as_numpy(CompiledKernel.from_source(driver.emit(spec, SCHEDULES["naive"]), device), dtype)


def rounds_as_numpy(gemm: CompiledKernel | SyclKernel, dtype: DType) -> None:
    """Each pattern times 1, times the number after it, and times two that take it to what is below normal numbers."""
    known = numpy_dtype(dtype)
    column = np.arange(2**16, dtype=np.uint16).view(known).reshape(-1, 1)
    for factor in (1.0, 1 + 2.0 ** -(dtype.digits - 1), 2.0**-11, 3 * 2.0**-13):
        scale = np.array([[factor]], known)
        got = gemm(column, scale)
        assert isinstance(got, np.ndarray)
        with np.errstate(all="ignore"):
            expected = (column.astype(np.float32) * scale.astype(np.float32)).astype(known)
        assert np.array_equal(got.astype(np.float32), expected.astype(np.float32), equal_nan=True)


def test_pyopencl_arrays_of_other_types() -> None:
    import pyopencl.array as cl_array

    spec = GemmSpec(dtype=F16, c_dtype=F32)
    gemm = CompiledKernel(driver.emit(spec, SCHEDULES["naive"]))
    a, b = np.full((5, 6), 2, np.float16), np.full((6, 7), 3, np.float16)
    there = gemm(cl_array.to_device(gemm.queue, a), cl_array.to_device(gemm.queue, b))
    assert there.dtype == np.float32
    assert np.array_equal(there.get(), np.full((5, 7), 36.0))


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_without_doubles_is_told_before_it_compiles(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No device here lacks them, so that one is described as if it did."""
    source = driver.emit(GemmSpec(dtype=F64), SCHEDULES["naive"])
    monkeypatch.setattr("gemmgen.runtime.opencl_devices.features_of", lambda _: device.features - {"fp64"})
    with pytest.raises(DeviceError, match=r"needs fp64 \(arithmetic in float64\), which .* lacks"):
        CompiledKernel.from_source(source, device)


@pytest.mark.parametrize("device", sycl_devices())
@pytest.mark.parametrize("spec", [SPECS[i] for i in (0, 1, 4, 5)], ids=label)
def test_sycl(spec: GemmSpec, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    source = driver.emit(spec, SCHEDULES["slm"], "sycl", form="kernel")
    gemm = SyclKernel(source, device)
    problem = Problem.of(rng, spec, 33, 17, 9, -2.0, 3.0)
    problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=3))


def has_halves(source: Source) -> bool:
    """Whether the device must have floats of 16 bits."""
    return any(word in module for module in spirv(device_compile(source)) for word in HALVES)


@pytest.mark.parametrize("device", sycl_devices())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_sycl_by_bits(dtype: DType, device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    """16-bit floats in integers: rounded as NumPy does, by vectors and one by one; the device need not have them."""
    spec = GemmSpec(dtype=dtype, beta=0.0, alpha=1.0, emulate=True)
    rounds_as_numpy(SyclKernel(driver.emit(spec, SCHEDULES["naive"], "sycl", form="kernel"), device), dtype)
    spec = replace(spec, alpha=None, beta=None)
    source = driver.emit(spec, SCHEDULES["slm"], "sycl", form="kernel")
    problem = Problem.of(rng, spec, 33, 17, 9, -2.0, 3.0)
    problem.check(SyclKernel(source, device)(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=3))
    assert not has_halves(source)
    if dtype == F16:
        plain = driver.emit(replace(spec, emulate=False), SCHEDULES["slm"], "sycl", form="kernel")
        assert has_halves(plain)


@pytest.mark.parametrize("device", sycl_devices()[:1])
def test_gemm_by_bits(device: SyclDeviceInfo, rng: np.random.Generator) -> None:
    """Through the front door; the kernel is another one."""
    a, b = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((33, 20), (20, 17)))
    assert np.array_equal(gemmgen.gemm(a, b, backend="sycl", device=device.number, emulate=True), a @ b)
    lists = gemmgen.gemm([a, 2 * a], b, backend="sycl", device=device.number, emulate=True)
    assert np.array_equal(np.asarray(lists), [a @ b, 2 * a @ b])
    place, spec = device.number, GemmSpec(dtype=F16, c_dtype=F16, emulate=True)
    kernel: object = kernel_for(Wanted("sycl", place, spec, None, (33, 17, 20)))
    assert isinstance(kernel, SyclKernel) and "float_to_half_bits" in kernel.source.text
    # In OpenCL C they are kept so anyway.
    assert np.array_equal(gemmgen.gemm(a, b, emulate=True), a @ b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("spec", [SPECS[i] for i in (2, 4, 5)], ids=label)
def test_matrix_instructions(spec: GemmSpec, lanes: int, device: DeviceInfo, rng: np.random.Generator) -> None:
    """By the software that stands in for them: no device here has any."""
    schedule = defaults("dpas", (8, 2), (1, lanes), (lanes // 8) * (32 // spec.dtype.size), lanes)
    # The build option for this is Intel's GPUs' own: this device would refuse it.
    schedule = schedule.but(large_grf=lanes == 16)
    if "intel_sub_groups" not in device.features:
        with pytest.raises(ScheduleError, match="intel_sub_groups, sub_groups: use target intel"):
            driver.emit(spec, schedule, target=target_of(device.handle))
        return
    gemm = CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
    for size in ((33, 17, 9), (70, 45, 70)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=-2, beta=3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spec", [SPECS[i] for i in (2, 4, 5)], ids=label)
def test_matrix_instructions_on_2d_block_reads(spec: GemmSpec, device: DeviceInfo, rng: np.random.Generator) -> None:
    """By software, too: reads of whole lines, and where they lie as the hardware does not take them."""
    schedule = Schedule.of(tile=(8, 2), group=(2, 32), block_k=64, atom="dpas", block_2d=True, prefetch_distance=1)
    schedule = schedule.but(barrier=True, address_payloads="all", block_writes=spec.result.size == 4)
    spec = replace(spec, b_order="col" if spec.dtype == BF16 else "row")
    if "intel_sub_groups" not in device.features:
        with pytest.raises(ScheduleError, match="lacks block_read, sub_groups: use --backend sycl"):
            driver.emit(spec, schedule, target=target_of(device.handle))
        return
    gemm = CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
    for size in ((33, 80, 128), (17, 65, 99)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        of_b = np.asfortranarray(problem.b) if spec.b_order == "col" else problem.b
        problem.check(gemm(problem.a, of_b, problem.c.copy(), alpha=-2, beta=3))
        problem = Problem.of(rng, spec, *size, -2.0, 0.0)
        of_b = np.asfortranarray(problem.b) if spec.b_order == "col" else problem.b
        problem.check(gemm(problem.a, of_b, problem.c.copy(), alpha=-2, beta=0))


@pytest.mark.parametrize("device", devices_that(lambda device: "intel_sub_groups" in device.features))
@pytest.mark.parametrize("order", ["row", "col"])
def test_tf32_on_2d_block_reads(order: Order, device: DeviceInfo, rng: np.random.Generator) -> None:
    """By software: whole numbers of few bits."""
    spec = GemmSpec(b_order=order)
    schedule = Schedule.of(tile=(8, 2), group=(2, 32), block_k=32, atom="dpas", block_2d=True, prefetch_distance=1)
    schedule = schedule.but(tf32=True, address_payloads="all", block_writes=True)
    gemm = CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
    for size in ((33, 80, 128), (17, 65, 99)):
        m, n, k = size
        a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        c = rng.integers(-8, 9, (m, n)).astype(np.float32)
        of_b = np.asfortranarray(b) if order == "col" else b
        assert np.array_equal(gemm(a, of_b, c.copy(), alpha=-2, beta=3), -2 * (a @ b) + 3 * c)


@pytest.mark.parametrize("device", devices_that(lambda device: "intel_sub_groups" in device.features))
def test_int4_by_int8_on_2d_block_reads(device: DeviceInfo, rng: np.random.Generator) -> None:
    """By software: bytes of two neighbours along K, as they are stored."""
    spec = GemmSpec(dtype=I8, b_dtype=I4, b_order="col")
    schedule = Schedule.of(tile=(8, 2), group=(2, 32), block_k=64, atom="dpas", block_2d=True, prefetch_distance=1)
    schedule = schedule.but(address_payloads="all", block_writes=True)
    gemm = CompiledKernel.from_source(driver.emit(spec, schedule, target=target_of(device.handle)), device)
    for size in ((33, 80, 256), (17, 65, 99)):
        problem = Problem.of(rng, spec, *size, -2.0, 3.0)
        of_b = cast("Matrix", np.asfortranarray(in_pairs(problem.b, 0)))
        problem.check(gemm(problem.a, of_b, problem.c.copy(), alpha=-2, beta=3))


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_clang_takes_them_without_warnings(spec: GemmSpec, tmp_path: Path) -> None:
    for name, schedule in SCHEDULES.items():
        source = driver.emit(spec, schedule)
        file = tmp_path / f"{name}.cl"
        file.write_text(source.text)
        clang(file, *source.build_options)


@pytest.mark.parametrize("kept", get_args(AddressPayloads))
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("dtype", [F16, I8, I4], ids=str)
def test_clang_takes_2d_block_messages_without_warnings(
    dtype: DType, order: Order, kept: AddressPayloads, tmp_path: Path
) -> None:
    """By the extension, by functions of Intel's compiler, and in software."""
    schedule = Schedule.of(tile=(32, 4), group=(4, 32), block_k=128, atom="dpas", block_2d=True, large_grf=True)
    schedule = schedule.but(prefetch_distance=1, address_payloads=kept)
    spec = GemmSpec(dtype=I8, b_dtype=I4, b_order="col") if dtype == I4 else GemmSpec(dtype=dtype, b_order=order)
    source = driver.emit(spec, schedule, target=TARGETS["xe_hpc"])
    file = tmp_path / "x.cl"
    file.write_text(source.text)
    has = "-Dcl_intel_subgroup_matrix_multiply_accumulate=1"
    for given in ([has], [has, "-DGEMMGEN_NO_ADDRESS_PAYLOADS"], ["-DGEMMGEN_DPAS_SOFTWARE"]):
        clang(file, "-cl-std=CL2.0", *given)


@pytest.mark.parametrize("dtype", [F64, F16, BF16, I8], ids=str)
def test_nvcc_takes_them_without_warnings_or_spills(dtype: DType, tmp_path: Path) -> None:
    spec = GemmSpec(dtype=dtype, a_order="col", ld_multiple=8)
    slm = SCHEDULES["slm"]
    a, b = replace(slm.a, async_copy=True, transposed=True, width=4), replace(slm.b, async_copy=True)
    both = (replace(slm, name="plain"), slm.but(name="asynchronous", a=a, b=b))
    texts = [driver.emit(spec, schedule, "cuda").text for schedule in both]
    assert "cp.async" in texts[1]
    for text in texts:
        assert " 0 bytes spill stores" in nvcc(text, "sm_90", tmp_path)
