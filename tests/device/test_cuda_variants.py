"""Arrays choose between a kernel and its twin, and get the same product from both."""

from __future__ import annotations

import numpy as np
import pytest

import gemmgen
from gemmgen import candidates
from gemmgen.api.compile import cuda_kernel
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick
from gemmgen.spec import GemmSpec, Order
from tests.support import cuda
from tests.support.problems import Problem

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
NAMES = cuda.with_vectors()


@pytest.fixture(scope="module")
def gpu() -> CudaDeviceInfo:
    return pick()


@pytest.mark.parametrize("name", NAMES)
def test_twins(name: str, gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    preset = candidates.load(name)
    kernel = cuda_kernel(preset.spec, preset.schedule, gpu)
    cuda.check_aligned(kernel, rng, cuda.SIZES)
    # Single lines of any length, where lines past the matrix must not get addresses that vectors can't take.
    for size, pads in (((1, 63, 1), (0, 0, 0)), ((1, 64, 37), (0, 0, 0)), ((8, 63, 1), (3, 0, 1))):
        cuda.check_product(kernel, Problem.random(rng, *size), pads)
    problem = Problem.integers(rng, 170, 144, 128)
    assert np.array_equal(cuda.check_product(kernel, problem), problem.expected)
    assert np.array_equal(cuda.check_product(kernel, problem, (1, 0, 0)), problem.expected)
    cuda.check_repeats(kernel, rng, (512, 516, 300), 20, cuda.same_bits(name))
    cuda.check_two_streams(kernel, rng, cuda.same_bits(name))


@pytest.mark.parametrize("spec", list(cuda.orders()), ids=GemmSpec.label)
def test_layouts(spec: GemmSpec, gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    kernel = cuda_kernel(spec, candidates.load("smem_8x8_double").schedule, gpu)
    for m, n, k in ((44, 72, 28), (132, 128, 64)):
        cuda.check_product(kernel, Problem.random(rng, m, n, k), (4, 0, 8))


def test_arrays_choose(rng: np.random.Generator) -> None:
    import cupy

    def assumed(*arrays: object) -> object:
        return kernel.source_for(*arrays).spec.ld_multiple

    kernel = gemmgen.compile(schedule="smem_8x8_double", backend="cuda")
    a, b = cupy.zeros((64, 68), "float32"), cupy.zeros((68, 132), "float32")
    assert assumed(a, b) == 4
    assert assumed(a, b, cupy.zeros((64, 132), "float32")) == 4
    assert assumed(a[:, :64], b[:64]) == 4
    assert assumed(a[:, :67], b[:67, :131]) == 1  # a new c has 131 columns
    assert assumed(cupy.zeros((64, 67), "float32"), b[:67]) == 1
    assert assumed(a, b, cupy.zeros((64, 133), "float32")[:, :132]) == 1
    for said in (1, 4):
        fixed = gemmgen.compile(schedule="smem_8x8_double", backend="cuda", ld_multiple=said)
        assert fixed.source_for(a, b).spec.ld_multiple == said


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("products", [None, 3])
def test_a_new_c_has_lines_as_the_spec_guarantees(order: Order, products: int | None, rng: np.random.Generator) -> None:
    """So its vectors are aligned, and it may be an argument of the next call: of CuPy's arrays and of torch's."""
    import cupy
    import torch

    spec = GemmSpec(ld_multiple=4, c_order=order, batched=products is not None)
    kernel = gemmgen.compile(spec, "smem_8x8_double", backend="cuda")
    shapes = [(*([products] if products else []), *shape) for shape in ((63, 68), (68, 145))]
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes)
    b = np.pad(b, [(0, 0)] * (b.ndim - 1) + [(0, 3)])
    expected = (a @ b)[..., :145]
    for left, right in ((cupy.asarray(a), cupy.asarray(b)), (torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda())):
        for _ in range(3):  # by the checks, and by what is kept of the first call
            made = kernel(left, right[..., :145])
            assert tuple(made.shape) == expected.shape
            assert np.array_equal(cupy.asarray(made).get(), expected)
            assert kernel(left, right[..., :145], made, beta=1) is made
            assert np.array_equal(cupy.asarray(made).get(), 2 * expected)
        assert all(kernel.time(left, right[..., :145], iterations=2))


def test_nothing_compiles_while_a_graph_is_captured(rng: np.random.Generator) -> None:
    import cupy

    problem = Problem.random(rng, 64, 132, 68)
    a, b = cupy.asarray(problem.a), cupy.asarray(problem.b)
    out = cupy.full((64, 132), cupy.nan, "float32")
    kernel = gemmgen.compile(schedule="smem_8x8_double", backend="cuda")
    assert len(kernel.time(a, b, out, iterations=2)) == 2
    problem.check(out.get())
    built = gemmgen.compile(schedule="smem_8x8_double", backend="cuda")
    built.build()
    out.fill(cupy.nan)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        built(a, b, out)
        graph = stream.end_capture()
        graph.launch(stream)
    stream.synchronize()
    problem.check(out.get())


def test_strict_takes_what_spills_nothing(gpu: CudaDeviceInfo) -> None:
    preset = candidates.load("smem_8x8")
    alone = preset.schedule.but(min_blocks=0)
    assert cuda_kernel(preset.spec, alone, gpu, strict=True).resources[0].spilled_bytes == 0
