"""`invariant=True`: a row has the same bits whatever the number of rows, and wherever it stands among them."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.spec import GemmSpec
from tests.device.naive import found
from tests.support import cuda
from tests.support.tensors import need_torch

if not found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)

Numbers = npt.NDArray[np.generic]
#: N, K and the type: outer products, blocks of K, dot products, parts of K, and types without vectors.
PRODUCTS = [
    (300, 700, "float32"),
    (24, 3000, "float64"),
    (9, 20000, "float32"),
    (1, 2000, "float32"),
    (5, 90, "float16"),
]
MOST = 640
#: PoCL's exp and erf of vectors are others than those of single numbers (docs/numerics.md).
FUNCTION = "relu" if all(x.platform.startswith("Portable") for x in found()) else "gelu"


def numbers(rng: np.random.Generator, *shape: int, dtype: str) -> Numbers:
    return rng.standard_normal(shape).astype(dtype)


def counts(rng: np.random.Generator, how_many: int) -> list[int]:
    """Random numbers of rows, few ones among them."""
    return [*range(1, 9), *(int(m) for m in np.exp(rng.uniform(0, np.log(MOST), how_many - 8)))]


@pytest.mark.parametrize(("n", "k", "dtype"), PRODUCTS)
def test_two_hundred_numbers_of_rows(n: int, k: int, dtype: str, rng: np.random.Generator) -> None:
    x, w = numbers(rng, MOST, k, dtype=dtype), numbers(rng, k, n, dtype=dtype)
    bias = numbers(rng, n, dtype=dtype)
    whole = gemmgen.gemm(x, w, invariant=True)
    fused = gemmgen.gemm(x, w, invariant=True, epilogue=["bias", FUNCTION], bias=bias)
    kernels = set()
    for m in counts(rng, 200):
        at = int(rng.integers(0, MOST - m + 1))
        rows = x[at : at + m]
        assert np.array_equal(gemmgen.gemm(rows, w, invariant=True), whole[at : at + m]), m
        choice = gemmgen.last_choice()
        assert choice is not None and choice.by == "opencl"
        kernels.add(choice.kernel)
        of_rows = gemmgen.gemm(rows, w, invariant=True, epilogue=["bias", FUNCTION], bias=bias)
        assert np.array_equal(of_rows, fused[at : at + m]), m
    # What is proven is that several kernels agree, where the choice has several.
    assert len(kernels) > 1 or dtype == "float16"


@pytest.mark.parametrize(("n", "k", "dtype"), PRODUCTS[:3])
def test_every_position_of_a_row(n: int, k: int, dtype: str, rng: np.random.Generator) -> None:
    m = 77
    x, w = numbers(rng, m, k, dtype=dtype), numbers(rng, k, n, dtype=dtype)
    alone = gemmgen.gemm(x[3:4], w, invariant=True)
    for at in range(m):
        moved = x.copy()
        moved[[at, 3]] = moved[[3, at]]
        assert np.array_equal(gemmgen.gemm(moved, w, invariant=True)[at], alone[0]), at


def test_the_free_choice_differs(rng: np.random.Generator) -> None:
    """Without the promise the same sizes have several orders of sums: else the tests above would prove nothing."""
    x, w = numbers(rng, MOST, 4096, dtype="float32"), numbers(rng, 4096, 7, dtype="float32")
    whole = gemmgen.gemm(x, w)
    assert any(not np.array_equal(gemmgen.gemm(x[:m], w), whole[:m]) for m in counts(rng, 40))


def test_layouts_factors_stacks_and_vectors(rng: np.random.Generator) -> None:
    x, w = numbers(rng, 60, 1500, dtype="float32"), numbers(rng, 1500, 40, dtype="float32")
    whole = gemmgen.gemm(x, w, invariant=True)
    assert np.array_equal(gemmgen.gemm(np.asfortranarray(x), w, invariant=True), whole)
    transposed = np.ascontiguousarray(x.T), np.ascontiguousarray(w.T)
    both = gemmgen.gemm(*transposed, transpose_a=True, transpose_b=True, invariant=True)
    assert np.array_equal(both, gemmgen.gemm(x, transposed[1], transpose_b=True, invariant=True))
    assert np.array_equal(gemmgen.gemm(x.reshape(5, 12, 1500), w, invariant=True).reshape(60, 40), whole)
    assert np.array_equal(gemmgen.gemm(x[7], w, invariant=True), whole[7])
    listed = cast("list[Numbers]", gemmgen.gemm([x[:20], x[20:40]], w, invariant=True))
    assert np.array_equal(listed[1], whole[20:40])
    by_columns = gemmgen.gemm(x, w, out=np.empty((60, 40), np.float32, order="F"), invariant=True)
    assert np.array_equal(by_columns, whole)
    one, column = w[:, :1].copy(), np.asfortranarray(x)
    assert np.array_equal(gemmgen.gemm(column, one, invariant=True), gemmgen.gemm(x, one, invariant=True))
    c = numbers(rng, 60, 40, dtype="float32")
    added = gemmgen.gemm(x, w, c.copy(), alpha=1.5, beta=0.25, invariant=True)
    some = gemmgen.gemm(x[30:33], w, c[30:33].copy(), alpha=1.5, beta=0.25, invariant=True)
    assert np.array_equal(some, added[30:33])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "complex64"])
def test_later_calls_with_a_transposed_a(dtype: str, rng: np.random.Generator) -> None:
    """Calls of a kind repeat the first one's copies, of which that of A is one of its transpose."""
    shapes = (
        ((64, 64), (64, 48)),
        ((30, 50), (30, 7)),
        ((3, 30, 50), (30, 7)),
        ((30, 7, 9), (30, 7, 4)),
        ((30,), (30, 7)),
    )
    for x, w in ((rng.integers(-4, 5, of).astype(dtype) for of in shape) for shape in shapes):
        x = x if x.ndim > 1 else np.repeat(x, 2)[::2]
        for _ in range(3):
            found = gemmgen.gemm(x, w, transpose_a=True, invariant=True)
            assert np.array_equal(found, (x.swapaxes(-1, -2) if x.ndim > 1 else x) @ w)
            x = x + 1


