"""Refuse what matrix instructions can't do."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.matrix import LANES, MATRIX_TYPES, ROWS, MatrixAtom
from gemmgen.ir.target import Target
from gemmgen.ir.warp_matrix import ACROSS, HIGH, LINE_BYTES, LINES, WARP_ATOMS, WIDE, WarpAtom, warp_atom
from gemmgen.methods import defaults, flatten
from gemmgen.passes.capacity import sub_group_registers
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def matrix_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is dpas, each with a remedy."""
    if spec.dtype not in MATRIX_TYPES:
        known = ", ".join(map(str, MATRIX_TYPES))
        yield f"atom dpas multiplies {known}, not {spec.dtype}: use one of them, or atom fma"
        return
    if spec.batched:
        yield "atom dpas multiplies one product, not a batch: call it for each, or use atom fma"
    yield from as_they_are(spec, s)
    lanes = s.sub_group or 0
    if lanes not in LANES:
        yield f"sub_group = {lanes or 'none'}, but atom dpas has 8 lanes (Xe-HPG) or 16 (Xe-HPC): use one of them"
        return
    atom = MatrixAtom(spec.dtype, lanes)
    if lacking := sorted(atom.needs - target.features):
        yield f"atom dpas, but target {target.name!r} lacks {', '.join(lacking)}: use target intel, or atom fma"
    if target.sub_group_sizes and lanes not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"sub_group = {lanes} is not a size of target {target.name!r}: use one of {sizes}"
    if s.tile[0] % ROWS:
        yield f"the tile's {s.tile[0]} rows are no multiple of {ROWS}, the rows of an instruction: use {ROWS} or 32"
    if s.group != (1, lanes):
        yield f"group {s.group[0]}x{s.group[1]} is not one sub-group, which multiplies alone: use group 1x{lanes}"
    if s.k_step % atom.depth:
        goes = f"but an instruction goes {atom.depth} deep in {spec.dtype}"
        yield f"k_step = {s.k_step}, {goes}: use k_step {atom.depth}, or a multiple of it"
    plain = flatten(replace(defaults("dpas", s.tile, s.group, s.k_step, lanes), large_registers=s.large_registers))
    for key, value in flatten(s).items():
        if value != plain[key]:
            yield f"{key} means nothing to atom dpas, which packs A and B for itself: leave it out"
    words = s.tile[0] * s.tile[1] + s.tile[0] + ROWS * s.tile[1]
    used, limit = words * 4, sub_group_registers(s, target) // lanes
    if used > limit:
        larger = "" if s.large_registers else " or large_registers"
        yield f"registers {used:,} B per work-item > {limit:,} B on this target: use a smaller tile{larger}"


def warp_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule by which warps multiply, each with a remedy."""
    atom = warp_atom(s.atom, spec.dtype)
    if atom is None:
        known = [str(x.dtype) for x in WARP_ATOMS if x.name == s.atom]
        others = [x.name for x in WARP_ATOMS if x.dtype == spec.dtype]
        yield (
            f"atom {s.atom} multiplies {', '.join(known)}, not {spec.dtype}: use one of them, or atom "
            f"{' or '.join([*others, *(() if spec.dtype in FLOAT8 else ('fma',))])}"
        )
        return
    if lacking := sorted(atom.needs - target.features):
        remedy = "sm_89 or later" if "fp8" in atom.needs else "sm_80 or later, or atom fma"
        yield f"atom {s.atom}, but target {target.name!r} lacks {', '.join(lacking)}: use {remedy}"
    yield from as_they_are(spec, s)
    yield from _lanes(s)
    yield from _lines(spec, s, atom)
    for key, given in (("snake", s.snake), ("mbarrier", s.mbarrier), ("prefetch", s.prefetch), ("stagger", s.stagger)):
        if given:
            yield f"{key} means nothing to atom {s.atom}: leave it out"


def as_they_are(spec: GemmSpec, s: Schedule, but: Collection[str] = ()) -> Iterator[str]:
    """Instructions take what memory holds, `but` for what passes through registers."""
    for name, operand in (("a", s.a), ("b", s.b)):
        if name not in but and (stored := spec.read(name, operand.packed or s.atom == "dpas")) != spec.dtype:
            yield f"{name}_dtype {stored}, but atom {s.atom} takes A and B as they are: use atom fma, or leave it out"


def _lanes(s: Schedule) -> Iterator[str]:
    """How lanes lie over C, which the instruction says."""
    if s.warp != (LINES, ACROSS):
        given = "none" if s.warp is None else f"{s.warp[0]}x{s.warp[1]}"
        yield f"warp {given}, but atom {s.atom} has {LINES} lines of {ACROSS} lanes: use warp {LINES}x{ACROSS}"
    if s.run != (1, WIDE):
        yield f"run {s.run[0]}x{s.run[1]}, but atom {s.atom} gives a lane pairs of columns: use run 1x{WIDE}"
    (rows, cols), most = s.tile, f"{HIGH}x{WIDE}"
    if rows % HIGH or cols % WIDE:
        yield f"tile {rows}x{cols} is not made of the {most} that atom {s.atom} gives a lane: use multiples of it"


def _lines(spec: GemmSpec, s: Schedule, atom: WarpAtom) -> Iterator[str]:
    """Local tiles, whose lines are copied and read by 16 bytes."""
    if s.k_step // s.slices % atom.depth:
        yield (
            f"k_step = {s.k_step} in {s.slices} slices is not made of steps of {atom.depth}, as deep as atom {s.atom} "
            f"goes in {spec.dtype}: use k_step {2 * atom.depth * s.slices}"
        )
    elif s.across and s.k_step // s.slices // atom.depth % 2:
        yield (
            f"across alternates two slots of registers, but k_step = {s.k_step} has an odd number of steps of "
            f"{atom.depth}: use k_step {2 * atom.depth * s.slices}"
        )
    if s.stages < 2:
        yield f"stages = {s.stages}, but atom {s.atom} copies a tile while it multiplies another: use 3 or more"
    for name, o in (("a", s.a), ("b", s.b)):
        if not o.async_copy:
            yield f"{name}.async_copy is not set, but atom {s.atom} reads what asynchronous copies bring: set it"
        if o.transposed:
            yield f"{name}.transposed, but the local tile has the matrix' order with atom {s.atom}: leave it out"
        if o.width != atom.line:
            yield f"{name}.width = {o.width}, but lines are {LINE_BYTES} bytes of {spec.dtype}: use {atom.line}"
        if o.pad % atom.line:
            yield f"{name}.pad = {o.pad} moves lines off multiples of {LINE_BYTES} bytes: use {atom.line}"
