"""Every preset that CUDA can express, on a GPU: ragged sizes, canaries, exact integers, repeats, two streams."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.runtime.cuda_devices import CudaDeviceInfo, pick, target_of
from gemmgen.spec import GemmSpec
from tests.support import cuda

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))


@pytest.fixture(scope="module")
def gpu() -> CudaDeviceInfo:
    return pick()


@pytest.mark.parametrize("name", cuda.names())
def test_any_size(name: str, gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    kernel = cuda.compiled(name, gpu)
    cuda.check_ragged(kernel, rng, cuda.SIZES)
    cuda.check_exact(kernel, rng)


@pytest.mark.parametrize("name", cuda.names())
def test_repeats_and_streams(name: str, gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    kernel = cuda.compiled(name, gpu)
    cuda.check_repeats(kernel, rng, (513, 517, 301), 20, cuda.same_bits(name))
    cuda.check_two_streams(kernel, rng, cuda.same_bits(name))


def test_boxes_of_b_as_it_is(gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    """Presets that are brought by TMA have it packed."""
    schedule = presets.load("mbarrier_8x16_16x16_boxes_packed").schedule
    schedule = schedule.but(b=replace(schedule.b, prepacked=False), name=None)
    source = driver.emit(GemmSpec(ld_multiple=4), schedule, "cuda", target_of(gpu))
    kernel = CudaKernel.from_source(source, gpu)
    cuda.check_aligned(kernel, rng, cuda.SIZES)
    cuda.check_repeats(kernel, rng, (513, 520, 304), 20)


@pytest.mark.parametrize("packed", [(False, False), (True, True)], ids=["", "packed"])
@pytest.mark.parametrize(
    ("name", "parts"), [("async_8x4_8x16", 4), ("async_8x8_16x16", 8), ("mbarrier_8x16_16x16", 2), ("smem_8x8", 4)]
)
def test_clusters_add_up_parts(
    name: str, parts: int, packed: candidates.Way, gpu: CudaDeviceInfo, rng: np.random.Generator
) -> None:
    schedule = candidates.varied(name, parts, packed, joined=parts)
    source = driver.emit(GemmSpec(), schedule, "cuda", target_of(gpu))
    assert len(source.entry_points) == 1 + any(packed)
    kernel = CudaKernel.from_source(source, gpu)
    cuda.check_ragged(kernel, rng, cuda.SIZES)
    cuda.check_exact(kernel, rng)
    cuda.check_repeats(kernel, rng, (513, 517, 301), 20)
    cuda.check_two_streams(kernel, rng)


@pytest.mark.parametrize("name", cuda.names())
def test_layouts(name: str, gpu: CudaDeviceInfo, rng: np.random.Generator) -> None:
    for spec in cuda.orders():
        try:
            kernel = cuda.compiled(name, gpu, spec)
        except ScheduleError:
            continue
        cuda.check_ragged(kernel, rng, [(45, 70, 29), (130, 129, 64)])
