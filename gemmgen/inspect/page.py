"""The report as a page and as a picture: a summary, rooflines, and each main loop beside its source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import BinaryIO

from gemmgen.backends.files import environment
from gemmgen.drawing.charts import Ceiling
from gemmgen.drawing.charts import roofline as chart
from gemmgen.errors import ToolError
from gemmgen.inspect.bounds import intensity
from gemmgen.inspect.code import Instruction
from gemmgen.inspect.instead import instead
from gemmgen.inspect.jobs import Outcome
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.report import Report
from gemmgen.inspect.show import (
    CAPTION,
    HEADINGS,
    MARKS,
    UNKNOWN,
    bare,
    by_source_line,
    cells,
    conditions,
    number,
    occupancy,
    scratch,
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
    reports = [(s, o) for s in sections for o in s.outcomes if isinstance(o, Report)]
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
            roofs=list(_roofs(reports)),
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
        "remarks": [*doubts, *spills(report), *scratch(report), *conditions(report), *report.notes],
        "instructions": len(report.listing),
        "loop": _loop(section, report),
    }


def _loop(section: Section, report: Report) -> list[dict[str, object]]:
    lines = section.sources.get(report.target, "").splitlines()

    def shown(x: Instruction) -> dict[str, str]:
        return {"kind": x.kind.value, "mark": MARKS[x.kind], "text": _GAP.sub("  ", x.text)}

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


def _roofs(reports: Sequence[tuple[Section, Report]]) -> Iterator[str]:
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
            yield chart(f"{target}, {machine.name}", peak, bandwidth, ceilings).svg


# --- a picture of all devices ----------------------------------------------------------------------------------


def roofline(sections: Sequence[Section], file: BinaryIO, form: str) -> None:
    """Draw each device's roof, and for each kernel the bound under it.

    Args:
        form: of the picture: png, svg or pdf.

    Raises: ToolError if matplotlib is missing, or if no target's figures are known.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ToolError('matplotlib is not installed: pip install "gemmgen[plot]"') from None
    reports = [(s.name, intensity(s.sizes), o) for s in sections for o in s.outcomes if isinstance(o, Report)]
    roofs = {o.target: o.machine for _, _, o in reports if o.machine.peak_gflops and o.machine.figures.bandwidth_gbs}
    if not roofs:
        raise ToolError("no target here has both a peak and a memory bandwidth: there is no roofline to draw")
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots()
    colours = {target: f"C{i % 10}" for i, target in enumerate(roofs)}
    marks = dict(zip(dict.fromkeys(name for name, _, _ in reports), "osD^v<>PX*" * len(reports), strict=False))
    right = 4 * max(at for _, at, _ in reports)
    for target, machine in roofs.items():
        xs, ys = _roof(machine, right)
        axes.plot(xs, ys, color=colours[target], label=f"{target}: {ys[-1]:,.0f} GFLOP/s", linewidth=1.5)
    for name, at, o in reports:
        if o.target in roofs and o.bound.share is not None:
            height = o.bound.share * (o.machine.peak_gflops or 0)
            axes.plot([at], [height], marks[name], color=colours[o.target], markeredgecolor="black", markersize=7)
    for name, mark in marks.items():
        axes.plot([], [], mark, color="white", markeredgecolor="black", label=f"{name}: at most")
    axes.set(
        xscale="log", yscale="log", xlabel="flops per byte of memory, each element once", ylabel="GFLOP/s, float32"
    )
    axes.set_title("Roofline: static bounds of compiled code, nothing measured")
    axes.grid(visible=True, which="both", alpha=0.2)
    figure.legend(fontsize=8, loc="outside right upper")
    figure.savefig(file, format=form, dpi=150)


def _roof(machine: Machine, right: float) -> tuple[list[float], list[float]]:
    peak, bandwidth = machine.peak_gflops or 0.0, machine.figures.bandwidth_gbs or 0.0
    corner = peak / bandwidth
    xs = [0.25, corner, max(right, 2 * corner)]
    return xs, [xs[0] * bandwidth, peak, peak]
