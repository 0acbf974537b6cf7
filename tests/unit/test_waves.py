"""The model that chooses schedules for GPUs of CUDA: against what was measured, and what it never does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from gemmgen import driver, presets, waves
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, C64, F16, F64, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import slug
from gemmgen.spec import GemmSpec, Order
from tests.support.cli import printed
from tests.support.problems import Problem, interpret

SM_80, SM_90 = TARGETS["sm_80"], TARGETS["sm_90"]
RESULTS = "benchmarks/results/2026-11-21_h200"
SHAPES = ((1, 1, 1), (7, 4096, 11), (300, 300, 70000), (4097, 33, 1025), (100000, 64, 64), (8192, 8192, 8192))


def measured(root: Path, *names: str) -> list[tuple[GemmSpec, waves.Shape, int, str, float]]:
    """Spec, sizes, products, preset, microseconds."""
    rows = [row for name in names for row in json.loads((root / RESULTS / f"{name}.json").read_text())["rows"]]
    found = []
    for row in rows:
        spec = replace(presets.load(row["preset"]).spec, batched=row["batch"] > 0)
        found.append((spec, (row["m"], row["n"], row["k"]), row["batch"] or 1, row["preset"], row["ours_us"]))
    return found


def microseconds(spec: GemmSpec, preset: str, shape: waves.Shape, products: int) -> float:
    schedule = presets.load(preset).schedule
    tile = waves.tile_of(schedule)
    assert tile is not None, preset
    return sum(waves.account(spec, tile, schedule, shape, SM_90, products).values())


def test_the_model_follows_what_was_measured(root: Path) -> None:
    """A preset's constants are few, the sizes many; kernels of `mma` at small sizes are guessed worst."""
    off = {}
    for spec, shape, products, preset, us in measured(root, "best", "several", "mma_bf16"):
        if shape[0] != 4095 or spec.dtype != BF16:
            off[preset, shape] = abs(microseconds(spec, preset, shape, products) / us - 1)
    assert median(off.values()) < 0.05, off
    assert max(off.values()) < 0.4, off


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((512, 512, 512), "mbarrier_8x8_4x8_slices8"),
        ((1024, 1024, 1024), "mbarrier_8x16_8x8_slices4"),
        ((2048, 2048, 2048), "mbarrier_8x16_16x16_packed_a"),
        ((3072, 3072, 3072), "mbarrier_8x16_16x16_packed_a_stream132"),
        ((8192, 8192, 8192), "mbarrier_8x16_16x16_packed_a_stream132"),
        ((4224, 4096, 4096), "mbarrier_8x16_16x16_packed_a"),
        ((4095, 4095, 4095), "mbarrier_8x16_16x16_packed_stream132"),
        ((128, 14336, 4096), "mbarrier_8x16_16x16_packed_a_stream132"),
        ((16, 4096, 4096), "mbarrier_8x8_2x16_split8"),
    ],
)
def test_what_was_the_fastest_is_chosen(shape: waves.Shape, tile: str) -> None:
    chosen = waves.choose_tiles(GemmSpec(), shape, SM_90)
    assert chosen is not None
    assert chosen.name == tile


@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_few_rows_go_to_swapped_operands_and_joined_parts(orders: tuple[Order, Order]) -> None:
    spec = GemmSpec(dtype=BF16, ld_multiple=8, a_order=orders[0], b_order=orders[1])
    target = TARGETS["sm_90a"]
    for shape, named in (((1, 4096, 4096), "16x64"), ((16, 4096, 4096), "16x64"), ((24, 4096, 4096), "32x64")):
        chosen = waves.choose_tiles(spec, shape, target)
        assert chosen is not None
        assert chosen.name == f"wgmma_{named}_s8_joined2"
    low = waves.choose_tiles(spec, (64, 4096, 14336), target)
    assert low is not None
    assert (low.block_tile, low.split, low.joined) == ((64, 64), 2, 2)
    tiny = waves.choose_tiles(spec, (64, 64, 65536), target)
    assert tiny is not None
    assert slug(tiny).startswith("wgmma_64x64_s6_split")


@pytest.mark.parametrize("target", [SM_80, SM_90], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [None, BF16, F16], ids=str)
@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_what_is_chosen_can_be_emitted(target: object, dtype: DType | None, orders: tuple[str, str]) -> None:
    spec = GemmSpec(a_order=orders[0], b_order=orders[1])  # type: ignore[arg-type]
    spec = spec if dtype is None else replace(spec, dtype=dtype)
    for shape in SHAPES:
        schedule = waves.choose_tiles(spec, shape, target)  # type: ignore[arg-type]
        assert schedule is not None
        assert not driver.refusals(spec, schedule, "cuda", target)  # type: ignore[arg-type]
        assert schedule.by_warps == (dtype is not None), "float32 is rounded to TF32 by request alone"
        assert schedule.split * shape[0] * shape[1] < 2**31
        assert not schedule.atomic


