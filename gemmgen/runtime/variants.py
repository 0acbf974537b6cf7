"""The kernels of one request: one that takes any matrices, and twins for those that keep a promise unasked.

A kernel whose vectors need alignment asks `ld % 4 == 0` in its main loop, and whether a tile ends inside the matrix,
which costs 2 to 9 % (`benchmarks/NOTES.md`). A twin has the promise in its spec (`GemmSpec.ld_multiple`, `multiple_of`)
and no such question; else it is the same schedule. Which of them a call runs is chosen here and nowhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from math import lcm
from typing import cast

from gemmgen.runtime.arrays import Request, pitch_problems
from gemmgen.runtime.cuda_arrays import ALIGNMENT, GpuMatrix
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec


class Variants:
    """The sources of one spec and schedule for a target of CUDA. Safe to use from several threads.

    Args:
        emit: makes the source of a spec with that schedule; what it raises, `choose` does.
        exact: whether the spec's promises are meant as they stand, so that there is no twin.
        transposed: whether it is computed as C^T = B^T A^T, so that a tile's rows are columns of C.

    Attributes:
        general: the source for whatever the spec takes.
    """

    def __init__(
        self,
        spec: GemmSpec,
        schedule: Schedule,
        emit: Callable[[GemmSpec], Source],
        exact: bool = False,
        transposed: bool = False,
    ) -> None:
        self._emit = emit
        self.general = emit(spec)
        # Where no vector needs alignment, nothing is asked that a promise could answer.
        asks = not exact and spec.ld_multiple == 1 and self.general.alignment > spec.dtype.size
        #: The specs of the twins, the one that is promised most first.
        self.promised = promises(spec, schedule, transposed) if asks else ()
        self._twins: dict[GemmSpec, Source] = {}
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Source:
        """The source for a call: the first twin whose promise the matrices keep, or else the general one."""
        spec = next((spec for spec in self.promised if keeps_promise(request, spec)), None)
        return self.general if spec is None else self.twin(spec)

    def twin(self, spec: GemmSpec) -> Source:
        """The source with a promise; emitted when first asked for."""
        with self._lock:
            if spec not in self._twins:
                self._twins[spec] = self._emit(spec)
            return self._twins[spec]


def promises(spec: GemmSpec, schedule: Schedule, transposed: bool = False) -> tuple[GemmSpec, ...]:
    """What a spec could be promised besides: aligned lines and whole tiles, or aligned lines alone."""
    aligned = replace(spec, ld_multiple=ALIGNMENT // spec.dtype.size)
    if any(size is not None for size in (spec.m, spec.n, spec.k)):
        return (aligned,)
    rows, cols = schedule.block_tile[::-1] if transposed else schedule.block_tile
    units = (rows, cols, schedule.round_depth)
    whole = tuple(lcm(*pair) for pair in zip(spec.multiple_of, units, strict=True))
    return replace(aligned, multiple_of=(whole[0], whole[1], whole[2])), aligned


def keeps_promise(request: Request, spec: GemmSpec) -> bool:
    """Whether sizes, leading dimensions and addresses are what a twin needs; a c to be allocated is aligned."""
    if any(request.sizes[axis] % unit for axis, unit in zip("mnk", spec.multiple_of, strict=True) if unit > 1):
        return False
    name, output, view = request.output
    inputs = {x: request.inputs[x] for x in ("a", "b")}  # an epilogue's are read element by element
    if pitch_problems({**{x: v for x, (_, v) in inputs.items()}, name: view}, spec.ld_multiple):
        return False
    given = [matrix for matrix, _ in inputs.values()] + ([output] if output is not None else [])
    given += [matrix for matrices in request.lists.values() for matrix in matrices]
    return all(cast(GpuMatrix, matrix).pointer % ALIGNMENT == 0 for matrix in given)
