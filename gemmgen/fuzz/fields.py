"""Values to try of every field of a schedule, one by one or in pairs; and whether a change was for nothing.

A field may not be taken and ignored: whatever is accepted shows in the text below its head comment or in what a host is
told, unless the field's own documentation says when it means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from gemmgen.ir.target import Target
from gemmgen.methods import Value
from gemmgen.schedule import MatrixAtom, Memory, Schedule
from gemmgen.source import Source

_FLAGS: tuple[Value, ...] = (False, True)

#: Of A's fields and of B's.
OPERAND_VALUES: dict[str, tuple[Value, ...]] = {
    "memory": get_args(Memory),
    "width": (1, 2, 4, 8, 16),
    "block": _FLAGS,
    "share": _FLAGS,
    "transposed": _FLAGS,
    "pad": (0, 1, 4, 8),
    "async_copy": _FLAGS,
    "packed": _FLAGS,
    "streamed": _FLAGS,
}
#: Of all others.
VALUES: dict[str, tuple[Value, ...]] = {
    "tile": ((1, 1), (2, 4), (4, 4), (3, 8), (8, 8), (8, 16), (2, 64)),
    "group": ((1, 1), (1, 8), (4, 8), (8, 8), (16, 16), (32, 4), (64, 4), (4, 32)),
    "run": ((1, 1), (1, 2), (1, 4), (2, 2), (4, 4)),
    "k_step": (1, 2, 3, 4, 8, 16, 24, 32, 64),
    "b_step": (0, 4, 8),
    "sub_group": (None, 8, 16, 32),
    "stages": (1, 2, 3, 4, 6, 12, 16),
    "mbarrier": (0, 1, 2, 3, 4),
    "boxes": _FLAGS,
    "slices": (1, 2, 4),
    "split": (1, 2, 3, 8),
    "joined": (1, 2, 4),
    "stream": _FLAGS,
    "atomic": _FLAGS,
    "raster": (0, 1, 2, 3, 4),
    "prefetch": _FLAGS,
    "register_stages": (1, 2, 3),
    "warp": (None, (4, 8), (8, 4), (2, 16)),
    "stagger": _FLAGS,
    "across": _FLAGS,
    "snake": _FLAGS,
    "barrier": _FLAGS,
    "atom": ("fma", *get_args(MatrixAtom)),
    "large_registers": _FLAGS,
    "c_width": (1, 2, 4, 8),
    "c_stages": (0, 1, 2),
    "c_turns": _FLAGS,
    "vector": (1, 2, 8, 16),
    "along_k": _FLAGS,
    "sweep": ((1, 1), (2, 1), (4, 4)),
    "even": ((1, 1), (2, 2)),
    "k_block": (0, 32, 256),
    "m_block": (0, 1, 2),
    "b_prefetch": (0, 8),
    "c_prefetch": _FLAGS,
    "producers": (0, 32, 128),
    "registers": ((0, 0), (232, 40), (240, 24)),
    "persistent": _FLAGS,
    "cluster": ((1, 1), (2, 1), (1, 2)),
    "late": _FLAGS,
    **{f"{name}.{field}": values for name in "ab" for field, values in OPERAND_VALUES.items()},
}


def told(source: Source) -> tuple[object, ...]:
    """All that is delivered but the head comment."""
    lines = source.text.splitlines()
    begin = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    options = source.build_options, source.gpu_options, source.requires, source.workspaces, source.alignment
    return tuple(lines[begin:]), source.entry_points, *options


def documented(schedule: Schedule, changes: Mapping[str, Value], target: Target) -> bool:
    """Whether the fields' documentation says that all of these changes may mean nothing: of a schedule as it is after
    them.
    """
    return all(_documented(schedule, key, target) for key in changes)


def _documented(s: Schedule, key: str, target: Target) -> bool:
    field = key.rpartition(".")[2]
    match field:
        case "run":
            return 1 in s.group
        case "width":
            return "unaligned_vectors" not in target.features or s.by_blocks
        case "block":
            return "block_read" not in target.features
        case "c_width":
            return s.c_stages > 0 or "unaligned_vectors" not in target.features
        case "c_stages":
            return s.c_stages > 0
    return False
