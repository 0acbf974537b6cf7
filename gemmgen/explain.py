"""A schedule as a picture in text: tiles within tiles, the operands' way to the registers, and what it costs.

All numbers are counted on the kernel as `build` makes it, so that they can't drift from what is emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from gemmgen.backends.clike import Words
from gemmgen.checks.capacity import sub_group_registers
from gemmgen.costs import Costs, Hop, buffers, costs_of
from gemmgen.errors import SpecError
from gemmgen.ir.buffer import Space
from gemmgen.ir.copy_instructions import AxisLayout
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Kernel, live, local_bytes
from gemmgen.ir.stmt import (
    EpilogueStore,
)
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk
from gemmgen.passes.swap import swap
from gemmgen.passes.validate import is_transposed
from gemmgen.schedule import Schedule
from gemmgen.spec import MATRICES, GemmSpec
from gemmgen.summary import summary

_MOST_OWNERS = 12
#: Of no one language.
_WORDS = Words("work-item", "group", "global memory", "local memory", "sub-group")
#: Bytes of a register.
REGISTER = 4
#: The private copy of a block of B.
COPY = "b_block"


def explain(spec: GemmSpec, schedule: Schedule, target: Target) -> str:
    """The picture, some 40 lines. Raises: UserError where the target can't run the schedule."""
    from gemmgen.driver import build_program, lowered  # only when asked for: all passes come with it

    if spec.alpha == 0:
        raise SpecError("alpha = 0 leaves no product to explain: fold another factor, or leave alpha out")
    program = build_program(spec, schedule, target)
    kernel = swap(program.main)
    transposed = is_transposed(spec, schedule, target)
    notes = summary(spec, program, lowered(program, target), _WORDS)
    said = (f"{label if i == 0 else '':<11}{text}" for label, texts in notes for i, text in enumerate(texts))
    costs, (*_, c) = costs_of(kernel, spec), MATRICES[transposed]
    head = f"{kernel.name}: {spec.formula()}{spec.then()} ({spec.label()}) on {target.name}"
    head += ", computed as C^T = B^T * A^T" * transposed
    spec = spec.transposed() if transposed else spec
    parts = (
        [head, *said],
        _boxes(spec, schedule, c),
        _owners(kernel, spec, schedule),
        _ways(costs, schedule, transposed),
        _way_out(kernel),
        _registers(kernel, schedule, target, transposed),
        _private(kernel, target),
        _local(kernel, target),
        _work(costs, schedule),
        _intensity(costs, spec, schedule),
        _account(spec, schedule, target),
    )
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


# --- tiles ----------------------------------------------------------------------------------------


