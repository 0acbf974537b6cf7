"""What is delivered: text, and all that a host needs to launch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr
from gemmgen.ir.sizes import EXTENTS, GROUPS, Workspace
from gemmgen.ir.walk import evaluate, walk_expr
from gemmgen.records import dataclass
from gemmgen.spec import GemmSpec

ArgumentKind = Literal["buffer", "image", "int", "scalar", "map"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an entry point: a buffer, an image, an integer or a scalar of `dtype`, or a tensor map."""

    name: str
    kind: ArgumentKind
    dtype: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class TensorMap:
    """How the host makes the argument `name` of a matrix: `cuTensorMapEncodeTiled` of two dimensions, of a batch's
    matrices three.

    Attributes:
        operand: the matrix.
        lines, length: its extents in storage order, as expressions over the integer arguments.
        pitch: how many elements lie between the beginnings of two lines, as such an expression.
        box: lines, and elements of a line, that a TMA load copies.
        swizzle: bytes of the lines of local memory that it goes to; 0 where those don't swizzle.
        batch: how many matrices there are, and how many elements lie between the beginnings of two, 0 where one serves
            for all; None where it is of one matrix.
        rounded: whether it rounds float32 to TF32.
        ends: whether it is a matrix for each line that a group may end at, of the `lines` before that: so many pitches
            lie before the operand, and of these no line is copied.
    """

    name: str
    operand: str
    dtype: DType
    lines: Expr
    length: Expr
    pitch: Expr
    box: tuple[int, int]
    swizzle: int
    batch: tuple[Expr, Expr] | None = None
    ends: bool = False
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A kernel of the source and its launch geometry.

    Attributes:
        arguments: in the order of the signature.
        group: work-items of a group (rows, columns); columns are dimension 0.
        grid: groups along (rows, columns), as expressions over the integer arguments.
        layers: the integer that says how many such grids there are, dimension 2; None for one.
        local_bytes: local memory of a group.
        dynamic_bytes: how much of it the launch must ask for.
        sub_group: lanes that it requires, or None.
        early: whether it may begin while the kernel before it ends, which it awaits.
        maps: what the host makes of matrices before, for the arguments that are tensor maps.
        persistent: whether the launch has no more groups than the device runs at once, however many `grid` says.
        cluster: what the number of groups is a multiple of, however few there are.
    """

    name: str
    arguments: tuple[Argument, ...]
    group: tuple[int, int]
    grid: tuple[Expr, Expr]
    local_bytes: int
    dynamic_bytes: int
    sub_group: int | None
    layers: str | None = None
    early: bool = False
    maps: tuple[TensorMap, ...] = ()
    persistent: bool = False
    cluster: int = 1

    def groups(self, sizes: Mapping[str, int]) -> tuple[int, int, int]:
        """Work-groups along (layers, rows, columns) for the values of the integer arguments."""
        rows, cols = self.grid
        layers = 1 if self.layers is None else sizes[self.layers]
        return layers, evaluate(rows, sizes), evaluate(cols, sizes)


@dataclass(frozen=True, slots=True)
class Source:
    """Emitted source text with its entry points.

    Attributes:
        operation: `gemm`, or `transpose` for the packing kernel.
        spec: what a `gemm` computes; sizes folded there are no arguments.
        build_options: what the compiler must be told.
        gpu_options: what the compiler for Intel's GPUs must be told as well; others don't take it.
        matrix_options: what it must be told where the device has matrix instructions, and where it has none; empty for
            nothing, None where the text uses none of OpenCL's.
        matrix_extensions: of OpenCL, those that such a device has.
        extensions: of OpenCL, that a device must have.
        requires: features of the target that the text uses.
        alignment: bytes that matrices must begin on multiples of.
        span: elements that A and B must span less than, from the first to the last.
        workspaces: memory between its kernels.
    """

    name: str
    backend: str
    operation: Literal["gemm", "transpose"]
    text: str
    entry_points: tuple[EntryPoint, ...]
    spec: GemmSpec
    build_options: tuple[str, ...] = ()
    gpu_options: tuple[str, ...] = ()
    matrix_options: tuple[str, str] | None = None
    matrix_extensions: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    requires: frozenset[str] = frozenset()
    alignment: int = 1
    span: int = 2**31
    workspaces: tuple[Workspace, ...] = ()

    def options(self, of_intel: bool, has_matrices: bool) -> tuple[str, ...]:
        """What the compiler of a device must be told.

        Args:
            of_intel: whether it is a GPU of Intel's.
            has_matrices: whether it has matrix instructions.
        """
        matrices = () if self.matrix_options is None else (self.matrix_options[0 if has_matrices else 1],)
        return (*self.build_options, *(self.gpu_options if of_intel else ()), *(x for x in matrices if x))

    @property
    def asks_device(self) -> bool:
        """Whether launches depend on how many groups the device runs at once (`gemmgen.ir.kernel.GROUPS`)."""
        return any(part == GROUPS for e in self.entry_points for extent in e.grid for part in walk_expr(extent))

    def launches(self, sizes: Mapping[str, int]) -> tuple[tuple[int, tuple[int, int, int]], ...]:
        """Which entry points a call runs, by their numbers, with the groups of each.

        Those without a group are left out, as no device launches them; where the result has no element, so are all.
        """
        if 0 in (sizes.get(extent) for extent in EXTENTS):
            return ()
        groups = (entry.groups(sizes) for entry in self.entry_points)
        return tuple((number, each) for number, each in enumerate(groups) if 0 not in each)

    def _repr_html_(self) -> str:
        """What a notebook shows: what the kernels compute, and the text, folded away."""
        from html import escape  # its table of entities is large, and a call needs none

        kernels = ", ".join(f"<code>{escape(entry.name)}</code>" for entry in self.entry_points)
        lines = self.text.count("\n")
        return (
            f"<p><b>{escape(self.name)}</b> ({escape(self.backend)}): {escape(self.spec.formula())}, "
            f"{escape(self.spec.label())}. Kernels: {kernels}.</p>"
            f"<details><summary>Source, {lines} lines</summary><pre>{escape(self.text)}</pre></details>"
        )
