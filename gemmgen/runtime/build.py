"""What every runtime does around its compiler: check first whether a source fits the device, and quote errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gemmgen.errors import DeviceError, ScheduleError
from gemmgen.ir.target import FEATURES, Target
from gemmgen.records import dataclass
from gemmgen.source import EntryPoint, Source

#: Lines of a compiler's log that are quoted.
LOG_LINES = 40


@dataclass(frozen=True, slots=True)
class Words:
    """A backend's own words for a device, a group of threads, its threads, and the memory that they share."""

    device: str = "device"
    groups: str = "groups"
    threads: str = "work-items"
    memory: str = "local"


def check_device(
    source: Source, name: str, target: Target, words: Words, lacks: Sequence[str] = (), widest: tuple[int, int] = (0, 0)
) -> None:
    """Check features, sub-group sizes, group size and shared memory.

    Args:
        name: the device's.
        lacks: why no kernel can run there.
        widest: the most threads of a group along rows and columns; 0 where the size of a group is the only limit.

    Raises: DeviceError if the device can't run it at all, ScheduleError if another schedule fits; with every problem.
    """
    remedy = f"choose another {words.device} (gemmgen devices) or a preset without it (gemmgen presets)"
    lacking = [
        f"{source.name} needs {feature} ({FEATURES.get(feature, 'unknown')}), which {name} lacks: {remedy}"
        for feature in sorted(source.requires - target.features)
    ]
    lacking += [f"{source.name} can't run on {name}, as {why}: {remedy}" for why in lacks]
    too_big: list[str] = []
    for entry in source.entry_points:
        lacking += _sub_group_problems(entry, name, target)
        too_big += _limit_problems(entry, name, target, words, widest)
    if lacking:
        raise DeviceError(lacking + too_big)
    if too_big:
        raise ScheduleError(too_big)


def _sub_group_problems(entry: EntryPoint, name: str, target: Target) -> Iterator[str]:
    """A size that sub-groups can't have. A device without any lacks a feature, which is said."""
    asks = entry.sub_group is not None and "sub_groups" in target.features
    if asks and entry.sub_group not in target.sub_group_sizes:
        listed = ", ".join(map(str, target.sub_group_sizes)) or "none"
        yield f"{entry.name} needs sub-groups of {entry.sub_group}, but {name} has {listed}: use one of those"


def _limit_problems(
    entry: EntryPoint, name: str, target: Target, words: Words, widest: tuple[int, int]
) -> Iterator[str]:
    rows, cols = entry.group
    threads, most = f"{words.groups} of {rows}x{cols}", target.max_group
    if rows * cols > most:
        counted = f"{threads} = {rows * cols} {words.threads} > {most}"
        yield f"{entry.name} has {counted} on {name}: use a smaller group"
    elif any(most and count > most for count, most in zip((rows, cols), widest, strict=True)):
        counted = f"{threads} {words.threads} > {'x'.join(map(str, widest))}"
        yield f"{entry.name} has {counted} on {name}: use a smaller group"
    taken = max(entry.local_bytes, entry.dynamic_bytes)  # mbarriers are part of the latter alone
    if taken > target.local_bytes:
        yield (
            f"{entry.name} takes {taken:,} B of {words.memory} memory > {target.local_bytes:,} B on {name}: "
            "use a smaller tile, group or K step, or fewer stages"
        )


def build_failure(source: Source, refusal: str, log: str, error_line: re.Pattern[str]) -> str:
    """The compiler's log, and the lines of the source that it complains about.

    Args:
        refusal: who does not compile the source, and for which device.
        error_line: finds the lines' numbers in the log.
    """
    lines = source.text.splitlines()
    bad = sorted({int(n) for n in error_line.findall(log) if 0 < int(n) <= len(lines)})
    quoted = [f"{number:5d} | {lines[number - 1]}" for number in bad]
    said = [line for line in log.strip().splitlines() if line.strip()][:LOG_LINES]
    return "\n".join([f"{refusal}; its log:", *said, *quoted])
