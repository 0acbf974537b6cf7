"""Prepared calls on a GPU: what is replayed and what is checked anew; graphs, memory, threads; torch without CuPy."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, cast

import pytest

import gemmgen
from gemmgen import GemmSpec, candidates
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import BF16
from tests.support import cuda
from tests.support.presets import counted
from tests.support.tensors import need_torch

if TYPE_CHECKING:
    import torch
else:
    torch = need_torch()

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
#: Type, M, N, K: one kernel; split-K; TMA; packed operands; few rows; a batch of them.
SHAPES = (
    ("float32", 70, 50, 90),
    ("float32", 64, 64, 65536),
    ("bfloat16", 512, 512, 512),
    ("float32", 1023, 1025, 511),
    ("bfloat16", 16, 4096, 4096),
)
#: A schedule of each way to divide K, or to keep blocks on the GPU.
SCHEDULES = ("mbarrier_8x16_16x16_split7", "smem_8x8_double_packed", "naive")


def random(dtype: str, *shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def is_near(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    exact = a.double() @ b.double()
    return bool((c.double() - exact).norm() <= (0.02 if c.element_size() == 2 else 1e-4) * exact.norm())


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each call of `gemm` that is checked in full, instead of replayed."""
    return counted(monkeypatch, import_module("gemmgen.api.gemm"), "_checked")


@pytest.mark.parametrize(("dtype", "m", "n", "k"), SHAPES)
def test_other_tensors_are_replayed(dtype: str, m: int, n: int, k: int, checked: list[int]) -> None:
    for _ in range(2):
        gemmgen.gemm(random(dtype, m, k), random(dtype, k, n))
        gemmgen.gemm(random(dtype, m, k), random(dtype, k, n), out=random(dtype, m, n))
    before = len(checked)
    for _ in range(5):
        a, b = random(dtype, m, k), random(dtype, k, n)
        assert is_near(gemmgen.gemm(a, b), a, b)
        out = torch.full((m, n), float("nan"), device="cuda", dtype=a.dtype)
        assert gemmgen.gemm(a, b, out=out) is out
        assert is_near(out, a, b)
    assert len(checked) == before


def test_cupys_are_replayed(checked: list[int]) -> None:
    cupy = pytest.importorskip("cupy")
    for count, (m, n, k) in enumerate(product((70, 64), (50, 64), (90, 65536))):
        for turn in range(3):
            a, b = (cupy.random.standard_normal(shape).astype("float32") for shape in ((m, k), (k, n)))
            out = cupy.full((m, n), cupy.nan, "float32")
            for c in (gemmgen.gemm(a, b), gemmgen.gemm(a, b, out=out)):
                assert float(abs(c - a.astype("float64") @ b).max()) < 1e-2
            assert len(checked) == 2 * (count + 1), turn


