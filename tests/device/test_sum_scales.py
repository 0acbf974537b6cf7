"""8-bit floats with scales of 1x128 for A and 128x128 for B, on a GPU, against float64."""

from __future__ import annotations

from typing import Any

import pytest

import gemmgen
from gemmgen import candidates
from gemmgen.schedule import Schedule
from tests.support.skips import GPU
from tests.support.tensors import need_torch

torch = need_torch()
if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
    pytest.skip(f"{GPU} of sm_90 that torch finds", allow_module_level=True)

from torch import Tensor  # noqa: E402  (it must be there)

SCALES: dict[str, Any] = {"prologue_a": "a * a_scale_128", "prologue_b": "b * b_scale_128x128"}
TWO_GROUPS = candidates.load("wgmma_f8_128x256_s4").schedule.but(
    tile=(2, 32), group=(64, 4), block_k=256, stages=3, epilogue_stages=1, persistent=False, name=None
)
#: What instructions cut of a step's sum of 128 products, and what rounding to bfloat16 leaves.
CUT, ROUNDED = 2.0**-11, 2.0**-8


def scaled(rows: int, cols: int, by: tuple[int, int], seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix in 8 bits, its scales [rows / by, cols / by], and what it stands for in float64."""
    generator = torch.Generator("cuda").manual_seed(rows + cols + seed)
    values = torch.randn(rows, cols, generator=generator, device="cuda").to(torch.float8_e4m3fn)
    down, across = -(-rows // by[0]), -(-cols // by[1])
    scales = torch.rand(down, across, generator=generator, device="cuda") + 0.25
    each = scales.double().repeat_interleave(by[0], 0).repeat_interleave(by[1], 1)[:rows, :cols]
    return values, scales, values.double() * each


def check(result: Tensor, a: Tensor, b: Tensor) -> None:
    right, most = a @ b, a.abs() @ b.abs()
    assert ((result.double() - right).abs() <= CUT * most + ROUNDED * right.abs()).all()


@pytest.mark.parametrize("schedule", [None, TWO_GROUPS], ids=["as chosen", "two groups a step"])
@pytest.mark.parametrize("shape", [(1, 256, 512), (100, 384, 1040), (500, 1000, 4096), (4096, 4096, 7168)], ids=str)
def test_gemm(shape: tuple[int, int, int], schedule: Schedule | None) -> None:
    m, n, k = shape
    # Of a matrix by itself the sums on the diagonal have only positive products, which are all cut to the same side.
    (a, of_a, wide_a), (b, of_b, wide_b) = scaled(m, k, (1, 128)), scaled(n, k, (128, 128), seed=1)
    operands = {"a_scale_128": of_a.T.contiguous().ravel(), "b_scale_128x128": of_b.T.contiguous().ravel()}
    result = gemmgen.gemm(a, b.T, schedule=schedule, **SCALES, **operands)
    assert result.dtype == torch.bfloat16
    check(result, wide_a, wide_b.T)


@pytest.mark.parametrize("ends", [(0, 300, 301, 1000), (250, 500, 750, 1000), (1000, 1000, 1000, 1000)], ids=str)
def test_grouped(ends: tuple[int, ...]) -> None:
    n, k = 384, 1040
    a, of_a, wide_a = scaled(1000, k, (1, 128))
    b, of_b, wide_b = zip(*(scaled(n, k, (128, 128), seed) for seed, _ in enumerate(ends)), strict=True)
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    matrices = torch.stack([x.view(torch.uint8) for x in b]).view(torch.float8_e4m3fn).transpose(1, 2)
    operands = {
        "a_scale_128": of_a.T.contiguous().ravel(),
        "b_scale_128x128": torch.stack([x.T.contiguous().ravel() for x in of_b]),
    }
    result = gemmgen.grouped(a, matrices, offsets, **SCALES, **operands)
    begin = 0
    for group, end in enumerate(ends):
        check(result[begin:end], wide_a[begin:end], wide_b[group].T)
        begin = end
