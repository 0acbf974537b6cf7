"""Draws docs/images/{cpu,gpu}.svg, the README's plots, from what benchmarks/results holds.

    python benchmarks/plot_results.py [FOLDER]

needs matplotlib (the extra `plot`). The background is opaque, so that the plots can be read on a dark page as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from gemmgen.bench.records import median_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
#: Files that `gemmgen bench --json` wrote.
XEON = ("2026-11-22_cpu/evening_small.json", "2026-11-22_cpu/evening_large.json")
BFLOAT16 = ("2026-11-22_h200/table_bfloat16.json",)
FLOAT32 = ("2026-11-21_h200/best.json",)
#: Sizes that are no multiples of it are left out: 4095 beside 4096 would be a spike. docs/benchmarks.md has them.
STEP = 256
BLUE, ORANGE, GREEN = "#1f5fa8", "#c4501b", "#2f7d32"

Rounds = dict[int, tuple[list[float], list[float]]]


def square(files: tuple[str, ...], peer: str) -> Rounds:
    """Of square sizes the rounds of gemmgen and of the peer, in microseconds."""
    rows = [row for file in files for row in json.loads((RESULTS / file).read_text())["rows"]]
    found = {
        row["n"]: (row["ours_rounds_us"], row["peer_rounds_us"])
        for row in rows
        if row["m"] == row["n"] == row["k"] and row["n"] % STEP == 0 and not row["batch"] and row["peer"] == peer
    }
    return dict(sorted(found.items()))


def draw_ratios(axes: Axes) -> list[int]:
    """gemmgen beside a CPU's libraries: the medians of the rounds' ratios with their 95 % intervals."""
    drawn: list[int] = []
    for peer, label, color, shift in (("numpy", "OpenBLAS 0.3.31", ORANGE, 0.97), ("mkl", "MKL 2026.2", GREEN, 1.03)):
        measured = square(XEON, peer)
        ratios = [tuple(b / a for a, b in zip(*both, strict=True)) for both in measured.values()]
        middle = [median(each) for each in ratios]
        ends = [median_interval(each) for each in ratios]
        below = [at - end.low for at, end in zip(middle, ends, strict=True) if end]
        above = [end.high - at for at, end in zip(middle, ends, strict=True) if end]
        places = [size * shift for size in measured]
        axes.errorbar(places, middle, (below, above), fmt="o-", color=color, capsize=3, label=f"beside {label}")
        drawn = list(measured)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylim(0.5, 1.5)
    axes.set(ylabel="speed of gemmgen / speed of the library")
    axes.set_title("float32, two cores of an Intel Xeon (Sapphire Rapids), 2026-11-22, with 95 % intervals", size=9)
    return drawn


def draw_rates(axes: Axes) -> list[int]:
    """gemmgen and cuBLAS: the medians' rates, with a band from the slowest to the fastest round."""
    drawn: set[int] = set()
    for files, kind, fill in ((BFLOAT16, "bfloat16", "full"), (FLOAT32, "float32", "none")):
        measured = square(files, "cublas")
        for who, name, color, style in ((0, "gemmgen", BLUE, "o-"), (1, "cuBLAS", ORANGE, "s--")):
            rates = [[2e-6 * n**3 / us for us in both[who]] for n, both in measured.items()]
            middle = [median(each) for each in rates]
            axes.plot(list(measured), middle, style, color=color, fillstyle=fill, label=f"{name}, {kind}")
            axes.fill_between(list(measured), [*map(min, rates)], [*map(max, rates)], color=color, alpha=0.12, lw=0)
        drawn |= set(measured)
    axes.set_yscale("log")
    axes.set_yticks((25, 50, 100, 200, 400, 800), ("25", "50", "100", "200", "400", "800"))
    axes.yaxis.minorticks_off()
    axes.set(ylabel="TFLOP/s")
    axes.set_title("NVIDIA H200, 2026-11-22 (bfloat16) and 2026-11-21 (float32)", size=9)
    return sorted(drawn)


def main(folder: Path = IMAGES) -> None:
    """Write both files."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    # Text as paths: it looks the same everywhere. The same figures give the same file.
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "gemmgen"}):
        for name, draw in (("cpu", draw_ratios), ("gpu", draw_rates)):
            figure = Figure(figsize=(6.4, 3.6), layout="constrained", facecolor="white")
            axes = figure.add_subplot()
            sizes = draw(axes)
            axes.set_xscale("log", base=2)
            ticks = [size for size in sizes if size & (size - 1) == 0]
            axes.set_xticks(ticks, [str(size) for size in ticks])
            axes.xaxis.minorticks_off()
            axes.set(xlabel="M = N = K")
            axes.grid(alpha=0.3)
            axes.legend(frameon=False)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
