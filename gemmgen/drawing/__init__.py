"""Pictures in SVG: a schedule, its bank conflicts, the order of its blocks, and charts of figures."""

from gemmgen.drawing.banks import draw_banks
from gemmgen.drawing.schedule import draw
from gemmgen.drawing.svg import Drawing
from gemmgen.drawing.waves import draw_waves

__all__ = ["Drawing", "draw", "draw_banks", "draw_waves"]
