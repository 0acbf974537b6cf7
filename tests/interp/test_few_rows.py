"""Products of few rows as they are chosen for a GPU, of any order and of sizes as small as one element."""

from __future__ import annotations

from itertools import product

import pytest

from gemmgen.choose import choose
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.ir.dtypes import BF16, F32, F64, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec, Order

ORDERS: tuple[Order, ...] = ("row", "col")


@pytest.mark.parametrize("size", [(1, 1, 1), (1, 70, 33), (65, 1, 7), (3, 5, 300)], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64, BF16, I8], ids=str)
def test_any_order(dtype: DType, size: tuple[int, int, int]) -> None:
    """A block of one element of C had no text: its partial sum is an array without an axis."""
    for a_order, b_order, c_order in product(ORDERS, repeat=3):
        spec = GemmSpec(dtype=dtype, a_order=a_order, b_order=b_order, c_order=c_order)
        schedule = choose(spec, size, TARGETS["sm_90a"])
        case = Case(spec, schedule, size, "cuda", "sm_90a", alpha=2.0, beta=3.0, data="whole")
        check(case, Place.named("cuda", "sm_90a"))
