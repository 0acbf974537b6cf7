"""Calling a kernel with NumPy arrays and with pyopencl arrays, on every runtime that the machine has."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from gemmgen.errors import DeviceError, LoweringError, ScheduleError, SpecError
from gemmgen.runtime import opencl_arrays
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_arrays import HostStage
from gemmgen.runtime.opencl_calls import OpenCLLaunches
from gemmgen.runtime.opencl_devices import DeviceInfo, own_context, own_queue
from gemmgen.runtime.views import View
from gemmgen.source import Source
from gemmgen.spec import Order
from tests.device.naive import ALL, DEVICES, id_of, naive, turn, with_entry

F = npt.NDArray[np.float32]
M, N, K = 13, 21, 17
#: What a spec assumes of the lines of A, B and C.
LINES = (8, 4, 16)
IMAGES = ["", "a", "ab"]

#: NumPy arrays as a device gets at them, as a CPU that knows no addresses, and one that has its own memory.
WAYS = [
    pytest.param(device, way, id=f"{way or 'as_it_is'}-{id_of(device)}")
    for device in ALL
    for way in (None, "buffer", "copy")
    if way != opencl_arrays.way_of(device.handle)
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On every device, and where `staging` is asked for, by each way to arrays that it has not by itself."""
    if "staging" in metafunc.fixturenames and ALL:
        metafunc.parametrize(("device", "staging"), WAYS, indirect=["staging"])
    else:
        metafunc.parametrize("device", DEVICES)


