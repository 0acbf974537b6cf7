"""Charts: axes, and a roofline with the ceiling of each schedule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10

from gemmgen.drawing.svg import MARGIN, Drawing, framed, hue, path, text
from gemmgen.records import dataclass

#: Room at the left for the axis' numbers, above for the title, below for the axis' title.
LEFT, TOP, BOTTOM = 78, 48, 52
#: The least distance of two labels at the right.
_APART = 17


@dataclass(frozen=True, slots=True)
class Frame:
    """Where an axis' numbers are in the picture; logarithms of them where it is `log`."""

    least: float
    most: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The coordinate of a number."""
        least, most = self.least, self.most
        if self.log:
            least, most, value = log10(least), log10(most), log10(value)
        return self.start + (value - least) / (most - least) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten, with 2 and 5 times them where they are few; or about five round numbers."""
        if self.log:
            powers = [10.0**x for x in range(floor(log10(self.least)), floor(log10(self.most)) + 1)]
            several = [x * by for x in powers for by in (1, 2, 5)] if len(powers) < 4 else powers
            return [x for x in several if self.least <= x <= self.most]
        rough = (self.most - self.least) / 5
        unit = 10 ** floor(log10(rough))
        step = next(unit * x for x in (1, 2, 5, 10) if unit * x >= rough * 0.999)
        first = ceil(self.least / step - 1e-9)
        return [step * x for x in range(first, floor(self.most / step + 1e-9) + 1)]


def axes(across: Frame, up: Frame, x_title: str, y_title: str) -> Iterator[str]:
    """Grid lines with their numbers, and the axes' titles."""
    for value in across.ticks():
        x = across.place(value)
        yield path(f"M{x:.4g} {up.start:.4g}V{up.end:.4g}", "grid")
        yield text(x, up.start + 16, f"{value:,g}", "soft", size=11, at="middle")
    for value in up.ticks():
        y = up.place(value)
        yield path(f"M{across.start:.4g} {y:.4g}H{across.end:.4g}", "grid")
        yield text(across.start - 6, y + 4, f"{value:,g}", "soft", size=11, at="end")
    yield text((across.start + across.end) / 2, up.start + 38, x_title, "soft", size=12, at="middle")
    yield text(MARGIN, up.end - 8, y_title, "soft", size=12)


def spread(places: Sequence[float], least: float, most: float) -> list[float]:
    """Places of labels, moved apart; each stays as near as it can."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    out = [0.0] * len(places)
    below = least - _APART
    for i in order:
        out[i] = below = max(places[i], below + _APART)
    above = most + _APART
    for i in reversed(order):
        out[i] = above = min(out[i], above - _APART)
    return out


# --- roofline -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a schedule can't exceed on a device.

    Attributes:
        intensity: flops per byte of memory, each element moved once.
        share: of the peak.
        limit: what sets it, such as `issue slots`.
    """

    name: str
    intensity: float
    share: float
    limit: str


def roofline(device: str, peak: float, bandwidth: float, ceilings: Sequence[Ceiling], width: int = 900) -> Drawing:
    """The roof of a device, and below it the ceiling of each schedule.

    Args:
        peak: GFLOP/s.
        bandwidth: of its memory, in GB/s.
    """
    corner, height = peak / bandwidth, 360
    most = max([8 * corner, *(2 * each.intensity for each in ceilings)])
    across = Frame(0.25, most, LEFT, width * 0.62, log=True)
    low = min([0.25 * bandwidth, *(each.share * peak * 0.7 for each in ceilings)])
    up = Frame(low, peak * 1.25, height - BOTTOM, TOP + 20, log=True)
    parts = list(axes(across, up, "flops per byte of memory, each element moved once", "GFLOP/s"))
    roof = f"M{across.start:.4g} {up.place(0.25 * bandwidth):.4g}L{across.place(corner):.4g} {up.place(peak):.4g}"
    parts.append(path(f"{roof}H{across.end:.4g}", "line", ' style="stroke:var(--ink)"'))
    parts.append(text(across.place(corner) + 6, up.place(peak) - 7, f"{peak:,.0f} GFLOP/s", size=12))
    parts.append(text(across.place(0.5) + 12, up.place(0.5 * bandwidth) + 4, f"{bandwidth:,.0f} GB/s", size=12))
    heights = [up.place(each.share * peak) for each in ceilings]
    labels = spread([y + 4 for y in heights], up.end, up.start)
    for number, (each, y, label) in enumerate(zip(ceilings, heights, labels, strict=True)):
        way = f"M{across.place(each.share * corner):.4g} {y:.4g}H{across.end:.4g}"
        parts.append(path(f"{way}L{across.end + 18:.4g} {label - 4:.4g}", "line", hue(number + 1)))
        parts.append(f'<circle cx="{across.place(each.intensity):.4g}" cy="{y:.4g}" r="5"{hue(number + 1)}/>')
        parts.append(text(across.end + 24, label, f"{each.name}: at most {each.share:.0%}, {each.limit}", size=12))
    return framed(f"{device}: roofline, and the ceiling of each schedule", parts, height, width)
