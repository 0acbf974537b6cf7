"""alpha = 0 and K = 0 in what is emitted: launchers, modules, head comments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import candidates, driver
from gemmgen.errors import SpecError
from gemmgen.explain import explain
from gemmgen.ir.dtypes import C64, I8
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import idle_without
from gemmgen.ir.target import TARGETS
from gemmgen.module import render_module
from gemmgen.options import build_spec
from gemmgen.spec import GemmSpec
from tests.support.tools import nvcc

NAIVE = candidates.load("naive").schedule
PACKED = candidates.load("smem_8x8_double_packed").schedule
UNREAD = "// Unread     "


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (GemmSpec(), "A and B where k is 0: pass k = 0 where alpha is 0; C where beta is 0"),
        (GemmSpec(alpha=2.0, beta=1.0), "A and B where k is 0"),
        (GemmSpec(k=8), "A and B where alpha is 0; C where beta is 0"),
        (GemmSpec(alpha=0.0), "C where beta is 0"),
        (GemmSpec(k=8, beta=1.0), "A and B where alpha is 0"),
        (GemmSpec(k=8, alpha=2.0, beta=1.0), None),
    ],
)
def test_the_head_comment_says_what_is_not_read(spec: GemmSpec, line: str | None) -> None:
    lines = driver.emit(spec, NAIVE).text.splitlines()
    assert [x for x in lines if x.startswith(UNREAD)] == ([] if line is None else [UNREAD + line])


@pytest.mark.parametrize("backend", ["cuda", "sycl"])
@pytest.mark.parametrize(
    ("spec", "condition"),
    [
        (GemmSpec(), "alpha == 0.0f"),
        (GemmSpec(dtype=I8), "alpha == 0"),
        (GemmSpec(dtype=C64), "alpha{} == 0.0f && alpha{} == 0.0f"),
        (GemmSpec(alpha=2.0), None),
        (GemmSpec(k=16), None),
    ],
)
def test_launchers_pass_no_depth_where_alpha_is_zero(spec: GemmSpec, condition: str | None, backend: str) -> None:
    text = driver.emit(spec, NAIVE, backend).text
    parts = ("[0]", "[1]") if backend == "sycl" else (".x", ".y")
    assert ("k = 0;" in text) == (condition is not None)
    if condition is not None:
        assert f"    if ({condition.format(*parts)}) {{\n        k = 0; // so that A and B are not read\n" in text


def test_a_kernel_that_packs_has_no_groups_without_depth() -> None:
    """CUDA refuses such a grid, and so the launcher must leave the kernel out; the product's own is never empty."""
    program = driver.lower_program(GemmSpec(), PACKED, TARGETS["intel"])
    assert [idle_without(kernel, Var("k")) for kernel in program.kernels] == [True, False]
    assert "    if (k > 0) {\n        const dim3 grid(" in driver.emit(GemmSpec(), PACKED, "cuda").text
    sycl = driver.emit(GemmSpec(), PACKED, "sycl").text
    assert sycl.count("if (k < 1) {") == 1
    assert sycl.index("if (k < 1) {") < sycl.index("pack_kernel>")


def test_where_k_is_folded_the_kernel_asks_for_alpha() -> None:
    """And a launcher leaves out the kernel that packs; constant bounds stay."""
    text = driver.emit(GemmSpec(k=32), PACKED).text
    assert UNREAD + "A and B where alpha is 0, by the kernel that multiplies; C where beta is 0" in text
    assert text.count("    // A and B are not read where alpha is zero.\n    if (alpha != 0.0f) {\n") == 1
    assert "#define BK 8\n" in text and "k0 < (BK + 31) / BK * BK; k0 += BK" in text
    cuda, sycl = (driver.emit(GemmSpec(k=32), PACKED, backend).text for backend in ("cuda", "sycl"))
    assert "    if (alpha != 0.0f) {\n        const dim3 grid(" in cuda
    assert "        if (alpha == 0.0f) {\n            return; // there is nothing to lay out\n" in sycl
    for text in (driver.emit(GemmSpec(k=32, alpha=1.5), PACKED, x).text for x in ("opencl", "cuda", "sycl")):
        assert "alpha" not in text.split("\n\n", 1)[1]
    # By vectors of its own a work-item sums nothing then.
    assert (
        "const int k_end = alpha == 0.0f ? 0 : 32;"
        in driver.emit(GemmSpec(k=32), candidates.load("cpu_6x64").schedule).text
    )


def test_what_leaves_nothing_to_do_is_refused() -> None:
    with pytest.raises(SpecError, match="alpha = 0 and beta = 1 leave C as it is"):
        GemmSpec(alpha=0.0, beta=1.0)
    with pytest.raises(SpecError, match="alpha = 0 leaves no product to explain"):
        explain(GemmSpec(alpha=0.0), NAIVE, TARGETS["intel"])


def test_an_epilogue_of_c_alone_is_something_to_do() -> None:
    spec = build_spec(alpha="0", beta="1", epilogue=["relu"])
    assert "< 0.0f ? 0.0f : " in driver.emit(spec, NAIVE).text
    with pytest.raises(SpecError, match="leave C as it is"):
        build_spec(alpha="0", beta="1")


def test_alpha_of_zero_is_a_kernel_of_c_alone() -> None:
    text = driver.emit(GemmSpec(alpha=0.0, beta=0.5), NAIVE).text
    assert text.startswith("// naive: C = 0.5 * C; float32\n")
    assert "__kernel void naive(int m, int n, __global float *restrict c, int ldc)" in " ".join(text.split())
    assert "c[row * ldc + col] = 0.5f * c[row * ldc + col];" in text
    assert driver.emit(GemmSpec(alpha=0.0, beta=0.0), NAIVE).text.startswith("// naive: C = 0; float32\n")


def test_compilers_take_it_without_warnings(tmp_path: Path) -> None:
    zero = GemmSpec(dtype=C64, alpha=0.0)
    boxes = candidates.load("wgmma_64x128_s4")
    cases = [(zero, NAIVE), (replace(zero, beta=0.0, batched=True), NAIVE), (GemmSpec(k=19), PACKED)]
    cases += [(replace(boxes.spec, k=64), boxes.schedule)]
    for spec, schedule in cases:
        nvcc(driver.emit(spec, schedule, "cuda").text, "sm_90a", tmp_path)


@pytest.mark.parametrize("backend", ["opencl", "cuda"])
def test_modules_take_empty_matrices(backend: str) -> None:
    text = render_module(driver.emit(GemmSpec(), NAIVE, backend))
    assert "    if alpha == 0:\n        k = 0  # so that A and B are not read\n" in text
    assert "if 0 in (m, n):  # nothing to compute\n" in text
    assert "k = 0" not in render_module(driver.emit(GemmSpec(alpha=1.0), NAIVE, backend))
    compile(text, "module", "exec")
