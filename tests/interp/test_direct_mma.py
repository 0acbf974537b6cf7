"""Warps that multiply by `mma` what their lanes load along K, in the interpreter: few rows, weights in fewer bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.choice import few_rows
from gemmgen.errors import ScheduleError
from gemmgen.ir.dtypes import BF16, F16, F32, I4, I8, DType
from gemmgen.ir.stmt import VectorCopy
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import of_kind
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.interp.test_weights_in_registers import check, spec_of
from tests.support.epilogues import Finished

SM_80 = TARGETS["sm_80"]


def schedule(width: int) -> Schedule:
    """Two warps along K, each with two loads of a step."""
    return defaults("mma_direct", (2, 2)).but(b=Operand(width=width), block_k=16 * width, sliced_k=2)


@pytest.mark.parametrize(("stored", "width"), [(I8, 8), (I8, 16), (I4, 8), (I4, 16), (I4, 32)], ids=str)
@pytest.mark.parametrize(
    "formula",
    [
        *("b * b_scale", "(b - b_shift) * b_scale", "b * b_scale_128", "(b - b_shift_64) * b_scale_64"),
        *("b_scale_32 * b", "(b - b_zero) * b_scale", "(b - b_zero_32) * b_scale_32", "b_scale_128 * (b - b_zero_128)"),
    ],
)
def test_each_kind_of_weights(formula: str, stored: DType, width: int, rng: np.random.Generator) -> None:
    """K of whole steps, and odd ones: of the second slice's part all or some is past it."""
    for k in (16 * width, 16 * width + 37, 301):
        check(spec_of(stored, formula), schedule(width), rng, (5, 21, k))


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize(("stored", "width"), [(I8, 16), (I4, 32)], ids=str)
def test_all_zero_points(stored: DType, width: int, dtype: DType, rng: np.random.Generator) -> None:
    """Any int8 is subtracted without rounding, whatever elements are."""
    spec = spec_of(stored, "(b - b_zero) * b_scale", dtype)
    data = Finished.random(rng, spec, 1, 256, 4 * width)
    points = np.arange(-128, 128)
    data.problem.a[...] = rng.integers(-4, 5, data.problem.a.shape)
    data.operands["b_scale"][...] = 1
    data.operands["b_zero"][...] = points
    right = data.problem.a.astype(np.float64) @ (data.problem.b.astype(np.float64) - points)
    assert np.array_equal(data.interpret(driver.lower_program(spec, schedule(width), SM_80), 16), right)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("changes", [{"tile": (4, 4)}, {"split_k": 3}, {"sliced_k": 1}], ids=str)
def test_other_schedules(changes: dict[str, object], dtype: DType, rng: np.random.Generator) -> None:
    made = schedule(32).but(**changes)
    rows, cols = made.block_tile
    check(spec_of(I4, "b * b_scale_128", dtype), made, rng, (2 * rows + 1, cols + 3, 640))


def test_sixteen_warps_of_sixteen_rows(rng: np.random.Generator) -> None:
    """As they are chosen for 4096 columns."""
    spec = spec_of(I4, "(b - b_shift_32) * b_scale_32")
    chosen = few_rows.candidates(spec, (16, 4096, 4096), TARGETS["sm_90a"])[-1]
    assert (chosen.sliced_k, chosen.tile, chosen.block_k) == (16, (4, 4), 1024)
    for size in ((16, 33, 1024), (11, 65, 1111)):
        check(spec, chosen, rng, size)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_elements_as_they_are(dtype: DType, rng: np.random.Generator) -> None:
    spec = GemmSpec(dtype=dtype, b_order="col", ld_multiple=8, epilogue=("bias",))
    for k in (256, 259):
        data = Finished.random(rng, spec, 11, 19, k)
        data.check(data.interpret(driver.lower_program(spec, schedule(8), SM_80)))


@pytest.mark.parametrize("tile", [(2, 2), (4, 4)], ids=str)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_lines_that_begin_anywhere(width: int, tile: tuple[int, int], rng: np.random.Generator) -> None:
    """A lane has four neighbours along K, by as many loads as lines allow; so it has of weights in 8 bits."""
    made = schedule(8).but(tile=tile, a=Operand(width=width), b=Operand(width=width), block_k=64)
    for spec in (
        GemmSpec(dtype=F16, b_order="col", ld_multiple=width),
        replace(spec_of(I8, "b * b_scale"), ld_multiple=width),
    ):
        for k in (64, 64 + 5 * width, 3 * width):
            data = Finished.random(rng, spec, 11, 19, k)
            data.check(data.interpret(driver.lower_program(spec, made, SM_80), width))


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("warps", [1, 2, 4])
def test_vectors_are_cut_out_of_two(warps: int, parts: int, rng: np.random.Generator) -> None:
    """Of 16 bytes wherever lines begin, of which the simulator lets none be read in front of a matrix or behind it."""
    made = schedule(8).but(tile=(4, 4), block_k=64 * warps, sliced_k=warps, split_k=parts)
    spec = GemmSpec(dtype=F16, b_order="col")
    program = driver.lower_program(spec, made, SM_80)
    assert "spanning_vector" in {x.atom.name for x in of_kind(VectorCopy, program.kernels[0].body)}
    for k in (3, 32, 39, 40, 71, 72, 130, 257):
        data = Finished.random(rng, spec, 11, 19, k)
        data.check(data.interpret(program, 1))


