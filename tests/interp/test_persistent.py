"""Groups that compute one block of C after the other: rings that go on; and one thing wrong each, which shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.expr import Const, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Alloc, Body, For, If
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import map_body_exprs, substitute, walk, walk_expr
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec
from tests.support.broken import Rewrite, broken, changed, dropped, faults
from tests.support.problems import Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=8)


def staying(**changes: object) -> Schedule:
    """64x64 of C at a time, by one warpgroup."""
    base = defaults("wgmma", (2, 16), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), persistent=True)
    return base.but(**{"stages": 3, "threadblock_swizzle": 2, "c_width": 2, **changes})


#: Two warpgroups that store one after the other.
TURNS: dict[str, object] = {
    "group": (64, 4),
    "producer_threads": 128,
    "setmaxnreg": (232, 40),
    "tile": (2, 32),
    "c_width": 1,
    "epilogue_stages": 1,
    "ordered_epilogue": True,
}


@pytest.mark.parametrize("resident", [1, 2, 3, 20])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_every_ring_and_number_of_groups(stages: int, resident: int, rng: np.random.Generator) -> None:
    """Six blocks, whose steps of K are fewer than the slots, as many, more, and no multiple; by one group to six."""
    kernel = driver.lower(SPEC, staying(stages=stages), SM_90A)
    for k in (1, 128, 320):
        problem = Problem.of(rng, SPEC, 130, 100, k, -2.0, 3.0)
        problem.check(interpret(kernel, SPEC, problem, 8, resident=resident))


@pytest.mark.parametrize(
    ("changes", "resident"),
    [
        ({"c_width": 4, "threadblock_swizzle": 0}, 1),
        ({"c_width": 8, "stages": 2}, 2),
        ({"group": (64, 4), "producer_threads": 128, "setmaxnreg": (232, 40)}, 2),
        ({"tile": (4, 16)}, 1),
        ({**TURNS, "cluster": (2, 1)}, 1),
        ({**TURNS, "group": (96, 4), "setmaxnreg": (160, 32)}, 2),
    ],
    ids=["sums put down", "in eights", "two warpgroups", "two turns of rows", "one after the other", "three so"],
)
def test_sums_and_roles(changes: dict[str, object], resident: int, rng: np.random.Generator) -> None:
    kernel = driver.lower(SPEC, staying(**changes), SM_90A)
    problem = Problem.of(rng, SPEC, 200, 136, 330, -2.0, 3.0)
    problem.check(interpret(kernel, SPEC, problem, 8, resident=resident))


def test_nothing_along_k_leaves_beta_times_c(rng: np.random.Generator) -> None:
    check_products(driver.lower(SPEC, staying(), SM_90A), SPEC, rng, (130, 70, 0), factors=(2.0, 0.5), pad=8)


def test_whole_blocks_ask_nothing(rng: np.random.Generator) -> None:
    spec = replace(SPEC, multiple_of=(64, 64, 64), alpha=1.0, beta=0.0)
    kernel = driver.lower(spec, staying(), SM_90A)
    asked = [s for s in walk(kernel.body) if isinstance(s, If) and not s.roles]
    assert len(asked) == 3, "the one that copies, and the lane of a warp that arrives, also for the last step"
    problem = replace(Problem.integers(rng, 256, 128, 320), spec=spec).typed(spec)
    assert np.array_equal(interpret(kernel, spec, problem, 8), problem.expected)


# --- one thing wrong ------------------------------------------------------------------------------


def arrives_after_all_steps(stmt: If) -> bool:
    arrives = any(isinstance(s, Mbarrier) and s.verb == "arrive" for s in stmt.then)
    return arrives and Var("steps") in {*walk_expr(stmt.condition)}


def passes_on(stmt: If) -> bool:
    return any(isinstance(s, Mbarrier) and (s.verb, s.name) == ("arrive", "may_store") for s in stmt.then)


def of_first(body: Body) -> Body:
    """Slots that begin anew with each block: they are those of the first block again."""
    return map_body_exprs(body, substitute({Var("steps"): Const(0)}))


@pytest.mark.parametrize(
    ("rewrite", "kind", "detail", "k", "changes"),
    [
        (dropped(If, arrives_after_all_steps), "pipe", "waits for a phase of tiles_empty.* that never ends", 320, {}),
        (
            dropped(If, passes_on),
            "pipe",
            "waits for a phase of may_store.* that never ends",
            64,
            {**TURNS, "tile": (2, 16)},
        ),
        (changed(If, lambda s: replace(s, then=of_first(s.then)), lambda s: s.roles), "pipe", "never ends", 320, {}),
        (
            changed(If, lambda s: replace(s, orelse=of_first(s.orelse)), lambda s: s.roles),
            "pipe",
            "never ends",
            320,
            {},
        ),
        # With more steps than slots, a step of the next block would be enough of a meeting.
        (dropped(Barrier, lambda s: s.role_items, only=0), "race", "sums", 64, {"c_width": 4}),
        (
            changed(Alloc, lambda s: replace(s, reuses=True), lambda s: s.buffer.name == "sums"),
            "race",
            "in whose place something else lies",
            320,
            {"c_width": 4},
        ),
    ],
    ids=[
        "the last slot of a block is not given back",
        "a turn that nobody passes on",
        "anew for those that multiply",
        "anew for the one that copies",
        "sums put down while others take up the last",
        "sums put down where the next tiles come",
    ],
)
def test_one_thing_wrong(rewrite: Rewrite, kind: FaultKind, detail: str, k: int, changes: dict[str, object]) -> None:
    """Of four blocks of `k` along K by one group."""
    kernel = driver.lower(SPEC, staying(**changes), SM_90A)
    wrong = broken(kernel, rewrite, SM_90A)
    run(kernel, k)
    with faults(kind, detail):
        run(wrong, k)


def run(kernel: Kernel, k: int) -> None:
    problem = Problem.of(np.random.default_rng(2), SPEC, 128, 128, k, 1.0, 0.0)
    problem.check(interpret(kernel, SPEC, problem, 8, resident=1))


def test_a_group_goes_over_its_blocks_and_no_more() -> None:
    kernel = driver.lower(SPEC, staying(), SM_90A)
    loops = [s for s in walk(kernel.body) if isinstance(s, For) and s.var.name == "wave"]
    assert len(loops) == 2, "one of each role"
    assert kernel.persistent
