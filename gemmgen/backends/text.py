"""The file around a kernel: its head comment and skeleton."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TypeVar

from gemmgen.backends.clike import CLike
from gemmgen.backends.constants import definitions, guards
from gemmgen.backends.files import environment
from gemmgen.backends.layout import lay_out
from gemmgen.epilogue import OPERANDS, Operand
from gemmgen.ir.functions import FAST
from gemmgen.ir.kernel import Program, local_bytes, memory_bytes, uses_calls
from gemmgen.ir.sizes import MOST_GROUPS, Workspace
from gemmgen.ir.stmt import Multiply, VectorCopy
from gemmgen.ir.walk import walk
from gemmgen.spec import GemmSpec

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
    plain = replace(file, constants={})  # the head comment gives numbers
    local = max(max(local_bytes(printer.kernel), printer.dynamic_bytes()) for printer in kernels)
    needs = [f"{local:,} bytes of {file.words.local_memory}"] if local else []
    if private := max(memory_bytes(printer.kernel) for printer in kernels):
        needs.append(f"{private:,} bytes of private memory for each {file.words.work_item}, beside its registers")
    for workspace in workspaces:
        begins = file.beginning(workspace.name)
        aligned = f", aligned to {begins} bytes" if begins > 1 else ""
        name = "a workspace" if workspace.name == "workspace" else workspace.name
        needs += wrap(f"{name} of {plain.expr(workspace.elements)} elements{aligned}", WIDTH, subsequent_indent="    ")
    launches = [replace(printer, constants={}).launch() for printer in kernels]
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
    body, postlude = "\n".join(printer.function() for printer in kernels), file.postlude(kernels, workspaces)
    own = file.fields(kernels, workspaces)
    texts = [
        body,
        postlude,
        *(x for text in own.values() for x in (text if isinstance(text, list) else [text]) if isinstance(x, str)),
    ]
    words = {"work_item": file.words.work_item, "group": file.words.group}
    defined = definitions(file.constants, texts, words, "C" if file.spec.gate is None else "A * B")
    text = template.render(
        name=file.kernel.name,
        computes=computes,
        notes=[*((label, lines) for label, lines in notes if lines), ("Build", _folded(file.build_line()))],
        prelude=file.prelude(),
        guards=guards(defined, file, kernels),
        constants=defined,
        body=body,
        postlude=postlude,
        **own,
    )
    return lay_out(text)


def folded(notes: Notes) -> Notes:
    """Notes in lines that are not too long; of several points the later lines of each stand further in."""
    indents = ("    " * (len(points) > 1) for _, points in notes)
    return [
        (label, [line for x in points for line in wrap(x, WIDTH, subsequent_indent=indent, break_on_hyphens=False)])
        for (label, points), indent in zip(notes, indents, strict=True)
    ]


def _folded(text: str) -> list[str]:
    """A point of the head comment in lines."""
    return wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


# --- a product in words ---------------------------------------------------------------------------


def computes(spec: GemmSpec) -> str:
    """What a product computes, in a line."""
    return f"{spec.formula()}{spec.then()}; {spec.label()}"


def _formulas(spec: GemmSpec, program: Program) -> Notes:
    """Those of prologues and of the epilogue, and the arrays that they take."""
    fast = any(uses_calls(kernel, FAST) for kernel in program.kernels)
    texts = (f"{f.name}: {f.fast[0] if fast and f.fast is not None else f.formula}" for f in spec.functions)
    lines = [line for text in texts for line in wrap(text, WIDTH, subsequent_indent="    ")]
    read = "ab" if spec.alpha != 0 else ""
    made = [
        f"{x.upper()}: {f.formula}{', applied to the sums of a group along K' if spec.sum_scale(x) else ''}"
        for x in read
        if (f := spec.formula_of(x)) is not None
    ]
    arrays = ((name, OPERANDS[name]) for name in spec.operands)
    step = "; the next product's stride_r elements on, or 0" if spec.batched else ""
    each = [
        f"{name}: an element for {operand.each}{_of_groups(spec, operand)}"
        + (", stored as C is, and no part of it" + step if operand.letter else "")
        for name, operand in arrays
    ]
    taken = [
        line
        for text in (*_lists(spec), *_offsets(spec), *_halves(spec), *each)
        for line in wrap(text, WIDTH, subsequent_indent="    ")
    ]
    before = [line for text in made for line in wrap(text, WIDTH, subsequent_indent="    ")]
    return [("Prologue", before), ("Epilogue", lines), ("Takes", taken)]


def _lists(spec: GemmSpec) -> list[str]:
    """What arrays of addresses hold."""
    names = "abc" if spec.alpha != 0 else "c"
    each = " and ".join(filter(None, [", ".join(names[:-1].upper()), "C"]))
    listed = ", ".join(f"{name}_list" for name in names)
    text = f"{listed}: batch_count addresses, of each product's {each}; a C is no other product's A, B or C"
    return [text] if spec.listed else []


def _halves(spec: GemmSpec) -> list[str]:
    """Which sums a gate takes."""
    return [] if spec.gate is None else ["B: 2 n columns; acc is the sum of column j of them, up that of column n + j"]


def _offsets(spec: GemmSpec) -> list[str]:
    """What says where groups end."""
    if spec.grouped is None:
        return []
    where, total = ("among the rows of A and C", "m") if spec.grouped == "rows" else ("along K", "k")
    own, most = ("B", f", {MOST_GROUPS:,} at most") if spec.grouped == "rows" else ("C", "")
    text = (
        f"offsets: group_count ends of groups {where}{most}, ascending, the last at most {total}; a group begins where "
        f"the one before ends, and has a {own} of its own, stride_{own.lower()} elements behind the one before"
    )
    return [text]


def _of_groups(spec: GemmSpec, operand: Operand) -> str:
    """How often a group's arrays are there: once for each, where groups don't share out what it has elements for."""
    own = spec.grouped == "k" or operand.axes == "n" or operand.of == "b"
    return ", a line for each group" if spec.grouped and own else ""


def about(spec: GemmSpec, program: Program) -> Notes:
    """What a caller may rely on.

    Args:
        program: after all passes.
    """
    sizes = ("Sizes", wrap(_sizes(spec, program), WIDTH))
    return [sizes, *_formulas(spec, program), ("Unread", _unread(spec, program))]


def _unread(spec: GemmSpec, program: Program) -> list[str]:
    """Which matrices are not touched, so that nothing in them spreads, NaN among it."""
    parts = []
    if spec.alpha is None and spec.k is not None:
        packs = any(kernel.prepacks for kernel in program.kernels)
        parts.append("A and B where alpha is 0" + (", by the kernel that multiplies" if packs else ""))
    if spec.alpha is None and spec.grouped == "k":
        parts.append("A and B where alpha is 0")
    elif spec.alpha != 0 and spec.k is None:
        parts.append("A and B where k is 0" + (": pass k = 0 where alpha is 0" if spec.alpha is None else ""))
    if spec.beta is None and not spec.names_c:
        parts.append("C where beta is 0")
    return ["; ".join(parts)] if parts else []


def _sizes(spec: GemmSpec, program: Program) -> str:
    assumed = [f"{axis} a multiple of {unit}" for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1]
    given = [f"{axis} = {size}" for axis, size in zip("mnk", (spec.m, spec.n, spec.k), strict=True) if size]
    lines = f"leading dimensions multiples of {spec.ld_units}; " if spec.ld_multiple != 1 else ""
    body = list(walk(program.main.body))
    # Block reads of buffers are addressed in bytes, all others in elements.
    bytewise = any(isinstance(s, VectorCopy) and s.atom.name == "block_read" for s in body)
    spans = "A and B span less than 2^29 elements, C 2^31" if bytewise else "every matrix spans less than 2^31 elements"
    packed = any(kernel.prepacks for kernel in program.kernels)
    # Of stream-K it has two blocks for each group.
    workspace = not program.main.asks_device and any(x.name == "workspace" for x in program.workspaces)
    between = ["packed matrices"] * packed + ["the workspace"] * workspace
    if spec.is_wide:
        spans = "matrices of any span"
        # The kernel that packs for matrix instructions of sub-groups counts in 32 bits all the same.
        by_sub_group = any(isinstance(s, Multiply) and s.atom.name == "dpas" for s in body)
        between = between if by_sub_group else []
    reach = "2^29" if bytewise and packed else "2^31"
    spans += f"; {' and '.join(between)} less than {reach} elements" if between else ""
    return f"{', '.join([*given, *assumed]) or 'any m, n, k'}; {lines}{spans}"
