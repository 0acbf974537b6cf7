"""alpha = 0 at run time where K is folded, so that no k of 0 can be passed: neither A nor B is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.kernel import Program
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.oracle import wide
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

#: One of each method, and each way of parting K; at 13 there is a rest of K, or copies bring zeros.
WAYS = {
    "naive": "opencl",
    "lds_8x8_16x16_k8": "opencl",
    "L3_SIMD_16x2_4x8": "opencl",
    "L3_SLM_8x8_4x16": "opencl",
    "block_read_16x2_4x8": "opencl",
    "sg16_block_16x1_split4": "opencl",
    "cpu_6x64": "opencl",
    "cpu_6x32_f64_k256": "opencl",
    "dpas_32x2_1x8": "opencl",
    "smem_8x8_double_packed": "opencl",
    "async_4x4_8x16": "cuda",
    "mma_4x8_16x8": "cuda",
    "mbarrier_8x8_4x8_slices8": "cuda",
    "wgmma_64x128_s4": "cuda",
    "wgmma_64x128_s2": "cuda",
    "mbarrier_8x8_2x16_split8": "cuda",
    "mbarrier_8x8_2x16_atomic8": "cuda",
    "mbarrier_8x16_16x16_packed_a": "cuda",
    "mbarrier_8x16_16x16_boxes_packed": "cuda",
    "reduction_4x4_4x4": "sycl",
}


def program(name: str, backend: str) -> tuple[GemmSpec, Program]:
    preset = candidates.load(name)
    spec = replace(preset.spec, k=13)
    target = driver.default_target(spec, preset.schedule, backend)
    return spec, driver.lower_program(spec, preset.schedule, target)


@pytest.mark.parametrize(("name", "backend"), WAYS.items())
def test_nothing_spreads(name: str, backend: str, rng: np.random.Generator) -> None:
    """The kernels that multiply get NaN to read, and one that packs packs it."""
    spec, kernels = program(name, backend)
    problem = Problem.of(rng, spec, 9, 10, 13, 0.0, 2.0)
    problem.a[...] = problem.b[...] = np.nan
    assert np.array_equal(wide(interpret(kernels, spec, problem)), 2 * wide(problem.c))


@pytest.mark.parametrize("name", ["lds_8x8_16x16_k8", "cpu_6x64_k512", "sg16_block_16x1_split4"])
def test_nothing_is_read(name: str, rng: np.random.Generator) -> None:
    """Arrays of no element at all do: an access to one would be a fault."""
    spec, kernels = program(name, "opencl")
    problem = Problem.of(rng, spec, 9, 10, 13, 0.0, 2.0)
    empty = np.zeros(0, numpy_dtype(spec.dtype))
    more = {"a": empty, "b": empty}
    assert np.array_equal(interpret(kernels, spec, problem, 3, more), 2 * problem.c)
