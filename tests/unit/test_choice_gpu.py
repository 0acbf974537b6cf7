"""The prior that chooses schedules for GPUs of CUDA: against what was measured, and what it never does."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.banks import local_accesses
from gemmgen.choice import columns, designs, epilogue, few_rows, gpu, loads, machine, prior, rates, warpgroups
from gemmgen.choice.gpu import choose_for_gpu, ranked
from gemmgen.choice.machine import Machine
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, C64, F8_E4M3, F16, F32, F64, I8, DType
from gemmgen.ir.target import TARGETS, Target, calibrate
from gemmgen.kernel_names import kernel_name
from gemmgen.passes.validate import is_possible, problems_as_asked
from gemmgen.schedule.direct import Gemv
from gemmgen.schedule.mainloop import Mainloop
from gemmgen.schedule.shared_memory import SharedMemory
from gemmgen.schedule.warp_mma import DirectMma
from gemmgen.schedule.warpgroup_mma import WarpgroupMma
from gemmgen.spec import GemmSpec, Order
from gemmgen.sum_order import SumOrder, sum_order
from gemmgen.tuning import calibrate as calibrate_gpu
from gemmgen.tuning.job import assuming_no_gaps
from tests.support.cli import printed
from tests.support.designs import of_target
from tests.support.problems import Problem, interpret

ROOT = Path(__file__).resolve().parents[2]
SM_80, SM_90, SM_90A = TARGETS["sm_80"], TARGETS["sm_90"], TARGETS["sm_90a"]
HOPPER = replace(SM_90A, clock=1980, memory_rate=3_352_320, cache_bytes=50 << 20)
H200 = replace(HOPPER, memory_rate=4_800_000)
#: Devices that nobody has measured, as their drivers say: an A100 of 80 GB, and an RTX 4090, whose memory is slow,
#: whose L2 is large, and whose blocks have less shared memory.
A100 = replace(SM_80, cores=108, clock=1410, memory_rate=2_039_000, cache_bytes=40 << 20)
RTX_4090 = replace(
    TARGETS["sm_89"], cores=128, clock=2520, memory_rate=1_008_000, cache_bytes=72 << 20, local_bytes=101_376
)
SHAPES = ((1, 1, 1), (7, 4096, 11), (300, 300, 70000), (4097, 33, 1025), (100000, 64, 64), (8192, 8192, 8192))
ALIGNED = GemmSpec(dtype=BF16, ld_multiple=8)

Shape = tuple[int, int, int]


def microseconds(spec: GemmSpec, name: str, shape: Shape, target: Target = HOPPER, products: int = 1) -> float:
    (cost,) = prior.costs(spec, [candidates.load(name).schedule], shape, machine.machine_of(target), products)
    return cost


# --- against what was measured --------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge() -> Iterator[ModuleType]:
    """`benchmarks/prior_regret.py`."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        yield import_module("prior_regret")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize(
    ("dtype", "count", "mean", "worst"), [("bfloat16", 685, 1.045, 1.7), ("float32", 402, 1.021, 1.4)]
)
def test_what_choices_lose_on_an_h200(judge: ModuleType, dtype: str, count: int, mean: float, worst: float) -> None:
    """The fitted model that it replaced lost 3.0 and 2.2 %, and 54 and 48 at worst (ADR 30). Matrices were in L2, and
    no blocks in clusters.
    """
    problems = [x for x in judge.of_h200() if x.spec.dtype.name == dtype]
    assert len(problems) == count
    found = judge.regrets(problems, judge.machine_then(judge.H200))[dtype]
    assert judge.geomean(found) <= mean
    assert max(found) <= worst


def test_what_choices_lose_on_an_h100(judge: ModuleType) -> None:
    """No constant was searched on these."""
    for dtype, found in judge.regrets(*judge.of_h100()).items():
        assert judge.geomean(found) <= 1.04, dtype
        assert max(found) <= 1.2, dtype


def test_what_choices_lose_where_clusters_share_tiles(judge: ModuleType) -> None:
    """The prior that divided nothing among a cluster lost 10 %, and 58 at worst."""
    found = judge.regrets(judge.of_exhaustive("*_h100/clusters"), machine.machine_of(judge.H100))
    assert {dtype: len(values) for dtype, values in found.items()} == {
        "bfloat16": 22,
        "float16": 21,
        "float8_e4m3fn": 11,
    }
    for dtype, values in found.items():
        assert judge.geomean(values) <= 1.06, dtype
        assert max(values) <= 1.25, dtype


def test_what_choices_lose_where_they_lost_most(judge: ModuleType) -> None:
    """To cuBLAS, among 30 schedules each. Without what few multiprocessors, clusters and three warpgroups take
    bfloat16 lost 7.8 % and 8-bit floats 7.5; without registers of copies float32 lost 17.5 %.
    """
    most = {"bfloat16": 1.04, "float16": 1.045, "float8_e4m3fn": 1.03, "float32": 1.12}
    found = judge.regrets(judge.of_exhaustive("2026-11-28_h200/worst_*"), machine.machine_of(judge.H200))
    assert found.keys() == most.keys()
    for dtype, values in found.items():
        assert judge.geomean(values) <= most[dtype], dtype


def test_what_choices_lose_among_all_that_is_likely(judge: ModuleType) -> None:
    """Of 24 drawn shapes a type up to 415 schedules were measured each. With the costs of misaligned lines of before,
    which these tables have lowered, bfloat16 lost 6.6 % and float16 6.8.
    """
    most = {"bfloat16": 1.06, "float16": 1.06, "float8_e4m3fn": 1.03, "float32": 1.03}
    found = judge.regrets(judge.of_exhaustive("2026-11-29_h200/exhaustive_*"), machine.machine_of(judge.H200))
    assert {dtype: len(values) for dtype, values in found.items()} == dict.fromkeys(most, 24)
    for dtype, values in found.items():
        assert judge.geomean(values) <= most[dtype], dtype


def test_what_choices_lose_with_what_older_gpus_have(judge: ModuleType) -> None:
    """The prior that took narrower copies for copies of single elements lost 28 % in bfloat16: it packed A. Without
    what copies by two warps take, float16 lost 12.8 %.

    Some of what is left are tiles of 32 rows for 1 to 3 of them: kernels of then read lines outside of A. And where
    warps of today store lines of C, those of then stored single elements.
    """
    then = machine.machine_of(replace(judge.H200, name="sm_80", features=SM_80.features))
    found = judge.regrets(judge.of_exhaustive("*_h200/sm_80_*"), replace(then, store_line=then.store_single_mma))
    assert {dtype: len(values) for dtype, values in found.items()} == {"bfloat16": 15, "float16": 13}
    assert judge.geomean(found["bfloat16"]) <= 1.12
    assert judge.geomean(found["float16"]) <= 1.08


@pytest.mark.parametrize(
    ("name", "mean", "worst"),
    [
        ("heads_bfloat16", 1.03, 1.25),
        ("small_bfloat16", 1.01, 1.15),
        ("even_float64", 1.015, 1.1),
        ("bfloat16", 1.03, 1.25),
        ("float8_e4m3fn", 1.02, 1.1),
        ("tf32", 1.03, 1.15),
        ("float32", 1.03, 1.25),
        ("few_rows_float32", 1.06, 1.5),
        ("free_tf32", 1.055, 1.35),
        ("free_float32", 1.035, 1.2),
        ("free_float64", 1.05, 1.4),
        ("held_tf32", 1.035, 1.3),
        ("worst_*", 1.03, 1.2),
        ("odd_*", 1.055, 1.35),
    ],
)
def test_what_choices_lose_of_families(judge: ModuleType, name: str, mean: float, worst: float) -> None:
    """Of `free` are three sizes of any kind, of `held` what warpgroups multiply from registers, of `odd` lines that
    begin anywhere: where single elements took 0.25 cycles, as kernels of before 2026-12-01 did, these lost 11 %.

    Where nobody knew what persistent blocks lose between two tiles, batches of small products lost 2 %, and 71 at
    worst; where sums of K's parts were only read, float64 lost 4.4 %; with two warps of 64 sums each, batches of heads
    lost 6 %. Where stream-K waited for nothing, float32 lost 3.5 %, and 40 at worst.
    """
    day = "2026-12-01" if name.startswith("odd") else "2026-11-30"
    problems = judge.of_exhaustive(f"{day}_h200/families_{name}")
    found = [x for each in judge.regrets(problems, machine.machine_of(judge.H200)).values() for x in each]
    assert len(found) >= 20
    assert judge.geomean(found) <= mean
    assert max(found) <= worst


