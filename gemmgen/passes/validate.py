"""Refuse what can't be built, with every problem at once: the value, the limit and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from gemmgen.errors import ScheduleError
from gemmgen.ir.target import Target
from gemmgen.names import name_problem
from gemmgen.passes.boxes import box_problems
from gemmgen.passes.capacity import capacity_problems, halved
from gemmgen.passes.matrices import matrix_problems, warp_problems
from gemmgen.passes.operand_checks import WIDTHS, divide, divisors, operand_problems
from gemmgen.passes.prologue import prologue_problems
from gemmgen.passes.stream import stream_problems
from gemmgen.passes.types import alignment_problems, type_problems
from gemmgen.passes.vectors import vector_problems, without_vectors
from gemmgen.passes.warpgroup_checks import STREAMED, warpgroup_problems
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

WARP = 32


def validate(spec: GemmSpec, schedule: Schedule, target: Target) -> None:
    """Raises: ScheduleError, with what is against the product as it is asked for."""
    problems = problems_as_asked(spec, schedule, target)
    if problems and not is_transposed(spec, schedule, target):
        raise ScheduleError(problems)


def is_transposed(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    """Whether a column-major C = A B is computed as the row-major C^T = B^T A^T: where the schedule takes that, and not
    the product as it is asked for. The rows of its tiles are then columns of C.
    """
    if spec.c_order == "row" or spec.alpha == 0 or not problems_as_asked(spec, schedule, target):
        return False
    return not problems_as_asked(spec.transposed(), schedule, target)


@lru_cache(maxsize=1024)
def problems_as_asked(spec: GemmSpec, schedule: Schedule, target: Target) -> tuple[str, ...]:
    """What is against a product as it is asked for, not as that of the transposes."""
    problems = [*_positive(schedule), *_joined(schedule), *_listed(spec, target)]
    if schedule.name is not None and (problem := name_problem(schedule.name)) is not None:
        problems.append(problem)
    if not problems and schedule.atom == "dpas":
        problems += matrix_problems(spec, schedule, target)
    elif not problems and schedule.by_warpgroups:
        problems += warpgroup_problems(spec, schedule, target)
    elif not problems and schedule.vector > 1:
        problems += vector_problems(spec, schedule, target)
    elif not problems:
        problems += without_vectors(schedule)
        problems += _without_warpgroups(schedule)
        problems += _shape(schedule, target)
        problems += _stores(spec, schedule)
        problems += _large(schedule)
        problems += _sub_group(schedule, target)
        problems += _warp(schedule)
        problems += _slices(spec, schedule)
        problems += _blocks(spec, schedule, target)
        problems += operand_problems("a", schedule.a, schedule.read_order("a", spec.a_order), schedule, target)
        problems += operand_problems("b", schedule.b, schedule.read_order("b", spec.b_order), schedule, target)
        problems += _pipeline(schedule)
        problems += alignment_problems(schedule, target)
        problems += _async(schedule, target)
        problems += stream_problems(spec, schedule) if schedule.stream else ()
        problems += box_problems(spec, schedule, target) if schedule.boxes else ()
        problems += _depths(spec, schedule)
        problems += type_problems(spec, schedule, target)
        problems += prologue_problems(spec, schedule)
        problems += warp_problems(spec, schedule, target) if schedule.by_warps else ()
    if not problems and schedule.atom != "dpas" and not schedule.by_warpgroups and schedule.vector == 1:
        problems += capacity_problems(spec, schedule, target)
    return tuple(problems)


@lru_cache(maxsize=1024)
def is_possible(spec: GemmSpec, schedule: Schedule, target: Target) -> bool:
    """The same for those who have others to choose from."""
    return not problems_as_asked(spec, schedule, target) or is_transposed(spec, schedule, target)


def _listed(spec: GemmSpec, target: Target) -> Iterator[str]:
    if spec.listed and "address_lists" not in target.features:
        remedy = "let them lie a stride apart, or launch a kernel for each, as gemmgen.gemm does"
        yield f"listed matrices, but target {target.name!r} takes no arrays of addresses: {remedy}"


def _joined(s: Schedule) -> Iterator[str]:
    if s.joined > 1 and not s.by_warpgroups:
        yield f"joined = {s.joined} adds up parts of K within clusters, which atom wgmma alone has: leave it out"


def _large(s: Schedule) -> Iterator[str]:
    if s.large_registers:
        yield f"large_registers is for atom dpas, not {s.atom}: leave it out"


def _without_warpgroups(s: Schedule) -> Iterator[str]:
    """What only warpgroups that multiply have, and what only roles have, in a schedule that lacks them."""
    of_warpgroups = (
        ("persistent", s.persistent),
        ("cluster", s.cluster != (1, 1)),
        ("c_stages", s.c_stages),
        ("c_turns", s.c_turns),
    )
    of_roles = (
        ("producers", s.producers),
        ("registers", s.registers != (0, 0)),
        ("late", s.late),
        *zip(STREAMED, (s.a.streamed, s.b.streamed), strict=True),
    )
    for key, given in of_warpgroups:
        if given:
            yield f"{key} means something to atom wgmma alone, whose warpgroups multiply: leave it out"
    for key, given in of_roles:
        if given and not s.boxes:
            yield f"{key} means something to atom wgmma and to boxes alone, whose work-items have roles: leave it out"


def _positive(s: Schedule) -> Iterator[str]:
    pairs = {"tile": s.tile, "group": s.group, "run": s.run, "sweep": s.sweep, "even": s.even}
    for name, (rows, cols) in pairs.items():
        if rows < 1 or cols < 1:
            yield f"{name} {rows}x{cols} has an extent below 1: give two positive numbers"
    numbers = {"k_step": s.k_step, "stages": s.stages, "register_stages": s.register_stages}
    numbers |= {"slices": s.slices, "split": s.split, "joined": s.joined, "c_width": s.c_width, "vector": s.vector}
    numbers |= {"a.width": s.a.width, "b.width": s.b.width, "sub_group": 1 if s.sub_group is None else s.sub_group}
    for name, value in numbers.items():
        if value < 1:
            yield f"{name} = {value} < 1: give a positive number"
    for name, value in (
        ("a.pad", s.a.pad),
        ("b.pad", s.b.pad),
        ("mbarrier", s.mbarrier),
        ("b_step", s.b_step),
        ("k_block", s.k_block),
        ("m_block", s.m_block),
        ("b_prefetch", s.b_prefetch),
        ("producers", s.producers),
        ("c_stages", s.c_stages),
    ):
        if value < 0:
            yield f"{name} = {value} < 0: give 0 or more"


def _shape(s: Schedule, target: Target) -> Iterator[str]:
    for axis, name in ((0, "rows"), (1, "columns")):
        if s.tile[axis] % s.run[axis]:
            yield (
                f"run of {s.run[axis]} {name} does not divide the tile's {s.tile[axis]}: "
                f"use one of {divisors(s.tile[axis])}"
            )
    work_items = s.all_work_items[0] * s.all_work_items[1]
    if work_items > target.max_group:
        slices = f" in {s.slices} slices" if s.slices > 1 else ""
        smaller = halved(s.group, lambda group: group[0] * group[1] * s.slices <= target.max_group)
        yield (
            f"group {s.group[0]}x{s.group[1]}{slices} has {work_items} work-items > {target.max_group} on this target: "
            f"use group {smaller}, say"
        )


def _stores(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Vectors of C."""
    if s.c_width not in WIDTHS:
        yield f"c_width = {s.c_width} is not one of {', '.join(map(str, WIDTHS))}"
    elif s.c_width > 1 and spec.c_order == "col" and (s.asynchronous or s.by_warps or s.split > 1 or s.slices > 1):
        yield f"c_width = {s.c_width} stores neighbouring columns, but C is column-major: use c_width 1"
    elif spec.c_order == "col" and s.run[0] % s.c_width:
        yield divide("c_width", s.c_width, "the run's rows", s.run[0], WIDTHS)
    elif spec.c_order == "row" and s.run[1] % s.c_width:
        yield divide("c_width", s.c_width, "the run's columns", s.run[1], WIDTHS)


