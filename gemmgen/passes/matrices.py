"""Refuse what matrix instructions can't do."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.matrix import MATRIX_TYPES, ROWS, MatrixAtom
from gemmgen.ir.target import Target
from gemmgen.methods import defaults, flatten
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec

#: As many lanes as an instruction has columns, on Xe-HPG and on Xe-HPC.
LANES = (8, 16)


def matrix_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is dpas, each with a remedy."""
    if spec.dtype not in MATRIX_TYPES:
        known = ", ".join(map(str, MATRIX_TYPES))
        yield f"atom dpas multiplies {known}, not {spec.dtype}: use one of them, or atom fma"
        return
    for name in "ab":
        if (stored := spec.element(name)) != spec.dtype:
            yield f"{name}_dtype {stored}, but atom dpas takes A and B as they are: use atom fma, or leave it out"
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
    if s.k_step != atom.depth:
        yield f"k_step = {s.k_step}, but an instruction goes {atom.depth} deep in {spec.dtype}: use k_step {atom.depth}"
    plain = flatten(defaults("dpas", s.tile, s.group, s.k_step, lanes))
    for key, value in flatten(s).items():
        if value != plain[key]:
            yield f"{key} means nothing to atom dpas, which packs A and B for itself: leave it out"
    words = s.tile[0] * s.tile[1] + s.tile[0] + ROWS * s.tile[1]
    # A device's registers are as wide as its instructions: Xe-HPC, with twice the lanes, has twice the bytes.
    used, limit = words * 4, target.sub_group_register_bytes // LANES[0]
    if used > limit:
        yield f"registers {used:,} B per work-item > {limit:,} B on this target: use a smaller tile"
