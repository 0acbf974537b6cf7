"""The language of formulas, and what a spec and a call make of epilogues."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmgen import candidates, driver
from gemmgen.backends import BACKENDS
from gemmgen.epilogue import FUNCTIONS, GATES, NAMED, NAMES, OPERANDS, UP
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.formulas import DEEPEST, MOST_CHARACTERS, formula, parse
from gemmgen.ir.dtypes import BF16, F32, F64, I8, I32, DType
from gemmgen.ir.functions import FAST, MATH
from gemmgen.module import render_module
from gemmgen.reference import FAST_ERROR, FAST_LEAST, Bounded, finished
from gemmgen.runtime.arrays import check_extents
from gemmgen.simulator.evaluate import MEANINGS
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm
from tests.support.cli import gemmgen, printed, refused

#: The operands of epilogues.
OF_C = [name for name, operand in OPERANDS.items() if operand.of == "c"]


def problems(*epilogue: str, **fields: object) -> tuple[str, ...]:
    """What a spec with that epilogue is refused for."""
    with pytest.raises(SpecError) as caught:
        GemmSpec(epilogue=epilogue, **fields)  # type: ignore[arg-type]
    return caught.value.problems


# --- the language ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "character 1"),
        ("acc +", "character 6: invalid syntax"),
        ("acc + foo", "character 7: unknown name 'foo': use acc, c, row"),
        ("open('x')", "character 1: unknown function 'open': use exp"),
        ("neg(acc)", "unknown function 'neg'"),
        ("acc.real", "character 1: an attribute is not allowed"),
        ("acc[0]", "character 1: a subscript is not allowed"),
        ("lambda: acc", "a lambda is not allowed"),
        ("import os", "invalid syntax"),
        ("__import__('os')", "unknown function '__import__'"),
        ("[acc for acc in c]", "ListComp is not allowed"),
        ("acc := 1", "invalid syntax"),
        ("(acc := 1)", "NamedExpr is not allowed"),
        ("acc ** 2", "this operator is not allowed"),
        ("acc // 2", "this operator is not allowed"),
        ("~acc", "this sign is not allowed"),
        ("acc < 1", "a comparison outside of `x if a < b else y`"),
        ("1 if acc else 2", "a condition other than one comparison"),
        ("1 if 0 < acc < 1 else 2", "a condition other than one comparison"),
        ("1 if acc < 1 and c < 1 else 2", "a condition other than one comparison"),
        ("exp()", "exp takes 1 arguments, not 0"),
        ("exp(*acc)", "Starred is not allowed"),
        ("exp(x=acc)", "with keywords, is not allowed"),
        ("(exp)(acc)(acc)", "a call of anything but a function by its name"),
        ("'acc'", "str is no number"),
        ("True", "bool is no number"),
        ("None", "NoneType is no number"),
        ("1j", "complex is no number"),
        ("1e39", "a number exceeds float32's 3.40282e+38"),
        ("1e999", "a number exceeds"),
        ("-1e999", "a number exceeds"),
        ("1" + "0" * 900, "a number exceeds"),
        ("1e-40", "is below float32's 1.18e-38"),
        ("acc\n+ 1", "character 4, '\\n', is not ASCII or not printable"),
        ("acc + \u00b5", "character 7, '\u00b5', is not ASCII"),
        ("acc\x00", "is not ASCII or not printable"),
        ("acc" + " + acc" * 10**6, f"6,000,003 characters > {MOST_CHARACTERS}"),
        ("a" * 10_000_000, "10,000,000 characters"),
        ("(" * 400 + "acc" + ")" * 400, "too many nested parentheses"),
        ("-" * 900 + "acc", "nested deeper"),
        ("acc" + " + acc" * DEEPEST, f"nested deeper than {DEEPEST}: write it flatter"),
        ("exp(" * DEEPEST + "acc" + ")" * DEEPEST, "nested deeper"),
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_no_formula(text: str, words: str) -> None:
    found = problems(f"expr: {text}")
    assert all(problem.startswith("epilogue ") and len(problem) < 500 for problem in found)
    assert any(words in problem for problem in found), found


def test_every_problem_is_said_at_once() -> None:
    assert len(problems("gleu", "expr: foo + exp(1, 2) + x.y + acc[0]", "clamp(6, 0)", "clamp", "relu(1)")) == 8
    assert "did you mean gelu" in problems("gleu")[0]
    assert "write clamp(low, high)" in problems("clamp(1)")[0]
    assert "is no number" in problems("clamp(low, high)")[0]
    assert "neither a function nor" in problems("acc * 2")[0]
    (told,) = problems("bias, clamp(0, 6)")
    assert "give each by itself, ['bias', 'clamp(0, 6)'] or --epilogue bias --epilogue clamp(0, 6)" in told
    assert "17 > 16 functions" in problems(*["relu"] * 17)[0]


def test_what_functions_take_is_told() -> None:
    for text in ("gelu(fast)", "gelu(0.5)"):
        assert problems(text) == (f"epilogue {text!r}: gelu takes no numbers: write gelu or gelu(exact)",)
    assert problems("relu(1)") == ("epilogue 'relu(1)': relu takes no numbers: write relu",)
    assert "leaky_relu takes 1 number, not 0: write leaky_relu(slope)" in problems("leaky_relu")[0]


def test_epilogues_that_are_no_tuple_of_texts() -> None:
    for wrong in (("bias", 1), ["bias", 1], None, 3):
        with pytest.raises(SpecError, match="give a tuple of texts"):
            GemmSpec(epilogue=wrong)  # type: ignore[arg-type]


def test_whole_numbers_have_no_functions_of_floats() -> None:
    assert "0.5 is no whole number, but sums are int32" in problems("gelu", dtype=I8)[0]
    assert "tanh is a function of floats" in problems("tanh", dtype=I8)[0]
    # Nobody wrote the formula of a named function, which no character is said of.
    assert not [problem for problem in problems("gelu", "geglu", dtype=I8) if "character" in problem]
    assert "/ divides floats" in problems("expr: acc / 2", dtype=I8)[0]
    assert GemmSpec(dtype=I8, epilogue=("bias", "relu", "clamp(-3, 3)", "expr: max(acc, -col)")).operands == ("bias",)


def test_equal_epilogues_are_equal_however_they_are_written() -> None:
    spec = GemmSpec(epilogue=(" clamp( 0,6 ) ", "expr:  ((acc))*2 + (1)"))
    assert spec.epilogue == ("clamp(0, 6)", "expr: acc * 2 + 1")
    assert spec == replace(GemmSpec(), epilogue=("clamp(0, 6)", "expr: acc*2+1"))
    assert hash(spec) == hash(replace(spec))


def test_operands_come_in_one_order() -> None:
    spec = GemmSpec(epilogue=("residual", "bias", "expr: acc * row_scale"))
    assert spec.operands == tuple(name for name in OPERANDS if name in {"residual", "bias", "row_scale"})
    assert not spec.names_c
    assert GemmSpec(epilogue=("expr: c - acc",)).names_c


_numbers = st.sampled_from(["0", "2", "0.5", "-3", "1e-3"])
_texts = st.recursive(
    st.one_of(_numbers, st.sampled_from(NAMES)),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("-({})".format, inner),
        st.builds(
            "{}({})".format, st.sampled_from([n for n, f in MATH.items() if f.arguments == 1 and n != "neg"]), inner
        ),
        st.builds("({} if {} {} {} else {})".format, inner, inner, st.sampled_from(["<", ">=", "=="]), inner, inner),
        st.builds("max(fma({}, {}, 1), {})".format, inner, inner, inner),
    ),
    max_leaves=6,
)


@given(_texts)
def test_formulas_mean_what_python_means(text: str) -> None:
    """The same numbers as Python's own evaluation, all of them floats; the text that is shown means the same, too."""
    tree = parse(text)
    values = {name: np.float64(i + 0.25) for i, name in enumerate(NAMES)}
    places = dict.fromkeys(("row", "col"), np.float64(0))
    spec = GemmSpec(dtype=F64, epilogue=(f"expr: {text}",))
    assert formula(ast.parse(spec.functions[0].formula, mode="eval").body, NAMES, F64) == formula(tree, NAMES, F64)
    functions = {**MEANINGS, "fma": lambda x, y, z: x * y + z, "number": np.float64}
    of_floats = re.sub(r"(?<![\w.])[\d.]+(e-\d+)?", r"number(\g<0>)", text)
    with np.errstate(all="ignore"):
        expected = float(eval(of_floats, functions, {**values, **places}))
    one = np.zeros((1, 1))
    operands = {name: np.full({"n": 1, "m": 1, "mn": (1, 1)}[OPERANDS[name].axes], values[name]) for name in OF_C}
    result = finished(spec, Bounded(one + values["acc"], one), one + values["c"], operands).value
    assert np.array_equal(result, [[expected]], equal_nan=True)


