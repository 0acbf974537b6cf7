"""Persistent kernels: what is refused, and what hosts and readers are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmgen import driver
from gemmgen.explain import explain
from gemmgen.ir.dtypes import BF16
from gemmgen.ir.target import TARGETS
from gemmgen.methods import defaults
from gemmgen.schedule import Schedule
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
            "persistent means something to atom wgmma alone, whose work-items have roles: leave it out",
        ),
    ],
    ids=["parts of K", "room for sums", "no roles"],
)
def test_refusals(schedule: Schedule, detail: str) -> None:
    assert any(detail in problem for problem in driver.refusals(SPEC, schedule, "cuda", SM_90A))


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
