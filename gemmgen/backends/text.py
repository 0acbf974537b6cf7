"""The file around a kernel: its head comment and skeleton."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TypeVar

from gemmgen.backends.clike import CLike
from gemmgen.backends.files import environment
from gemmgen.backends.language import Words
from gemmgen.epilogue import OPERANDS
from gemmgen.ir.atoms import ALIGNED_VECTOR
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.expr import as_int
from gemmgen.ir.kernel import Program, local_bytes, memory_bytes
from gemmgen.ir.stmt import BoxCopy
from gemmgen.ir.swizzle import line_bytes
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk
from gemmgen.ir.warp_matrix import warp_atom
from gemmgen.ir.warpgroup_matrix import warpgroup_atom
from gemmgen.ir.workspace import Workspace
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import MATRICES, GemmSpec, Order

#: All kernels of a file are of one language.
Printer = TypeVar("Printer", bound=CLike)
Notes = list[tuple[str, list[str]]]
#: Characters of a line of the head comment, without its label.
WIDTH = 86


def render(
    file: Printer, kernels: Sequence[Printer], computes: str, notes: Notes, workspaces: Sequence[Workspace]
) -> str:
    """The whole file.

    Args:
        file: a printer of all kernels together, for what they share.
        kernels: a printer of each.
        computes: what they do, in a line.
        notes: (label, lines) of the head comment, before what the backend and the kernels themselves add.
        workspaces: global memory between them.
    """
    local = max(max(local_bytes(printer.kernel), printer.dynamic_bytes()) for printer in kernels)
    needs = [f"{local:,} bytes of {file.words.local_memory}"] if local else []
    if private := max(memory_bytes(printer.kernel) for printer in kernels):
        needs.append(f"{private:,} bytes of private memory for each {file.words.work_item}, beside its registers")
    for workspace in workspaces:
        begins = file.beginning(workspace.name)
        aligned = f", aligned to {begins} bytes" if begins > 1 else ""
        name = "a workspace" if workspace.name == "workspace" else workspace.name
        needs += wrap(f"{name} of {file.expr(workspace.elements)} elements{aligned}", WIDTH, subsequent_indent="    ")
    launches = [printer.launch() for printer in kernels]
    if len(kernels) > 1:
        named = (f"{p.kernel.name}: {launch}" for p, launch in zip(kernels, launches, strict=True))
        launches = [line for text in named for line in wrap(text, WIDTH, subsequent_indent="    ")]
    notes = [
        *notes,
        ("Launch", launches),
        ("Needs", [*needs, *(x for need in file.requirements() for x in _folded(need))]),
        ("Note", [line for remark in file.remarks() for line in wrap(remark, WIDTH)]),
    ]
    template = environment().get_template(file.template())
    return template.render(
        name=file.kernel.name,
        computes=computes,
        notes=[*((label, lines) for label, lines in notes if lines), ("Build", [file.build_line()])],
        prelude=file.prelude(),
        body="\n".join(printer.function() for printer in kernels),
        postlude=file.postlude(kernels),
        **file.fields(kernels, workspaces),
    )


def _folded(text: str) -> list[str]:
    """A point of the head comment in lines."""
    return wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


# --- a product in words ---------------------------------------------------------------------------


def computes(spec: GemmSpec) -> str:
    """What a product computes, in a line."""
    return f"{spec.formula()}{spec.then()}; {spec.label()}"


def _formulas(spec: GemmSpec) -> Notes:
    """Those of prologues and of the epilogue, and the arrays that they take."""
    lines = [line for f in spec.functions for line in wrap(f"{f.name}: {f.formula}", WIDTH, subsequent_indent="    ")]
    read = "ab" if spec.alpha != 0 else ""
    made = [f"{x.upper()}: {f.formula}" for x in read if (f := spec.prologue(x)) is not None]
    arrays = ((name, OPERANDS[name]) for name in spec.operands)
    step = "; the next product's stride_r elements on, or 0" if spec.batched else ""
    each = [
        f"{name}: an element for {operand.each}" + (", stored as C is" + step if operand.letter else "")
        for name, operand in arrays
    ]
    taken = [line for text in (*_lists(spec), *each) for line in wrap(text, WIDTH, subsequent_indent="    ")]
    before = [line for text in made for line in wrap(text, WIDTH, subsequent_indent="    ")]
    return [("Prologue", before), ("Epilogue", lines), ("Takes", taken)]


def _lists(spec: GemmSpec) -> list[str]:
    """What arrays of addresses hold."""
    names = "abc" if spec.alpha != 0 else "c"
    each = " and ".join(filter(None, [", ".join(names[:-1].upper()), "C"]))
    listed = ", ".join(f"{name}_list" for name in names)
    text = f"{listed}: batch_count addresses, of each product's {each}; a C is no other product's A, B or C"
    return [text] if spec.listed else []


def describe(
    spec: GemmSpec, schedule: Schedule, target: Target, words: Words, program: Program, transposed: bool = False
) -> Notes:
    """The schedule in words, and what a caller may rely on. A schedule may ask for more slots than there are boxes to
    put down, or for boxes where C is too narrow for one: the kernels know.

    Args:
        transposed: whether C^T = B^T A^T is computed by it.
    """
    stores = [s.src.shape for s in walk(program.main.body) if isinstance(s, BoxCopy) and s.tells is None]
    slots = next((as_int(shape[0]) or 1 for shape in stores if len(shape) > 2), min(1, len(stores)))
    if slots < schedule.c_stages:
        schedule = replace(schedule, c_stages=slots, c_width=schedule.c_width if slots else 1)
    sizes = ("Sizes", wrap(_sizes(spec, schedule, target), WIDTH))
    beside = [sizes, *_formulas(spec), ("Unread", _unread(spec, schedule))]
    if spec.alpha == 0:
        alone = f"an element of C per {words.work_item}: A, B and the schedule have no part in it"
        return [("Schedule", [alone]), *beside]
    matrices = MATRICES[transposed]
    computed = spec.transposed() if transposed else spec
    text = _schedule(computed, schedule, words, matrices)
    if transposed:
        text = f"as {matrices[2]} = {matrices[0]} * {matrices[1]}: {text}"
    ways = _ways(computed, schedule, target, words)
    return [("Schedule", wrap(text, WIDTH)), *zip("AB", reversed(ways) if transposed else ways, strict=True), *beside]


def _schedule(spec: GemmSpec, schedule: Schedule, words: Words, matrices: tuple[str, str, str]) -> str:
    """What work-items, groups and loops compute, and what departs from the plain way."""
    (rows, cols), (high, wide), c = schedule.tile, schedule.group, matrices[2]
    block_rows, block_cols = schedule.block_tile
    text = (
        f"{rows}x{cols} of {c} per {words.work_item}, {high}x{wide} {words.work_item}s per {words.group} "
        f"({block_rows}x{block_cols} of {c}), {schedule.k_step} along K per iteration"
    )
    if schedule.vector > 1:
        text = f"{rows}x{cols} of {c} at a time, in vectors of {schedule.vector}" + " along K" * schedule.along_k
    return text + "".join(f", {said}" for holds, said in _ways_of(spec, schedule, words, matrices) if holds)


def _ways(spec: GemmSpec, schedule: Schedule, target: Target, words: Words) -> tuple[list[str], list[str]]:
    """How A and B reach registers."""
    if schedule.atom == "dpas":
        how = f"{words.buffer}, packed by a kernel of its own as the instructions want it, then reads of 8 words a lane"
        return wrap(how, WIDTH), wrap(how, WIDTH)
    if schedule.by_warpgroups:
        return _by_boxes("a", spec, schedule, words), _by_boxes("b", spec, schedule, words)
    a, b = schedule.staged("a", spec.a_order), schedule.staged("b", spec.b_order)
    if schedule.along_k:
        a = replace(a, width=schedule.vector)
    if schedule.vector > 1 and spec.b_order == ("col" if schedule.along_k else "row"):
        b = replace(b, width=schedule.vector)
    return (
        wrap(_way(a, schedule, spec.a_order, spec.read("a", a.packed), target, words), WIDTH),
        wrap(_way(b, schedule, spec.b_order, spec.read("b", b.packed), target, words), WIDTH),
    )


def _unread(spec: GemmSpec, schedule: Schedule) -> list[str]:
    """Which matrices are not touched, so that nothing in them spreads, NaN among it."""
    parts = []
    if spec.alpha is None and spec.k is not None:
        packs = schedule.atom == "dpas" or schedule.a.packed or schedule.b.packed
        parts.append("A and B where alpha is 0" + (", by the kernel that multiplies" if packs else ""))
    if spec.alpha != 0 and spec.k is None:
        parts.append("A and B where k is 0" + (", which serves for alpha = 0 as well" if spec.alpha is None else ""))
    if spec.beta is None and not spec.names_c:
        parts.append("C where beta is 0")
    return ["; ".join(parts)] if parts else []


def _ways_of(spec: GemmSpec, s: Schedule, words: Words, matrices: tuple[str, str, str]) -> Iterator[tuple[object, str]]:
    """What departs from the plain way, each with the words for it."""
    (down, across), (_, b, c) = s.sweep, matrices
    yield s.vector > 1, f"up to {down}x{across} of those per {words.work_item}, one after the other"
    yield s.m_block == 1, "each row of those before the one below it"
    yield s.m_block > 1, f"{s.m_block} of those downwards before the next to the right come"
    yield s.even != (1, 1), f"{words.group}s in multiples of {s.even[0]}x{s.even[1]}"
    yield s.k_block, f"{s.k_block} along K at a time"
    yield s.vector > 1 and s.k_step > 1, f"{s.k_step} steps of it written out"
    yield s.b_prefetch, f"{b}'s copy prefetched {s.b_prefetch} steps ahead"
    yield s.c_prefetch, f"{c}'s rows prefetched meanwhile"
    yield s.b_step, f"{s.b_step} of {b} at a time"
    yield from _instructions_of(spec, s, words, matrices)
    alone = s.sub_group == s.all_work_items[0] * s.all_work_items[1]
    kept = f"compilers from moving reads past it, for the {words.group} is one {words.sub_group}"
    why = kept if alone else f"the {words.group} in step for the cache"
    yield s.barrier, f"a barrier before each step's arithmetic to keep {why}"
    yield s.stages > 1, f"{s.stages} tiles in {words.local_memory} at a time"
    yield s.producers, f"brought by one of {s.producers} more {words.work_item}s, which have nothing else to do"
    more, fewer = s.registers
    yield more, f"registers handed over: {more} to each that multiplies, {fewer} to each of the others"
    yield s.persistent, f"as many {words.group}s as run at once, one part of {c} after the other"
    together = f"{s.cluster[0]}x{s.cluster[1]}"
    yield s.cluster != (1, 1), f"clusters of {together} {words.group}s that copy for one another"
    yield s.mbarrier, f"handed over by {s.mbarrier} with a pair of mbarriers"
    yield s.slices > 1, f"each step in {s.slices} slices with {words.work_item}s of their own"
    yield s.prefetch, "the next tile loaded into registers before the current one's arithmetic"
    on = ", the next tile's before this one's last step" if s.across else ""
    yield s.register_stages > 1, f"operands read from {words.local_memory} a step ahead{on}"
    rows, cols = s.warp or (0, 0)
    yield s.warp, f"{words.sub_group}s of {rows}x{cols} {words.work_item}s"
    yield s.stagger, "neighbouring lanes in different rows"
    how = f"are added to {c} as they come" if s.atomic else "a second kernel adds up"
    if s.joined > 1:
        how = f"clusters of {s.joined} {words.group}s add up" + (", and then a second kernel" if s.planes > 1 else "")
    yield s.split > 1, f"K in {s.split} parts that {how}"
    piece = f"whole blocks of {c} and equal pieces of the rest, whose sums a second kernel adds up"
    yield s.stream, f"a {words.group} for each multiprocessor of the device, with {piece}"
    yield s.raster, f"{words.group}s in bands of {s.raster} {'columns' if s.swapped else 'rows'}"
    slots = f"{s.c_stages} slots" if s.c_stages > 1 else "a slot"
    yield s.c_stages, f"stores of boxes, by way of {slots} in {words.local_memory}"
    yield s.c_turns, f"four {words.sub_group}s after the other, while others multiply"
    yield s.c_width > 1 and not s.c_stages, f"stores of {ALIGNED_VECTOR.widest(s.c_width, spec.result.size)} elements"
    yield s.snake, "every other row of the arithmetic backwards"


def _instructions_of(
    spec: GemmSpec, s: Schedule, words: Words, matrices: tuple[str, str, str]
) -> Iterator[tuple[object, str]]:
    """What multiplies, where it is no plain arithmetic, and what it makes of float32."""
    yield s.by_warps or s.atom == "dpas", f"by matrix instructions of the {words.sub_group}"
    yield s.by_warpgroups, f"by matrix instructions of four {words.sub_group}s"
    swapped = "C^T = B^T * A^T" if matrices[0] == "A" else "C = A * B"
    yield s.swapped, f"operands swapped: {swapped}"
    atom = (warpgroup_atom if s.by_warpgroups else warp_atom)(s.atom, spec.dtype)
    if atom is not None and atom.dtype == F32:
        added = ", added up as float32 after each step of K" if s.by_warpgroups else ""
        yield atom.products > 1, f"three of TF32 for each product{added}"
        yield atom.products == 1, f"A and B {'cut' if s.by_warpgroups else 'rounded'} to TF32"


def _by_boxes(name: str, spec: GemmSpec, s: Schedule, words: Words) -> list[str]:
    """How an operand reaches local memory by tensor maps."""
    operand, order = (s.a, spec.a_order) if name == "a" else (s.b, spec.b_order)
    line = line_bytes(s.tile_line(name, order) * spec.dtype.size)
    how = f"{words.buffer}, by tensor maps: boxes in lines of {line} bytes that swizzle, to {words.local_memory}"
    before = "packed into whole tiles by a kernel before; " if operand.packed else ""
    behind = ", and from there to registers" if operand.memory == "private" else ""
    behind += "; read once, as caches are told" if operand.streamed else ""
    return wrap(f"{before}{how}{behind}", WIDTH) if before or behind else [how]


def _way(operand: Operand, schedule: Schedule, order: Order, dtype: DType, target: Target, words: Words) -> str:
    """How an operand reaches registers."""
    if operand.memory == "image":
        text = f"image, block reads of {operand.width} rows"
    elif operand.block and target.reads_blocks(dtype):
        text = f"{words.buffer}, block reads" + (f" of {operand.width} segments" if operand.width > 1 else "")
    elif schedule.boxes:
        text = f"{words.buffer}, by tensor maps: boxes of {schedule.round_depth} lines"
    else:
        width = 1 if operand.block else operand.width
        if "unaligned_vectors" not in target.features:
            width = ALIGNED_VECTOR.widest(width, dtype.size)
        if operand.async_copy and not operand.packed and operand.transposed != (order == "col"):
            width = 1  # neighbours there are no neighbours in the transposed tile
        verb = "asynchronous copies" if operand.async_copy else "loads"
        text = f"{words.buffer}, " + (f"{verb} of {width} elements" if width > 1 else f"{verb} of single elements")
    if operand.memory == "private":
        text += ", through a copy of a block in private memory"
    if operand.memory == "local":
        text += f", {'to' if operand.async_copy else 'through'} {words.local_memory}"
        text += ", transposed" if operand.transposed else ""
        text += f", rows padded by {operand.pad}" if operand.pad else ""
    if operand.packed:
        text = f"packed into whole tiles by a kernel before; {text}"
    return text + (f", passed around the {words.sub_group} by shuffles" if operand.share else "")


def _sizes(spec: GemmSpec, schedule: Schedule, target: Target) -> str:
    promised = [f"{axis} a multiple of {unit}" for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1]
    given = [f"{axis} = {size}" for axis, size in zip("mnk", (spec.m, spec.n, spec.k), strict=True) if size]
    lines = f"leading dimensions multiples of {spec.ld_multiple}; " if spec.ld_multiple > 1 else ""
    # Their block reads are addressed in bytes, all others in elements.
    bytewise = schedule.by_blocks and schedule.a.memory == "global" and target.reads_blocks(spec.dtype)
    spans = "A and B span less than 2^29 elements, C 2^31" if bytewise else "every matrix spans less than 2^31 elements"
    packed = schedule.a.packed or schedule.b.packed or schedule.atom == "dpas"
    between = ["packed matrices"] * packed + ["the workspace"] * (schedule.planes > 1 and not schedule.atomic)
    if spec.is_wide:
        spans = "matrices of any span"
        between = between if schedule.atom == "dpas" else []
    reach = "2^29" if bytewise and packed else "2^31"
    spans += f"; {' and '.join(between)} less than {reach} elements" if between else ""
    return f"{', '.join([*given, *promised]) or 'any m, n, k'}; {lines}{spans}"