@pytest.fixture
def staging(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(opencl_arrays, "way_of", lambda device: request.param)


def random(rng: np.random.Generator, rows: int, cols: int, order: str = "row", pad: int = 0) -> F:
    """A matrix of small integers, so that products are exact; the ends of its lines are not its own."""
    shape = (rows, cols + pad) if order == "row" else (cols, rows + pad)
    whole = rng.integers(-4, 5, shape).astype(np.float32)
    return whole[:, :cols] if order == "row" else whole[:, :rows].T


def resident(queue: cl.CommandQueue, array: F) -> tuple[cl_array.Array, cl_array.Array]:
    """A pyopencl array with the same gaps between lines, and the array that it is part of."""
    assert isinstance(array.base, np.ndarray)
    whole = cl_array.to_device(queue, array.base)
    return whole[: array.shape[0], : array.shape[1]], whole


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("pad", [0, 3])
@pytest.mark.parametrize("orders", list(product(("row", "col"), repeat=3)))
def test_numpy(
    device: DeviceInfo, rng: np.random.Generator, images: str, pad: int, orders: tuple[Order, Order, Order]
) -> None:
    gemm = CompiledKernel.from_source(naive(*orders, images=images), device)
    a, b, c = (random(rng, *s, o, pad) for s, o in zip(((M, K), (K, N), (M, N)), orders, strict=True))
    whole = c.base
    assert isinstance(whole, np.ndarray)
    before, around = c.copy(), whole.copy()
    assert np.array_equal(gemm(a, b), a @ b)
    assert gemm(a, b, c, alpha=2, beta=3) is c
    assert np.array_equal(c, 2 * (a @ b) + 3 * before)
    gaps = (slice(None), slice(N if orders[2] == "row" else M, None))
    assert np.array_equal(whole[gaps], around[gaps])


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("images", IMAGES)
def test_numpy_arrays_that_share_memory(device: DeviceInfo, rng: np.random.Generator, images: str) -> None:
    gemm = CompiledKernel.from_source(naive(images=images), device)
    square = random(rng, M, M)
    assert np.array_equal(gemm(square, square), square @ square)
    whole = random(rng, M, 3 * M)
    a, b, c = whole[:, :M], whole[:, M : 2 * M], whole[:, 2 * M :]
    expected = a @ b
    gemm(a, b, c)
    assert np.array_equal(c, expected)


def assuming(a: Order, b: Order, c: Order, images: str = "") -> Source:
    """A kernel whose spec assumes lines, and whose result is NaN where these break the assumption."""
    source = naive(a, b, c, images)
    kept = " || ".join(f"ld{x} % {unit}" for x, unit in zip("abc", LINES, strict=True) if x not in images)
    text = source.text.replace("float sum = 0.0f;", f"float sum = {kept} ? NAN : 0.0f;")
    assert text != source.text
    return replace(source, text=text, spec=replace(source.spec, ld_multiple=LINES))


@pytest.mark.usefixtures("staging")
@pytest.mark.parametrize("images", ["", "a"])
@pytest.mark.parametrize("pad", [0, 3, 32 - K])
@pytest.mark.parametrize("orders", [("row", "row", "row"), ("col", "row", "col"), ("row", "col", "row")])
def test_numpy_arrays_of_any_lines(
    device: DeviceInfo, rng: np.random.Generator, images: str, pad: int, orders: tuple[Order, Order, Order]
) -> None:
    """Whatever the spec assumes. A copy on the device keeps it, also one of an array that does; so does one of C."""
    gemm = CompiledKernel.from_source(assuming(*orders, images), device)
    a, b, c = (random(rng, *s, o, pad) for s, o in zip(((M, K), (K, N), (M, N)), orders, strict=True))
    whole, before = c.base, c.copy()
    assert isinstance(whole, np.ndarray)
    around = whole.copy()
    for _ in range(2):  # by the call, and by what is kept of it
        made = gemm(a, b)
        assert np.array_equal(made, a @ b)
        assert made.flags.forc
        c[...] = before
        assert gemm(a, b, c, alpha=2, beta=3) is c
        assert np.array_equal(c, 2 * (a @ b) + 3 * before)
        c[...] = np.nan
        assert np.array_equal(gemm(a, b, c), a @ b)
    c[...] = before
    assert np.array_equal(whole, around)
    assert all(gemm.time(a, b, c, iterations=2))
    square = random(rng, M, M, orders[0], pad)
    if orders[0] == orders[1]:
        assert np.array_equal(gemm(square, square), square @ square)
    assert gemm(a[:0], b).shape == (0, N)


def test_resident_arrays_keep_an_assumption(device: DeviceInfo, rng: np.random.Generator) -> None:
    """Others are refused. A new C has no gaps, since pyopencl reads no other arrays."""
    gemm = CompiledKernel.from_source(assuming("row", "row", "row"), device)
    a, b = random(rng, M, K, pad=24 - K), random(rng, K, N, pad=24 - N)
    (da, whole), (db, _) = resident(gemm.queue, a), resident(gemm.queue, b)
    for _ in range(2):
        assert np.array_equal(gemm(da, db).get(), a @ b)
    aside = whole[:, 1:K]  # begins where the device may allow no buffer, and so is copied there
    assert np.array_equal(gemm(aside, db[1:]).get(), a[:, 1:] @ b[1:])
    with pytest.raises(SpecError, match=f"a has leading dimension {K}, not a multiple of 8 .* lines of 24, or use ld"):
        gemm(cl_array.to_device(gemm.queue, np.ascontiguousarray(a)), db)


@pytest.mark.usefixtures("staging")
def test_read_only_inputs_and_extents_of_one(device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel.from_source(naive(), device)
    for m, n, k in product((1, 5), repeat=3):
        a, b = random(rng, m, k), random(rng, k, n)
        a.flags.writeable = b.flags.writeable = False
        assert np.array_equal(gemm(a, b), a @ b)


def test_beta_zero_does_not_read_c(device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel.from_source(naive(), device)
    a, b = random(rng, M, K), random(rng, K, N)
    assert np.array_equal(gemm(a, b, np.full((M, N), np.nan, np.float32), beta=0.0), a @ b)


@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("pad", [0, 3, 64 - K])
def test_resident(device: DeviceInfo, rng: np.random.Generator, images: str, pad: int) -> None:
    gemm = CompiledKernel.from_source(naive(images=images), device)
    a, b, c = random(rng, M, K, pad=pad), random(rng, K, N, pad=pad), random(rng, M, N, pad=pad)
    (da, _), (db, _), (dc, whole) = (resident(gemm.queue, x) for x in (a, b, c))
    assert np.array_equal(gemm(da, db).get(), a @ b)
    result, event = gemm(da, db, dc, alpha=2, beta=3, return_event=True)
    assert result is dc
    assert event in dc.events
    event.wait()
    assert event.profile.end >= event.profile.start
    assert np.array_equal(whole.get()[:, :N], 2 * (a @ b) + 3 * c)
    assert isinstance(c.base, np.ndarray)
    assert np.array_equal(whole.get()[:, N:], c.base[:, N:])


@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("offset", [3, 64])
def test_resident_views_inside_of_a_buffer(
    device: DeviceInfo, rng: np.random.Generator, images: str, offset: int
) -> None:
    gemm = CompiledKernel.from_source(naive(images=images), device)
    square = random(rng, 64, 192)
    there = cl_array.to_device(gemm.queue, square)
    a, b = slice(0, 64), slice(offset, offset + 64)
    part = there[:, b]
    assert part.offset == 4 * offset
    assert np.array_equal(gemm(there[:, a], part).get(), square[:, a] @ square[:, b])
    out = cl_array.to_device(gemm.queue, np.ones((64, 192), np.float32))
    gemm(there[:, a], part, out[:, b], beta=2)
    expected = np.ones((64, 192), np.float32)
    expected[:, b] = square[:, a] @ square[:, b] + 2
    assert np.array_equal(out.get(), expected)


def test_resident_from_a_memory_pool_and_another_context(device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel(naive())
    context = cl.Context([device.handle])
    queue = cl.CommandQueue(context)
    pool = cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue))
    a, b = random(rng, M, K), random(rng, K, N)
    da, db = (cl_array.to_device(queue, x, allocator=pool) for x in (a, b))
    result = gemm(da, db)
    assert result.queue == queue
    assert np.array_equal(result.get(), a @ b)


def test_what_is_no_queue_nor_event(device: DeviceInfo, rng: np.random.Generator) -> None:
    a = random(rng, M, M)
    with pytest.raises(SpecError) as caught:
        CompiledKernel.from_source(naive(), device)(a, a, queue=3, wait_for=["x"])
    assert [x.split(":")[0] for x in caught.value.problems] == [
        "queue is of type int",
        "wait_for holds what is of type str",
    ]


def test_out_of_order_queues_wait(device: DeviceInfo, rng: np.random.Generator) -> None:
    context = own_context(device.handle)
    queue = cl.CommandQueue(context, device.handle, cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    gemm = CompiledKernel.from_source(naive(), queue)
    start = cl.UserEvent(context)
    a, b = random(rng, M, M), random(rng, M, M)
    da, db = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
    first = gemm(da, db, wait_for=[start])
    second = gemm(first, db)
    start.set_status(cl.command_execution_status.COMPLETE)
    cl.wait_for_events(second.events)
    queue.finish()
    assert np.array_equal(second.get(), a @ b @ b)


def test_arrays_that_do_not_belong_together(device: DeviceInfo) -> None:
    gemm = CompiledKernel.from_source(naive(), device)
    x = np.zeros((2, 2), np.float32)
    here = cl_array.to_device(gemm.queue, x)
    context = cl.Context([device.handle])
    stranger = cl_array.to_device(cl.CommandQueue(context), x)
    with pytest.raises(SpecError, match="mixed"):
        gemm(here, x)
    with pytest.raises(SpecError, match="b belongs to another OpenCL context"):
        gemm(here, stranger)
    with pytest.raises(SpecError, match="dtype float64"):
        gemm(here, cl_array.to_device(gemm.queue, x.astype(np.float64)))
    with pytest.raises(SpecError, match="c overlaps a"):
        gemm(here, cl_array.to_device(gemm.queue, x), here)
    with pytest.raises(SpecError, match=r"call \.transpose"):
        CompiledKernel(turn())(x, x)


@pytest.mark.usefixtures("staging")
def test_transpose(device: DeviceInfo, rng: np.random.Generator) -> None:
    kernel = CompiledKernel.from_source(turn(), device)
    a = random(rng, M, N, pad=2)
    out = np.empty((N, M), np.float32)
    assert kernel.transpose(a, out) is out
    assert np.array_equal(out, a.T)
    assert np.array_equal(kernel.transpose(cl_array.to_device(kernel.queue, out)).get(), a)
    assert len(kernel.time(a, iterations=2)) == 2


@pytest.mark.usefixtures("staging")
def test_time(device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel.from_source(naive(), device)
    a, b, c = random(rng, M, K), random(rng, K, N), np.zeros((M, N), np.float32)
    seconds = gemm.time(a, b, c, beta=1, iterations=3)
    assert len(seconds) == 3
    assert all(0 < s < 1 for s in seconds)
    assert np.array_equal(c, 3 * (a @ b))
    assert gemm.time(a, b, iterations=0) == []
    with pytest.raises(DeviceError, match="PROFILING_ENABLE"):
        gemm.time(a, b, queue=cl.CommandQueue(gemm.queue.context))


def test_threads(device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel.from_source(naive(), device)
    pairs = [(random(rng, M + i, K), random(rng, K, N + i)) for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda pair: gemm(*pair), pairs * 4))
    assert all(np.array_equal(c, a @ b) for c, (a, b) in zip(results, pairs * 4, strict=True))


def test_what_the_device_lacks_is_said_before_anything_runs(device: DeviceInfo) -> None:
    with pytest.raises(ScheduleError) as caught:
        CompiledKernel.from_source(with_entry(naive(), group=(1024, 1024), local_bytes=1 << 40), device)
    assert ["work-items >" in p or "local memory >" in p for p in caught.value.problems] == [True, True]
    with pytest.raises(DeviceError, match="needs flying"):
        CompiledKernel.from_source(replace(naive(), requires=frozenset({"flying"})), device)
    if device.sub_group_sizes:
        with pytest.raises(DeviceError, match="needs sub-groups of 3"):
            CompiledKernel.from_source(with_entry(naive(), sub_group=3), device)
    bad = CompiledKernel.from_source(with_entry(turn(), arguments=naive().entry_points[0].arguments[:1]), device)
    with pytest.raises(LoweringError, match="'m'"):
        bad.transpose(np.zeros((2, 2), np.float32))


def test_images_that_are_too_large(device: DeviceInfo) -> None:
    width = device.handle.image2d_max_width + 1
    gemm = CompiledKernel.from_source(naive(images="a"), device)
    with pytest.raises(ScheduleError, match="L3_SIMD"):
        gemm(np.zeros((1, width), np.float32), np.zeros((width, 1), np.float32))


def test_a_text_that_does_not_compile(device: DeviceInfo, capfd: pytest.CaptureFixture[str]) -> None:
    source = naive()
    with pytest.raises(DeviceError) as caught:
        CompiledKernel.from_source(replace(source, text=source.text.replace("sum = 0.0f", "sum = nothing")), device)
    assert "float sum = nothing;" in str(caught.value)
    assert "does not compile naive" in str(caught.value)
    capfd.readouterr()  # compilers write to the terminal as well


@pytest.mark.usefixtures("staging")
def test_memory_is_given_back_on_errors(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = CompiledKernel.from_source(naive(images="a"), device)
    kept: list[cl.MemoryObject] = []
    own = HostStage.own

    def keep(stage: HostStage, memory: cl.MemoryObject) -> cl.MemoryObject:
        kept.append(memory)
        return own(stage, memory)

    monkeypatch.setattr(HostStage, "own", keep)

    def fail(*_: object, **__: object) -> None:
        raise cl.MemoryError(
            cl._cl._ErrorRecord("out", cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, "clEnqueueNDRangeKernel")
        )

    monkeypatch.setattr(OpenCLLaunches, "events", fail)
    x = np.zeros((4, 4), np.float32)
    with pytest.raises(DeviceError, match="out of memory"):
        gemm(x, x.copy())
    assert len(kept) == (1 if opencl_arrays.way_of(device.handle) == "address" else 3)
    for memory in kept:
        with pytest.raises(cl.LogicError):
            memory.release()  # it has been released


def test_a_buffer_larger_than_the_device_allows(device: DeviceInfo) -> None:
    with HostStage(own_queue(device.handle)) as stage, pytest.raises(DeviceError, match="in parts"):
        stage.allocate(View(1 << 30, 1 << 30, "row", 1 << 30), cl.mem_flags.READ_ONLY)
