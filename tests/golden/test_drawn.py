"""Texts of requests that nobody chose: drawn as `gemmgen fuzz` draws them, compiled with the strictest warnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from gemmgen import candidates, driver
from gemmgen.fuzz import strategies
from gemmgen.fuzz.case import Case
from gemmgen.fuzz.checks import Place
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.support.tools import CLANG, STRICT, ran, tool

HOST = "-Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Werror"
#: What stands in the kernels is compiled elsewhere.
QUICK = ("-Xptxas", "-O0", "-Xcicc", "-O0")
COUNT = 12


def of_cuda(text: str, target: str, folder: Path) -> None:
    """Kernels and launcher, without a warning."""
    file, arch = folder / "drawn.cu", f"arch=compute_{target[3:]},code={target}"
    file.write_text(text)
    warnings = ("-Werror", "all-warnings", HOST)
    ran([tool("nvcc"), "-std=c++20", *warnings, *QUICK, "-gencode", arch, "-c", file, "-o", folder / "drawn.o"])


def of_opencl(text: str, folder: Path) -> None:
    """A kernel, without a warning."""
    file = folder / "drawn.cl"
    file.write_text(text)
    # Sizes that are folded or assumed leave parameters without a use.
    ran([tool("clang"), *CLANG, "-cl-std=CL3.0", "-DGEMMGEN_DPAS_SOFTWARE", *STRICT, "-Wno-unused-parameter", file])


@pytest.mark.parametrize("target", ["sm_75", "sm_90a"])
def test_cuda(target: str, tmp_path: Path) -> None:
    def compiles(drawn: tuple[Case, Place]) -> None:
        case, place = drawn
        of_cuda(driver.emit(case.spec, case.schedule, "cuda", place.target).text, target, tmp_path)

    each_of(Place.named("cuda", target), compiles)


@pytest.mark.parametrize("target", ["intel", "cpu", "gfx942"])
def test_opencl(target: str, tmp_path: Path) -> None:
    def compiles(drawn: tuple[Case, Place]) -> None:
        case, place = drawn
        of_opencl(driver.emit(case.spec, case.schedule, "opencl", place.target).text, tmp_path)

    each_of(Place.named("opencl", target), compiles)


def each_of(place: Place, compiles: Callable[[tuple[Case, Place]], None]) -> None:
    """Cases for a place, the same in every run."""
    run = given(strategies.cases([place]))(compiles)
    checks = list(HealthCheck)
    limits = settings(
        max_examples=COUNT, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=checks
    )
    seed(20)(limits(run))()


def test_a_load_that_only_a_part_of_a_tile_has_in_common(tmp_path: Path) -> None:
    """A's load is the same before the loop and in it, B's is not: both use the name of the step."""
    preset = candidates.load("smem_8x8_transposed")
    schedule = preset.schedule.but(name=None, stages=4, **{"a.transposed": False, "b.transposed": False})
    spec = GemmSpec(k=4096, multiple_of=(128, 128, 64), ld_multiple=4)
    of_cuda(driver.emit(spec, schedule, "cuda").text, "sm_80", tmp_path)
    of_opencl(driver.emit(spec, schedule, "opencl", TARGETS["gfx942"]).text, tmp_path)
