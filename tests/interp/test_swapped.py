"""Products with operands swapped, C^T = B^T A^T, for C with few rows: any order and size, in C's own words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import BF16, F16, F32, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.epilogues import Finished
from tests.support.problems import Problem, check_products, interpret, layouts

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)


def small(**changes: object) -> Schedule:
    """16x64 of C a block, by one warpgroup."""
    base = defaults("wgmma", (4, 2), (4, 32)).but(stages=3, producer_threads=32, setmaxnreg=(0, 0))
    return base.but(**changes)


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, *sizes: tuple[int, int, int]) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    check_products(program, spec, rng, *sizes, pad=8)


@pytest.mark.parametrize("spec", list(layouts(SPEC)), ids=lambda s: f"{s.a_order}-{s.b_order}-{s.c_order}")
def test_layouts(spec: GemmSpec, rng: np.random.Generator) -> None:
    """Of a column-major C, whose columns the lines of sums then are, pairs are stored as well."""
    check(spec, small(c_width=2 if spec.c_order == "col" else 1), rng, (1, 70, 130), (17, 64, 64))


@pytest.mark.parametrize(
    ("tile", "group", "changes"),
    [
        ((2, 2), (4, 32), {"split_k": 3}),
        ((6, 4), (4, 32), {"threadblock_swizzle": 2}),
        ((16, 2), (4, 64), {"producer_threads": 128, "setmaxnreg": (160, 40)}),
        ((4, 2), (4, 32), {"split_k": 2, "c_order": "col"}),
        ((4, 2), (8, 32), {"producer_threads": 128}),
    ],
    ids=[
        "8 rows, parts of K",
        "24 rows, two turns of columns",
        "64 rows, two warpgroups",
        "parts of a column-major C",
        "16 rows each",
    ],
)
def test_tiles_and_roles(
    tile: tuple[int, int], group: tuple[int, int], changes: dict[str, object], rng: np.random.Generator
) -> None:
    spec = replace(SPEC, c_order=changes.pop("c_order", "row"), dtype=F16)  # type: ignore[arg-type]
    base = defaults("wgmma", tile, group).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    check(spec, base.but(**changes), rng, (26, 140, 200))


def test_other_types(rng: np.random.Generator) -> None:
    """Whose lines lie along K, both."""
    spec = GemmSpec(dtype=I8, ld_multiple=16, b_order="col")
    base = defaults("wgmma_s8", (4, 2), (4, 32)).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    check(spec, base, rng, (9, 70, 150))


def test_packed_and_a_prologue(rng: np.random.Generator) -> None:
    """Kernels before and behind know C alone."""
    schedule = small(split_k=2)
    schedule = schedule.but(a=replace(schedule.a, prepacked=True), b=replace(schedule.b, prepacked=True))
    spec = replace(SPEC, ld_multiple=1, prologue_b="b * b_scale", c_dtype=F32)
    problem = Problem.of(rng, spec, 5, 70, 130, 1.0, 0.0)
    scale = np.float32(2) ** (np.arange(70, dtype=np.float32) % 4)
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 3, {"b_scale": scale})
    expected = problem.a.astype(np.float64) @ (problem.b.astype(np.float64) * scale)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("formula", [None, "b * 2"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(("method", "dtype"), [("wgmma", BF16), ("wgmma_tf32", F32)])
def test_bytes_become_elements_on_their_way_to_registers(
    method: str, dtype: DType, order: Order, packed: bool, formula: str | None, rng: np.random.Generator
) -> None:
    """Read as they are stored, packed or not: the interpreter saw reads past what was packed, and past registers."""
    base = defaults(method, (4, 2), (4, 32)).but(stages=2, producer_threads=32, setmaxnreg=(0, 0))
    schedule = base.but(b=replace(base.b, memory="private", prepacked=packed))
    spec = GemmSpec(dtype=dtype, c_dtype=F32, b_dtype=I8, b_order=order, prologue_b=formula, ld_multiple=16)
    problem = Problem.of(rng, replace(spec, prologue_b=None), 9, 70, 130, 1.0, 0.0)
    problem = replace(problem, a=np.rint(4 * problem.a))
    found = interpret(driver.lower_program(spec, schedule, SM_90A), spec, problem, 3)
    assert np.array_equal(found, problem.expected * (1 if formula is None else 2))


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("order", ["row", "col"])
def test_functions_on_elements(order: Order, split: int, rng: np.random.Generator) -> None:
    """Of C's own rows and columns."""
    spec = replace(
        SPEC, c_order=order, c_dtype=F32, epilogue=("bias", "row_scale", "expr: acc + 3 * row + col", "residual")
    )
    finished = Finished.random(rng, spec, 19, 67, 64, 1.0, 2.0)
    finished.check(finished.interpret(driver.lower_program(spec, small(split_k=split), SM_90A), 8))


def test_names_are_those_of_c() -> None:
    kernel = driver.lower(replace(SPEC, epilogue=("bias",)), small(), SM_90A)
    names = [p.name for p in kernel.params]
    assert names == ["m", "n", "k", "alpha", "a", "lda", "b", "ldb", "beta", "c", "ldc", "bias"]
    shapes = {p.name: [getattr(x, "name", None) for x in p.shape] for p in kernel.params if isinstance(p, Buffer)}
    assert shapes == {"a": ["m", "k"], "b": ["k", "n"], "c": ["m", "n"], "bias": ["n"]}


@pytest.mark.parametrize(
    ("spec", "changes", "said"),
    [
        (SPEC, {"tile": (3, 2)}, "a block's 12 rows of A, multiplied by 8"),
        (SPEC, {"tile": (4, 3)}, "tile 4x3 has no pairs of columns"),
        (SPEC, {"c_width": 2}, "stores neighbouring rows, but C is row-major"),
        (
            replace(SPEC, c_order="col"),
            {"c_width": 2, "split_k": 2},
            "c_width = 2 stores neighbouring rows, but a second kernel adds up rows: use c_width 1",
        ),
        (SPEC, {"group": (8, 48)}, "not made of warpgroups of 32x4: use group 64x4, say, two above one another, 32x8,"),
        (SPEC, {"tile": (3, 2), "group": (8, 32)}, "a warpgroup's 12 rows of A, multiplied by 8: use a multiple of 8"),
        (SPEC, {"stages": 23}, "local memory"),
    ],
)
def test_refusals_speak_of_c(spec: GemmSpec, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        driver.lower(spec, small(**changes), SM_90A)
