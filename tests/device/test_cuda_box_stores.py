"""C of warpgroups stored by boxes, on a GPU: any size, both widths of elements, in place, functions on elements, slots
that are used again; and nothing else of memory is written.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen.ir.dtypes import BF16, F16, F32, DType
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec
from tests.device.test_cuda_wgmma import NAMES, SKIP, check, compiled, request

pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
WHOLE = tuple(name for name in NAMES if request(name)[1].split == 1)
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)


@pytest.mark.parametrize("slots", [1, 2, 4])
@pytest.mark.parametrize("name", WHOLE)
def test_any_size(name: str, slots: int) -> None:
    spec, schedule = request(name)
    stages = schedule.stages - (slots > 2)
    check(spec, replace(schedule, c_stages=slots, stages=stages, name=None))


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_c_in_float32(dtype: DType) -> None:
    spec = replace(SPEC, dtype=dtype, c_dtype=F32)
    check(spec, replace(defaults("wgmma"), c_stages=2))
    check(spec, replace(defaults("wgmma", (4, 48)), stages=3, c_stages=2))


def test_only_c_is_written() -> None:
    """What lies between its lines, and behind the last, stays as it is."""
    import torch

    kernel = compiled(SPEC, replace(defaults("wgmma"), c_stages=2))
    for m, n, k in ((1, 1, 64), (127, 250, 64), (129, 257, 64), (300, 71, 128), (16, 64, 64)):
        a, b = torch.ones((m, k), device="cuda").bfloat16(), torch.ones((k, -(-n // 8) * 8), device="cuda").bfloat16()
        pitch = -(-n // 8) * 8 + 8
        whole = torch.full((m + 3, pitch), 7.0, device="cuda").bfloat16()
        kernel(a, b[:, :n], whole[1 : m + 1, :n])
        assert bool((whole[1 : m + 1, :n] == k).all()), (m, n)
        whole[1 : m + 1, :n] = 7.0
        assert bool((whole == 7.0).all()), (m, n)


def test_functions_on_elements() -> None:
    """Those that read vectors, and C itself; alone where beta is folded."""
    import torch

    kernel = compiled(replace(SPEC, epilogue=("bias", "relu")), replace(defaults("wgmma"), c_stages=2))
    for m, n, k in ((129, 131, 70), (256, 512, 256)):
        torch.manual_seed(3)
        width = -(-n // 8) * 8
        a = torch.randint(-4, 5, (m, -(-k // 8) * 8), device="cuda").bfloat16()[:, :k]
        b = torch.randint(-4, 5, (k, width), device="cuda").bfloat16()[:, :n]
        bias = torch.randint(-4, 5, (n,), device="cuda").bfloat16()
        c = torch.randint(-4, 5, (m, width), device="cuda").bfloat16()[:, :n]
        expected = torch.relu(a.double() @ b.double() + 2 * c.double() + bias.double()).bfloat16()
        kernel(a, b, c, alpha=1.0, beta=2.0, bias=bias)
        assert bool((c == expected).all())