def test_kernels_replay_alpha_and_beta() -> None:
    for name in SCHEDULES:
        kernel = gemmgen.compile(GemmSpec(), candidates.load(name).schedule, backend="cuda")
        for alpha, beta in ((1, 0), (2.0, 0.5), (-1.0, 3.0), (0.0, 2.0), (0.0, 0.0), (2.0, 0.0), (1.5, -1.0)):
            a, b, c = random("float32", 64, 96), random("float32", 96, 80), random("float32", 64, 80)
            if beta == 0:
                c.fill_(float("nan"))
            exact = alpha * (a.double() @ b.double()) + (beta * c.double() if beta else 0)
            assert kernel(a, b, c, alpha=alpha, beta=beta) is c
            assert float((c.double() - exact).abs().max()) < 1e-3, (name, alpha, beta)
        assert len(kernel._calls) == 3, "ints, floats, floats with beta 0; an alpha of 0 is checked each time"


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "int8", "complex64"])
def test_other_factors(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    sums = "int32" if dtype == "int8" else dtype
    for alpha, beta in ((2, 1), (3, 1), (-1, 2), (2, 1), (1, 0), (1, 3)):
        a, b, c = (cupy.random.randint(-3, 4, shape).astype(dtype) for shape in ((40, 24), (24, 33), (40, 33)))
        c = c.astype(sums)
        exact = alpha * (a.astype("complex128") @ b.astype("complex128")) + beta * c.astype("complex128")
        assert bool((gemmgen.gemm(a, b, c, alpha=alpha, beta=beta) == exact).all()), (alpha, beta)


def test_what_a_key_asks() -> None:
    """A mistake raises, also where a call like it is prepared, and the GPU goes on."""
    kernel = gemmgen.compile(GemmSpec(), candidates.load("smem_8x8_double").schedule, backend="cuda", ld_multiple=4)
    whole = random("float32", 65 * 64)
    a, b = whole[: 64 * 64].view(64, 64), random("float32", 64, 64)
    shifted = whole[1 : 64 * 64 + 1].view(64, 64)
    for _ in range(2):
        assert is_near(kernel(a, b), a, b)
        with pytest.raises(SpecError, match="begins 4 bytes past a multiple of 16"):
            kernel(shifted, b)
        with pytest.raises(SpecError, match="overlaps"):
            kernel(a, b, b)
        with pytest.raises(SpecError, match="has dtype float64"):
            kernel(a.double(), b)
        with pytest.raises(SpecError, match="on 'cpu'"):
            kernel(a, b.cpu())
        with pytest.raises(SpecError, match="real number"):
            kernel(a, b, alpha=1j)
        assert is_near(gemmgen.gemm(shifted, b), shifted, b)
        assert is_near(gemmgen.gemm(a, b), a, b)
        with pytest.raises(SpecError, match="resolve_neg"):
            gemmgen.gemm(torch.view_as_complex(torch.randn(64, 64, 2, device="cuda")).conj().imag, b)
    torch.cuda.synchronize()


def test_gradients() -> None:
    weight = torch.nn.Parameter(random("float32", 64, 64))
    a = random("float32", 64, 64)
    for _ in range(2):
        with torch.no_grad():
            assert is_near(gemmgen.gemm(a, weight), a, weight)
        with torch.inference_mode():
            assert is_near(gemmgen.gemm(a, weight), a, weight)
        with pytest.raises(SpecError, match=r"b\.detach\(\), or call it under torch\.no_grad\(\)"):
            gemmgen.gemm(a, weight)


def test_operators_of_torch_enter_below_autograd(checked: list[int]) -> None:
    from gemmgen.api.gemm import How, gemm_tensors

    weight, a, bias = torch.nn.Parameter(random("float32", 48, 64)), random("float32", 32, 64), random("float32", 48)
    how = How(transpose_b=True, epilogue=("bias", "relu"))
    for _ in range(3):
        got = gemm_tensors(a, cast("torch.Tensor", weight), how=how, operands={"bias": bias})
        assert torch.allclose(got, torch.relu(a @ weight.T + bias), atol=1e-4)
    assert len(checked) == 1


def test_views(checked: list[int]) -> None:
    x, heads = random("float32", 128, 256), random("bfloat16", 9, 32, 6, 64)
    q, k = heads.permute(0, 2, 1, 3), heads.permute(0, 2, 3, 1)
    pairs = (
        (x[:, :128], x[:, 128:]),
        (x.mT, x),
        (x[:, ::2], x[:, :128]),
        (x[::2, 1:65], x[:64, 3:]),
        (x.view(4, 32, 256), x.view(4, 32, 256).mT),
        (x.view(4, 32, 256), x.mT),
        (q, k),
        (x[0], x.mT),
        (x, x[0]),
    )
    for count, (a, b) in enumerate(pairs):
        for _ in range(3):
            assert is_near(gemmgen.gemm(a, b), a, b), count
        assert len(checked) == count + 1, count


def test_results_of_8_bits_are_wider() -> None:
    a, b = (torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8) for shape in ((64, 96), (96, 32)))
    exact = (a.double() @ b.double()).long()
    for _ in range(2):
        assert gemmgen.gemm(a, b).dtype == torch.int32
        assert torch.equal(gemmgen.gemm(a, b).long(), exact)
        assert gemmgen.gemm(a, b, dtype=torch.int8).dtype == torch.int8
    small = random("float32", 64, 64).to(torch.float8_e4m3fn)
    got = gemmgen.gemm(small, small.t())
    assert got.dtype == torch.bfloat16
    assert is_near(got, small.float(), small.float().t())


# --- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "m", "n", "k"), SHAPES)
def test_graphs(dtype: str, m: int, n: int, k: int) -> None:
    """By torch's own recipe. Two graphs, whose replays run side by side, under other numbers each time."""
    graphs = []
    for _ in range(2):
        a, b = random(dtype, m, k), random(dtype, k, n)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            gemmgen.gemm(a, b)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            c = gemmgen.gemm(a, b)
        graphs.append((graph, a, b, c))
    streams = [torch.cuda.Stream() for _ in graphs]
    for _ in range(4):
        junk = [random("float32", 1 << 18) for _ in range(3)]
        for _, a, b, c in graphs:
            a.copy_(random(dtype, m, k))
            b.copy_(random(dtype, k, n))
            c.fill_(float("nan"))
        torch.cuda.synchronize()
        for (graph, *_), stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        assert all(is_near(c, a, b) for _, a, b, c in graphs)
        del junk


