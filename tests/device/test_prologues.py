"""Prologues as compiled code, on every OpenCL runtime and by SYCL, against float64; and through `gemmgen.gemm`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import BF16, F32, I8
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import cuda_devices
from gemmgen.runtime.cuda_devices import target_of as cuda_target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES, needs_device
from tests.support import sycl
from tests.support.cuda import why_no_gpu
from tests.support.epilogues import Finished
from tests.support.opencl import compiled
from tests.support.problems import Matrix

if TYPE_CHECKING:
    from gemmgen.runtime.opencl_devices import DeviceInfo

A = "(a - a_shift) * a_scale * a_scale_k + a_shift_k * a_factor + 0.1 * row - 0.2 * k"
B = "b_factor * (b - b_shift_k) * b_scale / (1 + exp(-abs(b))) + b_scale_k - b_shift + 0.1 * col"
BOTH = GemmSpec(prologue_a=A, prologue_b=B, b_dtype=I8, epilogue=("bias",))
STAGED = presets.load("lds_8x8_16x16_k8").schedule.but(tile=(1, 4), thread_vector=(1, 4), group=(8, 8), name=None)
PACKED = STAGED.but(a=replace(STAGED.a, prepacked=True), b=replace(STAGED.b, prepacked=True))
SIZES = [(1, 1, 1), (37, 22, 11)]


def check(kernel: object, spec: GemmSpec, rng: np.random.Generator) -> None:
    assert callable(kernel)
    for size in SIZES:
        data = Finished.random(rng, spec, *size, -2.0)
        data.check(kernel(data.problem.a, data.problem.b, alpha=-2.0, **data.operands))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("schedule", [STAGED, PACKED.but(split_k=2)], ids=["staged", "packed"])
def test_opencl(device: DeviceInfo, schedule: Schedule, rng: np.random.Generator) -> None:
    check(compiled(BOTH, schedule, device), BOTH, rng)


@needs_device
def test_tiles(rng: np.random.Generator) -> None:
    """Weights in int8 with a scale for each 128x128, read as they are."""
    a, b = rng.standard_normal((5, 300), np.float32), rng.integers(-128, 128, (300, 200)).astype(np.int8)
    scales = rng.standard_normal((3, 2), np.float32)
    result = gemmgen.gemm(a, b, prologue_b="b * b_scale_128x128", b_scale_128x128=scales.ravel())
    each = np.repeat(np.repeat(scales, 128, axis=0), 128, axis=1)[:300, :200]
    assert np.allclose(np.asarray(result), a.astype(np.float64) @ (b * each.astype(np.float64)), rtol=1e-4, atol=1e-2)
    with pytest.raises(
        SpecError, match="b_scale_128x128 has 5 elements, not 6: pass one for each tile of 128x128 of b"
    ):
        gemmgen.gemm(a, b, prologue_b="b * b_scale_128x128", b_scale_128x128=scales.ravel()[:5])


@sycl.needs_device
def test_sycl(rng: np.random.Generator) -> None:
    check(gemmgen.compile(BOTH, PACKED, backend="sycl"), BOTH, rng)
    half = GemmSpec(dtype=BF16, c_dtype=F32, prologue_a=A, prologue_b="b * b_scale", emulate=True)
    check(gemmgen.compile(half, STAGED, backend="sycl"), half, rng)


@pytest.mark.skipif(why_no_gpu() is not None, reason=str(why_no_gpu()))
@pytest.mark.parametrize("schedule", [STAGED, PACKED], ids=["staged", "packed"])
def test_cuda(schedule: Schedule, rng: np.random.Generator) -> None:
    import cupy

    info = cuda_devices()[0]
    kernel = CudaKernel.from_source(driver.emit(BOTH, schedule, "cuda", cuda_target(info)), info)
    for size in SIZES:
        data = Finished.random(rng, BOTH, *size, -2.0)
        operands = {name: cupy.asarray(x) for name, x in data.operands.items()}
        data.check(kernel(cupy.asarray(data.problem.a), cupy.asarray(data.problem.b), alpha=-2.0, **operands).get())


# --- gemm -----------------------------------------------------------------------------------------


def weights(rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Integers, so that the product is exact: activations, weights in int8, a scale for each column."""
    a = rng.integers(-4, 5, (17, 30)).astype(np.float32)
    return a, rng.integers(-128, 128, (30, 21)).astype(np.int8), 2.0 ** rng.integers(-3, 4, 21).astype(np.float32)


