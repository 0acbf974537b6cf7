"""Bank conflicts as a grid: the banks of local memory across, the lines that a warp accesses down.

The addresses are those of the lowered kernel (`gemmgen.banks`). Each cell is a word of 4 bytes, with the lane that
accesses it. A bank that must deliver several words in one pass is red.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gemmgen.banks import BANK_BYTES, LocalAccess, local_accesses
from gemmgen.drawing.svg import LINE, MARGIN, Drawing, count, framed, hue, rect, text
from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Banks and lanes of a warp on GPUs of NVIDIA, and of AMD from gfx10 on.
BANKS, LANES = 32, 32
_HOW_TO_READ = (
    "A cell is a word of 4 bytes, with the lane that accesses it (×n: n lanes share it). One colour is one pass. "
    "Red: words of one bank in one pass."
)
#: The side of a cell, where the grid begins, and lines of local memory that are drawn.
_CELL, _LEFT, _MOST_LINES = 24, 112, 8


def draw_banks(spec: GemmSpec, schedule: Schedule, target: Target) -> Drawing:
    """How the banks serve each access of a warp to local memory, in the main loop.

    Raises: UserError where the target can't run the schedule, or where work-items access no local memory.
    """
    from gemmgen.driver import lower  # only when asked for: all passes come with it

    kernel = lower(spec, schedule, target)
    accesses = different(local_accesses(kernel, LANES, BANKS))
    if not accesses:
        raise ScheduleError(
            f"{kernel.name} has no bank conflicts to draw: in its main loop no work-item addresses local memory. "
            "Take a schedule whose work-items read shared tiles, such as --preset smem_8x8"
        )
    parts = [text(MARGIN, 46, _HOW_TO_READ, "soft", size=12)]
    top = 66
    for access in accesses:
        drawn, top = _access(access, top)
        parts += drawn
    title = f"{kernel.name}: bank conflicts of a group's first warp, in the main loop"
    return framed(title, parts, top, _LEFT + BANKS * _CELL + MARGIN)


def different(accesses: Sequence[LocalAccess]) -> list[LocalAccess]:
    """Without those that differ in their place alone: of a copy that is unrolled, or of a loop's last steps."""
    kept: dict[tuple[object, ...], LocalAccess] = {}
    for access in accesses:
        kept.setdefault((access.buffer, access.is_store, access.bytes, access.ways), access)
    return list(kept.values())


def _access(access: LocalAccess, top: int) -> tuple[list[str], int]:
    """One access with its grid; and where the picture goes on."""
    verb = "store to" if access.is_store else "load from"
    head = f"{verb.capitalize()} {access.buffer}, {access.bytes} bytes a lane"
    fine, colour = ("no conflicts", "c") if access.ways == 1 else (f"{access.ways:g}-way conflict", "bad")
    passes = f"{len(access.passes)} {'pass' if len(access.passes) == 1 else 'passes'} of {len(access.passes[0])} lanes"
    said = f"{fine}: {passes}, {count(access.clocks, 'clock')}"
    parts = [text(MARGIN, top + 14, head, weight=600), text(_LEFT + 200, top + 14, said, colour)]
    top += LINE + 2
    lanes = _lanes_of_words(access)
    lines = _lines(access, lanes)
    parts += [
        text(_LEFT + (bank + 0.5) * _CELL, top + 10, str(bank), "soft", size=10, at="middle")
        for bank in range(0, access.banks, 4)
    ]
    parts.append(text(MARGIN, top + 10, "byte / bank", "soft", size=10))
    top += 16
    for line in sorted(lines[:_MOST_LINES]):
        parts.append(text(_LEFT - 8, top + 16, str(line * access.banks * BANK_BYTES), "soft", size=11, at="end"))
        parts += _line(access, line, lanes, top)
        top += _CELL
    if len(lines) > _MOST_LINES:
        parts.append(text(_LEFT, top + 14, f"and {count(len(lines) - _MOST_LINES, 'more line')}", "soft", size=11))
        top += LINE
    return parts, top + 20


def _lines(access: LocalAccess, words: Iterable[int]) -> list[int]:
    """The lines with these words, from the busiest bank on, so that words in conflict are drawn."""
    loads = access.loads_of_banks(access.passes[0])
    busiest = max(loads, key=lambda bank: loads[bank])
    nearest: dict[int, int] = {}
    for word in words:
        line, bank = divmod(word, access.banks)
        nearest[line] = min(nearest.get(line, access.banks), (bank - busiest) % access.banks)
    return sorted(nearest, key=lambda line: (nearest[line], line))


def _line(access: LocalAccess, line: int, lanes: dict[int, list[tuple[int, int]]], top: int) -> Iterator[str]:
    """A line of local memory, one cell a bank."""
    for bank in range(access.banks):
        left = _LEFT + bank * _CELL
        users = lanes.get(line * access.banks + bank, [])
        yield rect(left, top, _CELL, _CELL, "cell")
        if users:
            part = users[0][0]
            several = any(access.loads_of_banks(access.passes[part])[bank] > 1 for part, _ in users)
            place = (left + 1, top + 1, _CELL - 2, _CELL - 2)
            yield rect(*place, "bad full" if several else "", "" if several else hue(part + 1))
            label = str(users[0][1]) if len(users) == 1 else f"×{len(users)}"
            yield text(left + _CELL / 2, top + 16, label, size=10, at="middle")


def _lanes_of_words(access: LocalAccess) -> dict[int, list[tuple[int, int]]]:
    """Word -> the passes and the lanes that access it."""
    found: dict[int, list[tuple[int, int]]] = {}
    for number, part in enumerate(access.passes):
        for lane, words in enumerate(part):
            for word in words:
                found.setdefault(word, []).append((number, number * len(access.passes[0]) + lane))
    return found
