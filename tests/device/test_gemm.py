"""`gemmgen.gemm` against NumPy's matmul: any shapes, strides and types, on NumPy's, pyopencl's and torch's arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gemmgen
from gemmgen.api.libraries import NumPy
from gemmgen.api.matmul import Call, Operand
from gemmgen.errors import DtypeError, SpecError
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.runtime.cache import Kept
from tests.device.naive import found
from tests.support.presets import counted
from tests.support.tensors import need_torch

if not found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)

Numbers = npt.NDArray[np.float64]
#: NumPy's characters of every type that a kernel computes.
TYPES = "?bhilqBHILQefd"


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: object = np.float64) -> Numbers:
    """Small whole numbers, whose products every type holds."""
    return rng.integers(0, 3, shape).astype(np.dtype(dtype))  # type: ignore[call-overload]


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtype: object) -> Numbers:
    """An array of a shape, by any strides: cut from a larger one, its axes in another order, backwards or repeated."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    order = draw(st.permutations(range(len(shape))))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, -1, 0]), min_size=len(shape), max_size=len(shape)))
    extents = [1 if step == 0 else extent * abs(step) for extent, step in zip(shape, steps, strict=True)]
    base = whole(rng, tuple(extents[axis] for axis in order), dtype)
    view = base.transpose(np.argsort(order)) if order else base
    view = view[tuple(slice(None, None, step or None) for step in steps)]
    return np.broadcast_to(view, shape) if 0 in steps else view


@st.composite
def products(draw: st.DrawFn) -> tuple[Numbers, Numbers, bool, bool]:
    """Operands of one product, and whether each is given transposed."""
    dtypes = draw(st.sampled_from(TYPES)), draw(st.sampled_from(TYPES))
    if draw(st.booleans()):
        dtypes = dtypes[:1] * 2
    m, n, k = (draw(st.integers(0, 5)) for _ in range(3))
    batch = draw(st.lists(st.integers(0, 3), max_size=3))
    sides = []
    for shape, dtype in zip(((m, k), (k, n)), dtypes, strict=True):
        own = [draw(st.sampled_from([extent, 1])) for extent in batch[draw(st.integers(0, len(batch))) :]]
        transposed = draw(st.booleans())
        is_vector = draw(st.integers(0, 4)) == 0
        lines = (k,) if is_vector else shape[::-1] if transposed else shape
        sides.append((draw(arrays((*(() if is_vector else own), *lines), dtype)), transposed))
    return sides[0][0], sides[1][0], sides[0][1], sides[1][1]


def expected(a: Numbers, b: Numbers, turn_a: bool, turn_b: bool) -> Numbers:
    left, right = (x.swapaxes(-1, -2) if t and x.ndim > 1 else x for x, t in ((a, turn_a), (b, turn_b)))
    return np.asarray(np.matmul(left, right))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(products())
def test_any_shapes_strides_and_types(operands: tuple[Numbers, Numbers, bool, bool]) -> None:
    a, b, turn_a, turn_b = operands
    answer = expected(*operands)
    for _ in range(2):  # the second call is a prepared one
        result = gemmgen.gemm(a, b, transpose_a=turn_a, transpose_b=turn_b)
        assert result.dtype == answer.dtype
        assert np.array_equal(result, answer)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(products(), st.sampled_from([0, 1, -2, 3]), st.sampled_from([0, 1, 2]), st.data())
def test_any_output(operands: tuple[Numbers, Numbers, bool, bool], alpha: int, beta: int, data: st.DataObject) -> None:
    a, b = (x.astype(np.float64) for x in operands[:2])
    answer = expected(a, b, *operands[2:])
    order = data.draw(st.permutations(range(answer.ndim)))
    base = np.full(tuple(answer.shape[axis] * 2 for axis in order), 5.0)
    out = base.transpose(np.argsort(order))[tuple(slice(None, None, 2) for _ in order)] if order else base
    c = data.draw(arrays(answer.shape, np.float64))
    before = c.copy()
    by = partial(gemmgen.gemm, transpose_a=operands[2], transpose_b=operands[3])
    for _ in range(2):
        base[...] = 5
        assert by(a, b, c, alpha=alpha, beta=beta, out=out) is out
        assert np.array_equal(out, alpha * answer + beta * c)
    assert np.array_equal(c, before)
    assert np.count_nonzero(base == 5) >= base.size - out.size, "something else was written to"


def test_c_in_place_and_not_read() -> None:
    rng = np.random.default_rng(0)
    a, b, c = whole(rng, (7, 5)), whole(rng, (5, 3)), whole(rng, (7, 3))
    answer = 2 * a @ b + 3 * c
    assert gemmgen.gemm(a, b, c, alpha=2, beta=3) is c
    assert np.array_equal(c, answer)
    c[:] = np.nan
    assert np.array_equal(gemmgen.gemm(a, b, c), a @ b)
    spoilt = np.full((7, 5), np.nan)
    assert np.array_equal(gemmgen.gemm(spoilt, b, c, alpha=0, beta=2, out=c), 2 * (a @ b))
    row = whole(rng, (3,))
    assert np.array_equal(gemmgen.gemm(a, b, row, beta=1, out=np.empty((7, 3))), a @ b + row)


