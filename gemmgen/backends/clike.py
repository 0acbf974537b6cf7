"""What C-family languages share: statements, operators with their precedence, arrays, loops.

A backend is a subclass that says how its language names types, memory, ids, functions and the copy
instructions. No decision about tiling is made here or there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Self

from gemmgen.backends.expressions import PRECEDENCE, Expressions
from gemmgen.backends.lines import fold_line
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Load, Var, as_int, compare, convert, number
from gemmgen.ir.kernel import Kernel, Workspace
from gemmgen.ir.meetings import AsyncGroup, Barrier, Handover, Mbarrier, Meeting, RoleStep
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
    Stmt,
    Store,
)
from gemmgen.ir.target import Target
from gemmgen.ir.visit import idle_without, uses_features, walk
from gemmgen.spec import GemmSpec

INDENT = "    "
#: What a tensor map's matrix begins on multiples of.
MAP_BYTES = 16


@dataclass(frozen=True, slots=True)
class Words:
    """What a language calls things, for head comments."""

    work_item: str
    group: str
    buffer: str
    local_memory: str
    sub_group: str


@dataclass
class CLike(Expressions, ABC):
    """Prints one kernel.

    Attributes:
        target: whose features choose between names of a function.
        kernel: what is printed.
        form: one of `forms`.
        spec: what it computes, for host code in the same file.
        program: the name of the file's main kernel; None where this is the only one.
    """

    suffix: ClassVar[str]
    words: ClassVar[Words]

    #: Names of the targets that speak it; the first is meant where none is named.
    targets: ClassVar[tuple[str, ...]]
    #: What the language has no words for, whatever a target offers.
    lacks: ClassVar[frozenset[str]] = frozenset()
    #: What a kernel can be delivered as, where there is a choice; the first is meant where none is named.
    forms: ClassVar[tuple[str, ...]] = ()

    target: Target
    kernel: Kernel
    form: str | None = None
    spec: GemmSpec = field(default_factory=GemmSpec)
    program: str | None = None

    def needs(self) -> frozenset[str]:
        """The features of a target that the text uses."""
        return uses_features(self.kernel) | self.uses()

    # --- what a language says ---------------------------------------------------------------------

    @abstractmethod
    def signature(self) -> list[str]:
        """The lines up to the opening brace."""

    @abstractmethod
    def qualifier(self, buffer: Buffer) -> str:
        """What stands before the type of a declared buffer."""

    @abstractmethod
    def _param(self, param: Buffer | Var) -> str:
        """A parameter's declaration."""

    @abstractmethod
    def barrier(self) -> str:
        """The statement at which a group meets."""

    def role_barrier(self, barrier: Barrier) -> str:
        """The statement at which those of a role or of a sub-group meet, where the language has roles."""
        raise LoweringError(f"{self.name} has no barriers of {barrier.role_items or 'sub-group'} work-items")

    def unroll(self, loop: For) -> str:
        """The pragma before a loop that the compiler shall unroll, or several rounds of which it shall do at once."""
        return "#pragma unroll" if loop.unroll else f"#pragma unroll {loop.at_once}"

    def template(self) -> str:
        """The file's skeleton."""
        return f"{self.name}/kernel{self.suffix}.j2"

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:  # noqa: ARG002
        """What the skeleton says beside that, of all kernels of the file."""
        return {}

    def async_group(self, group: AsyncGroup) -> str:
        """A statement about asynchronous copies, where the language has them."""
        raise LoweringError(f"{self.name} has no asynchronous copies to {group.verb}")

    def mbarrier(self, step: Mbarrier) -> list[str]:
        """A step with mbarriers, where the language has them."""
        raise LoweringError(f"{self.name} has no mbarriers to {step.verb}")

    def handover(self, step: Handover) -> str:
        """The statement that meets the kernels before or after."""
        raise LoweringError(f"{self.name} has no {step.verb} of kernels")

    def multiply(self, stmt: Multiply) -> str:
        """A sub-group's matrix instruction, where the language has it."""
        raise LoweringError(f"{self.name} has no {stmt.atom.name}")

    def box_copy(self, stmt: BoxCopy) -> str:
        """The statement that begins a copy of a box, where the language has it."""
        raise LoweringError(f"{self.name} has no boxes of {stmt.src.name} to copy")

    def role(self, step: RoleStep) -> list[str]:
        """Statements that only roles have, where the language has them."""
        raise LoweringError(f"{self.name} has no roles for {type(step).__name__}")

    def vector_loop(self, loop: For) -> Iterator[str]:
        """A loop over a vector's elements, where the language computes on vectors."""
        raise LoweringError(f"{self.name} has no vectors to compute {loop.var.name} on")

    def vector_type(self, dtype: DType, width: int) -> str:
        """The type of a vector, where the language has them."""
        raise LoweringError(f"{self.name} has no vectors of {width} {dtype}")

    @abstractmethod
    def wide_move(self, move: Move) -> str:
        """A statement for an instruction that moves more than an element."""

    @abstractmethod
    def uses(self) -> frozenset[str]:
        """The features of the target whose names the text uses, beside what the instructions need."""

    def alignment(self) -> int:
        """Bytes that matrices must begin on multiples of: those of the widest vector that needs alignment; complex
        numbers are such vectors. Tensor maps of given matrices ask for as much as the widest.
        """
        moves = [s for s in walk(self.kernel.body) if isinstance(s, Move) and s.atom.aligned]
        # What one kernel lays out for another begins where vectors may stand.
        given = [(m, b) for m in moves for b in (m.src, m.dst) if b.space is Space.GLOBAL]
        touched = [(m, b) for m, b in given if not (b == m.dst and b.is_packed)]
        elements = [p.dtype.size for p in self.kernel.matrices if p.dtype.real is not None]
        boxes = [MAP_BYTES for p in self.kernel.matrices if p.box is not None and not p.is_packed]
        return max([1, *(m.width * b.dtype.size for m, b in touched), *elements, *boxes])

    @abstractmethod
    def requirements(self) -> list[str]:
        """What the head comment says that the kernel needs of a device."""

    @abstractmethod
    def launch(self) -> str:
        """The launch geometry, as the head comment prints it."""

    def dynamic_bytes(self) -> int:
        """Local memory that a launch must ask for."""
        return 0

    @abstractmethod
    def prelude(self) -> list[str]:
        """Lines before the kernel (extensions, helpers), only those it uses."""

    @abstractmethod
    def postlude(self, kernels: Sequence[Self]) -> str:
        """Text after the kernels: their launcher, where host code stands in the same file."""

    @abstractmethod
    def build_line(self) -> str:
        """How to compile the file, as the head comment prints it."""

    @abstractmethod
    def build_options(self) -> tuple[str, ...]:
        """What the compiler must be told."""

    def gpu_options(self) -> tuple[str, ...]:
        """What the compiler for Intel's GPUs must be told as well; others don't take it."""
        return ()

    def no_product(self) -> str | None:
        """The condition under which a launcher passes k = 0, so that A and B are not read; None where it can't know."""
        scalars = {var.name: var for var in self.kernel.scalars}
        if not {"alpha", "k"} <= scalars.keys():
            return None
        alpha = scalars["alpha"]
        return self.expr(compare("==", alpha, number(0, alpha.dtype)))

    def reads_operands(self) -> str | None:
        """The condition under which A and B are read; None for always, as far as a launcher can know."""
        scalars = {var.name: var for var in self.kernel.scalars}
        if "k" in scalars:
            return "k > 0"
        if (alpha := scalars.get("alpha")) is None:
            return None
        return self.expr(compare("!=", alpha, number(0, alpha.dtype)))

    def needed(self, kernel: Kernel) -> tuple[str, str] | None:
        """The condition under which a launcher runs one of the kernels at all, and its contrary; None for always."""
        if idle_without(kernel, Var("k")):
            return "k > 0", "k < 1"
        alpha = next((var for var in self.kernel.scalars if var.name == "alpha"), None)
        if alpha is None or not kernel.lays_out:
            return None
        zero = number(0, alpha.dtype)
        return self.expr(compare("!=", alpha, zero)), self.expr(compare("==", alpha, zero))

    # --- statements -------------------------------------------------------------------------------

    def function(self) -> str:
        """The function's text."""
        body = (part for line in self._indented(self.kernel.body, 1) for part in fold_line(line))
        return "\n".join([*self.signature(), "{", *body, "}"]) + "\n"

    def _indented(self, body: Body, depth: int) -> Iterator[str]:
        """The lines of a block; `depth` 1 is the function's own, whose sections stand apart."""
        stmts = list(body)
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
            case Comment(text):
                yield f"// {text}"
            case Alloc(buffer):
                yield from self._declaration(buffer, following)
            case Let(var, value):
                yield f"const {self.types[var.dtype.name]} {var.name} = {self.expr(value)};"
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
            case Point() | Advance():
                yield self._placed(stmt)
            case For():
                yield from self.vector_loop(stmt) if stmt.vector else self._loop(stmt)
            case If(condition, then, orelse):
                yield f"if ({self.expr(condition)}) {{"
                yield from self._indented(then, 2)
                if orelse:
                    yield "} else {"
                    yield from self._indented(orelse, 2)
                yield "}"
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

    def _placed(self, stmt: Point | Advance) -> str:
        """Where a pointer is from here on."""
        match stmt:
            case Point(view, buffer, index):
                return f"const {self.pointer(view)}{view.name} = {self.address(buffer, index)};"
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

    def declare(self, buffer: Buffer) -> list[str]:
        """The declaration of an array."""
        dtype, vector = buffer.dtype, buffer.vector
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
    return isinstance(stmt, Comment) or (depth == 1 and isinstance(before, Let) != isinstance(stmt, Let))
