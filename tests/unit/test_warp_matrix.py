"""Matrix instructions of a warp as data: what each lane holds, what they mean, their text, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.banks import value_of
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import AxisLayout, ThreadValueLayout
from gemmgen.ir.dtypes import BF16, C64, F32, F64, I8
from gemmgen.ir.instructions import ACROSS, MMA_INSTRUCTIONS, WARP_LANES
from gemmgen.ir.numeric import tf32, tf32_by_tma
from gemmgen.ir.operands import ldmatrix_atom
from gemmgen.ir.stmt import Multiply, Registers, VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import walk
from gemmgen.mainloops import exchange
from gemmgen.methods import defaults
from gemmgen.names import name_problem
from gemmgen.positions import LOCAL_COL
from gemmgen.schedule import Operand
from gemmgen.simulator.semantics import places, significant
from gemmgen.spec import GemmSpec
from tests.support.refusals import Made, refusals

SPEC = GemmSpec(dtype=BF16)
MMA = defaults("mma")


def test_lanes_hold_what_the_manual_says() -> None:
    """A few entries of the tables of PTX, whose group is lane / 4 and whose thread in it is lane % 4."""
    bf16, tf = MMA_INSTRUCTIONS[0], MMA_INSTRUCTIONS[-1]
    s8, f64 = (next(atom for atom in MMA_INSTRUCTIONS if atom.name == name) for name in ("mma_s8", "mma_f64"))
    lane, group, thread = 22, 5, 2
    rows, cols = places(bf16.a, WARP_LANES)
    assert (rows[lane, 1, 2], cols[lane, 1, 2]) == (group + 8, thread * 2 + 8)  # a6
    rows, cols = places(bf16.b, WARP_LANES)
    assert (rows[lane, 3, 0], cols[lane, 3, 0]) == (thread * 2 + 9, group)  # b3
    rows, cols = places(bf16.c, WARP_LANES)
    assert (rows[lane, 1, 1], cols[lane, 1, 1]) == (group + 8, thread * 2 + 1)  # c3
    rows, cols = places(tf.a, WARP_LANES)
    assert (rows[lane, 1, 0], cols[lane, 1, 0]) == (group + 8, thread)  # a1
    rows, cols = places(tf.b, WARP_LANES)
    assert (rows[lane, 1, 0], cols[lane, 1, 0]) == (thread + 4, group)  # b1
    rows, cols = places(s8.a, WARP_LANES)
    assert (rows[lane, 1, 6], cols[lane, 1, 6]) == (group + 8, thread * 4 + 18)  # a14
    rows, cols = places(f64.a, WARP_LANES)
    assert (rows[lane, 1, 1], cols[lane, 1, 1]) == (group + 8, thread + 4)  # a3


def test_tf32_is_the_nearest_and_keeps_what_is_not_finite(rng: np.random.Generator) -> None:
    numbers = rng.standard_normal(1000, dtype=np.float32)
    rounded = np.asarray(tf32(numbers), np.float32)
    assert np.array_equal(significant(rounded, 11), rounded)
    assert (np.abs(rounded - numbers) <= 2.0**-11 * np.abs(numbers)).all()
    one_half = np.float32(1 + 2.0**-11)
    assert tf32(one_half) == 1 + 2.0**-10
    assert tf32(-one_half) == -1 - 2.0**-10
    odd = np.array([np.inf, -np.inf, np.nan], np.float32)
    odd.view(np.uint32)[2] = 0x7FFFFFFF  # the NaN that GPUs make
    assert np.array_equal(np.asarray(tf32(odd)), odd, equal_nan=True)


def test_tma_rounds_ties_to_even() -> None:
    ties = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, -1 - 2.0**-11, 1 + 1.01 * 2.0**-11, np.inf, np.nan], np.float32)
    right = np.array([1, 1 + 2.0**-9, -1, 1 + 2.0**-10, np.inf, np.nan], np.float32)
    assert np.array_equal(tf32_by_tma(ties), right, equal_nan=True)
    assert np.isinf(tf32_by_tma(np.full(1, np.finfo(np.float32).max)))[0]


def test_the_verifier_knows_whose_registers_they_are() -> None:
    kernel = driver.lower(SPEC, replace(MMA, name="product"), TARGETS["sm_80"])
    assert {s.atom for s in walk(kernel.body) if isinstance(s, Multiply)} == {MMA_INSTRUCTIONS[0]}
    with pytest.raises(LoweringError, match="in other sub-groups"):
        verify(replace(kernel, sub_group=16), TARGETS["sm_80"])
    with pytest.raises(LoweringError, match="requires no sub-group size"):
        verify(replace(kernel, sub_group=None), TARGETS["sm_80"])
    with pytest.raises(LoweringError, match="needs mma"):
        verify(kernel, replace(TARGETS["sm_80"], features=TARGETS["sm_80"].features - {"mma"}))


def test_what_can_be_transposed() -> None:
    assert ldmatrix_atom("a", transposed=True, size=4) is None
    assert ldmatrix_atom("a", transposed=False, size=8) is None
    assert ldmatrix_atom("b", transposed=True, size=2) is not None


@pytest.mark.parametrize(
    ("preset", "calls"),
    [
        ("mma_8x16_16x8", ("ldmatrix_a_x4(", "ldmatrix_b_x4_trans(", "m16n8k16.row.col.f32.bf16.bf16.f32", "x4.trans")),
        ("mma_tf32_8x16_16x8", ("ldmatrix_a_x4(", "cvt_rna_tf32(", "m16n8k8.row.col.f32.tf32.tf32.f32")),
        ("mma_3xtf32_8x8_16x16", ("tf32_low_finite(", "step_sums[TM][TN]", "__syncthreads_or(")),
    ],
)
def test_instructions_by_name(preset: str, calls: tuple[str, ...]) -> None:
    """Those of row-major operands, and for columns the loads that don't turn."""
    chosen = candidates.load(preset)
    text = driver.emit(chosen.spec, chosen.schedule, "cuda").text
    assert all(call in text for call in calls)
    transposed = driver.emit(replace(chosen.spec, b_order="col"), chosen.schedule, "cuda").text
    assert "ldmatrix_b_x4(" in transposed
    assert "ldmatrix_b_x4_trans(" not in transposed


