"""The report as a page and as a picture: a summary, rooflines, and each main loop beside its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gemmgen.backends.files import environment
from gemmgen.drawing.charts import Ceiling
from gemmgen.drawing.charts import roofline as chart
from gemmgen.drawing.svg import Drawing, stacked
from gemmgen.errors import ToolError
from gemmgen.inspect.bounds import intensity
from gemmgen.inspect.instead import instead
from gemmgen.inspect.jobs import Outcome
from gemmgen.inspect.report import Report
from gemmgen.inspect.show import (
    CAPTION,
    HEADINGS,
    MARKS,
    UNKNOWN,
    bare,
    by_source_line,
    cells,
    notes,
    number,
    occupancy,
    share,
    spills,
)

#: The gaps of a disassembly's columns, which take a page's width.
_GAP = re.compile(r"\s{3,}")
#: The columns of the table that the summary has, and so the list of a target's figures has not.
_IN_SUMMARY = ("target", "regs", "scratch", "occupancy", "share", "bound")


@dataclass(frozen=True, slots=True)
class Section:
    """A kernel on several targets.

    Attributes:
        sources: target -> the text that was compiled for it.
        sizes: M, N, K that the roofline is drawn for.
    """

    name: str
    outcomes: Sequence[Outcome]
    sources: Mapping[str, str]
    sizes: tuple[int, int, int]

    def _repr_html_(self) -> str:
        """The page in a frame of its own, as its style is for a whole page."""
        return f'<iframe style="width:100%;height:40rem;border:0" srcdoc="{escape(page([self]))}"></iframe>'


# --- the page -------------------------------------------------------------------------------------


def page(sections: Sequence[Section]) -> str:
    """The page."""
    reports = _reports(sections)
    return (
        environment()
        .overlay(autoescape=True)
        .get_template("inspect/report.html.j2")
        .render(
            title=", ".join(s.name for s in sections),
            caption=" ".join(CAPTION.split()),
            targets=[_target(s, o) for s, o in reports],
            failures=[
                (s.name, o.machine.target, "; ".join(bare(o, problem) for problem in o.problems))
                for s in sections
                for o in s.outcomes
                if not isinstance(o, Report)
            ],
            roofs=[roof.svg for roof in _roofs(reports)],
            legend=[(mark, kind.value) for kind, mark in MARKS.items()],
        )
    )


def _target(section: Section, report: Report) -> dict[str, object]:
    """What the page says of a kernel on a target."""
    loop, bound, r = report.loop, report.bound, report.compiled.resources
    columns = [heading.replace("\n", " ") for heading, _ in HEADINGS]
    figures = zip(columns, cells(report), strict=True)
    other = instead(section.name, report.target)
    doubts = [*([other] if other else []), *(f"counts unknown: {doubt}" for doubt in report.doubts)]
    return {
        "anchor": f"{section.name}-{report.target}",
        "kernel": section.name,
        "target": report.target,
        "device": report.machine.name,
        "compiler": report.compiled.compiler,
        "part": 0 if loop is None else round(100 * loop.share, 1),
        "share": UNKNOWN if loop is None else share(loop.share),
        "scratch": number(r.scratch),
        "spills": bool(r.scratch),
        "registers": number(r.registers),
        "occupancy": occupancy(report),
        "bound": UNKNOWN if bound.share is None else share(bound.share),
        "limit": "scratch memory" if bound.scratch else bound.limit or UNKNOWN,
        "figures": [(name, value) for name, value in figures if name.split()[0] not in _IN_SUMMARY],
        "remarks": [*doubts, *spills(report), *notes(report)],
        "instructions": len(report.listing),
        "loop": _loop(section, report),
    }


def _loop(section: Section, report: Report) -> list[dict[str, object]]:
    lines = section.sources.get(report.target, "").splitlines()
    return [
        {
            "line": line,
            "source": lines[line - 1].strip() if 0 < line <= len(lines) else "",
            "instructions": [
                {"kind": x.kind.value, "mark": MARKS[x.kind], "text": _GAP.sub("  ", x.text)} for x in members
            ],
        }
        for line, members in by_source_line(report.listing)
    ]


def roofline(sections: Sequence[Section]) -> Drawing:
    """Every device's roofline, below one another. Raises: ToolError if no target's figures are known."""
    found = list(_roofs(_reports(sections)))
    if not found:
        raise ToolError("no target here has a peak, a memory bandwidth and a bound: there is no roofline to draw")
    return stacked(found)


def _reports(sections: Sequence[Section]) -> list[tuple[Section, Report]]:
    return [(s, o) for s in sections for o in s.outcomes if isinstance(o, Report)]


def _roofs(reports: Sequence[tuple[Section, Report]]) -> Iterator[Drawing]:
    """A roofline a device, with the ceiling of each kernel."""
    machines = {o.target: o.machine for _, o in reports}
    for target, machine in machines.items():
        peak, bandwidth = machine.peak_gflops, machine.figures.bandwidth_gbs
        ceilings = [
            Ceiling(s.name, intensity(s.sizes), o.bound.share, o.bound.limit)
            for s, o in reports
            if o.target == target and o.bound.share
        ]
        if peak and bandwidth and ceilings:
            yield chart(f"{target}, {machine.name}", peak, bandwidth, ceilings)
