"""Every kind of node declares all that it holds, and what walks and what rewrites a kernel descend into the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import count
from typing import cast, get_args, get_origin, get_type_hints

import pytest

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.copy_instructions import CopyAtom, ThreadValueLayout
from gemmgen.ir.dtypes import DType
from gemmgen.ir.elementwise import Step
from gemmgen.ir.expr import Const, Expr, Node, Var
from gemmgen.ir.instructions import Instruction
from gemmgen.ir.stmt import Block, Body, For, Let, Registers, Stmt, Tile
from gemmgen.ir.synchronization import Pipe
from gemmgen.ir.walk import bodies, exprs, map_body, map_body_exprs, map_stmt_exprs, substitute, walk, walk_expr

STATEMENTS: tuple[type[Node], ...] = get_args(Stmt)
KINDS: tuple[type[Node], ...] = (*get_args(Expr), *STATEMENTS, Tile, Registers)
#: What is not descended into: descriptions, and formulas over names of their own.
LEAVES = {Buffer, DType, ThreadValueLayout, CopyAtom, Instruction, Pipe, Step}


def named(kind: object) -> str:
    return getattr(kind, "__name__", str(kind))


def mentioned(annotation: object) -> Iterator[type]:
    """The types that an annotation is made of."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        yield annotation
    for part in get_args(annotation):
        yield from mentioned(part)


def hints(kind: type[Node]) -> dict[str, object]:
    """What its fields may hold; `expr` knows a buffer by name only."""
    found = get_type_hints(kind, localns={"Buffer": Buffer})
    return {field.name: found[field.name] for field in fields(kind)}


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_all_that_a_node_holds_is_declared(kind: type[Node]) -> None:
    """A field that may hold expressions, statements or names is one of the three; and one only."""
    children, inner = [], []
    for name, annotation in hints(kind).items():
        types = set(mentioned(annotation))
        unknown = {t for t in types if is_dataclass(t) and not issubclass(t, Node)} - LEAVES
        assert not unknown, f"{named(kind)}.{name}: is {unknown} a Node, or a leaf?"
        if name in kind.BINDS:
            assert types in ({Var}, {Buffer})
        elif {*STATEMENTS} <= types:
            inner.append(name)
        elif any(issubclass(t, Node) for t in types):
            children.append(name)
    assert (tuple(children), tuple(inner)) == (kind.CHILDREN, kind.BODIES)


def sample(kind: type[Node], numbers: Iterator[int]) -> Node:
    """A node with a name of its own in every place of it and of its parts where an expression may stand."""

    def held(annotation: object) -> object:
        types = list(mentioned(annotation))
        if get_origin(annotation) is tuple and {*STATEMENTS} <= {*types}:
            return (Let(Var("bound"), Var(f"v{next(numbers)}")), Block((Let(Var("bound"), Var(f"v{next(numbers)}")),)))
        if any(get_origin(part) is tuple for part in (annotation, *get_args(annotation))):
            return (Var(f"v{next(numbers)}"), Var(f"v{next(numbers)}"))
        if {*get_args(Expr)} <= {*types}:
            return Var(f"v{next(numbers)}")
        part = next((t for t in types if issubclass(t, Node)), None)
        return part and (Const(0) if part is Const else sample(part, numbers))

    declared = {*kind.CHILDREN, *kind.BODIES}
    values = {name: held(annotation) if name in declared else None for name, annotation in hints(kind).items()}
    return kind(**values)


def names(body: Body) -> list[str]:
    return [x.name for s in walk(body) for root in exprs(s) for x in walk_expr(root) if isinstance(x, Var)]


@pytest.mark.parametrize("kind", STATEMENTS, ids=named)
def test_all_that_a_statement_holds_is_seen_and_rewritten(kind: type[Node]) -> None:
    numbers = count()
    stmt = cast("Stmt", sample(kind, numbers))
    placed = [f"v{i}" for i in range(next(numbers))]
    assert sorted(names((stmt,))) == sorted(placed)
    rewritten = map_stmt_exprs(stmt, substitute({Var(name): Const(1) for name in placed}))
    assert names((rewritten,)) == []
    assert type(rewritten) is kind


def test_what_is_not_rewritten_stays_the_same_object() -> None:
    loop = cast("For", sample(For, count()))
    body: Body = (loop, Let(Var("x"), Var("y")))
    assert map_body(body, lambda stmt: (stmt,)) is body
    assert map_body_exprs(body, lambda node: node) is body
    first, second = map_body_exprs(body, substitute({Var("y"): Const(1)}))
    assert first is loop
    assert second == Let(Var("x"), Const(1))
    assert bodies(loop) == (loop.body,)
