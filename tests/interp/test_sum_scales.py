"""8-bit floats with scales of 1x128 for A and 128x128 for B (DeepSeek-V3, `torch._scaled_mm`), in the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.choose import choose
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import F8_E4M3, F8_E5M2, F32, I8, DType
from gemmgen.ir.synchronization import MultiplyGroup
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule, Value
from gemmgen.spec import GemmSpec
from tests.support.broken import broken_main, changed, dropped, faults
from tests.support.epilogues import Finished

TARGET = TARGETS["sm_90a"]
SPEC = GemmSpec(
    dtype=F8_E4M3,
    b_order="col",
    ld_multiple=16,
    prologue_a="a * a_scale_128",
    prologue_b="b * b_scale_128x128",
)
#: 64x64 of C a block, K in steps of 128.
BLOCK = candidates.load("wgmma_f8_128x256_s4").schedule.but(
    tile=(2, 16), group=(32, 4), producer_threads=32, setmaxnreg=(0, 0), epilogue_stages=1, persistent=False, stages=3
)


#: The same by two groups along K at a time.
TWO_GROUPS = BLOCK.but(block_k=256)


def check(spec: GemmSpec, schedule: Schedule, data: Finished) -> None:
    data.check(data.interpret(driver.lower_program(spec, schedule, TARGET), 16))


@pytest.mark.parametrize("dtype", [F8_E4M3, F8_E5M2], ids=str)
@pytest.mark.parametrize("size", [(65, 72, 300), (3, 130, 128), (1, 8, 5)], ids=str)
@pytest.mark.parametrize("schedule", [BLOCK, TWO_GROUPS], ids=["a group a step", "two groups"])
def test_sums_are_scaled(
    dtype: DType, schedule: Schedule, size: tuple[int, int, int], rng: np.random.Generator
) -> None:
    """Whole groups along K and part of one, tiles that a block ends within."""
    for c_dtype in (None, F32):
        spec = replace(SPEC, dtype=dtype, c_dtype=c_dtype)
        check(spec, schedule, Finished.random(rng, spec, *size, alpha=0.5, beta=2.0))


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)], ids=str)
def test_two_groups_in_clusters(cluster: tuple[int, int], rng: np.random.Generator) -> None:
    """Each block of a cluster loads the shared tile of one of the groups."""
    check(SPEC, TWO_GROUPS.but(cluster=cluster), Finished.random(rng, SPEC, 130, 200, 600, alpha=0.5, beta=2.0))


@pytest.mark.parametrize(
    "changes",
    [{"persistent": True}, {"persistent": True, "cluster": (2, 1)}, {"split_k": 2, "epilogue_stages": 0}],
    ids=str,
)
def test_what_else_is_chosen_with_two_groups(changes: dict[str, Value], rng: np.random.Generator) -> None:
    check(SPEC, TWO_GROUPS.but(**changes), Finished.random(rng, SPEC, 130, 200, 600, alpha=0.5, beta=2.0))


def test_groups_of_a_step_are_waited_for_one_after_the_other() -> None:
    """While the sums of the first are added, instructions of the second are under way."""
    text = driver.emit(SPEC, TWO_GROUPS, "cuda", TARGET).text
    steps = (
        "(group_sums_0, a_tile",
        "(group_sums_1, a_tile",
        "<1>(group_sums_0)",
        "fmaf(group_sums_0",
        "_all(group_sums_1)",
    )
    places = [text.index(step) for step in (*steps, "fmaf(group_sums_1")]
    assert places == sorted(places)
    program = driver.lower_program(SPEC, TWO_GROUPS, TARGET)
    wrong = broken_main(program, changed(MultiplyGroup, lambda s: replace(s, pending=2), verb="wait", pending=1))
    with faults("pipe", "sums are used while instructions add to them"):
        Finished.random(np.random.default_rng(0), SPEC, 64, 64, 256).interpret(wrong, 16)
    # Without the wait the registers hold NaN, in the second step, too.
    wrong = broken_main(program, dropped(MultiplyGroup, verb="wait", pending=1))
    found = Finished.random(np.random.default_rng(0), SPEC, 64, 64, 512).interpret(wrong, 16)
    assert np.isnan(found.astype(np.float64)).all()


def test_persistent_blocks_in_order(rng: np.random.Generator) -> None:
    """Steps go on from block to block; each block's sums begin with zeros."""
    ordered = {"persistent": True, "ordered_epilogue": True, "epilogue_stages": 2}
    schedule = BLOCK.but(group=(64, 4), producer_threads=128, setmaxnreg=(232, 40), **ordered)
    program = driver.lower_program(SPEC, schedule, replace(TARGET, cores=2))
    data = Finished.random(rng, SPEC, 260, 72, 300)
    data.check(data.interpret(program, 16))


