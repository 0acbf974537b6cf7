"""The launchers and the self-checking programs, run on the CPU device."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import driver
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.sycl_programs import run_program

#: One each of: single elements, block loads, arrays in local memory. g++ takes ten seconds for each.
NAMES = ["naive", "sg16_block_16x2", "smem_8x8_double"]

pytestmark = sycl.needs_device


@pytest.mark.parametrize("name", NAMES)
def test_program(name: str, tmp_path: Path) -> None:
    source = sycl.emit(name, "main")
    printed = run_program(source, source.text.count("sycl::local_accessor<"), tmp_path)
    assert "509 x 258 x 131: " in printed
    assert printed.count(" 0 elements wrong") == 2
    assert printed.endswith("passed\n")


def test_a_wrong_product_is_noticed(tmp_path: Path) -> None:
    """The stride that the program it grew from had: N where K is meant."""
    from dataclasses import replace

    source = sycl.emit("naive", "main")
    wrong = replace(source, text=source.text.replace("const int lda = k;", "const int lda = k - 1;"))
    with pytest.raises(AssertionError, match="elements wrong"):
        run_program(replace(wrong, text=wrong.text.replace("a[i * lda + p]", "a[i * k + p]")), 0, tmp_path)


def test_transpose(tmp_path: Path) -> None:
    printed = run_program(driver.emit_transpose(GemmSpec(), 16, "sycl", form="main"), 0, tmp_path)
    assert printed.count(" 0 elements wrong") == 2
