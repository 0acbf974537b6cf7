"""Whether A and B can be read as a schedule says, and copied to local memory while work-items multiply."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.target import Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.schedule.warp_mma import DirectMma
from gemmgen.spec import Order

WIDTHS = (1, 2, 4, 8, 16)
BLOCK_WIDTHS = (1, 2, 4, 8)


def operand_problems(
    name: str, o: Operand, order: Order, s: Schedule, target: Target, is_in_pairs: bool = False
) -> Iterator[str]:
    """What is wrong with how A or B is read: its memory, its loads, and who shares what they bring.

    Args:
        is_in_pairs: whether it is stored two elements a byte.
    """
    widths = BLOCK_WIDTHS if o.block_read else (*WIDTHS, 2 * WIDTHS[-1]) if is_in_pairs else WIDTHS
    if o.width not in widths:
        yield f"{name}.width = {o.width}: use one of {', '.join(map(str, widths))}"
        return
    if o.memory == "image":
        yield from _image(name, o, order, s, target)
    elif o.block_read:
        yield from _block(name, o, order, s)
    elif o.memory == "local":
        yield from _local(name, o, order, s)
    else:
        yield from _direct(name, o, order, s)
    if o.shuffle:
        yield from _shared(name, order, s)
    if o.prepacked and o.memory == "image":
        remedy = _from_buffers(s, packed=name)
        yield f"{name}.prepacked makes a buffer of a matrix, but {name}.memory is 'image': {remedy}"


def _image(name: str, o: Operand, order: Order, s: Schedule, target: Target) -> Iterator[str]:
    if "image_block_read" not in target.features:
        remedy = _from_buffers(s, target) if "block_read" in target.features else "use --method slm (no preset)"
        yield f"{name}.memory = 'image', but target {target.name!r} has no image block reads: {remedy}"
    if not o.block_read:
        yield f"{name}.memory = 'image' is read by blocks only: set {name}.block_read = true"
    if name == "a" and not o.shuffle:
        yield "a.memory = 'image' gives each lane other elements of A: set a.shuffle = true"
    if name == "b" and order == "col":
        yield f"b is column-major, so a block read would give a column to one lane: {_from_buffers(s, packed=name)}"
        return
    rows = s.tile[0] if name == "a" and order == "row" else s.block_k
    if rows % o.width:
        yield f"{name}.width = {o.width} rows a read do not divide {rows}: use {divisors(rows, BLOCK_WIDTHS)}"
    if name == "b" and s.thread_vector[1] != 1:
        yield _apart(s)


def _block(name: str, o: Operand, order: Order, s: Schedule) -> Iterator[str]:
    if name == "b":
        if order == "col":
            yield (
                "b is column-major, so a block read would give a column to one lane: set b.prepacked = true, so that "
                "a kernel before transposes it"
            )
        elif s.thread_vector[1] != 1:
            yield _apart(s)
        elif s.tile[1] % o.width:
            yield divide("b.width", o.width, "the tile's columns", s.tile[1], BLOCK_WIDTHS)
        return
    if not o.shuffle:
        yield "a.block_read = true gives each lane other elements of A: set a.shuffle = true"
    extent = s.block_k if order == "row" else s.tile[0]
    lanes = s.sub_group or 1
    if extent % (lanes * o.width):
        what, remedy = "the tile's rows", f"a tile of {nearest(extent, lanes * o.width)} rows"
        if order == "row":
            what, remedy = "block_k", f"block_k {nearest(extent, lanes * o.width)}"
        narrower = "a.width = 1, or " if o.width > 1 and extent % lanes == 0 else ""
        if o.width > 1 or not o.shuffle:  # else that lanes share A says so
            yield (f"a.width = {o.width} segments of {lanes} do not divide {what} = {extent}: use {narrower}{remedy}")


def _apart(s: Schedule) -> str:
    """The message where neighbouring columns are meant to be of one lane."""
    given = f"columns {s.sub_group} apart" if s.sub_group else "columns a sub-group apart"
    rows, cols = s.thread_vector
    return f"thread_vector has {cols} columns, but block reads give each lane {given}: use thread_vector {rows}x1"


def _local(name: str, o: Operand, order: Order, s: Schedule) -> Iterator[str]:
    rows, cols = (s.block_tile[0], s.block_k) if name == "a" else (s.block_k, s.block_tile[1])
    fast = cols if order == "row" else rows
    slow = cols if s.staged(name, order).transposed else rows
    if o.pad and s.stages == 1 and slow == 1:
        yield f"{name}.pad = {o.pad} sets lines of the local tile apart, but it has one: use 0"
    if fast % o.width:
        along_k = (name == "a") == (order == "row")
        deeper = -(-s.block_k // o.width) * o.width
        narrower = max(width for width in WIDTHS if fast % width == 0)
        yield (
            f"{name}.width = {o.width} does not divide the tile's fast axis = {fast}: use {name}.width {narrower}"
            + (f", or block_k {deeper}" if along_k else "")
        )


def _direct(name: str, o: Operand, order: Order, s: Schedule) -> Iterator[str]:
    along_k = (name == "a") == (order == "row")
    if o.shuffle:
        if o.width != 1:
            yield f"{name}.width = {o.width}, but lanes that share load one element each: use width 1 or block reads"
        return
    if isinstance(s.mainloop, DirectMma):  # which loads along K alone, by depths of its own
        return
    if along_k:
        if s.block_k % o.width:
            deeper = nearest(s.block_k, o.width * s.sliced_k)
            yield divide(f"{name}.width", o.width, "block_k", s.block_k, WIDTHS) + f", or block_k {deeper}"
        return
    axis = 0 if name == "a" else 1
    lanes = s.group[axis]
    run = s.thread_vector[axis] if lanes > 1 else s.tile[axis]
    if run % o.width:
        yield divide(f"{name}.width", o.width, f"the thread_vector of {('rows', 'columns')[axis]}", run, WIDTHS)


def _shared(name: str, order: Order, s: Schedule) -> Iterator[str]:
    lanes = s.sub_group or 1
    if s.thread_vector[0] != s.tile[0] and s.group[0] > 1:
        yield (
            f"thread_vector of {s.thread_vector[0]} rows, but a sub-group that shares A owns its {s.tile[0]} rows "
            "together: "
            f"use a thread_vector of {s.tile[0]}"
        )
    if order == "row" and s.block_k % lanes and not (s.a.memory == "global" and s.a.block_read and s.a.width > 1):
        remedy = f"use block_k {nearest(s.block_k, lanes)}"
        yield f"block_k = {s.block_k} is not a multiple of the sub-group's {lanes} lanes that share A: {remedy}"
    if order == "col" and s.tile[0] % lanes:
        yield (
            f"A is column-major, so lanes share its rows, but the tile's {s.tile[0]} rows are no multiple of {lanes}: "
            + (_from_buffers(s, packed=name) if s.a.memory == "image" else "set a.prepacked = true, or use such a tile")
        )


def _from_buffers(s: Schedule, target: Target | None = None, packed: str = "") -> str:
    """The remedy where images won't do; `packed` is the matrix that a kernel before lays out by rows."""
    (rows, cols), (high, wide) = s.tile, s.group
    if target is not None and target.sub_group_sizes and wide not in target.sub_group_sizes:
        wide = target.sub_group_sizes[0]
    before = f" --set {packed}.prepacked=true" if packed else ""
    return f"read buffers by blocks, by --method simd --tile {rows}x{cols} --group {high}x{wide}{before} (no preset)"