def _boxes(spec: GemmSpec, schedule: Schedule, c: str) -> list[str]:
    """Group, sub-group and work-item, each drawn in the one before; `c` is what they compute."""
    rows, cols = schedule.tile
    work_items = schedule.group[0] * schedule.group[1]
    block = _part(spec, schedule.block_tile, c)
    titles = [f"group: {block} by {_x(schedule.group)} = {_count(work_items, 'work-item')}"]
    if schedule.vector > 1:
        (tall, wide), (down, across) = schedule.tile, schedule.macro_kernel
        block = f"{tall * down}x{wide * across}"
        titles = [f"group: up to {block} of {c} by 1 work-item, {_x(schedule.macro_kernel)} tiles one after the other"]
    lanes = schedule.sub_group
    if lanes is not None:
        tall, wide = max(1, lanes // schedule.group[1]), min(lanes, schedule.group[1])
        block = _part(spec, (rows * tall, cols * wide), c)
        titles.append(f"{_one_of(-(-work_items // lanes), 'sub-group')}: {block} by {_count(lanes, 'lane')}")
    sums = schedule.vector if schedule.dot_product else 1
    held = _count(rows * cols * sums * spec.accumulator.size // REGISTER, "register")
    titles.append(f"{_one_of(work_items, 'work-item')}: {_part(spec, schedule.tile, c)} in {held}")
    inner = ["".join(" ▪" for _ in range(min(cols, 16))) + (" …" if cols > 16 else "")] * min(rows, 4)
    inner += [" ⋮"] if rows > 4 else []
    width = max(len(title) + 5 + 4 * i for i, title in enumerate(titles))
    lines = inner
    for depth, title in reversed(list(enumerate(titles))):
        lines = _box(title, lines, width - 4 * depth)
    return lines


def _part(spec: GemmSpec, shape: tuple[int, int], c: str) -> str:
    """Sums of a product, which are C's elements; of a gated one two make one."""
    if spec.gate is None:
        return f"{_x(shape)} of {c}"
    rows, cols = shape
    return f"{rows}x{cols} of A * B ({rows}x{spec.columns(cols)} of {c})"


def _box(title: str, lines: Sequence[str], width: int) -> list[str]:
    inside = width - 4
    top = f"┌ {title} {'─' * (width - 4 - len(title))}┐"
    return [top, *(f"│ {line:<{inside}} │" for line in lines), f"└{'─' * (width - 2)}┘"]


def _owners(kernel: Kernel, spec: GemmSpec, schedule: Schedule) -> list[str]:
    """Which row and which column of the group's tile belongs to which work-item."""
    fragment = next(stmt for stmt in walk(kernel.body) if isinstance(stmt, EpilogueStore)).acc.fragment
    block = _x(schedule.block_tile) + " of A * B" * (spec.gate is not None)
    axes = (fragment.rows, fragment.cols)
    rows, cols = axes[::-1] if schedule.operands_swapped else axes
    lines = [f"who owns which part of the group's {block} (n: one element, n(xC): C neighbours)"]
    return [*lines, f"  rows:    {_runs(rows)}", f"  columns: {_runs(cols)}"]


def _runs(spread: AxisLayout) -> str:
    """The owners along an axis, neighbours of one owner together."""
    owners = (spread.owner(element)[0] for element in range(spread.extent))
    runs = [(owner, len(list(same))) for owner, same in groupby(owners)]
    text = " ".join(f"{owner}" if count == 1 else f"{owner}(x{count})" for owner, count in runs[:_MOST_OWNERS])
    return text + (" …" if len(runs) > _MOST_OWNERS else "")


# --- the operands' way ----------------------------------------------------------------------------


def _ways(costs: Costs, schedule: Schedule, transposed: bool) -> list[str]:
    lines = ["the path to the registers, per work-item and step of K:"]
    for operand in "ab":
        lines += [f"  {operand.upper()}  {_hop(hop)}" for hop in costs.hops if hop.operand == operand]
        if (schedule.a if (operand == "a") != transposed else schedule.b).shuffle:
            lines.append(f"     each lane holds other elements; {costs.passed} are passed around the sub-group")
    return lines


def _way_out(kernel: Kernel) -> list[str]:
    """Where C leaves by TMA."""
    update = next(stmt for stmt in walk(kernel.body) if isinstance(stmt, EpilogueStore))
    via, c = update.via, update.dst.buffer
    if via is None or c.tma_tile is None:
        return []
    cols = c.tma_tile[0 if update.dst.transposed else 1]
    boxes = -(-update.dst.cols // cols) * (update.acc.fragment.rows.values // 2)
    way = f"registers {update.acc.buffer.name} ──> local {via.name} ──> global {c.name}"
    by = _count(as_int(via.shape[0]) or 1, "slot")
    return [
        "the way of C, per sub-group:",
        f"  {way}: {_count(boxes, 'store')} of a TMA tile of {_x(c.tma_tile)}, by {by}",
    ]


def _hop(hop: Hop) -> str:
    loads = f" in {_plural(hop.loads, 'load')}" if hop.loads else ""
    return (
        f"{hop.src.space.value} {hop.src.name} ──> {hop.dst.space.value} {hop.dst.name}: "
        f"{_plural(hop.elements, 'element')}{loads} ({hop.how})"
    )


# --- what it takes --------------------------------------------------------------------------------


def _registers(kernel: Kernel, schedule: Schedule, target: Target, transposed: bool) -> list[str]:
    shared = "b_frag" if transposed else "a_frag"
    in_passing = {shared} if schedule.by_blocks and not schedule.b_sub_step else set()
    held = live(kernel.body, {COPY, *in_passing})
    counts = [(-(-buffer.bytes // REGISTER), buffer.name) for buffer in held]
    total = sum(count for count, _ in counts)
    lines = [f"registers per work-item: {total} = " + " + ".join(f"{count} {name}" for count, name in counts)]
    lines += [f"  and {shared} in passing: a row is used up before the next has to be there"] if in_passing else []
    used, limit, whose = sum(buffer.bytes for buffer in held), target.register_bytes, "a work-item"
    if schedule.sub_group is not None:
        used, limit, whose = used * schedule.sub_group, sub_group_registers(schedule, target), "a sub-group"
    lines.append(f"  {used:,} of {limit:,} bytes of {whose} ({used / limit:.0%})")
    return lines


def _private(kernel: Kernel, target: Target) -> list[str]:
    """Arrays that no register holds."""
    copies = [b for b in buffers(kernel, Space.PRIVATE) if b.name == COPY]
    return [f"private memory: {b.name}, {b.bytes:,} of {target.private_bytes:,} bytes of a stack" for b in copies]


def _local(kernel: Kernel, target: Target) -> list[str]:
    shared = buffers(kernel, Space.LOCAL)
    if not shared:
        return ["local memory: none"]
    total = local_bytes(kernel)
    shapes = ", ".join(f"{b.name}[{']['.join(map(str, b.extents))}] {b.bytes:,}" for b in shared)
    reused = ", the last where the others were" if total < sum(buffer.bytes for buffer in shared) else ""
    return [
        f"local memory per group: {total:,} of {target.local_bytes:,} bytes ({total / target.local_bytes:.0%})",
        f"  {shapes}{reused}",
    ]


def _work(costs: Costs, schedule: Schedule) -> list[str]:
    loads = sum(hop.loads for hop in costs.hops)
    lines = [f"per step of K ({_depth(schedule)} deep) and work-item:"]
    if not loads:
        return [*lines, f"  no loads, {costs.fmas} fmas, by matrix instructions that read local memory"]
    return [*lines, f"  {_number(loads)} loads, {costs.fmas} fmas ({costs.fmas / loads:.1f} per load)"]


def _depth(schedule: Schedule) -> int:
    """Of a step of K."""
    return schedule.vector if schedule.dot_product else schedule.block_k


def _intensity(costs: Costs, spec: GemmSpec, schedule: Schedule) -> list[str]:
    """Flops per byte at each level, a group's loads against a group's arithmetic."""
    rows, cols = (extent * spec.element(x).size for x, extent in zip("ab", schedule.block_tile, strict=True))
    once = (rows + cols) * _depth(schedule) / (schedule.group[0] * schedule.group[1])
    lines = ["flops per byte"]
    levels = (
        ("memory", once, "each element once: if caches serve all repeats"),
        ("global", costs.read(Space.GLOBAL, Space.IMAGE), "as loaded, repeats included"),
        ("local", costs.read(Space.LOCAL), "as read into registers"),
        ("register", _into_registers(costs), "all loads into registers"),
    )
    for name, read, note in levels:
        if read:
            lines.append(f"  {name:<8} {spec.dtype.flops * costs.fmas / read:7.2f}  {note}")
    return lines


def _account(spec: GemmSpec, schedule: Schedule, target: Target) -> list[str]:
    """What the model that chooses schedules makes of this one, where there is a model for its kind."""
    if schedule.vector <= 1 and "async_copy" not in target.features:
        return []
    from gemmgen.cpu import panels  # NumPy comes with it, and with the other

    m, n, k = shape = (spec.m or panels.USUAL[0], spec.n or panels.USUAL[1], spec.k or panels.USUAL[2])
    if schedule.vector > 1:
        parts, model = panels.account(spec, schedule, shape, target), "the model of gemmgen/cpu"
        what = f"cycles of the busiest of {_count(target.cores, 'core')}"
    else:
        from gemmgen.choice import machine, prior

        parts, model = prior.account(spec, schedule, shape, machine.machine_of(target)), "the prior"
        what = f"microseconds on {_count(target.cores, 'multiprocessor')}"
    total = sum(parts.values())
    title = f"{what} for {m} x {n} x {k}, by {model}:"
    return [title, *(f"  {part / total:4.0%}  {name}" for name, part in parts.items() if part), f"  {total:.3g} in all"]


def _into_registers(costs: Costs) -> float:
    return sum(hop.bytes for hop in costs.hops if hop.dst.space is Space.PRIVATE)


# --- words ----------------------------------------------------------------------------------------


def _x(pair: tuple[int, int]) -> str:
    return f"{pair[0]}x{pair[1]}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _one_of(number: int, noun: str) -> str:
    return f"the only {noun}" if number == 1 else f"one of {number} {noun}s"


def _plural(value: float, noun: str) -> str:
    return f"{_number(value)} {noun}" + ("" if value == 1 else "s")


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
