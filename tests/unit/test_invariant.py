"""One order of sums for all numbers of rows, as far as it can be seen without a device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, presets
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from gemmgen.sum_order import sum_order

WHERE = [("sm_90a", "bfloat16"), ("sm_90a", "float32"), ("sm_80", "float16"), ("sm_90", "float64"), ("cpu", "float32")]
WHERE += [("intel", "float32"), ("gfx942", "float16"), ("sm_75", "complex64")]


@pytest.mark.parametrize(("target", "dtype"), WHERE)
def test_the_order_follows_from_n_k_and_the_device(target: str, dtype: str, rng: np.random.Generator) -> None:
    """Neither M, nor the order of A and C, alignment, a batch, or an epilogue changes it."""
    device = replace(TARGETS[target], cores=max(2, TARGETS[target].cores))
    for n, k in ((4096, 4096), (64, 40000), (1000, 333), (1, 512)):
        plain = GemmSpec(dtype=dtype, b_order="col" if rng.random() < 0.5 else "row")
        orders = set()
        for m in (int(m) for m in np.exp(rng.uniform(0, 9, 10))):
            spec = replace(
                plain,
                # Dot products of a CPU read rows of A; `gemm` copies others.
                a_order="col" if rng.random() < 0.3 and target != "cpu" else "row",
                epilogue=("bias", "relu") if dtype != "complex64" and rng.random() < 0.5 else (),
                ld_multiple=8 if n % 8 == k % 8 == 0 and rng.random() < 0.7 else 1,
                batched=rng.random() < 0.2,
            )
            schedule = choose(spec, (m, n, k), device, int(rng.integers(1, 9)), invariant=True)
            orders.add(sum_order(schedule, k))
        assert len(orders) == 1 and None not in orders, (n, k)


def test_m_chooses_tiles() -> None:
    device = TARGETS["sm_90a"]
    tiles = {choose(GemmSpec(), (m, 4096, 4096), device, invariant=True).block_tile for m in (1, 16, 4096)}
    assert len(tiles) > 1


def test_a_c_too_large_for_its_sums_names_the_rows_that_fit() -> None:
    device, sizes = TARGETS["sm_90a"], (64, 65536)
    order = sum_order(choose(GemmSpec(), (1, *sizes), device, invariant=True), sizes[1])
    assert order is not None and order.parts > 1
    most = (2**31 - 1) // (order.parts * 64)
    choose(GemmSpec(), (most, *sizes), device, invariant=True)
    with pytest.raises(ScheduleError, match=f"sums of more than {most:,} rows exceed"):
        choose(GemmSpec(), (most + 1, *sizes), device, invariant=True)


def test_what_no_kernel_of_the_order_reads_is_refused() -> None:
    device = replace(TARGETS["cpu"], cores=2)
    with pytest.raises(ScheduleError, match=r"for 8x1x512 adds by .* \(fma, 16 lanes along K\): pass row-major"):
        choose(GemmSpec(a_order="col"), (8, 1, 512), device, invariant=True)


def test_orders() -> None:
    """What `docs/numerics.md` says of schedules."""

    def of(name: str, k: int = 1000) -> object:
        return sum_order(candidates.load(name).schedule, k)

    assert of("naive") == of("smem_8x8") == of("L3_SIMD_32x2_1x8") == of("cpu_6x64")
    assert of("mma_8x16_16x8") != of("wgmma_128x256_s4") != of("naive")
    assert of("mbarrier_8x8_4x8_slices8") != of("naive")
    assert of("reduction_4x4_4x4") is None and of("mbarrier_8x16_16x16_stream") is None
    split = Schedule.of(split_k=4, block_k=8)
    # Pieces are whole steps: 256 of 1000 by steps of 8 as well as of 16, but not of 40.
    assert sum_order(split, 1000) == sum_order(split.but(block_k=16), 1000) != sum_order(split.but(block_k=40), 1000)
    blocks = presets.load("cpu_6x64").schedule.but(kc=512)
    assert sum_order(blocks, 512) == sum_order(blocks.but(kc=0), 512)
    assert sum_order(blocks, 513) != sum_order(blocks.but(kc=0), 513)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_long_k_goes_in_as_many_parts_as_fill_a_gpu(dtype: str) -> None:
    """64 columns and a K of 65536: in 32 parts one row of float32 took five times as long as by the free choice."""
    spec = GemmSpec(dtype=dtype, ld_multiple=8)
    for m in (1, 500, 8192):
        order = sum_order(choose(spec, (m, 64, 65536), TARGETS["sm_90a"], invariant=True), 65536)
        assert order is not None
        assert order.parts >= 64


@pytest.mark.parametrize(("n", "k"), [(4096, 100), (8192, 8192), (16, 65536)])
def test_eight_bit_floats_by_rows_have_an_order_for_any_a(n: int, k: int) -> None:
    """From registers B would have one of its own, which no A by columns, or without TMA, can have."""
    plain = GemmSpec(dtype="float8_e4m3fn", c_dtype="bfloat16", ld_multiple=16)
    orders = {
        sum_order(choose(spec, (300, n, k), TARGETS["sm_90a"], invariant=True), k)
        for spec in (plain, replace(plain, a_order="col"), replace(plain, ld_multiple=4), replace(plain, c_order="col"))
    }
    assert len(orders) == 1