def test_functions_of_numbers_have_meanings() -> None:
    assert {*MATH, *FAST} == MEANINGS.keys()


# --- fast functions -------------------------------------------------------------------------------

#: What is fast on a GPU of NVIDIA.
FASTER = [name for name, function in NAMED.items() if function.fast is not None]


@pytest.mark.parametrize("name", FASTER)
def test_fast_functions_keep_within_their_bound(name: str) -> None:
    """In float32, as on a device, beside the exact formula in float64; where that is not finite, neither are they."""
    x = np.concatenate([np.linspace(-40, 40, 80_001), [1e-30, -1e-30, 1e4, -1e4, np.nan, np.inf]]).astype(np.float32)
    (row,) = GemmSpec(epilogue=(name,)).functions
    assert row.fast is not None
    functions = {**MEANINGS, "acc": x, UP: np.float32(1)}
    with np.errstate(all="ignore"):
        fast = eval(row.fast[0], dict(functions))
        exact = eval(row.formula, {**functions, "acc": x.astype(np.float64)})
    assert np.array_equal(np.isfinite(fast), np.isfinite(exact))
    known = np.isfinite(exact)
    most = FAST_ERROR * np.abs(exact[known]) + FAST_LEAST * np.abs(x[known])
    assert (np.abs(fast[known] - exact[known]) <= most).all()
    near = known & (np.abs(x) < 5)
    assert (np.abs(fast[near] - exact[near]) <= 2.0**-9 * np.abs(exact[near])).all(), "in the tail as well"


