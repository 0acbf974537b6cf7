"""Rings that nobody chose: mbarriers, slices, parts of K, bands of groups, staggered lanes, vectors of C."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmgen import driver
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import Problem, interpret

SM_90 = TARGETS["sm_90"]
orders: st.SearchStrategy[Order] = st.sampled_from(("row", "row", "col"))
#: Tiles and groups that most fields go with; others are refused so often that little would be run.
SHAPES = [((2, 4), (4, 8)), ((4, 4), (4, 8)), ((4, 4), (8, 4)), ((4, 8), (2, 16)), ((8, 8), (4, 8)), ((3, 4), (4, 8))]


def operand(of_async: bool, width: int, transposed: bool, pad: int) -> Operand:
    return Operand("local", width, transposed=transposed, pad=pad, async_copy=of_async)


@st.composite
def operands(draw: st.DrawFn, of_async: bool) -> Operand:
    width, pad = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([0, 4]))
    return operand(of_async, width, draw(st.booleans()), pad)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A ring, with as many of its fields departing from the usual as chance has it."""
    tile, group = draw(st.sampled_from(SHAPES))
    warps = [None, *((r, c) for r, c in ((4, 8), (8, 4), (2, 16)) if group[0] % r == 0 and group[1] % c == 0)]
    warp = draw(st.sampled_from(warps))
    slices, across = draw(st.sampled_from([1, 1, 2, 4])), draw(st.booleans())
    mbarrier, asynchronous = draw(st.sampled_from([0, 1, 2, 3])), draw(st.integers(0, 3)) > 0
    stages = draw(st.integers(3, 5)) * mbarrier if mbarrier else draw(st.integers(1, 4))
    run = draw(st.sampled_from([tile, (1, 4), (1, 2), (tile[0], 2)]))
    split = draw(st.sampled_from([1, 1, 2, 3, 8]))
    return Schedule(
        tile=tile,
        group=group,
        run=run,
        k_step=slices * draw(st.sampled_from([2, 4])),
        a=draw(operands(mbarrier > 0 or asynchronous)),
        b=draw(operands(mbarrier > 0 or asynchronous)),
        stages=stages,
        mbarrier=mbarrier,
        slices=slices,
        split=split,
        atomic=split > 1 and draw(st.booleans()),
        raster=draw(st.sampled_from([0, 1, 2, 3])),
        register_stages=2 if across else draw(st.integers(1, 2)),
        warp=warp,
        stagger=warp is not None and draw(st.booleans()),
        across=across,
        snake=draw(st.booleans()),
        c_width=draw(st.sampled_from([w for w in (1, 2, 4) if run[1] % w == 0])),
    )


@dataclass(frozen=True)
class Request:
    """A product that is not refused; `pad` lengthens the lines of all matrices."""

    spec: GemmSpec
    schedule: Schedule
    size: tuple[int, int, int]
    pad: int


@st.composite
def requests(draw: st.DrawFn) -> Request:
    spec = GemmSpec(a_order=draw(orders), b_order=draw(orders), c_order=draw(orders))
    spec = replace(spec, beta=draw(st.sampled_from([None, 0.0, 1.0, -1.5])))
    schedule = draw(schedules().filter(lambda s: not driver.refusals(spec, s, "cuda", SM_90)))
    m, n, k = draw(st.integers(1, 90)), draw(st.integers(1, 90)), draw(st.integers(1, 150))
    pad = draw(st.integers(0, 4))
    multiples = [1, 1, 1]
    for axis, whole in enumerate((*schedule.block_tile, schedule.round_depth)):
        multiples[axis] = draw(st.sampled_from([1, 1, whole]))
    if draw(st.booleans()):
        # Every line begins where a vector may.
        spec, pad, (m, n, k) = replace(spec, ld_multiple=4), pad // 4 * 4, (-(-x // 4) * 4 for x in (m, n, k))
    m, n, k = (-(-x // least) * least for x, least in zip((m, n, k), multiples, strict=True))
    if spec.ld_multiple == 4:
        m, n, k = (x if x % 4 == 0 else x * 4 for x in (m, n, k))
    spec = replace(spec, multiple_of=(multiples[0], multiples[1], multiples[2]))
    if draw(st.integers(0, 3)) == 0:
        spec = replace(spec, m=m, n=n, k=k)
    return Request(spec, schedule, (m, n, k), pad)


@given(requests(), st.integers(0, 2**32 - 1))
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_what_is_not_refused_is_right(request: Request, seed: int) -> None:
    spec = request.spec
    program = driver.lower_program(spec, request.schedule, SM_90)
    beta = 0.25 if spec.beta is None else spec.beta
    problem = Problem.random(np.random.default_rng(seed), *request.size, 1.5, beta)
    problem.check(interpret(program, spec, problem, request.pad))
    driver.emit(spec, request.schedule, "cuda", SM_90)
