"""A schedule as a picture (SVG): a block of C and who owns it, the tiles of A and B, and their way to registers.

Who owns an element is read off the kernel that is built, as `explain` counts on it. Colours follow the reader's
light or dark mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from gemmgen.banks import inlined, value_of
from gemmgen.costs import Hop, buffers, costs_of
from gemmgen.drawing.svg import LINE, MARGIN, WIDTH, Drawing, count, framed, hue, path, rect, text
from gemmgen.errors import ScheduleError, SpecError
from gemmgen.ir.buffer import Space
from gemmgen.ir.dtypes import BF16, F8_E4M3, F16, F32, F64, I8
from gemmgen.ir.kernel import Kernel, local_bytes
from gemmgen.ir.stmt import EpilogueStore, Let
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk
from gemmgen.passes.swap import swap
from gemmgen.records import dataclass
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: Lanes of a warp, where a kernel is built for warps.
_WARP = 32
#: The longer side of the block of C, and the least of any side, in the picture's units.
_SIDE, _LEAST = 260, 16
#: Tiles of A and B along K.
_THICK = 34
#: Stages that are drawn; a number stands for more.
_MOST_STAGES = 4
#: Where the words stand.
_NOTES = 500

Region = tuple[int, int, int, int]


#: Where no product is given: types in which a schedule may be drawn, the most usual first, and what leading dimensions
#: are multiples of where a schedule needs that.
_TYPES, _ALIGNED = (F32, BF16, F16, I8, F8_E4M3, F64), 16


def draw(spec: GemmSpec | None, schedule: Schedule, target: Target | None = None) -> Drawing:
    """The picture of a schedule: the block of C and who owns it, the tiles of A and B, and their way to registers.

    Args:
        spec: the product; None takes the first type that the schedule can multiply, float32 before others.
        target: a device or a family of devices; None takes the first backend that can express the schedule.

    Raises: UserError where the target can't run the schedule, or where there is no product.
    """
    from gemmgen.driver import build_program  # only when asked for: all passes come with it

    if spec is None or target is None:
        spec, target = _usual(spec, schedule, target)

    if spec.alpha == 0:
        raise SpecError("alpha = 0 leaves no product to draw: fold another factor, or leave alpha out")
    kernel = swap(build_program(spec, schedule, target).main)
    owners = owners_of(kernel, schedule)
    tiles, bottom = _tiles(schedule, owners)
    notes = [
        text(_NOTES, 84 + number * LINE, line, kind)
        for number, (line, kind) in enumerate(_notes(kernel, schedule, target, owners))
    ]
    parts, bottom = [*tiles, *notes], max(bottom, 84 + len(notes) * LINE)
    hops = costs_of(kernel, spec).hops
    for operand in "ab":
        parts += _way(operand, [hop for hop in hops if hop.operand == operand], bottom)
        bottom += 54
    head = f"{kernel.name}: {spec.formula()} ({spec.label()}) on {target.name}"
    return framed(head, parts, bottom)


def _usual(spec: GemmSpec | None, schedule: Schedule, target: Target | None) -> tuple[GemmSpec, Target]:
    """A product and a target that suit a schedule. Raises: UserError with what the first of them refuses."""
    from gemmgen.backends import BACKENDS
    from gemmgen.driver import default_target, refusals, refusals_of

    plain = [GemmSpec(dtype=dtype) for dtype in _TYPES]
    aligned = [replace(each, ld_multiple=_ALIGNED) for each in plain]
    specs = [*plain, *aligned, *(replace(each, b_order="col") for each in aligned)] if spec is None else [spec]
    for each in specs:
        for name in BACKENDS:
            if not (refusals(each, schedule, name) if target is None else refusals_of(each, schedule, name, target)):
                return each, target or default_target(each, schedule, name)
    raise ScheduleError(refusals(specs[0], schedule))


# --- who owns what --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of the elements of a block of C.

    Attributes:
        rows, cols: of the block.
        own: what the first work-item owns, as rectangles (row, column, rows, columns).
        warps: what each warp or sub-group owns; one that has no such name owns all.
        lanes: work-items of a warp; None where nothing says.
    """

    rows: int
    cols: int
    own: tuple[Region, ...]
    warps: tuple[tuple[Region, ...], ...]
    lanes: int | None


