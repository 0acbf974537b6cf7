"""Batches on a GPU of CUDA."""

from __future__ import annotations

import numpy as np
import pytest

import gemmgen
from gemmgen import candidates
from gemmgen.spec import GemmSpec
from tests.support import cuda
from tests.support.batches import check, check_batches
from tests.support.problems import Matrix

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
BATCHED = GemmSpec(batched=True)


@pytest.mark.parametrize(
    "name", ["naive", "async_8x4_8x16", "mbarrier_8x8_2x16_split8", "mbarrier_8x16_8x8_slices4_packed"]
)
def test_cuda(name: str, rng: np.random.Generator) -> None:
    import cupy

    gemm = gemmgen.compile(BATCHED, candidates.load(name).schedule, backend="cuda")

    def on_gpu(a: Matrix, b: Matrix, c: Matrix | None = None) -> Matrix:
        # As they lie: CuPy copies gaps away.
        base = None if c is None else cupy.asarray(c.base)
        out = None if base is None else base.transpose(1, 0, 2)[:, :, : c.shape[2]] if c is not None else None
        left = cupy.asarray(a.transpose(1, 0, 2)).transpose(1, 0, 2) if a.ndim == 3 else cupy.asarray(a)
        result = gemm(left, cupy.asarray(b), out)
        if c is None or base is None:
            return np.asarray(result.get())
        np.copyto(c.base, base.get())  # type: ignore[arg-type]
        return c

    check_batches(on_gpu, rng)
    # Whole tiles and aligned strides: the twin.
    a = cupy.asarray(rng.standard_normal((3, 128, 128), np.float32))
    assert gemm.source_for(a, a).spec.ld_multiple == (4 if gemm.source.alignment > 4 else 1)
    check(a.get(), a.get(), gemm(a, a).get())
