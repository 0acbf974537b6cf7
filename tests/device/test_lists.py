"""Batches whose matrices lie anywhere, as lists: by kernels that take addresses, and by a launch for each product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

import gemmgen
from gemmgen.api import gemm_lists
from gemmgen.api.kernels import Kernel, Wanted, kernel_for
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.dtypes import C64
from gemmgen.oracle import answer
from gemmgen.runtime.lists import each_matrix
from gemmgen.runtime.sycl import SyclKernel
from gemmgen.runtime.views import DeviceMatrix
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES, needs_device
from tests.support import sycl
from tests.support.arrays import check_listed
from tests.support.cuda import why_no_gpu
from tests.support.problems import Matrix

if TYPE_CHECKING:
    from gemmgen.runtime.opencl_devices import DeviceInfo

LISTED = GemmSpec(batched=True, listed=True)
SIZE = (21, 18, 13)


def drawn(rng: np.random.Generator, rows: int, cols: int, count: int = 3) -> list[Matrix]:
    """Each in memory of its own, and lines that lie apart."""
    return [rng.standard_normal((rows, cols + 2)).astype(np.float32)[:, :cols] for _ in range(count)]


def products(rng: np.random.Generator) -> tuple[list[Matrix], list[Matrix], list[Matrix]]:
    m, n, k = SIZE
    return drawn(rng, m, k), drawn(rng, k, n), drawn(rng, m, n)


def check(a: Matrix, b: Matrix, c: Matrix | None, alpha: float, beta: float, result: Matrix) -> None:
    assert answer(GemmSpec(), (a, b, c), (alpha, beta)).holds(result).all()


@pytest.fixture(scope="module")
def listed() -> SyclKernel:
    if sycl.why_no_device():
        pytest.skip(str(sycl.why_no_device()))
    return gemmgen.compile(LISTED, "naive", backend="sycl")


# --- compiled kernels -----------------------------------------------------------------------------


def test_lists_of_numpys(listed: SyclKernel, rng: np.random.Generator) -> None:
    a, b, c = products(rng)
    before = [x.copy() for x in c]
    assert listed(a, b, c, alpha=2, beta=-1) is c
    for left, right, old, result in zip(a, b, before, c, strict=True):
        check(left, right, old, 2, -1, result)
    backwards = b[::-1]
    call: Callable[..., Matrix] = listed
    calls: tuple[tuple[object, object, tuple[list[Matrix], list[Matrix]]], ...] = (
        (a, b[0], (a, [b[0]] * 3)),
        (a[1], b, ([a[1]] * 3, b)),
        (np.stack(a), backwards, (a, backwards)),
        (a, b[:1], (a, b[:1] * 3)),
    )
    for first, second, wide in calls:
        stack = call(first, second)
        assert stack.shape == (3, *SIZE[:2])
        for x, y, result in zip(*wide, stack, strict=True):
            check(x, y, None, 1, 0, result)


@sycl.needs_device
def test_lists_of_lines_that_break_an_assumption(rng: np.random.Generator) -> None:
    gemm = gemmgen.compile(replace(LISTED, ld_multiple=16), "naive", backend="sycl")
    a, b, c = products(rng)
    for left, right, result in zip(a, b, gemm(a, b), strict=True):
        check(left, right, None, 1, 0, result)
    before = [x.copy() for x in c]
    assert gemm(a, b, c, alpha=2, beta=-1) is c
    for left, right, old, result in zip(a, b, before, c, strict=True):
        check(left, right, old, 2, -1, result)


def test_lists_in_usm(listed: SyclKernel, rng: np.random.Generator) -> None:
    a, b, c = products(rng)
    there = [[listed.empty(x.shape) for x in each] for each in (a, b, c)]
    for each, own in zip((a, b), there, strict=False):
        for x, place in zip(each, own, strict=True):
            np.asarray(place)[...] = x
    assert listed(*there) is there[2]
    for x, y, result in zip(a, b, there[2], strict=True):
        check(x, y, None, 1, 0, np.asarray(result))
    stack = np.asarray(listed(there[0], there[1]))
    assert np.array_equal(stack, [np.asarray(x) for x in there[2]])


def test_nothing_to_add_and_nothing_at_all(listed: SyclKernel, rng: np.random.Generator) -> None:
    a, b, c = products(rng)
    expected = [np.float32(0.5) * x for x in c]
    nans = [np.full_like(x, np.nan) for x in a]
    listed(nans, b, c, alpha=0, beta=0.5)
    assert np.array_equal(c, expected)
    nothing: list[Matrix] = []
    assert listed(nothing, b[0], nothing) is nothing
    empty = [np.zeros((0, SIZE[1]), np.float32) for _ in range(2)]
    assert listed([np.zeros((0, SIZE[2]), np.float32)] * 2, b[0], empty) is empty


@sycl.needs_device
def test_what_is_no_matrix_is_named(listed: SyclKernel, rng: np.random.Generator) -> None:
    a, b, _ = products(rng)
    with pytest.raises(SpecError, match=r"a\[1\] is None: pass a matrix"):
        listed([a[0], None], b[0])


@sycl.needs_device
def test_matrices_that_have_to_be_copied(rng: np.random.Generator) -> None:
    """Complex numbers that stand on half of their size, which SYCL does not take as they are."""
    kernel = gemmgen.compile(replace(LISTED, dtype=C64), "naive", backend="sycl")

    def odd(matrix: Matrix) -> Matrix:
        memory = np.zeros(2 * matrix.size + 3, np.float32)
        first = 1 if memory.ctypes.data % 8 == 0 else 2
        out = np.frombuffer(memory.data, np.complex64, matrix.size, 4 * first).reshape(matrix.shape)
        out[...] = matrix
        assert out.ctypes.data % 8 == 4
        return cast(Matrix, out)

    a, b, c = ([odd(x) for x in each] for each in products(rng))
    before = [x.copy() for x in c]
    kernel(a, b, c, alpha=1j, beta=2)
    for left, right, old, result in zip(a, b, before, c, strict=True):
        assert answer(GemmSpec(dtype=C64), (left, right, old), (1j, 2)).holds(result).all()


def test_a_residual_for_each_product(rng: np.random.Generator) -> None:
    if sycl.why_no_device():
        pytest.skip(str(sycl.why_no_device()))
    kernel = gemmgen.compile(replace(LISTED, epilogue=("residual",)), "naive", backend="sycl")
    a, b, c = products(rng)
    residual = rng.standard_normal((3, *SIZE[:2])).astype(np.float32)
    kernel(a, b, c, residual=residual)
    for x, y, plus, result in zip(a, b, residual, c, strict=True):
        right = answer(GemmSpec(epilogue=("residual",)), (x, y, None), operands={"residual": plus})
        assert right.holds(result).all()


@needs_device
def test_what_is_for_rows_is_taken_without_a_place_for_the_result(rng: np.random.Generator) -> None:
    """A stack was made of NumPy's lists, whose products are one matrix' rows then."""
    m, n, k = SIZE
    a, b = ([rng.integers(-3, 4, s).astype(np.float32) for _ in range(3)] for s in ((m, k), (k, n)))
    each = [rng.integers(-3, 4, (m, n)).astype(np.float32) for _ in range(3)]
    rows = np.arange(m, dtype=np.float32)
    results: list[tuple[object, object]] = [
        (
            gemmgen.gemm(a, b, epilogue="residual", residual=each),
            [x @ y + z for x, y, z in zip(a, b, each, strict=True)],
        ),
        (gemmgen.gemm(a, b[0], epilogue="row_bias", row_bias=rows), [x @ b[0] + rows[:, None] for x in a]),
        (gemmgen.gemm(a, b[0], epilogue="expr: acc + row"), [x @ b[0] + rows[:, None] for x in a]),
        (gemmgen.gemm(a, b[0], prologue_a="a * a_scale", a_scale=rows), [x * rows[:, None] @ b[0] for x in a]),
    ]
    for made, expected in results:
        assert isinstance(made, np.ndarray)
        assert np.array_equal(made, np.asarray(expected))
    with pytest.raises(SpecError, match="2 of residual: pass as many of each"):
        gemmgen.gemm(a, b, epilogue="residual", residual=each[:2])
    assert np.asarray(gemmgen.gemm([], [])).shape == ()


@needs_device
def test_opencl_has_no_addresses() -> None:
    with pytest.raises(ScheduleError, match=r"launch a kernel for each, as gemmgen\.gemm does"):
        gemmgen.compile(LISTED, "naive", backend="opencl")


@pytest.mark.skipif(why_no_gpu() is not None, reason=str(why_no_gpu()))
@pytest.mark.parametrize("name", ["naive", "smem_8x8_double", "async_8x8_16x16"])
def test_lists_on_a_gpu(name: str, rng: np.random.Generator) -> None:
    """By compiled kernels, their twins among them, and by gemm."""
    import cupy

    a, b, c = (drawn(rng, rows, cols) for rows, cols in ((64, 48), (48, 128), (64, 128)))
    there = [[cupy.asarray(np.ascontiguousarray(x)) for x in each] for each in (a, b, c)]
    kernel = gemmgen.compile(LISTED, name, backend="cuda")
    assert kernel(*there, alpha=2, beta=-1) is there[2]
    for left, right, old, result in zip(a, b, c, there[2], strict=True):
        check(left, right, old, 2, -1, result.get())
    stack = kernel(there[0], there[1][0])
    assert stack.shape == (3, 64, 128)
    gemmgen.gemm(there[0], there[1], there[2])
    for left, right, result in zip(a, b, there[2], strict=True):
        check(left, right, None, 1, 0, result.get())


# --- what is wrong with lists ---------------------------------------------------------------------


def zeros(rows: int, cols: int, count: int = 3, dtype: object = np.float32) -> list[Matrix]:
    return [np.zeros((rows, cols), dtype) for _ in range(count)]  # type: ignore[call-overload]


A, B, C = zeros(4, 5), zeros(5, 6), zeros(4, 6)


@pytest.mark.parametrize(
    ("a", "b", "c", "problem"),
    [
        (A, B[:2], C, "the batch has 3 of a, 2 of b, 3 of c: pass as many of each"),
        (A, B, C[:2], "the batch has 3 of a, 3 of b, 2 of c"),
        (A, [], None, "b is an empty list: pass a matrix for each product"),
        (A, [*B[:2], B[2][:3]], C, r"b\[2\] has shape \(3, 6\), but b\[0\] \(5, 6\): make calls of like matrices"),
        (A, [*B[:2], *zeros(5, 6, 1, np.float64)], C, r"b\[2\] has dtype float64, but b\[0\] float32"),
        (
            A,
            [*B[:2], zeros(5, 9)[0][:, :6]],
            C,
            r"b\[2\] has strides \(36, 4\) bytes, .* one leading dimension for all",
        ),
        (A, B, [C[0], C[1], C[0]], r"c\[0\] overlaps c\[2\] in memory"),
        (A, B, [*C[:2], A[1][:, :5]], r"c\[2\] has shape \(4, 5\), but c\[0\] \(4, 6\)"),
        (A, zeros(5, 5), [*zeros(4, 5, 2), A[1]], r"c\[2\] overlaps a\[1\] in memory"),
        (A, [*B[:2], "x"], C, r"b\[2\] is of type str, not an array"),
        (A, 3, None, "b is of type int, not an array"),
        (A, B, C[0], "c has shape 4x6: pass a list of matrices, or a stack of them"),
        (A, np.zeros((2, 3, 5, 6), np.float32), None, "b has shape 2x3x5x6: .* or one for all"),
    ],
)
def test_every_problem(a: object, b: object, c: object, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        check_listed(LISTED, a, b, c)


def test_a_read_only_result_and_a_few_of_many_problems() -> None:
    fixed = zeros(4, 6)
    fixed[1].flags.writeable = False
    with pytest.raises(SpecError, match=r"c\[1\] is read-only"):
        check_listed(LISTED, A, B, fixed)
    with pytest.raises(SpecError) as caught:
        check_listed(LISTED, [A[0], *zeros(4, 3, 99)], B[0])
    assert len(caught.value.problems) == 4


def test_results_side_by_side_share_nothing() -> None:
    """Columns of one matrix: their bounds meet, their elements don't."""
    memory = np.zeros((4, 18), np.float32)
    request = check_listed(LISTED, A, B, [memory[:, i : i + 6] for i in (0, 6, 12)])
    assert request.sizes == {"m": 4, "n": 6, "k": 5, "batch_count": 3}
    with pytest.raises(SpecError, match=r"c\[0\] overlaps c\[1\]"):
        check_listed(LISTED, A, B, [memory[:, i : i + 6] for i in (0, 5, 12)])


