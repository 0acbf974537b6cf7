"""The whole numbers that tuning draws: their sums must be exact in a kernel's accumulators."""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen.options import build_spec
from gemmgen.tuning.job import EXACT, EXACT_FLOAT8, LARGEST, largest_drawn


@pytest.mark.parametrize("k", [1, 424, 4096, 18160, 65536, 300000])
@pytest.mark.parametrize(("dtype", "exact"), [("bfloat16", EXACT), ("float8_e4m3", EXACT_FLOAT8)])
def test_sums_are_exact(dtype: str, exact: int, k: int) -> None:
    """Every partial sum, too. With whole numbers up to 8, some of K = 18160 are beyond 8-bit floats' accumulators."""
    largest, rng = largest_drawn(build_spec(dtype=dtype), k), np.random.default_rng(k)
    assert largest in LARGEST
    a, b = (rng.integers(-largest, largest + 1, (30, k)) for _ in "ab")
    assert np.abs(np.cumsum(a * b, axis=1)).max() <= exact
    assert np.abs(a @ b.T).max() <= exact
    if k <= 424:
        assert largest == LARGEST[0], "the more of a type's numbers, the better"


def test_a_long_sum_of_8_bit_floats_would_not_be_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-LARGEST[0], LARGEST[0] + 1, (300, 18160)).astype(np.float32) for _ in "ab")
    assert np.abs(a @ b.T).max() > EXACT_FLOAT8
