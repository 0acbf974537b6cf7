"""Products by warps and warpgroups of elements of a byte: 8-bit floats and whole numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.ir.dtypes import BF16, F8_E4M3, F8_E5M2, F16, F32, I8, DType
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.runtime.cuda_launch import MAP_TYPES
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.problems import Problem, interpret

#: As tensor maps have lines, and as the instructions multiply: both operands along K.
SPEC = GemmSpec(dtype=F8_E4M3, b_order="col", ld_multiple=16)
ATOMS = ((F8_E4M3, "f8"), (F8_E5M2, "f8"), (I8, "s8"))


def schedule(kind: str, short: str) -> Schedule:
    """128x64 of C a block by warpgroups, 32x32 by warps."""
    if kind == "wgmma":
        return defaults(f"wgmma_{short}", (2, 16), (64, 4)).but(stages=3)
    return defaults(f"mma_{short}", (4, 8), (8, 4)).but(block_k=64, stages=2)


def check(spec: GemmSpec, s: Schedule, rng: np.random.Generator, whole: bool = False) -> None:
    target = TARGETS["sm_90a" if s.by_warpgroups else "sm_89"]
    program = driver.lower_program(spec, s, target)
    m, n, k = (65, 71, 280) if s.by_warpgroups else (33, 31, 70)
    problem = replace(Problem.integers(rng, m, n, k), spec=spec) if whole else Problem.of(rng, spec, m, n, k, -2.0, 3.0)
    problem = problem.typed(spec)
    result = interpret(program, spec, problem, 3)
    if whole:
        assert np.array_equal(result, problem.expected)
    problem.check(result)


@pytest.mark.parametrize("kind", ["mma", "wgmma"])
@pytest.mark.parametrize(("dtype", "short"), ATOMS, ids=str)
def test_every_type(kind: str, dtype: DType, short: str, rng: np.random.Generator) -> None:
    check(replace(SPEC, dtype=dtype), schedule(kind, short), rng)


@pytest.mark.parametrize("c_dtype", [F16, F32])
def test_what_c_can_be(c_dtype: DType, rng: np.random.Generator) -> None:
    assert SPEC.result == BF16
    check(replace(SPEC, c_dtype=c_dtype), schedule("wgmma", "f8"), rng)


@pytest.mark.parametrize("kind", ["mma", "wgmma"])
def test_whole_numbers_are_exact(kind: str, rng: np.random.Generator) -> None:
    check(replace(SPEC, c_dtype=F32), schedule(kind, "f8"), rng, whole=True)


def test_other_orders_are_packed(rng: np.random.Generator) -> None:
    """Of bytes, and with lines that begin anywhere."""
    base = schedule("wgmma", "s8")
    packed = base.but(a=replace(base.a, prepacked=True), b=replace(base.b, prepacked=True, transposed=True))
    check(GemmSpec(dtype=I8, a_order="col"), packed, rng)
    check(GemmSpec(dtype=F8_E5M2, a_order="col"), packed.but(atom="wgmma_f8"), rng)


def test_lines_that_begin_anywhere_go_through_registers(rng: np.random.Generator) -> None:
    check(GemmSpec(dtype=F8_E4M3), schedule("mma", "f8"), rng)


@pytest.mark.parametrize("name", [x for x in candidates.names() if candidates.load(x).schedule.by_warpgroups])
def test_hosts_make_maps_of_every_type(name: str) -> None:
    preset = candidates.load(name)
    maps = driver.emit(preset.spec, preset.schedule, "cuda", TARGETS["sm_90a"]).entry_points
    assert {x.dtype.name for entry in maps for x in entry.maps} <= MAP_TYPES.keys()


def test_scales_of_rows_and_columns(rng: np.random.Generator) -> None:
    """A's and B's, as `epilogue` has them: what is multiplied is small, what comes out is not."""
    spec = replace(SPEC, c_dtype=F32, epilogue=("row_scale", "scale"))
    program = driver.lower_program(spec, schedule("wgmma", "f8"), TARGETS["sm_90a"])
    plain = replace(spec, epilogue=())
    problem = replace(Problem.integers(rng, 65, 71, 280), spec=plain).typed(plain)
    rows, cols = (2.0 ** rng.integers(-3, 4, count).astype(np.float32) for count in (65, 71))
    result = interpret(program, spec, problem, 3, {"row_scale": rows, "scale": cols})
    assert np.array_equal(result, problem.expected * rows[:, None] * cols)
