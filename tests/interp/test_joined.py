"""Parts of K that the groups of a cluster add up in local memory: any order and size; one thing wrong shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind, ScheduleError
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.expr import Const
from gemmgen.ir.stmt import Stmt, VectorCopy
from gemmgen.ir.synchronization import Barrier, DependentLaunch
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.interp.test_broken_rings import PLAIN, RING
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.epilogues import Finished
from tests.support.problems import Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)


def joined(swapped: bool = False, **changes: object) -> Schedule:
    """64x64 of C a block, or 16x64 by swapped operands; K in two parts, one for each group of a cluster."""
    tile, group = ((4, 2), (4, 32)) if swapped else ((2, 16), (32, 4))
    base = defaults("wgmma", tile, group).but(stages=2, producer_threads=32, setmaxnreg=(0, 0), c_width=4)
    return base.but(**{"split_k": 2, "cluster_reduction": 2, **changes})


def check(spec: GemmSpec, schedule: Schedule, rng: np.random.Generator, *sizes: tuple[int, int, int]) -> None:
    program = driver.lower_program(spec, schedule, SM_90A)
    check_products(program, spec, rng, *sizes, pad=8)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("order", ["row", "col"])
def test_any_size_and_order(order: Order, swapped: bool, rng: np.random.Generator) -> None:
    """C that ends within a block; K that is less than a part, or ends within one."""
    check(replace(SPEC, c_order=order), joined(swapped, c_width=2), rng, (9, 70, 30), (66, 65, 200), (20, 64, 0))


@pytest.mark.parametrize(
    ("swapped", "changes"),
    [
        (False, {"split_k": 8, "cluster_reduction": 4}),
        (True, {"split_k": 6}),
        (True, {"group": (4, 64), "tile": (8, 2), "threadblock_swizzle": 2}),
    ],
    ids=["two clusters of four", "three clusters, swapped", "two warpgroups"],
)
def test_more_parts_and_groups(swapped: bool, changes: dict[str, object], rng: np.random.Generator) -> None:
    """Where there are more parts than groups in a cluster, a second kernel adds up the rest."""
    program = driver.lower_program(SPEC, joined(swapped, **changes), SM_90A)
    assert len(program.kernels) == (2 if "split_k" in changes else 1)
    # Who adds up lets the next kernel in before it waits itself: that one waits, too.
    handed = [s.verb for kernel in program.kernels[1:] for s in walk(kernel.body) if isinstance(s, DependentLaunch)]
    assert handed == ["release", "await"][: 2 * (len(program.kernels) - 1)]
    check(SPEC, joined(swapped, **changes), rng, (30, 130, 500))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("order", ["row", "col"])
def test_functions_on_elements(order: Order, swapped: bool, rng: np.random.Generator) -> None:
    """Of C's own rows and columns, by vectors and singly where C ends."""
    steps = ("bias", "row_scale", "expr: acc + 3 * row + col", "residual")
    spec = replace(SPEC, c_order=order, c_dtype=F32, epilogue=steps)
    finished = Finished.random(rng, spec, 18, 67, 100, 1.0, 2.0)
    finished.check(finished.interpret(driver.lower_program(spec, joined(swapped), SM_90A), 8))


def test_factors_that_are_folded(rng: np.random.Generator) -> None:
    """Where alpha is zero nobody copies, and all meet all the same."""
    spec = replace(SPEC, k=150, beta=1.0)
    kernel = driver.lower(spec, joined(), SM_90A)
    for alpha in (0.0, 2.0):
        check_products(kernel, spec, rng, (20, 70, 150), factors=(alpha, 1.0), pad=8)


# --- one thing wrong ------------------------------------------------------------------------------


