"""Epilogues as compiled code, on every OpenCL runtime and by SYCL, against float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

import gemmgen
from gemmgen import candidates, driver
from gemmgen.ir.dtypes import I8
from gemmgen.module import render_module
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import cuda_devices
from gemmgen.runtime.cuda_devices import target_of as cuda_target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.device.naive import CPUS, DEVICES
from tests.support import sycl
from tests.support.cuda import why_no_gpu
from tests.support.epilogues import Finished
from tests.support.opencl import compiled

if TYPE_CHECKING:
    from gemmgen.runtime.opencl_devices import DeviceInfo

#: The elements of a work-item are computed in text of their own each, which compilers take their time over.
SMALL = candidates.load("lds_8x8_16x16_k8").schedule.but(tile=(1, 2), thread_vector=(1, 2), group=(8, 8), name=None)
SIZES = [(1, 1, 1), (37, 22, 11), (130, 70, 33)]
#: Every operand, every function of numbers, C and where the element is.
EVERYTHING = (
    "scale",
    "row_bias",
    "clamp(-3, 3)",
    "residual",
    "gelu",
    "expr: max(acc, -abs(c)) + 0.25 * exp(tanh(acc)) - min(rsqrt(1 + row), sqrt(col))",
    "row_scale",
    "silu",
    "expr: log(3 + erf(acc)) if acc >= 0 else fma(acc, 2, 1)",
    "bias",
)


def check(kernel: object, spec: GemmSpec, rng: np.random.Generator) -> None:
    assert callable(kernel)
    for size in SIZES:
        for alpha, beta in ((1.0, 0.0), (-2.0, 3.0)):
            data = Finished.random(rng, spec, *size, alpha, beta)
            problem = data.problem
            residual = np.pad(data.operands["residual"], ((1, 1), (2, 3)), constant_values=np.nan)
            operands = {**data.operands, "residual": residual[1:-1, 2:-3]}
            data.check(kernel(problem.a, problem.b, problem.c.copy(), alpha=alpha, beta=beta, **operands))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("schedule", [SMALL.but(c_width=2), SMALL.but(split_k=3)], ids=["vectors", "split_k"])
def test_opencl(device: DeviceInfo, schedule: Schedule, rng: np.random.Generator) -> None:
    spec = GemmSpec(epilogue=EVERYTHING)
    check(compiled(spec, schedule, device), spec, rng)


@pytest.mark.parametrize("device", CPUS)
@pytest.mark.parametrize("name", ["cpu_6x64", "cpu_6x64_copied", "cpu_6x32_f64_k256", "cpu_4x4_along_k"])
def test_vectors(device: DeviceInfo, name: str, rng: np.random.Generator) -> None:
    """Where functions have vectors, and one by one; with a K of several blocks, whose sums wait."""
    preset = candidates.load(name)
    by_vectors = tuple(text for text in EVERYTHING if not text.startswith("expr"))
    for functions in (by_vectors, (*by_vectors, "expr: acc + row - 2 * col")):
        spec = replace(preset.spec, epilogue=functions)
        kernel = compiled(spec, preset.schedule.but(name=None, kc=min(16, preset.schedule.kc)), device)
        check(kernel, spec, rng)


@pytest.mark.parametrize("device", DEVICES)
def test_places_are_compared_as_whole_numbers(device: DeviceInfo) -> None:
    """Float32 has no 16,777,217: rows were told from each other up to 2^24 only."""
    spec = GemmSpec(epilogue=("expr: acc if row == 16777217 else 0", "expr: acc if 2 * row - col > 33554433 else 0"))
    kernel = compiled(spec, candidates.load("naive").schedule, device)
    result = kernel(np.ones((2**24 + 3, 1), np.float32), np.ones((1, 1), np.float32))
    assert np.array_equal(np.flatnonzero(result), [2**24 + 1])


@pytest.mark.parametrize("device", DEVICES)
def test_weights_in_int8(device: DeviceInfo, rng: np.random.Generator) -> None:
    """B is converted as it is loaded, by vectors and one by one."""
    spec = GemmSpec(b_dtype=I8, epilogue=("scale",))
    kernel = compiled(spec, SMALL, device)
    for size in SIZES:
        data = Finished.random(rng, spec, *size)
        data.check(kernel(data.problem.a, data.problem.b, scale=data.operands["scale"]))
    floats = np.ones((3, 3), np.float32)
    with pytest.raises(gemmgen.SpecError, match="b has dtype float32, not int8"):
        kernel(floats, floats, scale=floats[0])


#: A gate, with what may follow one; as a schedule by registers, and one by tiles in shared memory.
GATED, GATES = ("swiglu", "bias", "residual"), ("tile_8x8", "smem_8x8")


def check_gated(kernel: object, spec: GemmSpec, rng: np.random.Generator) -> None:
    """C holds NaN, which nothing reads; in whole numbers each half's column differs from its neighbours."""
    assert callable(kernel)
    for size in SIZES:
        data = Finished.random(rng, spec, *size, -2.0)
        b = np.asarray(data.problem.b, order="C" if spec.b_order == "row" else "F")
        data.check(kernel(data.problem.a, b, data.problem.c, alpha=-2.0, **data.operands))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("name", GATES)