def test_what_choices_lose_on_drawn_shapes(judge: ModuleType) -> None:
    """Without blocks that gather behind a kernel that packs, float32 lost 3.9 %, and 21 at worst."""
    most = {"bfloat16": (1.04, 1.25), "float8_e4m3fn": (1.04, 1.15), "float32": (1.03, 1.16)}
    found = judge.regrets(judge.of_drawn(), judge.of_h100()[1])
    assert found.keys() == most.keys()
    for dtype, values in found.items():
        assert judge.geomean(values) <= most[dtype][0], dtype
        assert max(values) <= most[dtype][1], dtype


def test_times_are_about_those_that_were_measured(judge: ModuleType) -> None:
    """Of what anybody would choose."""
    off = []
    for problem in judge.of_h200():
        costs = prior.costs(problem.spec, list(problem.us), problem.shape, judge.machine_then(judge.H200))
        best = min(problem.us.values())
        off += [abs(np.log(cost / us)) for cost, us in zip(costs, problem.us.values(), strict=True) if us < 1.5 * best]
    assert len(off) > 4000
    assert np.median(off) < 0.15


# --- the formulas ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "tiles"),
    [
        (
            (1000, 1000, 1000),
            {(64, 128), (128, 64), (144, 64)},
        ),  # lines begin anywhere: those of B are asked for half as often by a cluster
        ((4096, 4096, 4096), {(128, 256), (256, 128), (256, 176)}),
        ((2048, 2048, 2048), {(128, 256), (256, 128)}),
        ((128, 4096, 4096), {(64, 64), (128, 64)}),
        ((16, 4344, 1888), {(16, 64), (16, 128)}),  # 48 lines of A that are outside are no use
        ((64, 4096, 14336), {(64, 64)}),
        ((8192, 8192, 16), {(128, 240)}),  # C is stored while the next block begins; no GPU has timed it
    ],
)
def test_tiles_of_warpgroups(shape: Shape, tiles: set[tuple[int, int]]) -> None:
    chosen = choose_for_gpu(ALIGNED, shape, HOPPER)
    assert chosen is not None
    assert chosen.by_warpgroups
    assert chosen.block_tile in tiles


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((512, 512, 512), "mbarrier_8x8_4x8_slices8"),
        ((1024, 1024, 1024), "mbarrier_8x16_8x8_slices4"),
        ((3072, 3072, 3072), "mbarrier_8x16_16x16"),
        ((16, 4096, 4096), "mbarrier_8x8_2x16"),
        # Stores and copies of other blocks go on side by side; async_8x8_8x16 is as fast by the model.
        ((8040, 1248, 16), "gemm_f32_slm_32x128_by4x32_s3_k16"),
        ((1639, 948, 377), "async_8x4_8x16"),
        ((6288, 224, 278), "gemm_f32_slm_32x128_by4x32_s3_k32"),  # no GPU has timed it
    ],
)
def test_tiles_of_float32(shape: Shape, tile: str) -> None:
    chosen = choose_for_gpu(GemmSpec(), shape, SM_90)
    assert chosen is not None
    assert kernel_name(chosen, GemmSpec()).startswith(tile)


@pytest.mark.parametrize(
    ("shape", "block", "parts"),
    [
        ((4, 6144, 6144), (4, 64), 16),  # 40.3 us on an H200; by lanes across K 46.7
        ((32, 4096, 4096), (32, 128), 16),  # 34.7 us; 16x128 by sliced-K took 39
        ((94, 99, 100460), (96, 128), 128),  # 79 us; 16x128 by sliced-K took 110
        ((98, 76, 112139), (64, 80), 128),  # 77 us; 128x96 takes 76, cuBLAS 113
        ((1, 7361, 4225), (1, 128), 8),  # 37 us; 4x64 takes 43
        ((2048, 64, 65536), (128, 64), 24),  # 387 us; 64x64 took 428
    ],
)
def test_blocks_of_float32_have_the_sizes_of_c(shape: Shape, block: tuple[int, int], parts: int) -> None:
    _, n, k = shape
    spec = GemmSpec(alpha=1.0, beta=0.0, ld_multiple=(1 if k % 4 else 4, 1 if n % 4 else 4, 1 if n % 4 else 4))
    chosen = choose_for_gpu(spec, shape, H200)
    assert chosen is not None
    assert (chosen.block_tile, chosen.split_k) == (block, parts)


def test_rows_that_would_leave_blocks_of_128_without_work_are_the_instructions_columns() -> None:
    """771 rows: seven blocks of 128 took 94 to 136 us on an H100, four of 208 took 83; of 200, 29 rows less."""
    chosen = choose_for_gpu(ALIGNED, (771, 4096, 9856), HOPPER)
    assert chosen is not None
    assert chosen.operands_swapped
    assert chosen.block_tile == (200, 128)


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((1336, 4096, 13088), (168, 256)),  # 226 us by 192x128 on an H100, 177 by one round of 176x256
        ((1733, 6144, 7456), (160, 256)),  # 225 us by 224x128, 185 by two rounds
    ],
)
def test_two_warpgroups_have_256_columns(shape: Shape, block: tuple[int, int]) -> None:
    chosen = choose_for_gpu(ALIGNED, shape, HOPPER)
    assert chosen is not None
    assert chosen.operands_swapped
    assert chosen.block_tile == block


# --- epilogues ------------------------------------------------------------------------------------


def with_epilogue(*functions: str, **others: object) -> GemmSpec:
    return replace(ALIGNED, b_order="col", epilogue=functions, **others)  # type: ignore[arg-type]


def test_an_epilogue_takes_the_instructions_of_its_formulas() -> None:
    """A sum, a product and a comparison are one each; `acc * slope + bias` is one together."""
    for functions, instructions, special in (
        ((), 0, 0),
        (("bias",), 1, 0),
        (("bias", "relu"), 3, 0),
        (("expr: acc * 0.5 + bias",), 1, 0),
        (("silu",), 10, 1),
        (("gelu",), 9, 1),
        (("gelu(exact)",), 24, 1),
    ):
        assert epilogue.work(with_epilogue(*functions)) == pytest.approx(instructions / 128 + special / 16), functions
    # A C of 32 bits has exact functions.
    exact = replace(with_epilogue("gelu"), c_dtype=F32)
    assert epilogue.work(exact) == epilogue.work(with_epilogue("gelu(exact)"))


def test_an_epilogue_reads_matrices_and_not_vectors() -> None:
    assert epilogue.bytes_read(with_epilogue("bias", "row_scale")) == 0
    assert epilogue.bytes_read(with_epilogue("residual")) == 2
    assert epilogue.bytes_read(with_epilogue("residual", beta=1.0)) == 4
    assert epilogue.bytes_read(with_epilogue("expr: acc + c", beta=0.0)) == 2


