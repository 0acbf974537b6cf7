"""The presets: named schedules with a line about each, one TOML file a preset.

Presets are examples worth reading, and what users are shown. The schedules of `candidates.toml`, which a choice picks
from as well, have names and a line, too, and are loaded by them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from gemmgen.errors import ScheduleError, UserError, suggest
from gemmgen.options import document_of, read_document
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: What lists them.
LISTING = "gemmgen presets"
#: By where they come from; within one, larger tiles first and a ladder from the ground up.
_ORDER = (
    "naive",
    "L3_SIMD_32x2_1x8",
    "L3_SIMD_16x2_1x8",
    "L3_SIMD_16x2_4x8",
    "L3_SIMD_8x4_1x8",
    "L3_SIMD_8x4_8x8",
    "L3_SIMD_8x4_8x8_barrier",
    "L3_SLM_8x8_8x16",
    "L3_SLM_8x8_4x16",
    "L3_SLM_8x8_16x16",
    "block_read_32x2_1x8",
    "block_read_32x1_1x8",
    "block_read_16x2_1x8",
    "block_read_16x4_1x8",
    "block_read_16x2_4x8",
    "block_read_16x4_4x8",
    "block_read_32x2_4x8",
    "block_read_16x2_8x8",
    "block_read_16x4_8x8",
    "block_read_32x2_8x8",
    "block_read_4x1_1x8",
    "lds_8x8_16x16_k1",
    "lds_8x8_16x16_k8",
    "lds_8x8_16x16_k16_double",
    "sg16_block_16x1",
    "sg16_block_16x1_split4",
    "sg16_block_16x2",
    "register_8x8_4x4",
    "reduction_4x4_4x4",
    "naive_16x16",
    "vec4_4x4",
    "tile_8x8",
    "smem_8x8",
    "smem_8x8_transposed",
    "smem_8x8_reg_double",
    "smem_8x8_double",
    "smem_8x8_double_packed",
    "async_8x8_16x16",
    "mbarrier_8x16_16x16",
    "mbarrier_8x16_16x16_stream",
    "mbarrier_8x16_16x16_boxes_packed",
    "mbarrier_8x8_4x8_slices8",
    "mbarrier_8x8_2x16_split8",
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A named schedule; its kernel goes by the same name.

    Attributes:
        summary: a line about it.
        spec: what it computes unless told otherwise.
    """

    name: str
    summary: str
    spec: GemmSpec
    schedule: Schedule

    def _repr_svg_(self) -> str | None:
        """The picture that a notebook shows; None where there is none."""
        import gemmgen  # the public name: nothing here knows who draws

        try:
            return gemmgen.draw(self.spec, self.schedule).svg
        except UserError:
            return None


@cache
def names() -> tuple[str, ...]:
    """Every preset's name: those of `_ORDER` first, others after them by the alphabet."""
    found = {entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")}
    return (*(name for name in _ORDER if name in found), *sorted(found.difference(_ORDER)))


@cache
def load(name: str) -> Preset:
    """The preset, or the schedule of `candidates.toml`, of that name.

    Raises: ScheduleError, which suggests the nearest presets.
    """
    if name in unlisted():
        document = document_of(dict(unlisted()[name]), f"schedule {name}")
    elif name in names():
        text = files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
        document = read_document(text, f"preset {name}")
    else:
        raise ScheduleError(f"preset {name!r} does not exist: {suggest(name, names(), LISTING)}")
    return Preset(name, document.summary, document.spec, replace(document.schedule, name=name))


@cache
def unlisted() -> Mapping[str, Mapping[str, object]]:
    """The tables of `candidates.toml`, by the names of their schedules."""
    tables: dict[str, dict[str, object]] = tomllib.loads(
        files("gemmgen").joinpath("candidates.toml").read_text(encoding="utf-8")
    )
    return tables
