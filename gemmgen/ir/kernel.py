"""A kernel and the program it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, replace

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


def together(program: Program) -> Kernel:
    """All kernels as one, to ask what a file with them holds: the first's head, every body, and every parameter."""
    first, *others = program.kernels
    params = dict.fromkeys(p for kernel in program.kernels for p in kernel.params)
    names: dict[str, Buffer | Var] = {}
    for param in params:
        names.setdefault(param.name, param)
    return replace(first, params=tuple(names.values()), body=(*first.body, *(s for k in others for s in k.body)))


@dataclass(frozen=True, slots=True)
class Program:
    """What runs for one request.

    Attributes:
        kernels: in the order in which they run.
        workspace: the global memory between them, if there is any.
    """

    kernels: tuple[Kernel, ...]
    workspace: Buffer | None = None

    @property
    def workspace_elements(self) -> Expr | None:
        """How many elements the workspace has, over the scalar parameters."""
        if self.workspace is None:
            return None
        return self.workspace.shape[0] * self.workspace.layout.strides[0]
