"""Every preset's machine code on ten chips against what is kept in benchmarks/static: nothing may become worse.

`pytest tests/golden/test_static.py --update-golden`, or `python benchmarks/check_static.py --update`, keeps what is
found now.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import presets
from gemmgen.inspect import baseline
from gemmgen.inspect.baseline import Figures, Kept
from gemmgen.inspect.jobs import Failure, Job
from tests.support.inspect import figures, kept

VENDORS = tuple(baseline.TOOLS)
#: Those that are compiled whatever is kept, one for each vendor: that the tools here still make these figures.
ALWAYS = {"intel": "block_read_32x2_1x8", "nvidia": "async_8x8_16x16", "amd": "lds_8x8_16x16_k8"}
GOOD: Figures = {"scratch": 0, "share": 0.9, "occupancy": 7.0, "registers": 128}


@pytest.mark.parametrize("name", presets.names())
@pytest.mark.parametrize("vendor", VENDORS)
def test_no_worse(vendor: str, name: str, root: Path, request: pytest.FixtureRequest) -> None:
    """Kernels that are what they were when their figures were kept, by the same compilers, are not compiled again:
    `python benchmarks/check_static.py` compiles all.
    """
    if request.config.getoption("--update-golden"):
        pytest.skip("python benchmarks/check_static.py --update writes these")
    before = kept(root, vendor)
    if reason := baseline.why_not(before, vendor):
        pytest.skip(reason)
    assert name in before.presets, "a new preset: python benchmarks/check_static.py --update"
    always = name == ALWAYS[vendor]
    now = baseline.collect(baseline.made(name, vendor)) if always else figures(root, name, vendor)
    assert not baseline.worse(name, before.presets[name], now)


def test_what_stands_for_a_kernel() -> None:
    """Its text, how it is compiled, and for which chip; or why it is refused."""
    job, *others = baseline.made("naive", "intel")
    assert isinstance(job, Job)
    known = baseline.fingerprint([job, *others])
    assert known == baseline.fingerprint(baseline.made("naive", "intel"))
    source = job.source
    changed: list[Job | Failure] = [
        replace(job, source=replace(source, content=source.content + b" ")),
        replace(job, source=replace(source, options=(*source.options, "-w"))),
        replace(job, machine=replace(job.machine, device="hsw")),
        Failure(job.machine, ("no",)),
        Failure(job.machine, ("never",)),
    ]
    assert len({known, *(baseline.fingerprint([other, *others]) for other in changed)}) == 6


@pytest.mark.parametrize("vendor", VENDORS)
def test_nothing_is_kept_of_presets_that_are_gone(vendor: str, root: Path) -> None:
    assert set(kept(root, vendor).presets) == set(presets.names()) >= set(kept(root, vendor).sources)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scratch": 32}, "scratch was 0, and is 32 now"),
        ({"share": 0.89}, "share was 0.9, and is 0.89 now"),
        ({"share": None}, "share was 0.9, and is unknown now"),
        ({"occupancy": 6.0}, "occupancy was 7, and is 6 now"),
    ],
)
def test_what_is_worse(change: Figures, problem: str) -> None:
    assert baseline.worse("p", {"skl": GOOD}, {"skl": {**GOOD, **change}}) == [f"p on skl: {problem}"]


def test_what_is_not_worse() -> None:
    better: Figures = {**GOOD, "share": 0.95, "registers": 64}
    assert not baseline.worse("p", {"skl": GOOD}, {"skl": better, "bdw": {"refused": "no"}})
    assert not baseline.worse("p", {"skl": {"refused": "no"}}, {"skl": GOOD})


def test_a_target_that_can_no_longer_be_had() -> None:
    assert baseline.worse("p", {"skl": GOOD}, {"skl": {"refused": "no images"}}) == ["p on skl: no images"]
    assert baseline.worse("p", {"skl": GOOD}, {}) == ["p on skl: it is gone"]


def test_the_file_reads_as_it_was_written(tmp_path: Path) -> None:
    rows = {"p": {"skl": GOOD, "bdw": GOOD}, "a": {"skl": Figures(refused="no")}}
    written = Kept({"ocloc": "1"}, {"p": "12ab"}, rows)
    baseline.write(tmp_path, "intel", written)
    assert baseline.read(tmp_path, "intel") == written
