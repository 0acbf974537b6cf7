"""oclgrind's race detector over presets without sub-groups: somebody else's word beside the interpreter's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import tool

#: One of each way through local memory, and one of several kernels; all others that oclgrind takes were run by hand
#: on 2026-11-21, without a word from it.
NAMES = ["L3_SLM_8x8_4x16", "lds_8x8_16x16_k16_double", "smem_8x8_transposed", "smem_8x8_double_packed"]

RUN = """
import re, sys
from dataclasses import replace
import numpy as np
from gemmgen import candidates, driver
from gemmgen.runtime.opencl_devices import devices, target_of
from gemmgen.runtime.opencl import CompiledKernel

without_barriers, *names = sys.argv[1:]
(device,) = (d for d in devices() if "Oclgrind" in d.name)
for name in names:
    preset = candidates.load(name)
    source = driver.emit(preset.spec, preset.schedule, target=target_of(device.handle))
    if without_barriers == "yes":
        source = replace(source, text=re.sub(r"barrier[(]CLK_LOCAL_MEM_FENCE[)];", "", source.text))
    gemm = CompiledKernel.from_source(source, device)
    m, n, k = 17, 17, 2 * preset.schedule.block_k + 1
    a, b = (np.random.default_rng(0).integers(-8, 9, s).astype(np.float32) for s in ((m, k), (k, n)))
    right = np.array_equal(gemm(a, b, np.full((m, n), np.nan, np.float32)), a @ b)
    print(name, "right" if right else "wrong", flush=True)
"""


def under_oclgrind(root: Path, without_barriers: str, *names: str) -> subprocess.CompletedProcess[str]:
    command = [tool("oclgrind"), "--data-races", sys.executable, "-c", RUN, without_barriers, *names]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYOPENCL_NO_CACHE": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


def test_no_races(root: Path) -> None:
    pytest.importorskip("pyopencl")
    done = under_oclgrind(root, "no", *NAMES)
    # Its exit code says nothing: what it finds, it writes.
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [word for name in NAMES for word in (name, "right")]


def test_races_would_be_found(root: Path) -> None:
    pytest.importorskip("pyopencl")
    done = under_oclgrind(root, "yes", NAMES[0])
    assert "data race at local memory address" in done.stderr