@pytest.mark.parametrize(("target", "instructions"), [("sm_80", ["m8n8k4"]), ("sm_90", ["m16n8k8"])])
def test_float64_by_what_the_target_has(target: str, instructions: list[str]) -> None:
    """The data lie alike: four instructions of eight rows are one of sixteen, twice as deep."""
    text = driver.emit(GemmSpec(dtype=F64), defaults("mma_f64"), "cuda", TARGETS[target]).text
    assert re.findall(r"aligned\.(\w+)\.row\.col\.f64", text) == instructions


def test_int8_is_loaded_as_the_layout_allows() -> None:
    for spec, calls in ((GemmSpec(dtype=I8), 0), (GemmSpec(dtype=I8, b_order="col"), 1)):
        text = driver.emit(spec, defaults("mma_s8"), "cuda", TARGETS["sm_80"]).text
        assert "m16n8k32.row.col.s32.s8.s8.s32" in text
        assert text.count("void ldmatrix_b_x4(") == calls
        # Words are taken from it, however it is filled.
        assert "__align__(16) signed char b_frag" in text


@pytest.mark.parametrize(
    ("spec", "schedule", "problem"),
    [
        (
            GemmSpec(),
            MMA,
            "not float32: use dtype bfloat16 or float16, or atom mma_tf32 or mma_3xtf32 or fma",
        ),
        (SPEC, defaults("mma_tf32"), "atom mma_tf32 multiplies float32, not bfloat16"),
        (GemmSpec(dtype=F64), MMA, "not float64: use dtype bfloat16 or float16, or atom mma_f64 or fma"),
        (GemmSpec(dtype=C64), MMA, "not complex64: use dtype bfloat16 or float16, or atom fma"),
        (
            SPEC,
            partial(MMA.but, lane_arrangement=(4, 8)),
            "lane_arrangement = 4x8 means nothing to mainloop WarpMma: use lane_arrangement 8x4",
        ),
        (
            SPEC,
            partial(MMA.but, thread_vector=(2, 2)),
            "thread_vector = 2x2 means nothing to mainloop WarpMma: use thread_vector 1x2",
        ),
        (
            SPEC,
            MMA.but(tile=(8, 10)),
            "c_width = 4 does not divide the tile's 10 columns, of which lanes exchange sums",
        ),
        (
            SPEC,
            MMA.but(c_width=16),
            "use 2, which atom mma gives a lane, 4 or 8, for which lanes exchange sums, or 1, by which warps",
        ),
        (
            GemmSpec(dtype=F64),
            defaults("mma_f64").but(prefetch=True),
            "prefetch loads elements one by one, but those of float64, of 8 bytes, are copied asynchronously",
        ),
        (
            SPEC,
            MMA.but(tile=(8, 6), c_width=1),
            "128x48 of C, line by line, can't be dealt out evenly to 128 work-items, of which a line takes 48",
        ),
        (SPEC, MMA.but(tile=(3, 16)), "tile 3x16 is not made of the 2x2 that atom mma gives a lane"),
        (SPEC, MMA.but(block_k=24), "block_k = 24 is not made of steps of 16"),
        (SPEC, MMA.but(block_k=48), "block_k = 48 has an odd number of steps of 16: use block_k 32"),
        (SPEC, MMA.but(stages=1, across_tiles=False), "stages = 1, but atom mma copies a tile while it multiplies"),
        (SPEC, partial(MMA.but, serpentine=True), "serpentine = true means nothing to mainloop WarpMma"),
        (
            SPEC,
            partial(MMA.but, a=replace(MMA.a, transposed=True)),
            "a.transposed = true means nothing to mainloop WarpMma",
        ),
        (
            SPEC,
            partial(MMA.but, b=replace(MMA.b, width=4, pad=4)),
            "b.width = 4 means nothing to mainloop WarpMma: use b.width 8",
        ),
        (SPEC, MMA.but(b=replace(MMA.b, pad=4)), "b.pad = 4"),
        (
            SPEC,
            partial(MMA.but, a=Operand(), b=Operand()),
            "a.async_copy = false means nothing to mainloop WarpMma: use a.async_copy true",
        ),
        (SPEC, MMA.but(tile=(16, 16), stages=2), "registers"),
        (SPEC, MMA.but(stages=12), "local memory 227,328 B > 166,912 B on this target: use 8 stages"),
    ],
)
def test_refusals(spec: GemmSpec, schedule: Made, problem: str) -> None:
    problems = refusals(spec, schedule, "cuda", TARGETS["sm_80"])
    assert [text for text in problems if problem in text], problems


