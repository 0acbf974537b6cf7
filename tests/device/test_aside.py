"""Kernels compiled aside: no call of a new size waits, results are right meanwhile, and the chosen kernel comes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import cast

import numpy as np
import pytest

import gemmgen
from gemmgen import driver, presets
from gemmgen.api import aside, kernels
from gemmgen.errors import DeviceError
from gemmgen.runtime import require_pyopencl
from gemmgen.runtime.cuda_arrays import UNALIGNED_PRESET
from gemmgen.spec import GemmSpec

try:
    require_pyopencl()
    from gemmgen.runtime.opencl_devices import pick

    pick()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(aside.VARIABLE, "1")
    monkeypatch.setattr(kernels, "_any", {})


def chosen(m: int, n: int, k: int) -> tuple[kernels.Kernel, bool]:
    kernel, pending = kernels.kernel_now(kernels.Wanted("opencl", None, GemmSpec(beta=0.0), None, (m, n, k)))
    return kernel, pending is None


def test_another_kernel_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    first, is_own = chosen(96, 80, 64)
    assert is_own
    made: list[object] = []
    # What the thread is given to do is done here, when the test says so.
    monkeypatch.setattr(aside, "make", lambda key, job: made.append((key, job)))
    other, is_own = chosen(200, 150, 100)
    assert other is first and not is_own
    a, b = np.ones((200, 100), np.float32), np.ones((100, 150), np.float32)
    assert (np.asarray(other(a, b, None, alpha=1.0, beta=0.0)) == 100).all()
    ((_, job),) = made  # type: ignore[misc]
    own = job()  # type: ignore[has-type]
    assert chosen(200, 150, 100) == (own, True)
    # Far larger products are not left to a kernel for small ones.
    assert chosen(1000, 1100, 1200)[1]


def test_a_kernel_for_any_alignment_runs_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """For matrices at any address, and for assumed leading dimensions; the special one comes."""
    made: list[Callable[[], object]] = []
    monkeypatch.setattr(aside, "make", lambda _, job: made.append(job))
    about = kernels.Wanted("opencl", None, GemmSpec(beta=0.0, epilogue=("relu",)), None, (64, 48, 32))
    first, pending = kernels.kernel_now(about)
    assert pending is None and not made, "OpenCL's kernels take any address, so that none is made for others"
    for special in (about._replace(ld_multiple=4), about._replace(any_address=True)):
        other, pending = kernels.kernel_now(special)
        assert other is first and pending is not None
        a, b = np.ones((64, 32), np.float32), np.ones((32, 48), np.float32)
        assert (np.asarray(other(a, b, None, alpha=1.0, beta=0.0)) == 32).all()
        own = made.pop()()
        assert kernels.kernel_now(special) == (own, None)
        assert (np.asarray(cast(kernels.Kernel, own)(a, b, None, alpha=1.0, beta=0.0)) == 32).all()


def test_which_kernels_take_any_alignment() -> None:
    for name, takes in (("wgmma_128x256_s4", False), (UNALIGNED_PRESET, True)):
        preset = presets.load(name)
        source = driver.emit(preset.spec, preset.schedule, "cuda")
        assert kernels._takes_any_alignment(source) == takes, name


def test_the_thread_makes_them(rng: np.random.Generator) -> None:
    sizes = [(40 + 8 * step, 56, 72) for step in range(6)]
    for m, n, k in sizes:
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        assert (gemmgen.gemm(a, b, epilogue="relu") == np.maximum(a @ b, 0)).all()
    deadline = time.monotonic() + 60
    while aside._pending and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not aside._pending
    time.sleep(0.05)  # until the hooks have run
    module = import_module("gemmgen.api.gemm")
    assert not module.prepared_calls._provisional
    for m, n, k in sizes:
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        for _ in range(2):
            assert (gemmgen.gemm(a, b, epilogue="relu") == np.maximum(a @ b, 0)).all()


def test_a_process_ends_while_it_compiles() -> None:
    script = """
import numpy as np, gemmgen
for size in range(20, 60):
    a = np.ones((size, size), np.float32)
    assert (gemmgen.gemm(a, a) == size).all()
"""
    env = {**os.environ, aside.VARIABLE: "1"}
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=300)
    assert (result.returncode, result.stderr) == (0, "")
