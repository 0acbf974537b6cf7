"""`gemmgen fuzz`: that what is wrong is found, made small, saved, and run again from a line."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmgen import driver, presets
from gemmgen.errors import SpecError
from gemmgen.fuzz.case import OF_DEVICE, Case, Data, load
from gemmgen.fuzz.checks import Place, Way, WrongResult, check, interpreted
from gemmgen.fuzz.data import Numbers, Stored
from gemmgen.fuzz.search import Search
from gemmgen.ir.dtypes import F8_E4M3, F8_E5M2, F16, F32, DType
from gemmgen.ir.target import TARGETS
from gemmgen.spec import GemmSpec
from tests.support.cli import gemmgen, printed, refused

SMALL = Case(GemmSpec(), presets.load("lds_8x8_16x16_k8").schedule, (5, 7, 9), pads=(1, 0, 3), data="whole")


def by_numpy(case: Case, a: Stored, b: Stored, c: Stored) -> None:
    """In float64, rounded once."""
    operands = (x.view.astype(np.float64) for x in (a, b))
    product = case.alpha * np.matmul(*operands) if case.alpha else np.zeros(c.view.shape)
    c.view[...] = product + case.beta * c.view.astype(np.float64) if case.beta else product


def by_the_interpreter(case: Case, a: Stored, b: Stored, c: Stored) -> None:
    """In the kernel's order."""
    program = driver.lower_program(case.spec, case.schedule, TARGETS["portable"])
    c.view[...] = interpreted(program, Numbers.of(case))


class HandMade:
    """A device that does what it is told to with C, after it has computed it."""

    def __init__(
        self,
        then: Callable[[Case, Stored, Stored], None],
        multiply: Callable[[Case, Stored, Stored, Stored], None] = by_numpy,
    ) -> None:
        self._then, self._multiply = then, multiply

    def ways(self, case: Case) -> Mapping[str, Way]:
        def way(stored: Mapping[str, Stored]) -> None:
            a, b, c = (stored[name] for name in "abc")
            self._multiply(case, a, b, c)
            self._then(case, a, c)

        return {"as told": way}

    @property
    def place(self) -> Place:
        return Place("opencl", OF_DEVICE, TARGETS["portable"], "hand-made", self.ways)


def nothing(case: Case, a: Stored, c: Stored) -> None:
    """As it should be."""


def one_element(case: Case, a: Stored, c: Stored) -> None:
    c.view[-1, -1, -1] += 1


def not_a_number(case: Case, a: Stored, c: Stored) -> None:
    c.view[0, 0, 0] = np.nan