def test_numpy_never_computes_them(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """NumPy's small products are others than its large ones."""
    monkeypatch.setattr("gemmgen.api.calibration.prefers_numpy", lambda *_: True)
    x, w = numbers(rng, 16, 16, dtype="float32"), numbers(rng, 16, 16, dtype="float32")
    gemmgen.gemm(x, w, invariant=True)
    choice = gemmgen.last_choice()
    assert choice is not None and choice.by == "opencl"


def test_compiled_kernels(rng: np.random.Generator) -> None:
    x, w = numbers(rng, 200, 3000, dtype="float32"), numbers(rng, 3000, 24, dtype="float32")
    some = [gemmgen.compile(GemmSpec(m=m, n=24, k=3000), invariant=True) for m in (1, 5, 200)]
    results = [kernel(x[: kernel.source.spec.m], w) for kernel in some]
    assert np.array_equal(results[0], results[2][:1]) and np.array_equal(results[1], results[2][:5])
    assert len({kernel.source.text for kernel in some}) > 1


def test_errors(rng: np.random.Generator) -> None:
    x, w = numbers(rng, 4, 8, dtype="float32"), numbers(rng, 8, 4, dtype="float32")
    with pytest.raises(SpecError, match="invariant = 'yes' is of type str: pass True or False"):
        gemmgen.gemm(x, w, invariant="yes")  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"atomic = true leaves the order of sums .* set atomic = false"):
        gemmgen.gemm(x, w, invariant=True, schedule="reduction_4x4_4x4")
    with pytest.raises(ScheduleError, match="atomic = true"):
        gemmgen.compile(schedule="reduction_4x4_4x4", invariant=True)
    assert np.array_equal(gemmgen.gemm(x, w, invariant=True, schedule="naive"), gemmgen.gemm(x, w, schedule="naive"))


def test_torch(rng: np.random.Generator) -> None:
    torch = need_torch()
    import gemmgen.torch

    x = torch.from_numpy(numbers(rng, 90, 3000, dtype="float64"))
    w = torch.from_numpy(numbers(rng, 24, 3000, dtype="float64"))
    with gemmgen.torch.batch_invariant():
        whole = gemmgen.torch.linear(x, w, activation="relu")
        for m in (1, 2, 7, 31):
            assert torch.equal(gemmgen.torch.linear(x[11 : 11 + m], w, activation="relu"), whole[11 : 11 + m])
        with gemmgen.torch.batch_invariant(False):
            assert not gemmgen.torch.product.is_batch_invariant()
    assert not gemmgen.torch.product.is_batch_invariant()


SKIP = cuda.why_no_gpu()
ON_GPU = [
    ("bfloat16", 4096, 4096),
    ("bfloat16", 1000, 333),
    ("bfloat16", 64, 65536),
    ("float16", 1024, 4096),
    ("float32", 4096, 1024),
    ("float32", 1000, 333),
    ("float64", 512, 2048),
]


@pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
@pytest.mark.parametrize(("dtype", "n", "k"), ON_GPU)
def test_a_gpu(dtype: str, n: int, k: int) -> None:
    import torch

    generator = torch.Generator("cuda").manual_seed(1)
    most, rng = 2048, np.random.default_rng(1)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", generator=generator, dtype=torch.float32).to(getattr(torch, dtype))

    x, w, bias = made(most, k), made(k, n), made(n)
    whole = gemmgen.gemm(x, w, invariant=True)
    fused = gemmgen.gemm(x, w, invariant=True, epilogue=["bias", "relu"], bias=bias)
    for m in [*range(1, 9), *(int(m) for m in np.exp(rng.uniform(0, np.log(most), 192)))]:
        at = int(rng.integers(0, most - m + 1))
        assert torch.equal(gemmgen.gemm(x[at : at + m], w, invariant=True), whole[at : at + m]), (m, at)
        of_rows = gemmgen.gemm(x[at : at + m], w, invariant=True, epilogue=["bias", "relu"], bias=bias)
        assert torch.equal(of_rows, fused[at : at + m]), (m, at)
