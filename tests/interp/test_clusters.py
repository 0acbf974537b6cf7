"""Groups of a cluster that copy for one another; and one thing wrong each, which shows. They run in step here, so that
what one does too late for the other does not: that none leaves early is asked of the text of the kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.expr import Const, Expr, Var, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import If, Stmt, TmaCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.walk import walk
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
from tests.support.broken import Rewrite, broken, changed, faults
from tests.support.problems import Problem, check_products, interpret

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, c_dtype=F32, ld_multiple=8)


def paired(**changes: object) -> Schedule:
    """64x128 of C a group, by one warpgroup."""
    base = defaults("wgmma", (2, 32), (32, 4)).but(producer_threads=32, setmaxnreg=(0, 0), cluster=(2, 1))
    return base.but(**{"stages": 3, "threadblock_swizzle": 2, "c_width": 2, **changes})


ROW_ROW, COL_COL = ("row", "row"), ("col", "col")


@pytest.mark.parametrize(
    ("changes", "orders"),
    [
        ({}, COL_COL),
        ({"cluster": (1, 2)}, ROW_ROW),
        ({"cluster": (1, 2)}, COL_COL),
        ({"persistent": True, "c_width": 1, "epilogue_stages": 2, "tile": (4, 32)}, ROW_ROW),
        (
            {
                "persistent": True,
                "cluster": (1, 2),
                "stages": 2,
                "group": (64, 4),
                "producer_threads": 128,
                "setmaxnreg": (232, 40),
            },
            COL_COL,
        ),
        ({"tile": (2, 24), "threadblock_swizzle": 0}, ROW_ROW),
        ({"cluster": (4, 1)}, ROW_ROW),
        ({"cluster": (4, 1)}, COL_COL),
        ({"cluster": (1, 4), "persistent": True}, ROW_ROW),
        ({"cluster": (1, 4)}, COL_COL),
    ],
    ids=[
        "above",
        "beside",
        "beside, transposed",
        "above, one after the other",
        "beside, one after the other",
        "parts of every box",
        "four above one another",
        "four above one another, transposed",
        "four beside one another, one after the other",
        "four beside one another, transposed",
    ],
)
def test_products(changes: dict[str, object], orders: tuple[Order, Order], rng: np.random.Generator) -> None:
    """Blocks in odd numbers, one of a cluster outside of C; steps of K fewer than the slots, and more."""
    spec = replace(SPEC, a_order=orders[0], b_order=orders[1])
    kernel = driver.lower(spec, paired(**changes), SM_90A)
    for m, n, k in ((130, 300, 320), (70, 64, 50)):
        problem = Problem.of(rng, spec, m, n, k, -2.0, 3.0)
        problem.check(interpret(kernel, spec, problem, 8, resident=1))


def test_whole_clusters_ask_nothing(rng: np.random.Generator) -> None:
    spec = replace(SPEC, multiple_of=(128, 128, 64), alpha=1.0, beta=0.0)
    kernel = driver.lower(spec, paired(), SM_90A)
    asked = [s for s in walk(kernel.body) if isinstance(s, If) and not s.roles]
    assert len(asked) == 2, "the one that copies, and the lanes of a warp that arrive"
    problem = replace(Problem.integers(rng, 256, 128, 320), spec=spec).typed(spec)
    assert np.array_equal(interpret(kernel, spec, problem, 8), problem.expected)
    half = driver.lower(replace(spec, multiple_of=(64, 128, 64)), paired(), SM_90A)
    assert len([s for s in walk(half.body) if isinstance(s, If) and not s.roles]) > 2, "C may end within a cluster"


@pytest.mark.parametrize("cluster", [(2, 1), (1, 2)])
def test_packed_matrices_may_end_within_a_cluster(cluster: tuple[int, int], rng: np.random.Generator) -> None:
    """They are packed in blocks of one group. Known sizes once took that for blocks of the cluster, so that all of what
    is asked in the kernel was decided, roles as well.
    """
    spec = GemmSpec(m=50, n=50, k=40, dtype=BF16, c_dtype=F32)
    schedule = paired(cluster=cluster, **{"a.prepacked": True, "b.prepacked": True})
    check_products(driver.lower_program(spec, schedule, SM_90A), spec, rng, (50, 50, 40))


def test_nobody_begins_before_all_are_there_or_leaves_before_all_are_done() -> None:
    kernel = driver.lower(SPEC, paired(), SM_90A)
    barriers = [i for i, stmt in enumerate(kernel.body) if isinstance(stmt, Barrier)]
    (parted,) = (i for i, stmt in enumerate(kernel.body) if isinstance(stmt, If))
    assert [kernel.body[i] for i in barriers] == [Barrier(groups=2)] * 2
    assert barriers[0] < parted < barriers[1] == len(kernel.body) - 1


# --- one thing wrong ------------------------------------------------------------------------------


def own_alone(stmt: If) -> Stmt:
    arrive = stmt.then[0]
    assert isinstance(arrive, Mbarrier)
    return If(compare("==", Var("local_index") % 32, 0), (replace(arrive, rank=None),))


def arrives(stmt: If) -> bool:
    return len(stmt.then) == 1 and isinstance(arrive := stmt.then[0], Mbarrier) and arrive.verb == "arrive"


def at_rank(rank: Expr) -> Rewrite:
    return changed(Mbarrier, lambda s: replace(s, rank=rank), lambda s: s.rank is not None)


@pytest.mark.parametrize(
    ("rewrite", "detail"),
    [
        (at_rank(Const(0)), "not as many work-items arrive at each group's barrier"),
        (at_rank(Var("local_index") % 32 * 2), "not as many work-items arrive at each group's barrier"),
        (changed(If, own_alone, arrives), "never ends"),
        (
            changed(Mbarrier, lambda s: replace(s, bytes=s.bytes - 8192), verb="expect"),
            "brings 16384 bytes where 8192 more are expected",
        ),
    ],
    ids=["at the first's barrier", "at every other", "at the own barrier alone", "bytes of the own part alone"],
)
def test_one_thing_wrong(rewrite: Rewrite, detail: str) -> None:
    """Seven steps of K in three slots, of two groups."""
    kernel = driver.lower(SPEC, paired(), SM_90A)
    wrong = broken(kernel, rewrite, SM_90A)
    run(kernel)
    with faults("pipe", detail):
        run(wrong)


def run(kernel: Kernel) -> None:
    check_products(kernel, SPEC, np.random.default_rng(2), (128, 128, 448), factors=(1.0, 0.0), pad=8)


def test_a_part_that_the_other_does_not_get() -> None:
    kernel = driver.lower(SPEC, paired(), SM_90A)
    boxed = next(s.src for s in walk(kernel.body) if isinstance(s, TmaCopy) and s.src.multicast > 1)
    alone = replace(boxed, multicast=1)
    wrong = broken(kernel, changed(TmaCopy, lambda s: replace(s, src=alone), src=boxed))
    with faults("pipe", "never ends"):
        run(replace(wrong, params=tuple(alone if p == boxed else p for p in kernel.params)))
