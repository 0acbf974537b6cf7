"""The file around a kernel: its head comment and skeleton."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from textwrap import wrap
from typing import TYPE_CHECKING

from gemmgen.backends.clike import CLike
from gemmgen.ir.kernel import Kernel
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from jinja2 import Environment

Notes = list[tuple[str, list[str]]]
#: Characters of a line of the head comment, without its label.
WIDTH = 86


def render(printer: CLike, kernel: Kernel, computes: str, notes: Notes, local_bytes: int) -> str:
    """The whole file.

    Args:
        computes: what the kernel does, in a line.
        notes: (label, lines) of the head comment, before what the backend and the kernel itself add.
        local_bytes: local memory of a group.
    """
    notes = [
        *notes,
        ("Launch", [printer.launch(kernel)]),
        ("Needs", [f"{local_bytes:,} bytes of local memory"] if local_bytes else []),
    ]
    notes[-1][1].extend(printer.requirements(kernel))
    template = environment().get_template(f"{printer.name}/kernel{printer.suffix}.j2")
    return template.render(
        name=kernel.name,
        computes=computes,
        notes=[*((label, lines) for label, lines in notes if lines), ("Build", [printer.build_line(kernel)])],
        prelude=printer.prelude(kernel),
        body=printer.kernel(kernel),
        postlude=printer.postlude(kernel),
    )


@cache
def environment() -> Environment:
    """Where the templates are found, in a checkout as in a wheel."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    root = files("gemmgen") / "templates"
    if not root.is_dir():  # a checkout keeps templates/ beside the package
        root = files("gemmgen") / ".." / "templates"

    def load(name: str) -> str:
        return (root / name).read_text(encoding="utf-8")

    return Environment(loader=FunctionLoader(load), undefined=StrictUndefined, keep_trailing_newline=True)


# --- a product in words ---------------------------------------------------------------------------


def computes(spec: GemmSpec) -> str:
    """What a product computes, in a line."""
    alpha = "alpha * " if spec.alpha is None else "" if spec.alpha == 1 else f"{spec.alpha:g} * "
    beta = " + beta * C" if spec.beta is None else {0.0: "", 1.0: " + C"}.get(spec.beta, f" + {spec.beta:g} * C")
    return f"C = {alpha}A * B{beta}; {spec.label()}"


def describe(spec: GemmSpec, schedule: Schedule) -> Notes:
    """The schedule in words."""
    (rows, cols), (high, wide) = schedule.tile, schedule.group
    block_rows, block_cols = schedule.block_tile
    text = (
        f"{rows}x{cols} of C per work-item, {high}x{wide} work-items per group ({block_rows}x{block_cols} of C), "
        f"{schedule.k_step} along K per iteration"
    )
    if schedule.barrier:
        text += ", a barrier after B's load to keep the group in step for the cache"
    if schedule.stages > 1:
        text += f", {schedule.stages} tiles in local memory at a time"
    if schedule.prefetch:
        text += ", the next tile loaded into registers before the current one's arithmetic"
    if schedule.register_stages > 1:
        text += ", operands read from local memory a step ahead"
    return [
        ("Schedule", wrap(text, WIDTH)),
        ("A", [_way(schedule.a)]),
        ("B", [_way(schedule.b)]),
        ("Sizes", [_sizes(spec)]),
    ]


def _way(operand: Operand) -> str:
    """How an operand reaches registers."""
    if operand.memory == "image":
        text = f"image, block reads of {operand.width} rows"
    elif operand.block:
        text = "buffer, block reads" + (f" of {operand.width} segments" if operand.width > 1 else "")
    else:
        text = "buffer, " + (f"loads of {operand.width} elements" if operand.width > 1 else "single loads")
    if operand.memory == "local":
        text += ", through local memory" + (", transposed" if operand.transposed else "")
        text += f", rows padded by {operand.pad}" if operand.pad else ""
    return text + (", passed around the sub-group by shuffles" if operand.share else "")


def _sizes(spec: GemmSpec) -> str:
    promised = [f"{axis} a multiple of {unit}" for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1]
    given = [f"{axis} = {size}" for axis, size in zip("mnk", (spec.m, spec.n, spec.k), strict=True) if size]
    return ", ".join([*given, *promised]) or "any m, n, k; every matrix spans less than 2^31 elements"
