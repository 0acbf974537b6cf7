"""CPUs by OpenCL: what is chosen runs, is right, and gives the same bits on any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import gemmgen
from gemmgen.ir.target import CPU_FEATURES
from gemmgen.runtime.devices import DeviceInfo, target_of
from gemmgen.spec import GemmSpec
from gemmgen.sweeps import choose_sweep
from tests.device.naive import DEVICES
from tests.support.cli import printed
from tests.support.problems import Problem

#: Short and ragged; K in blocks; K in parts.
SIZES = ((3, 200, 70), (67, 70, 1000), (6, 64, 17000))


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_chosen_is_right(device: DeviceInfo, rng: np.random.Generator) -> None:
    if device.type != "cpu":
        pytest.skip(f"{device} is no CPU")
    assert device.features >= CPU_FEATURES
    target = target_of(device.handle)
    assert target.cores >= 1
    assert target.vector_bytes in (16, 32, 64)
    for m, n, k in SIZES:
        gemm = gemmgen.compile(GemmSpec(m=m, n=n, k=k), device=device)
        chosen = choose_sweep(GemmSpec(m=m, n=n, k=k), None, target)
        assert chosen is not None
        assert gemm.source.name == chosen.slug()
        problem = Problem.random(rng, m, n, k, 1.5, -0.5)
        problem.check(gemm(problem.a, problem.b, problem.c.copy(), alpha=1.5, beta=-0.5))


@pytest.mark.parametrize("device", DEVICES[:1])
def test_run_chooses_where_nothing_is_said(device: DeviceInfo) -> None:
    if device.type != "cpu":
        pytest.skip(f"{device} is no CPU")
    sizes = ("-M", "70", "-N", "65", "-K", "33", "-i", "1", "-v")
    assert "\nvector_" in printed("run", *sizes)
    assert "\nvector_" not in printed("run", "--method", "naive", *sizes)


BITS = """
import hashlib, numpy as np, gemmgen
from gemmgen.spec import GemmSpec
rng = np.random.default_rng(0)
for m, n, k in ((300, 200, 1300), (12, 64, 17000)):
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((m, k), (k, n)))
    gemm = gemmgen.compile(GemmSpec(m=m, n=n, k=k))
    print(hashlib.sha256(gemm(a, b).tobytes()).hexdigest())
"""


def test_the_same_bits_on_any_number_of_threads() -> None:
    """One processor, or one thread of the runtime's, or all: what is chosen differs, the sums do not."""
    alone = {0: lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}), 1: None, 2: None}
    few = {"CL_CONFIG_CPU_TBB_NUM_WORKERS": "1", "POCL_MAX_PTHREAD_COUNT": "1"}
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BITS],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | (few if number == 1 else {}),
            preexec_fn=prepare,
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout
        for number, prepare in alone.items()
    }  # fmt: skip
    assert len(found) == 1