def divisors(number: int, among: tuple[int, ...] | None = None) -> str:
    """The divisors of a number, all or those among some, for messages: `one of 1, 2`, or `1`."""
    found = [str(d) for d in (among or range(1, number + 1)) if number % d == 0]
    return found[0] if len(found) == 1 else f"one of {', '.join(found)}"


def nearest(number: int, unit: int) -> int:
    """The multiple of a unit next to a number, for messages; not 0."""
    return max(1, round(number / unit)) * unit


def divide(what: str, value: int, whole: str, number: int, among: tuple[int, ...] | None = None) -> str:
    """The message where a value does not divide a whole."""
    return f"{what} = {value} does not divide {whole} = {number}: use {divisors(number, among)}"


def async_problems(s: Schedule, target: Target) -> Iterator[str]:
    """What a target has against asynchronous copies to local memory, and their mbarriers."""
    for name, o in (("a", s.a), ("b", s.b)):
        if not o.async_copy:
            continue
        if "async_copy" not in target.features:
            yield f"{name}.async_copy, but target {target.name!r} has none: drop it, or use sm_80 or later"
        if s.prefetch and not s.by_warps:
            yield (
                f"prefetch keeps the next tile in registers, which {name}.async_copy passes by: "
                f"use prefetch false, or {name}.async_copy false"
            )
    if s.mbarrier:
        yield from _mbarrier(s, target)
    if s.a.async_copy != s.b.async_copy and "local" == s.a.memory == s.b.memory:
        yield "a and b share one pipeline: set async_copy for both or for none"


def _mbarrier(s: Schedule, target: Target) -> Iterator[str]:
    """Tiles handed over in batches."""
    if "mbarrier" not in target.features:
        yield f"mbarrier = {s.mbarrier}, but target {target.name!r} has none: use sm_90 or later, or 0"
    if not s.a.async_copy and not s.b.async_copy:
        yield (
            "mbarrier waits for asynchronous copies, but there are none: set a.async_copy and b.async_copy, or use "
            "mbarrier 0"
        )
    if s.stages % s.mbarrier or s.stages < 3 * s.mbarrier:
        yield (
            f"mbarrier = {s.mbarrier} tiles at a time need a ring of three batches or more, but stages = {s.stages}: "
            f"use stages {4 * s.mbarrier}"
        )
