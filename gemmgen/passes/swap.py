"""C = A B as C^T = B^T A^T: a kernel that computes the transpose, from its plan on, and whose names are C's in the end.

A schedule that reads and writes rows takes a column-major product so. Instructions of warpgroups have 64 rows of sums
and few columns, if need be; of a C with few rows they have no more than those where they take B^T for A and A^T for B.
A product is turned before it is planned, and so all that is built is right as it is, but for names: what is called a
row is a column of C. The last pass exchanges them.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import Kernel, Program, in_order
from gemmgen.ir.workspace import Workspace
from gemmgen.names import transposed
from gemmgen.schedule import Operand, Schedule
from gemmgen.spec import GemmSpec

_Part = TypeVar("_Part")
#: What the epilogue takes is named as C has it, whichever way its elements are computed.
_OF_C = frozenset(name for name, operand in OPERANDS.items() if operand.of == "c")
#: So is what its functions have made of an element. Sums in local memory have the rows of the tile that they lie in.
_KEPT = ("after_", "sum_", "sums_")


def turned(spec: GemmSpec, schedule: Schedule) -> tuple[GemmSpec, Schedule]:
    """The same product as that of C^T.

    Its operands have their final elements: the kernel that packs them converts stored types and applies prologues. Only
    B from registers (RS) is converted here, and its prologue applied, unless packing has applied it.
    """
    made_here = schedule.b.memory == "private" and not (schedule.b.packed and spec.prologue_b is not None)
    spec = spec.transposed()
    spec = replace(spec, b_dtype=None, prologue_b=None)
    spec = spec if made_here else replace(spec, a_dtype=None, prologue_a=None)
    (rows, cols), (high, wide), (down, across) = schedule.tile, schedule.group, schedule.run
    a, b = _turned(schedule.b), _turned(schedule.a)
    turns = replace(schedule, tile=(cols, rows), group=(wide, high), run=(across, down), a=a, b=b)
    return spec, replace(turns, cluster=schedule.cluster[::-1])


def _turned(operand: Operand) -> Operand:
    return replace(operand, transposed=not operand.transposed)


def of_transpose(program: Program) -> Program:
    """The kernels of C^T = B^T A^T, by rows of C^T, as those of C."""
    kernels = tuple(replace(kernel, swapped=not kernel.swapped) for kernel in program.kernels)
    return replace(program, kernels=kernels, workspaces=_renamed(program.workspaces))


def swap(kernel: Kernel) -> Kernel:
    """A kernel of C^T in C's words."""
    if not kernel.swapped:
        return kernel
    kernel = replace(
        kernel,
        params=_renamed(kernel.params),
        body=_renamed(kernel.body),
        grid=_renamed(kernel.grid),
        facts=_renamed(kernel.facts),
        promises=_renamed(kernel.promises),
        swapped=False,
    )
    return replace(kernel, params=in_order(kernel.params))


def _renamed(part: _Part) -> _Part:
    """Whatever part of a kernel it is, with the names of variables and buffers exchanged."""
    return cast(_Part, _exchanged(part))


def _exchanged(node: object) -> object:
    if isinstance(node, tuple):
        return tuple(map(_exchanged, node))
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {item.name: getattr(node, item.name) for item in fields(node)}
    changed = {name: new for name, part in parts.items() if (new := _exchanged(part)) is not part}
    if isinstance(node, Var | Buffer | Workspace) and (name := _name(node.name)) != node.name:
        changed["name"] = name
    return replace(node, **changed) if changed else node


def _name(name: str) -> str:
    return name if name in _OF_C or name.startswith(_KEPT) else transposed(name)
