"""The parts of a picture: rectangles, text, lines and their colours, which follow the reader's light or dark mode."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import accumulate

from gemmgen.records import dataclass

#: Where a picture begins, how wide it is, and the distance of two lines of text.
MARGIN, WIDTH, LINE = 20, 900, 22
#: Hues that are told apart, and the step between neighbours.
HUES, HUE_STEP = 8, 3
_INK = {
    "light": "--ink:#24292f;--soft:#656d76;--own:#24292f;--a:#d9480f;--b:#1971c2;--c:#2f9e44;--bad:#c92a2a;"
    "--paper:#fff;--grid:#d0d7de;--fill:.16;--lum:45%",
    "dark": "--ink:#e6edf3;--soft:#9198a1;--own:#f0f6fc;--a:#ff922b;--b:#4dabf7;--c:#69db7c;--bad:#ff6b6b;"
    "--paper:#0d1117;--grid:#3d444d;--fill:.28;--lum:60%",
}
_STYLE = (
    f"svg.gemmgen{{{_INK['light']};font:13px ui-sans-serif,system-ui,sans-serif;max-width:100%;height:auto}}"
    f"@media(prefers-color-scheme:dark){{svg.gemmgen{{{_INK['dark']}}}}}"
    f"[data-md-color-scheme=default] svg.gemmgen{{{_INK['light']}}}"
    f"[data-md-color-scheme=slate] svg.gemmgen{{{_INK['dark']}}}"
    "svg.gemmgen text{fill:var(--ink)}svg.gemmgen .soft{fill:var(--soft)}"
    "svg.gemmgen .a{fill:var(--a);stroke:var(--a)}svg.gemmgen .b{fill:var(--b);stroke:var(--b)}"
    "svg.gemmgen .c{fill:var(--c);stroke:var(--c)}svg.gemmgen rect{fill-opacity:var(--fill)}"
    "svg.gemmgen .own{fill:var(--own);fill-opacity:.85;stroke:none}"
    "svg.gemmgen .way{stroke:var(--soft);stroke-width:1.5;fill:none}svg.gemmgen .tip{fill:var(--soft)}"
    "svg.gemmgen .bad{fill:var(--bad);stroke:var(--bad)}svg.gemmgen .full{fill-opacity:.8}"
    "svg.gemmgen .cell{fill:none;stroke:var(--grid)}svg.gemmgen .grid{stroke:var(--grid);fill:none}"
    "svg.gemmgen .line{fill:none!important;stroke-width:2.5;stroke-linejoin:round}"
)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A picture; notebooks show it.

    Attributes:
        svg: its text, which stands by itself.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


def stacked(pictures: Sequence[Drawing]) -> Drawing:
    """Pictures of one width below one another, each from its top."""
    sizes = [re.findall(r'viewBox="0 0 (\d+) (\d+)"', picture.svg)[0] for picture in pictures]
    tops = list(accumulate((int(height) for _, height in sizes), initial=0))
    parts = (f'<g transform="translate(0 {top})">{each.svg}</g>' for each, top in zip(pictures, tops, strict=False))
    width = sizes[0][0]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tops[-1]}" width="{width}">'
    return Drawing(f"{head}{''.join(parts)}</svg>\n")


def framed(title: str, parts: Iterable[str], height: float, width: int = WIDTH) -> Drawing:
    """A picture with its title."""
    return Drawing(
        f'<svg class="gemmgen" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" '
        f'role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>'
        f"{text(MARGIN, 24, title, weight=600)}{''.join(parts)}</svg>\n"
    )


def rect(left: float, top: float, width: float, height: float, kind: str, more: str = "") -> str:
    """A rectangle of a class of the style, with more attributes."""
    named = f' class="{kind}"' if kind else ""
    return f'<rect{named} x="{left:.4g}" y="{top:.4g}" width="{width:.4g}" height="{height:.4g}"{more}/>'


def text(left: float, top: float, words: str, kind: str = "", size: int = 13, weight: int = 400, at: str = "") -> str:
    """Text in a colour of the style; `at` is `middle` or `end` where the text does not begin at `left`."""
    style = (f"fill:var(--{kind});" if kind else "") + (f"font-size:{size}px;" if size != 13 else "")
    style += f"font-weight:{weight}" if weight != 400 else ""
    styled = (f' style="{style}"' if style else "") + (f' text-anchor="{at}"' if at else "")
    return f'<text x="{left:.4g}" y="{top:.4g}"{styled} xml:space="preserve">{escape(words)}</text>'


def path(way: str, kind: str, more: str = "") -> str:
    """A line of a class of the style."""
    return f'<path class="{kind}" d="{way}"{more}/>'


def hue(number: int) -> str:
    """The attributes of a rectangle in the colour of a number; neighbours differ well."""
    colour = f"hsl({360 // HUES * (number * HUE_STEP % HUES)} 65% var(--lum))"
    return f' style="fill:{colour};stroke:{colour}"'


def count(number: float, noun: str) -> str:
    """`1 load`, `2 loads`."""
    one, many = (noun, f"{noun}s") if " or " not in noun else (noun, "warps or sub-groups")
    return f"{number:g} {one if number == 1 else many}"
