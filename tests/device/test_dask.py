"""`gemmgen.dask.matmul`: blocks by gemmgen's kernels, partial products by a tree, workers that are lost."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gemmgen.errors import DeviceError, DtypeError, SpecError
from tests.device.naive import found

if not found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)
da = pytest.importorskip("dask.array", reason='needs dask: pip install "gemmgen[dask]"')

import gemmgen.dask  # noqa: E402

Numbers = npt.NDArray[Any]


def whole(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Numbers:
    """Small whole numbers, whose products every type holds."""
    return rng.integers(0, 3, shape).astype(dtype)


CHUNKS = [((100, 64), (64, 150)), ((170, 200), (200, 130)), ((99, 70), (77, 130)), ((50, 33), (20, 40))]


@pytest.mark.parametrize(("of_x", "of_y"), CHUNKS)
def test_chunks(of_x: tuple[int, int], of_y: tuple[int, int], rng: np.random.Generator) -> None:
    x, y = whole(rng, 170, 200), whole(rng, 200, 130)
    z = gemmgen.dask.matmul(da.from_array(x, chunks=of_x), da.from_array(y, chunks=of_y))
    assert z.shape == (170, 130) and z.dtype == np.float32
    assert z.chunks[0] == da.from_array(x, chunks=of_x).chunks[0]
    assert np.array_equal(z.compute(), x @ y)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "bool", "complex64"])
def test_types(dtype: str, rng: np.random.Generator) -> None:
    x, y = whole(rng, 30, 64, dtype=dtype), whole(rng, 64, 20, dtype=dtype)
    z = gemmgen.dask.matmul(da.from_array(x, chunks=(11, 16)), da.from_array(y, chunks=(16, 20)))
    assert z.dtype == (x @ y).dtype == z.compute().dtype
    assert np.array_equal(z.compute(), x @ y)


def test_sums_of_float16_are_rounded_once() -> None:
    """2048 + 1 + 1 is 2050, but 2048 + 1 is 2048 in float16."""
    x, y = np.ones((1, 3), np.float16), np.array([[2048], [1], [1]], np.float16)
    z = gemmgen.dask.matmul(da.from_array(x, chunks=1), da.from_array(y, chunks=1))
    assert z.compute() == 2050 and z.dtype == np.float16
    assert gemmgen.dask.matmul(x, y, dtype=np.float32).dtype == np.float32


def test_vectors_numpys_arrays_and_no_elements(rng: np.random.Generator) -> None:
    x, y = whole(rng, 40, 64), whole(rng, 64, 20)
    lazy = da.from_array(x, chunks=(10, 16))
    assert np.array_equal(gemmgen.dask.matmul(lazy, y[:, 0]).compute(), x @ y[:, 0])
    assert np.array_equal(gemmgen.dask.matmul(lazy[3], y).compute(), x[3] @ y)
    assert np.array_equal(gemmgen.dask.matmul(x, y).compute(), x @ y)
    assert np.array_equal(gemmgen.dask.matmul(x[:, :0], y[:0]).compute(), np.zeros((40, 20)))
    unknown = lazy[lazy[:, 0] > 0]
    assert np.array_equal(gemmgen.dask.matmul(unknown, y).compute(), x[x[:, 0] > 0] @ y)


def test_zarr(tmp_path: Path, rng: np.random.Generator) -> None:
    zarr = pytest.importorskip("zarr", reason='needs zarr: pip install "gemmgen[test]"')
    x, y = whole(rng, 90, 64), whole(rng, 64, 70)
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=x.shape, chunks=(40, 20), dtype=x.dtype)
    stored[...] = x
    z = gemmgen.dask.matmul(stored, y)
    assert z.chunks[0] == (40, 40, 10) and np.array_equal(z.compute(), x @ y)


def test_rows_have_the_same_bits_whatever_the_chunks(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((200, 3000)), rng.standard_normal((3000, 24))
    results = [
        gemmgen.dask.matmul(da.from_array(x, chunks=(rows, 1500)), da.from_array(y, chunks=(1500, 24)), invariant=True)
        for rows in (200, 77, 3)
    ]
    assert all(np.array_equal(z.compute(), results[0].compute()) for z in results)


def test_errors(rng: np.random.Generator) -> None:
    x, y = whole(rng, 40, 64), whole(rng, 64, 20)
    lazy = da.from_array(x, chunks=(10, 16))
    with pytest.raises(SpecError, match=r"x has chunks of unknown sizes along K: call x\.compute_chunk_sizes\(\)"):
        gemmgen.dask.matmul(lazy[:, lazy[0] > 0], y)
    for left, right, remedy in ((lazy, y.T, "pass y.T"), (lazy.T, y, "pass x.T"), (lazy, y[:30], "make them equal")):
        with pytest.raises(SpecError, match=f"x has k = .., y k = ..: {remedy}$"):
            gemmgen.dask.matmul(left, right)
    with pytest.raises(SpecError, match="x has 3 dimensions: pass a matrix") as error:
        gemmgen.dask.matmul(x[None], [[1]])
    assert "y is of type list: pass an array of dask" in str(error.value)
    with pytest.raises(DtypeError, match="elements of <U32 can't be multiplied"):
        gemmgen.dask.matmul(x.astype("U3"), y)


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"backend": "nope"}, SpecError, "backend 'nope' does not take NumPy arrays"),
        ({"device": "nope"}, DeviceError, "no device matches device 'nope'"),
        ({"device": 1.5}, DeviceError, "device = 1.5 is of type float"),
        ({"invariant": "x"}, SpecError, "invariant = 'x' is of type str: pass True or False"),
        ({"dtype": np.longdouble}, DtypeError, "no kernel makes a result of .*: pass another dtype"),
    ],
)
def test_options_are_refused_at_once(options: dict[str, Any], kind: type[Exception], said: str) -> None:
    x = da.ones((6, 4), chunks=3)
    with pytest.raises(kind, match=said):
        gemmgen.dask.matmul(x, x.T, **options)
    with pytest.raises(SpecError, match="x has k = 4, y k = 6"):
        gemmgen.dask.matmul(x, x, **{**options, "device": None})


@pytest.mark.skipif(np.longdouble(0).dtype == np.float64, reason="long double is float64 here")
@pytest.mark.parametrize("dtype", [object, np.longdouble])
def test_types_without_kernels_are_refused_at_once(dtype: type) -> None:
    x: Numbers = np.ones((6, 4)).astype(dtype)
    y = np.ones((4, 5))
    for left in (x, da.from_array(x, chunks=(3, 2))):
        with pytest.raises(DtypeError, match=r"no kernel has x's elements of .*: cast x by astype"):
            gemmgen.dask.matmul(left, y)


def test_a_matrix_of_numpy(rng: np.random.Generator) -> None:
    x, y = whole(rng, 40, 64), whole(rng, 64, 20)
    lazy = da.from_array(x.view(np.matrix), chunks=(10, 16), asarray=False)
    for left, right in ((lazy, y), (x.view(np.matrix), y), (x, y.view(np.matrix))):
        assert np.array_equal(gemmgen.dask.matmul(left, right).compute(), x @ y)


def test_a_lost_worker_loses_nothing(tmp_path: Path) -> None:
    """Two workers on this machine, one of which is killed while the products are computed."""
    pytest.importorskip("distributed", reason='needs distributed: pip install "gemmgen[dask]"')
    code = f"""
import os, time
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, futures_of
import gemmgen.dask

if __name__ == "__main__":
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-3, 4, (1600, 1600)).astype(np.float32) for _ in "xy")
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        before = set(client.run(os.getpid).values())
        z = gemmgen.dask.matmul(da.from_array(x, chunks=200), da.from_array(y, chunks=200)).persist()
        blocks = futures_of(z)
        while not any(block.done() for block in blocks):
            time.sleep(0.005)
        left = sum(not block.done() for block in blocks)
        os.kill(min(before), {int(signal.SIGKILL)})
        right = bool(np.array_equal(z.compute(), x @ y))
        client.wait_for_workers(2)
        after = set(client.run(os.getpid).values())
        print(len(blocks), left > 0, right, min(before) not in after)
"""
    script = tmp_path / "two.py"
    script.write_text(code)
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=400, check=False)
    assert result.stdout.split() == ["64", "True", "True", "True"], result.stderr[-2000:]
