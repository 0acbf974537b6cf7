"""OpenCL C's 2D block reads, writes and prefetches (cl_intel_subgroup_2d_block_io): their functions and calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import Block2D, CopyAtom
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Load
from gemmgen.ir.instructions import WORD_BYTES
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import BlockPayload, PayloadAdvance, Prefetch, VectorCopy
from gemmgen.ir.walk import walk

#: The extension.
BLOCK_2D = "cl_intel_subgroup_2d_block_io"
#: Without address payloads: the extension's own functions alone.
NO_PAYLOADS = "GEMMGEN_NO_ADDRESS_PAYLOADS"
#: What a kernel may do with blocks of a shape.
KINDS = "loads reads prefetches writes places reads_at prefetches_at".split()
#: Bytes of what a lane's elements come in, where nothing is transformed.
HALF_WORD_BYTES = 2


class Printer(Protocol):
    """What prints expressions."""

    def expr(self, node: Expr, context: int = 0) -> str:
        """An expression."""

    def address(self, buffer: Buffer, index: tuple[Expr, ...]) -> str:
        """Where an element lies."""

    def number(self, number: int, outer: int = 0) -> str:
        """A whole number."""


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


def payloads(kernel: Kernel) -> frozenset[Buffer]:
    """The arrays of address payloads."""
    return frozenset(s.payload for s in walk(kernel.body) if isinstance(s, BlockPayload))


def payload_moves(kernel: Kernel) -> list[dict[str, object]]:
    """The functions that advance a payload. Of a transposed block columns are counted in words."""
    sizes = {s.payload: s.matrix.dtype.size for s in walk(kernel.body) if isinstance(s, BlockPayload)}
    found = {
        (_move_name(s), "YX"[s.axis], WORD_BYTES // sizes[s.payload] if _in_words(s) else 1)
        for s in walk(kernel.body)
        if isinstance(s, PayloadAdvance)
    }
    return [{"name": name, "axis": axis, "per": per} for name, axis, per in sorted(found)]


def _in_words(stmt: PayloadAdvance) -> bool:
    return stmt.axis == 1 and stmt.atom.block is not None and stmt.atom.block.transposed


def _move_name(stmt: PayloadAdvance) -> str:
    return "move_words" if _in_words(stmt) else f"move_{('rows', 'cols')[stmt.axis]}"


def payload_array(payload: Buffer) -> Buffer:
    """One as it is declared: an element for each payload, without its row and column."""
    return replace(payload, layout=Layout.packed(*payload.extents[:-1]))


def _name(block: Block2D) -> str:
    """What a function's name ends in: rows and columns of what it brings."""
    rows, cols = block.shape
    two_rows = "two_rows_" if block.lines > 1 else ""
    return f"{two_rows}{'vnni_' if block.transformed else 'transposed_' if block.transposed else ''}{rows}x{cols}"


def _extension_name(block: Block2D, size: int) -> str:
    """The same as the extension has it."""
    if block.transposed:
        return f"transpose_32b_{block.lanes}r{block.rows * size // WORD_BYTES}x1c"
    how = "transform_" if block.transformed else ""
    return f"{how}{8 * size}b_{block.rows}r{block.across}x{block.count}c"


def _payload_shape(block: Block2D, size: int) -> tuple[int, int, int]:
    """Columns and rows of a block, and blocks, as an address payload has them."""
    if block.transposed:
        return block.rows * size // WORD_BYTES, block.lanes, 1
    return block.across, block.rows, block.count


def _payload_name(block: Block2D, size: int) -> str:
    """What the names of functions that take an address payload end in."""
    cols, rows, count = _payload_shape(block, size)
    how = "transpose_" if block.transposed else "transform_" if block.transformed else ""
    return f"{how}u{8 * WORD_BYTES if block.transposed else 8 * size}_m{rows}k{cols}v{count}"


