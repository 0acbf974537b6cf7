"""The schedules that the prior chooses from on a GPU of CUDA, all of K in one part."""

from __future__ import annotations

from functools import lru_cache

from gemmgen.choice.designs import named
from gemmgen.choice.warpgroups import blocks_of, built, kinds
from gemmgen.ir.target import Target
from gemmgen.schedule import Schedule
from gemmgen.spec import GemmSpec


@lru_cache(maxsize=64)
def of_target(spec: GemmSpec, target: Target) -> tuple[Schedule, ...]:
    """All that a device may have for such a product as it is asked for, each once. Single ones may yet be refused."""
    blocks = ((kind, x) for kind, narrow in kinds(spec, target) for x in blocks_of(kind, narrow))
    return (*(built(kind, x) for kind, x in blocks), *named(spec, target))
