"""What a target, and a product, have against vectors of a CPU."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.capacity import halved
from gemmgen.ir.checker import listed
from gemmgen.ir.dtypes import FLOAT8
from gemmgen.ir.target import FEATURES, Target
from gemmgen.schedule import Schedule, text_of
from gemmgen.spec import GemmSpec

#: Steps of K from one row of C that is prefetched to the next.
PREFETCH_STEPS = 64
#: Elements that a vector can have.
WIDTHS = (2, 4, 8, 16)
#: A depth of a block of K that will do, for messages.
BLOCK = 256


def vector_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule that has vectors, each with a remedy."""
    if spec.dtype.real is not None or spec.dtype in FLOAT8:
        yield f"vectors hold no {spec.dtype}: use dtype float32, or method slm"
        return
    if "vectors" not in target.features:
        yield (
            f"vector = {s.vector}, but target {target.name!r} has none ({FEATURES['vectors']}): use --target cpu, "
            f"or method slm"
        )
    elif s.vector not in WIDTHS:
        yield f"vector = {s.vector} is no vector of OpenCL C: use one of {', '.join(map(str, WIDTHS))}"
    elif (width := s.vector * spec.accumulator.size) > target.vector_bytes:
        fits = target.vector_bytes // spec.accumulator.size
        yield (
            f"vector = {s.vector} of {spec.accumulator} is {width} B > {target.vector_bytes} B on target "
            f"{target.name!r}: use vector {fits}"
        )
    if s.tile[1] % s.vector and not s.dot_product:
        yield (
            f"the tile's {s.tile[1]} columns are no whole vectors of {s.vector}: use {s.vector} or {4 * s.vector}, or "
            f"dot_product = true, for vectors along K"
        )
    yield from _types(spec, s, target)
    yield from _as_they_are(spec)
    if spec.names_c and s.kc and s.split_k == 1:
        reads = next(function.short for function in spec.functions if "c" in function.names)
        yield (
            f"{reads} in the epilogue reads the old C, but C stores partial sums between blocks of K: set "
            f"{_whole_k(s)}split_k = 2, or use method slm"
        )
    if s.group != (1, 1):
        yield (
            f"group {text_of(s.group)}, but a work-item with vectors is alone on its core: use group 1x1, and "
            "macro_kernel"
        )
    if s.dot_product and spec.a_order == "col":
        yield (
            "A is column-major, but dot_product takes neighbours along K: use a schedule whose vectors lie along N, "
            "such "
            "as --preset cpu_6x64_copied, or pass a copy of A by rows"
        )
    yield from _loop(spec, s, target)
    yield from _private(spec, s, target)
    yield from _registers(spec, s, target)


