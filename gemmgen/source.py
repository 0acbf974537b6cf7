"""What is delivered: text, and all that a host needs to launch it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Var
from gemmgen.ir.kernel import Kernel, Workspace
from gemmgen.ir.meetings import Handover
from gemmgen.ir.stmt import BoxCopy, Move
from gemmgen.ir.visit import addressed, evaluate, walk
from gemmgen.ir.warpgroup_matrix import LINE_BYTES
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
        box: lines, and elements of a line, that a copy brings.
        swizzle: bytes of the lines of local memory that it goes to; 0 where those don't swizzle.
        batch: how many matrices there are, and how many elements lie between the beginnings of two, 0 where one serves
            for all; None where it is of one matrix.
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
    requires: frozenset[str] = frozenset()
    alignment: int = 1
    span: int = 2**31
    workspaces: tuple[Workspace, ...] = ()

    def launches(self, sizes: Mapping[str, int]) -> tuple[tuple[int, tuple[int, int, int]], ...]:
        """Which entry points a call runs, by their numbers, with the groups of each.

        Those without a group are left out, as no device launches them; where the result has no element, so are all.
        """
        groups = [entry.groups(sizes) for entry in self.entry_points]
        main = min(range(len(groups)), key=lambda number: len(self.entry_points[number].name))
        if 0 in groups[main]:
            return ()
        return tuple((number, each) for number, each in enumerate(groups) if 0 not in each)


def span(kernel: Kernel) -> int:
    """What A and B must span less than: 2^31 of what their 32-bit addresses count, elements or bytes; or 2^63."""
    if any(matrix.reach > 2**31 for matrix in kernel.matrices):
        return 2**63
    moves = (s for s in walk(kernel.body) if isinstance(s, Move) and s.byte_place and s.src.space is Space.GLOBAL)
    return 2**31 // max((move.src.dtype.size for move in moves), default=1)


def entry_point(kernel: Kernel, local_bytes: int, dynamic_bytes: int) -> EntryPoint:
    """The launch side of a kernel."""
    return EntryPoint(
        kernel.name,
        tuple(_argument(param, kernel) for param in passed(kernel)),
        kernel.group,
        kernel.grid,
        local_bytes,
        dynamic_bytes,
        kernel.sub_group,
        None if kernel.layers is None else kernel.layers.name,
        any(isinstance(stmt, Handover) and stmt.verb == "await" for stmt in walk(kernel.body)),
        tensor_maps(kernel),
        kernel.persistent,
        kernel.cluster,
    )


def passed(kernel: Kernel) -> tuple[Buffer | Var, ...]:
    """The arguments of a kernel's function: of a matrix in boxes a map, which its leading dimension is a part of; and
    behind that the matrix without boxes, where it is read or written by elements as well.
    """
    boxed = {p.name: p for p in kernel.matrices if p.box is not None}
    alone = {p.name for p in kernel.matrices} - boxed.keys() | addressed(kernel)
    strides = {p.name: set(p.layout.strides) for p in kernel.matrices}
    # Of what a kernel before laid out, lines are as long as a size says.
    in_maps = {s for name, p in boxed.items() for s in strides[name] if s not in p.shape}
    used = {s for name in alone for s in strides[name]}
    out: list[Buffer | Var] = []
    for p in kernel.given:
        if isinstance(p, Buffer):
            out += in_boxes(p, kernel)
        elif p not in in_maps - used:
            out.append(p)
        if p.name in boxed.keys() & alone:
            out.append(replace(boxed[p.name], box=None))
    return tuple(out)


def tensor_maps(kernel: Kernel) -> tuple[TensorMap, ...]:
    """The maps that a kernel is given in the place of matrices."""
    out: list[TensorMap] = []
    copies = [s for s in walk(kernel.body) if isinstance(s, BoxCopy)]
    swizzles = {x.name: tile.layout.swizzle for s in copies for x, tile in ((s.src, s.dst), (s.dst, s.src))}
    for p in (box for matrix in kernel.matrices for box in in_boxes(matrix, kernel)):
        if p.box is not None:
            (lines, length), pitch = p.shape[-2:], p.layout.strides[-2]
            name, swizzle = map_name(p, kernel), swizzles.get(p.name, LINE_BYTES)
            batch = (p.shape[0], p.layout.strides[0]) if len(p.shape) > 2 else None
            out.append(TensorMap(name, p.name, p.dtype, lines, length, pitch, p.box, swizzle, batch))
    return tuple(out)


def in_boxes(matrix: Buffer, kernel: Kernel) -> tuple[Buffer, ...]:
    """A matrix as it is given; and where tiles end in narrower boxes, in those as well."""
    copies = (stmt for stmt in walk(kernel.body) if isinstance(stmt, BoxCopy))
    found = (x.box for stmt in copies for x in (stmt.src, stmt.dst) if x.name == matrix.name)
    return tuple(replace(matrix, box=box) for box in dict.fromkeys((matrix.box, *found)))


def map_name(matrix: Buffer, kernel: Kernel) -> str:
    """What the map of a matrix is called, by the boxes that it is in."""
    given = next(p for p in kernel.matrices if p.name == matrix.name)
    return f"{matrix.name}_map" if matrix.box == given.box else f"{matrix.name}_end_map"


def _argument(param: Buffer | Var, kernel: Kernel) -> Argument:
    if isinstance(param, Var):
        return Argument(param.name, "scalar" if param.dtype.is_float else "int", param.dtype.name)
    if param.box is not None:
        return Argument(map_name(param, kernel), "map", param.dtype.name)
    kind: ArgumentKind = "image" if param.space is Space.IMAGE else "buffer"
    return Argument(param.name, kind, param.dtype.name, param.writable)
