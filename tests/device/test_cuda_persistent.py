"""On a GPU of Hopper: groups that compute one block of C after the other, and kernels that begin while others end.

A kernel that waits for what never comes hangs: run this file by itself, under a time limit
(`timeout 120 pytest -x tests/device/test_cuda_persistent.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16
from gemmgen.kernel_names import kernel_name
from gemmgen.methods import defaults
from gemmgen.runtime.cuda_devices import pick
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.device.test_cuda_wgmma import NAMES, SKIP, check, compiled, on_gpu

pytestmark = pytest.mark.skipif(SKIP is not None, reason=str(SKIP))
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
SMALL = defaults("wgmma", (2, 16), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), persistent=True, c_width=2)
LARGE = defaults("wgmma", (2, 64), (64, 4)).but(persistent=True, c_width=2)


@pytest.mark.parametrize(
    "schedule",
    [
        SMALL.but(stages=2),
        SMALL.but(stages=5),
        SMALL.but(c_width=4),
        LARGE,
        LARGE.but(tile=(4, 48), stages=3),
        LARGE.but(group=(96, 4), tile=(2, 48), setmaxnreg=(160, 32)),
        LARGE.but(cluster=(2, 1), c_width=1, epilogue_stages=2),
        LARGE.but(c_width=1, epilogue_stages=2, ordered_epilogue=True),
        LARGE.but(
            group=(96, 4), tile=(2, 48), setmaxnreg=(160, 32), c_width=1, epilogue_stages=1, ordered_epilogue=True
        ),
        LARGE.but(tile=(4, 48), stages=3, cluster=(1, 2), c_width=1, epilogue_stages=3),
        SMALL.but(stages=4, cluster=(2, 1)),
    ],
    ids=lambda x: kernel_name(x, SPEC),
)
def test_blocks_one_after_the_other(schedule: Schedule) -> None:
    """Ragged sizes; then more blocks than run at once, of fewer steps of K than the ring has slots, as many, more."""
    check(SPEC, schedule)
    rng = np.random.default_rng(5)
    rows, cols = ((28 if schedule.block_tile[0] == 64 else 12) * extent + 40 for extent in schedule.block_tile)
    built = compiled(SPEC, schedule)
    entry = driver.emit(SPEC, schedule, "cuda").entry_points[0]
    at_once = built._kernels(pick().number, built.source).at_once[entry.name]
    assert 0 < at_once < entry.groups({"m": rows, "n": cols, "k": 1})[2]
    for k in (8, 64 * schedule.stages, 1000):
        # A single element in each column of B, so that bfloat16 holds what comes out.
        left, right = rng.integers(-1, 2, (rows, k)).astype(np.float32), np.zeros((k, cols), np.float32)
        right[rng.integers(0, k, cols), np.arange(cols)] = rng.integers(1, 200, cols)
        assert np.array_equal(on_gpu(SPEC, schedule, left, right), left @ right)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_add_up(name: str) -> None:
    """With alpha = 0 there are no maps, which the kernel still asks to be fetched."""
    import torch

    preset = candidates.load(name)
    kernel = compiled(preset.spec, preset.schedule)
    kind = getattr(torch, str(preset.spec.dtype))
    a, b = (torch.full((264, 264), float("nan"), device="cuda").to(kind) for _ in range(2))
    c = torch.randn((264, 264), device="cuda").to(getattr(torch, str(preset.spec.result)))
    expected = (c.float() * 0.5).to(c.dtype)
    kernel(a, b if preset.spec.b_order == "row" else b.T, c, alpha=0.0, beta=0.5)
    assert torch.equal(c, expected)


@pytest.mark.parametrize(
    "schedule",
    [
        LARGE.but(persistent=False, cluster=(2, 1), c_width=4),
        LARGE.but(persistent=False, tile=(2, 48), cluster=(1, 2), c_width=1, epilogue_stages=2),
        SMALL.but(persistent=False, stages=8, cluster=(2, 1), c_width=1, epilogue_stages=1),
    ],
    ids=lambda x: kernel_name(x, SPEC),
)
@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")], ids=str)
def test_clusters(schedule: Schedule, orders: tuple[Order, Order]) -> None:
    check(replace(SPEC, a_order=orders[0], b_order=orders[1]), schedule)


CHAINED = [
    candidates.load("wgmma_64x64_s8").schedule,
    candidates.load("wgmma_64x64_s6_split128").schedule,
    candidates.load("wgmma_64x64_s8_joined2").schedule,
    candidates.load("wgmma_128x256_s4").schedule,
    SMALL,
    SMALL.but(stages=4, cluster=(2, 1)),
]


@pytest.mark.parametrize("schedule", CHAINED, ids=lambda x: kernel_name(x, SPEC))
@pytest.mark.parametrize("graphed", [False, True], ids=["queued", "a graph"])
def test_each_product_is_of_the_one_before(schedule: Schedule, graphed: bool) -> None:
    """Two matrices in turn, each the other times a permutation, so that what is read or written too early shows."""
    import torch

    size, times = 520, 200
    kernel = compiled(SPEC, schedule)
    rng = np.random.default_rng(7)
    order = rng.permutation(size)
    turn = torch.zeros((size, size), device="cuda", dtype=torch.bfloat16)
    turn[torch.from_numpy(order).cuda(), torch.arange(size, device="cuda")] = 1
    first = torch.randn((size, size), device="cuda").to(torch.bfloat16)
    x, y = first.clone(), torch.full_like(first, float("nan"))

    def both() -> None:
        kernel(x, turn, y)
        kernel(y, turn, x)

    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        both()  # a graph holds a workspace that was there before, one for each stream
        if graphed:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(times // 2):
                    both()
            graph.replay()
        else:
            for _ in range(times // 2):
                both()
    torch.cuda.synchronize()
    column = np.arange(size)
    for _ in range(times + 2):
        column = order[column]
    assert torch.equal(x, first[:, torch.from_numpy(column).cuda()])
