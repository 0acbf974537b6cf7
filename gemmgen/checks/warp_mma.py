"""What a target, and a product, have against multiplying by warps, or by AMD's wavefronts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmgen.checks.gated import may_be_packed
from gemmgen.checks.lines_of_c import comes_out_even, stores_lines
from gemmgen.checks.types import as_they_are, lacks, other_type
from gemmgen.ir.copy_instructions import ASYNC_COPY, PAIR, SPANNING_VECTOR
from gemmgen.ir.dtypes import FLOAT8, FLOAT16
from gemmgen.ir.instructions import (
    ACROSS,
    MATRIX_LINE_BYTES,
    MFMA_INSTRUCTIONS,
    MMA_HIGH,
    MMA_INSTRUCTIONS,
    MMA_WIDE,
    Instruction,
    matrix_instruction,
)
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.warp_mma import DIRECT_LANES, neighbours
from gemmgen.spec import GemmSpec

#: Sums of a thread beside them: of 128, ptxas spills.
MOST_SUMS = 64
#: Neighbours in C that a lane has, and those that it has after an exchange with the three others of its line.
_C_WIDTHS = (1, 2, 4, 8)


def warp_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule by which warps multiply, each with a remedy."""
    atom = matrix_instruction(s.atom, spec.dtype, "warp")
    if atom is None:
        yield other_atom(spec, s, MMA_INSTRUCTIONS)
        return
    remedy = "sm_89 or later" if "fp8" in atom.needs else "sm_80 or later, or atom fma"
    yield from lacks(f"atom {s.atom}", atom.needs, target, remedy)
    made = [name for name in "ab" if spec.prologue(name) is not None and atom.dtype in FLOAT16]
    yield from as_they_are(spec, s, but=made)
    yield from _registers(
        spec, s, [name for name, operand in (("a", s.a), ("b", s.b)) if name in made and not operand.prepacked]
    )
    yield from _lanes(s)
    yield from _lines(spec, s, atom)
    if s.prefetch and ASYNC_COPY.moves(1, atom.dtype.size):
        yield (
            f"prefetch loads elements one by one, but those of {atom.dtype}, of {atom.dtype.size} bytes, are copied "
            "asynchronously one by one: leave it out"
        )
    rows, cols = s.block_tile[0], s.block_tile[1] // spec.halves
    work_items = s.group[0] * s.group[1]
    if stores_lines(spec, s) and not comes_out_even((rows, cols), 1, work_items):
        yield (
            f"{rows}x{cols} of C, line by line, can't be dealt out evenly to {work_items} work-items, of which a line "
            f"takes {cols}: use c_width 2"
        )


def other_atom(spec: GemmSpec, s: Schedule, known: Iterable[Instruction]) -> str:
    """That a schedule's atom is of other types than the product."""
    known = list(known)
    others = [*(x.name for x in known if x.dtype == spec.dtype), *(() if spec.dtype in FLOAT8 else ("fma",))]
    types = (x.dtype for x in known if x.name == s.atom)
    return other_type(f"atom {s.atom}", types, spec, f"atom {' or '.join(others)}")


def _registers(spec: GemmSpec, s: Schedule, made: list[str]) -> Iterator[str]:
    """What is made in registers waits there for its turn, beside the sums."""
    rows, cols = s.tile
    if made and rows * cols > MOST_SUMS:
        packed = " ".join(f"--set {name}.prepacked=true" for name in made)
        yield (
            f"tile {rows}x{cols} has {rows * cols} sums > {MOST_SUMS}, which leave no registers for "
            f"{' and '.join(f'prologue_{name}' for name in made)}: use --tile 8x8 --group 16x16"
            + (f", or let a kernel before apply it ({packed})" if may_be_packed(spec, made) else "")
        )


def _lanes(s: Schedule) -> Iterator[str]:
    """How lanes lie over C, which the instruction says."""
    (rows, cols), most = s.tile, f"{MMA_HIGH}x{MMA_WIDE}"
    if rows % MMA_HIGH or cols % MMA_WIDE:
        yield f"tile {rows}x{cols} is not made of the {most} that atom {s.atom} gives a lane: use multiples of it"
    elif cols % s.c_width and s.c_width in _C_WIDTHS:
        yield (
            f"c_width = {s.c_width} does not divide the tile's {cols} columns, of which lanes exchange sums: use one "
            f"of {', '.join(str(width) for width in _C_WIDTHS if cols % width == 0)}"
        )
    elif s.c_width not in _C_WIDTHS:
        yield (
            f"c_width = {s.c_width}: use 2, which atom {s.atom} gives a lane, 4 or 8, for which lanes exchange sums, "
            "or 1, by which warps store whole lines"
        )


