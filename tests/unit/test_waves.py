"""The model that chooses schedules for GPUs of CUDA: against what was measured, and what it never does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from gemmgen import candidates, driver, waves
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, C64, F16, F64, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.kernel_names import kernel_name
from gemmgen.spec import GemmSpec, Order
from gemmgen.tiles import choose_tiles, ranked
from tests.support.cli import printed
from tests.support.problems import Problem, interpret

SM_80, SM_90 = TARGETS["sm_80"], TARGETS["sm_90"]
RESULTS = "benchmarks/results"
SHAPES = ((1, 1, 1), (7, 4096, 11), (300, 300, 70000), (4097, 33, 1025), (100000, 64, 64), (8192, 8192, 8192))

#: A type and sizes -> each preset's microseconds and the model's.
Times = dict[tuple[str, waves.Shape], dict[str, tuple[float, float]]]


def microseconds(spec: GemmSpec, preset: str, shape: waves.Shape, products: int = 1) -> float:
    schedule, tile = candidates.load(preset).schedule, tile_of(preset)
    return sum(waves.account(spec, tile, schedule, shape, SM_90, products).values())


def tile_of(preset: str) -> waves.Tile:
    tile = waves.tile_of(candidates.load(preset).schedule)
    assert tile is not None, preset
    return tile


@pytest.fixture(scope="module")
def times(root: Path) -> Times:
    """What presets took at shapes most of which nobody chose, by `benchmarks/choose_cuda.py`."""
    found: Times = {}
    for path in sorted((root / RESULTS / "2026-11-22_h200").glob("rows*.json")):
        for row in json.loads(path.read_text()):
            m, n, k = row["shape"]
            for name in set(row["us"]) & set(candidates.names()):
                spec = candidates.load(name).spec
                kept = n % (16 // spec.dtype.size) == k % (16 // spec.dtype.size) == 0
                spec = replace(spec, ld_multiple=16 // spec.dtype.size if kept else 1)
                # Since these figures were taken, mma kernels store C by fours, and element by element in other lines.
                other = name.startswith("mma_") and n % 4
                if name != "naive_16x16" and not other:
                    both = row["us"][name], microseconds(spec, name, (m, n, k))
                    found.setdefault((row["dtype"], (m, n, k)), {})[name] = both
    return found


def test_the_model_follows_what_was_measured(times: Times) -> None:
    """Constants are few, the shapes many: what is far from the fastest is guessed worst."""
    off = [
        abs(guess / us - 1)
        for rows in times.values()
        for us, guess in rows.values()
        if us < 1.5 * min(us for us, _ in rows.values())
    ]
    assert len(off) > 300
    assert median(off) < 0.1
    assert max(off) < 1


def test_the_fastest_preset_comes_out_cheapest(times: Times) -> None:
    """At most shapes, within 3 %."""
    ratios = {}
    for problem, rows in times.items():
        named, _ = min(rows.values(), key=lambda row: row[1])
        ratios[problem] = min(us for us, _ in rows.values()) / named
    assert len(ratios) > 80
    assert sum(ratio > 0.97 for ratio in ratios.values()) > 0.8 * len(ratios), ratios
    assert min(ratios.values()) > 0.5, ratios


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((512, 512, 512), "wgmma_64x64_s8"),
        ((1000, 1000, 1000), "wgmma_64x128_s4_2x1"),  # lines begin anywhere: those of B are asked for half as often
        ((1024, 1024, 1024), "wgmma_64x128_s4"),
        ((1536, 1536, 1536), "wgmma_128x144_s4"),
        ((2048, 2048, 2048), "wgmma_128x256_s4"),
        ((3072, 3072, 3072), "wgmma_192x192_s4"),
        ((4096, 14336, 4096), "wgmma_128x256_s4_turns"),
        ((8192, 8192, 8192), "wgmma_128x256_s4_turns"),
        ((128, 4096, 4096), "wgmma_64x64_s8"),
        ((16, 4344, 1888), "wgmma_16x64_s8"),  # 48 lines of A that are outside are no use
        ((4096, 16, 4096), "wgmma_64x16_s8_joined2"),
        ((8192, 8192, 16), "wgmma_64x128_k16_s4"),  # C is stored while the next block begins
        ((8000, 72, 128), "wgmma_64x128_s4_2x1"),  # lines of 144 bytes, asked for by all blocks: 2.8 us, 3.4 alone
        ((2120, 4824, 120), "wgmma_128x256_s4_turns"),  # lines of C begin inside of sectors: 13.7 us, `_s2` 16.4
    ],
)
def test_tensor_cores_go_by_what_caches_are_asked_for(shape: waves.Shape, name: str) -> None:
    chosen = choose_tiles(GemmSpec(dtype=BF16, ld_multiple=8), shape, TARGETS["sm_90a"])
    assert chosen is not None
    assert chosen.name == name


def test_few_candidates_are_weighed() -> None:
    """A shape is chosen for within a millisecond or so, of which each takes some 10 microseconds."""
    for spec in (GemmSpec(), GemmSpec(dtype=BF16), GemmSpec(dtype=BF16, ld_multiple=8)):
        for shape in ((64, 64, 65536), (777, 40, 12345), (16, 4096, 4096), (8192, 8192, 8192)):
            assert 10 < len(list(ranked(spec, shape, TARGETS["sm_90a"]))) < 200


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((512, 512, 512), "mbarrier_8x8_4x8_slices8"),
        ((1024, 1024, 1024), "mbarrier_8x16_8x8_slices4_packed_a"),  # 48.0 us, 48.5 as A lies
        ((2048, 2048, 2048), "mbarrier_8x16_16x16_packed_a"),
        ((3072, 3072, 3072), "mbarrier_8x16_16x16_packed_a_stream"),
        ((8192, 8192, 8192), "mbarrier_8x16_16x16_packed_a_stream"),
        ((4224, 4096, 4096), "mbarrier_8x16_16x16_packed_a"),
        ((128, 14336, 4096), "mbarrier_8x16_16x16_packed_a_stream"),
        ((16, 4096, 4096), "mbarrier_8x8_2x16_split8"),
    ],
)
def test_what_was_the_fastest_is_chosen(shape: waves.Shape, tile: str) -> None:
    chosen = choose_tiles(GemmSpec(), shape, SM_90)
    assert chosen is not None
    assert chosen.name == tile


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((8040, 1248, 16), "async_8x4_8x16"),  # stores and copies of other blocks go on side by side: 16.1 us of 18.7
        ((1639, 948, 377), "async_8x4_8x16"),  # three blocks of six multiply faster than half as fast: 34.6 of 38.5
        ((6288, 224, 278), "async_8x4_8x16"),  # 25.8 of 36.5
    ],
)
def test_blocks_beside_one_another(shape: waves.Shape, tile: str) -> None:
    chosen = choose_tiles(GemmSpec(), shape, SM_90)
    assert chosen is not None
    assert chosen.name == tile


def test_lines_that_begin_inside_of_a_sector_cost_more() -> None:
    """By 64x64, 4 by 32 blocks: 257 cycles a step, 264 where lines of B begin at any 64 bytes, 344 at any 16."""
    spec, tile = GemmSpec(dtype=BF16, ld_multiple=8), tile_of("wgmma_64x64_s8")
    accounts = [waves.account(spec, tile, tile.schedule, (256, n, 4096), TARGETS["sm_90a"]) for n in (2048, 2016, 2040)]
    whole, at_64, at_16 = (x["multiply-adds"] + x["copies to shared memory"] for x in accounts)
    assert at_64 < 1.1 * whole
    assert at_16 > 1.1 * at_64


def test_lines_of_c_that_begin_inside_of_a_sector_cost_more() -> None:
    """4760x7720x56 takes 38 us by blocks of 192x192, 4024x8896x48 24."""
    spec, tile = GemmSpec(dtype=BF16, ld_multiple=8), tile_of("wgmma_192x192_s4")
    torn, whole = (
        waves.account(spec, tile, tile.schedule, (4800, n, 64), TARGETS["sm_90a"])["beginnings and ends of blocks"]
        for n in (7672, 7680)
    )
    assert torn > 1.1 * whole


def test_stores_hide_behind_other_blocks_but_the_first_ones() -> None:
    """Blocks that all begin at once store at once: 360x11229x15 takes 24 us, of which 4 are arithmetic."""
    tile = tile_of("async_8x8_8x16")
    short, long = (
        waves.account(GemmSpec(), tile, tile.schedule, (rows, 11229, 15), SM_90)["beginnings and ends of blocks"] / rows
        for rows in (360, 36000)
    )
    assert long < 0.9 * short


@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_few_rows_go_to_swapped_operands_and_joined_parts(orders: tuple[Order, Order]) -> None:
    spec = GemmSpec(dtype=BF16, ld_multiple=8, a_order=orders[0], b_order=orders[1])
    target = TARGETS["sm_90a"]
    for shape, named in (((1, 4096, 4096), "16x64"), ((16, 4096, 4096), "16x64"), ((24, 4096, 4096), "32x64")):
        chosen = choose_tiles(spec, shape, target)
        assert chosen is not None
        assert kernel_name(chosen, spec).startswith(f"wgmma_{named}_s8_")
        assert chosen.split_k > 1
    low = choose_tiles(spec, (64, 4096, 14336), target)
    assert low is not None
    assert (low.block_tile, low.split_k, low.cluster_reduction) == ((64, 64), 2, 2)
    tiny = choose_tiles(spec, (64, 64, 65536), target)
    assert tiny is not None
    assert kernel_name(tiny, spec) in (
        "wgmma_32x64_s8_split64",
        "wgmma_64x64_s8_split64",
    )  # the first was 1.61 of cuBLAS


def test_lines_of_few_bytes_are_packed() -> None:
    """8192x8x8192 by 64x64: 66 us, and 37 where B's lines of 16 bytes are laid out anew."""
    chosen = choose_tiles(GemmSpec(dtype=BF16, ld_multiple=8), (8192, 8, 8192), TARGETS["sm_90a"])
    assert chosen is not None
    assert chosen.b.prepacked
    assert not chosen.a.prepacked