def owners_of(kernel: Kernel, schedule: Schedule) -> Owners:
    """Who owns which part of the block of C, by the fragment that the kernel stores."""
    fragment = next(stmt for stmt in walk(kernel.body) if isinstance(stmt, EpilogueStore)).acc.fragment
    axes = (fragment.cols, fragment.rows) if schedule.operands_swapped else (fragment.rows, fragment.cols)
    lets = {stmt.var.name: stmt.value for stmt in walk(kernel.body) if isinstance(stmt, Let)}
    in_warps = schedule.by_warps or schedule.by_warpgroups or schedule.lane_arrangement is not None
    along_k = schedule.lanes_along_k
    lanes = schedule.sub_group or (_WARP if in_warps else along_k if along_k > 1 else None)
    items, width = schedule.group[0] * schedule.group[1] * along_k, kernel.group[1]
    warps: dict[tuple[int, int], int] = {}
    place_of = [inlined(axis.lane, lets) for axis in axes]
    for item in range(items):
        ids = {"local_id 0": item % width, "local_id 1": item // width, "lane_id": item % (lanes or items)}
        row, col = (value_of(place, ids) for place in place_of)
        assert row is not None
        assert col is not None
        warps.setdefault((row, col), item // (lanes or items))
    rows, cols = ([axis.owner(element)[0] for element in range(axis.extent)] for axis in axes)
    first = next(place for place, warp in warps.items() if warp == 0)
    places: dict[int, set[tuple[int, int]]] = {}
    for place, warp in warps.items():
        places.setdefault(warp, set()).add(place)
    of_warps = [tuple(_regions(rows, cols, members)) for members in places.values()]
    own = tuple(_regions(rows, cols, {first}))
    return Owners(len(rows), len(cols), own, tuple(of_warps), lanes)


def _regions(rows: Sequence[int], cols: Sequence[int], places: Collection[tuple[int, int]]) -> Iterator[Region]:
    """The elements of these (row's lane, column's lane), as few rectangles: equal rows are one."""
    lines: list[tuple[int, ...]] = []
    known: dict[int, tuple[int, ...]] = {}
    for row in rows:
        if row not in known:
            known[row] = tuple(i for i, col in enumerate(cols) if (row, col) in places)
        lines.append(known[row])
    start = 0
    for line, same in groupby(lines):
        height = len(list(same))
        for begin, width in _runs(line):
            yield start, begin, height, width
        start += height


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Where runs of following numbers begin, and how long they are."""
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = list(run)
        yield members[0][1], len(members)


# --- the block ------------------------------------------------------------------------------------


def _tiles(schedule: Schedule, owners: Owners) -> tuple[list[str], int]:
    """The block of C with the tiles of A at its left and of B above it; and where the picture goes on."""
    scale = min(_SIDE / max(owners.rows, owners.cols), 12.0)
    height, width = max(owners.rows * scale, _LEAST), max(owners.cols * scale, _LEAST)
    down, across = height / owners.rows, width / owners.cols
    depth = schedule.vector if schedule.dot_product else schedule.block_k
    thick = min(max(depth * scale, _LEAST), _THICK)
    drawn = min(schedule.stages, _MOST_STAGES)
    left, top = MARGIN + drawn * (thick + 4) + 14, 70 + drawn * (thick + 4)
    parts = []
    for stage in range(drawn):
        fade = f' opacity="{1 - 0.2 * stage:.1f}"'
        back = (thick + 4) * (stage + 1) + 6
        parts.append(rect(left - back, top, thick, height, "a", fade))
        parts.append(rect(left, top - back, width, thick, "b", fade))
    times = f", {schedule.stages} stages" if schedule.stages > 1 else ""
    size = f"{owners.rows}x{depth}"
    parts.append(text(MARGIN, top + height + LINE, f"A: {size}{times}", "a"))
    parts.append(text(left, 56, f"B: {depth}x{owners.cols}{times}", "b"))
    parts.append(rect(left, top, width, height, "c", ' fill="none"'))
    for number, regions in enumerate(owners.warps if len(owners.warps) > 1 else ()):
        for row, col, rows, cols in regions:
            place = (left + col * across, top + row * down, cols * across, rows * down)
            parts.append(rect(*place, "", f'{hue(number)} stroke-width=".5"'))
    for row, col, rows, cols in owners.own:
        parts.append(rect(left + col * across, top + row * down, cols * across, rows * down, "own"))
    return parts, round(top + height + 2 * LINE + 4)


def _notes(kernel: Kernel, schedule: Schedule, target: Target, owners: Owners) -> Iterator[tuple[str, str]]:
    """What the picture shows, in words; each line with its colour."""
    items = schedule.group[0] * schedule.group[1]
    yield f"Block of C: {owners.rows}x{owners.cols}", "c"
    lanes = owners.lanes
    if lanes is None:
        yield count(items, "work-item"), ""
    else:
        warps = -(-items // lanes)
        yield f"{count(items, 'work-item')}, {count(warps, 'warp or sub-group')} of {lanes}", ""
        if warps > 1:
            yield "Each colour: what one of them owns", ""
    if kernel.group[0] * kernel.group[1] > items:
        yield f"{kernel.group[0] * kernel.group[1] - items} more work-items only load (producers)", ""
    rows, cols = schedule.tile[::-1] if schedule.operands_swapped else schedule.tile
    sums = rows * cols
    yield f"Solid: the {rows}x{cols} of one work-item, {count(sums, 'sum')}", ""
    if shared := buffers(kernel, Space.LOCAL):
        used = local_bytes(kernel)
        yield f"Shared (local) memory: {used:,} of {target.local_bytes:,} bytes ({used / target.local_bytes:.0%})", ""
        for buffer in shared:
            yield f"    {buffer.name}: {' x '.join(map(str, buffer.extents))} {buffer.dtype.name}", "soft"
    yield f"Mainloop {type(schedule.mainloop).__name__}", "soft"
    yield f"Scheduler {type(schedule.scheduler).__name__}, epilogue {type(schedule.epilogue).__name__}", "soft"


# --- the operands' way ----------------------------------------------------------------------------


def _way(operand: str, hops: Sequence[Hop], top: int) -> Iterator[str]:
    """The memories through which an operand goes, with the loads between them."""
    if not hops:
        return
    names = [(hops[0].src.space.value, hops[0].src.name), *((hop.dst.space.value, hop.dst.name) for hop in hops)]
    if hops[-1].dst.space is Space.LOCAL:
        names.append(("matrix instruction", "reads it there"))
    step = (WIDTH - 2 * MARGIN) / len(names)
    wide = min(150.0, step - 110)
    for number, (space, name) in enumerate(names):
        left = MARGIN + number * step
        yield rect(left, top, wide, 38, operand, ' rx="5"')
        yield text(left + 8, top + 16, {"private": "registers", "local": "shared (local)"}.get(space, space), "soft")
        yield text(left + 8, top + 32, name)
        if number + 1 < len(names):
            end = left + step - 4
            yield path(f"M{left + wide + 4:g} {top + 19}H{end - 6:g}", "way")
            yield path(f"M{end:g} {top + 19}l-8 -4v8z", "tip")
        if number < len(hops):
            hop = hops[number]
            yield text(left + wide + 8, top + 13, count(hop.elements, "element"), "soft", size=11)
            said = count(hop.loads, "load") if hop.loads else hop.how.partition(",")[0]
            yield text(left + wide + 8, top + 34, said, "soft", size=11)
