"""A picture of what was measured: rate over size, ours and the peers', under the device's roof where that is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from gemmgen.bench.records import Row, Size, Timing
from gemmgen.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = 'pip install "gemmgen[plot]"'
#: Endings that a picture's file can have.
FORMATS = (".png", ".svg")
#: The rate's axis is logarithmic where the fastest median is more than so many times the slowest.
LOG_FROM = 10
#: The name of our line where it stands for another preset at each size.
BEST = "gemmgen, the best preset"


#: The lines of a picture: a contender, and whether it is ours -> its timing at each size.
Lines = dict[tuple[str, bool], dict[Size, Timing]]


def check(path: Path | None) -> None:
    """Raises: UserError with every reason why no picture can be drawn there."""
    if path is None:
        return
    problems = []
    if path.suffix.lower() not in FORMATS:
        problems.append(f"--plot {path}: give a file that ends in {' or '.join(FORMATS)}")
    if find_spec("matplotlib") is None:
        problems.append(f"--plot {path}: matplotlib, which draws it, is not installed: {INSTALL}")
    if problems:
        raise UserError(problems)


def lines(rows: Sequence[Row], best: bool) -> Lines:
    """Ours first, then the peers, each as they were first measured.

    Args:
        best: whether our rows are of one line, whatever preset was the fastest.
    """
    found: Lines = {}
    for row in rows:
        found.setdefault((BEST if best else row.ours.name, True), {})[row.size] = row.ours
    for row in rows:
        if row.peer is not None:
            found.setdefault((row.peer.name, False), {})[row.size] = row.peer
    return found


def draw(rows: Sequence[Row], best: bool, roof: float | None, title: str, file: BinaryIO, kind: str) -> None:
    """Write the picture.

    Args:
        roof: TFLOP/s that the device can reach by its clock, or None.
        kind: `png` or `svg`.
    """
    import matplotlib as mpl

    # Texts stay texts in an SVG, and the same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gemmgen"}):
        picture = figure(rows, best, roof, title)
        picture.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)


def figure(rows: Sequence[Row], best: bool, roof: float | None, title: str) -> Figure:
    """Rate over size; `roof` as for `draw`."""
    from matplotlib.figure import Figure

    sizes = list(dict.fromkeys(row.size for row in rows))
    # One number says what such sizes are, and two of them never stand at one place.
    square = len({size.n for size in sizes if size.m == size.n == size.k}) == len(sizes)
    if square:
        sizes.sort(key=lambda size: size.n)
    # Where shapes differ there is no one number to put them in order by: they stand as they were asked for.
    places = {size: float(size.n if square else index) for index, size in enumerate(sizes)}
    picture = Figure(figsize=(8, 5), layout="constrained")
    axes = picture.add_subplot()
    for (name, is_ours), points in lines(rows, best).items():
        _draw_line(axes, name, is_ours, points, places)
    if roof is not None:
        axes.axhline(roof, color="black", linestyle=":", label=f"roof by the clock, {roof:.1f} TFLOP/s")
    if square and len(sizes) > 1:
        axes.set_xscale("log", base=2)
    axes.set_xticks(list(places.values()), [str(size) for size in places], rotation=0 if square else 20)
    axes.xaxis.minorticks_off()
    axes.set(title=title, xlabel="M = N = K" if square else "M x N x K", ylabel="TFLOP/s")
    if _spans_decades(rows):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    return picture


def _spans_decades(rows: Iterable[Row]) -> bool:
    """Whether a linear axis would leave the slowest on the ground."""
    rates = [timing.rate(row.size) for row in rows for timing in (row.ours, row.peer) if timing is not None]
    return max(rates) > LOG_FROM * min(rates)


def _draw_line(
    axes: Axes, name: str, is_ours: bool, points: Mapping[Size, Timing], places: Mapping[Size, float]
) -> None:
    """The medians, and from the slowest to the fastest round a band."""
    there = [(size, points[size]) for size in places if size in points]
    x = [places[size] for size, _ in there]
    width, marker, stroke = (2.0, "o", "-") if is_ours else (1.3, "s", "--")
    y = [timing.rate(size) for size, timing in there]
    (drawn,) = axes.plot(x, y, label=name, linewidth=width, marker=marker, linestyle=stroke)
    slowest, fastest = ([size.flops / end(t.rounds) / 1e12 for size, t in there] for end in (max, min))
    axes.fill_between(x, slowest, fastest, color=drawn.get_color(), alpha=0.15, linewidth=0)
