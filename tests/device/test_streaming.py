"""`gemm(device_memory=...)`: tiles of host arrays go through a device."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import gemmgen
from gemmgen.api import streaming, tile_copies
from gemmgen.api.streaming import HELD, STEPPED, Plan, plan, size_of
from gemmgen.api.tile_memory import CudaPlace, OpenCLPlace, Room
from gemmgen.errors import DeviceError, DtypeError, SpecError
from tests.device.naive import found
from tests.support import cuda

if not found():
    pytest.skip('no OpenCL device here: pip install "gemmgen[cpu]"', allow_module_level=True)

Numbers = npt.NDArray[Any]


def whole(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Numbers:
    """Small whole numbers, whose products every type holds."""
    return rng.integers(0, 3, shape).astype(dtype)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each buffer on the device."""
    sizes: list[int] = []
    room = OpenCLPlace.room

    def counted(self: OpenCLPlace, size: int) -> Room:
        made = room(self, size)
        sizes.append(made.memory.size)  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(OpenCLPlace, "room", counted)
    return sizes


@pytest.mark.parametrize("limit", ["300KiB", 10**6, "64MiB"])
def test_no_more_than_the_limit_lies_on_the_device(limit: object, rng: np.random.Generator, taken: list[int]) -> None:
    a, b, c = whole(rng, 500, 700), whole(rng, 700, 450), whole(rng, 500, 450)
    assert np.array_equal(gemmgen.gemm(a, b, device_memory=limit), a @ b)  # type: ignore[arg-type]
    assert 0 < sum(taken) <= size_of(limit, [])
    assert sum(taken) < a.nbytes + b.nbytes + c.nbytes or limit == "64MiB"


def test_c_orders_and_factors(rng: np.random.Generator) -> None:
    a, b, c = whole(rng, 300, 400), whole(rng, 400, 350), whole(rng, 300, 350)
    limit = "300KiB"
    kept = c.copy()
    assert gemmgen.gemm(a, b, kept, alpha=2, beta=3, device_memory=limit) is kept
    assert np.array_equal(kept, 2 * (a @ b) + 3 * c)
    out = np.full((300, 350), 7.0)
    assert gemmgen.gemm(a, b, c, beta=1, out=out, device_memory=limit) is out
    assert np.array_equal(out, a @ b + c)
    across, down = np.asfortranarray(a), np.ascontiguousarray(b.T)
    assert np.array_equal(gemmgen.gemm(across, down, transpose_b=True, device_memory=limit), a @ b)
    steps = np.repeat(a, 2, axis=1)[::-1, ::2]
    assert np.array_equal(gemmgen.gemm(steps, b, device_memory=limit), a[::-1] @ b)
    z = a + 1j * a[::-1]
    done = gemmgen.gemm(z.astype("complex64"), b, device_memory="600KiB", conjugate_a=True)
    assert np.array_equal(done, z.conj() @ b)
    assert np.array_equal(gemmgen.gemm(a[:, :0], b[:0], c.copy(), beta=2, device_memory=limit), 2 * c)
    assert gemmgen.gemm(a[:0], b, device_memory=limit).shape == (0, 350)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "bool"])
def test_types(dtype: str, rng: np.random.Generator) -> None:
    a, b = whole(rng, 150, 264, dtype=dtype), whole(rng, 264, 130, dtype=dtype)
    done = gemmgen.gemm(a, b, device_memory="600KiB")
    assert done.dtype == (a @ b).dtype and np.array_equal(done, a @ b)
    if dtype == "float16":
        assert gemmgen.gemm(a, b, dtype=np.float32, device_memory="300KiB").dtype == np.float32


def test_memory_maps(tmp_path: Path, rng: np.random.Generator) -> None:
    a, b = whole(rng, 700, 600), whole(rng, 600, 500)
    maps = []
    for name, x in (("a", a), ("b", b)):
        x.tofile(tmp_path / name)
        maps.append(np.memmap(tmp_path / name, np.float32, "r", shape=x.shape))
    c = np.memmap(tmp_path / "c", np.float32, "w+", shape=(700, 500))
    assert gemmgen.gemm(*maps, out=c, device_memory="500KiB") is c
    c.flush()
    assert np.array_equal(np.fromfile(tmp_path / "c", np.float32).reshape(c.shape), a @ b)