def test_who_has_none() -> None:
    for backend, target in (("cuda", "sm_75"), ("opencl", "intel"), ("sycl", "sycl")):
        problems = driver.refusals(SPEC, MMA, backend, TARGETS[target])
        assert [text for text in problems if "lacks mma: use sm_80 or later, or atom fma" in text]
    with pytest.raises(ScheduleError, match="lacks mma"):
        driver.emit(SPEC, MMA, "opencl")


def test_never_unless_asked_for() -> None:
    """No other atom is made of these, and each says what it is for."""
    assert tuple(dict.fromkeys(atom.name for atom in MMA_INSTRUCTIONS)) == (
        "mma",
        "mma_s8",
        "mma_f8",
        "mma_f64",
        "mma_tf32",
        "mma_3xtf32",
    )
    assert all(atom.rounds == ("tf32" in atom.name) for atom in MMA_INSTRUCTIONS)
    assert {atom.dtype for atom in MMA_INSTRUCTIONS if atom.rounds} == {F32}
    assert all(atom.link.startswith("https://docs.nvidia.com/") for atom in MMA_INSTRUCTIONS)


@pytest.mark.parametrize("name", [name for name in candidates.names() if candidates.load(name).schedule.by_warps])
def test_kernels_are_not_named_like_their_functions(name: str) -> None:
    preset = candidates.load(name)
    # A by columns has functions of its own, where it may be stored so.
    takes = not driver.refusals(by_columns := replace(preset.spec, a_order="col"), preset.schedule, "cuda")
    text = driver.emit(by_columns if takes else preset.spec, preset.schedule, "cuda").text
    functions = set(re.findall(r"__forceinline__ \w+ (\w+)\(", text))
    assert len(functions) > 1 and any(function.startswith("mma_m") for function in functions)
    assert not [function for function in functions if name_problem(function) is None]