def _types(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What vectors can't hold, or C can't."""
    # Where a target has no vectors at all, that is the problem.
    if spec.dtype != spec.accumulator and "converted_vectors" not in target.features and "vectors" in target.features:
        yield (
            f"dtype {spec.dtype}, but target {target.name!r} has no vectors of it ({FEATURES['converted_vectors']}): "
            "use backend opencl, or method slm"
        )
    elif spec.dtype.needs is not None and spec.dtype.needs not in target.features:
        yield f"dtype {spec.dtype}, but target {target.name!r} has no {FEATURES[spec.dtype.needs]}: use dtype float32"
    if rounds_sums(spec) and s.kc and s.split_k == 1:
        yield (
            f"c_dtype {spec.result} would round the sums that C stores between blocks of K: set {_whole_k(s)}"
            f"split_k = 2, or use c_dtype {spec.accumulator}"
        )


def _whole_k(s: Schedule) -> str:
    """The remedy of a single block of K, but where B's blocks are copied, which need a depth."""
    return "" if s.b.memory == "private" else "kc = 0, or "


def rounds_sums(spec: GemmSpec) -> bool:
    """Whether C has fewer digits than the sums of a product, which it therefore can't keep for later."""
    return spec.result.size < spec.accumulator.size


def _as_they_are(spec: GemmSpec) -> Iterator[str]:
    """What elements go through before they are multiplied."""
    for name in "ab":
        if (stored := spec.element(name)) != spec.dtype:
            yield f"{name}_dtype {stored}, but vectors take A and B as they are: use method slm, or leave it out"
        if spec.prologue(name) is not None:
            yield f"prologue_{name}, but vectors take A and B as they are: use method slm, or naive"


def block_bytes(spec: GemmSpec, s: Schedule) -> int:
    """Bytes of the block of B that a work-item copies."""
    if s.b.memory != "private":
        return 0
    if s.fused_copy:
        return s.kc * s.tile[1] * spec.accumulator.size
    return (s.kc + s.b_prefetch) * s.macro_kernel[1] * s.tile[1] * spec.accumulator.size


def _private(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """Where B comes from."""
    if s.b.memory == "global":
        copied = "set b.memory = 'private', which transposes it" + ("" if s.kc else f", and kc = {BLOCK}")
        if s.mc and not s.dot_product:
            yield (
                f"mc = {s.mc} is for a copy of B, which serves many rows: set b.memory = 'private', or use "
                f"macro_kernel {s.mc}x{s.macro_kernel[1]}, whose work-items have so many rows"
            )
        if s.dot_product and spec.b_order == "row":
            yield f"B is row-major, but dot_product takes neighbours along K: {copied}"
        elif spec.b_order == "col" and not s.dot_product:
            yield f"B is column-major, but vectors are of neighbouring columns: {copied}"
        return
    if "cached_private" not in target.features:
        yield f"b.memory = 'private', but target {target.name!r} has no caches for it: use --target cpu, or 'global'"
        return
    if not s.kc:
        yield f"b.memory = 'private' copies blocks of B, but kc = 0 gives no depth: use kc {BLOCK}, say"
    elif s.dot_product and s.kc % s.vector:
        yield f"kc = {s.kc} is no multiple of vector = {s.vector}, as dot_product needs: use one"
    elif (used := block_bytes(spec, s)) > target.private_bytes:
        across = 1 if s.fused_copy else s.macro_kernel[1]
        shallower = f"kc {s.kc // 2} instead of {s.kc}, or " if s.kc > 1 else ""
        yield (
            f"the block of B, {s.kc} x {across * s.tile[1]}, takes {used:,} B > {target.private_bytes:,} B of a "
            f"thread's stack on this target: use {shallower}a smaller macro_kernel"
        )


def _loop(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What the loop over K does beside the sum, and how."""
    given = [("block_k", s.block_k > 1), ("c_prefetch", s.c_prefetch)]
    ahead = [("b_prefetch", s.b_prefetch), ("c_prefetch", s.c_prefetch)]
    if s.b_prefetch and s.dot_product:
        yield "b_prefetch is for lines of B that are a step each, but dot_product reads along K: leave it out"
    if (names := [name for name, there in given if there]) and (s.dot_product or s.b.memory != "private"):
        are = "is" if len(names) == 1 else "are"
        yield f"{listed(names)} {are} for a copy of B by vectors of columns: set b.memory = 'private', or leave it out"
    elif s.block_k > 1 and s.kc % s.block_k:
        yield f"kc = {s.kc} is no whole iterations of block_k {s.block_k}: use a multiple of it"
    if s.fused_copy:
        yield from _fused(spec, s)
    if (names := [name for name, there in ahead if there]) and "cache_prefetch" not in target.features:
        yield (
            f"{listed(names)}, but target {target.name!r} has none ({FEATURES['cache_prefetch']}): leave it out, or "
            f"use backend opencl and target cpu"
        )
    if s.c_prefetch and s.block_k > 1 and PREFETCH_STEPS % s.block_k:
        yield f"c_prefetch prefetches a row of C in {PREFETCH_STEPS} steps, no multiple of block_k {s.block_k}: use 4"
    if s.c_prefetch and spec.c_order == "col" and s.split_k == 1:
        yield "c_prefetch prefetches rows of C, but C is column-major: leave it out"


def _fused(spec: GemmSpec, s: Schedule) -> Iterator[str]:
    """What is in the way of a first tile that copies the lines of B that it multiplies by."""
    if s.dot_product or s.b.memory != "private":
        yield "fused_copy is for a copy of B by vectors of columns: set b.memory = 'private', or leave it out"
    if spec.b_order == "col":
        yield "fused_copy copies lines of B as they are multiplied, but B is column-major: leave it out"
    apart = [("mc", s.mc > 0), ("block_k", s.block_k > 1), ("c_prefetch", s.c_prefetch)]
    if names := [name for name, there in apart if there]:
        yield f"fused_copy has one panel of B at a time, read step by step: leave out {listed(names)}"


def _registers(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """C and a line of B; elements of A are read where they are used. Along K, a vector for each of C and of B, and one
    of A.
    """

    def used(rows: int, cols: int) -> int:
        elements = (rows * cols + cols + 1) * s.vector if s.dot_product else (rows + 1) * cols
        return elements * spec.accumulator.size

    most = target.register_bytes
    if (found := used(*s.tile)) > most:
        unit = 1 if s.dot_product else s.vector
        smaller = halved(s.tile, lambda tile: used(*tile) <= most and tile[1] % unit == 0)
        yield f"registers {found:,} B per work-item > {most:,} B on this target: use a smaller tile, such as {smaller}"
