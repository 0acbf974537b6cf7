"""Values to try of every field of a schedule, one by one or in pairs; and whether a change was for nothing.

A field may not be taken and ignored: whatever is accepted shows in the text below its head comment or in what a host is
told, unless the field's own documentation says when it means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from gemmgen.ir.target import Target
from gemmgen.schedule import KEYS, Schedule, Value
from gemmgen.source import Source

#: Of each field.
VALUES: dict[str, tuple[Value, ...]] = {key: field.tries for key, field in KEYS.items()}
#: Of A's fields and of B's.
OPERAND_VALUES = {key.removeprefix("a."): values for key, values in VALUES.items() if key.startswith("a.")}


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
        case "thread_vector":
            return 1 in s.group
        case "width":
            return "unaligned_vectors" not in target.features or s.by_blocks
        case "block_read":
            return "block_read" not in target.features
        case "min_blocks":
            return not target.multiprocessor_register_bytes
        case "c_width":
            return s.epilogue_stages > 0 or "unaligned_vectors" not in target.features
        case "epilogue_stages":
            return s.epilogue_stages > 0
    return False
