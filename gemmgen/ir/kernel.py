"""A kernel and the program it belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.stmt import Body
from gemmgen.ir.workspace import Workspace


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
        layers: how many such grids there are, dimension 2 of the launch; None for one, without that dimension.
        persistent: whether fewer groups than `grid` says will do, as each goes on until all of C is done: as many are
            launched as a device runs at once.
        cluster: how many groups next to each other run together and copy for one another.
        swapped: whether it computes C^T = B^T A^T, and its names are those of that: C^T's rows, and so on.
        large_registers: whether it is compiled for twice as many registers a thread, and half as many threads.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Body
    group: tuple[int, int]
    grid: tuple[Expr, Expr]
    sub_group: int | None = None
    facts: tuple[Expr, ...] = ()
    promises: tuple[Expr, ...] = ()
    layers: Var | None = None
    persistent: bool = False
    cluster: int = 1
    swapped: bool = False
    large_registers: bool = False

    @property
    def scalars(self) -> tuple[Var, ...]:
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def matrices(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def given(self) -> tuple[Buffer | Var, ...]:
        """The arguments that a caller gives: no matrices whose addresses are given instead."""
        listed = {p.addresses.name for p in self.matrices if p.addresses is not None}
        return tuple(p for p in self.params if p.name not in listed)

    @property
    def launch_params(self) -> tuple[Buffer | Var, ...]:
        """What its launch depends on: the arguments, and how many layers there are."""
        return self.params if self.layers is None else (*self.params, self.layers)

    @property
    def launcher_params(self) -> tuple[Buffer | Var, ...]:
        """What a caller gives for a launch."""
        return self.given if self.layers is None else (*self.given, self.layers)

    @property
    def lays_out(self) -> bool:
        """Whether all that it does is to lay out A and B for the kernel that multiplies them."""
        written = [p for p in self.matrices if p.writable]
        return bool(written) and all(p.is_packed for p in written)

    @property
    def extents(self) -> tuple[Var, ...]:
        """Of those, the integers that must not be zero for anything to be there to do."""
        named = ("m", "n", "rows", "cols", "batch_count")
        return tuple(p for p in self.launch_params if isinstance(p, Var) and p.name in named)


#: How parameters follow each other; others come after them.
_ORDER = (
    *("rows", "cols", "m", "n", "k", "alpha", "a", "a_list", "lda", "stride_a", "b", "b_list", "ldb", "stride_b"),
    *("a_packed", "b_packed", "workspace", "beta", "c", "c_list", "ldc", "stride_c"),
)


def together(program: Program) -> Kernel:
    """All kernels as one, to ask what a file with them holds: the main one's head, every body, and every parameter."""
    others = [kernel for kernel in program.kernels if kernel is not program.main]
    names: dict[str, Buffer | Var] = {}
    for kernel in program.kernels:
        for param in kernel.params:
            known = names.get(param.name, param)
            if isinstance(known, Buffer) and isinstance(param, Buffer):
                # What one kernel reads, in boxes it may be, another has written.
                param = replace(param if param.writable else known, box=known.box or param.box)
            names[param.name] = param
    body = (*program.main.body, *(stmt for kernel in others for stmt in kernel.body))
    return replace(program.main, params=in_order(names.values()), body=body)


def in_order(params: Iterable[Buffer | Var]) -> tuple[Buffer | Var, ...]:
    """Parameters as they follow each other."""
    return tuple(sorted(params, key=lambda p: _ORDER.index(p.name) if p.name in _ORDER else len(_ORDER)))


@dataclass(frozen=True, slots=True)
class Program:
    """What runs for one request.

    Attributes:
        kernels: in the order in which they run.
        workspaces: the global memory that one passes on to another.
    """

    kernels: tuple[Kernel, ...]
    workspaces: tuple[Workspace, ...] = ()

    @property
    def main(self) -> Kernel:
        """The one that the product is computed by: the others' names begin with its name."""
        return min(self.kernels, key=lambda kernel: len(kernel.name))

    @property
    def name(self) -> str:
        """What the file and its launcher go by."""
        return self.main.name
