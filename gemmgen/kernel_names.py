"""What a kernel is called, in its file and in lists."""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Mapping
from hashlib import sha256

from gemmgen.methods import defaults, departures
from gemmgen.schedule import Schedule, text_of
from gemmgen.spec import GemmSpec

#: What kernels' names say of a schedule, the most telling first.
_SAID: Mapping[str, str] = {
    "dot_product": "dot",
    "kc": "kc{}",
    "stages": "s{}",
    "split_k": "split{}",
    "stream_k": "stream",
    "persistent": "persistent",
    "sliced_k": "sliced{}",
    "cluster": "cluster{}",
    "block_k": "k{}",
    "vector": "v{}",
}
#: How many of those a name says.
_SAID_AT_MOST = 3
#: What a CPU's caches decide beside the tile and KC: the parts of the product, the copy of B and how its loop reads it.
_BY_CACHES = frozenset(
    {"b.memory", "macro_kernel", "mc", "grid_multiple", "block_k", "b_prefetch", "fused_copy", "c_prefetch"}
)
#: Methods whose blocks, not the tiles of their threads, are what one talks of.
_BY_BLOCKS = ("slm", "mma", "wgmma")
_TYPES: Mapping[str, str] = {
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"s{bits}" for bits in (4, 8, 16, 32, 64)},
    "bfloat16": "bf16",
    "complex64": "c64",
    "complex128": "c128",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}


def kernel_name(schedule: Schedule, spec: GemmSpec) -> str:
    """What a kernel is called, in its file and in lists: as its schedule, or `gemm_f32_6x64_kc1024`.

    That is the types of A and B, the method, the tile, the group where it is not the method's, and the most telling
    fields that are not as the method puts them. A short digest stands for all others.
    """
    if schedule.name:
        return schedule.name
    implied = _BY_CACHES if schedule.method == "vector" else frozenset[str]()
    other = {key: value for key, value in departures(schedule).items() if key not in implied}
    said = {key: text for key, text in _SAID.items() if key in other}
    words = [text.format(text_of(other[key])) for key, text in [*said.items()][:_SAID_AT_MOST]]
    # Both operands' types in an order that does not change where the operands are swapped.
    parts = ["gemm", *sorted({_TYPES[spec.element(x).name] for x in "ab"}), *_shape(schedule), *words]
    unsaid = {key: text_of(value) for key, value in other.items() if key not in [*said][:_SAID_AT_MOST]}
    if unsaid:
        digest = sha256(repr(sorted(unsaid.items())).encode()).digest()
        parts.append(b32encode(digest)[:4].decode().lower())
    return "_".join(parts).replace("-", "minus")


def _shape(schedule: Schedule) -> list[str]:
    """The tile that one talks of, and the group where it is not the method's."""
    method, (rows, cols), (down, across) = schedule.method, schedule.tile, schedule.group
    usual = defaults(method, schedule.tile).group
    by = [] if (down, across) == usual else [f"by{down}x{across}"]
    if not method.startswith(_BY_BLOCKS):
        return [*([] if method == "vector" else [method]), f"{rows}x{cols}", *by]
    # The types say which of the instructions it is.
    word = re.sub(r"_(s8|f8|f64)$", "", method)
    return [word, f"{rows * down}x{cols * across}", *by]
