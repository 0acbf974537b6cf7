"""What a product has against dot products of four neighbours along K by a work-item."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.ir.instructions import DP4A
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def dp4a_problems(spec: GemmSpec, s: Schedule, _: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom may be dp4a, each with a remedy."""
    if s.atom != DP4A.name:
        return
    if spec.dtype != DP4A.dtype:
        yield f"atom dp4a multiplies {DP4A.dtype}, not {spec.dtype}: use dtype {DP4A.dtype}, or atom fma"
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
