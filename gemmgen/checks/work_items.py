"""What a product and a target have against schedules by which work-items, or warps, multiply."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.capacity import depth_of_tiles, halved
from gemmgen.checks.operand import WIDTHS, async_problems, divide, divisors, nearest, operand_problems
from gemmgen.checks.prologues import prologue_problems
from gemmgen.checks.roles import WARP
from gemmgen.checks.schedulers import scheduler_problems
from gemmgen.checks.types import alignment_problems, type_problems
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.warp_mma import WarpMma
from gemmgen.spec import GemmSpec

#: Sizes of sub-groups that devices of a target without sizes of its own may have.
_SUB_GROUPS = (8, 16, 32)
#: Lanes of a row that `lane_swizzle` needs: of two, both would lie in the same place of two rows.
LEAST_SWIZZLED = 4


def work_item_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What a product and a target have against a schedule whose work-items or warps multiply, each with a remedy."""
    problems = [*_shape(s, target), *_stores(spec, s), *_sub_group(s, target), *_warp(s), *_slices(spec, s)]
    problems += scheduler_problems(spec, s, target)
    problems += _images(spec, s)
    for name, operand, order in (("a", s.a, spec.a_order), ("b", s.b, spec.b_order)):
        is_in_pairs = spec.read(name, operand.prepacked).pairs
        problems += operand_problems(name, operand, s.read_order(name, order), s, target, is_in_pairs)
    problems += alignment_problems(s, target)
    problems += async_problems(s, target)
    problems += _depths(spec, s)
    problems += type_problems(spec, s, target)
    problems += prologue_problems(spec, s)
    yield from problems


def _shape(s: Schedule, target: Target) -> Iterator[str]:
    for axis, name in ((0, "rows"), (1, "columns")):
        if s.tile[axis] % s.thread_vector[axis]:
            yield (
                f"thread_vector of {s.thread_vector[axis]} {name} does not divide the tile's {s.tile[axis]}: "
                f"use {divisors(s.tile[axis])}"
            )
    work_items = s.all_work_items[0] * s.all_work_items[1]
    if work_items > target.max_group:
        slices = f" in {s.sliced_k} slices" if s.sliced_k > 1 else ""
        slices += f" of {s.lanes_along_k} lanes along K" if s.lanes_along_k > 1 else ""
        each = s.sliced_k * s.lanes_along_k
        smaller = halved(s.group, lambda group: group[0] * group[1] * each <= target.max_group)
        yield (
            f"group {s.group[0]}x{s.group[1]}{slices} has {work_items} work-items > {target.max_group} on this target: "
            f"use group {smaller}, say"
        )