def test_wide_sums_where_they_are_asked_for() -> None:
    a = np.full((2, 300), 100, np.int8)
    assert gemmgen.gemm(a, a.T).dtype == np.int8
    assert np.array_equal(gemmgen.gemm(a, a.T), a @ a.T)
    wide = np.full((2, 2), 3_000_000)
    assert np.array_equal(gemmgen.gemm(a, a.T, dtype=np.int32), wide)
    sums: npt.NDArray[np.generic] = np.empty((2, 2), np.int32)
    assert np.array_equal(gemmgen.gemm(a, a.T, out=sums), wide)
    half = np.full((1, 100), 30, np.float16)
    assert gemmgen.gemm(half, half.T, dtype=np.float32) == 90_000
    assert np.isinf(gemmgen.gemm(half, half.T))


def test_types_are_promoted_as_numpys() -> None:
    rng = np.random.default_rng(1)
    for x, y in (("f", "d"), ("e", "f"), ("i", "f"), ("b", "B"), ("?", "h"), ("f", ">f"), ("l", "Q")):
        a, b = whole(rng, (3, 4), x), whole(rng, (4, 2), y)
        result = gemmgen.gemm(a, b)
        assert result.dtype == (a @ b).dtype
        assert np.array_equal(result, a @ b)
    assert np.asarray(gemmgen.gemm([[1, 2]], [[3], [4]])) == [[11]]


