"""What the array API standard (2024.12) says of matmul, vecdot and tensordot, of `gemmgen.gemm`.

In our own words, and element by element from the definitions; data-apis' own suite is in no package index.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmgen.errors import DeviceError
from gemmgen.runtime.opencl_devices import devices
from tests.support import array_namespace as xp

try:
    devices()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

Array = Any
Shape = tuple[int, ...]
SIGNED, UNSIGNED = ("int8", "int16", "int32", "int64"), ("uint8", "uint16", "uint32", "uint64")
REAL, COMPLEX = ("float32", "float64"), ("complex64", "complex128")


def wider(names: tuple[str, ...], x: str, y: str) -> str:
    return max(x, y, key=names.index)


def promoted(x: str, y: str) -> str | None:
    """The standard's table, by its rules; None where it leaves the type open."""
    for names in (SIGNED, UNSIGNED, REAL, COMPLEX):
        if x in names and y in names:
            return wider(names, x, y)
    kinds = {name: next(k for k in (SIGNED, UNSIGNED, REAL, COMPLEX) if name in k) for name in (x, y)}
    if set(kinds.values()) == {SIGNED, UNSIGNED}:
        signed, unsigned = (x, y) if x in SIGNED else (y, x)
        at = max(SIGNED.index(signed), UNSIGNED.index(unsigned) + 1)
        return SIGNED[at] if at < len(SIGNED) else None
    if set(kinds.values()) == {REAL, COMPLEX}:
        real, whole = (x, y) if x in REAL else (y, x)
        return COMPLEX[max(REAL.index(real), COMPLEX.index(whole))]
    return None


PAIRS = [
    (x, y) for x, y in itertools.product((*SIGNED, *UNSIGNED, *REAL, *COMPLEX), repeat=2) if promoted(x, y) is not None
]


def drawn(rng: np.random.Generator, shape: Shape, dtype: str) -> Array:
    """Small whole numbers, whose sums of a few products every type holds."""
    values = rng.integers(0 if dtype.startswith("u") else -2, 3, shape)
    return (values + 1j * rng.integers(-2, 3, shape) if dtype in COMPLEX else values).astype(dtype)


def exact(x: Array) -> Array:
    """The numbers as Python's own."""
    return np.array(x.tolist(), object).reshape(x.shape)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[Shape, Shape, Shape]:
    """Two shapes that can be broadcast, of up to two dimensions, and what they give."""
    whole = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
    own = []
    for _ in range(2):
        kept = whole[draw(st.integers(0, len(whole))) :]
        own.append(tuple(draw(st.sampled_from([extent, 1])) for extent in kept))
    return own[0], own[1], np.broadcast_shapes(*own)


pairs = st.sampled_from(PAIRS)
seeds = st.integers(0, 2**16).map(np.random.default_rng)
quickly = settings(max_examples=60, deadline=None, derandomize=True)


@quickly
@given(pairs, stacks(), st.tuples(*[st.integers(0, 4)] * 3), st.tuples(st.booleans(), st.booleans()), seeds)
def test_matmul(
    dtypes: tuple[str, str],
    batch: tuple[Shape, Shape, Shape],
    size: tuple[int, int, int],
    vectors: tuple[bool, bool],
    rng: np.random.Generator,
) -> None:
    """A vector is a row on the left, a column on the right; stacks are broadcast; the type is the promoted one."""
    m, n, k = size
    shapes = ((k,) if vectors[0] else (*batch[0], m, k), (k,) if vectors[1] else (*batch[1], k, n))
    x1, x2 = (drawn(rng, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True))
    result = xp.matmul(x1, x2)
    lead = () if all(vectors) else batch[1] if vectors[0] else batch[0] if vectors[1] else batch[2]
    shape = (*lead, *(() if vectors[0] else (m,)), *(() if vectors[1] else (n,)))
    assert isinstance(result, np.ndarray)
    assert (str(result.dtype), result.shape) == (promoted(*dtypes), shape)
    left = exact(x1)[None, :] if vectors[0] else exact(x1)
    right = exact(x2)[:, None] if vectors[1] else exact(x2)
    full = (*lead, left.shape[-2], right.shape[-1])
    left = np.broadcast_to(left, (*lead, *left.shape[-2:]))
    right = np.broadcast_to(right, (*lead, *right.shape[-2:]))
    expected = np.empty(full, object)
    for at in np.ndindex(full):
        *where, i, j = at
        expected[at] = sum(left[(*where, i, p)] * right[(*where, p, j)] for p in range(k))
    assert (result.reshape(full) == expected).all()


