"""What a spec, the command line and a call make of prologues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.checks.capacity import local_bytes
from gemmgen.epilogue import OPERANDS
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import C64, F16, F32, I8, I32
from gemmgen.ir.kernel import _ORDER
from gemmgen.ir.show import show
from gemmgen.ir.stmt import Alloc
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.kernel_names import kernel_name
from gemmgen.methods import defaults
from gemmgen.module import render_module
from gemmgen.names import name_problem
from gemmgen.options import build_spec, read_document
from gemmgen.spec import GemmSpec
from tests.device.naive import needs_device
from tests.support.arrays import check_gemm
from tests.support.cli import printed, refused

NAIVE = candidates.load("naive").schedule


def problems(**fields: object) -> tuple[str, ...]:
    """What such a spec is refused for."""
    with pytest.raises(SpecError) as caught:
        GemmSpec(**fields)  # type: ignore[arg-type]
    return caught.value.problems


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("made", [{"prologue_a": "a - a_zero"}, {"prologue_b": "b - b_zero_32"}], ids=str)
def test_every_language_converts_zero_points_to_wide_types(made: dict[str, str], dtype: str, backend: str) -> None:
    text = driver.emit(GemmSpec(dtype=dtype, **made), NAIVE, backend).text  # type: ignore[arg-type]
    if backend == "opencl":
        assert {"float64": "convert_double(", "int64": "convert_long("}[dtype] in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 1"),
        ("b +", "character 4: invalid syntax: write one as b * b_scale"),
        ("b * a", "character 5: unknown name 'a': use b, k, col, b_scale"),
        ("b * a_scale", "unknown name 'a_scale'"),
        ("b * row", "unknown name 'row'"),
        ("acc * 2", "unknown name 'acc'"),
        ("b * scale", "unknown name 'scale'"),
        ("relu", "unknown name 'relu'"),
        ("expr: b * 2", "invalid syntax"),
        ("b_scale * 2", "it does not name b, the element that it is made of"),
        ("import os", "invalid syntax"),
        ("__import__('os').system('ls')", "a call of anything but a function by its name"),
        ("open(b)", "unknown function 'open': use exp"),
        ("b.real", "an attribute is not allowed"),
        ("b\n", "it does not name"),
        ("b /* */", "invalid syntax"),
        ("b \\ 2", "unexpected character"),
        ("b" + " * b" * 2_500_000, "10,000,001 characters > 1000"),
        ("(" * 400 + "b" + ")" * 400, "too many nested parentheses"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_no_prologue(text: str, words: str) -> None:
    if text == "b\n":  # ends and beginnings are not part of it
        assert GemmSpec(prologue_b=text).prologue_b == "b"
        return
    found = problems(prologue_b=text)
    assert all(problem.startswith("prologue_b ") and len(problem) < 500 for problem in found)
    assert any(words in problem for problem in found), found


def test_every_problem_is_said_at_once() -> None:
    assert len(problems(prologue_a="x + exp(1, a) + a.y", prologue_b="col", epilogue=("gleu",))) == 5
    assert "prologue_b = 3: give a text, such as 'b * b_scale', or None" in problems(prologue_b=3)
    assert "prologue_a takes real numbers, but dtype is complex64" in problems(prologue_a="a * 2", dtype=C64)[0]
    fits = "which few whole numbers fit: use dtype float32 with b_dtype int8"
    assert fits in problems(prologue_b="b * b_scale", dtype=I8)[0]
    assert "/ divides floats, but sums are int32" in problems(prologue_b="b / 2", dtype=I32)[0]


def test_equal_prologues_are_equal_however_they_are_written() -> None:
    spec = GemmSpec(prologue_a=" ((a))*2 + (1)", prologue_b="b")
    assert (spec.prologue_a, spec.prologue_b) == ("a * 2 + 1", "b")
    assert spec == replace(spec, prologue_a="a*2+1")
    assert spec != GemmSpec(prologue_a="a * 2 + 1")


def test_operands_come_in_one_order_and_none_without_a_product() -> None:
    spec = GemmSpec(prologue_a="a * a_factor - a_shift_k", prologue_b="b * b_scale", epilogue=("bias",))
    assert spec.operands == tuple(x for x in OPERANDS if x in {"a_factor", "a_shift_k", "b_scale", "bias"})
    assert replace(spec, alpha=0.0).operands == ("bias",)
    for schedule in (NAIVE, candidates.load("smem_8x8_double_packed").schedule, NAIVE.but(split_k=2)):
        for backend in BACKENDS:
            source = driver.emit(spec, schedule, backend)
            taken = [a.name for point in source.entry_points for a in point.arguments if a.name in OPERANDS]
            assert taken == list(spec.operands), (backend, kernel_name(schedule, spec))
    assert "a_factor" not in driver.emit(replace(spec, alpha=0.0), NAIVE).text


def test_operands_and_helpers_name_no_kernel() -> None:
    for name in (*OPERANDS, "float_to_half_bits", "half_bits_to_float", "bfloat16_bits_to_float", "float_to_bfloat16"):
        assert name_problem(name) is not None, name
    assert name_problem("bfloat_in_integers") is None


def test_operands_have_the_type_of_sums() -> None:
    spec = GemmSpec(dtype=F16, prologue_b="b * b_scale", epilogue=("bias",))
    assert (spec.operand("b_scale"), spec.operand("bias")) == (F32, F16)
    text = driver.emit(spec, NAIVE, "cuda").text
    assert "const float *__restrict__ b_scale" in text
    assert "const __half *__restrict__ bias" in text


# --- schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend", "words"),
    [
        (
            "async_4x4_8x16",
            "cuda",
            "prologue_b, but b.async_copy fills local memory past the registers: set b.prepacked",
        ),
        ("mbarrier_8x16_16x16_packed_a", "cuda", "prologue_b, but b.async_copy"),
        ("mma_tf32_8x16_16x8", "cuda", "prologue_b, but b.async_copy"),
        (
            "L3_SIMD_16x2_1x8",
            "opencl",
            "prologue_b is applied by single work-items, not in block reads: set b.prepacked",
        ),
        ("block_read_16x2_1x8", "opencl", "prologue_b is applied by single work-items"),
        ("cpu_6x64", "opencl", "prologue_b, but vectors take A and B as they are: use method slm, or naive"),
    ],
)
def test_where_no_element_is_at_hand(name: str, backend: str, words: str) -> None:
    preset = candidates.load(name)
    spec = replace(preset.spec, prologue_a="a * 2", prologue_b="b * b_scale")
    with pytest.raises(ScheduleError) as caught:
        driver.emit(spec, preset.schedule, backend)
    of_a = [problem for problem in caught.value.problems if "prologue_a" in problem]
    assert bool(of_a) == (not preset.schedule.a.prepacked)
    assert any(words in problem for problem in caught.value.problems)
    assert any("prologue_b" in problem for problem in driver.refusals(spec, preset.schedule, backend))


def test_matrix_instructions_take_what_was_packed() -> None:
    """Tensor cores multiply float16, whatever the matrices are stored in, once a kernel has made them that."""
    preset = candidates.load("mma_4x8_16x8")
    a, b = (replace(o, prepacked=True) for o in (preset.schedule.a, preset.schedule.b))
    schedule = preset.schedule.but(a=a, b=b, name=None)
    spec = replace(preset.spec, dtype=F16, prologue_a="a * a_scale_k", prologue_b="b * b_scale")
    pack, main = driver.emit(spec, schedule, "cuda").entry_points
    assert "b_scale" in {a.name for a in pack.arguments}
    assert "b_scale" not in {a.name for a in main.arguments}


def test_local_memory_holds_what_was_made() -> None:
    """Of int8 it would hold four times as many elements."""
    schedule, target = candidates.load("smem_8x8").schedule, TARGETS["intel"]
    plain = GemmSpec(a_dtype=I8, b_dtype=I8)
    made = replace(plain, prologue_a="a * 2", prologue_b="b * 2")
    assert local_bytes(made, schedule, target) == 4 * local_bytes(plain, schedule, target)
    kernel = driver.lower(made, schedule)
    assert sum(s.buffer.bytes for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL) == (
        local_bytes(made, schedule, target)
    )


def test_what_has_no_prologue() -> None:
    spec = GemmSpec(prologue_b="b * b_scale")
    with pytest.raises(ScheduleError, match="form main checks plain products, not prologues"):
        driver.emit(spec, NAIVE, "sycl", form="main")
    with pytest.raises(ScheduleError, match="takes no arrays but A and B, but this one b_scale"):
        render_module(driver.emit(spec, NAIVE))
    compile(render_module(driver.emit(GemmSpec(prologue_b="b * 2"), NAIVE)), "naive.py", "exec")


# --- the command line, files and calls ------------------------------------------------------------


def test_options_and_files_say_the_same() -> None:
    options = ("--prologue-a", "a*a_scale_k", "--prologue-b", "(b - b_shift)*b_scale", "--b-dtype", "int8")
    text = printed("emit", "--method", "naive", *options)
    assert "C = alpha * prologue(A) * prologue(B) + beta * C; float32, B stored in int8" in " ".join(
        text.replace("//", "").split()
    )
    assert "// Prologue   A: a * a_scale_k\n//            B: (b - b_shift) * b_scale\n" in text
    assert "//            b_shift: an element for each column of B\n" in text
    written = 'b_dtype = "int8"\nprologue_a = "a*a_scale_k"\nprologue_b = "(b - b_shift)*b_scale"\n'
    document = read_document(f'method = "naive"\n[spec]\n{written}', "here")
    assert driver.emit(document.spec, document.schedule).text == text
    assert build_spec(base=document.spec) == document.spec
    assert build_spec(base=document.spec, prologue_b="b*2") == replace(document.spec, prologue_b="b * 2")
    with pytest.raises(SpecError, match="prologue_b '': character 1"):
        build_spec(base=document.spec, prologue_b="")
    with pytest.raises(ScheduleError, match="prologue_b = \\['b'\\] is not text"):
        read_document('method = "naive"\n[spec]\nprologue_b = ["b"]\n', "here")
    assert "--prologue-b means nothing to --kernel transpose" in refused("emit", "--kernel", "transpose", *options)
    tiles = show(driver.lower(document.spec, candidates.load("lds_8x8_16x16_k8").schedule, stop_after="build"))
    assert (
        "b_shared[0, 0] 8x128 <- cooperative_copy x4 b[k0, col0] 8x128, made into (element - b_shift[element_line]) *"
        in tiles
    )


@needs_device
def test_run_with_random_operands() -> None:
    options = ["--prologue-b", "(b - b_shift_k) * b_scale", "--b-dtype", "int8", "--prologue-a", "a * a_factor"]
    text = printed("run", "-k", "naive", "-M", "33", "-N", "21", "-K", "17", "-i", "1", "-v", *options)
    assert "validation passed" in text
    assert "through the prologue" in text


def test_operands_of_a_call() -> None:
    spec = GemmSpec(dtype=F16, prologue_a="a * a_scale", prologue_b="b * b_scale_k * b_factor")
    a, b = np.zeros((5, 3), np.float16), np.zeros((3, 7), np.float16)
    ones = np.ones(8, np.float32)
    good = {"a_scale": ones[:5], "b_scale_k": ones[:3], "b_factor": ones[:1]}
    assert list(check_gemm(spec, a, b, operands=good).inputs) == ["a", "b", *good]
    wrong = {"a_scale": ones[:5].astype(np.float16), "b_scale_k": ones[:7], "b_factor": ones}
    with pytest.raises(SpecError) as caught:
        check_gemm(spec, a, b, operands=wrong)
    found = "; ".join(caught.value.problems)
    assert "a_scale has dtype float16, not float32" in found
    assert "b_scale_k has 7 elements, not 3: pass one for each row of b" in found
    assert "b_factor has 8 elements, not 1: pass one for all of b" in found


def test_launchers_take_what_kernels_take_in_their_order() -> None:
    """Scales of groups stand before an epilogue's arrays in both, since a swap of two `const float *` compiles."""
    assert [name for name in _ORDER if name in OPERANDS] == list(OPERANDS)
    spec = GemmSpec(b_dtype=I8, prologue_b="b * b_scale_32", epilogue=("bias",))
    text = driver.emit(spec, defaults("slm"), "cuda").text
    kernel, launcher = (text[text.rindex(start) :] for start in ("__global__", "_launch("))
    assert kernel.index("b_scale_32") < kernel.index("bias")
    assert launcher.index("b_scale_32") < launcher.index("bias")
