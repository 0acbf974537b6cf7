"""Tensor cores on a GPU, on torch's tensors: types, layouts, ragged sizes, lines anywhere, exact integers, repeats."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import pytest

import gemmgen
from gemmgen import candidates
from gemmgen.ir.dtypes import BF16, F16, F32, DType
from gemmgen.ir.instructions import product_error
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support import cuda
from tests.support.tensors import placed

SKIP = cuda.why_no_gpu() or (None if find_spec("torch") else "torch is not installed")
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
NAMES = tuple(name for name in candidates.names() if candidates.load(name).schedule.by_warps)
#: Under, around and over a tile; whole tiles; a single element; K of fewer steps than the ring has slots.
SIZES = ((1, 1, 1), (129, 131, 37), (256, 256, 64), (200, 520, 296), (270, 16, 500))
#: Whether C is of floats -> alpha and beta.
FACTORS = {True: ((1.0, 0.0), (-1.5, 0.25)), False: ((1, 0), (-2, 3))}
ORDERS: tuple[tuple[Order, Order], ...] = (("row", "row"), ("row", "col"), ("col", "row"), ("col", "col"))


def request(name: str, dtype: DType | None = None) -> tuple[GemmSpec, Schedule]:
    preset = candidates.load(name)
    return replace(preset.spec, dtype=dtype or preset.spec.dtype), preset.schedule


def check(spec: GemmSpec, schedule: Schedule, pads: tuple[int, ...] = (0, 3, 8)) -> None:
    """Every size, its lines `pad` elements longer than they need be, or more where their length is assumed to be a
    multiple; C begins full of what no product is where beta is zero.
    """
    import torch

    kernel = gemmgen.compile(spec, schedule, backend="cuda")
    dtype, result = (getattr(torch, str(x)) for x in (spec.dtype, spec.result))
    torch.manual_seed(1)

    def matrix(name: str, rows: int, cols: int, pad: int, kind: torch.dtype) -> torch.Tensor:
        values = torch.randn((rows, cols), device="cuda", dtype=torch.float64) * (1 if kind.is_floating_point else 9)
        return placed(spec, name, values.to(kind), pad)

    for m, n, k in SIZES:
        for pad in pads:
            a, b = matrix("a", m, k, pad, dtype), matrix("b", k, n, pad, dtype)
            for alpha, beta in FACTORS[spec.result.is_float]:
                c = matrix("c", m, n, pad, result)
                reference = alpha * (a.double() @ b.double()) + (beta * c.double() if beta else 0.0)
                size = abs(alpha) * (a.double().abs() @ b.double().abs()) + abs(beta) * c.double().abs()
                if not beta:
                    c.fill_(float("nan") if spec.result.is_float else torch.iinfo(result).min)
                kernel(a, b, c, alpha=alpha, beta=beta)
                # Tensor cores drop bits that rounding would keep: twice what sums allow. Integers are exact.
                sums = 2 * (k + 3) * 2.0**-spec.accumulator.digits if spec.accumulator.is_float else 0.0
                bound = size * (sums + product_error(schedule.atom, spec.dtype))
                if spec.result != spec.accumulator:
                    bound += 2.0**-spec.result.digits * (reference.abs() + bound) + 2.0**-24
                off = (c.double() - reference).abs()
                assert bool((off <= bound).all()), f"{m}x{n}x{k}, pad {pad}: off by {float((off / bound).max())}"


@pytest.mark.parametrize("name", NAMES)
def test_any_size(name: str) -> None:
    check(*request(name))


@pytest.mark.parametrize(("a", "b"), ORDERS)
@pytest.mark.parametrize("name", ["mma_4x8_16x8", "mma_tf32_8x16_16x8", "mma_f64_4x8_16x8", "mma_s8_8x16_16x8"])
def test_layouts(name: str, a: Order, b: Order) -> None:
    spec, schedule = request(name)
    check(replace(spec, a_order=a, b_order=b), schedule)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_sums_kept_in_float32(dtype: DType) -> None:
    spec, schedule = request("mma_4x8_16x8", dtype)
    check(replace(spec, c_dtype=F32), schedule)


@pytest.mark.parametrize(
    "changes", [{"split_k": 3}, {"sliced_k": 2}, {"stages": 2}], ids=lambda c: "-".join(f"{k}{v}" for k, v in c.items())
)
def test_what_goes_with_them(changes: dict[str, int]) -> None:
    spec, schedule = request("mma_4x8_16x8")
    check(spec, schedule.but(name=None, **changes))


def test_packed() -> None:
    spec, schedule = request("mma_4x8_16x8")
    a, b = replace(schedule.a, prepacked=True), replace(schedule.b, prepacked=True)
    check(spec, schedule.but(name=None, a=a, b=b))


@pytest.mark.parametrize("name", NAMES)
def test_exact_integers_and_repeats(name: str) -> None:
    """Sums of small integers are exact in any order: a lane out of place shows. And the same bits each time. Only rests
    are never nothing, so that what is made of them is off by 2^-21 of |A| |B|.
    """
    import torch

    spec, schedule = request(name)
    spec = replace(spec, c_dtype=spec.accumulator)
    kernel = gemmgen.compile(spec, schedule, backend="cuda")
    dtype = getattr(torch, str(spec.dtype))
    torch.manual_seed(2)
    for m, n, k in ((170, 145, 129), (512, 512, 512)):
        values = {"a": torch.randint(-8, 9, (m, k), device="cuda"), "b": torch.randint(-8, 9, (k, n), device="cuda")}
        a, b = (placed(spec, name, matrix.to(dtype)) for name, matrix in values.items())
        unknown = float("nan") if spec.result.is_float else -(2**31)
        nothing = torch.full((m, n), unknown, device="cuda", dtype=getattr(torch, str(spec.result)))
        first = placed(spec, "c", nothing)
        kernel(a, b, first)
        off = (first.double() - a.double() @ b.double()).abs()
        most = 2.0**-21 * (a.double().abs() @ b.double().abs()) if schedule.atom == "mma_3xtf32" else 0.0
        assert bool((off <= most).all())
        for _ in range(20):
            again = placed(spec, "c", nothing)
            kernel(a, b, again)
            assert torch.equal(again, first), "a repeat differs"


@pytest.mark.parametrize("name", [name for name in NAMES if candidates.load(name).schedule.atom == "mma_3xtf32"])
def test_what_is_not_finite_goes_through_three_products(name: str) -> None:
    """As it goes through float32, in one block of C; everything else is as near as ever. Lines anywhere, and on
    multiples of 16 bytes.
    """
    import torch

    kernel = gemmgen.compile(*request(name), backend="cuda")
    for m, n, k in ((301, 290, 77), (384, 256, 128)):
        torch.manual_seed(3)
        a, b = (torch.randn(shape, device="cuda") for shape in ((m, k), (k, n)))
        a[3, 12], a[5, 1], a[7, 20], a[200, 2] = float("inf"), float("nan"), float("-inf"), 2.0**100
        b[12, 0], b[12, 1], b[12, 2], b[20, 5] = 0.0, float("inf"), -1.0, 0.0
        expected = a.double() @ b.double()
        c, finite = kernel(a, b), expected.isfinite()
        assert torch.equal(c[~finite].nan_to_num(7.0), expected[~finite].float().nan_to_num(7.0))
        assert bool(((c - expected).abs() <= 1e-5 * (a.double().abs() @ b.double().abs()))[finite].all())