@pytest.mark.parametrize("name", FASTER)
def test_functions_are_fast_where_c_has_16_bits(name: str) -> None:
    """Not of a wider C, not in a formula, not in a language without such functions, and not where the word says so."""

    def text(epilogue: str, dtype: DType = BF16, backend: str = "cuda", preset: str = "smem_8x8") -> str:
        return driver.emit(GemmSpec(dtype=dtype, epilogue=(epilogue,)), candidates.load(preset).schedule, backend).text

    assert "fast_exp2(" in text(name)
    exact = [text(name, F32), text(f"{name}(exact)"), text(f"expr: {NAMED[name].formula}"), text(name, BF16, "hip")]
    assert not any("fast_" in x for x in exact)
    assert f"then {name}(exact)" in exact[1]


def test_what_has_no_fast_way_needs_no_word() -> None:
    with pytest.raises(SpecError, match=r"relu is always exact: leave \(exact\) out"):
        GemmSpec(epilogue=("relu(exact)",))


# --- what is emitted ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_text_of_the_users_reaches_the_source(backend: str) -> None:
    """Comments end with their line, whatever stands in them; here they don't get that far."""
    spec = GemmSpec(epilogue=("expr: acc * 2 # */ \\",))
    text = driver.emit(spec, candidates.load("naive").schedule, backend).text
    assert "*/" not in text
    assert "\\\n" not in text
    assert "acc * 2" in text


