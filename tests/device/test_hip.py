"""HIP kernels are right: their machine code, executed by an emulator of AMD's GPUs, which is no part of gemmgen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import presets
from tests.support import hip
from tests.support.tools import tool

#: Sizes that no tile divides, and one K that holds whole steps and a rest.
SIZES = (33, 65, 19)
#: A kernel of each kind: alone, with vectors and shared memory, with slices that meet, with two in flight, and with a
#: second kernel that adds up; sub-groups of a part of a wavefront.
RUN = (
    "naive",
    "smem_8x8",
    "lds_8x8_16x16_k8",
    "lds_8x8_16x16_k16_double",
    "smem_8x8_double_packed",
    "reduction_4x4_4x4",
    "L3_SIMD_8x4_1x8",
    "sg16_block_16x1_split4",
)


@pytest.mark.parametrize("target", hip.EMULATED)
@pytest.mark.parametrize("name", RUN)
def test_ragged_sizes(name: str, target: str, tmp_path: Path) -> None:
    hip.emulator()
    preset = presets.load(name)
    source = hip.emitted(preset.spec, preset.schedule, target)
    code = hip.compiled(source, target, tool("clang"), tmp_path)
    m, n, k = SIZES
    rng = np.random.default_rng(1)
    # Lines of A and of C are longer than what is in them, those of B begin on multiples of 16 bytes.
    lda, ldb, ldc = k + 3, n + 3, n + 2
    a, b, c = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, lda), (k, ldb), (m, ldc)))
    before = c.copy()
    scalars = {"m": m, "n": n, "k": k, "lda": lda, "ldb": ldb, "ldc": ldc, "alpha": 1.5, "beta": 0.25}
    hip.product(source, code, target, {"a": a, "b": b, "c": c}, scalars)
    expected = 1.5 * (a[:, :k].astype(float) @ b[:, :n]) + 0.25 * before[:, :n]
    assert np.abs(c[:, :n] - expected).max() < 1e-4
    assert np.array_equal(c[:, n:], before[:, n:])


def test_a_missing_barrier_is_found(tmp_path: Path) -> None:
    """The emulator's waves do run apart."""
    hip.emulator()
    preset = presets.load("lds_8x8_16x16_k8")
    source = hip.emitted(preset.spec, preset.schedule, "gfx1100")
    assert source.text.count("__syncthreads();") > 1
    broken = replace(source, text=source.text.replace("__syncthreads();", ""))
    code = hip.compiled(broken, "gfx1100", tool("clang"), tmp_path)
    m, n, k = SIZES
    a, b, c = np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros((m, n), np.float32)
    scalars = {"m": m, "n": n, "k": k, "lda": k, "ldb": n, "ldc": n, "alpha": 1.0, "beta": 0.0}
    hip.product(broken, code, "gfx1100", {"a": a, "b": b, "c": c}, scalars)
    assert not np.allclose(c, k)