def padding(case: Case, a: Stored, c: Stored) -> None:
    c.memory[np.flatnonzero(c.free)[len(c.free) // 2 % c.free.sum()]] = 0


def before(case: Case, a: Stored, c: Stored) -> None:
    c.memory[127] = 0


def beyond(case: Case, a: Stored, c: Stored) -> None:
    c.memory[-128] = 0


def operand(case: Case, a: Stored, c: Stored) -> None:
    a.view[0, 0, 0] = 3.5


def signed_zero(case: Case, a: Stored, c: Stored, calls: itertools.count[int] = itertools.count()) -> None:  # noqa: B008
    c.view[...] = 0.0 if next(calls) % 2 else -0.0


def crowd() -> Callable[[Case, Stored, Stored], None]:
    """Right, unless two threads call at once."""
    inside = threading.Lock()

    def then(case: Case, a: Stored, c: Stored) -> None:
        if not inside.acquire(blocking=False):
            c.view[...] = 0
            return
        threading.Event().wait(0.05)
        inside.release()

    return then


def test_a_right_device_passes() -> None:
    check(replace(SMALL, target=OF_DEVICE), HandMade(nothing).place)


@pytest.mark.parametrize(
    ("then", "problem"),
    [
        (one_element, "1 of 35 elements not exact"),
        (not_a_number, "1 of 35 elements not exact; the first at (0, 0, 0): np.float64(nan)"),
        (padding, "memory around or between c's lines was written to"),
        (before, "memory around or between c's lines was written to"),
        (beyond, "memory around or between c's lines was written to"),
        (operand, "a was written to"),
        (crowd(), "two threads at once: "),
    ],
)
def test_a_wrong_device_is_found(then: Callable[[Case, Stored, Stored], None], problem: str) -> None:
    with pytest.raises(WrongResult) as caught:
        check(SMALL, HandMade(then).place)
    assert problem in str(caught.value)


@pytest.mark.parametrize("data", ["normal", "short"])
def test_bits_that_change_are_found(data: Data) -> None:
    """A zero's sign is a bit, too: the result is within the bound each time."""
    case = replace(SMALL, data=data, alpha=0.0)
    with pytest.raises(WrongResult, match="as told: other bits than the first time"):
        check(case, HandMade(signed_zero).place)


def test_another_order_of_summation_is_found() -> None:
    """NumPy's float64, rounded once, is within the bound, and not what the kernel's order gives."""
    case = replace(SMALL, size=(9, 9, 90), data="normal")
    check(case, HandMade(nothing).place)
    check(replace(case, data="short"), HandMade(nothing, by_the_interpreter).place)
    with pytest.raises(WrongResult, match=r"on the device: [0-9]+ elements are not the interpreter's"):
        check(replace(case, data="short"), HandMade(nothing).place)


def test_what_fails_is_made_small() -> None:
    """A device that is wrong where M is over 16: nothing else of the case is left of note."""

    def multiply(case: Case, a: Stored, b: Stored, c: Stored) -> None:
        (by_the_interpreter if case.data == "short" else by_numpy)(case, a, b, c)
        if case.size[0] > 16 and c.view.size:
            c.view[-1, -1, -1] += 1

    search = Search((HandMade(nothing, multiply).place,), seed=3, seconds=60, most=20)
    (found,) = search.failures()
    assert found.case.size[0] > 16
    assert (found.case.size[1:], found.case.pads, found.case.alpha) == ((1, 0), (0, 0, 0), 1.0)
    assert (found.case.spec.a_order, found.case.spec.dtype, found.case.data) == ("row", F32, "normal")
    assert "as told: 1 of " in str(found.error)


def test_numbers_are_laid_out_as_told() -> None:
    spec = GemmSpec(dtype=F16, c_dtype=F32, a_order="col", batched=True)
    case = replace(SMALL, spec=spec, count=2, pads=(3, 1, 2))
    numbers = Numbers.of(case)
    a = numbers.stored("a")
    assert (a.ld, a.stride) == case.pitch("a") == (8, 9 * 8 + 3)
    assert np.array_equal(a.view, numbers.a) and a.intact
    assert np.isnan(a.memory[a.free]).all() and a.free.sum() == len(a.memory) - a.view.size
    assert np.isnan(numbers.c).all(), "with beta 0 nothing is in C that may be read"


@pytest.mark.parametrize(
    ("line", "instead", "problems"),
    [
        ("size = [5, 7, 9]", "", ["[case] lacks size"]),
        ('data = "whole"', 'data = "odd"', ["'odd' in [case] is not what fuzz saves: one of normal, whole, short"]),
        ("seed = 0", "seed = -1\nseeds = 1", ["unknown key 'seeds' in [case]", "seed = -1 in [case] is not what"]),
    ],
)
def test_a_file_that_is_no_case(line: str, instead: str, problems: list[str], tmp_path: Path) -> None:
    text, file = SMALL.to_toml(), tmp_path / "case.toml"
    assert line in text
    file.write_text(text.replace(line, instead))
    with pytest.raises(SpecError) as caught:
        load(file)
    assert len(caught.value.problems) == len(problems)
    for problem in problems:
        assert any(problem in said for said in caught.value.problems)


# --- the command ----------------------------------------------------------------------------------


def test_a_few_cases() -> None:
    result = gemmgen("fuzz", "--examples", "4", "--seed", "1")
    assert result.returncode == 0 and "4 cases, 0 of them fail" in result.stdout
    # Progress, where nobody watches a terminal: a line now and then.
    assert re.match(r"\[0/60\] case 1: \w+, after 0 s\n", result.stderr), result.stderr


def test_replay(tmp_path: Path) -> None:
    """Small whole numbers times 0.1 are not exact in float32: a case that must fail, whatever the kernel does."""
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text(SMALL.to_toml())
    bad.write_text(replace(SMALL, alpha=0.1).to_toml())
    assert printed("fuzz", "--replay", good).splitlines()[-1] == "passed"
    failed = gemmgen("fuzz", "--replay", bad)
    assert failed.returncode == 1 and "elements not exact" in failed.stdout


def test_every_problem_at_once(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    text = refused("fuzz", "--save", file / "cases", "--minutes", "x")
    assert f"--save {file}/cases is no folder, as {file} is a file" in text and "minutes 'x'" in text
    said = refused("fuzz", "--minutes", "soon", "--seed", "1.5", "--backend", "", "--examples", "-1")
    for problem in ("minutes 'soon'", "seed '1.5'", "backend '' does not exist", "examples '-1'"):
        assert problem in said
    nothing = refused("fuzz", "--minutes", "0", "--examples", "0")
    assert "minutes '0' is no number above 0" in nothing and "examples '0' is no whole number from 1" in nothing
    assert "can't be read" in refused("fuzz", "--replay", tmp_path / "none.toml")
    assert "larger than 1 MiB: name a file that fuzz has saved" in refused("fuzz", "--replay", "/dev/zero")


def test_refused_schedules_are_said_so(tmp_path: Path) -> None:
    file = tmp_path / "case.toml"
    file.write_text("split_k = 0\n" + SMALL.to_toml())
    assert "split_k = 0 < 1" in refused("fuzz", "--replay", file)


@pytest.mark.parametrize("stored", [F8_E4M3, F8_E5M2])
@pytest.mark.parametrize("data", ["normal", "whole", "short"])
def test_matrices_are_drawn_in_the_type_that_they_are_stored_in(stored: DType, data: Data) -> None:
    """8-bit floats were drawn as int8, and none of their cases ran (found by fuzz itself)."""
    spec = GemmSpec(dtype=F16, b_dtype=stored)
    case = Case(spec, presets.load("naive_16x16").schedule, (3, 4, 40), "cuda", "sm_90", pads=(0, 3, 1), data=data)
    check(case, Place.named("cuda", "sm_90"))
    assert Numbers.of(case).b.dtype.name == stored.name
