"""The presets: named schedules with a line about each, one TOML file a preset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from gemmgen.errors import ScheduleError, suggest
from gemmgen.options import read_document
from gemmgen.schedule import Atom, Operand, Schedule
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

#: Names that presets had before.
RENAMED = {"lds_8x8_16x16_k8_double": "lds_8x8_16x16_k16_double"}


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
    if name in RENAMED:
        raise ScheduleError(f"preset {name!r} is called {RENAMED[name]!r} now, for what it does: use that name")
    if name not in names():
        raise ScheduleError(f"preset {name!r} does not exist: {suggest(name, names(), LISTING)}")
    text = files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    document = read_document(text, f"preset {name}")
    return Preset(name, document.summary, document.spec, replace(document.schedule, name=name))


@cache
def varied(
    name: str,
    parts: int = 1,
    packed: tuple[bool, bool] = (False, False),
    stream: bool = False,
    joined: int = 1,
    atom: Atom | None = None,
) -> Schedule:
    """A preset's schedule as a product asks for it, named as a preset would be.

    Packed operands leave C's lines free to begin anywhere, and parts of K are no C: neither is stored by boxes, nor by
    groups that stay.

    Args:
        parts: of K, of which a cluster adds up `joined`.
        stream: whether blocks are dealt out evenly to the groups that the device runs at once.
        packed: whether a kernel before lays out A, and B.
        atom: an instruction in the place of the preset's, of elements of the same size.

    Raises: ScheduleError where there is no such preset.
    """
    plain = load(name).schedule
    boxes = plain.c_stages if parts == 1 and not any(packed) else 0
    width = plain.c_width if joined == plain.joined else 4 if joined > 1 else 1
    stays = plain.persistent and boxes > 0
    # Instructions on elements of two bytes turn what lies across; of all others both operands lie along K.
    along_k = plain.by_warpgroups and plain.atom != "wgmma"
    return replace(
        plain,
        split=parts,
        joined=joined,
        stream=stream,
        a=_packed(plain.a, False if along_k else None) if packed[0] else replace(plain.a, packed=False),
        b=_packed(plain.b, True if along_k else None) if packed[1] else replace(plain.b, packed=False),
        c_stages=boxes,
        c_width=width,
        persistent=stays,
        c_turns=plain.c_turns and stays,
        atom=atom or plain.atom,
        name=_varied_name(name.replace(plain.atom, atom or plain.atom), parts, packed, stream, joined),
    )


def _packed(operand: Operand, transposed: bool | None) -> Operand:
    """An operand that a kernel before lays out."""
    turned = operand.transposed if transposed is None else transposed
    return replace(operand, packed=True, pad=0, transposed=turned)


def _varied_name(name: str, parts: int, packed: tuple[bool, bool], stream: bool, joined: int) -> str:
    for suffix in ("_split", "_joined", "_packed"):
        name = name.partition(suffix)[0]
    name += (f"_split{parts}" if parts > joined else "") + (f"_joined{joined}" if joined > 1 else "")
    which = {(True, True): "_packed", (True, False): "_packed_a", (False, True): "_packed_b"}.get(packed, "")
    return name + which + ("_stream" if stream else "")
