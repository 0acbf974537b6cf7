"""Reports as one page that needs nothing beside itself: figures, and each hot loop beside the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemmgen.backends.files import environment
from gemmgen.inspect.jobs import Outcome
from gemmgen.inspect.report import Report
from gemmgen.inspect.show import CAPTION, HEADINGS, MARKS, by_source_line, cells, remarks


@dataclass(frozen=True, slots=True)
class Section:
    """A kernel on several targets.

    Attributes:
        sources: target -> the text that was compiled for it.
    """

    name: str
    outcomes: Sequence[Outcome]
    sources: dict[str, str]


def page(sections: Sequence[Section]) -> str:
    """The page."""
    headings = [heading.replace("\n", " ") for heading, _ in HEADINGS]
    reports = [(s, o) for s in sections for o in s.outcomes if isinstance(o, Report)]
    return (
        environment()
        .overlay(autoescape=True)
        .get_template("inspect/report.html.j2")
        .render(
            title=", ".join(s.name for s in sections),
            caption=CAPTION,
            headings=["kernel", *headings],
            rows=[[s.name, *cells(o)] for s, o in reports],
            remarks=[f"{s.name}, {remark}" for s in sections for remark in remarks(s.outcomes)],
            legend=[(mark, kind.value) for kind, mark in MARKS.items()],
            loops=[_loop(s, o) for s, o in reports if o.listing],
        )
    )


def _loop(section: Section, report: Report) -> dict[str, object]:
    lines = section.sources.get(report.target, "").splitlines()
    parts = [
        {
            "line": line,
            "source": lines[line - 1] if 0 < line <= len(lines) else "",
            "instructions": [{"kind": x.kind.value, "mark": MARKS[x.kind], "text": x.text} for x in members],
        }
        for line, members in by_source_line(report.listing)
    ]
    title = f"{section.name} on {report.target}: the hot loop, {len(report.listing)} instructions"
    return {"anchor": f"{section.name}-{report.target}", "title": title, "parts": parts}
