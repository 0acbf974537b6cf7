"""`gemmgen.gemm` on arrays in a GPU's memory: CuPy's, torch's and others'."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen.errors import DtypeError, ScheduleError, SpecError
from tests.support import cuda

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))


def whole(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> npt.NDArray[np.float64]:
    """Small whole numbers, whose products every type holds."""
    return rng.integers(0, 3, shape).astype(np.dtype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint8", "int64", "uint32", "bool"])
def test_cupy(dtype: str, rng: np.random.Generator) -> None:
    import cupy

    a, b = whole(rng, 2, 1, 30, 41, dtype=dtype), whole(rng, 3, 41, 29, dtype=dtype)
    here, there = cupy.asarray(a), cupy.asarray(b)
    answer = a @ b
    views = [
        (here, there),
        (here.swapaxes(-1, -2).copy().swapaxes(-1, -2), there),
        (cupy.repeat(here, 2, axis=3)[..., ::2], there),
        (here, there[:, ::-1][:, ::-1]),
    ]
    for left, right in views:
        result = gemmgen.gemm(left, right)
        assert isinstance(result, cupy.ndarray) and result.dtype == answer.dtype
        assert np.array_equal(result.get(), answer)
    assert np.array_equal(gemmgen.gemm(here[0, 0, 0], there).get(), a[0, 0, 0] @ b)
    assert np.array_equal(gemmgen.gemm(here[0, 0, 3, 1:], there[0, 1:]).get(), a[0, 0, 3, 1:] @ b[0, 1:])
    assert gemmgen.gemm(here[..., :0], there[:, :0]).get().any() == False  # noqa: E712


def test_cupy_outputs(rng: np.random.Generator) -> None:
    import cupy

    a, b, c = whole(rng, 130, 70), whole(rng, 70, 90), whole(rng, 130, 90)
    here, there = cupy.asarray(a), cupy.asarray(b)
    for order, step in product("CF", (1, 2)):
        base = cupy.full((260, 180), 7, "float32", order=order)
        out = base[: 130 * step : step, : 90 * step : step]
        out[...] = cupy.asarray(c)
        assert gemmgen.gemm(here, there, out, alpha=2, beta=3) is out
        assert np.array_equal(out.get(), 2 * a @ b + 3 * c)
        assert (base == 7).sum() >= base.size - out.size
    with pytest.raises(SpecError, match="out overlaps a"):
        gemmgen.gemm(here, there, out=here[:, :90])
    with pytest.raises(SpecError, match="two kinds"):
        gemmgen.gemm(a, there)
    with pytest.raises(DtypeError, match="can't be cast"):
        gemmgen.gemm(here, there, out=cupy.zeros((130, 90), "int32"))


def test_streams(rng: np.random.Generator) -> None:
    import cupy

    a, b = whole(rng, 1024, 1024), whole(rng, 1024, 1024)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        here, there = cupy.asarray(a), cupy.asarray(b)
        results = [gemmgen.gemm(here, there) for _ in range(10)]
        here += 1
    stream.synchronize()
    assert np.array_equal(results[-1].get(), a @ b)


def test_torch(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(whole(rng, *shape)).cuda() for shape in ((4, 33, 47), (21, 47)))
    result = gemmgen.gemm(a, b, transpose_b=True)
    assert isinstance(result, torch.Tensor) and result.is_cuda
    assert torch.equal(result, a @ b.T)
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        assert torch.equal(gemmgen.gemm(a.to(dtype), b.T.to(dtype)), a.to(dtype) @ b.T.to(dtype))
    mixed = gemmgen.gemm(a.to(torch.int32), b.T)
    assert mixed.dtype == torch.float32 and torch.equal(mixed, a @ b.T)
    out = torch.zeros(33, 4, 21, device="cuda").transpose(0, 1)
    assert gemmgen.gemm(a, b.T, out=out) is out
    assert torch.equal(out, a @ b.T)
    assert torch.equal(gemmgen.gemm(a[:, ::2, ::3], b.T[::3]), a[:, ::2, ::3] @ b.T[::3])


def test_protocols(rng: np.random.Generator) -> None:
    import cupy

    class Interface:
        def __init__(self, array: cupy.ndarray) -> None:
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    a, b = whole(rng, 20, 31), whole(rng, 31, 9)
    result = gemmgen.gemm(Interface(cupy.asarray(a)), Interface(cupy.asarray(b)))
    assert np.array_equal(cupy.asnumpy(result), a @ b)
    half = gemmgen.gemm(Interface(cupy.asarray(a.astype(np.int16))), Interface(cupy.asarray(b)))
    assert np.array_equal(cupy.asnumpy(half), a @ b)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_copies_boxes(dtype: str) -> None:
    """Aligned lines are assumed unasked, so that a preset of tensor maps can be named; what breaks that is told so."""
    import torch

    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    a, b = (torch.randint(-8, 9, (m, n), device="cuda").to(kind) for m, n in ((200, 128), (128, 264)))
    expected = (a.double() @ b.double()).to(kind)
    for schedule in ("wgmma_128x256_s4", None):
        for left, right in ((a, b), (a.t().contiguous().t(), b), (a, b.t().contiguous().t())):
            assert torch.equal(gemmgen.gemm(left, right, schedule=schedule), expected)
        assert torch.equal(
            gemmgen.gemm(a[:, :120], b[:120], schedule=schedule), (a[:, :120].double() @ b[:120].double()).to(kind)
        )
    assert torch.equal(gemmgen.gemm(a[:, 1:], b[1:]), (a[:, 1:].double() @ b[1:].double()).to(kind))
    with pytest.raises(ScheduleError, match="multiples of 16 bytes"):
        gemmgen.gemm(a[:, 1:], b[1:], schedule="wgmma_128x256_s4")
