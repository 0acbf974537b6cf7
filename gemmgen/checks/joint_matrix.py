"""What a target, and a product, have against `joint_matrix` of SYCL."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.capacity import fragment_problems, whole_sub_groups
from gemmgen.ir.copy_instructions import BLOCK_2D_LINE
from gemmgen.ir.instructions import JOINT_MATRIX_LANES, JOINT_MATRIX_ROWS, Instruction, joint_matrix
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def joint_matrix_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is joint_matrix, each with a remedy."""
    if spec.dtype not in JOINT_MATRIX_ROWS:
        known = " or ".join(map(str, JOINT_MATRIX_ROWS))
        yield f"atom joint_matrix multiplies {known}, not {spec.dtype}: use dtype {known}, or another method"
        return
    yield from _as_checked_loads_find_them(spec)
    atom = joint_matrix(spec.dtype)
    if lacking := sorted(atom.needs - target.features):
        lacks = f"target {target.name!r} lacks {', '.join(lacking)}"
        yield f"atom joint_matrix, but {lacks}: use --backend sycl --target xe_hpc, or atom dpas"
    if target.sub_group_sizes and JOINT_MATRIX_LANES not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"joint_matrix has {JOINT_MATRIX_LANES} lanes, but target {target.name!r} has {sizes}: use atom dpas"
    yield from _tiling_problems(spec, s, target, atom)


def _tiling_problems(spec: GemmSpec, s: Schedule, target: Target, atom: Instruction) -> Iterator[str]:
    """What is wrong with the tile and the group."""
    rows, cols = s.tile
    if rows % atom.rows:
        fitting = -(-rows // atom.rows) * atom.rows
        yield f"the tile's {rows} rows are no multiple of {atom.rows}, those of a fragment: use tile {fitting}x{cols}"
    yield from whole_sub_groups(s, target, JOINT_MATRIX_LANES)
    if s.block_k % atom.depth:
        goes = f"but a fragment goes {atom.depth} deep in {spec.dtype}"
        yield f"block_k = {s.block_k}, {goes}: use block_k {atom.depth}, or a multiple of it"
    least = BLOCK_2D_LINE // spec.dtype.size
    if s.split_k > 1 and s.block_k < least:
        yield f"block_k = {s.block_k}, but parts of K are {least} deep at least with joint_matrix: use block_k {least}"
    # Fragments of a step of an instruction's depth.
    words = rows * cols + (rows // JOINT_MATRIX_LANES + cols) * atom.depth * spec.dtype.size // 4
    yield from fragment_problems(s, target, words, JOINT_MATRIX_LANES)


def _as_checked_loads_find_them(spec: GemmSpec) -> Iterator[str]:
    """Matrices that such loads take as they lie."""
    other = "another method"
    if spec.listed:
        yield f"listed matrices, but joint_matrix needs each address: use a constant stride (batched), or {other}"
    if spec.is_wide:
        yield f"matrices of 2^31 elements, but joint_matrix counts by 32 bits: leave --wide out, or use {other}"
    if spec.emulate:
        yield f"16-bit floats kept in integers, but joint_matrix multiplies floats: leave --emulate out, or use {other}"
    # Loads transpose a column-major B.
    orders = {"a": spec.a_order, "c": spec.c_order}
    if by_columns := [name for name, order in orders.items() if order == "col"]:
        named = ", ".join(by_columns)
        yield f"{named} in column-major order, but joint_matrix takes only B so: use row-major order, or {other}"
    for name in "ab":
        if (stored := spec.read(name, False)) != spec.dtype:
            yield f"{name}_dtype {stored}, but joint_matrix loads {name.upper()} as it is: use {spec.dtype}, or {other}"
        if spec.prologue(name) is not None:
            yield f"prologue_{name}, but joint_matrix loads {name.upper()} as it is: leave it out, or use {other}"
