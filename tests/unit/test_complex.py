"""Complex elements and conjugates: what is said, what is refused, and how each language writes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.cli.matrices import Check, Matrices
from gemmgen.errors import LoweringError, ScheduleError, SpecError
from gemmgen.explain import explain
from gemmgen.ir.dtypes import C64, C128, F32, DType
from gemmgen.ir.expr import Bin, Const, Var, conj
from gemmgen.ir.numeric import numpy_dtype, poison
from gemmgen.ir.show import show, show_expr
from gemmgen.ir.stmt import Let
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.verify import verify
from gemmgen.methods import defaults
from gemmgen.module import render_module
from gemmgen.options import build_spec, read_document
from gemmgen.schedule import Operand
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm
from tests.support.cli import printed

WIDE = defaults("naive", (2, 2), (4, 4), 16).but(a=Operand(width=16))
NAIVE = candidates.load("naive").schedule


@pytest.mark.parametrize("dtype", [C64, C128], ids=str)
def test_numpy_agrees_on_the_parts(dtype: DType) -> None:
    known = numpy_dtype(dtype)
    assert (known.name, known.itemsize, known.kind) == (dtype.name, dtype.size, "c")
    assert dtype.real is not None
    assert np.zeros(1, known).real.dtype == numpy_dtype(dtype.real)
    nobody = np.array(poison(known), known)
    assert np.isnan(nobody.real)
    assert np.isnan(nobody.imag)


def test_factors_and_conjugates_as_they_are_written() -> None:
    spec = build_spec(dtype="complex64", alpha="1+2j", beta="2", conj="ab")
    assert (spec.alpha, spec.beta, spec.conj) == (1 + 2j, 2, (True, True))
    assert spec.formula() == "C = (1+2j) * conj(A) * conj(B) + 2 * C"
    assert GemmSpec(dtype=C128, alpha=0.1234567890123 + 2j).formula().startswith("C = (0.1234567890123+2j) * A * B")
    document = read_document('tile = "2x2"\n[spec]\ndtype = "complex128"\nconj_b = true\nbeta = "1j"', "here")
    assert (document.spec.dtype, document.spec.conj, document.spec.beta) == (C128, (False, True), 1j)
    assert build_spec(conj="a", base=document.spec).conj == (True, False)


def test_real_elements_have_no_conjugates() -> None:
    spec = GemmSpec(conj_a=True, conj_b=True)
    assert spec.conj == (False, False)
    assert driver.emit(spec, NAIVE).text == driver.emit(GemmSpec(), NAIVE).text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"alpha": "1+2j"}, "alpha = 1+2j is complex, but sums are float32: use a real one, or complex64"),
        ({"dtype": "complex64", "alpha": "1e39j"}, "alpha = 1e39j > 3.40282e+38, the largest factor of complex64"),
        ({"dtype": "complex64", "beta": "2i"}, "give one such as 1 or 0.5 or 1+2j"),
        ({"dtype": "complex64", "c_dtype": "float32"}, "no type of C where A and B are complex64: use complex64"),
        ({"conj": "c"}, "conj 'c' names no matrices: give a, b or ab"),
    ],
)
def test_what_does_not_go_together(options: dict[str, str], problem: str) -> None:
    with pytest.raises(SpecError) as error:
        build_spec(**options)  # type: ignore[arg-type]
    assert problem in str(error.value)


def test_a_flag_in_toml_is_a_flag() -> None:
    with pytest.raises(ScheduleError, match=r"conj_a = 'yes' in \[spec\] is neither true nor false"):
        read_document('tile = "2x2"\n[spec]\nconj_a = "yes"', "here")


@pytest.mark.parametrize(
    ("dtype", "preset", "target", "problem"),
    [
        (C64, "L3_SIMD_32x2_1x8", TARGETS["intel"], "a.shuffle passes registers of real numbers around"),
        (C64, "block_read_32x2_1x8", TARGETS["intel"], "pixels are float32, but dtype is complex64"),
        (C64, "mbarrier_8x16_16x16_atomic7", TARGETS["sm_90"], "atomic adds float32 to C, which is complex64"),
        (C64, "dpas_32x2_1x8", TARGETS["intel"], "atom dpas multiplies float16 or bfloat16 or int8, not complex64"),
        (C64, "wide", TARGETS["intel"], "a.width = 16 complex numbers are more than a vector's 16 real ones: use 8"),
        (C128, "naive", TARGETS["portable"], "dtype complex128, but target 'portable' has no arithmetic in float64"),
    ],
)
def test_refusals(dtype: DType, preset: str, target: Target, problem: str) -> None:
    schedule = candidates.load(preset).schedule if preset != "wide" else WIDE
    with pytest.raises(ScheduleError) as error:
        driver.lower(GemmSpec(dtype=dtype), schedule, target)
    assert problem in str(error.value)


def test_transposes_refuse_them() -> None:
    with pytest.raises(ScheduleError, match="dtype complex64, but lanes exchange real numbers"):
        driver.emit_transpose(GemmSpec(dtype=C64))


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("opencl", ("acc = cfma(conjugate(a_frag), b_frag, acc);", "beta.x == 0.0f")),
        (
            "cuda",
            ("make_float2(0.0f, 0.0f)", "fmaf(", "Needs      matrices that begin on multiples of 8"),
        ),
        ("sycl", ("const sycl::float2 *__restrict a", "beta[0] == 0.0f && beta[1] == 0.0f", "sycl::fma(")),
    ],
)
def test_words_of_each_language(backend: str, words: tuple[str, ...]) -> None:
    text = driver.emit(GemmSpec(dtype=C64, conj_a=True), NAIVE, backend).text
    assert "C = alpha * conj(A) * B + beta * C; complex64" in text
    assert not [word for word in words if word not in text]
    plain = driver.emit(GemmSpec(dtype=C128, alpha=1.0, beta=0.0), NAIVE, backend).text
    assert not [word for word in ("conjugate", "cmul", "cadd", "fmaf") if word in plain]
    assert "double2" in plain


def test_folded_factors_are_literals() -> None:
    text = driver.emit(GemmSpec(dtype=C64, alpha=1 - 2j, beta=3.0), NAIVE).text
    assert "cfma((float2)(3.0f, 0.0f), c[row * ldc + col], cmul((float2)(1.0f, -2.0f), acc));" in text
    assert "C = (1-2j) * A * B + 3 * C." in text


def test_a_module_takes_them() -> None:
    text = render_module(driver.emit(GemmSpec(dtype=C64), NAIVE))
    assert "np.complex64(alpha)," in text
    assert "a: complex64 [m, k], row-major." in text


def test_arrays_and_factors_of_a_call() -> None:
    a, b = np.zeros((2, 3), np.complex64), np.zeros((3, 4), np.complex64)
    spec = GemmSpec(dtype=C64)
    assert check_gemm(spec, a, b, alpha=1 + 2j).scalars == {"alpha": 1 + 2j, "beta": 0}
    assert check_gemm(spec, a, b, alpha=np.complex64(2j)).scalars["alpha"] == 2j
    with pytest.raises(SpecError, match=r"a has dtype complex128, not complex64: pass a\.astype\(np\.complex64\)"):
        check_gemm(spec, a.astype(np.complex128), b)
    with pytest.raises(SpecError, match=r"alpha = 'x' is of type str: pass a number"):
        check_gemm(spec, a, b, alpha="x")
    with pytest.raises(SpecError, match=r"alpha = 1j is of type complex: pass a real number"):
        check_gemm(GemmSpec(), a.real.copy(), b.real.copy(), alpha=1j)
    with pytest.raises(SpecError, match=r"alpha = 0\+2j, but the kernel has alpha = 0\+1j folded into it"):
        check_gemm(replace(spec, alpha=1j), a, b, alpha=2j)


def test_the_bound_of_complex_products_is_met_and_missed() -> None:
    """By sums that are rounded as a kernel's; not by one whose conjugate was forgotten, nor by an error in one part."""
    rng = np.random.default_rng(0)
    a, b = (x.astype(np.complex64) for x in rng.standard_normal((2, 40, 40)) + 1j * rng.standard_normal((2, 40, 40)))
    spec, data = GemmSpec(dtype=C64, conj_a=True, alpha=2j), Matrices(a, b, None)
    result = (2j * (a.conj() @ b)).astype(np.complex64)
    assert Check.of(data, spec, result).passed
    assert str(Check.of(data, spec, result)).endswith("2 gamma_2K |A||B|")
    assert not Check.of(data, spec, (2j * (a @ b)).astype(np.complex64)).passed
    assert not Check.of(data, spec, result + np.complex64(0.01j)).passed
    assert not Check.of(data, spec, np.where(result == result[0, 0], np.nan * 1j, result)).passed