@pytest.mark.parametrize("width", [1, 2, 8])
@pytest.mark.parametrize(("a", "b"), [("row", "row"), ("col", "row"), ("col", "col")], ids=str)
def test_lines_across_k(a: Order, b: Order, width: int, rng: np.random.Generator) -> None:
    """Elements come one by one where neighbours along K are no neighbours in memory."""
    widths = (width if a == "row" else 1), (width if b == "col" else 1)
    made = schedule(8).but(tile=(4, 4), a=Operand(width=widths[0]), b=Operand(width=widths[1]), block_k=128)
    spec = GemmSpec(dtype=F16, a_order=a, b_order=b, ld_multiple=2 if width == 2 else 1)
    for k in (128, 131, 6):
        data = Finished.random(rng, spec, 11, 19, k)
        data.check(data.interpret(driver.lower_program(spec, made, SM_80), 2))


def test_what_is_left_of_k_waits_once() -> None:
    """A branch around each vector had each load wait for the one before it: up to 10 us of 35 on an H200."""
    text = driver.emit(GemmSpec(dtype=BF16, b_order="col", ld_multiple=8), schedule(8), "cuda", SM_80).text
    rest = text[text.index("What is left of K") : text.index("Operands are exchanged", text.index("What is left of K"))]
    assert "copy" not in rest and "if (" not in rest


def test_sizes_alpha_and_c(rng: np.random.Generator) -> None:
    """An old C, a single row and column, and no K at all."""
    spec = spec_of(I4, "b * b_scale_64")
    for size in ((1, 1, 64), (3, 5, 1), (9, 17, 0)):
        for alpha, beta in ((1.5, 0.5), (0.0, 2.0), (1.0, 0.0)):
            data = Finished.random(rng, spec, *size, alpha=alpha, beta=beta)
            data.check(data.interpret(driver.lower_program(spec, schedule(16), SM_80), 16))


def test_the_text() -> None:
    """Elements are made by twos without conversions. All loads of a step are in front, for which launch bounds
    leave registers. Scales of columns are read before the loop.
    """
    of_group = driver.emit(spec_of(I4, "b * b_scale_128"), schedule(32), "cuda", SM_80).text
    main = of_group[of_group.index("for (int k0") : of_group.index("What is left of K")]
    assert "copy_pairs32(b_frag[j], b_pairs);" in main and "nibble" not in main
    assert "BLOCK_THREADS, 6)" in of_group
    of_column = driver.emit(spec_of(I8, "b * b_scale"), schedule(16), "cuda", SM_80).text
    assert (
        of_column.index("own_b_scale[j] = b_scale[") < of_column.index("for (int k0") < of_column.index("* own_b_scale")
    )
    assert "step_sums" in of_group and "step_sums" not in of_column


@pytest.mark.parametrize(
    ("changes", "spec", "problem"),
    [
        ({}, {"dtype": F32}, "method mma_direct multiplies float16 or bfloat16, not float32"),
        ({}, {"b_order": "row"}, "loads neighbours along K, but b is row-major: store it col-major"),
        ({"group": (8, 8)}, {}, "group 8x8, but a slice of method mma_direct is a warp: use group 4x8"),
        (
            {},
            {"ld_multiple": 4},
            "b.width = 16 loads vectors, but leading dimensions are multiples of 4: pass --ld-multiple 16",
        ),
        (
            {"a": Operand(width=4)},
            {"ld_multiple": 1},
            "a.width = 4 and b.width = 16 load vectors, but leading dimensions are multiples of 1",
        ),
        ({"block_k": 96}, {}, "block_k = 96 in 2 slices is not made of the 64 along K"),
    ],
    ids=str,
)
def test_what_is_refused(changes: dict[str, object], spec: dict[str, object], problem: str) -> None:
    asked = replace(GemmSpec(dtype=BF16, b_order="col", ld_multiple=16), **spec)  # type: ignore[arg-type]
    assert any(problem in x for x in driver.refusals(asked, schedule(16).but(**changes), "cuda", SM_80))
    assert driver.refusals(replace(asked, dtype=BF16), schedule(16), "cuda", TARGETS["sm_75"])


def test_one_cause_is_one_problem() -> None:
    """B by rows is a matter of the method, not of widths; and a backend without `mma` is told of the one with it."""
    asked = GemmSpec(dtype=BF16, b_order="row", ld_multiple=16)
    by_rows = (
        "method mma_direct loads neighbours along K, but b is row-major: store it col-major, or load single elements "
        "(--set b.width=1)"
    )
    assert driver.refusals(asked, schedule(16), "cuda", SM_80) == (by_rows,)
    with pytest.raises(ScheduleError) as error:
        driver.emit(asked, schedule(16), "opencl")
    elsewhere = "method mma_direct, but target 'intel' lacks mma: use --backend cuda --target sm_80"
    assert error.value.problems == (elsewhere, by_rows)
