"""What a product has against work-items that load their operands themselves: dot products of four, lanes along K."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.types import other_type
from gemmgen.ir.instructions import DP4A
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def dp4a_problems(spec: GemmSpec, s: Schedule, _: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom may be dp4a, each with a remedy."""
    if s.atom != DP4A.name:
        return
    if spec.dtype != DP4A.dtype:
        yield other_type("atom dp4a", (DP4A.dtype,), spec, "atom fma")
        return
    for name in "ab":
        if (made := spec.made(name)) != DP4A.dtype:
            yield f"{name}_dtype {made}, but atom dp4a takes {DP4A.dtype}: leave it out, or use atom fma"
    if s.block_k // s.sliced_k % DP4A.depth:
        steps = f"in {s.sliced_k} slices is not" if s.sliced_k > 1 else "is not"
        yield (
            f"block_k = {s.block_k} {steps} made of the {DP4A.depth} that atom dp4a multiplies at a time: use block_k "
            f"{DP4A.depth * s.sliced_k}, or a multiple of it"
        )
    for name, operand, along_k in (("a", s.a, spec.a_order == "row"), ("b", s.b, spec.b_order == "col")):
        if operand.memory == "global" and operand.width > 1 and not along_k:
            yield (
                f"{name}.width = {operand.width} loads neighbours along {'M' if name == 'a' else 'N'}, but atom dp4a "
                f"multiplies neighbours along K: use {name}.width 1, or {name}.memory local with lines along K"
            )
    if s.serpentine:
        yield "serpentine orders multiply-adds, not atom dp4a: drop it, or use atom fma"


def gemv_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with lanes that share elements of C, each with a remedy."""
    yield from dp4a_problems(spec, s, target)
    for name, number in (("lanes_along_k", s.lanes_along_k), ("tile's rows", s.tile[0]), ("tile's columns", s.tile[1])):
        if number & (number - 1):
            yield f"{name} = {number}, but lanes along K share out sums by halves: use a power of two"
    for axis, name in ((0, "rows"), (1, "columns")):
        if s.group[axis] > 1 and s.thread_vector[axis] != s.tile[axis]:
            whole = "x".join(str(s.tile[x] if s.group[x] > 1 else s.thread_vector[x]) for x in (0, 1))
            yield (
                f"thread_vector of {s.thread_vector[axis]} {name}, but lanes along K share out neighbours of a tile's "
                f"{s.tile[axis]}: use thread_vector {whole}"
            )
    round_ = _depth_of(spec, s) * s.lanes_along_k * s.sliced_k
    if s.block_k % round_:
        yield (
            f"block_k = {s.block_k} is not made of rounds of {round_}, which {s.lanes_along_k * s.sliced_k} work-items "
            f"load along K: use block_k {round_}, or a multiple of it"
        )


def _depth_of(spec: GemmSpec, s: Schedule) -> int:
    """Neighbours along K that a work-item loads at a time."""
    widths = ((s.a, s.read_order("a", spec.a_order) == "row"), (s.b, s.read_order("b", spec.b_order) == "col"))
    return max(4 if s.atom == "dp4a" else 1, *(operand.width if along else 1 for operand, along in widths))
