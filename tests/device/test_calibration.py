"""Small plain products that NumPy itself computes, where calls timed on this machine say that it is faster."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen.api import calibration, request
from gemmgen.api import gemm as of_arrays
from gemmgen.api.calibration import Kind, bounds_of
from gemmgen.errors import DeviceError, SpecError
from gemmgen.runtime import require_pyopencl
from tests.support.cli import printed

try:
    require_pyopencl()
    from gemmgen.runtime.opencl_devices import pick

    pick()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

F = npt.NDArray[np.float32]
ROWS = ("row", "row")


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a cache of its own, and no call prepared."""
    monkeypatch.setenv(calibration.VARIABLE, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bounds_of.cache_clear()
    request.prepared_calls.clear()


def pair(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[F, F]:
    """Small integers, so that every order of summation gives one result."""
    return rng.integers(-4, 5, (m, k)).astype(np.float32), rng.integers(-4, 5, (k, n)).astype(np.float32)


def by() -> str:
    choice = gemmgen.last_choice()
    assert choice is not None
    return choice.by


def test_calls_are_timed_and_the_faster_one_stays(tmp_path: Path, rng: np.random.Generator) -> None:
    for _ in range(calibration.UNTIMED + calibration.TIMED + 3):
        a, b = pair(rng, 8, 8, 8)
        assert (gemmgen.gemm(a, b) == a @ b).all()
    faster = by()
    assert faster in ("numpy", "opencl")
    (file,) = (tmp_path / "gemmgen" / "calibration").iterdir()
    below, above = json.loads(file.read_bytes()[64:])
    assert (below, above) == ((512, calibration.MOST + 1) if faster == "numpy" else (0, 512))
    # The next process, and the next size, know it.
    bounds_of.cache_clear()
    a, b = pair(rng, 4, 4, 4) if faster == "numpy" else pair(rng, 16, 16, 16)
    assert (gemmgen.gemm(a, b) == a @ b).all()
    assert by() == faster


def test_what_is_known_needs_no_kernel(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    bounds_of(Kind("float32", ROWS, False)).add(13 * 9 * 21, True)
    with monkeypatch.context() as context:
        context.setattr(of_arrays, "kernel_now", None)
        for _ in range(3):
            a, b = pair(rng, 13, 9, 21)
            out = np.empty((13, 9), np.float32)
            assert gemmgen.gemm(a, b, out=out) is out
            assert (out == a @ b).all()
            assert (gemmgen.gemm(a, b) == out).all()
            assert by() == "numpy"
    assert "NumPy was faster at 2,457 multiply-adds" in str(gemmgen.last_choice())
    assert "leaves this product of NumPy's arrays to NumPy" in printed("explain", "-M", "13", "-N", "9", "-K", "21")
    assert "to NumPy" not in printed("explain", "-M", "13", "-N", "9", "-K", "22")


@pytest.mark.parametrize("dtype", calibration.TYPES)
def test_each_type_is_numpys_where_that_is_faster(dtype: str, rng: np.random.Generator) -> None:
    bounds_of(Kind(dtype, ROWS, False)).add(13 * 9 * 21, True)
    a, b = (x.astype(dtype) for x in pair(rng, 13, 9, 21))
    if dtype.startswith("complex"):
        a = a * (1 + 2j)
    assert (gemmgen.gemm(a, b) == a @ b).all()
    assert by() == "numpy"


def test_others_are_by_kernels(rng: np.random.Generator) -> None:
    """Products that are not plain; and checks are those of any call."""
    for dtype in ("float32", "float64"):
        for orders in (ROWS, ("col", "row")):
            bounds_of(Kind(dtype, orders, False)).add(16**3, True)
    a, b = pair(rng, 16, 16, 16)
    c = np.zeros((16, 16), np.float32)
    for _ in range(2):
        assert (gemmgen.gemm(a, b) == a @ b).all()
        assert by() == "numpy"
        assert (gemmgen.gemm(a, b, alpha=2) == 2 * (a @ b)).all()
        assert by() == "opencl"
        assert (gemmgen.gemm(a, b, c.copy(), beta=1) == a @ b).all()
        assert by() == "opencl"
        assert (gemmgen.gemm(a, b, epilogue="relu") == np.maximum(a @ b, 0)).all()
        assert by() == "opencl"
        assert (gemmgen.gemm(a, b, backend="opencl") == a @ b).all()
        assert by() == "opencl"
        assert (gemmgen.gemm(a[None], b) == a @ b).all()
        assert by() == "opencl"
        with pytest.raises(SpecError, match="out overlaps a in memory"):
            gemmgen.gemm(a, b, out=a)
    assert (gemmgen.gemm(a.T, b) == a.T @ b).all()
    assert by() == "numpy"
    assert gemmgen.gemm(np.array([1 + 2j], "G"), np.array([[2]], "G"))[0] == 2 + 4j
    assert "no kernel has elements of" in str(gemmgen.last_choice())


def test_bounds_follow_what_was_measured_last() -> None:
    bounds = bounds_of(Kind("float64", ROWS, False))
    for work, is_faster, expected in (
        (100, True, (100, calibration.MOST + 1)),
        (5000, False, (100, 5000)),
        (6000, True, (6000, 6001)),
        (50, False, (49, 50)),
    ):
        bounds.add(work, is_faster)
        assert (bounds.below, bounds.above) == expected