def test_gates(device: DeviceInfo, name: str, order: Order, rng: np.random.Generator) -> None:
    spec, schedule = GemmSpec(b_order=order, epilogue=GATED), candidates.load(name).schedule
    check_gated(compiled(spec, schedule, device), spec, rng)
    exact = compiled(GemmSpec(b_order=order, epilogue=("expr: acc * 1024 + up",)), schedule, device)
    a = rng.integers(-3, 4, (37, 8)).astype(np.float32)
    b = np.asarray(rng.integers(-3, 4, (8, 42)).astype(np.float32), order="C" if order == "row" else "F")
    assert np.array_equal(exact(a, b), (a @ b)[:, :21] * 1024 + (a @ b)[:, 21:])
    with pytest.raises(gemmgen.SpecError, match="takes two halves of b's columns, but b is 8x41"):
        exact(a, np.asarray(b[:, :41], order="C" if order == "row" else "F"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", ["row", "col"])
def test_modules_of_gates(device: DeviceInfo, order: Order, rng: np.random.Generator) -> None:
    """C has half as many columns as B; the module took it to have as many."""
    import pyopencl as cl

    spec = GemmSpec(b_order=order, epilogue=("swiglu",))
    module: dict[str, Callable[..., NDArray[np.float32]]] = {}
    exec(render_module(driver.emit(spec, candidates.load("smem_8x8").schedule)), module)
    context = cl.Context([device.handle])
    smem_8x8, queue = module["smem_8x8"], cl.CommandQueue(context)
    for size in SIZES:
        data = Finished.random(rng, spec, *size)
        data.check(smem_8x8(data.problem.a, data.problem.b, queue=queue))
    a, b = np.ones((37, 43), np.float32), np.ones((43, 81), np.float32)
    with pytest.raises(ValueError, match="swiglu takes two halves of b's columns, but b has 81: pass an even number"):
        smem_8x8(a, b, queue=queue)
    with pytest.raises(ValueError, match=re.escape("b has shape (42, 80), not (43, 80)")):
        smem_8x8(a, b[1:, 1:], queue=queue)


@pytest.mark.parametrize("device", DEVICES)
def test_batches_share_vectors(device: DeviceInfo, rng: np.random.Generator) -> None:
    """A residual is one for each product, or one for all."""
    spec = GemmSpec(epilogue=("bias", "residual", "relu"), batched=True)
    kernel = compiled(spec, candidates.load("naive").schedule, device)
    a, b = rng.integers(-4, 5, (3, 17, 5)).astype(np.float32), rng.integers(-4, 5, (5, 9)).astype(np.float32)
    bias, each = np.arange(9, dtype=np.float32), rng.integers(-9, 10, (3, 17, 9)).astype(np.float32)
    for residual in (each, each[:1], each[1]):
        expected = np.maximum(a @ b + bias + residual, 0)
        assert np.array_equal(kernel(a, b, bias=bias, residual=residual), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_of_the_device(device: DeviceInfo, rng: np.random.Generator) -> None:
    import pyopencl.array as cl_array

    spec = GemmSpec(epilogue=("bias", "residual"))
    kernel = compiled(spec, candidates.load("naive").schedule, device)
    data = Finished.random(rng, spec, 19, 13, 8)
    a, b = (cl_array.to_device(kernel.queue, x) for x in (data.problem.a, data.problem.b))
    operands = {name: cl_array.to_device(kernel.queue, x) for name, x in data.operands.items()}
    data.check(kernel(a, b, bias=operands["bias"], residual=operands["residual"]).get())
    with pytest.raises(gemmgen.SpecError, match="arrays of two kinds are mixed"):
        kernel(a, b, bias=data.operands["bias"], residual=operands["residual"])
    with pytest.raises(TypeError, match="unexpected keyword argument 'biased'"):
        kernel(a, b, biased=operands["bias"])


@pytest.mark.skipif(why_no_gpu() is not None, reason=str(why_no_gpu()))
@pytest.mark.parametrize("schedule", [SMALL.but(c_width=2), SMALL.but(split_k=3)], ids=["vectors", "split_k"])
def test_cuda(schedule: Schedule, rng: np.random.Generator) -> None:
    import cupy

    spec, info = GemmSpec(epilogue=EVERYTHING), cuda_devices()[0]
    kernel = CudaKernel.from_source(driver.emit(spec, schedule, "cuda", cuda_target(info)), info)
    for size in SIZES:
        data = Finished.random(rng, spec, *size, -2.0, 3.0)
        a, b, c = (cupy.asarray(x) for x in (data.problem.a, data.problem.b, data.problem.c))
        operands = {name: cupy.asarray(x) for name, x in data.operands.items()}
        data.check(kernel(a, b, c, alpha=-2.0, beta=3.0, **operands).get())


@sycl.needs_device
def test_sycl(rng: np.random.Generator) -> None:
    spec = GemmSpec(epilogue=EVERYTHING)
    check(gemmgen.compile(spec, SMALL.but(split_k=3), backend="sycl"), spec, rng)
    weights = GemmSpec(b_dtype=I8, epilogue=("scale",))
    data = Finished.random(rng, weights, *SIZES[-1])
    gated = GemmSpec(epilogue=GATED)
    check_gated(gemmgen.compile(gated, "smem_8x8", backend="sycl"), gated, rng)
    kernel = gemmgen.compile(weights, SMALL, backend="sycl")
    data.check(kernel(data.problem.a, data.problem.b, scale=data.operands["scale"]))
