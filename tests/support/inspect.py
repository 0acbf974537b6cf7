"""Reports for tests: of presets, and of sources as they stand here."""

from __future__ import annotations

from gemmgen import presets
from gemmgen.inspect.jobs import Failure, inspect, jobs
from gemmgen.inspect.machine import choose
from gemmgen.inspect.report import Report, Subject, report
from gemmgen.inspect.toolchains import Input, Language, compile_for


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
