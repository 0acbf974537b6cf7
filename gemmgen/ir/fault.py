"""What a kernel did wrong, as the interpreter and the check of pipes report it."""

from __future__ import annotations

from typing import Literal

from gemmgen.errors import GemmgenError

FaultKind = Literal[
    "race",
    "out-of-bounds",
    "unwritten",
    "divergent barrier",
    "divergent sub-group operation",
    "pipe",
    "arithmetic",
    "alignment",
]


class KernelFault(GemmgenError):
    """A kernel whose meaning is undefined.

    Args:
        kind: the class of mistake.
        statement: the statement that made it, as `show` prints it.
        detail: who did what to which element.
    """

    def __init__(self, kind: FaultKind, statement: str, detail: str) -> None:
        self.kind: FaultKind = kind
        self.statement = statement
        self.detail = detail
        super().__init__(f"{kind}: {detail}\n  in `{statement}`")
