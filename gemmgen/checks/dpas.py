"""What a target, and a product, have against matrix instructions of Intel's sub-groups."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.capacity import fragment_problems, whole_sub_groups
from gemmgen.checks.types import as_they_are, lacks, other_type
from gemmgen.ir.copy_instructions import BLOCK_2D_LINE
from gemmgen.ir.dtypes import F32, DType
from gemmgen.ir.instructions import (
    DPAS_LANES,
    DPAS_ROWS,
    DPAS_TYPES,
    JOINT_MATRIX_LANES,
    JOINT_MATRIX_ROWS,
    dpas,
    joint_matrix,
    of_elements,
)
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.schedule.dpas import BLOCK_2D_LANES
from gemmgen.spec import GemmSpec

#: Rows of a tile that one 2D block read brings.
BLOCK_2D_HEIGHTS = (8, 16, 32)


def matrix_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is dpas, each with a remedy."""
    # Larger registers mean nothing to another atom's mainloop.
    plain = "--set atom=fma --set large_grf=false" if s.large_grf else "atom fma"
    if spec.dtype not in DPAS_TYPES:
        yield other_type("atom dpas", DPAS_TYPES, spec, plain)
        return
    if spec.batched:
        yield f"atom dpas multiplies one product, not a batch: call it for each, or use {plain}"
    yield from as_they_are(spec, s)
    lanes = s.group[1]
    if lanes not in DPAS_LANES:
        yield f"group {s.group[0]}x{lanes}, but atom dpas has 8 lanes (Xe-HPG) or 16 (Xe-HPC): use group 1x8 or 1x16"
        return
    atom = dpas(spec.dtype, lanes)
    yield from lacks("atom dpas", atom.needs, target, "target intel, or atom fma")
    if target.sub_group_sizes and lanes not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"sub_group = {lanes} is not a size of target {target.name!r}: use one of {sizes}"
    if s.tile[0] % DPAS_ROWS:
        height = f"{DPAS_ROWS}, the rows of an instruction: use {DPAS_ROWS} or 32"
        yield f"the tile's {s.tile[0]} rows are no multiple of {height}"
    if s.group[0] != 1:
        yield f"group {s.group[0]}x{s.group[1]} is not one sub-group, which multiplies alone: use group 1x{lanes}"
    if s.block_k % atom.depth:
        goes = f"but an instruction goes {atom.depth} deep in {spec.dtype}"
        yield f"block_k = {s.block_k}, {goes}: use block_k {atom.depth}, or a multiple of it"
    words = s.tile[0] * s.tile[1] + s.tile[0] + DPAS_ROWS * s.tile[1]
    yield from fragment_problems(s, target, words, lanes)