def test_a_graph_without_a_warm_up() -> None:
    a, b = random("float32", 71, 301), random("float32", 301, 53)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gemmgen.gemm(a, b)
    graph.replay()
    torch.cuda.synchronize()
    assert is_near(c, a, b)


def test_a_graph_holds_no_provisional_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmgen.api import aside, kernels

    monkeypatch.setenv(aside.VARIABLE, "1")
    monkeypatch.setattr(aside, "make", lambda key, job: aside._pending.add(key))
    monkeypatch.setattr(aside, "_pending", set())
    gemmgen.gemm(random("float16", 320, 320), random("float16", 320, 320))
    a, b = random("float16", 264, 328), random("float16", 328, 280)
    for _ in range(3):
        assert is_near(gemmgen.gemm(a, b), a, b)
    table = import_module("gemmgen.api.request").prepared_calls
    assert len(table._provisional) == 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gemmgen.gemm(a, b)
    graph.replay()
    torch.cuda.synchronize()
    assert is_near(c, a, b)
    key = next(key for key in kernels._answers._slots if key[3] == (264, 280, 328, 1))
    assert kernels._answers.known(key) is not None, "its own kernel was made while the graph was captured"
    table.drop_provisional()


def test_a_variant_is_left_to_a_job() -> None:
    """Meanwhile the general kernel runs, so that no call waits for the compiler."""
    kernel = gemmgen.compile(GemmSpec(), candidates.load("smem_8x8_double").schedule, backend="cuda")
    a, b, jobs = random("float32", 64, 64), random("float32", 64, 64), list[Callable[[], object]]()
    made = partial(kernel.call_for, a, b, None, (None, None), {}, lambda _, job: jobs.append(job))
    assert made().provisional and len(jobs) == 1
    jobs[0]()
    assert not made().provisional and len(jobs) == 1
    assert not kernel.call_for(a, b, None, (None, None), {}).provisional


@pytest.mark.parametrize("name", SCHEDULES)
def test_graphs_of_cupy(name: str) -> None:
    """Its pool does not know of them, so the kernel keeps workspaces."""
    cupy = pytest.importorskip("cupy")
    kernel = gemmgen.compile(GemmSpec(), candidates.load(name).schedule, backend="cuda")
    a, b = (cupy.random.standard_normal(shape).astype("float32") for shape in ((130, 200), (200, 70)))
    c = kernel(a, b)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        kernel(a, b, c)
        graph = stream.end_capture()
    for _ in range(3):
        junk = [cupy.full(1 << 18, cupy.nan, "float32") for _ in range(4)]
        c.fill(cupy.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert float(abs(c - a.astype("float64") @ b).max()) < 1e-3
        del junk


# --- memory, streams, threads, processes ----------------------------------------------------------


def test_nothing_is_kept() -> None:
    """Workspaces go back to torch's allocator, whatever M is."""
    kernel = gemmgen.compile(GemmSpec(), candidates.load("mbarrier_8x16_16x16_split7").schedule, backend="cuda")
    b = random("float32", 4096, 1024)
    kernel(random("float32", 2048, 4096), b)
    torch.cuda.synchronize()
    before, most = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for m in range(64, 2049, 62):
        kernel(random("float32", m, 4096), b)
        gemmgen.gemm(random("bfloat16", m, 512), random("bfloat16", 512, 1024))
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.memory_reserved() <= most + (256 << 20)


def test_many_calls_do_not_grow() -> None:
    module = import_module("gemmgen.api.gemm")
    a, b = random("float32", 64, 64), random("float32", 64, 64)
    gemmgen.gemm(a, b)
    before, kinds = torch.cuda.memory_allocated(), len(module.prepared_calls)
    for _ in range(20_000):
        gemmgen.gemm(a, b)
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), len(module.prepared_calls)) == (before, kinds)