def _warp(s: Schedule) -> Iterator[str]:
    """How the lanes of a warp lie over the group."""
    if s.warp is None:
        if s.stagger:
            yield "stagger moves lanes of a warp between its rows, but warp is none: give warp 4x8, say"
        return
    (rows, cols), (high, wide) = s.warp, s.group
    if rows < 1 or cols < 1 or rows * cols != WARP:
        yield f"warp {rows}x{cols} has {rows * cols} lanes, not {WARP}: use 4x8, 8x4, 2x16 or 1x32, say"
    elif high % rows or wide % cols:
        yield f"warp {rows}x{cols} does not divide the group's {high}x{wide}: use a group of multiples of it"
    if s.stagger and rows % 2:
        yield f"stagger swaps lanes of neighbouring rows, but warp {rows}x{cols} has an odd number: use an even one"
    if s.sub_group is not None:
        yield "warp arranges lanes that share nothing, but sub_group has lanes share A: use sub_group none"


def _blocks(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """Groups that are numbered in one line."""
    if s.raster < 0:
        yield f"raster = {s.raster} < 0: give a number of rows of groups, or 0 for none"
    if s.atomic:
        if s.split == 1:
            yield "atomic adds up the parts of a split K, but split = 1: give split 8, say, or drop it"
        if "atomic_add" not in target.features:
            yield f"atomic, but target {target.name!r} adds nothing in one step: drop it, and a second kernel adds up"
        if spec.epilogue:
            yield f"atomic shows no kernel whole sums, which {spec.functions[0].short} needs: drop atomic, keep split"
        if spec.c_order == "col":
            yield "atomic adds to rows of C, which is column-major: drop it"
    if spec.batched and any(o.memory == "image" for o in (s.a, s.b)):
        yield "an image holds one matrix, not a batch: use a preset that reads buffers, such as L3_SIMD_32x2_1x8"
    if s.split > 1 and any(o.memory == "image" for o in (s.a, s.b)):
        yield f"split = {s.split} begins in the middle of K, which image block reads can't: use split 1"


def _slices(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Steps of K dealt out within a group."""
    if s.slices < 2:
        return
    if s.k_step % s.slices:
        yield divide("slices", s.slices, "k_step", s.k_step, tuple(range(1, s.k_step + 1)))
    if s.sub_group is not None:
        yield "slices and sub_group both deal out work-items of a group: use slices 1, or sub_group none"
    if s.barrier:
        yield "slices deal out steps of K that barrier takes as one: use slices 1, or barrier false"
    (rows, cols), work_items = s.block_tile, s.all_work_items[0] * s.all_work_items[1]
    if s.warp is not None and s.group[0] * s.group[1] % WARP:
        yield f"a slice's {s.group[0]}x{s.group[1]} work-items are no whole warps: use warp none, or a larger group"
    if cols % s.c_width == 0 and (work_items % (cols // s.c_width) or rows % (work_items // (cols // s.c_width) or 1)):
        yield (
            f"the sum of {rows}x{cols} in runs of {s.c_width} can't be dealt out evenly to {work_items} work-items: "
            f"use a group or tile of powers of two"
        )
    if spec.c_order == "col":
        yield f"slices = {s.slices} add up rows of C, which is column-major: use slices 1"


def _sub_group(s: Schedule, target: Target) -> Iterator[str]:
    needs = [name for name, o in (("a", s.a), ("b", s.b)) if o.share or o.block]
    if s.sub_group is None:
        if needs:
            yield f"{' and '.join(needs)} need sub-groups: give sub_group (8 or 16, say)"
        return
    if "sub_groups" not in target.features:
        yield f"sub_group = {s.sub_group}, but target {target.name!r} has no sub-groups: use method slm or naive"
    elif target.sub_group_sizes and s.sub_group not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"sub_group = {s.sub_group} is not a size of target {target.name!r}: use one of {sizes}"
    if s.group[1] != s.sub_group:
        yield (
            f"a group's row of {s.group[1]} work-items is not one sub-group of {s.sub_group}: "
            f"use group {s.group[0]}x{s.sub_group}"
        )


def _pipeline(s: Schedule) -> Iterator[str]:
    if "local" in (s.a.memory, s.b.memory):
        return
    for name, given in (
        ("stages", s.stages > 1),
        ("mbarrier", s.mbarrier > 0),
        ("prefetch", s.prefetch),
        ("register_stages", s.register_stages > 1),
    ):
        if given:
            yield f"{name} works on tiles in local memory, but neither operand passes there: set a.memory = 'local'"


def _async(s: Schedule, target: Target) -> Iterator[str]:
    """Asynchronous copies."""
    for name, o in (("a", s.a), ("b", s.b)):
        if not o.async_copy:
            continue
        if "async_copy" not in target.features:
            yield f"{name}.async_copy, but target {target.name!r} has none: drop it, or use sm_80 or later"
        if o.memory != "local":
            yield f"{name}.async_copy fills local memory, but {name}.memory is {o.memory!r}: use 'local'"
        if s.prefetch:
            yield (
                f"prefetch keeps the next tile in registers, which {name}.async_copy passes by: "
                f"use prefetch false, or {name}.async_copy false"
            )
    if s.mbarrier:
        yield from _mbarrier(s, target)
    if s.a.async_copy != s.b.async_copy and "local" == s.a.memory == s.b.memory:
        yield "a and b hand over together: set async_copy for both or for none"


def _mbarrier(s: Schedule, target: Target) -> Iterator[str]:
    """Tiles handed over in batches."""
    if "mbarrier" not in target.features:
        yield f"mbarrier = {s.mbarrier}, but target {target.name!r} has none: use 0, or sm_90 or later"
    if not s.a.async_copy and not s.b.async_copy:
        yield "mbarrier waits for asynchronous copies, but there are none: set a.async_copy and b.async_copy"
    if s.stages % s.mbarrier or s.stages < 3 * s.mbarrier:
        yield (
            f"mbarrier = {s.mbarrier} tiles at a time need a ring of three batches or more, but stages = {s.stages}: "
            f"use stages {4 * s.mbarrier}"
        )


def _depths(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Loads along K of different widths, and schedules that keep single steps of K in registers."""
    orders = s.read_order("a", spec.a_order), s.read_order("b", spec.b_order)
    a = s.a.width if s.a.memory == "global" and not s.a.share and orders[0] == "row" else 1
    along_k = s.b.memory == "image" or (s.b.memory == "global" and orders[1] == "col" and not s.b.block)
    b = s.b.width if along_k else 1
    deep = max(a, b)
    if s.k_step // s.slices % deep:
        whole = "k_step" if s.slices == 1 else "a slice's part of k_step"
        yield divide("the depth of one load", deep, whole, s.k_step // s.slices, WIDTHS)
    if s.b_step and not (s.by_blocks and s.b.memory == "global"):
        yield f"b_step = {s.b_step} deals out B's block reads from a buffer, but there are none: use 0, or method simd"
    elif s.b_step and s.k_step % s.b_step:
        yield divide("b_step", s.b_step, "k_step", s.k_step)
    if s.register_stages > 1 and deep > 1:
        yield f"register_stages = {s.register_stages} moves single steps of K, but a load brings {deep}: use width 1"
    if s.across and s.register_stages != 2:
        yield f"across goes on with operands read a step ahead, but register_stages = {s.register_stages}: use 2"
    if s.across and not s.a.memory == s.b.memory == "local":
        yield "across reads both operands of the next tile from local memory: set a.memory and b.memory to 'local'"
    if s.across and s.stages < 2:
        yield f"across reads the next tile while this one is in use, but stages = {s.stages}: use 2 or more"
    if s.across and s.k_step // s.slices % 2:
        yield f"across alternates two slots of registers, but k_step = {s.k_step} is odd: use an even one"
    if s.snake and s.a.share:
        yield (
            "snake orders multiply-adds with both operands in registers, but a.share is set: "
            "use snake false, or a.share false"
        )
    if s.snake and 1 in s.tile:
        rows, cols = s.tile
        yield f"snake turns at the end of each row, but tile {rows}x{cols} has a single row or column: leave it out"
    if s.register_stages > 2:
        yield f"register_stages = {s.register_stages} > 2: one step ahead is all that registers serve, use 2"
    if s.barrier and "local" in (s.a.memory, s.b.memory):
        yield "barrier keeps groups in step that have no other barrier; local memory has its own: drop it"
