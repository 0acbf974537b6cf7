"""C of warpgroups stored by TMA, on a GPU: any size, both widths of elements, in place, functions on elements, slots
that are used again; and nothing else of memory is written.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen.driver import refusals
from gemmgen.ir.dtypes import BF16, F16, F32, DType
from gemmgen.methods import defaults
from gemmgen.spec import GemmSpec, Order
from tests.device.test_cuda_wgmma import NAMES, SKIP, check, compiled, request

pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
WHOLE = tuple(name for name in NAMES if request(name)[1].epilogue_stages)
EITHER = pytest.mark.parametrize("order", ["row", "col"])
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)


@EITHER
@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("name", WHOLE)
def test_any_size(name: str, slots: int, order: Order) -> None:
    """With more epilogue stages than presets have, and fewer tiles ahead where shared memory is short. A column-major C
    is transposed as it is staged.
    """
    spec, schedule = request(name)
    spec = replace(spec, c_order=order)
    schedule = schedule.but(epilogue_stages=slots, name=None)
    fits = (x for x in range(schedule.stages, 1, -1) if not refusals(spec, schedule.but(stages=x), "cuda"))
    check(spec, schedule.but(stages=next(fits)))


@pytest.mark.parametrize("name", WHOLE)
def test_stores_of_work_items(name: str) -> None:
    """As presets had it before; by blocks that end."""
    spec, schedule = request(name)
    check(spec, schedule.but(epilogue_stages=0, ordered_epilogue=False, persistent=False, name=None))


@EITHER
@pytest.mark.parametrize("dtype", [BF16, F16])
def test_c_in_float32(dtype: DType, order: Order) -> None:
    spec = replace(SPEC, dtype=dtype, c_dtype=F32, c_order=order)
    check(spec, defaults("wgmma").but(epilogue_stages=2))
    check(spec, defaults("wgmma", (4, 48)).but(stages=3, epilogue_stages=2))


@EITHER
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_operands_swapped(dtype: DType, order: Order) -> None:
    """Of a row-major C the sums, which are of C^T, are transposed."""
    spec = replace(SPEC, c_dtype=dtype, c_order=order)
    check(spec, defaults("wgmma", (16, 2), (4, 64)).but(stages=3, epilogue_stages=1))
    narrow = defaults("wgmma", (8, 2), (4, 32)).but(producer_threads=32, setmaxnreg=(0, 0), stages=3, epilogue_stages=2)
    check(spec, narrow.but(persistent=True))


@pytest.mark.parametrize("slots", [1, 3])
def test_blocks_that_stay(slots: int) -> None:
    """More blocks of C than run at once, so that slots go on from one to the next; each time the same bits."""
    import torch

    schedule = defaults("wgmma", (2, 32), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), epilogue_stages=slots)
    schedule = schedule.but(persistent=True)
    check(replace(SPEC, dtype=F16), schedule)
    kernel = compiled(SPEC, schedule)
    torch.manual_seed(4)
    a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((4000, 200), (200, 3000)))
    c, first = (torch.full((4000, 3000), float("nan"), device="cuda").bfloat16() for _ in range(2))
    kernel(a, b, first)
    assert bool(((first.double() - a.double() @ b.double()).abs() < 0.3).all())
    for _ in range(100):
        c.fill_(float("nan"))
        kernel(a, b, c)
        assert bool((c.view(torch.int16) == first.view(torch.int16)).all())


@EITHER
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_only_c_is_written(dtype: DType, order: Order) -> None:
    """What lies between its lines, and behind the last, stays as it is: C ends anywhere in the 16 bytes that stores of
    boxes write at least.
    """
    import torch

    kernel = compiled(replace(SPEC, c_dtype=dtype, c_order=order), defaults("wgmma").but(epilogue_stages=2))
    kind = getattr(torch, str(dtype))
    ends = tuple((130, n, 64) for n in range(248, 258))
    for m, n, k in ((1, 1, 64), (127, 250, 64), (129, 257, 64), (300, 71, 128), (16, 64, 64), *ends):
        rows, cols = (m, n) if order == "row" else (n, m)
        a, b = (torch.ones((x, -(-y // 8) * 8), device="cuda").bfloat16() for x, y in ((rows, k), (k, cols)))
        pitch = -(-n // 8) * 8 + 8
        whole = torch.full((m + 3, pitch), 7.0, device="cuda").to(kind)
        c = whole[1 : m + 1, :n]
        kernel(a[:, :k], b[:, :cols], c if order == "row" else c.T)
        assert bool((c == k).all()), (m, n)
        c.fill_(7.0)
        assert bool((whole == 7.0).all()), (m, n)


def test_functions_on_elements() -> None:
    """Those that read vectors, and C itself; alone where beta is folded."""
    import torch

    kernel = compiled(replace(SPEC, epilogue=("bias", "relu")), defaults("wgmma").but(epilogue_stages=2))
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