def test_streams_side_by_side() -> None:
    kernel = gemmgen.compile(GemmSpec(), candidates.load("mbarrier_8x16_16x16_split7").schedule, backend="cuda")
    streams = [torch.cuda.Stream() for _ in range(8)]
    pairs = [(random("float32", 256, 2048), random("float32", 2048, 128)) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(3):
        results = []
        for stream, (a, b) in zip(streams, pairs, strict=True):
            with torch.cuda.stream(stream):
                results.append((kernel(a, b), gemmgen.gemm(a, b)))
        torch.cuda.synchronize()
        for (first, second), (a, b) in zip(results, pairs, strict=True):
            assert is_near(first, a, b) and is_near(second, a, b)


def test_threads() -> None:
    """64 threads, four types, eight shapes; each with a stream of its own."""
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for turn in range(12):
                    dtype = ("float32", "bfloat16", "float16", "float64")[(number + turn) % 4]
                    m = 8 * (1 + (number * 3 + turn) % 8)
                    a, b = random(dtype, m, 96), random(dtype, 96, 64)
                    out = torch.empty(m, 64, device="cuda", dtype=a.dtype)
                    for c in (gemmgen.gemm(a, b), gemmgen.gemm(a, b, out=out)):
                        wrong.extend([] if is_near(c, a, b) else [(number, turn)])
        except BaseException as error:  # noqa: BLE001  (raised in the test's own thread)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]


def test_a_thread_without_a_context() -> None:
    """The first thing that it does with CUDA is our launch."""
    kernel = gemmgen.compile(GemmSpec(), candidates.load("naive").schedule, backend="cuda")
    a, b, c = (random("float32", 64, 64) for _ in range(3))
    kernel(a, b, c)
    c.zero_()
    torch.cuda.synchronize()
    thread = threading.Thread(target=lambda: kernel(a, b, c))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert is_near(c, a, b)


def ran(script: str) -> None:
    """A script in a process of its own."""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]


def test_torch_alone() -> None:
    ran("""
import sys
sys.modules["cupy"] = None
import torch, gemmgen
a, b = torch.randn(40, 30, device="cuda"), torch.randn(30, 20, device="cuda")
assert torch.allclose(gemmgen.gemm(a, b), a @ b, atol=1e-4)
assert torch.allclose(gemmgen.gemm([a, a], [b, b])[1], a @ b, atol=1e-4)
kernel = gemmgen.compile(backend="cuda")
assert len(kernel.time(a, b, iterations=3)) == 3
_, event = kernel(a, b, return_event=True)
event.synchronize()
""")


def test_a_fork_is_told() -> None:
    ran("""
import os, torch, gemmgen
a, b, c = (torch.randn(64, 64, device="cuda") for _ in range(3))
for _ in range(2):
    gemmgen.gemm(a, b, out=c)
torch.cuda.synchronize()
child = os.fork()
if child == 0:
    try:
        gemmgen.gemm(a, b, out=c)
    except gemmgen.DeviceError as error:
        os._exit(0 if "spawn" in str(error) else 3)
    os._exit(4)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert gemmgen.gemm(a, b, out=c) is c
torch.cuda.synchronize()
""")


def test_the_interpreter_ends_while_threads_call() -> None:
    """With CuPy's arrays: torch's own functions abort a process that ends while daemon threads are inside."""
    pytest.importorskip("cupy")
    ran("""
import threading, time, cupy, gemmgen
a, b, c = (cupy.ones((64, 64), "float32") for _ in range(3))
gemmgen.gemm(a, b, out=c)
def work():
    while True:
        gemmgen.gemm(a, b, out=c)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
""")


def test_kept_on_disk_in_a_second_process(tmp_path: object) -> None:
    """The second process compiles nothing."""
    script = f"""
import os
os.environ["XDG_CACHE_HOME"] = {str(tmp_path)!r}
import torch, gemmgen, gemmgen.runtime.nvrtc as nvrtc
made = []
compile = nvrtc.Nvrtc.compile
nvrtc.Nvrtc.compile = lambda *args: (made.append(1), compile(*args))[1]
gemmgen.gemm(torch.randn(33, 44, device="cuda"), torch.randn(44, 55, device="cuda"))
torch.cuda.synchronize()
print(len(made))
"""
    counts = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()[-1]
        for _ in range(2)
    ]
    assert counts[0] != "0"
    assert counts[1] == "0"


def test_stream_k_and_persistent_kernels() -> None:
    spec = GemmSpec(dtype=BF16, ld_multiple=8)
    base = candidates.load("wgmma_128x256_s4").schedule
    schedules = (
        (GemmSpec(), candidates.varied("mbarrier_8x16_16x16", stream=True)),
        (spec, candidates.varied("wgmma_128x128_s4", parts=4)),
        (spec, base),
    )
    for of, schedule in schedules:
        kernel = gemmgen.compile(of, schedule, backend="cuda")
        for _ in range(3):
            a, b = random(str(of.dtype), 640, 1024), random(str(of.dtype), 1024, 768)
            assert is_near(kernel(a, b), a, b)
        assert len(kernel._calls) == 1
