from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.errors import ScheduleError
from gemmgen.explain import explain
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_schedule
from gemmgen.spec import GemmSpec

INTEL = TARGETS["intel"]


@pytest.mark.parametrize("name", candidates.names())
def test_every_preset(name: str) -> None:
    preset = candidates.load(name)
    backend = next(x for x in BACKENDS if not driver.refusals(preset.spec, preset.schedule, x))
    target = driver.default_target(preset.spec, preset.schedule, backend)
    lines = explain(preset.spec, preset.schedule, target).splitlines()
    assert lines[0].startswith(name)
    boxes = {len(line) for line in lines if line[:1] in "┌│└" and line}
    assert len(boxes) == 1


def test_block_reads() -> None:
    text = explain(GemmSpec(), build_schedule("block_read", tile="32x2"), INTEL)
    for part in (
        "group: 32x16 of C by 1x8 = 8 work-items",
        "the only sub-group: 32x16 of C by 8 lanes",
        "one of 8 work-items: 32x2 of C in 64 registers",
        "A  image a ──> private a_frag: 32 elements in 4 loads",
        "256 are passed around the sub-group",
        "registers per work-item: 80 = 64 acc + 16 b_frag",
        "2,560 of 4,096 bytes of a sub-group",
        "local memory: none",
        "6 loads, 512 fmas",
    ):
        assert part in text


def test_local_memory() -> None:
    text = explain(GemmSpec(beta=0.0), build_schedule("slm", sets=["stages=2"]), INTEL)
    for part in (
        "C = alpha * A * B (float32)",
        "A  global a ──> local a_shared: 4 elements in 1 load (vectors of 4, the group together)",
        "4,096 of 65,536 bytes",
        "a_shared[2][64][8] 4,096",
        "  local ",
    ):
        assert part in text


def test_flops_per_byte_by_hand() -> None:
    # 16x16 work-items with a loop of one fma and two loads of 4 bytes: 2 / 8; each element once: 2*256 / (32*4).
    text = explain(GemmSpec(), build_schedule("naive"), INTEL)
    levels = dict(line.split()[:2] for line in text.partition("flops per byte\n")[2].splitlines())
    assert levels == {"memory": "4.00", "global": "0.25", "register": "0.25"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # The sum over parts of K is read after the accumulators were stored.
        ("wgmma_64x64_s6_split128", "registers per work-item: 32 = 32 acc\n  128 of 1,020 bytes"),
        ("wgmma_3xtf32_128x128_s3", "registers per work-item: 128 = 64 acc + 64 step_sums\n"),
        # Four elements of A or B in a register; two for one of float64.
        ("mma_f8_8x16_16x8", "registers per work-item: 192 = 128 acc + 32 a_frag + 32 b_frag\n  768 of 1,020 bytes"),
        ("mma_f64_4x8_16x8", "4x8 of C in 64 registers"),
    ],
)
def test_registers_that_are_there_at_once(name: str, said: str) -> None:
    preset = candidates.load(name)
    assert said in explain(preset.spec, preset.schedule, driver.default_target(preset.spec, preset.schedule, "cuda"))


def test_a_gate_makes_half_as_many_columns_of_c() -> None:
    """The picture said that sums were C's elements, and nothing of the gate."""
    spec, smem_8x8 = GemmSpec(epilogue=("swiglu",)), candidates.load("smem_8x8").schedule
    text = explain(spec, smem_8x8, INTEL)
    for part in (
        "smem_8x8: C = alpha * A * B, then swiglu (float32) on intel",
        "128x64 of C per group, 8x4 per work-item",
        "group: 128x128 of A * B (128x64 of C) by 16x16 = 256 work-items",
        "one of 256 work-items: 8x8 of A * B (8x4 of C) in 64 registers",
        "who owns which part of the group's 128x128 of A * B (n:",
    ):
        assert part in text
    wgmma = candidates.load("wgmma_128x256_s4")
    text = explain(replace(wgmma.spec, epilogue=("swiglu",)), wgmma.schedule, TARGETS["sm_90a"])
    assert text.count("b_shared: 32 elements (2 TMA tiles, by one work-item for all)") == 2
    assert "group: 128x128 of C by" in explain(GemmSpec(), smem_8x8, INTEL)


def test_what_cannot_run_is_not_drawn() -> None:
    with pytest.raises(ScheduleError):
        explain(GemmSpec(), build_schedule(tile="256x256"), INTEL)
    with pytest.raises(ScheduleError):
        explain(GemmSpec(), build_schedule(), TARGETS["portable"])


def test_vectors_along_k_are_as_deep_as_they_are_wide() -> None:
    text = explain(GemmSpec(), candidates.load("cpu_4x4_along_k").schedule, TARGETS["cpu"])
    assert "the only work-item: 4x4 of C in 256 registers" in text
    assert "per step of K (16 deep) and work-item:\n  8 loads, 256 fmas" in text
