"""The kernels of one request: one that takes any matrices, and a twin for those that vectors reach unasked.

A kernel whose vectors need alignment asks `ld % 4 == 0` in its main loop, which costs 3 to 9 % (`benchmarks/NOTES.md`).
The twin has the promise in its spec (`GemmSpec.ld_multiple`) and no such question; else it is the same schedule. Which
of the two a call runs is chosen here and nowhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from gemmgen.driver import emit
from gemmgen.ir.target import Target
from gemmgen.runtime.arrays import Request, pitch_problems
from gemmgen.runtime.cuda_arrays import GpuMatrix
from gemmgen.schedule import Schedule
from gemmgen.source import Source
from gemmgen.spec import GemmSpec

#: What the twin is promised: leading dimensions in elements, and the first element's address in bytes.
LD_MULTIPLE = 4
ALIGNMENT = 16


class Variants:
    """The sources of one spec and schedule for a target of CUDA. Safe to use from several threads.

    Args:
        exact: whether the spec's `ld_multiple` is meant as it stands, so that there is no twin.
        admit: looks at each source before it is used, and raises where it is not to be.

    Attributes:
        general: the source for whatever the spec takes.
    """

    def __init__(
        self,
        spec: GemmSpec,
        schedule: Schedule,
        target: Target,
        exact: bool = False,
        admit: Callable[[Source], object] = lambda _: None,
    ) -> None:
        self._spec, self._schedule, self._target, self._admit = spec, schedule, target, admit
        self.general = self._emit(spec)
        # Where no vector needs alignment, nothing is asked that a promise could answer.
        self.has_twin = not exact and spec.ld_multiple == 1 and self.general.alignment > spec.dtype.size
        self._twin: Source | None = None
        self._lock = threading.Lock()

    def choose(self, request: Request) -> Source:
        """The source for a call: the twin if every matrix keeps the promise, else the general one."""
        return self.twin() if self.has_twin and keeps_promise(request) else self.general

    def twin(self) -> Source:
        """The source with the promise; emitted when first asked for."""
        with self._lock:
            if self._twin is None:
                self._twin = self._emit(replace(self._spec, ld_multiple=LD_MULTIPLE))
            return self._twin

    def _emit(self, spec: GemmSpec) -> Source:
        source = emit(spec, self._schedule, "cuda", self._target)
        self._admit(source)
        return source


def keeps_promise(request: Request) -> bool:
    """Whether leading dimensions and addresses are what the twin's vectors need; a c to be allocated is aligned."""
    name, output, view = request.output
    if pitch_problems({**{x: v for x, (_, v) in request.inputs.items()}, name: view}, LD_MULTIPLE):
        return False
    given = [matrix for matrix, _ in request.inputs.values()] + ([output] if output is not None else [])
    return all(cast(GpuMatrix, matrix).pointer % ALIGNMENT == 0 for matrix in given)
