"""Places beyond 2^31 elements: counted in 64 bits where a spec says so or its sizes need it, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import KernelFault, ScheduleError
from gemmgen.ir.dtypes import I8
from gemmgen.ir.target import TARGETS
from gemmgen.module import render_module
from gemmgen.options import read_document
from gemmgen.runtime.call import WorkspaceSizes
from gemmgen.runtime.views import SpanError
from gemmgen.simulator.execute import run
from gemmgen.spec import GemmSpec
from tests.support.cli import printed
from tests.support.problems import Problem, interpret

#: Lines so far apart that the third one's places are no 32-bit integers; what lies between is never touched.
FAR = 2**30 + 8
NAMES = {"naive": "portable", "lds_8x8_16x16_k16_double": "portable", "smem_8x8_double": "sm_75"}


def product(name: str, wide: bool) -> None:
    """A of three lines, far apart, times a small B: exact."""
    spec = GemmSpec(dtype=I8, wide=wide)
    kernel = driver.lower(spec, candidates.load(name).schedule, TARGETS[NAMES[name]])
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((3, 5), (5, 4)))
    memory = np.zeros(2 * FAR + 5, np.int8)
    for row in range(3):
        memory[row * FAR : row * FAR + 5] = a[row]
    c = np.zeros(12, np.int32)
    known = {"m": 3, "n": 4, "k": 5, "alpha": 1, "beta": 0, "lda": FAR, "ldb": 4, "ldc": 4}
    run(kernel, {**known, "a": memory, "b": b.reshape(-1), "c": c})
    assert np.array_equal(c.reshape(3, 4), a.astype(np.int32) @ b)


@pytest.mark.parametrize("name", NAMES)
def test_int32_offsets_past_2_31_elements(name: str) -> None:
    """The interpreter counts no further than the kernel can."""
    product(name, wide=True)
    with pytest.raises(KernelFault, match=r"out-of-bounds: .* address [0-9]+ of 2147483648 elements"):
        product(name, wide=False)


@pytest.mark.parametrize(
    ("spec", "wide"),
    [
        (GemmSpec(), False),
        (GemmSpec(wide=True), True),
        (GemmSpec(m=46340, n=46340), False),
        (GemmSpec(m=46341, n=46341), True),
        (GemmSpec(m=1, n=1, k=2**31 - 2000), False),
        (GemmSpec(m=8, k=2**28), True),
    ],
)
@pytest.mark.parametrize("backend", ["opencl", "sycl", "cuda"])
def test_chosen_only_where_sizes_need_it(spec: GemmSpec, wide: bool, backend: str) -> None:
    source = driver.emit(spec, candidates.load("lds_8x8_16x16_k8").schedule, backend)
    pitches = {a.dtype for e in source.entry_points for a in e.arguments if a.name.startswith("ld")}
    assert pitches == {"int64" if wide else "int32"}
    assert source.span == (2**63 if wide else 2**31)
    assert ("matrices of any span" in source.text) == wide
    assert ("every matrix spans less than 2^31 elements" in source.text) != wide


@pytest.mark.parametrize("name", candidates.names()[::3])
def test_every_preset_can_be_wide(name: str) -> None:
    preset = candidates.load(name)
    backend = "cuda" if driver.refusals(preset.spec, preset.schedule) else "opencl"
    if preset.schedule.block_2d:
        with pytest.raises(ScheduleError, match="block_2d counts by 32 bits"):
            driver.emit(replace(preset.spec, wide=True), preset.schedule, backend)
        return
    source = driver.emit(replace(preset.spec, wide=True), preset.schedule, backend)
    # Read by blocks at addresses that lanes hold, A and B must else span less than 2^29 elements.
    assert source.span == 2**63


PASSED_ON = ["smem_8x8_double_packed", "mbarrier_8x8_2x16_split8", "mbarrier_8x16_8x8_slices4_packed"]


@pytest.mark.parametrize("name", PASSED_ON)
@pytest.mark.parametrize("batched", [False, True])
def test_memory_between_kernels(name: str, batched: bool) -> None:
    """Packed matrices and sums of parts are reached as far as A, B and C are; vectors stand where they did."""
    schedule, target = candidates.load(name).schedule, TARGETS["sm_90"]
    spec = GemmSpec(wide=True, batched=batched)
    program = driver.lower_program(spec, schedule, target)
    assert program.workspaces
    assert {m.reach for kernel in program.kernels for m in kernel.matrices} == {2**63}
    assert all(w.problem(2**40) is None for w in program.workspaces)
    text, narrow = (driver.emit(s, schedule, "cuda", target).text for s in (spec, replace(spec, wide=False)))
    assert ("Sizes      any m, n, k; matrices of any span\n" in text) and text.count("copy4(") == narrow.count("copy4(")
    if not batched:
        problem = Problem.random(np.random.default_rng(5), 9, 11, 21)
        problem.check(interpret(program, spec, problem, 3))


def test_the_workspaces_of_dpas_stay_narrow() -> None:
    preset = candidates.load("dpas_32x2_1x8")
    program = driver.lower_program(replace(preset.spec, wide=True), preset.schedule, TARGETS["intel"])
    said = [w.problem(2**31) for w in program.workspaces]
    assert said[0] == (
        "a_packed has 2,147,483,648 elements, more than 32-bit indices reach: multiply in parts, pack nothing, or (but "
        "for dpas) use --wide"
    )
    text = driver.emit(replace(preset.spec, wide=True), preset.schedule).text
    assert "matrices of any span; packed matrices less than 2^31 elements" in text


def test_where_it_is_said() -> None:
    assert "long lda" in printed("emit", "--preset", "naive", "--wide")
    assert "int lda" in printed("emit", "--preset", "naive")
    text = 'tile = "1x1"\ngroup = "8x8"\nblock_k = 1\n[spec]\nwide = '
    assert read_document(text + "true\n", "it").spec.wide
    with pytest.raises(ScheduleError, match=r"wide = 3 in \[spec\] is neither true nor false"):
        read_document(text + "3\n", "it")
    with pytest.raises(ScheduleError, match="a Python module counts in 32 bits: leave out --wide"):
        render_module(driver.emit(GemmSpec(wide=True), candidates.load("naive").schedule))


def test_a_call_asks_for_the_wider_twin() -> None:
    """As for matrices that span too much: of memory between kernels, whose sizes a call knows."""
    source = driver.emit(GemmSpec(), candidates.load("mbarrier_8x16_16x16_split7").schedule, "cuda")
    fits, too_many = {"m": 16384, "n": 16384, "k": 9}, {"m": 17600, "n": 17600, "k": 9}
    assert [*WorkspaceSizes(source).bytes(fits).values()][-1] == 4 * 7 * 2**28
    with pytest.raises(SpanError, match="the workspace has 2,168,320,000 elements"):
        WorkspaceSizes(source).bytes(too_many)
    wider = driver.emit(GemmSpec(wide=True), candidates.load("mbarrier_8x16_16x16_split7").schedule, "cuda")
    assert [*WorkspaceSizes(wider).bytes(too_many).values()][-1] == 4 * 7 * 17600**2
