"""What a target, and a product, have against matrix instructions of AMD's wavefronts."""

from __future__ import annotations

from collections.abc import Iterator

from gemmgen.checks.types import as_they_are
from gemmgen.ir.instructions import MFMA_INSTRUCTIONS, matrix_instruction
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


def mfma_problems(spec: GemmSpec, s: Schedule, target: Target) -> Iterator[str]:
    """What is wrong with a schedule whose atom is mfma, each with a remedy."""
    atom = matrix_instruction("mfma", spec.dtype)
    if atom is None:
        known = ", ".join(str(x.dtype) for x in MFMA_INSTRUCTIONS)
        yield f"atom mfma multiplies {known}, not {spec.dtype}: use one of them, or atom fma"
        return
    if lacking := sorted(atom.needs - target.features):
        yield f"atom mfma, but target {target.name!r} lacks {', '.join(lacking)}: use target gfx942, or atom fma"
    yield from as_they_are(spec, s)
    if s.block_k % atom.depth:
        yield f"block_k = {s.block_k} is not made of steps of {atom.depth}: use block_k {atom.depth}"
