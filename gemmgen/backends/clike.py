"""What C-family languages share: statements, operators with their precedence, arrays, loops.

A backend is a subclass that says how its language names types, memory, ids, functions and the copy
instructions. No decision about tiling is made here or there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gemmgen.backends.expressions import PRECEDENCE
from gemmgen.backends.language import Language
from gemmgen.backends.lines import fold_line
from gemmgen.backends.vectors import vector_name
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.expr import Bin, Load, as_int, convert
from gemmgen.ir.meetings import AsyncGroup, Barrier, Handover, Mbarrier, Meeting
from gemmgen.ir.stmt import (
    Advance,
    Alloc,
    Block,
    Body,
    BoxCopy,
    Comment,
    For,
    If,
    Let,
    Move,
    Multiply,
    Point,
    Prefetch,
    Return,
    Stmt,
    Store,
)

INDENT = "    "


@dataclass
class CLike(Language):
    """Prints one kernel."""

    def function(self) -> str:
        """The function's text."""
        body = (part for line in self._indented(self.kernel.body, 1) for part in fold_line(line))
        return "\n".join([*self.signature(), "{", *self.opening(), *body, "}"]) + "\n"

    def opening(self) -> list[str]:
        """Lines before a function's first statement."""
        return []

    def _indented(self, body: Body, depth: int) -> Iterator[str]:
        """The lines of a block; `depth` 1 is the function's own, whose sections stand apart."""
        stmts = _together(body)
        for i, stmt in enumerate(stmts):
            before = stmts[i - 1] if i else None
            if before is not None and _opens_section(before, stmt, depth):
                yield ""
            if isinstance(before, Alloc) and _is_first_value(before.buffer, stmt):
                continue  # printed with its declaration
            following = stmts[i + 1] if i + 1 < len(stmts) else None
            for line in self._statement(stmt, following):
                yield INDENT + line if line else ""

    def _statement(self, stmt: Stmt, following: Stmt | None = None) -> Iterator[str]:
        match stmt:
            case Return() | Comment():
                yield "return;" if isinstance(stmt, Return) else f"// {stmt.text}"
            case Alloc(buffer):
                yield from self._declaration(buffer, following)
            case Let(var, value):
                yield f"const {self.types[var.dtype.name]} {var.name} = {self.expr(value)};"
            case Store(buffer, index, Bin("+" | "-" as sign, Load() as old, value) as node) if (
                old == Load(buffer, index) and self.pairs.function(node) is None
            ):
                yield f"{self.element(buffer, index)} {sign}= {self.expr(value)};"
            case Store(buffer, index, value):
                yield f"{self.element(buffer, index)} = {self.expr(value)};"
            case Move() if stmt.width == 1 and not (any(stmt.atom.lane_step) or stmt.atom.is_async or stmt.atom.adds):
                yield f"{self.element(stmt.dst, stmt.dst_index)} = {self._moved(stmt)};"
            case Move():
                yield self.wide_move(stmt)
            case Multiply():
                yield self.multiply(stmt)
            case BoxCopy():
                yield self.box_copy(stmt)
            case _ if isinstance(stmt, Meeting):
                yield from self._meeting(stmt)
            case Point() | Advance() | Prefetch():
                yield self._placed(stmt)
            case For():
                yield from self.vector_loop(stmt) if stmt.vector else self._loop(stmt)
            case If():
                yield from self._branch(stmt)
            case Block(body):
                yield "{"
                yield from self._indented(body, 2)
                yield "}"
            case _:
                raise LoweringError(f"cannot print {type(stmt).__name__}: it should have been expanded")

    def _declaration(self, buffer: Buffer, following: Stmt | None) -> list[str]:
        """A scalar together with its first value, where that comes next."""
        if not buffer.shape:
            name = f"{self.types[buffer.dtype.name]} {buffer.name}"
            match following:
                case Store(stored, _, value) if stored == buffer:
                    return [f"{name} = {self.expr(value)};"]
                case Move(stored) if stored == buffer:
                    return [f"{name} = {self._moved(following)};"]
        elif following is not None and _is_first_value(buffer, following):
            return [f"{self.vector_type(buffer.dtype, buffer.vector)} {line}" for line in self._statement(following)]
        return self.declare(buffer)

    def _moved(self, move: Move) -> str:
        """The element that a move brings, in the type that it has there."""
        return self.expr(convert(Load(move.src, move.src_index), move.dst.dtype))

    def _meeting(self, stmt: Meeting) -> list[str]:
        match stmt:
            case Barrier():
                return [self.role_barrier(stmt) if stmt != Barrier(stmt.memory) else self.barrier()]
            case AsyncGroup():
                return [self.async_group(stmt)]
            case Mbarrier():
                return self.mbarrier(stmt)
            case Handover():
                return [self.handover(stmt)]
            case _:
                return self.role(stmt)

    def _placed(self, stmt: Point | Advance | Prefetch) -> str:
        """Where a pointer is from here on, or what will be needed."""
        match stmt:
            case Prefetch(buffer, index, writes):
                # OpenCL C's own prefetch() is a call of a function in Intel's runtime.
                place = f"&{vector_name(self, buffer, index)}" if buffer.vector > 1 else self.address(buffer, index)
                return f"__builtin_prefetch({place}{', 1' if writes else ''});"
            case Point(view, buffer, index, which):
                name = f"const {self.pointer(view)}{view.name}" if which is None else f"{view.name}[{self.expr(which)}]"
                return f"{name} = {self.address(buffer, index)};"
            case Advance(view, Load(addresses, (place,))) if addresses.addresses == view:
                return f"{self._param(view)} = {addresses.name}[{self.expr(place)}];"
            case Advance(view, by):
                return f"{view.name} += {self.expr(by)};"

    def _loop(self, loop: For) -> Iterator[str]:
        if loop.unroll or loop.at_once:
            yield self.unroll(loop)
        var = loop.var.name
        step = f"++{var}" if loop.step == 1 else f"{var} += {loop.step}"
        stop = self.expr(loop.stop, PRECEDENCE["<"] + 1)
        yield f"for (int {var} = {self.expr(loop.start)}; {var} < {stop}; {step}) {{"
        yield from self._indented(loop.body, 2)
        yield "}"

    def _branch(self, branch: If) -> Iterator[str]:
        yield f"if ({self.expr(branch.condition)}) {{"
        yield from self._indented(branch.then, 2)
        match branch.orelse:
            case (If() as other,):
                first, *lines = self._branch(other)
                yield from (f"}} else {first}", *lines)
                return
            case (_, *_):
                yield "} else {"
                yield from self._indented(branch.orelse, 2)
        yield "}"

    def declare(self, buffer: Buffer) -> list[str]:
        """The declaration of an array."""
        dtype, vector = buffer.dtype, buffer.vector
        if buffer.space is Space.POINTERS:
            element = f"const {self.types[dtype.name]} *"
            return [f"{self.qualifier(buffer)}{element}{buffer.name}[{buffer.extents[0]}];"]
        element = self.types[dtype.name] if vector == 1 else self.vector_type(dtype, vector)
        return [f"{self.qualifier(buffer)}{element} {buffer.name}{self.dimensions(buffer)};"]

    def pointer(self, view: Buffer) -> str:
        """The type of a pointer into local memory."""
        return f"{self.types[view.dtype.name]} *"

    def dimensions(self, buffer: Buffer) -> str:
        """An array's extents as they are declared."""
        if buffer.vector == 1:
            return "".join(f"[{extent}]" for extent in buffer.extents)
        *outer, last = buffer.extents
        return "".join(f"[{extent}]" for extent in (*outer, last // buffer.vector) if extent > 1)


def rounds(loop: For) -> int:
    """How often the body of a loop runs that is to be unrolled."""
    start, stop = as_int(loop.start), as_int(loop.stop)
    if start is None or stop is None:
        raise LoweringError(f"the loop over {loop.var.name} is to be unrolled, but its bounds are no numbers")
    return -(-(stop - start) // loop.step)


def _together(body: Body) -> list[Stmt]:
    """A body with what parts of a group go through each by itself as what it is for each: statements as others."""
    nested = (_together(s.body) if isinstance(s, Block) and s.apart is not None else [s] for s in body)
    return [stmt for stmts in nested for stmt in stmts]


def way(move: Move) -> Literal["copy", "load", "store"]:
    """Whether a move changes the elements' type, and in which direction: to that of registers or to that of memory."""
    if move.src.dtype == move.dst.dtype:
        return "copy"
    return "load" if move.dst.space is Space.PRIVATE else "store"


def _is_first_value(buffer: Buffer, stmt: Stmt) -> bool:
    """Whether a statement gives all of a scalar, or of a single vector, its first value."""
    one_vector = buffer.vector > 1 and buffer.extents == (buffer.vector,)
    match stmt:
        case Store(stored, (), _) | Move(stored, ()):
            return stored == buffer
        case Move(stored):
            return one_vector and stored == buffer
        case For(body=(Store(stored),)):
            return one_vector and stmt.vector and stored == buffer
    return False


def _opens_section(before: Stmt, stmt: Stmt, depth: int) -> bool:
    """Whether a blank line belongs between two statements."""
    if isinstance(before, Comment):
        return False
    if isinstance(before, If) and before.then and isinstance(before.then[-1], Return):
        return True
    return isinstance(stmt, Comment) or (depth == 1 and isinstance(before, Let) != isinstance(stmt, Let))
