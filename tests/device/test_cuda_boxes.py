"""TMA tiles of every kind on a GPU of CUDA: lines of 32, 64 and 128 bytes, as the interpreter has them; and of batches.

A kernel that waits for what never comes hangs: run this file by itself, under a time limit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16
from gemmgen.kernel_names import kernel_name
from gemmgen.runtime.cuda_devices import pick, target_of
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.device.test_cuda_wgmma import SKIP, check, compiled, on_gpu
from tests.interp.test_swizzles import LINES, SPEC, short
from tests.support.problems import Problem, interpret

pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
#: Of floats; NaN is no integer.
SWIZZLED = [(spec, schedule) for spec, schedule, _ in LINES if spec.dtype.is_float]


@pytest.mark.parametrize(
    ("spec", "schedule"), SWIZZLED, ids=lambda x: kernel_name(x, SPEC) if isinstance(x, Schedule) else ""
)
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
    check(SPEC, short(k_step, epilogue_stages=2, persistent=True))


# --- batches --------------------------------------------------------------------------------------

#: Blocks that end, that stay, in clusters, a second kernel, operands swapped, packed before.
BATCHED = (
    "wgmma_64x64_s8",
    "wgmma_128x128_s4",
    "wgmma_128x256_s4_turns",
    "wgmma_64x128_s4_2x1",
    "wgmma_64x64_s6_split128",
    "wgmma_16x64_s8_joined2",
    "wgmma_128x256_s4_packed",
)


@pytest.mark.parametrize("name", BATCHED)
def test_batches(name: str) -> None:
    """Each its own, one for all on either side, matrices whose lines lie between each other's, a single one and none;
    what lies between C's matrices stays.
    """
    import torch

    preset = candidates.load(name)
    kernel = compiled(replace(preset.spec, batched=True), preset.schedule)
    torch.manual_seed(2)
    for count, m, n, k in ((5, 150, 264, 136), (3, 40, 72, 1000), (1, 130, 128, 64), (2, 64, 64, 16), (0, 8, 8, 8)):
        a, b = (torch.randn(shape, device="cuda").bfloat16() for shape in ((count, m, k), (count, k, n)))
        between = a.transpose(0, 1).contiguous().transpose(0, 1)
        pairs = ((a, b), (between, b), (a[:1].expand(count, m, k), b), (a, b[:1].expand(count, k, n)))
        for left, right in pairs:
            memory = torch.full((count, m * (n + 8) + 24), 7.0, device="cuda").bfloat16()
            c = memory[:, : m * (n + 8)].view(count, m, n + 8)[:, :, :n]
            kernel(left, right, c)
            exact = left.double() @ right.double()
            bound = left.double().abs() @ right.double().abs() * 2.0**-20 + exact.abs() * 2.0**-8
            assert bool(((c.double() - exact).abs() <= bound).all())
            assert bool((memory[:, m * (n + 8) :] == 7).all())
            assert bool((memory[:, : m * (n + 8)].view(count, m, n + 8)[:, :, n:] == 7).all())