@pytest.mark.parametrize(
    "shapes", [((3, 4, 9), (9, 5)), ((2, 1, 4, 9), (3, 9, 5)), ((4, 9), (2, 2, 9, 5)), ((3, 9), (9,))]
)
def test_stacks_have_the_bits_of_their_matrices(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """As tests of the array API ask: however a stack is launched, each product is that of its two matrices."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    result = gemmgen.gemm(a, b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    left = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    right = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    for index in np.ndindex(batch):
        assert np.array_equal(result[index], gemmgen.gemm(left[index].copy(), right[index].copy()))


@pytest.mark.parametrize(("m", "n", "k"), [(200, 140, 150), (150, 200, 90)])
def test_products_of_some_size(m: int, n: int, k: int) -> None:
    """Beyond what is small to `choose`."""
    rng = np.random.default_rng(2)
    a, b = whole(rng, (m, k), np.float32), whole(rng, (n, k), np.float32)
    assert np.array_equal(gemmgen.gemm(a, b.T), a @ b.T)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_an_epilogue_may_lie_anyhow(order: Literal["C", "F"]) -> None:
    """They were refused where A and B are copied; a call like one before must see the elements that are there then."""
    rng = np.random.default_rng(7)
    a, b = whole(rng, (20, 30), np.float32), whole(rng, (30, 40), np.float32)
    bias, residual = whole(rng, (80,), np.float32)[::2], whole(rng, (20, 80), np.float32)[::-1, ::2]
    for beside in (residual, np.asfortranarray(residual), np.broadcast_to(residual[0], (20, 40))):
        for step in (1, -1):
            out = np.empty((20, 40), np.float32, order=order)
            gemmgen.gemm(a, b, out=out, epilogue=["bias", "residual"], bias=bias[::step], residual=beside)
            assert np.array_equal(out, a @ b + bias[::step] + beside)
            bias[3] += 1


def test_elements_that_no_kernel_has() -> None:
    a = np.array([[1, 2], [3, 4]], np.longdouble)
    assert np.array_equal(gemmgen.gemm(a, a, a.copy(), alpha=2, beta=3), 2 * (a @ a) + 3 * a)
    with pytest.raises(DtypeError, match="NumPy alone can multiply"):
        gemmgen.gemm(a, a, backend="opencl")


class Sparse:
    """As SciPy's are."""

    def toarray(self) -> Numbers:
        """All elements."""
        return Z((2, 2))


Z, BF, SPARSE = np.zeros, numpy_dtype(BF16), Sparse()
#: No number, though the types say so.
Q = cast(float, "x")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: gemmgen.gemm(Z((2, 3)), Z((4, 2))), ValueError, "a has k = 3, b k = 4"),
        (lambda: gemmgen.gemm(Z((2, 3)), Z((3, 2)), transpose_b=True), ValueError, "b 3x2 transposed do not fit"),
        (lambda: gemmgen.gemm(Z((2, 3, 4)), Z((3, 4, 2))), ValueError, "stacks of 2 and 3 matrices"),
        (lambda: gemmgen.gemm(3, Z(2)), TypeError, "a is a scalar"),
        (lambda: gemmgen.gemm(None, Z(2)), ValueError, "a is of type NoneType, not an array"),
        (lambda: gemmgen.gemm(Z(2), "ab"), ValueError, "b is of type str, not an array"),
        (lambda: gemmgen.gemm([[1], [2, 3]], Z(2)), ValueError, "Pass rows of one length"),
        (lambda: gemmgen.gemm([Z((2, 2)), Z((1, 2))], Z((2, 2))), ValueError, "Pass matrices of one shape"),
        (lambda: gemmgen.gemm(Z((2, 2)), [Z((2, 2)), Z((2, 1))]), ValueError, "beside a list of results as out"),
        (lambda: gemmgen.gemm(Z(2), Z(2), transpose_a=np.arange(2)), ValueError, "is of type ndarray: pass True or"),  # type: ignore[arg-type]
        (lambda: gemmgen.gemm(SPARSE, Z(2)), ValueError, "a is of type Sparse, not an array: pass a.toarray()"),
        (lambda: gemmgen.gemm(Z(2), Z(2), transpose_a="no"), ValueError, "transpose_a = 'no' is of type str"),  # type: ignore[arg-type]
        (lambda: gemmgen.gemm(np.array(["x"]), np.array(["y"])), TypeError, "can't be multiplied"),
        (lambda: gemmgen.gemm(Z(2), np.array([0], "M8[s]")), TypeError, "no type in common"),
        (lambda: gemmgen.gemm(Z(2), Z(2), dtype="nonsense"), TypeError, "is no element type"),
        (lambda: gemmgen.gemm(Z(2), Z(2), dtype=np.int32), TypeError, "does not hold products of float64"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), out=Z((2, 2), int)), TypeError, "out's int64 (same_kind)"),
        # ml_dtypes calls complex numbers and its real ones the same kind.
        (lambda: gemmgen.gemm(Z((2, 2), "F"), Z(2), dtype="bfloat16"), TypeError, "does not hold products of complex"),
        (lambda: gemmgen.gemm(Z((2, 2), "F"), Z((2, 2)), out=Z((2, 2), BF)), TypeError, "cast to out's bfloat16"),
        (lambda: gemmgen.gemm(Z(2, BF), Z((2, 2), BF), epilogue="bias", bias=Z(2, "F")), ValueError, "bias of complex"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), out=Z((2, 3))), ValueError, "shape 2x3, not 2x2"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), out=[[0.0]]), ValueError, "out is of type list"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), beta=1), ValueError, "c that was not given"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), alpha=Q), ValueError, "alpha = 'x' is of type str"),
        (lambda: gemmgen.gemm(Z(2, "l"), Z(2, "l"), alpha=2**60 + 1), ValueError, "no number that float64 holds"),
        (lambda: gemmgen.gemm(Z(2, "l"), Z(2, "l"), alpha=0.5), ValueError, "no whole number"),
        (lambda: gemmgen.gemm(x := Z((2, 2)), Z((2, 2)), out=x.T), ValueError, "out overlaps a"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), out=np.broadcast_to(0.0, (2, 2))), ValueError, "read-only"),
        (lambda: gemmgen.gemm(np.ma.ones((2, 2)), Z((2, 2))), ValueError, "masked array"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), backend="cuda"), ValueError, "cupy.asarray"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), device=[1]), gemmgen.DeviceError, "device is of type list"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), device=""), gemmgen.DeviceError, "no device matches device ''"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), schedule="nain"), gemmgen.ScheduleError, "naive"),
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), schedule=3), gemmgen.ScheduleError, "schedule is of type int"),  # type: ignore[arg-type]
        (lambda: gemmgen.gemm(Z((2, 2)), Z((2, 2)), Z((3, 2)), beta=1, out=Z((2, 2))), ValueError, "c of 3x2"),
    ],
)  # fmt: skip
def test_what_is_refused(call: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        call()  # type: ignore[operator]
    assert said in str(caught.value)
    assert isinstance(caught.value, gemmgen.GemmgenError)


def test_an_array_of_an_epilogue_in_the_result() -> None:
    """The result is called as the caller passed it."""
    a, b, c = Z((2, 2)), Z((2, 2)), Z((2, 2))
    with pytest.raises(SpecError, match=r"^out overlaps bias in memory: pass another out, or a copy of bias$"):
        gemmgen.gemm(a, b, out=c, epilogue="bias", bias=c[0])
    with pytest.raises(SpecError, match=r"^c overlaps bias in memory"):
        gemmgen.gemm(a, b, c, epilogue="bias", bias=c[0])
    with pytest.raises(SpecError, match=r"^out overlaps residual in memory"):
        gemmgen.grouped(a, b[None], [2], out=c, epilogue="residual", residual=c)


def test_every_problem_at_once() -> None:
    with pytest.raises(DtypeError) as caught:
        gemmgen.gemm(Z((2, 3)), Z((4, 2)), alpha=Q, beta=1, dtype=np.int8)
    assert len(caught.value.problems) == 4


def test_formulas_hide_nothing_of_arrays() -> None:
    """Nor does one wrong argument hide another, whatever it is that is wrong."""
    wrong: Any = "yes"
    with pytest.raises(SpecError) as caught:
        gemmgen.gemm(
            Z((2, 3)), Z((4, 2)), alpha=Q, epilogue="foo", transpose_a=wrong, backend="vulkan", schedule="nope"
        )
    expected = ("transpose_a =", "alpha =", "backend 'vulkan'", "no function 'foo'", "do not fit", "preset 'nope'")
    for problem, said in zip(caught.value.problems, expected, strict=True):
        assert said in problem
    with pytest.raises(SpecError) as caught:
        gemmgen.grouped(Z((2, 3)), Z((1, 3, 2)), [3], epilogue="foo", alpha=Q, schedule="nope")
    assert [said in "".join(caught.value.problems) for said in ("foo", "alpha", "nope", "offsets")] == [True] * 4


def test_pyopencl_arrays() -> None:
    rng = np.random.default_rng(3)
    info = next((d for d in found() if "sub_groups" in d.features), found()[0])
    queue = cl.CommandQueue(context := cl.Context([info.handle]))  # which the queue does not keep
    a, b = whole(rng, (4, 6, 5), np.float32), whole(rng, (3, 5), np.float32)
    here, there = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    result = gemmgen.gemm(here, there, transpose_b=True)
    assert isinstance(result, cl_array.Array) and result.events
    assert np.array_equal(result.get(), a @ b.T)
    base = cl_array.zeros(queue, (6, 4, 3), np.float32)
    out = base.transpose((1, 0, 2))
    assert gemmgen.gemm(here, there, out=out, transpose_b=True) is out
    assert np.array_equal(base.get().transpose(1, 0, 2), a @ b.T)
    assert np.array_equal(gemmgen.gemm(here[1], there.T).get(), a[1] @ b.T)
    c = cl_array.to_device(queue, whole(rng, (4, 6, 3), np.float32))
    assert np.array_equal(
        gemmgen.gemm(here, there, c, beta=2, transpose_b=True, out=cl_array.zeros_like(c)).get(), a @ b.T + 2 * c.get()
    )
    assert np.array_equal(gemmgen.gemm(here[0, 0], there.T).get(), a[0, 0] @ b.T)
    assert here.context == context
    with pytest.raises(SpecError, match="leave it out"):
        gemmgen.gemm(here, there, transpose_b=True, device=0)
    for bad, said in ((here[:, :, ::2], "strides"), (here.astype(np.int16), "dtype int16"), (a, "two kinds")):
        with pytest.raises(SpecError, match=said):
            gemmgen.gemm(bad, there, transpose_b=True)


def test_torch_on_the_cpu() -> None:
    torch = need_torch()
    a, b = torch.arange(12.0).reshape(3, 4), torch.arange(8.0).reshape(2, 4)
    result = gemmgen.gemm(a, b.T)
    assert torch.equal(result, a @ b.T)
    out = torch.zeros(3, 2)
    assert gemmgen.gemm(a, b, transpose_b=True, out=out) is out
    assert torch.equal(out, result)
    assert gemmgen.gemm(a.bfloat16(), b.T.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(SpecError, match="detach"):
        gemmgen.gemm(a.requires_grad_(), b.T)


def test_matrices_of_numpy() -> None:
    """As numpy.matmul has it: what comes of a `numpy.matrix` is one, and has two dimensions."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    matrix = array.view(np.matrix)
    for a, b in ((matrix, array.T), (array, matrix.T), (matrix, array[0]), (matrix.T, matrix)):
        result, right = gemmgen.gemm(a, b), np.matmul(a, b)
        assert (type(result), result.dtype, result.shape) == (np.matrix, right.dtype, right.shape)
        assert np.array_equal(result, right)
    out = np.empty((3, 3), np.float32)
    assert gemmgen.gemm(matrix, matrix.T, out=out) is out
    assert np.array_equal(out, array @ array.T)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_8_bit_floats_are_multiplied_in_float32(name: str, rng: np.random.Generator) -> None:
    """numpy.matmul's result is float32, too. Other types of floats are there for the asking."""
    a, b = (rng.normal(size=shape).astype(numpy_dtype(name)) for shape in ((9, 40), (40, 7)))
    right = a.astype(np.float64) @ b.astype(np.float64)
    result = gemmgen.gemm(a, b)
    assert result.dtype == np.matmul(a, b).dtype == np.float32
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)
    for dtype in ("bfloat16", "float16", "float64", name):
        assert gemmgen.gemm(a, b, dtype=dtype).dtype == dtype
    out = np.zeros((9, 7), np.float16)
    assert gemmgen.gemm(a, b, out=out) is out
    np.testing.assert_allclose(out, right, rtol=2e-3, atol=2e-3)


def test_several_threads_at_once() -> None:
    """Each with shapes and types of its own, whose kernels the others need at the same time."""
    rng = np.random.default_rng(4)
    pairs = [(whole(rng, (9, 7 + i % 3), "fd"[i % 2]), whole(rng, (7 + i % 3, 5), "fd"[i % 2])) for i in range(24)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda pair: gemmgen.gemm(*pair), pairs))
    assert all(np.array_equal(result, a @ b) for result, (a, b) in zip(results, pairs, strict=True))