@pytest.mark.parametrize(("width", "whole"), [(2, False), (4, True), (8, True)])
def test_a_warp_stores_whole_sectors(width: int, whole: bool) -> None:
    """Bytes of each sector of 32 that a warp's store of `width` 2-byte elements a lane covers; an exchange fills it."""
    acc = Registers(
        Buffer("acc", F32, Space.PRIVATE, Layout.packed(2, 16)),
        ThreadValueLayout(AxisLayout(2, 16), exchange.before(AxisLayout(16, 8, 2, LOCAL_COL), width // 2)),
    )
    cols = exchange.after(acc, width // 2).fragment.cols
    covered: dict[int, int] = {}
    for lane in range(ACROSS):
        begin = value_of(cols.start, {"local_col": lane})
        assert begin is not None
        for element in range(begin, begin + width):
            covered[element * 2 // 32] = covered.get(element * 2 // 32, 0) + 2
    assert ([*covered.values()] == [32] * (width // 4)) == whole


@pytest.mark.parametrize("width", [4, 8])
def test_an_exchange_keeps_every_column(width: int) -> None:
    """Lanes together have the same columns before and behind it, each once."""
    plain = AxisLayout(16, 8, 2, LOCAL_COL)
    before = exchange.before(plain, width // 2)
    acc = Registers(
        Buffer("acc", F32, Space.PRIVATE, Layout.packed(2, 16)), ThreadValueLayout(AxisLayout(2, 16), before)
    )
    after = exchange.after(acc, width // 2).fragment.cols
    held = [sorted(x.element(lane, value) for lane in range(8) for value in range(16)) for x in (before, after)]
    assert held == [[*range(128)]] * 2


def test_each_operand_decides_by_its_own_lines() -> None:
    text = driver.emit(SPEC, MMA, "cuda").text
    assert "lda % 8 == 0 && ldb" not in text
    for name in ("lda", "ldb"):
        assert [int(x) for x in re.findall(rf"if \({name} % (\d) == 0\)", text)] == [8, 4, 2]
        # By one function of the width.
        assert [int(x) for x in re.findall(rf"load_{name[-1]}\((\d)\)", text)] == [8, 4, 2]
    assert [int(x) for x in re.findall(r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+)", text)] == [16, 8, 4]
    assert text.count("cp_async_zfill(") == 3


def test_all_of_c_is_read_before_any_is_stored() -> None:
    """So that no read waits for a store; of vectors a part may be inside, which pairs serve where four do not fit."""
    kernel = driver.lower(SPEC, MMA, TARGETS["sm_80"])
    moves = [s for s in walk(kernel.body) if isinstance(s, VectorCopy) and "c" in (s.src.name, s.dst.name)]
    assert [s.src.name for s in moves] == ["c", "acc"] and all(s.valid is not None for s in moves)
    text = driver.emit(SPEC, MMA, "cuda").text
    for function in ("load4_inside(float *to", "store4_inside(__nv_bfloat16 *to"):
        body = text.split(function)[1].split("\n}\n")[0]
        assert body.index("% 8 == 0") < body.index("% 4 == 0") < body.index("e < inside")


def test_float64_is_stored_as_before() -> None:
    """A pair fills a vector, and on an H100 the other way was 2 % slower."""
    preset = candidates.load("mma_f64_4x8_16x8")
    assert "_inside(" not in driver.emit(preset.spec, preset.schedule, "cuda").text


def test_one_width_is_a_number() -> None:
    """Where lines are assumed to allow the widest copy, no function of the width is left."""
    text = driver.emit(replace(SPEC, ld_multiple=8), MMA, "cuda").text
    assert "cp_async_zfill" in text and not re.findall(r"BK / width|load_a\(", text)


def test_a_known_k_of_one_step_leaves_no_name_that_nothing_uses() -> None:
    """The loads ahead, which a main loop of one round has none of, are gone with the names of where they load: nvcc
    warns of those, and the head comment has warnings be errors. The loop in front uses the same names.
    """
    spec = GemmSpec(m=100, n=17, k=3, dtype=BF16)
    text = driver.emit(spec, MMA, "cuda").text
    ahead, main = text.split("for (int k0 = 0;")
    assert "const int k_load =" in ahead and "k_load" not in main and "load_stage" not in main
