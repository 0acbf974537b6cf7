"""Reports for tests: of presets, and of sources as they stand here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gemmgen import candidates
from gemmgen.inspect.jobs import Failure, compile_for, inspect, jobs
from gemmgen.inspect.machine import choose, machines
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchain import Input, Language
from tests.support import baseline
from tests.support.baseline import Baseline, Figures, Row


@cache
def kept(root: Path, compiler: str) -> Baseline:
    """What `benchmarks/static` has of a compiler."""
    return baseline.read(root, compiler)


def row(root: Path, preset: str, compiler: str) -> Row:
    """A preset's figures, from `benchmarks/static` where they were made from what it is today by the tools here."""
    known, kernels = kept(root, compiler), baseline.made(preset, compiler)
    if baseline.changes(known, compiler) is None and known.sources.get(preset) == baseline.fingerprint(kernels):
        return known.presets[preset]
    return baseline.collect(kernels)


def figures(root: Path, preset: str, target: str) -> Figures:
    """A preset's figures on a target of the baseline."""
    return row(root, preset, machines()[target].compiler)[target]


def reported(preset: str, target: str) -> Report:
    """A preset on a target that can have it."""
    loaded = candidates.load(preset)
    (outcome,) = inspect(jobs(loaded.spec, loaded.schedule, choose([target])))
    assert not isinstance(outcome, Failure), outcome.problems
    return outcome


def compiled(text: str | bytes, target: str, kernel: str | None = None, language: Language = "OpenCL C") -> Report:
    """A source on a target."""
    (machine,) = choose([target])
    content = text.encode() if isinstance(text, str) else text
    return report(machine, compile_for(machine, Input(language, content, kernel)), Subject("test"))
