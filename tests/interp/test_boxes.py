"""Rings that a warpgroup of its own fills by boxes: right for any size, and with one thing wrong each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.fault import FaultKind, KernelFault
from gemmgen.ir.kernel import Program
from gemmgen.ir.meetings import Mbarrier
from gemmgen.ir.stmt import Body, BoxCopy, Stmt
from gemmgen.ir.target import TARGETS, Target
from gemmgen.ir.walk import map_body, walk
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.interp.test_broken_rings import RING, mbarrier
from tests.support.problems import Problem, interpret

SM_90A = TARGETS["sm_90a"]
A, B = replace(RING.a, pad=0, width=1), replace(RING.b, width=1)
BOXES = replace(RING, group=(8, 8), boxes=True, producers=128, registers=(232, 40), a=A, b=B)
PACKED = replace(BOXES, a=replace(BOXES.a, packed=True))
BOTH = replace(PACKED, b=replace(PACKED.b, packed=True))
COLUMNS, LINES = GemmSpec(a_order="col", ld_multiple=4), GemmSpec(ld_multiple=4)


@pytest.mark.parametrize(
    ("schedule", "spec"),
    [
        (BOXES, COLUMNS),
        (replace(PACKED, stream=True), LINES),
        (replace(BOTH, stream=True, raster=2), GemmSpec(b_order="col")),
        (replace(PACKED, split=3), LINES),
        (replace(BOXES, across=False, register_stages=1, stream=True), COLUMNS),
    ],
    ids=["as it lies", "packed", "both packed", "parts", "plain"],
)
def test_products(schedule: Schedule, spec: GemmSpec, rng: np.random.Generator) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    assert not [s for s in walk(program.main.body) if getattr(getattr(s, "atom", None), "is_async", False)]
    for size in ((33, 70, 41), (5, 7, 90), (3, 5, 0)):
        problem = Problem.random(rng, *size, 1.5, -0.5)
        problem.check(interpret(program, spec, problem, 4))


def expect(rewrite: Callable[[Stmt], Body], kind: FaultKind, detail: str) -> None:
    main = driver.lower(COLUMNS, BOXES, SM_90A)
    body = map_body(main.body, rewrite)
    assert body != main.body, "nothing was broken"
    problem = Problem.random(np.random.default_rng(5), 33, 45, 88)
    with pytest.raises(KernelFault) as caught:
        interpret(Program((replace(main, body=body),)), COLUMNS, problem, 4)
    assert (caught.value.kind, detail in str(caught.value)) == (kind, True), caught.value


@pytest.mark.parametrize(
    ("verb", "which", "kind", "detail"),
    [
        ("wait", "full", "unwritten", "nothing was written"),
        ("wait", "empty", "race", "is still under way"),
        ("arrive", "empty", "pipe", "never ends"),
        ("expect", "full", "pipe", "bytes where 0 more are expected"),
    ],
)
def test_a_step_is_missing(verb: str, which: str, kind: FaultKind, detail: str) -> None:
    expect(lambda stmt: () if mbarrier(stmt, verb, which) else (stmt,), kind, detail)


def test_other_bytes_than_come() -> None:
    def rewrite(stmt: Stmt) -> Body:
        told = isinstance(stmt, Mbarrier) and stmt.verb == "expect"
        return (replace(stmt, bytes=stmt.bytes + 64),) if isinstance(stmt, Mbarrier) and told else (stmt,)

    expect(rewrite, "pipe", "never ends")


def test_boxes_of_a_batch() -> None:
    main = driver.lower(COLUMNS, BOXES, SM_90A)
    assert [matrix.box for matrix in main.matrices] == [(8, 32), (8, 32), None]
    assert len([s for s in walk(main.body) if isinstance(s, BoxCopy)]) == 2
    source = driver.emit(COLUMNS, BOXES, "cuda", SM_90A)
    assert [x.swizzle for x in source.entry_points[0].maps] == [0, 0]
    assert "CU_TENSOR_MAP_SWIZZLE_NONE" in source.text


def refused(schedule: Schedule, spec: GemmSpec = COLUMNS, target: Target = SM_90A) -> str:
    return "\n".join(driver.refusals(spec, schedule, "cuda", target))


def test_refusals() -> None:
    assert refused(BOXES) == ""
    assert "lacks tensor_maps, wgmma: use target sm_90a" in refused(BOXES, target=TARGETS["sm_90"])
    assert "but producers = 0: use 128" in refused(replace(BOXES, producers=0, registers=(0, 0)))
    assert "but mbarrier = 0: use mbarrier 4 with stages 16" in refused(replace(BOXES, mbarrier=0))
    assert "use slices 1" in refused(replace(BOXES, k_step=8, slices=2))
    assert "a.pad = 4, but a box has no gaps between its lines: use 0" in refused(replace(BOXES, a=RING.a))
    assert "A is row-major: store it by columns, or set a.packed" in refused(BOXES, LINES)
    assert "promise --ld-multiple 4, or set b.packed" in refused(BOXES, GemmSpec(a_order="col"))
    assert "not of a batch" in refused(BOXES, replace(COLUMNS, batched=True))
