"""What a backend says for its language: types, memory, instructions, and what stands around a kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from gemmgen.backends.expressions import Expressions
from gemmgen.errors import LoweringError
from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Var, compare, number
from gemmgen.ir.kernel import Kernel, idle_without, uses_features
from gemmgen.ir.meetings import AsyncGroup, Barrier, Handover, Mbarrier, RoleStep
from gemmgen.ir.stmt import BoxCopy, For, Move, Multiply
from gemmgen.ir.target import Target
from gemmgen.ir.walk import walk
from gemmgen.ir.workspace import Workspace
from gemmgen.spec import GemmSpec

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
class Language(Expressions, ABC):
    """What a C-family language says, for a kernel.

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
        touched = [(m, b) for m, b in given if not (b == m.dst and b.packed)]
        elements = [p.dtype.size for p in self.kernel.matrices if p.dtype.real is not None]
        boxes = [MAP_BYTES for p in self.kernel.matrices if p.box is not None and not p.packed]
        return max([1, *(m.width * b.dtype.size for m, b in touched), *elements, *boxes])

    def beginning(self, name: str) -> int:
        """The same of one matrix; also of a prepacked one, which may be read by TMA tiles."""
        boxed = any(p.name == name and p.box is not None for p in self.kernel.matrices)
        return max(self.alignment(), MAP_BYTES if boxed else 1)

    @abstractmethod
    def requirements(self) -> list[str]:
        """What the head comment says that the kernel needs of a device."""

    @classmethod
    def unfit(cls, group: tuple[int, int]) -> str | None:  # noqa: ARG003
        """Why nobody should choose a kernel with groups of so many work-items, though it runs; None where one may."""
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

    def matrix_options(self) -> tuple[str, str] | None:
        """What it must be told where the device has matrix instructions and where it has none, if that matters."""
        return None

    def extensions(self) -> tuple[str, ...]:
        """The extensions of the language that a device must have."""
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