def test_what_an_epilogue_adds_is_about_what_was_measured(judge: ModuleType) -> None:
    """On an H100, by the schedules of then. Nothing was fitted to these figures."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "2026-11-26_h100" / "epilogues.json").read_text())
    names = {"gelu": ("bias", "gelu"), "gelu_tanh": ("bias", "gelu_tanh"), "silu": ("silu",), "residual": ("residual",)}
    known, off = judge.of_h100()[1], []
    for row in kept:
        shape = tuple(row["shape"])
        # The largest is limited by power, and the other one's rounds differ by a third. Today's first choices take
        # turns, in clusters.
        if row["epilogue"] in names and shape not in ((8192, 14336, 4096), (512, 4096, 11008)):
            found = ranked(with_epilogue(), shape, HOPPER, machine=known)
            plain = next(x for x in found if not x[1].ordered_epilogue and x[1].cluster == (1, 1))
            (cost,) = prior.costs(with_epilogue(*names[row["epilogue"]]), [plain[1]], shape, known)
            off.append((cost - plain[0]) / (row["us"]["ours"] - row["us"]["our plain"]))
    assert len(off) == 12
    assert np.exp(np.mean(np.log(off))) == pytest.approx(1, abs=0.1)
    assert min(off) > 0.5
    assert max(off) < 1.6


def test_warpgroups_that_take_turns_hide_no_epilogue() -> None:
    """A residual costs 128x128 in turns 10.7 us on an H100, and 128x192 at once 5.8."""
    shape = 2048, 3072, 768
    chosen, in_turns = (
        next(each for each in ranked(with_epilogue("residual"), shape, HOPPER) if each[1].ordered_epilogue in allowed)
        for allowed in ((True, False), (True,))
    )
    assert not chosen[1].ordered_epilogue
    assert in_turns[0] > chosen[0]


def test_a_residual_leaves_no_lines_outside() -> None:
    """The last block begins earlier beside one, and not where C is read, nor where operands are swapped."""
    shape, known = (1045, 5952, 4096), machine.machine_of(HOPPER)
    parts = "multiply-adds", "tiles on their way"
    for swapped in (False, True):
        schedule = next(s for _, s in ranked(with_epilogue(), shape, HOPPER) if (s.group[0] == 4) == swapped)
        plain, residual, beta = (
            sum(prior.account(spec, schedule, shape, known)[part] for part in parts)
            for spec in (with_epilogue(), with_epilogue("residual"), with_epilogue(beta=1.0))
        )
        assert (residual > plain) == swapped
        assert beta > plain


def test_swapped_operands_read_a_residual_by_elements() -> None:
    """176x256 took 12 us for it on an H100 at 1199x4544x3072, and 256x176 took 4."""
    shape, known = (1199, 4544, 3072), machine.machine_of(HOPPER)
    kind, _ = warpgroups.kinds(with_epilogue(), HOPPER)[0]
    blocks = warpgroups.blocks_of(kind)
    found = [
        warpgroups.built(
            kind, next(x for x in blocks if (x.rows, x.cols, x.cluster, x.stays) == (*block, (1, 1), False))
        )
        for block in ((256, 176), (176, 256))
    ]
    plain, swapped = (prior.account(with_epilogue("residual"), x, shape, known)["the epilogue"] for x in found)
    assert swapped > 2.5 * plain


def test_lanes_that_read_lines_of_their_own_cost_more() -> None:
    """46 rows whose lines lie across K, by lanes along K: 122 us on an H100, and 62 by shared tiles."""
    orders = GemmSpec(a_order="row", b_order="col"), GemmSpec(a_order="col", b_order="col")
    shape, known = (46, 3176, 3584), machine.machine_of(HOPPER)
    (lanes,) = few_rows.candidates(orders[1], shape, HOPPER)
    along, across = (prior.costs(spec, [lanes], shape, known)[0] for spec in orders)
    assert across > 1.5 * along
    chosen = choose_for_gpu(orders[1], shape, HOPPER)
    assert chosen is not None
    assert not loads.has_no_tiles(chosen)


def test_lines_of_tiles_that_begin_inside_of_others_cost_l2_more() -> None:
    """8-bit floats, where a step's lines are what limits: K of 8448 and of 8368, half of a sector more than lines."""
    spec = GemmSpec(dtype="float8_e4m3fn", b_order="col", ld_multiple=16)
    whole, inside = (microseconds(spec, "wgmma_f8_128x256_s4", (512, 8192, k), HOPPER) / k for k in (8448, 8368))
    assert inside > 1.15 * whole


def test_clusters_share_what_l2_would_be_asked_for_twice() -> None:
    """Of blocks that are not in step, as those of several rounds are."""
    schedules = (x for _, x in ranked(ALIGNED, (1853, 3072, 3776), HOPPER))
    alone = next(x for x in schedules if x.block_tile == (256, 96) and not x.persistent)
    assert alone.cluster != (1, 1)


def test_lines_that_begin_inside_of_a_sector_cost_more() -> None:
    """Of B, by 64x64, where few blocks are at the edge."""
    whole, at_64, at_16 = (microseconds(ALIGNED, "wgmma_64x64_s8", (1024, n, 4096)) for n in (2048, 2016, 2040))
    assert at_64 < 1.1 * whole
    assert at_16 > 1.1 * at_64


def test_rows_of_a_tile_outside_of_the_matrix_cost_more_than_those_inside() -> None:
    """144x128 on an H100: 105.7 us by 512 rows and 77.8 by 576, by clusters 84.9 and 70.5. Where C is not read the last
    block begins earlier since, and as much is multiplied.
    """
    spec, known = replace(ALIGNED, b_order="row"), machine.machine_of(HOPPER)
    schedules = [x for _, x in ranked(spec, (512, 4096, 11136), HOPPER, wider=True) if x.block_tile == (144, 128)]
    for cluster in ((1, 1), (2, 1)):
        same = [next(x for x in schedules if x.cluster == cluster and not x.persistent)]
        shapes, before = ((512, 4096, 11136), (576, 4096, 11136)), replace(known, earlier=False)
        outside, inside = (prior.costs(spec, same, shape, before)[0] for shape in shapes)
        assert 1.1 * inside < outside < 1.4 * inside
        earlier, inside = (prior.costs(spec, same, shape, known)[0] for shape in shapes)
        assert earlier <= inside
        reading, inside = (prior.costs(replace(spec, beta=1.0), same, shape, known)[0] for shape in shapes)
        assert reading > 1.1 * inside


def test_blocks_larger_than_the_matrix_cost_more() -> None:
    """16 rows by blocks of 16 and of 64: as much of B is read, and all ask for the lines of A that are outside."""
    shape, found = (16, 8192, 4096), dict[int, float]()
    for cost, schedule in ranked(ALIGNED, shape, HOPPER):
        if schedule.block_tile[1] == 64 and schedule.split_k == 1 and schedule.operands_swapped:
            found.setdefault(schedule.block_tile[0], cost)
    assert found[64] > 1.2 * found[16]


def test_blocks_that_only_fill_up_a_cluster_cost_more() -> None:
    """240x64 for three rows of blocks on an H100: 42.0 us by clusters of two of them, 22.9 by clusters along them, of
    kernels whose last block did not begin earlier.
    """
    spec, shape = replace(ALIGNED, b_order="row"), (579, 1152, 3888)
    schedules = [x for _, x in ranked(spec, shape, HOPPER, wider=True) if x.block_tile == (240, 64)]
    above, beside = (next(x for x in schedules if x.cluster == cluster) for cluster in ((2, 1), (1, 2)))
    known = replace(machine.machine_of(HOPPER), earlier=False)
    cost, other = prior.costs(spec, [above, beside], shape, known)
    assert cost > 1.05 * other


def test_lanes_that_copy_across_lines_write_to_different_banks() -> None:
    """12x3072x2592 by columns on an H100: 21 us by lines of B's tile apart, 49 without."""
    spec = GemmSpec(b_order="col")
    copying = [x for x in designs.named(spec, SM_80) if x.atom == "fma" and x.b.memory == "local" and not x.b.prepacked]
    assert all(x.b.pad for x in copying)
    for schedule in (x for x in copying if not x.mbarrier and not x.a.prepacked):
        accesses = local_accesses(driver.lower(spec, schedule, SM_80), 32, 32)
        assert max(x.ways for x in accesses if x.is_store and x.buffer == "b_shared") <= 4, schedule


@pytest.mark.parametrize("a_order", ["row", "col"])
@pytest.mark.parametrize("b_order", ["row", "col"])
def test_work_items_read_tiles_without_bank_conflicts(a_order: Order, b_order: Order) -> None:
    """8544x32x6880 by columns on an H200: 280 us by 64x32 of pairs of columns, 369 of four, which lie in two banks."""
    spec = GemmSpec(a_order=a_order, b_order=b_order)
    reading = [*designs.of_few_rows(spec, HOPPER), *designs.of_other_sizes(spec, HOPPER)]
    assert len(reading) > 20
    for schedule in reading:
        for access in local_accesses(driver.lower(spec, schedule, HOPPER), 32, 32):
            assert access.is_store or access.ways == 1, schedule


def test_pairs_of_blocks_beside_one_another_save_nothing() -> None:
    """420x1840x1664 by 112x64 on an H200: 7.4 us without clusters, 8.3 by such pairs, 6.8 above one another."""
    spec, shape = replace(ALIGNED, b_order="row"), (420, 1840, 1664)
    found = {x.cluster: x for _, x in ranked(spec, shape, HOPPER) if x.block_tile == (112, 64) and x.split_k == 1}
    alone, beside, above = (found[x] for x in ((1, 1), (1, 2), (2, 1)))
    costs = prior.costs(spec, [above, alone, beside], shape, machine.machine_of(HOPPER))
    assert costs == sorted(costs)


