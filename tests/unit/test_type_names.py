"""An element type may be given by any of its names, wherever a type is taken."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields

import ml_dtypes
import numpy as np
import pytest

import gemmgen
from gemmgen.errors import SpecError
from gemmgen.ir.dtypes import BF16, C64, F8_E4M3, F16, F32, F64, I8, I64, MATRIX_DTYPES, DType
from gemmgen.ir.numeric import element_type, numpy_dtype
from gemmgen.options import build_spec
from gemmgen.spec import GemmSpec
from tests.support.cli import gemmgen as command


class OfTorch:
    """Says what torch's types say of themselves, and has no `name` either."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return f"torch.{self._name}"


@pytest.mark.parametrize("dtype", MATRIX_DTYPES.values(), ids=str)
def test_every_type_by_its_usual_names(dtype: DType) -> None:
    known = numpy_dtype(dtype)
    for given in (dtype, dtype.name, known, known.type, f"torch.{dtype.name}", OfTorch(dtype.name), dtype.name.upper()):
        assert GemmSpec(dtype=given) == GemmSpec(dtype=dtype)
        assert element_type(given) == known


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.dtype("f8"), F64),
        (float, F64),
        ("double", F64),
        ("fp32", F32),
        ("half", F16),
        (ml_dtypes.bfloat16, BF16),
        ("bf16", BF16),
        ("fp8_e4m3", F8_E4M3),
        ("s8", I8),
        (np.complex64, C64),
        (int, I64),
    ],
)
def test_other_names(given: object, dtype: DType) -> None:
    assert GemmSpec(dtype=given).dtype == dtype
    if isinstance(given, str):
        assert build_spec(dtype=given).dtype == dtype  # --dtype and TOML


def test_types_of_the_other_matrices() -> None:
    spec = GemmSpec(dtype="float16", c_dtype=np.float32, a_dtype="s8", b_dtype=np.dtype("i1"))
    assert (spec.dtype, spec.c_dtype, spec.a_dtype, spec.b_dtype) == (F16, F32, I8, I8)
    assert GemmSpec(epilogue="relu") == GemmSpec(epilogue=["relu"]) == GemmSpec(epilogue=("relu",))


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("floot32", "did you mean float32"),
        ("f8", "give float64 or float8_e4m3fn or float8_e5m2"),
        ("float", "give float32 or float64"),
        (np.dtype(">f4"), ">f4 is not one of float64"),
        (np.uint8, "uint8"),
        (3, "3 (of type int) is not one of"),
        (None, "is not one of float64"),
    ],
)
def test_what_is_no_type(given: object, remedy: str) -> None:
    with pytest.raises(SpecError) as error:
        GemmSpec(m=0, dtype=given)
    assert remedy in str(error.value)
    if not isinstance(given, str):
        return
    for word in ("float64", "float32"):
        if word in remedy:
            assert GemmSpec(dtype=word).dtype.name == word  # what is proposed is taken


def test_gemm_takes_the_same_names() -> None:
    a = np.ones((2, 2), np.float32)
    for given in ("float64", "double", np.float64, np.dtype("f8"), "f8", OfTorch("float64")):
        assert np.asarray(gemmgen.gemm(a, a, dtype=given)).dtype == np.float64
    assert np.asarray(gemmgen.gemm(a, a, dtype="bf16")).dtype == ml_dtypes.bfloat16


def test_the_command_line_takes_them() -> None:
    by_name, by_alias = (command("emit", "--preset", "naive", "--dtype", x).stdout for x in ("float64", "fp64"))
    assert by_name == by_alias != ""


def test_what_type_checkers_are_told_is_what_there_is() -> None:
    """The signature for them is written by hand, since there types are given by name."""
    (written,) = (
        node
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(GemmSpec) or GemmSpec)))
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    )
    names = [argument.arg for argument in written.args.args[1:]]
    assert names == [field.name for field in fields(GemmSpec)]
    told = [eval(ast.unparse(default), {"F32": F32}) for default in written.args.defaults]
    assert told == [field.default for field in fields(GemmSpec)]
