"""Groups of a cluster that copy for one another; and one thing wrong each, which shows. They run in step here, so that
what one does too late for the other does not: that none leaves early is asked of the text of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gemmgen import driver
from gemmgen.errors import FaultKind, KernelFault
from gemmgen.ir.dtypes import BF16, F32
from gemmgen.ir.expr import Const, Expr, Var, compare
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Body, If, Stmt, TmaCopy
from gemmgen.ir.synchronization import Barrier, Mbarrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body, walk
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec, Order
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
    ],
    ids=[
        "above",
        "beside",
        "beside, transposed",
        "above, one after the other",
        "beside, one after the other",
        "parts of every box",
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


def expect(rewrite: Callable[[Stmt], Body], kind: FaultKind, detail: str) -> None:
    """Seven steps of K in three slots, of two groups."""
    kernel = driver.lower(SPEC, paired(), SM_90A)
    broken = replace(kernel, body=map_body(kernel.body, rewrite))
    assert broken.body != kernel.body, "nothing was broken"
    verify(broken, SM_90A)
    run(kernel)
    with pytest.raises(KernelFault, match=detail) as fault:
        run(broken)
    assert fault.value.kind == kind


def run(kernel: Kernel) -> None:
    check_products(kernel, SPEC, np.random.default_rng(2), (128, 128, 448), factors=(1.0, 0.0), pad=8)


@pytest.mark.parametrize("rank", [Const(0), Var("local_index") % 32 * 2], ids=str)
def test_arrivals_at_one_of_two_barriers(rank: Expr) -> None:
    def rewrite(stmt: Stmt) -> Body:
        told = isinstance(stmt, Mbarrier) and stmt.rank is not None
        return (replace(stmt, rank=rank),) if isinstance(stmt, Mbarrier) and told else (stmt,)

    expect(rewrite, "pipe", "not as many work-items arrive at each group's barrier")


def test_arrivals_at_the_own_barrier_alone() -> None:
    def rewrite(stmt: Stmt) -> Body:
        match stmt:
            case If(_, (Mbarrier("arrive") as arrive,)):
                return (If(compare("==", Var("local_index") % 32, 0), (replace(arrive, rank=None),)),)
        return (stmt,)

    expect(rewrite, "pipe", "never ends")


def test_bytes_of_the_own_part_alone() -> None:
    def rewrite(stmt: Stmt) -> Body:
        told = isinstance(stmt, Mbarrier) and stmt.verb == "expect"
        return (replace(stmt, bytes=stmt.bytes - 8192),) if isinstance(stmt, Mbarrier) and told else (stmt,)

    expect(rewrite, "pipe", "brings 16384 bytes where 8192 more are expected")


def test_a_part_that_the_other_does_not_get() -> None:
    kernel = driver.lower(SPEC, paired(), SM_90A)
    boxed = next(s.src for s in walk(kernel.body) if isinstance(s, TmaCopy) and s.src.multicast > 1)
    alone = replace(boxed, multicast=1)

    def rewrite(stmt: Stmt) -> Body:
        return (replace(stmt, src=alone),) if isinstance(stmt, TmaCopy) and stmt.src == boxed else (stmt,)

    params = tuple(alone if p == boxed else p for p in kernel.params)
    with pytest.raises(KernelFault, match="never ends"):
        run(replace(kernel, body=map_body(kernel.body, rewrite), params=params))
