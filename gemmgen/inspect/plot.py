"""A roofline of targets and kernels, by matplotlib, which is imported only here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from gemmgen.errors import ToolError
from gemmgen.inspect.bounds import intensity
from gemmgen.inspect.jobs import Outcome
from gemmgen.inspect.machine import Machine
from gemmgen.inspect.report import Report


def roofline(kernels: Sequence[tuple[str, tuple[int, int, int], Sequence[Outcome]]], file: BinaryIO, form: str) -> None:
    """Draw each device's roof, and for each kernel the bound under it.

    Args:
        kernels: name, M N K, reports.
        form: of the picture: png, svg or pdf.

    Raises: ToolError if matplotlib is missing, or if no target's figures are known.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ToolError('matplotlib is not installed: pip install "gemmgen[plot]"') from None
    reports = [(name, intensity(sizes), o) for name, sizes, found in kernels for o in found if isinstance(o, Report)]
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