def block_2d_functions(kernel: Kernel, types: Mapping[str, str]) -> list[dict[str, object]]:
    """The functions that a kernel calls, by what they bring: for templates/opencl/block_io.cl.j2."""
    used: dict[tuple[Block2D, DType], set[str]] = {}

    def note(block: Block2D, dtype: DType, *kinds: str) -> None:
        used.setdefault((replace(block, by_payload=False), dtype), set()).update(kinds)

    for stmt in walk(kernel.body):
        match stmt:
            case VectorCopy(dst=Buffer(dtype=dtype), atom=CopyAtom(name="block_2d_write", block=Block2D() as block)):
                note(block, dtype, "writes")
            case VectorCopy(atom=CopyAtom(block=Block2D() as block, aligned=is_read), src=Buffer(dtype=dtype)):
                # In software a read is such loads.
                at = ("reads_at",) if block.by_payload else ()
                note(block, dtype, "loads", *(("reads", *at) if is_read else ()))
            case Prefetch(atom=CopyAtom(block=Block2D() as block), buffer=Buffer(dtype=dtype)):
                note(block, dtype, "prefetches", *(("prefetches_at",) if block.by_payload else ()))
            case BlockPayload(atom=CopyAtom(block=Block2D() as block), matrix=Buffer(dtype=dtype)):
                note(block, dtype, "places")
    return [{**_words(block, dtype, types), **{x: x in kinds for x in KINDS}} for (block, dtype), kinds in used.items()]


def _words(block: Block2D, dtype: DType, types: Mapping[str, str]) -> dict[str, object]:
    name = _extension_name(block, dtype.size)
    in_words = block.transformed or block.transposed or dtype.size == WORD_BYTES
    return {
        "name": _name(block),
        "read": f"intel_sub_group_2d_block_read_{name}",
        "prefetch": f"intel_sub_group_2d_block_prefetch_{name}",
        "write": f"intel_sub_group_2d_block_write_{name}",
        "payload": _payload_name(block, dtype.size),
        "block": _payload_shape(block, dtype.size),
        "height": block.rows,
        "width": block.shape[1],
        "elements": block.elements,
        "lanes": block.lanes,
        "lines": block.lines,
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
    if move.atom.block.by_payload:
        return f"read_{_name(move.atom.block)}_at({to}, {_payload(printer, move.src_index)});"
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
    if atom.block.by_payload:
        return f"prefetch_{_name(atom.block)}_at({_payload(printer, stmt.index)});"
    return f"prefetch_{_name(atom.block)}({_matrix(printer, stmt.buffer, stmt.index, stmt.extent)});"


def payload_text(printer: Printer, stmt: BlockPayload | PayloadAdvance) -> str:
    """What fills an address payload, or moves its block."""
    if (block := stmt.atom.block) is None:
        raise ValueError(f"{stmt.atom.name} takes no address payload")
    where = _element(printer, stmt.payload, stmt.which)
    if isinstance(stmt, BlockPayload):
        return f"{where} = place_{_name(block)}({_matrix(printer, stmt.matrix, stmt.index, stmt.extent)});"
    return f"{_move_name(stmt)}(&{where}, {printer.number(stmt.by)});"


def _payload(printer: Printer, index: tuple[Expr, ...]) -> str:
    """The address of the payload in which row and column of a block stand."""
    if not isinstance(place := index[0], Load):
        raise ValueError("a block by an address payload begins where that says")
    return f"&{_element(printer, place.buffer, place.index[:-1])}"


def _element(printer: Printer, payload: Buffer, which: tuple[Expr, ...]) -> str:
    return payload.name + "".join(f"[{printer.expr(x)}]" for x in which)


def _matrix(printer: Printer, matrix: Buffer, index: tuple[Expr, ...], extent: tuple[Expr, ...]) -> str:
    """A matrix, its size, and where a block of it begins, which the extension counts along lines first."""
    rows, cols, pitch = (printer.expr(x) for x in (*extent, matrix.layout.strides[-2]))
    y, x = (printer.expr(x) for x in index)
    return f"{matrix.name}, {rows}, {cols}, {pitch}, (int2)({x}, {y})"