def test_a_is_packed_where_warps_would_copy_its_elements_one_by_one() -> None:
    """98x76x112139 on an H200: 41 us by tiles of warps with A packed, 85 where they copy A's 2 bytes one by one."""
    spec, shape = GemmSpec(dtype=BF16), (98, 76, 112139)
    chosen = choose_for_gpu(assuming_no_gaps(spec, shape), shape, H200)
    assert chosen is not None
    assert chosen.a.prepacked


@pytest.mark.parametrize("b_order", ["row", "col"])
def test_what_is_ranked_costs_what_the_prior_says(b_order: Order) -> None:
    """Whatever adds up parts of K, and whether a C by columns is computed as C^T."""
    asked: list[tuple[Order, Shape]] = [("row", (512, 3712, 832)), ("row", (1792, 96, 656)), ("col", (512, 3712, 832))]
    for c_order, shape in asked:
        spec = GemmSpec(b_order=b_order, c_order=c_order, ld_multiple=4)
        for cost, schedule in islice(ranked(spec, shape, HOPPER), 60):
            about = [(spec, shape), (spec.transposed(), (shape[1], shape[0], shape[2]))]
            taken = next(x for x in about if not problems_as_asked(x[0], schedule, HOPPER))
            found = prior.costs(taken[0], [schedule], taken[1], machine.machine_of(HOPPER))
            assert cost == pytest.approx(found[0]), schedule


def test_narrow_blocks_of_three_warpgroups_come_in_clusters() -> None:
    found = {x.block_tile for _, x in ranked(ALIGNED, (1920, 960, 4096), HOPPER, wider=True) if x.cluster != (1, 1)}
    assert {(192, 24), (192, 40)} <= found


def test_three_warpgroups_have_all_stages_that_fit() -> None:
    """192x17136x3856 by 192x144 on an H200: 42 us by four stages, 50 by three."""
    stages = {x.stages for _, x in ranked(ALIGNED, (192, 17136, 3856), HOPPER) if x.block_tile == (192, 144)}
    assert stages == {3, 4}


def test_a_cluster_that_adds_up_two_parts_is_chosen_for_that() -> None:
    """512x3712x832 on an H200: 80 us by 128x128 whose clusters add up two parts, 109 by 128x32 with all of K in one."""
    spec, shape = GemmSpec(b_order="col", ld_multiple=4), (512, 3712, 832)
    cost, chosen = next(ranked(spec, shape, HOPPER))
    assert (chosen.split_k, chosen.cluster_reduction) == (2, 2)
    known = machine.machine_of(HOPPER)
    assert cost == pytest.approx(prior.costs(spec, [chosen], shape, known)[0])
    assert cost < prior.costs(spec, [chosen.but(cluster_reduction=1)], shape, known)[0]


def test_copies_are_as_wide_as_lines_allow() -> None:
    """Lines of an even number of elements are copied by pairs, where single ones were."""
    spec = GemmSpec(a_order="col")
    tiled = [x for x in designs.named(spec, SM_90A) if isinstance(x.mainloop, SharedMemory) and not x.a.prepacked]
    for plain in tiled:
        found = designs.as_wide_as_lines(spec, plain, columns.aligned(spec, (322, 1760, 1280)))
        assert (found.a.width, found.b.width) == (2, plain.b.width)
        assert not driver.refusals(spec, found, "cuda", SM_90A)
        for whole in ((324, 1760, 1280), (323, 1760, 1280)):
            assert designs.as_wide_as_lines(spec, plain, columns.aligned(spec, whole)) == plain
    assert tiled
    chosen = choose_for_gpu(assuming_no_gaps(spec, (322, 1758, 1280)), (322, 1758, 1280), HOPPER)
    assert chosen is not None
    assert (chosen.a.width, chosen.b.width) == (2, 2)


def test_clusters_of_work_items_add_up_no_more_than_two_parts() -> None:
    """127x4095x3965 on an H100: eight parts by 128x128 take 98 us, and 157 where clusters of four add them up."""
    spec = GemmSpec(a_order="col", b_order="row")
    found = [x for _, x in ranked(spec, (127, 4095, 3965), HOPPER, wider=True)]
    assert {x.cluster_reduction for x in found if x.split_k == 2} == {1, 2}
    assert {x.cluster_reduction for x in found if x.split_k > 2} == {1}


def test_what_many_blocks_ask_for_at_once_costs_more() -> None:
    """The same lines of B, which begin inside of sectors, for 16 rows of blocks and for 128."""
    spec, target = ALIGNED, replace(HOPPER, memory_rate=10**9)
    few, many = (microseconds(spec, "wgmma_64x64_s8", (rows, 40, 4096), target) for rows in (1024, 8192))
    even, more = (microseconds(spec, "wgmma_64x64_s8", (rows, 64, 4096), target) for rows in (1024, 8192))
    assert many / few > 1.2 * more / even


def test_stores_hide_behind_other_blocks_but_the_first_ones() -> None:
    """Blocks that all begin at once store at once."""
    schedule, known = candidates.load("async_8x8_8x16").schedule, machine.machine_of(SM_90)
    short, long = (
        prior.account(GemmSpec(), schedule, (rows, 11229, 15), known)["beginnings and ends of blocks"] / rows
        for rows in (360, 36000)
    )
    assert long < 0.9 * short


def test_blocks_gather_where_a_kernel_that_packs_ends() -> None:
    """An H100 took 40.7 us of 120 blocks, two of which find room on a multiprocessor, 79.1 of 504 small ones, and 65.3
    of 252 that are alone on theirs.
    """
    spec, known = GemmSpec(a_order="col", b_order="col"), machine.machine_of(HOPPER)

    def packed(name: str, parts: int, shape: Shape, own: Machine = known) -> float:
        return prior.account(spec, candidates.varied(name, parts, (True, True)), shape, own)["multiply-adds"]

    # Where only one finds room, none gather.
    alone = replace(known, shared=120_000)
    assert packed("async_8x8_16x16", 6, (185, 1280, 1152)) > 1.3 * packed(
        "async_8x8_16x16", 6, (185, 1280, 1152), alone
    )
    gathering, others = (candidates.varied(x, 1, (True, True)) for x in ("async_8x4_8x16", "mbarrier_8x16_8x8_slices4"))
    costs = prior.costs(spec, [gathering, others], (873, 2304, 640), known)
    assert costs[0] > costs[1]


@pytest.mark.parametrize(
    ("name", "resident"), [("async_8x4_8x16", 6), ("async_8x8_8x16", 4), ("mbarrier_8x8_2x16_split8", 3)]
)
def test_registers_are_sums_and_what_is_multiplied_next(name: str, resident: int) -> None:
    """As many blocks as the registers that ptxas of CUDA 13.2 gives leave room for: 80, the 128 that are left for four
    blocks, and 112; of the last, shared memory has room for three.
    """
    own = columns.column(GemmSpec(), candidates.varied(name, 1, (True, True)), (8, 8, 8))
    assert rates.weighed(GemmSpec(), own, machine.machine_of(HOPPER)).rates.resident.tolist() == [resident]


def test_registers_are_left_for_four_blocks_where_a_matrix_is_packed() -> None:
    for way in candidates.WAYS:
        text = driver.emit(GemmSpec(), candidates.varied("async_8x8_8x16", 4, way), "cuda", HOPPER).text
        assert ("THREADS, 4)" in text) == any(way)


@pytest.mark.parametrize(("name", "resident"), [("async_8x4_8x16", 4), ("async_8x8_8x16", 3), ("async_8x8_16x16", 1)])
def test_registers_of_copies_where_k_is_in_parts(name: str, resident: int) -> None:
    """ptxas gives 106, 151 and 164 to a work-item that copies lines of A and B."""
    spec = GemmSpec(b_order="col")
    own = columns.column(spec, candidates.varied(name, 4), (8, 8, 8))
    assert rates.weighed(spec, own, machine.machine_of(HOPPER)).rates.resident.tolist() == [resident]