def test_every_row_is_emitted_by_every_backend() -> None:
    written = {"leaky_relu": "leaky_relu(0.125)", "clamp": "clamp(0, 6)"}
    spec = GemmSpec(epilogue=tuple(written.get(name, name) for name in FUNCTIONS))
    for backend in BACKENDS:
        source = driver.emit(spec, candidates.load("naive").schedule, backend)
        assert [a.name for a in source.entry_points[0].arguments][-6:] == [*OF_C, "ldr"]


def test_the_last_kernel_has_the_epilogue() -> None:
    spec = GemmSpec(epilogue=("bias", "gelu"))
    first, last = driver.emit(spec, candidates.load("sg16_block_16x1_split4").schedule).entry_points
    assert "bias" not in {a.name for a in first.arguments}
    assert "bias" in {a.name for a in last.arguments}


def test_what_has_no_epilogue() -> None:
    spec = GemmSpec(epilogue=("bias",))
    schedule = candidates.load("mbarrier_8x8_2x16_atomic8").schedule
    with pytest.raises(ScheduleError, match="atomic shows no kernel whole sums, which bias needs: drop atomic"):
        driver.emit(spec, schedule, "cuda")
    naive = candidates.load("naive").schedule
    with pytest.raises(ScheduleError, match="form main checks plain products, not bias"):
        driver.emit(spec, naive, "sycl", form="main")
    with pytest.raises(ScheduleError, match="takes no arrays but A and B, but this one bias"):
        render_module(driver.emit(spec, naive))
    compile(render_module(driver.emit(GemmSpec(epilogue=("relu",)), naive)), "naive.py", "exec")


# --- the command line and files -------------------------------------------------------------------


def test_options_and_files_say_the_same(tmp_path: Path) -> None:
    options = ("--epilogue", "bias", "--epilogue", "expr: acc*0.5 + col")
    text = printed("emit", "--method", "naive", *options)
    assert "// Epilogue   bias: acc + bias\n//            expr: acc * 0.5 + col" in text
    assert "convert_float(col)" in text
    assert "--epilogue means nothing to --kernel transpose" in refused("emit", "--kernel", "transpose", *options)
    file = tmp_path / "s.toml"
    file.write_text('method = "naive"\n[spec]\nepilogue = ["bias", "expr: acc*0.5 + col"]\n')
    assert printed("emit", "--schedule", file) == text
    file.write_text('method = "naive"\n[spec]\nepilogue = "bias"\n')
    assert "epilogue = 'bias' is no list of texts: write" in refused("emit", "--schedule", file)


def test_run_with_random_operands() -> None:
    if gemmgen("devices").returncode:
        pytest.skip("no OpenCL device")
    options = ["--epilogue", "bias", "--epilogue", "gelu", "--epilogue", "residual", "--epilogue", "expr: acc - c"]
    text = printed("run", "-k", "lds_8x8_16x16_k8", "-M", "33", "-N", "21", "-K", "17", "-i", "1", "-v", *options)
    assert "validation passed" in text
    assert "through the epilogue" in text


def test_stored_types_by_option_and_file(tmp_path: Path) -> None:
    text = printed("emit", "--method", "naive", "--b-dtype", "int8")
    assert "float32, B stored in int8" in text
    file = tmp_path / "s.toml"
    file.write_text('method = "naive"\n[spec]\nb_dtype = "int8"\n')
    assert printed("emit", "--schedule", file) == text
    assert "b_dtype 'int7' does not exist: did you mean int" in refused("emit", "--b-dtype", "int7")


# --- calls ----------------------------------------------------------------------------------------


def refused_call(spec: GemmSpec, c: object = None, **operands: object) -> Sequence[str]:
    a, b = np.zeros((5, 3), np.float32), np.zeros((3, 7), np.float32)
    with pytest.raises(SpecError) as caught:
        check_gemm(spec, a, b, c, operands=operands)
    return caught.value.problems


