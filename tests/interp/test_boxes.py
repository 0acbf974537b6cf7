"""Rings that a warpgroup of its own fills by TMA: right for any size, and with one thing wrong each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind
from gemmgen.ir.stmt import TmaCopy
from gemmgen.ir.synchronization import Mbarrier
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.walk import walk
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.interp.test_broken_rings import RING
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Problem, interpret
from tests.support.refusals import Made, refusals

SM_90A = TARGETS["sm_90a"]
A, B = replace(RING.a, pad=0, width=1), replace(RING.b, width=1)
BOXES = RING.but(group=(8, 8), tma=True, producer_threads=128, setmaxnreg=(232, 40), a=A, b=B)
PACKED = BOXES.but(a=replace(BOXES.a, prepacked=True))
BOTH = PACKED.but(b=replace(PACKED.b, prepacked=True))
COLUMNS, LINES = GemmSpec(a_order="col", ld_multiple=4), GemmSpec(ld_multiple=4)


@pytest.mark.parametrize(
    ("schedule", "spec"),
    [
        (BOXES, COLUMNS),
        (PACKED.but(stream_k=True), LINES),
        (BOTH.but(stream_k=True, threadblock_swizzle=2), GemmSpec(b_order="col")),
        (PACKED.but(split_k=3), LINES),
        (BOXES.but(across_tiles=False, register_stages=1, stream_k=True), COLUMNS),
    ],
    ids=["as it lies", "packed", "both packed", "parts", "plain"],
)
def test_products(schedule: Schedule, spec: GemmSpec, rng: np.random.Generator) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    assert not [s for s in walk(program.main.body) if getattr(getattr(s, "atom", None), "is_async", False)]
    for size in ((33, 70, 41), (5, 7, 90), (3, 5, 0)):
        problem = Problem.random(rng, *size, 1.5, -0.5)
        problem.check(interpret(program, spec, problem, 4))


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (dropped(Mbarrier, verb="wait", name="tiles_full"), "unwritten", "nothing was written"),
        (dropped(Mbarrier, verb="wait", name="tiles_empty"), "race", "is still under way"),
        (dropped(Mbarrier, verb="arrive", name="tiles_empty"), "pipe", "never ends"),
        (dropped(Mbarrier, verb="expect"), "pipe", "bytes where 0 more are expected"),
        (changed(Mbarrier, lambda s: replace(s, bytes=s.bytes + 64), verb="expect"), "pipe", "never ends"),
    ],
    ids=["no wait", "no wait to fill", "no arrival", "no bytes", "other bytes"],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    problem = Problem.random(np.random.default_rng(5), 33, 45, 88)
    with faults(kind, detail):
        interpret(broken(driver.lower(COLUMNS, BOXES, SM_90A), rewrite), COLUMNS, problem, 4)


def test_boxes_of_a_batch() -> None:
    main = driver.lower(COLUMNS, BOXES, SM_90A)
    assert [matrix.tma_tile for matrix in main.matrices] == [(8, 32), (8, 32), None]
    assert len([s for s in walk(main.body) if isinstance(s, TmaCopy)]) == 2
    source = driver.emit(COLUMNS, BOXES, "cuda", SM_90A)
    assert [x.swizzle for x in source.entry_points[0].maps] == [0, 0]
    assert "CU_TENSOR_MAP_SWIZZLE_NONE" in source.text


def refused(schedule: Made, spec: GemmSpec = COLUMNS, target: Target = SM_90A) -> str:
    return "\n".join(refusals(spec, schedule, "cuda", target))


def test_refusals() -> None:
    assert refused(BOXES) == ""
    assert "lacks tensor_maps, wgmma: use target sm_90a" in refused(BOXES, target=TARGETS["sm_90"])
    assert "producer_threads = 0 < 1: give 1 to 128" in refused(
        partial(BOXES.but, producer_threads=0, setmaxnreg=(0, 0))
    )
    assert "mbarrier = 0 < 1: give 1 to 32" in refused(partial(BOXES.but, mbarrier=0))
    assert "use sliced_k 1" in refused(partial(BOXES.but, block_k=8, sliced_k=2))
    assert "a.pad = 4 means nothing to mainloop TmaRing: leave it out, or use a.pad 0" in refused(
        partial(BOXES.but, a=RING.a)
    )
    assert "A is row-major: store it by columns, or set a.prepacked" in refused(BOXES, LINES)
    assert "pass --ld-multiple 4, or set b.prepacked" in refused(BOXES, GemmSpec(a_order="col"))
    assert "not of a batch" in refused(BOXES, replace(COLUMNS, batched=True))
