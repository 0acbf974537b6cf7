"""Which kernel a call on CUDA runs: the general one, or its variant that assumes aligned matrices. No GPU needed."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import TARGETS
from gemmgen.runtime.arrays import Request
from gemmgen.runtime.cuda import sizes_of
from gemmgen.runtime.variants import Variants, variants_of
from gemmgen.runtime.views import DeviceMatrix
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm

ADDRESS = 1 << 20


def matrix(number: int, rows: int, cols: int, ld: int, offset: int = 0) -> DeviceMatrix:
    """By rows, in memory of its own."""
    pointer = ADDRESS * number + offset
    return DeviceMatrix((rows, cols), (4 * ld, 4), np.dtype("f4"), pointer, 0)


def call(a: DeviceMatrix, b: DeviceMatrix, c: DeviceMatrix | None = None) -> Request:
    return check_gemm(GemmSpec(), a, b, c, kinds=lambda _: [])


def emitted(schedule: Schedule, spec: GemmSpec) -> Source:
    return driver.emit(spec, schedule, "cuda", TARGETS["sm_90"])


def variants(name: str = "async_8x8_8x16", exact: bool = False, ld_multiple: int = 1) -> Variants:
    preset = candidates.load(name)
    spec = replace(preset.spec, ld_multiple=ld_multiple)
    general = emitted(preset.schedule, spec)
    return Variants(general, variants_of(general, preset.schedule, exact), partial(emitted, preset.schedule))


A, B, C = matrix(1, 8, 12, 12), matrix(2, 12, 20, 24), matrix(3, 8, 20, 20)
SINGLE_LINE = matrix(1, 1, 5, 5), matrix(2, 5, 20, 20), matrix(3, 1, 20, 21)


@pytest.mark.parametrize("request_", [call(A, B), call(A, B, C), call(*SINGLE_LINE)], ids=["new c", "c", "one line"])
def test_aligned_arrays_get_the_twin(request_: Request) -> None:
    found = variants()
    twin = found.choose(request_)
    assert twin.spec == replace(found.general.spec, ld_multiple=4)
    assert "if (k_load + BK <= k && ldb % 4 == 0)" in found.general.text and "ldb % 4 == 0" not in twin.text
    assert twin.entry_points == found.general.entry_points
    assert found.choose(request_) is twin


@pytest.mark.parametrize(
    "request_",
    [
        call(replace(A, strides=(4 * 13, 4)), B),
        call(A, replace(B, strides=(4 * 21, 4))),
        call(A, B, replace(C, strides=(4 * 22, 4))),
        call(A, matrix(2, 12, 19, 20)),
        call(matrix(1, 8, 12, 12, offset=8), B),
        call(A, B, matrix(3, 8, 20, 20, offset=4)),
    ],
    ids=["lda", "ldb", "ldc", "a new c of 19 columns", "a's address", "c's address"],
)
def test_one_that_is_not_aligned_gets_the_general_kernel(request_: Request) -> None:
    found = variants()
    assert found.choose(request_) is found.general


def test_a_single_line_gets_a_leading_dimension_that_keeps_the_assumption() -> None:
    assert sizes_of(call(*SINGLE_LINE)) == {"m": 1, "n": 20, "k": 5, "lda": 8, "ldb": 20, "ldc": 20}
    assert sizes_of(call(matrix(1, 1, 1, 1), matrix(2, 1, 63, 63)))["ldb"] == 64
    assert sizes_of(call(matrix(1, 2, 3, 3), matrix(2, 3, 5, 7))) == {
        "m": 2,
        "n": 5,
        "k": 3,
        "lda": 3,
        "ldb": 7,
        "ldc": 5,
    }


def test_whole_tiles_get_a_twin_without_any_guard() -> None:
    found = variants()
    m, n, k = 128, 384, 64
    fits = call(matrix(1, m, k, k), matrix(2, k, n, n))
    twin = found.choose(fits)
    assert twin.spec == replace(found.general.spec, ld_multiple=4, multiple_of=(64, 128, 16))
    assert "min(" not in twin.text.split("__launch_bounds__")[1].split("#ifndef")[0]
    for ragged in ((m + 1, n, k), (m, n + 4, k), (m, n, k + 4)):
        m_, n_, k_ = ragged
        other = found.choose(call(matrix(1, m_, k_, k_), matrix(2, k_, n_, n_)))
        assert other.spec.multiple_of == (1, 1, 1)


def test_what_has_no_twin() -> None:
    for found in (variants(exact=True), variants(ld_multiple=4), variants("naive")):
        assert not found.assuming
        assert found.choose(call(A, B)) is found.general


def test_the_twin_is_emitted_when_first_needed() -> None:
    seen: list[object] = []

    preset = candidates.load("smem_8x8")

    def without_spills(spec: GemmSpec) -> Source:
        seen.append(spec.ld_multiple)
        if spec.ld_multiple == 4:
            raise ScheduleError("spills")
        return emitted(preset.schedule, spec)

    general = without_spills(preset.spec)
    found = Variants(general, variants_of(general, preset.schedule), without_spills)
    assert seen == [1]
    with pytest.raises(ScheduleError, match="spills"):
        found.choose(call(A, B))
    assert seen == [1, 4]


@pytest.mark.parametrize("target", ["intel", "khr", "portable"])
def test_opencl_needs_no_twin(target: str) -> None:
    """Its vectors need no alignment: with the assumption the same text comes out, but for the line that tells of it and
    commands in guards, which name a preset where that is all of it.
    """
    for name in candidates.names():
        preset = candidates.load(name)
        if driver.refusals(preset.spec, preset.schedule, "opencl", TARGETS[target]):
            continue
        texts = [
            driver.emit(replace(preset.spec, ld_multiple=n), preset.schedule, "opencl", TARGETS[target]).text
            for n in (1, 4)
        ]
        # 2D block writes alone ask for it, beside other paths.
        bodies = (text.split("\n\n", 1)[1].replace("ldc % 4 == 0 && ", "") for text in texts)
        general, assumed = (re.sub("^#error .*\n", "", body, flags=re.MULTILINE) for body in bodies)
        assert general == assumed
