"""Refuse element types that a target lacks or an instruction can't move, and vectors that stand where none may."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from gemmgen.ir.copy_instructions import ASYNC_COPY
from gemmgen.ir.dtypes import F16, F32, FLOAT8, I8, DType
from gemmgen.ir.target import FEATURES, TARGETS, Target
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec, Order

#: Elements of the longest vector.
MOST_PARTS = 16


def type_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with the spec's types, each with a remedy."""
    for dtype in dict.fromkeys((spec.dtype, spec.element("a"), spec.element("b"))):
        if not (spec.emulate and dtype == F16):
            yield from lacking(dtype, target)
    if spec.dtype in FLOAT8 and not s.by_warps and s.lanes_along_k == 1:
        alone = f"dtype {spec.dtype}, which matrix instructions alone multiply"
        yield f"{alone}: use --method mma_f8 or wgmma_f8 (no preset)"
    for name, operand, order in (("a", s.a, spec.a_order), ("b", s.b, spec.b_order)):
        stored = spec.element(name)
        if stored != spec.dtype and (s.a.block_read or s.b.block_read or operand.shuffle):
            yield (
                f"{name}_dtype {stored} is converted by single work-items, not in block reads: "
                "use --method slm (no preset)"
            )
        if operand.memory == "image" and spec.dtype != F32:
            (rows, cols), (high, wide) = s.tile, s.group
            yield (
                f"{name}.memory = 'image', whose pixels are float32, but dtype is {spec.dtype}: read a buffer, by "
                f"--method simd --tile {rows}x{cols} --group {high}x{wide} (no preset)"
            )
        # Of rings filled by TMA there is nothing to be set of it.
        if operand.async_copy and not s.tma:
            yield from _async(name, operand, order, spec, s.by_warps)
        if operand.shuffle and spec.dtype.real is not None:
            (rows, cols), (high, wide) = s.tile, s.group
            yield (
                f"{name}.shuffle passes registers of real numbers around, but dtype is {spec.dtype}: use local memory, "
                f"by --method slm --tile {rows}x{cols} --group {high}x{wide} (no preset)"
            )
    if spec.dtype.real is not None and "unaligned_vectors" in target.features:
        yield from _long_vectors(s)
    if s.atomic and spec.result != F32:
        yield f"atomic adds float32 to C, which is {spec.result}: drop it, and a second kernel adds up the parts"


def int4_problems(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """Elements of int4 that are multiplied by int8 as they are stored, in a kernel that can't."""
    for name in "ab":
        if not (stored := spec.element(name)).pairs or spec.dtype != I8:
            continue
        if name == "a":
            yield f"a_dtype {stored} by dtype {spec.dtype}, but dpas takes {stored} as B alone: use dtype float32"
        elif not s.block_2d:
            yield (
                f"b_dtype {stored} by dtype {spec.dtype}, which dpas on 2D block reads alone multiplies: use --method "
                "dpas --set block_2d=true with --target xe_hpc, or dtype float32"
            )


def _long_vectors(s: Schedule) -> Iterator[str]:
    """Vectors of OpenCL C have 16 parts, and complex numbers two each."""
    for name, width in (("a.width", s.a.width), ("b.width", s.b.width), ("c_width", s.c_width)):
        if 2 * width > MOST_PARTS:
            yield f"{name} = {width} complex numbers are more than a vector's {MOST_PARTS} real ones: use 8"


def other_type(what: str, known: Iterable[DType], spec: GemmSpec, instead: str) -> str:
    """That something multiplies these types, not the product's."""
    types = " or ".join(map(str, known))
    return f"{what} multiplies {types}, not {spec.dtype}: use dtype {types}, or {instead}"


def lacks(what: str, needs: Collection[str], target: Target, remedy: str) -> Iterator[str]:
    """That a target has not all features that something needs."""
    if lacking := sorted({*needs} - target.features):
        yield f"{what}, but target {target.name!r} lacks {', '.join(lacking)}: use {remedy}"


def lacking(dtype: DType, target: Target) -> Iterator[str]:
    """That a target has no such type."""
    if dtype.needs is not None and dtype.needs not in target.features:
        others = [name for name, other in TARGETS.items() if dtype.needs in other.features]
        having = f"use target {' or '.join(others[:2])}, " if target.name in TARGETS else "use another device, "
        having += "keep it in integers (--emulate, or GemmSpec(emulate=True)), " if dtype == F16 else ""
        yield f"dtype {dtype}, but target {target.name!r} has no {FEATURES[dtype.needs]}: {having}or dtype float32"


def _async(name: str, operand: Operand, order: Order, spec: GemmSpec, by_warps: bool) -> Iterator[str]:
    """Where a line's start is not known to be aligned, or lines become columns, elements are copied one by one; where
    warps multiply, by way of registers then.
    """
    dtype = spec.read(name, operand.prepacked)
    size = dtype.size
    if ASYNC_COPY.moves(1, size) or by_warps:
        return
    listed = ", ".join(map(str, ASYNC_COPY.bytes))
    whole = f"{name}.async_copy moves {listed} bytes at a time"
    if operand.transposed != (order == "col"):
        yield f"{whole}, but a transposed tile takes {dtype} one by one: set {name}.transposed the other way"
    elif not ASYNC_COPY.moves(operand.width, size):
        yield f"{whole}, not {operand.width} of {dtype}: use {name}.width {max(ASYNC_COPY.bytes) // size}"
    elif spec.ld_unit(name) % operand.width:
        yield (
            f"{whole}, and lines that begin anywhere take {dtype} one by one: pass --ld-multiple "
            f"{operand.width}, or use a schedule without async_copy"
        )


def alignment_problems(s: Schedule, target: Target) -> Iterator[str]:
    """Vectors that must stand on multiples of their size."""
    if "unaligned_vectors" in target.features:
        return
    for name, o in (("a", s.a), ("b", s.b)):
        if o.memory == "local" and o.pad % max(2, o.width):
            unit = max(2, o.width)
            yield (
                f"{name}.pad = {o.pad} breaks the alignment of vectors in local memory: use {name}.pad "
                f"{-(-o.pad // unit) * unit}, or another multiple of {unit}"
            )


def as_they_are(spec: GemmSpec, s: Schedule, but: Collection[str] = ()) -> Iterator[str]:
    """Instructions take what memory holds, `but` for what passes through registers."""
    for name, operand in (("a", s.a), ("b", s.b)):
        if name not in but and (stored := spec.read(name, operand.prepacked or s.atom == "dpas")) != spec.dtype:
            yield f"{name}_dtype {stored}, but atom {s.atom} takes A and B as they are: use atom fma, or leave it out"
