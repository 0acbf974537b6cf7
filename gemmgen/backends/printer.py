"""What modules that a language's printer is made of see of it: `clike.CLike`, which imports them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol

from gemmgen.ir.buffer import Buffer
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr
from gemmgen.ir.stmt import Body


class Printer(Protocol):
    """Prints statements and expressions; `CLike` says what its members mean."""

    inner_functions: ClassVar[bool]
    types: ClassVar[Mapping[str, str]]
    constants: Mapping[str, int]

    def indented(self, body: Body, depth: int) -> Iterator[str]: ...
    def expr(self, node: Expr, outer: int = 0) -> str: ...
    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str: ...
    def number(self, number: int, outer: int = 0) -> str: ...
    def math(self, name: str, dtype: DType) -> str: ...
    def vector_type(self, dtype: DType, width: int) -> str: ...
    def converted(self, vector: str, source: DType, to: DType, width: int) -> str: ...
