"""Reports for tests: of presets, and of sources as they stand here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gemmgen import presets
from gemmgen.inspect import baseline
from gemmgen.inspect.baseline import Kept, Row
from gemmgen.inspect.jobs import Failure, inspect, jobs
from gemmgen.inspect.machine import choose
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchains import Input, Language, compile_for


@cache
def kept(root: Path, vendor: str) -> Kept:
    """What `benchmarks/static` has of a vendor."""
    return baseline.read(root, vendor)


def figures(root: Path, preset: str, vendor: str) -> Row:
    """A preset's figures, from `benchmarks/static` where they were made from what it is today by the tools here."""
    known, kernels = kept(root, vendor), baseline.made(preset, vendor)
    if baseline.why_not(known, vendor) is None and known.sources.get(preset) == baseline.fingerprint(kernels):
        return known.presets[preset]
    return baseline.collect(kernels)


def reported(preset: str, target: str) -> Report:
    """A preset on a target that can have it."""
    loaded = presets.load(preset)
    (outcome,) = inspect(jobs(loaded.spec, loaded.schedule, choose([target])))
    assert not isinstance(outcome, Failure), outcome.problems
    return outcome


def compiled(text: str | bytes, target: str, kernel: str | None = None, language: Language = "OpenCL C") -> Report:
    """A source on a target."""
    (machine,) = choose([target])
    content = text.encode() if isinstance(text, str) else text
    return report(machine, compile_for(machine, Input(language, content, kernel)), Subject("test"))
