"""The printer of C-family languages: statements, operators with their precedence, arrays, loops.

A language is a subclass, most of which is a table: what it calls types, memory, ids, functions and the barrier. Its
methods are those instructions that others lack, and what stands around a kernel. No decision about tiling is made here
or there.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Literal, Self

from gemmgen.backends.files import rendered
from gemmgen.backends.pairs import Pairs
from gemmgen.backends.routines import LOAD_TILES, has_loads, is_load, load_function, repeated, written_once
from gemmgen.backends.vectors import (
    POSTFIX,
    PRECEDENCE,
    TERNARY,
    UNARY,
    VectorWords,
    unfused,
    vector_copy_text,
    vector_element,
    vector_loop,
    vector_name,
)
from gemmgen.errors import LoweringError, ScheduleError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.constants import NAME, PRODUCT, SUM, WIDTH, Named, text_of, whole_parts, width_of
from gemmgen.ir.copy_instructions import BLOCK_2D_START, MAP_BYTES
from gemmgen.ir.dtypes import F32, I8, I32, I64, DType
from gemmgen.ir.expr import Bin, Call, Const, Expr, Load, Select, Var, as_int, compare, convert, number
from gemmgen.ir.functions import MATH
from gemmgen.ir.instructions import DP4A
from gemmgen.ir.kernel import Kernel, idle_without, uses_features
from gemmgen.ir.show import headline
from gemmgen.ir.sizes import Workspace
from gemmgen.ir.stmt import (
    Alloc,
    Block,
    Body,
    Comment,
    For,
    If,
    Let,
    Multiply,
    PlaceStmt,
    PointerIncrement,
    PointerInit,
    Prefetch,
    Return,
    Stmt,
    Store,
    VectorCopy,
)
from gemmgen.ir.synchronization import Barrier, SyncStmt
from gemmgen.ir.target import Target
from gemmgen.ir.walk import of_kind, places, walk_expr
from gemmgen.positions import LOAD_STAGE
from gemmgen.records import dataclass
from gemmgen.spec import GemmSpec

INDENT = "    "
#: Functions of numbers that C calls otherwise where they are of floats.
FLOAT_NAMES = {"abs": "fabs", "min": "fmin", "max": "fmax"}


@dataclass(frozen=True, slots=True)
class Words:
    """What a language calls things, for head comments."""

    work_item: str
    group: str
    buffer: str
    local_memory: str
    sub_group: str


@dataclass
class CLike(ABC):
    """Prints one kernel.

    Attributes:
        target: whose features choose between names of a function.
        kernel: what is printed.
        form: one of `forms`.
        spec: what it computes, for host code in the same file.
        program: the name of the file's main kernel; None where this is the only one.
        constants: what the file defines, by name.
        free: those of them that a reader may change.
        remedy: says which command emits another value of a schedule's field.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    words: ClassVar[Words]
    #: What it calls each type of elements.
    types: ClassVar[Mapping[str, str]]
    #: How it writes complex numbers.
    pairs: ClassVar[Pairs]
    #: Built-in functions: `{args}` stands for the arguments, other words are those of `call_words`.
    calls: ClassVar[Mapping[str, str]]
    #: The statement at which a group meets.
    barrier: ClassVar[str]
    #: What stands before the type of a buffer declared there.
    spaces: ClassVar[Mapping[Space, str]] = {}
    #: What stands before the type of a matrix, and says that no other pointer leads there.
    matrix_space: ClassVar[str] = ""
    restrict: ClassVar[str] = "__restrict__ "
    #: What stands before the name of a function of numbers, and behind it where those are of float32.
    math_prefix: ClassVar[str] = ""
    float_suffix: ClassVar[str] = ""
    #: The smaller of two numbers.
    minimum: ClassVar[str] = "min"
    #: What its integer literals of 64 bits end in.
    long: ClassVar[str] = "LL"
    #: How it computes on vectors of a work-item's own, where it does.
    vectors: ClassVar[VectorWords | None] = None
    #: Whether it has functions within functions, which see what is declared around them.
    inner_functions: ClassVar[bool] = True

    #: Names of the targets that speak it; the first is meant where none is named.
    targets: ClassVar[tuple[str, ...]]
    #: Those of them that are one chip, meant only where they are named.
    chips: ClassVar[frozenset[str]] = frozenset()
    #: What the language has no words for, whatever a target offers.
    lacks: ClassVar[frozenset[str]] = frozenset()
    #: What the language has on every target.
    has: ClassVar[frozenset[str]] = frozenset()
    #: Whether ptxas compiles it, which tells what registers spill.
    asks_ptxas: ClassVar[bool] = False
    #: What a kernel can be delivered as, where there is a choice; the first is meant where none is named.
    forms: ClassVar[tuple[str, ...]] = ()

    target: Target
    kernel: Kernel
    form: str | None = None
    spec: GemmSpec = field(default_factory=GemmSpec)
    program: str | None = None
    constants: Mapping[str, int] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    remedy: Callable[[str], str] = field(default="gemmgen emit --set {}=...".format, compare=False)
    #: (product, number) of what the text takes an even part of.
    parts: set[tuple[str, int]] = field(default_factory=set, init=False, compare=False)
    #: The load that has a function of its own, from its definition to the end of the block that holds it.
    load: Stmt | None = field(default=None, init=False, compare=False)

    def knows(self, number: Named) -> bool:
        """Whether the file defines what a number is made of, as it is meant."""
        known = self.constants if WIDTH in self.constants else {**self.constants, WIDTH: width_of(number)}
        return all(known.get(base.name) == base.value for base in number.bases)

    def number(self, number: int, outer: int = 0) -> str:
        """An integer by its names where the file defines them, in parentheses only where `outer` binds tighter."""
        text, inner = self.literal(number, I32)
        return f"({text})" if inner < outer else text

    def needs(self) -> frozenset[str]:
        """The features of a target that the text uses."""
        return uses_features(self.kernel) | self.uses()

    # --- what a language says ---------------------------------------------------------------------

    @abstractmethod
    def signature(self) -> list[str]:
        """The lines up to the opening brace."""

    def qualifier(self, buffer: Buffer) -> str:
        """What stands before the type of a declared buffer."""
        return self.spaces.get(buffer.space, "")

    def parameter(self, param: Buffer | Var, restrict: str | None = None) -> str:
        """A parameter's declaration; `restrict` replaces the language's own."""
        if isinstance(param, Var):
            return f"{self.types[param.dtype.name]} {param.name}"
        if param.space is Space.IMAGE:
            raise ScheduleError(f"{param.name} is an image, which {self.name} reads no blocks of: use --method simd")
        matrix, listed = param.addresses or param, "" if param.addresses is None else "const *"
        const = "" if matrix.writable else "const "
        restrict = self.restrict if restrict is None else restrict
        return f"{self.matrix_space}{const}{self.types[matrix.dtype.name]} *{listed}{restrict}{param.name}"

    def sync(self, stmt: SyncStmt) -> list[str]:
        """A step that synchronises, where the language has it; all have the barrier of a group."""
        if isinstance(stmt, Barrier) and stmt == Barrier(stmt.memory):
            return [self.barrier]
        raise self._lacking(stmt)

    def _lacking(self, stmt: Stmt) -> LoweringError:
        """That the language has no words for a statement, or none before it is expanded."""
        return LoweringError(f"{self.name} has no words for `{headline(stmt)}`")

    def unroll(self, loop: For) -> str:
        """The pragma before a loop that the compiler shall unroll, or several rounds of which it shall do at once."""
        return "#pragma unroll" if loop.unroll else f"#pragma unroll {loop.unroll_factor}"

    def template(self) -> str:
        """The file's skeleton."""
        return f"{self.name}/kernel{self.suffix}.j2"

    def fields(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> Mapping[str, object]:  # noqa: ARG002
        """What the skeleton says beside that, of all kernels of the file."""
        return {}

    def multiply(self, stmt: Multiply) -> str:
        """A sub-group's matrix instruction, where the language has it; a work-item's, which all have."""
        if stmt.atom != DP4A:
            raise self._lacking(stmt)
        return f"dp4a({self.addresses(stmt)});"

    def addresses(self, stmt: Stmt) -> str:
        """Pointers to the elements that an instruction touches, as arguments."""
        return ", ".join(self.address(buffer, index) for buffer, index in places(stmt))

    def dot_products(self, qualifier: str, instruction: str | None = None) -> list[str]:
        """The function for those, if the kernel calls it: by what the language calls the instruction, or by the sum
        that compilers know it by.
        """
        if not any(s.atom == DP4A for s in of_kind(Multiply, self.kernel.body)):
            return []
        return rendered("dp4a.j2", qualifier=qualifier, instruction=instruction, element=self.types[I8.name])

    @abstractmethod
    def vector_copy(self, move: VectorCopy) -> str:
        """A statement for an instruction that moves more than an element."""

    def uses(self) -> frozenset[str]:
        """The features of the target whose names the text uses, beside what the instructions need."""
        return frozenset()

    def alignment(self) -> int:
        """Bytes that matrices must begin on multiples of: those of the widest vector that needs alignment; complex
        numbers are such vectors. Tensor maps of given matrices ask for as much as the widest.
        """
        copies = list(of_kind(VectorCopy, self.kernel.body))
        moves = [s for s in copies if s.atom.edge != "bounded" and s.atom.unit(s.width, s.src.dtype.size) > 1]
        # What one kernel lays out for another begins where vectors may stand.
        given = [(m, b) for m in moves for b in (m.src, m.dst) if b.space is Space.GLOBAL]
        touched = [(m, b) for m, b in given if not (b == m.dst and b.prepacked)]
        elements = [p.dtype.size for p in self.kernel.matrices if p.dtype.real is not None]
        boxes = [MAP_BYTES for p in self.kernel.matrices if p.tma_tile is not None and not p.prepacked]
        blocks = [BLOCK_2D_START] * any(s.atom.edge == "bounded" for s in copies)
        widths = [m.atom.unit(m.width, b.dtype.size) * b.dtype.size for m, b in touched]
        return max([1, *widths, *elements, *boxes, *blocks])

    def beginning(self, name: str) -> int:
        """The same of one matrix; also of a prepacked one, which may be read by TMA tiles."""
        boxed = any(p.name == name and p.tma_tile is not None for p in self.kernel.matrices)
        return max(self.alignment(), MAP_BYTES if boxed else 1)

    @abstractmethod
    def requirements(self) -> list[str]:
        """What the head comment says that the kernel needs of a device."""

    @classmethod
    def unfit(cls, group: tuple[int, int]) -> str | None:  # noqa: ARG003
        """Why a kernel with groups of so many work-items should not be chosen, though it runs; None where it may."""
        return None

    def remarks(self) -> list[str]:
        """What the head comment says beside that to who chooses the kernel."""
        return []

    @abstractmethod
    def launch(self) -> str:
        """The launch geometry, as the head comment prints it."""

    def dynamic_bytes(self) -> int:
        """Local memory that a launch must ask for."""
        return 0

    @abstractmethod
    def prelude(self) -> list[str]:
        """Lines before the kernel (extensions, helpers), only those it uses."""

    def postlude(self, kernels: Sequence[Self], workspaces: Sequence[Workspace]) -> str:  # noqa: ARG002
        """Text after the kernels: their launcher, where host code stands in the same file."""
        return ""

    @abstractmethod
    def build_line(self) -> str:
        """How to compile the file, as the head comment prints it."""

    def build_options(self) -> tuple[str, ...]:
        """What the compiler must be told."""
        return ()

    def gpu_options(self) -> tuple[str, ...]:
        """What the compiler for Intel's GPUs must be told as well; others don't take it."""
        return ()

    def matrix_options(self) -> tuple[str, str] | None:
        """What it must be told where the device has matrix instructions and where it has none, if that matters."""
        return None

    def matrix_extensions(self) -> tuple[str, ...]:
        """The extensions that a device has matrix instructions by."""
        return ()

    def extensions(self) -> tuple[str, ...]:
        """The extensions of the language that a device must have."""
        return ()

    def no_product(self) -> str | None:
        """The condition under which a launcher passes k = 0, so that A and B are not read; None where it can't know."""
        return self._alpha("==") if Var("k") in self.kernel.scalars else None

    def reads_operands(self) -> str | None:
        """The condition under which A and B are read; None for always, as far as a launcher can know."""
        return "k > 0" if Var("k") in self.kernel.scalars else self._alpha("!=")

    def needed(self, kernel: Kernel) -> tuple[str, str] | None:
        """The condition under which a launcher runs one of the kernels at all, and its contrary; None for always."""
        if idle_without(kernel, Var("k")):
            return "k > 0", "k < 1"
        runs, rests = self._alpha("!="), self._alpha("==")
        return None if runs is None or rests is None or not kernel.prepacks else (runs, rests)

    def _alpha(self, sign: Literal["==", "!="]) -> str | None:
        """That alpha is zero, or is not; None where it is no argument."""
        alpha = next((var for var in self.kernel.scalars if var.name == "alpha"), None)
        return None if alpha is None else self.expr(compare(sign, alpha, number(0, alpha.dtype)))

    # --- statements -------------------------------------------------------------------------------

    def function(self) -> str:
        """The function's text."""
        body = list(self.indented(self.kernel.body, 1))
        return "\n".join([*self.signature(), "{", *self.opening(body), *body, "}"]) + "\n"

    def opening(self, body: Sequence[str]) -> list[str]:  # noqa: ARG002
        """Lines before a function's first statement."""
        return []

    def indented(self, body: Body, depth: int) -> Iterator[str]:
        """The lines of a block; `depth` 1 is the function's own, whose sections stand apart."""
        stmts = _together(body)
        found = repeated(stmts) if self.inner_functions and self.load is None and has_loads(body) else None
        for i, stmt in enumerate(stmts):
            before = stmts[i - 1] if i else None
            if found is not None and i == found[0]:
                self.load = found[1]
                yield from load_function(self, self.load)
            following = stmts[i + 1] if i + 1 < len(stmts) else None
            if self.load is not None and following == self.load and is_load(stmts, i + 1):
                continue  # an argument of the call
            if isinstance(before, Let) and stmt == self.load and is_load(stmts, i):
                yield f"{INDENT}{LOAD_TILES}({self.expr(before.value)}, {LOAD_STAGE.name});"
                continue
            if before is not None and _opens_section(before, stmt, depth):
                yield ""
            if isinstance(before, Alloc) and _is_first_value(before.buffer, stmt, self.vectors):
                continue  # printed with its declaration
            for line in self._statement(stmt, following):
                yield INDENT + line if line else ""
        if found is not None:
            self.load = None

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
            case VectorCopy() if stmt.width == 1 and not (
                any(stmt.atom.lane_step) or stmt.atom.is_async or stmt.atom.adds
            ):
                yield f"{self.element(stmt.dst, stmt.dst_index)} = {self._moved(stmt)};"
            case VectorCopy() if self.vectors is not None and max(stmt.dst.vector, stmt.src.vector) > 1:
                yield vector_copy_text(self, self.vectors, stmt)
            case VectorCopy():
                yield self.vector_copy(stmt)
            case Multiply():
                yield self.multiply(stmt)
            case _ if isinstance(stmt, SyncStmt):
                yield from self.sync(stmt)
            case _ if isinstance(stmt, PlaceStmt):
                yield self._placed(stmt)
            case For():
                yield from self._vector_loop(stmt) if stmt.vector else self._loop(stmt)
            case If():
                yield from self._branch(stmt)
            case Block(body):
                yield "{"
                yield from self.indented(body, 2)
                yield "}"
            case _:
                raise self._lacking(stmt)

    def _declaration(self, buffer: Buffer, following: Stmt | None) -> list[str]:
        """A scalar together with its first value, where that comes next."""
        if not buffer.shape:
            name = f"{self.types[buffer.dtype.name]} {buffer.name}"
            match following:
                case Store(stored, _, value) if stored == buffer:
                    return [f"{name} = {self.expr(value)};"]
                case VectorCopy(stored) if stored == buffer:
                    return [f"{name} = {self._moved(following)};"]
        elif following is not None and _is_first_value(buffer, following, self.vectors):
            return [f"{self.vector_type(buffer.dtype, buffer.vector)} {line}" for line in self._statement(following)]
        return self.declare(buffer)

    def _moved(self, move: VectorCopy) -> str:
        """The element that a move brings, in the type that it has there."""
        return self.expr(convert(Load(move.src, move.src_index), move.dst.dtype))

    def _placed(self, stmt: PlaceStmt) -> str:
        """Where a pointer is from here on, or what will be needed."""
        match stmt:
            case Prefetch(buffer, index, writes):
                # OpenCL C's own prefetch() is a call of a function in Intel's runtime.
                place = f"&{vector_name(self, buffer, index)}" if buffer.vector > 1 else self.address(buffer, index)
                return f"__builtin_prefetch({place}{', 1' if writes else ''});"
            case PointerInit(view, buffer, index, which):
                name = f"const {self.pointer(view)}{view.name}" if which is None else f"{view.name}[{self.expr(which)}]"
                return f"{name} = {self.address(buffer, index)};"
            case PointerIncrement(view, Load(addresses, (place,))) if addresses.addresses == view:
                return f"{self.parameter(view)} = {addresses.name}[{self.expr(place)}];"
            case PointerIncrement(view, by):
                return f"{view.name} += {self.expr(by)};"
        raise self._lacking(stmt)

    def _loop(self, loop: For) -> Iterator[str]:
        if loop.unroll or loop.unroll_factor:
            yield self.unroll(loop)
        var = loop.var.name
        step = f"++{var}" if loop.step == 1 else f"{var} += {self.number(loop.step)}"
        stop = self.expr(loop.stop, PRECEDENCE["<"] + 1)
        yield f"for (int {var} = {self.expr(loop.start)}; {var} < {stop}; {step}) {{"
        yield from self.indented(loop.body, 2)
        yield "}"

    def _vector_loop(self, loop: For) -> Iterator[str]:
        if self.vectors is None:
            raise LoweringError(f"{self.name} has no vectors to compute {loop.var.name} on")
        return vector_loop(self, self.vectors, loop)

    def _branch(self, branch: If) -> Iterator[str]:
        if (text := written_once(self, branch)) is not None:
            yield from text
            return
        yield f"if ({self.expr(branch.condition)}) {{"
        yield from self.indented(branch.then, 2)
        match branch.orelse:
            case (If() as other,):
                first, *lines = self._branch(other)
                yield from (f"}} else {first}", *lines)
                return
            case (_, *_):
                yield "} else {"
                yield from self.indented(branch.orelse, 2)
        yield "}"

    def declare(self, buffer: Buffer) -> list[str]:
        """The declaration of an array."""
        dtype, vector = buffer.dtype, buffer.vector
        if buffer.space is Space.POINTERS:
            element = f"const {self.types[dtype.name]} *"
            return [f"{self.qualifier(buffer)}{element}{buffer.name}[{self.number(buffer.extents[0])}];"]
        element = self.types[dtype.name] if vector == 1 else self.vector_type(dtype, vector)
        return [f"{self.qualifier(buffer)}{element} {buffer.name}{self.dimensions(buffer)};"]

    def pointer(self, view: Buffer) -> str:
        """The type of a pointer into local memory."""
        return f"{self.types[view.dtype.name]} *"

    def vector_type(self, dtype: DType, width: int) -> str:
        """The type of a vector, where the language has them."""
        if self.vectors is None:
            raise LoweringError(f"{self.name} has no vectors of {width} {dtype}")
        return self.vectors.type.format(element=self.types[dtype.name], width=width)

    def converted(self, vector: str, source: DType, to: DType, width: int) -> str:
        """A vector in another type."""
        if source != to:
            raise LoweringError(f"{self.name} does not convert vectors of {width} {source} to {to}")
        return vector

    def dimensions(self, buffer: Buffer) -> str:
        """An array's extents as they are declared."""
        if buffer.vector == 1:
            return "".join(f"[{self.number(extent)}]" for extent in buffer.extents)
        *outer, last = buffer.extents
        return "".join(f"[{self.number(extent)}]" for extent in (*outer, last // buffer.vector) if extent > 1)

    # --- expressions ------------------------------------------------------------------------------

    def call(self, call: Call) -> tuple[str, int]:
        """A built-in function, and how tightly its text binds: a cast as a unary operator."""
        form = self.calls.get(call.function)
        if form is None:
            raise LoweringError(f"{self.name} has no name for {call.function}")
        text = form.format(args=", ".join(map(self.expr, call.args)), **self.call_words(call))
        return text, UNARY if text.startswith("(") else POSTFIX

    def call_words(self, call: Call) -> Mapping[str, object]:  # noqa: ARG002
        """What `calls` are filled in with, beside the arguments."""
        return {}

    def element(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """One element: `a[i * lda + j]` of a matrix or a view, `acc[i][j]` of an array."""
        if buffer.vector > 1 and self.vectors is not None:
            return vector_element(self, self.vectors, buffer, index)
        if buffer.space in (Space.GLOBAL, Space.VIEW):
            return f"{buffer.name}[{self.expr(buffer.layout.offset(index))}]"
        name = self.memory(buffer.name, buffer.space)
        if buffer.distributed > 1:
            name, index = self.in_group(buffer, index[0]), index[1:]
        return name + "".join(f"[{self.expr(i)}]" for i in index)

    def memory(self, name: str, space: Space = Space.LOCAL) -> str:  # noqa: ARG002
        """What the text calls an array in local memory, or another."""
        return name

    def in_group(self, buffer: Buffer, rank: Expr) -> str:
        """The array of one of a cluster's groups, where the language has clusters."""
        raise LoweringError(f"{self.name} has no {buffer.name} of group {self.expr(rank)} of a cluster")

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """A pointer to one element; an array's name where that is its first."""
        if buffer.space not in (Space.GLOBAL, Space.VIEW) and index and as_int(index[-1]) == 0:
            return self.element(buffer, index[:-1])
        return f"&{self.element(buffer, index)}"

    def expr(self, node: Expr, outer: int = 0) -> str:
        """An expression, in parentheses only where `outer` binds tighter."""
        text, inner = self._bound(node)
        return f"({text})" if inner < outer else text

    def _bound(self, node: Expr) -> tuple[str, int]:
        if (of_pairs := self.pairs.arithmetic(node, self.expr)) is not None:
            return of_pairs
        node = unfused(node)
        match node:
            case Const(value, dtype):
                return self.literal(value, dtype)
            case Var(name, _):
                return name, POSTFIX
            case Load(buffer, index):
                return self.element(buffer, index), POSTFIX
            case Call("convert", (value,), dtype):
                return self.conversion(value, dtype)
            case Call("neg", (value,)):
                return f"-{self.expr(value, POSTFIX)}", UNARY
            case Call(name, args, dtype) if name == "fma" or name in MATH:
                return f"{self.math(name, dtype)}({', '.join(map(self.expr, args))})", POSTFIX
            case Call("nibble", args):
                return f"nibble({', '.join(map(self.expr, args))})", POSTFIX
            case Call():
                return self.call(node)
            case Select(condition, then, other):
                texts = (self.expr(condition, TERNARY + 1), self.expr(then, TERNARY + 1), self.expr(other, TERNARY))
                return "{} ? {} : {}".format(*texts), TERNARY
            case Bin("*", a, Const() as one) if self.expr(one) == "1":
                return self._bound(a)
            case Bin("min", a, b):
                return f"{self.minimum}({self.expr(a)}, {self.expr(b)})", POSTFIX
            case Bin("^", a, b):
                # Compilers ask for parentheses around what stands beside it.
                return f"{self.expr(a, POSTFIX)} ^ {self.expr(b, POSTFIX)}", PRECEDENCE["^"]
            case Bin("<" | "<=" as op, Const() as a, b) if not isinstance(b, Const):
                # What varies stands first, as people write it.
                level = PRECEDENCE[op]
                return f"{self.expr(b, level)} {op.replace('<', '>')} {self.expr(a, level + 1)}", level
            case Bin(op, a, b):
                level = PRECEDENCE[op]
                # The right operand of - / % must not be regrouped; + and * of integers may stand as they are.
                right = level if op in ("+", "&&") or (op == "*" and _is_product(b)) else level + 1
                return f"{self.expr(a, level)} {op} {self.expr(b, right)}", level

    def math(self, name: str, dtype: DType) -> str:
        """What a function of numbers is called: as in C, or by the prefix or the ending that the language has."""
        name = FLOAT_NAMES.get(name, name) if dtype.is_float else name
        return f"{self.math_prefix}{name}{self.float_suffix if dtype == F32 else ''}"

    def conversion(self, value: Expr, dtype: DType) -> tuple[str, int]:
        """A value in another type."""
        return f"{converting(self.types[dtype.name])}({self.expr(value)})", POSTFIX

    def literal(self, value: complex, dtype: DType) -> tuple[str, int]:
        """A literal of a type; of those that have none, zero as it is made of nothing."""
        if (real := dtype.real) is not None:
            return self.pairs.number(value, self.types[dtype.name], lambda part: self.literal(part, real)[0]), UNARY
        if not isinstance(value, int | float):
            raise LoweringError(f"{value} is no {dtype}")
        if dtype.is_float and dtype.size < F32.size:
            if value:
                raise LoweringError(f"{self.name} has no literal {value} of {dtype}")
            return f"{self.types[dtype.name]}()", POSTFIX
        if isinstance(value, Named) and self.knows(value):
            text, tight = text_of(value)
            if (width := width_of(value)) is not None and WIDTH not in self.constants:
                text = re.sub(rf"\b{WIDTH}\b", str(width), text)
            if self.free.intersection(base.name for base in value.bases):
                self.parts.update(whole_parts(value))
            level = {SUM: PRECEDENCE["+"], PRODUCT: PRECEDENCE["*"], NAME: POSTFIX}[tight]
            return (f"{converting(self.types[dtype.name])}({text})", POSTFIX) if dtype == I64 else (text, level)
        suffix = {F32: "f", I64: self.long}.get(dtype, "")
        text = f"{float(value)!r}{suffix}" if dtype.is_float else f"{value}{suffix}"
        return text, UNARY if value < 0 else POSTFIX


def _is_product(node: Expr) -> bool:
    """Whether it is a constant of whole factors, in whatever order they are multiplied."""
    return isinstance(node, Const) and isinstance(node.value, Named) and "/" not in text_of(node.value)[0]


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


def way(move: VectorCopy) -> Literal["copy", "load", "store"]:
    """Whether a move changes the elements' type, and in which direction: to that of registers or to that of memory."""
    if move.src.dtype == move.dst.dtype:
        return "copy"
    return "load" if move.dst.space is Space.PRIVATE else "store"


def _is_first_value(buffer: Buffer, stmt: Stmt, words: VectorWords | None) -> bool:
    """Whether a statement gives all of a scalar, or of a single vector, its first value, in words for a declaration."""
    one_vector = buffer.vector > 1 and buffer.extents == (buffer.vector,)
    match stmt:
        case Store(stored, (), _) | VectorCopy(stored, ()):
            return stored == buffer
        case VectorCopy(stored):
            return one_vector and stored == buffer
        case For(var=var, body=(Store(stored, _, value),)):
            can_begin = words is None or words.begins_with_number or var in walk_expr(value)
            return one_vector and stmt.vector and stored == buffer and can_begin
    return False


def _opens_section(before: Stmt, stmt: Stmt, depth: int) -> bool:
    """Whether a blank line belongs between two statements."""
    if isinstance(before, Comment):
        return False
    if isinstance(before, If) and before.then and isinstance(before.then[-1], Return):
        return True
    return isinstance(stmt, Comment) or (depth == 1 and isinstance(before, Let) != isinstance(stmt, Let))


def converting(name: str) -> str:
    """What makes a value one of a type of C++: its name, where that is one word."""
    return f"static_cast<{name}>" if " " in name else name