def test_what_is_kept_is_made_once_and_bounded() -> None:
    kept: Kept[int, object] = Kept(3)
    made: list[int] = []

    def make(key: int) -> object:
        made.append(key)
        return object()

    with ThreadPoolExecutor(8) as pool:
        first = set(pool.map(lambda key: kept.get(key % 2, lambda: make(key % 2)), range(64)))
    assert sorted(made) == [0, 1] and len(first) == 2
    with pytest.raises(ZeroDivisionError):
        kept.get(7, lambda: 1 // 0)
    for key in (2, 0, 3, 4):
        kept.get(key, lambda key=key: make(key))  # type: ignore[misc]
    assert len(kept) == 3
    assert sorted(made) == [0, 1, 2, 3, 4]
    assert kept.known(1) is None, "the one that was not used for longest had to go"
    assert kept.known(0) is kept.get(0, object)
    kept.get(5, object)
    kept.get(6, object)
    assert (kept.known(0), kept.known(3)) == (kept.get(0, object), None), "asking is using"


def test_no_other_library_multiplies() -> None:
    """NumPy computes products of elements that no kernel has, and small ones where a calibration says so."""
    package = Path(gemmgen.__file__).parent
    found = {
        path.name: [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if _multiplies(node)]
        for folder in ("api", "runtime")
        for path in (package / folder).glob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {
        "gemm.py": ["operator.matmul(left, right)"],
        "calibration.py": ["np.matmul(a, b, out=c)", "np.matmul(a, b)"],
    }


def _multiplies(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    names = {"matmul", "dot", "einsum", "tensordot", "inner", "mm", "bmm"}
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names


def test_epilogues_and_conjugated_operands() -> None:
    rng = np.random.default_rng(7)
    a, b, c = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((20, 9), (9, 13), (20, 13)))
    bias = rng.integers(-9, 9, 13)
    product = a @ b
    assert np.array_equal(gemmgen.gemm(a, b, epilogue=["bias", "relu"], bias=bias), np.maximum(product + bias, 0))
    rows = np.arange(20)
    both = gemmgen.gemm(a, b, epilogue=("row_bias", "residual"), row_bias=rows, residual=c)
    assert np.array_equal(both, product + rows[:, None] + c)
    stack = np.stack([a, -a])
    assert np.array_equal(gemmgen.gemm(stack, b, epilogue="bias", bias=bias), stack @ b + bias)
    assert np.array_equal(gemmgen.gemm(a, b, c.copy(), epilogue="expr: acc + 2 * c"), product + 2 * c)
    z, w = a + 1j * a[::-1], b - 2j * b
    assert np.array_equal(gemmgen.gemm(z, w, alpha=1 + 2j, conjugate_a=True), (1 + 2j) * (z.conj() @ w))


@pytest.mark.parametrize(
    ("epilogue", "operands", "problem"),
    [
        ("residual", {"residual": np.ones((3, 3))}, "residual can't be taken by a stack of products: call gemm for"),
        (None, {"bias": np.ones(3)}, "bias means nothing without an epilogue that names it: leave it out"),
        ("expr: acc + c", {}, "the epilogue reads a c that was not given: pass c"),
        ("nonsense", {}, "no function 'nonsense'"),
    ],
)
def test_what_an_epilogue_lacks(epilogue: str | None, operands: dict[str, Numbers], problem: str) -> None:
    a = np.ones((2, 3, 3), np.float32)
    with pytest.raises(SpecError, match=problem):
        cast("Callable[..., object]", gemmgen.gemm)(a, a, epilogue=epilogue, **operands)
    with pytest.raises(TypeError, match=r"gemm\(\) got an unexpected keyword argument 'biass'"):
        gemmgen.gemm(a, a, epilogue=epilogue, biass=a)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each call of `gemm` that is checked in full, instead of replayed."""
    return counted(monkeypatch, import_module("gemmgen.api.gemm"), "_checked")


def test_calls_that_are_repeated(checked: list[int], rng: np.random.Generator) -> None:
    """The second one is replayed, with the same result; what differs in any way is checked."""
    a, b, c = (whole(rng, shape, np.float32) for shape in ((9, 5), (5, 7), (9, 7)))
    for old in (None, c):
        gemmgen.gemm(a, b, None if old is None else old.copy(), alpha=3, beta=0 if old is None else 2)
        before = len(checked)
        for alpha in (-2, 5, 1):
            into = None if old is None else old.copy()
            result = gemmgen.gemm(a.copy(), b.copy(), into, alpha=alpha, beta=0 if old is None else 3)
            assert into is None or result is into
            assert (result == (alpha * a @ b if old is None else alpha * a @ b + 3 * old)).all()
        assert len(checked) == before
    square = whole(rng, (6, 6), np.float32)
    for _ in range(2):
        assert (gemmgen.gemm(square, square.T, square.copy(), beta=1) == square @ square.T + square).all()
        with pytest.raises(SpecError, match="c overlaps b in memory"):
            gemmgen.gemm(square.copy(), square.T, square, beta=1)
        c.flags.writeable = False
        with pytest.raises(SpecError, match="read-only"):
            gemmgen.gemm(a, b, c)
        c.flags.writeable = True
        gemmgen.gemm(a, b, c.copy())
        for x, y in ((a[:, ::-1], b), (np.asfortranarray(a), b), (a[0], b), (a, b[None])):
            assert np.array_equal(gemmgen.gemm(x, y), x @ y)
        with pytest.raises(SpecError, match="beta"):
            gemmgen.gemm(a, b, beta=2)
        with pytest.raises(SpecError, match="pass a real number"):
            gemmgen.gemm(a, b, alpha=1 + 0j)
        with pytest.raises(SpecError, match="exceeds float32"):
            gemmgen.gemm(a, b, alpha=1e300)
        assert (gemmgen.gemm(a, b, alpha=2.0) == 2 * (a @ b)).all()


def test_every_argument_is_part_of_the_key(checked: list[int], rng: np.random.Generator) -> None:
    a = whole(rng, (6, 6), np.float32)
    gemm = cast("Callable[..., npt.NDArray[np.generic]]", gemmgen.gemm)
    options: tuple[dict[str, object], ...] = (
        {},
        {"transpose_a": True},
        {"transpose_b": True},
        {"epilogue": "relu"},
        {"epilogue": ["relu", "expr: acc + 1"]},
        {"prologue_a": "a * 2"},
        {"prologue_b": "b * 2"},
        {"dtype": np.float32},
        {"schedule": "naive"},
        {"backend": "opencl"},
        {"device": 0},
        {"out": np.empty_like(a)},
    )
    for option in options:
        before = len(checked)
        first = gemm(a, a, **option).copy()
        assert len(checked) == before + 1, option
        assert (gemm(a, a, **option) == first).all()
    for other in (np.ma.array(a), a.astype(">f4"), a[None], a.tolist()):
        before = len(checked)
        if not isinstance(other, np.ma.MaskedArray):
            assert np.array_equal(np.asarray(gemm(other, a)).reshape(6, 6), a @ a)
        assert len(checked) >= before


def test_calls_with_out_that_are_repeated(checked: list[int], rng: np.random.Generator) -> None:
    """As NumPy's are written; 16x16 took ten times as long as with c until 2026-11-22."""
    a, b, c = (whole(rng, shape, np.float32) for shape in ((9, 5), (5, 7), (9, 7)))
    out = np.empty((9, 7), np.float32)
    assert gemmgen.gemm(a, b, out=out) is out
    out[:] = np.nan
    before = len(checked)
    assert gemmgen.gemm(a, b, out=out) is out
    assert len(checked) == before
    assert (out == a @ b).all()
    for _ in range(2):
        assert gemmgen.gemm(a, b, out, out=out, beta=1) is out
    assert (out == 3 * a @ b).all()
    for _ in range(2):
        with pytest.raises(SpecError, match="beta = 1"):
            gemmgen.gemm(a, b, out=out, beta=1)
        assert (gemmgen.gemm(a, b, c, out=out, beta=1) == a @ b + c).all()


def test_calls_with_an_epilogue_that_are_repeated(checked: list[int], rng: np.random.Generator) -> None:
    a, b, bias, residual = (whole(rng, shape, np.float32) for shape in ((9, 5), (5, 7), (7,), (9, 7)))
    gemm = cast("Callable[..., npt.NDArray[np.float32]]", gemmgen.gemm)
    thens: tuple[str | list[str] | tuple[str, ...], ...] = "relu", ["bias", "relu"], ("bias", "expr: acc * 2")
    for then in thens:
        arrays = {"bias": bias} if "bias" in then else {}
        first = gemm(a, b, epilogue=then, **arrays)
        before = len(checked)
        assert (gemm(a.copy(), b, epilogue=then, **arrays) == first).all()
        added = {name: x + 1 for name, x in arrays.items()}
        result = gemm(a, b, alpha=1.0, epilogue=then, **added)
        assert len(checked) == before + 1
        assert (result == gemm(a, b.copy(order="F"), epilogue=then, **added)).all()
    # In any order of keywords.
    both = ["bias", "residual"]
    for _ in range(2):
        assert (gemm(a, b, epilogue=both, bias=bias, residual=residual) == a @ b + bias + residual).all()
        assert (gemm(a, b, epilogue=both, residual=residual, bias=bias) == a @ b + bias + residual).all()
    result = gemm(a, b, epilogue=["bias"], bias=bias)
    for _ in range(2):
        assert (gemmgen.gemm(a, b, epilogue=["bias"], bias=bias.astype(np.float16)) == result).all()
        with pytest.raises(SpecError, match="c overlaps bias in memory"):
            gemmgen.gemm(a, b, result, epilogue=["bias"], bias=result[0])


def test_what_vectors_compute_as_its_transpose(rng: np.random.Generator) -> None:
    """C by columns, and few columns of it of an A by columns; not a named schedule."""
    a, b, column, few = (whole(rng, shape, np.float32) for shape in ((40, 70), (70, 60), (70, 1), (70, 9)))
    transposed = a.copy(order="F")
    for (left, right), laid in product(
        ((a, b), (transposed, column), (transposed, few)), (np.asfortranarray, np.asarray)
    ):
        for _ in range(2):
            into = laid(np.ones((40, right.shape[1]), np.float32))
            assert gemmgen.gemm(left, right, into, alpha=2, beta=3) is into
            assert (into == 2 * left @ right + 3).all()
    assert (gemmgen.gemm(transposed, column[:, 0]) == a @ column[:, 0]).all()
    wide = np.zeros((40, 2), np.float32)
    gemmgen.gemm(transposed, column, wide[:, :1])
    assert (wide == np.hstack([a @ column, np.zeros((40, 1), np.float32)])).all()
    assert (gemmgen.gemm(transposed, column, schedule="naive") == a @ column).all()
    into = np.zeros((60, 40), np.float32).T
    call = Call(*(Operand(x, x.shape, x.strides, x.dtype) for x in (a, b, into)))
    assert call.prefers_mirror
    assert Call(*(Operand(x, x.shape, x.strides, x.dtype) for x in (transposed, few, a[:, :9]))).prefers_mirror
    assert not Call(*(Operand(x, x.shape, x.strides, x.dtype) for x in (a, few, a[:, :9]))).prefers_mirror
    mirror = call.mirrored()
    assert not mirror.prefers_mirror
    assert [x.shape for x in (mirror.a, mirror.b, mirror.c)] == [(60, 70), (70, 40), (60, 40)]


# --- gates, and another C than the result ---------------------------------------------------------


def swiglu(product: Numbers) -> Numbers:
    gate, up = np.split(product, 2, -1)
    return cast("Numbers", gate / (1 + np.exp(-gate)) * up)


def near(result: Numbers, right: Numbers) -> bool:
    return np.allclose(result, right, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("schedule", [None, "smem_8x8"])
def test_gates(schedule: str | None, rng: np.random.Generator) -> None:
    """By one kernel where it is named; else as two products where that is faster, as on CPUs."""
    a, b, bias = rng.standard_normal((37, 20)), rng.standard_normal((20, 26)), rng.standard_normal(13)
    right, by = swiglu(a @ b), partial(gemmgen.gemm, schedule=schedule)
    assert near(by(a, b, epilogue="swiglu"), right)
    out, transposed = np.full((37, 13), np.nan), np.ascontiguousarray(b.T)
    assert by(a, transposed, transpose_b=True, epilogue=["swiglu", "bias"], bias=bias, out=out) is out
    assert near(out, right + bias)
    stack = rng.standard_normal((3, 5, 20))
    for weights in (b, rng.standard_normal((3, 20, 26))):
        assert near(by(stack, weights, epilogue="swiglu"), swiglu(stack @ weights))
    gate, up = np.split(0.5 * (a @ b), 2, -1)
    assert near(by(a, b, alpha=0.5, epilogue="expr: acc * tanh(up)"), gate * np.tanh(up))


def test_a_gate_of_rows_is_invariant(rng: np.random.Generator) -> None:
    a, b = rng.standard_normal((40, 20)).astype(np.float32), rng.standard_normal((20, 26)).astype(np.float32)
    of_all = gemmgen.gemm(a, b, epilogue="swiglu", invariant=True)
    assert np.array_equal(gemmgen.gemm(a[7:8], b, epilogue="swiglu", invariant=True), of_all[7:8])


@pytest.mark.parametrize("gate", ["swiglu", "expr: acc / (1 + exp(-acc)) * up"])
def test_a_gate_of_rows_is_invariant_beside_a_residual(gate: str, rng: np.random.Generator) -> None:
    shapes = (37, 64), (64, 80), (37, 40)
    a, b, residual = (cast("Numbers", rng.standard_normal(x, np.float32)) for x in shapes)
    then, before = [gate, "residual"], residual.copy()
    of_all = gemmgen.gemm(a, b, epilogue=then, residual=residual, invariant=True)
    assert np.allclose(of_all, swiglu(a @ b) + residual, atol=1e-3)
    assert np.array_equal(residual, before)
    row = gemmgen.gemm(a[7:8], b, epilogue=then, residual=residual[7:8], invariant=True)
    assert np.array_equal(row, of_all[7:8])
    out: Numbers = np.empty((37, 40), np.float64)
    gemmgen.gemm(a, b, epilogue=then, residual=residual, invariant=True, out=out)
    assert np.array_equal(out, of_all)


@pytest.mark.parametrize("lead", [(2,), (2, 3), (1, 3)])
def test_a_gate_of_rows_is_invariant_in_stacks(lead: tuple[int, ...], rng: np.random.Generator) -> None:
    """Of one call or of several, with one of the caller's for the result too."""
    shapes = (*lead, 5, 64), (*lead, 64, 80), (40,)
    a, b, bias = (cast("Numbers", rng.standard_normal(x, np.float32)) for x in shapes)
    result = cast("Numbers", np.empty((*lead, 5, 80), np.float32)[..., ::2])
    gemmgen.gemm(a, b, epilogue=["swiglu", "bias"], bias=bias, invariant=True, out=result)
    assert np.allclose(result, swiglu(a @ b) + bias, atol=1e-3)
    for index in np.ndindex(lead):
        alone = gemmgen.gemm(a[index][3:], b[index], epilogue=["swiglu", "bias"], bias=bias, invariant=True)
        assert np.array_equal(alone, result[index][3:])
    swapped = gemmgen.gemm(a.swapaxes(0, -3), b.swapaxes(0, -3), epilogue="swiglu", invariant=True)
    assert np.allclose(swapped, swiglu(a @ b).swapaxes(0, -3), atol=1e-3)


def test_what_a_gate_is_refused_for() -> None:
    a, b, c = np.ones((4, 5)), np.ones((5, 6)), np.ones((4, 3))
    gated = partial(gemmgen.gemm, a, epilogue="swiglu")
    with pytest.raises(SpecError, match="swiglu takes two halves of b's columns, but b has 5"):
        gated(b[:, :5])
    with pytest.raises(SpecError, match="but b has a vector: pass an even number"):
        gated(b[:, 0])
    with pytest.raises(SpecError, match="swiglu makes c anew: add it by residual"):
        gated(b, c, beta=1)
    with pytest.raises(SpecError, match="non-broadcastable shape 4x6, not 4x3"):
        gated(b, out=np.ones((4, 6)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8])
def test_another_c_is_read_in_place(dtype: type, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With beta 1, where it lies as the result does; elsewhere it is copied. It stays as it was."""
    copied, assign = list[Operand](), NumPy.assign

    def noted(self: NumPy, to: Operand, x: Operand) -> None:
        copied.append(x)
        assign(self, to, x)

    monkeypatch.setattr(NumPy, "assign", noted)
    a, b = whole(rng, (37, 20), dtype), whole(rng, (20, 29), dtype)
    held = np.dtype(np.int32 if dtype is np.int8 else dtype)
    c, by = whole(rng, (37, 29), held), partial(gemmgen.gemm, a, b, backend="opencl", dtype=held)
    product, before = a.astype(np.int64) @ b.astype(np.int64), c.copy()
    out = np.empty_like(c)
    for beta, copies in ((1, 0), (2, 1), (0, 0)):
        copied.clear()
        assert by(c, beta=beta, out=out) is out
        assert np.array_equal(out, product + beta * c.astype(np.int64))
        assert len(copied) == copies
    assert np.array_equal(c, before)
    room = np.zeros((38, 29), held)
    room[:37] = c
    assert np.array_equal(by(room[:37], beta=1, out=room[1:]), product + before)
    assert np.array_equal(by(c[:1], beta=1, out=out), product + c[:1])
    # A stack by a vector is one product, whose C is a column.
    stack, row = np.stack([a, -a]), whole(rng, (2, 37), held)
    of_stack = gemmgen.gemm(stack, b[:, 0], row, beta=1, backend="opencl", dtype=held, out=np.empty_like(row))
    assert np.array_equal(of_stack, np.stack([product[:, 0], -product[:, 0]]) + row)
    copied.clear()
    result = by(c, beta=1, out=np.empty_like(c), epilogue="expr: max(acc, 9)")
    assert np.array_equal(result, np.maximum(product + c, 9))
    assert not copied
