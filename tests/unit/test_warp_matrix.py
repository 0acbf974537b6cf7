"""Matrix instructions of a warp as data: what each lane holds, what they mean, their text, what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.dtypes import BF16, C64, F32, F64, I8
from gemmgen.ir.numeric import numpy_dtype, tf32
from gemmgen.ir.stmt import Multiply
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import walk
from gemmgen.ir.warp_matrix import LANES, WARP_ATOMS, WarpAtom, line_atom
from gemmgen.ir.warp_meaning import Numbers, multiply, places, significant
from gemmgen.methods import defaults
from gemmgen.names import name_problem
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

SPEC = GemmSpec(dtype=BF16)
MMA = defaults("mma")


@pytest.fixture(params=WARP_ATOMS, ids=lambda atom: f"{atom.name}-{atom.dtype}")
def atom(request: pytest.FixtureRequest) -> WarpAtom:
    found: WarpAtom = request.param
    return found


def test_every_element_is_held_once(atom: WarpAtom) -> None:
    for fragment, shape in ((atom.a, (16, atom.depth)), (atom.b, (atom.depth, 8)), (atom.c, (16, 8))):
        rows, cols = places(fragment)
        held = sorted(zip(rows.ravel().tolist(), cols.ravel().tolist(), strict=True))
        assert held == [(row, col) for row in range(shape[0]) for col in range(shape[1])]


def test_lanes_hold_what_the_manual_says() -> None:
    """A few entries of the tables of PTX, whose group is lane / 4 and whose thread in it is lane % 4."""
    bf16, tf = WARP_ATOMS[0], WARP_ATOMS[-1]
    s8, f64 = (next(atom for atom in WARP_ATOMS if atom.name == name) for name in ("mma_s8", "mma_f64"))
    lane, group, thread = 22, 5, 2
    rows, cols = places(bf16.a)
    assert (rows[lane, 1, 2], cols[lane, 1, 2]) == (group + 8, thread * 2 + 8)  # a6
    rows, cols = places(bf16.b)
    assert (rows[lane, 3, 0], cols[lane, 3, 0]) == (thread * 2 + 9, group)  # b3
    rows, cols = places(bf16.c)
    assert (rows[lane, 1, 1], cols[lane, 1, 1]) == (group + 8, thread * 2 + 1)  # c3
    rows, cols = places(tf.a)
    assert (rows[lane, 1, 0], cols[lane, 1, 0]) == (group + 8, thread)  # a1
    rows, cols = places(tf.b)
    assert (rows[lane, 1, 0], cols[lane, 1, 0]) == (thread + 4, group)  # b1
    rows, cols = places(s8.a)
    assert (rows[lane, 1, 6], cols[lane, 1, 6]) == (group + 8, thread * 4 + 18)  # a14
    rows, cols = places(f64.a)
    assert (rows[lane, 1, 1], cols[lane, 1, 1]) == (group + 8, thread + 4)  # a3


def test_the_meaning_is_the_product(atom: WarpAtom, rng: np.random.Generator) -> None:
    shapes = ((atom.c, (16, 8)), (atom.a, (16, atom.depth)), (atom.b, (atom.depth, 8)))
    c, a, b = (rng.integers(-8, 9, shape) for _, shape in shapes)
    held: list[Numbers] = []
    for (fragment, _), matrix, dtype in zip(shapes, (c, a, b), (atom.sums, atom.dtype, atom.dtype), strict=True):
        rows, cols = places(fragment)
        held.append(matrix[rows, cols].astype(numpy_dtype(dtype))[np.newaxis])
    rows, cols = places(atom.c)
    assert held[0].shape[:2] == (1, LANES)
    assert np.array_equal(multiply(atom, *held)[0], (c + a @ b)[rows, cols])


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


def test_the_verifier_knows_whose_registers_they_are() -> None:
    kernel = driver.lower(SPEC, replace(MMA, name="product"), TARGETS["sm_80"])
    assert {s.atom for s in walk(kernel.body) if isinstance(s, Multiply)} == {WARP_ATOMS[0]}
    with pytest.raises(LoweringError, match="in other sub-groups"):
        verify(replace(kernel, sub_group=16), TARGETS["sm_80"])
    with pytest.raises(LoweringError, match="requires no sub-group size"):
        verify(replace(kernel, sub_group=None), TARGETS["sm_80"])
    with pytest.raises(LoweringError, match="needs mma"):
        verify(kernel, replace(TARGETS["sm_80"], features=TARGETS["sm_80"].features - {"mma"}))


def test_what_can_be_turned() -> None:
    assert line_atom("a", turned=True, size=4) is None
    assert line_atom("a", turned=False, size=8) is None
    assert line_atom("b", turned=True, size=2) is not None


@pytest.mark.parametrize(
    ("preset", "calls"),
    [
        ("mma_8x16_16x8", ("load_a4(", "load_b4_turned(", "m16n8k16.row.col.f32.bf16.bf16.f32", "x4.trans")),
        ("mma_tf32_8x16_16x8", ("load_a4(", "to_tf32(", "m16n8k8.row.col.f32.tf32.tf32.f32")),
        ("mma_3xtf32_8x8_16x16", ("finite_rest_in_tf32(", "step_sums[8][8]", "__syncthreads_or(")),
    ],
)
def test_instructions_by_name(preset: str, calls: tuple[str, ...]) -> None:
    """Those of row-major operands, and for columns the loads that don't turn."""
    chosen = presets.load(preset)
    text = driver.emit(chosen.spec, chosen.schedule, "cuda").text
    assert all(call in text for call in calls)
    turned = driver.emit(replace(chosen.spec, b_order="col"), chosen.schedule, "cuda").text
    assert "load_b4(" in turned
    assert "load_b4_turned(" not in turned


