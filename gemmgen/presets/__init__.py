"""The presets: named schedules with a line about each, one TOML file a preset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from gemmgen.errors import ScheduleError
from gemmgen.options import read_document, suggest
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

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
    "lds_8x8_16x16_k8_double",
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
    "async_8x8_8x16",
    "async_8x4_8x16",
    "async_4x4_8x16",
    "mbarrier_8x16_16x16",
    "mbarrier_8x16_16x16_packed_a",
    "mbarrier_8x16_16x16_stream",
    "mbarrier_8x16_16x16_boxes_packed",
    "mbarrier_8x16_16x16_packed",
    "mbarrier_8x16_16x16_split7",
    "mbarrier_8x16_8x8_slices4",
    "mbarrier_8x16_8x8_slices4_packed",
    "mbarrier_8x8_4x8_slices8",
    "mbarrier_8x8_8x8_split128",
    "mbarrier_8x8_2x16_split8",
    "mbarrier_8x16_16x16_atomic7",
    "mbarrier_8x8_8x8_atomic128",
    "mbarrier_8x8_2x16_atomic8",
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


@cache
def names() -> tuple[str, ...]:
    """Every preset's name: those of `_ORDER` first, others after them by the alphabet."""
    found = {entry.name.removesuffix(".toml") for entry in files(__name__).iterdir() if entry.name.endswith(".toml")}
    return (*(name for name in _ORDER if name in found), *sorted(found.difference(_ORDER)))


@cache
def load(name: str) -> Preset:
    """The preset of that name. Raises: ScheduleError, which suggests the nearest ones."""
    if name not in names():
        raise ScheduleError(f"preset {name!r} does not exist: {suggest(name, names())}")
    text = files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    document = read_document(text, f"preset {name}")
    return Preset(name, document.summary, document.spec, replace(document.schedule, name=name))
