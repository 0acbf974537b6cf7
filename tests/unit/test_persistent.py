"""Persistent kernels: what is refused, and what hosts and readers are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import driver
from gemmgen.errors import LoweringError
from gemmgen.explain import explain
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.meetings import Barrier
from gemmgen.ir.show import show
from gemmgen.ir.stmt import Block, Body, Stmt
from gemmgen.ir.target import TARGETS
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body
from gemmgen.methods import defaults
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

SM_90A = TARGETS["sm_90a"]
SPEC = GemmSpec(dtype=BF16, ld_multiple=8)
STAYING = replace(defaults("wgmma", (2, 64), (64, 4)), persistent=True, c_width=2)


@pytest.mark.parametrize(
    ("schedule", "detail"),
    [
        (replace(STAYING, split=2), "persistent, but split = 2 makes groups of parts of K: leave one of the two out"),
        (
            replace(STAYING, c_width=4),
            "local memory 331,840 B, 135,168 of them for sums, which no tile makes room for, > 232,448 B",
        ),
        (
            replace(defaults("mma"), persistent=True),
            "persistent means something to atom wgmma alone, whose warpgroups multiply: leave it out",
        ),
        (
            replace(STAYING, c_turns=True),
            "c_turns lets a warpgroup multiply for the next block while another stores boxes: use it with persistent",
        ),
        (replace(STAYING, cluster=(2, 2)), "cluster 2x2 has 4 groups: use 2x1 or 1x2, or 1x1 for none"),
        (
            replace(STAYING, persistent=False, cluster=(2, 1), split=2),
            "cluster 2x1, but split = 2 makes groups of parts",
        ),
        (
            replace(defaults("wgmma_tf32", (2, 26)), cluster=(2, 1)),
            "cluster 2x1 shares 104 lines of B: use tiles of a multiple of 16",
        ),
        (
            replace(defaults("mma"), cluster=(2, 1)),
            "cluster means something to atom wgmma alone, whose warpgroups multiply: leave it out",
        ),
        (
            replace(STAYING, cluster=(2, 1), a=replace(STAYING.a, streamed=True)),
            "cluster 2x1 shares what it reads, but a or b is streamed: leave one of the two out",
        ),
        (Schedule(b=Operand(streamed=True)), "b.streamed means something to atom wgmma and to boxes alone"),
    ],
    ids=[
        "parts of K",
        "room for sums",
        "no roles",
        "turns of stores that nobody begins",
        "four groups",
        "parts of K in clusters",
        "lines",
        "no roles at all",
        "read once by two",
        "read by nobody's boxes",
    ],
)
def test_refusals(schedule: Schedule, detail: str) -> None:
    spec = GemmSpec(b_order="col", ld_multiple=4) if schedule.atom == "wgmma_tf32" else SPEC
    assert any(detail in problem for problem in driver.refusals(spec, schedule, "cuda", SM_90A))


def test_hosts_are_told_that_fewer_blocks_will_do() -> None:
    source = driver.emit(SPEC, replace(STAYING, name="staying"), "cuda", SM_90A)
    (entry,) = source.entry_points
    assert entry.persistent
    assert entry.groups({"m": 300, "n": 512, "k": 1}) == (1, 1, 6), "what there is to do"
    assert "min((m + 127) / 128 * ((n + 255) / 256), as many as run at once)" in source.text
    assert "blocks_at_once(&most, staying, 384, 196672)" in source.text
    plain = driver.emit(SPEC, replace(STAYING, persistent=False, name="plain"), "cuda", SM_90A)
    assert not plain.entry_points[0].persistent
    assert "blocks_at_once" not in plain.text
    assert "int(gridDim.x)" not in plain.text


def test_explain_says_so() -> None:
    drawn = "group: 128x256 of C by 64x4 = 256 work-items, one part of C after the other"
    assert drawn in explain(SPEC, STAYING, SM_90A)


def test_clusters_are_launched_whole() -> None:
    schedule = replace(STAYING, cluster=(2, 1), name="paired")
    source = driver.emit(SPEC, schedule, "cuda", SM_90A)
    (entry,) = source.entry_points
    assert entry.cluster == 2
    assert entry.groups({"m": 300, "n": 512, "k": 1}) == (1, 1, 8), "rows of C in twos of 128"
    assert "__cluster_dims__(2, 1, 1)" in source.text
    assert "asked = clustered_at_once(&most, paired, 384, 196672, 2);" in source.text
    assert "clusters of 2x1 blocks that copy for one another" in " ".join(source.text.replace("//", "").split())
    assert "2x1 of them in a cluster" in explain(SPEC, schedule, SM_90A)


def test_warpgroups_that_store_apart_do_not_meet() -> None:
    """Each goes through it by itself, though one text says what all do."""
    schedule = replace(STAYING, c_width=1, c_stages=2, c_turns=True)
    kernel = driver.lower(SPEC, schedule, SM_90A)
    assert "block, 2 parts by warpgroup apart:" in show(kernel)

    def meet(stmt: Stmt) -> Body:
        return (replace(stmt, body=(Barrier(), *stmt.body)),) if isinstance(stmt, Block) and stmt.apart else (stmt,)

    with pytest.raises(LoweringError, match="work-items of a group may have parted ways"):
        verify(replace(kernel, body=map_body(kernel.body, meet)), SM_90A)
    text = driver.emit(SPEC, schedule, "cuda", SM_90A).text
    assert "mbarrier_wait(&may_store[warpgroup], (wave + (warpgroup == 0 ? 1 : 0)) % 2);" in text