def test_operands_of_a_call() -> None:
    spec = GemmSpec(epilogue=("bias", "row_scale", "residual"))
    ones = np.ones(8, np.float32)
    good = {"bias": ones[:7], "row_scale": ones[:5], "residual": np.ones((5, 7), np.float32)}
    request = check_gemm(spec, np.zeros((5, 3), np.float32), np.zeros((3, 7), np.float32), operands=good)
    assert list(request.inputs) == ["a", "b", "bias", "row_scale", "residual"]
    wrong: dict[str, object] = {
        "bias": ones[:5],
        "row_scale": ones.reshape(2, 4),
        "residual": np.ones((7, 5), np.float32),
    }
    found = "; ".join(refused_call(spec, **wrong))
    assert "bias has 5 elements, not 7: pass one for each column of c" in found
    assert "row_scale has shape 2x4, not one dimension" in found
    assert "residual is 7x5, not 5x7: pass one as large as c" in found
    assert "residual is missing, which the epilogue bias, row_scale, residual takes" in "; ".join(refused_call(spec))
    found = "; ".join(refused_call(spec, **{**good, "bias": ones.astype(np.float64)[:7], "row_scale": [1.0] * 5}))
    assert "bias has dtype float64, not float32" in found
    assert "row_scale is of type list, not an array" in found
    assert "bytes apart" in refused_call(spec, **{**good, "bias": np.ones(14, np.float32)[::2]})[0]
    assert "scale means nothing to a kernel" in refused_call(spec, **good, scale=ones)[0]


def test_operands_share_no_memory_with_c() -> None:
    spec, c = GemmSpec(epilogue=("residual",)), np.ones((5, 7), np.float32)
    assert "c overlaps residual" in refused_call(spec, c, residual=c)[0]
    assert "the epilogue reads a c that was not given" in refused_call(GemmSpec(epilogue=("expr: acc + c",)))[0]


@pytest.mark.parametrize("sums", [F32, I32], ids=str)
def test_each_function_of_numbers_has_a_name_in_each_language(sums: object) -> None:
    for name, row in MATH.items():
        if name == "neg" or (sums == I32 and not row.integers):
            continue
        spec = GemmSpec(
            dtype=I8 if sums == I32 else F32, epilogue=(f"expr: {name}({', '.join(['acc'] * row.arguments)})",)
        )
        for backend in BACKENDS:
            assert f"{name}" in driver.emit(spec, candidates.load("naive").schedule, backend).text


# --- gates ----------------------------------------------------------------------------------------


def test_a_gate_makes_one_column_of_two() -> None:
    spec = GemmSpec(epilogue=("swiglu", "bias"))
    assert (spec.halves, spec.columns(90), spec.beta) == (2, 45, 0)
    assert GemmSpec(epilogue=("bias",)).halves == 1
    assert GemmSpec(epilogue=("expr: acc * max(up, 0)",)).halves == 2
    text = driver.emit(spec, candidates.load("smem_8x8").schedule).text
    assert "B: 2 n columns; acc is the sum of column j of them, up that of column n + j" in text