def block_2d_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is dpas on 2D block reads, each with a remedy."""
    packed = "leave block_2d out, so that a kernel before packs A and B"
    if s.tf32 and spec.dtype != F32:
        yield f"tf32 is for float32, not {spec.dtype}: leave tf32 out"
    if spec.dtype not in DPAS_TYPES and not (s.tf32 and spec.dtype == F32):
        known = " or ".join(map(str, DPAS_TYPES))
        yield (
            f"atom dpas multiplies {known}, and float32 by tf32, not {spec.dtype}: use one of these types, or another "
            "method"
        )
        return
    yield from _as_they_lie(spec, "block_2d", packed)
    atom = of_elements(dpas(spec.dtype, BLOCK_2D_LANES))
    yield from lacks("atom dpas", atom.needs, target, "target xe_hpc, or atom fma")
    if target.sub_group_sizes and BLOCK_2D_LANES not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"block_2d takes sub-groups of {BLOCK_2D_LANES}, but target {target.name!r} has {sizes}: {packed}"
    rows, cols = s.tile
    if rows not in BLOCK_2D_HEIGHTS:
        known = ", ".join(map(str, BLOCK_2D_HEIGHTS))
        yield f"the tile's {rows} rows are not those of a 2D block read: use one of {known}"
    yield from whole_sub_groups(s, target, BLOCK_2D_LANES)
    step = atom.depth if s.block_k < 2 * atom.depth else 2 * atom.depth
    if s.block_k % step:
        goes = f"but an instruction goes {atom.depth} deep in {spec.dtype}, and a 2D block read twice as deep"
        yield f"block_k = {s.block_k}, {goes}: use block_k {2 * atom.depth}, or a multiple of it"
    elif spec.element("b").pairs and s.block_k < 2 * atom.depth:
        deep = 2 * atom.depth
        yield f"block_k = {s.block_k}, but 2D block reads of int4 go {deep} deep: use block_k {deep}"
    if s.address_payloads == "prefetches" and not s.prefetch_distance:
        yield "address_payloads prefetches, but there are none: use prefetch_distance 1, or address_payloads none"
    if s.block_writes:
        yield from _as_block_2d_writes_ask(spec, s, atom.sums)
    yield from _deep_enough(spec, s, "block_2d")
    # Fragments hold a sub-step of A and B.
    words = (
        rows * cols + 2 * (rows * atom.a.cols.values // atom.a.rows.lanes + cols * atom.depth) * spec.dtype.size // 4
    )
    yield from fragment_problems(s, target, words, BLOCK_2D_LANES)


def _as_block_2d_writes_ask(spec: GemmSpec, s: Schedule, sums: DType) -> Iterator[str]:
    """Sums that they store as they are."""
    plain = "leave block_writes out"
    if spec.result != sums:
        yield f"c_dtype {spec.result}, but block_writes stores sums as they are: use c_dtype {sums}, or {plain}"
    if spec.functions:
        yield f"an epilogue, but block_writes stores sums as they are: {plain}"
    if s.split_k > 1:
        yield f"split_k = {s.split_k}, but block_writes stores to C: use split_k 1, or {plain}"


def _deep_enough(spec: GemmSpec, s: Schedule, what: str) -> Iterator[str]:
    """Parts of K whose lines are as long as 2D block messages ask."""
    least = BLOCK_2D_LINE // spec.dtype.size
    if s.split_k > 1 and s.block_k < least:
        yield f"block_k = {s.block_k}, but parts of K are {least} deep at least with {what}: use block_k {least}"


def _as_they_lie(spec: GemmSpec, what: str, instead: str) -> Iterator[str]:
    """Matrices that 2D block reads, and loads of fragments, take as they are."""
    if spec.listed:
        yield f"listed matrices, but {what} needs the address of each: use a constant stride (batched), or {instead}"
    if spec.is_wide:
        yield f"matrices of 2^31 elements and more, but {what} counts by 32 bits: leave --wide out, or {instead}"
    # Both transpose a column-major B; of A's half words reads can't.
    if by_columns := [name for name in "ac" if spec.order(name) == "col"]:
        named = ", ".join(by_columns)
        yield f"{named} in column-major order, but {what} takes only B so: use row-major order, or {instead}"
    # In the place of 2D block reads, a kernel before packs what these do not take.
    packs = what == "block_2d"
    for name in "ab":
        stored, loads = spec.read(name, False), f"but {what} loads {name.upper()} {'to dpas ' if packs else ''}as it is"
        if stored != spec.dtype and not (stored.pairs and packs):
            yield f"{name}_dtype {stored}, {loads}: {'' if packs else f'use {spec.dtype}, or '}{instead}"
        if spec.prologue(name) is not None:
            yield f"prologue_{name}, {loads}: {'' if packs else 'leave it out, or '}{instead}"


def joint_matrix_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is joint_matrix, each with a remedy."""
    if spec.dtype not in JOINT_MATRIX_ROWS:
        yield other_type("atom joint_matrix", JOINT_MATRIX_ROWS, spec, "another method")
        return
    yield from _as_they_lie(spec, "joint_matrix", "use another method")
    if spec.emulate:
        yield (
            "16-bit floats kept in integers, but joint_matrix multiplies floats: leave --emulate out, or use another "
            "method"
        )
    atom = joint_matrix(spec.dtype)
    yield from lacks("atom joint_matrix", atom.needs, target, "--backend sycl --target xe_hpc, or atom dpas")
    if target.sub_group_sizes and JOINT_MATRIX_LANES not in target.sub_group_sizes:
        sizes = ", ".join(map(str, target.sub_group_sizes))
        yield f"joint_matrix has {JOINT_MATRIX_LANES} lanes, but target {target.name!r} has {sizes}: use atom dpas"
    rows, cols = s.tile
    if rows % atom.rows:
        fitting = -(-rows // atom.rows) * atom.rows
        yield f"the tile's {rows} rows are no multiple of {atom.rows}, those of a fragment: use tile {fitting}x{cols}"
    yield from whole_sub_groups(s, target, JOINT_MATRIX_LANES)
    if s.block_k % atom.depth:
        goes = f"but a fragment goes {atom.depth} deep in {spec.dtype}"
        yield f"block_k = {s.block_k}, {goes}: use block_k {atom.depth}, or a multiple of it"
    yield from _deep_enough(spec, s, "joint_matrix")
    # Fragments of a step of an instruction's depth.
    words = rows * cols + (rows // JOINT_MATRIX_LANES + cols) * atom.depth * spec.dtype.size // 4
    yield from fragment_problems(s, target, words, JOINT_MATRIX_LANES)
