"""2D block reads, writes and prefetches (cl_intel_subgroup_2d_block_io) in OpenCL C and SYCL: functions and calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Protocol

from gemmgen.backends.printer import Printer
from gemmgen.ir.buffer import Buffer, Layout, Space
from gemmgen.ir.copy_instructions import Block2D, CopyAtom
from gemmgen.ir.dtypes import DType
from gemmgen.ir.expr import Expr, Load
from gemmgen.ir.instructions import WORD_BYTES, Instruction
from gemmgen.ir.kernel import Kernel
from gemmgen.ir.stmt import BlockPayload, Multiply, PayloadAdvance, PlaceStmt, Prefetch, VectorCopy
from gemmgen.ir.synchronization import Barrier
from gemmgen.ir.walk import of_kind, walk
from gemmgen.records import dataclass

#: The extension.
BLOCK_2D = "cl_intel_subgroup_2d_block_io"
#: The macro by which a caller asks for matrix instructions and 2D block messages in software.
SOFTWARE = "GEMMGEN_DPAS_SOFTWARE"
#: Without address payloads: the extension's own functions alone.
NO_PAYLOADS = "GEMMGEN_NO_ADDRESS_PAYLOADS"
#: What a kernel may do with blocks of a shape.
KINDS = "loads reads prefetches writes places reads_at prefetches_at".split()
#: Bytes of what a lane's elements come in, where nothing is transformed.
HALF_WORD_BYTES = 2


@dataclass(frozen=True, slots=True)
class BlockWords:
    """What templates/block_io.j2 has to know of a language.

    Attributes:
        inline: before a function.
        spaces: before a pointer of functions that are defined: to private and to global memory.
        declared, builtin: before a function of the compiler's own: one that is mangled, and one that is not.
        to: before a pointer of such functions, to private and to global memory.
        place: a column and a row as an `int2`.
        pair, make: what those functions take them in, and how that is made of two numbers.
        long: an integer of 64 bits.
        vector: what the names of vectors' types begin with.
        lane: a lane's number in its sub-group.
        unroll: before a loop of a number of rounds.
        in_order: a statement that keeps a lane's loads in order, if the compiler does not.
        copies: a statement instead of a loop that copies `words` to `to`.
        struct: the beginning and the end of a structure's declaration.
        words: what words of 16 and 32 bits are called.
        bits: an element of so many bytes as an unsigned integer.
        keep: a statement that puts word number `w` of a lane's elements to `to`.
    """

    inline: str
    spaces: tuple[str, str]
    declared: str
    builtin: str
    to: tuple[str, str]
    place: str
    pair: str
    make: str
    long: str
    vector: str
    lane: str
    unroll: str
    in_order: str | None
    copies: str | None
    struct: tuple[str, str]
    words: Mapping[str, str]
    bits: Mapping[int, str]
    keep: str


class BlockPrinter(Printer, Protocol):
    """A language that has them."""

    block_words: ClassVar[BlockWords]


def multiplies_by(kernel: Kernel, atom: str) -> bool:
    """Whether a kernel has matrix instructions of a name."""
    return any(s.atom.name == atom for s in of_kind(Multiply, kernel.body))


def dpas_function(instruction: Instruction) -> str:
    """What the extension calls it (cl_intel_subgroup_matrix_multiply_accumulate)."""
    kind = instruction.short
    return f"intel_sub_group_{kind}_{'i4' if instruction.b_pairs else kind}_matrix_mad_k{instruction.depth}"


def splits_barriers(kernel: Kernel) -> bool:
    """Whether it has barriers in two parts."""
    return any(s.part != "all" for s in of_kind(Barrier, kernel.body))


def reads_2d_blocks(kernel: Kernel) -> bool:
    """Whether a kernel needs the extension."""
    return any(s.atom.block is not None for s in of_kind(VectorCopy, kernel.body))


def writes_2d_blocks(kernel: Kernel) -> bool:
    """Whether it stores C by it."""
    return any(s.atom.name == "block_2d_write" for s in of_kind(VectorCopy, kernel.body))


def private_words(kernel: Kernel) -> frozenset[Buffer]:
    """Arrays of a lane's elements that are read and written in words."""
    copies = (s for s in of_kind(VectorCopy, kernel.body) if s.atom.block is not None)
    return frozenset(s.dst for s in copies if s.dst.space is Space.PRIVATE)


