"""The launchers and the self-checking programs, run on the CPU device."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.spec import GemmSpec
from tests.support import sycl
from tests.support.sycl_programs import run, run_program, write_kernels

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
    for line in printed.splitlines()[1:-1]:
        times = [float(found) for found in re.findall(r"(?:device|host) (\d+\.\d+) ms", line)]
        assert len(times) == (2 if name == "naive" else 1) and all(time > 0 for time in times)
        assert times == sorted(times), "the device's part of a run takes no longer than all of it"
    assert "WARM_UPS = 10;" in source.text and "ITERATIONS = 10;" in source.text
    if name == "naive":
        # The same program notices a wrong product: A's lines read as if they lay one element closer together.
        wrong = source.text.replace("a[row * lda + k0]", "a[row * (lda - 1) + k0]")
        assert wrong != source.text
        write_kernels(replace(source, text=wrong), tmp_path)
        with pytest.raises(AssertionError, match=r"[1-9]\d* elements wrong"):
            run(tmp_path)


def test_transpose(tmp_path: Path) -> None:
    printed = run_program(driver.emit_transpose(GemmSpec(), 16, "sycl", form="main"), tmp_path)
    assert printed.count(" 0 elements wrong") == 2


def test_a_launcher_refuses_what_breaks_an_assumption(tmp_path: Path) -> None:
    """A program keeps what its kernel assumes; with lines that do not, nothing is computed."""
    source = driver.emit(GemmSpec(ld_multiple=8), candidates.load("naive").schedule, "sycl", form="main")
    assert run_program(source, tmp_path).endswith("passed\n")
    broken = source.text.replace("const int lda = (k + 7) / 8 * 8;", "const int lda = k;")
    assert broken != source.text
    with pytest.raises(AssertionError, match="the arguments break the requirements in the head comment"):
        run_program(replace(source, text=broken), tmp_path)


def test_a_launcher_refuses_what_indices_do_not_reach(tmp_path: Path) -> None:
    """Lines that overlap, a matrix of 2^31 elements, a size whose steps overflow; but nothing of an A without elements.
    The program tries all, and then goes on as ever.
    """
    source = sycl.emit("naive", "main")
    tried = """
    const auto tries = [&](int depth, int pitch) {
        try {
            ::naive(queue, m, n, depth, alpha, a, pitch, b, ldb, beta, c, ldc).wait_and_throw();
        } catch (const sycl::exception &) {
            return 1;
        }
        return 0;
    };
    const int large = 2147482624;
    std::printf("refused %d %d %d %d\\n", tries(k, k - 1), tries(k, 1 << 23), tries(large, large), tries(0, 0));
"""
    before = "    const std::vector<float> before("
    assert before in source.text
    printed = run_program(replace(source, text=source.text.replace(before, tried + before)), tmp_path)
    assert printed.count("refused 1 1 1 0\n") == 2
    assert printed.endswith("passed\n")