def _stores(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Vectors of C."""
    if s.c_width not in WIDTHS:
        yield f"c_width = {s.c_width}: use one of {', '.join(map(str, WIDTHS))}"
    elif s.c_width > 1 and spec.c_order == "col" and (s.asynchronous or s.by_warps or s.split_k > 1 or s.sliced_k > 1):
        yield f"c_width = {s.c_width} stores neighbouring columns, but C is column-major: use c_width 1"
    elif spec.c_order == "col" and s.thread_vector[0] % s.c_width:
        yield divide("c_width", s.c_width, "thread_vector's rows", s.thread_vector[0], WIDTHS)
    elif spec.c_order == "row" and s.thread_vector[1] % s.c_width and not isinstance(s.mainloop, WarpMma):
        yield divide("c_width", s.c_width, "thread_vector's columns", s.thread_vector[1], WIDTHS)


def _sub_group(s: Schedule, target: Target) -> Iterator[str]:
    needs = _by_sub_groups(s)
    if s.sub_group is None:
        if needs:
            yield f"{' and '.join(needs)} need sub-groups: give sub_group (8 or 16, say)"
        return
    if "sub_groups" not in target.features:
        lacking = f"sub_group = {s.sub_group}, but target {target.name!r} has no sub-groups"
        yield f"{lacking}: use --method slm or naive (no preset)"
    known = target.sub_group_sizes or _SUB_GROUPS
    (rows, row), lanes = s.group, s.sub_group
    if target.sub_group_sizes and lanes not in known:
        also = f", and a group as wide, such as {rows}x{known[0]}" if row == lanes else ""
        sizes = ", ".join(map(str, known))
        yield f"sub_group = {lanes} is not a size of target {target.name!r}: use one of {sizes}{also}"
        lanes = row if row in known else known[0]
    if row not in (lanes, s.sub_group):
        other = f", or sub_group {row}" if row in known else ""
        yield f"a group's row of {row} work-items is not one sub-group of {lanes}: use group {rows}x{lanes}{other}"


def _by_sub_groups(s: Schedule) -> list[str]:
    """The operands that only a sub-group can read."""
    return [name for name, o in (("a", s.a), ("b", s.b)) if o.shuffle or o.block_read]


def _warp(s: Schedule) -> Iterator[str]:
    """How the lanes of a warp lie over the group."""
    if s.lane_arrangement is None:
        if s.lane_swizzle:
            yield (
                "lane_swizzle moves lanes of a warp between its rows, but lane_arrangement is none: give "
                "lane_arrangement 4x8, say, or leave lane_swizzle out"
            )
        return
    (rows, cols), (high, wide) = s.lane_arrangement, s.group
    if rows * cols != WARP and s.atom != "mfma":
        yield f"lane_arrangement {rows}x{cols} has {rows * cols} lanes, not {WARP}: use 4x8, 8x4, 2x16 or 1x32, say"
    elif high % rows or wide % cols:
        whole = f"{-(-high // rows) * rows}x{-(-wide // cols) * cols}"
        yield (
            f"lane_arrangement {rows}x{cols} does not divide the group's {high}x{wide}: use group {whole}, say, or "
            "lane_arrangement none"
        )
    if s.lane_swizzle and rows % 2:
        yield (
            f"lane_swizzle swaps lanes of neighbouring rows, but lane_arrangement {rows}x{cols} has an odd number: "
            "use an even one"
        )
    elif s.lane_swizzle and cols < LEAST_SWIZZLED:
        yield (
            f"lane_swizzle moves lanes by their number in pairs, of which a row of lane_arrangement {rows}x{cols} has "
            "one: use 8x4 or 4x8, or leave lane_swizzle out"
        )
    if s.sub_group is not None:
        without = "lane_arrangement" if _by_sub_groups(s) else "sub_group"
        yield f"lane_arrangement places lanes that share nothing, but sub_group has lanes share A: use {without} none"


def _slices(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Steps of K dealt out within a group."""
    if s.sliced_k * s.lanes_along_k < 2:
        return
    if s.block_k % s.sliced_k:
        yield divide("sliced_k", s.sliced_k, "block_k", s.block_k, tuple(range(1, s.block_k + 1)))
    if s.sub_group is not None:
        either = "" if _by_sub_groups(s) else ", or sub_group none"
        yield f"sliced_k and sub_group both deal out work-items of a group: use sliced_k 1{either}"
    if s.barrier:
        yield "sliced_k deals out steps of K that barrier takes as one: use sliced_k 1, or barrier false"
    (rows, cols), work_items = s.block_tile, s.all_work_items[0] * s.all_work_items[1]
    if s.lane_arrangement is not None and s.group[0] * s.group[1] % WARP:
        yield (
            f"a slice's {s.group[0]}x{s.group[1]} work-items are no whole warps: use lane_arrangement none, or a "
            "larger group"
        )
    across = max(1, cols // s.c_width)
    down = work_items // across
    if cols % s.c_width == 0 and (work_items % across or down == 0 or rows % min(rows, down)):
        yield (
            f"the sum of {rows}x{cols} in runs of {s.c_width} can't be dealt out evenly to {work_items} work-items: "
            f"use a group or tile of powers of two"
        )
    if spec.c_order == "col":
        field, count = ("sliced_k", s.sliced_k) if s.lanes_along_k == 1 else ("lanes_along_k", s.lanes_along_k)
        yield f"{field} = {count} add up rows of C, which is column-major: use {field} 1"


def _images(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What an image can't hold, and where reads of it can't begin."""
    if spec.batched and any(o.memory == "image" for o in (s.a, s.b)):
        yield "an image holds one matrix, not a batch: use a preset that reads buffers, such as L3_SIMD_32x2_1x8"
    if s.split_k > 1 and any(o.memory == "image" for o in (s.a, s.b)):
        yield f"split_k = {s.split_k} begins in the middle of K, which image block reads can't: use split_k 1"


def _depths(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Loads along K of different widths, and schedules that keep single steps of K in registers."""
    orders = s.read_order("a", spec.a_order), s.read_order("b", spec.b_order)
    a = s.a.width if s.a.memory == "global" and not s.a.shuffle and orders[0] == "row" else 1
    along_k = s.b.memory == "image" or (s.b.memory == "global" and orders[1] == "col" and not s.b.block_read)
    b = s.b.width if along_k else 1
    deep = max(a, b)
    if s.block_k % deep == 0 and s.block_k // s.sliced_k % deep:  # else the operand that reads so deep is refused
        part = s.block_k // s.sliced_k
        deeper = nearest(s.block_k, deep * s.sliced_k)
        yield (
            divide("the depth of one load", deep, "a slice's part of block_k", part, WIDTHS) + f", or block_k {deeper}"
        )
    if s.b_sub_step and not (s.by_blocks and s.b.memory == "global"):
        yield (
            f"b_sub_step = {s.b_sub_step} deals out B's block reads from a buffer, but there are none: use 0, or "
            "method simd"
        )
    elif s.b_sub_step and s.block_k % s.b_sub_step:
        yield divide("b_sub_step", s.b_sub_step, "block_k", s.block_k)
    if s.register_stages > 1 and deep > 1:
        yield f"register_stages = {s.register_stages} moves single steps of K, but a load reads {deep}: use width 1"
    if s.across_tiles and s.register_stages != 2:
        yield f"across_tiles goes on with operands read a step ahead, but register_stages = {s.register_stages}: use 2"
    if s.across_tiles and not s.a.memory == s.b.memory == "local":
        yield (
            "across_tiles reads both operands of the next tile from local memory: set a.memory and b.memory to 'local'"
        )
    if s.across_tiles and s.stages < 2:
        yield f"across_tiles reads the next tile while this one is in use, but stages = {s.stages}: use 2 or more"
    if s.across_tiles and s.block_k // s.sliced_k // (depth := depth_of_tiles(spec, s)) % 2:
        slices = f" in {s.sliced_k} slices" if s.sliced_k > 1 else ""
        yield (
            f"across_tiles alternates two slots of registers, but block_k = {s.block_k}{slices} has an odd number of "
            f"inner steps of {depth}: use a multiple of {2 * s.sliced_k * depth}"
        )
    if s.serpentine and s.a.shuffle:
        yield (
            "serpentine orders multiply-adds with both operands in registers, but a.shuffle is set: "
            "use serpentine false, or a.shuffle false"
        )
    if s.serpentine and 1 in s.tile:
        rows, cols = s.tile
        yield (
            f"serpentine turns at the end of each row, but tile {rows}x{cols} has a single row or column: leave it out"
        )
    if s.register_stages > 2:
        yield f"register_stages = {s.register_stages} > 2: one step ahead is all that registers serve, use 2"
