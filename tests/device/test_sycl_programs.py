"""The launchers and the self-checking programs, run on the CPU device."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.sycl_programs import run_program

#: Single elements; block loads in two kernels; arrays in local memory and additions to C in one step. g++ takes five to
#: ten seconds for each.
NAMES = ["naive", "sg16_block_16x1_split4", "reduction_4x4_4x4"]

pytestmark = sycl.needs_device


@pytest.mark.parametrize("name", NAMES)
def test_program(name: str, tmp_path: Path) -> None:
    source = sycl.emit(name, "main")
    printed = run_program(source, tmp_path)
    assert "509 x 258 x 131: " in printed
    assert printed.count(" 0 elements wrong") == 2
    assert printed.endswith("passed\n")


def test_a_wrong_product_is_noticed(tmp_path: Path) -> None:
    """The stride that the program it grew from had: N where K is meant."""
    from dataclasses import replace

    source = sycl.emit("naive", "main")
    wrong = replace(source, text=source.text.replace("const int lda = k;", "const int lda = k - 1;"))
    with pytest.raises(AssertionError, match="elements wrong"):
        run_program(replace(wrong, text=wrong.text.replace("a[i * lda + p]", "a[i * k + p]")), tmp_path)


def test_transpose(tmp_path: Path) -> None:
    printed = run_program(driver.emit_transpose(GemmSpec(), 16, "sycl", form="main"), tmp_path)
    assert printed.count(" 0 elements wrong") == 2