@pytest.mark.parametrize("piece", [400, 2000, 9000])
@pytest.mark.parametrize("direct", [True, False])
def test_pieces(piece: int, direct: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of a part of a row, of one row and of several, with and without a conversion, from rows and columns."""
    monkeypatch.setattr(tile_copies, "BLOCK", piece)
    monkeypatch.setattr(tile_copies, "PART", piece // 2)
    if not direct:
        monkeypatch.setattr(OpenCLPlace, "reads", lambda *_: False)
    a, b, c = whole(rng, 300, 400), whole(rng, 400, 350), whole(rng, 300, 350)
    answer = 2 * (a @ b) + 3 * c
    for x, y, out in (
        (a, b, np.zeros((300, 350), "float32")),
        (np.asfortranarray(a), b.astype("int16"), np.zeros((350, 300)).T),
        (a[:, ::-1], b[::-1], np.zeros((300, 700), "float32")[:, ::2]),
    ):
        assert gemmgen.gemm(x, y, c, alpha=2, beta=3, out=out, device_memory="300KiB") is out
        assert np.array_equal(out, answer)


def test_an_error_of_a_thread_is_raised(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: OpenCLPlace, room: Room, offset: int, piece: Numbers) -> object:
        raise MemoryError("no memory for a piece")

    monkeypatch.setattr(OpenCLPlace, "send", fails)
    with pytest.raises(MemoryError, match="no memory for a piece"):
        gemmgen.gemm(whole(rng, 300, 400), whole(rng, 400, 350), device_memory="300KiB")


def test_tiles_that_stay_are_copied_once(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many bytes go to the device as the plan says, but for those tiles that a pass begins with."""
    copied: list[int] = []
    send = OpenCLPlace.send

    def counted(self: OpenCLPlace, room: Room, offset: int, piece: Numbers) -> object:
        copied.append(piece.nbytes)
        return send(self, room, offset, piece)

    monkeypatch.setattr(OpenCLPlace, "send", counted)
    a, b = whole(rng, 500, 100), whole(rng, 100, 640)
    for most, again in ((HELD[0], 3 - 1), (HELD[1], 2 - 1)):
        copied.clear()
        cut = Plan((500, 640, 100), (64, 64, 100), (4, 4), most)
        assert sorted(cut.steps()) == [(i, j, 0) for i in range(8) for j in range(10)]
        monkeypatch.setattr(streaming, "plan", lambda *_, cut=cut: cut)
        assert np.array_equal(gemmgen.gemm(a, b, device_memory="1MiB"), a @ b)
        # Two tiles are still there when the other matrix comes again; one of A has 52 rows.
        saved = again * 2 * 64 * 400
        assert sum(copied) == cut.traffic - (saved - (12 * 400 if most == HELD[0] else 0)), most


def test_progress(rng: np.random.Generator, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = whole(rng, 200, 200), whole(rng, 200, 200)
    gemmgen.gemm(a, b, device_memory="300KiB")
    assert not capsys.readouterr().err
    gemmgen.gemm(a, b, device_memory="300KiB", progress=True)
    assert "tile 1 of " in capsys.readouterr().err


def test_plans() -> None:
    """Every element is in one tile, limits are kept, and large tiles of C save copies."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        shape = tuple(int(2 ** rng.uniform(0, 17)) for _ in range(3))
        limit = int(2 ** rng.uniform(20, 34))
        cut = plan((shape[0], shape[1], shape[2]), (2, 4), limit)
        assert cut.device_bytes <= limit
        for axis, count in enumerate(cut.counts):
            spans = [cut.span(axis, number) for number in range(count)]
            assert spans[0].start == 0 and spans[-1].stop == shape[axis]
            assert all(x.stop == y.start for x, y in pairwise(spans))
    size = 40960
    small, large = (plan((size,) * 3, (2, 4), limit << 30) for limit in (1, 4))
    assert large.traffic < small.traffic < Plan((size,) * 3, (1024, 1024, 1024), (2, 4), STEPPED).traffic


def test_errors(rng: np.random.Generator) -> None:
    a, b = whole(rng, 200, 200), whole(rng, 200, 200)
    multiply = cast("Callable[..., object]", gemmgen.gemm)

    def refused(message: str, *arrays: object, kind: type[Exception] = SpecError, **options: object) -> None:
        with pytest.raises(kind, match=message):
            multiply(*(arrays or (a, b)), **{"device_memory": "1MiB", **options})

    refused("device_memory = '4 foo' is no size: pass bytes, or a text such as '4GiB'", device_memory="4 foo")
    refused("device_memory = 0 is no size", device_memory=0)
    refused("is no size: .*\nepilogue does not go with device_memory", device_memory="4 foo", epilogue="bais")
    refused(
        r"= 1,000 bytes is less than the [\d,]+ that the smallest tiles of 200x200x200 take: raise it",
        device_memory=1000,
    )
    refused("epilogue does not go with device_memory: leave it out", epilogue="relu")
    refused("invariant does not go with device_memory: .* leave one of the two out$", invariant=True)
    refused("allow_tf32 does not go with device_memory: .* leave one of the two out$", allow_tf32=True)
    refused("emulate does not go with device_memory: .* leave it out", emulate=True)
    refused("prologue_b does not go with device_memory: leave it out, and apply it to b$", prologue_b="b * b_scale")
    refused("transpose_a = 'no' is of type str: pass True or False", transpose_a="no")
    refused("invariant = 'no' is of type str: pass True or False$", invariant="no")
    refused("alpha = 'x' is of type str: pass a number\nepilogue does not", alpha="x", epilogue="relu")
    refused("beta = 2 adds to a c that was not given: .*\nepilogue does not", beta=2, epilogue="relu")
    refused("bias does not go with device_memory.*\npreset 'nope' does not exist", bias=a[0], schedule="nope")
    refused("elements of out share memory", out=np.lib.stride_tricks.as_strided(a, (200, 200), (0, 4)))
    refused("bias does not go with device_memory", bias=a[0])
    refused("backend 'sycl' has no device_memory: use opencl or cuda", backend="sycl")
    refused("a has 3 dimensions: with device_memory pass matrices", a[None], b)
    refused("a is no array of NumPy, which device_memory is for", [[1.0]], b)
    refused("a has k = 200, b k = 100: make them equal", a, b[:100])
    refused(r"out has shape \(3, 3\), not \(200, 200\)", out=np.empty((3, 3), "f4"))
    refused("the result overlaps a: pass a.copy()", out=a)
    refused("beta = 1 adds to a c that was not given", beta=1)
    refused(
        "no kernel has elements of longdouble|no kernel has elements of float128", a.astype("g"), b, kind=DtypeError
    )


SKIP = cuda.why_no_gpu()


@pytest.mark.skipif(SKIP is None, reason="there is a GPU")
def test_cuda_without_a_gpu(rng: np.random.Generator) -> None:
    a = whole(rng, 200, 200)
    with pytest.raises(DeviceError):
        gemmgen.gemm(a, a, device_memory="1MiB", backend="cuda")
    with pytest.raises(DeviceError), gemmgen.pinned(a):
        pass


@pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8"])
def test_a_gpu(dtype: str, rng: np.random.Generator, tmp_path: Path) -> None:
    a, b, c = whole(rng, 3000, 2500, dtype=dtype), whole(rng, 2500, 2000, dtype=dtype), whole(rng, 3000, 2000)
    answer = a.astype(np.float64) @ b.astype(np.float64)
    wide = {"int8": np.int32, "float16": np.float32}.get(dtype, np.dtype(dtype))
    for limit in ("4MiB", "24MiB"):
        done = gemmgen.gemm(a, b, dtype=wide, device_memory=limit, backend="cuda")
        assert np.array_equal(done, answer)
    if dtype == "float32":
        assert np.array_equal(
            gemmgen.gemm(a, b, c.copy(), alpha=2, beta=3, device_memory="8MiB", backend="cuda"), 2 * answer + 3 * c
        )


@pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
def test_pinned_arrays(rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU copies them without a block. What CUDA refuses to pin is copied by blocks."""
    a, b, out = whole(rng, 3000, 2500), whole(rng, 2500, 2000), np.zeros((3000, 2000), "float32")
    used: list[int] = []
    block = CudaPlace.block

    def counted(self: CudaPlace, size: int) -> Numbers:
        used.append(size)
        return block(self, size)

    monkeypatch.setattr(CudaPlace, "block", counted)
    with gemmgen.pinned(a, b, out, a) as done:
        assert done == (True, True, True, False)
        gemmgen.gemm(a, b, out=out, device_memory="24MiB", backend="cuda")
    assert np.array_equal(out, a @ b) and not used
    stored = np.memmap(tmp_path / "a", np.float32, "w+", shape=a.shape)
    stored[...] = a
    with gemmgen.pinned(stored, b):
        assert np.array_equal(gemmgen.gemm(stored, b, device_memory="24MiB", backend="cuda"), a @ b)
    out[...] = 0
    gemmgen.gemm(a, b, out=out, device_memory="24MiB", backend="cuda")
    assert np.array_equal(out, a @ b) and used
