"""The one answer that results are held to: what it lets pass, and what never."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from gemmgen.ir.dtypes import BF16, C64, F16, F32, F64, I8, DType
from gemmgen.ir.numeric import convert, numpy_dtype
from gemmgen.oracle import Matrix, answer
from gemmgen.spec import GemmSpec

TYPES = [(F32, None), (F64, None), (F16, None), (F16, F32), (BF16, None), (C64, None)]
EPILOGUES = ["expr: tanh(acc) * 2", "relu"]


def drawn(rng: np.random.Generator, dtype: DType, *shape: int) -> Matrix:
    numbers = rng.standard_normal(shape)
    numbers = numbers if dtype.real is None else numbers + 1j * rng.standard_normal(shape)
    matrix = convert(numbers, dtype)
    assert isinstance(matrix, np.ndarray)
    return matrix


@pytest.mark.parametrize(
    ("dtype", "result", "epilogue"),
    [(*types, ()) for types in TYPES] + [(*types, (text,)) for types in TYPES[:-1] for text in EPILOGUES],
)
def test_nan_never_passes(
    rng: np.random.Generator, dtype: DType, result: DType | None, epilogue: tuple[str, ...]
) -> None:
    spec = GemmSpec(dtype=dtype, c_dtype=result, epilogue=epilogue)
    right = answer(spec, (drawn(rng, dtype, 2, 4, 9), drawn(rng, dtype, 9, 5), None))
    good = right.rounded
    assert right.holds(good).all()
    for bad in (np.nan, np.inf, -np.inf):
        wrong = good.copy()
        wrong[1, 2, 3] = bad
        assert right.holds(wrong).sum() == good.size - 1
        assert right.parts(wrong)[1, 2, 3] == right.distance(wrong)[1, 2, 3] == np.inf
    assert not right.holds(np.full_like(good, np.nan)).any()


def test_an_answer_that_is_nan_is_met_by_nothing() -> None:
    """Not even by a NaN: who expects one must say so, and not compare by a bound."""
    a = np.full((1, 1), np.nan, np.float32)
    right = answer(GemmSpec(), (a, a, None))
    assert not any(right.holds(np.full((1, 1), x, np.float32)).any() for x in (np.nan, 0, np.inf))


def test_where_nothing_is_added_nothing_may_be_off() -> None:
    """Garbage that is small, such as an integer's bits, is no zero."""
    a, b = np.ones((2, 0), np.float32), np.ones((0, 2), np.float32)
    right = answer(GemmSpec(), (a, b, None))
    assert right.holds(np.zeros((2, 2), np.float32)).all()
    assert right.holds(-np.zeros((2, 2), np.float32)).all()
    assert not right.holds(np.full((2, 2), 1e-44, np.float32)).any()
    half = answer(GemmSpec(dtype=F16), (a.astype(np.float16), b.astype(np.float16), None))
    assert not half.holds(np.full((2, 2), 6e-8, np.float16)).any()


def test_what_c_cannot_hold_is_infinite() -> None:
    """Of the right sign; a finite number is as wrong there as an infinity elsewhere."""
    a = np.array([[300.0, -300.0, 1.0]], np.float16).T
    right = answer(GemmSpec(dtype=F16), (a, np.full((1, 1), 300, np.float16), None))
    inf, most = np.inf, 65504
    for column, good in (((inf, -inf, 300), True), ((inf, inf, 300), False), ((most, -most, 300), False)):
        assert right.holds(np.array([column], np.float16).T).all() == good
    assert right.holds(np.array([[inf, -inf, inf]], np.float16).T).ravel().tolist() == [True, True, False]


def test_whole_numbers_are_exact() -> None:
    a = np.full((1, 3), 100, np.int8)
    right = answer(GemmSpec(dtype=I8), (a, a.T, np.full((1, 1), 7, np.int32)), (2, -1))
    assert right.holds(np.full((1, 1), 59993, np.int32)).all()
    assert not right.holds(np.full((1, 1), 59994, np.int32)).any()


@pytest.mark.parametrize(("dtype", "result"), TYPES)
def test_sums_in_order_are_within_the_bound_and_half_the_digits_are_not(
    rng: np.random.Generator, dtype: DType, result: DType | None
) -> None:
    """With one rounding for each product and sum; and the same products of elements cut to half their bits."""
    a, b = drawn(rng, dtype, 20, 200), drawn(rng, dtype, 200, 20)
    spec = GemmSpec(dtype=dtype, c_dtype=result)
    right = answer(spec, (a, b, None))
    sums = numpy_dtype(spec.accumulator)
    total = np.zeros((20, 20), sums)
    for k in range(200):
        total = (total + a[:, k : k + 1].astype(sums) * b[k : k + 1].astype(sums)).astype(sums)
    assert right.holds(np.asarray(convert(total, spec.result))).all()
    coarse = answer(replace(spec, dtype=F32, c_dtype=None), (np.round(a.real, 1), np.round(b.real, 1), None)).value
    assert not right.holds(np.asarray(convert(coarse, spec.result))).all()


def test_what_is_too_large_for_a_type_becomes_infinite_in_silence() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(np.asarray(convert(np.array([1e6, -1e6]), F16)), [np.inf, -np.inf])
        assert convert(1e6, F16) == np.inf
