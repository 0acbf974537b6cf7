"""Shared memory of a fixed size, the registers of blocks beside one another in CUDA, and where barriers stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import driver, presets
from gemmgen.ir.dtypes import C64
from gemmgen.ir.target import TARGETS
from gemmgen.options import build_schedule
from gemmgen.spec import GemmSpec

TILED = ("smem_8x8", "smem_8x8_transposed", "smem_8x8_double", "smem_8x8_double_packed", "lds_8x8_16x16_k8")


def emitted(name: str, backend: str = "cuda", **changes: object) -> str:
    preset = presets.load(name)
    return driver.emit(preset.spec, preset.schedule.but(**changes), backend).text


@pytest.mark.parametrize("backend", ["cuda", "hip"])
@pytest.mark.parametrize("name", TILED)
def test_each_tile_is_an_array_of_its_own(name: str, backend: str) -> None:
    """Of members of one struct, compilers load fragments later: 2 to 4 % of the time on an H100."""
    text = emitted(name, backend)
    assert text.count("__shared__ __align__(16) float") == 2
    assert "Shared" not in text


@pytest.mark.parametrize("name", ["async_8x8_16x16", "mma_8x16_16x8", "mbarrier_8x16_16x16"])
def test_memory_that_the_launch_asks_for_is_a_struct(name: str) -> None:
    text = emitted(name)
    assert "struct Shared {" in text
    assert "sizeof(Shared)" in text


def test_registers_are_left_for_blocks() -> None:
    assert "__launch_bounds__(smem_8x8_detail::THREADS, 2)" in emitted("smem_8x8")
    assert "registers for 2 blocks per multiprocessor" in emitted("smem_8x8").replace("\n//            ", " ")
    assert "_detail::THREADS)" in emitted("smem_8x8", min_blocks=0)
    assert "THREADS, 2)" not in emitted("smem_8x8", "hip"), "the second bound of HIP counts something else"


def test_registers_are_left_for_as_many_blocks_as_there_is_room_for() -> None:
    assert "_detail::THREADS, 3)" in emitted("smem_8x8", min_blocks=6)
    preset = presets.load("smem_8x8")
    doubled = driver.emit(replace(preset.spec, dtype=C64), preset.schedule, "cuda").text
    assert "_detail::THREADS, 1)" in doubled
    assert emitted("smem_8x8", "opencl", min_blocks=6), "of others it means nothing"


@pytest.mark.parametrize(("target", "backend", "leads"), [("portable", "opencl", False), ("sm_90", "cuda", True)])
def test_loops_begin_with_a_barrier_where_that_is_compiled_right(target: str, backend: str, leads: bool) -> None:
    """PoCL 5 to 7 computed half of C wrong by kernels whose loop began with one."""
    preset = presets.load("smem_8x8_double_packed")
    small = preset.schedule.but(tile=(4, 4), thread_vector=(4, 4), name="small")
    lines = driver.emit(preset.spec, small, backend, TARGETS[target]).text.split("for (int k0 = 0;")[1].splitlines()
    is_barrier = [line.strip().startswith(("barrier(", "__syncthreads(")) for line in lines]
    first, end = is_barrier.index(True), lines.index("    }")
    assert (first < 5) == leads
    assert sum(is_barrier[:end]) == 1


def test_stages_ahead_are_filled_by_a_loop() -> None:
    """Of a fixed number of stages, too, in languages without functions in functions."""
    schedule = build_schedule("slm", tile="6x4", group="8x16", block_k="12", sets=("stages=4",))
    text = driver.emit(GemmSpec(), schedule).text
    # Blocks at the edge of C have a loop of their own.
    assert text.count("for (int load_stage = 0; load_stage < STAGES - 1; ++load_stage) {") == 2
