"""Every preset's machine code on eleven chips against what is kept in benchmarks/static: nothing may become worse.

`pytest tests/golden/test_static.py --update-golden`, or `python benchmarks/check_static.py --update`, keeps what is
found now.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from gemmgen import candidates
from gemmgen.inspect.jobs import Failure, Job
from tests.support import baseline
from tests.support.baseline import Baseline, Figures
from tests.support.inspect import kept, row
from tests.support.tools import tool

COMPILERS = tuple(baseline.TOOLS)
#: Those that are compiled whatever is kept, one for each compiler: that the tools here still make these figures.
ALWAYS = {
    "ocloc-legacy": "block_read_32x2_1x8",
    "ocloc": "smem_8x8",
    "nvcc": "async_8x8_16x16",
    "clang": "lds_8x8_16x16_k8",
}
GOOD: Figures = {"scratch": 0, "share": 0.9, "occupancy": 7.0, "registers": 128}


@pytest.mark.parametrize("name", candidates.names())
@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_worse(compiler: str, name: str, root: Path, request: pytest.FixtureRequest) -> None:
    """Kernels that are what they were when their figures were kept, by the same compilers, are not compiled again:
    `python benchmarks/check_static.py` compiles all. What a compiler of another version makes worse is a warning.
    """
    if request.config.getoption("--update-golden"):
        pytest.skip("python benchmarks/check_static.py --update writes these")
    for name_of_tool in baseline.TOOLS[compiler]:
        tool(name_of_tool)
    before = kept(root, compiler)
    assert name in before.presets, "a new preset: python benchmarks/check_static.py --update"
    always = name == ALWAYS[compiler]
    now = baseline.collect(baseline.made(name, compiler)) if always else row(root, name, compiler)
    problems = baseline.worse(name, before.presets[name], now)
    changes = baseline.changes(before, compiler)
    if changes is not None and problems:
        warnings.warn(f"{changes}: {'; '.join(problems)}", stacklevel=1)
    assert changes is not None or not problems


def test_what_stands_for_a_kernel() -> None:
    """Its text but for comments, how it is compiled, and for which chip; or that it is refused."""
    job, *others = baseline.made("naive", "ocloc")
    assert isinstance(job, Job)
    known = baseline.fingerprint([job, *others])
    assert known == baseline.fingerprint(baseline.made("naive", "ocloc"))
    source = job.source
    changed: list[Job | Failure] = [
        replace(job, source=replace(source, content=source.content + b" ")),
        replace(job, source=replace(source, options=(*source.options, "-w"))),
        replace(job, machine=replace(job.machine, device="hsw")),
        Failure(job.machine, ("no",)),
    ]
    assert len({known, *(baseline.fingerprint([other, *others]) for other in changed)}) == 5
    said = replace(job, source=replace(source, content=b"// What it is.\n" + source.content))
    assert baseline.fingerprint([said, *others]) == known
    refusals = (Failure(job.machine, (words,)) for words in ("no", "never"))
    assert len({baseline.fingerprint([refusal, *others]) for refusal in refusals}) == 1


@pytest.mark.parametrize("compiler", COMPILERS)
def test_nothing_is_kept_of_presets_that_are_gone(compiler: str, root: Path) -> None:
    found = kept(root, compiler)
    assert set(found.presets) == set(candidates.names()) >= set(found.sources)


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
    written = Baseline({"ocloc": "1"}, {"p": "12ab"}, rows)
    baseline.write(tmp_path, "ocloc", written)
    assert baseline.read(tmp_path, "ocloc") == written