@quickly
@given(pairs, stacks(), st.integers(0, 5), st.integers(-3, -1), seeds)
def test_vecdot(
    dtypes: tuple[str, str], batch: tuple[Shape, Shape, Shape], k: int, axis: int, rng: np.random.Generator
) -> None:
    """The first is conjugated; the axis counts from the end, and all others are broadcast."""
    axis = max(axis, -1 - min(len(batch[0]), len(batch[1])))

    def shape(own: Shape) -> Shape:
        at = len(own) + axis + 1
        return (*own[:at], k, *own[at:])

    x1, x2 = (drawn(rng, shape(own), dtype) for own, dtype in zip(batch[:2], dtypes, strict=True))
    result = xp.vecdot(x1, x2, axis=axis)
    assert (str(result.dtype), result.shape) == (promoted(*dtypes), batch[2])
    first, second = (np.broadcast_to(np.moveaxis(exact(x), axis, -1), (*batch[2], k)) for x in (x1, x2))
    for at in np.ndindex(batch[2]):
        expected = sum(complex(p).conjugate() * q for p, q in zip(first[at], second[at], strict=True))
        assert result[at] == expected


@quickly
@given(pairs, st.lists(st.integers(0, 3), max_size=3), st.lists(st.integers(1, 3), max_size=2), st.data(), seeds)
def test_tensordot(
    dtypes: tuple[str, str], kept: list[int], common: list[int], data: st.DataObject, rng: np.random.Generator
) -> None:
    """Axes that meet, in any place and order, or the last ones of the first and the first ones of the second."""
    cut = data.draw(st.integers(0, len(kept)))
    own = (*kept[:cut], *common), (*common, *kept[cut:])
    x1, x2 = (drawn(rng, shape, dtype) for shape, dtype in zip(own, dtypes, strict=True))
    count = len(common)
    expected = np.tensordot(exact(x1), exact(x2), count) if x1.size and x2.size else np.zeros(kept, object)
    result = xp.tensordot(x1, x2, axes=count)
    assert (str(result.dtype), result.shape) == (promoted(*dtypes), tuple(kept))
    assert (result == expected).all()
    turns = [data.draw(st.permutations(range(x.ndim))) for x in (x1, x2)]
    transposed = [x.transpose(turn) for x, turn in zip((x1, x2), turns, strict=True)]
    axes = [turns[0].index(cut + i) for i in range(count)], [turns[1].index(i) for i in range(count)]
    order = [axis for axis in turns[0] if axis < cut], [axis - count for axis in turns[1] if axis >= count]
    again = xp.tensordot(transposed[0], transposed[1], axes=axes)
    assert (again == result.transpose([*order[0], *(cut + axis for axis in order[1])])).all()


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        ("matmul", ((), (3,))),
        ("matmul", ((3,), ())),
        ("matmul", ((2, 3), (2, 3))),
        ("matmul", ((3,), (2, 3))),
        ("matmul", ((2, 3), (2,))),
        ("matmul", ((2, 4, 3), (3, 3, 2))),
        ("matmul", ((1, 1), (2, 1))),
        ("vecdot", ((3,), (1,))),
        ("vecdot", ((2, 3), (4, 3))),
        ("vecdot", ((), (3,))),
        ("tensordot", ((2, 3), (3, 2))),
    ],
)
def test_what_must_raise(function: str, shapes: tuple[Shape, Shape]) -> None:
    """No scalars, no sizes that differ, also where one of them is 1, and stacks that can't be broadcast."""
    x1, x2 = (np.zeros(shape, np.float32) for shape in shapes)
    with pytest.raises((ValueError, TypeError, IndexError)):
        getattr(xp, function)(x1, x2)


@pytest.mark.parametrize("function", ["matmul", "vecdot", "tensordot"])
def test_the_same_in_linalg_and_not_of_truth_values(function: str) -> None:
    assert getattr(xp.linalg, function) is getattr(xp, function)
    with pytest.raises(TypeError):
        getattr(xp, function)(np.ones((2, 2), np.bool_), np.ones((2, 2), np.bool_))


@pytest.mark.parametrize(("x", "y"), [("float32", "float64"), ("complex64", "float64"), ("int8", "uint8")])
def test_arrays_of_the_strict_library(x: str, y: str) -> None:
    """Which has nothing but the standard, and gets its own arrays back."""
    strict = pytest.importorskip("array_api_strict")
    x1, x2 = (strict.asarray(np.arange(6).reshape(shape).astype(t)) for shape, t in (((2, 3), x), ((3, 2), y)))
    for function, by_numpy in (("matmul", np.matmul), ("tensordot", lambda a, b: np.tensordot(a, b, 1))):
        result = getattr(xp, function)(x1, x2, **({"axes": 1} if function == "tensordot" else {}))
        assert type(result) is type(x1)
        assert result.dtype == getattr(strict, promoted(x, y) or "")
        assert np.array_equal(np.from_dlpack(result), by_numpy(np.from_dlpack(x1), np.from_dlpack(x2)))
    assert np.array_equal(np.from_dlpack(xp.vecdot(x1, x1)), [5, 50])
