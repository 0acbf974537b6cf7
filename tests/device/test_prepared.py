"""Calls that are made again: nothing is checked twice but what arrays of one kind may differ in."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import F32, F64, I8, I32, I64, DType
from gemmgen.ir.numeric import numpy_dtype
from gemmgen.runtime import opencl, opencl_arrays
from gemmgen.runtime.opencl import CompiledKernel
from gemmgen.runtime.opencl_calls import Scratch
from gemmgen.runtime.opencl_devices import DeviceInfo, own_context, own_queue, target_of, within_calls
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.naive import DEVICES
from tests.support.presets import counted
from tests.support.tools import ran

F = npt.NDArray[np.float32]
M, N, K = 13, 21, 17

pytestmark = pytest.mark.parametrize("device", DEVICES)


def whole(rng: np.random.Generator, *shape: int) -> F:
    """Small integers, so that products are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


@pytest.fixture
def gemm(device: DeviceInfo) -> CompiledKernel:
    return CompiledKernel.from_source(driver.emit(GemmSpec(), presets.load("naive").schedule), device)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each call whose arguments are looked at one by one."""
    return counted(monkeypatch, CompiledKernel, "_request")


def test_arrays_on_the_device(gemm: CompiledKernel, checked: list[int], rng: np.random.Generator) -> None:
    for alpha in (2, 2, 3):
        a, b, c = whole(rng, M, K), whole(rng, K, N), whole(rng, M, N)
        there = [cl_array.to_device(gemm.queue, x) for x in (a, b, c)]
        assert (gemm(*there, alpha=alpha, beta=1).get() == alpha * a @ b + c).all()
        there[2].finish()
        assert gemm(there[0], there[1]).shape == (M, N)
    assert len(checked) == 2, "one for all alphas, and one for a c that is allocated"


def test_gemm_of_arrays_on_the_device(device: DeviceInfo, checked: list[int], rng: np.random.Generator) -> None:
    """One preparation for each kind of call, transposed views and results that are columns among them."""
    queue = own_queue(device.handle)
    x, y, z = (cl_array.zeros(queue, (1, 1), np.float32),) * 3
    for count in range(3):
        a, b, c = whole(rng, M, K), whole(rng, K, N), whole(rng, M, N)
        x, y, z = (cl_array.to_device(queue, array) for array in (a, b, c))
        assert (gemmgen.gemm(x, y).get() == a @ b).all()
        assert (gemmgen.gemm(y.T, x.T).get() == (a @ b).T).all()
        out = cl_array.empty(queue, (M, N), np.float32, order="F")
        assert gemmgen.gemm(x, y, out=out, alpha=2 + count) is out
        assert (out.get() == (2 + count) * (a @ b)).all()
        assert gemmgen.gemm(x, y, z, beta=2) is z
        assert (z.get() == a @ b + 2 * c).all()
        checked[:] = checked[: 0 if count else None]
    assert not checked
    with pytest.raises(SpecError, match="out overlaps a in memory"):
        gemmgen.gemm(x[:, :13], y[:13, :13], out=x[:, :13])


@pytest.mark.parametrize("called", ["numpy", "pyopencl", "event"])
def test_a_folded_factor_is_checked_in_every_call(called: str, device: DeviceInfo, rng: np.random.Generator) -> None:
    gemm = CompiledKernel.from_source(driver.emit(GemmSpec(alpha=2.0), presets.load("naive").schedule), device)
    a, b = (x if called == "numpy" else cl_array.to_device(gemm.queue, x) for x in (whole(rng, M, K), whole(rng, K, N)))
    for _ in range(2):
        if called == "event":
            gemm(a, b, alpha=2, return_event=True)
        gemm(a, b, alpha=2)
        with pytest.raises(SpecError, match="alpha = 3, but the kernel has alpha = 2 folded"):
            gemm(a, b, alpha=3)


@pytest.mark.parametrize("dtype", [F32, F64, I32, I64, I8])
def test_other_factors(dtype: DType, device: DeviceInfo, rng: np.random.Generator) -> None:
    """Of each type, on the device and where they lie."""
    if dtype == F64 and "fp64" not in target_of(device.handle).features:
        pytest.skip("no float64")
    spec = GemmSpec(dtype=dtype)
    gemm = CompiledKernel.from_source(driver.emit(spec, presets.load("naive").schedule), device)
    elements, sums = numpy_dtype(dtype), numpy_dtype(spec.result)
    for alpha, beta in ((2, 1), (3, 1), (-1, 2), (2, 1), (1, 0), (1, 3)):
        a, b = (rng.integers(-3, 4, shape).astype(elements) for shape in ((M, K), (K, N)))
        c = rng.integers(-3, 4, (M, N)).astype(sums)
        exact = alpha * (a.astype(np.int64) @ b.astype(np.int64)) + beta * c.astype(np.int64)
        there = [cl_array.to_device(gemm.queue, x) for x in (a, b, c)]
        assert (gemm(*there, alpha=alpha, beta=beta).get() == exact).all()
        assert (gemm(a, b, c, alpha=alpha, beta=beta) == exact).all()


def test_numpys_where_they_lie(gemm: CompiledKernel, checked: list[int], rng: np.random.Generator) -> None:
    """By address, or by buffers over them."""
    for _ in range(3):
        a, b, c = whole(rng, M, K + 3)[:, :K], whole(rng, K, N), whole(rng, M, N)
        a.flags.writeable = False
        expected = a @ b - c
        assert gemm(a, b, c, beta=-1) is c
        assert (c == expected).all()
        assert len(checked) == 1


def bytes_of(rng: np.random.Generator, *shape: int) -> npt.NDArray[np.int8]:
    return rng.integers(-100, 100, shape, np.int8)


#: Calls whose arrays are copied first, whose result is converted, or which are several products: A, B, C of `out=`.
STEPS: dict[str, Callable[[np.random.Generator], tuple[npt.NDArray[np.generic], ...]]] = {
    "gaps in A": lambda rng: (whole(rng, M, 2 * K)[:, ::2], whole(rng, K, N), whole(rng, M, N)),
    "gaps in B": lambda rng: (whole(rng, M, K), whole(rng, N, 2 * K)[:, ::2].T, whole(rng, M, N)),
    "gaps in C": lambda rng: (whole(rng, M, K), whole(rng, K, N), whole(rng, M, 2 * N)[:, ::2]),
    "gaps everywhere": lambda rng: (
        whole(rng, 2 * M, 2 * K)[::2, ::2],
        whole(rng, 2 * K, 2 * N)[::2, ::2],
        whole(rng, 2 * N, 2 * M)[::2, ::2].T,
    ),
    "a column-major C": lambda rng: (whole(rng, M, 2 * K)[:, ::2], whole(rng, K, N), whole(rng, N, M).T),
    "another byte order": lambda rng: (whole(rng, M, K).astype(">f4"), whole(rng, K, N), whole(rng, M, N)),
    "two types": lambda rng: (bytes_of(rng, M, K), whole(rng, K, N), whole(rng, M, N)),
    "float64 beside float32": lambda rng: (
        whole(rng, M, K),
        whole(rng, K, N).astype(np.float64),
        whole(rng, M, N).astype(np.float64),
    ),
    "gaps in float64": lambda rng: tuple(
        whole(rng, *shape).astype(np.float64)[:, ::2] for shape in ((M, 2 * K), (K, 2 * N), (M, 2 * N))
    ),
    "bytes": lambda rng: (bytes_of(rng, M, K), bytes_of(rng, K, N), bytes_of(rng, M, N)),
    "permuted heads": lambda rng: (
        whole(rng, 2, M, 3, K).transpose(0, 2, 1, 3),
        whole(rng, 2, 3, K, N),
        whole(rng, 2, M, 3, N).transpose(0, 2, 1, 3),
    ),
    "bytes of permuted heads": lambda rng: (
        bytes_of(rng, 2, M, 3, K).transpose(0, 2, 1, 3),
        bytes_of(rng, 2, 3, K, N),
        bytes_of(rng, 2, 3, M, N),
    ),
}


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("way", ["new", "out", "bias", "added", "added elsewhere"])
def test_copies_conversions_and_several_products(
    case: str, way: str, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    checked, known = counted(monkeypatch, import_module("gemmgen.api.gemm"), "_checked"), 0
    for turn in range(4):
        a, b, c = STEPS[case](rng)
        kept, bias = [a.copy(), b.copy()], STEPS[case](rng)[2][..., 0, :].reshape(-1, N)[0].copy()
        expected = np.matmul(a, b)
        if way == "new":
            result = gemmgen.gemm(a, b, device=device.number)
        elif way == "out":
            result = gemmgen.gemm(a, b, out=c, device=device.number)
        elif way == "bias":
            expected = expected + bias.astype(expected.dtype)
            if a.dtype == b.dtype == np.int8:  # whose bias is added to sums of int32
                return
            result = gemmgen.gemm(a, b, out=c, epilogue="bias", bias=bias, device=device.number)
        elif way == "added":
            expected = 3 * expected + 2 * c
            result = gemmgen.gemm(a, b, c, alpha=3, beta=2, device=device.number)
        else:
            other, expected = STEPS[case](rng)[2], expected.astype(c.dtype)
            expected = 3 * expected + 2 * other
            result = gemmgen.gemm(a, b, other, out=c, alpha=3, beta=2, device=device.number)
        assert result.dtype == expected.dtype and (result == expected).all()
        assert (way == "new") != (result is c) and (a == kept[0]).all() and (b == kept[1]).all()
        known = known or len(checked) if turn else 0
    if opencl_arrays.way_of(device.handle) == "address":
        assert len(checked) == known, "nothing is checked from the third call on"


@pytest.mark.parametrize("shape", [(M, N), (N,)])
def test_c_in_another_array(
    shape: tuple[int, ...], device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Kernels add one like the result in place where beta is 1; others are copied to the result first."""
    checked = counted(monkeypatch, import_module("gemmgen.api.gemm"), "_checked")
    a, b, out, bias, known = whole(rng, M, K), whole(rng, K, N), whole(rng, M, N), whole(rng, N), 0
    for beta in (1, 2, 0):
        for turn in range(4):
            c = whole(rng, *shape)
            expected, kept = a @ b + beta * c, c.copy()
            assert gemmgen.gemm(a, b, c, beta=beta, out=out, device=device.number) is out
            assert (out == expected).all() and (c == kept).all()
            known = len(checked) if turn <= 1 else known
        if opencl_arrays.way_of(device.handle) == "address":
            # A beta of 2 has the key of 1, which kernels that add C as it is can't serve.
            assert len(checked) == known, "nothing is checked from the third call on"
    for beta in (1, 2, 1, 0, 1):
        c = whole(rng, *shape)
        named = gemmgen.gemm(a, b, c, beta=beta, out=out, epilogue="bias", bias=bias, device=device.number)
        assert (named == a @ b + beta * c + bias).all()
    whole_array = whole(rng, M + 1, N)
    for _ in range(3):  # C and the result overlap
        expected = a @ b + whole_array[1:]
        gemmgen.gemm(a, b, whole_array[1:], beta=1, out=whole_array[:M], device=device.number)
        assert (whole_array[:M] == expected).all()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers(dtype: str, device: DeviceInfo, checked: list[int], rng: np.random.Generator) -> None:
    """Where they lie, if they lie on multiples of their size; NumPy is content with half of it."""
    if dtype == "complex128" and "fp64" not in target_of(device.handle).features:
        pytest.skip("no float64")
    gemm = CompiledKernel.from_source(driver.emit(GemmSpec(dtype=dtype), presets.load("naive").schedule), device)
    for beside in (0, 1, 0, 1):
        (a, b), memory = (rng.integers(-4, 5, (2, 8, 8)) + 1j).astype(dtype), np.empty(8 * 16 + 2, a_half(dtype))
        lying = memory[memory.ctypes.data // memory.itemsize % 2 + beside :][: 8 * 16].view(dtype).reshape(8, 8)
        lying[...] = a
        checked.clear()
        assert (gemm(lying, b, alpha=2j) == 2j * (a @ b)).all()
        assert (gemm(lying, b, alpha=2j) == 2j * (a @ b)).all()
        assert len(checked) <= 1


def a_half(dtype: str) -> str:
    """The type of the parts of a complex number."""
    return "float32" if dtype == "complex64" else "float64"


def test_what_an_epilogue_takes(device: DeviceInfo, checked: list[int], rng: np.random.Generator) -> None:
    spec = GemmSpec(epilogue=("row_bias", "residual", "relu"))
    gemm = CompiledKernel.from_source(driver.emit(spec, presets.load("naive").schedule), device)
    a, b, c, each, residual = (np.zeros(1, np.float32),) * 5
    for _ in range(3):
        a, b, c, each = whole(rng, M, K), whole(rng, K, N), whole(rng, M, N), whole(rng, M)
        residual = whole(rng, M, N + 2)[:, 1:-1]
        expected = np.maximum(a @ b + each[:, None] + residual, 0)
        assert (gemm(a, b, c, row_bias=each, residual=residual) == expected).all()
        assert len(checked) == 1
        there = {name: cl_array.to_device(gemm.queue, x) for name, x in {"a": a, "b": b, "row_bias": each}.items()}
        there["residual"] = cl_array.to_device(gemm.queue, residual.copy())
        result = gemm(there.pop("a"), there.pop("b"), **there)
        assert (result.get() == expected).all()
        checked[:] = checked[:1]
    with pytest.raises(SpecError, match="c overlaps row_bias in memory"):
        gemm(a, b, c, row_bias=c[0, :M], residual=residual)
    with pytest.raises(SpecError, match="residual is missing"):
        gemm(a, b, c, row_bias=each)


def test_what_differs_within_a_kind_is_seen(gemm: CompiledKernel, rng: np.random.Generator) -> None:
    a, b = whole(rng, 16, 16), whole(rng, 16, 16)
    c = np.zeros_like(a)
    for _ in range(2):
        gemm(a, b, c)
        with pytest.raises(SpecError, match="c overlaps a in memory"):
            gemm(a, b, a)
        c.flags.writeable = False
        with pytest.raises(SpecError, match="c is read-only"):
            gemm(a, b, c)
        c.flags.writeable = True
        with pytest.raises(SpecError, match="pass a real number"):
            gemm(a, b, c, alpha=1 + 0j)
        with pytest.raises(SpecError, match="does not begin on a multiple"):
            gemm(np.zeros(16 * 16 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(16, 16), b, c)
    there, other = (cl_array.to_device(gemm.queue, x) for x in (a, b))
    assert (gemm(there, other, cl_array.empty_like(other)).get() == a @ b).all()
    with pytest.raises(SpecError, match="c overlaps b in memory"):
        gemm(there, other, other)
    assert (gemm(there, there, other).get() == a @ a).all()


def test_columns_among_each_other(gemm: CompiledKernel, rng: np.random.Generator) -> None:
    """C between A's columns: places that a quick look can't tell apart."""
    both, b = whole(rng, 8, 16), whole(rng, 8, 8)
    a, c = both[:, :8], both[:, 8:]
    for _ in range(2):
        expected = a @ b
        assert (gemm(a, b, c) == expected).all()


def test_events_are_waited_for(gemm: CompiledKernel, device: DeviceInfo, rng: np.random.Generator) -> None:
    """Also on queues that keep no order."""
    context, flags = own_context(device.handle), cl.command_queue_properties
    for properties in (0, flags.OUT_OF_ORDER_EXEC_MODE_ENABLE):
        queue = cl.CommandQueue(context, properties=cast("cl.command_queue_properties", properties))
        a, b = whole(rng, 64, 64), np.eye(64, dtype=np.float32)
        x, y = cl_array.to_device(queue, a), cl_array.to_device(queue, b)
        for _ in range(20):
            x = gemm(x, y)
        assert (x.get() == a).all()
        event = cl.UserEvent(context)
        late, done = gemm(x, y, queue=queue, wait_for=[event], return_event=True)
        assert done.command_execution_status != cl.command_execution_status.COMPLETE
        event.set_status(cl.command_execution_status.COMPLETE)
        assert (late.get() == a).all()


def test_threads(gemm: CompiledKernel, rng: np.random.Generator) -> None:
    left = [whole(rng, M, K) for _ in range(64)]
    b = whole(rng, K, N)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda a: gemm(a, b), left))
    assert all((c == a @ b).all() for a, c in zip(left, results, strict=True))