def test_a_stack_on_a_gpu_is_as_many_addresses() -> None:
    """CUDA's side, as far as it goes without a GPU."""
    dtype = np.dtype(np.float32)
    a = DeviceMatrix((3, 4, 5), (80, 20, 4), dtype, 4096, 0)
    b = [DeviceMatrix((5, 6), (24, 4), dtype, 8192 + 512 * (2 - i), 0) for i in range(3)]
    request = check_listed(LISTED, a, b, kinds=lambda _: [])
    assert [x.pointer for x in each_matrix(request, "a")] == [4096, 4176, 4256]  # type: ignore[union-attr]
    assert [x.pointer for x in each_matrix(request, "b")] == [9216, 8704, 8192]  # type: ignore[union-attr]
    assert each_matrix(request, "c") == [0, 96, 192]
    c = [DeviceMatrix((4, 6), (24, 4), dtype, place, 0) for place in (64, 8200, 512)]
    with pytest.raises(SpecError, match=r"c\[1\] overlaps b\[2\]"):
        check_listed(LISTED, a, b, c, kinds=lambda _: [])


# --- gemm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["opencl", pytest.param("sycl", marks=sycl.needs_device)])
def test_gemm_of_lists(backend: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl")
    used: list[GemmSpec] = []

    def kept(wanted: Wanted) -> Kernel:
        used.append(wanted.spec)
        return kernel_for(wanted)

    monkeypatch.setattr(gemm_lists, "kernel_for", kept)
    a, b, c = products(rng)
    before = [x.copy() for x in c]
    assert gemmgen.gemm(a, b, c, alpha=2, beta=-1, backend=backend) is c
    for left, right, old, result in zip(a, b, before, c, strict=True):
        check(left, right, old, 2, -1, result)
    # One kernel for all where addresses are taken, and only there.
    assert [spec.listed for spec in used] == ([True] if backend == "sycl" else [])
    b[1] = np.asfortranarray(b[1])  # which no kernel takes along with the others
    transposed = [np.ascontiguousarray(x.T) for x in a]
    gemmgen.gemm(transposed, b, out=c, transpose_a=True, backend=backend)
    assert len(used) == (backend == "sycl")
    for left, right, result in zip(a, b, c, strict=True):
        check(left, right, None, 1, 0, result)


@pytest.mark.parametrize("device", DEVICES)
def test_lists_of_pyopencls(device: DeviceInfo, rng: np.random.Generator) -> None:
    import pyopencl.array as cl_array

    from gemmgen.runtime.opencl_devices import own_queue

    a, b, _ = products(rng)
    queue = own_queue(device.handle)
    there = [[cl_array.to_device(queue, np.ascontiguousarray(x)) for x in each] for each in (a, b)]
    results = gemmgen.gemm(there[0], there[1])
    assert isinstance(results, list)
    for x, y, result in zip(a, b, results, strict=True):
        check(x, y, None, 1, 0, result.get())


def test_lists_of_numpys_alone_are_a_stack(rng: np.random.Generator) -> None:
    pytest.importorskip("pyopencl")
    a, b, _ = products(rng)
    assert np.shape(gemmgen.gemm(a, b)) == (3, *SIZE[:2])
    nothing: list[Matrix] = []
    assert gemmgen.gemm(nothing, nothing, nothing) is nothing


@pytest.mark.parametrize(
    ("a", "b", "c", "problem"),
    [
        (A, B[:2], C, "the lists have 3 of a, 2 of b, 3 of c: pass as many of each"),
        (A, B, [C[0], C[1], C[0]], r"c\[0\] overlaps c\[2\] in memory"),
        (A, zeros(5, 5), [*zeros(4, 5, 2), A[1]], r"c\[2\] overlaps a\[1\] in memory"),
        (A, np.stack(B), C, "b has shape 3x5x6, beside lists: pass a list of matrices, or one for all"),
    ],
)
def test_what_gemm_refuses_of_lists(a: object, b: object, c: object, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        gemmgen.gemm(a, b, c)


@pytest.mark.parametrize("backend", ["opencl", pytest.param("sycl", marks=sycl.needs_device)])
@pytest.mark.parametrize("flag", ["no", np.arange(2)])
def test_flags_beside_lists(flag: bool, backend: str) -> None:
    with pytest.raises(SpecError, match=r"conjugate_a = .*: pass True or False"):
        gemmgen.gemm(A, B, C, conjugate_a=flag, backend=backend)


def test_lists_of_matrices_of_several_shapes() -> None:
    """A list of results holds them."""
    a, b, results = [np.ones((3, 4)), np.ones((2, 4))], np.ones((4, 5)), [np.zeros((3, 5)), np.zeros((2, 5))]
    assert gemmgen.gemm(a, b, out=results) is results
    assert all((x == 4).all() for x in results)
    with pytest.raises(SpecError, match="Pass matrices of one shape; gemm takes others beside a list of results"):
        gemmgen.gemm(a, b)
