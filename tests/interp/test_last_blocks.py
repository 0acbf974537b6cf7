"""The last block of a kernel that TMA feeds begins earlier where C is not read, and which kernels have that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.stmt import TmaCopy
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.presets import load
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import broken, changed, faults
from tests.support.problems import Problem, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
EARLIER = "the last block begins earlier"


def small(**changes: object) -> Schedule:
    """64x32 of C a block, by one warpgroup."""
    base = defaults("wgmma", (2, 8), (32, 4)).but(
        stages=2, threadblock_swizzle=0, producer_threads=32, setmaxnreg=(0, 0), c_width=1
    )
    return base.but(**changes)


def text(spec: GemmSpec, schedule: Schedule) -> str:
    return " ".join(driver.emit(spec, schedule, "cuda", SM_90A).text.replace("//", " ").split())


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize("shape", [(65, 33, 32), (70, 100, 40), (127, 31, 64), (3, 5, 8), (128, 64, 32)], ids=str)
@pytest.mark.parametrize("changes", [{}, {"persistent": True}, {"split_k": 2}, {"cluster": (2, 1)}], ids=str)
def test_products(
    changes: dict[str, object],
    shape: tuple[int, int, int],
    order: Order,
    rng: np.random.Generator,
) -> None:
    """Of random elements: two blocks compute the same bits, or it is a race."""
    spec = replace(SPEC, a_order=order, b_order=order)
    program = driver.lower_program(spec, small(**changes), SM_90A)
    for beta in (0.0, 2.0):
        problem = Problem.random(rng, *shape, 1.5, beta, spec)
        problem.check(interpret(program, spec, problem, 8))


@pytest.mark.parametrize(
    "changes",
    [{}, {"c_width": 4}, {"epilogue_stages": 1}, {"split_k": 2}],
    ids=["from registers", "staged", "by TMA", "parts"],
)
@pytest.mark.parametrize("order", ["row", "col"])
def test_a_residual(changes: dict[str, object], order: Order, rng: np.random.Generator) -> None:
    """It is no part of C, so that two blocks read the same of it."""
    plain, (m, n, k) = replace(SPEC, c_order=order), (70, 100, 40)
    spec = replace(plain, epilogue=("residual",))
    program = driver.lower_program(spec, small(**changes), SM_90A)
    problem = Problem.random(rng, m, n, k, 1.0, 0.0, plain)
    residual = rng.standard_normal((m, n)).astype(problem.c.dtype)
    lines = residual if order == "row" else residual.T
    found = interpret(program, spec, problem, 8, more={"residual": lines.reshape(-1), "ldr": lines.shape[1]})
    replace(problem, c=np.asarray(residual, order="C" if order == "row" else "F"), beta=1.0).check(found)
    assert EARLIER in text(spec, small(**changes)).replace("The last", "the last")


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (replace(SPEC, epilogue=("expr: acc + c",)), {}),
        (replace(SPEC, multiple_of=(64, 32, 1)), {}),
        (replace(SPEC, beta=1.0), {}),
        (SPEC, {"a.prepacked": True, "b.prepacked": True}),
    ],
    ids=["C in a formula", "whole tiles", "beta", "packed"],
)
def test_blocks_that_begin_in_their_places(spec: GemmSpec, changes: dict[str, object]) -> None:
    assert EARLIER in text(SPEC, small())
    assert EARLIER not in text(spec, small(**changes)).replace("The last", "the last")


@pytest.mark.parametrize(
    ("changes", "earlier"),
    [({}, True), ({"split_k": 2}, True), ({"stream_k": True}, False), ({"split_k": 2, "atomic": True}, False)],
    ids=["one part of K", "parts", "stream-K", "parts added to C"],
)
def test_a_ring_that_single_work_items_read(changes: dict[str, object], earlier: bool) -> None:
    """Stream-K gives blocks other parts of K, and so other bits; what is added to C is so once."""
    ring = load("mbarrier_8x16_16x16_boxes_packed").schedule.but(**{"a.prepacked": False, "b.prepacked": False})
    spec = GemmSpec(dtype=F32, ld_multiple=4, a_order="col")
    shown = text(spec, ring.but(**{"stream_k": False, "split_k": 1, **changes})).lower()
    assert (EARLIER in shown) == earlier


def test_a_line_of_c_begins_where_vectors_may() -> None:
    """Columns on a multiple of 16 bytes; rows anywhere, but where the lines of A lie along them."""
    plain, by_columns = text(SPEC, small()), text(replace(SPEC, a_order="col"), small())
    assert "* BM, m - min(m, BM))" in plain
    assert "(n - min(n, BN) + 7) / 8 * 8" in plain
    assert "(m - min(m, BM) + 7) / 8 * 8" in by_columns


def test_other_bits_are_a_race() -> None:
    """Of a block that takes other rows of A than those that it computes."""
    kernel = driver.lower(SPEC, small(), SM_90A)
    problem = Problem.random(np.random.default_rng(1), 70, 32, 64, 1.0, 0.0, SPEC)
    problem.check(interpret(kernel, SPEC, problem, 8))

    def others(copy: TmaCopy) -> TmaCopy:
        row, k = copy.src_index
        return replace(copy, src_index=(row - row % 8, k))

    with faults("race", "writes what"):
        interpret(broken(kernel, changed(TmaCopy, others, lambda copy: copy.src.name == "a")), SPEC, problem, 8)
