"""Whole calls of `gemmgen.gemm` on a GPU's arrays: every type and order, batches, lists, prologues, epilogues, streams,
and matrices of more than 2^31 elements. Numbers are small and whole, so that every type holds the answer.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen import GemmSpec, candidates
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import F16
from tests.support import cuda

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
Numbers = npt.NDArray[np.complex128]  # or another of TYPES
TYPES = ("float32", "float64", "float16", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8", "bool")
#: A row, a column, and beyond what counts as small: ragged, and whole tiles.
SHAPES = ((1, 1, 1), (1, 70, 33), (65, 1, 7), (190, 131, 100), (128, 256, 96))


#: Some milliseconds on one thread.
SPIN = """
extern "C" __global__ void spin()
{
    const long long begin = clock64();
    while (clock64() - begin < 20000000) {
    }
}
"""


def whole(rng: np.random.Generator, dtype: str, *shape: int) -> Numbers:
    numbers = rng.integers(0 if dtype[0] in "ub" else -2, 3, shape)
    return (numbers + 1j * rng.integers(-2, 3, shape) if dtype[0] == "c" else numbers).astype(dtype)


def transposed(matrix: Numbers, by_columns: bool) -> Numbers:
    """The same matrix as it lies by rows or by columns."""
    return matrix.swapaxes(-1, -2).copy().swapaxes(-1, -2) if by_columns else matrix


@pytest.mark.parametrize("dtype", TYPES)
def test_types_orders_and_factors(dtype: str, rng: np.random.Generator) -> None:
    import cupy

    for m, n, k in SHAPES:
        a, b, c = whole(rng, dtype, m, k), whole(rng, dtype, k, n), whole(rng, dtype, m, n)
        for orders in product((False, True), repeat=3):
            left, right, into = (
                cupy.array(x, order="F" if order else "C") for x, order in zip((a, b, c), orders, strict=True)
            )
            assert np.array_equal(gemmgen.gemm(left, right).get(), a @ b)
            assert np.array_equal(gemmgen.gemm(left.T, right.T, transpose_a=True, transpose_b=True).get(), a @ b)
            if dtype != "bool":
                assert gemmgen.gemm(left, right, into, alpha=2, beta=3) is into
                two, three = np.array([2, 3]).astype(dtype)
                assert np.array_equal(into.get(), two * (a @ b) + three * c)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64", "int8"])
def test_batches(dtype: str, rng: np.random.Generator) -> None:
    import cupy

    for shapes in (((3, 1, 20, 33), (2, 33, 40)), ((5, 64, 64), (64, 64)), ((7,), (4, 7, 9)), ((2, 0, 5), (5, 3))):
        a, b = (whole(rng, dtype, *shape) for shape in shapes)
        assert np.array_equal(gemmgen.gemm(cupy.asarray(a), cupy.asarray(b)).get(), a @ b)


def test_conjugates(rng: np.random.Generator) -> None:
    import cupy

    a, b = whole(rng, "complex64", 33, 20), whole(rng, "complex64", 33, 20)
    there, other = cupy.asarray(a), cupy.asarray(b)
    result = gemmgen.gemm(there, other, transpose_b=True, conjugate_b=True, alpha=1j)
    assert np.array_equal(result.get(), 1j * (a @ b.conj().T))
    result = gemmgen.gemm(there, other, transpose_a=True, conjugate_a=True)
    assert np.array_equal(result.get(), a.conj().T @ b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8"])
def test_torch(dtype: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    known = getattr(torch, dtype)
    kind = dtype if dtype != "bfloat16" else "float32"
    a, b = whole(rng, kind, 3, 33, 20), whole(rng, kind, 20, 65)
    right = torch.from_numpy(a @ b).to(known)
    left, other = torch.from_numpy(a).cuda().to(known), torch.from_numpy(b).cuda().to(known)
    for x, y in product((left, left.mT.contiguous().mT), (other, other.mT.contiguous().mT)):
        assert torch.equal(gemmgen.gemm(x, y, dtype=known).cpu(), right)
        assert torch.equal(gemmgen.gemm(x.mT, y.mT, transpose_a=True, transpose_b=True).cpu().to(known), right)
    out = torch.zeros(3, 33, 65, device="cuda", dtype=known)
    assert gemmgen.gemm(left, other, out, alpha=2) is out
    assert torch.equal(out.cpu(), 2 * right)


def of_torch(matrix: Numbers) -> object:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(matrix).cuda()


def of_cupy(matrix: Numbers) -> object:
    import cupy

    return cupy.asarray(matrix)


def numbers(array: object) -> Numbers:
    """What an array of either library holds."""
    return np.asarray(array.get() if hasattr(array, "get") else array.cpu())  # type: ignore[attr-defined]


@pytest.mark.parametrize("there", [of_cupy, of_torch])
def test_prologues_and_epilogues(there: object, rng: np.random.Generator) -> None:
    assert callable(there)
    a, b, bias, scale = (whole(rng, "float32", *shape) for shape in ((65, 40), (40, 33), (33,), (33,)))
    residual = whole(rng, "float32", 65, 33)
    then = ["bias", "residual", "relu", "expr: acc * 2 + row - col"]
    rows, cols = np.arange(65)[:, None], np.arange(33)
    made = gemmgen.gemm(there(a), there(b), epilogue=then, bias=there(bias), residual=there(residual))
    assert np.array_equal(numbers(made), 2 * np.maximum(a @ b + bias + residual, 0) + rows - cols)
    weights = whole(rng, "int8", 40, 33)
    made = gemmgen.gemm(there(a), there(weights), prologue_b="b * b_scale", b_scale=there(scale))
    assert np.array_equal(numbers(made), a @ (weights * scale))
    stack = np.stack([a, 2 * a])
    made = gemmgen.gemm(there(stack), there(b), epilogue="bias", bias=there(bias))
    assert np.array_equal(numbers(made), stack @ b + bias)


@pytest.mark.parametrize("there", [of_cupy, of_torch])
def test_lists(there: object, rng: np.random.Generator) -> None:
    assert callable(there)
    a, b, c = ([whole(rng, "float32", *shape) for _ in range(5)] for shape in ((33, 20), (20, 65), (33, 65)))
    bias, residuals = whole(rng, "float32", 65), [whole(rng, "float32", 33, 65) for _ in range(5)]
    lists = [[there(x) for x in each] for each in (a, b, c)]
    assert gemmgen.gemm(*lists, alpha=2, beta=3) is lists[2]
    for x, y, z, made in zip(a, b, c, lists[2], strict=True):
        assert np.array_equal(numbers(made), 2 * (x @ y) + 3 * z)
    made = gemmgen.gemm(lists[0], lists[1][0], epilogue="bias", bias=there(bias))
    for x, one in zip(a, made, strict=True):
        assert np.array_equal(numbers(one), x @ b[0] + bias)
    added = [there(x) for x in residuals]
    made = gemmgen.gemm(lists[0], lists[1], epilogue="residual", residual=added)
    for x, y, plus, one in zip(a, b, residuals, made, strict=True):
        assert np.array_equal(numbers(one), x @ y + plus)


@pytest.mark.parametrize("maker", ["cupy", "torch"])
def test_a_stream_of_ones_own(maker: str, rng: np.random.Generator) -> None:
    """What was enqueued there before is done before, what comes after comes after: no other stream waits for it."""
    import cupy

    a, b = whole(rng, "float32", 300, 200), whole(rng, "float32", 200, 100)
    torch = pytest.importorskip("torch") if maker == "torch" else None
    stream = cupy.cuda.Stream(non_blocking=True) if torch is None else torch.cuda.Stream()
    left, right = (of_cupy(x) if torch is None else of_torch(x) for x in (np.zeros_like(a), b))
    new = of_cupy(a) if torch is None else of_torch(a)
    gemmgen.gemm(left, right)  # made before, as a compiler waits for nothing
    cupy.cuda.Device().synchronize()
    with stream if torch is None else torch.cuda.stream(stream):
        if torch is None:
            cupy.RawKernel(SPIN, "spin")((1,), (1,), ())
        else:
            torch.cuda._sleep(20_000_000)
        left[...] = new  # type: ignore[index]
        made = gemmgen.gemm(left, right)
        left[...] = 0  # type: ignore[index]
    stream.synchronize()
    assert np.array_equal(numbers(made), a @ b)


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_a_of_more_than_2_31_elements(dtype: str, rng: np.random.Generator) -> None:
    """50,000 x 50,000, of which every row but a few is the same one, so that all of the result is checked."""
    import cupy

    size, few = 50_000, [0, 21_474, 42_949, 42_950, 49_999]
    row, rows, right = whole(rng, dtype, size), whole(rng, dtype, len(few), size), whole(rng, dtype, size, 24)
    right[400:-400] = 0  # so that float16 holds the sums
    left = cupy.empty((size, size), dtype)
    left[...] = cupy.asarray(row)
    left[few] = cupy.asarray(rows)
    result = gemmgen.gemm(left, cupy.asarray(right)).get()
    exact = right.astype(np.int64)
    assert np.array_equal(result[few], (rows.astype(np.int64) @ exact).astype(dtype))
    assert (np.delete(result, few, axis=0) == (row.astype(np.int64) @ exact).astype(dtype)).all()


def test_c_of_more_than_2_31_elements(rng: np.random.Generator) -> None:
    import cupy

    size = 50_000
    left, right = (cupy.asarray(whole(rng, "float16", *shape)) for shape in ((size, 9), (9, size)))
    result = gemmgen.gemm(left, right)
    rows, cols = left.astype("float32"), right.astype("float32")
    for begin in range(0, size, 5000):
        assert bool((result[begin : begin + 5000] == (rows[begin : begin + 5000] @ cols).astype("float16")).all())


@pytest.mark.parametrize("name", ["smem_8x8_double_packed", "lds_8x8_16x16_k8", "naive"])
def test_wide_kernels(name: str, rng: np.random.Generator) -> None:
    """By preset, packed copies too: A of 70,000 x 32,768 float16, of which a packed copy has 2^31 elements and more."""
    import cupy

    preset = candidates.load(name)
    kernel = gemmgen.compile(GemmSpec(dtype=F16, wide=True), preset.schedule, backend="cuda")
    m, k, n = 70_000, 32_768, 8
    row, right = whole(rng, "float16", k), whole(rng, "float16", k, n)
    right[300:-300] = 0
    left = cupy.empty((m, k), "float16")
    left[...] = cupy.asarray(row)
    last = whole(rng, "float16", 3, k)
    left[-3:] = cupy.asarray(last)
    got = kernel(left, cupy.asarray(right)).get()
    expected = (row.astype("int64") @ right.astype("int64")).astype("float16")
    assert (got[:-3] == expected).all()
    assert np.array_equal(got[-3:], (last.astype("int64") @ right.astype("int64")).astype("float16"))


def test_a_workspace_of_more_than_2_31_elements() -> None:
    """7 parts of 17,600 x 17,600, for which the call takes its kernel's wider twin."""
    import cupy

    kernel = gemmgen.compile(GemmSpec(), candidates.load("mbarrier_8x16_16x16_split7").schedule, backend="cuda")
    rows, cols = (cupy.random.randint(-2, 3, shape).astype("float32") for shape in ((17_600, 64), (64, 17_600)))
    assert bool((kernel(rows, cols) == rows @ cols).all())


def test_what_is_refused() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(3, 3, dtype=torch.complex64, device="cuda")
    with pytest.raises(SpecError, match=r"resolve_conj\(\)"):
        gemmgen.gemm(a.conj(), a)
    with pytest.raises(SpecError, match=r"a\.detach\(\)"):
        gemmgen.gemm(torch.ones(3, 3, device="cuda", requires_grad=True), a.real.contiguous())