@pytest.mark.parametrize("target", [SM_80, SM_90], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [None, BF16, F16], ids=str)
@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_what_is_chosen_can_be_emitted(target: object, dtype: DType | None, orders: tuple[str, str]) -> None:
    spec = GemmSpec(a_order=orders[0], b_order=orders[1])  # type: ignore[arg-type]
    spec = spec if dtype is None else replace(spec, dtype=dtype)
    for shape in SHAPES:
        schedule = choose_tiles(spec, shape, target)  # type: ignore[arg-type]
        assert schedule is not None
        assert not driver.refusals(spec, schedule, "cuda", target)  # type: ignore[arg-type]
        assert schedule.by_warps == (dtype is not None), "float32 is rounded to TF32 by request alone"
        assert schedule.split_k * shape[0] * shape[1] < 2**31
        assert not schedule.atomic


def test_nothing_that_indices_do_not_reach_is_chosen() -> None:
    for shape in ((60000, 60000, 60000), (3, 5, 40000001)):
        spec = GemmSpec(m=shape[0], n=shape[1], k=shape[2])
        chosen = choose_tiles(spec, None, SM_90)
        assert chosen is not None
        driver.lower_program(spec, chosen, SM_90)
    packed = candidates.load("mbarrier_8x16_16x16_packed_a").schedule
    wide = driver.lower_program(GemmSpec(m=60000, n=60000, k=60000), packed, SM_90)
    assert wide.workspaces[0].reach == 2**63
    # Sizes that need no 64 bits by themselves, but in whole tiles.
    with pytest.raises(ScheduleError, match="reach: multiply in parts, pack nothing, or \\(but for dpas\\) use --wide"):
        driver.lower_program(GemmSpec(m=1, n=1, k=2**31 - 2000), packed, SM_90)