def test_memory_between_kernels(device: DeviceInfo, rng: np.random.Generator) -> None:
    """As much as the largest product needs, once; and none when it is released."""
    schedule = Schedule.of(tile=(1, 1), group=(1, 1), split_k=3)
    source = driver.emit(GemmSpec(), schedule, target=target_of(device.handle))
    gemm = CompiledKernel.from_source(source, device)
    b = whole(rng, 31, 6)
    there = cl_array.to_device(gemm.queue, b)

    def is_right(m: int) -> bool:
        a = whole(rng, m, 31)
        return bool((gemm(cl_array.to_device(gemm.queue, a), there).get() == a @ b).all())

    for m, most in ((5, 5), (9, 9), (7, 9)):
        assert is_right(m)
        scratch = gemm._scratch.get(gemm.queue, Scratch)
        assert [buffer.size for buffer in scratch.buffers.values()] == [3 * most * 6 * 4]
    gemm.release()
    assert len(gemm._scratch) == len(gemm._calls) == 0
    assert is_right(5)


def queue_of(event: cl.Event) -> cl.CommandQueue:
    return cast("cl.CommandQueue", event.get_info(cl.event_info.COMMAND_QUEUE))


def test_small_products_wake_no_thread(gemm: CompiledKernel, device: DeviceInfo, rng: np.random.Generator) -> None:
    """They run in the thread that calls, where the device can; large ones don't, nor what the caller has queued."""
    within = within_calls(device.handle)
    reached = opencl_arrays.way_of(device.handle) == "address"
    a, b = whole(rng, M, K), whole(rng, K, N)
    for _ in range(2):
        c, event = gemm(a, b, return_event=True)
        assert queue_of(event) == (within if within is not None and reached else gemm.queue)
        assert (c == a @ b).all()
        large = whole(rng, 80, 80)
        for left, right, queue in ((large, large, None), (a, b, gemm.queue)):
            c, event = gemm(left, right, queue=queue, return_event=True)
            assert queue_of(event) == gemm.queue
            assert (c == left @ right).all()
    if within is None:
        assert "cl_intel_exec_by_local_thread" not in device.handle.extensions


