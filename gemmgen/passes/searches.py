"""The search for a group at a kernel's top: what all work-items of a group do alike before they part."""

from __future__ import annotations

from gemmgen.ir.stmt import Alloc, Body, Comment, For, If, Let, Return, Stmt, Store
from gemmgen.ir.synchronization import DependentLaunch


def end_of_names(body: Body) -> int:
    """Behind the names at a kernel's top, and the search for a group that some of them need."""
    return _last(body, Let)


def end_of_search(body: Body) -> int:
    """Behind that search, whose surplus groups return; 0 where there is none."""
    return _last(body, If)


def _last(body: Body, kind: type[Stmt]) -> int:
    """Behind the last statement of a kind among those at the top that all work-items agree on."""
    found = 0
    for number, stmt in enumerate(body):
        if not _is_uniform(stmt) and not isinstance(stmt, Comment):
            break
        found = number + 1 if isinstance(stmt, kind) else found
    return found


def _is_uniform(stmt: Stmt) -> bool:
    """Whether it does nothing but name what all work-items of a group agree on, wait for other kernels, or return."""
    match stmt:
        case Alloc(buffer) | Store(buffer, _, _):
            return buffer.uniform
        case For(body=body):
            return all(map(_is_uniform, body))
        case If():
            return all(map(_is_uniform, (*stmt.then, *stmt.orelse)))
    return isinstance(stmt, Let | Return | DependentLaunch)
