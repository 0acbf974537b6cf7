"""Persistent kernels: what is refused, and what hosts and readers are told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gemmgen import driver
from gemmgen.errors import LoweringError
from gemmgen.explain import explain
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.show import show
from gemmgen.ir.stmt import Block, Body, Stmt
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec
from tests.support.refusals import Made, refusals

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
STAYING = defaults("wgmma", (2, 64), (64, 4)).but(persistent=True, c_width=2)


@pytest.mark.parametrize(
    ("schedule", "detail"),
    [
        (
            partial(STAYING.but, split_k=2),
            "split_k = 2 means nothing to scheduler Persistent: leave it out, or use split_k 1",
        ),
        (
            STAYING.but(c_width=4),
            "local memory 331,840 B, 135,168 of them for sums, which no tile makes room for, > 232,448 B",
        ),
        (
            partial(defaults("mma").but, persistent=True),
            "persistent = true means nothing to mainloop WarpMma: leave it out",
        ),
        (
            partial(STAYING.but, ordered_epilogue=True),
            "ordered_epilogue = true means nothing to epilogue Registers: leave it out",
        ),
        (STAYING.but(cluster=(2, 2)), "cluster 2x2 is no line of 2 or 4 groups: use 2x1, 1x2, 4x1 or 1x4"),
        (
            STAYING.but(persistent=False, cluster=(2, 1), split_k=2),
            "cluster 2x1, but split_k = 2 makes groups of parts",
        ),
        (
            partial(defaults("mma").but, cluster=(2, 1)),
            "cluster = 2x1 means nothing to mainloop WarpMma: leave it out",
        ),
        (
            STAYING.but(cluster=(2, 1), a=replace(STAYING.a, evict_first=True)),
            "cluster 2x1 shares tiles by multicast, but a or b has evict_first: leave one of the two out",
        ),
        (partial(Schedule.of, b=Operand(evict_first=True)), "b.evict_first = true means nothing to mainloop Direct"),
    ],
    ids=[
        "parts of K",
        "room for sums",
        "no roles",
        "turns of stores that nobody begins",
        "groups in no line",
        "parts of K in clusters",
        "no roles at all",
        "read once by two",
        "read by nobody's boxes",
    ],
)
def test_refusals(schedule: Made, detail: str) -> None:
    of_tf32 = isinstance(schedule, Schedule) and schedule.atom == "wgmma_tf32"
    spec = GemmSpec(b_order="col", ld_multiple=4) if of_tf32 else SPEC
    assert any(detail in problem for problem in refusals(spec, schedule, "cuda", SM_90A))


def test_hosts_are_told_that_fewer_blocks_will_do() -> None:
    source = driver.emit(SPEC, replace(STAYING, name="staying"), "cuda", SM_90A)
    (entry,) = source.entry_points
    assert entry.persistent
    assert entry.groups({"m": 300, "n": 512, "k": 1}) == (1, 1, 6), "what there is to do"
    assert "min((m + 127) / 128 * ((n + 255) / 256), as many as run at once)" in source.text
    assert "blocks_at_once(&most, staying, CONSUMERS + PRODUCERS," in source.text
    plain = driver.emit(SPEC, STAYING.but(persistent=False, name="plain"), "cuda", SM_90A)
    assert not plain.entry_points[0].persistent
    assert "blocks_at_once" not in plain.text
    assert "int(gridDim.x)" not in plain.text


def test_explain_says_so() -> None:
    picture = explain(SPEC, STAYING, SM_90A)
    assert "group: 128x256 of C by 64x4 = 256 work-items" in picture
    assert "persistent groups, each loops over tiles of C" in picture


def test_clusters_are_launched_whole() -> None:
    schedule = STAYING.but(cluster=(2, 1), name="paired")
    source = driver.emit(SPEC, schedule, "cuda", SM_90A)
    (entry,) = source.entry_points
    assert entry.cluster == 2
    assert entry.groups({"m": 300, "n": 512, "k": 1}) == (1, 1, 8), "rows of C in twos of 128"
    assert "__cluster_dims__(2, 1, 1)" in source.text
    assert "clustered_at_once(&most, paired," in source.text
    head = " ".join(source.text.replace("//", "").split())
    assert "clusters of 2 blocks with TMA multicast" in head and "multicast to 2 blocks" in head
    assert "clusters of 2 groups with TMA multicast" in explain(SPEC, schedule, SM_90A)


def test_warpgroups_that_store_apart_do_not_meet() -> None:
    """Each goes through it by itself, though one text says what all do."""
    schedule = STAYING.but(c_width=1, epilogue_stages=2, ordered_epilogue=True)
    kernel = driver.lower(SPEC, schedule, SM_90A)
    assert "block, 2 parts by warpgroup apart:" in show(kernel)

    def meet(stmt: Stmt) -> Body:
        return (replace(stmt, body=(Barrier(), *stmt.body)),) if isinstance(stmt, Block) and stmt.apart else (stmt,)

    with pytest.raises(LoweringError, match="work-items of a group may have parted ways"):
        verify(replace(kernel, body=map_body(kernel.body, meet)), SM_90A)
    text = driver.emit(SPEC, schedule, "cuda", SM_90A).text
    assert "mbarrier_wait(&shared.may_store[warpgroup], (wave + (warpgroup == 0 ? 1 : 0)) % 2);" in text