def test_nothing_that_indices_do_not_reach_is_chosen() -> None:
    for shape in ((60000, 60000, 60000), (3, 5, 40000001)):
        spec = GemmSpec(m=shape[0], n=shape[1], k=shape[2])
        chosen = waves.choose_tiles(spec, None, SM_90)
        assert chosen is not None
        driver.lower_program(spec, chosen, SM_90)
    packed = presets.load("mbarrier_8x16_16x16_packed_a").schedule
    wide = driver.lower_program(GemmSpec(m=60000, n=60000, k=60000), packed, SM_90)
    assert wide.workspaces[0].reach == 2**63
    # Sizes that need no 64 bits by themselves, but in whole tiles.
    with pytest.raises(ScheduleError, match="reach: multiply in parts, pack nothing, or \\(but for dpas\\) use --wide"):
        driver.lower_program(GemmSpec(m=1, n=1, k=2**31 - 2000), packed, SM_90)


def test_where_there_is_no_model() -> None:
    for dtype in (F64, C64):
        assert waves.choose_tiles(GemmSpec(dtype=dtype), (999, 999, 999), SM_90) is None
    assert waves.choose_tiles(GemmSpec(), None, SM_90) is None
    assert waves.choose_tiles(GemmSpec(m=512, n=512, k=512), None, SM_90) is not None
    assert waves.choose_tiles(GemmSpec(), (999, 999, 999), TARGETS["sm_75"]) is None
    assert waves.choose_tiles(GemmSpec(), (999, 999, 999), TARGETS["intel"]) is None
    assert choose(GemmSpec(dtype=F64), (999, 999, 999), SM_90).asynchronous
    assert not choose(GemmSpec(), None, SM_90).by_warps
    assert choose(GemmSpec(dtype=F16), None, SM_80).by_warps
    # Matrix instructions take elements as they are.
    assert not choose(GemmSpec(a_dtype=F16), None, SM_90).by_warps


def test_prologues_go_by_packed_matrices() -> None:
    """Asynchronous copies change nothing on the way; the kernel that packs does."""
    spec = GemmSpec(b_dtype=I8, prologue_b="(b - b_shift) * b_scale")
    chosen = waves.choose_tiles(spec, (2048, 2048, 2048), SM_90)
    assert chosen is not None
    assert chosen.b.packed
    assert chosen.asynchronous
    assert not driver.refusals(spec, chosen, "cuda", SM_90)


def test_more_products_want_other_tiles() -> None:
    alone, many = (waves.choose_tiles(GemmSpec(batched=True), (64, 64, 64), SM_90, n) for n in (1, 1024))
    assert alone is not None
    assert many is not None
    assert alone.slices > 1
    assert many.slices == 1


def test_the_kernel_is_right(rng: np.random.Generator) -> None:
    """What is chosen for few multiprocessors and a long K, in the interpreter."""
    spec, shape = GemmSpec(), (40, 70, 600)
    schedule = waves.choose_tiles(spec, shape, replace(SM_90, cores=8))
    assert schedule is not None
    assert schedule.split > 1
    problem = Problem.random(rng, *shape, -1.5, 0.5)
    problem.check(interpret(driver.lower_program(spec, schedule, SM_90), spec, problem))


def test_a_target_alone_gets_what_it_can_run() -> None:
    for more in (["--dtype", "float64"], ["--dtype", "complex64"], ["-M", "64", "-N", "64"]):
        assert printed("emit", "--backend", "cuda", "--target", "sm_90", *more).startswith("// async_8x8_8x16: ")
    assert printed("emit", "--target", "portable").startswith("// lds_8x8_16x16_k8: ")


def test_the_command_line_chooses_and_explains() -> None:
    sizes = ("-M", "16", "-N", "4096", "-K", "4096")
    text = printed("emit", "--backend", "cuda", "--target", "sm_90", *sizes)
    assert text.startswith("// mbarrier_8x8_2x16_split8: ")
    text = printed("explain", "--preset", "mbarrier_8x8_2x16_split8", *sizes)
    assert "microseconds on 132 multiprocessors for 16 x 4096 x 4096, by the model of waves.toml:" in text
    assert "the sum of K's parts" in text