@pytest.mark.parametrize("changes", [{}, {"cluster_reduction": 2}], ids=str)
def test_k_in_parts(changes: dict[str, int], rng: np.random.Generator) -> None:
    """With a cluster that adds them up, the last part goes past K."""
    check(SPEC, BLOCK.but(split_k=2, epilogue_stages=0, **changes), Finished.random(rng, SPEC, 65, 72, 600))


@pytest.mark.parametrize("which", ["a", "b"])
def test_one_of_both(which: str, rng: np.random.Generator) -> None:
    spec = replace(SPEC, **{f"prologue_{which}": None})  # type: ignore[arg-type]
    check(spec, BLOCK, Finished.random(rng, spec, 65, 72, 300))


def test_tiles_of_a_and_an_epilogue(rng: np.random.Generator) -> None:
    spec = replace(SPEC, prologue_a="a_scale_128x128 * a", epilogue=("bias", "relu"), alpha=1, beta=0)
    check(spec, BLOCK, Finished.random(rng, spec, 130, 72, 300))


def test_powers_of_two_are_exact(rng: np.random.Generator) -> None:
    """Bit for bit, where elements times their scales would not be: 1.75 * 2^-12 is no number of 8 bits."""
    spec = replace(SPEC, c_dtype=F32)
    data = Finished.random(rng, spec, 65, 72, 300)
    data.problem.a[...] = rng.integers(-4, 5, data.problem.a.shape) * 0.25
    data.problem.b[...] = rng.integers(-4, 5, data.problem.b.shape) * 0.25
    data.operands["a_scale_128"][...] = 2.0 ** rng.integers(-12, -8, data.operands["a_scale_128"].shape)
    data.operands["b_scale_128x128"][...] = 2.0 ** rng.integers(-12, -8, data.operands["b_scale_128x128"].shape)
    result = data.interpret(driver.lower_program(spec, BLOCK, TARGET), 16)
    of_a = np.repeat(data.operands["a_scale_128"].reshape(3, 65).T, 128, axis=1)[:, :300]
    of_b = np.repeat(data.operands["b_scale_128x128"], 128)[:300, None]
    a, b = (x.astype(np.float64) for x in (data.problem.a, data.problem.b))
    assert np.array_equal(result, (a * of_a) @ (b * of_b))


@pytest.mark.parametrize("shape", [(4096, 4096, 4096), (100, 7168, 2048), (1, 4096, 7168)])
def test_the_choice(shape: tuple[int, int, int]) -> None:
    chosen = choose(SPEC, shape, TARGET)
    assert chosen.by_warpgroups and chosen.block_k == 256 and 128 % chosen.block_tile[1] == 0
    assert "a_scale_128[min(k0 + g * 128 + BK, k - 1) / 128 * m" in driver.emit(SPEC, chosen, "cuda", TARGET).text


@pytest.mark.parametrize(
    ("changes", "schedule", "said"),
    [
        ({}, candidates.load("mma_f8_8x16_16x8").schedule, "WarpMma does not scale sums: use atom wgmma_f8"),
        ({"prologue_a": "a * a_scale_32"}, BLOCK, "are of groups of different sizes along K"),
        ({"prologue_b": "b * b_scale_128"}, BLOCK, "has a scale for each column, which sums are not scaled by"),
        ({}, BLOCK.but(tile=(2, 24)), "holds for 128 columns, of which a block has 96"),
        ({}, BLOCK.but(block_k=512, stages=2), "hold for 128 along K, which steps of 512 overlap: use block_k 128"),
        ({}, BLOCK.but(a=replace(BLOCK.a, prepacked=True)), "operands are swapped, packed or in registers"),
        ({}, BLOCK.but(tile=(4, 32)), "256 sums of a work-item and 24 registers besides"),
    ],
)
def test_what_is_refused(changes: dict[str, object], schedule: Schedule, said: str) -> None:
    with pytest.raises(ScheduleError) as error:
        driver.emit(replace(SPEC, **changes), schedule, "cuda")  # type: ignore[arg-type]
    assert said in str(error.value)


def test_other_formulas_and_types_make_elements() -> None:
    """What is no scale of a group along K is no factor of its sums."""
    assert (SPEC.sum_scale("a"), SPEC.sum_scale("b")) == ("a_scale_128", "b_scale_128x128")
    assert SPEC.prologue("a") is None and SPEC.operands == ("a_scale_128", "b_scale_128x128")
    assert replace(SPEC, prologue_a="a * a_scale").sum_scale("a") is None
    assert replace(SPEC, prologue_a="a * a_scale_128 + 1").sum_scale("a") is None
    assert GemmSpec(b_dtype=I8, prologue_b="b * b_scale_128").sum_scale("b") is None