def test_where_there_is_no_model() -> None:
    for dtype in (F64, C64):
        assert choose_tiles(GemmSpec(dtype=dtype), (999, 999, 999), SM_90) is None
    assert choose_tiles(GemmSpec(), None, SM_90) is None
    assert choose_tiles(GemmSpec(m=512, n=512, k=512), None, SM_90) is not None
    assert choose_tiles(GemmSpec(), (999, 999, 999), TARGETS["sm_75"]) is None
    assert choose_tiles(GemmSpec(), (999, 999, 999), TARGETS["intel"]) is None
    assert choose(GemmSpec(dtype=F64), (999, 999, 999), SM_90).asynchronous
    assert not choose(GemmSpec(), None, SM_90).by_warps
    assert choose(GemmSpec(dtype=F16), None, SM_80).by_warps
    # Matrix instructions take elements as they are.
    assert not choose(GemmSpec(a_dtype=F16), None, SM_90).by_warps


def test_prologues_go_by_packed_matrices() -> None:
    """Asynchronous copies change nothing on the way; the kernel that packs does."""
    spec = GemmSpec(b_dtype=I8, prologue_b="(b - b_shift) * b_scale")
    chosen = choose_tiles(spec, (2048, 2048, 2048), SM_90)
    assert chosen is not None
    assert chosen.b.prepacked
    assert chosen.asynchronous
    assert not driver.refusals(spec, chosen, "cuda", SM_90)


