"""The file around a kernel: its head comment and skeleton."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TypeVar

from gemmgen.backends.clike import CLike, Words
from gemmgen.backends.files import environment
from gemmgen.ir.atoms import ALIGNED_VECTOR
from gemmgen.ir.dtypes import DType
from gemmgen.ir.target import Target
from gemmgen.ir.visit import local_bytes
from gemmgen.schedule import Operand, Schedule
from gemmgen.source import Workspace
from gemmgen.spec import GemmSpec, Order

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
    local = max(local_bytes(printer.kernel) for printer in kernels)
    needs = [f"{local:,} bytes of {file.words.local_memory}"] if local else []
    for workspace in workspaces:
        name = "a workspace" if len(workspaces) == 1 else workspace.name
        unit = "elements" if len(workspaces) == 1 else f"{workspace.dtype}"
        text = f"{name} of {file.expr(workspace.elements)} {unit}, aligned to 16 bytes"
        needs += wrap(text, WIDTH, subsequent_indent="    ") if len(workspaces) > 1 else [text]
    launches = [printer.launch() for printer in kernels]
    if len(kernels) > 1:
        named = (f"{p.kernel.name}: {launch}" for p, launch in zip(kernels, launches, strict=True))
        launches = [line for text in named for line in wrap(text, WIDTH, subsequent_indent="    ")]
    notes = [
        *notes,
        ("Launch", launches),
        ("Needs", [*needs, *file.requirements()]),
    ]
    template = environment().get_template(file.template())
    return template.render(
        name=file.kernel.name,
        computes=computes,
        notes=[*((label, lines) for label, lines in notes if lines), ("Build", [file.build_line()])],
        prelude=file.prelude(),
        body="\n".join(printer.function() for printer in kernels),
        postlude=file.postlude(kernels),
        **file.fields(),
    )


# --- a product in words ---------------------------------------------------------------------------


def computes(spec: GemmSpec) -> str:
    """What a product computes, in a line."""
    alpha = "alpha * " if spec.alpha is None else "" if spec.alpha == 1 else f"{spec.alpha:g} * "
    beta = " + beta * C" if spec.beta is None else {0.0: "", 1.0: " + C"}.get(spec.beta, f" + {spec.beta:g} * C")
    return f"C = {alpha}A * B{beta}; {spec.label()}"


def describe(spec: GemmSpec, schedule: Schedule, target: Target, words: Words) -> Notes:
    """The schedule in words."""
    (rows, cols), (high, wide) = schedule.tile, schedule.group
    block_rows, block_cols = schedule.block_tile
    text = (
        f"{rows}x{cols} of C per {words.work_item}, {high}x{wide} {words.work_item}s per {words.group} "
        f"({block_rows}x{block_cols} of C), {schedule.k_step} along K per iteration"
    )
    if schedule.atom == "dpas":
        text += f", by matrix instructions of the {words.sub_group}"
    if schedule.barrier:
        text += f", a barrier after B's load to keep the {words.group} in step for the cache"
    if schedule.stages > 1:
        text += f", {schedule.stages} tiles in {words.local_memory} at a time"
    if schedule.mbarrier:
        text += f", handed over by {schedule.mbarrier} with a pair of mbarriers"
    if schedule.slices > 1:
        text += f", each step in {schedule.slices} slices with {words.work_item}s of their own"
    if schedule.prefetch:
        text += ", the next tile loaded into registers before the current one's arithmetic"
    if schedule.register_stages > 1:
        on = ", the next tile's before this one's last step" if schedule.across else ""
        text += f", operands read from {words.local_memory} a step ahead{on}"
    if schedule.warp is not None:
        text += f", {words.sub_group}s of {schedule.warp[0]}x{schedule.warp[1]} {words.work_item}s"
    if schedule.stagger:
        text += ", neighbouring lanes in different rows"
    if schedule.split > 1:
        how = "are added to C as they come" if schedule.atomic else "a second kernel adds up"
        text += f", K in {schedule.split} parts that {how}"
    if schedule.raster:
        text += f", {words.group}s in bands of {schedule.raster} rows"
    if schedule.c_width > 1:
        text += f", stores of {ALIGNED_VECTOR.widest(schedule.c_width, spec.result.size)} elements"
    if schedule.snake:
        text += ", every other row of the arithmetic backwards"
    if schedule.atom == "dpas":
        read = f"{words.buffer}, packed by a kernel of its own as the instructions want it, then block reads of 8 words"
        ways = [("A", wrap(read, WIDTH)), ("B", wrap(read, WIDTH))]
        return [("Schedule", wrap(text, WIDTH)), *ways, ("Sizes", wrap(_sizes(spec, schedule, target), WIDTH))]
    return [
        ("Schedule", wrap(text, WIDTH)),
        ("A", wrap(_way(schedule.a, spec.a_order, spec.dtype, target, words), WIDTH)),
        ("B", wrap(_way(schedule.b, spec.b_order, spec.dtype, target, words), WIDTH)),
        ("Sizes", wrap(_sizes(spec, schedule, target), WIDTH)),
    ]


def _way(operand: Operand, order: Order, dtype: DType, target: Target, words: Words) -> str:
    """How an operand reaches registers."""
    if operand.memory == "image":
        text = f"image, block reads of {operand.width} rows"
    elif operand.block and target.reads_blocks(dtype):
        text = f"{words.buffer}, block reads" + (f" of {operand.width} segments" if operand.width > 1 else "")
    else:
        width = 1 if operand.block else operand.width
        if "unaligned_vectors" not in target.features:
            width = ALIGNED_VECTOR.widest(width, dtype.size)
        if operand.async_copy and operand.transposed != (order == "col"):
            width = 1  # neighbours there are no neighbours in the transposed tile
        verb = "asynchronous copies" if operand.async_copy else "loads"
        text = f"{words.buffer}, " + (f"{verb} of {width} elements" if width > 1 else f"{verb} of single elements")
    if operand.memory == "local":
        text += f", {'to' if operand.async_copy else 'through'} {words.local_memory}"
        text += ", transposed" if operand.transposed else ""
        text += f", rows padded by {operand.pad}" if operand.pad else ""
    return text + (f", passed around the {words.sub_group} by shuffles" if operand.share else "")


def _sizes(spec: GemmSpec, schedule: Schedule, target: Target) -> str:
    promised = [f"{axis} a multiple of {unit}" for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1]
    given = [f"{axis} = {size}" for axis, size in zip("mnk", (spec.m, spec.n, spec.k), strict=True) if size]
    lines = f"leading dimensions multiples of {spec.ld_multiple}; " if spec.ld_multiple > 1 else ""
    # Their block reads are addressed in bytes, all others in elements.
    bytewise = schedule.by_blocks and schedule.a.memory == "global" and target.reads_blocks(spec.dtype)
    spans = "A and B span less than 2^29 elements, C 2^31" if bytewise else "every matrix spans less than 2^31 elements"
    return f"{', '.join([*given, *promised]) or 'any m, n, k'}; {lines}{spans}"
