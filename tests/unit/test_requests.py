"""Specs and schedules made in Python: no parser has seen them, so their types are checked as they are made."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gemmgen import GemmSpec, Operand, Schedule, ScheduleError, SpecError, driver
from gemmgen.cli.request import DTYPES, METHODS_TEXT
from gemmgen.ir.dtypes import MATRIX_DTYPES
from gemmgen.methods import METHODS
from gemmgen.presets import load, names


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tile", "32x2"), ("tile", (1.5, 2)), ("tile", None), ("tile", (1,)), ("tile", [4, 4]), ("tile", 3),
        ("tile", (np.int64(4), np.int64(4))), ("group", ("a", 1)), ("block_k", "8"), ("block_k", 2.5),
        ("block_k", float("nan")), ("block_k", True), ("sub_group", "x"), ("stages", None), ("a", None),
        ("prefetch", 3), ("name", 3),
    ],
)  # fmt: skip
def test_schedules_of_wrong_types(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ScheduleError, match=f"^{field} = .*: give "):
        Schedule.of(**wrong)


@pytest.mark.parametrize("name", ["a b", "*/", "x\n", "int", "", "block_read", "f(); //"])
def test_a_name_that_is_no_identifier_never_reaches_a_source(name: str) -> None:
    with pytest.raises(ScheduleError, match="name"):
        Schedule(name=name)


def test_operands_of_wrong_types() -> None:
    wrong: dict[str, Any] = {"memory": "shared", "width": "4", "block_read": 1}
    with pytest.raises(ScheduleError) as caught:
        Operand(**wrong)
    assert [problem.split(" ", 1)[0] for problem in caught.value.problems] == ["memory", "width", "block_read"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("m", "x"), ("m", 1.5), ("m", True), ("m", np.int64(64)), ("m", 2**40), ("dtype", "float31"),
        ("dtype", np.str_), ("dtype", 4), ("c_dtype", b"float32"),
        ("a_order", "diag"), ("alpha", "x"), ("alpha", 1e39), ("alpha", 10**400),
        ("alpha", float("nan")), ("beta", 1j), ("multiple_of", 3), ("multiple_of", (1, 2)),
        ("multiple_of", (0, -1, "a")),
    ],
)  # fmt: skip
def test_specs_of_wrong_types(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(SpecError, match=f"^{field} "):
        GemmSpec(**wrong)


def test_a_wrong_word_is_not_called_a_wrong_type() -> None:
    wrong: dict[str, Any] = {"a_order": "diag", "epilogue": (5,)}
    with pytest.raises(SpecError) as caught:
        GemmSpec(**wrong)
    assert caught.value.problems == (
        "a_order = 'diag': give row or col",
        "epilogue = (5,): give a tuple of texts, such as ('bias', 'gelu')",
    )


def test_every_problem_at_once() -> None:
    wrong: dict[str, Any] = {"tile": 3, "block_k": "x", "name": "*/"}
    with pytest.raises(ScheduleError) as caught:
        Schedule.of(**wrong)
    assert len(caught.value.problems) == 3


def test_every_preset_is_made_of_the_right_types() -> None:
    for name in names():
        assert load(name).schedule.name == name


def test_a_transpose_of_no_name() -> None:
    with pytest.raises(ScheduleError, match="no identifier"):
        driver.emit_transpose(GemmSpec(), 16, name="a b")


def test_the_help_names_every_method_and_type() -> None:
    assert set(re.findall(r"\w+", METHODS_TEXT)) >= set(METHODS)
    assert set(re.findall(r"\w+", DTYPES)) >= set(MATRIX_DTYPES)
