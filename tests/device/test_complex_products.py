"""Complex products of host arrays, which are computed as real ones where vectors hold real elements."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen.api import complex_products
from tests.device.naive import needs_device

pytestmark = needs_device

Complex = npt.NDArray[np.complexfloating]
#: By A's parts apart, and by B doubled; odd sizes, a row, a column.
SHAPES = [(5, 67, 131), (67, 70, 9), (1, 129, 257), (301, 1, 77), (64, 64, 64)]


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> Complex:
    numbers = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return numbers.astype(dtype)


def whole(rng: np.random.Generator, dtype: str, *shape: int) -> Complex:
    numbers = rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)
    return numbers.astype(dtype)


def check(found: object, a: Complex, b: Complex, factors: tuple[complex, complex] = (1, 0), c: object = 0) -> None:
    """Each part within the bound of sums of 2 K products, and a few roundings more."""
    found = np.asarray(found)
    wide = [np.asarray(x).astype(np.complex128) for x in (a, b, c)]
    alpha, beta = factors
    exact = alpha * (wide[0] @ wide[1]) + beta * wide[2]
    parts = [np.abs(x.real) + np.abs(x.imag) for x in wide]
    scale = abs(alpha) * (parts[0] @ parts[1]) + abs(beta) * parts[2]
    bound = (2 * a.shape[-1] + 8) * np.finfo(found.dtype).eps * scale + 1e-300
    error = np.maximum(np.abs(found.real - exact.real), np.abs(found.imag - exact.imag))
    assert found.shape == exact.shape
    assert (error <= bound).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_they_are_computed_by_kernels_of_real_elements(
    shape: tuple[int, int, int], dtype: str, rng: np.random.Generator
) -> None:
    m, n, k = shape
    a, b = drawn(rng, dtype, m, k), drawn(rng, dtype, k, n)
    first = gemmgen.gemm(a, b)
    check(first, a, b)
    choice = gemmgen.last_choice()
    assert choice is not None and "c64" not in choice.kernel and "c128" not in choice.kernel
    again = gemmgen.gemm(a, b)
    assert again.dtype == dtype
    assert np.array_equal(first, again)
    a, b = whole(rng, dtype, m, k), whole(rng, dtype, k, n)
    assert np.array_equal(gemmgen.gemm(a, b), a @ b)


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_factors_and_a_given_result(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    m, n, k = shape
    a, b = drawn(rng, "complex64", m, k), drawn(rng, "complex64", k, n)
    for alpha, beta in ((1, 0), (-2 + 0.5j, 0), (1, 1), (0.5, -3), (2j, 3 - 1j)):
        for _ in range(2):
            c = drawn(rng, "complex64", m, n)
            before = c.copy()
            assert gemmgen.gemm(a, b, c, alpha=alpha, beta=beta) is c
            check(c, a, b, (alpha, beta), before)
    c = np.full((m, n), np.nan + 1j * np.nan, np.complex64)
    check(gemmgen.gemm(a, b, out=c), a, b)
    other = drawn(rng, "complex64", m, n)
    check(gemmgen.gemm(a, b, other, out=c, beta=2), a, b, (1, 2), other)
    # A and B are not read where alpha is 0.
    a[:] = np.nan
    assert not gemmgen.gemm(a, b, out=c, alpha=0).any()


def test_every_way_that_they_lie(rng: np.random.Generator) -> None:
    m, n, k = 37, 70, 41
    a, b = drawn(rng, "complex64", m, k), drawn(rng, "complex64", k, n)
    wide = drawn(rng, "complex64", 2 * k, 3 * n)
    for x in (a, np.asfortranarray(a), np.repeat(a, 2, axis=1)[:, ::2], a[::-1]):
        for y in (b, np.asfortranarray(b), wide[::2, ::3], wide[k:, n : 2 * n]):
            check(gemmgen.gemm(x, y), x, y)
            check(gemmgen.gemm(x, y, conjugate_a=True), x.conj(), y)
            check(gemmgen.gemm(x.T, y, transpose_a=True, conjugate_b=True), x, y.conj())
            check(gemmgen.gemm(x, y.T, transpose_b=True), x, y)
            for out in (np.empty((m, n), np.complex64, "F"), np.empty((m, 2 * n), np.complex64)[:, ::2]):
                assert gemmgen.gemm(x, y, out=out) is out
                check(out, x, y)
    a.flags.writeable = b.flags.writeable = False
    check(gemmgen.gemm(a, b), a, b)
    check(gemmgen.gemm(a.astype(">c8"), b), a, b)
    check(gemmgen.gemm(a.real.copy(), b), a.real.astype(np.complex64), b)
    check(gemmgen.gemm(a.view(np.matrix), b.view(np.matrix)), a, b)


def test_vectors_and_stacks(rng: np.random.Generator) -> None:
    a, b = drawn(rng, "complex128", 3, 40, 41), drawn(rng, "complex128", 41, 33)
    check(gemmgen.gemm(a, b), a, b)
    check(gemmgen.gemm(a[0], np.stack([b, b[::-1]])), a[0], np.stack([b, b[::-1]]))
    long = drawn(rng, "complex128", 500)
    square = drawn(rng, "complex128", 500, 500)
    check(gemmgen.gemm(long, square), long, square)
    check(gemmgen.gemm(square, long), square, long)
    long = drawn(rng, "complex128", 1 << 15)
    check(gemmgen.gemm(long, long), long, long)


def test_b_is_doubled_some_columns_at_a_time(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complex_products, "MOST", 4096)
    a, b, c = (drawn(rng, "complex64", *shape) for shape in ((120, 12), (12, 101), (120, 101)))
    before = c.copy()
    check(gemmgen.gemm(a, b, c, beta=1), a, b, (1, 1), before)


def test_infinities_and_nans_propagate(rng: np.random.Generator) -> None:
    a, b = drawn(rng, "complex64", 40, 40), drawn(rng, "complex64", 40, 40)
    a[3, 5], b[7, 9] = np.inf, np.nan
    found = gemmgen.gemm(a, b)
    touched = np.zeros((40, 40), bool)
    touched[3] = touched[:, 9] = True
    assert np.array_equal(np.isfinite(found), ~touched)


@pytest.mark.parametrize("shape", SHAPES[:2])
def test_infinities_are_met_in_silence(shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    """As kernels meet them: NumPy warns of what is no number, and of what is too large."""
    m, n, k = shape
    a, b = drawn(rng, "complex64", m, k), drawn(rng, "complex64", k, n)
    a[0, 0] = complex(np.inf, np.inf)
    c = np.full((m, n), complex(3e38, np.inf), np.complex64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gemmgen.gemm(a, b, c, alpha=1e38, beta=2 + 1j)
    assert not np.isfinite(found[0]).any()


def test_threads(rng: np.random.Generator) -> None:
    a, b = whole(rng, "complex64", 33, 120), whole(rng, "complex64", 120, 90)
    want = a @ b
    with ThreadPoolExecutor(8) as pool:
        assert all(np.array_equal(x, want) for x in pool.map(lambda _: gemmgen.gemm(a, b), range(64)))