def meeting(part: str, *instead: Stmt) -> Rewrite:
    """Other statements for one of the cluster's meetings."""
    return changed(Barrier, lambda _: instead, lambda s: s.groups > 1, part=part)


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail"),
    [
        (meeting("all", Barrier(role_items=128)), "race", "reads what .* wrote"),
        (meeting("wait"), "race", "that group may not have begun"),
        (meeting("arrive"), "divergent barrier", "none of those that are waited for has arrived"),
        (
            changed(
                VectorCopy,
                lambda s: replace(s, src_index=(Const(0), *s.src_index[1:])),
                lambda s: s.src.distributed > 1,
            ),
            "race",
            "another group's plane",
        ),
    ],
    ids=["read too soon", "written too soon", "a wait for nothing", "in another's memory"],
)
def test_what_is_wrong_shows(rewrite: Rewrite, kind: FaultKind, detail: str) -> None:
    kernel = driver.lower(SPEC, joined(swapped=True), SM_90A)
    wrong = broken(kernel, rewrite, SM_90A)
    problem = Problem.random(np.random.default_rng(2), 16, 64, 128, 1.0, 0.0, SPEC)
    problem.check(interpret(kernel, SPEC, problem, 8))
    with faults(kind, detail):
        interpret(wrong, SPEC, problem, 8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"split_k": 3}, "cluster_reduction = 2 of split_k = 3 parts"),
        ({"split_k": 16, "cluster_reduction": 16}, "none of their divisors up to 8"),
        ({"cluster": (2, 1)}, "cluster_reduction = 2 makes clusters of parts of K"),
        ({"epilogue_stages": 1}, "epilogue_stages = 1 stores C by TMA"),
        (
            {"c_width": 8, "split_k": 8, "cluster_reduction": 8},
            "64 lines of 64 for 8 groups of a cluster, in runs of 8 to 128",
        ),
    ],
)
def test_refusals(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        driver.lower(SPEC, joined(False, **changes), SM_90A)


def test_other_methods_have_none() -> None:
    with pytest.raises(ScheduleError, match="cluster_reduction = 2 means nothing to mainloop Direct"):
        driver.lower(GemmSpec(), defaults("naive").but(split_k=2, cluster_reduction=2), TARGETS["sm_90"])


# --- work-items that multiply ---------------------------------------------------------------------

SM_90 = TARGETS["sm_90"]
TWO = {"split_k": 2, "cluster_reduction": 2}
PACKED = {name: replace(getattr(PLAIN, name), prepacked=True, pad=0) for name in "ab"}


@pytest.mark.parametrize("order", ["row", "col"])
@pytest.mark.parametrize(
    ("base", "changes"),
    [
        (RING, TWO),
        (PLAIN, {"split_k": 4, "cluster_reduction": 4, "c_width": 1}),
        (PLAIN, {"split_k": 4, "cluster_reduction": 2, "threadblock_swizzle": 2}),
        (RING, {**TWO, **PACKED}),
        (defaults("slm", (4, 4), (8, 8)), {**TWO, "c_width": 4}),
    ],
    ids=["ring", "single elements", "two clusters", "packed", "no asynchronous copies"],
)
def test_work_items(base: Schedule, changes: dict[str, object], order: Order, rng: np.random.Generator) -> None:
    """Parts of K that end anywhere, and that are empty; C that ends within a block."""
    schedule, spec = base.but(**changes), GemmSpec(c_order=order, epilogue=("bias",))
    program = driver.lower_program(spec, schedule, SM_90)
    assert len(program.kernels) == 1 + any(program.workspaces), "what packs, or what adds up clusters' sums"
    for m, n, k in ((16, 32, 88), (33, 70, 41), (5, 7, 3), (20, 40, 0)):
        problem = Problem.random(rng, m, n, k, 1.5, -0.5, spec)
        found = interpret(program, spec, problem, 3, {"bias": (bias := rng.standard_normal(n).astype(np.float32))})
        assert np.allclose(found, problem.a.astype(np.float64) @ problem.b * 1.5 - 0.5 * problem.c + bias, atol=1e-4)


@pytest.mark.parametrize(
    ("rewrite", "detail"),
    [
        (dropped(Barrier, lambda s: s.groups > 1, only=0), "may still be in use: no barrier"),
        (changed(Barrier, lambda s: replace(s, groups=1), lambda s: s.groups > 1, only=1), "reads what .* wrote"),
    ],
    ids=["written too soon", "read too soon"],
)
def test_work_items_meet_twice(rewrite: Rewrite, detail: str, rng: np.random.Generator) -> None:
    kernel = driver.lower(GemmSpec(), PLAIN.but(**TWO), SM_90)
    assert len([s for s in walk(kernel.body) if isinstance(s, Barrier) and s.groups > 1]) == 2
    wrong = broken(kernel, rewrite, SM_90)
    problem = Problem.random(rng, 16, 32, 88)
    problem.check(interpret(kernel, GemmSpec(), problem))
    with faults("race", detail):
        interpret(wrong, GemmSpec(), problem)


@pytest.mark.parametrize(
    ("target", "changes", "said"),
    [
        ("sm_80", {}, "target 'sm_80' has no clusters"),
        ("sm_90", {"split_k": 3}, "cluster_reduction = 2 of split_k = 3 parts"),
        ("sm_90", {"block_k": 8, "sliced_k": 2}, "cluster_reduction = 2 and sliced_k = 2 both"),
        ("sm_90", {"tile": (4, 12)}, "do not come out even"),
    ],
)
def test_refusals_of_work_items(target: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        driver.lower(GemmSpec(), PLAIN.but(mbarrier=0, **{**TWO, **changes}), TARGETS[target])


@pytest.mark.parametrize("method", ["mma_3xtf32", "wgmma_3xtf32"])
def test_sums_of_steps_and_of_parts(method: str, rng: np.random.Generator) -> None:
    """K in parts, whose products of TF32 are added up step by step: both have sums of their own."""
    spec = GemmSpec(ld_multiple=4, b_order="col")
    schedule = defaults(method).but(split_k=2)
    check_products(driver.lower_program(spec, schedule, SM_90A), spec, rng, (9, 70, 150), factors=(1.0, 0.5), pad=4)
