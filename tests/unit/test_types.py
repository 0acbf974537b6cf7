"""Types of elements: what goes together, what is refused, and what kernels say of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import candidates, driver
from gemmgen.errors import LoweringError, ScheduleError, SpecError
from gemmgen.ir.buffer import Space
from gemmgen.ir.copy_instructions import SCALAR
from gemmgen.ir.dtypes import BF16, C64, C128, F16, F32, F64, I8, I16, I32, I64, RESULTS, DType
from gemmgen.ir.expr import Call, Const, Load, Var
from gemmgen.ir.numeric import convert, numpy_dtype, poison
from gemmgen.ir.stmt import Alloc, Let, Stmt, VectorCopy
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import walk
from gemmgen.options import build_spec, read_document
from gemmgen.spec import GemmSpec
from tests.support.arrays import check_gemm
from tests.support.cli import printed


@pytest.mark.parametrize("dtype", RESULTS, ids=str)
def test_numpy_agrees_on_sizes_and_ranges(dtype: DType) -> None:
    for one in (dtype, *RESULTS[dtype]):
        known = numpy_dtype(one)
        assert (known.name, known.itemsize) == (one.name, one.size)
        assert np.array(one.largest, known).item() == one.largest
        if one.is_float:
            assert convert(1 + 2.0 ** (1 - one.digits), one) != 1
            # Half a unit in the last place is a tie, which goes to the even 1.
            assert convert(np.array([1 + 2.0**-one.digits]), one) == 1


def test_what_nobody_may_use_shows() -> None:
    assert np.isnan(np.array(poison(numpy_dtype(BF16)), numpy_dtype(BF16)).astype(np.float32))
    assert poison(numpy_dtype(I8)) == -128


def test_sums_and_results() -> None:
    assert [(GemmSpec(dtype=d).accumulator, GemmSpec(dtype=d).result) for d in RESULTS] == [
        (F64, F64), (F32, F32), (F32, F16), (F32, BF16), (I32, I32), (F32, BF16), (F32, BF16), (C64, C64), (C128, C128),
        (I32, I32), (I64, I64),
    ]  # fmt: skip
    assert GemmSpec(dtype=F16, c_dtype=F32).result == F32


@pytest.mark.parametrize(
    ("dtype", "c_dtype", "alpha", "problem"),
    [
        ("float32", "float16", None, "c_dtype float16 is no type of C where A and B are float32: use float32"),
        ("float16", "bfloat16", None, "use float16 or float32"),
        ("int8", "int8", None, "c_dtype int8 is no type of C where A and B are int8: use int32"),
        ("int8", None, "0.5", "alpha = 0.5 is no whole number, but sums are int32"),
        ("int8", None, "3e9", "3e9 > 2147483647, the largest factor of int32: give a smaller one"),
        ("float16", None, "1e39", "1e39 > 3.40282e+38, the largest factor of float32"),
        (
            "int32",
            None,
            "-2147483648",
            "alpha = -2147483648 < -2147483647, the smallest factor that int32 folds",
        ),
        ("complex32", None, None, "dtype 'complex32' does not exist: did you mean complex"),
        ("float32", "int4", None, "c_dtype 'int4' does not exist: did you mean int"),
    ],
)
def test_what_does_not_go_together(dtype: str, c_dtype: str | None, alpha: str | None, problem: str) -> None:
    with pytest.raises(SpecError) as error:
        build_spec(dtype=dtype, c_dtype=c_dtype, alpha=alpha)
    assert problem in str(error.value)


def test_what_nothing_converts_is_not_sent_round() -> None:
    with pytest.raises(SpecError, match=r"b_dtype int32 .*: leave b_dtype out, and convert B beforehand"):
        GemmSpec(dtype="complex64", b_dtype="int32")
    with pytest.raises(SpecError, match=r"a_dtype int8 .*: use dtype float32, which can"):
        GemmSpec(dtype="complex64", a_dtype="int8")


def test_every_problem_at_once() -> None:
    with pytest.raises(SpecError) as error:
        GemmSpec(dtype=I8, c_dtype=F32, alpha=0.5, beta=1e12, m=0)
    assert len(error.value.problems) == 4
    with pytest.raises(SpecError, match="one of float64"):
        GemmSpec(dtype=I16)


def test_large_factors_of_doubles_can_be_folded() -> None:
    assert build_spec(dtype="float64", alpha="1e300").alpha == 1e300


@pytest.mark.parametrize("key", ["alpha", "beta"])
@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_folded_factors_keep_all_digits_of_whole_numbers(key: str, value: int) -> None:
    spec = build_spec(dtype="int64", **{key: str(value)})  # type: ignore[arg-type]
    text = driver.emit(spec, candidates.load("naive").schedule).text
    assert f"{value}L * " in text or f" * {value}L" in text
    assert f"{value} * " in text.splitlines()[0]


def test_head_comments_have_all_digits_of_factors() -> None:
    assert build_spec(dtype="int32", alpha="123456789").formula() == "C = 123456789 * A * B + beta * C"
    assert build_spec(dtype="float64", beta="0.1234567890123").formula() == "C = alpha * A * B + 0.1234567890123 * C"
    assert build_spec(alpha="0.1", beta="1e30").formula() == "C = 0.1 * A * B + 1e+30 * C"


def test_toml_says_types() -> None:
    document = read_document('tile = "2x2"\n[spec]\ndtype = "bfloat16"\nc_dtype = "float32"', "here")
    assert (document.spec.dtype, document.spec.c_dtype) == (BF16, F32)


def lacking(target: str, *features: str) -> Target:
    return replace(TARGETS[target], features=TARGETS[target].features - set(features))


@pytest.mark.parametrize(
    ("spec", "preset", "target", "problem"),
    [
        (GemmSpec(dtype=F64), "naive", TARGETS["portable"], "no arithmetic in float64: use target intel or"),
        (GemmSpec(dtype=F16), "naive", lacking("sycl", "fp16"), "has no loads and stores of float16"),
        (GemmSpec(a_dtype=F16), "naive", lacking("sycl", "fp16"), "keep it in integers (--emulate, or GemmSpec(emul"),
        (GemmSpec(dtype=F16), "block_read_32x2_1x8", TARGETS["intel"], "pixels are float32, but dtype is float16"),
        (GemmSpec(dtype=F16), "async_8x8_16x16", TARGETS["sm_90"], "a transposed tile takes float16 one by one"),
        (GemmSpec(dtype=I8, a_order="col"), "async_8x8_16x16", TARGETS["sm_90"], "pass --ld-multiple 4"),
        (GemmSpec(dtype=F64), "mbarrier_8x16_16x16_atomic7", TARGETS["sm_90"], "atomic adds float32 to C"),
    ],
)  # fmt: skip
def test_refusals(spec: GemmSpec, preset: str, target: Target, problem: str) -> None:
    with pytest.raises(ScheduleError) as error:
        driver.lower(spec, candidates.load(preset).schedule, target)
    assert problem in str(error.value)


def test_16_bit_floats_in_integers() -> None:
    """Where it is asked for, and the language has types that a device or a compiler may lack."""
    naive, device = candidates.load("naive").schedule, lacking("sycl", "fp16")
    for dtype, own in ((F16, "sycl::half"), (BF16, "sycl::ext::oneapi::bfloat16")):
        spec = GemmSpec(dtype=dtype)
        assert own in driver.emit(spec, naive, "sycl").text
        asked = driver.emit(replace(spec, emulate=True), naive, "sycl", device)
        assert own not in asked.text
        assert "const std::uint16_t *__restrict a" in asked.text
        assert "#include <cstdint>\n" in asked.text
        assert "fp16" not in asked.requires
        assert f"{dtype}, sums in float32; 16-bit floats in integers\n" in asked.text
        # Others have no need of it.
        for backend in ("opencl", "cuda"):
            plain, other = (driver.emit(x, naive, backend).text for x in (spec, replace(spec, emulate=True)))
            assert plain.split("\n", 1)[1] == other.split("\n", 1)[1]
            assert ("in integers" in other) == (backend == "opencl")
    assert "fp16" in driver.emit(GemmSpec(dtype=F16), naive, "sycl").requires
    read = read_document('tile = "2x2"\n[spec]\ndtype = "float16"\nemulate = true', "here").spec
    assert read == build_spec(base=replace(GemmSpec(dtype=F16), emulate=True))
    assert "std::uint16_t" in printed(
        "emit", "--backend", "sycl", "--method", "naive", "--dtype", "float16", "--emulate"
    )


def test_transposes_refuse_what_lanes_do_not_exchange() -> None:
    with pytest.raises(ScheduleError, match="registers of 4 or 8 bytes"):
        driver.emit_transpose(GemmSpec(dtype=F16))
    assert "double tile[16]" in driver.emit_transpose(GemmSpec(dtype=F64)).text


@pytest.mark.parametrize(
    ("dtype", "backend", "words"),
    [
        (F64, "opencl", ("#pragma OPENCL EXTENSION cl_khr_fp64 : enable", "fma(a_frag, b_frag, acc)")),
        (F16, "opencl", ("__global const ushort *restrict a", "half_to_float(", "vload_half(0,", "sums in float32")),
        (BF16, "opencl", ("bfloat16_to_float(", "float_to_bfloat16(")),
        (I8, "opencl", ("__global const char *restrict a", "int alpha", "acc = acc + a_frag * b_frag;")),
        (F64, "cuda", ("const double *__restrict__ a", "fma(a_frag, b_frag, acc)")),
        (F16, "cuda", ("#include <cuda_fp16.h>", "float(a[", "__half(c_value)")),
        (BF16, "cuda", ("#include <cuda_bf16.h>", "__nv_bfloat16(c_value)")),
        (I8, "cuda", ("const signed char *__restrict__ a", "int(a[")),
        (F16, "sycl", ("const sycl::half *__restrict a", "float(a[")),
        (BF16, "sycl", ("sycl::ext::oneapi::bfloat16 *__restrict a", "bfloat16_to_float(a[")),
    ],
    ids=str,
)
def test_words_of_each_language(dtype: DType, backend: str, words: tuple[str, ...]) -> None:
    source = driver.emit(GemmSpec(dtype=dtype), candidates.load("naive").schedule, backend)
    assert not [word for word in words if word not in source.text]
    assert (dtype.needs is None) or dtype.needs in source.requires


def test_a_kernel_of_float32_says_nothing_of_other_types() -> None:
    text = driver.emit(GemmSpec(), candidates.load("naive").schedule).text
    assert not [word for word in ("ushort", "half", "double", "convert") if word in text]


def test_arrays_are_checked_against_both_types() -> None:
    spec = GemmSpec(dtype=F16, c_dtype=F32)
    a, b, c = np.zeros((2, 3), np.float16), np.zeros((3, 4), np.float16), np.zeros((2, 4), np.float32)
    assert check_gemm(spec, a, b, c).output[2].item == 4
    assert check_gemm(spec, a, b).output[2].dtype == np.float32
    with pytest.raises(SpecError) as error:
        check_gemm(spec, a.astype(np.float32), b, c.astype(np.float16))
    assert error.value.problems == (
        "a has dtype float32, not float16: pass a.astype(np.float16)",
        "c has dtype float16, not float32: pass c.astype(np.float32)",
    )
    with pytest.raises(SpecError, match=r"pass a\.astype\(ml_dtypes\.bfloat16\)"):
        check_gemm(GemmSpec(dtype=BF16), a, b)
    whole = np.zeros((2, 2), np.int8)
    with pytest.raises(SpecError, match=r"alpha = 0\.5 is no whole number, but sums are int32"):
        check_gemm(GemmSpec(dtype=I8), whole, whole, alpha=0.5)


def test_the_verifier_knows_where_types_may_change() -> None:
    """Between memory and registers, and by `convert`: nowhere else."""
    kernel = driver.lower(GemmSpec(dtype=F16), candidates.load("smem_8x8_double").schedule)
    local = [s.buffer for s in walk(kernel.body) if isinstance(s, Alloc) and s.buffer.space is Space.LOCAL]
    a = kernel.matrices[0]
    assert {buffer.dtype for buffer in local} == {a.dtype} == {F16}
    zero = (Const(0), Const(0))
    other = replace(local[0], name="other", dtype=F32)
    index = (Const(0), *zero)
    wrong: list[tuple[Stmt, ...]] = [
        (Alloc(other), VectorCopy(other, index, a, zero, SCALAR, 1)),
        (Let(Var("x", F32), Load(a, zero)),),
        (Let(Var("x", F16), Call("convert", (Load(a, zero),), F16)),),
    ]
    for body in wrong:
        with pytest.raises(LoweringError, match=r"differ in type|converts nothing"):
            verify(replace(kernel, body=body), TARGETS["intel"])
    verify(replace(kernel, body=(Let(Var("x", F32), Call("convert", (Load(a, zero),), F32)),)), TARGETS["intel"])


def test_a_target_without_vectors_lacks_them_for_every_type() -> None:
    schedule = candidates.load("cpu_6x16_v8_copied").schedule
    (problem, *_) = driver.refusals(GemmSpec(dtype=F16), schedule, target=TARGETS["portable"])
    assert problem.startswith("vector = 8, but target 'portable' has none")
    assert not any(
        "SYCL" in text for text in driver.refusals(GemmSpec(dtype=F16), schedule, target=TARGETS["portable"])
    )
    assert any("SYCL" in text for text in driver.refusals(GemmSpec(dtype=F16), schedule, "sycl", TARGETS["cpu"]))


def test_words_that_block_reads_take_need_no_cast() -> None:
    """Half words are read as the kernel holds them; floats are not."""
    schedule = candidates.load("L3_SIMD_8x4_1x8").schedule
    halves = driver.emit(GemmSpec(dtype=F16, ld_multiple=2), schedule).text
    assert "    return intel_sub_group_block_read_us4(from);" in halves
    assert (
        "return as_float4(intel_sub_group_block_read4((const __global uint *)from));"
        in driver.emit(GemmSpec(), schedule).text
    )