def test_the_ir_shows_and_verifies_conjugates() -> None:
    kernel = driver.lower(GemmSpec(dtype=C64, conj_b=True), NAIVE, stop_after="build")
    assert "a_frag[k 0] * conj b_frag[k 0]" in show(kernel)
    assert show_expr(conj(Var("x", C64))) == "conj(x)"
    x = Var("alpha", C64)
    wrong = (conj(Const(1.0, F32)), Bin("<", x, x), Bin("-", x, x), Const(1j, F32))
    lowered = driver.lower(GemmSpec(dtype=C64), NAIVE)
    for value in wrong:
        with pytest.raises(LoweringError, match=r"not complex|on complex64|no float32"):
            verify(replace(lowered, body=(Let(Var("y", value.dtype), value),)), TARGETS["intel"])


def test_a_complex_multiply_add_is_eight_flops() -> None:
    texts = [explain(GemmSpec(dtype=d), NAIVE, TARGETS["intel"]) for d in (F32, C64)]
    lines = [next(x for x in text.splitlines() if x.startswith("  memory")) for text in texts]
    real, other = (float(line.split()[1]) for line in lines)
    assert other == 2 * real  # twice the bytes, four times the flops


def test_the_command_line() -> None:
    text = printed("emit", "--preset", "naive", "--dtype", "complex64", "--conj", "b", "--alpha", "1+2j")
    assert "C = (1+2j) * A * conj(B) + beta * C; complex64" in text
