"""Right kernels with one thing made wrong, and the faults that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import pytest

from gemmgen.errors import FaultKind, KernelFault
from gemmgen.ir.kernel import Kernel, Program
from gemmgen.ir.stmt import Body, Stmt
from gemmgen.ir.target import Target
from gemmgen.ir.verify import verify
from gemmgen.ir.walk import map_body

S = TypeVar("S", bound=Stmt)
Rewrite = Callable[[Stmt], Body]


def changed(
    kind: type[S],
    change: Callable[[S], Stmt | Body],
    asked: Callable[[S], object] = lambda _: True,
    only: int | None = None,
    **fields: object,
) -> Rewrite:
    """Statements of a kind, with these fields, of which `asked` says so, changed; or `only` the so-manieth met."""
    met: list[Stmt] = []

    def rewrite(stmt: Stmt) -> Body:
        if not isinstance(stmt, kind) or any(getattr(stmt, name) != value for name, value in fields.items()):
            return (stmt,)
        if not asked(stmt):
            return (stmt,)
        met.append(stmt)
        if only is not None and len(met) != only + 1:
            return (stmt,)
        made = change(stmt)
        return made if isinstance(made, tuple) else (made,)

    return rewrite


def dropped(
    kind: type[S], asked: Callable[[S], object] = lambda _: True, only: int | None = None, **fields: object
) -> Rewrite:
    """Those statements left out."""
    return changed(kind, lambda _: (), asked, only, **fields)


def broken(kernel: Kernel, rewrite: Rewrite, target: Target | None = None) -> Kernel:
    """A kernel with statements rewritten: some must be. Of a target, it must still look like a kernel."""
    wrong = replace(kernel, body=map_body(kernel.body, rewrite))
    assert wrong.body != kernel.body, "nothing was broken"
    if target is not None:
        verify(wrong, target)
    return wrong


def broken_main(program: Program, rewrite: Rewrite) -> Program:
    """A program whose main kernel is broken."""
    wrong = broken(program.main, rewrite)
    return replace(program, kernels=tuple(wrong if k is program.main else k for k in program.kernels))


@contextmanager
def faults(kind: FaultKind, detail: str = "") -> Iterator[pytest.ExceptionInfo[KernelFault]]:
    """What is done ends in this kind of fault, which says this."""
    with pytest.raises(KernelFault, match=detail or None) as caught:
        yield caught
    assert caught.value.kind == kind, caught.value