def test_more_products_want_other_tiles() -> None:
    """1024 of 64 and 256 of 256 by what was the fastest; of one by smaller tiles."""
    spec = GemmSpec(batched=True)
    for size, products, name in ((64, 1024, "async_8x4_8x16"), (256, 256, "async_8x8_8x16")):
        many, alone = (choose_tiles(spec, (size,) * 3, SM_90, count) for count in (products, 1))
        assert many is not None
        assert alone is not None
        assert many.name == name
        assert alone.block_tile < many.block_tile


def test_the_kernel_is_right(rng: np.random.Generator) -> None:
    """What is chosen for few multiprocessors and a long K, in the interpreter."""
    spec, shape = GemmSpec(), (40, 70, 600)
    schedule = choose_tiles(spec, shape, replace(SM_90, cores=8))
    assert schedule is not None
    assert schedule.split_k > 1
    problem = Problem.random(rng, *shape, -1.5, 0.5)
    problem.check(interpret(driver.lower_program(spec, schedule, SM_90), spec, problem))


def test_a_target_alone_gets_what_it_can_run() -> None:
    for more in (["--dtype", "complex64"], ["-M", "64", "-N", "64"]):
        assert printed("emit", "--backend", "cuda", "--target", "sm_90", *more).startswith("// async_8x8_8x16: ")
    text = printed("emit", "--backend", "cuda", "--target", "sm_90", "--dtype", "float64")
    assert text.startswith("// mma_f64_4x8_16x8: ")
    assert printed("emit", "--target", "portable").startswith("// lds_8x8_16x16_k8: ")


def test_the_command_line_chooses_and_explains() -> None:
    sizes = ("-M", "16", "-N", "4096", "-K", "4096")
    text = printed("emit", "--backend", "cuda", "--target", "sm_90", *sizes)
    assert text.startswith("// mbarrier_8x8_2x16_split8: ")
    text = printed("explain", "--preset", "mbarrier_8x8_2x16_split8", *sizes)
    assert "microseconds on 132 multiprocessors for 16 x 4096 x 4096, by the model of waves.toml:" in text
    assert "the sum of K's parts" in text