def _lines(spec: GemmSpec, s: Schedule, atom: Instruction) -> Iterator[str]:
    """Local tiles, whose lines are copied and read by 16 bytes."""
    if s.block_k // s.sliced_k % atom.depth:
        yield (
            f"{_part(s)} is not made of steps of {atom.depth}, as deep as atom {s.atom} goes in {spec.dtype}: "
            f"use block_k {2 * atom.depth * s.sliced_k}"
        )
    elif s.across_tiles and s.block_k // s.sliced_k // atom.depth % 2:
        yield (
            f"across_tiles alternates two slots of registers, but block_k = {s.block_k} has an odd number of steps of "
            f"{atom.depth}: use block_k {2 * atom.depth * s.sliced_k}"
        )
    if s.stages < 2:
        yield f"stages = {s.stages}, but atom {s.atom} copies a tile while it multiplies another: use 3 or more"
    for name, o in (("a", s.a), ("b", s.b)):
        if o.pad % atom.line:
            yield f"{name}.pad = {o.pad} moves lines off multiples of {MATRIX_LINE_BYTES} bytes: use {atom.line}"


def _part(s: Schedule) -> str:
    """What the warps of a slice go through at a time, for messages."""
    return f"block_k = {s.block_k}" + (f" in {s.sliced_k} slices" if s.sliced_k > 1 else "")


def direct_mma_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose lanes load what `mma` multiplies, each with a remedy."""
    if spec.dtype not in FLOAT16:
        yield other_type("method mma_direct", FLOAT16, spec, "method gemv")
        return
    yield from lacks("method mma_direct", ("mma",), target, "sm_80 or later, or method gemv")
    yield from _lanes(s)
    for name, order, wanted, width in (("a", spec.a_order, "row", s.a.width), ("b", spec.b_order, "col", s.b.width)):
        if order != wanted and width > 1:
            yield (
                f"method mma_direct loads neighbours along K, but {name} is {order}-major: store it {wanted}-major, or "
                f"load single elements (--set {name}.width=1)"
            )
    if s.group != DIRECT_LANES:
        high, wide = DIRECT_LANES
        yield f"group {s.group[0]}x{s.group[1]}, but a slice of method mma_direct is a warp: use group {high}x{wide}"
    yield from _vectors(spec, s)
    depth = neighbours(s.a.width, s.b.width) * ACROSS
    if s.block_k // s.sliced_k % depth:
        yield (
            f"{_part(s)} is not made of the {depth} along K that lanes have at a time: use block_k {depth * s.sliced_k}"
        )


def spans(spec: GemmSpec, name: str, width: int) -> bool:
    """Whether lanes of `mma_direct` load so many elements of A or B wherever lines along K begin: elements as they are,
    cut out of the two vectors of as many bytes that they lie in.
    """
    as_it_is = spec.element(name) == spec.dtype and spec.formula_of(name) is None
    return as_it_is and SPANNING_VECTOR.moves(width, spec.dtype.size) and spec.ld_unit(name) % width > 0


def _vectors(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Vectors where lines may begin anywhere: a branch in front of each load would have them wait for one another."""
    units = {}
    for name, operand in (("a", s.a), ("b", s.b)):
        unit = operand.width // (PAIR if spec.element(name).pairs else 1)
        if spec.ld_unit(name) % max(1, unit) and not spans(spec, name, operand.width):
            units[f"{name}.width = {operand.width}"] = unit
    if units:
        yield (
            f"{' and '.join(units)} {'loads' if len(units) == 1 else 'load'} vectors, but leading dimensions are "
            f"multiples of {spec.ld_units}: pass --ld-multiple {max(units.values())}, or use method gemv"
        )


def mfma_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is mfma, each with a remedy."""
    atom = matrix_instruction("mfma", spec.dtype)
    if atom is None:
        yield other_type("atom mfma", (x.dtype for x in MFMA_INSTRUCTIONS), spec, "atom fma")
        return
    yield from lacks("atom mfma", atom.needs, target, "--backend opencl --target gfx942, or atom fma")
    yield from as_they_are(spec, s)
    if s.block_k % atom.depth:
        yield f"block_k = {s.block_k} is not made of steps of {atom.depth}: use block_k {atom.depth}"