def test_what_a_gate_does_not_go_with() -> None:
    for epilogue, fields, words in (
        (("bias", "swiglu"), {}, "'swiglu' takes two sums, so it must be the first function: put it there"),
        (("swiglu", "expr: acc + up"), {}, "'expr: acc + up' takes two sums, as 'swiglu' does, but one function may"),
        (("swiglu", "swiglu"), {}, "'swiglu' takes two sums, as 'swiglu' does, but one function may: leave one out"),
        (("bias", "swiglu", "geglu"), {}, "'swiglu' takes two sums, so it must be the first function: put it there"),
        (("bias", "swiglu", "geglu"), {}, "'geglu' takes two sums, as 'swiglu' does, but one function may: leave one"),
        (("expr: acc * up + row + bias",), {}, "takes bias, row beside acc and up: use another function after it"),
        (("swiglu",), {"beta": 1}, "beta = 1, but swiglu makes C anew: fold 0, and add a matrix by residual after it"),
        (("swiglu",), {"alpha": 0}, "alpha = 0 leaves no sums to swiglu"),
        (("swiglu",), {"n": 2**30}, "n = 1073741824 > 1073741311: swiglu takes 2 n columns of B by 32-bit indices"),
        (("swiglu",), {"b_dtype": I8, "prologue_b": "b * b_scale"}, "prologue_b takes b_scale of each column of C"),
    ):
        assert any(words in problem for problem in problems(*epilogue, **fields)), (epilogue, fields)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--method wgmma_tf32", ("pass --ld-multiple 4\n", "b is row-major: store it col-major\n")),
        ("--method wgmma_3xtf32 --ld-multiple 4 --layout row,col", ("a packed B has elsewhere: use --method slm\n",)),
        ("--method wgmma_tf32 --ld-multiple 4 --layout row,col --prologue-b b*2", ("wgmma_tf32: use --method slm\n",)),
        (
            "--preset async_8x8_16x16 --ld-multiple 4 --prologue-b b*2",
            ("past the registers: use a schedule without async_copy\n",),
        ),
        (
            "--method mma --dtype bfloat16 --tile 8x16 --prologue-b b*2",
            ("prologue_b: use --tile 8x8 --group 16x16\n",),
        ),
    ],
)
def test_no_remedy_packs_the_b_of_a_gate(line: str, said: tuple[str, ...]) -> None:
    """A gate refuses that, too."""
    text = refused("emit", "--backend", "cuda", "--target", "sm_90a", *line.split(), "--epilogue", "swiglu")
    for words in said:
        assert words in text
    assert "b.prepacked" not in text


def test_more_columns_than_indices_reach_are_refused() -> None:
    a, b = np.zeros((1, 1), np.float32), np.broadcast_to(np.float32(0), (1, 2**31))
    problems: list[str] = []
    check_extents(GemmSpec(epilogue=("swiglu",), wide=True), a, b, None, problems)
    assert problems == ["b is 1x2147483648, but swiglu takes at most 2147482623 columns of b: multiply it in parts"]


def test_launchers_of_gates_refuse_more_columns_than_an_int_counts() -> None:
    """Before they compute 2 n."""
    schedule = candidates.load("smem_8x8").schedule
    for spec, refuses in ((GemmSpec(epilogue=("swiglu",)), True), (GemmSpec(epilogue=("silu",)), False)):
        cuda, header = driver.emit(spec, schedule, "cuda"), driver.emit(spec, schedule, "opencl", form="header")
        assert ["if (k < 0 || n >= 1 << 30" in x.text for x in (cuda, header)] == [refuses] * 2


@pytest.mark.parametrize("backend", ["opencl", "cuda"])
def test_modules_of_gates_halve_the_columns_of_b(backend: str) -> None:
    """They took C to have as many, and read past B."""
    text = render_module(driver.emit(GemmSpec(epilogue=("swiglu",)), candidates.load("smem_8x8").schedule, backend))
    compile(text, "gate.py", "exec")
    for line in ("(m, k), n = a.shape, b.shape[1] // 2", "if b.shape[1] % 2:", "if b.shape != (k, 2 * n):"):
        assert f"    {line}\n" in text
    assert '"""C = alpha * A @ B, then swiglu.' in text


def test_every_gate_is_the_same_in_two() -> None:
    """By two products, the first of which makes the other's residual."""
    one = np.full((1, 1), 0.0)
    for name in (*GATES, "expr: acc * tanh(up)"):
        gated = GemmSpec(dtype=F64, epilogue=(name,))
        assert gated.gate is not None
        apart = GemmSpec(dtype=F64, epilogue=gated.gate.in_two("residual"))
        both = Bounded(np.array([[0.75, -1.5]]), np.zeros((1, 2)))
        (x,), (y,) = (
            finished(gated, both, None, {}).value,
            finished(apart, Bounded(one + 0.75, one), None, {"residual": one - 1.5}).value,
        )
        np.testing.assert_allclose(x, y, rtol=1e-15)