def test_few_multiprocessors_have_less_of_the_memory() -> None:
    """78 blocks that each read 128 columns of B, and 156 of 64: an H200 took 13.0 and 9.9 us by 8-bit floats."""
    spec, shape, known = (
        GemmSpec(dtype=F8_E4M3, b_order="col", ld_multiple=16),
        (2, 9904, 3584),
        machine.machine_of(H200),
    )
    found = [x for x in of_target(spec, H200) if x.by_warpgroups and x.stages == 8]
    few, many = (next(x for x in found if x.block_tile == (8, cols)) for cols in (128, 64))
    costs = prior.costs(spec, [few, many], shape, known)
    free = prior.costs(spec, [few, many], shape, replace(known, alone=np.inf))
    assert costs[0] / costs[1] > 1.05 * free[0] / free[1]


def test_tiles_of_a_cluster_come_later() -> None:
    """All of its blocks must have room: with three stages a step waits for that."""
    spec, known = replace(ALIGNED, b_order="col"), machine.machine_of(HOPPER)
    kind = warpgroups.kinds(spec, HOPPER)[0][0]
    alone, shared = (
        prior.account(
            spec, warpgroups.built(kind, warpgroups.Block(192, 128, 3, False, 3, 0, 2, *x)), (4096,) * 3, known
        )
        for x in ((), (False, False, 1, 2))
    )
    assert shared["tiles on their way"] > 1.05 * alone["tiles on their way"]


def test_three_warpgroups_begin_and_end_no_sooner_than_two() -> None:
    """Of the same block."""
    spec = replace(ALIGNED, b_order="col")
    kind = warpgroups.kinds(spec, HOPPER)[0][0]
    three, two = (
        warpgroups.Block(rows, cols, count, False, 4, 1) for rows, cols, count in ((192, 128, 3), (128, 192, 2))
    )
    own = warpgroups.table(kind, [three, two])
    begins = rates.weighed(spec, own, machine.machine_of(HOPPER)).rates.begin.tolist()
    assert begins[0] == begins[1]


def test_elements_of_two_bytes_are_copied_through_registers() -> None:
    """Lines of an odd number of elements: eight instructions for what one copies elsewhere, and through registers."""
    assumed, even, pairs, odd = (
        microseconds(GemmSpec(dtype=BF16, ld_multiple=unit), "mma_8x16_16x8", (2048, size, size))
        for unit, size in ((8, 2048), (1, 2048), (1, 2046), (1, 2047))
    )
    assert odd > 1.5 * even
    assert assumed < even < pairs < odd


def test_columns_depend_on_alignment_alone() -> None:
    """What is kept for a class of sizes is what single schedules of each size come to."""
    shape, known = (1000, 1016, 984), machine.machine_of(HOPPER)
    found = of_target(ALIGNED, HOPPER)
    made = columns.table(columns.row(ALIGNED, each, (8, 1016 + 8, 984)) for each in found)
    costs = prior.microseconds(ALIGNED, rates.weighed(ALIGNED, made, known), shape, known)
    assert prior.costs(ALIGNED, found, shape, known) == pytest.approx(list(costs))


@pytest.mark.parametrize("orders", [("row", "row"), ("row", "col"), ("col", "col")])
@pytest.mark.parametrize("ld_multiple", [(8, 8, 8), (8, 8, 1), (1, 1, 1)], ids=str)
def test_the_model_looks_at_a_block_as_at_its_schedule(
    orders: tuple[Order, Order], ld_multiple: tuple[int, int, int]
) -> None:
    spec = replace(ALIGNED, a_order=orders[0], b_order=orders[1], ld_multiple=ld_multiple)
    found = [(kind, x) for kind, narrow in warpgroups.kinds(spec, HOPPER) for x in warpgroups.blocks_of(kind, narrow)]
    assert len(found) > 100
    for kind, block in found:
        schedule = warpgroups.built(kind, block)
        own = columns.table([columns.row(spec, schedule, (8, 8, 8))])
        assert np.array_equal(warpgroups.table(kind, [block]), own)
        if warpgroups.divides(columns.designs(own)).all():
            assert designs.varies(schedule)
            assert not schedule.persistent


def test_costs_of_several_sizes_are_those_of_each() -> None:
    known, shapes = machine.machine_of(HOPPER), ((300, 1000, 5000), (4096, 4096, 4096), (37, 8192, 640))
    asked = [(x, shape) for shape in shapes for _, x in islice(ranked(ALIGNED, shape, HOPPER), 4)]
    each = [prior.costs(ALIGNED, [x], shape, known)[0] for x, shape in asked]
    assert prior.costs_at(ALIGNED, asked, known) == pytest.approx(each)


def test_a_table_has_each_number_under_its_name() -> None:
    """All columns are different numbers here, so that none can stand for another."""
    names, pairs = columns.Columns._fields, columns.Columns._fields.index("depth")
    row: columns.Row = columns.Columns._make((at, at + 0.5) if at < pairs else at for at in range(len(names)))
    table = columns.table([row, row])
    for name, column, number in zip(row._fields, columns.designs(table), row, strict=True):
        assert column.T.tolist() == [list(number)] * 2 if isinstance(number, tuple) else [number] * 2, name


def test_numbers_of_a_kind_lie_side_by_side() -> None:
    """The model takes 1.3 times as long where it has to gather them."""
    rows = [columns.row(ALIGNED, x, (8, 8, 8)) for x in designs.named(ALIGNED, HOPPER) if x.by_warpgroups]
    (kind, narrow), *_ = warpgroups.kinds(ALIGNED, HOPPER)
    for table in (columns.table(rows), warpgroups.table(kind, warpgroups.blocks_of(kind, narrow))):
        assert table.shape[1] > 3
        assert table.flags.c_contiguous
        assert np.array_equal(columns.stacked(columns.designs(table)), table)


class Counting(np.ndarray):
    """Counts the calls of NumPy that an array, or what has become of it, takes part in."""

    calls = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *given: object, **named: object) -> object:
        Counting.calls += 1
        plain = [np.asarray(x) if isinstance(x, Counting) else x for x in given]
        into = {"out": tuple(map(np.asarray, named["out"]))} if "out" in named else {}  # type: ignore[call-overload]
        made = getattr(ufunc, method)(*plain, **named | into)
        return made.view(Counting) if isinstance(made, np.ndarray) else made


@pytest.mark.parametrize(("b_order", "most"), [("col", 135), ("row", 145)])
def test_the_model_makes_few_calls_of_numpy(b_order: Order, most: int) -> None:
    """A call takes as long for 40 designs as for 1,000: so their number is what a choice costs."""
    spec, known = replace(ALIGNED, b_order=b_order), machine.machine_of(HOPPER)
    (kind, narrow), *_ = warpgroups.kinds(spec, HOPPER)
    of = rates.weighed(spec, warpgroups.table(kind, warpgroups.blocks_of(kind, narrow)), known)
    counted = of._replace(
        rates=rates.Rates._make(x.view(Counting) for x in of.rates), parts=of.parts.view(Counting), adds=True
    )
    Counting.calls = 0
    costs = prior.microseconds(spec, counted, (300, 1024, 4096), known)
    assert np.array_equal(costs, prior.microseconds(spec, of, (300, 1024, 4096), known))
    assert 50 < Counting.calls <= most


def test_a_choice_copies_no_designs() -> None:
    """Ways to divide K lie behind the designs, for all sizes: their numbers of parts alone are made for each."""
    known, about = machine.machine_of(HOPPER), gpu._About(HOPPER, 1, machine.machine_of(HOPPER), False, ())
    of_class = gpu._known(ALIGNED, HOPPER, known, (16, 16, 16), (False, False), False, len(gpu.FILLED))
    assert of_class is not None
    for shape, whole in (((64, 256, 65536), of_class.ways), ((8192, 8192, 8192), of_class.plain)):
        taken, _ = gpu._shares(ALIGNED, of_class, shape, about)
        assert taken.rates is whole.rates


@pytest.mark.parametrize("dtype", [BF16, F8_E4M3, I8], ids=str)
def test_narrow_designs_are_some_of_all(dtype: DType) -> None:
    spec = GemmSpec(dtype=dtype, ld_multiple=16, b_order="col")
    narrow = [kind for kind, alone in warpgroups.kinds(spec, HOPPER) if alone]
    assert narrow
    for kind in narrow:
        found = [x for x in warpgroups.blocks_of(kind) if x.cols in warpgroups.PACKED and x.cluster == (1, 1)]
        assert [x for x in found if not x.stays and (x.few or not x.swapped)] == [*warpgroups.blocks_of(kind, True)]


