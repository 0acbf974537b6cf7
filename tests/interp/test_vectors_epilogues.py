"""Epilogues where work-items compute on vectors of their own: in the interpreter, against float64."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.build import build
from gemmgen.choose import choose
from gemmgen.epilogue import FUNCTIONS
from gemmgen.errors import ScheduleError
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.dtypes import F32, F64
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, compare, convert, number
from gemmgen.ir.kernel import Program
from gemmgen.ir.stmt import EpilogueStore
from gemmgen.ir.target import TARGETS
from gemmgen.ir.vectors import value_problem
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.interp.test_epilogues import LONG, WRITTEN
from tests.interp.test_vectors import COPIED, CPU, FORMS, IN_PLACE, SIZES
from tests.interp.test_vectors_along_k import FORMS as ALONG_K
from tests.support.broken import broken, changed
from tests.support.epilogues import Finished

#: The same without what C held before.
BLIND = (*LONG[:-1], "expr: acc - col + 3 * row")
#: What vectors have an instruction for.
OF_VECTORS = ("scale", "row_scale", "bias", "gelu", "row_bias", "residual", "clamp(-1, 2.5)")


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, size: tuple[int, int, int]) -> None:
    program = driver.lower_program(spec, schedule, CPU)
    for alpha, beta in ((1.0, 0.0), (-2.0, 3.0), (0.0, 0.5)):
        problem = Finished.random(rng, spec, *size, alpha, beta)
        problem.check(problem.interpret(program))


@pytest.mark.parametrize("functions", [LONG, BLIND, OF_VECTORS], ids=["reads C", "one by one", "vectors"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form(form: str, functions: tuple[str, ...], rng: np.random.Generator) -> None:
    schedule = FORMS[form]
    if functions == LONG and schedule.kc and schedule.split_k == 1:
        with pytest.raises(ScheduleError, match=r"a formula in the epilogue reads the old C.*: set .*split_k = 2"):
            driver.emit(GemmSpec(epilogue=LONG), schedule, target=CPU)
        return
    orders = (("row", F32), ("row", F64), *([] if schedule.c_prefetch else [("col", F32)]))
    for order, dtype in orders:
        spec = GemmSpec(c_order=order, dtype=dtype, epilogue=functions)  # type: ignore[arg-type]
        for size in SIZES[1:3]:
            check(spec, schedule, rng, size)


@pytest.mark.parametrize("form", ALONG_K)
def test_along_k(form: str, rng: np.random.Generator) -> None:
    schedule, spec = ALONG_K[form]
    for size in ((7, 5, 21), (2, 3, 0)):
        check(replace(spec, epilogue=BLIND), schedule, rng, size)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_function(function: str, rng: np.random.Generator) -> None:
    """They all have vectors, and go through them where a tile is whole."""
    spec = GemmSpec(epilogue=(WRITTEN.get(function, function),))
    assert "no function of vectors" not in driver.emit(spec, COPIED, target=CPU).text
    check(spec, COPIED, rng, (6, 17, 9))


def test_sums_that_wait_do_not_go_through_it(rng: np.random.Generator) -> None:
    """A negative sum of the first block of K would be lost in relu."""
    spec = GemmSpec(epilogue=("relu",))
    kernel = build(spec, COPIED, CPU).main
    always = broken(kernel, changed(EpilogueStore, lambda s: replace(s, last=None)))
    problem = Finished.random(rng, spec, 6, 16, 9)
    problem.check(problem.interpret(Program((driver.run_passes(kernel, CPU),))))
    with pytest.raises(AssertionError, match="elements off"):
        problem.check(problem.interpret(Program((driver.run_passes(always, CPU),))))


def test_what_is_printed() -> None:
    text = driver.emit(GemmSpec(epilogue=("bias", "relu")), COPIED, target=CPU).text
    assert "c_values[j] += vload4(0, &bias[min(col + j * 4, n - 4)]);" in text
    assert "c_values[j] = c_values[j] < 0.0f ? (float4)(0.0f) : c_values[j];" in text
    assert text.count("After K's last block: the sum is whole.") == 2
    text = driver.emit(GemmSpec(epilogue=("relu",)), COPIED, "sycl").text
    assert "c_values[j] = sycl::select(c_values[j], sycl::float4(0.0f), c_values[j] < 0.0f);" in " ".join(text.split())
    text = driver.emit(GemmSpec(epilogue=("expr: acc if row != col else 0",)), IN_PLACE, target=CPU).text
    assert "What is no function of vectors goes element by element." in text
    assert not re.search("whole|c_values", text)


def test_a_schedule_with_vectors_is_chosen() -> None:
    """It was one of eight times the time, as nothing with vectors took an epilogue."""
    orders: tuple[Order, ...] = ("row", "col")
    for order in orders:
        spec = GemmSpec(epilogue=("bias", "gelu"), c_order=order)
        assert choose(spec, (1000, 1000, 1000), TARGETS["cpu"]).vector > 1
    spec = GemmSpec(epilogue=("expr: acc + c",))
    assert choose(spec, (1000, 1000, 1000), TARGETS["cpu"]).kc == 0


E, ROUND = Var("e"), Var("i")
VECTORS = Load(Buffer("values", F32, Space.PRIVATE, Layout.packed(8), vector=4), (E,))
MEMORY = Buffer("bias", F32, Space.GLOBAL, Layout((Var("n"),), (Const(1),)))
ONE = number(1, F32)
BELOW = compare("<", VECTORS, ONE)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (ONE, None),
        (convert(ROUND, F32), None),
        (Load(MEMORY, (ROUND + E,)), None),
        (Load(MEMORY, (ROUND * 4 + E + 2,)), None),
        (Load(MEMORY, (E * 2,)), "bias is not read by vectors"),
        (Bin("/", ONE, Call("exp", (VECTORS,), F32)), None),
        (Call("max", (VECTORS, Load(MEMORY, (ROUND,))), F32), None),
        (convert(E, F32), "vectors have no"),
        (Select(BELOW, ONE, VECTORS), None),
        (Select(compare("<", ROUND, Const(3)), ONE, VECTORS), "vectors have no"),
        (Select(compare("<", Load(MEMORY, (ROUND,)), ONE), ONE, VECTORS), "one condition chooses between vectors"),
        (Select(Bin("&&", BELOW, BELOW), ONE, VECTORS), "vectors have no"),
    ],
)
def test_what_vectors_have(value: Expr, problem: str | None) -> None:
    found = value_problem(value, E, 4)
    assert (found is None) if problem is None else (found is not None and problem in found)
