"""What `gemmgen fuzz` found in gemmgen itself, each as small as it made it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place, check
from gemmgen.ir.dtypes import I64
from gemmgen.oracle import answer
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

NAIVE = presets.load("naive").schedule


def test_a_folded_alpha_of_0_refuses_long_names() -> None:
    """The kernel of C alone was given its name as if by a user, whose names have a limit."""
    a, b = Operand("local"), Operand("local", transposed=True)
    long = Schedule((2, 4), (4, 8), run=(2, 4), k_step=2, a=a, b=b, register_stages=2, c_width=2)
    assert len(long.slug()) > 64
    source = driver.emit(GemmSpec(alpha=0.0, beta=0.5), long)
    assert source.entry_points[0].name == long.slug()


@pytest.mark.parametrize(("backend", "target"), [("opencl", "khr"), ("sycl", "sycl"), ("cuda", "sm_80")])
def test_places_are_not_converted_to_int64(backend: str, target: str) -> None:
    """OpenCL C had no name for it."""
    spec = GemmSpec(dtype=I64, epilogue=("expr: acc + row",))
    check(Case(spec, NAIVE, (3, 4, 5), backend, target), Place.named(backend, target))


def test_a_residual_of_listed_matrices_is_looked_for_in_a_list() -> None:
    """It lies a stride apart, whether A, B and C are listed or not."""
    spec = GemmSpec(batched=True, listed=True, epilogue=("residual",))
    check(Case(spec, NAIVE, (3, 4, 5), "sycl", "sycl", count=3), Place.named("sycl", "sycl"))


@pytest.mark.parametrize("far", [-100.0, -300.0, -2000.0])
def test_what_is_too_large_on_the_way_is_no_error(far: float) -> None:
    """exp(90) is infinite in float32, so that -90 / (1 + exp(90)) is -0, not -7e-38; exp(2000) is, in float64."""
    spec = GemmSpec(epilogue=("silu", "bias", "gelu"))
    a, one = np.full((1, 1), far, np.float32), np.ones((1, 1), np.float32)
    right = answer(spec, (a, one, None), operands={"bias": np.full(1, 0.25, np.float32)})
    assert right.holds(right.rounded).all()
    assert not right.holds((right.value + 1e-4).astype(np.float32)).any()
    silu = answer(replace(spec, epilogue=("silu",)), (np.full((1, 1), -90, np.float32), one, None))
    assert silu.holds(np.full((1, 1), -0.0, np.float32)).all()
    assert not silu.holds(np.full((1, 1), -1e-30, np.float32)).any()
