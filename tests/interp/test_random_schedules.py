"""Schedules, specs and sizes that nobody chose: whatever is not refused must be right and free of races."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmgen import driver, presets
from gemmgen.ir.target import TARGETS
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.problems import Problem, interpret

CHANGES: dict[str, st.SearchStrategy[object]] = {
    "tile": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4, 8])),
    "group": st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.sampled_from([1, 4, 8, 16])),
    "run": st.tuples(st.sampled_from([1, 2, 3, 4, 8, 16]), st.sampled_from([1, 2, 3, 4])),
    "k_step": st.sampled_from([1, 2, 3, 4, 8, 16, 24]),
    "b_step": st.sampled_from([0, 4, 8]),
    "sub_group": st.sampled_from([None, 8, 16]),
    "stages": st.sampled_from([1, 2, 3, 6, 12]),
    "mbarrier": st.sampled_from([0, 1, 2, 3]),
    "slices": st.sampled_from([1, 2, 4]),
    "split": st.sampled_from([1, 2, 3]),
    "atomic": st.booleans(),
    "raster": st.sampled_from([0, 1, 2, 3]),
    "stagger": st.booleans(),
    "c_width": st.sampled_from([1, 2, 4]),
    "prefetch": st.booleans(),
    "register_stages": st.sampled_from([1, 2]),
    "barrier": st.booleans(),
    "warp": st.sampled_from([None, (4, 8), (2, 16)]),
    "across": st.booleans(),
    "snake": st.booleans(),
}
OPERAND_CHANGES: dict[str, st.SearchStrategy[object]] = {
    "memory": st.sampled_from(["global", "local", "image"]),
    "width": st.sampled_from([1, 2, 4, 8]),
    "block": st.booleans(),
    "share": st.booleans(),
    "transposed": st.booleans(),
    "pad": st.sampled_from([0, 1, 4]),
    "async_copy": st.booleans(),
}
orders: st.SearchStrategy[Order] = st.sampled_from(("row", "col"))
sizes = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40))
factors = st.sampled_from([None, 0.0, 1.0, -1.5])


#: Warps that multiply as one have types, and bounds, of their own: `test_warps.py`.
BASES = [name for name in presets.names() if not presets.load(name).schedule.by_warps]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """A preset with up to four fields changed."""
    flat: dict[str, object] = {}
    operands: dict[str, dict[str, object]] = {"a": {}, "b": {}}
    for _ in range(draw(st.integers(0, 4))):
        operand = draw(st.sampled_from([None, None, "a", "b"]))
        known = CHANGES if operand is None else OPERAND_CHANGES
        field = draw(st.sampled_from(sorted(known)))
        (flat if operand is None else operands[operand])[field] = draw(known[field])
    base = presets.load(draw(st.sampled_from(BASES))).schedule
    a, b = (replace(old, **operands[x]) for x, old in (("a", base.a), ("b", base.b)))  # type: ignore[arg-type]
    return replace(base, name=None, a=a, b=b, **flat)  # type: ignore[arg-type]


@st.composite
def requests(draw: st.DrawFn) -> tuple[GemmSpec, Schedule, str, tuple[int, int, int]]:
    """A request that is not refused, with a size."""
    m, n, k = size = draw(sizes)
    spec = GemmSpec(a_order=draw(orders), b_order=draw(orders), c_order=draw(orders), beta=draw(factors))
    if draw(st.booleans()):
        spec = replace(spec, m=m, n=n, k=k)
    target = draw(st.sampled_from(["intel", "khr", "portable", "sycl", "sm_75", "sm_90"]))
    schedule = draw(schedules().filter(lambda s: _taken(spec, s, target)))
    return spec, schedule, target, size


def _backend(target: str) -> str:
    return "cuda" if target.startswith("sm_") else "sycl" if target == "sycl" else "opencl"


def _taken(spec: GemmSpec, schedule: Schedule, target: str) -> bool:
    return not driver.refusals(spec, schedule, _backend(target), TARGETS[target])


@given(requests(), st.integers(0, 2**32 - 1))
@settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_what_is_not_refused_is_right(request: tuple[GemmSpec, Schedule, str, tuple[int, int, int]], seed: int) -> None:
    spec, schedule, target, (m, n, k) = request
    kernel = driver.lower_program(spec, schedule, TARGETS[target])
    beta = 0.25 if spec.beta is None else spec.beta
    problem = Problem.random(np.random.default_rng(seed), m, n, k, 1.5, beta)
    problem.check(interpret(kernel, spec, problem))
    driver.emit(spec, schedule, _backend(target), TARGETS[target])