def payloads(kernel: Kernel) -> frozenset[Buffer]:
    """The arrays of address payloads."""
    return frozenset(s.payload for s in of_kind(BlockPayload, kernel.body))


def payload_needs(kernel: Kernel) -> list[str]:
    """What the head comment says of them."""
    say = "the functions of Intel's compiler for address payloads; or, without them,"
    return [f"{say} -D{NO_PAYLOADS}"] if payloads(kernel) else []


def payload_moves(kernel: Kernel) -> list[dict[str, str]]:
    """The functions that advance a payload."""
    axes = {s.axis for s in of_kind(PayloadAdvance, kernel.body)}
    return [{"name": _move_name(axis), "axis": "YX"[axis]} for axis in sorted(axes, reverse=True)]


def _move_name(axis: int) -> str:
    return f"move_{('rows', 'cols')[axis]}"


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


def block_2d_fields(kernel: Kernel, words: BlockWords, types: Mapping[str, str], zero: str) -> dict[str, object]:
    """What templates/block_io.j2 is filled with; `zero` is an element of that value."""
    blocks = [
        {**_block(block, dtype, types[dtype.name], words), "zero": zero, **{x: x in kinds for x in KINDS}}
        for (block, dtype), kinds in _used(kernel).items()
    ]
    vectors = {(x["vector"], x["word"], x["words"]): None for x in blocks if x["reads_at"]}
    return {
        "w": words,
        "blocks": blocks,
        "block_vectors": list(vectors),
        "payloads": bool(payloads(kernel)),
        "payload_moves": payload_moves(kernel),
        "software": SOFTWARE,
        "no_payloads": NO_PAYLOADS,
    }


def _used(kernel: Kernel) -> dict[tuple[Block2D, DType], set[str]]:
    """What a kernel does with blocks of a shape and a type."""
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
    return used


def _block(block: Block2D, dtype: DType, element: str, words: BlockWords) -> dict[str, object]:
    name = _extension_name(block, dtype.size)
    in_words = block.transformed or block.transposed or dtype.size == WORD_BYTES
    per = (WORD_BYTES if in_words else HALF_WORD_BYTES) // dtype.size
    word = "uint" if in_words else "ushort"
    row, col = _offsets(block)
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
        "transformed": block.transformed,
        "col_unit": f" * {block.col_unit}" if block.col_unit > 1 else "",
        "transposed": block.transposed,
        "row": row,
        "col": col,
        "words": block.elements // per,
        "word": words.words[word],
        "per": per,
        "bits": words.bits[dtype.size].format(word=words.words[word], element="{}") if per > 1 else "",
        "size": 8 * dtype.size,
        "vector": f"{words.vector}{word}{block.elements // per}",
        "element": element,
        "odd": max(1, WORD_BYTES // dtype.size),
        "bytes": f" * {dtype.size}" if dtype.size > 1 else "",
    }


def _offsets(block: Block2D) -> tuple[str, str]:
    """Row and column of a lane's element e, from where the block begins (`Block2D.offset`, `lane_offset`)."""
    if block.transposed:
        return "lane", "e"
    own, lines = block.neighbours, block.lines
    of_block, side = block.rows * own // lines, block.lanes // lines
    several = block.elements > of_block
    next_blocks = f" + e / {of_block} * {block.across}" if several else ""
    if lines > 1:
        return f"{f'e % {of_block}' if several else 'e'} * {lines} + lane / {side}", f"lane % {side}{next_blocks}"
    if own > 1:
        row = f"e / {own}{f' % {block.rows}' if several else ''}"
        return row, f"lane * {own} + e % {own}{next_blocks}"
    return f"e % {of_block}" if several else "e", f"lane{next_blocks}"


