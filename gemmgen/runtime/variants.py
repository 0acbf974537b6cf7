"""The variants of one CUDA kernel: a general one for any matrices, and variants with assumptions and fewer guards.

A kernel whose vectors need alignment has guards in its main loop: `ld % 4 == 0`, and whether a tile ends inside the
matrix. They cost 2 to 9 % (`docs/notebook/float32.md`). A variant has the assumption in its spec
(`GemmSpec.ld_multiple`, `multiple_of`) and no such guards; the schedule is the same. Only this module chooses the
variant for a call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, cast

from gemmgen.runtime.arrays import Request
from gemmgen.runtime.cuda_arrays import ALIGNMENT
from gemmgen.runtime.views import DeviceMatrix
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

if TYPE_CHECKING:
    from gemmgen.schedule import Schedule


class Variants:
    """The sources of one spec and schedule for a CUDA target. Safe to use from several threads.

    Args:
        general: the source for any matrices of the spec.
        assuming: the specs of the variants, the one with the strongest assumptions first.
        emit: makes the source of a spec with that schedule. `choose` raises what it raises.
    """

    def __init__(self, general: Source, assuming: tuple[GemmSpec, ...], emit: Callable[[GemmSpec], Source]) -> None:
        self.general, self.assuming, self._emit = general, assuming, emit
        self._twins: dict[GemmSpec, Source] = {general.spec: general}
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Source:
        """The source for a call: the first variant whose assumptions hold for the matrices, or else the general one."""
        return self.twin(self.spec_for(request))

    def spec_for(self, request: Request) -> GemmSpec:
        """The spec of that source, which need not be emitted yet."""
        return next((spec for spec in self.assuming if meets_assumptions(request, spec)), self.general.spec)

    def twin(self, spec: GemmSpec) -> Source:
        """The source of a variant, emitted at its first use."""
        if (known := self._twins.get(spec)) is not None:  # another one may be emitted at the moment
            return known
        with self._lock:
            if spec not in self._twins:
                self._twins[spec] = self._emit(spec)
            return self._twins[spec]


def variants_of(
    general: Source, schedule: Schedule, exact: bool = False, transposed: bool = False
) -> tuple[GemmSpec, ...]:
    """The specs of the variants of a source; none if no vector needs alignment, so that no assumption helps.

    Args:
        exact: whether the spec's assumptions are final, so that there are no variants.
        transposed: whether C^T = B^T A^T is computed, so that a tile's rows are columns of C.
    """
    spec = general.spec
    asks = not exact and spec.ld_multiple == 1 and general.alignment > spec.dtype.size
    return more_assumptions(spec, schedule, transposed) if asks else ()


def more_assumptions(spec: GemmSpec, schedule: Schedule, transposed: bool = False) -> tuple[GemmSpec, ...]:
    """Specs with more assumptions: aligned lines and whole tiles, or aligned lines only."""
    unit, of_c = ALIGNMENT // spec.dtype.size, max(1, ALIGNMENT // spec.result.size)
    # C may be of wider elements than A and B, of which fewer are a vector.
    aligned = replace(spec, ld_multiple=unit if of_c >= unit else (unit, unit, of_c))
    if any(size is not None for size in (spec.m, spec.n, spec.k)):
        return (aligned,)
    rows, cols = schedule.block_tile[::-1] if transposed else schedule.block_tile
    units = (rows, cols, schedule.round_depth)
    pairs = zip("mnk", spec.multiple_of, units, strict=True)
    whole = tuple(1 if axis == spec.ragged else lcm(*pair) for axis, *pair in pairs)
    return replace(aligned, multiple_of=(whole[0], whole[1], whole[2])), aligned


def meets_assumptions(request: Request, spec: GemmSpec) -> bool:
    """Whether sizes, leading dimensions and addresses meet a variant's assumptions. A c to be allocated is aligned."""
    if any(request.sizes[axis] % unit for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1):
        return False
    name, output, view = request.output
    inputs = {x: request.inputs[x] for x in ("a", "b")}  # arrays of an epilogue are read element by element
    views = {**{x: v for x, (_, v) in inputs.items()}, name: view}
    if not all(replace(v, unit=spec.ld_unit(x)).meets_assumptions for x, v in views.items()):
        return False
    given = [matrix for matrix, _ in inputs.values()] + ([output] if output is not None else [])
    given += [matrix for matrices in request.lists.values() for matrix in matrices]
    return all(cast(DeviceMatrix, matrix).pointer % ALIGNMENT == 0 for matrix in given)
