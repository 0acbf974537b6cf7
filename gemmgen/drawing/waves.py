"""The blocks of C in the colours of their waves: which of them a GPU computes at the same time, and what they share.

Which block a group computes is read off the kernel that is built, so that a threadblock swizzle shows as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from gemmgen.banks import value_of
from gemmgen.drawing.svg import LINE, MARGIN, Drawing, count, framed, hue, rect, text
from gemmgen.errors import ScheduleError
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Body, For, Let
from gemmgen.ir.target import Target
from gemmgen.passes.swap import swap
from gemmgen.positions import COL0, ROW0, WAVE
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Rows and columns of C where they are not folded, and the most blocks along either then; the most blocks of all.
SIZE, MOST_ALONG, MOST = 4096, 48, 4096
#: The longer side of C in the picture, where its text begins, and the least side of a block with a number in it.
_SIDE, _NOTES, _NUMBERED = 420, 470, 24

Block = tuple[int, int]


def draw_waves(spec: GemmSpec, schedule: Schedule, target: Target, resident: int = 1) -> Drawing:
    """The order of the blocks of C, for the folded M and N, or for 4096.

    Args:
        resident: groups that a multiprocessor runs at once, as `gemmgen inspect` reports them.

    Raises: UserError where the target can't run the schedule, or where the picture would say nothing.
    """
    from gemmgen.driver import build_program  # only when asked for: all passes come with it

    tile = schedule.block_tile
    sizes = tuple(size or min(SIZE, MOST_ALONG * side) for size, side in zip((spec.m, spec.n), tile, strict=True))
    high, wide = (ceil(size / side) for size, side in zip(sizes, tile, strict=True))
    problems = []
    if target.cores == 1:
        problems.append(f"target {target.name} does not say how many cores it has: take a GPU of --backend cuda")
    if schedule.stream_k:
        problems.append("stream-K gives a group parts of several blocks: take a schedule without it, such as smem_8x8")
    if high * wide > MOST:
        problems.append(f"{high}x{wide} blocks of C are more than {MOST}: take smaller sizes, such as -M 1024 -N 1024")
    if problems:
        raise ScheduleError(problems)
    kernel = swap(build_program(spec, schedule, target).main)
    at_once = target.cores * resident
    order = list(blocks_in_order(kernel, {"m": sizes[0], "n": sizes[1], "k": SIZE}, tile, at_once))
    first: dict[Block, int] = {}
    for number, block in enumerate(order):
        first.setdefault(block, number)
    parts = [*_grid(first, high, wide, tile, at_once), *_legend(order, tile, spec, at_once, resident, target)]
    title = f"{kernel.name}: {high * wide} blocks of a {sizes[0]}x{sizes[1]} C on {target.name}, in the order of launch"
    return framed(title, parts, 56 + _SIDE + MARGIN)


def blocks_in_order(kernel: Kernel, sizes: Mapping[str, int], tile: Block, at_once: int) -> Iterator[Block]:
    """The block of C of each group, in the order in which groups begin. Each part of a split K has its own group.

    Args:
        tile: rows and columns of a block.
        at_once: groups that the device runs at once.
    """
    # Any factors, too: where C is read, no block begins earlier, to end where C does.
    names = {**dict.fromkeys((v.name for v in kernel.scalars), SIZE), **sizes}
    down, across = (value_of(extent, names) or 1 for extent in kernel.grid)
    if kernel.persistent:
        across = min(across, at_once)
    groups = [
        _named(kernel.body, {**names, "group_id 0": x, "group_id 1": y, "group_id 2": 0, "group_count 0": across})
        for y in range(down)
        for x in range(across)
    ]
    loop = next((stmt for stmt in kernel.body if isinstance(stmt, For) and stmt.var == WAVE), None)
    rounds = 1 if loop is None else max(value_of(loop.stop, names) or 1 for names in groups)
    for wave in range(rounds):
        for own in groups:
            if loop is not None and wave >= (value_of(loop.stop, own) or 1):
                continue
            place = own if loop is None else _named(loop.body, {**own, WAVE.name: wave})
            row, col = -(-place[ROW0.name] // tile[0]), -(-place[COL0.name] // tile[1])
            if place[ROW0.name] < sizes["m"] and place[COL0.name] < sizes["n"]:
                yield row, col


def _named(body: Body, names: dict[str, int]) -> dict[str, int]:
    """With the names of a body whose values depend on the group alone."""
    for stmt in body:
        if isinstance(stmt, Let) and (value := value_of(stmt.value, names)) is not None:
            names[stmt.var.name] = value
    return names


def _grid(first: Mapping[Block, int], high: int, wide: int, tile: Block, at_once: int) -> Iterator[str]:
    scale = _SIDE / max(high * tile[0], wide * tile[1])
    height, width = tile[0] * scale, tile[1] * scale
    for (row, col), number in first.items():
        left, top = MARGIN + col * width, 44 + row * height
        wave = number // at_once
        yield rect(left, top, width, height, "full" if wave == 0 else "", f'{hue(wave)} stroke-width=".5"')
        if min(width, height) >= _NUMBERED:
            yield text(left + width / 2, top + height / 2 + 4, str(number), size=10, at="middle")


def _legend(
    order: list[Block], tile: Block, spec: GemmSpec, at_once: int, resident: int, target: Target
) -> Iterator[str]:
    """The waves with their colours, and what the first of them reads."""
    waves = ceil(len(order) / at_once)
    last = len(order) - (waves - 1) * at_once
    rows, cols = (len({block[axis] for block in order[:at_once]}) for axis in (0, 1))
    read = (rows * tile[0] + cols * tile[1]) * spec.dtype.size / 1024
    each = count(resident, "group")
    lines = [
        (f"{target.cores} multiprocessors run {each} each: {at_once} at once", ""),
        (f"{count(len(order), 'group')}, {count(waves, 'wave')}; the last is {last / at_once:.0%} full", ""),
        (f"All waves together keep {len(order) / (waves * at_once):.0%} of the device busy", ""),
        ("", ""),
        ("Strong colour: the first wave. For each step along K it reads", ""),
        (f"{count(rows, 'block row')} of A, {count(cols, 'block column')} of B: {read:,.0f} KiB per unit of K", "soft"),
    ]
    top = 66
    for line, kind in lines:
        yield text(_NOTES, top, line, kind)
        top += LINE
    top += 8
    for wave in range(min(waves, 8)):
        size = last if wave == waves - 1 else at_once
        yield rect(_NOTES, top, 16, 14, "full" if wave == 0 else "", hue(wave))
        yield rect(_NOTES + 84, top, 180 * size / at_once, 14, "full" if wave == 0 else "", hue(wave))
        yield rect(_NOTES + 84, top, 180, 14, "cell")
        yield text(_NOTES + 24, top + 12, f"wave {wave + 1}", size=12)
        yield text(_NOTES + 274, top + 12, count(size, "group"), "soft", size=12)
        top += LINE
    if waves > 8:
        yield text(_NOTES, top + 12, f"and {waves - 8} more, in the same colours again", "soft", size=12)
