"""A kernel and the program it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.stmt import Body


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        name: identifier of the emitted function.
        params: its arguments in order: matrices (`Buffer`) and scalars (`Var`).
        body: what every work-item runs.
        group: work-items of a group (rows, columns); columns are dimension 0, the fastest.
        grid: groups along (rows, columns), as functions of the scalar parameters.
        sub_group: lanes of a sub-group that the kernel requires, or None.
        facts: expressions known to be >= 0 wherever the kernel runs: what guards are folded with.
        promises: conditions known to hold, such as `lda % 4 == 0`.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Body
    group: tuple[int, int]
    grid: tuple[Expr, Expr]
    sub_group: int | None = None
    facts: tuple[Expr, ...] = ()
    promises: tuple[Expr, ...] = ()

    @property
    def scalars(self) -> tuple[Var, ...]:
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def matrices(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))


@dataclass(frozen=True, slots=True)
class Program:
    """What runs for one request: kernels in order (one so far; packing and reductions come as more)."""

    kernels: tuple[Kernel, ...]