@pytest.mark.parametrize(("target", "instructions"), [("sm_80", ["m8n8k4"]), ("sm_90", ["m16n8k8"])])
def test_float64_by_what_the_target_has(target: str, instructions: list[str]) -> None:
    """The data lie alike: four instructions of eight rows are one of sixteen, twice as deep."""
    text = driver.emit(GemmSpec(dtype=F64), defaults("mma_f64"), "cuda", TARGETS[target]).text
    assert re.findall(r"aligned\.(\w+)\.row\.col\.f64", text) == instructions


def test_int8_is_loaded_as_the_layout_allows() -> None:
    for spec, calls in ((GemmSpec(dtype=I8), 0), (GemmSpec(dtype=I8, b_order="col"), 1)):
        text = driver.emit(spec, defaults("mma_s8"), "cuda", TARGETS["sm_80"]).text
        assert "m16n8k32.row.col.s32.s8.s8.s32" in text
        assert text.count("void load_b4(") == calls
        # Words are taken from it, however it is filled.
        assert "__align__(16) signed char b_frag" in text


@pytest.mark.parametrize(
    ("spec", "schedule", "problem"),
    [
        (
            GemmSpec(),
            MMA,
            "not float32: use one of them, or atom mma_tf32 or mma_3xtf32 or fma",
        ),
        (SPEC, defaults("mma_tf32"), "atom mma_tf32 multiplies float32, not bfloat16"),
        (GemmSpec(dtype=F64), MMA, "not float64: use one of them, or atom mma_f64 or fma"),
        (GemmSpec(dtype=C64), MMA, "not complex64: use one of them, or atom fma"),
        (SPEC, replace(MMA, warp=(4, 8)), "warp 4x8, but atom mma has 8 lines of 4 lanes: use warp 8x4"),
        (SPEC, replace(MMA, run=(2, 2)), "run 2x2, but atom mma gives a lane pairs of columns: use run 1x2"),
        (SPEC, replace(MMA, tile=(3, 16)), "tile 3x16 is not made of the 2x2 that atom mma gives a lane"),
        (SPEC, replace(MMA, k_step=24), "k_step = 24 in 1 slices is not made of steps of 16"),
        (SPEC, replace(MMA, k_step=48), "k_step = 48 has an odd number of steps of 16: use k_step 32"),
        (SPEC, replace(MMA, stages=1, across=False), "stages = 1, but atom mma copies a tile while it multiplies"),
        (SPEC, replace(MMA, snake=True), "snake means nothing to atom mma"),
        (SPEC, replace(MMA, a=replace(MMA.a, transposed=True)), "a.transposed, but the local tile has the matrix'"),
        (
            SPEC,
            replace(MMA, b=replace(MMA.b, width=4, pad=4)),
            "b.width = 4, but lines are 16 bytes of bfloat16: use 8",
        ),
        (SPEC, replace(MMA, b=replace(MMA.b, pad=4)), "b.pad = 4"),
        (SPEC, replace(MMA, a=Operand(), b=Operand()), "a.async_copy is not set, but atom mma reads what"),
        (SPEC, replace(MMA, tile=(16, 16), stages=2), "registers"),
        (SPEC, replace(MMA, stages=12), "local memory 227,328 B > 166,912 B on this target: use 8 stages"),
    ],
)
def test_refusals(spec: GemmSpec, schedule: Schedule, problem: str) -> None:
    problems = driver.refusals(spec, schedule, "cuda", TARGETS["sm_80"])
    assert [text for text in problems if problem in text], problems


def test_who_has_none() -> None:
    for backend, target in (("cuda", "sm_75"), ("opencl", "intel"), ("sycl", "sycl")):
        problems = driver.refusals(SPEC, MMA, backend, TARGETS[target])
        assert [text for text in problems if "lacks mma: use sm_80 or later, or atom fma" in text]
    with pytest.raises(ScheduleError, match="lacks mma"):
        driver.emit(SPEC, MMA, "opencl")


def test_never_unless_asked_for() -> None:
    """No other atom is made of these, and each says what it is for."""
    assert tuple(dict.fromkeys(atom.name for atom in WARP_ATOMS)) == (
        "mma",
        "mma_s8",
        "mma_f8",
        "mma_f64",
        "mma_tf32",
        "mma_3xtf32",
    )
    assert all(atom.rounds == ("tf32" in atom.name) for atom in WARP_ATOMS)
    assert {atom.dtype for atom in WARP_ATOMS if atom.rounds} == {F32}
    assert all(atom.link.startswith("https://docs.nvidia.com/") for atom in WARP_ATOMS)


@pytest.mark.parametrize("name", [name for name in presets.names() if presets.load(name).schedule.by_warps])
def test_kernels_are_not_named_like_their_functions(name: str) -> None:
    preset = presets.load(name)
    text = driver.emit(replace(preset.spec, a_order="col"), preset.schedule, "cuda").text
    functions = set(re.findall(r"__forceinline__ \w+ (\w+)\(", text))
    assert len(functions) > 5
    assert not [function for function in functions if name_problem(function) is None]
