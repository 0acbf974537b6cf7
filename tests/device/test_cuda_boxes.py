"""Boxes of every kind on a GPU of CUDA: lines of 32, 64 and 128 bytes, as the interpreter has them.

A kernel that waits for what never comes hangs: run this file by itself, under a time limit.
"""

from __future__ import annotations

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.test_cuda_wgmma import SKIP, check, on_gpu
from tests.interp.test_swizzles import LINES, SPEC, short
from tests.support.problems import Problem, interpret

pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
#: Of floats; NaN is no integer.
SWIZZLED = [(spec, schedule) for spec, schedule, _ in LINES if spec.dtype.is_float]


@pytest.mark.parametrize(("spec", "schedule"), SWIZZLED, ids=lambda x: x.slug() if isinstance(x, Schedule) else "")
def test_lines_as_the_interpreter_has_them(spec: GemmSpec, schedule: Schedule) -> None:
    """Every element has a number of its own: one out of place shows, and a descriptor that is not the hardware's."""
    rng = np.random.default_rng(3)
    rows, cols = rng.integers(-8, 9, (80, 64)), rng.integers(-8, 9, (64, 80))
    unit = np.eye(80)
    for left, right in ((rows, unit[:64]), (unit[:, :64], cols), (rows, cols)):
        problem = Problem(left.astype(np.float32), right.astype(np.float32), np.full((80, 80), np.nan), 1.0, 0.0)
        expected = interpret(driver.lower(spec, schedule, target_of(pick())), spec, problem.typed(spec), pad=0)
        assert np.array_equal(on_gpu(spec, schedule, left, right), expected.astype(np.float32))


@pytest.mark.parametrize("k_step", [16, 32])
def test_short_steps_of_any_size(k_step: int) -> None:
    assert SPEC.dtype == BF16
    check(SPEC, short(k_step, c_stages=2, persistent=True))