def test_sizes_of_small_elements_are_of_one_class() -> None:
    """Threads copy vectors of them where that is assumed, whatever the sizes: designs are looked at once."""
    shapes = (300, 1000, 5000), (301, 1024, 5001)
    assert len({columns.aligned(replace(ALIGNED, b_order="row"), shape) for shape in shapes}) == 1
    assert len({columns.aligned(GemmSpec(), shape) for shape in shapes}) == 2


def test_choices_leave_the_designs_of_their_class_as_they_are() -> None:
    """Few blocks and a long K have parts of it; many blocks have none; the first is asked for again, with more."""
    few, many = (64, 256, 65536), (8192, 8192, 8192)
    first, *_ = found = list(islice(ranked(ALIGNED, few, HOPPER), 20))
    assert first[1].split_k > 1
    assert all(x.split_k == 1 for _, x in islice(ranked(ALIGNED, many, HOPPER), 20))
    assert list(islice(ranked(ALIGNED, few, HOPPER), 20)) == found
    assert [cost for cost, _ in found] == sorted(cost for cost, _ in found)


def test_parts_of_k_are_for_few_blocks() -> None:
    """The model splits K where C leaves multiprocessors idle, and nowhere else."""
    assert next(ranked(ALIGNED, (64, 64, 65536), HOPPER))[1].split_k > 1
    assert next(ranked(ALIGNED, (8192, 8192, 512), HOPPER))[1].split_k == 1


def test_an_account_adds_up() -> None:
    known = machine.machine_of(HOPPER)
    for _, schedule in islice(ranked(ALIGNED, (300, 1000, 5000), HOPPER), 5):
        (cost,) = prior.costs(ALIGNED, [schedule], (300, 1000, 5000), known)
        assert sum(prior.account(ALIGNED, schedule, (300, 1000, 5000), known).values()) == pytest.approx(cost)


# --- devices --------------------------------------------------------------------------------------


def test_constants_of_a_device_are_what_it_says() -> None:
    told, other = machine.machine_of(HOPPER), machine.machine_of(replace(HOPPER, memory_rate=1_000_000, cores=66))
    assert (told.cores, told.clock, other.cores) == (132, 1980, 66)
    assert told.memory == pytest.approx(machine.REACHED * 3_352_320)
    # A product of few rows takes as long as its matrix takes to come from memory.
    fast, slow = (next(ranked(ALIGNED, (32, 16384, 16384), HOPPER, machine=each))[0] for each in (told, other))
    assert slow > 2 * fast


def test_measured_constants_replace_derived_ones() -> None:
    target = replace(HOPPER, cores=131)
    before = machine.machine_of(target)
    calibrate(target, {"wgmma": 1000.0, "launch": 0.0, "cores": 3.0})
    after = machine.machine_of(target)
    assert after == replace(before, wgmma=1000.0)


@pytest.mark.parametrize(("name", "own"), [("fma", 100.0), ("mma", 700.0), ("wgmma", 1500.0)])
def test_a_measured_rate_is_that_of_the_instruction(name: str, own: float) -> None:
    """Not of the kernel that it was measured by, which does other things as well."""
    known = replace(machine.derived(HOPPER), **{name: own})  # type: ignore[arg-type]
    dtype, schedule = calibrate_gpu.NAMED[name][0], candidates.load(calibrate_gpu.NAMED[name][1]).schedule
    spec, shape = assuming_no_gaps(GemmSpec(dtype=dtype), calibrate_gpu.LARGE[name]), calibrate_gpu.LARGE[name]
    (us,) = prior.costs(spec, [schedule], shape, known)
    found = calibrate_gpu.rate(name, us, spec, shape, schedule, machine.derived(HOPPER))
    assert found == pytest.approx(own, rel=0.01)
    assert np.prod(shape) / us / known.clock / known.cores < 0.97 * own


@pytest.mark.parametrize("device", [A100, RTX_4090], ids=["A100", "RTX 4090"])
@pytest.mark.parametrize("dtype", [None, BF16], ids=str)
def test_a_device_that_nobody_measured_gets_a_choice_of_its_own(device: Target, dtype: DType | None) -> None:
    spec = GemmSpec(ld_multiple=16) if dtype is None else ALIGNED
    for shape in (*SHAPES, (4096, 4096, 4096), (16, 4096, 4096), (1, 4096, 4096), (333, 777, 2048)):
        cost, schedule = next(ranked(spec, shape, device))
        assert is_possible(spec, schedule, device)
        assert choose(spec, shape, device) == schedule
        assert not schedule.by_warpgroups
        m, n, k = shape
        least = (m * k + k * n) * spec.dtype.size / device.memory_rate
        peak = device.cores * device.clock * machine.machine_of(device).rate("mma" if dtype else "fma", spec.dtype)
        assert cost > m * n * k / peak
        assert cost > least or least * device.memory_rate < 2 * device.cache_bytes


def test_devices_choose_by_their_own_numbers() -> None:
    """Of float32, an A100 has half the multiply-adds of an RTX 4090, and twice the memory."""
    large, few = (8192, 8192, 8192), (1, 16384, 16384)
    (a_large, a_few), (rtx_large, rtx_few) = (
        [next(ranked(GemmSpec(ld_multiple=4), shape, device))[0] for shape in (large, few)]
        for device in (A100, RTX_4090)
    )
    assert a_large > 2 * rtx_large
    assert a_few < 0.7 * rtx_few


# --- what is chosen -------------------------------------------------------------------------------


def test_all_designs_can_be_built() -> None:
    for spec in (ALIGNED, GemmSpec(dtype=BF16), GemmSpec(), replace(ALIGNED, dtype=I8, b_order="col", ld_multiple=16)):
        found = of_target(spec, HOPPER)
        assert len(found) == len(set(found)) > 16
        possible = sum(is_possible(spec, schedule, HOPPER) for schedule in found)
        assert possible > 0.8 * len(found)


def test_the_cheapest_comes_first() -> None:
    for spec in (ALIGNED, GemmSpec(), GemmSpec(c_order="col", ld_multiple=4)):
        costs = [cost for cost, _ in islice(ranked(spec, (300, 500, 700), HOPPER), 60)]
        assert costs == sorted(costs)
        assert len(costs) == 60


@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_few_rows_go_to_swapped_operands_and_joined_parts(orders: tuple[Order, Order]) -> None:
    spec = replace(ALIGNED, a_order=orders[0], b_order=orders[1])
    for shape in ((16, 4096, 4096), (24, 4096, 4096)):
        chosen = choose_for_gpu(spec, shape, HOPPER)
        assert chosen is not None
        assert chosen.operands_swapped
        assert chosen.block_tile[0] <= 32
        assert chosen.split_k > 1
    tiny = choose_for_gpu(spec, (64, 64, 65536), HOPPER)
    assert tiny is not None
    assert tiny.split_k > 32


@pytest.mark.parametrize("dtype", [BF16, F8_E4M3, I8], ids=str)
def test_packed_tiles_of_warps_keep_their_padding(dtype: DType) -> None:
    """Without it eight rows that `ldmatrix` reads begin in the same bank: bfloat16 3773x1152x3280 with packed A took
    229 us on an H200 restricted to sm_80, and takes 151.
    """
    made = [x for x in designs.named(GemmSpec(dtype=dtype, b_order="col"), TARGETS["sm_89"]) if x.by_warps]
    packed = [operand for x in made for operand in (x.a, x.b) if operand.prepacked]
    assert packed and all(x.pad * dtype.size == 16 for x in packed)


def test_scales_of_sums_are_no_conversions() -> None:
    """8-bit floats with scales of 1x128 and 128x128, 128x7168x2048: 16.1 us by 128x128 in two parts, counted as if each
    element were converted, 8.0 by 128x64.
    """
    spec = GemmSpec(
        dtype=F8_E4M3, b_order="col", ld_multiple=16, prologue_a="a * a_scale_128", prologue_b="b * b_scale_128x128"
    )
    shape, plain = (128, 7168, 2048), replace(spec, prologue_a=None, prologue_b=None)
    chosen = choose_for_gpu(spec, shape, HOPPER)
    assert chosen is not None
    assert (chosen.block_tile, chosen.split_k) == ((128, 64), 1)
    machine_ = machine.machine_of(HOPPER)
    scaled, others = (sum(prior.account(x, chosen, shape, machine_).values()) for x in (spec, plain))
    assert others < scaled < 1.1 * others


