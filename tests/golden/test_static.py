"""Every preset's machine code on ten chips against what is kept in benchmarks/static: nothing may become worse.

`pytest tests/golden/test_static.py --update-golden`, or `python benchmarks/check_static.py --update`, keeps what is
found now.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmgen import presets
from gemmgen.inspect import baseline
from gemmgen.inspect.baseline import Figures

VENDORS = tuple(baseline.TOOLS)
GOOD: Figures = {"scratch": 0, "share": 0.9, "occupancy": 7.0, "registers": 128}


@pytest.mark.parametrize("name", presets.names())
@pytest.mark.parametrize("vendor", VENDORS)
def test_no_worse(vendor: str, name: str, root: Path, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        pytest.skip("python benchmarks/check_static.py --update writes these")
    if reason := baseline.why_not(root, vendor):
        pytest.skip(reason)
    _, kept = baseline.read(root, vendor)
    assert name in kept, "a new preset: python benchmarks/check_static.py --update"
    assert not baseline.worse(name, kept[name], baseline.collect(name, vendor))


@pytest.mark.parametrize("vendor", VENDORS)
def test_nothing_is_kept_of_presets_that_are_gone(vendor: str, root: Path) -> None:
    assert set(baseline.read(root, vendor)[1]) == set(presets.names())


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
    baseline.write(tmp_path, "intel", {"ocloc": "1"}, rows)
    assert baseline.read(tmp_path, "intel") == ({"ocloc": "1"}, rows)
