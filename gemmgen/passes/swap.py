"""C = A B as C^T = B^T A^T: a kernel that computes the transpose, from its plan on, and whose names are C's in the end.

A schedule that reads and writes rows takes a column-major product so. Instructions of warpgroups have 64 rows of sums
and few columns, if need be; of a C with few rows they have no more than those where they take B^T for A and A^T for B.
A product is transposed before it is planned, so that the kernel is right as built, but for names: what is called a
row is a column of C. The last pass exchanges them.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from gemmgen.epilogue import OPERANDS
from gemmgen.ir.buffer import Buffer
from gemmgen.ir.constants import TRANSPOSED as TRANSPOSED_CONSTANTS
from gemmgen.ir.constants import Named
from gemmgen.ir.expr import Var
from gemmgen.ir.kernel import Kernel, Program, in_order
from gemmgen.ir.sizes import Workspace
from gemmgen.names import transposed

_Part = TypeVar("_Part")
#: What the epilogue takes is named as C has it, whichever way its elements are computed.
_OF_C = frozenset(name for name, operand in OPERANDS.items() if operand.of == "c")
#: So is what its functions have made of an element. Sums in local memory have the rows of the tile that they lie in.
_KEPT = ("after_", "sum_", "sums_")


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
        group=_renamed(kernel.group),
        nonnegative=_renamed(kernel.nonnegative),
        assumptions=_renamed(kernel.assumptions),
        multiples=_renamed(kernel.multiples),
        limits=_renamed(kernel.limits),
        swapped=False,
    )
    return replace(kernel, params=in_order(kernel.params))


def _renamed(part: _Part) -> _Part:
    """Whatever part of a kernel it is, with the names of variables and buffers exchanged."""
    return cast(_Part, _exchanged(part))


def _exchanged(node: object) -> object:
    if isinstance(node, tuple):
        return tuple(map(_exchanged, node))
    if isinstance(node, Named):
        return node.renamed(TRANSPOSED_CONSTANTS)
    if not is_dataclass(node) or isinstance(node, type):
        return node
    parts = {item.name: getattr(node, item.name) for item in fields(node)}
    changed = {name: new for name, part in parts.items() if (new := _exchanged(part)) is not part}
    if isinstance(node, Var | Buffer | Workspace) and (name := _name(node.name)) != node.name:
        changed["name"] = name
    return replace(node, **changed) if changed else node


def _name(name: str) -> str:
    return name if name in _OF_C or name.startswith(_KEPT) else transposed(name)
