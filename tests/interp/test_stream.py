"""Blocks of C and batches of K dealt out evenly to a few groups: each sum is there once, whoever has which part."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind, ScheduleError
from gemmgen.ir.expr import Const
from gemmgen.ir.stmt import For, Let, Stmt
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import evaluate
from gemmgen.schedule import Schedule
from gemmgen.schedulers import BEFORE, SEGMENT
from gemmgen.spec import GemmSpec
from tests.interp.test_broken_rings import PLAIN, RING
from tests.support.broken import Rewrite, broken_main, changed, faults
from tests.support.problems import Problem, interpret
from tests.support.refusals import Made, made

SM_90 = TARGETS["sm_90"]
STREAM = RING.but(stream_k=True)
PACKED = STREAM.but(threadblock_swizzle=2, a=replace(RING.a, prepacked=True), b=replace(RING.b, prepacked=True))
PLAIN_STREAM = PLAIN.but(stream_k=True)
#: Blocks are 16x32, batches eight deep. Fewer blocks than groups, and batches as well; seven, of which three groups
#: compute one each; twelve, none of which is shared; no K.
SIZES = ((16, 32, 90), (5, 7, 9), (33, 70, 41), (64, 96, 20), (20, 40, 0))


@pytest.mark.parametrize("groups", [3, 4, 1])
@pytest.mark.parametrize("schedule", [STREAM, PACKED, PLAIN_STREAM], ids=["across", "packed", "plain"])
def test_products(schedule: Schedule, groups: int, rng: np.random.Generator) -> None:
    program = driver.lower_program(GemmSpec(), schedule, SM_90)
    for size in SIZES:
        problem = Problem.random(rng, *size, 1.5, -0.5)
        problem.check(interpret(program, GemmSpec(), problem, groups=groups))


@pytest.mark.parametrize("alpha", [1.5, 0.0])
@pytest.mark.parametrize("groups", [3, 1])
def test_sizes_that_are_folded(groups: int, alpha: float, rng: np.random.Generator) -> None:
    """The kernel itself asks for alpha then, once for each part; mbarriers count on from one part to the next."""
    spec = GemmSpec(m=34, n=70, k=42)
    program = driver.lower_program(spec, STREAM, SM_90)
    problem = Problem.random(rng, 34, 70, 42, alpha, -0.5)
    problem.check(interpret(program, spec, problem, groups=groups))


def test_what_is_stored_late_is_finished_as_all_is(rng: np.random.Generator) -> None:
    """Shares are added up by whole blocks, so that an epilogue and a C by columns see whole sums."""
    spec = GemmSpec(epilogue=("relu",), c_order="col")
    problem = Problem.integers(rng, 20, 40, 33)
    expected = np.maximum(problem.expected, 0)
    schedule = STREAM.but(c_width=1)
    assert np.array_equal(interpret(driver.lower_program(spec, schedule, SM_90), spec, problem), expected)


def test_the_same_bits_for_any_number_of_blocks_behind(rng: np.random.Generator) -> None:
    """A block's sum depends on where pieces end, and on nothing else: two runs are equal bit for bit."""
    program = driver.lower_program(GemmSpec(), STREAM, SM_90)
    problem = Problem.random(rng, 20, 40, 90)
    first, second = (interpret(program, GemmSpec(), problem) for _ in range(2))
    assert np.array_equal(first, second)


def unmet(loop: For) -> Stmt:
    """A ring that is filled again while others read."""
    return replace(loop, body=tuple(s for s in loop.body if not isinstance(s, Barrier)))


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (changed(For, unmet, var=SEGMENT), "race", "with no barrier between"),
        # Phases that are counted from the start each time.
        (changed(Let, lambda s: replace(s, value=Const(0)), var=BEFORE), "pipe", "never ends"),
    ],
    ids=["no barrier", "from the start"],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    program = driver.lower_program(GemmSpec(), STREAM, SM_90)
    with faults(kind, detail):
        interpret(broken_main(program, rewrite), GemmSpec(), Problem.random(np.random.default_rng(5), 33, 70, 41))


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (
            STREAM.but(mbarrier=0),
            (
                "stream_k needs an mbarrier pipeline, but mbarrier = 0: "
                "use mbarrier 4 with stages 16, say, or leave stream_k out"
            ),
        ),
        (
            partial(STREAM.but, split_k=2),
            "split_k = 2 means nothing to scheduler StreamK: leave it out, or use split_k 1",
        ),
        (STREAM.but(block_k=8, sliced_k=2), "stream_k deals out K already, but sliced_k = 2: use sliced_k 1"),
    ],
)
def test_refusals(schedule: Made, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        driver.emit(GemmSpec(), made(schedule), "cuda", SM_90)
    assert message in caught.value.problems


def test_batches_are_refused() -> None:
    with pytest.raises(ScheduleError, match="deals out one product, not a batch: leave it out"):
        driver.emit(GemmSpec(batched=True), STREAM, "cuda", SM_90)


def test_the_text_says_how() -> None:
    source = driver.emit(GemmSpec(), STREAM, "cuda", SM_90)
    head = " ".join(source.text.partition("#ifndef")[0].replace("//", "").split())
    assert "stream-K: a block per multiprocessor, parts of blocks added up by a second kernel" in head
    (workspace,) = source.workspaces
    assert evaluate(workspace.elements, {"groups": 132}) == 2 * 132 * 16 * 32
    assert "132" not in source.text
    assert [entry.name.removeprefix(source.name) for entry in source.entry_points] == ["", "_total"]