def read_text(printer: BlockPrinter, move: VectorCopy) -> str:
    """The call that brings a block."""
    if move.atom.block is None or move.dst.space is not Space.PRIVATE:
        raise ValueError(f"{move.atom.name} reads no block to registers")
    verb = "read" if move.atom.aligned else "load"
    to = printer.address(move.dst, move.dst_index)
    if move.atom.block.by_payload:
        return f"read_{_name(move.atom.block)}_at({to}, {_payload(printer, move.src_index)});"
    return f"{verb}_{_name(move.atom.block)}({to}, {_matrix(printer, move.src, move.src_index, move.extent)});"


def write_text(printer: BlockPrinter, move: VectorCopy) -> str:
    """The call that stores a block."""
    if move.atom.block is None or move.src.space is not Space.PRIVATE:
        raise ValueError(f"{move.atom.name} stores no block from registers")
    matrix = _matrix(printer, move.dst, move.dst_index, move.extent)
    return f"write_{_name(move.atom.block)}({matrix}, {printer.address(move.src, move.src_index)});"


def prefetch_text(printer: BlockPrinter, stmt: Prefetch, atom: CopyAtom) -> str:
    """The call that asks for a block."""
    if atom.block is None:
        raise ValueError(f"{atom.name} asks for no block")
    if atom.block.by_payload:
        return f"prefetch_{_name(atom.block)}_at({_payload(printer, stmt.index)});"
    return f"prefetch_{_name(atom.block)}({_matrix(printer, stmt.buffer, stmt.index, stmt.extent)});"


def placed_text(printer: BlockPrinter, stmt: PlaceStmt) -> str | None:
    """A statement that says where a block begins or will be needed, or None for any other."""
    if isinstance(stmt, BlockPayload | PayloadAdvance):
        return _payload_text(printer, stmt)
    if isinstance(stmt, Prefetch) and stmt.atom is not None:
        return prefetch_text(printer, stmt, stmt.atom)
    return None


def declared(kernel: Kernel, buffer: Buffer, lines: list[str], dimensions: Callable[[Buffer], str]) -> list[str]:
    """The declaration of an array: as given in `lines`, unless blocks or payloads are in it."""
    if buffer in payloads(kernel):
        return [f"block_place {buffer.name}{dimensions(payload_array(buffer))};"]
    if buffer in private_words(kernel):
        return [*lines[:-1], lines[-1].replace(";", " __attribute__((aligned(4)));")]
    return lines


def _payload_text(printer: BlockPrinter, stmt: BlockPayload | PayloadAdvance) -> str:
    """What fills an address payload, or moves its block."""
    if (block := stmt.atom.block) is None:
        raise ValueError(f"{stmt.atom.name} takes no address payload")
    where = _element(printer, stmt.payload, stmt.which)
    if isinstance(stmt, BlockPayload):
        return f"{where} = place_{_name(block)}({_matrix(printer, stmt.matrix, stmt.index, stmt.extent)});"
    return f"{_move_name(stmt.axis)}(&{where}, {printer.number(stmt.by)});"


def _payload(printer: BlockPrinter, index: tuple[Expr, ...]) -> str:
    """The address of the payload in which row and column of a block stand."""
    if not isinstance(place := index[0], Load):
        raise ValueError("a block by an address payload begins where that says")
    return f"&{_element(printer, place.buffer, place.index[:-1])}"


def _element(printer: BlockPrinter, payload: Buffer, which: tuple[Expr, ...]) -> str:
    return payload.name + "".join(f"[{printer.expr(x)}]" for x in which)


def _matrix(printer: BlockPrinter, matrix: Buffer, index: tuple[Expr, ...], extent: tuple[Expr, ...]) -> str:
    """A matrix, its size, and where a block of it begins, which the extension counts along lines first."""
    rows, cols, pitch = (printer.expr(x) for x in (*extent, matrix.layout.strides[-2]))
    y, x = (printer.expr(x) for x in index)
    return f"{matrix.name}, {rows}, {cols}, {pitch}, {printer.block_words.place.format(x, y)}"