@needs_device
def test_gemm_multiplies_weights_as_they_are_stored(rng: np.random.Generator) -> None:
    a, b, scale = weights(rng)
    expected = a @ (b * scale)
    assert np.array_equal(gemmgen.gemm(a, b, prologue_b="b * b_scale", b_scale=scale), expected)
    # Stored in two other types, of which kernels take one.
    half = multiply(a.astype(np.float16), b, dtype=np.float32, prologue_b="b * b_scale", b_scale=scale)
    assert np.array_equal(half, expected)
    # A stack of which every product has its own A; columns, and steps of K, are the same for all.
    stack = np.stack([a, 2 * a])
    made = gemmgen.gemm(stack, b, prologue_b="b * b_scale", b_scale=scale, prologue_a="a * k")
    assert np.array_equal(made, (stack * np.arange(30, dtype=np.float32)) @ (b * scale))
    # What one number is asked for may be one.
    for factor in (2, np.float64(2), np.array(2.0), [2]):
        assert np.array_equal(gemmgen.gemm(a, b, prologue_b="b * b_factor", b_factor=factor), 2 * (a @ b))
    kernel = gemmgen.compile(GemmSpec(b_dtype=I8, prologue_b="b * b_factor"), "naive")
    assert np.array_equal(kernel(a, b, b_factor=np.array(2, np.float32)), 2 * (a @ b))
    # Vectors are rows and columns.
    assert np.array_equal(gemmgen.gemm(a[0], b, prologue_b="b * b_scale", b_scale=scale), a[0] @ (b * scale))
    assert np.array_equal(gemmgen.gemm(a, b[:, 0], prologue_b="b * k"), a @ (b[:, 0] * np.arange(30)))


@pytest.mark.parametrize("device", DEVICES)
def test_gemm_of_arrays_of_the_device(device: DeviceInfo, rng: np.random.Generator) -> None:
    """Those are never copied: int8 is multiplied as float32 because the prologue makes it that."""
    import pyopencl as cl
    import pyopencl.array as cl_array

    queue = cl.CommandQueue(context := cl.Context([device.handle]))  # which the queue does not keep
    a, b, scale = weights(rng)
    there = [cl_array.to_device(queue, x) for x in (a, b, scale)]
    result = gemmgen.gemm(there[0], there[1], prologue_b="b * b_scale", b_scale=there[2])
    assert np.array_equal(result.get(), a @ (b * scale))
    with pytest.raises(gemmgen.SpecError, match="b has dtype int8, not float32"):
        gemmgen.gemm(there[0], there[1])
    for wrong, words in (
        (2.0, r"b_factor is of type float, but a is pyopencl's: pass pyopencl.array.to_device\(queue, np.asarray"),
        (cl_array.to_device(queue, np.ones(1)), r"b_factor has dtype float64, not float32: pass b_factor.astype"),
    ):
        with pytest.raises(gemmgen.SpecError, match=words):
            gemmgen.gemm(there[0], there[1], prologue_b="b * b_factor", b_factor=wrong)
    del context


def multiply(a: Matrix, b: Matrix, **arguments: object) -> Matrix:
    """`gemm` with arguments that may be of any type."""
    result = gemmgen.gemm(a, b, **arguments)  # type: ignore[arg-type]
    assert isinstance(result, np.ndarray)
    return result


@needs_device
def test_what_gemm_refuses(rng: np.random.Generator) -> None:
    a, b, scale = weights(rng)
    number = {"b_scale": 2, "prologue_b": "b * b_scale"}
    for words, arguments in (
        ("b_scale is missing, which the prologue_b b \\* b_scale takes", {"prologue_b": "b * b_scale"}),
        ("b_scale means nothing without a prologue_b that names it", {"b_scale": scale}),
        (
            "b_scale has 20 elements, not 21: pass one for each col",
            {"b_scale": scale[1:], "prologue_b": "b*b_scale"},
        ),
        ("b_scale has shape \\(\\), not one dimension: pass an array with an element for each column of b", number),
        ("a_factor has 2 elements, not 1: pass one for all of a", {"a_factor": scale[:2], "prologue_a": "a*a_factor"}),
        ("b_scale means nothing to a kernel whose prologue_b", {"b_scale": scale, "prologue_b": "b * 2"}),
        ("prologue_b = 3: give a text", {"prologue_b": 3}),
        ("unknown name 'a'", {"prologue_b": "b * a"}),
    ):
        with pytest.raises(gemmgen.SpecError, match=words):
            multiply(a, b, **arguments)
    with pytest.raises(gemmgen.SpecError, match="a_scale can't be taken by a stack"):
        multiply(a[None], b, prologue_a="a * a_scale", a_scale=scale)
    for formula in ({"prologue_a": "a * row"}, {"epilogue": "expr: acc + row"}):
        with pytest.raises(gemmgen.SpecError, match="row can't be taken by a stack"):
            multiply(np.stack([a, a]), b, **formula)
    with pytest.raises(gemmgen.SpecError, match="which few whole numbers fit"):
        multiply(b.T, b, prologue_b="b * 2")
    with pytest.raises(gemmgen.SpecError, match="takes real numbers"):
        multiply(a.astype(np.complex64), b.astype(np.complex64), prologue_a="a * 2")
