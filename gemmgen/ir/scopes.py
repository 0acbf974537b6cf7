"""What is visible at a place of a kernel, for the verifier."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Call, Expr, Load, Var
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Body, For, If, Let
from gemmgen.ir.walk import walk_expr

#: Calls whose value differs between the work-items of a group.
_VARYING = frozenset({"local_id", "lane_id", "shuffle_xor", "broadcast"})


@dataclass(slots=True)
class Scope:
    """What is visible at a place.

    Attributes:
        variables: names -> type.
        buffers: names -> the declaration.
        varying: variables that differ between the work-items of a group.
        divergent: whether work-items of a group may part ways before they get here.
        role: whether this is a side of an `If` of roles.
    """

    variables: dict[str, DType] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    varying: set[str] = field(default_factory=set)
    divergent: bool = False
    role: bool = False

    def inner(self, divergent: bool = False, role: bool = False) -> Scope:
        """A block inside: what it adds ends with it."""
        parts = self.divergent or divergent
        return Scope(dict(self.variables), dict(self.buffers), set(self.varying), parts, self.role or role)

    def name(self, kernel: Kernel) -> None:
        """Make all names known that a kernel binds where all work-items go, or all of a role, in loops too;
        and how many products there are.
        """
        self._name(kernel.body)
        if kernel.layers is not None:
            self.variables[kernel.layers.name] = kernel.layers.dtype

    def _name(self, body: Body) -> None:
        for stmt in body:
            match stmt:
                case Let(var, _):
                    self.variables[var.name] = var.dtype
                case For():
                    self._name(stmt.body)
                case If(roles=True):
                    self._name((*stmt.then, *stmt.orelse))

    def varies(self, node: Expr) -> bool:
        """Whether the value may differ between the work-items of a group, as far as can be told."""
        if isinstance(node, Call) and node.function == "any_in_group":
            return False
        for part in walk_expr(node):
            match part:
                case Var(name, _) if name in self.varying:
                    return True
                case Call(function, _, _) if function in _VARYING:
                    return True
                case Load(buffer, _) if buffer.space is Space.PRIVATE:
                    return True
        return False