def test_lines_of_few_bytes_are_packed() -> None:
    """8192x8x8192 by 64x64: 66 us, and 37 where B's lines of 16 bytes are laid out anew."""
    chosen = choose_for_gpu(ALIGNED, (8192, 8, 8192), HOPPER)
    assert chosen is not None
    assert chosen.b.prepacked
    assert not chosen.a.prepacked


@pytest.mark.parametrize("dtype", [BF16, F8_E4M3], ids=str)
@pytest.mark.parametrize(("a", "b"), [("row", "col"), ("col", "row")])
def test_packed_elements_of_two_bytes_keep_their_order(a: Order, b: Order, dtype: DType) -> None:
    """On an H200 float16 28x8190x3586 took 68 us, of which a kernel that transposed B took 55. Warpgroups multiply
    elements of one byte along K alone.
    """
    chosen = choose_for_gpu(GemmSpec(dtype=dtype, a_order=a, b_order=b), (157, 7174, 8191), HOPPER)
    assert chosen is not None
    assert chosen.a.prepacked and chosen.b.prepacked
    kept = a == "col", b == "col"
    assert (chosen.a.transposed, chosen.b.transposed) == (kept if dtype == BF16 else (False, True))


@pytest.mark.parametrize("target", [SM_80, SM_90], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", [None, BF16, F16], ids=str)
@pytest.mark.parametrize("orders", [("row", "row"), ("col", "col")])
def test_what_is_chosen_can_be_emitted(target: object, dtype: DType | None, orders: tuple[str, str]) -> None:
    spec = GemmSpec(a_order=orders[0], b_order=orders[1])  # type: ignore[arg-type]
    spec = spec if dtype is None else replace(spec, dtype=dtype)
    for shape in SHAPES:
        schedule = choose_for_gpu(spec, shape, target)  # type: ignore[arg-type]
        assert schedule is not None
        assert not driver.refusals(spec, schedule, "cuda", target)  # type: ignore[arg-type]
        by_fma = loads.has_no_tiles(schedule) or not schedule.by_warps
        assert not (dtype is None and schedule.by_warps), "float32 is rounded to TF32 by request alone"
        assert dtype is None or not by_fma or min(shape[:2]) <= 8
        assert schedule.split_k * shape[0] * shape[1] < 2**31
        assert not schedule.atomic


def test_nothing_that_indices_do_not_reach_is_chosen() -> None:
    for shape in ((60000, 60000, 60000), (3, 5, 40000001)):
        spec = GemmSpec(m=shape[0], n=shape[1], k=shape[2])
        driver.lower_program(spec, choose(spec, None, SM_90), SM_90)
    packed = candidates.load("mbarrier_8x16_16x16_packed_a").schedule
    wide = driver.lower_program(GemmSpec(m=60000, n=60000, k=60000), packed, SM_90)
    assert wide.workspaces[0].reach == 2**63
    # Sizes that need no 64 bits by themselves, but in whole tiles.
    with pytest.raises(ScheduleError, match="reach: multiply in parts, pack nothing, or \\(but for dpas\\) use --wide"):
        driver.lower_program(GemmSpec(m=1, n=1, k=2**31 - 2000), packed, SM_90)


def test_where_there_are_no_designs() -> None:
    assert choose_for_gpu(GemmSpec(dtype=C64), (999, 999, 999), SM_90) is None
    assert choose_for_gpu(GemmSpec(), (999, 999, 999), TARGETS["sm_75"]) is None
    assert choose_for_gpu(GemmSpec(), (999, 999, 999), TARGETS["intel"]) is None
    assert choose(GemmSpec(dtype=F64), (999, 999, 999), SM_90).asynchronous
    assert not choose(GemmSpec(), None, SM_90).by_warps
    assert choose(GemmSpec(dtype=F16), None, SM_80).by_warps
    # Matrix instructions take elements as they are.
    assert not choose(GemmSpec(a_dtype=F16), None, SM_90).by_warps


def test_prologues_go_by_packed_matrices() -> None:
    """Asynchronous copies change nothing on the way; the kernel that packs does."""
    spec = GemmSpec(b_dtype=I8, prologue_b="(b - b_shift) * b_scale")
    chosen = choose_for_gpu(spec, (2048, 2048, 2048), SM_90)
    assert chosen is not None
    assert chosen.b.prepacked
    assert chosen.asynchronous
    assert not driver.refusals(spec, chosen, "cuda", SM_90)


@pytest.mark.parametrize("bits", ["int8", "int4"])
@pytest.mark.parametrize(
    ("shape", "mainloop", "memory"),
    [
        ((4, 14336, 4096), DirectMma, "global"),
        ((16, 4096, 4096), DirectMma, "global"),
        ((24, 4096, 4096), WarpgroupMma, "private"),
        ((512, 14336, 4096), WarpgroupMma, "private"),
    ],
)
def test_stored_weights_are_multiplied_as_they_are_read(
    bits: str, shape: Shape, mainloop: type[Mainloop], memory: str
) -> None:
    """On an H100 16 rows of the second product took 33 us from registers, and 144 by a kernel that lays out B; 512 rows
    99 and 191.
    """
    spec = GemmSpec(dtype=BF16, b_dtype=bits, b_order="col", prologue_b="b * b_scale_128")
    chosen = choose_for_gpu(assuming_no_gaps(spec, shape), shape, HOPPER)
    assert chosen is not None
    assert (type(chosen.mainloop), chosen.b.memory, chosen.b.prepacked) == (mainloop, memory, False)


@pytest.mark.parametrize(
    ("stored", "formula", "mainloop"),
    [
        ("int4", "b * b_scale_128", DirectMma),
        ("int4", "(b - b_zero_32) * b_scale_32", DirectMma),
        ("int4", "(b - b_shift_32) * b_scale_32", Gemv),
        ("int8", "b * b_scale", DirectMma),
    ],
)
def test_one_row_by_stored_weights(stored: str, formula: str, mainloop: type[Mainloop]) -> None:
    """On an H200 14336x4096 takes 12.1 us by lanes, 17.7 with zero points and 17.2 of int8, where `Gemv` takes 18, 24
    and 22. Shifts that are no whole numbers are subtracted element by element.
    """
    spec = GemmSpec(dtype=BF16, b_dtype=stored, b_order="col", prologue_b=formula)
    for shape in ((1, 14336, 4096), (1, 4096, 14336), (1, 4096, 4096)):
        chosen = choose_for_gpu(assuming_no_gaps(spec, shape), shape, HOPPER)
        assert chosen is not None and type(chosen.mainloop) is mainloop


@pytest.mark.parametrize(
    ("spec", "held"),
    [
        (GemmSpec(dtype=BF16, b_dtype="int4", b_order="col", prologue_b="b * b_scale_128"), (0.0, 0.5)),
        (GemmSpec(allow_tf32=True), (0.0, 4.0)),
        (GemmSpec(allow_tf32=True, a_order="col", b_order="col"), (4.0, 0.0)),
        (GemmSpec(dtype=F8_E4M3, c_dtype=BF16), (0.0, 1.0)),
        (GemmSpec(dtype=BF16, b_order="col", prologue_b="b * 2"), (0.0, 2.0)),
    ],
    ids=["int4", "tf32 by rows", "tf32 by columns", "e4m3 by rows", "made of the same size"],
)
def test_a_row_of_a_design_is_that_of_its_schedule_where_it_multiplies_from_registers(
    spec: GemmSpec, held: tuple[float, float]
) -> None:
    known = assuming_no_gaps(spec, (16, 4096, 4096))
    (kind, _), *_ = warpgroups.kinds(known, HOPPER)
    assert kind.rs_bytes == held
    blocks = warpgroups.blocks_of(kind)
    assert not problems_as_asked(known, warpgroups.built(kind, blocks[-1]), HOPPER)
    own = columns.table(columns.row(known, warpgroups.built(kind, x), (16, 16, 16)) for x in blocks)
    assert np.array_equal(warpgroups.table(kind, blocks), own)


def test_either_matrix_may_come_from_registers_where_the_other_is_packed() -> None:
    """A by columns, B by rows: `wgmma` of TF32 transposes neither."""
    kinds = [kind for kind, _ in warpgroups.kinds(GemmSpec(allow_tf32=True, a_order="col", ld_multiple=4), HOPPER)]
    ways = [(kind.packed, kind.rs_bytes) for kind in kinds]
    assert ways[:2] == [((True, False), (0.0, 4.0)), ((False, True), (4.0, 0.0))]


def test_tf32_has_warps_tiles_where_warpgroups_cannot_read_the_matrices() -> None:
    """64x720x6256 by rows took 25 us by 128x128, whose B a kernel packed or K went in 20 parts; 10 now."""
    anywhere = GemmSpec(allow_tf32=True)
    tiles = {x.block_tile for x in designs.of_warps(anywhere, HOPPER)}
    assert tiles == {x.block_tile for x in designs.of_warps(GemmSpec(dtype=BF16), HOPPER) if not x.prefetch}
    assert {x.atom for x in designs.of_warps(anywhere, HOPPER)} == {"mma_tf32"}
    assert not designs.of_warps(GemmSpec(), HOPPER), "float32 that is not to be rounded"
    chosen = choose_for_gpu(GemmSpec(allow_tf32=True, ld_multiple=4), (64, 720, 6256), HOPPER)
    assert chosen is not None
    assert chosen.b.memory == "private"


@pytest.mark.parametrize("c_order", ["row", "col"])
def test_of_every_order_of_sums_the_cheapest_is_found(c_order: Order) -> None:
    """Whether a schedule is legal is asked for these alone: an order took 2.4 s, and takes 0.3."""
    spec, shape = assuming_no_gaps(GemmSpec(c_order=c_order), (100, 512, 1536)), (100, 512, 1536)
    found = [*gpu.by_order(spec, shape, HOPPER)]
    orders = [sum_order(schedule, shape[2]) for _, schedule in found]
    assert len(set(orders)) == len(orders) > 5
    cheapest: dict[SumOrder | None, float] = {}
    for cost, schedule in gpu.ranked(spec, shape, HOPPER, fixed=gpu.PARTS_IN_ORDER):
        cheapest.setdefault(sum_order(schedule, shape[2]), cost)
    assert dict(zip(orders, (cost for cost, _ in found), strict=True)) == cheapest


def test_threads_without_registers_for_what_they_hold_take_longer() -> None:
    """37 such kernels of the tables took 1.4 to 3 times what was predicted: addresses of copies are many."""
    wide = candidates.load("mbarrier_8x16_16x16").schedule.but(split_k=5, name=None)
    deep = wide.but(block_k=64, stages=2, mbarrier=0)
    shape = (506, 1536, 1856)
    kept = prior.costs(GemmSpec(), [deep], shape, replace(machine.machine_of(HOPPER), spilled=1.0))
    assert prior.costs(GemmSpec(), [deep], shape, machine.machine_of(HOPPER))[0] > 1.3 * kept[0]
    same = prior.costs(GemmSpec(), [wide], shape, replace(machine.machine_of(HOPPER), spilled=1.0))
    assert prior.costs(GemmSpec(), [wide], shape, machine.machine_of(HOPPER)) == same


def test_more_products_want_other_tiles() -> None:
    """1024 of 64 and 256 of 256 by what was the fastest; of one by smaller tiles."""
    spec = GemmSpec(batched=True)
    for size, products, names in ((64, 1024, ("async_8x4_8x16",)), (256, 256, ("async_8x8_8x16", "async_8x8_16x16"))):
        many, alone = (choose_for_gpu(spec, (size,) * 3, SM_90, count) for count in (products, 1))
        assert many is not None
        assert alone is not None
        assert many.name in names
        assert alone.block_tile < many.block_tile


def test_the_kernel_is_right(rng: np.random.Generator) -> None:
    """What is chosen for few multiprocessors and a long K, in the interpreter."""
    spec, shape = GemmSpec(), (40, 70, 600)
    schedule = choose_for_gpu(spec, shape, replace(SM_90, cores=8))
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
    assert text.startswith("// mbarrier_8x8_2x16_split")
    text = printed("explain", "--preset", "mbarrier_8x8_2x16_split8", *sizes)
    assert "microseconds on 132 multiprocessors for 16 x 4096 x 4096, by the prior:" in text
    assert "the sum of K's parts" in text


# --- what was measured on an H200 on 2026-11-29 ----------------------------------------------------


@pytest.mark.parametrize("size", [64, 512, 2048, 8192])
def test_float32_goes_by_tensor_cores_where_it_may_be_rounded(size: int) -> None:
    spec, shape = GemmSpec(b_order="col", ld_multiple=4), (size, size, size)
    assert choose(spec, shape, H200).atom == "fma"
    assert choose(replace(spec, allow_tf32=True), shape, H200).atom == "wgmma_tf32"
    # A row has the same bits whatever their number, and is never rounded.
    invariant = choose(replace(spec, allow_tf32=True), shape, H200, invariant=True)
    assert invariant == choose(spec, shape, H200, invariant=True)
    assert replace(spec, dtype=F16, allow_tf32=True) == replace(spec, dtype=F16)
    if size >= 512:
        assert choose(replace(spec, allow_tf32=True), shape, A100).atom == "mma_tf32"


@pytest.mark.parametrize(
    "shape", [(4095, 4095, 4095), (2000, 2002, 1024), (3000, 999, 520), (1000, 1001, 1003)], ids=str
)
@pytest.mark.parametrize("b_order", ["row", "col"])
def test_lines_of_c_that_begin_anywhere_are_stored_line_by_line(shape: Shape, b_order: Order) -> None:
    """By pairs 4095 cubed takes 278 us, by fours 242 and one by one 223."""
    found = choose(assuming_no_gaps(GemmSpec(dtype=BF16, b_order=b_order), shape), shape, H200)
    assert (found.epilogue_stages, found.c_width) == (0, 1)


def test_a_small_c_gets_small_blocks() -> None:
    """7444 products of 32x16x24 took 84 us by blocks of 32x64, and 21 by those of one warp or two."""
    spec = GemmSpec(batched=True, ld_multiple=4, alpha=1.0, beta=0.0)
    rows, cols = choose(spec, (32, 16, 24), H200, 7444).block_tile
    assert rows * cols <= 32 * 32


def test_batches_whose_lines_begin_anywhere_are_copied_as_they_are() -> None:
    """192 products of 206x64x206 take 15 us by warps, and 33 with a kernel before that packed them."""
    spec = assuming_no_gaps(GemmSpec(dtype=BF16, batched=True), (206, 64, 206))
    found = choose(spec, (206, 64, 206), H200, 192)
    assert found.by_warps and not (found.a.prepacked or found.b.prepacked)


@pytest.mark.parametrize("b_order", ["row", "col"])
def test_batches_of_odd_lines_are_loaded_ahead_element_by_element(b_order: Order) -> None:
    """256 products of 113x106x91 took 23.4 us by copies and stores of single elements, and take 12 by elements that are
    loaded ahead and stored line by line.
    """
    shape = (113, 106, 91)
    found = choose(assuming_no_gaps(GemmSpec(dtype=BF16, b_order=b_order, batched=True), shape), shape, H200, 256)
    assert (found.by_warps, found.prefetch, found.c_width) == (True, True, 1)


def test_vectors_of_a_and_b_and_odd_lines_of_c() -> None:
    """192 products of 193x193x64 took 33.7 us by warpgroups, and 18 to 19 by warps that store whole lines."""
    shape = (193, 193, 64)
    found = choose(assuming_no_gaps(GemmSpec(dtype=BF16, b_order="col", batched=True), shape), shape, H200, 192)
    assert (found.by_warps, found.prefetch, found.c_width) == (True, False, 1)


@pytest.mark.parametrize(
    ("shape", "block"), [((960, 1216, 1728), (48, 64)), ((768, 3136, 1920), (96, 64)), ((1472, 2624, 1856), (64, 64))]
)
def test_tiles_of_float64(shape: Shape, block: tuple[int, int]) -> None:
    """By 48x64 the first takes 75 us, by 64x64 in two parts 93. 96 does not divide the last one's rows: 348 us, and
    272 by 64x64.
    """
    assert choose(assuming_no_gaps(GemmSpec(dtype=F64), shape), shape, H200).block_tile == block


def test_no_products_at_all() -> None:
    """Grouped products of no group, say."""
    spec = GemmSpec(dtype=BF16, batched=True)
    assert choose(spec, (4, 8, 16), H200, 0) == choose(spec, (4, 8, 16), H200)