def test_a_single_work_item_wakes_no_thread(device: DeviceInfo, rng: np.random.Generator) -> None:
    """No other could help with it; but Ctrl-C is heard afterwards, so not for long."""
    if "vectors" not in target_of(device.handle).features:
        pytest.skip("vectors are for CPUs")
    schedule = Schedule.of(tile=(6, 16), group=(1, 1), vector=8, macro_kernel=(43, 43))
    gemm = CompiledKernel.from_source(driver.emit(GemmSpec(), schedule, target=target_of(device.handle)), device)
    within = within_calls(device.handle)
    reached = within is not None and opencl_arrays.way_of(device.handle) == "address"
    for size, stays in ((64, True), (256, True), (512, False)):
        a = whole(rng, size, size)
        c, event = gemm(a, a, return_event=True)
        assert (c == a @ a).all()
        assert queue_of(event) == (within if stays and reached else gemm.queue)


@pytest.mark.parametrize("cores", [1, 2])
def test_one_core_wakes_no_thread(
    device: DeviceInfo, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """No other core could take some of the work-items."""
    monkeypatch.setattr(opencl, "target_of", lambda device: replace(target_of(device), cores=cores))
    gemm = CompiledKernel.from_source(driver.emit(GemmSpec(), presets.load("naive").schedule), device)
    within = within_calls(device.handle)
    reached = within is not None and opencl_arrays.way_of(device.handle) == "address"
    a = whole(rng, 80, 80)
    c, event = gemm(a, a, return_event=True)
    assert (c == a @ a).all()
    assert queue_of(event) == (within if cores == 1 and reached else gemm.queue)


def test_what_is_awaited_can_come_from_another_thread(
    gemm: CompiledKernel, device: DeviceInfo, rng: np.random.Generator
) -> None:
    """Ctrl-C is not heard while a kernel runs within a call, which therefore must not wait."""
    a, b = whole(rng, M, K), whole(rng, K, N)
    gemm(a, b)
    event = cl.UserEvent(own_context(device.handle))
    later = threading.Timer(0.1, event.set_status, (cl.command_execution_status.COMPLETE,))
    later.start()
    assert (gemm(a, b, wait_for=[event]) == a @ b).all()
    later.join()


def test_subnormal_numbers_are_the_same_within_a_call(gemm: CompiledKernel, rng: np.random.Generator) -> None:
    """Threads may each have been told to take them for zero."""
    a = (rng.standard_normal((M, K)) * 1e-20).astype(np.float32)
    b = (rng.standard_normal((K, N)) * 1e-21).astype(np.float32)
    for _ in range(2):
        assert (gemm(a, b).view(np.int32) == gemm(a, b, queue=gemm.queue).view(np.int32)).all()
    assert (np.abs(gemm(a, b)) < np.finfo(np.float32).tiny).all()


def test_threads_types_and_shapes_in_a_fresh_process(device: DeviceInfo) -> None:
    """64 threads, three types, eight shapes: frames are shared, and arguments of one call must not reach another."""
    script = f"""
import threading
import numpy as np
import gemmgen
wrong = []
def work(number):
    rng = np.random.default_rng(number)
    for turn in range(15):
        dtype = ("float32", "float64", "int32")[(number + turn) % 3]
        m = 4 * (1 + (3 * number + turn) % 8)
        a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((m, 24), (24, 20)))
        out = np.full((m, 20), -77, dtype)
        factor = int(rng.integers(1, 4))
        for c in (gemmgen.gemm(a, b, device={device.number}), gemmgen.gemm(a, b, out=out, device={device.number})):
            if not np.array_equal(c, a @ b):
                wrong.append((number, turn))
        c = gemmgen.gemm(a, b, out, alpha=factor, beta=1, device={device.number})
        if not np.array_equal(c, (factor + 1) * (a @ b)):
            wrong.append((number, turn, factor))
threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong[:3]
"""
    ran([sys.executable, "-c", script], timeout=300)


def test_many_calls_do_not_grow(gemm: CompiledKernel, rng: np.random.Generator) -> None:
    a, b = whole(rng, M, K), whole(rng, K, N)
    gemm(a, b)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    for _ in range(2_000):
        gemm(a, b)
    before = resident()
    for _ in range(20_000):
        gemm(a, b)
    assert resident() - before < 2 << 20


def test_a_file_in_memory_is_numpys(gemm: CompiledKernel, rng: np.random.Generator, tmp_path: Path) -> None:
    """Arrays of NumPy's subclasses are checked each time, and prepared once."""
    a = np.memmap(tmp_path / "a", np.float32, "w+", shape=(M, K))
    b, c = whole(rng, K, N), np.memmap(tmp_path / "c", np.float32, "w+", shape=(M, N))
    for _ in range(3):
        a[...] = whole(rng, M, K)
        assert gemm(a, b, c) is c
        assert (c == a @ b).all() and type(gemm(a, b)) is np.ndarray
    assert len(gemm._calls) == 2
