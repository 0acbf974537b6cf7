"""MFMA: a row of the table of instructions, run by the simulator, and its OpenCL C by an emulator of AMD's GPUs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import ScheduleError
from gemmgen.inspect.amd import LIBCLC
from gemmgen.ir.dtypes import BF16, F16, F32
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec, Order
from tests.support import hip
from tests.support.problems import Problem, check_products
from tests.support.tools import tool

GFX942 = TARGETS["gfx942"]
SPEC = GemmSpec(dtype=F16, c_dtype=F32)
MFMA = defaults("mfma")
#: One wavefront of 32x32, four of 16x16, and two of 32x16 that lie beside each other.
SCHEDULES = (MFMA, defaults("mfma", (4, 1), (8, 32), 32), defaults("mfma", (8, 1), (4, 32)).but(threadblock_swizzle=2))
NAMES = ("a wavefront", "four", "two beside each other")
SIZES = ((33, 65, 17), (1, 1, 1), (64, 32, 48))
#: The emulator takes smaller numbers for zero.
SMALLEST_NORMAL = np.finfo(np.float16).smallest_normal


def machine_code(source: Source, clang: str, folder: Path) -> Path:
    """The code object of OpenCL C."""
    if not LIBCLC.exists():
        pytest.skip(f"{LIBCLC} is not on this machine: apt-get install libclc-22")
    text, code = folder / f"{source.name}.cl", folder / f"{source.name}.hsaco"
    text.write_text(source.text)
    options = ["-cl-std=CL2.0", "-O2", "-nogpulib", "-Werror", "-Xclang", "-finclude-default-header"]
    library = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(LIBCLC)]
    target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx942"]
    subprocess.run([clang, "-x", "cl", *target, *options, *library, str(text), "-o", str(code)], check=True)
    return code


@pytest.mark.parametrize("schedule", SCHEDULES, ids=NAMES)
@pytest.mark.parametrize("orders", [("row", "row", "row"), ("col", "row", "col"), ("row", "col", "row")])
def test_the_simulator(schedule: Schedule, orders: tuple[Order, Order, Order], rng: np.random.Generator) -> None:
    a, b, c = orders
    spec = replace(SPEC, a_order=a, b_order=b, c_order=c)
    kernel = driver.lower(spec, schedule, GFX942)
    check_products(kernel, spec, rng, *SIZES, factors=(1.5, -0.5))


def test_parts_of_k(rng: np.random.Generator) -> None:
    program = driver.lower_program(SPEC, MFMA.but(split_k=3), GFX942)
    check_products(program, SPEC, rng, (33, 65, 83), factors=(1.5, -0.5))


def test_a_kernel_asks_for_no_extension() -> None:
    """All of its GPU's wavefronts have 64 lanes."""
    source = driver.emit(SPEC, MFMA, "opencl", GFX942)
    assert not source.extensions
    assert not re.search(r"#pragma OPENCL|sub_group_", source.text)
    assert "sub-groups of 4x16 work-items" in source.text
    assert re.search(r"Multiply +v_mfma_f32_16x16x16_f16, sums in float32", source.text)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=NAMES)
def test_the_machine_code(schedule: Schedule, rng: np.random.Generator, tmp_path: Path) -> None:
    hip.emulator()
    source = driver.emit(SPEC, schedule, "opencl", GFX942)
    code = machine_code(source, tool("clang"), tmp_path)
    for m, n, k in SIZES:
        drawn = Problem.of(rng, SPEC, m, n, k, 1.5, -0.5)
        a, b = (np.where(np.abs(x) < SMALLEST_NORMAL, 0, x).astype(x.dtype) for x in (drawn.a, drawn.b))
        problem, c = replace(drawn, a=a, b=b), drawn.c.copy()
        scalars = {"m": m, "n": n, "k": k, "lda": k, "ldb": n, "ldc": n, "alpha": 1.5, "beta": -0.5}
        hip.product(source, code, "gfx942", {"a": a, "b": b, "c": c}, scalars)
        problem.check(c)


@pytest.mark.parametrize(
    ("spec", "changed", "target", "problem"),
    [
        (GemmSpec(dtype=BF16), MFMA.but, "gfx942", "atom mfma multiplies float16, not bfloat16: use dtype float16"),
        (SPEC, MFMA.but, "portable", "lacks mfma: use --backend opencl --target gfx942, or atom fma"),
        (SPEC, partial(MFMA.but, tile=(6, 2)), "gfx942", "thread_vector of 4 rows does not divide the tile's 6"),
        (SPEC, partial(MFMA.but, group=(2, 16)), "gfx942", "lane_arrangement 4x16 does not divide the group's 2x16"),
        (SPEC, partial(MFMA.but, block_k=24), "gfx942", "block_k = 24 is not made of steps of 16: use block_k 16"),
        (SPEC, partial(MFMA.but, stages=2), "gfx942", "stages = 2 means nothing to mainloop Mfma"),
        (
            SPEC,
            partial(MFMA.but, lane_arrangement=(8, 4)),
            "gfx942",
            "lane_arrangement = 8x4 means nothing to mainloop Mfma: use lane_arrangement 4x16",
        ),
    ],
)
def test_refusals(spec: GemmSpec, changed: Callable[[], Schedule], target: str, problem: str) -> None:
    with pytest.raises(ScheduleError) as error:
        driver.emit(spec, changed(), "opencl", TARGETS[target])
    assert problem in str(error.value)


def test_hip_has_no_function_for_it() -> None:
    with pytest.raises(ScheduleError, match="lacks mfma"):
        driver.emit(SPEC, MFMA, "hip", GFX942)


def test_other_sub_groups_are_asked_for() -> None:
    """In OpenCL C nobody can have a part of a wavefront: a kernel for 8 lanes says so by NaN."""
    preset = presets.load("L3_SIMD_8x4_1x8")
    source = driver.emit(preset.spec, preset.schedule, "opencl", GFX942)
    assert "sub-groups of 8: where" in source.text and "get_max_sub_group_size() != 8" in source.text
