"""Charts of recorded figures: a ladder of steps, and how searches converge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmgen.drawing.charts import BOTTOM, LEFT, TOP, Frame, axes, spread
from gemmgen.drawing.svg import MARGIN, Drawing, framed, hue, path, rect, text

#: Room at the right.
RIGHT = 20


def staircase(steps: Sequence[tuple[str, float]], top: str, width: int = 900) -> Drawing:
    """Steps as stairs: what each reaches of a library's rate.

    Args:
        top: what is reached at 1.
    """
    height = 400
    across = Frame(0, len(steps), LEFT, width - RIGHT)
    up = Frame(0, max(1.05, *(share for _, share in steps)), height - 120, TOP + 6)
    side, floor_ = across.place(1) - across.place(0), up.place(0)
    parts = [path(f"M{LEFT} {up.place(1):.4g}H{across.end}", "grid", ' stroke-dasharray="5 5"')]
    parts.append(text(MARGIN, up.place(1) + 4, top, "soft", size=12))
    way = f"M{LEFT} {floor_:.4g}"
    for number, (name, share) in enumerate(steps):
        x, y = across.place(number), up.place(share)
        way += f"V{y:.4g}H{x + side:.4g}"
        parts.append(rect(x, y, side, floor_ - y, "b", ' style="stroke:none"'))
        parts.append(text(x + side / 2, y - 7, f"{share:.2f}", size=12, weight=600, at="middle"))
        rotated = f' transform="translate({x + side / 2 + 4:.4g} {floor_ + 18:.4g}) rotate(-32)"'
        parts.append(f'<text text-anchor="end" style="font-size:12px"{rotated}>{name}</text>')
    parts.append(path(way, "line", ' style="stroke:var(--b)"'))
    return framed("The ladder: the rate of each step", parts, height, width)


def convergence(title: str, curves: Mapping[str, Sequence[float]], y_title: str, width: int = 900) -> Drawing:
    """How searches come to their best: after each trial, the best so far.

    Args:
        curves: name -> the best after 1, 2, 3 ... trials.
    """
    height = 340
    longest = max(len(curve) for curve in curves.values())
    most = max(max(curve) for curve in curves.values())
    least = min(min(curve) for curve in curves.values())
    across = Frame(1, max(2, longest), LEFT, width - 150)
    up = Frame(least, max(most, least * 1.01), height - BOTTOM, TOP + 24)
    parts = list(axes(across, up, "schedules measured", y_title))
    ends = spread([up.place(curve[-1]) + 4 for curve in curves.values()], up.end, up.start)
    for number, ((name, curve), label) in enumerate(zip(curves.items(), ends, strict=True)):
        way = f"M{across.place(1):.4g} {up.place(curve[0]):.4g}"
        way += "".join(f"H{across.place(i + 2):.4g}V{up.place(value):.4g}" for i, value in enumerate(curve[1:]))
        colour = hue(number + 1)
        parts.append(path(way, "line", colour))
        parts.append(rect(across.end + 16, label - 10, 12, 12, "full", colour))
        parts.append(text(across.end + 34, label, name, size=12))
    return framed(title, parts, height, width)
