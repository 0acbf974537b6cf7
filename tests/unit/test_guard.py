"""What kernels read at the edges of matrices."""

from __future__ import annotations

import re

import pytest

from gemmgen import driver
from gemmgen.candidates import load
from gemmgen.ir.target import TARGETS


@pytest.mark.parametrize(
    "preset",
    ["async_8x8_16x16", "mbarrier_8x16_16x16", "mbarrier_8x8_2x16_split8", "mma_f64_4x8_16x8", "mma_tf32_8x16_16x8"],
)
def test_copies_of_single_elements_read_nothing_past_the_end_of_a_line(preset: str) -> None:
    """Lanes past it that all read the last element wait for one another: 64x4353x3585 took 88 us so, and 61 without, by
    one kernel on an H200.
    """
    document = load(preset)
    text = driver.emit(document.spec, document.schedule, "cuda", TARGETS["sm_90a"]).text
    of_b = re.findall(r"cp_async_[48]_zfill\(\s*&shared\.(?:tiles\.)?b\[[^;]*;", text)
    assert of_b and not any("min(" in copy for copy in of_b)
    assert re.search(r"b_inside\s*=[^;]*\bcol0 \+ \w+ < n", text)
