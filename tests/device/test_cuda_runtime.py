"""The CUDA runtime: what arrays it takes, on which stream it works, and what it refuses."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.errors import DeviceError, SpecError
from gemmgen.module import render_module
from gemmgen.runtime.cuda import CudaKernel
from gemmgen.spec import GemmSpec
from tests.support import cuda
from tests.support.problems import Problem
from tests.support.tools import ran

SKIP = cuda.why_no_gpu()
pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))


@pytest.fixture(scope="module")
def kernel() -> CudaKernel:
    return gemmgen.compile(GemmSpec(), "smem_8x8_double", backend="cuda")


@pytest.fixture
def problem(rng: np.random.Generator) -> Problem:
    return Problem.random(rng, 130, 70, 45)


def test_cupy(kernel: CudaKernel, problem: Problem) -> None:
    import cupy

    a, b = cupy.asarray(problem.a), cupy.asarray(problem.b)
    result = kernel(a, b)
    assert isinstance(result, cupy.ndarray)
    problem.check(result.get())
    out = cupy.full((130, 70), cupy.nan, "float32")
    same, event = kernel(a, b, out, return_event=True)
    event.synchronize()
    assert same is out
    problem.check(out.get())
    assert len(kernel.time(a, b, iterations=3)) == 3


def test_transpose(rng: np.random.Generator) -> None:
    import cupy

    kernel = CudaKernel(driver.emit_transpose(GemmSpec(), 16, "cuda"))
    a = cupy.asarray(rng.random((48, 80), np.float32))
    out = cupy.empty((80, 48), np.float32)
    assert kernel.transpose(a, out) is out
    assert (out == a.T).all() and (kernel.transpose(a) == a.T).all()
    assert len(kernel.time(a, out, iterations=2)) == 2


def test_torch(kernel: CudaKernel, problem: Problem) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(problem.a).cuda(), torch.from_numpy(problem.b).cuda()
    result = kernel(a, b)
    assert isinstance(result, torch.Tensor) and result.device == a.device
    problem.check(result.cpu().numpy())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        problem.check(kernel(a, b).cpu().numpy())
    stream.wait_stream(torch.cuda.current_stream())
    problem.check((kernel(a, b, stream=stream), stream.synchronize())[0].cpu().numpy())
    with pytest.raises(SpecError, match=r"a\.detach\(\)"):
        kernel(a.requires_grad_(), b)
    with pytest.raises(SpecError, match=r"on 'cpu', not on a GPU: pass a\.cuda\(\)"):
        kernel(a.detach().cpu(), b)
    with pytest.raises(SpecError, match="not float32"):
        kernel(a.detach().bfloat16(), b)


def test_waits_for_the_current_stream(kernel: CudaKernel, rng: np.random.Generator) -> None:
    import cupy

    big = Problem.random(rng, 1024, 1024, 1024)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        a, b = cupy.asarray(big.a), cupy.asarray(big.b)
        late = cupy.zeros_like(b)
        for _ in range(20):  # work that takes its time
            kernel(a, b)
        late += b
        result = kernel(a, late)
    stream.synchronize()
    big.check(result.get())


def test_protocols(kernel: CudaKernel, problem: Problem) -> None:
    import cupy

    class Interface:
        def __init__(self, array: cupy.ndarray) -> None:
            self.array = array
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    class Capsule:
        def __init__(self, array: cupy.ndarray) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    arrays = cupy.asarray(problem.a), cupy.asarray(problem.b)
    for wrap in (Interface, Capsule):
        problem.check(cupy.asnumpy(kernel(*map(wrap, arrays))))


def test_zeros_and_what_is_not_read(kernel: CudaKernel) -> None:
    import cupy

    nothing, c = cupy.zeros((5, 0), "float32"), cupy.full((5, 3), 2, "float32")
    assert (kernel(nothing, nothing.T.reshape(0, 5), alpha=-1) == 0).all()
    assert (kernel(nothing, cupy.zeros((0, 3), "float32"), c, alpha=float("nan"), beta=0.5) == 1).all()
    assert kernel(cupy.zeros((0, 4), "float32"), cupy.zeros((4, 3), "float32")).shape == (0, 3)
    spoilt = cupy.full((5, 7), float("nan"), "float32"), cupy.full((7, 3), float("inf"), "float32")
    assert (kernel(*spoilt, c, alpha=0, beta=2) == 2).all()


def test_refusals(kernel: CudaKernel, problem: Problem) -> None:
    import cupy

    a, b = cupy.asarray(problem.a), cupy.asarray(problem.b)
    c = cupy.empty((130, 70), "float32")
    with pytest.raises(SpecError) as error:
        kernel(problem.a, b.astype("float64")[:, ::2], c)
    assert "a is a NumPy array, in the host's memory: pass cupy.asarray(a)" in error.value.problems
    assert any("b has dtype float64" in problem for problem in error.value.problems)
    assert any("n = 35" in problem or "n = 70" in problem for problem in error.value.problems)
    with pytest.raises(SpecError, match="strides"):
        kernel(cupy.asfortranarray(a), b)
    with pytest.raises(SpecError, match="overlaps"):
        kernel(cupy.zeros((70, 70), "float32"), whole := cupy.zeros((70, 70), "float32"), whole)
    with pytest.raises(SpecError, match="stream is of type str"):
        kernel(a, b, stream="fast")
    with pytest.raises(SpecError, match="beta = 1"):
        kernel(a, b, beta=1)
    aligned = CudaKernel(replace(kernel.source, alignment=16))
    with pytest.raises(SpecError, match=r"begins 4 bytes past a multiple of 16.*pass a\.copy\(\)"):
        aligned(cupy.zeros((10, 71), "float32")[:, 1:], cupy.zeros((70, 5), "float32"))


def test_broken_source_shows_the_line(kernel: CudaKernel) -> None:
    text = kernel.source.text.replace("float acc[TM][TN];", "flaot acc[TM][TN];")
    assert text != kernel.source.text
    with pytest.raises(DeviceError) as error:
        CudaKernel.from_source(replace(kernel.source, text=text))
    assert "| " in str(error.value) and "flaot acc" in str(error.value)


def test_out_of_memory(kernel: CudaKernel) -> None:
    import cupy

    tall, wide = cupy.zeros((46_000, 1), "float32"), cupy.zeros((1, 46_000), "float32")
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()  # of which C might be made
    before = pool.get_limit()
    pool.set_limit(size=pool.total_bytes() + (1 << 20))
    try:
        with pytest.raises(DeviceError, match="out of memory"):
            kernel(tall, wide)
    finally:
        pool.set_limit(size=before)


def test_grid_limits() -> None:
    import cupy

    naive = gemmgen.compile(GemmSpec(), "naive", backend="cuda")
    with pytest.raises(SpecError, match="blocks along the rows of C > 65,535"):
        naive(cupy.zeros((600_000, 1), "float32"), cupy.zeros((1, 1), "float32"))


def test_a_module_refuses_a_grid_beyond_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    (tmp_path / "tall.py").write_text(
        render_module(driver.emit(GemmSpec(), replace(presets.load("naive").schedule, name="tall"), "cuda"))
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    tall = importlib.import_module("tall").tall
    with pytest.raises(ValueError, match=r"75000 x 1 blocks along rows x columns are more than the 65535 x 2147483647"):
        tall(cupy.zeros((600_000, 1), "float32"), cupy.zeros((1, 1), "float32"))


def test_module_by_itself(tmp_path: Path) -> None:
    source = driver.emit(GemmSpec(), presets.load("smem_8x8").schedule, "cuda")
    (tmp_path / f"{source.name}.py").write_text(render_module(source))
    script = f"""
import sys, cupy as cp, numpy as np
from {source.name} import {source.name} as gemm
a, b = (cp.random.standard_normal((77, 77), dtype="float32") for _ in "ab")
c = gemm(a, b)
assert abs(c - a.astype("float64") @ b).max() < 1e-3
gemm(a[:50, :60], b[:60], c[:50], beta=2.0)
try:
    gemm(cp.asnumpy(a), b)
except ValueError as error:
    assert "cupy.asarray(a)" in str(error)
assert "gemmgen" not in sys.modules
"""
    ran([sys.executable, "-c", script], cwd=tmp_path)


def test_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gemmgen", "run", "--backend", "cuda", "-k", "smem_8x8", "-M", "300", "-v"]
    result = ran(command)
    assert "validation passed" in result.stdout
