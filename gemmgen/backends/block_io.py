"""OpenCL C's 2D block reads, writes and prefetches (cl_intel_subgroup_2d_block_io): their functions and calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gemmgen.ir.buffer import Buffer, Space
from gemmgen.ir.copy_instructions import Block2D, CopyAtom
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr
from gemmgen.ir.instructions import WORD_BYTES
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import Prefetch, VectorCopy
from gemmgen.ir.walk import walk

#: The extension.
BLOCK_2D = "cl_intel_subgroup_2d_block_io"
#: Bytes of what a lane's elements come in, where nothing is transformed.
HALF_WORD_BYTES = 2


class Printer(Protocol):
    """What prints expressions."""

    def expr(self, node: Expr, context: int = 0) -> str:
        """An expression."""

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """Where an element lies."""


def reads_2d_blocks(kernel: Kernel) -> bool:
    """Whether a kernel needs the extension."""
    return any(isinstance(s, VectorCopy) and s.atom.block is not None for s in walk(kernel.body))


def writes_2d_blocks(kernel: Kernel) -> bool:
    """Whether it stores C by it."""
    return any(isinstance(s, VectorCopy) and s.atom.name == "block_2d_write" for s in walk(kernel.body))


def private_words(kernel: Kernel) -> frozenset[Buffer]:
    """Arrays of a lane's elements that are read and written in words."""
    copies = (s for s in walk(kernel.body) if isinstance(s, VectorCopy) and s.atom.block is not None)
    return frozenset(s.dst for s in copies if s.dst.space is Space.PRIVATE)


def _name(block: Block2D) -> str:
    """What a function's name ends in: rows and columns of what it brings."""
    rows, cols = block.shape
    return f"{'vnni_' if block.transformed else 'transposed_' if block.transposed else ''}{rows}x{cols}"


def _extension_name(block: Block2D, size: int) -> str:
    """The same as the extension has it."""
    if block.transposed:
        return f"transpose_32b_{block.lanes}r{block.rows * size // WORD_BYTES}x1c"
    how = "transform_" if block.transformed else ""
    return f"{how}{8 * size}b_{block.rows}r{block.lanes * block.neighbours}x{block.count}c"


def block_2d_functions(kernel: Kernel, types: Mapping[str, str]) -> list[dict[str, object]]:
    """The functions that a kernel calls, by what they bring: for templates/opencl/block_io.cl.j2."""
    used: dict[tuple[Block2D, DType], set[str]] = {}
    for stmt in walk(kernel.body):
        match stmt:
            case VectorCopy(dst=Buffer(dtype=dtype), atom=CopyAtom(name="block_2d_write", block=Block2D() as block)):
                used.setdefault((block, dtype), set()).add("writes")
            case VectorCopy(atom=CopyAtom(block=Block2D() as block, aligned=is_read), src=Buffer(dtype=dtype)):
                # In software a read is such loads.
                used.setdefault((block, dtype), set()).update({"loads", "reads"} if is_read else {"loads"})
            case Prefetch(atom=CopyAtom(block=Block2D() as block), buffer=Buffer(dtype=dtype)):
                used.setdefault((block, dtype), set()).add("prefetches")
    return [
        {**_words(block, dtype, types), **{kind: kind in kinds for kind in ("loads", "reads", "prefetches", "writes")}}
        for (block, dtype), kinds in used.items()
    ]


def _words(block: Block2D, dtype: DType, types: Mapping[str, str]) -> dict[str, object]:
    name = _extension_name(block, dtype.size)
    in_words = block.transformed or block.transposed or dtype.size == WORD_BYTES
    return {
        "name": _name(block),
        "read": f"intel_sub_group_2d_block_read_{name}",
        "prefetch": f"intel_sub_group_2d_block_prefetch_{name}",
        "write": f"intel_sub_group_2d_block_write_{name}",
        "height": block.rows,
        "width": block.shape[1],
        "elements": block.elements,
        "lanes": block.lanes,
        "own": block.neighbours,
        "transformed": block.transformed,
        "transposed": block.transposed,
        "per": (WORD_BYTES if in_words else HALF_WORD_BYTES) // dtype.size,
        "word": "uint" if in_words else "ushort",
        "element": types[dtype.name],
        "bits": 8 * dtype.size,
        "bytes": f" * {dtype.size}" if dtype.size > 1 else "",
    }


def read_text(printer: Printer, move: VectorCopy) -> str:
    """The call that brings a block."""
    if move.atom.block is None or move.dst.space is not Space.PRIVATE:
        raise ValueError(f"{move.atom.name} reads no block to registers")
    verb = "read" if move.atom.aligned else "load"
    to = printer.address(move.dst, move.dst_index)
    return f"{verb}_{_name(move.atom.block)}({to}, {_matrix(printer, move.src, move.src_index, move.extent)});"


def write_text(printer: Printer, move: VectorCopy) -> str:
    """The call that stores a block."""
    if move.atom.block is None or move.src.space is not Space.PRIVATE:
        raise ValueError(f"{move.atom.name} stores no block from registers")
    matrix = _matrix(printer, move.dst, move.dst_index, move.extent)
    return f"write_{_name(move.atom.block)}({matrix}, {printer.address(move.src, move.src_index)});"


def prefetch_text(printer: Printer, stmt: Prefetch, atom: CopyAtom) -> str:
    """The call that asks for a block."""
    if atom.block is None:
        raise ValueError(f"{atom.name} asks for no block")
    return f"prefetch_{_name(atom.block)}({_matrix(printer, stmt.buffer, stmt.index, stmt.extent)});"


def _matrix(printer: Printer, matrix: Buffer, index: tuple[Expr, ...], extent: tuple[Expr, ...]) -> str:
    """A matrix, its size, and where a block of it begins, which the extension counts along lines first."""
    rows, cols, pitch = (printer.expr(x) for x in (*extent, matrix.layout.strides[-2]))
    y, x = (printer.expr(x) for x in index)
    return f"{matrix.name}, {rows}, {cols}, {pitch}, (int2)({x}, {y})"
