"""What checks of statements are made of: names, types, buffers and what the target has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import I32, DType
from gemmgen.ir.expr import Call, Expr, Load, Var
from gemmgen.ir.expr_checks import call_problems, expr_problems
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.scopes import Scope
from gemmgen.ir.show import headline, show_expr
from gemmgen.ir.stmt import Stmt
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk_expr


class Checker:
    """Knows the kernel, the target and what is being checked."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self._kernel, self._target = kernel, target
        # What is being checked, for messages: put into words only where there is one.
        self._at: Stmt | str = "its head"

    def _integers(self, nodes: tuple[Expr, ...], scope: Scope) -> None:
        self._exprs(nodes, scope)
        for node in nodes:
            self._integer(node)

    # --- expressions ------------------------------------------------------------------------------

    def _exprs(self, roots: Iterable[Expr], scope: Scope) -> None:
        for root in roots:
            for node in walk_expr(root):
                self._expr(node, scope)

    def _expr(self, node: Expr, scope: Scope) -> None:
        match node:
            case Var(name, dtype):
                bound = scope.variables.get(name)
                if bound is None:
                    self._fail(f"{name} is not bound")
                self._same(bound, dtype, f"{name} where it is bound and where it is used")
            case Load(buffer, index):
                self._element(buffer, index, scope)
            case Call():
                self._hold(call_problems(node, self._kernel, self._target))
            case _:
                self._hold(expr_problems(node))

    # --- buffers and names ------------------------------------------------------------------------

    def _element(self, buffer: Buffer, index: tuple[Expr, ...], scope: Scope, written: bool = False) -> None:
        self._declared(buffer, scope)
        self._rank(buffer, len(index))
        for coordinate in index:
            self._integer(coordinate)
        if written:
            self._require(buffer.writable and buffer.space is not Space.IMAGE, f"{buffer.name} is read only")

    def _declared(self, buffer: Buffer, scope: Scope) -> None:
        declaration = scope.buffers.get(buffer.name)
        if declaration is None:
            self._fail(f"{buffer.name} is not declared")
        # Tiles may end in boxes of their own, each of which has a map.
        alike = declaration == (buffer if buffer.box is None else replace(buffer, box=declaration.box))
        self._require(alike, f"{buffer.name} is not used as it was declared")

    def _rank(self, buffer: Buffer, coordinates: int) -> None:
        rank = len(buffer.shape)
        self._require(coordinates == rank, f"{buffer.name} has {rank} dimensions, its index {coordinates}")

    def _bind(self, name: Var | Buffer, scope: Scope) -> None:
        taken = name.name in scope.variables or name.name in scope.buffers
        self._require(not taken, f"{name.name} already has a meaning here")
        if isinstance(name, Var):
            scope.variables[name.name] = name.dtype
        else:
            scope.buffers[name.name] = name

    # --- the target -------------------------------------------------------------------------------

    def _needs(self, features: frozenset[str], who: str) -> None:
        missing = features - self._target.features
        self._require(not missing, f"{who} needs {listed(sorted(missing))}, which {self._target.name} lacks")

    def _sub_group(self, who: str) -> None:
        self._require(self._kernel.sub_group is not None, f"{who} in a kernel that requires no sub-group size")

    # --- messages ---------------------------------------------------------------------------------

    def _integer(self, node: Expr) -> None:
        if node.dtype != I32:
            self._fail(f"{show_expr(node)} is {node.dtype}, not an integer")

    def _same(self, a: DType, b: DType, what: str) -> None:
        if a != b:
            self._fail(f"{what} differ in type: {a} and {b}")

    def _hold(self, problems: Iterable[str]) -> None:
        for problem in problems:
            self._fail(problem)

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            self._fail(problem)

    def _fail(self, problem: str) -> NoReturn:
        at = self._at if isinstance(self._at, str) else f"`{headline(self._at)}`"
        raise LoweringError(f"kernel {self._kernel.name}, {at}: {problem}")


def listed(items: Iterable[int | str]) -> str:
    """Words for a message."""
    return ", ".join(map(str, items))
